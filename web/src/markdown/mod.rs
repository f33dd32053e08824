//! Markdown of a reply to a small closed tree that can hold nothing but what is safe to show.
//!
//! Pure: no DOM, no network. Safety is in the types: a [`Tag`] names one of a few elements, and the only address in the whole
//! tree is a [`SafeUrl`], which cannot be made from anything but an http, https or mailto link. Raw HTML becomes text, images
//! become links (a page that loads them would tell their host who reads). Depth and size are bounded, whatever comes in.

mod document;
mod parse;
mod tree;
mod url;

pub use document::Document;
pub use parse::{MAX_COLUMNS, MAX_DEPTH, MAX_NODES, parse};
pub use tree::{Align, Element, Node, Tag};
pub use url::SafeUrl;

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests;
