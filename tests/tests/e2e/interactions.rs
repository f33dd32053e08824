//! Tools, and turns that wait for a person.

use anyhow::{Context, Result};
use http::Method;
use serde_json::json;
use turnfast_shared::{
    Event, ExecutionStatus, Part,
    api::{ChatRequest, ResumeRequest, RunCancelAnswer},
    event::Suspension,
    ids::ThreadId,
    message::{Message, ResumeData, SuspendPayload, ToolState},
    problem::Code,
};
use turnfast_tests::{
    client::{Client, Live, answer, assistant, refusal},
    within,
};

use crate::House;

#[tokio::test]
async fn a_tool_runs_and_its_result_goes_back_to_the_model() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[say:I look. ]][[tool:clock:{}]]").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    let message = house.alice.settled("assistant", live.started.thread).await?;
    let [Part::Text { text: before }, Part::ToolCall(call), Part::Text { text: after }] = message.content.as_slice() else {
        panic!("text, call, text: {message:#?}")
    };
    assert_eq!((before.as_str(), call.tool_name.as_str(), call.state), ("I look. ", "clock", ToolState::Resolved));
    assert!(after.starts_with("The tools answered: "), "{after}");
    assert!(call.output.is_some() && call.end_time.is_some(), "{call:#?}");
    Ok(())
}

/// A turn that asks alice for a colour.
async fn ask(house: &House) -> Result<Live> {
    let script = r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"]}]]"#;
    let mut live = house.alice.say("assistant", script).await?;
    live.until("a suspension", |event| matches!(event, Event::ToolCallSuspended { .. })).await?;
    live.rest().await?;
    assert!(!live.seen.iter().any(|event| matches!(event, Event::Done { .. })), "a suspended stream just ends");
    Ok(live)
}

#[tokio::test]
async fn a_question_waits_for_its_answer_over_a_restart() -> Result<()> {
    let house = House::open().await?;
    let started = ask(&house).await?.started;
    let waiting = ChatRequest { message: "hello?".to_owned(), session_id: Some(started.thread), ..ChatRequest::default() };
    let refused = refusal(house.alice.agent(Method::POST, "assistant", "/chat").json(&waiting)).await?;
    assert_eq!(refused.code, Code::InteractionOpen);
    house.server.kill().await?;

    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    let read = alice.read("assistant", started.thread).await?;
    assert_eq!(read.active_execution_id, None);
    assert_eq!(assistant(&read)?.execution_status, Some(ExecutionStatus::Suspended));
    let [open] = read.open_suspensions.as_slice() else { panic!("one open question: {read:#?}") };
    assert!(matches!(&open.suspend_payload, Some(SuspendPayload::Question { question, .. }) if question == "Which colour?"));

    let resume = |answer: serde_json::Value| json!({"runId": open.run_id, "toolCallId": open.tool_call_id, "resumeData": answer});
    for wrong in [json!({"answer": "green"}), json!({"approved": true}), json!({"answer": " "})] {
        let refused = refusal(alice.agent(Method::POST, "assistant", "/chat/resume").json(&resume(wrong.clone()))).await?;
        assert_eq!(refused.code, Code::InvalidRequest, "{wrong}");
    }
    let right = ResumeRequest {
        run_id: open.run_id,
        tool_call_id: open.tool_call_id.clone(),
        resume_data: ResumeData::Answer { answer: "blue".to_owned() },
    };
    let mut live = alice.resume("assistant", &right).await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert_eq!(live.started.assistant, started.assistant, "one turn, one message");
    assert_ne!(live.started.execution, started.execution);
    assert!(live.text().contains("blue"), "{}", live.text());

    let read = alice.read("assistant", started.thread).await?;
    assert_eq!((read.messages.len(), read.open_suspensions.len()), (2, 0), "{read:#?}");
    let late = refusal(alice.agent(Method::POST, "assistant", "/chat/resume").json(&right)).await?;
    assert_eq!(late.code, Code::InteractionClosed);
    Ok(())
}

#[tokio::test]
async fn a_suspended_turn_is_cancelled_once() -> Result<()> {
    let house = House::open().await?;
    let started = ask(&house).await?.started;
    let read = house.alice.read("assistant", started.thread).await?;
    let run = read.open_suspensions.first().context("an open question")?.run_id;
    let cancel = || house.alice.agent(Method::DELETE, "assistant", &format!("/chat/runs/{run}"));
    assert_eq!(answer::<RunCancelAnswer>(cancel()).await?, RunCancelAnswer { cancelled: true });
    assert_eq!(answer::<RunCancelAnswer>(cancel()).await?, RunCancelAnswer { cancelled: false });
    let message = house.alice.settled("assistant", started.thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Cancelled));
    house.alice.say_in("assistant", started.thread, "next").await?.done().await?;
    Ok(())
}

/// A turn of `careful` that asks alice for a colour and wants to look at the clock, both in one step of the model.
async fn two_at_once(alice: &Client) -> Result<(Live, Suspension, Suspension)> {
    let script = r#"[[tool:ask_user:{"question":"Which colour?"}]][[tool:clock:{}]][[say:Well. ]]"#;
    let mut live = alice.say("careful", script).await?;
    live.rest().await?;
    let read = alice.read("careful", live.started.thread).await?;
    let find = |tool: &str| read.open_suspensions.iter().find(|open| open.tool_name == tool).cloned().context(tool.to_owned());
    let told: Vec<_> = live
        .seen
        .iter()
        .filter_map(|event| if let Event::ToolCallSuspended { payload } = event { Some(payload) } else { None })
        .collect();
    assert_eq!(told.len(), 2, "the stream tells of both: {:#?}", live.seen);
    assert!(told.iter().all(|told| read.open_suspensions.contains(told)), "{read:#?}");
    Ok((live, find("ask_user")?, find("clock")?))
}

fn resume_of(open: &Suspension, resume_data: ResumeData) -> ResumeRequest {
    ResumeRequest { run_id: open.run_id, tool_call_id: open.tool_call_id.clone(), resume_data }
}

async fn states(alice: &Client, thread: ThreadId) -> Result<(Message, Vec<ToolState>)> {
    let message = alice.settled("careful", thread).await?;
    let states = message.content.iter().filter_map(Part::as_tool_call).map(|call| call.state).collect();
    Ok((message, states))
}

#[tokio::test]
async fn several_interactions_of_one_turn_are_answered_one_by_one_over_restarts() -> Result<()> {
    let house = House::open().await?;
    let (live, question, clock) = two_at_once(&house.alice).await?;
    let started = live.started;
    house.server.kill().await?;

    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    let approved = resume_of(&clock, ResumeData::Approval { approved: true, reason: None });
    let mut first = alice.resume("careful", &approved).await?;
    first.rest().await?;
    assert!(!first.seen.iter().any(|event| matches!(event, Event::Done { .. })), "it still waits for the other answer");
    let read = alice.read("careful", started.thread).await?;
    assert_eq!((read.active_execution_id, read.open_suspensions.as_slice()), (None, std::slice::from_ref(&question)));
    assert_eq!(assistant(&read)?.execution_status, Some(ExecutionStatus::Suspended));
    assert_eq!(states(&alice, started.thread).await?.1, [ToolState::Suspended, ToolState::Resolved]);
    let again = refusal(alice.agent(Method::POST, "careful", "/chat/resume").json(&approved)).await?;
    assert_eq!(again.code, Code::InteractionClosed);
    assert_eq!(house.provider.requests().await?.len(), 1, "the model is asked again once it has both results");
    server.kill().await?;

    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    let mut second = alice.resume("careful", &resume_of(&question, ResumeData::Answer { answer: "teal".to_owned() })).await?;
    assert_eq!(second.done().await?, ExecutionStatus::Success);
    assert_eq!(second.started.assistant, started.assistant);
    let (message, states) = states(&alice, started.thread).await?;
    assert_eq!(states, [ToolState::Resolved, ToolState::Resolved]);
    assert!(message.text().ends_with("Well. "), "{}", message.text());
    assert_eq!(alice.read("careful", started.thread).await?.messages.len(), 2);
    let requests = house.provider.requests().await?;
    let results = requests[1].body["messages"].as_array().context("messages")?.iter().filter(|m| m["role"] == "tool").count();
    assert_eq!((requests.len(), results), (2, 2));
    Ok(())
}

#[tokio::test]
async fn several_interactions_answered_at_once_all_count() -> Result<()> {
    let house = House::open().await?;
    let (live, question, clock) = two_at_once(&house.alice).await?;
    let thread = live.started.thread;
    let answers = [
        resume_of(&question, ResumeData::Answer { answer: "teal".to_owned() }),
        resume_of(&clock, ResumeData::Approval { approved: false, reason: Some("no time".to_owned()) }),
    ];
    // One goes first; the other is told that the turn runs, stays open, and is given again.
    let give = |request: ResumeRequest| {
        let alice = house.alice.clone();
        async move {
            let mut push = alice.push().await?;
            loop {
                let sent = alice.agent(Method::POST, "careful", "/chat/resume").json(&request).send();
                let response = within("an answer", sent).await?;
                if response.status() == 200 {
                    return within("the stream", response.text()).await;
                }
                let problem: turnfast_shared::Problem = within("a refusal", response.json()).await?;
                anyhow::ensure!(problem.code == Code::TurnAlreadyRunning, "{problem:?}");
                while alice.read("careful", thread).await?.active_execution_id.is_some() {
                    push.next().await?;
                }
            }
        }
    };
    let [first, second] = answers;
    tokio::try_join!(give(first), give(second))?;
    let (message, states) = states(&house.alice, thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Success));
    assert_eq!(states, [ToolState::Resolved, ToolState::Rejected]);
    assert_eq!(house.provider.requests().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_cancel_closes_all_interactions_of_the_turn() -> Result<()> {
    let house = House::open().await?;
    let (live, question, clock) = two_at_once(&house.alice).await?;
    let cancel = house.alice.agent(Method::DELETE, "careful", &format!("/chat/runs/{}", question.run_id));
    assert!(answer::<RunCancelAnswer>(cancel).await?.cancelled);
    let (message, states) = states(&house.alice, live.started.thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Cancelled));
    assert_eq!(states, [ToolState::Cancelled, ToolState::Cancelled]);
    for open in [question, clock] {
        let data = match &open.suspend_payload {
            Some(SuspendPayload::Approval { .. }) => ResumeData::Approval { approved: true, reason: None },
            _ => ResumeData::Answer { answer: "late".to_owned() },
        };
        let late = house.alice.agent(Method::POST, "careful", "/chat/resume").json(&resume_of(&open, data));
        assert_eq!(refusal(late).await?.code, Code::InteractionClosed);
    }
    Ok(())
}

#[tokio::test]
async fn a_denied_call_does_not_run_and_the_model_reads_the_reason() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("careful", "[[tool:clock:{}]]").await?;
    live.rest().await?;
    let read = house.alice.read("careful", live.started.thread).await?;
    let [open] = read.open_suspensions.as_slice() else { panic!("one approval: {read:#?}") };
    let denied = ResumeData::Approval { approved: false, reason: Some("clocks are for others".to_owned()) };
    let mut resumed = house.alice.resume("careful", &resume_of(open, denied)).await?;
    assert_eq!(resumed.done().await?, ExecutionStatus::Success);
    assert!(!resumed.seen.iter().any(|event| matches!(event, Event::ToolExecutionStart { .. })), "it did not run");
    let (message, states) = states(&house.alice, live.started.thread).await?;
    assert_eq!(states, [ToolState::Rejected]);
    let call = message.content.iter().find_map(Part::as_tool_call).context("the call")?;
    assert!(call.error.as_ref().is_some_and(|error| error.contains("clocks are for others")), "{call:?}");
    assert!(house.provider.request(1).await?.body.to_string().contains("clocks are for others"));
    Ok(())
}
