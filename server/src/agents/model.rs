//! The seam between the turn loop and whatever writes the words: a provider's endpoint, or the script of the demo agent.
//!
//! A [`Model`] answers one request with one stream. It knows nothing of threads, records, approvals, or of how a tool is run.

use futures::stream::BoxStream;
use serde_json::Value;
use turnfast_shared::event::Usage;

use super::{TurnError, conversation::Item};

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// Unique among the tools of one request.
    pub name: String,
    /// What it does and when to use it, for the model.
    pub description: String,
    /// JSON Schema of its input, an object.
    pub input_schema: Value,
}

/// What a model is asked.
#[derive(Clone, Copy, Debug)]
pub struct ModelRequest<'a> {
    /// The system prompt.
    pub instructions: Option<&'a str>,
    /// Everything said and done so far, oldest first.
    pub conversation: &'a [Item],
    /// What it may call.
    pub tools: &'a [ToolDefinition],
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// It had nothing more to say, or waits for its tool calls.
    Stop,
    /// It reached the provider's limit on the length of a reply.
    Length,
    /// The provider's content filter stepped in.
    ContentFilter,
}

/// A piece of a model's answer.
///
/// `call` numbers the tool calls of one answer: the same number names the same call, and nothing else follows from it.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A tool call begins.
    CallStart {
        /// The call.
        call: usize,
        /// The provider's id. It may be missing, and it may repeat one that was used before.
        id: Option<String>,
        /// The tool.
        name: String,
    },
    /// More of a call's input.
    CallInput {
        /// The call.
        call: usize,
        /// A piece of JSON text.
        delta: String,
    },
    /// A call is complete.
    Call {
        /// The call.
        call: usize,
        /// Its input, or the text that is no JSON.
        input: Result<Value, String>,
    },
    /// What the answer took. At most one.
    Usage(Usage),
    /// The answer is complete. Always the last.
    Finish(FinishReason),
}

/// A model's answer. An `Err` is its last item. Dropping it hangs up.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, TurnError>>;

/// Something that answers requests.
pub trait Model: Send + Sync {
    /// Starts to answer. Nothing is sent before the stream is polled.
    fn stream(&self, request: ModelRequest<'_>) -> ModelStream;

    /// Whether it looks into [files](super::conversation::File).
    fn reads_files(&self) -> bool {
        false
    }
}
