//! [`TurnStore`] on SQLite.

use std::{collections::HashMap, str::FromStr, sync::Arc};

use async_trait::async_trait;
use serde_json::value::RawValue;
use sqlx::{
    Row, Sqlite, SqliteConnection,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use turnfast_shared::{
    ExecutionStatus, Message, Millis, Part, Role,
    api::AttachmentId,
    event::Suspension,
    ids::{ExecutionId, MessageId, ProcessId, RunId, Slug, ThreadId, UserId},
    message::ExecutionError,
    timeline,
};

use crate::store::{
    StoreError, TurnStore,
    rows::{self, from_json, role_name, signed, to_json},
    sqlite::SqliteStore,
    turns::{
        Admission, Attachment, Continuation, ContinueOutcome, DeleteOutcome, End, Expired, Flush, FlushOutcome, NewResume,
        NewTurn, Orphan, RecordedMessage, ResumeAdmission, RunCancelOutcome, Snapshot, StopOutcome, ThreadChoice, ThreadCursor,
        ThreadKey, ThreadRow,
    },
};

type Result<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl TurnStore for SqliteStore {
    async fn admit(&self, turn: NewTurn) -> Result<Admission> {
        self.write(move |c| Box::pin(async move { admit(c, &turn).await })).await
    }

    async fn admit_resume(&self, resume: NewResume) -> Result<ResumeAdmission> {
        self.write(move |c| Box::pin(async move { admit_resume(c, &resume).await })).await
    }

    async fn flush(&self, flushes: Arc<[Flush]>) -> Result<Vec<FlushOutcome>> {
        self.write(move |c| Box::pin(async move { flush(c, &flushes).await })).await
    }

    async fn request_stop(&self, key: &ThreadKey, execution: ExecutionId, at: Millis) -> Result<StopOutcome> {
        let key = key.clone();
        self.write(move |c| Box::pin(async move { request_stop(c, &key, execution, at).await })).await
    }

    async fn cancel_run(&self, project: &Slug, agent: &Slug, owner: UserId, run: RunId, at: Millis) -> Result<RunCancelOutcome> {
        let (project, agent) = (project.clone(), agent.clone());
        self.write(move |c| Box::pin(async move { cancel_run(c, &project, &agent, owner, run, at).await })).await
    }

    async fn expire_suspended(&self, before: Millis, error: &ExecutionError, at: Millis) -> Result<Vec<Expired>> {
        let error = error.clone();
        self.write(move |c| Box::pin(async move { expire_suspended(c, before, &error, at).await })).await
    }

    async fn running_processes(&self) -> Result<Vec<ProcessId>> {
        let rows =
            sqlx::query("SELECT DISTINCT process_id FROM executions WHERE status = 'running'").fetch_all(self.readers()).await?;
        rows.iter().map(|row| parsed(row, "process_id")).collect()
    }

    async fn orphans(&self, process: ProcessId) -> Result<Vec<Orphan>> {
        self.read(move |c| Box::pin(async move { orphans(c, process).await })).await
    }

    async fn continue_orphan(&self, continuation: Continuation) -> Result<ContinueOutcome> {
        self.write(move |c| Box::pin(async move { continue_orphan(c, &continuation).await })).await
    }

    async fn stop_wishes(&self, executions: Vec<ExecutionId>) -> Result<Vec<ExecutionId>> {
        let rows = sqlx::query(
            "SELECT id FROM executions WHERE status = 'running' AND cancel_requested
               AND id IN (SELECT value FROM json_each(?1))",
        )
        .bind(to_json(&executions)?)
        .fetch_all(self.readers())
        .await?;
        rows.iter().map(|row| parsed(row, "id")).collect()
    }

    async fn revision(&self, key: &ThreadKey) -> Result<Option<u64>> {
        let row =
            of_thread("SELECT revision FROM threads WHERE id = ?1 AND owner_id = ?2 AND project_id = ?3 AND agent_id = ?4", key)
                .fetch_optional(self.readers())
                .await?;
        row.map(|row| unsigned(&row, "revision")).transpose()
    }

    async fn snapshot(&self, key: &ThreadKey, since: Option<u64>) -> Result<Option<Snapshot>> {
        let key = key.clone();
        self.read(move |c| Box::pin(async move { snapshot(c, &key, since).await })).await
    }

    async fn turn_input(&self, thread: ThreadId, message: MessageId) -> Result<(Vec<Message>, Vec<Part>)> {
        self.read(move |c| Box::pin(async move { turn_input(c, thread, message).await })).await
    }

    async fn attachment(&self, project: &Slug, agent: &Slug, owner: UserId, id: AttachmentId) -> Result<Option<Attachment>> {
        let row = sqlx::query(
            "SELECT a.id, a.name, a.media_type, a.data FROM attachments a
             JOIN messages m ON m.pk = a.message_pk JOIN threads t ON t.id = m.thread_id
             WHERE a.id = ?1 AND t.owner_id = ?2 AND t.project_id = ?3 AND t.agent_id = ?4",
        )
        .bind(id.to_string())
        .bind(owner.to_string())
        .bind(project.as_str())
        .bind(agent.as_str())
        .fetch_optional(self.readers())
        .await?;
        row.as_ref().map(attachment).transpose()
    }

    async fn attachments(&self, thread: ThreadId, ids: &[AttachmentId]) -> Result<Vec<Attachment>> {
        let rows = sqlx::query(
            "SELECT a.id, a.name, a.media_type, a.data FROM attachments a JOIN messages m ON m.pk = a.message_pk
             WHERE m.thread_id = ?1 AND a.id IN (SELECT value FROM json_each(?2))",
        )
        .bind(thread.to_string())
        .bind(to_json(ids)?)
        .fetch_all(self.readers())
        .await?;
        rows.iter().map(attachment).collect()
    }

    async fn threads(
        &self,
        project: &Slug,
        agent: &Slug,
        owner: UserId,
        after: Option<ThreadCursor>,
        limit: u32,
    ) -> Result<Vec<ThreadRow>> {
        let rows = sqlx::query(
            "SELECT t.id, t.title, t.created_at, t.updated_at, t.revision, e.id AS active, s.id IS NOT NULL AS suspended
             FROM threads t
             LEFT JOIN executions e ON e.thread_id = t.id AND e.status = 'running'
             LEFT JOIN executions s ON s.thread_id = t.id AND s.status = 'suspended'
             WHERE t.owner_id = ?1 AND t.project_id = ?2 AND t.agent_id = ?3
               AND (?4 IS NULL OR (t.updated_at, t.id) < (?4, ?5))
             ORDER BY t.updated_at DESC, t.id DESC LIMIT ?6",
        )
        .bind(owner.to_string())
        .bind(project.as_str())
        .bind(agent.as_str())
        .bind(after.map(|cursor| cursor.updated_at))
        .bind(after.map(|cursor| cursor.id.to_string()))
        .bind(limit)
        .fetch_all(self.readers())
        .await?;
        rows.iter().map(thread_row).collect()
    }

    async fn thread(&self, key: &ThreadKey) -> Result<Option<ThreadRow>> {
        let row = of_thread(
            "SELECT t.id, t.title, t.created_at, t.updated_at, t.revision, e.id AS active, s.id IS NOT NULL AS suspended
             FROM threads t
             LEFT JOIN executions e ON e.thread_id = t.id AND e.status = 'running'
             LEFT JOIN executions s ON s.thread_id = t.id AND s.status = 'suspended'
             WHERE t.id = ?1 AND t.owner_id = ?2 AND t.project_id = ?3 AND t.agent_id = ?4",
            key,
        )
        .fetch_optional(self.readers())
        .await?;
        row.as_ref().map(thread_row).transpose()
    }

    async fn rename_thread(&self, key: &ThreadKey, title: String) -> Result<Option<u64>> {
        let key = key.clone();
        self.write(move |c| {
            Box::pin(async move {
                let row = of_thread(
                    "UPDATE threads SET title = ?5, revision = revision + 1
                     WHERE id = ?1 AND owner_id = ?2 AND project_id = ?3 AND agent_id = ?4 RETURNING revision",
                    &key,
                )
                .bind(title)
                .fetch_optional(&mut *c)
                .await?;
                row.map(|row| unsigned(&row, "revision")).transpose()
            })
        })
        .await
    }

    async fn delete_thread(&self, key: &ThreadKey) -> Result<DeleteOutcome> {
        let key = key.clone();
        self.write(move |c| Box::pin(async move { delete_thread(c, &key).await })).await
    }

    async fn ping(&self) -> Result<()> {
        self.check().await
    }

    async fn close(&self) {
        SqliteStore::close(self).await;
    }
}

/// A statement whose first four parameters are a thread's whole key, so that it finds nothing where a part of it does not belong to the
/// others.
fn of_thread<'q>(statement: &'static str, key: &'q ThreadKey) -> Query<'q, Sqlite, SqliteArguments> {
    sqlx::query(statement)
        .bind(key.thread.to_string())
        .bind(key.owner.to_string())
        .bind(key.project.as_str())
        .bind(key.agent.as_str())
}

async fn admit(c: &mut SqliteConnection, turn: &NewTurn) -> Result<Admission> {
    let key = &turn.key;
    let repeated = sqlx::query(
        "SELECT execution_id FROM messages WHERE owner_id = ?1 AND id = ?2
         UNION ALL SELECT execution_id FROM deleted_messages WHERE owner_id = ?1 AND id = ?2",
    )
    .bind(key.owner.to_string())
    .bind(turn.message.to_string())
    .fetch_optional(&mut *c)
    .await?;
    if let Some(row) = repeated {
        return Ok(Admission::AlreadyAccepted { execution: parsed(&row, "execution_id")? });
    }

    let thread = sqlx::query("SELECT owner_id, project_id, agent_id FROM threads WHERE id = ?1")
        .bind(key.thread.to_string())
        .fetch_optional(&mut *c)
        .await?;
    match thread {
        None if turn.choice == ThreadChoice::Existing || was_deleted(c, key.thread).await? => {
            return Ok(Admission::ThreadNotFound);
        }
        None => {}
        Some(row) => {
            let theirs = row.try_get::<&str, _>("owner_id")? != key.owner.to_string()
                || row.try_get::<&str, _>("project_id")? != key.project.as_str()
                || row.try_get::<&str, _>("agent_id")? != key.agent.as_str();
            if theirs {
                return Ok(Admission::ThreadNotFound);
            }
            if let Some((active, status)) = open_execution(c, key.thread).await? {
                return Ok(match status {
                    ExecutionStatus::Suspended => Admission::InteractionOpen,
                    _ => Admission::TurnRunning { active },
                });
            }
        }
    }
    if running_turns(c, key.owner).await? >= turn.max_running {
        return Ok(Admission::TooManyTurns);
    }

    let revision = sqlx::query(
        "INSERT INTO threads (id, project_id, agent_id, owner_id, title, revision, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?6)
         ON CONFLICT (id) DO UPDATE SET revision = revision + 1, updated_at = ?6 RETURNING revision",
    )
    .bind(key.thread.to_string())
    .bind(key.project.as_str())
    .bind(key.agent.as_str())
    .bind(key.owner.to_string())
    .bind(&turn.title)
    .bind(turn.at)
    .fetch_one(&mut *c)
    .await?;
    let revision = unsigned(&revision, "revision")?;

    let question_pk = insert_message(c, turn, revision, Role::User).await?;
    for attachment in &turn.attachments {
        insert_attachment(c, question_pk, attachment).await?;
    }
    let message_pk = insert_message(c, turn, revision, Role::Assistant).await?;
    insert_execution(c, turn.execution, key.thread, message_pk, key.owner, turn.process, turn.at).await?;
    Ok(Admission::Accepted { revision })
}

async fn insert_message(c: &mut SqliteConnection, turn: &NewTurn, revision: u64, role: Role) -> Result<i64> {
    let (id, content, status) = match role {
        Role::User => (turn.message, Some(to_json(&turn.content)?), None),
        Role::Assistant => (turn.assistant_message, None, Some(ExecutionStatus::Running.as_str())),
    };
    let row = sqlx::query(
        "INSERT INTO messages (id, thread_id, owner_id, position, role, execution_id, status, content, created_at, revision)
         VALUES (?1, ?2, ?3, (SELECT COALESCE(MAX(position), 0) + 1 FROM messages WHERE thread_id = ?2), ?4, ?5, ?6, ?7, ?8, ?9)
         RETURNING pk",
    )
    .bind(id.to_string())
    .bind(turn.key.thread.to_string())
    .bind(turn.key.owner.to_string())
    .bind(role_name(role))
    .bind(turn.execution.to_string())
    .bind(status)
    .bind(content)
    .bind(turn.at)
    .bind(signed(revision))
    .fetch_one(&mut *c)
    .await?;
    Ok(row.try_get("pk")?)
}

async fn insert_attachment(c: &mut SqliteConnection, message_pk: i64, attachment: &Attachment) -> Result<()> {
    sqlx::query("INSERT INTO attachments (id, message_pk, name, media_type, data) VALUES (?1, ?2, ?3, ?4, ?5)")
        .bind(attachment.id.to_string())
        .bind(message_pk)
        .bind(&attachment.name)
        .bind(&attachment.media_type)
        .bind(&attachment.data[..])
        .execute(&mut *c)
        .await?;
    Ok(())
}

fn attachment(row: &SqliteRow) -> Result<Attachment> {
    Ok(Attachment {
        id: parsed(row, "id")?,
        name: row.try_get("name")?,
        media_type: row.try_get("media_type")?,
        data: row.try_get::<Vec<u8>, _>("data")?.into(),
    })
}

async fn insert_execution(
    c: &mut SqliteConnection,
    execution: ExecutionId,
    thread: ThreadId,
    message_pk: i64,
    user: UserId,
    process: ProcessId,
    at: Millis,
) -> Result<()> {
    sqlx::query(
        "INSERT INTO executions (id, thread_id, message_pk, user_id, process_id, status, started_at)
         VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6)",
    )
    .bind(execution.to_string())
    .bind(thread.to_string())
    .bind(message_pk)
    .bind(user.to_string())
    .bind(process.to_string())
    .bind(at)
    .execute(&mut *c)
    .await?;
    Ok(())
}

async fn admit_resume(c: &mut SqliteConnection, resume: &NewResume) -> Result<ResumeAdmission> {
    let Some(turn) = find_turn(c, &resume.project, &resume.agent, resume.owner, resume.run).await? else {
        return Ok(ResumeAdmission::NotFound);
    };
    let suspension = sqlx::query("SELECT state, data FROM suspensions WHERE message_pk = ?1 AND tool_call_id = ?2")
        .bind(turn.message_pk)
        .bind(&resume.tool_call_id)
        .fetch_optional(&mut *c)
        .await?;
    let Some(suspension) = suspension else { return Ok(ResumeAdmission::NotFound) };
    if suspension.try_get::<&str, _>("state")? != "open" {
        return Ok(ResumeAdmission::Closed);
    }
    let asked: Suspension = from_json(suspension.try_get("data")?)?;
    if let Some(Err(mismatch)) = asked.suspend_payload.map(|payload| payload.accepts(&resume.answer)) {
        return Ok(ResumeAdmission::Mismatch(mismatch));
    }
    match open_execution(c, turn.thread).await? {
        Some((_, ExecutionStatus::Suspended)) => {}
        Some((active, _)) => return Ok(ResumeAdmission::TurnRunning { active }),
        None => return Ok(ResumeAdmission::Closed),
    }
    if running_turns(c, resume.owner).await? >= resume.max_running {
        return Ok(ResumeAdmission::TooManyTurns);
    }

    sqlx::query("UPDATE suspensions SET state = 'answered', answer = ?3 WHERE message_pk = ?1 AND tool_call_id = ?2")
        .bind(turn.message_pk)
        .bind(&resume.tool_call_id)
        .bind(to_json(&resume.answer)?)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE executions SET status = 'resumed', ended_at = ?2 WHERE thread_id = ?1 AND status = 'suspended'")
        .bind(turn.thread.to_string())
        .bind(resume.at)
        .execute(&mut *c)
        .await?;
    insert_execution(c, resume.execution, turn.thread, turn.message_pk, resume.owner, resume.process, resume.at).await?;
    let revision = raise_revision(c, turn.thread, Some(resume.at)).await?;
    sqlx::query("UPDATE messages SET status = 'running', execution_id = ?2, revision = ?3 WHERE pk = ?1")
        .bind(turn.message_pk)
        .bind(resume.execution.to_string())
        .bind(signed(revision))
        .execute(&mut *c)
        .await?;
    let message = sqlx::query(
        "SELECT id FROM messages WHERE thread_id = ?1 AND role = 'user'
           AND position < (SELECT position FROM messages WHERE pk = ?2)
         ORDER BY position DESC LIMIT 1",
    )
    .bind(turn.thread.to_string())
    .bind(turn.message_pk)
    .fetch_optional(&mut *c)
    .await?;
    // A turn that nobody typed has no message that started it: its own id stands in.
    let message = match message {
        Some(row) => parsed(&row, "id")?,
        None => resume.run.into(),
    };
    Ok(ResumeAdmission::Accepted { thread: turn.thread, message, revision })
}

/// A flush that takes effect.
struct LiveFlush<'f> {
    flush: &'f Flush,
    message_pk: i64,
    cancel_requested: bool,
    revision: u64,
    end: Option<&'f End>,
}

async fn flush(c: &mut SqliteConnection, flushes: &[Flush]) -> Result<Vec<FlushOutcome>> {
    // Statements work on sets (`json_each`), so that their number does not grow with the number of turns in the group.
    let claims: Vec<_> = flushes.iter().map(|f| (f.execution.to_string(), f.process.to_string())).collect();
    let rows = sqlx::query(
        "SELECT j.key AS slot, e.message_pk, e.cancel_requested
         FROM json_each(?1) j CROSS JOIN executions e ON e.id = j.value ->> 0
         WHERE e.status = 'running' AND e.process_id = j.value ->> 1",
    )
    .bind(to_json(&claims)?)
    .fetch_all(&mut *c)
    .await?;
    let owned = rows
        .iter()
        .map(|row| {
            let slot = usize::try_from(row.try_get::<i64, _>("slot")?).map_err(|e| StoreError::Corrupt(e.to_string()))?;
            Ok((slot, (row.try_get::<i64, _>("message_pk")?, row.try_get::<bool, _>("cancel_requested")?)))
        })
        .collect::<Result<HashMap<_, _>>>()?;

    let threads: Vec<_> = owned.keys().map(|&slot| flushes[slot].key.thread.to_string()).collect();
    let rows = sqlx::query(
        "UPDATE threads SET revision = revision + 1 WHERE id IN (SELECT value FROM json_each(?1)) RETURNING id, revision",
    )
    .bind(to_json(&threads)?)
    .fetch_all(&mut *c)
    .await?;
    let revisions = rows
        .iter()
        .map(|row| Ok((parsed(row, "id")?, unsigned(row, "revision")?)))
        .collect::<Result<HashMap<ThreadId, u64>>>()?;

    let live = (0..flushes.len())
        .map(|slot| {
            let Some(&(message_pk, cancel_requested)) = owned.get(&slot) else { return Ok(None) };
            let flush = &flushes[slot];
            let revision = *revisions
                .get(&flush.key.thread)
                .ok_or_else(|| StoreError::Corrupt(format!("execution {} has no thread", flush.execution)))?;
            let end = flush.end.as_ref().filter(|end| !(cancel_requested && end.status.yields_to_a_stop()));
            Ok(Some(LiveFlush { flush, message_pk, cancel_requested, revision, end }))
        })
        .collect::<Result<Vec<_>>>()?;

    write_parts(c, &live).await?;
    for slot in &live {
        if let Some(live) = slot
            && let Some(end) = live.end
        {
            write_end(c, live, end).await?;
        }
    }
    Ok(live
        .into_iter()
        .map(|live| match live {
            None => FlushOutcome::Fenced,
            Some(live) => FlushOutcome::Written {
                revision: live.revision,
                cancel_requested: live.cancel_requested,
                ended: live.end.is_some(),
            },
        })
        .collect())
}

async fn write_parts(c: &mut SqliteConnection, live: &[Option<LiveFlush<'_>>]) -> Result<()> {
    let mut stamps = Vec::new();
    let mut data = Vec::new();
    let mut segments = Vec::new();
    for live in live.iter().flatten() {
        stamps.push((live.message_pk, live.revision));
        if live.end.is_some_and(|end| end.content.is_some()) {
            // The end of a message replaces its parts by its content: rows written for it would be deleted at once.
            continue;
        }
        for part in &live.flush.parts {
            data.extend(part.data.as_deref().map(|data| (live.message_pk, part.index, data)));
            segments.extend(part.segment.as_ref().map(|(segment, text)| (live.message_pk, part.index, segment, text.as_str())));
        }
    }
    if stamps.is_empty() {
        return Ok(());
    }
    sqlx::query("UPDATE messages SET revision = j.value ->> 1 FROM json_each(?1) j WHERE messages.pk = j.value ->> 0")
        .bind(to_json(&stamps)?)
        .execute(&mut *c)
        .await?;
    if !data.is_empty() {
        sqlx::query(
            "INSERT INTO parts (message_pk, part_index, data)
             SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1) WHERE true
             ON CONFLICT DO UPDATE SET data = excluded.data",
        )
        .bind(to_json(&data)?)
        .execute(&mut *c)
        .await?;
    }
    if !segments.is_empty() {
        sqlx::query(
            "INSERT INTO segments (message_pk, part_index, segment_index, text)
             SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?1) WHERE true
             ON CONFLICT DO UPDATE SET text = excluded.text",
        )
        .bind(to_json(&segments)?)
        .execute(&mut *c)
        .await?;
    }
    Ok(())
}

async fn write_end(c: &mut SqliteConnection, live: &LiveFlush<'_>, end: &End) -> Result<()> {
    sqlx::query("UPDATE executions SET status = ?2, ended_at = ?3 WHERE id = ?1")
        .bind(live.flush.execution.to_string())
        .bind(end.status.as_str())
        .bind(end.at)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE threads SET updated_at = ?2 WHERE id = ?1")
        .bind(live.flush.key.thread.to_string())
        .bind(end.at)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE messages SET status = ?2, error = ?3, content = ?4 WHERE pk = ?1")
        .bind(live.message_pk)
        .bind(end.status.as_str())
        .bind(end.error.as_ref().map(to_json).transpose()?)
        .bind(end.content.as_deref())
        .execute(&mut *c)
        .await?;
    if end.content.is_some() {
        drop_parts(c, live.message_pk).await?;
    }
    if end.status.is_final() {
        close_suspensions(c, live.message_pk).await?;
    }
    for suspension in &end.suspensions {
        sqlx::query(
            "INSERT INTO suspensions (message_pk, tool_call_id, thread_id, state, data, position)
             VALUES (?1, ?2, ?3, 'open', ?4, (SELECT COUNT(*) FROM suspensions WHERE message_pk = ?1))
             ON CONFLICT DO NOTHING",
        )
        .bind(live.message_pk)
        .bind(&suspension.tool_call_id)
        .bind(live.flush.key.thread.to_string())
        .bind(to_json(suspension)?)
        .execute(&mut *c)
        .await?;
    }
    Ok(())
}

async fn drop_parts(c: &mut SqliteConnection, message_pk: i64) -> Result<()> {
    sqlx::query("DELETE FROM segments WHERE message_pk = ?1").bind(message_pk).execute(&mut *c).await?;
    sqlx::query("DELETE FROM parts WHERE message_pk = ?1").bind(message_pk).execute(&mut *c).await?;
    Ok(())
}

async fn close_suspensions(c: &mut SqliteConnection, message_pk: i64) -> Result<()> {
    sqlx::query("UPDATE suspensions SET state = 'cancelled' WHERE message_pk = ?1 AND state = 'open'")
        .bind(message_pk)
        .execute(&mut *c)
        .await?;
    Ok(())
}

async fn request_stop(c: &mut SqliteConnection, key: &ThreadKey, execution: ExecutionId, at: Millis) -> Result<StopOutcome> {
    let row = sqlx::query(
        "SELECT e.status, e.message_pk FROM executions e JOIN threads t ON t.id = e.thread_id
         WHERE e.id = ?1 AND t.id = ?2 AND t.owner_id = ?3 AND t.project_id = ?4 AND t.agent_id = ?5",
    )
    .bind(execution.to_string())
    .bind(key.thread.to_string())
    .bind(key.owner.to_string())
    .bind(key.project.as_str())
    .bind(key.agent.as_str())
    .fetch_optional(&mut *c)
    .await?;
    let Some(row) = row else { return Ok(StopOutcome::NotFound) };
    match row.try_get::<&str, _>("status")? {
        "running" => {
            sqlx::query("UPDATE executions SET cancel_requested = 1 WHERE id = ?1")
                .bind(execution.to_string())
                .execute(&mut *c)
                .await?;
            Ok(StopOutcome::Requested)
        }
        "suspended" => {
            let revision = end_suspended(c, key.thread, row.try_get("message_pk")?, None, at).await?;
            Ok(StopOutcome::SuspensionEnded { revision })
        }
        _ => Ok(StopOutcome::AlreadyEnded),
    }
}

async fn cancel_run(
    c: &mut SqliteConnection,
    project: &Slug,
    agent: &Slug,
    owner: UserId,
    run: RunId,
    at: Millis,
) -> Result<RunCancelOutcome> {
    let Some(turn) = find_turn(c, project, agent, owner, run).await? else { return Ok(RunCancelOutcome::NotFound) };
    let execution = sqlx::query("SELECT id FROM executions WHERE message_pk = ?1 AND status = 'suspended'")
        .bind(turn.message_pk)
        .fetch_optional(&mut *c)
        .await?;
    let Some(execution) = execution else { return Ok(RunCancelOutcome::NotSuspended) };
    let execution = parsed(&execution, "id")?;
    let revision = end_suspended(c, turn.thread, turn.message_pk, None, at).await?;
    Ok(RunCancelOutcome::Cancelled { thread: turn.thread, execution, revision })
}

async fn expire_suspended(c: &mut SqliteConnection, before: Millis, error: &ExecutionError, at: Millis) -> Result<Vec<Expired>> {
    // The first condition is that of the index of open turns, which is short whatever the table holds.
    let rows = sqlx::query(
        "SELECT e.id, e.message_pk, t.id AS thread_id, t.project_id, t.agent_id, t.owner_id
         FROM executions e JOIN threads t ON t.id = e.thread_id
         WHERE e.status IN ('running', 'suspended') AND e.status = 'suspended' AND e.ended_at < ?1",
    )
    .bind(before)
    .fetch_all(&mut *c)
    .await?;
    let mut expired = Vec::with_capacity(rows.len());
    for row in &rows {
        let key = thread_key(row)?;
        let revision = end_suspended(c, key.thread, row.try_get("message_pk")?, Some(error), at).await?;
        expired.push(Expired { key, execution: parsed(row, "id")?, revision });
    }
    Ok(expired)
}

/// Ends the suspended turn of a message as `cancelled`.
async fn end_suspended(
    c: &mut SqliteConnection,
    thread: ThreadId,
    message_pk: i64,
    error: Option<&ExecutionError>,
    at: Millis,
) -> Result<u64> {
    let parts = timeline::closed(open_parts(c, message_pk).await?, ExecutionStatus::Cancelled, at);
    let revision = raise_revision(c, thread, Some(at)).await?;
    sqlx::query("UPDATE executions SET status = 'cancelled', ended_at = ?2 WHERE message_pk = ?1 AND status = 'suspended'")
        .bind(message_pk)
        .bind(at)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE messages SET status = 'cancelled', content = ?2, revision = ?3, error = ?4 WHERE pk = ?1")
        .bind(message_pk)
        .bind(to_json(&parts)?)
        .bind(signed(revision))
        .bind(error.map(to_json).transpose()?)
        .execute(&mut *c)
        .await?;
    drop_parts(c, message_pk).await?;
    close_suspensions(c, message_pk).await?;
    Ok(revision)
}

/// Whether there was a thread of that id. It does not come back.
async fn was_deleted(c: &mut SqliteConnection, thread: ThreadId) -> Result<bool> {
    let row = sqlx::query("SELECT 1 FROM deleted_threads WHERE id = ?1").bind(thread.to_string()).fetch_optional(c).await?;
    Ok(row.is_some())
}

async fn delete_thread(c: &mut SqliteConnection, key: &ThreadKey) -> Result<DeleteOutcome> {
    let row =
        of_thread("SELECT revision FROM threads WHERE id = ?1 AND owner_id = ?2 AND project_id = ?3 AND agent_id = ?4", key)
            .fetch_optional(&mut *c)
            .await?;
    let Some(row) = row else { return Ok(DeleteOutcome::NotFound) };
    if let Some((active, ExecutionStatus::Running)) = open_execution(c, key.thread).await? {
        return Ok(DeleteOutcome::TurnRunning { active });
    }
    for statement in [
        "INSERT INTO deleted_threads (id) VALUES (?1)",
        "INSERT INTO deleted_messages (owner_id, id, execution_id)
         SELECT owner_id, id, execution_id FROM messages WHERE thread_id = ?1 AND role = 'user' AND execution_id IS NOT NULL",
        "DELETE FROM threads WHERE id = ?1",
    ] {
        sqlx::query(statement).bind(key.thread.to_string()).execute(&mut *c).await?;
    }
    Ok(DeleteOutcome::Deleted { revision: unsigned(&row, "revision")? + 1 })
}

async fn orphans(c: &mut SqliteConnection, process: ProcessId) -> Result<Vec<Orphan>> {
    let rows = sqlx::query(
        "SELECT e.id, e.message_pk, e.cancel_requested, m.id AS message_id, m.continuations,
                t.id AS thread_id, t.project_id, t.agent_id, t.owner_id
         FROM executions e JOIN threads t ON t.id = e.thread_id JOIN messages m ON m.pk = e.message_pk
         WHERE e.status = 'running' AND e.process_id = ?1 ORDER BY e.id",
    )
    .bind(process.to_string())
    .fetch_all(&mut *c)
    .await?;
    let mut orphans = Vec::with_capacity(rows.len());
    for row in rows {
        let message_pk = row.try_get("message_pk")?;
        let answers = sqlx::query("SELECT tool_call_id, answer FROM suspensions WHERE message_pk = ?1 AND state = 'answered'")
            .bind(message_pk)
            .fetch_all(&mut *c)
            .await?;
        orphans.push(Orphan {
            execution: parsed(&row, "id")?,
            key: thread_key(&row)?,
            process,
            cancel_requested: row.try_get("cancel_requested")?,
            message: parsed(&row, "message_id")?,
            continuations: row.try_get("continuations")?,
            answers: answers
                .iter()
                .map(|row| Ok((row.try_get("tool_call_id")?, from_json(row.try_get("answer")?)?)))
                .collect::<Result<_>>()?,
            parts: open_parts(c, message_pk).await?,
        });
    }
    Ok(orphans)
}

async fn continue_orphan(c: &mut SqliteConnection, continuation: &Continuation) -> Result<ContinueOutcome> {
    let Continuation { orphan, dead, key, execution, process, at } = continuation;
    let row = sqlx::query(
        "SELECT message_pk, cancel_requested, user_id FROM executions WHERE id = ?1 AND process_id = ?2 AND status = 'running'",
    )
    .bind(orphan.to_string())
    .bind(dead.to_string())
    .fetch_optional(&mut *c)
    .await?;
    let Some(row) = row else { return Ok(ContinueOutcome::Fenced) };
    if row.try_get("cancel_requested")? {
        return Ok(ContinueOutcome::StopRequested);
    }
    let message_pk = row.try_get("message_pk")?;
    sqlx::query("UPDATE executions SET status = 'continued', ended_at = ?2 WHERE id = ?1")
        .bind(orphan.to_string())
        .bind(at)
        .execute(&mut *c)
        .await?;
    insert_execution(c, *execution, key.thread, message_pk, parsed(&row, "user_id")?, *process, *at).await?;
    let revision = raise_revision(c, key.thread, None).await?;
    sqlx::query("UPDATE messages SET execution_id = ?2, revision = ?3, continuations = continuations + 1 WHERE pk = ?1")
        .bind(message_pk)
        .bind(execution.to_string())
        .bind(signed(revision))
        .execute(&mut *c)
        .await?;
    Ok(ContinueOutcome::Continued { revision })
}

async fn snapshot(c: &mut SqliteConnection, key: &ThreadKey, since: Option<u64>) -> Result<Option<Snapshot>> {
    let thread = of_thread(
        "SELECT t.revision, e.id AS active FROM threads t
         LEFT JOIN executions e ON e.thread_id = t.id AND e.status = 'running'
         WHERE t.id = ?1 AND t.owner_id = ?2 AND t.project_id = ?3 AND t.agent_id = ?4",
        key,
    )
    .fetch_optional(&mut *c)
    .await?;
    let Some(thread) = thread else { return Ok(None) };
    let rows = sqlx::query(
        "SELECT pk, id, role, execution_id, status, error, content, created_at, revision
         FROM messages WHERE thread_id = ?1 AND revision > ?2 ORDER BY position",
    )
    .bind(key.thread.to_string())
    .bind(signed(since.unwrap_or(0)))
    .fetch_all(&mut *c)
    .await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        messages.push(recorded_message(c, row).await?);
    }
    let suspensions = sqlx::query(
        "SELECT data FROM suspensions WHERE thread_id = ?1 AND state = 'open' ORDER BY message_pk, position, tool_call_id",
    )
    .bind(key.thread.to_string())
    .fetch_all(&mut *c)
    .await?;
    Ok(Some(Snapshot {
        revision: unsigned(&thread, "revision")?,
        active: optional(&thread, "active")?,
        suspensions: suspensions.iter().map(|row| from_json(row.try_get("data")?)).collect::<Result<_>>()?,
        messages,
    }))
}

async fn turn_input(c: &mut SqliteConnection, thread: ThreadId, message: MessageId) -> Result<(Vec<Message>, Vec<Part>)> {
    let rows = sqlx::query(
        "SELECT pk, id, role, execution_id, status, error, content, created_at, revision FROM messages
         WHERE thread_id = ?1 AND position <= (SELECT position FROM messages WHERE thread_id = ?1 AND id = ?2)
         ORDER BY position",
    )
    .bind(thread.to_string())
    .bind(message.to_string())
    .fetch_all(&mut *c)
    .await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        messages.push(recorded_message(c, row).await?.parse()?);
    }
    let own = messages.pop().ok_or_else(|| StoreError::Corrupt(format!("message {message} is not in thread {thread}")))?;
    Ok((messages, own.content))
}

async fn recorded_message(c: &mut SqliteConnection, row: &SqliteRow) -> Result<RecordedMessage> {
    let content = match row.try_get::<Option<String>, _>("content")? {
        Some(json) => RawValue::from_string(json),
        None => serde_json::value::to_raw_value(&open_parts(c, row.try_get("pk")?).await?),
    };
    Ok(RecordedMessage {
        id: parsed(row, "id")?,
        role: rows::role(row.try_get("role")?),
        content: content.map_err(|error| StoreError::Corrupt(error.to_string()))?,
        execution: optional(row, "execution_id")?,
        status: rows::status(row.try_get("status")?)?,
        error: row.try_get::<Option<&str>, _>("error")?.map(from_json).transpose()?,
        created_at: row.try_get("created_at")?,
        revision: unsigned(row, "revision")?,
    })
}

/// The parts of a message that is still written to.
async fn open_parts(c: &mut SqliteConnection, message_pk: i64) -> Result<Vec<Part>> {
    let parts: Vec<(i64, String)> =
        sqlx::query_as("SELECT part_index, data FROM parts WHERE message_pk = ?1 ORDER BY part_index")
            .bind(message_pk)
            .fetch_all(&mut *c)
            .await?;
    let segments: Vec<(i64, String)> =
        sqlx::query_as("SELECT part_index, text FROM segments WHERE message_pk = ?1 ORDER BY part_index, segment_index")
            .bind(message_pk)
            .fetch_all(&mut *c)
            .await?;
    rows::assembled(&parts, &segments)
}

/// A turn as resume and cancel find it.
struct Turn {
    thread: ThreadId,
    message_pk: i64,
}

async fn find_turn(c: &mut SqliteConnection, project: &Slug, agent: &Slug, owner: UserId, run: RunId) -> Result<Option<Turn>> {
    let row = sqlx::query(
        "SELECT m.pk, t.id FROM messages m JOIN threads t ON t.id = m.thread_id
         WHERE m.owner_id = ?1 AND m.id = ?2 AND m.role = 'assistant'
           AND t.owner_id = ?1 AND t.project_id = ?3 AND t.agent_id = ?4",
    )
    .bind(owner.to_string())
    .bind(run.to_string())
    .bind(project.as_str())
    .bind(agent.as_str())
    .fetch_optional(&mut *c)
    .await?;
    row.map(|row| Ok(Turn { thread: parsed(&row, "id")?, message_pk: row.try_get("pk")? })).transpose()
}

async fn open_execution(c: &mut SqliteConnection, thread: ThreadId) -> Result<Option<(ExecutionId, ExecutionStatus)>> {
    let row = sqlx::query("SELECT id, status FROM executions WHERE thread_id = ?1 AND status IN ('running', 'suspended')")
        .bind(thread.to_string())
        .fetch_optional(&mut *c)
        .await?;
    row.map(|row| {
        let status = match row.try_get::<&str, _>("status")? {
            "suspended" => ExecutionStatus::Suspended,
            _ => ExecutionStatus::Running,
        };
        Ok((parsed(&row, "id")?, status))
    })
    .transpose()
}

async fn running_turns(c: &mut SqliteConnection, user: UserId) -> Result<u32> {
    let row = sqlx::query("SELECT COUNT(*) AS running FROM executions WHERE user_id = ?1 AND status = 'running'")
        .bind(user.to_string())
        .fetch_one(&mut *c)
        .await?;
    Ok(row.try_get("running")?)
}

async fn raise_revision(c: &mut SqliteConnection, thread: ThreadId, updated_at: Option<Millis>) -> Result<u64> {
    let row = sqlx::query(
        "UPDATE threads SET revision = revision + 1, updated_at = COALESCE(?2, updated_at) WHERE id = ?1 RETURNING revision",
    )
    .bind(thread.to_string())
    .bind(updated_at)
    .fetch_one(&mut *c)
    .await?;
    unsigned(&row, "revision")
}

fn thread_key(row: &SqliteRow) -> Result<ThreadKey> {
    Ok(ThreadKey {
        project: parsed(row, "project_id")?,
        agent: parsed(row, "agent_id")?,
        thread: parsed(row, "thread_id")?,
        owner: parsed(row, "owner_id")?,
    })
}

fn thread_row(row: &SqliteRow) -> Result<ThreadRow> {
    Ok(ThreadRow {
        id: parsed(row, "id")?,
        title: row.try_get("title")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        revision: unsigned(row, "revision")?,
        active: optional(row, "active")?,
        suspended: row.try_get("suspended")?,
    })
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(row: &SqliteRow, column: &str) -> Result<T> {
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error| StoreError::Corrupt(format!("{column} {text:?}: {error}")))
}

fn optional<T: FromStr<Err: std::fmt::Display>>(row: &SqliteRow, column: &str) -> Result<Option<T>> {
    match row.try_get::<Option<&str>, _>(column)? {
        None => Ok(None),
        Some(_) => parsed(row, column).map(Some),
    }
}

fn unsigned(row: &SqliteRow, column: &str) -> Result<u64> {
    rows::unsigned(row.try_get(column)?, column)
}
