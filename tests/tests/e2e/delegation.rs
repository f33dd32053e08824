//! Delegation through the whole path: live, in the record, and when it is stopped (contract 1, section 5).

use anyhow::{Context, Result};
use serde_json::json;
use turnfast_shared::{
    Event, ExecutionStatus, Part,
    limits::CHILD_TRACE_CHARS,
    message::{ChildTrace, ToolCall},
};
use turnfast_tests::{client::Live, provider::End};

use crate::House;

/// `boss` delegates to `worker`, and `head` to `boss`.
async fn house() -> Result<House> {
    let agent = |id: &str, delegates: &str| {
        format!(
            "[[agents]]\nproject = \"demo\"\nid = \"{id}\"\nprovider = \"test\"\nmodel = \"test-model\"\ntools = [\"delegate\", \"clock\"]\n\
             delegates = [{delegates}]\n"
        )
    };
    House::open_with(&format!("{}{}{}", agent("worker", ""), agent("boss", "\"worker\""), agent("head", "\"boss\""))).await
}

/// A script that gives `task` to `agent`.
fn give(agent: &str, task: &str) -> String {
    format!("[[tool:delegate:{}]]", json!({"agent": agent, "task": task}))
}

async fn calls(house: &House, agent: &str, live: &Live) -> Result<Vec<ToolCall>> {
    let message = house.alice.settled(agent, live.started.thread).await?;
    Ok(message.content.iter().filter_map(Part::as_tool_call).cloned().collect())
}

/// Characters that the live stream carried of a child's text and reasoning.
fn live_chars(live: &Live, parent: &str) -> usize {
    let chunks = live.seen.iter().filter_map(|event| match event {
        Event::SubagentChunk { parent_tool_call_id, chunk, .. } if parent_tool_call_id == parent => Some(&**chunk),
        _ => None,
    });
    chunks
        .map(|chunk| match chunk {
            Event::TextDelta { delta, .. } | Event::ReasoningDelta { delta, .. } => delta.chars().count(),
            _ => 0,
        })
        .sum()
}

fn recorded_chars(trace: &ChildTrace) -> usize {
    let reasoning: usize = trace.reasoning_segments.iter().map(|text| text.chars().count()).sum();
    trace.text.chars().count() + reasoning
}

#[tokio::test]
async fn the_record_keeps_exactly_the_budget() -> Result<()> {
    let house = house().await?;
    for total in [CHILD_TRACE_CHARS - 1, CHILD_TRACE_CHARS, CHILD_TRACE_CHARS + 1] {
        // Characters of one to four bytes, text and reasoning in turns; the last piece ends the count.
        let ends = total - 3_000;
        let task = format!(
            "[[reason:{}]][[say:{}]][[reason:{}]][[say:{}]]",
            "é".repeat(1_000),
            "🦀".repeat(1_000),
            "r".repeat(1_000),
            "€".repeat(ends),
        );
        let mut live = house.alice.say("boss", &give("worker", &task)).await?;
        assert_eq!(live.done().await?, ExecutionStatus::Success);
        let calls = calls(&house, "boss", &live).await?;
        let trace = calls[0].child_trace.as_ref().context("what the child did")?;
        assert_eq!(recorded_chars(trace), total.min(CHILD_TRACE_CHARS), "{total}");
        assert_eq!(live_chars(&live, &calls[0].tool_call_id), total, "the live stream carries all of it");
        assert_eq!(trace.reasoning_segments, ["é".repeat(1_000), "r".repeat(1_000)]);
        assert!(trace.text.starts_with('🦀') && trace.text.ends_with('€'));
        let output = calls[0].output.as_ref().and_then(|output| output.as_str()).context("a text")?;
        assert_eq!(output.chars().count(), 1_000 + ends, "the agent gets all of it");
    }
    Ok(())
}

#[tokio::test]
async fn two_delegations_at_once_have_a_budget_each() -> Result<()> {
    let house = house().await?;
    // Each waits in the middle until the other has begun too.
    let task = |name: &str, more: usize| format!("[[say:{}]][[hold:{name}]][[say:{}]]", "a".repeat(2_500), "b".repeat(more));
    let script = format!("{}{}", give("worker", &task("one", 1_400)), give("worker", &task("two", 1_600)));
    let mut live = house.alice.say("boss", &script).await?;
    for name in ["one", "two"] {
        house.provider.holds(name).await?;
    }
    for name in ["two", "one"] {
        house.provider.release(name).await?;
    }
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    let calls = calls(&house, "boss", &live).await?;
    let recorded: Vec<_> = calls.iter().filter_map(|call| call.child_trace.as_ref()).map(recorded_chars).collect();
    assert_eq!(recorded, [3_900, CHILD_TRACE_CHARS]);
    Ok(())
}

#[tokio::test]
async fn a_childs_progress_is_read_while_it_runs_and_stop_reaches_its_provider() -> Result<()> {
    let house = house().await?;
    // Below a child: request 0 is the head's, 1 the boss's, 2 the worker's.
    let task = give("worker", "[[words:3]][[stall]]");
    let mut live = house.alice.say("head", &format!("[[say:Mine. ]]{}", give("boss", &format!("[[say:Yours. ]]{task}")))).await?;
    let deepest = |event: &Event| match event {
        Event::SubagentChunk { task_path, chunk, .. } => {
            task_path.len() == 2 && matches!(&**chunk, Event::TextDelta { delta, .. } if delta.contains("word3"))
        }
        _ => false,
    };
    live.until("the grandchild's words", deepest).await?;
    let started = live.started;
    let read = house
        .alice
        .read_until("head", started.thread, "the child's progress", |read| {
            let parts = read.messages.iter().flat_map(|message| &message.content);
            let mut traces = parts.filter_map(|part| part.as_tool_call()?.child_trace.as_ref());
            traces.any(|trace| trace.text == "Yours. " && trace.steps.first().is_some_and(|step| step.running))
        })
        .await?;
    assert_eq!(read.active_execution_id, Some(started.execution));

    assert!(house.alice.stop("head", started.thread, started.execution).await?.cancel_requested);
    assert_eq!(house.provider.end_of(2).await?, End::HungUp);
    assert_eq!(live.done().await?, ExecutionStatus::Cancelled);
    let calls = calls(&house, "head", &live).await?;
    let trace = calls[0].child_trace.as_ref().context("what the child did")?;
    assert_eq!((trace.text.as_str(), trace.steps[0].running), ("Yours. ", false), "what was written stays, nothing runs");
    Ok(())
}
