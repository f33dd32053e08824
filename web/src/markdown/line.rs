//! One line of a document, and what may begin on it (CommonMark 0.31, sections 2.2, 4.1 to 4.5, 5.2; task lists: GFM 5.3).

use super::scan::{at, is_blank, run, skip_blanks, slice, tail, tally, trim};

/// From this many columns of indentation on, a line is code.
pub(super) const CODE_INDENT: usize = 4;
/// A tab goes on to the next multiple of so many columns.
const TAB: usize = 4;

/// What is left of a line while its marks are taken off from the left.
#[derive(Clone, Copy)]
pub(super) struct Line<'t> {
    text: &'t str,
    at: usize,
    /// The column of `at`.
    column: usize,
    /// Columns of a tab before `at` that are not taken yet.
    pending: usize,
}

impl<'t> Line<'t> {
    /// `text` is without its line end.
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, column: 0, pending: 0 }
    }

    /// Columns of indentation.
    pub(super) fn indent(&self) -> usize {
        let mut copy = *self;
        copy.skip_columns(usize::MAX)
    }

    /// Takes up to `most` columns of indentation; returns how many there were.
    pub(super) fn skip_columns(&mut self, most: usize) -> usize {
        let mut taken = self.pending.min(most);
        self.pending -= taken;
        while taken < most {
            let width = match at(self.text, self.at) {
                b' ' => 1,
                b'\t' => TAB - self.column % TAB,
                _ => break,
            };
            self.at += 1;
            self.column += width;
            let wanted = width.min(most - taken);
            taken += wanted;
            self.pending = width - wanted;
        }
        taken
    }

    /// Takes `bytes` that are no indentation, and the indentation before them.
    pub(super) fn skip_mark(&mut self, bytes: usize) {
        self.skip_columns(usize::MAX);
        self.at += bytes;
        self.column += bytes;
    }

    /// What follows the indentation.
    pub(super) fn rest(&self) -> &'t str {
        tail(self.text, skip_blanks(self.text, self.at, false))
    }

    pub(super) fn is_blank(&self) -> bool {
        self.rest().is_empty()
    }

    /// Everything that is left, indentation and all.
    pub(super) fn push_to(&self, out: &mut String) {
        for _ in 0..self.pending {
            out.push(' ');
        }
        let rest = tail(self.text, self.at);
        tally(rest.len());
        out.push_str(rest);
    }
}

/// A line across: three or more of one mark, and nothing else (section 4.1).
pub(super) fn is_rule(rest: &str) -> bool {
    let mark = at(rest, 0);
    if !matches!(mark, b'*' | b'-' | b'_') {
        return false;
    }
    let mut count = 0;
    for byte in rest.bytes() {
        tally(1);
        match byte {
            _ if byte == mark => count += 1,
            _ if is_blank(byte) => {}
            _ => return false,
        }
    }
    count >= 3
}

/// A heading with marks before it: its level and content (section 4.2).
pub(super) fn atx_heading(rest: &str) -> Option<(u8, &str)> {
    let level = run(rest, 0, b'#');
    let behind = at(rest, level);
    if !(is_blank(behind) || behind == b'\n') {
        return None;
    }
    let content = trim(tail(rest, level));
    let open = content.trim_end_matches('#');
    let closed = open.is_empty() || open.ends_with([' ', '\t']);
    let level = u8::try_from(level).ok().filter(|level| (1..=6).contains(level))?;
    Some((level, trim(if closed { open } else { content })))
}

/// The line under a heading: its level (section 4.3).
pub(super) fn underline(rest: &str) -> Option<u8> {
    let mark = at(rest, 0);
    let level = match mark {
        b'=' => 1,
        b'-' => 2,
        _ => return None,
    };
    (skip_blanks(rest, run(rest, 0, mark), false) == rest.len()).then_some(level)
}

/// A fence of code: its mark, length, and the info string behind it (section 4.5).
pub(super) fn fence(rest: &str) -> Option<(u8, usize, &str)> {
    let mark = at(rest, 0);
    let length = run(rest, 0, mark);
    if !matches!(mark, b'`' | b'~') || length < 3 {
        return None;
    }
    let info = trim(tail(rest, length));
    tally(info.len());
    (mark == b'~' || !info.contains('`')).then_some((mark, length, info))
}

/// The mark of an item (section 5.2).
#[derive(Clone, Copy)]
pub(super) struct Marker {
    /// What tells one list from the next.
    pub(super) mark: u8,
    /// Its number, in an ordered list.
    pub(super) number: Option<u64>,
    /// Its length in bytes.
    pub(super) width: usize,
}

pub(super) fn marker(rest: &str) -> Option<Marker> {
    let mut digits = 0;
    let mut value = 0;
    while at(rest, digits).is_ascii_digit() && digits < 9 {
        value = value * 10 + u64::from(at(rest, digits) - b'0');
        digits += 1;
    }
    let mark = at(rest, digits);
    let known = if digits > 0 { matches!(mark, b'.' | b')') } else { matches!(mark, b'-' | b'+' | b'*') };
    let behind = at(rest, digits + 1);
    (known && (is_blank(behind) || behind == b'\n')).then_some(Marker {
        mark,
        number: (digits > 0).then_some(value),
        width: digits + 1,
    })
}

/// The box of a task: whether it is ticked, and what follows.
pub(super) fn task(rest: &str) -> Option<(bool, &str)> {
    let done = match slice(rest, 0, 3) {
        "[ ]" => false,
        "[x]" | "[X]" => true,
        _ => return None,
    };
    let behind = at(rest, 3);
    (is_blank(behind) || behind == b'\n').then(|| (done, tail(rest, skip_blanks(rest, 3, false))))
}
