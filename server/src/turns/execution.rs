//! One running of an agent: polls the engine, sends what it says to the live stream, records it, and brings it to its end.
//!
//! It runs in a task of its own that no connection owns. It ends in exactly one of these ways, each recorded before the live stream
//! says so: the engine's stream ends (`success`, or `suspended`), the engine fails (`error`), a Stop (`cancelled`), the server's
//! shutdown (`interrupted`); or it is fenced, or its process lost its claim, and then it writes nothing more.

use std::{panic::AssertUnwindSafe, pin::Pin, sync::LazyLock, time::Duration};

use futures::StreamExt;
use tokio::time::{Instant, Sleep, sleep_until};
use turnfast_shared::{
    Event, ExecutionStatus,
    event::Suspension,
    ids::{ExecutionId, ProcessId, RunId},
    limits::RECORD_WITHIN_MS,
    message::ExecutionError,
};

use super::{
    live::LiveSink,
    recordable,
    recorder::Recorder,
    registry::{Reason, Registered},
    writer::{Pending, Unwritten, Writer},
};
use crate::{
    agents::{EventStream, TurnError},
    clock,
    store::{
        StoreError,
        turns::{End, Flush, FlushOutcome, ThreadKey},
    },
};

/// Open text is flushed on a grid that all executions share, so that their flushes fall into the same transactions. A delta waits
/// for one to two steps of it, which leaves the rest of [`RECORD_WITHIN_MS`] for the commit.
const GRID: Duration = Duration::from_millis(RECORD_WITHIN_MS * 2 / 5);
/// Pauses between attempts to write while the database does not answer.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// An accepted execution.
pub(super) struct Execution {
    pub(super) id: ExecutionId,
    pub(super) process: ProcessId,
    pub(super) key: ThreadKey,
    pub(super) run: RunId,
    pub(super) live: LiveSink,
    pub(super) registered: Registered,
    pub(super) recorder: Recorder,
    pub(super) writer: Writer,
    /// Suspensions that nobody was told of yet: whoever answers one, or loses the server, must find it in the record.
    pub(super) untold: Vec<Event>,
    /// Those calls of them that did not wait before this execution.
    pub(super) newly_suspended: Vec<String>,
}

/// Why the execution stops polling its engine.
enum Ending {
    Completed,
    Failed(TurnError),
    Asked(Reason),
    /// The record no longer takes anything from it.
    GivenUp,
}

/// What became of one event of the engine.
struct Taken {
    /// The engine has to wait until it is recorded.
    must_be_recorded: bool,
    /// The connection's task should get to run.
    much_waits: bool,
}

/// What there is to do about writing.
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, a few times a second")]
enum Step {
    /// The next write is due.
    Due,
    /// The write under way came to its end.
    Outcome(Result<FlushOutcome, Unwritten>),
}

/// The write that is under way, and when the next is due.
struct Flushing {
    pending: Option<Pending>,
    /// A flush that failed and is to be submitted again as it is.
    unwritten: Option<Flush>,
    backoff: Duration,
    due: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Execution {
    /// Runs it to its end.
    pub(super) async fn run(mut self, engine: EventStream) {
        let mut flushing = Flushing::new();
        let ending = self.poll_engine(engine, &mut flushing).await;
        let (status, error) = match ending {
            Ending::GivenUp | Ending::Asked(Reason::ClaimLost) => return,
            Ending::Completed if self.recorder.timeline().suspended().next().is_some() => (ExecutionStatus::Suspended, None),
            Ending::Completed => (ExecutionStatus::Success, None),
            Ending::Failed(error) => {
                let error = ExecutionError { message: error.message, error_code: error.code.map(str::to_owned) };
                (ExecutionStatus::Error, Some(error))
            }
            Ending::Asked(Reason::Stop) => (ExecutionStatus::Cancelled, None),
            Ending::Asked(Reason::Shutdown) => (
                ExecutionStatus::Interrupted,
                Some(ExecutionError {
                    message: "The server was shut down while this reply was being written.".to_owned(),
                    error_code: Some("shutdown".to_owned()),
                }),
            ),
        };
        self.end(status, error, flushing).await;
    }

    async fn poll_engine(&mut self, engine: EventStream, flushing: &mut Flushing) -> Ending {
        // A bug in an engine or a tool must end its turn, not leave it running for ever.
        let mut engine = AssertUnwindSafe(engine).catch_unwind();
        let cancel = self.registered.cancel.clone();
        let mut cancelled = std::pin::pin!(cancel.cancelled());
        // Set while something must be recorded before the engine may go on.
        let mut hold = false;
        loop {
            tokio::select! {
                biased;
                reason = &mut cancelled => return Ending::Asked(reason),
                step = flushing.step() => match step {
                    Step::Due => {
                        if let Err(error) = self.submit(flushing) {
                            return Ending::Failed(error);
                        }
                    }
                    Step::Outcome(outcome) => match self.flushed(outcome, flushing) {
                        Ok(true) => return Ending::Asked(Reason::Stop),
                        Ok(false) => hold &= flushing.unwritten.is_some() || self.recorder.is_dirty(),
                        Err(ending) => return ending,
                    },
                },
                item = engine.next(), if !hold => match item {
                    None => return Ending::Completed,
                    Some(Ok(Ok(event))) => {
                        let Taken { must_be_recorded, much_waits } = self.take(event, flushing);
                        hold |= must_be_recorded;
                        if much_waits {
                            tokio::task::yield_now().await;
                        }
                    }
                    Some(Ok(Err(error))) => return Ending::Failed(error),
                    Some(Err(_panic)) => {
                        tracing::error!(execution = %self.id, "the engine panicked; see the panic message above");
                        return Ending::Failed(internal_error());
                    }
                },
            }
        }
    }

    /// Shows and records one event.
    fn take(&mut self, event: Event, flushing: &mut Flushing) -> Taken {
        let event = recordable::event(event);
        if let Event::ToolCallSuspended { payload } = &event {
            let id = &payload.tool_call_id;
            let waited = self.recorder.timeline().suspended().any(|call| call.tool_call_id == *id);
            if !waited {
                self.newly_suspended.push(id.clone());
            }
        }
        let boundary = self.recorder.apply(&event, clock::now());
        let starts_a_tool = matches!(event, Event::ToolExecutionStart { .. });
        let much_waits = if matches!(event, Event::ToolCallSuspended { .. }) {
            self.untold.push(event);
            false
        } else {
            self.live.send(&event)
        };
        if boundary {
            flushing.due_at(Instant::now());
        } else if self.recorder.is_dirty() && flushing.due.is_none() {
            flushing.due_at(next_on_grid(Instant::now()));
        }
        // Once a tool has run, the record must say that it may have.
        Taken { must_be_recorded: boundary && starts_a_tool, much_waits }
    }

    /// Submits what failed before, or else what is unrecorded.
    fn submit(&mut self, flushing: &mut Flushing) -> Result<(), TurnError> {
        flushing.due = None;
        flushing.pending = match flushing.unwritten.take() {
            Some(flush) => Some(self.writer.submit_again(flush)),
            None if self.recorder.is_dirty() => {
                let flush = self.flush(None)?;
                Some(self.writer.submit(flush))
            }
            None => None,
        };
        Ok(())
    }

    fn flush(&mut self, end: Option<End>) -> Result<Flush, TurnError> {
        let parts = self.recorder.take_writes().map_err(|error| {
            tracing::error!(execution = %self.id, %error, "a part cannot be written as JSON");
            internal_error()
        })?;
        Ok(Flush { execution: self.id, process: self.process, key: self.key.clone(), parts, end, by_survivor: false })
    }

    /// What a write led to: whether a Stop was asked for, or that nothing more can be written.
    fn flushed(&mut self, outcome: Result<FlushOutcome, Unwritten>, flushing: &mut Flushing) -> Result<bool, Ending> {
        match outcome {
            Ok(FlushOutcome::Written { cancel_requested, .. }) => {
                flushing.backoff = RETRY_FIRST;
                if self.recorder.is_dirty() && flushing.due.is_none() {
                    flushing.due_at(next_on_grid(Instant::now()));
                }
                Ok(cancel_requested)
            }
            Ok(FlushOutcome::Fenced) => {
                tracing::warn!(execution = %self.id, "another process ended this execution; it writes nothing more");
                Err(Ending::GivenUp)
            }
            Err(Unwritten { error: StoreError::Corrupt(error), .. }) => {
                tracing::error!(execution = %self.id, error, "the record does not take this execution's writes; giving it up");
                Err(Ending::GivenUp)
            }
            Err(Unwritten { flush, error }) => {
                tracing::warn!(execution = %self.id, %error, "not recorded yet; trying again");
                flushing.unwritten = Some(flush);
                flushing.due_at(Instant::now() + flushing.backoff);
                flushing.backoff = (flushing.backoff * 2).min(RETRY_MAX);
                Ok(false)
            }
        }
    }

    /// Records the end, however long the database takes to answer, and then says so on the live stream.
    async fn end(mut self, mut status: ExecutionStatus, mut error: Option<ExecutionError>, mut flushing: Flushing) {
        // The write that is under way comes first: its parts are not in the next one.
        let earlier = flushing.pending.take();
        if let Some(pending) = earlier {
            let Ok(outcome) = pending.await else { return };
            if self.flushed(outcome, &mut flushing).is_err() {
                return;
            }
        }
        if let Some(flush) = flushing.unwritten.take() {
            let again = self.writer.submit_again(flush);
            if self.written(again, &mut flushing).await.is_none() {
                return;
            }
        }
        loop {
            if status != ExecutionStatus::Suspended {
                // Nobody will be told that they waited: live stream and record agree.
                for id in std::mem::take(&mut self.newly_suspended) {
                    self.recorder.withdraw_suspension(&id);
                }
            }
            self.close(status);
            let end = match self.end_of(status, error.clone()) {
                Ok(end) => end,
                Err(failure) => {
                    tracing::error!(execution = %self.id, error = %failure, "the end cannot be written as JSON; giving it up");
                    return;
                }
            };
            let Ok(flush) = self.flush(Some(end)) else { return };
            let pending = self.writer.submit(flush);
            match self.written(pending, &mut flushing).await {
                None => return,
                Some(true) => break,
                // A Stop was asked for before this end was recorded: it wins.
                Some(false) => (status, error) = (ExecutionStatus::Cancelled, None),
            }
        }
        self.tell(status, error);
    }

    /// Ends an execution whose thread cannot be read. What the record has of it stays as it is.
    pub(super) async fn end_unread(mut self, error: ExecutionError) {
        let mut flushing = Flushing::new();
        let (mut status, mut error) = (ExecutionStatus::Error, Some(error));
        loop {
            let end = End { status, error: error.clone(), suspensions: Vec::new(), content: None, at: clock::now() };
            let flush = Flush {
                execution: self.id,
                process: self.process,
                key: self.key.clone(),
                parts: Vec::new(),
                end: Some(end),
                by_survivor: false,
            };
            let pending = self.writer.submit(flush);
            match self.written(pending, &mut flushing).await {
                None => return,
                Some(true) => break,
                Some(false) => (status, error) = (ExecutionStatus::Cancelled, None),
            }
        }
        self.tell(status, error);
    }

    /// Says on the live stream how it ended. Only once that is recorded.
    fn tell(&mut self, status: ExecutionStatus, error: Option<ExecutionError>) {
        tracing::info!(execution = %self.id, thread = %self.key.thread, status = status.as_str(), "execution ended");
        if status == ExecutionStatus::Suspended {
            for suspension in std::mem::take(&mut self.untold) {
                self.live.send(&suspension);
            }
        } else {
            if let Some(ExecutionError { message, error_code }) = error.filter(|_| status == ExecutionStatus::Error) {
                self.live.send(&Event::Error { message, error_code });
            }
            self.live.send(&Event::Done { session_id: self.key.thread, execution_id: self.id, status });
        }
    }

    /// Brings open text and tool calls to rest, live and in the record alike.
    fn close(&mut self, status: ExecutionStatus) {
        let at = clock::now();
        for event in self.recorder.timeline().closing_events(status, at) {
            self.live.send(&event);
            self.recorder.apply(&event, at);
        }
    }

    fn end_of(&self, status: ExecutionStatus, error: Option<ExecutionError>) -> Result<End, serde_json::Error> {
        let timeline = self.recorder.timeline();
        let content = if status.is_final() { Some(serde_json::to_string(timeline.parts())?) } else { None };
        let suspensions = timeline.suspended().map(|call| Suspension {
            tool_call_id: call.tool_call_id.clone(),
            run_id: self.run,
            tool_name: call.tool_name.clone(),
            input: call.input.clone(),
            suspend_payload: call.suspend_payload.clone(),
        });
        let suspensions = if status == ExecutionStatus::Suspended { suspensions.collect() } else { Vec::new() };
        Ok(End { status, error, suspensions, content, at: clock::now() })
    }

    /// Waits until it is committed, and writes again until then. Gives whether an end took effect; `None`: the record takes nothing
    /// more.
    async fn written(&mut self, mut pending: Pending, flushing: &mut Flushing) -> Option<bool> {
        loop {
            let outcome = pending.await.ok()?;
            let ended = matches!(outcome, Ok(FlushOutcome::Written { ended: true, .. }));
            self.flushed(outcome, flushing).ok()?;
            let Some(unwritten) = flushing.unwritten.take() else { return Some(ended) };
            sleep_until(flushing.due.take().unwrap_or_else(Instant::now)).await;
            pending = self.writer.submit_again(unwritten);
        }
    }
}

impl Flushing {
    fn new() -> Self {
        Self { pending: None, unwritten: None, backoff: RETRY_FIRST, due: None, timer: Box::pin(sleep_until(Instant::now())) }
    }

    /// Sets when the next write is due; an earlier time stays.
    fn due_at(&mut self, at: Instant) {
        if self.due.is_none_or(|due| at < due) {
            self.due = Some(at);
            self.timer.as_mut().reset(at);
        }
    }

    /// Waits for the write under way, or else until the next is due. May be dropped and called again.
    async fn step(&mut self) -> Step {
        if let Some(pending) = &mut self.pending {
            let outcome = pending.await;
            self.pending = None;
            // The writer is gone only at the end of the process: then nothing can be recorded any more.
            return Step::Outcome(outcome.unwrap_or(Ok(FlushOutcome::Fenced)));
        }
        match self.due {
            Some(_) => self.timer.as_mut().await,
            None => std::future::pending().await,
        }
        Step::Due
    }
}

/// Between one and two steps of the grid from `now`.
fn next_on_grid(now: Instant) -> Instant {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let steps = now.saturating_duration_since(*ORIGIN).as_millis() / GRID.as_millis();
    *ORIGIN + GRID * u32::try_from(steps + 2).unwrap_or(u32::MAX)
}

fn internal_error() -> TurnError {
    TurnError { message: "The server failed while it ran this turn. Its log says more.".to_owned(), code: Some("internal") }
}
