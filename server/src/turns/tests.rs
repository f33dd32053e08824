//! Turns over a real database and an engine that the test plays itself.

use std::sync::Mutex;

use futures::{FutureExt, StreamExt};
use tempfile::TempDir;
use tokio::sync::mpsc;
use turnfast_shared::{ExecutionStatus, Message, Timeline, ToolState, event::Suspension, message::SuspendPayload, sse};

use super::*;
use crate::{
    agents::{EventStream, TurnError},
    liveness::{Alone, PostgresLocks},
    metrics::Metrics,
    relay::{Follower, Hub, Told},
    store::{
        postgres::{self, PostgresStore},
        sqlite::SqliteStore,
        turns::NewTurn,
    },
};

type Script = mpsc::UnboundedSender<Result<Event, TurnError>>;

/// An engine whose executions the test plays: each start hands over what drives it.
#[derive(Default)]
struct Puppet {
    starts: Mutex<Vec<(TurnInput, Script)>>,
    started: tokio::sync::Notify,
}

impl Engine for Puppet {
    fn start(&self, input: TurnInput) -> EventStream {
        let (script, mut items) = mpsc::unbounded_channel();
        self.starts.lock().unwrap().push((input, script));
        self.started.notify_one();
        Box::pin(futures::stream::poll_fn(move |context| items.poll_recv(context)))
    }
}

impl Puppet {
    async fn next_start(&self) -> (TurnInput, Script) {
        loop {
            if let Some(start) = self.starts.lock().unwrap().pop() {
                return start;
            }
            self.started.notified().await;
        }
    }
}

struct World {
    _folder: Option<TempDir>,
    store: Arc<dyn Store>,
    liveness: Arc<dyn Liveness>,
    hub: Arc<Hub>,
    turns: Arc<Turns>,
    puppet: Arc<Puppet>,
    /// Whether turns go on after the death of their process.
    goes_on: Arc<AtomicBool>,
}

impl World {
    /// A process of its own, on SQLite.
    async fn new() -> Self {
        Self::on_sqlite(|_| async {}).await.0
    }

    /// The same, on a record that is not empty.
    async fn on_sqlite<F: Future<Output = ()>>(prepare: impl FnOnce(SqliteStore) -> F) -> (Self, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&folder.path().join("turnfast.db")).await.unwrap();
        prepare(sqlite.clone()).await;
        let liveness = Arc::new(Alone::new(folder.path()));
        let store = Arc::new(sqlite.clone());
        (Self { _folder: Some(folder), ..Self::over(store.clone(), store, liveness).await }, sqlite)
    }

    /// A process that shares a PostgreSQL with [`others`](World::another).
    async fn shared() -> (Self, PostgresStore) {
        Self::on_postgres(|_| async {}).await
    }

    /// The same, on a record that is not empty.
    async fn on_postgres<F: Future<Output = ()>>(prepare: impl FnOnce(PostgresStore) -> F) -> (Self, PostgresStore) {
        let store = PostgresStore::open(&turnfast_test_postgres::database().unwrap()).await.unwrap();
        prepare(store.clone()).await;
        let shared = Arc::new(store.clone());
        (Self::over(shared.clone(), shared, Arc::new(PostgresLocks::new(&store))).await, store)
    }

    /// The test reads from `store`; the process uses its own, on the same record.
    async fn over(store: Arc<dyn Store>, own: Arc<dyn Store>, liveness: Arc<dyn Liveness>) -> Self {
        let (hub, puppet, goes_on) = (Arc::default(), Arc::default(), Arc::default());
        let turns = start(&own, &liveness, &hub, &puppet, &goes_on).await;
        Self { _folder: None, store, liveness, hub, turns, puppet, goes_on }
    }

    /// Another process on the same database; its followers are those of this one.
    async fn another(&self) -> Arc<Turns> {
        start(&self.store, &self.liveness, &self.hub, &self.puppet, &self.goes_on).await
    }

    fn submit_of(&self, n: u128) -> Submit {
        Submit {
            key: key(),
            choice: ThreadChoice::NewIfUnknown,
            message: Uuid::from_u128(n).into(),
            text: format!("question {n}"),
            attachments: Vec::new(),
            engine: self.puppet.clone(),
        }
    }

    /// Submits, and gives the live stream and what plays the engine.
    async fn submit(&self, n: u128) -> (Live, TurnInput, Script) {
        let stream = self.turns.submit(self.submit_of(n)).await.unwrap();
        let (input, script) = self.puppet.next_start().await;
        (Live::new(stream), input, script)
    }

    async fn messages(&self) -> Vec<Message> {
        let snapshot = self.store.snapshot(&key(), None).await.unwrap().unwrap();
        snapshot.messages.into_iter().map(|m| m.parse().unwrap()).collect()
    }

    async fn active(&self) -> Option<ExecutionId> {
        self.store.snapshot(&key(), None).await.unwrap().unwrap().active
    }

    fn follow(&self) -> Follower {
        self.hub.follow(key().owner)
    }

    /// Waits until the newest message shows what the test waits for. Reads when told that something changed, as a browser does.
    async fn until(&self, follower: &mut Follower, shows: impl Fn(&Message) -> bool) -> Message {
        loop {
            if let Some(newest) = self.messages().await.pop().filter(&shows) {
                return newest;
            }
            follower.changed().await.unwrap();
        }
    }

    async fn until_status(&self, follower: &mut Follower, status: ExecutionStatus) -> Message {
        self.until(follower, |message| message.execution_status == Some(status)).await
    }
}

async fn start(
    store: &Arc<dyn Store>,
    liveness: &Arc<dyn Liveness>,
    hub: &Arc<Hub>,
    puppet: &Arc<Puppet>,
    goes_on: &Arc<AtomicBool>,
) -> Arc<Turns> {
    let (puppet, goes_on) = (puppet.clone(), goes_on.clone());
    let parts = Parts {
        store: store.clone(),
        relay: Arc::new(Relay::local(hub.clone())),
        liveness: liveness.clone(),
        continuable: Box::new(move |_, _| goes_on.load(Ordering::SeqCst).then(|| puppet.clone() as Arc<dyn Engine>)),
        max_running_per_user: 8,
        metrics: Metrics::default(),
    };
    Turns::start(parts).await.unwrap()
}

/// Ends a process as `kill -9` does, as far as the others can see.
fn kill(turns: &Turns) {
    turns.guarding.cancel();
    turns.registry.cancel_all(Reason::ClaimLost);
    drop(turns.claim_slot().take());
}

fn key() -> ThreadKey {
    ThreadKey {
        project: "demo".parse().unwrap(),
        agent: "assistant".parse().unwrap(),
        thread: Uuid::from_u128(1).into(),
        owner: Uuid::from_u128(2).into(),
    }
}

fn delta(text: &str) -> Event {
    Event::TextDelta { id: "t".to_owned(), delta: text.to_owned() }
}

fn tool_call(id: &str) -> Event {
    Event::ToolCall { tool_call_id: id.to_owned(), tool_name: "clock".to_owned(), input: serde_json::json!({}) }
}

fn tool_start(id: &str) -> Event {
    Event::ToolExecutionStart { tool_call_id: id.to_owned(), tool_name: "clock".to_owned(), start_time: 1 }
}

/// Reads a live stream as a client does.
struct Live {
    stream: LiveStream,
    parser: sse::Parser,
    ready: std::collections::VecDeque<Event>,
}

impl Live {
    fn new(stream: LiveStream) -> Self {
        Self { stream, parser: sse::Parser::default(), ready: Default::default() }
    }

    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() {
            let bytes = self.stream.next().await?;
            let ready = &mut self.ready;
            self.parser.feed(&bytes, |event| ready.push_back(serde_json::from_str(&event.data).unwrap())).unwrap();
        }
        self.ready.pop_front()
    }

    async fn rest(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

#[tokio::test]
async fn the_live_stream_and_the_record_show_the_same() {
    let world = World::new().await;
    let (mut live, input, script) = world.submit(7).await;
    assert_eq!(input.history.iter().map(Message::text).collect::<Vec<_>>(), ["question 7"]);
    for event in [
        Event::StartStep,
        Event::ReasoningDelta { id: "r".to_owned(), delta: "hm".to_owned() },
        Event::ReasoningEnd { id: "r".to_owned() },
        delta("one "),
        delta("two \0"),
        Event::TextEnd { id: "t".to_owned() },
        tool_call("c1"),
        tool_start("c1"),
    ] {
        script.send(Ok(event)).unwrap();
    }
    drop(script);
    let events = live.rest().await;
    let Event::ExecutionStarted { execution_id, session_id, message_id, assistant_message_id } = events[0] else {
        panic!("{:?} is not execution-started", events[0])
    };
    assert_eq!((session_id, message_id), (key().thread, Uuid::from_u128(7).into()));
    assert_eq!(events.last(), Some(&Event::Done { session_id: key().thread, execution_id, status: ExecutionStatus::Success }));
    let mut timeline = Timeline::new();
    for event in &events {
        timeline.apply(event, 0);
    }
    let message = world.messages().await.pop().unwrap();
    assert_eq!((message.id, message.execution_status), (assistant_message_id, Some(ExecutionStatus::Success)));
    let without_times = |parts: &[Part]| {
        let mut json = serde_json::to_value(parts).unwrap();
        for part in json.as_array_mut().unwrap() {
            part.as_object_mut().unwrap().retain(|name, _| !name.ends_with("Time"));
        }
        json
    };
    assert_eq!(without_times(timeline.parts()), without_times(&message.content));
    assert_eq!(message.text(), "one two \u{fffd}");
    assert_eq!(message.content.last().unwrap().as_tool_call().unwrap().state, ToolState::Rejected, "it never got its result");
    assert_eq!(world.active().await, None);
}

#[tokio::test]
async fn a_reader_that_leaves_does_not_end_the_turn() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (mut live, _, script) = world.submit(7).await;
    script.send(Ok(delta("first "))).unwrap();
    while !matches!(live.next().await, Some(Event::TextDelta { .. })) {}
    drop(live);
    world.until(&mut follower, |message| message.text() == "first ").await;
    script.send(Ok(delta("second"))).unwrap();
    drop(script);
    let message = world.until_status(&mut follower, ExecutionStatus::Success).await;
    assert_eq!(message.text(), "first second");
}

#[tokio::test]
async fn a_submitter_that_leaves_at_any_moment_leaves_a_whole_turn_or_none() {
    let world = World::new().await;
    for polls in 0..6 {
        let mut follower = world.follow();
        {
            let mut submit = Box::pin(world.turns.submit(world.submit_of(100 + polls)));
            for _ in 0..polls {
                if futures::poll!(submit.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // Whatever was accepted runs; nothing else holds the thread once it has ended.
        loop {
            let snapshot = world.store.snapshot(&key(), None).await.unwrap();
            if world.turns.running() == 0 && snapshot.is_none_or(|snapshot| snapshot.active.is_none()) {
                break;
            }
            tokio::select! {
                (_, script) = world.puppet.next_start() => drop(script),
                _ = follower.changed() => {}
                () = tokio::task::yield_now() => {}
            }
        }
    }
    let (_live, ..) = world.submit(1_000).await;
}

#[tokio::test]
async fn a_stop_drops_the_engine_and_keeps_the_text() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (mut live, input, script) = world.submit(7).await;
    script.send(Ok(delta("kept"))).unwrap();
    script.send(Ok(tool_call("c1"))).unwrap();
    script.send(Ok(tool_start("c1"))).unwrap();
    world.until(&mut follower, |message| message.content.len() == 2).await;
    assert_eq!(world.turns.stop(&key(), input.execution).await.unwrap(), Some(true));
    script.closed().await;
    let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
    assert_eq!(message.text(), "kept");
    assert_eq!(message.content[1].as_tool_call().unwrap().state, ToolState::Cancelled);
    let rest = live.rest().await;
    assert!(rest.iter().any(|e| matches!(e, Event::ToolResult { canceled: Some(true), .. })), "{rest:?}");
    assert!(matches!(rest.last(), Some(Event::Done { status: ExecutionStatus::Cancelled, .. })));
    assert_eq!(world.turns.stop(&key(), input.execution).await.unwrap(), Some(false));
    assert_eq!(world.turns.stop(&key(), Uuid::from_u128(99).into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_stop_that_only_the_record_knows_is_seen_at_the_next_write() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (_live, input, script) = world.submit(7).await;
    world.store.request_stop(&key(), input.execution, 5).await.unwrap();
    script.send(Ok(delta("a last word"))).unwrap();
    script.closed().await;
    let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
    assert_eq!(message.text(), "a last word");
}

#[tokio::test]
async fn a_stop_before_the_first_output_counts() {
    let world = World::new().await;
    let mut follower = world.follow();
    let stream = world.turns.submit(world.submit_of(7)).await.unwrap();
    let execution = world.active().await.unwrap();
    assert_eq!(world.turns.stop(&key(), execution).await.unwrap(), Some(true));
    world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
    assert!(matches!(Live::new(stream).rest().await.last(), Some(Event::Done { .. })));
}

#[tokio::test]
async fn a_failure_is_recorded_with_the_text_before_it() {
    let world = World::new().await;
    let (mut live, _, script) = world.submit(7).await;
    script.send(Ok(delta("before"))).unwrap();
    script.send(Err(TurnError { message: "cut".to_owned(), code: Some("provider_cut") })).unwrap();
    let events = live.rest().await;
    let tail: Vec<_> = events.iter().rev().take(3).collect();
    assert!(matches!(tail[0], Event::Done { status: ExecutionStatus::Error, .. }));
    assert!(events.contains(&Event::Error { message: "cut".to_owned(), error_code: Some("provider_cut".to_owned()) }));
    let message = world.messages().await.pop().unwrap();
    assert_eq!((message.text().as_str(), message.execution_status), ("before", Some(ExecutionStatus::Error)));
    assert_eq!(message.execution_error.unwrap().error_code.as_deref(), Some("provider_cut"));
}

struct Panicking;

impl Engine for Panicking {
    fn start(&self, _: TurnInput) -> EventStream {
        Box::pin(futures::stream::iter([Ok(delta("before"))]).chain(futures::stream::poll_fn(|_| panic!("a bug in an engine"))))
    }
}

#[tokio::test]
async fn a_bug_in_an_engine_ends_its_turn_and_not_the_server() {
    let world = World::new().await;
    let stream = world.turns.submit(Submit { engine: Arc::new(Panicking), ..world.submit_of(7) }).await.unwrap();
    let events = Live::new(stream).rest().await;
    assert!(matches!(events.last(), Some(Event::Done { status: ExecutionStatus::Error, .. })));
    assert_eq!(world.messages().await.pop().unwrap().text(), "before");
    let (_live, ..) = world.submit(8).await;
}

#[tokio::test]
async fn an_execution_that_lost_its_claim_writes_nothing_more() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (mut live, _, script) = world.submit(7).await;
    script.send(Ok(delta("mine"))).unwrap();
    world.until(&mut follower, |message| message.text() == "mine").await;
    // As another process does that takes this one for dead.
    for orphan in world.store.orphans(world.turns.process().unwrap()).await.unwrap() {
        world.store.flush([recovery::ending(orphan, ExecutionStatus::Interrupted, 5).unwrap()].into()).await.unwrap();
    }
    script.send(Ok(delta(" and late"))).unwrap();
    script.closed().await;
    assert!(!live.rest().await.iter().any(|event| matches!(event, Event::Done { .. })), "it has nothing final to say");
    // Until it has a new one, it refuses.
    while world.turns.process().is_err() {
        tokio::task::yield_now().await;
    }
    let message = world.messages().await.pop().unwrap();
    assert_eq!((message.text().as_str(), message.execution_status), ("mine", Some(ExecutionStatus::Interrupted)));
    while let Some(told) = follower.changed().now_or_never().flatten() {
        if let Told::Changed(updates) = told {
            assert!(updates.iter().all(|update| update.revision < message.revision), "a late write is told of: {updates:?}");
        }
    }
}

#[tokio::test]
async fn a_full_disk_delays_the_record_and_loses_nothing() {
    let (world, sqlite) = World::on_sqlite(|_| async {}).await;
    let mut follower = world.follow();
    let (mut live, _, script) = world.submit(7).await;
    script.send(Ok(delta("before "))).unwrap();
    world.until(&mut follower, |message| message.text() == "before ").await;
    sqlite.limit_size(true).await;
    let long = "x".repeat(200_000);
    script.send(Ok(delta(&long))).unwrap();
    script.send(Ok(Event::TextEnd { id: "t".to_owned() })).unwrap();
    // A submit meets the full disk while the turn does: it is refused, and nothing of it stays.
    let refused = world.turns.submit(Submit {
        key: ThreadKey { thread: Uuid::from_u128(9).into(), ..key() },
        text: long.clone(),
        ..world.submit_of(8)
    });
    assert!(matches!(refused.await, Err(Refused::Store(StoreError::Unavailable(_)))));
    drop(script);
    assert_eq!(world.messages().await.pop().unwrap().text(), "before ", "what was recorded stays");
    sqlite.limit_size(false).await;
    let message = world.until_status(&mut follower, ExecutionStatus::Success).await;
    assert_eq!(message.text(), format!("before {long}"));
    assert!(matches!(live.rest().await.last(), Some(Event::Done { status: ExecutionStatus::Success, .. })));
}

/// Looks into the record from within, between the start of a tool and whatever the tool does.
struct Suspicious {
    store: Arc<dyn Store>,
}

impl Engine for Suspicious {
    fn start(&self, _: TurnInput) -> EventStream {
        let store = self.store.clone();
        Box::pin(async_stream::stream! {
            yield Ok(tool_call("c1"));
            yield Ok(tool_start("c1"));
            let snapshot = store.snapshot(&key(), None).await.unwrap().unwrap();
            let message = snapshot.messages.into_iter().next_back().unwrap().parse().unwrap();
            yield Ok(delta(&format!("{:?}", message.content[0].as_tool_call().unwrap().state)));
        })
    }
}

#[tokio::test]
async fn the_start_of_a_tool_is_recorded_before_the_tool_runs() {
    let world = World::new().await;
    let engine = Arc::new(Suspicious { store: world.store.clone() });
    let stream = world.turns.submit(Submit { engine, ..world.submit_of(7) }).await.unwrap();
    Live::new(stream).rest().await;
    assert_eq!(world.messages().await.pop().unwrap().text(), "Running");
}

fn suspended(input: &TurnInput, id: &str) -> Event {
    Event::ToolCallSuspended {
        payload: Suspension {
            tool_call_id: id.to_owned(),
            run_id: input.run,
            tool_name: "clock".to_owned(),
            input: serde_json::json!({}),
            suspend_payload: Some(SuspendPayload::Approval { tool_name: "clock".to_owned(), input: serde_json::json!({}) }),
        },
    }
}

#[tokio::test]
async fn a_suspended_turn_goes_on_in_the_same_message() {
    let world = World::new().await;
    let (mut live, input, script) = world.submit(7).await;
    script.send(Ok(delta("may I?"))).unwrap();
    script.send(Ok(Event::TextEnd { id: "t".to_owned() })).unwrap();
    script.send(Ok(tool_call("c1"))).unwrap();
    script.send(Ok(suspended(&input, "c1"))).unwrap();
    drop(script);
    assert!(matches!(live.rest().await.last(), Some(Event::ToolCallSuspended { .. })), "no done after a suspension");
    let waiting = world.messages().await.pop().unwrap();
    assert_eq!(waiting.execution_status, Some(ExecutionStatus::Suspended));
    assert_eq!(world.active().await, None);
    assert!(matches!(world.turns.submit(world.submit_of(8)).await, Err(Refused::InteractionOpen)));

    let resume = || Resume {
        project: key().project,
        agent: key().agent,
        owner: key().owner,
        run: input.run,
        tool_call_id: "c1".to_owned(),
        answer: ResumeData::Approval { approved: true, reason: None },
        engine: world.puppet.clone(),
    };
    let mut live = Live::new(world.turns.resume(resume()).await.unwrap());
    assert!(matches!(world.turns.resume(resume()).await, Err(Refused::InteractionClosed)));
    let (again, script) = world.puppet.next_start().await;
    assert_eq!(again.so_far, waiting.content);
    assert_eq!(again.answers.len(), 1);
    assert_ne!(again.execution, input.execution);
    let result = Event::ToolResult {
        tool_call_id: "c1".to_owned(),
        tool_name: "clock".to_owned(),
        output: serde_json::json!("noon"),
        is_error: None,
        canceled: None,
    };
    script.send(Ok(result)).unwrap();
    script.send(Ok(delta("it is noon"))).unwrap();
    drop(script);
    let events = live.rest().await;
    assert!(matches!(&events[0], Event::ExecutionStarted { assistant_message_id, message_id, .. }
        if *assistant_message_id == waiting.id && *message_id == Uuid::from_u128(7).into()));
    let messages = world.messages().await;
    assert_eq!(messages.len(), 2, "one assistant message per turn");
    assert_eq!(messages[1].execution_status, Some(ExecutionStatus::Success));
    assert_eq!(messages[1].content.len(), 3);
    assert_eq!(messages[1].content[1].as_tool_call().unwrap().state, ToolState::Resolved);
}

#[tokio::test]
async fn a_question_that_nobody_answers_expires_and_says_so() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (mut live, input, script) = world.submit(7).await;
    script.send(Ok(tool_call("c1"))).unwrap();
    script.send(Ok(suspended(&input, "c1"))).unwrap();
    drop(script);
    live.rest().await;
    world.turns.expire_suspended(Duration::from_secs(3_600)).await.unwrap();
    assert_eq!(world.messages().await.pop().unwrap().execution_status, Some(ExecutionStatus::Suspended), "it has time left");
    // The clock counts milliseconds: it may take one of them until "longer than nothing" is true.
    while world.messages().await.pop().unwrap().execution_status == Some(ExecutionStatus::Suspended) {
        world.turns.expire_suspended(Duration::ZERO).await.unwrap();
    }
    let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
    assert_eq!(message.execution_error.unwrap().error_code.as_deref(), Some("interaction_expired"));
    let (_live, ..) = world.submit(8).await;
}

#[tokio::test]
async fn a_stop_wins_over_a_suspension_that_it_races() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (mut live, input, script) = world.submit(7).await;
    world.store.request_stop(&key(), input.execution, 5).await.unwrap();
    script.send(Ok(tool_call("c1"))).unwrap();
    script.send(Ok(suspended(&input, "c1"))).unwrap();
    drop(script);
    let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
    let call = message.content[0].as_tool_call().unwrap();
    assert_eq!((call.state, &call.suspend_payload), (ToolState::Cancelled, &None), "as the live stream shows it");
    let told = live.rest().await;
    assert!(matches!(told.last(), Some(Event::Done { status: ExecutionStatus::Cancelled, .. })));
    assert!(!told.iter().any(|event| matches!(event, Event::ToolCallSuspended { .. })), "no `done` comes after a suspension");
}

/// Whoever was told that a running turn is asked to stop does not find it complete, or failed.
#[tokio::test]
async fn a_stop_wins_over_every_end_that_it_races() {
    let failure = || Err(TurnError { message: "cut".to_owned(), code: Some("provider_cut") });
    for (n, last) in [(7, Ok(delta("the end"))), (8, failure())] {
        let world = World::new().await;
        let mut follower = world.follow();
        let (mut live, input, script) = world.submit(n).await;
        // Recorded, and the end is quicker than its telling.
        assert_eq!(world.store.request_stop(&key(), input.execution, 5).await.unwrap(), StopOutcome::Requested);
        script.send(last).unwrap();
        drop(script);
        let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
        assert_eq!(message.execution_error, None);
        let told = live.rest().await;
        assert!(matches!(told.last(), Some(Event::Done { status: ExecutionStatus::Cancelled, .. })));
        assert!(!told.iter().any(|event| matches!(event, Event::Error { .. })), "what is told is what is recorded");
    }
}

#[tokio::test]
async fn a_suspension_is_in_the_record_before_anyone_is_told() {
    let world = World::new().await;
    for n in 7..27 {
        let key = ThreadKey { thread: Uuid::from_u128(n).into(), ..key() };
        let stream = world.turns.submit(Submit { key: key.clone(), ..world.submit_of(n) }).await.unwrap();
        let (input, script) = world.puppet.next_start().await;
        script.send(Ok(tool_call("c1"))).unwrap();
        script.send(Ok(suspended(&input, "c1"))).unwrap();
        drop(script);
        let mut live = Live::new(stream);
        while !matches!(live.next().await, Some(Event::ToolCallSuspended { .. })) {}
        let read = world.store.snapshot(&key, None).await.unwrap().unwrap();
        assert_eq!((read.suspensions.len(), read.active), (1, None));
    }
}

/// A record that cannot be read must not leave a turn that runs for ever.
#[tokio::test]
async fn a_turn_whose_thread_cannot_be_read_ends() {
    let (world, sqlite) = World::on_sqlite(|_| async {}).await;
    let (mut live, _, script) = world.submit(7).await;
    drop(script);
    live.rest().await;
    sqlite.execute("UPDATE messages SET content = '[{}]' WHERE role = 'assistant'").await;
    let stream = world.turns.submit(world.submit_of(8)).await.unwrap();
    let told = Live::new(stream).rest().await;
    assert!(matches!(told.last(), Some(Event::Done { status: ExecutionStatus::Error, .. })));
    assert_eq!(world.active().await, None);
}

#[tokio::test]
async fn a_stop_wins_over_a_shutdown_that_it_races() {
    let world = World::new().await;
    let (mut live, input, _script) = world.submit(7).await;
    // Recorded, and the shutdown is quicker than its telling.
    world.store.request_stop(&key(), input.execution, 5).await.unwrap();
    world.turns.drain(std::future::ready(())).await;
    let message = world.messages().await.pop().unwrap();
    assert_eq!((message.execution_status, message.execution_error), (Some(ExecutionStatus::Cancelled), None));
    assert!(matches!(live.rest().await.last(), Some(Event::Done { status: ExecutionStatus::Cancelled, .. })));
}

#[tokio::test]
async fn draining_lets_turns_end_and_takes_no_new_ones() {
    let world = World::new().await;
    let (mut live, _, script) = world.submit(7).await;
    let drain = tokio::spawn({
        let turns = world.turns.clone();
        async move { turns.drain(std::future::pending()).await }
    });
    while !world.turns.is_draining() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(world.turns.submit(world.submit_of(8)).await, Err(Refused::ShuttingDown)));
    script.send(Ok(delta("to the end"))).unwrap();
    drop(script);
    drain.await.unwrap();
    assert!(matches!(live.rest().await.last(), Some(Event::Done { status: ExecutionStatus::Success, .. })));
}

#[tokio::test]
async fn what_outlives_the_drain_is_interrupted_with_its_text() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (_live, _, script) = world.submit(7).await;
    script.send(Ok(delta("half a"))).unwrap();
    world.until(&mut follower, |message| message.text() == "half a").await;
    world.turns.drain(std::future::ready(())).await;
    let message = world.messages().await.pop().unwrap();
    assert_eq!((message.text().as_str(), message.execution_status), ("half a", Some(ExecutionStatus::Interrupted)));
    assert!(message.execution_error.is_some());
}

/// What a process of that id leaves behind: a turn that runs in each of these threads, asked to stop in some.
async fn leave_behind(store: &dyn Store, process: ProcessId, threads: [(u128, bool); 2]) {
    for (thread, stopped) in threads {
        let execution = Uuid::from_u128(thread).into();
        let turn = NewTurn {
            key: at(thread),
            choice: ThreadChoice::NewIfUnknown,
            title: String::new(),
            message: Uuid::from_u128(thread + 100).into(),
            content: vec![],
            attachments: Vec::new(),
            assistant_message: Uuid::from_u128(thread + 200).into(),
            execution,
            process,
            max_running: 8,
            at: 1,
        };
        assert!(matches!(store.admit(turn).await.unwrap(), Admission::Accepted { .. }));
        if stopped {
            store.request_stop(&at(thread), execution, 2).await.unwrap();
        }
    }
}

fn at(thread: u128) -> ThreadKey {
    ThreadKey { thread: Uuid::from_u128(thread).into(), ..key() }
}

async fn status(store: &dyn Store, thread: u128) -> ExecutionStatus {
    store.snapshot(&at(thread), None).await.unwrap().unwrap().messages.pop().unwrap().status.unwrap()
}

#[tokio::test]
async fn a_start_ends_what_the_process_before_it_left() {
    let dead = Uuid::from_u128(0xdead).into();
    let (world, _) = World::on_sqlite(|store| async move { leave_behind(&store, dead, [(50, false), (51, true)]).await }).await;
    assert_eq!(status(&*world.store, 50).await, ExecutionStatus::Interrupted);
    assert_eq!(status(&*world.store, 51).await, ExecutionStatus::Cancelled, "the Stop was asked for before the death");
}

#[tokio::test]
async fn a_start_ends_what_a_dead_process_left_and_only_that() {
    // Dead: no lock is held in its name.
    let dead = Uuid::from_u128(0xdead).into();
    let (world, store) = World::on_postgres(|store| async move {
        postgres::register(&store, [dead]).await;
        leave_behind(&store, dead, [(50, false), (51, true)]).await;
    })
    .await;
    let mut follower = world.follow();
    // A cluster that has just started says nothing of its locks: then this takes a moment, and is told.
    while status(&store, 50).await == ExecutionStatus::Running || status(&store, 51).await == ExecutionStatus::Running {
        follower.changed().await.unwrap();
    }
    // Alive: this world's own process.
    let (_live, _, script) = world.submit(7).await;
    let second = world.another().await;
    assert_eq!(status(&store, 50).await, ExecutionStatus::Interrupted);
    assert_eq!(status(&store, 51).await, ExecutionStatus::Cancelled, "the Stop was asked for before the death");
    assert_eq!(status(&store, 1).await, ExecutionStatus::Running);
    script.send(Ok(delta("still mine"))).unwrap();
    drop(script);
    world.until_status(&mut follower, ExecutionStatus::Success).await;
    second.release().await;
}

/// Stops the turn of [`World::submit`] after a survivor has looked at what its dead process left, and before it does anything.
async fn stop_in_between(store: &PostgresStore, dying: &Turns, execution: ExecutionId) {
    let mut transaction = store.pool().begin_with("BEGIN").await.unwrap();
    sqlx::query("SELECT 1 FROM threads WHERE id = $1 FOR UPDATE").bind(key().thread.0).execute(&mut *transaction).await.unwrap();
    kill(dying);
    // It has looked once it waits for the thread.
    let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                   AND query LIKE '%FROM threads%FOR UPDATE%'";
    while sqlx::query(waits).fetch_optional(store.pool()).await.unwrap().is_none() {}
    sqlx::query("UPDATE executions SET cancel_requested = TRUE WHERE id = $1")
        .bind(execution.0)
        .execute(&mut *transaction)
        .await
        .unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn a_stop_that_comes_during_recovery_wins_over_an_interruption_and_over_going_on() {
    for goes_on in [false, true] {
        let (world, store) = World::shared().await;
        world.goes_on.store(goes_on, Ordering::SeqCst);
        let mut follower = world.follow();
        let (_live, input, script) = world.submit(7).await;
        script.send(Ok(delta("kept"))).unwrap();
        world.until(&mut follower, |message| message.text() == "kept").await;
        let second = world.another().await;
        stop_in_between(&store, &world.turns, input.execution).await;
        let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
        assert_eq!((message.text().as_str(), message.execution_error), ("kept", None));
        assert_eq!(message.execution_id, Some(input.execution), "it was not gone on with");
        second.release().await;
    }
}

#[tokio::test]
async fn followers_are_told_of_an_end_whose_commit_was_not_answered() {
    let url = turnfast_test_postgres::database().unwrap();
    let wire = turnfast_test_postgres::Wire::to(&url).unwrap();
    let (own, store) = (PostgresStore::open(wire.url()).await.unwrap(), PostgresStore::open(&url).await.unwrap());
    let world = World::over(Arc::new(store.clone()), Arc::new(own), Arc::new(PostgresLocks::new(&store))).await;
    let mut follower = world.follow();
    let (_live, _, script) = world.submit(7).await;
    script.send(Ok(delta("all of it"))).unwrap();
    world.until(&mut follower, |message| message.text() == "all of it").await;
    wire.break_after("COMMIT");
    drop(script);
    let Some(Told::Changed(updates)) = follower.changed().await else { panic!("nothing was lost") };
    let message = world.messages().await.pop().unwrap();
    assert_eq!(message.execution_status, Some(ExecutionStatus::Success));
    assert_eq!(updates[0].revision, message.revision);
}

#[tokio::test]
async fn a_death_is_noticed_by_a_living_process_and_its_turn_is_interrupted() {
    let (world, _) = World::shared().await;
    let second = world.another().await;
    let mut follower = world.follow();
    let (_live, _, script) = world.submit(7).await;
    script.send(Ok(delta("half a"))).unwrap();
    world.until(&mut follower, |message| message.text() == "half a").await;
    kill(&world.turns);
    let message = world.until_status(&mut follower, ExecutionStatus::Interrupted).await;
    assert_eq!(message.text(), "half a");
    assert_eq!(message.execution_error.unwrap().error_code.as_deref(), Some("process_died"));
    script.closed().await;
    assert!(second.submit(world.submit_of(8)).await.is_ok(), "the thread is usable");
    assert!(matches!(world.turns.submit(world.submit_of(9)).await, Err(Refused::Store(StoreError::ClaimLost))));
}

#[tokio::test]
async fn an_agent_that_goes_on_does_so_in_the_same_message_three_times() {
    let (world, _) = World::shared().await;
    world.goes_on.store(true, Ordering::SeqCst);
    let mut follower = world.follow();
    let (_live, first, script) = world.submit(7).await;
    script.send(Ok(delta("one "))).unwrap();
    script.send(Ok(tool_call("c1"))).unwrap();
    script.send(Ok(tool_start("c1"))).unwrap();
    world.until(&mut follower, |message| message.content.len() == 2).await;
    let mut dying = world.turns.clone();
    let mut executions = vec![first.execution];
    // An engine whose script is dropped comes to its end.
    let mut scripts = vec![script];
    for n in 1..=3 {
        let next = world.another().await;
        kill(&dying);
        let (input, script) = world.puppet.next_start().await;
        assert_eq!(input.run, first.run);
        assert!(!executions.contains(&input.execution));
        executions.push(input.execution);
        assert_eq!(input.history.iter().map(Message::text).collect::<Vec<_>>(), ["question 7"]);
        assert_eq!(input.so_far[1].as_tool_call().unwrap().state, ToolState::Running, "the engine is told that it ran");
        let word = format!("again {n} ");
        script.send(Ok(delta(&word))).unwrap();
        world.until(&mut follower, |message| message.text().ends_with(&word)).await;
        scripts.push(script);
        dying = next;
    }
    let last = world.another().await;
    kill(&dying);
    let message = world.until_status(&mut follower, ExecutionStatus::Interrupted).await;
    assert_eq!(message.text(), "one again 1 again 2 again 3 ");
    assert_eq!(message.execution_id, executions.last().copied());
    assert_eq!(message.content[1].as_tool_call().unwrap().state, ToolState::Rejected);
    assert!(message.execution_error.unwrap().message.contains("3 attempts"));
    assert_eq!(world.messages().await.len(), 2, "one assistant message per turn");
    last.release().await;
}

#[tokio::test]
async fn a_stop_that_a_dead_process_did_not_see_wins_over_going_on() {
    let (world, _) = World::shared().await;
    world.goes_on.store(true, Ordering::SeqCst);
    let mut follower = world.follow();
    let (_live, input, script) = world.submit(7).await;
    script.send(Ok(delta("kept"))).unwrap();
    world.until(&mut follower, |message| message.text() == "kept").await;
    let second = world.another().await;
    world.store.request_stop(&key(), input.execution, 5).await.unwrap();
    kill(&world.turns);
    let message = world.until_status(&mut follower, ExecutionStatus::Cancelled).await;
    assert_eq!(message.text(), "kept");
    assert!(second.submit(world.submit_of(8)).await.is_ok());
}

#[tokio::test]
async fn a_process_that_lost_its_claim_goes_on_as_a_new_one_and_its_turns_end() {
    let (world, _) = World::shared().await;
    let mut follower = world.follow();
    let (mut live, _, script) = world.submit(7).await;
    script.send(Ok(delta("half a"))).unwrap();
    world.until(&mut follower, |message| message.text() == "half a").await;
    let old = world.turns.process().unwrap();
    world.turns.claim_slot().as_ref().unwrap().lost.cancel();
    let message = world.until_status(&mut follower, ExecutionStatus::Interrupted).await;
    assert_eq!(message.text(), "half a");
    script.closed().await;
    assert!(!live.rest().await.iter().any(|event| matches!(event, Event::Done { .. })), "it has nothing final to say");
    // Until it has a new one, it refuses.
    while world.turns.process().is_err() {
        tokio::task::yield_now().await;
    }
    let (_live, _, script) = world.submit(8).await;
    assert_ne!(world.turns.process().unwrap(), old);
    drop(script);
    world.until_status(&mut follower, ExecutionStatus::Success).await;
}

#[tokio::test]
async fn the_last_notification_names_the_final_revision() {
    let world = World::new().await;
    let mut follower = world.follow();
    let (mut live, _, script) = world.submit(7).await;
    for n in 0..50 {
        script.send(Ok(delta(&n.to_string()))).unwrap();
        script.send(Ok(Event::TextEnd { id: "t".to_owned() })).unwrap();
    }
    drop(script);
    live.rest().await;
    let last = world.store.revision(&key()).await.unwrap().unwrap();
    let mut told = 0;
    while told < last {
        let Some(Told::Changed(updates)) = follower.changed().await else { panic!("nothing was lost") };
        for update in updates {
            assert!(update.revision > told, "revisions only rise");
            told = update.revision;
        }
    }
    assert_eq!(told, last);
}

#[test]
fn a_title_is_the_first_line_that_says_anything() {
    assert_eq!(title_of("\n  Hello there \nmore", &[]), "Hello there");
    assert_eq!(title_of("   \n", &[]), "New conversation");
    assert_eq!(title_of("\u{200b}\n\u{1b}[1mBold\tmove\u{7}", &[]), "[1mBold move");
    assert_eq!(title_of(&"é".repeat(TITLE_CHARS), &[]), "é".repeat(TITLE_CHARS));
    let long = title_of(&"é".repeat(TITLE_CHARS + 1), &[]);
    assert_eq!(long.chars().count(), TITLE_CHARS);
    assert!(long.ends_with("é…"));
}
