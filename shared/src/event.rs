//! The events of a live stream (contract 1, section 4).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Millis,
    ids::{ExecutionId, MessageId, RunId, ThreadId},
    message::{ExecutionStatus, SuspendPayload},
};

/// Tokens that one step of a model took, as far as the provider says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens of reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

/// A suspended tool call: the payload of [`Event::ToolCallSuspended`] and an entry of `openSuspensions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Suspension {
    /// The call that waits.
    pub tool_call_id: String,
    /// The turn, as `/chat/resume` and `/chat/runs/{runId}` name it.
    pub run_id: RunId,
    /// Its tool.
    pub tool_name: String,
    /// Its input.
    pub input: Value,
    /// What it asks of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_payload: Option<SuspendPayload>,
}

/// One event of a live stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Event {
    /// The turn is accepted. Always the first.
    #[serde(rename_all = "camelCase")]
    ExecutionStarted {
        /// The execution that Stop names.
        execution_id: ExecutionId,
        /// The thread.
        session_id: ThreadId,
        /// The message that started the turn.
        message_id: MessageId,
        /// The one message that answers it.
        assistant_message_id: MessageId,
    },
    /// A call of the model begins.
    StartStep,
    /// A call of the model ended.
    FinishStep {
        /// What it took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A text part begins.
    TextStart {
        /// Names the part within this stream only.
        id: String,
    },
    /// More of a text part.
    TextDelta {
        /// See [`Event::TextStart`].
        id: String,
        /// What to append.
        delta: String,
    },
    /// A text part is complete.
    TextEnd {
        /// See [`Event::TextStart`].
        id: String,
    },
    /// A reasoning part begins.
    ReasoningStart {
        /// Names the part within this stream only.
        id: String,
    },
    /// More of a reasoning part.
    ReasoningDelta {
        /// See [`Event::ReasoningStart`].
        id: String,
        /// What to append.
        delta: String,
    },
    /// A reasoning part is complete.
    ReasoningEnd {
        /// See [`Event::ReasoningStart`].
        id: String,
    },
    /// The model begins to write a tool call.
    #[serde(rename_all = "camelCase")]
    ToolInputStart {
        /// Unique within the message.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
    },
    /// More of a tool call's input, as the model writes it. Not recorded.
    #[serde(rename_all = "camelCase")]
    ToolInputDelta {
        /// See [`Event::ToolInputStart`].
        tool_call_id: String,
        /// A piece of JSON text.
        delta: String,
    },
    /// A tool call is complete.
    #[serde(rename_all = "camelCase")]
    ToolCall {
        /// Unique within the message.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// Its input.
        input: Value,
    },
    /// A tool starts to run.
    #[serde(rename_all = "camelCase")]
    ToolExecutionStart {
        /// The call.
        tool_call_id: String,
        /// Its tool.
        tool_name: String,
        /// Milliseconds since the Unix epoch.
        #[cfg_attr(feature = "openapi", schema(value_type = i64))]
        start_time: Millis,
    },
    /// A tool stopped running.
    #[serde(rename_all = "camelCase")]
    ToolExecutionEnd {
        /// The call.
        tool_call_id: String,
        /// Its tool.
        tool_name: String,
        /// Whether it failed.
        is_error: bool,
        /// Milliseconds since the Unix epoch.
        #[cfg_attr(feature = "openapi", schema(value_type = i64))]
        end_time: Millis,
    },
    /// A tool call has its result.
    #[serde(rename_all = "camelCase")]
    ToolResult {
        /// The call.
        tool_call_id: String,
        /// Its tool.
        tool_name: String,
        /// What the model gets to see.
        output: Value,
        /// Whether it failed; `output` says why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
        /// Whether the turn was stopped before it ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        canceled: Option<bool>,
    },
    /// A tool call waits for a person. The stream ends after the last of them, without [`Event::Done`].
    ToolCallSuspended {
        /// What waits.
        payload: Suspension,
    },
    /// An event of a child agent.
    #[serde(rename_all = "camelCase")]
    SubagentChunk {
        /// The `delegate` call of this message under which it happened.
        parent_tool_call_id: String,
        /// The `delegate` calls from this message's down to the child's own: one entry for a direct child.
        task_path: Vec<String>,
        /// The child's event.
        #[cfg_attr(feature = "openapi", schema(no_recursion))]
        chunk: Box<Event>,
    },
    /// Something the reader should know; the turn goes on. Not recorded.
    Warning {
        /// For people.
        message: String,
        /// For programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// The turn fails; [`Event::Done`] follows.
    #[serde(rename_all = "camelCase")]
    Error {
        /// For people. Never holds a secret.
        message: String,
        /// For programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_code: Option<String>,
    },
    /// The recorded state is final. Always the last, and never after a suspension.
    #[serde(rename_all = "camelCase")]
    Done {
        /// The thread.
        session_id: ThreadId,
        /// The execution that ended.
        execution_id: ExecutionId,
        /// How.
        status: ExecutionStatus,
    },
}
