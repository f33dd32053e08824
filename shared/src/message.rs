//! Messages and their parts, as the record holds them and as reads return them (contract 1, section 5).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Millis,
    ids::{ExecutionId, MessageId},
};

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person, or whatever started the turn in a person's place.
    User,
    /// The agent.
    Assistant,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ExecutionStatus {
    /// An execution of it runs.
    Running,
    /// It waits for a person.
    Suspended,
    /// It ended as the agent meant it to.
    Success,
    /// It ended with an error; what was written stays.
    Error,
    /// It was stopped.
    Cancelled,
    /// Its process died or was shut down; what was written stays.
    Interrupted,
}

impl ExecutionStatus {
    /// The name on the wire and in the record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// The status of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Running, Self::Suspended, Self::Success, Self::Error, Self::Cancelled, Self::Interrupted]
            .into_iter()
            .find(|status| status.as_str() == name)
    }

    /// Whether a Stop that was asked for before this end is recorded wins over it (contract 1, sections 6 and 9): who was told that
    /// a running turn is asked to stop finds it stopped, and not waiting for a person, interrupted, failed or complete.
    #[must_use]
    pub fn yields_to_a_stop(self) -> bool {
        self != Self::Cancelled
    }

    /// Whether nothing more will be written to the message.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::Suspended)
    }
}

/// Why a turn ended with [`ExecutionStatus::Error`] or [`ExecutionStatus::Interrupted`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecutionError {
    /// For people: what happened and what to do about it. Never holds a secret.
    pub message: String,
    /// For programs, where one fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

/// How far a tool call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ToolState {
    /// The model is still writing its input.
    InputStreaming,
    /// The input is complete; it has not started.
    Pending,
    /// It runs.
    Running,
    /// It waits for a person.
    Suspended,
    /// It ended with an output.
    Resolved,
    /// It failed or was denied.
    Rejected,
    /// The turn was stopped first.
    Cancelled,
}

impl ToolState {
    /// Whether the call has its result, of whatever kind.
    #[must_use]
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Resolved | Self::Rejected | Self::Cancelled)
    }
}

/// What a suspended tool call asks of a person (contract 1, section 3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SuspendPayload {
    /// May this call run?
    #[serde(rename_all = "camelCase")]
    Approval {
        /// The tool that wants to run.
        tool_name: String,
        /// What it would be called with.
        input: Value,
    },
    /// A question in the agent's words.
    #[serde(rename_all = "camelCase")]
    Question {
        /// The question.
        question: String,
        /// Answers to choose from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        options: Option<Vec<String>>,
        /// Whether an answer beside the options is taken. Absent: only where there are no options.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        free_text: Option<bool>,
    },
}

/// A person's answer to a suspended tool call (contract 1, section 3). Approval and question answers have different shapes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged, deny_unknown_fields)]
pub enum ResumeData {
    /// To [`SuspendPayload::Approval`].
    #[serde(rename_all = "camelCase")]
    Approval {
        /// Whether the call may run.
        approved: bool,
        /// Why, in the person's words; the agent reads it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// To [`SuspendPayload::Question`].
    Answer {
        /// The answer; one of the options where only they are allowed.
        answer: String,
    },
}

/// Why an answer does not fit its question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerMismatch {
    /// An approval takes `{approved, reason?}`.
    #[error("an approval takes {{\"approved\": boolean, \"reason\"?: string}}")]
    WantsApproval,
    /// A question takes `{answer}`.
    #[error("a question takes {{\"answer\": string}}, not blank")]
    WantsAnswer,
    /// Only the offered options are taken.
    #[error("the answer must be one of the options: {}", .0.join(", "))]
    NotAnOption(Vec<String>),
}

impl SuspendPayload {
    /// Checks that `data` answers this.
    ///
    /// # Errors
    /// [`AnswerMismatch`] says which shape would; the interaction stays open then.
    pub fn accepts(&self, data: &ResumeData) -> Result<(), AnswerMismatch> {
        match (self, data) {
            (Self::Approval { .. }, ResumeData::Approval { .. }) => Ok(()),
            (Self::Approval { .. }, ResumeData::Answer { .. }) => Err(AnswerMismatch::WantsApproval),
            (Self::Question { .. }, ResumeData::Approval { .. }) => Err(AnswerMismatch::WantsAnswer),
            (Self::Question { options, free_text, .. }, ResumeData::Answer { answer }) => {
                let options = options.as_deref().unwrap_or_default();
                if answer.trim().is_empty() {
                    Err(AnswerMismatch::WantsAnswer)
                } else if options.is_empty() || free_text == &Some(true) || options.contains(answer) {
                    Ok(())
                } else {
                    Err(AnswerMismatch::NotAnOption(options.to_vec()))
                }
            }
        }
    }
}

/// One tool call of a child agent, as its parent's record shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChildStep {
    /// The child's tool call.
    pub tool_call_id: String,
    /// Its tool.
    pub tool_name: String,
    /// Whether it still runs.
    pub running: bool,
}

/// What a child agent said and did. Text and reasoning share one budget of [`crate::limits::CHILD_TRACE_CHARS`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChildTrace {
    /// Its text so far.
    pub text: String,
    /// Its reasoning so far, one entry per stretch of it.
    pub reasoning_segments: Vec<String>,
    /// Its tool calls so far.
    pub steps: Vec<ChildStep>,
}

/// A tool call and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Unique within the message.
    pub tool_call_id: String,
    /// The tool.
    pub tool_name: String,
    /// Its input; `null` until complete.
    pub input: Value,
    /// How far it has come.
    pub state: ToolState,
    /// Its output, once [`ToolState::Resolved`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it was [`ToolState::Rejected`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it began (milliseconds since the Unix epoch).
    #[cfg_attr(feature = "openapi", schema(value_type = i64))]
    pub start_time: Millis,
    /// When it ended (milliseconds since the Unix epoch).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub end_time: Option<Millis>,
    /// The step that made the call, from 1, counted over all executions of the turn. Calls of one step were made at once; a call of
    /// a later step was made in knowledge of their results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// What it asks, or asked, of a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_payload: Option<SuspendPayload>,
    /// What the child of a delegation did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_trace: Option<ChildTrace>,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", rename_all = "kebab-case")]
#[cfg_attr(
    target_pointer_width = "64",
    expect(clippy::large_enum_variant, reason = "parts are few and long-lived; a box would cost every reader a hop")
)]
pub enum Part {
    /// Text for the reader.
    Text {
        /// The text so far.
        text: String,
    },
    /// The model's reasoning.
    #[serde(rename_all = "camelCase")]
    Reasoning {
        /// The reasoning so far.
        text: String,
        /// When it began (milliseconds since the Unix epoch).
        #[cfg_attr(feature = "openapi", schema(value_type = i64))]
        start_time: Millis,
        /// When it ended (milliseconds since the Unix epoch).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
        end_time: Option<Millis>,
    },
    /// An attachment; its bytes are read from `/chat/attachments/{id}`.
    #[serde(rename_all = "camelCase")]
    File {
        /// The attachment.
        id: uuid::Uuid,
        /// Its name, for people.
        name: String,
        /// Its media type.
        media_type: String,
        /// Its length in bytes.
        size: u64,
    },
    /// A tool call.
    ToolCall(ToolCall),
}

impl Part {
    /// The tool call, where the part is one.
    #[must_use]
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match self {
            Self::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// The text of a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }
}

/// One message of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Who wrote it.
    pub role: Role,
    /// Its parts, in order.
    pub content: Vec<Part>,
    /// The newest execution that wrote it; of a typed message, the one it started.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub execution_id: Option<ExecutionId>,
    /// What became of its turn; `null` on a person's message.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub execution_status: Option<ExecutionStatus>,
    /// Why the turn failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_error: Option<ExecutionError>,
    /// When it came into the thread (RFC 3339, UTC).
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub created_at: String,
    /// The thread's revision that last touched it.
    pub revision: u64,
}

impl Message {
    /// All its text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }
}
