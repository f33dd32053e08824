//! Cuts the configuration's secrets out of whatever comes back from outside or goes into the log (contract 1, section 5).
//!
//! A provider may echo the key that it was sent, a tool the token of another tool, a library either of them in its own log lines.
//! Which of them knows which secret is not tracked: none of them may show any.

use std::{
    io::{self, Write},
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use crate::config::Config;

/// What stands in place of a secret.
pub const MASK: &str = "[secret]";
/// A secret shorter than this (in bytes) is none (`none`, `ollama`), and its letters occur in ordinary text. `turnfast check` warns of
/// those.
pub const SECRET_BYTES: usize = 8;

/// The part of a secret's beginning, one in so many of its bytes, that may be shown before it is known whether the rest follows.
/// Ordinary words begin like a key, and a reply must not wait for its last letters.
const SHOWN_PART: usize = 4;

/// Bytes at the end of a text that may be the beginning of a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// All of them.
    pub possible: usize,
    /// Those that are too many to be chance; 0 or more than a quarter of the secret.
    pub likely: usize,
}

/// Finds secrets.
#[derive(Clone, Default)]
pub struct Redactor(Arc<[String]>);

impl Redactor {
    /// For the secrets of `config`.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self::new(config.secrets())
    }

    /// For `secrets`; those that are too short are left out.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        let mut found = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.len() >= SECRET_BYTES) {
            // Within JSON some characters look otherwise.
            let quoted = Value::from(secret).to_string();
            let escaped = &quoted[1..quoted.len() - 1];
            found.push(secret.to_owned());
            if escaped != secret {
                found.push(escaped.to_owned());
            }
        }
        // One may be the beginning of another: the longer one goes first.
        found.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(found.into())
    }

    /// Whether there is nothing to find.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `text` without secrets.
    #[must_use]
    pub fn text(&self, mut text: String) -> String {
        for secret in &*self.0 {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), MASK);
            }
        }
        text
    }

    /// `value` without secrets, also in names of fields.
    #[must_use]
    pub fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => Value::Array(values.into_iter().map(|value| self.value(value)).collect()),
            Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(name, value)| (self.text(name), self.value(value))).collect())
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// Where the first secret in `text` begins.
    #[must_use]
    pub fn first(&self, text: &str) -> Option<usize> {
        self.0.iter().filter_map(|secret| text.find(secret.as_str())).min()
    }

    /// What at the end of `text` may be the beginning of a secret.
    #[must_use]
    pub fn begun(&self, text: &str) -> Begun {
        let mut found = Begun::default();
        for secret in &*self.0 {
            let ends = secret.char_indices().map(|(at, _)| at).skip(1);
            let begun = ends.filter(|&end| end <= text.len() && text.as_bytes().ends_with(&secret.as_bytes()[..end])).last();
            let begun = begun.unwrap_or(0);
            found.possible = found.possible.max(begun);
            if begun > secret.len() / SHOWN_PART {
                found.likely = found.likely.max(begun);
            }
        }
        found
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.len())
    }
}

/// Of the process's log: set once the configuration is read, which is before anything outside is spoken to.
static LOGGED: OnceLock<Redactor> = OnceLock::new();

/// Keeps the secrets of `config` out of the log from now on. Only the first call counts.
pub fn keep_out_of_the_log(config: &Config) {
    let _ = LOGGED.set(Redactor::of(config));
}

/// Standard error without secrets. Each write is a whole line, as the log's formatter makes them.
#[derive(Debug, Default)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut out = io::stderr().lock();
        match LOGGED.get().filter(|redactor| !redactor.is_empty()) {
            Some(redactor) => out.write_all(redactor.text(String::from_utf8_lossy(line).into_owned()).as_bytes())?,
            None => out.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_secret_is_found_wherever_it_stands() {
        let redactor =
            Redactor::new(["a-secret-of-some-length", "a-secret-of-some-length-and-more", "another\"secret\"", "short"]);
        let text = |text: &str| redactor.text(text.to_owned());
        assert_eq!(text("x a-secret-of-some-length-and-more a-secret-of-some-length"), "x [secret] [secret]");
        assert_eq!(text("short"), "short", "too short to be one");
        assert_eq!(text(&json!({"a": "another\"secret\""}).to_string()), "{\"a\":\"[secret]\"}", "within JSON too");
        let value = json!({"a-secret-of-some-length": [{"a": "Bearer a-secret-of-some-length"}, 1, null]});
        assert_eq!(redactor.value(value), json!({"[secret]": [{"a": "Bearer [secret]"}, 1, null]}));
    }

    #[test]
    fn what_may_become_a_secret_is_known() {
        let redactor = Redactor::new(["a-secret-of-some-length", "t-r-i-c-k-y-one"]);
        for (text, begun) in [("x a-sec", 5), ("no", 0), ("a", 1), ("secret", 1), ("a-secre", 7)] {
            assert_eq!(redactor.begun(text).possible, begun, "{text}");
        }
    }
}
