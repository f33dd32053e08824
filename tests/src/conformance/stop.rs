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
use crate::{
    client::{answer, assistant, refusal},
    within,
};

pub(super) const CASES: &[Case] = cases! {
    "6.1", "A Stop whose user, project, agent, thread and execution do not belong together finds nothing and stops nothing" => test belongs_together;
    "6.2", "The wish is in the record before the answer" => elsewhere "tests/tests/e2e/stop.rs", "a_stop_that_was_answered_survives_the_process";
    "6.3", "The turn ends `cancelled`, and what was recorded stays" => test ends_cancelled;
    "6.3 notification", "The owner is told of the end" => test is_told_of;
    "6.3 lost telling", "A wish that nobody was told of is seen at the next recorded write"
        => elsewhere "server/src/turns/tests.rs", "a_stop_that_only_the_record_knows_is_seen_at_the_next_write";
    "6.3 relay", "A Stop at another process reaches the one that runs the turn" => test at_another_connection;
    "6.4", "An execution that had ended: `cancelRequested: false`, never an error" => test never_an_error;
    "6.4 races", "Stops that race the turn's end are answered, and the record has one final state" => test races_the_end;
    "6 provider", "The provider's connection is closed" => elsewhere "tests/tests/e2e/stop.rs", "stop_closes_the_providers_connection_and_keeps_the_text";
    "6 provider of a child", "So is that of a child's, and of its child's"
        => elsewhere "tests/tests/e2e/delegation.rs", "a_childs_progress_is_read_while_it_runs_and_stop_reaches_its_provider";
    "6 tools", "A running tool is told" => elsewhere "tests/tests/e2e/mcp.rs", "stop_reaches_the_tool";
    "6 tools of a child", "So is that of a child" => elsewhere "tests/tests/e2e/mcp.rs", "stop_reaches_the_tool_of_a_child";
    "6 calls", "Calls that ran are `cancelled` in the record, and so are a child's steps over" => test running_calls;
    "6 suspension", "A Stop that races a suspension, or comes after it, ends the turn" => test races_a_suspension;
    "6 suspended", "A suspended turn has no active execution; `DELETE …/chat/runs/{runId}` ends it" => test suspended_turn;
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
    let (project, agent) = (&house.target.project, house.agent());
    for base in [format!("/projects/{project}/agents/v2/no-such-agent"), format!("/projects/no-such-project/agents/v2/{agent}")] {
        let stop = house.owner.request(Method::DELETE, &format!("{base}/chat/{thread}/executions/{execution}"));
        same(&base, refusal(stop).await?.code, Code::NotFound)?;
    }
    same("the turn", live.done().await?, ExecutionStatus::Success)
}

async fn ends_cancelled(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 600").await?;
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

async fn is_told_of(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 600").await?;
    let started = live.started;
    live.until("a first delta", |event| matches!(event, Event::TextDelta { .. })).await?;
    let mut push = house.owner.push().await?;
    house.stop(started.thread, started.execution).await?;
    same("the stream", live.done().await?, ExecutionStatus::Cancelled)?;
    let last = house.read(started.thread).await?.revision;
    within("a notification of the end", async {
        loop {
            let update = push.update().await?;
            if update.is_some_and(|update| update.thread_id == started.thread && update.revision == last) {
                return anyhow::Ok(());
            }
        }
    })
    .await
}

async fn at_another_connection(house: Arc<House>) -> Result<()> {
    let live = house.say("/slow 600").await?;
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

async fn suspended_turn(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    same("what runs", house.read(started.thread).await?.active_execution_id, None)?;
    let cancel = house.at(&house.owner, Method::DELETE, &format!("/chat/runs/{}", asked.run_id));
    same("the answer", answer::<serde_json::Value>(cancel).await?, serde_json::json!({"cancelled": true}))?;
    let read = house.read(started.thread).await?;
    same("what is open", read.open_suspensions.len(), 0)?;
    same("the status", assistant(&read)?.execution_status, Some(ExecutionStatus::Cancelled))
}

async fn running_calls(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/delegate 1000").await?;
    // Its child has called a tool by the time it writes.
    let writes =
        |event: &Event| matches!(event, Event::SubagentChunk { chunk, .. } if matches!(**chunk, Event::TextDelta { .. }));
    live.until("a child that writes", writes).await?;
    house.stop(live.started.thread, live.started.execution).await?;
    same("the stream", live.done().await?, ExecutionStatus::Cancelled)?;
    let message = house.settled(live.started.thread).await?;
    let calls: Vec<_> = message.content.iter().filter_map(Part::as_tool_call).collect();
    same("its calls", calls.iter().map(|call| call.state).collect(), vec![ToolState::Cancelled])?;
    let steps = calls[0].child_trace.as_ref().map_or(&[][..], |trace| &trace.steps);
    ensure!(!steps.is_empty() && steps.iter().all(|step| !step.running), "calls of a child, none of which runs: {calls:#?}");
    Ok(())
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
    same("the resumed execution", resumed.done().await?, ExecutionStatus::Success)?;
    let mut next = house.say_in(first.thread, "/slow 600").await?;
    for over in [first.execution, resumed.started.execution] {
        same("another stale Stop", house.stop(first.thread, over).await?, false)?;
    }
    same("what runs", house.read(first.thread).await?.active_execution_id, Some(next.started.execution))?;
    house.stop(first.thread, next.started.execution).await?;
    next.rest().await
}

async fn twice(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 600").await?;
    let (thread, execution) = (live.started.thread, live.started.execution);
    let (first, second) = tokio::join!(house.stop(thread, execution), house.owner.stop(house.agent(), thread, execution));
    ensure!(first? || second?.cancel_requested, "one of the two asked for it");
    same("the end", live.done().await?, ExecutionStatus::Cancelled)?;
    same("afterwards", house.stop(thread, execution).await?, false)
}
