//! [`TurnStore`] in memory.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde_json::value::RawValue;
use turnfast_shared::{
    ExecutionStatus, Message, Millis, Part,
    api::AttachmentId,
    ids::{ExecutionId, MessageId, ProcessId, RunId, Slug, ThreadId, UserId},
    message::{ExecutionError, Role},
    timeline,
};

use super::{Asked, Execution, MemoryStore, Question, Record, Recorded, Run, Thread};
use crate::store::{
    StoreError, TurnStore,
    rows::to_json,
    turns::{
        Admission, Attachment, Continuation, ContinueOutcome, DeleteOutcome, Expired, Flush, FlushOutcome, NewResume, NewTurn,
        Orphan, RecordedMessage, ResumeAdmission, RunCancelOutcome, Snapshot, StopOutcome, ThreadChoice, ThreadCursor, ThreadKey,
        ThreadRow,
    },
};

type Result<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl TurnStore for MemoryStore {
    async fn admit(&self, turn: NewTurn) -> Result<Admission> {
        self.record().admit(turn)
    }

    async fn admit_resume(&self, resume: NewResume) -> Result<ResumeAdmission> {
        Ok(self.record().admit_resume(resume))
    }

    async fn flush(&self, flushes: Arc<[Flush]>) -> Result<Vec<FlushOutcome>> {
        let mut record = self.record();
        Ok(flushes.iter().map(|flush| record.flush(flush)).collect())
    }

    async fn request_stop(&self, key: &ThreadKey, execution: ExecutionId, at: Millis) -> Result<StopOutcome> {
        let mut record = self.record();
        if record.thread(key).is_none() {
            return Ok(StopOutcome::NotFound);
        }
        let Some(found) = record.executions.get_mut(&execution).filter(|found| found.thread == key.thread) else {
            return Ok(StopOutcome::NotFound);
        };
        match found.state {
            Run::Running => {
                found.cancel_requested = true;
                Ok(StopOutcome::Requested)
            }
            Run::Suspended => Ok(StopOutcome::SuspensionEnded { revision: record.end_suspended(execution, None, at)? }),
            Run::Over => Ok(StopOutcome::AlreadyEnded),
        }
    }

    async fn cancel_run(&self, project: &Slug, agent: &Slug, owner: UserId, run: RunId, at: Millis) -> Result<RunCancelOutcome> {
        let mut record = self.record();
        let Some(thread) = record.turn(project, agent, owner, run) else { return Ok(RunCancelOutcome::NotFound) };
        let suspended = record.executions.iter().find(|(_, e)| e.message == run.into() && e.state == Run::Suspended);
        let Some((&execution, _)) = suspended else { return Ok(RunCancelOutcome::NotSuspended) };
        let revision = record.end_suspended(execution, None, at)?;
        Ok(RunCancelOutcome::Cancelled { thread, execution, revision })
    }

    async fn expire_suspended(&self, before: Millis, error: &ExecutionError, at: Millis) -> Result<Vec<Expired>> {
        let mut record = self.record();
        let waiting: Vec<_> = record
            .executions
            .iter()
            .filter(|(_, e)| e.state == Run::Suspended && e.ended_at.is_some_and(|ended| ended < before))
            .map(|(&id, e)| (id, e.thread))
            .collect();
        let mut expired = Vec::with_capacity(waiting.len());
        for (execution, thread) in waiting {
            let revision = record.end_suspended(execution, Some(error), at)?;
            let Some(thread) = record.threads.get(&thread) else { continue };
            expired.push(Expired { key: thread.key.clone(), execution, revision });
        }
        Ok(expired)
    }

    async fn running_processes(&self) -> Result<Vec<ProcessId>> {
        let record = self.record();
        let running = record.executions.values().filter(|e| e.state == Run::Running).map(|e| e.process);
        Ok(running.collect::<std::collections::BTreeSet<_>>().into_iter().collect())
    }

    async fn orphans(&self, process: ProcessId) -> Result<Vec<Orphan>> {
        let record = self.record();
        let mut orphans = Vec::new();
        for (&execution, e) in record.executions.iter().filter(|(_, e)| e.state == Run::Running && e.process == process) {
            let Some(thread) = record.threads.get(&e.thread) else { continue };
            let Some(message) = thread.messages.iter().find(|message| message.id == e.message) else { continue };
            let answers = thread.suspensions.iter().filter(|asked| asked.message == e.message);
            orphans.push(Orphan {
                execution,
                key: thread.key.clone(),
                process,
                cancel_requested: e.cancel_requested,
                message: e.message,
                continuations: message.continuations,
                answers: answers
                    .filter_map(|asked| match &asked.state {
                        Question::Answered(answer) => Some((asked.data.tool_call_id.clone(), answer.clone())),
                        Question::Open | Question::Cancelled => None,
                    })
                    .collect(),
                parts: message.open_parts()?,
            });
        }
        Ok(orphans)
    }

    async fn continue_orphan(&self, continuation: Continuation) -> Result<ContinueOutcome> {
        let Continuation { orphan, dead, key, execution, process, at } = continuation;
        let mut record = self.record();
        let Some(old) = record.executions.get_mut(&orphan).filter(|e| e.state == Run::Running && e.process == dead) else {
            return Ok(ContinueOutcome::Fenced);
        };
        if old.cancel_requested {
            return Ok(ContinueOutcome::StopRequested);
        }
        old.state = Run::Over;
        old.ended_at = Some(at);
        let (message, user) = (old.message, old.user);
        record.start(execution, key.thread, message, user, process);
        let Some(thread) = record.threads.get_mut(&key.thread) else { return Ok(ContinueOutcome::Fenced) };
        let revision = thread.touch(message, |message| {
            message.execution = execution;
            message.continuations += 1;
        });
        Ok(ContinueOutcome::Continued { revision })
    }

    async fn stop_wishes(&self, executions: Vec<ExecutionId>) -> Result<Vec<ExecutionId>> {
        let record = self.record();
        let wished = |id: &ExecutionId| record.executions.get(id).is_some_and(|e| e.state == Run::Running && e.cancel_requested);
        Ok(executions.into_iter().filter(wished).collect())
    }

    async fn revision(&self, key: &ThreadKey) -> Result<Option<u64>> {
        Ok(self.record().thread(key).map(|thread| thread.revision))
    }

    async fn snapshot(&self, key: &ThreadKey, since: Option<u64>) -> Result<Option<Snapshot>> {
        let record = self.record();
        let Some(thread) = record.thread(key) else { return Ok(None) };
        let changed = thread.messages.iter().filter(|message| message.revision > since.unwrap_or(0));
        let open = thread.suspensions.iter().filter(|asked| asked.state == Question::Open);
        Ok(Some(Snapshot {
            revision: thread.revision,
            active: record.active(key.thread),
            suspensions: open.map(|asked| asked.data.clone()).collect(),
            messages: changed.map(recorded_message).collect::<Result<_>>()?,
        }))
    }

    async fn turn_input(&self, thread: ThreadId, message: MessageId) -> Result<(Vec<Message>, Vec<Part>)> {
        let record = self.record();
        let missing = || StoreError::Corrupt(format!("message {message} is not in thread {thread}"));
        let found = record.threads.get(&thread).ok_or_else(missing)?;
        let place = found.messages.iter().position(|known| known.id == message).ok_or_else(missing)?;
        let mut messages = found.messages[..=place]
            .iter()
            .map(|message| recorded_message(message)?.parse())
            .collect::<Result<Vec<Message>>>()?;
        let own = messages.pop().ok_or_else(missing)?;
        Ok((messages, own.content))
    }

    async fn attachment(&self, project: &Slug, agent: &Slug, owner: UserId, id: AttachmentId) -> Result<Option<Attachment>> {
        let record = self.record();
        let found = record.attachments.get(&id).filter(|(thread, _)| {
            let key = ThreadKey { project: project.clone(), agent: agent.clone(), thread: *thread, owner };
            record.thread(&key).is_some()
        });
        Ok(found.map(|(_, attachment)| attachment.clone()))
    }

    async fn attachments(&self, thread: ThreadId, ids: &[AttachmentId]) -> Result<Vec<Attachment>> {
        let record = self.record();
        let found = ids.iter().filter_map(|id| record.attachments.get(id));
        Ok(found.filter(|(of, _)| *of == thread).map(|(_, attachment)| attachment.clone()).collect())
    }

    async fn threads(
        &self,
        project: &Slug,
        agent: &Slug,
        owner: UserId,
        after: Option<ThreadCursor>,
        limit: u32,
    ) -> Result<Vec<ThreadRow>> {
        let record = self.record();
        let theirs =
            record.threads.values().filter(|t| t.key.project == *project && t.key.agent == *agent && t.key.owner == owner);
        let mut rows: Vec<ThreadRow> = theirs.map(|thread| record.row(thread)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.updated_at, row.id)));
        rows.retain(|row| after.is_none_or(|after| (row.updated_at, row.id) < (after.updated_at, after.id)));
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(rows)
    }

    async fn thread(&self, key: &ThreadKey) -> Result<Option<ThreadRow>> {
        let record = self.record();
        Ok(record.thread(key).map(|thread| record.row(thread)))
    }

    async fn rename_thread(&self, key: &ThreadKey, title: String) -> Result<Option<u64>> {
        let mut record = self.record();
        Ok(record.thread_mut(key).map(|thread| {
            thread.title = title;
            thread.revision += 1;
            thread.revision
        }))
    }

    async fn delete_thread(&self, key: &ThreadKey) -> Result<DeleteOutcome> {
        let mut record = self.record();
        let Some(revision) = record.thread(key).map(|thread| thread.revision) else { return Ok(DeleteOutcome::NotFound) };
        if let Some(active) = record.active(key.thread) {
            return Ok(DeleteOutcome::TurnRunning { active });
        }
        if let Some(thread) = record.threads.remove(&key.thread) {
            let sent = thread.messages.iter().filter(|message| message.role == Role::User);
            record.deleted_messages.extend(sent.map(|message| ((key.owner, message.id), message.execution)));
        }
        record.deleted_threads.insert(key.thread);
        record.executions.retain(|_, execution| execution.thread != key.thread);
        record.attachments.retain(|_, (thread, _)| *thread != key.thread);
        Ok(DeleteOutcome::Deleted { revision: revision + 1 })
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }

    async fn close(&self) {}
}

impl Thread {
    /// Raises the revision for a change of one message.
    fn touch(&mut self, message: MessageId, change: impl FnOnce(&mut Recorded)) -> u64 {
        self.revision += 1;
        let revision = self.revision;
        if let Some(message) = self.messages.iter_mut().find(|known| known.id == message) {
            message.revision = revision;
            change(message);
        }
        revision
    }

    fn close_questions(&mut self, message: MessageId) {
        for asked in self.suspensions.iter_mut().filter(|asked| asked.message == message && asked.state == Question::Open) {
            asked.state = Question::Cancelled;
        }
    }
}

impl Record {
    fn thread(&self, key: &ThreadKey) -> Option<&Thread> {
        self.threads.get(&key.thread).filter(|thread| thread.key == *key)
    }

    fn thread_mut(&mut self, key: &ThreadKey) -> Option<&mut Thread> {
        self.threads.get_mut(&key.thread).filter(|thread| thread.key == *key)
    }

    /// The thread of a turn.
    fn turn(&self, project: &Slug, agent: &Slug, owner: UserId, run: RunId) -> Option<ThreadId> {
        let theirs = self.threads.values().filter(|t| t.key.project == *project && t.key.agent == *agent && t.key.owner == owner);
        let is_turn = |message: &Recorded| message.role == Role::Assistant && message.id == run.into();
        theirs.into_iter().find(|thread| thread.messages.iter().any(is_turn)).map(|thread| thread.key.thread)
    }

    fn open(&self, thread: ThreadId) -> Option<(ExecutionId, Run)> {
        let open = self.executions.iter().find(|(_, e)| e.thread == thread && e.state != Run::Over);
        open.map(|(&id, execution)| (id, execution.state))
    }

    fn active(&self, thread: ThreadId) -> Option<ExecutionId> {
        self.open(thread).filter(|(_, state)| *state == Run::Running).map(|(id, _)| id)
    }

    fn running(&self, user: UserId) -> usize {
        self.executions.values().filter(|e| e.user == user && e.state == Run::Running).count()
    }

    fn row(&self, thread: &Thread) -> ThreadRow {
        ThreadRow {
            id: thread.key.thread,
            title: thread.title.clone(),
            created_at: thread.created_at,
            updated_at: thread.updated_at,
            revision: thread.revision,
            active: self.active(thread.key.thread),
            suspended: self.executions.values().any(|e| e.thread == thread.key.thread && e.state == Run::Suspended),
        }
    }

    fn start(&mut self, id: ExecutionId, thread: ThreadId, message: MessageId, user: UserId, process: ProcessId) {
        let execution =
            Execution { thread, message, user, process, state: Run::Running, cancel_requested: false, ended_at: None };
        self.executions.insert(id, execution);
    }

    fn admit(&mut self, turn: NewTurn) -> Result<Admission> {
        let key = &turn.key;
        let theirs = self.threads.values().filter(|thread| thread.key.owner == key.owner);
        if let Some(known) = theirs.flat_map(|thread| &thread.messages).find(|message| message.id == turn.message) {
            return Ok(Admission::AlreadyAccepted { execution: known.execution });
        }
        if let Some(&execution) = self.deleted_messages.get(&(key.owner, turn.message)) {
            return Ok(Admission::AlreadyAccepted { execution });
        }
        match self.threads.get(&key.thread) {
            None if turn.choice == ThreadChoice::Existing || self.deleted_threads.contains(&key.thread) => {
                return Ok(Admission::ThreadNotFound);
            }
            Some(thread) if thread.key != *key => return Ok(Admission::ThreadNotFound),
            _ => {}
        }
        match self.open(key.thread) {
            Some((_, Run::Suspended)) => return Ok(Admission::InteractionOpen),
            Some((active, _)) => return Ok(Admission::TurnRunning { active }),
            None => {}
        }
        if self.running(key.owner) >= usize::try_from(turn.max_running).unwrap_or(usize::MAX) {
            return Ok(Admission::TooManyTurns);
        }
        let content = to_json(&turn.content)?;
        let thread = self.threads.entry(key.thread).or_insert_with(|| Thread {
            key: key.clone(),
            title: turn.title,
            revision: 0,
            created_at: turn.at,
            updated_at: turn.at,
            messages: Vec::new(),
            suspensions: Vec::new(),
        });
        thread.revision += 1;
        thread.updated_at = turn.at;
        let revision = thread.revision;
        let message = |id, role, status, content| Recorded {
            id,
            role,
            execution: turn.execution,
            status,
            error: None,
            content,
            parts: BTreeMap::new(),
            segments: BTreeMap::new(),
            created_at: turn.at,
            revision,
            continuations: 0,
        };
        thread.messages.push(message(turn.message, Role::User, None, Some(content)));
        thread.messages.push(message(turn.assistant_message, Role::Assistant, Some(ExecutionStatus::Running), None));
        self.attachments.extend(turn.attachments.into_iter().map(|attachment| (attachment.id, (turn.key.thread, attachment))));
        self.start(turn.execution, turn.key.thread, turn.assistant_message, turn.key.owner, turn.process);
        Ok(Admission::Accepted { revision })
    }

    fn admit_resume(&mut self, resume: NewResume) -> ResumeAdmission {
        let Some(id) = self.turn(&resume.project, &resume.agent, resume.owner, resume.run) else {
            return ResumeAdmission::NotFound;
        };
        let (open, running) = (self.open(id), self.running(resume.owner));
        let message: MessageId = resume.run.into();
        let Some(thread) = self.threads.get_mut(&id) else { return ResumeAdmission::NotFound };
        let is_it = |asked: &&mut Asked| asked.message == message && asked.data.tool_call_id == resume.tool_call_id;
        let Some(asked) = thread.suspensions.iter_mut().find(is_it) else { return ResumeAdmission::NotFound };
        if asked.state != Question::Open {
            return ResumeAdmission::Closed;
        }
        if let Some(Err(mismatch)) = asked.data.suspend_payload.as_ref().map(|payload| payload.accepts(&resume.answer)) {
            return ResumeAdmission::Mismatch(mismatch);
        }
        let suspended = match open {
            Some((suspended, Run::Suspended)) => suspended,
            Some((active, _)) => return ResumeAdmission::TurnRunning { active },
            None => return ResumeAdmission::Closed,
        };
        if running >= usize::try_from(resume.max_running).unwrap_or(usize::MAX) {
            return ResumeAdmission::TooManyTurns;
        }
        asked.state = Question::Answered(resume.answer);
        let revision = thread.touch(message, |message| {
            message.status = Some(ExecutionStatus::Running);
            message.execution = resume.execution;
        });
        thread.updated_at = resume.at;
        let before = thread.messages.iter().take_while(|known| known.id != message);
        // A turn that nobody typed has no message that started it: its own id stands in.
        let started_by = before.filter(|known| known.role == Role::User).last().map_or(message, |known| known.id);
        if let Some(execution) = self.executions.get_mut(&suspended) {
            execution.state = Run::Over;
            execution.ended_at = Some(resume.at);
        }
        self.start(resume.execution, id, message, resume.owner, resume.process);
        ResumeAdmission::Accepted { thread: id, message: started_by, revision }
    }

    fn flush(&mut self, flush: &Flush) -> FlushOutcome {
        let owned = |e: &&mut Execution| e.state == Run::Running && e.process == flush.process;
        let Some(execution) = self.executions.get_mut(&flush.execution).filter(owned) else { return FlushOutcome::Fenced };
        let Some(thread) = self.threads.get_mut(&execution.thread) else { return FlushOutcome::Fenced };
        let cancel_requested = execution.cancel_requested;
        let end = flush.end.as_ref().filter(|end| !(cancel_requested && end.status.yields_to_a_stop()));
        let revision = thread.touch(execution.message, |message| {
            for part in &flush.parts {
                if let Some(data) = &part.data {
                    message.parts.insert(part.index, data.clone());
                }
                if let Some((segment, text)) = &part.segment {
                    message.segments.insert((part.index, *segment), text.clone());
                }
            }
            if let Some(end) = end {
                message.status = Some(end.status);
                message.error.clone_from(&end.error);
                if let Some(content) = &end.content {
                    message.close(content.clone());
                }
            }
        });
        if let Some(end) = end {
            thread.updated_at = end.at;
            execution.state = if end.status == ExecutionStatus::Suspended { Run::Suspended } else { Run::Over };
            execution.ended_at = Some(end.at);
            if end.status.is_final() {
                thread.close_questions(execution.message);
            }
            for data in &end.suspensions {
                let known = |asked: &Asked| asked.message == execution.message && asked.data.tool_call_id == data.tool_call_id;
                if !thread.suspensions.iter().any(known) {
                    thread.suspensions.push(Asked { message: execution.message, data: data.clone(), state: Question::Open });
                }
            }
        }
        FlushOutcome::Written { revision, cancel_requested, ended: end.is_some() }
    }

    /// Ends a suspended turn as `cancelled`.
    fn end_suspended(&mut self, execution: ExecutionId, error: Option<&ExecutionError>, at: Millis) -> Result<u64> {
        let missing = || StoreError::Corrupt(format!("execution {execution} has no message"));
        let suspended = self.executions.get_mut(&execution).ok_or_else(missing)?;
        let thread = self.threads.get_mut(&suspended.thread).ok_or_else(missing)?;
        let message = thread.messages.iter().find(|message| message.id == suspended.message).ok_or_else(missing)?;
        let content = to_json(&timeline::closed(message.open_parts()?, ExecutionStatus::Cancelled, at))?;
        suspended.state = Run::Over;
        suspended.ended_at = Some(at);
        thread.updated_at = at;
        let revision = thread.touch(suspended.message, |message| {
            message.status = Some(ExecutionStatus::Cancelled);
            message.error = error.cloned();
            message.close(content);
        });
        thread.close_questions(suspended.message);
        Ok(revision)
    }
}

fn recorded_message(message: &Recorded) -> Result<RecordedMessage> {
    let content = match &message.content {
        Some(json) => RawValue::from_string(json.clone()),
        None => serde_json::value::to_raw_value(&message.open_parts()?),
    };
    Ok(RecordedMessage {
        id: message.id,
        role: message.role,
        content: content.map_err(|error| StoreError::Corrupt(error.to_string()))?,
        execution: Some(message.execution),
        status: message.status,
        error: message.error.clone(),
        created_at: message.created_at,
        revision: message.revision,
    })
}
