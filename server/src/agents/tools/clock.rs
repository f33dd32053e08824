//! `clock {}`: the time.

use futures::{FutureExt, StreamExt, future};
use serde_json::{Value, json};

use super::{Tool, ToolContext, ToolEvent, ToolRun};
use crate::{agents::model::ToolDefinition, clock};

/// Tells the time of the server.
#[derive(Debug)]
pub struct Clock {
    definition: ToolDefinition,
}

impl Clock {
    /// The name agents' configurations use.
    pub const NAME: &str = "clock";

    /// The tool.
    #[must_use]
    pub fn new() -> Self {
        Self {
            definition: ToolDefinition {
                name: Self::NAME.to_owned(),
                description: "Returns the current date and time in UTC.".to_owned(),
                input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
            },
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Clock {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call(&self, _: Value, _: ToolContext) -> ToolRun {
        future::lazy(|_| {
            let now = clock::now();
            ToolEvent::Output(json!({"time": clock::rfc3339(now), "unixMilliseconds": now}))
        })
        .into_stream()
        .boxed()
    }
}
