//! Tools that agents call. A [`Tool`] knows its input and what it does; the turn loop knows when it may run, and records it.

mod ask_user;
mod clock;
mod delegate;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::Value;
use turnfast_shared::{Event, message::SuspendPayload};

pub use self::{ask_user::AskUser, clock::Clock, delegate::Delegate};
use super::{model::ToolDefinition, turn_loop::Scope};

/// Where a call comes from.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The call's id, unique within its message.
    pub call_id: String,
    /// The run of the agent that calls.
    pub scope: Scope,
}

/// What a running tool tells.
#[derive(Debug)]
pub enum ToolEvent {
    /// An event of a child agent. `task_path` is that of [`Event::SubagentChunk`].
    Child {
        /// The `delegate` calls from this one down to the child's own.
        task_path: Vec<String>,
        /// What the child did.
        event: Event,
    },
    /// It worked. The last event.
    Output(Value),
    /// It failed; the text goes to the model and into the record. The last event.
    Failed(String),
}

/// A tool at work. Dropping it stops the work.
pub type ToolRun = BoxStream<'static, ToolEvent>;

/// Something that an agent can call.
pub trait Tool: Send + Sync {
    /// How a model sees it.
    fn definition(&self) -> &ToolDefinition;

    /// Starts a call with `input`, a JSON object. Nothing happens before the stream is polled.
    fn call(&self, input: Value, context: ToolContext) -> ToolRun;

    /// Whether its calls are answered by a person instead of [`Tool::call`]. Such a tool is not offered to child agents: nobody
    /// watches them.
    fn asks_person(&self) -> bool {
        false
    }

    /// What it asks of a person when called with `input`, a JSON object; `None` where it does not ask.
    ///
    /// # Errors
    /// Why the input does not fit, for the model.
    fn question(&self, input: &Value) -> Result<Option<SuspendPayload>, String> {
        let _ = input;
        Ok(None)
    }
}

/// Tools that are found out when they are needed: those of another program.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// What the names of all its tools begin with, and no other tool's.
    fn prefix(&self) -> &str;

    /// The tools that it has now. Cheap where nothing has changed since the last time. The caller may be dropped at any await.
    ///
    /// # Errors
    /// Why there are none, for people.
    async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>, String>;
}
