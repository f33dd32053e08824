//! Text that people type.

/// Whether nobody would see anything of `text`: it has only white space, control characters and characters without a shape, such as
/// those of zero width.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control() || is_invisible(c))
}

/// Unicode's `Default_Ignorable_Code_Point`, as far as it is assigned, and the blank pattern of Braille.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_blank() {
        for blank in
            ["", " \n\t", "\u{200b}", "\u{feff} \u{2060}\u{200d}", "\0\u{7}", "\u{3000}\u{a0}", "\u{3164}", "\u{202e}\u{202c}"]
        {
            assert!(is_blank(blank), "{blank:?}");
        }
        for seen in ["a", "\u{200b}.\u{200b}", "0", "👩\u{200d}💻", "\u{301}"] {
            assert!(!is_blank(seen), "{seen:?}");
        }
    }
}
