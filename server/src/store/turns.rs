//! Threads, messages and executions: the part of the record that says what was said.
//!
//! Every method is one transaction. Methods that take a [`ThreadKey`] find nothing where any part of it does not belong to the
//! others: a private thread of someone else cannot be told from an unknown one.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::value::RawValue;
use turnfast_shared::{
    ExecutionStatus, Message, Millis, Part, Role,
    api::AttachmentId,
    event::Suspension,
    ids::{ExecutionId, MessageId, ProcessId, RunId, Slug, ThreadId, UserId},
    message::{ExecutionError, ResumeData},
};

use super::StoreError;

/// A thread, and everything that must agree before it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadKey {
    /// Its project.
    pub project: Slug,
    /// Its agent.
    pub agent: Slug,
    /// The thread.
    pub thread: ThreadId,
    /// Who asks; only the owner sees it.
    pub owner: UserId,
}

/// Whether a submit may start its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadChoice {
    /// The thread must exist.
    Existing,
    /// An unknown thread is started.
    NewIfUnknown,
}

/// A file that goes with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its id, which is new and unique.
    pub id: AttachmentId,
    /// Its name, for people.
    pub name: String,
    /// Its media type, as the server found it to be.
    pub media_type: String,
    /// Its bytes.
    pub data: Bytes,
}

/// A typed turn to be accepted.
#[derive(Clone, Debug)]
pub struct NewTurn {
    /// The thread.
    pub key: ThreadKey,
    /// Whether it may be new.
    pub choice: ThreadChoice,
    /// The title of a new thread.
    pub title: String,
    /// The id of the person's message.
    pub message: MessageId,
    /// What the person sent.
    pub content: Vec<Part>,
    /// The files that `content` names. They are recorded with the turn or not at all, and go with its thread.
    pub attachments: Vec<Attachment>,
    /// The id of the message that will answer it.
    pub assistant_message: MessageId,
    /// The first execution.
    pub execution: ExecutionId,
    /// The process that runs it.
    pub process: ProcessId,
    /// Turns that the user may have running at once, this one included.
    pub max_running: u32,
    /// Now.
    pub at: Millis,
}

/// What became of a [`NewTurn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Its execution is committed.
    Accepted {
        /// The thread's revision.
        revision: u64,
    },
    /// The thread is unknown, or someone else's.
    ThreadNotFound,
    /// The thread runs a turn.
    TurnRunning {
        /// Its execution.
        active: ExecutionId,
    },
    /// The thread waits for an answer.
    InteractionOpen,
    /// The message was accepted before.
    AlreadyAccepted {
        /// The execution that it started then.
        execution: ExecutionId,
    },
    /// The user has as many turns running as allowed.
    TooManyTurns,
}

/// An answer to a suspended tool call.
#[derive(Clone, Debug)]
pub struct NewResume {
    /// The project that the request names.
    pub project: Slug,
    /// The agent that the request names.
    pub agent: Slug,
    /// Who answers.
    pub owner: UserId,
    /// The suspended turn.
    pub run: RunId,
    /// The call that is answered.
    pub tool_call_id: String,
    /// The answer.
    pub answer: ResumeData,
    /// The execution that goes on.
    pub execution: ExecutionId,
    /// The process that runs it.
    pub process: ProcessId,
    /// Turns that the user may have running at once, this one included.
    pub max_running: u32,
    /// Now.
    pub at: Millis,
}

/// What became of a [`NewResume`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResumeAdmission {
    /// The answer won, and the new execution is committed.
    Accepted {
        /// The thread.
        thread: ThreadId,
        /// The message that started the turn.
        message: MessageId,
        /// The thread's revision.
        revision: u64,
    },
    /// The turn or the call is unknown, or someone else's.
    NotFound,
    /// Answered, cancelled or expired before.
    Closed,
    /// Another answer's execution still runs; this question stays open.
    TurnRunning {
        /// That execution.
        active: ExecutionId,
    },
    /// The answer does not fit the question, which stays open.
    Mismatch(turnfast_shared::message::AnswerMismatch),
    /// The user has as many turns running as allowed.
    TooManyTurns,
}

/// New state of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartWrite {
    /// The part's place in the message.
    pub index: usize,
    /// JSON of the part, without its text; `None`: as recorded.
    pub data: Option<String>,
    /// A segment of its text to append or rewrite: its place, and all of its text.
    pub segment: Option<(u32, String)>,
}

/// The end of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// How it ended.
    pub status: ExecutionStatus,
    /// Why it failed.
    pub error: Option<ExecutionError>,
    /// With [`ExecutionStatus::Suspended`]: what waits.
    pub suspensions: Vec<Suspension>,
    /// JSON of all parts, where the status is final. `None` with a final status: what is recorded of them stays as it is.
    pub content: Option<String>,
    /// Now.
    pub at: Millis,
}

/// What one execution writes. It takes effect only while the execution is `running` and belongs to `process`, and where processes share
/// a database, only until `process` is forgotten: whoever recovers it then sees all that it will ever have written.
#[derive(Clone, Debug)]
pub struct Flush {
    /// The execution.
    pub execution: ExecutionId,
    /// The process that claims to run it.
    pub process: ProcessId,
    /// Its thread, for the notification.
    pub key: ThreadKey,
    /// Parts that changed.
    pub parts: Vec<PartWrite>,
    /// Whether the execution ends with this.
    pub end: Option<End>,
    /// Whether it comes from a process that recovers `process`, which was forgotten.
    pub by_survivor: bool,
}

/// What became of a [`Flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOutcome {
    /// Committed.
    Written {
        /// The thread's revision.
        revision: u64,
        /// Whether a Stop was asked for.
        cancel_requested: bool,
        /// Whether the execution's end was committed. One that [yields](ExecutionStatus::yields_to_a_stop) is not while a Stop is
        /// asked for: the execution stays open, to end as `cancelled`.
        ended: bool,
    },
    /// The execution is over or belongs to another process. Nothing was written, and nothing more may be.
    Fenced,
}

/// What became of a Stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// No such execution, or not the caller's.
    NotFound,
    /// It had ended before.
    AlreadyEnded,
    /// It runs, and the wish is committed.
    Requested,
    /// It had been suspended; the turn is now cancelled.
    SuspensionEnded {
        /// The thread's revision.
        revision: u64,
    },
}

/// What became of the cancelling of a suspended turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCancelOutcome {
    /// No such turn, or not the caller's.
    NotFound,
    /// It does not wait for anyone.
    NotSuspended,
    /// Cancelled now.
    Cancelled {
        /// The thread.
        thread: ThreadId,
        /// The execution that was suspended.
        execution: ExecutionId,
        /// The thread's revision.
        revision: u64,
    },
}

/// A turn that waited too long for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Its thread.
    pub key: ThreadKey,
    /// The execution that was suspended.
    pub execution: ExecutionId,
    /// The thread's revision.
    pub revision: u64,
}

/// An execution that its process left `running`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The execution.
    pub execution: ExecutionId,
    /// Its thread.
    pub key: ThreadKey,
    /// The process that ran it.
    pub process: ProcessId,
    /// Whether a Stop was asked for.
    pub cancel_requested: bool,
    /// The assistant message that it wrote.
    pub message: MessageId,
    /// How often that message was continued after a death already.
    pub continuations: u32,
    /// Answers of people to its suspended calls, by call.
    pub answers: Vec<(String, ResumeData)>,
    /// What it had written.
    pub parts: Vec<Part>,
}

/// An execution that goes on in the message of one whose process died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The execution that the dead process left `running`.
    pub orphan: ExecutionId,
    /// The dead process.
    pub dead: ProcessId,
    /// Its thread.
    pub key: ThreadKey,
    /// The execution that goes on.
    pub execution: ExecutionId,
    /// The process that runs it.
    pub process: ProcessId,
    /// Now.
    pub at: Millis,
}

/// What became of a [`Continuation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContinueOutcome {
    /// The new execution is committed.
    Continued {
        /// The thread's revision.
        revision: u64,
    },
    /// A Stop was asked for meanwhile: the orphan is as it was, to be ended as cancelled.
    StopRequested,
    /// The orphan has ended, or another process has taken it over.
    Fenced,
}

/// A message as reads return it. Parts that are settled stay the JSON text that was recorded.
#[derive(Clone, Debug)]
pub struct RecordedMessage {
    /// Its id.
    pub id: MessageId,
    /// Who wrote it.
    pub role: Role,
    /// JSON: its parts.
    pub content: Box<RawValue>,
    /// The newest execution that wrote it.
    pub execution: Option<ExecutionId>,
    /// What became of its turn.
    pub status: Option<ExecutionStatus>,
    /// Why the turn failed.
    pub error: Option<ExecutionError>,
    /// When it came into the thread.
    pub created_at: Millis,
    /// The thread's revision that last touched it.
    pub revision: u64,
}

impl RecordedMessage {
    /// The message with its parts parsed.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`]: the recorded parts are none.
    pub fn parse(self) -> Result<Message, StoreError> {
        Ok(Message {
            id: self.id,
            role: self.role,
            content: serde_json::from_str(self.content.get()).map_err(|error| StoreError::Corrupt(error.to_string()))?,
            execution_id: self.execution,
            execution_status: self.status,
            execution_error: self.error,
            created_at: crate::clock::rfc3339(self.created_at),
            revision: self.revision,
        })
    }
}

/// A thread as of one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The revision.
    pub revision: u64,
    /// The execution that runs.
    pub active: Option<ExecutionId>,
    /// What waits for a person.
    pub suspensions: Vec<Suspension>,
    /// Messages in order: all, or those changed after the asked revision.
    pub messages: Vec<RecordedMessage>,
}

/// A thread as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRow {
    /// The thread.
    pub id: ThreadId,
    /// Its title.
    pub title: String,
    /// When it began.
    pub created_at: Millis,
    /// When a turn last began or ended in it.
    pub updated_at: Millis,
    /// Its revision.
    pub revision: u64,
    /// The execution that runs.
    pub active: Option<ExecutionId>,
    /// Whether its turn waits for a person.
    pub suspended: bool,
}

/// Where a page of threads begins: behind the thread with these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCursor {
    /// See [`ThreadRow::updated_at`].
    pub updated_at: Millis,
    /// See [`ThreadRow::id`].
    pub id: ThreadId,
}

/// What became of the deletion of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// Unknown, or someone else's.
    NotFound,
    /// It runs a turn.
    TurnRunning {
        /// Its execution.
        active: ExecutionId,
    },
    /// It is gone; the revision is the next after its last.
    Deleted {
        /// For the notification.
        revision: u64,
    },
}

/// Reads and writes threads.
#[async_trait]
pub trait TurnStore: Send + Sync {
    /// Accepts a typed turn, or says why not. The order of refusals is that of [`Admission`], `AlreadyAccepted` first: a repeated
    /// submit hears that it was accepted, even while its turn runs.
    async fn admit(&self, turn: NewTurn) -> Result<Admission, StoreError>;

    /// Accepts an answer. Of two that race, one is [`ResumeAdmission::Accepted`].
    async fn admit_resume(&self, resume: NewResume) -> Result<ResumeAdmission, StoreError>;

    /// Commits what several executions wrote, in one transaction. Outcomes are in the order of `flushes`. At most one flush of an
    /// execution may be in one call.
    async fn flush(&self, flushes: Arc<[Flush]>) -> Result<Vec<FlushOutcome>, StoreError>;

    /// Commits the wish to stop an execution (contract 1, section 6).
    async fn request_stop(&self, key: &ThreadKey, execution: ExecutionId, at: Millis) -> Result<StopOutcome, StoreError>;

    /// Cancels a suspended turn.
    async fn cancel_run(
        &self,
        project: &Slug,
        agent: &Slug,
        owner: UserId,
        run: RunId,
        at: Millis,
    ) -> Result<RunCancelOutcome, StoreError>;

    /// Ends every turn that has been suspended since before `before`: `cancelled`, with `error`, its questions closed.
    async fn expire_suspended(&self, before: Millis, error: &ExecutionError, at: Millis) -> Result<Vec<Expired>, StoreError>;

    /// Processes that have executions `running`.
    async fn running_processes(&self) -> Result<Vec<ProcessId>, StoreError>;

    /// What `process` left `running`.
    async fn orphans(&self, process: ProcessId) -> Result<Vec<Orphan>, StoreError>;

    /// Goes on where a dead process stopped: the same message, a new execution. Of several processes that try, one wins.
    async fn continue_orphan(&self, continuation: Continuation) -> Result<ContinueOutcome, StoreError>;

    /// Which of these executions run and were asked to stop.
    async fn stop_wishes(&self, executions: Vec<ExecutionId>) -> Result<Vec<ExecutionId>, StoreError>;

    /// The thread's revision; `None`: not found.
    async fn revision(&self, key: &ThreadKey) -> Result<Option<u64>, StoreError>;

    /// The thread, or what changed in it after revision `since`; `None`: not found.
    async fn snapshot(&self, key: &ThreadKey, since: Option<u64>) -> Result<Option<Snapshot>, StoreError>;

    /// What an execution of `message` starts from: the messages before it, and its own parts.
    async fn turn_input(&self, thread: ThreadId, message: MessageId) -> Result<(Vec<Message>, Vec<Part>), StoreError>;

    /// An attachment of a user's thread with an agent; `None`: not found.
    async fn attachment(
        &self,
        project: &Slug,
        agent: &Slug,
        owner: UserId,
        id: AttachmentId,
    ) -> Result<Option<Attachment>, StoreError>;

    /// Those of the attachments `ids` that belong to the thread, in any order.
    async fn attachments(&self, thread: ThreadId, ids: &[AttachmentId]) -> Result<Vec<Attachment>, StoreError>;

    /// One page of a user's threads with an agent, newest first.
    async fn threads(
        &self,
        project: &Slug,
        agent: &Slug,
        owner: UserId,
        after: Option<ThreadCursor>,
        limit: u32,
    ) -> Result<Vec<ThreadRow>, StoreError>;

    /// One thread as lists show it.
    async fn thread(&self, key: &ThreadKey) -> Result<Option<ThreadRow>, StoreError>;

    /// Renames a thread; gives its new revision, or `None`: not found.
    async fn rename_thread(&self, key: &ThreadKey, title: String) -> Result<Option<u64>, StoreError>;

    /// Deletes a thread that runs nothing.
    async fn delete_thread(&self, key: &ThreadKey) -> Result<DeleteOutcome, StoreError>;

    /// Whether the database can be read and written, for `/readyz`. Cheap while it can: a write is tried only where the last one
    /// failed.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Waits for the writes that run and closes the database. Nothing may be asked of it afterwards.
    async fn close(&self);
}
