//! Section 4: the live stream. That ids grow by one, that `execution-started` is first and that nothing follows `done`, the client
//! of these tests checks on every stream.

use std::{collections::HashSet, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turnfast_shared::{Event, ExecutionStatus, Part, ids::ThreadId, message::ResumeData};
use uuid::Uuid;

use super::{Case, cases, house::House, same};
use crate::within;

pub(super) const CASES: &[Case] = cases! {
    "4 headers", "Every event stream is one that no proxy may transform, cache or collect" => test headers;
    "4 ids", "Each event has an id, `<executionId>:<n>`, that grows by one per execution" => test ids;
    "4 events", "Each event has a type of the contract and the fields that go with it" => test events;
    "4 text", "Steps and text come as events that open, grow and close" => test text;
    "4 reasoning", "So does reasoning" => test reasoning;
    "4 usage", "A step ends with what it took, where the provider says" => elsewhere "tests/tests/e2e/turns.rs", "a_step_says_what_it_took";
    "4 tool-input", "A call is announced with its tool, and its input comes as it is written" => test tool_input;
    "4 tools", "A tool call comes with its input, start, end and result, and the times between which it ran" => test tools;
    "4 subagent-chunk", "All of a child's events come, under the call that started it" => test children;
    "4 subagent-chunk path", "A grandchild's events name the calls from the turn's down to its own"
        => elsewhere "tests/tests/e2e/delegation.rs", "a_childs_progress_is_read_while_it_runs_and_stop_reaches_its_provider";
    "4 warning", "What is missing is said with a code, and the turn goes on"
        => elsewhere "tests/tests/e2e/mcp.rs", "a_server_that_does_not_start_is_a_warning";
    "4 error", "A failed turn says why, and then `done` with status `error`" => test error;
    "4 error errorCode", "A failure has a code for programs, on the stream and in the record" => test error_code;
    "4 done after record", "When `done` comes, every read shows the final state" => test done_after_record;
    "4 suspended", "A suspended stream ends without `done`, and by then the record has the suspension" => test suspended;
    "4 keep-alive", "A silent stream carries comments" => elsewhere "tests/tests/e2e/turns.rs", "a_silent_stream_is_kept_alive_by_comments";
    "4 detached", "A stream that ends with neither is recovered by reading" => elsewhere "client-core/src/thread/tests/rules.rs", "a_stream_that_just_ends_is_detached_and_recovers_by_reading";
    "4 slow reader", "A reader that does not read is cut off; its turn does not wait for it" => test slow_reader;
};

async fn headers(house: Arc<House>) -> Result<()> {
    let (_, asked) = house.suspended("/ask").await?;
    for (what, request) in [
        ("/chat", house.chat(&json!({"message": "hello"}))),
        ("/chat/resume", house.answering(&house.owner, &asked, &json!({"answer": "red"}))),
        ("/push", house.owner.request(Method::GET, "/push")),
    ] {
        let response = within(what, request.send()).await?;
        same(what, response.status().as_u16(), 200)?;
        let header =
            |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        ensure!(header("content-type").starts_with("text/event-stream"), "{what}: {}", header("content-type"));
        same(what, header("cache-control").as_str(), "no-cache, no-transform")?;
        // nginx takes this one for itself.
        if !header("server").starts_with("nginx") {
            same(what, header("x-accel-buffering").as_str(), "no")?;
        }
    }
    Ok(())
}

/// That an event has its fields and no others (`name?` may be absent).
fn has_its_fields(event: &Value) -> Result<()> {
    let name = event["type"].as_str().with_context(|| format!("`type` in {event}"))?;
    let fields: &[&str] = match name {
        "execution-started" => &["executionId", "sessionId", "messageId", "assistantMessageId"],
        "start-step" => &[],
        "finish-step" => &["usage?"],
        "text-start" | "text-end" | "reasoning-start" | "reasoning-end" => &["id"],
        "text-delta" | "reasoning-delta" => &["id", "delta"],
        "tool-input-start" => &["toolCallId", "toolName"],
        "tool-input-delta" => &["toolCallId", "delta"],
        "tool-call" => &["toolCallId", "toolName", "input"],
        "tool-execution-start" => &["toolCallId", "toolName", "startTime"],
        "tool-execution-end" => &["toolCallId", "toolName", "isError", "endTime"],
        "tool-result" => &["toolCallId", "toolName", "output", "isError?", "canceled?"],
        "tool-call-suspended" => &["payload"],
        "subagent-chunk" => &["parentToolCallId", "taskPath", "chunk"],
        "warning" => &["message", "code?"],
        "error" => &["message", "errorCode?"],
        "done" => &["sessionId", "executionId", "status"],
        _ => bail!("`{name}` is no event of the contract"),
    };
    for field in fields.iter().filter(|field| !field.ends_with('?')) {
        ensure!(event.get(field).is_some(), "`{field}` is missing in {event}");
    }
    for (field, value) in event.as_object().into_iter().flatten().filter(|(field, _)| *field != "type") {
        ensure!(fields.iter().any(|known| known.trim_end_matches('?') == field), "`{field}` in {event}");
        let fits = match field.as_str() {
            "startTime" | "endTime" => value.is_u64(),
            "isError" | "canceled" => value.is_boolean(),
            "usage" | "payload" | "chunk" => value.is_object(),
            "taskPath" => value.is_array(),
            "input" | "output" => true,
            _ => value.is_string(),
        };
        ensure!(fits, "`{field}` in {event}");
    }
    match name {
        "subagent-chunk" => has_its_fields(&event["chunk"]),
        "tool-call-suspended" => {
            let payload = &event["payload"];
            for field in ["toolCallId", "runId", "toolName"] {
                ensure!(payload[field].is_string(), "`{field}` is missing in {event}");
            }
            ensure!(payload.get("input").is_some(), "`input` is missing in {event}");
            Ok(())
        }
        _ => Ok(()),
    }
}

async fn events(house: Arc<House>) -> Result<()> {
    for command in ["hello", "/think", "/tool", "/delegate 3", "/fail", "/approve", "/ask"] {
        let events = house.events(house.chat(&json!({"message": command}))).await?;
        for event in &events {
            has_its_fields(event).with_context(|| command.to_owned())?;
        }
        if let Some(run) = events.iter().find_map(|event| event["payload"]["runId"].as_str()) {
            let cancel = house.at(&house.owner, Method::DELETE, &format!("/chat/runs/{run}"));
            crate::client::answer::<Value>(cancel).await?;
        }
    }
    Ok(())
}

async fn ids(house: Arc<House>) -> Result<()> {
    let response = within("a stream", house.chat(&json!({"message": "/slow 3"})).send()).await?;
    let text = within("its end", response.text()).await?;
    let ids: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    same("ids and data lines", text.lines().filter(|line| line.starts_with("data: ")).count(), ids.len())?;
    ensure!(ids.len() > 5, "{text}");
    let first = ids.first().and_then(|id| id.split_once(':')).context("an id")?;
    let start: usize = first.1.parse()?;
    for (n, id) in ids.iter().enumerate() {
        same("an id", *id, &*format!("{}:{}", first.0, start + n))?;
    }
    Ok(())
}

/// The types of a stream's events, each once in a row.
fn types(events: &[Event]) -> Result<Vec<String>> {
    let mut types = Vec::new();
    for event in events {
        let json = serde_json::to_value(event)?;
        let name = json["type"].as_str().unwrap_or_default().to_owned();
        if types.last() != Some(&name) {
            types.push(name);
        }
    }
    Ok(types)
}

async fn text(house: Arc<House>) -> Result<()> {
    let live = house.turn("/slow 3").await?;
    let wanted = ["execution-started", "start-step", "text-start", "text-delta", "text-end", "finish-step", "done"];
    same("the events", types(&live.seen)?, wanted.map(str::to_owned).to_vec())?;
    ensure!(live.text().ends_with("word1 word2 word3"), "{}", live.text());
    let names: HashSet<_> = live
        .seen
        .iter()
        .filter_map(|event| match event {
            Event::TextStart { id } | Event::TextDelta { id, .. } | Event::TextEnd { id } => Some(id),
            _ => None,
        })
        .collect();
    same("ids of one text", names.len(), 1)
}

async fn reasoning(house: Arc<House>) -> Result<()> {
    let live = house.turn("/think").await?;
    let wanted = ["reasoning-start", "reasoning-delta", "reasoning-end"];
    let seen: Vec<_> = types(&live.seen)?.into_iter().filter(|name| name.starts_with("reasoning")).collect();
    same("the events", seen, wanted.map(str::to_owned).to_vec())?;
    let (mut names, mut text) = (HashSet::new(), String::new());
    for event in &live.seen {
        match event {
            Event::ReasoningStart { id } | Event::ReasoningEnd { id } => names.extend([id]),
            Event::ReasoningDelta { id, delta } => {
                names.extend([id]);
                text.push_str(delta);
            }
            _ => {}
        }
    }
    same("ids of one reasoning", names.len(), 1)?;
    let message = house.settled(live.started.thread).await?;
    let recorded = message.content.iter().find_map(|part| match part {
        Part::Reasoning { text, .. } => Some(text.as_str()),
        _ => None,
    });
    same("stream and record", Some(text.as_str()), recorded)
}

async fn tool_input(house: Arc<House>) -> Result<()> {
    for command in ["/tool", "/ask", "/delegate 3"] {
        let mut live = house.say(command).await?;
        live.rest().await?;
        let (mut announced, mut written) = (None, String::new());
        let mut complete = None;
        for event in &live.seen {
            match event {
                Event::ToolInputStart { tool_call_id, tool_name } => announced = Some((tool_call_id, tool_name)),
                Event::ToolInputDelta { tool_call_id, delta } => {
                    same("the call that is written", announced.map(|(id, _)| id), Some(tool_call_id))?;
                    written.push_str(delta);
                }
                Event::ToolCall { tool_call_id, tool_name, input } => {
                    complete = Some((tool_call_id, tool_name));
                    let written: Value = serde_json::from_str(&written).with_context(|| format!("{command}: `{written}`"))?;
                    same(command, &written, input)?;
                }
                _ => {}
            }
        }
        ensure!(complete.is_some() && complete == announced, "{command}: {announced:?} was announced, {complete:?} was called");
        if command == "/ask" {
            house.stop(live.started.thread, live.started.execution).await?;
        }
    }
    Ok(())
}

async fn tools(house: Arc<House>) -> Result<()> {
    let live = house.turn("/tool").await?;
    let seen: Vec<_> = types(&live.seen)?.into_iter().filter(|name| name.starts_with("tool")).collect();
    let seen: Vec<_> = seen.iter().map(String::as_str).filter(|name| !name.starts_with("tool-input")).collect();
    same("the events", seen, vec!["tool-call", "tool-execution-start", "tool-execution-end", "tool-result"])?;
    let (mut call, mut start) = (None, 0);
    let mut result = None;
    for event in &live.seen {
        match event {
            Event::ToolCall { tool_call_id, tool_name, input } => {
                ensure!(input.is_object(), "an input: {input}");
                call = Some((tool_call_id, tool_name));
            }
            Event::ToolExecutionStart { tool_call_id, tool_name, start_time } => {
                same("the call that starts", Some((tool_call_id, tool_name)), call)?;
                ensure!(*start_time > 0, "a time: {start_time}");
                start = *start_time;
            }
            Event::ToolExecutionEnd { tool_call_id, tool_name, is_error, end_time } => {
                same("the call that ends", (Some((tool_call_id, tool_name)), *is_error), (call, false))?;
                ensure!(start > 0 && *end_time >= start, "it ran from {start} to {end_time}");
            }
            Event::ToolResult { tool_call_id, tool_name, output, is_error, canceled } => {
                same("the call with the result", Some((tool_call_id, tool_name)), call)?;
                ensure!(!output.is_null() && is_error.is_none_or(|is| !is) && canceled.is_none_or(|is| !is), "{event:?}");
                result = Some(output);
            }
            _ => {}
        }
    }
    let message = house.settled(live.started.thread).await?;
    let recorded = message.content.iter().find_map(Part::as_tool_call).and_then(|call| call.output.as_ref());
    same("the output, on the stream and in the record", result, recorded)
}

async fn children(house: Arc<House>) -> Result<()> {
    // The demo's child reasons, looks at the clock and writes.
    const WANTED: [&str; 16] = [
        "start-step",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "tool-input-start",
        "tool-input-delta",
        "tool-call",
        "finish-step",
        "tool-execution-start",
        "tool-execution-end",
        "tool-result",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
    ];
    let live = house.turn("/delegate 5").await?;
    let delegate = live.seen.iter().find_map(|event| match event {
        Event::ToolCall { tool_call_id, .. } => Some(tool_call_id.clone()),
        _ => None,
    });
    let delegate = delegate.context("a call")?;
    let (mut text, mut chunks) = (String::new(), Vec::new());
    for event in &live.seen {
        if let Event::SubagentChunk { parent_tool_call_id, task_path, chunk } = event {
            same("its call", parent_tool_call_id, &delegate)?;
            same("its path", task_path, &vec![delegate.clone()])?;
            chunks.push((**chunk).clone());
            if let Event::TextDelta { delta, .. } = &**chunk {
                text.push_str(delta);
            }
        }
    }
    same("the child's events", types(&chunks)?, WANTED.map(str::to_owned).to_vec())?;
    same("the child's text", text.as_str(), "word1 word2 word3 word4 word5")
}

async fn error(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/fail").await?;
    same("the end", live.done().await?, ExecutionStatus::Error)?;
    let told =
        live.seen.iter().find_map(|event| if let Event::Error { message, .. } = event { Some(message.clone()) } else { None });
    let recorded = house.settled(live.started.thread).await?.execution_error.map(|error| error.message);
    ensure!(told.as_ref().is_some_and(|told| !told.trim().is_empty()), "{:?}", live.seen);
    same("stream and record", told, recorded)
}

async fn error_code(house: Arc<House>) -> Result<()> {
    let live = house.turn("/fail").await?;
    let told = live.seen.iter().find_map(|event| match event {
        Event::Error { error_code, .. } => error_code.clone(),
        _ => None,
    });
    ensure!(told.as_ref().is_some_and(|code| !code.trim().is_empty()), "{:?}", live.seen);
    let recorded = house.settled(live.started.thread).await?.execution_error.and_then(|error| error.error_code);
    same("stream and record", told, recorded)
}

async fn done_after_record(house: Arc<House>) -> Result<()> {
    for command in ["hello", "/tool", "/fail", "/long 200"] {
        let mut live = house.say(command).await?;
        let event = live.until("done", |event| matches!(event, Event::Done { .. })).await?;
        // Read without waiting for anything else, at the other process where there is one.
        let read = house.second.read(house.agent(), live.started.thread).await?;
        let Event::Done { status, .. } = event else { bail!("{event:?}") };
        let message = crate::client::assistant(&read)?;
        same(command, (read.active_execution_id, message.execution_status), (None, Some(status)))?;
        ensure!(status.is_final(), "{status:?}");
        same("the text", message.text(), live.text())?;
    }
    Ok(())
}

async fn suspended(house: Arc<House>) -> Result<()> {
    for command in ["/approve", "/ask"] {
        let mut live = house.say(command).await?;
        live.rest().await?;
        let read = house.second.read(house.agent(), live.started.thread).await?;
        let Some(Event::ToolCallSuspended { payload }) = live.seen.last() else {
            bail!("{command}: {:?} is the last", live.seen.last())
        };
        same("what is open", &read.open_suspensions, &vec![payload.clone()])?;
        same("what runs", read.active_execution_id, None)?;
        let status = crate::client::assistant(&read)?.execution_status;
        same("the status", status, Some(ExecutionStatus::Suspended))?;
        let answer = match command {
            "/approve" => ResumeData::Approval { approved: false, reason: None },
            _ => ResumeData::Answer { answer: "red".to_owned() },
        };
        house.resume(payload, answer).await?.done().await?;
    }
    Ok(())
}

/// A submit over a connection that takes little and from which nothing is read. Its turn writes more than such a connection and the
/// server's buffer hold.
async fn slow_reader(house: Arc<House>) -> Result<()> {
    let mut connection = house.connect(Some(4_096)).await?;
    let thread = ThreadId::from(Uuid::new_v4());
    let body = json!({"message": "/long 100000", "sessionId": thread, "newSession": true}).to_string();
    let head = house.post_head("/chat", body.len())?;
    connection.write_all(format!("{head}{body}").as_bytes()).await?;
    let mut head = [0; 12];
    within("a status line", connection.read_exact(&mut head)).await?;
    same("the status line", &head, b"HTTP/1.1 200")?;

    let message = house.settled(thread).await?;
    same("the turn that nobody read", message.execution_status, Some(ExecutionStatus::Success))?;
    ensure!(message.text().ends_with(" word100000"), "its last word is missing");
    let mut rest = Vec::new();
    // A connection that is cut may also end with an error.
    let read = tokio::time::timeout(crate::patience(), connection.read_to_end(&mut rest)).await;
    ensure!(read.is_ok(), "the stream of a reader that was left behind stays open");
    ensure!(!String::from_utf8_lossy(&rest).contains(r#""type":"done""#), "it was not cut off: {} bytes came", rest.len());
    let read = house.at(&house.owner, Method::GET, &format!("/chat/{thread}/messages"));
    crate::client::answer::<Value>(read).await.map(drop)
}
