//! Section 2: the promise. Section 1 goes with it: its words are what the promise is made of.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use turnfast_shared::{
    Event, ExecutionStatus, Role,
    api::{ChatRequest, ThreadSnapshot},
    ids::ThreadId,
    message::ResumeData,
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
    "1 ids", "Ids are UUIDs; those of projects and agents are short" => test ids;
    "1 turn", "A turn that takes two executions is one assistant message" => test one_message_for_two_executions;
    "1 revision", "Every change that a reader can see raises the revision" => test every_change_raises_the_revision;
    "2.1", "The first event is `execution-started`, and the execution is in the record by then" => test accepted_first;
    "2.1 before acceptance", "A submit that breaks off before it is complete starts no turn" => test nothing_before_acceptance;
    "2.2", "A turn runs to its end although its connection closes after the first event" => test the_turn_outlives_its_connection;
    "2.3", "Another connection reads the turn while it runs, and again when it is told of a change" => test others_read_and_are_told;
    "2.3 client", "A client submits nothing twice, and a failed read changes nothing on screen"
        => elsewhere "client-core/src/simulation/mod.rs", "seeds";
    "2.4", "What reads return never goes back, neither in revision nor in text" => test reads_never_go_back;
    "2.5", "A Stop of an execution that is over does not end the next one" => test a_stop_names_one_execution;
    "2.6", "A competing submit is refused, leaves nothing in the thread, and succeeds once the turn is over" => test one_turn_at_a_time;
    "2.7", "For anyone but its owner a thread is as unknown as one that does not exist" => test private_threads_do_not_exist;
};

fn uuid(of: &Value, field: &str) -> Result<Uuid> {
    let text = of[field].as_str().with_context(|| format!("`{field}` in {of}"))?;
    Uuid::parse_str(text).with_context(|| format!("`{field}` in {of}"))
}

async fn ids(house: Arc<House>) -> Result<()> {
    let events = house.events(house.chat(&json!({"message": "/ask"}))).await?;
    let started = events.first().context("an event")?;
    for field in ["executionId", "messageId", "assistantMessageId"] {
        uuid(started, field)?;
    }
    let thread = uuid(started, "sessionId")?;
    let read = house.read_json(thread.into(), "").await?;
    for message in read["messages"].as_array().context("messages")? {
        uuid(message, "id")?;
        uuid(message, "executionId")?;
    }
    let run = uuid(&read["openSuspensions"][0], "runId")?;
    answer::<Value>(house.at(&house.owner, Method::DELETE, &format!("/chat/runs/{run}"))).await?;

    let short = |id: &Value| {
        let fits = |id: &str| {
            (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        id.as_str().is_some_and(fits)
    };
    let agents = format!("/projects/{}/agents/v2", house.target.project);
    for (path, list) in [("/projects", "projects"), (&*agents, "agents")] {
        let found: Value = answer(house.owner.request(Method::GET, path)).await?;
        let found = found[list].as_array().with_context(|| format!("`{list}` in {found}"))?;
        ensure!(!found.is_empty() && found.iter().all(|one| short(&one["id"])), "{path}: {found:?}");
    }
    Ok(())
}

async fn one_message_for_two_executions(house: Arc<House>) -> Result<()> {
    let (first, asked) = house.suspended("/approve").await?;
    let mut second = house.resume(&asked, ResumeData::Approval { approved: true, reason: None }).await?;
    second.done().await?;
    ensure!(second.started.execution != first.execution, "a resumed turn is another execution");
    same("the message that is written", second.started.assistant, first.assistant)?;
    same("the message that started it", second.started.message, first.message)?;
    let read = house.read(first.thread).await?;
    let roles: Vec<_> = read.messages.iter().map(|message| message.role).collect();
    same("the messages", roles, vec![Role::User, Role::Assistant])
}

async fn every_change_raises_the_revision(house: Arc<House>) -> Result<()> {
    let live = house.turn("hello").await?;
    let thread = live.started.thread;
    let first = house.read(thread).await?.revision;
    ensure!(first > 0, "a thread with a turn has a revision");
    let path = format!("/threads/{thread}");
    let renamed = house.at(&house.owner, Method::PATCH, &path).json(&json!({"title": "renamed"}));
    answer::<Value>(renamed).await?;
    let second = house.read(thread).await?.revision;
    ensure!(second > first, "renamed: {first}, then {second}");
    house.say_in(thread, "again").await?.done().await?;
    let third = house.read(thread).await?.revision;
    ensure!(third > second, "another turn: {second}, then {third}");
    same("a read changes nothing", house.read(thread).await?.revision, third)
}

async fn accepted_first(house: Arc<House>) -> Result<()> {
    // That it is the first event, every stream of this suite makes sure of.
    let live = house.say("/slow 600").await?;
    let started = live.started;
    let read = house.second.read(house.agent(), started.thread).await?;
    same("the active execution", read.active_execution_id, Some(started.execution))?;
    let ids: Vec<_> = read.messages.iter().map(|message| message.id).collect();
    same("the messages", ids, vec![started.message, started.assistant])?;
    house.stop(started.thread, started.execution).await?;
    Ok(())
}

async fn nothing_before_acceptance(house: Arc<House>) -> Result<()> {
    let thread = ThreadId::from(Uuid::new_v4());
    let body = json!({"message": "/slow 5", "sessionId": thread, "newSession": true}).to_string();
    // All but the brace that closes it: whoever guesses the rest starts a turn.
    let head = house.post_head("/chat", body.len())?;
    let mut connection = house.connect(None).await?;
    connection.write_all(format!("{head}{}", &body[..body.len() - 1]).as_bytes()).await?;
    connection.shutdown().await?;
    let mut answer = Vec::new();
    // A connection that is closed in the middle of a request may also end with an error.
    let read = tokio::time::timeout(crate::patience(), connection.read_to_end(&mut answer)).await;
    ensure!(read.is_ok(), "the connection of a submit that broke off stays open");
    ensure!(!answer.starts_with(b"HTTP/1.1 200"), "half a submit was answered: {}", String::from_utf8_lossy(&answer));
    let read = house.at(&house.owner, Method::GET, &format!("/chat/{thread}/messages"));
    same("a read of the thread", refusal(read).await?.code, Code::NotFound)
}

async fn the_turn_outlives_its_connection(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 40").await?;
    live.until("a first delta", |event| matches!(event, Event::TextDelta { .. })).await?;
    let started = live.started;
    drop(live);
    let message = house.settled(started.thread).await?;
    same("the message", message.id, started.assistant)?;
    same("its status", message.execution_status, Some(ExecutionStatus::Success))?;
    ensure!(message.text().contains("word1 word2 word3") && message.text().ends_with(" word39 word40"), "{}", message.text());
    same("the messages", house.read(started.thread).await?.messages.len(), 2)
}

async fn others_read_and_are_told(house: Arc<House>) -> Result<()> {
    let mut push = house.second.push().await?;
    let mut live = house.say("/slow 600").await?;
    let started = live.started;
    within("a notification", async {
        while push.update().await?.is_none_or(|update| update.thread_id != started.thread) {}
        anyhow::Ok(())
    })
    .await?;
    let during = house.read_until(started.thread, "text of the turn that runs", |read| text_of(read).contains("word2")).await?;
    same("the active execution", during.active_execution_id, Some(started.execution))?;
    same("its status", assistant(&during)?.execution_status, Some(ExecutionStatus::Running))?;
    house.stop(started.thread, started.execution).await?;
    live.done().await?;
    let after = house.settled(started.thread).await?;
    ensure!(after.text().starts_with(&text_of(&during)), "{:?} does not go on from {:?}", after.text(), text_of(&during));
    Ok(())
}

async fn reads_never_go_back(house: Arc<House>) -> Result<()> {
    let live = house.say("/slow 600").await?;
    let (thread, execution) = (live.started.thread, live.started.execution);
    drop(live);
    let mut last: Option<ThreadSnapshot> = None;
    let mut changes = 0;
    let reads = async {
        loop {
            for client in [&house.owner, &house.second] {
                let read = client.read(house.agent(), thread).await?;
                if let Some(last) = &last {
                    ensure!(read.revision >= last.revision, "revision {} after {}", read.revision, last.revision);
                    ensure!(text_of(&read).starts_with(&text_of(last)), "{:?} after {:?}", text_of(&read), text_of(last));
                    ensure!(read.revision > last.revision || read == *last, "two states of one revision: {last:#?} {read:#?}");
                }
                let over = read.active_execution_id.is_none();
                if last.as_ref().is_none_or(|last| read.revision > last.revision) {
                    changes += 1;
                    // Enough has been seen; the end comes too.
                    if changes == 5 {
                        house.stop(thread, execution).await?;
                    }
                }
                last = Some(read);
                if over {
                    return Ok(());
                }
            }
        }
    };
    within("the end of the turn", reads).await
}

async fn a_stop_names_one_execution(house: Arc<House>) -> Result<()> {
    let first = house.turn("first").await?.started;
    let mut second = house.say_in(first.thread, "/slow 600").await?;
    same("the Stop", house.stop(first.thread, first.execution).await?, false)?;
    same("what runs", house.read(first.thread).await?.active_execution_id, Some(second.started.execution))?;
    same("its own Stop", house.stop(first.thread, second.started.execution).await?, true)?;
    same("the other turn", second.done().await?, ExecutionStatus::Cancelled)
}

async fn one_turn_at_a_time(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 600").await?;
    let started = live.started;
    let before = house.read(started.thread).await?.messages.len();
    let competing = ChatRequest { message: "me too".to_owned(), session_id: Some(started.thread), ..ChatRequest::default() };
    let refused = refusal(house.at(&house.second, Method::POST, "/chat").json(&competing)).await?;
    same("the refusal", refused.code, Code::TurnAlreadyRunning)?;
    same("the execution that it names", refused.active_execution_id, Some(started.execution))?;
    same("messages after it", house.read(started.thread).await?.messages.len(), before)?;
    house.stop(started.thread, started.execution).await?;
    same("the running turn", live.done().await?, ExecutionStatus::Cancelled)?;
    same("the same submit afterwards", house.say_as(&competing).await?.done().await?, ExecutionStatus::Success)?;
    let read = house.read(started.thread).await?;
    let said: Vec<_> = read.messages.iter().filter(|message| message.role == Role::User).map(|message| message.text()).collect();
    same("what was said", said, vec!["/slow 600".to_owned(), "me too".to_owned()])
}

async fn private_threads_do_not_exist(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    let nothing = ThreadId::from(Uuid::new_v4());
    let execution = started.execution;
    for (method, before, after, body) in [
        (Method::GET, "/chat/", "/messages", None),
        (Method::DELETE, "/chat/", &*format!("/executions/{execution}"), None),
        (Method::GET, "/threads/", "", None),
        (Method::PATCH, "/threads/", "", Some(json!({"title": "mine now"}))),
        (Method::DELETE, "/threads/", "", None),
    ] {
        let ask = |thread: ThreadId| {
            let request = house.at(&house.other, method.clone(), &format!("{before}{thread}{after}"));
            if let Some(body) = &body { request.json(body) } else { request }
        };
        let (theirs, unknown) = (refusal(ask(started.thread)).await?, refusal(ask(nothing)).await?);
        same(&format!("{method} {before}…{after}"), theirs.code, Code::NotFound)?;
        same("what it says of an unknown thread", unknown, theirs)?;
    }
    let submit = |thread: ThreadId| {
        house.at(&house.other, Method::POST, "/chat").json(&json!({"message": "hi", "sessionId": thread, "newSession": false}))
    };
    same("a submit", refusal(submit(started.thread)).await?, refusal(submit(nothing)).await?)?;
    let cancel = |run: String| house.at(&house.other, Method::DELETE, &format!("/chat/runs/{run}"));
    same("a cancel", refusal(cancel(asked.run_id.to_string())).await?, refusal(cancel(nothing.to_string())).await?)?;
    let theirs = house.answering(&house.other, &asked, &json!({"answer": "red"}));
    same("an answer", refusal(theirs).await?.code, Code::NotFound)?;
    let threads: Value = answer(house.at(&house.other, Method::GET, "/threads?limit=100")).await?;
    let listed = threads["threads"].as_array().context("threads")?.iter().any(|row| row["id"] == json!(started.thread));
    ensure!(!listed, "the other user's list holds it");
    let read = house.read(started.thread).await?;
    same("what is open after all that", read.open_suspensions.len(), 1)?;
    house.stop(started.thread, execution).await?;
    Ok(())
}
