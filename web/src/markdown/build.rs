//! Puts a tree together, within the bounds of depth and size.

use super::{
    parse::{Block, MAX_DEPTH},
    tree::{Element, Node, Tag},
    url::{BareAddress, bare_address},
};

/// A tree that grows at its end.
pub(super) struct Builder {
    blocks: Vec<Block>,
    /// Where the block that is being built begins, and the count of nodes at that point.
    start: usize,
    nodes_before: usize,
    nodes: usize,
    max_nodes: usize,
    /// Open elements, outermost first. At most [`MAX_DEPTH`].
    open: Vec<Element>,
    /// For each open element within text whether it is one of `open`; the others are too deep, or not ours, and give their text
    /// to what holds them.
    inline: Vec<bool>,
    links: usize,
    /// Text that is not in the tree yet: it comes in pieces, and addresses are looked for in all of it.
    pending: String,
}

impl Builder {
    pub(super) fn new(max_nodes: usize) -> Self {
        Self {
            blocks: Vec::new(),
            start: 0,
            nodes_before: 0,
            nodes: 0,
            max_nodes,
            open: Vec::new(),
            inline: Vec::new(),
            links: 0,
            pending: String::new(),
        }
    }

    /// Whether so many nodes more are within the bound.
    pub(super) fn has_room(&self, nodes: usize) -> bool {
        self.nodes + nodes <= self.max_nodes
    }

    /// A part begins on the line that begins at `start`.
    pub(super) fn begin(&mut self, start: usize) {
        if self.open.is_empty() {
            self.start = start;
        }
    }

    /// A block begins; blocks are never too deep.
    pub(super) fn start(&mut self, tag: Tag) {
        self.flush();
        self.links += usize::from(matches!(tag, Tag::Link(_)));
        self.nodes += 1;
        self.open.push(Element { tag, children: Vec::new() });
    }

    /// The block that began last ends.
    pub(super) fn end(&mut self) {
        self.flush();
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

    /// An element within text begins. `None`, or no room for it: only its text is shown.
    pub(super) fn start_inline(&mut self, tag: Option<Tag>) {
        let tag = tag.filter(|tag| !self.is_verbatim() && (self.links == 0 || !matches!(tag, Tag::Link(_))));
        self.inline.push(tag.is_some());
        match tag {
            Some(tag) => self.start(tag),
            None => self.flush(),
        }
    }

    pub(super) fn end_inline(&mut self) {
        match self.inline.pop() {
            Some(true) => self.end(),
            _ => self.flush(),
        }
    }

    /// An element that holds nothing but a text.
    pub(super) fn leaf(&mut self, tag: Tag, text: Option<&str>) {
        self.flush();
        if self.is_verbatim() {
            self.push_text(text.unwrap_or("\n"));
            return;
        }
        let children: Vec<_> = text.map(|text| Node::Text(text.to_owned())).into_iter().collect();
        self.nodes += 1 + children.len();
        self.push(Node::element(tag, children));
    }

    pub(super) fn text(&mut self, text: &str) {
        self.pending.push_str(text);
    }

    /// Whether `tag` is the innermost open element.
    pub(super) fn is_in(&self, tag: &Tag) -> bool {
        self.open.last().is_some_and(|element| element.tag == *tag)
    }

    /// All blocks; nothing is open any more.
    pub(super) fn finish(mut self) -> Vec<Block> {
        self.flush();
        self.blocks
    }

    /// What is left of `text` is shown as it was written, from the line that begins at `start`.
    pub(super) fn give_up(mut self, start: usize, text: &str) -> Vec<Block> {
        self.nodes = self.nodes.max(self.max_nodes);
        while !self.open.is_empty() {
            self.end();
        }
        // The bound is reached, also for a document that only what follows is read of.
        if let Some(last) = self.blocks.last_mut() {
            last.nodes += self.nodes - self.nodes_before;
        }
        let rest = text.get(start..).unwrap_or_default().to_owned();
        self.blocks.push(Block { start, node: Node::element(Tag::Raw, vec![Node::Text(rest)]), nodes: 2 });
        self.blocks
    }

    /// Whether text is all that may be added here.
    fn is_verbatim(&self) -> bool {
        self.open.len() >= MAX_DEPTH || self.nodes >= self.max_nodes
    }

    /// Puts the pending text into the tree, bare addresses as links.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.pending);
        let mut rest = text.as_str();
        let verbatim =
            self.links > 0 || self.open.last().is_some_and(|element| matches!(element.tag, Tag::CodeBlock { .. } | Tag::Raw));
        while !verbatim
            && !self.is_verbatim()
            && let Some(BareAddress { before, address, url, behind }) = bare_address(rest)
        {
            self.push_text(before);
            self.nodes += 2;
            self.push(Node::element(Tag::Link(url), vec![Node::Text(address.to_owned())]));
            rest = behind;
        }
        self.push_text(rest);
    }

    fn push_text(&mut self, text: &str) {
        let Some(parent) = self.open.last_mut().filter(|_| !text.is_empty()) else { return };
        if let Some(Node::Text(last)) = parent.children.last_mut() {
            last.push_str(text);
        } else {
            parent.children.push(Node::Text(text.to_owned()));
            self.nodes += 1;
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
}
