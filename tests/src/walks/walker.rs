//! One walk: does what its plan says and checks, on the way and at the end, that
//!
//! - each turn is one assistant message, right behind the message that started it, and none is there twice;
//! - revisions only rise, a revision has one state, text only grows, and what is final stays as it is;
//! - what was accepted is in the record, with a final status or a question that is open;
//! - nothing is `running` once nothing runs, whatever happened to the process;
//! - a follower knows of the last revision, and of none beyond;
//! - a stream that was read to its end says what the record says;
//! - a read of what changed, merged into what was read before, is what a full read gives;
//! - an acknowledged Stop ends its execution, also over a crash;
//! - another user finds nothing.
//!
//! A request that fails because the server goes away tells nothing; what it did, the next read shows.

use std::{
    collections::{HashMap, HashSet},
    sync::PoisonError,
};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use turnfast_shared::{
    Event, ExecutionStatus, Message, Role, Timeline,
    api::ThreadSnapshot,
    ids::{ExecutionId, MessageId, ThreadId},
    message::SuspendPayload,
    problem::Code,
};
use uuid::Uuid;

use super::{
    host::Host,
    plan::{Op, Reading, Reply, Which, plan},
};
use crate::{
    client::{Attempt, Client, Live, Started, answer, attempt, merged, refusal, without_times},
    within,
};

const AGENT: &str = "assistant";

/// A stream that was accepted, and what was seen of it.
struct Stream {
    started: Started,
    events: Vec<Event>,
    /// Whether it came to its own end: `done`, or a suspension.
    whole: bool,
}

struct Walker<'h> {
    host: &'h Host,
    person: usize,
    thread: ThreadId,
    /// Whether the thread is known to exist.
    exists: bool,
    /// Reads of this thread, in order.
    reads: Vec<ThreadSnapshot>,
    /// What was accepted in this thread, in order.
    accepted: Vec<Started>,
    /// Message ids that were submitted in this thread, and their text.
    submitted: Vec<(MessageId, &'static str)>,
    streams: Vec<Stream>,
    beside: Vec<JoinHandle<Stream>>,
    /// Stops that were acknowledged.
    stopped: HashSet<ExecutionId>,
    /// Turns of which an answer may have been accepted without our seeing its stream.
    unseen: bool,
    counter: u64,
    seed: u64,
}

/// Walks. The error tells the plan and how far it came.
pub(super) async fn walk(host: &Host, seed: u64) -> Result<()> {
    let plan = plan(seed);
    let mut walker = Walker {
        host,
        person: usize::from(seed % 2 == 1),
        thread: ThreadId::from(Uuid::new_v4()),
        exists: false,
        reads: Vec::new(),
        accepted: Vec::new(),
        submitted: Vec::new(),
        streams: Vec::new(),
        beside: Vec::new(),
        stopped: HashSet::new(),
        unseen: false,
        counter: 0,
        seed,
    };
    for (number, op) in plan.iter().enumerate() {
        walker.step(op).await.with_context(|| format!("step {number}, {op:?}, of {plan:#?}"))?;
    }
    walker.finish().await.with_context(|| format!("at the end of {plan:#?}"))?;
    walker.leave_thread();
    let broken = host.broken.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(broken.is_empty(), "followers: {broken:?}");
    Ok(())
}

impl Walker<'_> {
    fn me(&self) -> &Client {
        &self.host.people[self.person].client
    }

    fn other(&self) -> &Client {
        &self.host.people[1 - self.person].client
    }

    /// Does something that fails where the server goes away meanwhile: then `None`, once it is back.
    async fn try_it<T>(&self, what: impl Future<Output = Result<T>>) -> Result<Option<T>> {
        let before = self.host.generation();
        match what.await {
            Ok(done) => Ok(Some(done)),
            Err(_) if self.host.generation() != before || before % 2 == 1 => {
                self.host.up().await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn step(&mut self, op: &Op) -> Result<()> {
        match *op {
            Op::Submit { command, reading } => {
                let message = self.new_message(command);
                let attempt = self.submit(message, command).await?;
                self.take(attempt, reading, &[]).await
            }
            Op::SubmitAgain => {
                let Some(&(message, command)) = self.submitted.last() else { return Ok(()) };
                let attempt = self.submit(message, command).await?;
                if let Some(Attempt::Accepted(live)) = &attempt {
                    let twice = self.accepted.iter().any(|earlier| earlier.message == live.started.message);
                    ensure!(!twice, "a message was accepted twice: {:?}", live.started);
                }
                self.take(attempt, Reading::Beside, &[Code::MessageAlreadyAccepted]).await
            }
            Op::SubmitTwice { command } => {
                let message = self.new_message(command);
                let (first, second) = tokio::join!(self.submit(message, command), self.submit(message, command));
                let (first, second) = (first?, second?);
                let accepted = [&first, &second].iter().filter(|attempt| matches!(attempt, Some(Attempt::Accepted(_)))).count();
                ensure!(accepted < 2, "both of two equal submits were accepted");
                self.take(first, Reading::Beside, &[Code::MessageAlreadyAccepted]).await?;
                self.take(second, Reading::Beside, &[Code::MessageAlreadyAccepted]).await
            }
            Op::Answer { reply, reading } => {
                let Some((body, wrong)) = self.reply(reply).await? else { return Ok(()) };
                let request = self.me().agent(Method::POST, AGENT, "/chat/resume").json(&body);
                let attempt = self.try_it(attempt(request)).await?;
                self.unseen |= attempt.is_none();
                if wrong {
                    match attempt {
                        None => {}
                        Some(Attempt::Refused(problem)) => ensure!(
                            matches!(
                                problem.code,
                                Code::InvalidRequest | Code::InteractionClosed | Code::ShuttingDown | Code::StorageUnavailable
                            ),
                            "{problem:?}"
                        ),
                        Some(Attempt::Accepted(live)) => bail!("a wrong answer was accepted: {:?}", live.started),
                    }
                    return Ok(());
                }
                self.take(attempt, reading, &[Code::InteractionClosed]).await
            }
            Op::AnswerTwice => {
                let (Some((yes, _)), Some((no, _))) = (self.reply(Reply::Yes).await?, self.reply(Reply::No).await?) else {
                    return Ok(());
                };
                let give = |body: Value| self.try_it(attempt(self.me().agent(Method::POST, AGENT, "/chat/resume").json(&body)));
                let (first, second) = tokio::join!(give(yes), give(no));
                let (first, second) = (first?, second?);
                let accepted = [&first, &second].iter().filter(|attempt| matches!(attempt, Some(Attempt::Accepted(_)))).count();
                ensure!(accepted < 2, "both of two answers were accepted");
                self.unseen |= first.is_none() || second.is_none();
                self.take(first, Reading::Beside, &[Code::InteractionClosed]).await?;
                self.take(second, Reading::Beside, &[Code::InteractionClosed]).await
            }
            Op::Stop(which) => self.stop(which).await,
            Op::Cancel => {
                let Some(run) = self.accepted.last().map(|started| started.assistant) else { return Ok(()) };
                let request = self.me().agent(Method::DELETE, AGENT, &format!("/chat/runs/{run}"));
                self.ask(request, &[]).await.map(drop)
            }
            Op::Rename => {
                let body = json!({"title": format!("walk {}", self.seed)});
                let request = self.me().agent(Method::PATCH, AGENT, &format!("/threads/{}", self.thread)).json(&body);
                self.ask(request, &[]).await.map(drop)
            }
            Op::Delete => self.delete().await,
            Op::Read => self.read().await.map(drop),
            Op::ReadSince => self.read_since().await,
            Op::Pry => self.pry().await,
            Op::Settle => self.settle().await.map(drop),
        }
    }

    fn new_message(&mut self, command: &'static str) -> MessageId {
        // Also a message whose fate is unknown may have made the thread.
        self.host.watch(self.person, self.thread);
        let message = MessageId::from(Uuid::new_v4());
        self.submitted.push((message, command));
        message
    }

    async fn submit(&self, message: MessageId, command: &str) -> Result<Option<Attempt>> {
        let body = json!({"message": command, "messageId": message, "sessionId": self.thread, "newSession": true});
        self.try_it(attempt(self.me().agent(Method::POST, AGENT, "/chat").json(&body))).await
    }

    /// What became of a submit or an answer, and how its stream is read.
    async fn take(&mut self, attempt: Option<Attempt>, reading: Reading, allowed: &[Code]) -> Result<()> {
        let mut live = match attempt {
            None => return Ok(()),
            Some(Attempt::Refused(problem)) => {
                let common = [Code::TurnAlreadyRunning, Code::InteractionOpen, Code::ShuttingDown, Code::StorageUnavailable];
                ensure!(common.contains(&problem.code) || allowed.contains(&problem.code), "{problem:?}");
                if problem.code == Code::ShuttingDown {
                    self.host.up().await?;
                }
                return Ok(());
            }
            Some(Attempt::Accepted(live)) => live,
        };
        let started = live.started;
        ensure!(started.thread == self.thread, "{started:?} is in another thread");
        self.exists = true;
        self.accepted.push(started);
        match reading {
            Reading::Leave(events) => {
                let read = async {
                    for _ in 0..events {
                        if live.next().await?.is_none() {
                            break;
                        }
                    }
                    Ok(())
                };
                self.try_it(read).await?;
                self.streams.push(Stream { started, events: Vec::new(), whole: false });
            }
            Reading::ToEnd => {
                self.try_it(live.rest()).await?;
                self.streams.push(Stream::of(live));
            }
            Reading::Beside => self.beside.push(tokio::spawn(async move {
                // An error leaves the stream without its end, and it counts for nothing.
                let _ = live.rest().await;
                Stream::of(live)
            })),
        }
        Ok(())
    }

    /// An answer to the first open interaction, and whether it is of the wrong shape.
    async fn reply(&mut self, reply: Reply) -> Result<Option<(Value, bool)>> {
        let Some(read) = self.read().await? else { return Ok(None) };
        let Some(open) = read.open_suspensions.first() else { return Ok(None) };
        let data = match (&open.suspend_payload, reply) {
            (_, Reply::Wrong) => json!({"answer": "neither"}),
            (Some(SuspendPayload::Approval { .. }), Reply::Yes) => json!({"approved": true}),
            (Some(SuspendPayload::Approval { .. }), Reply::No) => json!({"approved": false, "reason": "not today"}),
            (_, Reply::Yes) => json!({"answer": "red"}),
            (_, Reply::No) => json!({"answer": "blue"}),
        };
        let body = json!({"runId": open.run_id, "toolCallId": open.tool_call_id, "resumeData": data});
        Ok(Some((body, reply == Reply::Wrong)))
    }

    /// A request that is answered, or refused because what it names is not there (any more), or lost.
    async fn ask(&self, request: reqwest::RequestBuilder, allowed: &[Code]) -> Result<Option<Value>> {
        let sent = async {
            let response = within("an answer", request.send()).await?;
            let (status, text) = (response.status(), within("a body", response.text()).await?);
            let body: Value = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).context(text)? };
            Ok((status, body))
        };
        let Some((status, body)) = self.try_it(sent).await? else { return Ok(None) };
        if status.is_success() {
            return Ok(Some(body));
        }
        let code: Code = serde_json::from_value(body["code"].clone()).with_context(|| format!("{status}: {body}"))?;
        let missing = code == Code::NotFound && !self.exists;
        ensure!(missing || code == Code::StorageUnavailable || allowed.contains(&code), "{body}");
        Ok(None)
    }

    async fn stop(&mut self, which: Which) -> Result<()> {
        let known = match which {
            Which::Newest => self.accepted.last(),
            Which::Oldest => self.accepted.first(),
            Which::Unknown => None,
        };
        let execution = known.map_or_else(|| ExecutionId::from(Uuid::new_v4()), |started| started.execution);
        let allowed: &[Code] = if known.is_none() { &[Code::NotFound] } else { &[] };
        let path = format!("/chat/{}/executions/{execution}", self.thread);
        let told = self.ask(self.me().agent(Method::DELETE, AGENT, &path), allowed).await?;
        if told.is_some_and(|body| body["cancelRequested"] == true) {
            ensure!(known.is_some(), "an unknown execution was stopped");
            self.stopped.insert(execution);
        }
        Ok(())
    }

    async fn delete(&mut self) -> Result<()> {
        // Its last promises first: afterwards there is nothing to look at.
        let before = self.settle().await?;
        let request = self.me().agent(Method::DELETE, AGENT, &format!("/threads/{}", self.thread));
        let generation = self.host.generation();
        let deleted = self.ask(request, &[Code::TurnAlreadyRunning]).await?;
        let gone = match (before, deleted) {
            (Some(before), Some(_)) => {
                if self.host.generation() == generation && generation.is_multiple_of(2) {
                    self.told_of_deletion(before.revision + 1, generation).await?;
                }
                true
            }
            _ => self.read().await.is_ok_and(|read| read.is_none()),
        };
        if gone || !self.exists {
            let refused =
                self.try_it(refusal(self.me().agent(Method::GET, AGENT, &format!("/chat/{}/messages", self.thread)))).await?;
            ensure!(
                refused.is_none_or(|problem| matches!(problem.code, Code::NotFound | Code::StorageUnavailable)),
                "a deleted thread can be read"
            );
        }
        self.leave_thread();
        Ok(())
    }

    /// A deletion is told of as well, unless the server went meanwhile: nobody can read what is gone.
    async fn told_of_deletion(&self, revision: u64, generation: u64) -> Result<()> {
        tokio::select! {
            told = self.host.knows(self.person, self.thread, revision) => told,
            gone = self.host.changed_since(generation) => gone,
        }
    }

    fn leave_thread(&mut self) {
        for stream in self.beside.drain(..) {
            stream.abort();
        }
        self.host.forget(self.person, self.thread);
        self.thread = ThreadId::from(Uuid::new_v4());
        self.exists = false;
        self.unseen = false;
        self.reads.clear();
        self.accepted.clear();
        self.submitted.clear();
        self.streams.clear();
        self.stopped.clear();
    }

    /// Reads the thread and compares it with earlier reads. `None`: it is not there, or the server went.
    async fn read(&mut self) -> Result<Option<ThreadSnapshot>> {
        let request = self.me().agent(Method::GET, AGENT, &format!("/chat/{}/messages", self.thread));
        let Some(body) = self.ask(request, &[]).await? else { return Ok(None) };
        let read: ThreadSnapshot = serde_json::from_value(body)?;
        self.compare(&read)?;
        self.exists = true;
        self.reads.push(read.clone());
        Ok(Some(read))
    }

    fn compare(&self, read: &ThreadSnapshot) -> Result<()> {
        well_formed(read).with_context(|| format!("{read:#?}"))?;
        for started in &self.accepted {
            for id in [started.message, started.assistant] {
                ensure!(read.messages.iter().any(|message| message.id == id), "{id} was accepted and is not in {read:#?}");
            }
        }
        for message in read.messages.iter().filter(|message| message.role == Role::User) {
            let ours = self.submitted.iter().any(|(id, text)| *id == message.id && message.text() == *text);
            ensure!(ours, "nobody submitted {message:#?}");
        }
        let Some(last) = self.reads.last() else { return Ok(()) };
        ensure!(read.revision >= last.revision, "revision {} after {}", read.revision, last.revision);
        ensure!(read.revision > last.revision || read == last, "two states of one revision: {last:#?} and {read:#?}");
        for before in &last.messages {
            let now =
                read.messages.iter().find(|message| message.id == before.id).with_context(|| format!("{before:#?} is gone"))?;
            ensure!(now.text().starts_with(&before.text()), "text was lost: {before:#?}, then {now:#?}");
            let was_final = before.execution_status.is_none_or(ExecutionStatus::is_final);
            ensure!(!was_final || now == before, "a final message changed: {before:#?}, then {now:#?}");
        }
        Ok(())
    }

    async fn read_since(&mut self) -> Result<()> {
        let count = self.reads.len() as u64;
        if count == 0 {
            return Ok(());
        }
        self.counter += 1;
        let place = usize::try_from(self.counter.wrapping_mul(self.seed | 1) % count)?;
        let before = self.reads[place].clone();
        let path = format!("/chat/{}/messages?since={}", self.thread, before.revision);
        let Some(body) = self.ask(self.me().agent(Method::GET, AGENT, &path), &[]).await? else { return Ok(()) };
        let change: ThreadSnapshot = serde_json::from_value(body)?;
        ensure!(change.partial, "a read since revision {} is partial: {change:#?}", before.revision);
        ensure!(change.messages.iter().all(|message| message.revision > before.revision), "unchanged messages in {change:#?}");
        let merged = merged(&before, change);
        self.compare(&merged).context("merged")?;
        // A full read of the same revision, where one is to be had, is the same.
        if let Some(full) = self.read().await?.filter(|full| full.revision == merged.revision) {
            ensure!(full == merged, "merged: {merged:#?}, full: {full:#?}");
        }
        Ok(())
    }

    async fn pry(&self) -> Result<()> {
        let execution = self.accepted.last().map_or_else(|| ExecutionId::from(Uuid::new_v4()), |started| started.execution);
        let run = self.accepted.last().map_or_else(Uuid::new_v4, |started| started.assistant.0);
        let thread = self.thread;
        let other = |method: Method, path: &str| self.other().agent(method, AGENT, path);
        for request in [
            other(Method::GET, &format!("/chat/{thread}/messages")),
            other(Method::GET, &format!("/threads/{thread}")),
            other(Method::PATCH, &format!("/threads/{thread}")).json(&json!({"title": "mine"})),
            other(Method::DELETE, &format!("/threads/{thread}")),
            other(Method::DELETE, &format!("/chat/{thread}/executions/{execution}")),
            other(Method::DELETE, &format!("/chat/runs/{run}")),
            other(Method::POST, "/chat").json(&json!({"message": "hi", "sessionId": thread})),
        ] {
            let Some(problem) = self.try_it(refusal(request)).await? else { continue };
            let gone = [Code::NotFound, Code::ShuttingDown, Code::StorageUnavailable].contains(&problem.code);
            ensure!(gone, "another user got {problem:?}");
        }
        Ok(())
    }

    /// Waits until nothing runs, reading when there is news. `None`: the thread does not exist.
    async fn settle(&mut self) -> Result<Option<ThreadSnapshot>> {
        let settled = async {
            loop {
                let generation = self.host.generation();
                let Some(read) = self.read().await? else {
                    if self.host.generation() == generation && !self.exists {
                        return anyhow::Ok(None);
                    }
                    continue;
                };
                if read.active_execution_id.is_none() {
                    return Ok(Some(read));
                }
                self.host.news(self.person, self.thread, read.revision).await?;
            }
        };
        within("the end of what runs", settled).await
    }

    async fn finish(&mut self) -> Result<()> {
        let Some(read) = self.settle().await? else { return Ok(()) };
        for stream in std::mem::take(&mut self.beside) {
            self.streams.push(within("the end of a stream", stream).await?);
        }
        let last = self.settle().await?.context("the thread is gone")?;
        ensure!(last.revision == read.revision, "something changed after everything had ended: {read:#?}, then {last:#?}");
        self.host.knows(self.person, self.thread, last.revision).await?;
        for message in last.messages.iter().filter(|message| message.role == Role::Assistant) {
            self.check_turn(message).with_context(|| format!("{message:#?}"))?;
        }
        // An interaction stays open for as long as it takes; here it has served.
        if let Some(open) = last.open_suspensions.first() {
            let cancel = self.me().agent(Method::DELETE, AGENT, &format!("/chat/runs/{}", open.run_id));
            if let Some(told) = self.try_it(answer::<Value>(cancel)).await? {
                ensure!(told["cancelled"] == true, "a turn that waited: {told}");
                let after = self.settle().await?.context("the thread is gone")?;
                ensure!(after.open_suspensions.is_empty(), "cancelled, and still open: {after:#?}");
            }
        }
        Ok(())
    }

    /// What is recorded of a turn against what its streams said and its Stops were promised.
    fn check_turn(&self, message: &Message) -> Result<()> {
        let status = message.execution_status.context("a status")?;
        ensure!(status != ExecutionStatus::Running, "nothing runs");
        if message.execution_id.is_some_and(|execution| self.stopped.contains(&execution)) {
            let ended = matches!(status, ExecutionStatus::Cancelled | ExecutionStatus::Success | ExecutionStatus::Error);
            ensure!(ended, "a Stop was promised and the turn is {}", status.as_str());
        }
        let mut streams = self.streams.iter().filter(|stream| stream.started.assistant == message.id).peekable();
        if self.unseen || streams.peek().is_none() {
            return Ok(());
        }
        let mut timeline = Timeline::new();
        let mut last = None;
        for stream in streams {
            if !stream.whole {
                return Ok(());
            }
            for event in &stream.events {
                timeline.apply(event, 0);
            }
            last = Some(stream);
        }
        let Some(last) = last.filter(|last| Some(last.started.execution) == message.execution_id) else { return Ok(()) };
        if let Some(Event::Done { status: told, .. }) = last.events.last() {
            ensure!(*told == status, "the stream said {told:?}");
        } else if status != ExecutionStatus::Suspended {
            // It waited, and was cancelled since: the record has what the stream cannot have.
            return Ok(());
        }
        let (streamed, recorded) = (without_times(timeline.parts()), without_times(&message.content));
        ensure!(streamed == recorded, "the stream said {streamed:#}");
        Ok(())
    }
}

impl Stream {
    fn of(live: Live) -> Self {
        let whole = matches!(live.seen.last(), Some(Event::Done { .. } | Event::ToolCallSuspended { .. }));
        Self { started: live.started, events: live.seen, whole }
    }
}

/// What holds in every read by itself.
pub(crate) fn well_formed(read: &ThreadSnapshot) -> Result<()> {
    let mut ids = HashSet::new();
    let mut running = HashMap::new();
    for (place, message) in read.messages.iter().enumerate() {
        ensure!(ids.insert(message.id), "{} is there twice", message.id);
        let role = if place % 2 == 0 { Role::User } else { Role::Assistant };
        ensure!(message.role == role, "message {place} is not one of the {role:?}: each turn is one message and one answer");
        ensure!(message.revision <= read.revision, "a message of a later revision");
        if let (Role::Assistant, Some(status)) = (message.role, message.execution_status) {
            *running.entry(status.as_str()).or_insert(0) += 1;
            if status == ExecutionStatus::Running {
                ensure!(message.execution_id == read.active_execution_id, "another execution is active");
            }
        }
        if message.role == Role::Assistant && place + 1 < read.messages.len() {
            ensure!(message.execution_status.is_some_and(ExecutionStatus::is_final), "an open turn that is not the last");
        }
    }
    ensure!(read.messages.len().is_multiple_of(2), "a message without its answer");
    ensure!(running.contains_key("running") == read.active_execution_id.is_some(), "active and running do not agree");
    ensure!(running.contains_key("suspended") != read.open_suspensions.is_empty(), "suspended and open do not agree");
    Ok(())
}
