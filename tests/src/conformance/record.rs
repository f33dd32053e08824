//! Section 5: what is recorded, and when; reads and notifications.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use turnfast_shared::{
    Event, Part, Timeline,
    api::ThreadSnapshot,
    message::{ChildTrace, ResumeData, ToolState},
};

use super::{
    Case, cases,
    house::{House, last, text_of},
    same,
};
use crate::{
    client::{answer, assistant, merged, refusal, without_times},
    within,
};

/// Characters of a child's text and reasoning that the record keeps.
const BUDGET: usize = 4_000;

pub(super) const CASES: &[Case] = cases! {
    "5 message", "A recorded message has its fields, and a status that says what became of its turn" => test message;
    "5 status", "`success`, `error`, `cancelled`, `suspended` and `running` are told apart" => test statuses;
    "5 status interrupted", "`interrupted` is what a dead process leaves" => elsewhere "tests/tests/e2e/crash.rs", "a_killed_process_leaves_an_honest_end_and_a_thread_that_works";
    "5 executionError", "A failed turn's message says why" => test execution_error;
    "5 parts", "Text, reasoning and tool calls are recorded as parts, in order, with their times" => test parts;
    "5 tool states", "`running`, `suspended`, `resolved`, `rejected` and `cancelled` are told apart" => test tool_states;
    "5 tool states before", "`input-streaming` and `pending` come before them"
        => elsewhere "shared/src/timeline/tests.rs", "a_tool_call_goes_through_its_states";
    "5 suspendPayload", "A call keeps what it asked, before and after its answer" => test suspend_payload;
    "5 stream and record", "What was streamed and what is recorded are the same, whatever the turn does" => test stream_and_record;
    "5 childTrace", "A child's text, its reasoning and its calls are recorded under the call that started it" => test child_trace;
    "5 childTrace budget", "Text and reasoning share 4,000 characters exactly; the stream carries all of them" => test child_budget;
    "5 childTrace budget exact", "To the character, of one byte to four, text and reasoning in turns"
        => elsewhere "tests/tests/e2e/delegation.rs", "the_record_keeps_exactly_the_budget";
    "5 childTrace budget each", "Each delegation has a budget of its own"
        => elsewhere "tests/tests/e2e/delegation.rs", "two_delegations_at_once_have_a_budget_each";
    "5 childTrace live", "A child's progress shows in reads while it runs" => test child_progress;
    "5 childTrace running", "And so does which of its calls runs"
        => elsewhere "tests/tests/e2e/delegation.rs", "a_childs_progress_is_read_while_it_runs_and_stop_reaches_its_provider";
    "5 boundary", "The end of a part and the start of a tool are in the record while the tool runs" => test boundary;
    "5 boundary before", "The start of a tool is recorded before the tool runs"
        => elsewhere "server/src/turns/tests.rs", "the_start_of_a_tool_is_recorded_before_the_tool_runs";
    "5 boundary suspension", "A suspension is recorded before anyone is told"
        => elsewhere "server/src/turns/tests.rs", "a_suspension_is_in_the_record_before_anyone_is_told";
    "5 open text", "Text is in the record while its part is still written" => test open_text;
    "5 open text soon", "Within 250 ms, as `cargo xtask bench reliability` measures" => elsewhere "tests/src/bench/reliability.rs", "recorded";
    "5 notifications", "After the last change, every connection of the owner has been told of it" => test notifications;
    "5 notifications merged", "Notifications merge, and the newest wins"
        => elsewhere "server/src/relay/hub.rs", "updates_of_one_thread_merge_and_the_newest_wins";
    "5 notifications late", "A late write tells nobody"
        => elsewhere "server/src/turns/tests.rs", "an_execution_that_lost_its_claim_writes_nothing_more";
    "5 notifications privacy", "Another user's connection is told nothing of it" => test notifications_are_private;
    "5 notifications content", "A notification carries ids and a revision, and no content" => test notifications_have_no_content;
    "5 refused write", "What was refused changes no revision and tells nobody" => test refused_writes_are_silent;
    "5 /push", "`connected` first, with a time to come back after, and then visible `ping`s" => test push_format;
    "5 /push jitter", "Not everyone is told to come back after the same time" => test push_jitter;
    "5 ETag", "A read has a strong ETag of thread and revision, and 304 answers it until something changes" => test etag;
    "5 since", "`?since=` gives what changed after it, and merges to what a full read gives" => test since;
    "5 activeExecutionId", "It is set from acceptance on and null when nothing runs" => test active_execution;
    "5 openSuspensions", "An open interaction is in every read until it is answered" => test open_suspensions;
    "5 secrets", "A key that its provider repeats shows in no part, event, error or log line"
        => elsewhere "tests/tests/e2e/provider_errors.rs", "a_key_that_the_provider_repeats_shows_nowhere";
    "5 secrets of tools", "Nor does one that a tool repeats"
        => elsewhere "tests/tests/e2e/mcp.rs", "a_program_gets_what_it_is_given_and_no_secret_comes_back";
    "5 secrets in addresses", "Nor one in a tool server's address"
        => elsewhere "tests/tests/e2e/mcp.rs", "an_address_that_refuses_us_or_nobody_listens_at";
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
        let created = message["createdAt"].as_str().unwrap_or_default();
        ensure!(created > "2020" && created.contains('T') && created.ends_with('Z'), "{message}");
        let revision = message["revision"].as_u64();
        ensure!(revision > Some(0) && revision <= read["revision"].as_u64(), "{read}");
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
    let mut live = house.say("/slow 600").await?;
    same("/slow", status(live.started.thread).await?, json!("running"))?;
    house.stop(live.started.thread, live.started.execution).await?;
    live.rest().await?;
    same("/slow, stopped", status(live.started.thread).await?, json!("cancelled"))
}

async fn execution_error(house: Arc<House>) -> Result<()> {
    let read = house.read_json(house.turn("/fail").await?.started.thread, "").await?;
    let error = &last(&read)?["executionError"];
    for field in ["message", "errorCode"] {
        ensure!(error[field].as_str().is_some_and(|text| !text.trim().is_empty()), "`{field}` is missing in {read}");
    }
    Ok(())
}

/// The one tool call of a thread's last message, as JSON.
fn recorded_call(read: &Value) -> Result<&Value> {
    let parts = last(read)?["content"].as_array().context("parts")?;
    parts.iter().find(|part| part["type"] == "tool-call").with_context(|| format!("a call in {read}"))
}

async fn tool_states(house: Arc<House>) -> Result<()> {
    let state = async |thread| Ok::<_, anyhow::Error>(recorded_call(&house.read_json(thread, "").await?)?["state"].clone());
    same("/tool", state(house.turn("/tool").await?.started.thread).await?, json!("resolved"))?;
    let (waiting, asked) = house.suspended("/approve").await?;
    same("/approve", state(waiting.thread).await?, json!("suspended"))?;
    house.resume(&asked, ResumeData::Approval { approved: false, reason: None }).await?.done().await?;
    same("/approve, denied", state(waiting.thread).await?, json!("rejected"))?;
    let mut live = house.say("/delegate 1000").await?;
    live.until("a child", |event| matches!(event, Event::SubagentChunk { .. })).await?;
    same("/delegate", state(live.started.thread).await?, json!("running"))?;
    house.stop(live.started.thread, live.started.execution).await?;
    live.rest().await?;
    same("/delegate, stopped", state(live.started.thread).await?, json!("cancelled"))
}

async fn suspend_payload(house: Arc<House>) -> Result<()> {
    for (command, answer) in [
        ("/approve", ResumeData::Approval { approved: true, reason: None }),
        ("/ask", ResumeData::Answer { answer: "red".to_owned() }),
    ] {
        let (started, asked) = house.suspended(command).await?;
        let read = house.read_json(started.thread, "").await?;
        let before = recorded_call(&read)?["suspendPayload"].clone();
        match command {
            "/approve" => {
                let wanted = json!({"kind": "approval", "toolName": asked.tool_name, "input": asked.input});
                same("an approval", &before, &wanted)?;
            }
            _ => {
                same("a question", &before["kind"], &json!("question"))?;
                ensure!(before["question"].is_string() && before["options"].is_array(), "{before}");
            }
        }
        same("what is open", &read["openSuspensions"][0]["suspendPayload"], &before)?;
        house.resume(&asked, answer).await?.done().await?;
        same("after the answer", &recorded_call(&house.read_json(started.thread, "").await?)?["suspendPayload"], &before)?;
    }
    Ok(())
}

async fn parts(house: Arc<House>) -> Result<()> {
    let read = house.read_json(house.turn("/think").await?.started.thread, "").await?;
    let [reasoning, text] = last(&read)?["content"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        anyhow::bail!("reasoning, then text: {read}")
    };
    same("parts", (&reasoning["type"], &text["type"]), (&json!("reasoning"), &json!("text")))?;
    ensure!(reasoning["text"].as_str().is_some_and(|text| !text.is_empty()), "{reasoning}");
    times(reasoning)?;

    let read = house.read_json(house.turn("/tool").await?.started.thread, "").await?;
    let content = last(&read)?["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let call = content.iter().find(|part| part["type"] == "tool-call").with_context(|| format!("a call in {read}"))?;
    for field in ["toolCallId", "toolName", "input", "output", "startTime", "endTime"] {
        ensure!(call.get(field).is_some_and(|value| !value.is_null()), "`{field}` is missing in {call}");
    }
    same("its state", &call["state"], &json!("resolved"))?;
    times(call)?;
    same("text behind it", &content.last().context("parts")?["type"], &json!("text"))
}

/// That a part has a beginning and an end, in this order.
fn times(part: &Value) -> Result<()> {
    let (start, end) = (part["startTime"].as_u64(), part["endTime"].as_u64());
    ensure!(start > Some(0) && start <= end, "from {start:?} to {end:?}: {part}");
    Ok(())
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

/// What a child did, as the stream shows it.
#[derive(Default)]
struct Child {
    text: String,
    reasoning: String,
    /// Id and tool of each call.
    calls: Vec<(String, String)>,
}

impl Child {
    fn of(events: &[Event]) -> Self {
        let mut child = Self::default();
        for event in events {
            let Event::SubagentChunk { chunk, .. } = event else { continue };
            match &**chunk {
                Event::TextDelta { delta, .. } => child.text.push_str(delta),
                Event::ReasoningDelta { delta, .. } => child.reasoning.push_str(delta),
                Event::ToolCall { tool_call_id, tool_name, .. } => child.calls.push((tool_call_id.clone(), tool_name.clone())),
                _ => {}
            }
        }
        child
    }
}

/// The trace of a message's delegation, where there is one yet.
fn trace_of(content: &[Part]) -> Option<&ChildTrace> {
    content.iter().filter_map(Part::as_tool_call).find_map(|call| call.child_trace.as_ref())
}

async fn child_trace(house: Arc<House>) -> Result<()> {
    let live = house.turn("/delegate 5").await?;
    let child = Child::of(&live.seen);
    ensure!(!child.reasoning.is_empty() && child.calls.len() == 1, "the demo's child reasons and makes a call: {:#?}", live.seen);
    let read = house.read_json(live.started.thread, "").await?;
    let (id, tool) = &child.calls[0];
    let wanted = json!({
        "text": child.text,
        "reasoningSegments": [child.reasoning],
        "steps": [{"toolCallId": id, "toolName": tool, "running": false}],
    });
    same("the trace", &recorded_call(&read)?["childTrace"], &wanted)
}

async fn child_budget(house: Arc<House>) -> Result<()> {
    // 600 words are more than 4,000 characters.
    let live = house.turn("/delegate 600").await?;
    let child = Child::of(&live.seen);
    let wanted: Vec<_> = (1..=600).map(|n| format!("word{n}")).collect();
    same("the stream", child.text.as_str(), &*wanted.join(" "))?;
    let message = house.settled(live.started.thread).await?;
    let trace = trace_of(&message.content).context("a trace")?;
    same("its reasoning, which came first", trace.reasoning_segments.concat(), child.reasoning.clone())?;
    same("the length of both", trace.text.chars().count() + child.reasoning.chars().count(), BUDGET)?;
    ensure!(child.text.starts_with(&trace.text), "the record is the beginning of the stream");
    Ok(())
}

async fn child_progress(house: Arc<House>) -> Result<()> {
    let live = house.say("/delegate 1000").await?;
    let started = live.started;
    let during = house
        .read_until(started.thread, "the child's first words", |read| {
            read.active_execution_id.is_some()
                && read.messages.last().and_then(|last| trace_of(&last.content)).is_some_and(|trace| trace.text.contains("word2"))
        })
        .await?;
    let call = assistant(&during)?.content.iter().find_map(Part::as_tool_call).context("a call")?;
    same("the call", call.state, ToolState::Running)?;
    house.stop(started.thread, started.execution).await?;
    Ok(())
}

async fn boundary(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/delegate 1000").await?;
    live.until("a child", |event| matches!(event, Event::SubagentChunk { .. })).await?;
    let read = house.second.read(house.agent(), live.started.thread).await?;
    let state = assistant(&read)?.content.iter().find_map(Part::as_tool_call).map(|call| call.state);
    same("the call, whose tool runs", state, Some(ToolState::Running))?;
    same("the text before it", text_of(&read), live.text())?;
    house.stop(live.started.thread, live.started.execution).await?;
    Ok(())
}

async fn open_text(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 600").await?;
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
            let event = push.next_json().await?;
            if event["data"]["threadId"] == json!(started.thread) {
                return anyhow::Ok(event);
            }
        }
    })
    .await?;
    ensure!(update["data"]["revision"].is_u64(), "{update}");
    let wanted = json!({
        "type": "agentExecutionUpdated",
        "data": {
            "projectId": house.target.project,
            "agentId": house.target.agent,
            "threadId": started.thread,
            "executionId": started.execution,
            "revision": update["data"]["revision"],
        },
    });
    same("the notification", update, wanted)
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

async fn push_jitter(house: Arc<House>) -> Result<()> {
    let mut times = BTreeSet::new();
    // Eight that are the same by chance: less than one in 10^24, of some thousand milliseconds.
    for _ in 0..8 {
        let mut response = within("/push", house.owner.request(Method::GET, "/push").send()).await?;
        let mut text = String::new();
        within("`connected`", async {
            while !text.contains("connected") {
                text.push_str(&String::from_utf8_lossy(&response.chunk().await?.context("it ended")?));
            }
            anyhow::Ok(())
        })
        .await?;
        times.extend(text.lines().find_map(|line| line.strip_prefix("retry: ")?.parse::<u32>().ok()));
    }
    ensure!(times.len() > 1, "everyone comes back after {times:?}");
    Ok(())
}

async fn etag(house: Arc<House>) -> Result<()> {
    let thread = house.turn("hello").await?.started.thread;
    let other = house.turn("hello").await?.started.thread;
    let read = |tag: Option<&str>| {
        let request = house.at(&house.second, Method::GET, &format!("/chat/{thread}/messages"));
        within("a read", if let Some(tag) = tag { request.header("if-none-match", tag) } else { request }.send())
    };
    let tag_of =
        |response: &reqwest::Response| response.headers().get("etag").and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    // Renamed until both have the same revision: the tag names the thread too.
    let mut title = 0;
    loop {
        let (ours, theirs) = (house.read(thread).await?.revision, house.read(other).await?.revision);
        let behind = match ours.cmp(&theirs) {
            Ordering::Less => thread,
            Ordering::Equal => break,
            Ordering::Greater => other,
        };
        title += 1;
        let rename =
            house.at(&house.owner, Method::PATCH, &format!("/threads/{behind}")).json(&json!({"title": format!("{title}")}));
        answer::<Value>(rename).await?;
    }
    let request = house.at(&house.second, Method::GET, &format!("/chat/{other}/messages"));
    let others = within("the other thread", request.send()).await?;
    let tag = tag_of(&read(None).await?).context("an ETag")?;
    ensure!(tag.starts_with('"') && tag.ends_with('"'), "{tag} is strong");
    ensure!(tag_of(&others) != Some(tag.clone()), "two threads have the tag {tag}");
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
    let mut live = house.say("/slow 600").await?;
    let started = live.started;
    let during = house.second.read(house.agent(), started.thread).await?;
    same("while it runs", during.active_execution_id, Some(started.execution))?;
    house.stop(started.thread, started.execution).await?;
    live.done().await?;
    same("at the end", house.read(started.thread).await?.active_execution_id, None)
}

async fn open_suspensions(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    let read = house.read_json(started.thread, "").await?;
    for field in ["toolCallId", "runId", "toolName", "input", "suspendPayload"] {
        ensure!(read["openSuspensions"][0].get(field).is_some(), "`{field}` is missing in {read}");
    }
    for reader in [&house.owner, &house.second] {
        same("before", reader.read(house.agent(), started.thread).await?.open_suspensions, vec![asked.clone()])?;
    }
    let known = house.read(started.thread).await?.revision;
    let unchanged = house.read_json(started.thread, &format!("?since={known}")).await?;
    same("in a read of what changed", &unchanged["openSuspensions"], &json!([asked]))?;
    let live = house.resume(&asked, ResumeData::Answer { answer: "red".to_owned() }).await?;
    same("after", house.read(live.started.thread).await?.open_suspensions, vec![])
}
