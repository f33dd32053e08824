//! `ask_user {question, options?}`: suspends the turn until a person answers.

use futures::{FutureExt, StreamExt, future};
use serde::Deserialize;
use serde_json::{Value, json};
use turnfast_shared::message::SuspendPayload;

use super::{Tool, ToolContext, ToolEvent, ToolRun};
use crate::{agents::model::ToolDefinition, text};

/// Options in one question, and the characters of each. They are buttons for a person, and come back as they are.
const OPTIONS_MAX: usize = 50;
const OPTION_CHARS: usize = 1_000;

/// Asks a person. Its output is `{"answer": …}`.
#[derive(Debug)]
pub struct AskUser {
    definition: ToolDefinition,
}

#[derive(Deserialize)]
struct Input {
    question: String,
    options: Option<Vec<String>>,
}

impl AskUser {
    /// The name agents' configurations use.
    pub const NAME: &str = "ask_user";

    /// The tool.
    #[must_use]
    pub fn new() -> Self {
        Self {
            definition: ToolDefinition {
                name: Self::NAME.to_owned(),
                description:
                    "Asks the person a question and waits for the answer. With options, one of them is the answer; without, \
                              the person writes one."
                        .to_owned(),
                input_schema: json!({
                    "type": "object",
                    "properties": {
                        "question": {"type": "string", "description": "What to ask."},
                        "options": {"type": "array", "items": {"type": "string"}, "description": "Answers to choose from."},
                    },
                    "required": ["question"],
                    "additionalProperties": false,
                }),
            },
        }
    }
}

impl Default for AskUser {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for AskUser {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn asks_person(&self) -> bool {
        true
    }

    fn question(&self, input: &Value) -> Result<Option<SuspendPayload>, String> {
        let Input { question, options } =
            Input::deserialize(input).map_err(|error| format!("ask_user takes {{question, options?}}: {error}"))?;
        // As answers are judged: what nobody sees cannot be picked.
        if text::is_blank(&question) {
            return Err("ask_user takes a question that is not blank".to_owned());
        }
        let options = options.unwrap_or_default();
        if options.iter().any(|option| text::is_blank(option)) {
            return Err("ask_user takes options that are not blank".to_owned());
        }
        if options.len() > OPTIONS_MAX || options.iter().any(|option| option.chars().count() > OPTION_CHARS) {
            return Err(format!("ask_user takes at most {OPTIONS_MAX} options of at most {OPTION_CHARS} characters each"));
        }
        Ok(Some(SuspendPayload::Question { question, options: (!options.is_empty()).then_some(options), free_text: None }))
    }

    fn call(&self, _: Value, _: ToolContext) -> ToolRun {
        future::ready(ToolEvent::Failed("Only a person can answer this, and none was asked.".to_owned())).into_stream().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_that_is_shown_can_be_picked() {
        let ask = |options: Vec<String>| AskUser::new().question(&json!({"question": "Which?", "options": options}));
        assert!(ask(vec!["x".repeat(OPTION_CHARS); OPTIONS_MAX]).is_ok());
        ask(vec!["x".repeat(OPTION_CHARS + 1)]).unwrap_err();
        ask(vec!["x".to_owned(); OPTIONS_MAX + 1]).unwrap_err();
        for unseen in [" ", "\u{200b}", "\u{ad}"] {
            ask(vec!["yes".to_owned(), unseen.to_owned()]).unwrap_err();
        }
    }
}
