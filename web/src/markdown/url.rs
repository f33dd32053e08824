//! Which addresses a reply may link to.

use super::scan::{begins, find, slice, tail, tally};

/// Longest address that becomes a link, in bytes.
const MAX_BYTES: usize = 4_096;

/// An absolute http, https or mailto address without anything in it that a browser would read in another way than we do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafeUrl(String);

impl SafeUrl {
    /// Takes an address as Markdown gives it, entities and escapes resolved. `None`: show its text, and no link.
    ///
    /// Refused are: any other scheme, addresses relative to this page, control characters and white space (browsers strip some of
    /// them, so that `java\nscript:` would come alive), backslashes (browsers read them as slashes), and user names before the
    /// host (`https://bank.example@evil.example`).
    #[must_use]
    pub fn parse(address: &str) -> Option<Self> {
        let unreadable = |c: char| {
            c.is_control()
                || c.is_whitespace()
                || matches!(c, '\\' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        };
        tally(address.len().min(MAX_BYTES));
        if address.len() > MAX_BYTES || address.contains(unreadable) {
            return None;
        }
        let (scheme, rest) = address.split_once(':')?;
        let scheme = scheme.to_ascii_lowercase();
        match scheme.as_str() {
            "http" | "https" => {
                let authority = rest.strip_prefix("//")?.split(['/', '?', '#']).next()?;
                let host = authority.split(':').next().filter(|host| !host.is_empty() || authority.starts_with('['))?;
                if authority.contains('@') || (host.is_empty() && !authority.starts_with('[')) {
                    return None;
                }
            }
            "mailto" if rest.contains('@') && !rest.starts_with('/') => {}
            _ => return None,
        }
        Some(Self([scheme.as_str(), ":", rest].concat()))
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A web address in a text, as a person would read it off a sentence.
pub(super) struct BareAddress<'t> {
    /// The text before it.
    pub(super) before: &'t str,
    /// The address as it was written.
    pub(super) address: &'t str,
    /// Where it leads.
    pub(super) url: SafeUrl,
    /// The text behind it.
    pub(super) behind: &'t str,
}

/// The first bare address of `text`.
pub(super) fn bare_address(text: &str) -> Option<BareAddress<'_>> {
    let (mut from, mut run_end) = (0, 0);
    while let Some(colon) = find(text, from, "://") {
        from = colon + 3;
        let scheme = slice(text, 0, colon).bytes().rev().take_while(u8::is_ascii_alphabetic).count();
        tally(scheme);
        let (before, rest) = text.split_at(colon - scheme);
        let joined = before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == ':');
        if joined || !(begins(rest, "https://") || begins(rest, "http://")) {
            continue;
        }
        // Addresses may follow each other without a gap; where they all end is looked up once.
        if run_end < from {
            let ends = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '"' | '`' | '\\' | '|');
            run_end = tail(text, from).find(ends).map_or(text.len(), |i| from + i);
            tally(run_end - from);
        }
        if run_end - before.len() > MAX_BYTES {
            continue;
        }
        let address = without_sentence(slice(text, before.len(), run_end));
        if let Some(url) = SafeUrl::parse(address).filter(|_| address.len() > scheme + 3) {
            let behind = tail(text, before.len() + address.len());
            return Some(BareAddress { before, address, url, behind });
        }
        // What is in an address that is refused is none either: so each is judged once.
        from = run_end;
    }
    None
}

/// `address` without the marks at its end that belong to the sentence around it.
fn without_sentence(mut address: &str) -> &str {
    // A closing bracket belongs to the sentence unless the address opened it.
    let mut unopened = [(b'(', b')'), (b'[', b']'), (b'{', b'}')].map(|(open, close)| (close, unopened(address, open, close)));
    tally(address.len());
    while let Some(last) = address.bytes().next_back() {
        if !matches!(last, b'.' | b',' | b';' | b':' | b'!' | b'?' | b'\'' | b'*' | b'_' | b'~') {
            let Some((_, count)) = unopened.iter_mut().find(|(close, count)| *close == last && *count > 0) else { break };
            *count -= 1;
        }
        address = slice(address, 0, address.len() - 1);
    }
    address
}

/// How many more closing than opening brackets there are.
fn unopened(address: &str, open: u8, close: u8) -> usize {
    let count = |wanted| address.bytes().filter(|&byte| byte == wanted).count();
    count(close).saturating_sub(count(open))
}
