//! What files may go with a message: pictures of the kinds that models and browsers know, and text. The bytes decide, not the name.

/// The type of a picture, from how it begins.
#[must_use]
pub fn picture(data: &[u8]) -> Option<&'static str> {
    match data {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Whether a person could read it in an editor: UTF-8 without control characters that text has no use for.
#[must_use]
pub fn is_text(data: &[u8]) -> bool {
    let of_text = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b');
    std::str::from_utf8(data).is_ok_and(|text| text.chars().all(of_text))
}
