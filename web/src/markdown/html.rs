//! Where HTML begins and ends (CommonMark 0.31, sections 4.6 and 6.6). All of it is shown as text; what is in it is no Markdown.

use super::scan::{at, find, is_blank, skip_blanks, slice, tail};

/// Elements that end at their end tag, whatever comes in between (condition 1).
const VERBATIM: [(&str, &str); 4] =
    [("pre", "</pre>"), ("script", "</script>"), ("style", "</style>"), ("textarea", "</textarea>")];
/// How else a block begins that ends with certain characters (conditions 2 to 5).
const MARKED: [(&str, &str); 3] = [("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>")];
/// Elements that make a block (condition 6).
const BLOCKS: &str = "address article aside base basefont blockquote body caption center col colgroup dd details dialog dir div dl dt \
    fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main menu \
    menuitem nav noframes ol optgroup option p param search section summary table tbody td tfoot th thead title tr track ul";
/// Longer than any name in `BLOCKS`.
const NAME_LIMIT: usize = 16;

/// The end of the block that begins with `line`; it is in the line that holds it. Empty: the block ends before a blank line.
///
/// `alone`: there is no paragraph that the block would interrupt; a single tag (condition 7) does not interrupt one.
pub(super) fn block(line: &str, alone: bool) -> Option<&'static str> {
    if at(line, 0) != b'<' {
        return None;
    }
    let closing = usize::from(at(line, 1) == b'/');
    let name_start = 1 + closing;
    let mut name_end = name_start;
    while at(line, name_end).is_ascii_alphanumeric() && name_end - name_start < NAME_LIMIT {
        name_end += 1;
    }
    let name = slice(line, name_start, name_end);
    let behind = at(line, name_end);
    let ends = is_blank(behind) || matches!(behind, b'\n' | b'>');
    if closing == 0
        && ends
        && let Some((_, end)) = VERBATIM.iter().find(|(verbatim, _)| name.eq_ignore_ascii_case(verbatim))
    {
        return Some(end);
    }
    if let Some((_, end)) = MARKED.iter().find(|(start, _)| line.starts_with(start)) {
        return Some(end);
    }
    if at(line, 1) == b'!' && at(line, 2).is_ascii_alphabetic() {
        return Some(">");
    }
    let ends = ends || (behind == b'/' && at(line, name_end + 1) == b'>');
    if ends && !name.is_empty() && BLOCKS.split(' ').any(|block| name.eq_ignore_ascii_case(block)) {
        return Some("");
    }
    let end = tag(line, 0).filter(|_| alone)?;
    (skip_blanks(line, end, false) == line.len()).then_some("")
}

/// Ends that were looked for in vain: there is none further on either, and nobody looks twice.
#[derive(Default)]
pub(super) struct Missing([bool; 4]);

/// Where the HTML ends whose `<` is at `start`.
pub(super) fn inline(text: &str, start: usize, missing: &mut Missing) -> Option<usize> {
    if let Some(end) = tag(text, start) {
        return Some(end);
    }
    let rest = tail(text, start);
    // A comment may be as short as `<!-->`: its end may begin within its start.
    let (kind, from, end) = if rest.starts_with("<!--") {
        (0, 2, "-->")
    } else if rest.starts_with("<?") {
        (1, 2, "?>")
    } else if rest.starts_with("<![CDATA[") {
        (2, 9, "]]>")
    } else if rest.starts_with("<!") && at(rest, 2).is_ascii_alphabetic() {
        (3, 3, ">")
    } else {
        return None;
    };
    let missing = missing.0.get_mut(kind).filter(|missing| !**missing)?;
    let found = find(text, start + from, end).map(|i| i + end.len());
    *missing = found.is_none();
    found
}

/// Where the open or closing tag ends whose `<` is at `start`.
fn tag(text: &str, start: usize) -> Option<usize> {
    let closing = at(text, start + 1) == b'/';
    let mut i = start + 1 + usize::from(closing);
    if !at(text, i).is_ascii_alphabetic() {
        return None;
    }
    while at(text, i).is_ascii_alphanumeric() || at(text, i) == b'-' {
        i += 1;
    }
    loop {
        let next = skip_blanks(text, i, true);
        match at(text, next) {
            b'>' => return Some(next + 1),
            b'/' if !closing => return (at(text, next + 1) == b'>').then_some(next + 2),
            b'_' | b':' => {}
            byte if byte.is_ascii_alphabetic() => {}
            _ => return None,
        }
        if closing || next == i {
            return None;
        }
        i = attribute(text, next)?;
    }
}

/// Where the attribute ends whose name begins at `start`.
fn attribute(text: &str, start: usize) -> Option<usize> {
    let mut i = start;
    while at(text, i).is_ascii_alphanumeric() || matches!(at(text, i), b'_' | b':' | b'.' | b'-') {
        i += 1;
    }
    let equals = skip_blanks(text, i, true);
    if at(text, equals) != b'=' {
        return Some(i);
    }
    i = skip_blanks(text, equals + 1, true);
    let quote = at(text, i);
    if matches!(quote, b'"' | b'\'') {
        i += 1;
        while i < text.len() {
            i += 1;
            if at(text, i - 1) == quote {
                return Some(i);
            }
        }
        return None;
    }
    let value = i;
    while !matches!(at(text, i), b' ' | b'\t' | b'\n' | b'"' | b'\'' | b'=' | b'<' | b'>' | b'`') {
        i += 1;
    }
    (i > value).then_some(i)
}
