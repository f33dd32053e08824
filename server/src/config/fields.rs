//! A TOML table read field by field: every mistake is noted with its line and reading goes on.
//!
//! Messages name keys and what they take. They never repeat a value that could hold a secret.

use std::{collections::BTreeSet, ops::RangeInclusive, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::load::Mistake;

/// A value and the byte at which it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<T> {
    pub(super) at: usize,
    pub(super) value: T,
}

/// The file that is read, and what is wrong with it so far.
pub(super) struct Source<'a> {
    file: &'a Path,
    text: &'a str,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    /// Lines that are no TOML. What else seems wrong there follows from that.
    broken: BTreeSet<usize>,
}

impl<'a> Source<'a> {
    /// Nothing is wrong yet.
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, mistakes: Vec::new(), warnings: Vec::new(), broken: BTreeSet::new() }
    }

    /// The folder that relative paths in the file start from.
    pub(super) fn folder(&self) -> &'a Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// The text is no TOML at `at`.
    pub(super) fn broken(&mut self, at: usize, message: impl Into<String>) {
        let line = self.line(at);
        self.broken.insert(line);
        self.push(line, message.into());
    }

    /// What stands at `at` is wrong.
    pub(super) fn wrong(&mut self, at: usize, message: impl Into<String>) {
        let line = self.line(at);
        if !self.broken.contains(&line) {
            self.push(line, message.into());
        }
    }

    /// Something that belongs to what stands at `at` is not there. In a file that is no TOML this means nothing: it may stand in
    /// the part that could not be read.
    pub(super) fn absent(&mut self, at: usize, message: impl Into<String>) {
        if self.broken.is_empty() {
            self.wrong(at, message);
        }
    }

    /// What stands at `at` is not wrong and still will not work.
    pub(super) fn warn(&mut self, at: usize, message: impl Into<String>) {
        let line = self.line(at);
        self.warnings.push(Mistake { file: self.file.to_owned(), line, message: message.into() });
    }

    /// All mistakes and all warnings, in the order of their lines.
    pub(super) fn finish(mut self) -> (Vec<Mistake>, Vec<Mistake>) {
        self.mistakes.sort_by_key(|mistake| mistake.line);
        self.warnings.sort_by_key(|warning| warning.line);
        (self.mistakes, self.warnings)
    }

    /// The text of a key, for messages.
    pub(super) fn slice(&self, span: std::ops::Range<usize>) -> &'a str {
        self.text.get(span).unwrap_or_default()
    }

    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    fn push(&mut self, line: usize, message: String) {
        let mistake = Mistake { file: self.file.to_owned(), line, message };
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }
}

/// One table. Ask for each field, then call [`Fields::finish`].
pub(super) struct Fields<'a> {
    table: &'a DeTable<'a>,
    /// Where the table stands.
    pub(super) at: usize,
    /// How messages call it.
    title: String,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(table: &'a DeTable<'a>, at: usize, title: impl Into<String>) -> Self {
        Self { table, at, title: title.into(), asked: Vec::new() }
    }

    /// The table as messages call it.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// From here on messages name the table by its id.
    pub(super) fn rename(&mut self, title: String) {
        self.title = title;
    }

    /// The field, whatever it is.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.push(key);
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    /// Whether the field is there; asks for nothing.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.iter().any(|(name, _)| name.get_ref() == key)
    }

    pub(super) fn string(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<At<&'a str>> {
        let value = self.value(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.mismatch(source, key, value, "text in quotes");
        }
        text.map(|text| At { at: value.span().start, value: text })
    }

    /// A string that must be there.
    pub(super) fn required(&mut self, source: &mut Source<'_>, key: &'static str, takes: &str) -> Option<At<&'a str>> {
        if !self.has(key) {
            self.asked.push(key);
            source.absent(self.at, format!("{} needs `{key}`: {takes}", self.title));
            return None;
        }
        self.string(source, key)
    }

    pub(super) fn boolean(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.mismatch(source, key, value, "true or false");
        }
        flag
    }

    /// A whole number within `range`.
    pub(super) fn integer(&mut self, source: &mut Source<'_>, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.value(key)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let takes = format!("a whole number from {} to {}", range.start(), range.end());
            self.mismatch(source, key, value, &takes);
        }
        number
    }

    /// A list of strings; those that are none are noted and left out. `None`: absent.
    pub(super) fn strings(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<Vec<At<&'a str>>> {
        let value = self.value(key)?;
        let Some(items) = value.get_ref().as_array() else {
            self.mismatch(source, key, value, "a list of texts");
            return Some(Vec::new());
        };
        let mut texts = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push(At { at: item.span().start, value: text }),
                None => self.mismatch(source, key, item, "a list of texts"),
            }
        }
        Some(texts)
    }

    /// A table.
    pub(super) fn table(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<At<&'a DeTable<'a>>> {
        let value = self.value(key)?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.mismatch(source, key, value, "a table");
        }
        table.map(|table| At { at: value.span().start, value: table })
    }

    /// A list of tables; `None`: absent.
    pub(super) fn tables(&mut self, source: &mut Source<'_>, key: &'static str) -> Option<Vec<At<&'a DeTable<'a>>>> {
        let value = self.value(key)?;
        let takes = "a list of tables";
        let Some(items) = value.get_ref().as_array() else {
            self.mismatch(source, key, value, takes);
            return Some(Vec::new());
        };
        let mut tables = Vec::new();
        for item in items.iter() {
            match item.get_ref().as_table() {
                Some(table) => tables.push(At { at: item.span().start, value: table }),
                None => self.mismatch(source, key, item, takes),
            }
        }
        Some(tables)
    }

    /// Notes every key that nobody asked for.
    pub(super) fn finish(self, source: &mut Source<'_>) {
        for (key, _) in self.table.iter() {
            if !self.asked.iter().any(|asked| key.get_ref() == asked) {
                let known = self.asked.join("`, `");
                source.wrong(key.span().start, format!("{} has no key `{}`; it takes `{known}`", self.title, key.get_ref()));
            }
        }
    }

    fn mismatch(&self, source: &mut Source<'_>, key: &str, value: &Spanned<DeValue<'_>>, takes: &str) {
        source.wrong(value.span().start, format!("`{key}` of {} takes {takes}", self.title));
    }
}
