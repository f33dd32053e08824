//! Values of options.

use std::{convert::Infallible, path::PathBuf};

use turnfast_shared::Millis;
use uuid::Uuid;

use crate::config::{Secret, is_user_name};

/// A user's name.
pub(super) fn user_name(text: &str) -> Result<String, String> {
    if is_user_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a name takes 1 to 64 of A-Z a-z 0-9 . _ - @ + and starts with a letter or digit".to_owned())
    }
}

/// A UUID, in the form that the API takes.
pub(super) fn uuid(text: &str) -> Result<Uuid, String> {
    crate::http::path::parse_uuid(text).ok_or_else(|| "an id is a UUID, as `token list` shows it".to_owned())
}

/// A value that is not shown.
pub(super) fn secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text.to_owned()))
}

/// A database by itself, without a configuration.
pub(super) enum Place {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Secret),
}

/// `sqlite:FILE` or `postgres://…`. Not a parser of the command line, which would repeat what is wrong: it may hold a password.
pub(super) fn place(text: &Secret) -> Option<Place> {
    match text.expose().strip_prefix("sqlite:") {
        Some(file) => (!file.is_empty()).then(|| Place::Sqlite(file.into())),
        None => ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.expose().starts_with(scheme))
            .then(|| Place::Postgres(text.clone())),
    }
}

/// A time such as `30d`: a number and one of s, m, h, d, w.
pub(super) fn duration(text: &str) -> Result<Millis, String> {
    let read = || {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let unit: Millis = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            "w" => 7 * 24 * 60 * 60,
            _ => return None,
        };
        let digits = number.bytes().all(|b| b.is_ascii_digit());
        let millis = number.parse::<Millis>().ok()?.checked_mul(unit)?.checked_mul(1_000)?;
        (digits && (1..=CENTURY).contains(&millis)).then_some(millis)
    };
    read().ok_or_else(|| "a time is a number and a unit: 90s, 30m, 12h, 30d or 4w".to_owned())
}

/// Longer than anybody means, in milliseconds.
const CENTURY: Millis = 100 * 366 * 24 * 60 * 60 * 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, seconds) in [("1s", 1), ("90s", 90), ("30m", 1_800), ("12h", 43_200), ("30d", 2_592_000), ("4w", 2_419_200)] {
            assert_eq!(duration(text), Ok(seconds * 1_000), "{text}");
        }
        for text in ["", "d", "30", "30 d", "-1d", "+1d", "0d", "1.5h", "30D", "1y", "9999999999999999d", "99999w", "1ä"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
