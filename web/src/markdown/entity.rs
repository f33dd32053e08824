//! Character references and backslash escapes (CommonMark 0.31, sections 2.4 and 2.5).
//!
//! Numeric references are all known, of the named ones those that people write; another stays text as it was written.

use super::scan::{at, slice};

/// Names, each with its character behind it.
const NAMED: &str = "amp& lt< gt> quot\" apos' nbsp\u{a0} copy© reg® trade™ hellip… mdash— ndash– lsquo‘ rsquo’ ldquo“ rdquo” laquo« \
    raquo» bull• middot· larr← uarr↑ rarr→ darr↓ harr↔ rArr⇒ times× divide÷ minus− plusmn± deg° micro\u{b5} euro€ pound£ yen¥ cent¢ \
    sect§ para¶ le≤ ge≥ ne≠ infin∞ asymp≈ check✓";
/// Length of the longest name.
const LONGEST: usize = 6;

/// The reference whose `&` is at `start`: its character, and where it ends.
pub(super) fn reference(text: &str, start: usize) -> Option<(char, usize)> {
    let mut i = start + 1;
    if at(text, i) == b'#' {
        let hex = at(text, i + 1) | 0x20 == b'x';
        let (base, most) = if hex { (16, 6) } else { (10, 7) };
        i += 1 + usize::from(hex);
        let digits = i;
        let mut code = 0;
        while let Some(digit) = char::from(at(text, i)).to_digit(base) {
            code = code * base + digit;
            i += 1;
            if i - digits > most {
                return None;
            }
        }
        let known = char::from_u32(code).filter(|&c| c != '\0').unwrap_or(char::REPLACEMENT_CHARACTER);
        return (i > digits && at(text, i) == b';').then_some((known, i + 1));
    }
    while at(text, i).is_ascii_alphanumeric() && i - start <= LONGEST {
        i += 1;
    }
    let name = slice(text, start + 1, i);
    if name.is_empty() || at(text, i) != b';' {
        return None;
    }
    NAMED.split(' ').find_map(|entry| {
        let mut behind = entry.strip_prefix(name)?.chars();
        let character = behind.next()?;
        behind.next().is_none().then_some((character, i + 1))
    })
}

/// `text` with its escapes and references resolved.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::new();
    let (mut from, mut i) = (0, 0);
    while i < text.len() {
        match at(text, i) {
            b'\\' if at(text, i + 1).is_ascii_punctuation() => {
                out.push_str(slice(text, from, i));
                from = i + 1;
                i += 2;
            }
            b'&' => match reference(text, i) {
                Some((character, end)) => {
                    out.push_str(slice(text, from, i));
                    out.push(character);
                    (from, i) = (end, end);
                }
                None => i += 1,
            },
            _ => i += 1,
        }
    }
    out.push_str(slice(text, from, i));
    out
}
