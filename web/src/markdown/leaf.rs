//! The leaves of the block structure: paragraphs, headings, code, HTML, tables (CommonMark 0.31, chapter 4; GFM 4.10). Which
//! containers they are in is the business of `blocks`.

use super::{
    blocks::{Kind, Part, Reader},
    html,
    line::{CODE_INDENT, Line, atx_heading, fence, is_rule, marker, underline},
    parse::MAX_DEPTH,
    reference::definition,
    scan::{at, find, run, skip_blanks, slice, tail},
    table,
};

/// Room for a table, its rows and cells, and elements in them.
const TABLE_DEPTH: usize = 6;

/// The open leaf: the one that the end of the text belongs to.
#[derive(Default)]
pub(super) enum Leaf {
    #[default]
    None,
    Paragraph(Paragraph),
    Fence {
        mark: u8,
        length: usize,
        indent: usize,
        info: usize,
    },
    /// `kept`: the text up to here is not blank.
    Indented {
        kept: usize,
    },
    /// `end`: see [`html::block`].
    Html {
        end: &'static str,
    },
    Table,
}

#[derive(Clone, Copy)]
pub(super) struct Paragraph {
    /// The last line: where it begins in the text and in the document.
    line: usize,
    line_start: usize,
    /// The last line belongs to it only because nothing else can begin there: it lacks marks of containers, or is indented too far.
    continued: bool,
    /// The box before it.
    check: Option<bool>,
}

impl Reader {
    /// Gives the line to the open leaf. False: the leaf does not take it, and only a paragraph is still open then.
    pub(super) fn continue_leaf(&mut self, mut line: Line<'_>) -> bool {
        let blank = line.is_blank();
        match self.leaf {
            Leaf::None => return false,
            Leaf::Paragraph(paragraph) => return !blank && self.continue_paragraph(&line, paragraph),
            Leaf::Fence { mark, length, indent, .. } => {
                let rest = line.rest();
                let marks = run(rest, 0, mark);
                if line.indent() < CODE_INDENT && marks >= length && skip_blanks(rest, marks, false) == rest.len() {
                    self.close_leaf();
                } else {
                    line.skip_columns(indent);
                    self.push_line(&line);
                }
                return true;
            }
            Leaf::Indented { kept } => {
                if blank || line.indent() >= CODE_INDENT {
                    line.skip_columns(CODE_INDENT);
                    self.push_line(&line);
                    self.leaf = Leaf::Indented { kept: if blank { kept } else { self.text.len() } };
                    if let Some(last) = self.open.last_mut() {
                        last.blank_inside = blank;
                    }
                    return true;
                }
            }
            Leaf::Html { end } => {
                if !(end.is_empty() && blank) {
                    self.push_html(&line, end);
                    return true;
                }
            }
            Leaf::Table => {
                let row = line.rest();
                if !blank && !interrupts_table(row) && table::cells(row).next().is_some() {
                    let text = self.push_text(row);
                    self.parts.push(Part { kind: Kind::Row, start: self.start, text });
                    return true;
                }
            }
        }
        self.close_leaf();
        false
    }

    /// Whether the line makes the paragraph a heading, or its last line the head of a table.
    fn continue_paragraph(&mut self, line: &Line<'_>, paragraph: Paragraph) -> bool {
        if line.indent() >= CODE_INDENT {
            return false;
        }
        let rest = line.rest();
        let head = tail(&self.text, paragraph.line);
        // Any first line may be a head, a later one only if it looks like nothing else.
        if (paragraph.line == self.leaf_text || head.starts_with('|'))
            && !paragraph.continued
            && self.open.len() + TABLE_DEPTH <= MAX_DEPTH
            && let Some(columns) = table::alignments(rest).filter(|columns| table::is_head(head, columns.len()))
            && definition(head, 0).is_none()
        {
            let text = paragraph.line..self.text.len();
            if paragraph.line > self.leaf_text {
                self.finish_paragraph(Kind::Paragraph, paragraph.line, paragraph.check);
            } else if let Some(check) = paragraph.check {
                self.push(Kind::Check(check), 0..0);
            }
            self.parts.push(Part { kind: Kind::Table(columns), start: paragraph.line_start, text: 0..0 });
            self.parts.push(Part { kind: Kind::Row, start: paragraph.line_start, text });
            self.leaf = Leaf::Table;
            return true;
        }
        let Some(level) = underline(rest) else { return false };
        let heading = self.finish_paragraph(Kind::Heading(level), self.text.len(), paragraph.check);
        if heading {
            self.leaf = Leaf::None;
        }
        heading
    }

    /// Gives what is left of the line to a leaf, the open paragraph or one that begins.
    pub(super) fn start_leaf(&mut self, mut line: Line<'_>, depth: usize) {
        let rest = line.rest();
        let indent = line.indent();
        let open = if let Leaf::Paragraph(paragraph) = self.leaf { Some(paragraph) } else { None };
        if indent >= CODE_INDENT {
            if open.is_none() {
                self.begin_leaf(depth);
                line.skip_columns(CODE_INDENT);
                self.push_line(&line);
                self.leaf = Leaf::Indented { kept: self.text.len() };
                return;
            }
        } else if is_rule(rest) {
            self.begin_leaf(depth);
            self.push(Kind::Rule, 0..0);
            return;
        } else if let Some((level, content)) = atx_heading(rest) {
            self.begin_leaf(depth);
            let text = self.push_text(content);
            self.push(Kind::Heading(level), text);
            return;
        } else if let Some((mark, length, info)) = fence(rest) {
            self.begin_leaf(depth);
            let info = self.push_text(info).len();
            self.leaf = Leaf::Fence { mark, length, indent, info };
            return;
        } else if let Some(end) = html::block(rest, open.is_none()) {
            self.begin_leaf(depth);
            self.push_html(&line, end);
            return;
        }
        let Some(mut paragraph) = open else { return self.begin_paragraph(rest, depth, None) };
        if self.text.len() > self.leaf_text {
            self.text.push('\n');
        }
        paragraph.line = self.push_text(rest).start;
        paragraph.line_start = self.start;
        paragraph.continued = depth < self.open.len() || indent >= CODE_INDENT;
        self.leaf = Leaf::Paragraph(paragraph);
    }

    pub(super) fn begin_paragraph(&mut self, rest: &str, depth: usize, check: Option<bool>) {
        self.begin_leaf(depth);
        let line = self.push_text(rest).start;
        self.leaf = Leaf::Paragraph(Paragraph { line, line_start: self.start, continued: false, check });
    }

    /// Ends what the leaf that begins is not within.
    fn begin_leaf(&mut self, depth: usize) {
        self.close_to(depth);
        self.begin_block();
        self.leaf_start = self.start;
        self.leaf_text = self.text.len();
    }

    pub(super) fn close_leaf(&mut self) {
        let kind = match std::mem::take(&mut self.leaf) {
            Leaf::None => return,
            Leaf::Table => return self.push(Kind::End, 0..0),
            Leaf::Paragraph(paragraph) => {
                self.finish_paragraph(Kind::Paragraph, self.text.len(), paragraph.check);
                return;
            }
            Leaf::Fence { info, .. } => Kind::Code { info },
            Leaf::Indented { kept } => {
                self.text.truncate(kept);
                Kind::Code { info: 0 }
            }
            Leaf::Html { .. } => Kind::Html,
        };
        self.parts.push(Part { kind, start: self.leaf_start, text: self.leaf_text..self.text.len() });
    }

    /// The text of the open paragraph up to `end` becomes a block, without the definitions it begins with. False: that was all.
    fn finish_paragraph(&mut self, kind: Kind, end: usize, check: Option<bool>) -> bool {
        while check.is_none()
            && let Some((label, address, length)) = definition(slice(&self.text, self.leaf_text, end), 0)
        {
            self.definitions.add(label, address);
            self.leaf_text += length;
        }
        let length = slice(&self.text, self.leaf_text, end).trim_end_matches([' ', '\t', '\n']).len();
        if length > 0 {
            let text = self.leaf_text..self.leaf_text + length;
            self.parts.extend(check.map(|check| Part { kind: Kind::Check(check), start: self.leaf_start, text: 0..0 }));
            self.parts.push(Part { kind, start: self.leaf_start, text });
        }
        length > 0
    }

    fn push_line(&mut self, line: &Line<'_>) {
        line.push_to(&mut self.text);
        if self.ended {
            self.text.push('\n');
        }
    }

    fn push_html(&mut self, line: &Line<'_>, end: &'static str) {
        self.push_line(line);
        self.leaf = Leaf::Html { end };
        if !end.is_empty() && find(line.rest(), 0, end).is_some() {
            self.close_leaf();
        }
    }
}

/// Whether another block begins on a line that would else be a row.
fn interrupts_table(rest: &str) -> bool {
    at(rest, 0) == b'>'
        || is_rule(rest)
        || marker(rest).is_some()
        || atx_heading(rest).is_some()
        || fence(rest).is_some()
        || html::block(rest, false).is_some()
}
