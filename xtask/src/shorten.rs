//! Makes the JavaScript that wasm-bindgen writes, and the wasm that it goes with, shorter without changing what they do: comments
//! and indentation go, and the names that the two know each other by, which are long and end in hashes, become `$0`, `$1` and so on.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

const IMPORTS: u8 = 2;
const EXPORTS: u8 = 7;

/// Shortens a pair of glue and wasm.
pub(crate) fn shorten(glue: &str, wasm: &[u8]) -> Result<(String, Vec<u8>)> {
    let mut names = BTreeMap::new();
    rewrite(wasm, &mut |name| {
        if ["__wb", "wasm_bindgen__"].iter().any(|start| name.starts_with(start)) {
            let next = names.len();
            names.entry(name.to_owned()).or_insert_with(|| format!("${next}"));
        }
        name.to_owned()
    })?;
    let is_short = |word: &str| word.strip_prefix('$').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if identifiers(glue).any(|(word, is_name)| is_name && is_short(word)) {
        bail!("the glue has names like $0 already: choose other short ones");
    }
    let short = |name: &str| names.get(name).cloned().unwrap_or_else(|| name.to_owned());
    let renamed: String =
        identifiers(&bare(glue)?).map(|(word, is_name)| if is_name { short(word) } else { word.to_owned() }).collect();
    Ok((renamed, rewrite(wasm, &mut |name| short(name))?))
}

/// The lines of a script without comments and indentation.
fn bare(glue: &str) -> Result<String> {
    let mut out = String::with_capacity(glue.len());
    for line in glue.lines().map(str::trim) {
        if line.matches('`').count() % 2 == 1 {
            bail!("a text in the glue goes over more than one line: {line}");
        }
        if !(line.is_empty() || ["//", "/*", "*"].iter().any(|start| line.starts_with(start))) {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

/// A script in pieces: what may be a name (`true`), and what stands between.
fn identifiers(script: &str) -> impl Iterator<Item = (&str, bool)> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$');
    let mut rest = script;
    std::iter::from_fn(move || {
        let is_name = rest.chars().next().map(in_name)?;
        let end = rest.find(|c| in_name(c) != is_name).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        rest = behind;
        Some((word, is_name))
    })
}

/// The module with the names of its imports and exports as `rename` wants them.
fn rewrite(wasm: &[u8], rename: &mut dyn FnMut(&str) -> String) -> Result<Vec<u8>> {
    let mut rest = Reader(wasm);
    let mut out = rest.bytes(8)?.to_vec();
    while !rest.0.is_empty() {
        let id = rest.byte()?;
        let size = rest.number()?;
        let content = rest.bytes(size)?;
        let content = match id {
            IMPORTS | EXPORTS => renamed(id, content, rename).context("a section of the wasm cannot be read")?,
            _ => content.to_vec(),
        };
        out.push(id);
        put_number(&mut out, content.len());
        out.extend(content);
    }
    Ok(out)
}

fn renamed(section: u8, content: &[u8], rename: &mut dyn FnMut(&str) -> String) -> Result<Vec<u8>> {
    let mut rest = Reader(content);
    let mut out = Vec::with_capacity(content.len());
    let count = rest.number()?;
    put_number(&mut out, count);
    for _ in 0..count {
        if section == IMPORTS {
            put_name(&mut out, rest.name()?);
        }
        put_name(&mut out, &rename(rest.name()?));
        let before = rest.0;
        let kind = rest.byte()?;
        match (section, kind) {
            (EXPORTS, _) | (IMPORTS, 0) => drop(rest.number()?),
            (IMPORTS, 1) => {
                rest.byte()?;
                rest.limits()?;
            }
            (IMPORTS, 2) => rest.limits()?,
            (IMPORTS, 3) => drop(rest.bytes(2)?),
            (_, kind) => bail!("an import of kind {kind}"),
        }
        out.extend(&before[..before.len() - rest.0.len()]);
    }
    Ok(out)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("the wasm ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.bytes(1)?[0])
    }

    /// Unsigned LEB128.
    fn number(&mut self) -> Result<usize> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        bail!("a number in the wasm is too long")
    }

    fn name(&mut self) -> Result<&'a str> {
        let length = self.number()?;
        Ok(std::str::from_utf8(self.bytes(length)?)?)
    }

    fn limits(&mut self) -> Result<()> {
        let has_maximum = self.byte()? & 1 == 1;
        self.number()?;
        if has_maximum {
            self.number()?;
        }
        Ok(())
    }
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    put_number(out, name.len());
    out.extend(name.as_bytes());
}

#[cfg(test)]
mod tests {

    use super::*;

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![id];
        put_number(&mut out, content.len());
        out.extend(content);
        out
    }

    fn module(import: &str, export: &str) -> Vec<u8> {
        let mut imports = vec![2];
        put_name(&mut imports, "./glue");
        put_name(&mut imports, import);
        imports.extend([0, 0x85, 1]);
        put_name(&mut imports, "./glue");
        put_name(&mut imports, "memory");
        imports.extend([2, 1, 17, 0x80, 2]);
        let mut exports = vec![1];
        put_name(&mut exports, export);
        exports.extend([0, 7]);
        let mut out = b"\0asm\x01\0\0\0".to_vec();
        out.extend(section(1, &[0; 300]));
        out.extend(section(IMPORTS, &imports));
        out.extend(section(EXPORTS, &exports));
        out
    }

    #[test]
    fn both_sides_get_the_same_short_names_and_nothing_else_changes() {
        let long = format!("__wbg_open_{}", "0".repeat(200));
        let glue = format!(
            "// glue\nconst imports = {{\n    {long}: function(memory) {{ return `{long}x`; }},\n}};\n/**\n * @x\n */\nwasm.__wbindgen_start();\n"
        );
        let (script, wasm) = shorten(&glue, &module(&long, "__wbindgen_start")).unwrap();
        assert_eq!(script, format!("const imports = {{\n$0: function(memory) {{ return `{long}x`; }},\n}};\nwasm.$1();\n"));
        assert_eq!(wasm, module("$0", "$1"));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        let whole = module("__wbg_a", "b");
        assert!(shorten("", &whole[..whole.len() - 1]).is_err());
        assert!(shorten("const $0 = 1;", &whole).is_err());
        assert!(shorten("const a = `one\ntwo`;", &whole).is_err());
    }
}
