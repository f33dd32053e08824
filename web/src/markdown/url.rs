//! Which addresses a reply may link to.

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
        Some(Self(format!("{scheme}:{rest}")))
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The length of the bare web address at the start of `text`, as a person would read it off a sentence; 0: there is none.
pub(super) fn bare_length(text: &str) -> usize {
    let Some(scheme) = ["https://", "http://"]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
    else {
        return 0;
    };
    let ends = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '"' | '`' | '\\' | '|');
    let Some(end) = text
        .char_indices()
        .find(|&(i, c)| ends(c) || i > MAX_BYTES)
        .map_or(Some(text.len()), |(i, _)| (i <= MAX_BYTES).then_some(i))
    else {
        return 0;
    };
    let mut address = &text[..end];
    // A closing bracket belongs to the sentence unless the address opened it.
    let mut unopened = [('(', ')'), ('[', ']'), ('{', '}')]
        .map(|(open, close)| (close, address.matches(close).count().saturating_sub(address.matches(open).count())));
    while let Some(last) = address.chars().next_back() {
        if !matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '_' | '~') {
            let Some((_, count)) = unopened.iter_mut().find(|(close, count)| *close == last && *count > 0) else { break };
            *count -= 1;
        }
        address = &address[..address.len() - last.len_utf8()];
    }
    if address.len() > scheme.len() { address.len() } else { 0 }
}
