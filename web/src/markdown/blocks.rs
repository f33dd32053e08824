//! The blocks of a document, line by line (CommonMark 0.31, chapters 4 and 5; the first phase of its parsing strategy).
//!
//! What comes out is flat: [`Part`]s in the order of the text, containers with an [`Kind::End`] behind what they hold. Containers
//! nest no deeper than a tree may, so that what one line costs is bounded by its length; a mark that would open a deeper one is text.

use std::ops::Range;

use super::{
    leaf::Leaf,
    line::{CODE_INDENT, Line, Marker, is_rule, marker, task},
    parse::MAX_DEPTH,
    reference::Definitions,
    scan::{at, skip_blanks, slice, tail, tally},
    tree::Align,
};

/// A block, or the end of one.
pub(super) struct Part {
    pub(super) kind: Kind,
    /// Where the line begins that it begins on, in bytes of the document.
    pub(super) start: usize,
    /// Its text in [`Blocks::text`], without the marks of the containers.
    pub(super) text: Range<usize>,
}

pub(super) enum Kind {
    Quote,
    List {
        /// The number of the first item, in an ordered list.
        first: Option<u64>,
        /// No blank lines between what it holds: its paragraphs are shown without space around them.
        tight: bool,
    },
    Item,
    /// The box of a task; what it belongs to follows.
    Check(bool),
    Paragraph,
    Heading(u8),
    Rule,
    /// Code. `info`: so many bytes at the start of the text are the info string.
    Code {
        info: usize,
    },
    Html,
    /// Holds rows, of which the first is the head.
    Table(Vec<Align>),
    Row,
    /// The innermost open container or table ends.
    End,
}

/// What a document is made of.
pub(super) struct Blocks {
    pub(super) parts: Vec<Part>,
    /// The text of all leaves.
    pub(super) text: String,
    pub(super) definitions: Definitions,
}

/// Room for a list, an item and what it holds.
const CONTAINER_DEPTH: usize = 3;
/// Reads all of `source`.
pub(super) fn read(source: &str) -> Blocks {
    let mut reader = Reader::default();
    let mut at_byte = 0;
    while at_byte < source.len() {
        let rest = tail(source, at_byte);
        let length = rest.bytes().take_while(|byte| !matches!(byte, b'\n' | b'\r')).count();
        tally(length + 1);
        let end = if tail(rest, length).starts_with("\r\n") { length + 2 } else { (length + 1).min(rest.len()) };
        reader.start = at_byte;
        reader.ended = end > length;
        reader.line(Line::new(slice(rest, 0, length)));
        at_byte += end;
    }
    reader.close_to(0);
    reader.definitions.close(source.len());
    Blocks { parts: reader.parts, text: reader.text, definitions: reader.definitions }
}

/// An open container.
pub(super) struct Container {
    kind: ContainerKind,
    /// The last line was blank, and nothing within took it.
    blank: bool,
    /// What it holds last ends with a blank line.
    pub(super) blank_inside: bool,
    /// It holds something.
    filled: bool,
}

pub(super) enum ContainerKind {
    Quote,
    /// `part`: where in the parts it is.
    List {
        mark: u8,
        part: usize,
    },
    /// Lines belong to it that are indented as far as its text.
    Item {
        indent: usize,
        list_part: usize,
    },
}

#[derive(Default)]
pub(super) struct Reader {
    pub(super) parts: Vec<Part>,
    pub(super) text: String,
    pub(super) definitions: Definitions,
    /// Outermost first. A list holds items only, so an open list that is followed by no item is the last one.
    pub(super) open: Vec<Container>,
    pub(super) leaf: Leaf,
    /// Where the open leaf begins: its line in the document, and its text.
    pub(super) leaf_start: usize,
    pub(super) leaf_text: usize,
    /// The current line: where it begins, and whether it has a line end.
    pub(super) start: usize,
    pub(super) ended: bool,
}

impl Reader {
    fn line(&mut self, mut line: Line<'_>) {
        let matched = self.continue_containers(&mut line);
        let whole = matched == self.open.len();
        self.open.iter_mut().take(matched).for_each(|container| container.blank = false);
        if whole && self.continue_leaf(line) {
            return;
        }
        if line.is_blank() {
            self.close_to(matched);
            if let Some(last) = self.open.last_mut() {
                last.blank_inside = last.filled;
                last.blank = !matches!(last.kind, ContainerKind::Quote);
            }
            return;
        }
        // A line may go on with a paragraph without the marks of what holds it; nothing else goes on without them.
        if !whole && !matches!(self.leaf, Leaf::Paragraph(_)) {
            self.close_to(matched);
        }
        if let Some(depth) = self.start_containers(&mut line, matched) {
            self.start_leaf(line, depth);
        }
    }

    /// Takes the marks of the open containers off the line; returns how many it has.
    fn continue_containers(&self, line: &mut Line<'_>) -> usize {
        for (depth, container) in self.open.iter().enumerate() {
            let goes_on = match container.kind {
                ContainerKind::List { .. } => true,
                ContainerKind::Quote => {
                    let quoted = line.indent() < CODE_INDENT && at(line.rest(), 0) == b'>';
                    if quoted {
                        line.skip_mark(1);
                        line.skip_columns(1);
                    }
                    quoted
                }
                ContainerKind::Item { indent, .. } => {
                    // An item that begins with a blank line and goes on with another holds nothing.
                    let within = if line.is_blank() { container.filled } else { line.indent() >= indent };
                    if within {
                        line.skip_columns(indent);
                    }
                    within
                }
            };
            if !goes_on {
                return depth;
            }
        }
        self.open.len()
    }

    /// Opens the containers that begin on the line, within the first `depth` of the open ones. Returns how many the rest of the
    /// line is in, if there is a rest.
    fn start_containers(&mut self, line: &mut Line<'_>, mut depth: usize) -> Option<usize> {
        while depth + CONTAINER_DEPTH <= MAX_DEPTH {
            let indent = line.indent();
            if indent >= CODE_INDENT {
                break;
            }
            let rest = line.rest();
            if at(rest, 0) == b'>' {
                self.close_to(depth);
                self.begin_block();
                line.skip_mark(1);
                line.skip_columns(1);
                self.push(Kind::Quote, 0..0);
                self.open_container(ContainerKind::Quote);
            } else if let Some(marker) = marker(rest).filter(|marker| self.may_begin(*marker, rest, depth) && !is_rule(rest)) {
                self.close_to(depth);
                self.begin_item(marker, line, indent);
                if let Some((check, behind)) = task(line.rest()).filter(|_| line.indent() < CODE_INDENT) {
                    if behind.is_empty() {
                        self.push(Kind::Check(check), 0..0);
                    } else {
                        self.begin_paragraph(behind, self.open.len(), Some(check));
                    }
                    return None;
                }
            } else {
                break;
            }
            if line.is_blank() {
                return None;
            }
            depth = self.open.len();
        }
        Some(depth)
    }

    /// Within a paragraph only an item begins that has a text and, in an ordered list, the number 1.
    fn may_begin(&self, marker: Marker, rest: &str, depth: usize) -> bool {
        !(matches!(self.leaf, Leaf::Paragraph(_)) && depth == self.open.len())
            || (marker.number.is_none_or(|number| number == 1) && skip_blanks(rest, marker.width, false) < rest.len())
    }

    fn begin_item(&mut self, found: Marker, line: &mut Line<'_>, indent: usize) {
        let list_part = match self.open.last().map(|container| &container.kind) {
            Some(&ContainerKind::List { mark, part }) if mark == found.mark => part,
            _ => {
                self.begin_block();
                let part = self.parts.len();
                self.push(Kind::List { first: found.number, tight: true }, 0..0);
                self.open_container(ContainerKind::List { mark: found.mark, part });
                part
            }
        };
        self.fill();
        line.skip_mark(found.width);
        let gap = line.indent();
        let gap = if gap > CODE_INDENT || line.is_blank() { 1 } else { gap };
        line.skip_columns(gap);
        self.push(Kind::Item, 0..0);
        self.open_container(ContainerKind::Item { indent: indent + found.width + gap, list_part });
    }

    /// A block begins that is no item.
    pub(super) fn begin_block(&mut self) {
        if let Some(ContainerKind::List { .. }) = self.open.last().map(|container| &container.kind) {
            self.close_container();
        }
        self.fill();
    }

    /// The innermost container gets something to hold. A blank line before it, and its list is a loose one (section 5.3).
    fn fill(&mut self) {
        let Some(last) = self.open.last_mut() else { return };
        last.filled = true;
        let loose = std::mem::take(&mut last.blank_inside);
        if let ContainerKind::List { part, .. } | ContainerKind::Item { list_part: part, .. } = last.kind
            && loose
            && let Some(Part { kind: Kind::List { tight, .. }, .. }) = self.parts.get_mut(part)
        {
            *tight = false;
        }
    }

    fn open_container(&mut self, kind: ContainerKind) {
        self.open.push(Container { kind, blank: false, blank_inside: false, filled: false });
    }

    /// Ends the open leaf, and the containers but the first `depth`.
    pub(super) fn close_to(&mut self, depth: usize) {
        self.close_leaf();
        while self.open.len() > depth {
            self.close_container();
        }
    }

    fn close_container(&mut self) {
        let Some(closed) = self.open.pop() else { return };
        self.push(Kind::End, 0..0);
        if let Some(last) = self.open.last_mut() {
            last.blank_inside = closed.blank || (closed.blank_inside && !matches!(closed.kind, ContainerKind::Quote));
        }
    }

    pub(super) fn push(&mut self, kind: Kind, text: Range<usize>) {
        self.parts.push(Part { kind, start: self.start, text });
    }

    pub(super) fn push_text(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        tally(text.len());
        self.text.push_str(text);
        start..self.text.len()
    }
}
