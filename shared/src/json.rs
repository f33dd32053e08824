//! Reads what a server sends, in a browser: the same values as serde's generated code, in a small part of the space.
//!
//! The code that serde generates for these types takes a fifth of a page's download (tagged enums are the costly ones). This goes
//! through [`Value`] and one short function per type instead. What does not fit gives `None`: the reason would help nobody there.
//! The tests hold the two ways against each other. Fields that are not known are ignored, as serde ignores them.

use serde::{
    Deserialize,
    de::{
        IntoDeserializer,
        value::{Error, StrDeserializer},
    },
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    Code, Event, ExecutionStatus, Message, Part, Problem, Role, ToolState,
    api::{
        Agent, AgentList, AttachmentLimits, CancelAnswer, ExecutionUpdated, Me, Project, ProjectList, PushEvent, RunCancelAnswer,
        Thread, ThreadPage, ThreadSnapshot,
    },
    event::{Suspension, Usage},
    ids::{ExecutionId, MessageId, RunId, Slug, ThreadId, UserId},
    message::{ChildStep, ChildTrace, ExecutionError, SuspendPayload, ToolCall},
};

/// A value that can be read from JSON.
pub trait FromJson: Sized {
    /// The value; `None`: this is not one.
    fn from_json(value: Value) -> Option<Self>;
}

/// The value that `text` is; `None`: it is not one.
#[must_use]
pub fn read<T: FromJson>(text: &str) -> Option<T> {
    T::from_json(serde_json::from_str(text).ok()?)
}

/// The fields of an object, each to be taken once.
#[derive(Debug)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of an object; `None`: it is none.
    #[must_use]
    pub fn of(value: Value) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self(map)),
            _ => None,
        }
    }

    /// A field that must be there.
    pub fn take<T: FromJson>(&mut self, name: &str) -> Option<T> {
        T::from_json(self.0.remove(name)?)
    }

    /// A field that may be absent or `null`. The outer `None`: it is there, and not what it should be.
    pub fn maybe<T: FromJson>(&mut self, name: &str) -> Option<Option<T>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Some(None),
            Some(value) => T::from_json(value).map(Some),
        }
    }

    /// A flag that is off where it is absent.
    fn flag(&mut self, name: &str) -> Option<bool> {
        self.0.remove(name).map_or(Some(false), bool::from_json)
    }

    /// Any value, as it is.
    fn raw(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }
}

impl FromJson for String {
    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }
}

impl FromJson for bool {
    fn from_json(value: Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromJson for u64 {
    fn from_json(value: Value) -> Option<Self> {
        value.as_u64()
    }
}

impl FromJson for i64 {
    fn from_json(value: Value) -> Option<Self> {
        value.as_i64()
    }
}

impl FromJson for u16 {
    fn from_json(value: Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl FromJson for Uuid {
    fn from_json(value: Value) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
}

impl<T: FromJson> FromJson for Box<T> {
    fn from_json(value: Value) -> Option<Self> {
        T::from_json(value).map(Self::new)
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => items.into_iter().map(T::from_json).collect(),
            _ => None,
        }
    }
}

macro_rules! of_uuid {
    ($($name:ident),*) => {
        $(impl FromJson for $name {
            fn from_json(value: Value) -> Option<Self> {
                Uuid::from_json(value).map(Self)
            }
        })*
    };
}

of_uuid!(ThreadId, MessageId, ExecutionId, RunId, UserId);

impl FromJson for Slug {
    fn from_json(value: Value) -> Option<Self> {
        String::from_json(value)?.try_into().ok()
    }
}

macro_rules! of_name {
    ($($name:ident),*) => {
        $(impl FromJson for $name {
            fn from_json(value: Value) -> Option<Self> {
                let name: StrDeserializer<'_, Error> = value.as_str()?.into_deserializer();
                Self::deserialize(name).ok()
            }
        })*
    };
}

of_name!(Role, ExecutionStatus, ToolState, Code);

/// A struct whose fields are named as in Rust, in camelCase on the wire.
macro_rules! of_fields {
    ($($name:ident { $($field:ident : $wire:literal $how:ident),* $(,)? })*) => {
        $(impl FromJson for $name {
            fn from_json(value: Value) -> Option<Self> {
                let mut fields = Fields::of(value)?;
                Some(Self { $($field: fields.$how($wire)?),* })
            }
        })*
    };
}

of_fields! {
    Usage { input_tokens: "inputTokens" maybe, output_tokens: "outputTokens" maybe, reasoning_tokens: "reasoningTokens" maybe }
    Suspension {
        tool_call_id: "toolCallId" take, run_id: "runId" take, tool_name: "toolName" take, input: "input" raw,
        suspend_payload: "suspendPayload" maybe,
    }
    ExecutionError { message: "message" take, error_code: "errorCode" maybe }
    ChildStep { tool_call_id: "toolCallId" take, tool_name: "toolName" take, running: "running" take }
    ChildTrace { text: "text" take, reasoning_segments: "reasoningSegments" take, steps: "steps" take }
    ToolCall {
        tool_call_id: "toolCallId" take, tool_name: "toolName" take, input: "input" raw, state: "state" take,
        output: "output" optional_raw, error: "error" maybe, start_time: "startTime" take, end_time: "endTime" maybe,
        step: "step" maybe, suspend_payload: "suspendPayload" maybe, child_trace: "childTrace" maybe,
    }
    Message {
        id: "id" take, role: "role" take, content: "content" take, execution_id: "executionId" maybe,
        execution_status: "executionStatus" maybe, execution_error: "executionError" maybe, created_at: "createdAt" take,
        revision: "revision" take,
    }
    ThreadSnapshot {
        messages: "messages" take, open_suspensions: "openSuspensions" take, active_execution_id: "activeExecutionId" maybe,
        revision: "revision" take, partial: "partial" flag, deleted_message_ids: "deletedMessageIds" maybe,
    }
    CancelAnswer { cancel_requested: "cancelRequested" take }
    RunCancelAnswer { cancelled: "cancelled" take }
    Thread {
        id: "id" take, title: "title" take, created_at: "createdAt" take, updated_at: "updatedAt" take, revision: "revision" take,
        active_execution_id: "activeExecutionId" maybe, suspended: "suspended" take,
    }
    ThreadPage { threads: "threads" take, next_cursor: "nextCursor" maybe }
    Me { id: "id" take, name: "name" take }
    Project { id: "id" take, name: "name" take, scopes: "scopes" take }
    ProjectList { projects: "projects" take }
    Agent { id: "id" take, name: "name" take, engine: "engine" take, model: "model" maybe, attachments: "attachments" maybe }
    AttachmentLimits { max: "max" take, max_bytes: "maxBytes" take }
    AgentList { agents: "agents" take }
    ExecutionUpdated {
        project_id: "projectId" take, agent_id: "agentId" take, thread_id: "threadId" take, execution_id: "executionId" maybe,
        revision: "revision" take,
    }
    Problem {
        type_uri: "type" take, title: "title" take, status: "status" take, detail: "detail" take, code: "code" take,
        field: "field" maybe, scope: "scope" maybe, active_execution_id: "activeExecutionId" maybe,
        execution_id: "executionId" maybe, missing: "missing" maybe,
    }
}

impl Fields {
    /// Any value but `null`, where it is there.
    fn optional_raw(&mut self, name: &str) -> Option<Option<Value>> {
        Some(self.0.remove(name).filter(|value| !value.is_null()))
    }
}

impl FromJson for SuspendPayload {
    fn from_json(value: Value) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        Some(match fields.take::<String>("kind")?.as_str() {
            "approval" => Self::Approval { tool_name: fields.take("toolName")?, input: fields.raw("input")? },
            "question" => Self::Question {
                question: fields.take("question")?,
                options: fields.maybe("options")?,
                free_text: fields.maybe("freeText")?,
            },
            _ => return None,
        })
    }
}

impl FromJson for Part {
    fn from_json(value: Value) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        Some(match fields.take::<String>("type")?.as_str() {
            "text" => Self::Text { text: fields.take("text")? },
            "reasoning" => Self::Reasoning {
                text: fields.take("text")?,
                start_time: fields.take("startTime")?,
                end_time: fields.maybe("endTime")?,
            },
            "file" => Self::File {
                id: fields.take("id")?,
                name: fields.take("name")?,
                media_type: fields.take("mediaType")?,
                size: fields.take("size")?,
            },
            "tool-call" => Self::ToolCall(ToolCall::from_json(Value::Object(fields.0))?),
            _ => return None,
        })
    }
}

impl FromJson for PushEvent {
    fn from_json(value: Value) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        Some(match fields.take::<String>("type")?.as_str() {
            "connected" => Self::Connected,
            "agentExecutionUpdated" => Self::AgentExecutionUpdated(fields.take("data")?),
            "ping" => Self::Ping,
            _ => return None,
        })
    }
}

impl FromJson for Event {
    fn from_json(value: Value) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        let kind: String = fields.take("type")?;
        let f = &mut fields;
        Some(match kind.as_str() {
            "execution-started" => Self::ExecutionStarted {
                execution_id: f.take("executionId")?,
                session_id: f.take("sessionId")?,
                message_id: f.take("messageId")?,
                assistant_message_id: f.take("assistantMessageId")?,
            },
            "start-step" => Self::StartStep,
            "finish-step" => Self::FinishStep { usage: f.maybe("usage")? },
            "text-start" => Self::TextStart { id: f.take("id")? },
            "text-delta" => Self::TextDelta { id: f.take("id")?, delta: f.take("delta")? },
            "text-end" => Self::TextEnd { id: f.take("id")? },
            "reasoning-start" => Self::ReasoningStart { id: f.take("id")? },
            "reasoning-delta" => Self::ReasoningDelta { id: f.take("id")?, delta: f.take("delta")? },
            "reasoning-end" => Self::ReasoningEnd { id: f.take("id")? },
            "tool-input-start" => Self::ToolInputStart { tool_call_id: f.take("toolCallId")?, tool_name: f.take("toolName")? },
            "tool-input-delta" => Self::ToolInputDelta { tool_call_id: f.take("toolCallId")?, delta: f.take("delta")? },
            "tool-call" => {
                Self::ToolCall { tool_call_id: f.take("toolCallId")?, tool_name: f.take("toolName")?, input: f.raw("input")? }
            }
            "tool-execution-start" => Self::ToolExecutionStart {
                tool_call_id: f.take("toolCallId")?,
                tool_name: f.take("toolName")?,
                start_time: f.take("startTime")?,
            },
            "tool-execution-end" => Self::ToolExecutionEnd {
                tool_call_id: f.take("toolCallId")?,
                tool_name: f.take("toolName")?,
                is_error: f.take("isError")?,
                end_time: f.take("endTime")?,
            },
            "tool-result" => Self::ToolResult {
                tool_call_id: f.take("toolCallId")?,
                tool_name: f.take("toolName")?,
                output: f.raw("output")?,
                is_error: f.maybe("isError")?,
                canceled: f.maybe("canceled")?,
            },
            "tool-call-suspended" => Self::ToolCallSuspended { payload: f.take("payload")? },
            "subagent-chunk" => Self::SubagentChunk {
                parent_tool_call_id: f.take("parentToolCallId")?,
                task_path: f.take("taskPath")?,
                chunk: Box::new(f.take("chunk")?),
            },
            "warning" => Self::Warning { message: f.take("message")?, code: f.maybe("code")? },
            "error" => Self::Error { message: f.take("message")?, error_code: f.maybe("errorCode")? },
            "done" => {
                Self::Done { session_id: f.take("sessionId")?, execution_id: f.take("executionId")?, status: f.take("status")? }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
