//! Files that a person wants to send: which are taken, and how they go. Pure; the server checks the same and more.

use turnfast_shared::{
    api::{AttachmentLimits, NewAttachment},
    files::{is_text, picture},
};

use crate::words;

/// Characters of a name.
const NAME_CHARS: usize = 200;

/// What is taken, in words.
pub const KINDS: &str = "pictures (PNG, JPEG, GIF, WebP) and text files";

/// A file as it is sent. `declared`: the type that the browser takes it for.
///
/// # Errors
/// Why it is not taken, in words that name it.
pub fn take(name: &str, declared: &str, data: &[u8], limits: AttachmentLimits) -> Result<NewAttachment, String> {
    let name = short(name);
    if data.len() as u64 > limits.max_bytes {
        return Err(too_large(&name, limits));
    }
    let is_picture = declared.starts_with("image/");
    let media_type = match picture(data) {
        Some(found) => found,
        None if is_picture || !is_text(data) => return Err(format!("“{name}” was not added: only {KINDS} are taken.")),
        // Some browsers take a source file for a video by the ending of its name.
        None if declared.starts_with("text/") || declared.starts_with("application/") => declared,
        None => "text/plain",
    };
    Ok(NewAttachment { name, media_type: media_type.to_owned(), data: base64(data) })
}

/// That a file is too large.
#[must_use]
pub fn too_large(name: &str, limits: AttachmentLimits) -> String {
    format!("“{}” was not added: a file has at most {}.", short(name), words::size(limits.max_bytes))
}

/// That there are too many files.
#[must_use]
pub fn too_many(limits: AttachmentLimits) -> String {
    match limits.max {
        1 => "Only one file goes with a message.".to_owned(),
        max => format!("Only {max} files go with one message; the others were not added."),
    }
}

/// Bytes of a file that is about to be sent.
#[must_use]
pub fn size(file: &NewAttachment) -> u64 {
    let padding = file.data.bytes().rev().take_while(|&byte| byte == b'=').count();
    (file.data.len() / 4 * 3 - padding) as u64
}

/// A name that the server takes.
fn short(name: &str) -> String {
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(NAME_CHARS).collect();
    if name.is_empty() { "file".to_owned() } else { name }
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(data: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(data.len().div_ceil(3) * 4);
    for group in data.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let of = bits >> (18 - 6 * digit) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[of as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttachmentLimits = AttachmentLimits { max: 2, max_bytes: 100 };

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
            ("\u{ff}~?", "w79+Pw=="),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    #[test]
    fn what_the_server_takes_is_taken_and_the_rest_says_why() {
        let taken = |name: &str, declared: &str, data: &[u8]| take(name, declared, data, LIMITS);
        let picture = taken("dot.png", "image/png", b"\x89PNG\r\n\x1a\n").unwrap();
        assert_eq!((picture.media_type.as_str(), size(&picture)), ("image/png", 8));
        for (declared, expected) in [
            ("text/markdown", "text/markdown"),
            ("", "text/plain"),
            ("video/mp2t", "text/plain"),
            ("application/json", "application/json"),
        ] {
            assert_eq!(taken("notes", declared, "größe".as_bytes()).unwrap().media_type, expected);
        }
        for (declared, data) in
            [("image/svg+xml", b"<svg/>".as_slice()), ("application/zip", b"PK\x03\x04"), ("image/png", b"text")]
        {
            assert!(taken("odd", declared, data).unwrap_err().starts_with("“odd” was not added: only pictures"));
        }
        assert!(taken("big", "text/plain", &[b'x'; 101]).unwrap_err().contains("at most 100 B"));
        assert_eq!(taken("a\nb", "", b"").unwrap().name, "ab");
        assert_eq!(taken(&"x".repeat(300), "", b"").unwrap().name.len(), 200);
        assert_eq!(size(&taken("", "", b"four").unwrap()), 4);
    }
}
