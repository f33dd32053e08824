//! The loop with a model that plays back what a test wrote down.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use turnfast_shared::{Event, ExecutionStatus, Part, Role, Timeline, ToolState, limits::CHILD_TRACE_CHARS};

use super::*;
use crate::agents::{
    conversation::{Item, Outcome},
    model::{FinishReason, Model, ModelEvent, ModelRequest, ModelStream, ToolDefinition},
    tools::{AskUser, Clock, Delegate, Tool, ToolContext, ToolEvent, ToolRun},
    turn_loop::{CONCURRENT_CALLS, DELEGATION_DEPTH, NativeAgent, NativeEngine, Roster, STEPS_PER_RUN},
};

type Answer = Vec<Result<ModelEvent, TurnError>>;

/// What a model was asked.
#[derive(Clone, Debug)]
struct Asked {
    conversation: Vec<Item>,
    tools: Vec<String>,
}

/// Answers one request after the other as written down, and keeps what it was asked. Past the end it says "done".
#[derive(Default)]
struct Playback {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Asked>>,
}

impl Playback {
    fn new(answers: Vec<Vec<ModelEvent>>) -> Arc<Self> {
        let answers = answers.into_iter().map(|answer| answer.into_iter().map(Ok).collect()).collect();
        Arc::new(Self { answers: Mutex::new(answers), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Model for Playback {
    fn stream(&self, request: ModelRequest<'_>) -> ModelStream {
        self.asked.lock().unwrap().push(Asked {
            conversation: request.conversation.to_vec(),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
        });
        let answer = self.answers.lock().unwrap().pop_front();
        stream::iter(answer.unwrap_or_else(|| vec![Ok(text("done")), Ok(stop())])).boxed()
    }
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.to_owned())
}

fn stop() -> ModelEvent {
    ModelEvent::Finish(FinishReason::Stop)
}

/// An answer that calls tools: id, name, input.
fn calling(calls: &[(&str, &str, Value)]) -> Vec<ModelEvent> {
    let mut events = Vec::new();
    for (number, (id, name, input)) in calls.iter().enumerate() {
        let id = (!id.is_empty()).then(|| (*id).to_owned());
        events.push(ModelEvent::CallStart { call: number, id, name: (*name).to_owned() });
        events.push(ModelEvent::Call { call: number, input: Ok(input.clone()) });
    }
    events.push(stop());
    events
}

/// What a [`TestTool`] does: with its input, gives the future of its result.
type Behaviour = Box<dyn Fn(Value) -> futures::future::BoxFuture<'static, Result<Value, String>> + Send + Sync>;

struct TestTool {
    definition: ToolDefinition,
    behaviour: Behaviour,
}

impl Tool for TestTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call(&self, input: Value, _: ToolContext) -> ToolRun {
        let result = (self.behaviour)(input);
        result
            .map(|result| match result {
                Ok(output) => ToolEvent::Output(output),
                Err(why) => ToolEvent::Failed(why),
            })
            .into_stream()
            .boxed()
    }
}

fn tool(
    name: &str,
    behaviour: impl Fn(Value) -> futures::future::BoxFuture<'static, Result<Value, String>> + Send + Sync + 'static,
) -> Arc<dyn Tool> {
    let definition = ToolDefinition { name: name.to_owned(), description: String::new(), input_schema: json!({}) };
    Arc::new(TestTool { definition, behaviour: Box::new(behaviour) })
}

fn echo(name: &str) -> Arc<dyn Tool> {
    tool(name, |input| future::ready(Ok(json!({"echo": input}))).boxed())
}

fn agent(model: &Arc<Playback>, tools: Vec<Arc<dyn Tool>>, approve: &[&str]) -> Arc<NativeAgent> {
    Arc::new(NativeAgent {
        model: Arc::clone(model) as Arc<dyn Model>,
        instructions: None,
        tools,
        sources: Vec::new(),
        approve: approve.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>(),
    })
}

fn engine(model: &Arc<Playback>, tools: Vec<Arc<dyn Tool>>, approve: &[&str]) -> NativeEngine {
    NativeEngine::new(agent(model, tools, approve), Arc::new(Roster::default()))
}

fn hello() -> TurnInput {
    input(vec![typed("hello")])
}

fn states(execution: &Execution) -> Vec<(&str, ToolState)> {
    execution.calls().into_iter().map(|call| (call.tool_call_id.as_str(), call.state)).collect()
}

/// The outcomes that the model was told in its last request.
fn told(model: &Playback) -> Vec<(String, Outcome)> {
    let asked = model.asked();
    let items = asked.last().unwrap().conversation.iter().filter_map(|item| match item {
        Item::Agent { calls, .. } => Some(calls),
        _ => None,
    });
    items.flatten().map(|call| (call.id.clone(), call.outcome.clone())).collect()
}

#[tokio::test]
async fn parts_open_and_close_in_order() {
    let mut events = vec![ModelEvent::Reasoning("hm".to_owned()), text("I"), text(" call"), text("")];
    events.extend(calling(&[("a", "echo", json!({"n": 1}))]));
    events.insert(4, ModelEvent::Reasoning("well".to_owned()));
    let model = Playback::new(vec![events]);
    let done = execute(&engine(&model, vec![echo("echo")], &[]), hello()).await;
    let reasoning = ["reasoning-start", "reasoning-delta", "reasoning-end"];
    let said = ["text-start", "text-delta", "text-end"];
    let call = ["tool-input-start", "tool-call", "finish-step", "tool-execution-start", "tool-execution-end", "tool-result"];
    assert_eq!(
        done.kinds(),
        [&["start-step"][..], &reasoning, &said, &reasoning, &call, &["start-step"], &said, &["finish-step"]].concat()
    );
    let ids: BTreeSet<_> = done
        .events
        .iter()
        .filter_map(|event| match event {
            Event::TextStart { id } | Event::ReasoningStart { id } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, BTreeSet::from(["r0", "r1", "t0", "t1"]));
    assert_eq!(done.text(), "I calldone");
    assert_eq!(told(&model), [("a".to_owned(), Outcome::ok(json!({"echo": {"n": 1}})))]);
}

#[tokio::test]
async fn usage_goes_with_its_step() {
    let usage = turnfast_shared::event::Usage { input_tokens: Some(7), ..Default::default() };
    let model = Playback::new(vec![vec![text("hi"), ModelEvent::Usage(usage), stop()]]);
    let done = execute(&engine(&model, vec![], &[]), hello()).await;
    assert_eq!(done.events.last(), Some(&Event::FinishStep { usage: Some(usage) }));
}

#[tokio::test]
async fn call_ids_are_unique_within_the_message_over_executions() {
    let so_far = |id: &str| {
        let mut timeline = Timeline::new();
        timeline.apply(&Event::ToolCall { tool_call_id: id.to_owned(), tool_name: "echo".to_owned(), input: json!({}) }, 1);
        timeline.apply(
            &Event::ToolResult {
                tool_call_id: id.to_owned(),
                tool_name: "echo".to_owned(),
                output: json!(1),
                is_error: None,
                canceled: None,
            },
            1,
        );
        timeline.into_parts()
    };
    let long = "x".repeat(500);
    let calls = [
        ("call_1_1", "echo", json!({})),
        ("", "echo", json!({})),
        ("b", "echo", json!({})),
        ("b", "echo", json!({})),
        (&long, "echo", json!({})),
        ("a\0b", "echo", json!({})),
    ];
    let model = Playback::new(vec![calling(&calls), calling(&[("b", "echo", json!({})), ("", "echo", json!({}))])]);
    let done = execute(&engine(&model, vec![echo("echo")], &[]), TurnInput { so_far: so_far("call_1_1"), ..hello() }).await;
    let ids: Vec<_> = states(&done).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["call_1_1", "call_1_1_2", "call_1_2", "b", "call_1_4", "call_1_5", "call_1_6", "call_2_1", "call_2_2"]);
    assert!(states(&done).iter().all(|(_, state)| *state == ToolState::Resolved));
}

#[tokio::test]
async fn what_cannot_run_is_told_to_the_model_and_the_turn_goes_on() {
    let mut events =
        calling(&[("a", "nothing", json!({})), ("b", "echo", json!([1])), ("c", "ask_user", json!({"question": " "}))]);
    events.insert(0, ModelEvent::CallStart { call: 9, id: Some("d".to_owned()), name: "echo".to_owned() });
    events.insert(1, ModelEvent::Call { call: 9, input: Err("{\"n\":".to_owned()) });
    let model = Playback::new(vec![events, calling(&[("e", "fails", json!({}))])]);
    let fails = tool("fails", |_| future::ready(Err("no paper".to_owned())).boxed());
    let done = execute(&engine(&model, vec![echo("echo"), Arc::new(AskUser::new()), fails], &[]), hello()).await;
    assert_eq!((done.status(), done.text().as_str()), (ExecutionStatus::Success, "done"));
    assert!(states(&done).iter().all(|(_, state)| *state == ToolState::Rejected));
    for (id, words) in [
        ("a", "There is no tool `nothing`. The tools are: echo, ask_user, fails."),
        ("b", "JSON object"),
        ("c", "question"),
        ("d", "not valid JSON"),
        ("e", "no paper"),
    ] {
        let told = told(&model);
        let (_, outcome) = told.iter().find(|(told, _)| told == id).unwrap();
        assert!(outcome.is_error && outcome.output.as_str().unwrap().contains(words), "{id}: {outcome:?}");
    }
    assert_eq!(done.calls()[0].input, json!("{\"n\":"), "a person can see what the model wrote");
    let started = done.events.iter().filter(|event| matches!(event, Event::ToolExecutionStart { .. })).count();
    assert_eq!(started, 1);
}

#[tokio::test]
async fn calls_of_a_step_run_at_the_same_time() {
    // Each waits until all have begun.
    let all = Arc::new(tokio::sync::Barrier::new(3));
    let meet = tool("meet", move |input| {
        let all = Arc::clone(&all);
        async move {
            all.wait().await;
            Ok(input)
        }
        .boxed()
    });
    let calls: Vec<_> = ["a", "b", "c"].into_iter().map(|id| (id, "meet", json!({"id": id}))).collect();
    let model = Playback::new(vec![calling(&calls)]);
    let done = execute(&engine(&model, vec![meet], &[]), hello()).await;
    assert_eq!(done.status(), ExecutionStatus::Success);
    for call in done.calls() {
        assert_eq!(call.output, Some(json!({"id": call.tool_call_id})));
    }
}

#[tokio::test]
async fn more_calls_than_may_run_at_once_wait_for_their_turn() {
    let running = Arc::new(Mutex::new((0_usize, 0_usize)));
    let seen = Arc::clone(&running);
    let busy = tool("busy", move |_| {
        let running = Arc::clone(&running);
        async move {
            {
                let mut running = running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
            }
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            running.lock().unwrap().0 -= 1;
            Ok(json!(null))
        }
        .boxed()
    });
    let ids: Vec<_> = (0..CONCURRENT_CALLS * 3).map(|n| n.to_string()).collect();
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "busy", json!({}))).collect();
    let model = Playback::new(vec![calling(&calls)]);
    let done = execute(&engine(&model, vec![busy], &[]), hello()).await;
    assert!(done.calls().iter().all(|call| call.state == ToolState::Resolved));
    assert_eq!(seen.lock().unwrap().1, CONCURRENT_CALLS);
}

/// The contract of [`crate::agents::EventStream`]: whoever polls decides when a tool runs.
#[tokio::test]
async fn a_tool_does_not_run_before_its_start_was_taken() {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&ran);
    let logs = tool("logs", move |input| {
        let log = Arc::clone(&log);
        async move {
            log.lock().unwrap().push(input["id"].as_str().unwrap().to_owned());
            Ok(json!(null))
        }
        .boxed()
    });
    let calls: Vec<_> = ["a", "b", "c"].into_iter().map(|id| (id, "logs", json!({"id": id}))).collect();
    let model = Playback::new(vec![calling(&calls)]);
    let mut stream = engine(&model, vec![logs], &[]).start(hello());
    let mut started = BTreeSet::new();
    while let Some(event) = stream.next().await {
        // What ran until now was started by an event taken before this one.
        assert!(ran.lock().unwrap().iter().all(|id| started.contains(id)), "{:?} before {started:?}", ran.lock().unwrap());
        if let Event::ToolExecutionStart { tool_call_id, .. } = event.unwrap() {
            assert!(!ran.lock().unwrap().contains(&tool_call_id));
            started.insert(tool_call_id);
        }
    }
    assert_eq!(started.len(), 3);
}

#[tokio::test]
async fn dropping_the_stream_stops_the_tools() {
    let (begun, mut stopped) = (Arc::new(Notify::new()), Vec::new());
    let mut senders = Vec::new();
    for _ in 0..2 {
        let (sender, receiver) = oneshot::channel::<()>();
        senders.push(sender);
        stopped.push(receiver);
    }
    let senders = Arc::new(Mutex::new(senders));
    let signal = Arc::clone(&begun);
    let hangs = tool("hangs", move |_| {
        // Dropped with the future.
        let guard = senders.lock().unwrap().pop();
        let signal = Arc::clone(&signal);
        async move {
            signal.notify_one();
            future::pending::<()>().await;
            drop(guard);
            Ok(Value::Null)
        }
        .boxed()
    });
    let model = Playback::new(vec![calling(&[("a", "hangs", json!({})), ("b", "hangs", json!({}))])]);
    let mut stream = engine(&model, vec![hangs], &[]).start(hello());
    let mut events = Vec::new();
    // Until both hang: the stream has nothing more to say then.
    while let Some(Some(event)) = tokio::select! {
        biased;
        event = stream.next() => Some(event),
        () = async { begun.notified().await; tokio::task::yield_now().await } => None,
    } {
        events.push(event.unwrap());
    }
    for receiver in &mut stopped {
        assert!(matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Empty)), "it still runs");
    }
    drop(stream);
    for receiver in &mut stopped {
        assert!(matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Closed)), "it was dropped");
    }
    let started = events.iter().filter(|event| matches!(event, Event::ToolExecutionStart { .. })).count();
    assert_eq!(started, 2);
}

#[tokio::test]
async fn other_calls_of_a_step_run_before_it_suspends() {
    let calls = [
        ("ask", "ask_user", json!({"question": "Which?", "options": ["x", "y"]})),
        ("run", "echo", json!({})),
        ("wait", "danger", json!({"n": 1})),
    ];
    let model = Playback::new(vec![calling(&calls)]);
    let tools: Vec<Arc<dyn Tool>> = vec![echo("echo"), echo("danger"), Arc::new(AskUser::new())];
    let engine = engine(&model, tools, &["danger", "ask_user"]);
    let asked = execute(&engine, hello()).await;
    assert_eq!(asked.status(), ExecutionStatus::Suspended);
    assert_eq!(states(&asked), [("ask", ToolState::Suspended), ("run", ToolState::Resolved), ("wait", ToolState::Suspended)]);
    assert_eq!(asked.suspended(), ["ask", "wait"]);
    assert!(matches!(asked.events[asked.events.len() - 2..], [Event::ToolCallSuspended { .. }, Event::ToolCallSuspended { .. }]));
    assert_eq!(serde_json::to_value(&asked.calls()[0].suspend_payload).unwrap()["kind"], "question", "one question, not two");

    // One answer: that call goes on, the other waits on, the model is not asked.
    let one = resume(&engine, hello(), asked.parts.clone(), &[("wait", approved(true, None))]).await;
    assert_eq!(states(&one), [("ask", ToolState::Suspended), ("run", ToolState::Resolved), ("wait", ToolState::Resolved)]);
    assert_eq!((one.suspended(), model.asked().len()), (vec!["ask".to_owned()], 1));
    assert_eq!(one.calls()[2].output, Some(json!({"echo": {"n": 1}})));

    // An answer that does not fit leaves it open; so does one to a call that is settled.
    let odd = resume(&engine, hello(), one.parts.clone(), &[("ask", answer("z")), ("wait", approved(true, None))]).await;
    assert_eq!((odd.kinds(), odd.suspended()), (vec!["tool-call-suspended".to_owned()], vec!["ask".to_owned()]));

    let last = resume(&engine, hello(), one.parts.clone(), &[("ask", answer("y"))]).await;
    assert_eq!((last.status(), last.text().as_str()), (ExecutionStatus::Success, "done"));
    let told: BTreeMap<_, _> = told(&model).into_iter().collect();
    assert_eq!(told["ask"], Outcome::ok(json!({"answer": "y"})));
    assert_eq!(told["wait"], Outcome::ok(json!({"echo": {"n": 1}})));
    assert_eq!(told["run"], Outcome::ok(json!({"echo": {}})));
}

#[tokio::test]
async fn several_answers_at_once() {
    let calls = [("a", "danger", json!({})), ("b", "danger", json!({})), ("c", "danger", json!({}))];
    let model = Playback::new(vec![calling(&calls)]);
    let engine = engine(&model, vec![echo("danger")], &["danger"]);
    let asked = execute(&engine, hello()).await;
    let answers = [
        ("a", approved(false, Some(" too risky "))),
        ("b", approved(true, Some("only once"))),
        ("c", approved(false, Some(" "))),
    ];
    let done = resume(&engine, hello(), asked.parts, &answers).await;
    assert_eq!(states(&done), [("a", ToolState::Rejected), ("b", ToolState::Resolved), ("c", ToolState::Rejected)]);
    let told: BTreeMap<_, _> = told(&model).into_iter().collect();
    assert_eq!(told["a"], Outcome::error("Denied by the user: too risky"));
    assert_eq!(told["c"], Outcome::error("Denied by the user."));
    let asked = model.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].conversation.last(), Some(&Item::person("(I allowed the call of danger and say: only once)")));
}

/// Parts as a crash leaves them.
fn crashed() -> Vec<Part> {
    let mut timeline = Timeline::new();
    let name = || "danger".to_owned();
    timeline.apply(&Event::TextDelta { id: "t0".to_owned(), delta: "Let me see.".to_owned() }, 1);
    timeline.apply(&Event::ToolInputStart { tool_call_id: "written".to_owned(), tool_name: name() }, 1);
    for id in ["pending", "running", "suspended"] {
        timeline.apply(&Event::ToolCall { tool_call_id: id.to_owned(), tool_name: name(), input: json!({}) }, 1);
    }
    timeline.apply(&Event::ToolExecutionStart { tool_call_id: "running".to_owned(), tool_name: name(), start_time: 1 }, 1);
    let payload = serde_json::from_value(json!({
        "toolCallId": "suspended", "runId": uuid::Uuid::nil(), "toolName": "danger", "input": {},
        "suspendPayload": {"kind": "approval", "toolName": "danger", "input": {}},
    }));
    timeline.apply(&Event::ToolCallSuspended { payload: payload.unwrap() }, 1);
    timeline.into_parts()
}

#[tokio::test]
async fn after_a_crash_nothing_runs_again_in_silence() {
    let model = Playback::new(vec![]);
    let engine = engine(&model, vec![tool("danger", |_| panic!("it must not run"))], &["danger"]);
    // An approval of a call that has started already does not start it again.
    let back = resume(&engine, hello(), crashed(), &[("running", approved(true, None))]).await;
    assert_eq!(
        states(&back),
        [
            ("written", ToolState::Rejected),
            ("pending", ToolState::Rejected),
            ("running", ToolState::Rejected),
            ("suspended", ToolState::Suspended)
        ]
    );
    assert_eq!((back.suspended(), model.asked().len()), (vec!["suspended".to_owned()], 0));
    let done = resume(&engine, hello(), back.parts, &[("suspended", approved(false, None))]).await;
    assert_eq!(done.status(), ExecutionStatus::Success);
    let told: BTreeMap<_, _> = told(&model).into_iter().collect();
    assert!(told["running"].is_error && told["running"].output.as_str().unwrap().contains("unknown whether it took effect"));
    for id in ["written", "pending"] {
        assert!(told[id].is_error && told[id].output.as_str().unwrap().contains("did not run"), "{id}");
    }
    assert_eq!(model.asked()[0].conversation.len(), 2, "the question and one step");
}

#[tokio::test]
async fn a_reply_that_was_cut_off_is_to_be_gone_on_with() {
    let model = Playback::new(vec![]);
    let so_far = vec![Part::Text { text: "Half a sen".to_owned() }];
    let done = execute(&engine(&model, vec![], &[]), TurnInput { so_far, ..hello() }).await;
    assert_eq!(
        model.asked()[0].conversation,
        [Item::person("hello".to_owned()), Item::Agent { text: "Half a sen".to_owned(), calls: vec![] }, Item::CutOff]
    );
    assert_eq!(done.parts.len(), 2);
}

#[tokio::test]
async fn history_is_sent_without_reasoning_and_with_attachments_named() {
    let file = Part::File { id: uuid::Uuid::nil(), name: "a.txt".to_owned(), media_type: "text/plain".to_owned(), size: 3 };
    let mut parts = vec![Part::Reasoning { text: "secret thoughts".to_owned(), start_time: 1, end_time: Some(2) }];
    parts.extend(crashed());
    parts.push(Part::Text { text: "Well.".to_owned() });
    let history = vec![
        message(Role::User, vec![Part::Text { text: "look".to_owned() }, file]),
        message(Role::Assistant, parts),
        message(Role::Assistant, vec![]),
        typed("and now?"),
    ];
    let model = Playback::new(vec![]);
    execute(&engine(&model, vec![], &[]), input(history)).await;
    let conversation = model.asked()[0].conversation.clone();
    let [
        Item::Person { text: first, files },
        Item::Agent { text: one, calls },
        Item::Agent { text: two, .. },
        Item::Person { text: last, .. },
    ] = &conversation[..]
    else {
        panic!("{conversation:?}")
    };
    assert!(files.is_empty(), "its bytes are not at hand");
    assert!(first.starts_with("look\n") && first.contains("a.txt") && first.contains("text/plain"), "{first}");
    assert_eq!((one.as_str(), two.as_str(), last.as_str()), ("Let me see.", "Well.", "and now?"));
    assert!(calls.len() == 4 && calls.iter().all(|call| call.outcome.is_error));
    assert!(!format!("{conversation:?}").contains("secret thoughts"));
}

#[tokio::test]
async fn a_turn_without_end_is_ended() {
    let model = Playback::new((0..1000).map(|_| calling(&[("", "echo", json!({}))])).collect());
    let done = execute(&engine(&model, vec![echo("echo")], &[]), hello()).await;
    assert_eq!(done.error.as_ref().unwrap().code, Some("too_many_steps"));
    assert_eq!(model.asked().len(), STEPS_PER_RUN as usize);
    assert!(done.calls().iter().all(|call| call.state == ToolState::Resolved));
}

#[tokio::test]
async fn how_an_answer_ends() {
    let with = |reason, mut events: Vec<ModelEvent>| {
        events.pop();
        events.push(ModelEvent::Finish(reason));
        Playback::new(vec![events])
    };
    let warnings = |execution: &Execution| -> Vec<String> {
        let codes = execution.events.iter().filter_map(|event| match event {
            Event::Warning { code, .. } => code.clone(),
            _ => None,
        });
        codes.collect()
    };
    let run = async |model: &Arc<Playback>| execute(&engine(model, vec![echo("echo")], &[]), hello()).await;

    let long = run(&with(FinishReason::Length, vec![text("hi"), stop()])).await;
    assert_eq!((long.status(), warnings(&long)), (ExecutionStatus::Success, vec!["length".to_owned()]));
    let filtered = run(&with(FinishReason::ContentFilter, vec![text("hi"), stop()])).await;
    assert_eq!((filtered.error.as_ref().unwrap().code, filtered.text().as_str()), (Some("content_filter"), "hi"));
    let call = calling(&[("a", "echo", json!({}))]);
    let long_call = run(&with(FinishReason::Length, call.clone())).await;
    assert_eq!((long_call.text().as_str(), warnings(&long_call)), ("done", vec!["length".to_owned()]));
    let filtered_call = run(&with(FinishReason::ContentFilter, call)).await;
    assert!(!filtered_call.kinds().contains(&"tool-execution-start".to_owned()));
    let nothing = run(&Playback::new(vec![vec![stop()]])).await;
    assert_eq!((nothing.status(), warnings(&nothing)), (ExecutionStatus::Success, vec!["empty_reply".to_owned()]));

    let failure = TurnError { message: "cut".to_owned(), code: Some("provider_cut") };
    let model = Playback::new(vec![]);
    model.answers.lock().unwrap().push_back(vec![Ok(text("half")), Err(failure.clone())]);
    let cut = run(&model).await;
    assert_eq!((cut.error.as_ref(), cut.text().as_str()), (Some(&failure), "half"));
    assert_eq!(cut.kinds(), ["start-step", "text-start", "text-delta", "text-end", "finish-step"]);
}

/// An engine for `top`, with everyone on the roster.
fn family(agents: Vec<(&str, Arc<NativeAgent>)>) -> NativeEngine {
    let top = Arc::clone(&agents[0].1);
    let roster = Arc::new(Roster::default());
    let mut entries: BTreeMap<_, _> = agents.into_iter().map(|(id, agent)| ((slug("demo"), slug(id)), Ok(agent))).collect();
    entries.insert((slug("demo"), slug("broken")), Err("The agent `broken` is not set up: env:KEY.".to_owned()));
    roster.fill(entries);
    NativeEngine::new(top, roster)
}

fn delegate(to: &[&str]) -> Arc<dyn Tool> {
    Arc::new(Delegate::new(to.iter().map(|id| slug(id)).collect()))
}

#[tokio::test]
async fn a_child_works_below_its_call() {
    let child = Playback::new(vec![
        [vec![ModelEvent::Reasoning("hm".to_owned()), text("First I look.")], calling(&[("a", "clock", json!({}))])].concat(),
        vec![text("It is late."), stop()],
    ]);
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Clock::new()), Arc::new(AskUser::new()), echo("danger")];
    let child_agent = agent(&child, tools, &["danger"]);
    let parent = Playback::new(vec![calling(&[("d", "delegate", json!({"agent": "child", "task": "What time is it?"}))])]);
    let engine = family(vec![("parent", agent(&parent, vec![delegate(&["child"])], &[])), ("child", child_agent)]);
    let done = execute(&engine, hello()).await;
    assert_eq!((done.status(), done.text().as_str()), (ExecutionStatus::Success, "done"));
    assert_eq!(child.asked()[0].conversation, [Item::person("What time is it?".to_owned())]);
    assert_eq!(child.asked()[0].tools, ["clock"], "nothing that waits for a person");
    let call = done.calls()[0];
    assert_eq!(call.output, Some(json!("It is late.")));
    let trace = call.child_trace.as_ref().unwrap();
    assert_eq!((trace.text.as_str(), &trace.reasoning_segments[..]), ("First I look.It is late.", &["hm".to_owned()][..]));
    assert_eq!((trace.steps.len(), trace.steps[0].tool_name.as_str(), trace.steps[0].running), (1, "clock", false));
}

#[tokio::test]
async fn delegations_within_each_other_stay_below_the_first() {
    let next = |id: &'static str| vec![calling(&[(id, "delegate", json!({"agent": "self", "task": "go"}))])];
    // Everyone is the same agent: it delegates until nobody lets it, and says so.
    let model = Playback::new((0..=DELEGATION_DEPTH).flat_map(|_| next("same")).collect());
    let engine = family(vec![("self", agent(&model, vec![delegate(&["self"])], &[]))]);
    let done = execute(&engine, hello()).await;
    assert_eq!(done.status(), ExecutionStatus::Success);
    let mut deepest = 0;
    for event in &done.events {
        if let Event::SubagentChunk { parent_tool_call_id, task_path, chunk } = event {
            assert_eq!((parent_tool_call_id.as_str(), task_path[0].as_str()), ("same", "same"));
            assert!(!matches!(**chunk, Event::SubagentChunk { .. }), "wrapped once");
            deepest = deepest.max(task_path.len());
        }
    }
    assert_eq!(deepest, DELEGATION_DEPTH);
    // One step for each level, one more for each but the deepest refusal's own to come to an end.
    assert_eq!(model.asked().len(), 2 * (DELEGATION_DEPTH + 1));
    assert_eq!(done.calls().len(), 1);
    assert_eq!(done.calls()[0].child_trace.as_ref().unwrap().text, "done", "the direct child's own words");
}

#[tokio::test]
async fn the_trace_stops_at_its_budget_and_the_stream_does_not() {
    let words = "é".repeat(CHILD_TRACE_CHARS);
    let child = Playback::new(vec![vec![ModelEvent::Reasoning("r".repeat(1000)), text(&words), stop()]]);
    let parent = Playback::new(vec![calling(&[("d", "delegate", json!({"agent": "child", "task": "go"}))])]);
    let engine = family(vec![("parent", agent(&parent, vec![delegate(&["child"])], &[])), ("child", agent(&child, vec![], &[]))]);
    let done = execute(&engine, hello()).await;
    let trace = done.calls()[0].child_trace.clone().unwrap();
    assert_eq!((trace.reasoning_segments[0].len(), trace.text.chars().count()), (1000, CHILD_TRACE_CHARS - 1000));
    assert_eq!(done.calls()[0].output, Some(json!(words)));
}

#[tokio::test]
async fn delegations_that_cannot_be_are_tool_errors() {
    let child = Playback::new(vec![]);
    child.answers.lock().unwrap().push_back(vec![Err(TurnError { message: "on fire".to_owned(), code: None })]);
    let call = |id, agent: &str, task: &str| (id, "delegate", json!({"agent": agent, "task": task}));
    let calls = [
        call("a", "stranger", "go"),
        call("b", "broken", "go"),
        call("c", "child", " "),
        ("d", "delegate", json!({"agent": "child"})),
        call("e", "child", "go"),
        call("f", "gone", "go"),
    ];
    let parent = Playback::new(vec![calling(&calls)]);
    let top = agent(&parent, vec![delegate(&["child", "broken", "gone"])], &[]);
    let done = execute(&family(vec![("parent", top), ("child", agent(&child, vec![], &[]))]), hello()).await;
    assert_eq!((done.status(), done.text().as_str()), (ExecutionStatus::Success, "done"));
    let told: BTreeMap<_, _> = told(&parent).into_iter().collect();
    for (id, words) in [
        ("a", "may delegate to: child, broken, gone"),
        ("b", "env:KEY"),
        ("c", "not blank"),
        ("d", "task"),
        ("e", "on fire"),
        ("f", "no agent `gone`"),
    ] {
        assert!(told[id].is_error && told[id].output.as_str().unwrap().contains(words), "{id}: {:?}", told[id]);
    }
}
