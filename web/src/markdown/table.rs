//! Tables (GFM 4.10). What a row of text says about columns; where rows begin and end is the blocks' business.

use super::{
    scan::{at, skip_blanks, slice, tally, trim},
    tree::Align,
};

/// The cells of a row: what stands between pipes. A pipe behind a backslash is text.
#[derive(Clone)]
pub(super) struct Cells<'t> {
    row: &'t str,
    next: usize,
}

pub(super) fn cells(row: &str) -> Cells<'_> {
    Cells { row, next: 0 }
}

impl<'t> Iterator for Cells<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let leading = usize::from(self.next == 0 && at(self.row, skip_blanks(self.row, 0, false)) == b'|');
        let start = skip_blanks(self.row, self.next, false) + leading;
        let start = skip_blanks(self.row, start, false);
        if start >= self.row.len() {
            return None;
        }
        let end = pipe(self.row, start).unwrap_or(self.row.len());
        self.next = end + 1;
        Some(trim(slice(self.row, start, end)))
    }
}

/// The first pipe from `from` on that is not behind a backslash.
fn pipe(row: &str, from: usize) -> Option<usize> {
    (from..row.len()).find(|&i| at(row, i) == b'|' && (i == 0 || at(row, i - 1) != b'\\'))
}

/// How the columns stand, if `row` is the one below the head.
pub(super) fn alignments(row: &str) -> Option<Vec<Align>> {
    tally(row.len());
    if !row.contains('|') || !row.bytes().all(|byte| matches!(byte, b'|' | b':' | b'-' | b' ' | b'\t')) {
        return None;
    }
    cells(row).map(alignment).collect::<Option<Vec<_>>>().filter(|columns| !columns.is_empty())
}

fn alignment(cell: &str) -> Option<Align> {
    let (left, right) = (cell.starts_with(':'), cell.len() > 1 && cell.ends_with(':'));
    let dashes = slice(cell, usize::from(left), cell.len() - usize::from(right));
    if dashes.is_empty() || dashes.bytes().any(|byte| byte != b'-') {
        return None;
    }
    Some(match (left, right) {
        (true, true) => Align::Center,
        (false, true) => Align::End,
        _ => Align::Start,
    })
}

/// Whether `row` is the head for so many columns.
pub(super) fn is_head(row: &str, columns: usize) -> bool {
    pipe(row, 0).is_some() && cells(row).count() == columns
}
