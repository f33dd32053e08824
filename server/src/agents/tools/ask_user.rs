//! `ask_user {question, options?}`: suspends the turn until a person answers.

use futures::{FutureExt, StreamExt, future};
use serde::Deserialize;
use serde_json::{Value, json};
use turnfast_shared::message::SuspendPayload;

use super::{Tool, ToolContext, ToolEvent, ToolRun};
use crate::agents::model::ToolDefinition;

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
        if question.trim().is_empty() {
            return Err("ask_user takes a question that is not blank".to_owned());
        }
        let options = options.unwrap_or_default();
        if options.iter().any(|option| option.trim().is_empty()) {
            return Err("ask_user takes options that are not blank".to_owned());
        }
        Ok(Some(SuspendPayload::Question { question, options: (!options.is_empty()).then_some(options), free_text: None }))
    }

    fn call(&self, _: Value, _: ToolContext) -> ToolRun {
        future::ready(ToolEvent::Failed("Only a person can answer this, and none was asked.".to_owned())).into_stream().boxed()
    }
}
