//! A document that grows: what one more piece costs does not grow with what came before it.

use super::{
    parse::{Block, MAX_NODES, parse_blocks},
    tree::{Element, Node, Tag},
};

/// A document and the text it came from. Text that is appended re-parses the open end only: Markdown's blocks close when another one
/// begins, and what is closed stays as it is.
///
/// One thing can reach back: a link definition (`[name]: address`) further down. [`Document::finish`] gives it its due.
#[derive(Debug, Default)]
pub struct Document {
    text: String,
    blocks: Vec<Node>,
    /// How many of `blocks` are closed, where the text behind them begins, and how many nodes they hold.
    closed: usize,
    closed_bytes: usize,
    closed_nodes: usize,
}

impl Document {
    /// An empty one that has room for so many nodes only.
    #[cfg(all(test, not(target_arch = "wasm32")))]
    pub(super) fn with_room(nodes: usize) -> Self {
        Self { closed_nodes: MAX_NODES - nodes, ..Self::default() }
    }

    /// The blocks so far.
    #[must_use]
    pub fn blocks(&self) -> &[Node] {
        &self.blocks
    }

    /// Shows `text`. Returns the index of the first block that may have changed, or `None` where nothing did.
    pub fn update(&mut self, text: &str) -> Option<usize> {
        let unchanged_from = if let Some(more) = text.strip_prefix(self.text.as_str()) {
            if more.is_empty() {
                return None;
            }
            self.text.push_str(more);
            self.closed
        } else {
            *self = Self { text: text.to_owned(), ..Self::default() };
            0
        };
        let tail = &self.text[self.closed_bytes..];
        let blocks = parse_blocks(tail, MAX_NODES.saturating_sub(self.closed_nodes));
        let open = blocks.iter().rposition(|block| is_settled(block, tail)).unwrap_or(0);
        let end = blocks.get(open).map_or(0, |block| block.start);
        let nodes = blocks[..open].iter().map(|block| block.nodes).sum::<usize>();
        self.blocks.truncate(self.closed);
        self.blocks.extend(blocks.into_iter().map(|block| block.node));
        self.closed += open;
        self.closed_bytes += end;
        self.closed_nodes += nodes;
        Some(unchanged_from)
    }

    /// Nothing more will come. Returns as [`Document::update`] does.
    pub fn finish(&mut self) -> Option<usize> {
        if self.closed_bytes == 0 || !self.text.contains("]:") {
            return None;
        }
        let text = std::mem::take(&mut self.text);
        let blocks = parse_blocks(&text, MAX_NODES).into_iter().map(|block| block.node).collect::<Vec<_>>();
        let changed = blocks.iter().zip(&self.blocks).position(|(new, old)| new != old);
        let changed = changed.or_else(|| (blocks.len() != self.blocks.len()).then(|| blocks.len().min(self.blocks.len())));
        *self = Self { text, blocks, ..Self::default() };
        changed
    }
}

/// Whether nothing that is appended can make this block a part of the one before it: its first line is complete, of a table
/// (which may come right behind a paragraph) the second too.
fn is_settled(block: &Block, text: &str) -> bool {
    let lines = match &block.node {
        Node::Element(Element { tag: Tag::Table, .. }) => 2,
        _ => 1,
    };
    text[block.start..].matches('\n').take(lines).count() == lines
}
