//! What answers a turn. An [`Engine`] turns what the record holds into a stream of events; it knows nothing of how they are
//! recorded, who reads them, or whether anyone does.

pub mod catalog;
pub mod conversation;
pub mod demo;
pub mod mcp;
pub mod model;
pub mod openai;
pub mod tools;
pub mod turn_loop;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use bytes::Bytes;
use futures::stream::BoxStream;
use turnfast_shared::{
    Event, Message, Part,
    api::AttachmentId,
    ids::{ExecutionId, RunId, Slug, ThreadId},
    message::ResumeData,
};

/// What an execution starts from: all of it comes from the record, so that any process can go on where another stopped.
#[derive(Clone, Debug)]
pub struct TurnInput {
    /// The thread's project.
    pub project: Slug,
    /// The agent that answers.
    pub agent: Slug,
    /// The thread.
    pub thread: ThreadId,
    /// The turn; goes into [`Event::ToolCallSuspended`].
    pub run: RunId,
    /// This execution.
    pub execution: ExecutionId,
    /// The thread before the assistant message, oldest first; the message that started the turn is its last.
    pub history: Vec<Message>,
    /// The bytes of files in `history`, for engines that [read them](Engine::reads_attachments). Old ones may be missing.
    pub attachments: HashMap<AttachmentId, Bytes>,
    /// What earlier executions of the turn recorded in the assistant message. Empty for the first. The engine goes on behind it:
    /// tool calls in it that are settled are not run again.
    pub so_far: Vec<Part>,
    /// Answers to suspended tool calls of `so_far` that this execution is to act on.
    pub answers: Vec<(String, ResumeData)>,
}

/// Why a turn failed, for people and for the record. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TurnError {
    /// What happened and what to do about it.
    pub message: String,
    /// `errorCode` on the wire.
    pub code: Option<&'static str>,
}

/// The events of one execution: all of [`Event`] but `execution-started`, `error` and `done`, which the caller sends.
///
/// - It ends when the execution does. If a tool call is then [suspended](Event::ToolCallSuspended), so is the turn.
/// - An `Err` is its last item: the turn ends with that error.
/// - It may be dropped at any item: that is how a turn is stopped. Dropping it closes the provider's connection and tells the
///   tools that run.
/// - It is not polled between a [tool's start](Event::ToolExecutionStart) and the commit of that start: once a tool has run, the
///   record says that it may have.
pub type EventStream = BoxStream<'static, Result<Event, TurnError>>;

/// Runs agents of one kind.
pub trait Engine: Send + Sync {
    /// Starts an execution. Nothing happens before the stream is polled.
    fn start(&self, input: TurnInput) -> EventStream;

    /// Whether it has a use for the bytes of attachments. One that has not knows their names.
    fn reads_attachments(&self) -> bool {
        false
    }
}
