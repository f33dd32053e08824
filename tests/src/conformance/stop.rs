//! Section 6: Stop.

use std::sync::Arc;

use anyhow::{Result, ensure};
use http::Method;
use turnfast_shared::{
    Event, ExecutionStatus, Part,
    ids::{ExecutionId, ThreadId},
    message::ToolState,
    problem::Code,
};
use uuid::Uuid;

use super::{
    Case, cases,
    house::{House, text_of},
    same,
};
use crate::client::{answer, refusal};

pub(super) const CASES: &[Case] = cases! {
    "6.1", "A Stop whose user, agent, thread and execution do not belong together finds nothing and stops nothing" => test belongs_together;
    "6.2", "The wish is in the record before the answer" => elsewhere "tests/tests/e2e/stop.rs", "a_stop_that_was_answered_survives_the_process";
    "6.3", "The turn ends `cancelled`, what was recorded stays, and the notification goes out" => test ends_cancelled;
    "6.3 relay", "A Stop at another process reaches the one that runs the turn" => test at_another_connection;
    "6.4", "An execution that had ended: `cancelRequested: false`, never an error" => test never_an_error;
    "6.4 races", "Stops that race the turn's end are answered, and the record has one final state" => test races_the_end;
    "6 provider", "The provider's connection is closed" => elsewhere "tests/tests/e2e/stop.rs", "stop_closes_the_providers_connection_and_keeps_the_text";
    "6 tools", "Running tools are told, children included" => test running_tools;
    "6 suspension", "A Stop that races a suspension, or comes after it, ends the turn" => test races_a_suspension;
    "6 later turns", "A Stop of an execution that is over touches nothing that came after it" => test later_turns;
    "6 twice", "A second Stop of the same execution changes nothing" => test twice;
};

async fn belongs_together(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 15").await?;
    let (thread, execution) = (live.started.thread, live.started.execution);
    let elsewhere = house.turn("another thread").await?.started;
    let nothing = (ThreadId::from(Uuid::new_v4()), ExecutionId::from(Uuid::new_v4()));
    for (who, thread, execution) in [
        (&house.other, thread, execution),
        (&house.owner, elsewhere.thread, execution),
        (&house.owner, nothing.0, execution),
        (&house.owner, thread, nothing.1),
        (&house.owner, thread, elsewhere.execution),
    ] {
        let path = format!("/chat/{thread}/executions/{execution}");
        same(&path, refusal(house.at(who, Method::DELETE, &path)).await?.code, Code::NotFound)?;
    }
    same("the turn", live.done().await?, ExecutionStatus::Success)
}

async fn ends_cancelled(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 100").await?;
    let started = live.started;
    house.read_until(started.thread, "some text", |read| text_of(read).contains("word2")).await?;
    same("the answer", house.stop(started.thread, started.execution).await?, true)?;
    same("the stream", live.done().await?, ExecutionStatus::Cancelled)?;
    let message = house.settled(started.thread).await?;
    same("the record", message.execution_status, Some(ExecutionStatus::Cancelled))?;
    ensure!(message.text().contains("word2") && !message.text().contains("word100"), "{}", message.text());
    same("stream and record", message.text(), live.text())?;
    same("the next turn", house.say_in(started.thread, "next").await?.done().await?, ExecutionStatus::Success)
}

async fn at_another_connection(house: Arc<House>) -> Result<()> {
    let live = house.say("/slow 300").await?;
    let started = live.started;
    drop(live);
    same("the answer", house.stop(started.thread, started.execution).await?, true)?;
    same("the record", house.settled(started.thread).await?.execution_status, Some(ExecutionStatus::Cancelled))
}

async fn never_an_error(house: Arc<House>) -> Result<()> {
    for command in ["hello", "/fail"] {
        let started = house.turn(command).await?.started;
        let before = house.read(started.thread).await?;
        same(command, house.stop(started.thread, started.execution).await?, false)?;
        same("the thread", house.read(started.thread).await?, before)?;
    }
    Ok(())
}

async fn races_the_end(house: Arc<House>) -> Result<()> {
    for words in 0..8 {
        let mut live = house.say(&format!("/long {}", 1 + words * 40)).await?;
        let started = live.started;
        let asked = house.stop(started.thread, started.execution).await?;
        let status = live.done().await?;
        // A wish that was recorded in time may still find the turn at its natural end.
        ensure!(
            matches!(
                (asked, status),
                (true, ExecutionStatus::Cancelled | ExecutionStatus::Success) | (false, ExecutionStatus::Success)
            ),
            "asked: {asked}, ended {status:?}"
        );
        let message = house.settled(started.thread).await?;
        same("stream and record", (message.execution_status, message.text()), (Some(status), live.text()))?;
    }
    Ok(())
}

async fn running_tools(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/delegate 500").await?;
    live.until("a child", |event| matches!(event, Event::SubagentChunk { .. })).await?;
    house.stop(live.started.thread, live.started.execution).await?;
    same("the stream", live.done().await?, ExecutionStatus::Cancelled)?;
    let message = house.settled(live.started.thread).await?;
    let states: Vec<_> = message.content.iter().filter_map(Part::as_tool_call).map(|call| call.state).collect();
    same("its calls", states, vec![ToolState::Cancelled])
}

async fn races_a_suspension(house: Arc<House>) -> Result<()> {
    for late in [false, true, false, true] {
        let mut live = house.say("/ask").await?;
        let started = live.started;
        if late {
            live.rest().await?;
        } else {
            live.until("the question", |event| matches!(event, Event::ToolCall { .. })).await?;
        }
        same("the answer", house.stop(started.thread, started.execution).await?, true)?;
        let read = house
            .read_until(started.thread, "the end", |read| {
                read.messages.last().and_then(|message| message.execution_status) == Some(ExecutionStatus::Cancelled)
            })
            .await?;
        same("what is open", (read.active_execution_id, read.open_suspensions), (None, vec![]))?;
        same("the next turn", house.say_in(started.thread, "next").await?.done().await?, ExecutionStatus::Success)?;
    }
    Ok(())
}

async fn later_turns(house: Arc<House>) -> Result<()> {
    let (first, asked) = house.suspended("/approve").await?;
    let mut resumed =
        house.resume(&asked, turnfast_shared::message::ResumeData::Approval { approved: true, reason: None }).await?;
    // The suspended execution is over: another one goes on in its place.
    let stale = house.at(&house.owner, Method::DELETE, &format!("/chat/{}/executions/{}", first.thread, first.execution));
    same("the stale Stop", answer::<serde_json::Value>(stale).await?, serde_json::json!({"cancelRequested": false}))?;
    same("the resumed execution", resumed.done().await?, ExecutionStatus::Success)
}

async fn twice(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 100").await?;
    let (thread, execution) = (live.started.thread, live.started.execution);
    let (first, second) = tokio::join!(house.stop(thread, execution), house.owner.stop(house.agent(), thread, execution));
    ensure!(first? || second?.cancel_requested, "one of the two asked for it");
    same("the end", live.done().await?, ExecutionStatus::Cancelled)?;
    same("afterwards", house.stop(thread, execution).await?, false)
}
