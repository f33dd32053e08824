//! Tools, and turns that wait for a person.

use anyhow::{Context, Result};
use http::Method;
use serde_json::json;
use turnfast_shared::{
    Event, ExecutionStatus, Part,
    api::{ChatRequest, ResumeRequest, RunCancelAnswer},
    message::{ResumeData, SuspendPayload, ToolState},
    problem::Code,
};
use turnfast_tests::client::{Live, answer, assistant, refusal};

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
