//! [`TurnStore`] on PostgreSQL.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use serde_json::value::RawValue;
use sqlx::{
    PgConnection, Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use turnfast_shared::{
    ExecutionStatus, Message, Millis, Part, Role,
    api::AttachmentId,
    event::Suspension,
    ids::{ExecutionId, MessageId, ProcessId, RunId, Slug, ThreadId, UserId},
    message::ExecutionError,
    timeline,
};
use uuid::Uuid;

use crate::store::{
    StoreError, TurnStore,
    postgres::{CLOSE, PostgresStore, lock_user, without_nul},
    rows::{self, from_json, role_name, signed, to_json},
    turns::{
        Admission, Attachment, Continuation, ContinueOutcome, DeleteOutcome, End, Expired, Flush, FlushOutcome, NewResume,
        NewTurn, Orphan, RecordedMessage, ResumeAdmission, RunCancelOutcome, Snapshot, StopOutcome, ThreadChoice, ThreadCursor,
        ThreadKey, ThreadRow,
    },
};

type Result<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl TurnStore for PostgresStore {
    async fn admit(&self, turn: NewTurn) -> Result<Admission> {
        let turn = Arc::new(turn);
        self.begin(move |c, in_doubt| {
            let turn = turn.clone();
            Box::pin(async move { admit(c, &turn, in_doubt).await })
        })
        .await
    }

    async fn admit_resume(&self, resume: NewResume) -> Result<ResumeAdmission> {
        let resume = Arc::new(resume);
        self.begin(move |c, in_doubt| {
            let resume = resume.clone();
            Box::pin(async move { admit_resume(c, &resume, in_doubt).await })
        })
        .await
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
        self.statement(|c| {
            Box::pin(async move {
                let rows: Vec<(Uuid,)> =
                    sqlx::query_as("SELECT DISTINCT process_id FROM executions WHERE status = 'running'").fetch_all(c).await?;
                Ok(rows.into_iter().map(|(id,)| id.into()).collect())
            })
        })
        .await
    }

    async fn orphans(&self, process: ProcessId) -> Result<Vec<Orphan>> {
        self.read(move |c| Box::pin(async move { orphans(c, process).await })).await
    }

    async fn continue_orphan(&self, continuation: Continuation) -> Result<ContinueOutcome> {
        let continuation = Arc::new(continuation);
        self.begin(move |c, in_doubt| {
            let continuation = continuation.clone();
            Box::pin(async move { continue_orphan(c, &continuation, in_doubt).await })
        })
        .await
    }

    async fn stop_wishes(&self, executions: Vec<ExecutionId>) -> Result<Vec<ExecutionId>> {
        self.statement(move |c| {
            Box::pin(async move {
                let executions: Vec<Uuid> = executions.into_iter().map(|execution| execution.0).collect();
                let rows: Vec<(Uuid,)> =
                    sqlx::query_as("SELECT id FROM executions WHERE status = 'running' AND cancel_requested AND id = ANY($1)")
                        .bind(executions)
                        .fetch_all(c)
                        .await?;
                Ok(rows.into_iter().map(|(id,)| id.into()).collect())
            })
        })
        .await
    }

    async fn revision(&self, key: &ThreadKey) -> Result<Option<u64>> {
        let key = key.clone();
        self.statement(move |c| {
            Box::pin(async move {
                let row = of_thread(
                    "SELECT revision FROM threads WHERE id = $1 AND owner_id = $2 AND project_id = $3 AND agent_id = $4",
                    &key,
                )
                .fetch_optional(c)
                .await?;
                row.map(|row| unsigned(&row, "revision")).transpose()
            })
        })
        .await
    }

    async fn snapshot(&self, key: &ThreadKey, since: Option<u64>) -> Result<Option<Snapshot>> {
        let key = key.clone();
        self.read(move |c| Box::pin(async move { snapshot(c, &key, since).await })).await
    }

    async fn turn_input(&self, thread: ThreadId, message: MessageId) -> Result<(Vec<Message>, Vec<Part>)> {
        self.read(move |c| Box::pin(async move { turn_input(c, thread, message).await })).await
    }

    async fn attachment(&self, project: &Slug, agent: &Slug, owner: UserId, id: AttachmentId) -> Result<Option<Attachment>> {
        let (project, agent) = (project.clone(), agent.clone());
        self.statement(move |c| {
            Box::pin(async move {
                let row = sqlx::query(
                    "SELECT a.id, a.name, a.media_type, a.data FROM attachments a
                     JOIN messages m ON m.pk = a.message_pk JOIN threads t ON t.id = m.thread_id
                     WHERE a.id = $1 AND t.owner_id = $2 AND t.project_id = $3 AND t.agent_id = $4",
                )
                .bind(id)
                .bind(owner.0)
                .bind(project.as_str())
                .bind(agent.as_str())
                .fetch_optional(c)
                .await?;
                row.as_ref().map(attachment).transpose()
            })
        })
        .await
    }

    async fn attachments(&self, thread: ThreadId, ids: &[AttachmentId]) -> Result<Vec<Attachment>> {
        let ids = ids.to_vec();
        self.statement(move |c| {
            Box::pin(async move {
                let rows = sqlx::query(
                    "SELECT a.id, a.name, a.media_type, a.data FROM attachments a JOIN messages m ON m.pk = a.message_pk
                     WHERE m.thread_id = $1 AND a.id = ANY($2)",
                )
                .bind(thread.0)
                .bind(ids)
                .fetch_all(c)
                .await?;
                rows.iter().map(attachment).collect()
            })
        })
        .await
    }

    async fn threads(
        &self,
        project: &Slug,
        agent: &Slug,
        owner: UserId,
        after: Option<ThreadCursor>,
        limit: u32,
    ) -> Result<Vec<ThreadRow>> {
        let (project, agent) = (project.clone(), agent.clone());
        self.statement(move |c| {
            Box::pin(async move {
                let rows = sqlx::query(
                    "SELECT t.id, t.title, t.created_at, t.updated_at, t.revision, e.id AS active, s.id IS NOT NULL AS suspended
                     FROM threads t
                     LEFT JOIN executions e ON e.thread_id = t.id AND e.status = 'running'
                     LEFT JOIN executions s ON s.thread_id = t.id AND s.status = 'suspended'
                     WHERE t.owner_id = $1 AND t.project_id = $2 AND t.agent_id = $3
                       AND ($4::bigint IS NULL OR (t.updated_at, t.id) < ($4, $5::uuid))
                     ORDER BY t.updated_at DESC, t.id DESC LIMIT $6",
                )
                .bind(owner.0)
                .bind(project.as_str())
                .bind(agent.as_str())
                .bind(after.map(|cursor| cursor.updated_at))
                .bind(after.map(|cursor| cursor.id.0))
                .bind(i64::from(limit))
                .fetch_all(c)
                .await?;
                rows.iter().map(thread_row).collect()
            })
        })
        .await
    }

    async fn thread(&self, key: &ThreadKey) -> Result<Option<ThreadRow>> {
        let key = key.clone();
        self.statement(move |c| {
            Box::pin(async move {
                let row = of_thread(
                    "SELECT t.id, t.title, t.created_at, t.updated_at, t.revision, e.id AS active, s.id IS NOT NULL AS suspended
                     FROM threads t
                     LEFT JOIN executions e ON e.thread_id = t.id AND e.status = 'running'
                     LEFT JOIN executions s ON s.thread_id = t.id AND s.status = 'suspended'
                     WHERE t.id = $1 AND t.owner_id = $2 AND t.project_id = $3 AND t.agent_id = $4",
                    &key,
                )
                .fetch_optional(c)
                .await?;
                row.as_ref().map(thread_row).transpose()
            })
        })
        .await
    }

    async fn rename_thread(&self, key: &ThreadKey, title: String) -> Result<Option<u64>> {
        let key = key.clone();
        self.statement(move |c| {
            Box::pin(async move {
                let row = of_thread(
                    "UPDATE threads SET title = $5, revision = revision + 1
                     WHERE id = $1 AND owner_id = $2 AND project_id = $3 AND agent_id = $4 RETURNING revision",
                    &key,
                )
                .bind(without_nul(&title))
                .fetch_optional(c)
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
        self.statement(|c| {
            Box::pin(async move {
                sqlx::query("SELECT 1").execute(c).await?;
                Ok(())
            })
        })
        .await
    }

    async fn close(&self) {
        self.running.close();
        let closing = async {
            self.running.wait().await;
            self.pool.close().await;
        };
        if tokio::time::timeout(CLOSE, closing).await.is_err() {
            tracing::warn!("the database does not answer; its connections end with this process");
        }
    }
}

/// A statement whose first four parameters are a thread's whole key, so that it finds nothing where a part of it does not belong to the
/// others.
fn of_thread<'q>(statement: &'static str, key: &'q ThreadKey) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(statement).bind(key.thread.0).bind(key.owner.0).bind(key.project.as_str()).bind(key.agent.as_str())
}

/// Locks the thread's row until the transaction ends, if all of `key` belongs together, and gives its revision.
async fn lock_thread(c: &mut PgConnection, key: &ThreadKey) -> Result<Option<u64>> {
    let row = of_thread(
        "SELECT revision FROM threads WHERE id = $1 AND owner_id = $2 AND project_id = $3 AND agent_id = $4 FOR UPDATE",
        key,
    )
    .fetch_optional(c)
    .await?;
    row.map(|row| unsigned(&row, "revision")).transpose()
}

async fn admit(c: &mut PgConnection, turn: &NewTurn, in_doubt: bool) -> Result<Admission> {
    let key = &turn.key;
    lock_user(c, key.owner).await?;
    if in_doubt && let Some(revision) = begun_before(c, turn.execution).await? {
        return Ok(Admission::Accepted { revision });
    }
    let repeated: Option<(Option<Uuid>,)> = sqlx::query_as(
        "SELECT execution_id FROM messages WHERE owner_id = $1 AND id = $2
         UNION ALL SELECT execution_id FROM deleted_messages WHERE owner_id = $1 AND id = $2",
    )
    .bind(key.owner.0)
    .bind(turn.message.0)
    .fetch_optional(&mut *c)
    .await?;
    if let Some((execution,)) = repeated {
        let execution = execution.ok_or_else(|| StoreError::Corrupt(format!("message {} has no execution", turn.message)))?;
        return Ok(Admission::AlreadyAccepted { execution: execution.into() });
    }

    let exists = lock_thread(c, key).await?.is_some();
    if !exists && turn.choice == ThreadChoice::Existing {
        return Ok(Admission::ThreadNotFound);
    }
    if exists && let Some((active, status)) = open_execution(c, key.thread).await? {
        return Ok(match status {
            ExecutionStatus::Suspended => Admission::InteractionOpen,
            _ => Admission::TurnRunning { active },
        });
    }
    if !exists {
        // Another user's, or one that was deleted: neither comes to mean something else.
        let (taken,): (bool,) = sqlx::query_as(
            "SELECT EXISTS (SELECT 1 FROM threads WHERE id = $1) OR EXISTS (SELECT 1 FROM deleted_threads WHERE id = $1)",
        )
        .bind(key.thread.0)
        .fetch_one(&mut *c)
        .await?;
        if taken {
            return Ok(Admission::ThreadNotFound);
        }
    }
    if running_turns(c, key.owner).await? >= i64::from(turn.max_running) {
        return Ok(Admission::TooManyTurns);
    }

    // The condition: another user may take the id of a new thread between the look and this.
    let row = sqlx::query(
        "INSERT INTO threads AS t (id, project_id, agent_id, owner_id, title, revision, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, 1, $6, $6)
         ON CONFLICT (id) DO UPDATE SET revision = t.revision + 1, updated_at = $6
           WHERE t.owner_id = $4 AND t.project_id = $2 AND t.agent_id = $3
         RETURNING revision",
    )
    .bind(key.thread.0)
    .bind(key.project.as_str())
    .bind(key.agent.as_str())
    .bind(key.owner.0)
    .bind(without_nul(&turn.title))
    .bind(turn.at)
    .fetch_optional(&mut *c)
    .await?;
    let Some(row) = row else { return Ok(Admission::ThreadNotFound) };
    let revision = unsigned(&row, "revision")?;

    let question_pk = insert_message(c, turn, revision, Role::User).await?;
    for attachment in &turn.attachments {
        insert_attachment(c, question_pk, attachment).await?;
    }
    let message_pk = insert_message(c, turn, revision, Role::Assistant).await?;
    insert_execution(c, turn.execution, key.thread, message_pk, key.owner, turn.process, turn.at).await?;
    Ok(Admission::Accepted { revision })
}

async fn insert_message(c: &mut PgConnection, turn: &NewTurn, revision: u64, role: Role) -> Result<i64> {
    let (id, content, status) = match role {
        Role::User => (turn.message, Some(to_json(&turn.content)?), None),
        Role::Assistant => (turn.assistant_message, None, Some(ExecutionStatus::Running.as_str())),
    };
    let row = sqlx::query(
        "INSERT INTO messages (id, thread_id, owner_id, position, role, execution_id, status, content, created_at, revision)
         VALUES ($1, $2, $3, (SELECT COALESCE(MAX(position), 0) + 1 FROM messages WHERE thread_id = $2), $4, $5, $6, $7, $8, $9)
         RETURNING pk",
    )
    .bind(id.0)
    .bind(turn.key.thread.0)
    .bind(turn.key.owner.0)
    .bind(role_name(role))
    .bind(turn.execution.0)
    .bind(status)
    .bind(content)
    .bind(turn.at)
    .bind(signed(revision))
    .fetch_one(&mut *c)
    .await?;
    Ok(row.try_get("pk")?)
}

async fn insert_attachment(c: &mut PgConnection, message_pk: i64, attachment: &Attachment) -> Result<()> {
    sqlx::query("INSERT INTO attachments (id, message_pk, name, media_type, data) VALUES ($1, $2, $3, $4, $5)")
        .bind(attachment.id)
        .bind(message_pk)
        .bind(without_nul(&attachment.name))
        .bind(without_nul(&attachment.media_type))
        .bind(&attachment.data[..])
        .execute(&mut *c)
        .await?;
    Ok(())
}

fn attachment(row: &PgRow) -> Result<Attachment> {
    Ok(Attachment {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        media_type: row.try_get("media_type")?,
        data: row.try_get::<Vec<u8>, _>("data")?.into(),
    })
}

/// Begins an execution in the name of a process that still has its row in `processes`, and keeps that row until the transaction ends.
async fn insert_execution(
    c: &mut PgConnection,
    execution: ExecutionId,
    thread: ThreadId,
    message_pk: i64,
    user: UserId,
    process: ProcessId,
    at: Millis,
) -> Result<()> {
    let done = sqlx::query(
        "INSERT INTO executions (id, thread_id, message_pk, user_id, process_id, status, started_at)
         SELECT $1, $2, $3, $4, id, 'running', $6 FROM processes WHERE id = $5 FOR KEY SHARE",
    )
    .bind(execution.0)
    .bind(thread.0)
    .bind(message_pk)
    .bind(user.0)
    .bind(process.0)
    .bind(at)
    .execute(&mut *c)
    .await?;
    if done.rows_affected() == 0 { Err(StoreError::ClaimLost) } else { Ok(()) }
}

async fn admit_resume(c: &mut PgConnection, resume: &NewResume, in_doubt: bool) -> Result<ResumeAdmission> {
    lock_user(c, resume.owner).await?;
    let Some(turn) = lock_turn(c, &resume.project, &resume.agent, resume.owner, resume.run).await? else {
        return Ok(ResumeAdmission::NotFound);
    };
    if in_doubt && let Some(revision) = begun_before(c, resume.execution).await? {
        let message = question_of(c, &turn, resume.run).await?;
        return Ok(ResumeAdmission::Accepted { thread: turn.thread, message, revision });
    }
    let tool_call_id = without_nul(&resume.tool_call_id);
    let suspension = sqlx::query("SELECT state, data FROM suspensions WHERE message_pk = $1 AND tool_call_id = $2")
        .bind(turn.message_pk)
        .bind(&*tool_call_id)
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
    if running_turns(c, resume.owner).await? >= i64::from(resume.max_running) {
        return Ok(ResumeAdmission::TooManyTurns);
    }

    sqlx::query("UPDATE suspensions SET state = 'answered', answer = $3 WHERE message_pk = $1 AND tool_call_id = $2")
        .bind(turn.message_pk)
        .bind(&*tool_call_id)
        .bind(to_json(&resume.answer)?)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE executions SET status = 'resumed', ended_at = $2 WHERE thread_id = $1 AND status = 'suspended'")
        .bind(turn.thread.0)
        .bind(resume.at)
        .execute(&mut *c)
        .await?;
    insert_execution(c, resume.execution, turn.thread, turn.message_pk, resume.owner, resume.process, resume.at).await?;
    let revision = raise_revision(c, turn.thread, Some(resume.at)).await?;
    sqlx::query("UPDATE messages SET status = 'running', execution_id = $2, revision = $3 WHERE pk = $1")
        .bind(turn.message_pk)
        .bind(resume.execution.0)
        .bind(signed(revision))
        .execute(&mut *c)
        .await?;
    let message = question_of(c, &turn, resume.run).await?;
    Ok(ResumeAdmission::Accepted { thread: turn.thread, message, revision })
}

/// The message that started a turn.
async fn question_of(c: &mut PgConnection, turn: &Turn, run: RunId) -> Result<MessageId> {
    let message: Option<(Uuid,)> = sqlx::query_as(
        "SELECT id FROM messages WHERE thread_id = $1 AND role = 'user'
           AND position < (SELECT position FROM messages WHERE pk = $2)
         ORDER BY position DESC LIMIT 1",
    )
    .bind(turn.thread.0)
    .bind(turn.message_pk)
    .fetch_optional(&mut *c)
    .await?;
    // A turn that nobody typed has no message that started it: its own id stands in.
    Ok(message.map_or_else(|| run.into(), |(id,)| id.into()))
}

/// The revision of an execution's thread, where the transaction that began it was committed before and only its answer was lost.
async fn begun_before(c: &mut PgConnection, execution: ExecutionId) -> Result<Option<u64>> {
    let row = sqlx::query("SELECT t.revision FROM executions e JOIN threads t ON t.id = e.thread_id WHERE e.id = $1")
        .bind(execution.0)
        .fetch_optional(c)
        .await?;
    row.map(|row| unsigned(&row, "revision")).transpose()
}

/// A flush that takes effect.
struct LiveFlush<'f> {
    flush: &'f Flush,
    message_pk: i64,
    cancel_requested: bool,
    revision: u64,
    end: Option<&'f End>,
}

async fn flush(c: &mut PgConnection, flushes: &[Flush]) -> Result<Vec<FlushOutcome>> {
    // Statements work on sets (arrays), so that their number does not grow with the number of turns in the group.
    let threads: Vec<Uuid> = flushes.iter().map(|f| f.key.thread.0).collect();
    sqlx::query("SELECT id FROM threads WHERE id = ANY($1) ORDER BY id FOR UPDATE").bind(&threads).execute(&mut *c).await?;
    let executions: Vec<Uuid> = flushes.iter().map(|f| f.execution.0).collect();
    let processes: Vec<Uuid> = flushes.iter().map(|f| f.process.0).collect();
    let survivors: Vec<bool> = flushes.iter().map(|f| f.by_survivor).collect();
    // Whoever recovers a process forgets it first, which waits for transactions that hold its row; later ones find none.
    let rows: Vec<(i64, i64, bool)> = sqlx::query_as(
        "SELECT f.slot, e.message_pk, e.cancel_requested
         FROM unnest($1::uuid[], $2::uuid[], $3::bool[]) WITH ORDINALITY AS f (execution, process, by_survivor, slot)
         JOIN executions e ON e.id = f.execution AND e.process_id = f.process
         WHERE e.status = 'running'
           AND (f.by_survivor OR EXISTS (SELECT 1 FROM processes p WHERE p.id = f.process FOR KEY SHARE))",
    )
    .bind(&executions)
    .bind(&processes)
    .bind(&survivors)
    .fetch_all(&mut *c)
    .await?;
    let owned = rows
        .into_iter()
        .map(|(slot, message_pk, cancel_requested)| {
            let slot = usize::try_from(slot - 1).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            Ok((slot, (message_pk, cancel_requested)))
        })
        .collect::<Result<HashMap<_, _>>>()?;

    let threads: Vec<Uuid> = owned.keys().map(|&slot| flushes[slot].key.thread.0).collect();
    let rows = sqlx::query("UPDATE threads SET revision = revision + 1 WHERE id = ANY($1) RETURNING id, revision")
        .bind(&threads)
        .fetch_all(&mut *c)
        .await?;
    let revisions = rows
        .iter()
        .map(|row| Ok((row.try_get::<Uuid, _>("id")?.into(), unsigned(row, "revision")?)))
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
    for live in live.iter().flatten() {
        if let Some(end) = live.end {
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

/// Columns of one upsert.
#[derive(Default)]
struct PartRows<'f> {
    messages: Vec<i64>,
    parts: Vec<i64>,
    segments: Vec<i64>,
    texts: Vec<&'f str>,
}

async fn write_parts(c: &mut PgConnection, live: &[Option<LiveFlush<'_>>]) -> Result<()> {
    let (mut stamped, mut revisions) = (Vec::new(), Vec::new());
    let (mut data, mut segments) = (PartRows::default(), PartRows::default());
    for live in live.iter().flatten() {
        stamped.push(live.message_pk);
        revisions.push(signed(live.revision));
        if live.end.is_some_and(|end| end.content.is_some()) {
            // The end of a message replaces its parts by its content: rows written for it would be deleted at once.
            continue;
        }
        for part in &live.flush.parts {
            let index = i64::try_from(part.index).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            if let Some(json) = &part.data {
                data.messages.push(live.message_pk);
                data.parts.push(index);
                data.texts.push(json);
            }
            if let Some((segment, text)) = &part.segment {
                segments.messages.push(live.message_pk);
                segments.parts.push(index);
                segments.segments.push(i64::from(*segment));
                segments.texts.push(text);
            }
        }
    }
    if stamped.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "UPDATE messages SET revision = s.revision FROM unnest($1::bigint[], $2::bigint[]) AS s (pk, revision)
         WHERE messages.pk = s.pk",
    )
    .bind(&stamped)
    .bind(&revisions)
    .execute(&mut *c)
    .await?;
    if !data.texts.is_empty() {
        sqlx::query(
            "INSERT INTO parts (message_pk, part_index, data) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])
             ON CONFLICT (message_pk, part_index) DO UPDATE SET data = excluded.data",
        )
        .bind(&data.messages)
        .bind(&data.parts)
        .bind(&data.texts)
        .execute(&mut *c)
        .await?;
    }
    if !segments.texts.is_empty() {
        sqlx::query(
            "INSERT INTO segments (message_pk, part_index, segment_index, text)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])
             ON CONFLICT (message_pk, part_index, segment_index) DO UPDATE SET text = excluded.text",
        )
        .bind(&segments.messages)
        .bind(&segments.parts)
        .bind(&segments.segments)
        .bind(&segments.texts)
        .execute(&mut *c)
        .await?;
    }
    Ok(())
}

async fn write_end(c: &mut PgConnection, live: &LiveFlush<'_>, end: &End) -> Result<()> {
    sqlx::query("UPDATE executions SET status = $2, ended_at = $3 WHERE id = $1")
        .bind(live.flush.execution.0)
        .bind(end.status.as_str())
        .bind(end.at)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE threads SET updated_at = $2 WHERE id = $1")
        .bind(live.flush.key.thread.0)
        .bind(end.at)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE messages SET status = $2, error = $3, content = $4 WHERE pk = $1")
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
             VALUES ($1, $2, $3, 'open', $4, (SELECT COUNT(*) FROM suspensions WHERE message_pk = $1))
             ON CONFLICT DO NOTHING",
        )
        .bind(live.message_pk)
        .bind(without_nul(&suspension.tool_call_id))
        .bind(live.flush.key.thread.0)
        .bind(to_json(suspension)?)
        .execute(&mut *c)
        .await?;
    }
    Ok(())
}

async fn drop_parts(c: &mut PgConnection, message_pk: i64) -> Result<()> {
    sqlx::query("DELETE FROM segments WHERE message_pk = $1").bind(message_pk).execute(&mut *c).await?;
    sqlx::query("DELETE FROM parts WHERE message_pk = $1").bind(message_pk).execute(&mut *c).await?;
    Ok(())
}

async fn close_suspensions(c: &mut PgConnection, message_pk: i64) -> Result<()> {
    sqlx::query("UPDATE suspensions SET state = 'cancelled' WHERE message_pk = $1 AND state = 'open'")
        .bind(message_pk)
        .execute(&mut *c)
        .await?;
    Ok(())
}

async fn request_stop(c: &mut PgConnection, key: &ThreadKey, execution: ExecutionId, at: Millis) -> Result<StopOutcome> {
    if lock_thread(c, key).await?.is_none() {
        return Ok(StopOutcome::NotFound);
    }
    let row = sqlx::query("SELECT status, message_pk FROM executions WHERE id = $1 AND thread_id = $2")
        .bind(execution.0)
        .bind(key.thread.0)
        .fetch_optional(&mut *c)
        .await?;
    let Some(row) = row else { return Ok(StopOutcome::NotFound) };
    match row.try_get::<&str, _>("status")? {
        "running" => {
            sqlx::query("UPDATE executions SET cancel_requested = TRUE WHERE id = $1").bind(execution.0).execute(&mut *c).await?;
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
    c: &mut PgConnection,
    project: &Slug,
    agent: &Slug,
    owner: UserId,
    run: RunId,
    at: Millis,
) -> Result<RunCancelOutcome> {
    let Some(turn) = lock_turn(c, project, agent, owner, run).await? else { return Ok(RunCancelOutcome::NotFound) };
    let execution: Option<(Uuid,)> = sqlx::query_as("SELECT id FROM executions WHERE message_pk = $1 AND status = 'suspended'")
        .bind(turn.message_pk)
        .fetch_optional(&mut *c)
        .await?;
    let Some((execution,)) = execution else { return Ok(RunCancelOutcome::NotSuspended) };
    let revision = end_suspended(c, turn.thread, turn.message_pk, None, at).await?;
    Ok(RunCancelOutcome::Cancelled { thread: turn.thread, execution: execution.into(), revision })
}

async fn expire_suspended(c: &mut PgConnection, before: Millis, error: &ExecutionError, at: Millis) -> Result<Vec<Expired>> {
    // The first condition is that of the index of open turns, which is short whatever the table holds.
    let waiting: Vec<(Uuid,)> = sqlx::query_as(
        "SELECT id FROM threads WHERE id IN
           (SELECT thread_id FROM executions
            WHERE status IN ('running', 'suspended') AND status = 'suspended' AND ended_at < $1)
         ORDER BY id FOR UPDATE",
    )
    .bind(before)
    .fetch_all(&mut *c)
    .await?;
    let threads: Vec<Uuid> = waiting.into_iter().map(|(id,)| id).collect();
    // Looked at again under the lock: an answer may have come first.
    let rows = sqlx::query(
        "SELECT e.id, e.message_pk, t.id AS thread_id, t.project_id, t.agent_id, t.owner_id
         FROM executions e JOIN threads t ON t.id = e.thread_id
         WHERE e.thread_id = ANY($1) AND e.status = 'suspended' AND e.ended_at < $2",
    )
    .bind(threads)
    .bind(before)
    .fetch_all(&mut *c)
    .await?;
    let mut expired = Vec::with_capacity(rows.len());
    for row in &rows {
        let key = thread_key(row)?;
        let revision = end_suspended(c, key.thread, row.try_get("message_pk")?, Some(error), at).await?;
        expired.push(Expired { key, execution: row.try_get::<Uuid, _>("id")?.into(), revision });
    }
    Ok(expired)
}

/// Ends the suspended turn of a message as `cancelled`.
async fn end_suspended(
    c: &mut PgConnection,
    thread: ThreadId,
    message_pk: i64,
    error: Option<&ExecutionError>,
    at: Millis,
) -> Result<u64> {
    let parts = timeline::closed(open_parts(c, message_pk).await?, ExecutionStatus::Cancelled, at);
    let revision = raise_revision(c, thread, Some(at)).await?;
    sqlx::query("UPDATE executions SET status = 'cancelled', ended_at = $2 WHERE message_pk = $1 AND status = 'suspended'")
        .bind(message_pk)
        .bind(at)
        .execute(&mut *c)
        .await?;
    sqlx::query("UPDATE messages SET status = 'cancelled', content = $2, revision = $3, error = $4 WHERE pk = $1")
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

async fn delete_thread(c: &mut PgConnection, key: &ThreadKey) -> Result<DeleteOutcome> {
    let Some(revision) = lock_thread(c, key).await? else { return Ok(DeleteOutcome::NotFound) };
    if let Some((active, ExecutionStatus::Running)) = open_execution(c, key.thread).await? {
        return Ok(DeleteOutcome::TurnRunning { active });
    }
    for statement in [
        "INSERT INTO deleted_threads (id) VALUES ($1)",
        "INSERT INTO deleted_messages (owner_id, id, execution_id)
         SELECT owner_id, id, execution_id FROM messages WHERE thread_id = $1 AND role = 'user' AND execution_id IS NOT NULL",
        "DELETE FROM threads WHERE id = $1",
    ] {
        sqlx::query(statement).bind(key.thread.0).execute(&mut *c).await?;
    }
    Ok(DeleteOutcome::Deleted { revision: revision + 1 })
}

async fn orphans(c: &mut PgConnection, process: ProcessId) -> Result<Vec<Orphan>> {
    let rows = sqlx::query(
        "SELECT e.id, e.message_pk, e.cancel_requested, m.id AS message_id, m.continuations,
                t.id AS thread_id, t.project_id, t.agent_id, t.owner_id
         FROM executions e JOIN threads t ON t.id = e.thread_id JOIN messages m ON m.pk = e.message_pk
         WHERE e.status = 'running' AND e.process_id = $1 ORDER BY e.id",
    )
    .bind(process.0)
    .fetch_all(&mut *c)
    .await?;
    let mut orphans = Vec::with_capacity(rows.len());
    for row in rows {
        let message_pk = row.try_get("message_pk")?;
        let answers = sqlx::query("SELECT tool_call_id, answer FROM suspensions WHERE message_pk = $1 AND state = 'answered'")
            .bind(message_pk)
            .fetch_all(&mut *c)
            .await?;
        orphans.push(Orphan {
            execution: row.try_get::<Uuid, _>("id")?.into(),
            key: thread_key(&row)?,
            process,
            cancel_requested: row.try_get("cancel_requested")?,
            message: row.try_get::<Uuid, _>("message_id")?.into(),
            continuations: u32::try_from(row.try_get::<i64, _>("continuations")?)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?,
            answers: answers
                .iter()
                .map(|row| Ok((row.try_get("tool_call_id")?, from_json(row.try_get("answer")?)?)))
                .collect::<Result<_>>()?,
            parts: open_parts(c, message_pk).await?,
        });
    }
    Ok(orphans)
}

async fn continue_orphan(c: &mut PgConnection, continuation: &Continuation, in_doubt: bool) -> Result<ContinueOutcome> {
    let Continuation { orphan, dead, key, execution, process, at } = continuation;
    if lock_thread(c, key).await?.is_none() {
        return Ok(ContinueOutcome::Fenced);
    }
    if in_doubt && let Some(revision) = begun_before(c, *execution).await? {
        return Ok(ContinueOutcome::Continued { revision });
    }
    let row: Option<(i64, bool, Uuid)> = sqlx::query_as(
        "SELECT message_pk, cancel_requested, user_id FROM executions WHERE id = $1 AND process_id = $2 AND status = 'running'",
    )
    .bind(orphan.0)
    .bind(dead.0)
    .fetch_optional(&mut *c)
    .await?;
    let Some((message_pk, cancel_requested, user)) = row else { return Ok(ContinueOutcome::Fenced) };
    if cancel_requested {
        return Ok(ContinueOutcome::StopRequested);
    }
    sqlx::query("UPDATE executions SET status = 'continued', ended_at = $2 WHERE id = $1")
        .bind(orphan.0)
        .bind(at)
        .execute(&mut *c)
        .await?;
    insert_execution(c, *execution, key.thread, message_pk, user.into(), *process, *at).await?;
    let revision = raise_revision(c, key.thread, None).await?;
    sqlx::query("UPDATE messages SET execution_id = $2, revision = $3, continuations = continuations + 1 WHERE pk = $1")
        .bind(message_pk)
        .bind(execution.0)
        .bind(signed(revision))
        .execute(&mut *c)
        .await?;
    Ok(ContinueOutcome::Continued { revision })
}

async fn snapshot(c: &mut PgConnection, key: &ThreadKey, since: Option<u64>) -> Result<Option<Snapshot>> {
    let thread = of_thread(
        "SELECT t.revision, e.id AS active FROM threads t
         LEFT JOIN executions e ON e.thread_id = t.id AND e.status = 'running'
         WHERE t.id = $1 AND t.owner_id = $2 AND t.project_id = $3 AND t.agent_id = $4",
        key,
    )
    .fetch_optional(&mut *c)
    .await?;
    let Some(thread) = thread else { return Ok(None) };
    let rows = sqlx::query(
        "SELECT pk, id, role, execution_id, status, error, content, created_at, revision
         FROM messages WHERE thread_id = $1 AND revision > $2 ORDER BY position",
    )
    .bind(key.thread.0)
    .bind(signed(since.unwrap_or(0)))
    .fetch_all(&mut *c)
    .await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        messages.push(recorded_message(c, row).await?);
    }
    let suspensions = sqlx::query(
        "SELECT data FROM suspensions WHERE thread_id = $1 AND state = 'open' ORDER BY message_pk, position, tool_call_id COLLATE \"C\"",
    )
    .bind(key.thread.0)
    .fetch_all(&mut *c)
    .await?;
    Ok(Some(Snapshot {
        revision: unsigned(&thread, "revision")?,
        active: thread.try_get::<Option<Uuid>, _>("active")?.map(Into::into),
        suspensions: suspensions.iter().map(|row| from_json(row.try_get("data")?)).collect::<Result<_>>()?,
        messages,
    }))
}

async fn turn_input(c: &mut PgConnection, thread: ThreadId, message: MessageId) -> Result<(Vec<Message>, Vec<Part>)> {
    let rows = sqlx::query(
        "SELECT pk, id, role, execution_id, status, error, content, created_at, revision FROM messages
         WHERE thread_id = $1 AND position <= (SELECT position FROM messages WHERE thread_id = $1 AND id = $2)
         ORDER BY position",
    )
    .bind(thread.0)
    .bind(message.0)
    .fetch_all(&mut *c)
    .await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        messages.push(recorded_message(c, row).await?.parse()?);
    }
    let own = messages.pop().ok_or_else(|| StoreError::Corrupt(format!("message {message} is not in thread {thread}")))?;
    Ok((messages, own.content))
}

async fn recorded_message(c: &mut PgConnection, row: &PgRow) -> Result<RecordedMessage> {
    let content = match row.try_get::<Option<String>, _>("content")? {
        Some(json) => RawValue::from_string(json),
        None => serde_json::value::to_raw_value(&open_parts(c, row.try_get("pk")?).await?),
    };
    Ok(RecordedMessage {
        id: row.try_get::<Uuid, _>("id")?.into(),
        role: rows::role(row.try_get("role")?),
        content: content.map_err(|error| StoreError::Corrupt(error.to_string()))?,
        execution: row.try_get::<Option<Uuid>, _>("execution_id")?.map(Into::into),
        status: rows::status(row.try_get("status")?)?,
        error: row.try_get::<Option<&str>, _>("error")?.map(from_json).transpose()?,
        created_at: row.try_get("created_at")?,
        revision: unsigned(row, "revision")?,
    })
}

/// The parts of a message that is still written to.
async fn open_parts(c: &mut PgConnection, message_pk: i64) -> Result<Vec<Part>> {
    let parts: Vec<(i64, String)> =
        sqlx::query_as("SELECT part_index, data FROM parts WHERE message_pk = $1 ORDER BY part_index")
            .bind(message_pk)
            .fetch_all(&mut *c)
            .await?;
    let segments: Vec<(i64, String)> =
        sqlx::query_as("SELECT part_index, text FROM segments WHERE message_pk = $1 ORDER BY part_index, segment_index")
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

/// Finds a turn and locks its thread until the transaction ends.
async fn lock_turn(c: &mut PgConnection, project: &Slug, agent: &Slug, owner: UserId, run: RunId) -> Result<Option<Turn>> {
    let row: Option<(i64, Uuid)> = sqlx::query_as(
        "SELECT m.pk, t.id FROM messages m JOIN threads t ON t.id = m.thread_id
         WHERE m.owner_id = $1 AND m.id = $2 AND m.role = 'assistant'
           AND t.owner_id = $1 AND t.project_id = $3 AND t.agent_id = $4
         FOR UPDATE OF t",
    )
    .bind(owner.0)
    .bind(run.0)
    .bind(project.as_str())
    .bind(agent.as_str())
    .fetch_optional(&mut *c)
    .await?;
    Ok(row.map(|(message_pk, thread)| Turn { thread: thread.into(), message_pk }))
}

async fn open_execution(c: &mut PgConnection, thread: ThreadId) -> Result<Option<(ExecutionId, ExecutionStatus)>> {
    let row = sqlx::query("SELECT id, status FROM executions WHERE thread_id = $1 AND status IN ('running', 'suspended')")
        .bind(thread.0)
        .fetch_optional(&mut *c)
        .await?;
    row.map(|row| {
        let status = match row.try_get::<&str, _>("status")? {
            "suspended" => ExecutionStatus::Suspended,
            _ => ExecutionStatus::Running,
        };
        Ok((row.try_get::<Uuid, _>("id")?.into(), status))
    })
    .transpose()
}

async fn running_turns(c: &mut PgConnection, user: UserId) -> Result<i64> {
    let row = sqlx::query("SELECT COUNT(*) AS running FROM executions WHERE user_id = $1 AND status = 'running'")
        .bind(user.0)
        .fetch_one(&mut *c)
        .await?;
    Ok(row.try_get("running")?)
}

async fn raise_revision(c: &mut PgConnection, thread: ThreadId, updated_at: Option<Millis>) -> Result<u64> {
    let row = sqlx::query(
        "UPDATE threads SET revision = revision + 1, updated_at = COALESCE($2, updated_at) WHERE id = $1 RETURNING revision",
    )
    .bind(thread.0)
    .bind(updated_at)
    .fetch_one(&mut *c)
    .await?;
    unsigned(&row, "revision")
}

fn thread_key(row: &PgRow) -> Result<ThreadKey> {
    Ok(ThreadKey {
        project: slug(row, "project_id")?,
        agent: slug(row, "agent_id")?,
        thread: row.try_get::<Uuid, _>("thread_id")?.into(),
        owner: row.try_get::<Uuid, _>("owner_id")?.into(),
    })
}

fn thread_row(row: &PgRow) -> Result<ThreadRow> {
    Ok(ThreadRow {
        id: row.try_get::<Uuid, _>("id")?.into(),
        title: row.try_get("title")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        revision: unsigned(row, "revision")?,
        active: row.try_get::<Option<Uuid>, _>("active")?.map(Into::into),
        suspended: row.try_get("suspended")?,
    })
}

fn slug(row: &PgRow, column: &str) -> Result<Slug> {
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error| StoreError::Corrupt(format!("{column} {text:?}: {error}")))
}

fn unsigned(row: &PgRow, column: &str) -> Result<u64> {
    rows::unsigned(row.try_get(column)?, column)
}
