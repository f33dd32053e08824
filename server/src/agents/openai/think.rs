//! Reasoning that a model writes into its text as `<think>…</think>`.
//!
//! The tags are taken for tags at the beginning of the text only, where such models write them: a text that speaks of `<think>`
//! stays as it is.

use std::mem;

use crate::agents::model::ModelEvent;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Where in the text the splitter is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    #[default]
    Start,
    /// Inside the tags.
    Thinking,
    /// Nothing but white space since the closing tag.
    Thought,
    /// Text to its end.
    Text,
}

/// Splits text into text and reasoning, over deltas cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    state: State,
    /// What may still become a tag.
    held: String,
}

impl Splitter {
    pub(super) fn push(&mut self, delta: &str, events: &mut Vec<ModelEvent>) {
        if self.state == State::Text {
            emit(events, ModelEvent::Text, delta);
            return;
        }
        let mut text = mem::take(&mut self.held);
        text.push_str(delta);
        let mut rest = text.as_str();
        loop {
            match self.state {
                State::Text => {
                    emit(events, ModelEvent::Text, rest);
                    return;
                }
                State::Thinking => match rest.find(CLOSE) {
                    Some(at) => {
                        emit(events, ModelEvent::Reasoning, &rest[..at]);
                        rest = &rest[at + CLOSE.len()..];
                        self.state = State::Thought;
                    }
                    None => {
                        let certain = rest.len() - tag_begun(rest);
                        emit(events, ModelEvent::Reasoning, &rest[..certain]);
                        rest[certain..].clone_into(&mut self.held);
                        return;
                    }
                },
                State::Start | State::Thought => {
                    let trimmed = rest.trim_start();
                    if let Some(inner) = trimmed.strip_prefix(OPEN) {
                        rest = inner;
                        self.state = State::Thinking;
                    } else if OPEN.starts_with(trimmed) {
                        rest.clone_into(&mut self.held);
                        return;
                    } else {
                        if self.state == State::Thought {
                            rest = trimmed;
                        }
                        self.state = State::Text;
                    }
                }
            }
        }
    }

    /// Nothing more comes, or something else comes first: what was held is what it looks like. White space alone is nothing.
    pub(super) fn flush(&mut self, events: &mut Vec<ModelEvent>) {
        let held = mem::take(&mut self.held);
        match self.state {
            State::Thinking => emit(events, ModelEvent::Reasoning, &held),
            State::Start | State::Thought | State::Text if held.trim().is_empty() => {}
            State::Start | State::Thought | State::Text => {
                emit(events, ModelEvent::Text, if self.state == State::Thought { held.trim_start() } else { &held });
                self.state = State::Text;
            }
        }
    }
}

fn emit(events: &mut Vec<ModelEvent>, kind: fn(String) -> ModelEvent, text: &str) {
    if !text.is_empty() {
        events.push(kind(text.to_owned()));
    }
}

/// Length of the end of `text` that may be the beginning of the closing tag.
fn tag_begun(text: &str) -> usize {
    (1..CLOSE.len()).rev().find(|&length| text.ends_with(&CLOSE[..length])).unwrap_or(0)
}
