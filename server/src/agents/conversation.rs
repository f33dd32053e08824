//! The record as a model reads it: what was said, what was called and what came of it. Reasoning is not sent back.
//!
//! Calls of one step stay together and those of another are apart: a model that reads calls as made at once takes none for an answer
//! to another. Each call knows its step; text after a call begins a new one.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};
use turnfast_shared::{Message, Part, Role, ToolState, api::AttachmentId, message::ToolCall};

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// What a person sent, or whoever delegated a task.
    Person {
        /// What they wrote.
        text: String,
        /// What goes with it.
        files: Vec<File>,
    },
    /// One step of the agent. Empty text: it only called tools.
    Agent {
        /// What it wrote.
        text: String,
        /// What it called, with results.
        calls: Vec<Call>,
    },
    /// The step before was cut off by a restart; the agent is to go on where it ended.
    CutOff,
}

impl Item {
    /// What a person wrote, without files.
    pub fn person(text: impl Into<String>) -> Self {
        Self::Person { text: text.into(), files: Vec::new() }
    }
}

/// A file that a person attached.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its media type: an image's, or else the file is text.
    pub media_type: String,
    /// Its bytes.
    pub data: Bytes,
}

/// A tool call that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Unique within its message.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it was called with. Text that is no JSON is a JSON string here.
    pub input: Value,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a tool call, as the model is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The output, or why it failed.
    pub output: Value,
    /// Whether it failed.
    pub is_error: bool,
}

impl Outcome {
    /// It worked.
    #[must_use]
    pub fn ok(output: Value) -> Self {
        Self { output, is_error: false }
    }

    /// It failed; `why` is for the model as much as for people.
    #[must_use]
    pub fn error(why: impl Into<String>) -> Self {
        Self { output: Value::String(why.into()), is_error: true }
    }
}

/// The conversation of a thread up to the message that is to be answered. Files whose bytes are not in `attachments` are named.
#[must_use]
pub fn of_history(history: &[Message], attachments: &HashMap<AttachmentId, Bytes>) -> Vec<Item> {
    let mut items = Vec::with_capacity(history.len());
    for message in history {
        match message.role {
            Role::User => items.push(sent(message, attachments)),
            Role::Assistant => push_steps(&mut items, &message.content, &HashMap::new()),
        }
    }
    items
}

/// Adds what earlier executions of a turn recorded. `settled` holds outcomes that the record does not have yet.
pub fn push_so_far(items: &mut Vec<Item>, parts: &[Part], settled: &HashMap<String, Outcome>) {
    let before = items.len();
    push_steps(items, parts, settled);
    let cut_off = matches!(items.get(before..).and_then(<[Item]>::last), Some(Item::Agent { calls, .. }) if calls.is_empty());
    if cut_off {
        items.push(Item::CutOff);
    }
}

fn push_steps(items: &mut Vec<Item>, parts: &[Part], settled: &HashMap<String, Outcome>) {
    let mut text = String::new();
    let mut calls = Vec::new();
    let mut step = None;
    for part in parts {
        match part {
            Part::Text { text: more } => {
                if !calls.is_empty() {
                    items.push(Item::Agent { text: std::mem::take(&mut text), calls: std::mem::take(&mut calls) });
                }
                text.push_str(more);
            }
            Part::ToolCall(call) => {
                if !calls.is_empty() && call.step != step {
                    items.push(Item::Agent { text: std::mem::take(&mut text), calls: std::mem::take(&mut calls) });
                }
                step = call.step;
                calls.push(Call {
                    id: call.tool_call_id.clone(),
                    name: call.tool_name.clone(),
                    input: call.input.clone(),
                    outcome: settled.get(&call.tool_call_id).cloned().unwrap_or_else(|| recorded_outcome(call)),
                });
            }
            Part::Reasoning { .. } | Part::File { .. } => {}
        }
    }
    if !text.is_empty() || !calls.is_empty() {
        items.push(Item::Agent { text, calls });
    }
}

fn recorded_outcome(call: &ToolCall) -> Outcome {
    match call.state {
        ToolState::Resolved => Outcome::ok(call.output.clone().unwrap_or(Value::Null)),
        ToolState::Rejected => Outcome::error(call.error.clone().unwrap_or_else(|| "It failed.".to_owned())),
        ToolState::Cancelled => Outcome::error("The turn was stopped before this call ended."),
        ToolState::InputStreaming | ToolState::Pending | ToolState::Running | ToolState::Suspended => {
            Outcome::error("The turn ended before this call did.")
        }
    }
}

fn sent(message: &Message, attachments: &HashMap<AttachmentId, Bytes>) -> Item {
    let mut text = message.text();
    let mut files = Vec::new();
    for part in &message.content {
        let Part::File { id, name, media_type, size } = part else { continue };
        if let Some(data) = attachments.get(id) {
            files.push(File { name: name.clone(), media_type: media_type.clone(), data: data.clone() });
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let file = json!({"name": name, "type": media_type, "bytes": size});
        text.push_str(&format!("[attached file, content not shown: {file}]"));
    }
    Item::Person { text, files }
}
