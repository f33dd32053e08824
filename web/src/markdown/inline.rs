//! What is within the text of a paragraph, heading or cell (CommonMark 0.31, chapter 6; the second phase of its parsing strategy).
//!
//! One pass from left to right makes pieces; a closing bracket looks back to its opening one, and `emphasis` pairs up marks. Then
//! the pieces stand in the order of the text, with a start and an end for each element, however deep that goes.

use super::{
    emphasis::{self, Run},
    entity::reference,
    html,
    reference::{Definitions, label, target},
    scan::{at, is_blank, run, skip_blanks, slice, tail, tally},
    tree::Tag,
};

/// A piece of text from `start` to `end`.
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

pub(super) enum Kind {
    /// Shown as it is.
    Text,
    /// Code, without its backticks.
    Code,
    /// A line ends: the text goes on.
    LineEnd,
    /// The text goes on in a line of its own.
    Break,
    /// What a character reference stands for.
    Character(char),
    /// An address in angle brackets, without these.
    Address { mail: bool },
    /// An element begins.
    Start(Tag),
    /// A link begins, to this one of [`Inline::addresses`].
    Link(usize),
    /// The last thing that began ends.
    End,
    /// Part of a mark that is not shown.
    Nothing,
}

/// What a text is made of.
pub(super) struct Inline {
    pub(super) pieces: Vec<Piece>,
    /// Where its links lead, not yet judged.
    pub(super) addresses: Vec<String>,
}

/// An opening bracket that may begin a link.
struct Bracket {
    /// Its piece, and where the text behind it begins.
    piece: usize,
    text: usize,
    image: bool,
    /// How many runs came before it.
    runs: usize,
}

struct Reader<'t> {
    text: &'t str,
    definitions: &'t mut Definitions,
    out: Inline,
    /// Text from here on is not among the pieces yet.
    from: usize,
    runs: Vec<Run>,
    brackets: Vec<Bracket>,
    /// Brackets before this one begin no link any more: there is one within theirs.
    dead: usize,
    missing: html::Missing,
    /// Where the last run of so many backticks is, once all have been looked at.
    backticks: Option<Vec<usize>>,
}

/// Reads all of `text`.
pub(super) fn read(text: &str, definitions: &mut Definitions) -> Inline {
    let mut reader = Reader {
        text,
        definitions,
        out: Inline { pieces: Vec::new(), addresses: Vec::new() },
        from: 0,
        runs: Vec::new(),
        brackets: Vec::new(),
        dead: 0,
        missing: html::Missing::default(),
        backticks: None,
    };
    let mut i = 0;
    while i < text.len() {
        i = reader.next(i);
    }
    reader.flush(i);
    emphasis::resolve(&mut reader.out.pieces, &mut reader.runs, 0);
    reader.out
}

impl Reader<'_> {
    /// Reads what is at `i`; returns where it ends.
    fn next(&mut self, i: usize) -> usize {
        let text = self.text;
        match at(text, i) {
            b'\n' => self.line_end(i, i, Kind::LineEnd),
            b'\\' => match at(text, i + 1) {
                b'\n' if i + 1 < text.len() => self.line_end(i, i + 1, Kind::Break),
                byte if byte.is_ascii_punctuation() => {
                    self.flush(i);
                    self.from = i + 1;
                    i + 2
                }
                _ => i + 1,
            },
            b'`' => self.code(i),
            mark @ (b'*' | b'_' | b'~') => self.marks(i, mark),
            b'[' => self.open_bracket(i, 1),
            b'!' if at(text, i + 1) == b'[' => self.open_bracket(i, 2),
            b']' => self.close_bracket(i).unwrap_or(i + 1),
            b'<' => self.angle_bracket(i).unwrap_or(i + 1),
            b'&' => match reference(text, i) {
                Some((character, end)) => self.push(Kind::Character(character), i, i, end, end),
                None => i + 1,
            },
            _ => i + 1,
        }
    }

    /// Text before `i` becomes a piece.
    fn flush(&mut self, i: usize) {
        if self.from < i {
            self.out.pieces.push(Piece { kind: Kind::Text, start: self.from, end: i });
        }
        self.from = i;
    }

    /// A piece that takes the place of what is from `at` up to `behind`. Returns where that ends.
    fn push(&mut self, kind: Kind, at: usize, start: usize, end: usize, behind: usize) -> usize {
        self.flush(at);
        self.out.pieces.push(Piece { kind, start, end });
        self.from = behind;
        behind
    }

    /// Sections 6.7 and 6.8. What breaks the line begins at `mark`, its end is at `i`.
    fn line_end(&mut self, mark: usize, i: usize, kind: Kind) -> usize {
        let blanks = slice(self.text, self.from, mark).bytes().rev().take_while(|&byte| is_blank(byte)).count();
        tally(blanks);
        let end = mark - if mark == i { blanks } else { 0 };
        let kind = if slice(self.text, end, mark).ends_with("  ") { Kind::Break } else { kind };
        self.push(kind, end, end, i, skip_blanks(self.text, i + 1, false))
    }

    /// Section 6.1: code ends at as many backticks as it began with.
    fn code(&mut self, i: usize) -> usize {
        let length = run(self.text, i, b'`');
        let start = i + length;
        if self.backticks.as_ref().is_some_and(|last| last.get(length).is_none_or(|&last| last < start)) {
            return start;
        }
        let mut last = Vec::new();
        let mut j = start;
        while j < self.text.len() {
            let other = run(self.text, j, b'`');
            if other == length {
                return self.push(Kind::Code, i, start, j, j + other);
            }
            if other > 0 && self.backticks.is_none() {
                if last.len() <= other {
                    last.resize(other + 1, 0);
                }
                if let Some(last) = last.get_mut(other) {
                    *last = j;
                }
            }
            j += other.max(1);
        }
        self.backticks = Some(last);
        start
    }

    fn marks(&mut self, i: usize, mark: u8) -> usize {
        let end = i + run(self.text, i, mark);
        let before = slice(self.text, 0, i).chars().next_back();
        let after = tail(self.text, end).chars().next();
        self.flush(i);
        if let Some(run) = Run::new(mark, end - i, self.out.pieces.len(), before, after) {
            self.runs.push(run);
            self.out.pieces.extend((i..end).map(|i| Piece { kind: Kind::Text, start: i, end: i + 1 }));
            self.from = end;
        }
        end
    }

    fn open_bracket(&mut self, i: usize, length: usize) -> usize {
        self.flush(i);
        let text = i + length;
        self.brackets.push(Bracket { piece: self.out.pieces.len(), text, image: length == 2, runs: self.runs.len() });
        self.push(Kind::Text, i, i, text, text)
    }

    /// "Look for link or image" of the parsing strategy. `None`: the bracket is text.
    fn close_bracket(&mut self, i: usize) -> Option<usize> {
        let bracket = self.brackets.pop()?;
        let dead = self.brackets.len() < self.dead && !bracket.image;
        self.dead = self.dead.min(self.brackets.len());
        if dead {
            return None;
        }
        let (address, end) = target(self.text, i + 1).or_else(|| self.defined(bracket.text, i))?;
        self.flush(i);
        if let Some(opening) = self.out.pieces.get_mut(bracket.piece) {
            opening.kind = Kind::Link(self.out.addresses.len());
        }
        self.out.addresses.push(address);
        emphasis::resolve(&mut self.out.pieces, &mut self.runs, bracket.runs);
        if !bracket.image {
            self.dead = self.brackets.len();
        }
        Some(self.push(Kind::End, i, i, end, end))
    }

    /// The address of a link by its label: the one behind it, or else its text, which begins at `start` and ends at `i`.
    fn defined(&mut self, start: usize, i: usize) -> Option<(String, usize)> {
        if self.definitions.is_empty() {
            return None;
        }
        let full = (at(self.text, i + 1) == b'[').then(|| label(self.text, i + 2)).flatten();
        let (label, end) = match full {
            Some(full) => full,
            None => {
                let (label, behind) = label(self.text, start).filter(|&(_, behind)| behind == i + 1)?;
                let collapsed = slice(self.text, behind, behind + 2) == "[]";
                (label, behind + if collapsed { 2 } else { 0 })
            }
        };
        Some((self.definitions.address(&label)?, end))
    }

    /// An address in angle brackets (section 6.5), or HTML (6.6), which is text like any other.
    fn angle_bracket(&mut self, i: usize) -> Option<usize> {
        if let Some((mail, end)) = address(self.text, i + 1) {
            return Some(self.push(Kind::Address { mail }, i, i + 1, end, end + 1));
        }
        html::inline(self.text, i, &mut self.missing)
    }
}

/// Whether the address at `start` is one of mail, and where its `>` is.
fn address(text: &str, start: usize) -> Option<(bool, usize)> {
    let mut i = start;
    while at(text, i).is_ascii_alphanumeric() || matches!(at(text, i), b'+' | b'.' | b'-') {
        i += 1;
    }
    if at(text, i) == b':' && (2..=32).contains(&(i - start)) && at(text, start).is_ascii_alphabetic() {
        while !matches!(at(text, i), 0..=b' ' | b'<' | b'>' | 0x7f) {
            i += 1;
        }
        return (at(text, i) == b'>').then_some((false, i));
    }
    while at(text, i).is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&at(text, i)) {
        i += 1;
    }
    if i == start || at(text, i) != b'@' {
        return None;
    }
    loop {
        let label = i + 1;
        i = label;
        while at(text, i).is_ascii_alphanumeric() || at(text, i) == b'-' {
            i += 1;
        }
        let hyphens = at(text, label) == b'-' || at(text, i - 1) == b'-';
        if !(1..=63).contains(&(i - label)) || hyphens {
            return None;
        }
        match at(text, i) {
            b'.' => {}
            b'>' => return Some((true, i)),
            _ => return None,
        }
    }
}
