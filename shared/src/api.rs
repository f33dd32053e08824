//! Bodies of requests and answers, and the notifications of `/push` (contract 1, sections 3 and 5).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    event::Suspension,
    ids::{ExecutionId, MessageId, RunId, Slug, ThreadId, UserId},
    message::{Message, ResumeData},
};

/// An attachment as it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewAttachment {
    /// Its name, for people.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// Its bytes, base64.
    #[cfg_attr(feature = "openapi", schema(content_encoding = "base64"))]
    pub data: String,
}

/// Body of POST `/chat`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChatRequest {
    /// What the person typed. May be blank only with attachments.
    #[serde(default)]
    pub message: String,
    /// The thread to go on with; absent, a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<ThreadId>,
    /// Whether an unknown `sessionId` starts a thread of that id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_session: Option<bool>,
    /// The message's id, which makes the submit idempotent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// Files that go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<NewAttachment>,
}

/// Body of POST `/chat/resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeRequest {
    /// The suspended turn.
    pub run_id: RunId,
    /// The call that is answered.
    pub tool_call_id: String,
    /// The answer.
    pub resume_data: ResumeData,
}

/// Answer of GET `/chat/{threadId}/messages`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ThreadSnapshot {
    /// The thread's messages in order; those changed since the asked revision where `partial` is set.
    pub messages: Vec<Message>,
    /// Tool calls that wait for a person.
    pub open_suspensions: Vec<Suspension>,
    /// The execution that runs, from acceptance on; `null`: none does.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub active_execution_id: Option<ExecutionId>,
    /// The revision that this shows.
    pub revision: u64,
    /// Set where `messages` holds only what changed since the asked revision, to be merged by id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// With `partial`: messages that are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_message_ids: Option<Vec<MessageId>>,
}

/// Answer of DELETE `…/executions/{executionId}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CancelAnswer {
    /// Whether the execution still ran and has been asked to stop.
    pub cancel_requested: bool,
}

/// Answer of DELETE `/chat/runs/{runId}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunCancelAnswer {
    /// Whether this call ended the suspended turn.
    pub cancelled: bool,
}

/// A thread as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// Its id (`sessionId` elsewhere).
    pub id: ThreadId,
    /// From its first message, until a person renames it.
    pub title: String,
    /// When it began (RFC 3339, UTC).
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub created_at: String,
    /// When a turn last began or ended in it (RFC 3339, UTC). Lists are newest first by this.
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub updated_at: String,
    /// See [`ThreadSnapshot::revision`].
    pub revision: u64,
    /// See [`ThreadSnapshot::active_execution_id`].
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub active_execution_id: Option<ExecutionId>,
    /// Whether its turn waits for a person's answer.
    pub suspended: bool,
}

/// Answer of GET `/threads`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ThreadPage {
    /// One page, newest first.
    pub threads: Vec<Thread>,
    /// Pass as `cursor` for the next page; `null`: this is the last.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub next_cursor: Option<String>,
}

/// Body of PATCH `/threads/{threadId}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RenameThread {
    /// The new title: not blank, at most [`crate::limits::TITLE_CHARS`] characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 120, pattern = "\\S"))]
    pub title: String,
}

/// Body of POST `/auth/login`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// The user's name.
    pub name: String,
    /// The user's password.
    pub password: String,
}

/// Answer of GET `/auth/me`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Me {
    /// The user.
    pub id: UserId,
    /// The user's name.
    pub name: String,
}

/// A project that the caller may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Project {
    /// Its id.
    pub id: Slug,
    /// Its name.
    pub name: String,
    /// What the caller may do in it.
    pub scopes: Vec<String>,
}

/// Answer of GET `/projects`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProjectList {
    /// In the order of the configuration.
    pub projects: Vec<Project>,
}

/// An agent that the caller may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its id.
    pub id: Slug,
    /// Its name.
    pub name: String,
    /// What runs it: `native`, `openclaw` or `demo`.
    pub engine: String,
    /// The model behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What files may go with a message; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachments: Option<AttachmentLimits>,
}

/// What files may go with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AttachmentLimits {
    /// How many.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub max: u64,
    /// Bytes of each.
    pub max_bytes: u64,
}

/// Answer of GET `/projects/{p}/agents/v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentList {
    /// In the order of the configuration.
    pub agents: Vec<Agent>,
}

/// That a thread changed. Carries no content: who gets it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecutionUpdated {
    /// The thread's project.
    pub project_id: Slug,
    /// The thread's agent.
    pub agent_id: Slug,
    /// The thread.
    pub thread_id: ThreadId,
    /// The execution whose write it was; absent where a person changed the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// The thread's revision after the change.
    pub revision: u64,
}

/// One message of `/push`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type", content = "data", rename_all = "camelCase")]
pub enum PushEvent {
    /// The first message of every connection.
    Connected,
    /// A thread changed.
    AgentExecutionUpdated(ExecutionUpdated),
    /// The connection lives; every [`crate::limits::KEEP_ALIVE_SECONDS`].
    Ping,
}

/// The id of an attachment, for paths.
pub type AttachmentId = Uuid;
