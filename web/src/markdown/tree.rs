//! What Markdown turns into.

use super::SafeUrl;

/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Text, to be shown as it is.
    Text(String),
    /// An element with what it holds.
    Element(Element),
}

/// An element with what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// What it is.
    pub tag: Tag,
    /// What is in it, in order.
    pub children: Vec<Node>,
}

/// How the cells of a table column stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// As the script does.
    #[default]
    Start,
    /// In the middle.
    Center,
    /// At the far side: numbers.
    End,
}

/// Every element that a document can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A paragraph.
    Paragraph,
    /// A heading of level 1 to 6.
    Heading(u8),
    /// A quote.
    Quote,
    /// A line across.
    Rule,
    /// A list with bullets; holds [`Tag::Item`] only.
    List,
    /// A numbered list that begins at this number; holds [`Tag::Item`] only.
    Ordered(u64),
    /// An item of a list.
    Item,
    /// The box of a task: done or not. Never to be clicked.
    Check(bool),
    /// Code in a block of its own; holds one text.
    CodeBlock {
        /// The language as the author named it; may be empty.
        language: String,
    },
    /// What cannot be shown as Markdown and is shown as it was written.
    Raw,
    /// Code within a line.
    Code,
    /// Emphasis.
    Emphasis,
    /// Strong emphasis.
    Strong,
    /// Struck through.
    Strike,
    /// A line break.
    Break,
    /// A link.
    Link(SafeUrl),
    /// A table; holds one [`Tag::TableHead`] and at most one [`Tag::TableBody`].
    Table,
    /// The head of a table; holds one [`Tag::Row`].
    TableHead,
    /// The body of a table; holds [`Tag::Row`]s.
    TableBody,
    /// A row; holds cells of one kind.
    Row,
    /// A cell of the head.
    HeadCell(Align),
    /// A cell of the body.
    Cell(Align),
}

impl Node {
    /// An element with children.
    #[must_use]
    pub fn element(tag: Tag, children: Vec<Self>) -> Self {
        Self::Element(Element { tag, children })
    }

    /// All text in it, in order, without what stands between.
    #[must_use]
    pub fn plain_text(&self) -> String {
        let mut out = String::new();
        self.collect_text(&mut out);
        out
    }

    fn collect_text(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text),
            Self::Element(element) => element.children.iter().for_each(|child| child.collect_text(out)),
        }
    }
}
