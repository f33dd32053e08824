//! Where links lead: destinations, titles, labels, definitions (CommonMark 0.31, sections 4.7 and 6.3).

use std::collections::BinaryHeap;

use super::{
    entity::unescape,
    scan::{at, skip_blanks, slice},
};

/// Brackets within brackets in a destination without `<>`.
const MAX_BRACKETS: usize = 32;
/// Longest label, in bytes.
const MAX_LABEL: usize = 999;
/// What addresses that are written once and used many times may add up to, in bytes, however short the document is.
const FREE_BYTES: usize = 100_000;

/// The destination at `start`, as it was written, and where it ends.
pub(super) fn destination(text: &str, start: usize) -> Option<(&str, usize)> {
    let mut i = start;
    if at(text, i) == b'<' {
        loop {
            i += 1;
            match at(text, i) {
                b'>' => return Some((slice(text, start + 1, i), i + 1)),
                b'\n' | b'<' => return None,
                b'\\' if at(text, i + 1).is_ascii_punctuation() => i += 1,
                _ => {}
            }
        }
    }
    let mut open = 0;
    loop {
        match at(text, i) {
            b')' if open == 0 => break,
            b')' => open -= 1,
            b'(' => open += 1,
            0..=b' ' | 0x7f => break,
            b'\\' if at(text, i + 1).is_ascii_punctuation() => i += 1,
            _ => {}
        }
        if open > MAX_BRACKETS {
            return None;
        }
        i += 1;
    }
    (open == 0).then_some((slice(text, start, i), i))
}

/// Where the title ends that begins at `start`. No title is ever shown.
pub(super) fn title(text: &str, start: usize) -> Option<usize> {
    let open = at(text, start);
    let close = match open {
        b'"' | b'\'' => open,
        b'(' => b')',
        _ => return None,
    };
    let mut i = start + 1;
    while i < text.len() {
        match at(text, i) {
            byte if byte == close => return Some(i + 1),
            b'(' if open == b'(' => return None,
            b'\\' => i += 1,
            _ => {}
        }
        i += 1;
    }
    None
}

/// The target of an inline link, `(…)` at `start`: its address, and where it ends.
pub(super) fn target(text: &str, start: usize) -> Option<(String, usize)> {
    if at(text, start) != b'(' {
        return None;
    }
    let (address, behind) = destination(text, skip_blanks(text, start + 1, true))?;
    let mut i = skip_blanks(text, behind, true);
    if i > behind
        && let Some(end) = title(text, i)
    {
        i = skip_blanks(text, end, true);
    }
    (at(text, i) == b')').then(|| (unescape(address), i + 1))
}

/// The label that begins at `start`, behind its `[`, in the form that is compared, and where it ends, behind its `]`.
pub(super) fn label(text: &str, start: usize) -> Option<(String, usize)> {
    let mut out = String::new();
    let (mut from, mut i) = (start, start);
    loop {
        let byte = at(text, i);
        if i >= text.len() || i - start > MAX_LABEL || byte == b'[' {
            return None;
        }
        if byte == b']' || byte.is_ascii_whitespace() {
            let word = slice(text, from, i);
            if !word.is_empty() {
                if !out.is_empty() {
                    out.push(' ');
                }
                out.push_str(word);
            }
            from = i + 1;
        }
        i += 1;
        match byte {
            b']' => break,
            b'\\' if at(text, i).is_ascii_punctuation() => i += 1,
            _ => {}
        }
    }
    out.make_ascii_lowercase();
    (!out.is_empty()).then_some((out, i))
}

/// The definition that begins at `start`: label, address, and where the next line begins.
pub(super) fn definition(text: &str, start: usize) -> Option<(String, String, usize)> {
    if at(text, start) != b'[' {
        return None;
    }
    let (label, i) = label(text, start + 1)?;
    if at(text, i) != b':' {
        return None;
    }
    let start = skip_blanks(text, i + 1, true);
    let (address, behind) = destination(text, start)?;
    let line_end = skip_blanks(text, behind, false);
    let plain = at(text, line_end) == b'\n';
    let title_start = skip_blanks(text, line_end, true);
    let titled = title(text, title_start)
        .filter(|_| title_start > behind)
        .map(|end| skip_blanks(text, end, false))
        .filter(|&end| at(text, end) == b'\n');
    let end = titled.or(plain.then_some(line_end))?;
    (behind > start).then(|| (label, unescape(address), (end + 1).min(text.len())))
}

/// Definitions by their labels; of several with one label the first counts.
#[derive(Default)]
pub(super) struct Definitions {
    found: BinaryHeap<(String, usize, String)>,
    /// The same in order, once all are known.
    sorted: Vec<(String, usize, String)>,
    /// How many bytes of addresses may still be given out: `[a]` is short, and what it stands for may be long.
    allowance: usize,
}

impl Definitions {
    pub(super) fn add(&mut self, label: String, address: String) {
        self.found.push((label, self.found.len(), address));
    }

    /// Nothing more will be added.
    pub(super) fn close(&mut self, document_bytes: usize) {
        self.sorted = std::mem::take(&mut self.found).into_sorted_vec();
        self.allowance = document_bytes.max(FREE_BYTES);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub(super) fn address(&mut self, label: &str) -> Option<String> {
        let first = self.sorted.partition_point(|(other, ..)| other.as_str() < label);
        let (_, _, address) = self.sorted.get(first).filter(|(other, ..)| other == label)?;
        self.allowance = self.allowance.checked_sub(address.len())?;
        Some(address.clone())
    }
}
