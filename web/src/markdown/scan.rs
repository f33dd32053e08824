//! Reading text by its bytes. Nothing here can fail: behind the end of a text stands a line end, and a range that a text does not
//! have is empty.

/// The byte at `i`. Behind the end: a line end.
pub(super) fn at(text: &str, i: usize) -> u8 {
    tally(1);
    text.as_bytes().get(i).copied().unwrap_or(b'\n')
}

/// From `from` up to `to`. Every caller cuts at ASCII bytes or at ends.
pub(super) fn slice(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

/// From `from` on.
pub(super) fn tail(text: &str, from: usize) -> &str {
    slice(text, from, text.len())
}

/// How often `byte` stands at `from` in a row.
pub(super) fn run(text: &str, from: usize, byte: u8) -> usize {
    let length = tail(text, from).bytes().take_while(|&b| b == byte).count();
    tally(length + 1);
    length
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The first byte from `from` on that is no space, tab or (`lines`) line end.
pub(super) fn skip_blanks(text: &str, from: usize, lines: bool) -> usize {
    let length = tail(text, from).bytes().take_while(|&b| is_blank(b) || (lines && b == b'\n')).count();
    tally(length + 1);
    from + length
}

/// Without the spaces and tabs around it.
pub(super) fn trim(text: &str) -> &str {
    let trimmed = text.trim_matches([' ', '\t']);
    tally(text.len() - trimmed.len() + 1);
    trimmed
}

/// Where `wanted`, in whatever ASCII case, begins first from `from` on.
pub(super) fn find(text: &str, from: usize, wanted: &str) -> Option<usize> {
    let rest = tail(text, from).as_bytes();
    let found = rest.windows(wanted.len()).position(|bytes| bytes.eq_ignore_ascii_case(wanted.as_bytes()));
    tally(found.unwrap_or(rest.len()) + 1);
    found.map(|i| from + i)
}

/// Whether `text` begins with `wanted`, in whatever ASCII case.
pub(super) fn begins(text: &str, wanted: &str) -> bool {
    tally(1);
    text.as_bytes().get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Tests count the bytes that are looked at: that is the work, whatever the machine.
#[cfg(not(test))]
pub(super) fn tally(_: usize) {}

#[cfg(test)]
thread_local!(static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

#[cfg(test)]
pub(super) fn tally(bytes: usize) {
    WORK.with(|work| work.set(work.get() + bytes));
}

/// What was tallied on this thread since the last call.
#[cfg(all(test, not(target_arch = "wasm32")))]
pub(super) fn take_work() -> usize {
    WORK.with(|work| work.take())
}
