//! Text to tree: what `blocks` and `inline` found becomes nodes, within the bounds.

use super::{
    blocks::{self, Kind, Part},
    build::Builder,
    entity::unescape,
    inline,
    reference::Definitions,
    scan::{slice, tail},
    table,
    tree::{Align, Node, Tag},
    url::SafeUrl,
};

/// Elements within elements: deeper ones give their text to the one that holds them, and the marks of deeper blocks are text.
pub const MAX_DEPTH: usize = 24;
/// Pieces of one document: what follows is shown as it was written.
pub const MAX_NODES: usize = 50_000;
/// Columns of a table: the rest is left out, with a mark.
pub const MAX_COLUMNS: usize = 64;
/// Characters of a code block's language that are kept.
const MAX_LANGUAGE: usize = 32;
/// Nodes that a leaf may make at most before it asks for more: an element and a text in it, and the box of a task.
const LEAF_NODES: usize = 3;

/// The blocks of a whole document.
#[must_use]
pub fn parse(text: &str) -> Vec<Node> {
    parse_blocks(text, MAX_NODES).into_iter().map(|block| block.node).collect()
}

/// A block at the top of a document.
pub(super) struct Block {
    /// Where the line begins that it begins on, in bytes.
    pub(super) start: usize,
    /// What it is.
    pub(super) node: Node,
    /// How many nodes are in it.
    pub(super) nodes: usize,
}

pub(super) fn parse_blocks(text: &str, max_nodes: usize) -> Vec<Block> {
    let read = blocks::read(text);
    let mut tree = Tree {
        builder: Builder::new(max_nodes),
        text: &read.text,
        definitions: read.definitions,
        open: Vec::new(),
        check: None,
        columns: Vec::new(),
    };
    if max_nodes == 0 && !text.is_empty() {
        return tree.builder.give_up(0, text);
    }
    for part in read.parts {
        // An end adds nothing.
        if !matches!(part.kind, Kind::End) && !tree.builder.has_room(tree.nodes(&part)) {
            return tree.builder.give_up(part.start, text);
        }
        tree.part(part);
    }
    tree.builder.finish()
}

/// What an open container is, as far as what it holds depends on that.
#[derive(Clone, Copy)]
enum Open {
    List {
        tight: bool,
    },
    /// An item; `tight`: its paragraphs are not.
    Item {
        tight: bool,
    },
    /// A table; `headed`: its head is there.
    Table {
        headed: bool,
    },
    Other,
}

struct Tree<'t> {
    builder: Builder,
    text: &'t str,
    definitions: Definitions,
    open: Vec<Open>,
    /// The box of a task whose text comes next.
    check: Option<bool>,
    /// Of the open table.
    columns: Vec<Align>,
}

impl Tree<'_> {
    /// How many nodes `part` may need before the builder asks again whether there is room.
    fn nodes(&self, part: &Part) -> usize {
        match part.kind {
            Kind::Row => LEAF_NODES + 2 * self.columns.len().min(MAX_COLUMNS),
            _ => LEAF_NODES,
        }
    }

    fn part(&mut self, part: Part) {
        let text = slice(self.text, part.text.start, part.text.end);
        self.builder.begin(part.start);
        let titled = matches!(part.kind, Kind::Paragraph | Kind::Heading(_));
        let check = self.check.take();
        if !titled {
            self.box_of(check);
        }
        match part.kind {
            Kind::End => self.end(),
            Kind::Quote => self.container(Tag::Quote, Open::Other),
            Kind::List { first, tight } => self.container(first.map_or(Tag::List, Tag::Ordered), Open::List { tight }),
            Kind::Item => {
                let tight = matches!(self.open.last(), Some(Open::List { tight: true }));
                self.container(Tag::Item, Open::Item { tight });
            }
            Kind::Check(done) => self.check = Some(done),
            Kind::Paragraph if matches!(self.open.last(), Some(Open::Item { tight: true })) => {
                self.box_of(check);
                self.inline(text);
            }
            Kind::Paragraph => self.titled(Tag::Paragraph, check, text),
            Kind::Heading(level) => self.titled(Tag::Heading(level), check, text),
            Kind::Rule => self.builder.leaf(Tag::Rule, None),
            Kind::Code { info } => {
                let tag = Tag::CodeBlock { language: language(slice(text, 0, info)) };
                self.verbatim(tag, tail(text, info));
            }
            Kind::Html => self.verbatim(Tag::Raw, text),
            Kind::Table(columns) => {
                self.columns = columns;
                self.container(Tag::Table, Open::Table { headed: false });
            }
            Kind::Row => self.row(text),
        }
    }

    fn container(&mut self, tag: Tag, open: Open) {
        self.builder.start(tag);
        self.open.push(open);
    }

    fn end(&mut self) {
        self.open.pop();
        if self.builder.is_in(&Tag::TableBody) {
            self.builder.end();
        }
        self.builder.end();
    }

    fn box_of(&mut self, check: Option<bool>) {
        if let Some(done) = check {
            self.builder.leaf(Tag::Check(done), None);
        }
    }

    fn titled(&mut self, tag: Tag, check: Option<bool>, text: &str) {
        self.builder.start(tag);
        self.box_of(check);
        self.inline(text);
        self.builder.end();
    }

    fn verbatim(&mut self, tag: Tag, text: &str) {
        self.builder.start(tag);
        self.builder.text(text);
        self.builder.end();
    }

    /// Cells that a row lacks are empty, and those that it has too many of are left out (GFM 4.10).
    fn row(&mut self, text: &str) {
        let Some(Open::Table { headed }) = self.open.last_mut() else { return };
        let head = !std::mem::replace(headed, true);
        if head {
            self.builder.start(Tag::TableHead);
        } else if !self.builder.is_in(&Tag::TableBody) {
            self.builder.start(Tag::TableBody);
        }
        self.builder.start(Tag::Row);
        let mut cells = table::cells(text);
        let columns = std::mem::take(&mut self.columns);
        for (i, &align) in columns.iter().take(MAX_COLUMNS).enumerate() {
            self.builder.start(if head { Tag::HeadCell(align) } else { Tag::Cell(align) });
            // A pipe that its backslash kept from ending the cell is a pipe, in code too.
            self.inline(&cells.next().unwrap_or_default().replace("\\|", "|"));
            if i + 1 == MAX_COLUMNS && columns.len() > MAX_COLUMNS {
                self.builder.text(" …");
            }
            self.builder.end();
        }
        self.columns = columns;
        self.builder.end();
        if head {
            self.builder.end();
        }
    }

    fn inline(&mut self, text: &str) {
        let inline::Inline { pieces, mut addresses } = inline::read(text, &mut self.definitions);
        let builder = &mut self.builder;
        for piece in pieces {
            let text = slice(text, piece.start, piece.end);
            match piece.kind {
                inline::Kind::Text => builder.text(text),
                inline::Kind::Code => builder.leaf(Tag::Code, Some(&code(text))),
                inline::Kind::LineEnd => builder.text("\n"),
                inline::Kind::Break => builder.leaf(Tag::Break, None),
                inline::Kind::Character(character) => builder.text(character.encode_utf8(&mut [0; 4])),
                inline::Kind::Address { mail } => {
                    let url = if mail { SafeUrl::parse(&["mailto:", text].concat()) } else { SafeUrl::parse(text) };
                    builder.start_inline(url.map(Tag::Link));
                    builder.text(text);
                    builder.end_inline();
                }
                inline::Kind::Start(tag) => builder.start_inline(Some(tag)),
                inline::Kind::Link(i) => {
                    let address = addresses.get_mut(i).map(std::mem::take);
                    builder.start_inline(address.and_then(|address| SafeUrl::parse(&address)).map(Tag::Link));
                }
                inline::Kind::End => builder.end_inline(),
                inline::Kind::Nothing => {}
            }
        }
    }
}

/// The text of a code span: a line end is a space, and one space at both ends is not part of it (section 6.1).
fn code(text: &str) -> String {
    let text = text.replace('\n', " ");
    match text.strip_prefix(' ').and_then(|rest| rest.strip_suffix(' ')) {
        Some(inner) if text.bytes().any(|byte| byte != b' ') => inner.to_owned(),
        _ => text,
    }
}

fn language(info: &str) -> String {
    let info = unescape(info);
    let name = info.split([' ', ',', '{']).next().unwrap_or_default();
    name.chars().filter(|c| !c.is_control()).take(MAX_LANGUAGE).collect()
}
