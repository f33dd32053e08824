//! Text to tree.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag as Md, TagEnd};

use super::{
    tree::{Align, Element, Node, Tag},
    url::{SafeUrl, bare_length},
};

/// Elements within elements: deeper ones give their text to the one that holds them.
pub const MAX_DEPTH: usize = 24;
/// Pieces of one document: what follows is shown as it was written.
pub const MAX_NODES: usize = 50_000;
/// Columns of a table: the rest is left out, with a mark.
pub const MAX_COLUMNS: usize = 64;
/// Characters of a code block's language that are kept.
const MAX_LANGUAGE: usize = 32;

/// The blocks of a whole document.
#[must_use]
pub fn parse(text: &str) -> Vec<Node> {
    parse_blocks(text, MAX_NODES).into_iter().map(|block| block.node).collect()
}

/// A block at the top of a document.
#[derive(Debug)]
pub(super) struct Block {
    /// Where it begins in the text, in bytes.
    pub(super) start: usize,
    /// What it is.
    pub(super) node: Node,
    /// How many nodes are in it.
    pub(super) nodes: usize,
}

pub(super) fn parse_blocks(text: &str, max_nodes: usize) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder::default();
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        // An end says where its element began, and adds nothing.
        if builder.nodes >= max_nodes && !matches!(event, Event::End(_)) {
            builder.close_all();
            let rest = Node::element(Tag::Raw, vec![Node::Text(text[range.start..].to_owned())]);
            builder.blocks.push(Block { start: range.start, node: rest, nodes: 2 });
            return builder.blocks;
        }
        builder.event(event, range.start);
    }
    builder.close_all();
    builder.blocks
}

/// What an open element of the source became.
#[derive(Clone, Copy)]
enum Frame {
    /// An element of ours.
    Open,
    /// Nothing: it is too deep, or not ours. Its text goes to what holds it. `spaced`: it was a block, so a gap follows.
    Flat { spaced: bool },
    /// Nothing, and its text neither: a column too many.
    Dropped,
}

#[derive(Default)]
struct Builder {
    blocks: Vec<Block>,
    /// Where the block that is being built begins, and the count of nodes at that point.
    start: usize,
    nodes_before: usize,
    nodes: usize,
    /// One for each open element of the source, and those of `open` that Markdown does not name.
    frames: Vec<Frame>,
    /// Our open elements, outermost first. At most [`MAX_DEPTH`].
    open: Vec<Element>,
    links: usize,
    dropped: usize,
    /// Text that is not in the tree yet: it comes in pieces, and addresses are looked for in all of it.
    pending: String,
    /// Alignments of the open table, and the column of its open cell.
    columns: Vec<Align>,
    column: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, at: usize) {
        if self.frames.is_empty() {
            self.start = at;
            self.nodes_before = self.nodes;
        }
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::Code(code) => self.leaf(Tag::Code, Some(&code)),
            Event::SoftBreak => self.text("\n"),
            Event::HardBreak => self.leaf(Tag::Break, None),
            Event::Rule => self.leaf(Tag::Rule, None),
            Event::TaskListMarker(done) => self.leaf(Tag::Check(done), None),
            // Extensions that are off never come; shown as text all the same.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => self.text(&text),
        }
    }

    fn start(&mut self, source: Md<'_>) {
        self.flush();
        if !matches!(source, Md::TableRow) && self.within(|tag| *tag == Tag::TableBody) {
            self.end_table_early();
        }
        let room = |levels: usize| self.open.len() + levels <= MAX_DEPTH;
        let (tag, otherwise) = match source {
            Md::Table(alignments) => {
                self.columns = alignments.iter().copied().map(align).collect();
                (room(6).then_some(Tag::Table), Frame::Flat { spaced: true })
            }
            // Parts of a table or list exist within theirs only.
            Md::TableHead => {
                self.column = 0;
                let here = self.within(|tag| *tag == Tag::Table);
                if here {
                    self.push_open(Tag::TableHead);
                }
                (here.then_some(Tag::Row), Frame::Flat { spaced: true })
            }
            Md::TableRow => {
                self.column = 0;
                if self.within(|tag| *tag == Tag::Table) {
                    self.push_open(Tag::TableBody);
                }
                (self.within(|tag| *tag == Tag::TableBody).then_some(Tag::Row), Frame::Flat { spaced: true })
            }
            Md::TableCell => self.cell(),
            Md::Item => {
                (self.within(|tag| matches!(tag, Tag::List | Tag::Ordered(_))).then_some(Tag::Item), Frame::Flat { spaced: true })
            }
            Md::List(first) => (room(3).then(|| first.map_or(Tag::List, Tag::Ordered)), Frame::Flat { spaced: true }),
            Md::Paragraph => (room(1).then_some(Tag::Paragraph), Frame::Flat { spaced: true }),
            Md::Heading { level, .. } => (room(1).then_some(Tag::Heading(level as u8)), Frame::Flat { spaced: true }),
            Md::BlockQuote(_) => (room(1).then_some(Tag::Quote), Frame::Flat { spaced: true }),
            Md::CodeBlock(kind) => (room(1).then(|| Tag::CodeBlock { language: language(&kind) }), Frame::Flat { spaced: true }),
            Md::HtmlBlock => (room(1).then_some(Tag::Raw), Frame::Flat { spaced: true }),
            Md::Emphasis => (room(1).then_some(Tag::Emphasis), Frame::Flat { spaced: false }),
            Md::Strong => (room(1).then_some(Tag::Strong), Frame::Flat { spaced: false }),
            Md::Strikethrough => (room(1).then_some(Tag::Strike), Frame::Flat { spaced: false }),
            Md::Link { dest_url, .. } | Md::Image { dest_url, .. } => {
                let url = (room(1) && self.links == 0).then(|| SafeUrl::parse(&dest_url)).flatten();
                (url.map(Tag::Link), Frame::Flat { spaced: false })
            }
            _ => (None, Frame::Flat { spaced: true }),
        };
        match tag {
            Some(tag) => self.push_open(tag),
            None => self.frames.push(otherwise),
        }
    }

    fn cell(&mut self) -> (Option<Tag>, Frame) {
        if !self.within(|tag| *tag == Tag::Row) {
            return (None, Frame::Flat { spaced: true });
        }
        let column = self.column;
        self.column += 1;
        if column >= MAX_COLUMNS {
            if column == MAX_COLUMNS
                && let Some(Node::Element(last)) = self.open.last_mut().and_then(|row| row.children.last_mut())
            {
                last.children.push(Node::Text(" …".to_owned()));
                self.nodes += 1;
            }
            self.dropped += 1;
            return (None, Frame::Dropped);
        }
        let align = self.columns.get(column).copied().unwrap_or_default();
        let in_head = self.open.iter().rev().nth(1).is_some_and(|element| element.tag == Tag::TableHead);
        (Some(if in_head { Tag::HeadCell(align) } else { Tag::Cell(align) }), Frame::Flat { spaced: true })
    }

    /// The parser gives up on a table with too many missing cells, and the rest of its lines come as paragraphs within it.
    fn end_table_early(&mut self) {
        self.pop();
        self.pop();
        self.frames.push(Frame::Flat { spaced: false });
    }

    fn push_open(&mut self, tag: Tag) {
        self.links += usize::from(matches!(tag, Tag::Link(_)));
        self.nodes += 1;
        self.frames.push(Frame::Open);
        self.open.push(Element { tag, children: Vec::new() });
    }

    fn end(&mut self, end: TagEnd) {
        self.flush();
        // The head and body of a table that Markdown does not name close with what they belong to.
        if end == TagEnd::Table && self.within(|tag| *tag == Tag::TableBody) {
            self.pop();
        }
        self.pop();
        if end == TagEnd::TableHead && self.within(|tag| *tag == Tag::TableHead) {
            self.pop();
        }
        if self.frames.is_empty() {
            self.flush();
        }
    }

    fn pop(&mut self) {
        match self.frames.pop() {
            Some(Frame::Open) => self.finish(),
            Some(Frame::Flat { spaced: true }) => self.text(" "),
            Some(Frame::Dropped) => self.dropped -= 1,
            Some(Frame::Flat { spaced: false }) | None => {}
        }
    }

    fn finish(&mut self) {
        let Some(mut element) = self.open.pop() else { return };
        if let Tag::Link(url) = &element.tag {
            self.links -= 1;
            if element.children.is_empty() {
                // An image without a description, or an empty link: its address is all there is to show.
                element.children.push(Node::Text(url.as_str().to_owned()));
                self.nodes += 1;
            }
        }
        self.push(Node::Element(element));
    }

    fn leaf(&mut self, tag: Tag, text: Option<&str>) {
        self.flush();
        if self.dropped > 0 {
            return;
        }
        let children: Vec<_> = text.map(|text| Node::Text(text.to_owned())).into_iter().collect();
        self.nodes += 1 + children.len();
        self.push(Node::element(tag, children));
    }

    fn text(&mut self, text: &str) {
        if self.dropped == 0 {
            self.pending.push_str(text);
        }
    }

    /// Puts the pending text into the tree, bare addresses as links.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.pending);
        let verbatim = self.links > 0
            || self.open.len() >= MAX_DEPTH
            || self.open.last().is_some_and(|element| matches!(element.tag, Tag::CodeBlock { .. } | Tag::Raw));
        if verbatim {
            self.push_text(&text);
            return;
        }
        let (mut rest, mut searched) = (text.as_str(), 0);
        while let Some(found) = rest[searched..].find("://").map(|i| searched + i) {
            let scheme = rest[..found].chars().rev().take_while(char::is_ascii_alphabetic).count();
            let (before, address) = rest.split_at(found - scheme);
            let length = bare_length(address);
            let joined = before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == ':');
            match (length > 0 && !joined).then(|| SafeUrl::parse(&address[..length])).flatten() {
                Some(url) => {
                    self.push_text(before);
                    self.nodes += 2;
                    self.push(Node::element(Tag::Link(url), vec![Node::Text(address[..length].to_owned())]));
                    (rest, searched) = (&address[length..], 0);
                }
                None => searched = found + 3,
            }
        }
        self.push_text(rest);
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.open.last_mut() {
            Some(parent) => {
                if let Some(Node::Text(last)) = parent.children.last_mut() {
                    last.push_str(text);
                } else {
                    parent.children.push(Node::Text(text.to_owned()));
                    self.nodes += 1;
                }
            }
            // Text of a flattened block at the top.
            None if text.trim().is_empty() => {}
            None => {
                self.nodes += 2;
                self.push(Node::element(Tag::Paragraph, vec![Node::Text(text.to_owned())]));
            }
        }
    }

    fn push(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => {
                self.blocks.push(Block { start: self.start, node, nodes: self.nodes - self.nodes_before });
                self.nodes_before = self.nodes;
            }
        }
    }

    fn close_all(&mut self) {
        self.flush();
        while !self.frames.is_empty() {
            self.pop();
        }
        self.flush();
    }

    /// Whether the innermost open element of the source became one of ours that `wanted` takes.
    fn within(&self, wanted: impl FnOnce(&Tag) -> bool) -> bool {
        matches!(self.frames.last(), Some(Frame::Open)) && self.open.last().is_some_and(|element| wanted(&element.tag))
    }
}

fn language(kind: &CodeBlockKind<'_>) -> String {
    let CodeBlockKind::Fenced(info) = kind else { return String::new() };
    let name = info.split([' ', ',', '{']).next().unwrap_or_default();
    name.chars().filter(|c| !c.is_control()).take(MAX_LANGUAGE).collect()
}

fn align(alignment: Alignment) -> Align {
    match alignment {
        Alignment::None | Alignment::Left => Align::Start,
        Alignment::Center => Align::Center,
        Alignment::Right => Align::End,
    }
}
