//! `delegate {agent, task}`: runs another agent of the project as a child of this turn.
//!
//! The child sees the task and nothing of the thread. Its last text is the call's output. It is stopped with the turn. What it
//! does shows as [`Event::SubagentChunk`]s.

use async_stream::stream;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use turnfast_shared::{Event, ids::Slug};

use super::{Tool, ToolContext, ToolEvent, ToolRun};
use crate::agents::{
    conversation::Item,
    model::ToolDefinition,
    turn_loop::{self, Start},
};

/// Runs child agents.
#[derive(Debug)]
pub struct Delegate {
    definition: ToolDefinition,
    delegates: Vec<Slug>,
}

#[derive(Deserialize)]
struct Input {
    agent: String,
    task: String,
}

impl Delegate {
    /// The name agents' configurations use.
    pub const NAME: &str = "delegate";

    /// The tool, for an agent that may run `delegates`.
    #[must_use]
    pub fn new(delegates: Vec<Slug>) -> Self {
        let names: Vec<_> = delegates.iter().map(Slug::as_str).collect();
        Self {
            definition: ToolDefinition {
                name: Self::NAME.to_owned(),
                description:
                    "Gives a task to another agent, waits until it is done and returns what it wrote. The agent sees the \
                              task and nothing else: put everything it needs into it."
                        .to_owned(),
                input_schema: json!({
                    "type": "object",
                    "properties": {
                        "agent": {"type": "string", "enum": names, "description": "The agent that is to do it."},
                        "task": {"type": "string", "description": "What it is to do."},
                    },
                    "required": ["agent", "task"],
                    "additionalProperties": false,
                }),
            },
            delegates,
        }
    }

    fn child(&self, input: &Value, context: &ToolContext) -> Result<turn_loop::Run, String> {
        let Input { agent, task } =
            Input::deserialize(input).map_err(|error| format!("delegate takes {{agent, task}}: {error}"))?;
        let Some(id) = self.delegates.iter().find(|id| id.as_str() == agent) else {
            let allowed = self.delegates.iter().map(Slug::as_str).collect::<Vec<_>>().join(", ");
            return Err(format!("This agent may not delegate to `{agent}`; it may delegate to: {allowed}."));
        };
        if task.trim().is_empty() {
            return Err("delegate takes a task that is not blank".to_owned());
        }
        let scope = context.scope.child().ok_or("Delegations are nested too deeply; do this task yourself.")?;
        let agent = context.scope.roster.get(&context.scope.project, id)?;
        Ok(turn_loop::Run { agent, scope, start: Start { conversation: vec![Item::person(task)], ..Start::default() } })
    }
}

impl Tool for Delegate {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call(&self, input: Value, context: ToolContext) -> ToolRun {
        let run = match self.child(&input, &context) {
            Ok(run) => run,
            Err(why) => return futures::stream::iter([ToolEvent::Failed(why)]).boxed(),
        };
        let call_id = context.call_id;
        stream! {
            let mut events = run.into_stream();
            let mut text = String::new();
            while let Some(event) = events.next().await {
                let event = match event {
                    Ok(event) => event,
                    Err(error) => {
                        yield ToolEvent::Failed(format!("The agent failed: {error}"));
                        return;
                    }
                };
                match &event {
                    Event::StartStep => text.clear(),
                    Event::TextDelta { delta, .. } => text.push_str(delta),
                    _ => {}
                }
                yield match event {
                    // A grandchild: this call goes in front of its path.
                    Event::SubagentChunk { mut task_path, chunk, .. } => {
                        task_path.insert(0, call_id.clone());
                        ToolEvent::Child { task_path, event: *chunk }
                    }
                    event => ToolEvent::Child { task_path: vec![call_id.clone()], event },
                };
            }
            yield ToolEvent::Output(Value::String(text));
        }
        .boxed()
    }
}
