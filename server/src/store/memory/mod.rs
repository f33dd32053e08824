//! The record in memory, for simulations: plain structs under a mutex, the rules of every other store, no clock and no I/O. It ends
//! with the process.

mod auth;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use turnfast_shared::{
    ExecutionStatus, Millis, Part,
    api::AttachmentId,
    event::Suspension,
    ids::{ExecutionId, MessageId, ProcessId, ThreadId, UserId},
    message::{ExecutionError, ResumeData, Role},
};

use super::{
    StoreError,
    auth::{Digest, Token, User},
    rows::from_json,
    turns::{Attachment, ThreadKey},
};

/// A record in memory. Clones share it, as processes share a database.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    record: Arc<Mutex<Record>>,
}

impl MemoryStore {
    /// Every operation holds the lock from its first look to its last change: each is one transaction.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Record {
    threads: BTreeMap<ThreadId, Thread>,
    executions: BTreeMap<ExecutionId, Execution>,
    attachments: BTreeMap<AttachmentId, (ThreadId, Attachment)>,
    /// Ids that come to mean nothing else: those of deleted threads, and of the messages that people sent in them.
    deleted_threads: BTreeSet<ThreadId>,
    deleted_messages: BTreeMap<(UserId, MessageId), ExecutionId>,
    users: Vec<Person>,
    sessions: Vec<BrowserSession>,
    links: BTreeMap<UserId, (Digest, Millis)>,
    tokens: Vec<(Digest, Token)>,
}

#[derive(Debug)]
struct Thread {
    key: ThreadKey,
    title: String,
    revision: u64,
    created_at: Millis,
    updated_at: Millis,
    messages: Vec<Recorded>,
    suspensions: Vec<Asked>,
}

#[derive(Debug)]
struct Recorded {
    id: MessageId,
    role: Role,
    execution: ExecutionId,
    status: Option<ExecutionStatus>,
    error: Option<ExecutionError>,
    /// JSON of all parts, once nothing more is written to the message.
    content: Option<String>,
    /// JSON of parts without their text, and the text in segments, until then.
    parts: BTreeMap<usize, String>,
    segments: BTreeMap<(usize, u32), String>,
    created_at: Millis,
    revision: u64,
    continuations: u32,
}

#[derive(Debug)]
struct Asked {
    message: MessageId,
    data: Suspension,
    state: Question,
}

#[derive(Clone, Debug, PartialEq)]
enum Question {
    Open,
    Answered(ResumeData),
    Cancelled,
}

#[derive(Debug)]
struct Execution {
    thread: ThreadId,
    message: MessageId,
    user: UserId,
    process: ProcessId,
    state: Run,
    cancel_requested: bool,
    ended_at: Option<Millis>,
}

/// Whether an execution holds its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Running,
    Suspended,
    Over,
}

#[derive(Debug)]
struct Person {
    user: User,
    password_hash: Option<String>,
}

#[derive(Debug)]
struct BrowserSession {
    digest: Digest,
    user: UserId,
    expires_at: Millis,
}

impl Recorded {
    fn open_parts(&self) -> Result<Vec<Part>, StoreError> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for (&index, data) in &self.parts {
            let mut part: Part = from_json(data)?;
            if let Part::Text { text } | Part::Reasoning { text, .. } = &mut part {
                text.extend(self.segments.range((index, 0)..=(index, u32::MAX)).map(|(_, segment)| segment.as_str()));
            }
            parts.push(part);
        }
        Ok(parts)
    }

    fn close(&mut self, content: String) {
        self.content = Some(content);
        self.parts.clear();
        self.segments.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::store::conformance::conformance;

    async fn open() -> (MemoryStore, ()) {
        (MemoryStore::default(), ())
    }

    conformance! { open() }
}
