//! Names of tools as they are sent. Endpoints take `[a-zA-Z0-9_-]{1,64}`; the names that agents' configurations use may hold more.
//!
//! The name that is sent follows from the tool's name alone, so that a call in an old conversation has the same name as the tool
//! that is offered now, and two tools never share one: `mcp:SERVER/TOOL` is sent as `SERVER__TOOL` (a server's id has no `_`), and
//! what does not fit so gets a digest at its end, which no other name has.

use std::{borrow::Cow, collections::HashMap};

use sha2::{Digest, Sha256};

use crate::agents::model::{ModelEvent, ToolDefinition};

/// Longest name that is sent.
const LONGEST: usize = 64;
/// Hexadecimal digits of a digest.
const DIGITS: usize = 10;

/// The name under which a tool is sent.
pub(super) fn sent(name: &str) -> Cow<'_, str> {
    let plain = match name.strip_prefix("mcp:").and_then(|rest| rest.split_once('/')) {
        Some((server, tool)) => Cow::Owned(format!("{server}__{tool}")),
        // It would be taken for a server's tool.
        None if name.contains("__") => return Cow::Owned(digested(name)),
        None => Cow::Borrowed(name),
    };
    let fits = (1..=LONGEST).contains(&plain.len()) && plain.chars().all(is_taken) && !has_digest(&plain);
    if fits { plain } else { Cow::Owned(digested(name)) }
}

fn is_taken(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Whether `name` could be one that [`digested`] made.
fn has_digest(name: &str) -> bool {
    name.rsplit_once("_0x").is_some_and(|(_, end)| end.len() == DIGITS && end.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn digested(name: &str) -> String {
    let room = LONGEST - DIGITS - "_0x".len();
    let start = name.strip_prefix("mcp:").unwrap_or(name).replacen('/', "__", 1);
    let mut sent: String = start.chars().map(|c| if is_taken(c) { c } else { '_' }).take(room).collect();
    sent.push_str("_0x");
    for byte in Sha256::digest(name).iter().take(DIGITS / 2) {
        sent.push_str(&format!("{byte:02x}"));
    }
    sent
}

/// The tools of one request by the names under which they are sent.
pub(super) struct Names(HashMap<String, String>);

impl Names {
    pub(super) fn new(tools: &[ToolDefinition]) -> Self {
        Self(tools.iter().map(|tool| (sent(&tool.name).into_owned(), tool.name.clone())).collect())
    }

    /// Gives a call the tool's own name back. A name that was not offered stays as the model wrote it.
    pub(super) fn restore(&self, event: &mut ModelEvent) {
        if let ModelEvent::CallStart { name, .. } = event
            && let Some(own) = self.0.get(name.as_str())
        {
            name.clone_from(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_fit_are_readable() {
        for (name, expected) in [
            ("clock", "clock"),
            ("ask_user", "ask_user"),
            ("mcp:files/write_file", "files__write_file"),
            ("mcp:a-b/_c-D", "a-b___c-D"),
        ] {
            assert_eq!(sent(name), expected);
        }
        let long = format!("mcp:files/{}", "x".repeat(100));
        for name in ["mcp:files/read.text", "mcp:files/a/b", "mcp:files/größe", "", "a__b", "mcp:f/x_0x0123456789", &long] {
            let sent = sent(name);
            assert!(has_digest(&sent) && sent.len() <= LONGEST && sent.chars().all(is_taken), "{name}: {sent}");
        }
    }

    #[test]
    fn an_offered_tool_gets_its_name_back() {
        let tool = |name: &str| ToolDefinition {
            name: name.to_owned(),
            description: String::new(),
            input_schema: serde_json::json!({}),
        };
        let names = Names::new(&[tool("mcp:files/read.text"), tool("clock")]);
        let restored = |name: &str| {
            let mut event = ModelEvent::CallStart { call: 0, id: None, name: name.to_owned() };
            names.restore(&mut event);
            match event {
                ModelEvent::CallStart { name, .. } => name,
                _ => unreachable!("restoring changes the name and nothing else"),
            }
        };
        assert_eq!(restored(&sent("mcp:files/read.text")), "mcp:files/read.text");
        for same in ["clock", "dance", "mcp:files/read.text"] {
            assert_eq!(restored(same), same);
        }
    }

    proptest! {
        #[test]
        fn no_two_tools_share_a_name(names in proptest::collection::btree_set("(mcp:[a-z-]{1,3}/)?[a-c_./:]{1,4}(_0x[0-9a-f]{10})?", 1..60)) {
            let sent: BTreeSet<_> = names.iter().map(|name| sent(name).into_owned()).collect();
            prop_assert_eq!(sent.len(), names.len());
            prop_assert!(sent.iter().all(|name| (1..=LONGEST).contains(&name.len()) && name.chars().all(is_taken)));
        }
    }
}
