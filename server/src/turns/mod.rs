//! Turns: accepted, run, recorded, stopped, recovered. Knows nothing of HTTP and of SQL.
//!
//! An accepted turn belongs to a task of this module and to its row in the record, never to a connection.

mod execution;
mod guard;
pub mod live;
mod recordable;
pub mod recorder;
pub mod recovery;
pub mod registry;
pub mod writer;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;
use turnfast_shared::{
    Event, Message, Part,
    api::{AttachmentId, ExecutionUpdated},
    ids::{ExecutionId, MessageId, ProcessId, RunId, Slug, ThreadId, UserId},
    limits::TITLE_CHARS,
    message::{AnswerMismatch, ExecutionError, ResumeData},
};
use uuid::Uuid;

use self::{
    execution::Execution,
    live::{LiveSink, LiveStream},
    recorder::Recorder,
    registry::{Reason, Registered, Registry},
    writer::Writer,
};
use crate::{
    SPANS,
    agents::{Engine, TurnInput},
    clock,
    liveness::{Claim, ClaimError, Liveness},
    metrics::Metrics,
    relay::{Ears, Relay},
    store::{
        Store, StoreError,
        turns::{
            Admission, Attachment, DeleteOutcome, Expired, NewResume, NewTurn, ResumeAdmission, RunCancelOutcome, StopOutcome,
            ThreadChoice, ThreadKey,
        },
    },
    text,
};

/// How long executions that were told to end at shutdown get to record it.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How often suspended turns are looked through for those that have waited too long. The limit is in hours.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// Bytes of a thread's attachments that an engine gets to see, the newest first. They are sent with every step.
const ATTACHMENT_BYTES: u64 = 32 * 1024 * 1024;

/// Pause between attempts to read what an accepted execution starts from.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// A message that a person submits.
pub struct Submit {
    /// The thread; its id is fresh where the person named none.
    pub key: ThreadKey,
    /// Whether the thread may be new.
    pub choice: ThreadChoice,
    /// The message's id.
    pub message: MessageId,
    /// What the person typed. Blank only with attachments.
    pub text: String,
    /// Files that go with it.
    pub attachments: Vec<Attachment>,
    /// What answers it.
    pub engine: Arc<dyn Engine>,
}

/// An answer that a person gives to a suspended tool call.
pub struct Resume {
    /// The project.
    pub project: Slug,
    /// The agent.
    pub agent: Slug,
    /// Who answers.
    pub owner: UserId,
    /// The suspended turn.
    pub run: RunId,
    /// The call that is answered.
    pub tool_call_id: String,
    /// The answer.
    pub answer: ResumeData,
    /// What goes on.
    pub engine: Arc<dyn Engine>,
}

/// Why a submit, an answer or a deletion was refused. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The thread, turn or call is unknown, or someone else's.
    #[error("not found")]
    NotFound,
    /// The thread runs a turn.
    #[error("a turn is running")]
    TurnRunning {
        /// Its execution.
        active: ExecutionId,
    },
    /// The thread waits for an answer.
    #[error("the thread waits for an answer")]
    InteractionOpen,
    /// The question was answered, cancelled or expired before.
    #[error("the interaction is closed")]
    InteractionClosed,
    /// The message was accepted before.
    #[error("the message was accepted before")]
    AlreadyAccepted {
        /// The execution that it started.
        execution: ExecutionId,
    },
    /// The answer does not fit the question.
    #[error(transparent)]
    BadAnswer(#[from] AnswerMismatch),
    /// The user has as many turns running as allowed.
    #[error("too many turns are running")]
    TooManyTurns,
    /// The server takes no new turns.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gives the engine of an agent whose turns go on after the death of their process: `continue_interrupted` of its configuration.
pub type Continuable = Box<dyn Fn(&Slug, &Slug) -> Option<Arc<dyn Engine>> + Send + Sync>;

/// What turns are run with.
pub struct Parts {
    /// The record.
    pub store: Arc<dyn Store>,
    /// Who is told of changes.
    pub relay: Arc<Relay>,
    /// Who lives.
    pub liveness: Arc<dyn Liveness>,
    /// Which agents go on after a crash.
    pub continuable: Continuable,
    /// `max_running_turns_per_user`.
    pub max_running_per_user: u32,
    /// Where it is counted.
    pub metrics: Metrics,
}

/// The turns of this process.
pub struct Turns {
    store: Arc<dyn Store>,
    relay: Arc<Relay>,
    liveness: Arc<dyn Liveness>,
    continuable: Continuable,
    writer: Writer,
    registry: Arc<Registry>,
    /// Who this process is; `None` while it has lost its claim and has no new one yet, and after [`Turns::release`].
    claim: Mutex<Option<Claim>>,
    /// Executions, and admissions on their way to become some.
    tasks: TaskTracker,
    /// Cancelled when this process recovers nothing more.
    guarding: CancellationToken,
    draining: AtomicBool,
    max_running_per_user: u32,
    metrics: Metrics,
}

impl Turns {
    /// Claims a process id, recovers what dead processes left running, starts the writer, listens to other processes and watches
    /// over them. Serve requests only after it.
    ///
    /// # Errors
    /// Another process serves already and only one may, the locks cannot be used, or the database does not answer.
    pub async fn start(parts: Parts) -> Result<Arc<Self>, ClaimError> {
        let Parts { store, relay, liveness, continuable, max_running_per_user, metrics } = parts;
        let claim = liveness.claim().await?;
        let lost = claim.lost.clone();
        let turns = Arc::new(Self {
            writer: Writer::start(store.clone(), relay.clone(), metrics.clone()),
            store,
            relay,
            liveness,
            continuable,
            registry: Arc::default(),
            claim: Mutex::new(Some(claim)),
            tasks: TaskTracker::new(),
            guarding: CancellationToken::new(),
            draining: AtomicBool::new(false),
            max_running_per_user,
            metrics,
        });
        turns.relay.listen(turns.clone()).await?;
        turns.recover_the_dead().await?;
        turns.clone().guard(lost);
        Ok(turns)
    }

    /// Accepts a typed message and starts its turn. The stream's first event is `execution-started`.
    ///
    /// The caller may be dropped at any time: before the turn is accepted, none starts; from then on it runs to its end.
    ///
    /// # Errors
    /// [`Refused`]: the thread is as it was.
    pub async fn submit(self: &Arc<Self>, submit: Submit) -> Result<LiveStream, Refused> {
        self.accept(move |turns, answer| async move { turns.admit(submit, &answer).await }).await
    }

    /// Accepts an answer and goes on with its turn. The stream's first event is `execution-started`.
    ///
    /// # Errors
    /// [`Refused`]: the question is as it was, or closed before.
    pub async fn resume(self: &Arc<Self>, resume: Resume) -> Result<LiveStream, Refused> {
        self.accept(move |turns, answer| async move { turns.admit_resume(resume, &answer).await }).await
    }

    /// Runs an admission in a task of its own: the request's future may vanish at any await, an admission may not.
    async fn accept<W, F>(self: &Arc<Self>, work: W) -> Result<LiveStream, Refused>
    where
        W: FnOnce(Arc<Self>, oneshot::Sender<()>) -> F,
        F: Future<Output = Result<(Accepted, LiveStream), Refused>> + Send + 'static,
    {
        if self.is_draining() {
            return Err(Refused::ShuttingDown);
        }
        let (answer, _asker_is_there) = oneshot::channel::<()>();
        let admission = work(self.clone(), answer);
        let turns = self.clone();
        let task = self.tasks.spawn(async move {
            let (accepted, stream) = admission.await?;
            turns.tasks.spawn(accepted.run(turns.store.clone()));
            Ok(stream)
        });
        task.await.unwrap_or_else(|error| {
            if error.is_cancelled() {
                // The runtime is being taken down around it.
                return Err(Refused::ShuttingDown);
            }
            tracing::error!(%error, "an admission panicked");
            Err(Refused::Store(StoreError::Corrupt("the server failed while it accepted the turn".to_owned())))
        })
    }

    async fn admit(self: Arc<Self>, submit: Submit, asker: &oneshot::Sender<()>) -> Result<(Accepted, LiveStream), Refused> {
        if asker.is_closed() {
            return Err(Refused::ShuttingDown);
        }
        let execution = ExecutionId::from(Uuid::now_v7());
        let assistant_message = MessageId::from(Uuid::now_v7());
        let registered = self.registry.register(execution);
        let process = self.process()?;
        let admission = self
            .store
            .admit(NewTurn {
                key: submit.key.clone(),
                choice: submit.choice,
                title: title_of(&submit.text, &submit.attachments),
                message: submit.message,
                content: content_of(submit.text, &submit.attachments),
                attachments: submit.attachments,
                assistant_message,
                execution,
                process,
                max_running: self.max_running_per_user,
                at: clock::now(),
            })
            .await?;
        let revision = match admission {
            Admission::Accepted { revision } => revision,
            Admission::ThreadNotFound => return Err(Refused::NotFound),
            Admission::TurnRunning { active } => return Err(Refused::TurnRunning { active }),
            Admission::InteractionOpen => return Err(Refused::InteractionOpen),
            Admission::AlreadyAccepted { execution } => return Err(Refused::AlreadyAccepted { execution }),
            Admission::TooManyTurns => return Err(Refused::TooManyTurns),
        };
        tracing::info!(%execution, thread = %submit.key.thread, "turn accepted");
        notify(&self.relay, &submit.key, Some(execution), revision);
        let started = Started { key: submit.key, message: submit.message, assistant_message, answers: Vec::new() };
        Ok(self.started(execution, process, registered, started, submit.engine))
    }

    async fn admit_resume(
        self: Arc<Self>,
        resume: Resume,
        asker: &oneshot::Sender<()>,
    ) -> Result<(Accepted, LiveStream), Refused> {
        if asker.is_closed() {
            return Err(Refused::ShuttingDown);
        }
        let execution = ExecutionId::from(Uuid::now_v7());
        let registered = self.registry.register(execution);
        let process = self.process()?;
        let admission = self
            .store
            .admit_resume(NewResume {
                project: resume.project.clone(),
                agent: resume.agent.clone(),
                owner: resume.owner,
                run: resume.run,
                tool_call_id: resume.tool_call_id.clone(),
                answer: resume.answer.clone(),
                execution,
                process,
                max_running: self.max_running_per_user,
                at: clock::now(),
            })
            .await?;
        let (thread, message, revision) = match admission {
            ResumeAdmission::Accepted { thread, message, revision } => (thread, message, revision),
            ResumeAdmission::NotFound => return Err(Refused::NotFound),
            ResumeAdmission::Closed => return Err(Refused::InteractionClosed),
            ResumeAdmission::TurnRunning { active } => return Err(Refused::TurnRunning { active }),
            ResumeAdmission::Mismatch(mismatch) => return Err(mismatch.into()),
            ResumeAdmission::TooManyTurns => return Err(Refused::TooManyTurns),
        };
        let key = ThreadKey { project: resume.project, agent: resume.agent, thread, owner: resume.owner };
        tracing::info!(%execution, %thread, "turn resumed");
        notify(&self.relay, &key, Some(execution), revision);
        let answers = vec![(resume.tool_call_id, resume.answer)];
        let started = Started { key, message, assistant_message: resume.run.into(), answers };
        Ok(self.started(execution, process, registered, started, resume.engine))
    }

    fn started(
        self: &Arc<Self>,
        execution: ExecutionId,
        process: ProcessId,
        registered: Registered,
        started: Started,
        engine: Arc<dyn Engine>,
    ) -> (Accepted, LiveStream) {
        let (mut live, stream) = live::channel(execution);
        live.send(&Event::ExecutionStarted {
            execution_id: execution,
            session_id: started.key.thread,
            message_id: started.message,
            assistant_message_id: started.assistant_message,
        });
        let accepted = Accepted { execution, process, started, engine, live, registered, writer: self.writer.clone() };
        (accepted, stream)
    }

    fn claim_slot(&self) -> MutexGuard<'_, Option<Claim>> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who this process is.
    fn process(&self) -> Result<ProcessId, StoreError> {
        self.claim_slot().as_ref().map(|claim| claim.process).ok_or(StoreError::ClaimLost)
    }

    /// Asks an execution to stop. `Some(true)`: it ran, and the wish is recorded; `Some(false)`: it had ended; `None`: not found.
    ///
    /// # Errors
    /// The database does not answer; nothing was asked for.
    pub async fn stop(&self, key: &ThreadKey, execution: ExecutionId) -> Result<Option<bool>, StoreError> {
        Ok(match self.store.request_stop(key, execution, clock::now()).await? {
            StopOutcome::NotFound => None,
            StopOutcome::AlreadyEnded => Some(false),
            StopOutcome::Requested => {
                if !self.registry.cancel(execution, Reason::Stop) {
                    self.relay.cancel(execution);
                }
                Some(true)
            }
            StopOutcome::SuspensionEnded { revision } => {
                notify(&self.relay, key, Some(execution), revision);
                Some(true)
            }
        })
    }

    /// Cancels a suspended turn. `Some(false)`: it did not wait for anyone; `None`: not found.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn cancel_run(&self, project: &Slug, agent: &Slug, owner: UserId, run: RunId) -> Result<Option<bool>, StoreError> {
        Ok(match self.store.cancel_run(project, agent, owner, run, clock::now()).await? {
            RunCancelOutcome::NotFound => None,
            RunCancelOutcome::NotSuspended => Some(false),
            RunCancelOutcome::Cancelled { thread, execution, revision } => {
                let key = ThreadKey { project: project.clone(), agent: agent.clone(), thread, owner };
                notify(&self.relay, &key, Some(execution), revision);
                Some(true)
            }
        })
    }

    /// Ends what has waited for a person for longer than `limit`, now and from then on. Never returns.
    pub async fn expire_suspensions(&self, limit: Duration) {
        let mut ticks = tokio::time::interval(EXPIRE_EVERY);
        loop {
            ticks.tick().await;
            if let Err(error) = self.expire_suspended(limit).await {
                tracing::warn!(%error, "what has waited too long could not be ended; trying again");
            }
        }
    }

    async fn expire_suspended(&self, limit: Duration) -> Result<(), StoreError> {
        let now = clock::now();
        let before = now.saturating_sub(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        let error = ExecutionError {
            message: "Nobody answered in time, so this turn was ended. Send a new message to go on.".to_owned(),
            error_code: Some("interaction_expired".to_owned()),
        };
        for Expired { key, execution, revision } in self.store.expire_suspended(before, &error, now).await? {
            tracing::info!(%execution, thread = %key.thread, "ended a turn that nobody answered");
            notify(&self.relay, &key, Some(execution), revision);
        }
        Ok(())
    }

    /// Renames a thread; `false`: not found.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn rename_thread(&self, key: &ThreadKey, title: String) -> Result<bool, StoreError> {
        let Some(revision) = self.store.rename_thread(key, title).await? else { return Ok(false) };
        notify(&self.relay, key, None, revision);
        Ok(true)
    }

    /// Deletes a thread that runs nothing.
    ///
    /// # Errors
    /// [`Refused::NotFound`], [`Refused::TurnRunning`], or the database does not answer.
    pub async fn delete_thread(&self, key: &ThreadKey) -> Result<(), Refused> {
        match self.store.delete_thread(key).await? {
            DeleteOutcome::NotFound => Err(Refused::NotFound),
            DeleteOutcome::TurnRunning { active } => Err(Refused::TurnRunning { active }),
            DeleteOutcome::Deleted { revision } => {
                notify(&self.relay, key, None, revision);
                Ok(())
            }
        }
    }

    /// How many executions run here.
    pub fn running(&self) -> usize {
        self.registry.len()
    }

    /// Whether new turns are refused because the server goes down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// From now on new turns are refused; those that run go on.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
        self.guarding.cancel();
        self.tasks.close();
    }

    /// Waits until all turns have ended, or until `deadline`; those that still run then end `interrupted`.
    pub async fn drain(&self, deadline: impl Future<Output = ()>) {
        self.start_draining();
        tokio::select! {
            () = self.tasks.wait() => return,
            () = deadline => {}
        }
        tracing::warn!(running = self.registry.len(), "ending what still runs");
        self.registry.cancel_all(Reason::Shutdown);
        if tokio::time::timeout(LAST_WORDS, self.tasks.wait()).await.is_err() {
            tracing::error!("some turns could not record their end; the next start marks them interrupted");
        }
    }

    /// Gives the process's claim up. Only after [`Turns::drain`].
    pub async fn release(&self) {
        self.guarding.cancel();
        let claim = self.claim_slot().take();
        if let Some(claim) = claim {
            self.liveness.release(claim).await;
        }
    }
}

#[async_trait]
impl Ears for Turns {
    fn cancel(&self, execution: ExecutionId) {
        self.registry.cancel(execution, Reason::Stop);
    }

    async fn look_for_wishes(&self) {
        loop {
            match self.store.stop_wishes(self.registry.running()).await {
                Ok(wishes) => {
                    for execution in wishes {
                        self.registry.cancel(execution, Reason::Stop);
                    }
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, "requests to stop cannot be looked up yet; trying again");
                    tokio::time::sleep(READ_AGAIN).await;
                }
            }
        }
    }
}

/// What an accepted execution answers.
struct Started {
    key: ThreadKey,
    message: MessageId,
    assistant_message: MessageId,
    answers: Vec<(String, ResumeData)>,
}

/// An execution whose row is committed.
struct Accepted {
    execution: ExecutionId,
    process: ProcessId,
    started: Started,
    engine: Arc<dyn Engine>,
    live: LiveSink,
    registered: Registered,
    writer: Writer,
}

impl Accepted {
    async fn run(self, store: Arc<dyn Store>) {
        let Started { key, assistant_message, answers, .. } = self.started;
        let run = RunId::from(assistant_message);
        let (history, so_far) = loop {
            match store.turn_input(key.thread, assistant_message).await {
                Ok(input) => break input,
                Err(StoreError::Corrupt(error)) => {
                    tracing::error!(execution = %self.execution, error, "the thread cannot be read; ending the execution");
                    let failure = ExecutionError {
                        message: "The record of this conversation cannot be read. The server's log says more; begin a new one."
                            .to_owned(),
                        error_code: Some("internal".to_owned()),
                    };
                    let execution = Execution {
                        id: self.execution,
                        process: self.process,
                        key,
                        run,
                        live: self.live,
                        registered: self.registered,
                        recorder: Recorder::new(Vec::new()),
                        writer: self.writer,
                        untold: Vec::new(),
                        newly_suspended: Vec::new(),
                    };
                    return execution.end_unread(failure).await;
                }
                Err(error) => {
                    // Accepted is accepted: it waits for the database, as every later step does.
                    tracing::warn!(execution = %self.execution, %error, "the thread cannot be read yet; trying again");
                    tokio::time::sleep(READ_AGAIN).await;
                }
            }
        };
        let attachments =
            if self.engine.reads_attachments() { read_attachments(&*store, key.thread, &history).await } else { HashMap::new() };
        let span = tracing::debug_span!(
            target: SPANS, "turn", project = %key.project, agent = %key.agent, thread = %key.thread, execution = %self.execution
        );
        let engine = self.engine.start(TurnInput {
            project: key.project.clone(),
            agent: key.agent.clone(),
            thread: key.thread,
            run,
            execution: self.execution,
            history,
            attachments,
            so_far: so_far.clone(),
            answers,
        });
        let execution = Execution {
            id: self.execution,
            process: self.process,
            key,
            run,
            live: self.live,
            registered: self.registered,
            recorder: Recorder::new(so_far),
            writer: self.writer,
            untold: Vec::new(),
            newly_suspended: Vec::new(),
        };
        execution.run(engine).instrument(span).await;
    }
}

fn notify(relay: &Relay, key: &ThreadKey, execution: Option<ExecutionId>, revision: u64) {
    relay.updated(
        key.owner,
        &ExecutionUpdated {
            project_id: key.project.clone(),
            agent_id: key.agent.clone(),
            thread_id: key.thread,
            execution_id: execution,
            revision,
        },
    );
}

/// The bytes of the thread's newest files, as many as [`ATTACHMENT_BYTES`] hold. Where they cannot be read the turn goes on with
/// their names.
async fn read_attachments(store: &dyn Store, thread: ThreadId, history: &[Message]) -> HashMap<AttachmentId, Bytes> {
    let mut room = ATTACHMENT_BYTES;
    let files = history.iter().rev().flat_map(|message| message.content.iter().rev());
    let ids: Vec<_> = files
        .filter_map(|part| match part {
            Part::File { id, size, .. } => Some((*id, *size)),
            _ => None,
        })
        .map_while(|(id, size)| {
            room = room.checked_sub(size)?;
            Some(id)
        })
        .collect();
    if ids.is_empty() {
        return HashMap::new();
    }
    match store.attachments(thread, &ids).await {
        Ok(found) => found.into_iter().map(|attachment| (attachment.id, attachment.data)).collect(),
        Err(error) => {
            tracing::warn!(%thread, %error, "the attachments cannot be read; the agent gets their names");
            HashMap::new()
        }
    }
}

/// What a person sent, as parts.
fn content_of(text: String, attachments: &[Attachment]) -> Vec<Part> {
    let said = (attachments.is_empty() || !text::is_blank(&text)).then_some(Part::Text { text });
    let files = attachments.iter().map(|attachment| Part::File {
        id: attachment.id,
        name: attachment.name.clone(),
        media_type: attachment.media_type.clone(),
        size: attachment.data.len() as u64,
    });
    said.into_iter().chain(files).collect()
}

/// A new thread's title: the first line of its first message that says anything, or the name of what was sent without words.
fn title_of(text: &str, attachments: &[Attachment]) -> String {
    let file = attachments.first().map(|attachment| attachment.name.as_str());
    let line = text.lines().find(|line| !text::is_blank(line)).or(file).unwrap_or("New conversation");
    let line = line.replace(char::is_control, " ");
    let line = line.trim();
    if line.chars().count() <= TITLE_CHARS {
        return line.to_owned();
    }
    let end = line.char_indices().nth(TITLE_CHARS - 1).map_or(line.len(), |(end, _)| end);
    format!("{}…", line[..end].trim_end())
}

/// An id for a file that a person attaches.
#[must_use]
pub fn new_attachment_id() -> AttachmentId {
    Uuid::now_v7()
}

/// A thread id for a conversation that begins.
#[must_use]
pub fn new_thread_id() -> ThreadId {
    Uuid::now_v7().into()
}

/// A message id for a submit that names none.
#[must_use]
pub fn new_message_id() -> MessageId {
    Uuid::now_v7().into()
}

#[cfg(test)]
mod tests;
