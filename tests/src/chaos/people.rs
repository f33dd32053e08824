//! People at browser tabs: what they do, with what patience, and what they log of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use http::Method;
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{error::Elapsed, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use turnfast_shared::{
    Event, Role,
    api::{CancelAnswer, PushEvent, RunCancelAnswer, ThreadSnapshot},
    event::Suspension,
    ids::{MessageId, RunId, ThreadId},
    message::SuspendPayload,
    problem::{Code, Problem},
};
use uuid::Uuid;

use super::log::{Asked, Entry, Log, Outcome, Seen, StreamEnd};
use crate::{
    client::{Attempt, Client, EndedEarly, Live, Started, answer_or_problem, attempt},
    dice::Dice,
    within,
};

/// How long a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a person who reads a stream to its end waits for more.
const MORE: Duration = Duration::from_secs(3);
/// How long a follower hears nothing before it takes its connection for dead: a ping and a half.
const QUIET: Duration = Duration::from_secs(23);
/// Pause before what failed is tried again.
const AGAIN: Duration = Duration::from_millis(250);
/// Turns in a thread before the next one is begun.
const TURNS: usize = 5;

/// What two tabs of one person have in common: they show the same thread.
#[derive(Debug)]
pub(super) struct Desk {
    /// The person's API client.
    pub(super) client: Client,
    /// The agent that they talk to.
    pub(super) agent: &'static str,
    /// What held turns wait for.
    gate: String,
    shown: watch::Sender<ThreadId>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    threads: Vec<ThreadId>,
    /// Of the thread that is shown.
    submitted: Vec<(MessageId, String)>,
    started: Vec<Started>,
}

impl Desk {
    pub(super) fn new(client: Client, agent: &'static str, gate: String) -> Self {
        let first = ThreadId::from(Uuid::new_v4());
        let state = State { threads: vec![first], ..State::default() };
        Self { client, agent, gate, shown: watch::Sender::new(first), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All threads so far.
    pub(super) fn threads(&self) -> Vec<ThreadId> {
        self.state().threads.clone()
    }

    /// A message that nobody has sent yet, in the thread that is shown or in a new one.
    fn compose(&self, text: String) -> (ThreadId, MessageId) {
        let message = MessageId::from(Uuid::new_v4());
        let mut state = self.state();
        if state.submitted.len() >= TURNS {
            let next = ThreadId::from(Uuid::new_v4());
            state.threads.push(next);
            state.submitted.clear();
            state.started.clear();
            self.shown.send_replace(next);
        }
        state.submitted.push((message, text));
        (*self.shown.borrow(), message)
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.agent(method, self.agent, path)
    }

    fn submit(&self, thread: ThreadId, message: MessageId, text: &str) -> RequestBuilder {
        let body = json!({"message": text, "messageId": message, "sessionId": thread, "newSession": true});
        self.request(Method::POST, "/chat").json(&body)
    }

    fn read(&self, thread: ThreadId) -> RequestBuilder {
        self.request(Method::GET, &format!("/chat/{thread}/messages"))
    }
}

/// What came of a request: an answer, a refusal, or nothing.
enum Got<T> {
    Answer(T),
    Refused(Problem),
    Nothing,
}

/// A log that is being written.
#[derive(Debug)]
struct Scribe {
    log: Log,
    /// Revisions of messages as they were seen last.
    known: BTreeMap<MessageId, u64>,
}

impl Scribe {
    fn new(who: String) -> Self {
        Self { log: Log { who, entries: Vec::new() }, known: BTreeMap::new() }
    }

    fn write(&mut self, entry: Entry) {
        self.log.entries.push(entry);
    }

    /// Sorts out what a request led to. What is neither an answer, nor one of the refusals that may be expected, nor a connection that
    /// was lost, breaks the contract.
    fn sort<T>(&mut self, what: &str, outcome: Result<Result<Result<T, Problem>>, Elapsed>, expected: &[Code]) -> Got<T> {
        match outcome {
            Ok(Ok(Ok(answer))) => Got::Answer(answer),
            Ok(Ok(Err(problem))) => {
                if !expected.contains(&problem.code) && !matches!(problem.code, Code::StorageUnavailable | Code::ShuttingDown) {
                    self.write(Entry::Broken(format!("{what}: {problem:?}")));
                }
                Got::Refused(problem)
            }
            Ok(Err(error)) => {
                if !is_lost(&error) {
                    self.write(Entry::Broken(format!("{what}: {error:#}")));
                }
                Got::Nothing
            }
            Err(_elapsed) => Got::Nothing,
        }
    }

    /// Reads a thread once. `Some(None)`: it is not there.
    async fn read(&mut self, desk: &Desk, thread: ThreadId) -> Option<Option<ThreadSnapshot>> {
        let outcome = timeout(PATIENCE, answer_or_problem::<ThreadSnapshot>(desk.read(thread))).await;
        match self.sort("a read", outcome, &[Code::NotFound]) {
            Got::Answer(read) => {
                let answers = read.messages.iter().filter(|message| message.role == Role::Assistant);
                let mut seen = Vec::new();
                for message in answers {
                    if self.known.insert(message.id, message.revision) != Some(message.revision) {
                        seen.push(Seen {
                            message: message.id,
                            revision: message.revision,
                            status: message.execution_status,
                            text: message.text(),
                        });
                    }
                }
                self.write(Entry::Read { thread, revision: read.revision, seen });
                Some(Some(read))
            }
            Got::Refused(problem) if problem.code == Code::NotFound => Some(None),
            Got::Refused(_) | Got::Nothing => None,
        }
    }

    async fn stop(&mut self, desk: &Desk, started: Started) {
        let path = format!("/chat/{}/executions/{}", started.thread, started.execution);
        let outcome = timeout(PATIENCE, answer_or_problem::<CancelAnswer>(desk.request(Method::DELETE, &path))).await;
        let asked = match self.sort("a Stop", outcome, &[]) {
            Got::Answer(CancelAnswer { cancel_requested: true }) => Asked::Acknowledged,
            Got::Answer(CancelAnswer { cancel_requested: false }) => Asked::TooLate,
            Got::Refused(problem) => Asked::Refused(problem.code),
            Got::Nothing => Asked::Unknown,
        };
        self.write(Entry::Stopped { execution: started.execution, asked });
    }

    async fn cancel(&mut self, desk: &Desk, run: RunId) {
        let request = desk.request(Method::DELETE, &format!("/chat/runs/{run}"));
        let outcome = timeout(PATIENCE, answer_or_problem::<RunCancelAnswer>(request)).await;
        let asked = match self.sort("cancelling a turn that waits", outcome, &[]) {
            Got::Answer(RunCancelAnswer { cancelled: true }) => Asked::Acknowledged,
            Got::Answer(RunCancelAnswer { cancelled: false }) => Asked::TooLate,
            Got::Refused(problem) => Asked::Refused(problem.code),
            Got::Nothing => Asked::Unknown,
        };
        self.write(Entry::Cancelled { run, asked });
    }
}

/// Whether an error is a connection that was lost, and not an answer that is wrong.
fn is_lost(error: &anyhow::Error) -> bool {
    let any = |is: fn(&(dyn std::error::Error + 'static)) -> bool| error.chain().any(is);
    let torn = any(|cause| cause.is::<reqwest::Error>() || cause.is::<EndedEarly>() || cause.is::<Elapsed>());
    torn && !any(|cause| cause.is::<serde_json::Error>())
}

/// How a submitter reads its stream.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// Closes the connection after so many events.
    Leave(u64),
    /// To the end, with some patience.
    ToEnd,
    /// To the end, while other things are done.
    Beside,
}

/// A tab.
pub(super) struct Tab {
    desk: Arc<Desk>,
    scribe: Scribe,
    dice: Dice,
    reload: Arc<Notify>,
    beside: Vec<JoinHandle<Vec<Entry>>>,
}

/// What a tab leaves behind: its log, and streams that it still reads.
pub(super) struct Left {
    pub(super) log: Log,
    pub(super) beside: Vec<JoinHandle<Vec<Entry>>>,
}

impl Tab {
    pub(super) fn new(number: usize, desk: Arc<Desk>, seed: u64, reload: Arc<Notify>) -> Self {
        Self { desk, scribe: Scribe::new(format!("tab {number}")), dice: Dice::new(seed), reload, beside: Vec::new() }
    }

    /// What is done before anything fails: a question that is answered, and a turn that is stopped. So there is some of both in every
    /// epoch, whatever comes.
    pub(super) async fn begin(mut self) -> Result<Self> {
        let demo = self.desk.agent == "demo";
        let ask = if demo { "/ask" } else { r#"[[tool:ask_user:{"question":"Which?","options":["red","blue"]}]]"# };
        self.say(ask.to_owned()).await;
        within("a question", async {
            while self.open().await.is_none() {}
            anyhow::Ok(())
        })
        .await?;
        self.answer(false).await;
        self.until_idle().await?;
        self.say(if demo { "/slow 600".to_owned() } else { format!("[[hold:{}]]", self.desk.gate) }).await;
        self.stop(true).await;
        self.until_idle().await?;
        Ok(self)
    }

    async fn say(&mut self, text: String) {
        let (thread, message) = self.desk.compose(text.clone());
        self.submit(thread, message, text, Reading::Beside).await;
    }

    async fn until_idle(&mut self) -> Result<()> {
        let thread = *self.desk.shown.borrow();
        within("the end of a turn", async {
            while self.scribe.read(&self.desk, thread).await.flatten().is_none_or(|read| read.active_execution_id.is_some()) {
                sleep(AGAIN).await;
            }
            anyhow::Ok(())
        })
        .await
    }

    /// Does one thing after the other until it is told to end.
    pub(super) async fn run(mut self, end: CancellationToken) -> Left {
        while !end.is_cancelled() {
            let number = self.dice.below(22);
            self.act(number).await;
            let pause = Duration::from_millis(self.dice.below(150));
            let _ = timeout(pause, end.cancelled()).await;
        }
        Left { log: self.scribe.log, beside: self.beside }
    }

    async fn act(&mut self, number: u64) {
        match number {
            0..=5 => {
                let text = self.text();
                let (thread, message) = self.desk.compose(text.clone());
                let reading = match self.dice.below(6) {
                    0 | 1 => Reading::Leave(self.dice.below(10)),
                    2 => Reading::ToEnd,
                    _ => Reading::Beside,
                };
                self.submit(thread, message, text, reading).await;
            }
            6 => self.submit_twice().await,
            7 => {
                let again = self.desk.state().submitted.last().cloned();
                if let Some((message, text)) = again {
                    let thread = *self.desk.shown.borrow();
                    self.submit(thread, message, text, Reading::Beside).await;
                }
            }
            8..=10 => self.stop(true).await,
            11 => self.stop(false).await,
            12 | 13 => self.answer(false).await,
            14 => self.answer(true).await,
            15 => {
                if let Some(open) = self.open().await {
                    self.scribe.cancel(&self.desk, open.run_id).await;
                }
            }
            16 | 17 => self.reload.notify_one(),
            18 | 19 => {
                let thread = *self.desk.shown.borrow();
                self.scribe.read(&self.desk, thread).await;
            }
            _ => self.settle().await,
        }
    }

    /// Something to say. Each text says who it is, but for what the demo agent must recognise.
    fn text(&mut self) -> String {
        if self.desk.agent == "demo" {
            return self
                .dice
                .of(["hello", "/long 60", "/slow 6", "/tool", "/think", "/approve", "/ask", "/delegate 4"])
                .to_owned();
        }
        let hold = format!("[[words:4:10ms]][[hold:{}]][[say: end]]", self.desk.gate);
        let script = self.dice.of([
            "[[words:6:15ms]]",
            "[[words:40:30ms]]",
            "[[words:15:100ms]]",
            "[[reason:well]][[words:5:10ms]]",
            "[[words:3:10ms]][[tool:clock:{}]][[words:8:30ms]]",
            r#"[[words:2]][[tool:ask_user:{"question":"Which?","options":["red","blue"]}]][[words:3:10ms]]"#,
            "[[cut:4]]",
            &hold,
        ]);
        format!("{script} #{}", self.dice.next())
    }

    async fn submit(&mut self, thread: ThreadId, message: MessageId, text: String, reading: Reading) {
        let outcome = timeout(PATIENCE, attempt(self.desk.submit(thread, message, &text))).await;
        self.submitted(thread, message, text, outcome, reading).await;
    }

    async fn submit_twice(&mut self) {
        let text = self.text();
        let (thread, message) = self.desk.compose(text.clone());
        let send = || timeout(PATIENCE, attempt(self.desk.submit(thread, message, &text)));
        let (first, second) = tokio::join!(send(), send());
        self.submitted(thread, message, text.clone(), first, Reading::Beside).await;
        self.submitted(thread, message, text, second, Reading::Beside).await;
    }

    async fn submitted(
        &mut self,
        thread: ThreadId,
        message: MessageId,
        text: String,
        outcome: Result<Result<Attempt>, Elapsed>,
        reading: Reading,
    ) {
        let expected = [Code::TurnAlreadyRunning, Code::InteractionOpen, Code::MessageAlreadyAccepted];
        let (outcome, live) = self.begun("a submit", outcome, &expected);
        self.scribe.write(Entry::Submitted { thread, message, text, outcome });
        if let Some(live) = live {
            self.follow(live, reading).await;
        }
    }

    fn begun(&mut self, what: &str, outcome: Result<Result<Attempt>, Elapsed>, expected: &[Code]) -> (Outcome, Option<Live>) {
        let outcome = match outcome {
            Ok(Ok(Attempt::Accepted(live))) => Ok(Ok(Ok(live))),
            Ok(Ok(Attempt::Refused(problem))) => Ok(Ok(Err(problem))),
            Ok(Err(error)) => Ok(Err(error)),
            Err(elapsed) => Err(elapsed),
        };
        match self.scribe.sort(what, outcome, expected) {
            Got::Answer(live) => {
                let mut state = self.desk.state();
                if live.started.thread == *self.desk.shown.borrow() {
                    state.started.push(live.started);
                }
                (Outcome::Accepted(live.started), Some(live))
            }
            Got::Refused(problem) => (Outcome::Refused(problem.code), None),
            Got::Nothing => (Outcome::Unknown, None),
        }
    }

    async fn follow(&mut self, live: Live, reading: Reading) {
        match reading {
            Reading::Leave(events) => {
                let entries = follow(live, events, MORE).await;
                self.scribe.log.entries.extend(entries);
            }
            Reading::ToEnd => {
                let entries = follow(live, u64::MAX, MORE).await;
                self.scribe.log.entries.extend(entries);
            }
            Reading::Beside => self.beside.push(tokio::spawn(follow(live, u64::MAX, crate::GUARD))),
        }
    }

    async fn stop(&mut self, newest: bool) {
        let known = {
            let state = self.desk.state();
            if newest { state.started.last().copied() } else { state.started.first().copied() }
        };
        if let Some(started) = known {
            self.scribe.stop(&self.desk, started).await;
        }
    }

    /// What waits for an answer.
    async fn open(&mut self) -> Option<Suspension> {
        let thread = *self.desk.shown.borrow();
        self.scribe.read(&self.desk, thread).await??.open_suspensions.into_iter().next()
    }

    /// Answers what waits; twice at the same instant, and differently, if so told.
    async fn answer(&mut self, twice: bool) {
        let Some(open) = self.open().await else { return };
        let approval = matches!(open.suspend_payload, Some(SuspendPayload::Approval { .. }));
        let data = |yes: bool| match (approval, yes) {
            (true, yes) => json!({"approved": yes}),
            (false, true) => json!({"answer": "red"}),
            (false, false) => json!({"answer": "blue"}),
        };
        let send = |data: Value| {
            let body = json!({"runId": open.run_id, "toolCallId": open.tool_call_id, "resumeData": data});
            timeout(PATIENCE, attempt(self.desk.request(Method::POST, "/chat/resume").json(&body)))
        };
        let outcomes = if twice {
            let (yes, no) = tokio::join!(send(data(true)), send(data(false)));
            vec![yes, no]
        } else {
            vec![send(data(self.dice.below(3) > 0)).await]
        };
        for outcome in outcomes {
            // The winner's turn may be running by then.
            let (outcome, live) = self.begun("an answer", outcome, &[Code::InteractionClosed, Code::TurnAlreadyRunning]);
            self.scribe.write(Entry::Answered { run: open.run_id, call: open.tool_call_id.clone(), outcome });
            if let Some(live) = live {
                self.follow(live, Reading::Beside).await;
            }
        }
    }

    /// Looks at the thread until nothing runs in it, with some patience.
    async fn settle(&mut self) {
        let thread = *self.desk.shown.borrow();
        for _ in 0..6 {
            match self.scribe.read(&self.desk, thread).await {
                Some(Some(read)) if read.active_execution_id.is_some() => sleep(AGAIN).await,
                Some(_) => return,
                None => {}
            }
        }
    }
}

/// Reads a stream, at most so many events of it, and logs what it said.
async fn follow(mut live: Live, events: u64, patience: Duration) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut ended = false;
    for _ in 0..events {
        match timeout(patience, live.next()).await {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => {
                ended = true;
                break;
            }
            Ok(Err(error)) => {
                if !is_lost(&error) {
                    entries.push(Entry::Broken(format!("the stream of {:?}: {error:#}", live.started)));
                }
                break;
            }
            Err(_elapsed) => break,
        }
    }
    let end = match live.seen.last() {
        Some(Event::Done { status, .. }) => StreamEnd::Done(*status),
        Some(Event::ToolCallSuspended { .. }) if ended => StreamEnd::Suspended,
        _ => StreamEnd::Lost,
    };
    entries.push(Entry::Streamed { started: live.started, text: live.text(), end });
    entries
}

/// The connection of a tab to `/push`.
pub(super) struct Follower {
    /// What it shows: a thread and the revision that it read.
    pub(super) shows: watch::Receiver<(ThreadId, u64)>,
    /// How often it connected.
    pub(super) connected: watch::Receiver<u64>,
    task: JoinHandle<()>,
    scribe: Arc<tokio::sync::Mutex<Scribe>>,
}

impl Follower {
    /// Follows until it is dropped, and connects anew whenever the connection is lost or `reload` says so.
    pub(super) fn start(number: usize, desk: Arc<Desk>, reload: Arc<Notify>) -> Self {
        let scribe = Arc::new(tokio::sync::Mutex::new(Scribe::new(format!("follower {number}"))));
        let first = *desk.shown.borrow();
        let (show, shows) = watch::channel((first, 0));
        let (connects, connected) = watch::channel(0);
        let task = tokio::spawn({
            let scribe = scribe.clone();
            async move {
                let mut scribe = scribe.lock().await;
                loop {
                    tokio::select! {
                        () = reload.notified() => {}
                        () = follow_once(&desk, &mut scribe, &show, &connects) => {}
                    }
                    sleep(AGAIN).await;
                }
            }
        });
        Self { shows, connected, task, scribe }
    }

    /// Its log, with what it shows in the end.
    pub(super) async fn leave(self) -> Log {
        self.task.abort();
        // It is gone, or about to be: then the log is free.
        let _ = self.task.await;
        let (thread, revision) = *self.shows.borrow();
        let mut scribe = self.scribe.lock().await;
        scribe.write(Entry::Shows { thread, revision });
        std::mem::take(&mut scribe.log)
    }
}

/// One connection. A tab reads the thread that it shows when it connects, when it shows another one and when it is told of a change;
/// never for any other reason.
async fn follow_once(desk: &Desk, scribe: &mut Scribe, show: &watch::Sender<(ThreadId, u64)>, connects: &watch::Sender<u64>) {
    let opened = timeout(PATIENCE, desk.client.try_push()).await;
    let Got::Answer(mut push) = scribe.sort("/push", opened, &[]) else { return };
    connects.send_modify(|connects| *connects += 1);
    let mut shown = desk.shown.subscribe();
    let mut read = true;
    loop {
        if read {
            let thread = *shown.borrow_and_update();
            // Until it knows: a read that failed shows nothing.
            let found = loop {
                match scribe.read(desk, thread).await {
                    Some(found) => break found,
                    None => sleep(AGAIN).await,
                }
            };
            show.send_replace((thread, found.map_or(0, |read| read.revision)));
        }
        let heard = tokio::select! {
            changed = shown.changed() => {
                read = changed.is_ok();
                continue;
            }
            heard = timeout(QUIET, push.next()) => heard,
        };
        read = match heard {
            Ok(Ok(PushEvent::AgentExecutionUpdated(update))) => {
                // Servers tell each other again where they do not know whether they did: the same may come twice, or late.
                let (thread, revision) = *show.borrow();
                update.thread_id == thread && update.revision > revision
            }
            // Something may have been missed.
            Ok(Ok(PushEvent::Connected)) => true,
            Ok(Ok(PushEvent::Ping)) => false,
            Ok(Err(error)) => {
                if !is_lost(&error) {
                    scribe.write(Entry::Broken(format!("/push: {error:#}")));
                }
                return;
            }
            Err(_quiet) => return,
        };
    }
}

/// Whoever tidies up: cancels what waits for a person.
pub(super) struct Closer {
    scribe: Scribe,
}

impl Closer {
    pub(super) fn new() -> Self {
        Self { scribe: Scribe::new("closer".to_owned()) }
    }

    /// Cancels what waits in the desk's threads. Nothing fails any more.
    pub(super) async fn close(&mut self, desk: &Desk) {
        for thread in desk.threads() {
            let Some(Some(read)) = self.scribe.read(desk, thread).await else { continue };
            let runs: std::collections::BTreeSet<RunId> = read.open_suspensions.iter().map(|open| open.run_id).collect();
            for run in runs {
                self.scribe.cancel(desk, run).await;
            }
        }
    }

    pub(super) fn leave(self) -> Log {
        self.scribe.log
    }
}

/// What the server at `url` reads in these desks' threads. Threads that are not there are left out.
pub(super) async fn read_all(url: &str, desks: &[Arc<Desk>]) -> Result<BTreeMap<ThreadId, ThreadSnapshot>> {
    let mut reads = BTreeMap::new();
    for desk in desks {
        let at_server = desk.client.clone().at(url);
        for thread in desk.threads() {
            let request = at_server.agent(Method::GET, desk.agent, &format!("/chat/{thread}/messages"));
            match answer_or_problem(request).await.context("a read in calm")? {
                Ok(read) => drop(reads.insert(thread, read)),
                Err(problem) if problem.code == Code::NotFound => {}
                Err(problem) => anyhow::bail!("a read in calm: {problem:?}"),
            }
        }
    }
    Ok(reads)
}
