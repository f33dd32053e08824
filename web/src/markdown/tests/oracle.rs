//! The same trees from the events of `pulldown-cmark`, an independent parser of the same language: what ours is held to.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, LinkType, Options, Parser, Tag as Md, TagEnd};

use super::super::{
    tree::{Align, Element, Node, Tag},
    url::{BareAddress, SafeUrl, bare_address},
};

/// The blocks of a whole document that is within all bounds.
pub(super) fn parse(text: &str) -> Vec<Node> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder::default();
    for event in Parser::new_ext(text, options) {
        builder.event(event);
    }
    builder.blocks
}

#[derive(Default)]
struct Builder {
    blocks: Vec<Node>,
    /// For each open element of the source whether it became one of ours.
    frames: Vec<bool>,
    open: Vec<Element>,
    links: usize,
    pending: String,
    /// Alignments of the open table, and the column of its open cell.
    columns: Vec<Align>,
    column: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(end) => self.end(end),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.pending.push_str(&text),
            Event::Code(code) => self.leaf(Tag::Code, Some(&code)),
            Event::SoftBreak => self.pending.push('\n'),
            Event::HardBreak => self.leaf(Tag::Break, None),
            Event::Rule => self.leaf(Tag::Rule, None),
            Event::TaskListMarker(done) => self.leaf(Tag::Check(done), None),
            Event::InlineMath(_) | Event::DisplayMath(_) | Event::FootnoteReference(_) => {
                unreachable!("an extension that is off")
            }
        }
    }

    fn start(&mut self, source: Md<'_>) {
        self.flush();
        let in_head = self.open.last().is_some_and(|element| element.tag == Tag::Table);
        let tag = match source {
            Md::Paragraph => Tag::Paragraph,
            Md::Heading { level, .. } => Tag::Heading(level as u8),
            Md::BlockQuote(_) => Tag::Quote,
            Md::CodeBlock(kind) => Tag::CodeBlock { language: language(&kind) },
            Md::HtmlBlock => Tag::Raw,
            Md::List(first) => first.map_or(Tag::List, Tag::Ordered),
            Md::Item => Tag::Item,
            Md::Emphasis => Tag::Emphasis,
            Md::Strong => Tag::Strong,
            Md::Strikethrough => Tag::Strike,
            Md::Table(alignments) => {
                self.columns = alignments.iter().copied().map(align).collect();
                Tag::Table
            }
            Md::TableHead => {
                self.column = 0;
                self.push_open(Tag::TableHead);
                Tag::Row
            }
            Md::TableRow => {
                self.column = 0;
                if in_head {
                    self.push_open(Tag::TableBody);
                }
                Tag::Row
            }
            Md::TableCell => {
                let align = self.columns[self.column];
                self.column += 1;
                let row = self.open.len() - 2;
                if self.open[row].tag == Tag::TableHead { Tag::HeadCell(align) } else { Tag::Cell(align) }
            }
            Md::Link { dest_url, link_type, .. } | Md::Image { dest_url, link_type, .. } => {
                let scheme = if link_type == LinkType::Email { "mailto:" } else { "" };
                match SafeUrl::parse(&format!("{scheme}{dest_url}")) {
                    Some(url) if self.links == 0 => Tag::Link(url),
                    _ => {
                        self.frames.push(false);
                        return;
                    }
                }
            }
            other => unreachable!("an extension that is off: {other:?}"),
        };
        self.push_open(tag);
    }

    fn push_open(&mut self, tag: Tag) {
        self.links += usize::from(matches!(tag, Tag::Link(_)));
        self.frames.push(true);
        self.open.push(Element { tag, children: Vec::new() });
    }

    fn end(&mut self, end: TagEnd) {
        self.flush();
        // The head and body of a table that Markdown does not name close with what they belong to.
        if end == TagEnd::Table && self.open.last().is_some_and(|element| element.tag == Tag::TableBody) {
            self.pop();
        }
        self.pop();
        if end == TagEnd::TableHead {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if self.frames.pop() != Some(true) {
            return;
        }
        let Some(mut element) = self.open.pop() else { unreachable!("as many ends as starts") };
        if let Tag::Link(url) = &element.tag {
            self.links -= 1;
            if element.children.is_empty() {
                element.children.push(Node::Text(url.as_str().to_owned()));
            }
        }
        self.push(Node::Element(element));
    }

    fn leaf(&mut self, tag: Tag, text: Option<&str>) {
        self.flush();
        self.push(Node::element(tag, text.map(|text| Node::Text(text.to_owned())).into_iter().collect()));
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.pending);
        let mut rest = text.as_str();
        let verbatim =
            self.links > 0 || self.open.last().is_some_and(|element| matches!(element.tag, Tag::CodeBlock { .. } | Tag::Raw));
        while !verbatim && let Some(BareAddress { before, address, url, behind }) = bare_address(rest) {
            self.push_text(before);
            self.push(Node::element(Tag::Link(url), vec![Node::Text(address.to_owned())]));
            rest = behind;
        }
        self.push_text(rest);
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let Some(parent) = self.open.last_mut() else { unreachable!("text is within a block") };
        if let Some(Node::Text(last)) = parent.children.last_mut() {
            last.push_str(text);
        } else {
            parent.children.push(Node::Text(text.to_owned()));
        }
    }

    fn push(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => self.blocks.push(node),
        }
    }
}

fn language(kind: &CodeBlockKind<'_>) -> String {
    let CodeBlockKind::Fenced(info) = kind else { return String::new() };
    let name = info.split([' ', ',', '{']).next().unwrap_or_default();
    name.chars().filter(|c| !c.is_control()).take(32).collect()
}

fn align(alignment: Alignment) -> Align {
    match alignment {
        Alignment::None | Alignment::Left => Align::Start,
        Alignment::Center => Align::Center,
        Alignment::Right => Align::End,
    }
}
