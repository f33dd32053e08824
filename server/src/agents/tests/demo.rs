//! Every word of the demo agent, through the real loop.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::StreamExt;
use serde_json::json;
use tokio::time::Instant;
use turnfast_shared::{Event, ExecutionStatus, Part, Role, Timeline, ToolState, limits::CHILD_TRACE_CHARS};

use super::*;
use crate::{
    agents::catalog::Catalog,
    config::{Agent, Config, EngineKind, Limits, Project, Server},
};

pub(in crate::agents) fn agent(id: &str, engine: EngineKind) -> Agent {
    Agent {
        project: slug("demo"),
        id: slug(id),
        name: id.to_owned(),
        engine,
        provider: None,
        model: None,
        instructions: None,
        tools: Vec::new(),
        approve: Vec::new(),
        delegates: Vec::new(),
        continue_interrupted: true,
        attachments: true,
        gateway: None,
        gateway_agent: "main".to_owned(),
        schedules: Vec::new(),
    }
}

pub(in crate::agents) fn config(agents: Vec<Agent>) -> Config {
    Config {
        server: Server {
            listen: ([127, 0, 0, 1], 0).into(),
            drain: Duration::from_secs(30),
            public_url: None,
            metrics_listen: None,
        },
        data_dir: PathBuf::new(),
        database_url: None,
        agents_enabled: true,
        limits: Limits {
            max_running_turns_per_user: 8,
            max_message_bytes: 262_144,
            max_attachments: 8,
            max_attachment_bytes: 1024,
            interaction_expiry: None,
        },
        providers: Vec::new(),
        mcp_servers: Vec::new(),
        gateways: Vec::new(),
        projects: vec![Project { id: slug("demo"), name: "Demo".to_owned(), members: Default::default() }],
        agents,
        warnings: Vec::new(),
    }
}

fn demo() -> Arc<dyn Engine> {
    let catalog = Catalog::new(&config(vec![agent("assistant", EngineKind::Demo)]));
    catalog.agent(&slug("demo"), &slug("assistant")).unwrap().engine().unwrap()
}

fn words(count: usize) -> String {
    (1..=count).map(|n| format!("word{n}")).collect::<Vec<_>>().join(" ")
}

/// A thread in which the demo has introduced itself.
fn later(text: &str) -> Vec<turnfast_shared::Message> {
    vec![typed("hello"), message(Role::Assistant, vec![Part::Text { text: "Hello.".to_owned() }]), typed(text)]
}

#[tokio::test(start_paused = true)]
async fn the_first_reply_says_that_no_model_is_behind_it() {
    let first = execute(&*demo(), input(vec![typed("hello there")])).await;
    assert!(first.text().contains("no model") && first.text().contains("hello there"), "{}", first.text());
    assert_eq!(first.kinds(), ["start-step", "text-start", "text-delta", "text-end", "finish-step"]);
    assert_eq!(first.status(), ExecutionStatus::Success);
    let second = execute(&*demo(), input(later("hello again"))).await;
    assert!(!second.text().contains("no model") && second.text().contains("hello again"), "{}", second.text());
}

#[tokio::test(start_paused = true)]
async fn slow_writes_a_word_every_100_ms() {
    let began = Instant::now();
    let mut stream = demo().start(input(vec![typed("/slow 20")]));
    let mut deltas = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::TextDelta { delta, .. } = event.unwrap() {
            deltas.push((began.elapsed().as_millis() / 10, delta));
        }
    }
    let text: String = deltas.iter().map(|(_, delta)| delta.as_str()).collect();
    assert_eq!(text, words(20));
    let times: Vec<_> = deltas.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, (0..20).map(|n| n * 10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn long_writes_the_same_words_without_a_pause() {
    let began = Instant::now();
    let long = execute(&*demo(), input(vec![typed("/long 3000")])).await;
    assert_eq!(long.text(), words(3000));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn numbers_out_of_bounds_are_refused() {
    for bad in ["/slow", "/slow 0", "/slow -1", "/slow many", "/long 100001", "/delegate 99999999999999999999", "/delegate 3 4"] {
        let refused = execute(&*demo(), input(later(bad))).await;
        assert!(refused.text().contains("takes a number from 1 to 100000"), "{bad}: {}", refused.text());
        assert!(refused.calls().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_words_get_help() {
    for unknown in ["/help", "/", "/Slow 3", "/dance"] {
        let help = execute(&*demo(), input(later(unknown))).await;
        for word in ["/slow N", "/long N", "/think", "/tool", "/approve", "/ask", "/delegate N", "/fail"] {
            assert!(help.text().contains(word), "{unknown}: {}", help.text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn think_reasons_first() {
    let thought = execute(&*demo(), input(vec![typed("/think")])).await;
    assert_eq!(
        thought.kinds(),
        [
            "start-step",
            "reasoning-start",
            "reasoning-delta",
            "reasoning-end",
            "text-start",
            "text-delta",
            "text-end",
            "finish-step"
        ]
    );
    assert!(matches!(&thought.parts[..], [Part::Reasoning { end_time: Some(_), .. }, Part::Text { .. }]));
}

#[tokio::test(start_paused = true)]
async fn tool_calls_the_clock() {
    let told = execute(&*demo(), input(vec![typed("/tool")])).await;
    let [call] = told.calls()[..] else { panic!("one call") };
    assert_eq!((call.tool_name.as_str(), call.state), ("clock", ToolState::Resolved));
    let time = call.output.as_ref().unwrap()["time"].as_str().unwrap();
    time.parse::<jiff::Timestamp>().unwrap();
    assert!(time.ends_with('Z') && told.text().contains(time), "{}", told.text());
    let step = ["start-step", "text-start", "text-delta", "text-end"];
    let call = ["tool-input-start", "tool-input-delta", "tool-call", "finish-step"];
    let run = ["tool-execution-start", "tool-execution-end", "tool-result"];
    assert_eq!(told.kinds(), [&step[..], &call, &run, &step, &["finish-step"]].concat());
}

#[tokio::test(start_paused = true)]
async fn approve_waits_and_takes_both_answers() {
    let (engine, first) = (demo(), input(vec![typed("/approve")]));
    let asked = execute(&*engine, first.clone()).await;
    assert_eq!(asked.status(), ExecutionStatus::Suspended);
    assert_eq!(asked.kinds().last().unwrap(), "tool-call-suspended");
    let [id] = &asked.suspended()[..] else { panic!("one suspension") };
    let [call] = asked.calls()[..] else { panic!("one call") };
    assert_eq!(call.state, ToolState::Suspended);
    assert_eq!(
        serde_json::to_value(&call.suspend_payload).unwrap(),
        json!({"kind": "approval", "toolName": "postcard", "input": call.input})
    );

    let yes = resume(&*engine, first.clone(), asked.parts.clone(), &[(id, approved(true, None))]).await;
    assert_eq!((yes.status(), yes.calls()[0].state), (ExecutionStatus::Success, ToolState::Resolved));
    assert!(yes.text().contains("on its way"), "{}", yes.text());

    let no = resume(&*engine, first, asked.parts.clone(), &[(id, approved(false, Some("too far away")))]).await;
    assert_eq!((no.status(), no.calls()[0].state), (ExecutionStatus::Success, ToolState::Rejected));
    assert!(no.text().contains("too far away"), "{}", no.text());
    assert!(!no.kinds().contains(&"tool-execution-start".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn ask_asks_and_reads_the_answer() {
    let (engine, first) = (demo(), input(vec![typed("/ask")]));
    let asked = execute(&*engine, first.clone()).await;
    let [id] = &asked.suspended()[..] else { panic!("one suspension") };
    let payload = asked.calls()[0].suspend_payload.clone().unwrap();
    assert_eq!(payload.accepts(&answer("green")), Ok(()));
    assert!(payload.accepts(&answer("beige")).is_err());
    let answered = resume(&*engine, first, asked.parts.clone(), &[(id, answer("green"))]).await;
    assert_eq!(answered.calls()[0].output, Some(json!({"answer": "green"})));
    assert!(answered.text().ends_with("You like green best."), "{}", answered.text());
}

#[tokio::test(start_paused = true)]
async fn delegate_runs_a_child_and_the_record_keeps_its_budget() {
    let few = execute(&*demo(), input(vec![typed("/delegate 30")])).await;
    let [call] = few.calls()[..] else { panic!("one call") };
    assert_eq!(call.output, Some(json!(words(30))));
    let trace = call.child_trace.as_ref().unwrap();
    assert_eq!((&trace.text, trace.reasoning_segments.len()), (&words(30), 1));
    assert_eq!(trace.steps.iter().map(|step| step.tool_name.as_str()).collect::<Vec<_>>(), ["clock"]);
    assert!(few.text().ends_with("The child wrote 30 words."), "{}", few.text());
    for event in &few.events {
        if let Event::SubagentChunk { parent_tool_call_id, task_path, .. } = event {
            assert_eq!((parent_tool_call_id, &task_path[..]), (&call.tool_call_id, &[call.tool_call_id.clone()][..]));
        }
    }

    let many = execute(&*demo(), input(vec![typed("/delegate 2000")])).await;
    let [call] = many.calls()[..] else { panic!("one call") };
    let trace = call.child_trace.as_ref().unwrap();
    let reasoned: usize = trace.reasoning_segments.iter().map(|text| text.chars().count()).sum();
    assert!(reasoned > 0);
    assert_eq!(reasoned + trace.text.chars().count(), CHILD_TRACE_CHARS);
    assert_eq!(call.output, Some(json!(words(2000))));
}

#[tokio::test(start_paused = true)]
async fn fail_fails_and_keeps_its_text() {
    let failed = execute(&*demo(), input(vec![typed("/fail")])).await;
    assert_eq!(failed.error.as_ref().unwrap().code, Some("demo_failure"));
    assert!(!failed.text().is_empty());
    assert_eq!(failed.kinds().last().unwrap(), "finish-step");
}

/// Wherever a crash cuts the reply, the next execution writes the rest, no word twice.
#[tokio::test(start_paused = true)]
async fn a_reply_that_was_cut_off_goes_on_where_it_stopped() {
    for (text, calls) in [("/slow 12", 0), ("/long 12", 0), ("hello", 0), ("/tool", 1)] {
        let whole = execute(&*demo(), input(later(text))).await;
        for cut in 0..=whole.events.len() {
            let mut timeline = Timeline::new();
            for event in &whole.events[..cut] {
                timeline.apply(event, 1);
            }
            let rest = execute(&*demo(), TurnInput { so_far: timeline.into_parts(), ..input(later(text)) }).await;
            assert_eq!(rest.status(), ExecutionStatus::Success);
            if calls == 0 {
                assert_eq!(rest.text(), whole.text(), "{text} cut after {cut} events");
            } else {
                assert_eq!(rest.calls().len(), calls, "{text} cut after {cut} events");
                assert!(rest.calls()[0].state.is_settled());
            }
        }
    }
}
