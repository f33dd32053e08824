//! Section 5: what is recorded, and when; reads and notifications.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::json;
use turnfast_shared::{
    Event, ExecutionStatus, Part, Timeline,
    api::{PushEvent, ThreadSnapshot},
    message::{ResumeData, ToolState},
};

use super::{
    Case, cases,
    house::{House, last, text_of},
    same,
};
use crate::{
    client::{assistant, merged, refusal, without_times},
    within,
};

/// Characters of a child's text that the record keeps.
const BUDGET: usize = 4_000;

pub(super) const CASES: &[Case] = cases! {
    "5 message", "A recorded message has its fields, and a status that says what became of its turn" => test message;
    "5 status", "`success`, `error`, `cancelled`, `suspended` and `running` are told apart" => test statuses;
    "5 status interrupted", "`interrupted` is what a dead process leaves" => elsewhere "tests/tests/e2e/crash.rs", "a_killed_process_leaves_an_honest_end_and_a_thread_that_works";
    "5 parts", "Text, reasoning and tool calls are recorded as parts, in order, with their times" => test parts;
    "5 stream and record", "What was streamed and what is recorded are the same, whatever the turn does" => test stream_and_record;
    "5 childTrace", "A child's text is recorded up to 4,000 characters exactly; the stream carries all of it" => test child_budget;
    "5 childTrace live", "A child's progress shows in reads while it runs" => test child_progress;
    "5 boundary", "The start of a tool is in the record while the tool runs" => test boundary;
    "5 open text", "Text is in the record while its part is still written" => test open_text;
    "5 notifications", "After the last change, every connection of the owner has been told of it" => test notifications;
    "5 notifications privacy", "Another user's connection is told nothing of it" => test notifications_are_private;
    "5 notifications content", "A notification carries ids and a revision, and no content" => test notifications_have_no_content;
    "5 refused write", "What was refused changes no revision and tells nobody" => test refused_writes_are_silent;
    "5 /push", "`connected` first, with a time to come back after, and a visible `ping` every 15 s" => test push_format;
    "5 ETag", "A read has a strong ETag, and 304 answers it until something changes" => test etag;
    "5 since", "`?since=` gives what changed after it, and merges to what a full read gives" => test since;
    "5 activeExecutionId", "It is set from acceptance on and null when nothing runs" => test active_execution;
    "5 openSuspensions", "An open interaction is in every read until it is answered" => test open_suspensions;
    "5 secrets", "A configured key shows in no part, event, error or log line" => elsewhere "tests/tests/e2e/provider_errors.rs", "every_failure_of_a_provider_is_recorded_and_keeps_the_text";
};

async fn message(house: Arc<House>) -> Result<()> {
    let live = house.turn("hello").await?;
    let read = house.read_json(live.started.thread, "").await?;
    let [asked, answered] = read["messages"].as_array().map(Vec::as_slice).context("messages")? else {
        anyhow::bail!("two messages in {read}")
    };
    for (message, role) in [(asked, "user"), (answered, "assistant")] {
        for field in ["id", "role", "content", "executionId", "executionStatus", "createdAt", "revision"] {
            ensure!(message.get(field).is_some(), "`{field}` is missing in {message}");
        }
        same("the role", &message["role"], &json!(role))?;
        same("its execution", &message["executionId"], &json!(live.started.execution))?;
        ensure!(message["createdAt"].as_str().is_some_and(|time| time.contains('T') && time.ends_with('Z')), "{message}");
        ensure!(message["revision"].as_u64() <= read["revision"].as_u64(), "{read}");
    }
    same("what the person said", &asked["content"], &json!([{"type": "text", "text": "hello"}]))?;
    same("ids", (&asked["id"], &answered["id"]), (&json!(live.started.message), &json!(live.started.assistant)))?;
    same("no error", answered.get("executionError"), None)
}

async fn statuses(house: Arc<House>) -> Result<()> {
    let status = async |thread| Ok::<_, anyhow::Error>(last(&house.read_json(thread, "").await?)?["executionStatus"].clone());
    same("a reply", status(house.turn("hello").await?.started.thread).await?, json!("success"))?;
    same("/fail", status(house.turn("/fail").await?.started.thread).await?, json!("error"))?;
    let (waiting, _) = house.suspended("/ask").await?;
    same("/ask", status(waiting.thread).await?, json!("suspended"))?;
    house.stop(waiting.thread, waiting.execution).await?;
    same("/ask, stopped", status(waiting.thread).await?, json!("cancelled"))?;
    let mut live = house.say("/slow 100").await?;
    same("/slow", status(live.started.thread).await?, json!("running"))?;
    house.stop(live.started.thread, live.started.execution).await?;
    live.rest().await?;
    same("/slow, stopped", status(live.started.thread).await?, json!("cancelled"))
}

async fn parts(house: Arc<House>) -> Result<()> {
    let read = house.read_json(house.turn("/think").await?.started.thread, "").await?;
    let [reasoning, text] = last(&read)?["content"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        anyhow::bail!("reasoning, then text: {read}")
    };
    same("parts", (&reasoning["type"], &text["type"]), (&json!("reasoning"), &json!("text")))?;
    ensure!(reasoning["startTime"].as_i64() <= reasoning["endTime"].as_i64() && reasoning["endTime"].is_i64(), "{reasoning}");

    let read = house.read_json(house.turn("/tool").await?.started.thread, "").await?;
    let content = last(&read)?["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let call = content.iter().find(|part| part["type"] == "tool-call").with_context(|| format!("a call in {read}"))?;
    for field in ["toolCallId", "toolName", "input", "output", "startTime", "endTime"] {
        ensure!(call.get(field).is_some_and(|value| !value.is_null()), "`{field}` is missing in {call}");
    }
    same("its state", &call["state"], &json!("resolved"))?;
    same("text behind it", &content.last().context("parts")?["type"], &json!("text"))
}

async fn stream_and_record(house: Arc<House>) -> Result<()> {
    let reduce = |events: &[Event]| {
        let mut timeline = Timeline::new();
        for event in events {
            timeline.apply(event, 0);
        }
        without_times(timeline.parts())
    };
    for command in ["hello", "/think", "/tool", "/delegate 20", "/fail", "/long 3000"] {
        let live = house.turn(command).await?;
        let message = house.settled(live.started.thread).await?;
        same(command, reduce(&live.seen), without_times(&message.content))?;
    }
    let (started, asked) = house.suspended("/approve").await?;
    let waiting = assistant(&house.read(started.thread).await?)?.content.clone();
    let resumed = {
        let mut live = house.resume(&asked, ResumeData::Approval { approved: true, reason: None }).await?;
        live.done().await?;
        live
    };
    let mut timeline = Timeline::from_parts(waiting);
    for event in &resumed.seen {
        timeline.apply(event, 0);
    }
    same("/approve", without_times(timeline.parts()), without_times(&house.settled(started.thread).await?.content))
}

/// What a child said: on the stream, and in the record.
fn child_text(events: &[Event]) -> String {
    let text = |event: &Event| match event {
        Event::SubagentChunk { chunk, .. } => match &**chunk {
            Event::TextDelta { delta, .. } => Some(delta.clone()),
            _ => None,
        },
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

fn trace_text(content: &[Part]) -> String {
    content.iter().filter_map(Part::as_tool_call).filter_map(|call| Some(call.child_trace.as_ref()?.text.as_str())).collect()
}

async fn child_budget(house: Arc<House>) -> Result<()> {
    // 600 words are more than 4,000 characters.
    let live = house.turn("/delegate 600").await?;
    let streamed = child_text(&live.seen);
    let wanted: Vec<_> = (1..=600).map(|n| format!("word{n}")).collect();
    same("the stream", streamed.as_str(), &*wanted.join(" "))?;
    let recorded = trace_text(&house.settled(live.started.thread).await?.content);
    same("the length of the record", recorded.chars().count(), BUDGET)?;
    ensure!(streamed.starts_with(&recorded), "the record is the beginning of the stream");
    Ok(())
}

async fn child_progress(house: Arc<House>) -> Result<()> {
    let live = house.say("/delegate 100").await?;
    let started = live.started;
    let during = house
        .read_until(started.thread, "the child's first words", |read| {
            read.active_execution_id.is_some()
                && read.messages.last().is_some_and(|last| trace_text(&last.content).contains("word2"))
        })
        .await?;
    let call = assistant(&during)?.content.iter().find_map(Part::as_tool_call).context("a call")?;
    same("the call", call.state, ToolState::Running)?;
    house.stop(started.thread, started.execution).await?;
    Ok(())
}

async fn boundary(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/delegate 100").await?;
    live.until("a child", |event| matches!(event, Event::SubagentChunk { .. })).await?;
    let read = house.second.read(house.agent(), live.started.thread).await?;
    let state = assistant(&read)?.content.iter().find_map(Part::as_tool_call).map(|call| call.state);
    same("the call, whose tool runs", state, Some(ToolState::Running))?;
    house.stop(live.started.thread, live.started.execution).await?;
    Ok(())
}

async fn open_text(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 40").await?;
    let thread = live.started.thread;
    house.read_until(thread, "open text", |read| read.active_execution_id.is_some() && text_of(read).contains("word3")).await?;
    ensure!(!live.seen.iter().any(|event| matches!(event, Event::TextEnd { .. })), "its part is still open");
    house.stop(thread, live.started.execution).await?;
    live.rest().await
}

async fn notifications(house: Arc<House>) -> Result<()> {
    let mut connections = [house.owner.push().await?, house.second.push().await?, house.owner.push().await?];
    let thread = house.turn("/slow 5").await?.started.thread;
    let (waiting, asked) = house.suspended("/ask").await?;
    house.resume(&asked, ResumeData::Answer { answer: "red".to_owned() }).await?.done().await?;
    let mut wanted = BTreeMap::new();
    for thread in [thread, waiting.thread] {
        wanted.insert(thread, house.read(thread).await?.revision);
    }
    for push in &mut connections {
        let mut told = BTreeMap::new();
        within("the last notifications", async {
            while told != wanted {
                let Some(update) = push.update().await?.filter(|update| wanted.contains_key(&update.thread_id)) else { continue };
                let last = told.insert(update.thread_id, update.revision);
                ensure!(last.is_none_or(|last| update.revision > last), "{update:?} after {last:?}");
                ensure!(update.revision <= wanted[&update.thread_id], "{update:?} is more than is recorded");
            }
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(())
}

async fn notifications_are_private(house: Arc<House>) -> Result<()> {
    let mut theirs = house.other.push().await?;
    let ours = house.turn("a secret").await?.started.thread;
    let mut their_turn = house.other.say(house.agent(), "hello").await?;
    their_turn.rest().await?;
    let last = house.other.read(house.agent(), their_turn.started.thread).await?.revision;
    within("the other user's own notification", async {
        loop {
            let Some(update) = theirs.update().await? else { continue };
            ensure!(update.thread_id != ours, "the other user was told: {update:?}");
            if update.thread_id == their_turn.started.thread && update.revision >= last {
                return Ok(());
            }
        }
    })
    .await
}

async fn notifications_have_no_content(house: Arc<House>) -> Result<()> {
    let mut push = house.second.push().await?;
    let started = house.turn("hello").await?.started;
    let update = within("a notification", async {
        loop {
            match push.next().await? {
                PushEvent::AgentExecutionUpdated(update) if update.thread_id == started.thread => return anyhow::Ok(update),
                _ => {}
            }
        }
    })
    .await?;
    let wanted = json!({
        "projectId": house.target.project,
        "agentId": house.target.agent,
        "threadId": started.thread,
        "executionId": started.execution,
        "revision": update.revision,
    });
    same("the notification", serde_json::to_value(update)?, wanted)
}

async fn refused_writes_are_silent(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    let before = house.read(started.thread).await?;
    let mut push = house.owner.push().await?;
    refusal(house.chat(&json!({"message": "hi", "sessionId": started.thread}))).await?;
    refusal(house.answering(&house.owner, &asked, &json!({"answer": "no option"}))).await?;
    refusal(house.answering(&house.other, &asked, &json!({"answer": "red"}))).await?;
    same("the thread", house.read(started.thread).await?, before.clone())?;
    // The next change is the next notification.
    house.stop(started.thread, started.execution).await?;
    let update = within("a notification", async {
        loop {
            if let Some(update) = push.update().await?.filter(|update| update.thread_id == started.thread) {
                return anyhow::Ok(update);
            }
        }
    })
    .await?;
    same("the first notification", update.revision, before.revision + 1)
}

async fn push_format(house: Arc<House>) -> Result<()> {
    let mut response = within("/push", house.owner.request(Method::GET, "/push").send()).await?;
    same("the status", response.status(), StatusCode::OK)?;
    let mut text = String::new();
    within("a ping", async {
        while !text.contains(r#"data: {"type":"ping"}"#) {
            let chunk = response.chunk().await?.with_context(|| format!("it ended after {text}"))?;
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        anyhow::Ok(())
    })
    .await?;
    let mut lines = text.lines().filter(|line| !line.is_empty());
    let retry =
        lines.next().and_then(|line| line.strip_prefix("retry: ")).with_context(|| format!("a time to come back: {text}"))?;
    ensure!(retry.parse::<u32>()? > 0, "{retry}");
    same("the first message", lines.next(), Some(r#"data: {"type":"connected"}"#))
}

async fn etag(house: Arc<House>) -> Result<()> {
    let thread = house.turn("hello").await?.started.thread;
    let read = |tag: Option<&str>| {
        let request = house.at(&house.second, Method::GET, &format!("/chat/{thread}/messages"));
        within("a read", if let Some(tag) = tag { request.header("if-none-match", tag) } else { request }.send())
    };
    let tag_of =
        |response: &reqwest::Response| response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let tag = tag_of(&read(None).await?).context("an ETag")?;
    ensure!(tag.starts_with('"') && tag.ends_with('"'), "{tag} is strong");
    let unchanged = read(Some(&tag)).await?;
    same("unchanged", (unchanged.status(), tag_of(&unchanged)), (StatusCode::NOT_MODIFIED, Some(tag.clone())))?;
    same("one of several", read(Some(&format!("\"other\", {tag}"))).await?.status(), StatusCode::NOT_MODIFIED)?;
    house.say_in(thread, "again").await?.done().await?;
    let changed = read(Some(&tag)).await?;
    same("changed", changed.status(), StatusCode::OK)?;
    ensure!(tag_of(&changed) != Some(tag), "another state has another tag");
    Ok(())
}

async fn since(house: Arc<House>) -> Result<()> {
    let thread = house.turn("one").await?.started.thread;
    let mut states = vec![house.read(thread).await?];
    for command in ["/tool", "/slow 3"] {
        house.say_in(thread, command).await?.done().await?;
        states.push(house.read(thread).await?);
    }
    let full = states.last().context("a state")?.clone();
    for before in &states {
        let partial = house.read_json(thread, &format!("?since={}", before.revision)).await?;
        same("partial", &partial["partial"], &json!(true))?;
        same("deletedMessageIds", &partial["deletedMessageIds"], &json!([]))?;
        let partial: ThreadSnapshot = serde_json::from_value(partial)?;
        ensure!(partial.messages.iter().all(|message| message.revision > before.revision), "unchanged messages in {partial:#?}");
        same("merged", merged(before, partial).messages, full.messages.clone())?;
    }
    // A revision that the record does not have yet: the reader knows more than there is, and gets everything.
    let ahead = house.read_json(thread, &format!("?since={}", full.revision + 1_000)).await?;
    same("a revision from the future", serde_json::from_value::<ThreadSnapshot>(ahead)?.messages, full.messages)
}

async fn active_execution(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 3").await?;
    let during = house.second.read(house.agent(), live.started.thread).await?;
    ensure!(
        during.active_execution_id == Some(live.started.execution)
            || assistant(&during)?.execution_status != Some(ExecutionStatus::Running),
        "an execution that runs is active: {during:#?}"
    );
    live.done().await?;
    same("at the end", house.read(live.started.thread).await?.active_execution_id, None)
}

async fn open_suspensions(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    for reader in [&house.owner, &house.second] {
        same("before", reader.read(house.agent(), started.thread).await?.open_suspensions, vec![asked.clone()])?;
    }
    let known = house.read(started.thread).await?.revision;
    let unchanged = house.read_json(started.thread, &format!("?since={known}")).await?;
    same("in a read of what changed", &unchanged["openSuspensions"], &json!([asked]))?;
    let live = house.resume(&asked, ResumeData::Answer { answer: "red".to_owned() }).await?;
    same("after", house.read(live.started.thread).await?.open_suspensions, vec![])
}
