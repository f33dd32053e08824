//! Keeps secrets out of what a model streams, should its endpoint echo one.

use std::collections::HashMap;

use crate::{agents::model::ModelEvent, redact::Redactor};

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

/// Redacts the events of one answer. A secret that is cut over deltas is found too: the end of a delta that may be the beginning
/// of one waits for the next.
pub(super) struct Redaction {
    redactor: Redactor,
    held: HashMap<Channel, String>,
}

impl Redaction {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: HashMap::new() }
    }

    /// Adds to `certain` what is certain with this event.
    pub(super) fn take(&mut self, event: ModelEvent, certain: &mut Vec<ModelEvent>) {
        if self.redactor.is_empty() {
            certain.push(event);
            return;
        }
        let (channel, delta) = match event {
            ModelEvent::Text(delta) => (Channel::Text, delta),
            ModelEvent::Reasoning(delta) => (Channel::Reasoning, delta),
            ModelEvent::CallInput { call, delta } => (Channel::Input(call), delta),
            mut other => {
                match &mut other {
                    ModelEvent::Call { input: Ok(value), .. } => *value = self.redactor.value(value.take()),
                    ModelEvent::Call { input: Err(text), .. } => *text = self.redactor.text(std::mem::take(text)),
                    ModelEvent::CallStart { id, name, .. } => {
                        *id = id.take().map(|id| self.redactor.text(id));
                        *name = self.redactor.text(std::mem::take(name));
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
        let mut text = self.redactor.text(match self.held.remove(&channel) {
            Some(held) => held + &delta,
            None => delta,
        });
        let begun = self.redactor.begun(&text);
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
