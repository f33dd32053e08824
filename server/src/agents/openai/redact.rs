//! Keeps an API key out of what an endpoint sends back, should it echo it.

use std::collections::HashMap;

use serde_json::Value;

use crate::{agents::model::ModelEvent, config::Secret};

/// What stands in place of the key.
const MASK: &str = "[API key]";
/// A key shorter than this is no secret (`none`, `ollama`), and its letters occur in ordinary text.
const SECRET_BYTES: usize = 12;

/// Finds one key.
pub(super) struct Redactor(Option<Secret>);

impl Redactor {
    pub(super) fn new(key: Option<Secret>) -> Self {
        Self(key.filter(|key| key.expose().len() >= SECRET_BYTES))
    }

    /// `text` without the key.
    pub(super) fn text(&self, text: String) -> String {
        match &self.0 {
            Some(key) if text.contains(key.expose()) => text.replace(key.expose(), MASK),
            _ => text,
        }
    }

    /// For the events of one answer.
    pub(super) fn stream(&self) -> Redaction {
        Redaction { key: self.0.clone(), held: HashMap::new() }
    }
}

/// What a delta belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    Text,
    Reasoning,
    Input(usize),
}

impl Channel {
    fn event(self, delta: String) -> ModelEvent {
        match self {
            Self::Text => ModelEvent::Text(delta),
            Self::Reasoning => ModelEvent::Reasoning(delta),
            Self::Input(call) => ModelEvent::CallInput { call, delta },
        }
    }
}

/// Redacts the events of one answer. A key that is cut over deltas is found too: the end of a delta that may be the beginning of
/// the key waits for the next one.
pub(super) struct Redaction {
    key: Option<Secret>,
    held: HashMap<Channel, String>,
}

impl Redaction {
    /// Adds to `certain` what is certain with this event.
    pub(super) fn take(&mut self, event: ModelEvent, certain: &mut Vec<ModelEvent>) {
        let Some(key) = &self.key else {
            certain.push(event);
            return;
        };
        let key = key.expose();
        let (channel, delta) = match event {
            ModelEvent::Text(delta) => (Channel::Text, delta),
            ModelEvent::Reasoning(delta) => (Channel::Reasoning, delta),
            ModelEvent::CallInput { call, delta } => (Channel::Input(call), delta),
            mut other => {
                match &mut other {
                    ModelEvent::Call { input: Ok(value), .. } => redact_value(value, key),
                    ModelEvent::Call { input: Err(text), .. } => *text = text.replace(key, MASK),
                    ModelEvent::CallStart { id, name, .. } => {
                        *id = id.take().map(|id| id.replace(key, MASK));
                        *name = name.replace(key, MASK);
                    }
                    _ => {}
                }
                self.end(certain);
                certain.push(other);
                return;
            }
        };
        // Text and reasoning keep their order.
        for other in [Channel::Text, Channel::Reasoning] {
            if other != channel
                && !matches!(channel, Channel::Input(_))
                && let Some(held) = self.held.remove(&other)
            {
                certain.push(other.event(held));
            }
        }
        let mut text = match self.held.remove(&channel) {
            Some(held) => held + &delta,
            None => delta,
        };
        if text.contains(key) {
            text = text.replace(key, MASK);
        }
        let begun = key_begun(&text, key);
        if begun > 0 {
            self.held.insert(channel, text.split_off(text.len() - begun));
        }
        if !text.is_empty() {
            certain.push(channel.event(text));
        }
    }

    /// Adds what was held: nothing more comes.
    pub(super) fn end(&mut self, certain: &mut Vec<ModelEvent>) {
        certain.extend(self.held.drain().map(|(channel, held)| channel.event(held)));
    }
}

/// Length of the end of `text` that may be the beginning of the key.
fn key_begun(text: &str, key: &str) -> usize {
    let ends = key.char_indices().map(|(at, _)| at).skip(1);
    ends.filter(|&end| end <= text.len() && text.as_bytes().ends_with(&key.as_bytes()[..end])).last().unwrap_or(0)
}

fn redact_value(value: &mut Value, key: &str) {
    match value {
        Value::String(text) if text.contains(key) => *text = text.replace(key, MASK),
        Value::Array(values) => values.iter_mut().for_each(|value| redact_value(value, key)),
        Value::Object(fields) => {
            if fields.keys().any(|name| name.contains(key)) {
                *fields = std::mem::take(fields).into_iter().map(|(name, value)| (name.replace(key, MASK), value)).collect();
            }
            fields.values_mut().for_each(|value| redact_value(value, key));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
