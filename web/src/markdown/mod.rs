//! Markdown of a reply to a small closed tree that can hold nothing but what is safe to show.
//!
//! Pure: no DOM, no network. Safety is in the types: a [`Tag`] names one of a few elements, and the only address in the whole
//! tree is a [`SafeUrl`], which cannot be made from anything but an http, https or mailto link. HTML becomes text, images
//! become links (a page that loads them would tell their host who reads). Depth and size are bounded, whatever comes in.
//!
//! The language is CommonMark 0.31 with GFM's tables, strikethrough and task lists, and bare web addresses as links. The parser is
//! the page's own because of its weight: `blocks` and `leaf` read lines, `inline` and `emphasis` the text of one leaf, and `build`
//! puts a tree together. The work grows as the length of the text does (but that definitions are sorted), and nothing recurses.
//! Tests hold it to an independent parser, whose weight does not matter there.
//!
//! It differs from CommonMark and GFM in this:
//! - What HTML would do is not done: all of it is shown as it was written. A block that begins with `<pre>`, `<script>`, `<style>`
//!   or `<textarea>` ends with the end tag of that element, and not of another of the four. Titles of links are not shown. A link
//!   to an address that [`SafeUrl`] refuses is its text.
//! - Of the named character references only common ones are known (numeric ones are all); others stay text.
//! - Labels of link definitions are compared without regard to case for ASCII letters only. A hundred kilobytes of addresses, or as
//!   many as the document is long, are given out to links by label; the links behind these are text.
//! - What counts as punctuation beside `*`, `_` and `~` is known for the scripts that are written today, not for all of Unicode.
//! - One or two tildes strike through; a single one does not within a word.
//! - A head of a table that comes right behind a line of a paragraph must begin with a pipe, and none begins with a definition.
//! - Marks of quotes and lists that would open more levels than [`MAX_DEPTH`] has room for are text, and a table there is a
//!   paragraph. Emphasis and links deeper than that give their text to what holds them.
//! - A box (`[ ]`) may be all that an item holds. The last line of code has a line end only if the text has one. NUL stays as it is.
//! - An HTML block that holds blank lines does not make the list around it a loose one.

mod blocks;
mod build;
mod document;
mod emphasis;
mod entity;
mod html;
mod inline;
mod leaf;
mod line;
mod parse;
mod reference;
mod scan;
mod table;
mod tree;
mod url;

pub use document::Document;
pub use parse::{MAX_COLUMNS, MAX_DEPTH, MAX_NODES, parse};
pub use tree::{Align, Element, Node, Tag};
pub use url::SafeUrl;

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests;
