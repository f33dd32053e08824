//! Section 3: the endpoints, row by row.

use std::{collections::HashSet, sync::Arc};

use anyhow::{Context, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use turnfast_shared::{
    ExecutionStatus, Part,
    api::{ChatRequest, NewAttachment, RunCancelAnswer, Thread, ThreadPage, ThreadSnapshot},
    ids::ThreadId,
    message::{ResumeData, SuspendPayload, ToolState},
    problem::Code,
};
use uuid::Uuid;

use super::{Case, cases, house::House, same};
use crate::{
    client::{answer, refusal},
    within,
};

pub(super) const CASES: &[Case] = cases! {
    "3 POST /chat", "A message is answered by an event stream, in a new thread where none is named" => test chat;
    "3 POST /chat newSession", "An unknown `sessionId` is refused, and with `newSession` becomes a thread of that id" => test new_session;
    "3 POST /chat attachments", "An attachment goes with its message as a file part" => test attachments;
    "3 POST /chat/resume approve", "An approval lets the call run, in the same message" => test approve;
    "3 POST /chat/resume deny", "A denial with a reason rejects the call and tells the agent why" => test deny;
    "3 POST /chat/resume answer", "An answer to a question goes back to the agent" => test answer_a_question;
    "3 GET /chat/{threadId}/messages", "A read has messages, open suspensions, the active execution and the revision" => test messages;
    "3 DELETE /chat/{threadId}/executions/{executionId}", "A Stop says whether it was asked for" => test stop;
    "3 DELETE /chat/runs/{runId}", "A suspended turn is cancelled once; a second call says `false`" => test cancel_run;
    "3 GET /threads", "Threads come newest first, in pages of `limit` that a cursor joins without gaps or repeats" => test threads;
    "3 GET /threads limit", "`limit` takes 1 to 100 and is 20 where absent" => test threads_limit;
    "3 GET /threads/{threadId}", "One thread as the list shows it, titled by its first message" => test thread;
    "3 PATCH /threads/{threadId}", "A thread is renamed" => test rename;
    "3 DELETE /threads/{threadId}", "A thread is deleted, but not while it runs a turn" => test delete;
    "3 GET /chat/attachments/{id}", "Bytes come with `nosniff` and a sandbox policy, for their owner alone" => test attachment_bytes;
    "3 GET /push", "Whoever is signed in may follow, and nobody else" => test push;
    "3 scopes", "Every route lets in whom its row says, and nobody else" => elsewhere "server/src/http/tests/access.rs", "every_route_lets_in_whom_it_should_and_nobody_else";
    "3 owner", "A route of an owner finds nothing for anyone else, a thread's readers are its project's only where it is theirs"
        => elsewhere "tests/tests/e2e/access.rs", "a_private_thread_does_not_exist_for_anyone_else";
    "3 bearer", "A bearer token works everywhere a cookie does" => elsewhere "server/src/http/auth/tests.rs", "a_bearer_token_works_everywhere_and_needs_no_origin";
    "3 POST /auth/login", "A password signs in by cookie" => elsewhere "tests/tests/e2e/smoke.rs", "a_password_signs_in_and_a_wrong_one_does_not";
    "3 POST /auth/logout", "Signing out ends the session" => elsewhere "server/src/http/auth/tests.rs", "a_person_signs_in_and_out";
    "3 GET /auth/me", "It says who the caller is" => test me;
    "3 GET /projects", "The projects that the caller may use" => test projects;
    "3 GET /projects/{p}/agents/v2", "The agents of a project, and one of them" => test agents;
    "3 GET /healthz, /readyz", "Both answer without credentials" => test health;
    "3 GET /openapi.json", "The description of the interface, with every row of the table, without credentials" => test openapi;
    "3 GET /metrics", "Whoever reaches the server's address reaches no metrics" => test no_metrics_here;
    "3 GET /metrics on its own listener", "Metrics, for whoever reaches that address" => elsewhere "tests/tests/e2e/operations.rs", "metrics_are_on_a_listener_of_their_own";
};

async fn chat(house: Arc<House>) -> Result<()> {
    let mut first = house.say("one").await?;
    same("the end", first.done().await?, ExecutionStatus::Success)?;
    ensure!(!first.text().is_empty(), "an answer has text");
    let second = house.turn("two").await?;
    ensure!(first.started.thread != second.started.thread, "two messages without a thread are two threads");
    let mut third = house.say_in(first.started.thread, "three").await?;
    third.done().await?;
    same("the thread that was named", third.started.thread, first.started.thread)?;
    same("its messages", house.read(first.started.thread).await?.messages.len(), 4)
}

async fn new_session(house: Arc<House>) -> Result<()> {
    let thread = ThreadId::from(Uuid::new_v4());
    for body in
        [json!({"message": "hi", "sessionId": thread}), json!({"message": "hi", "sessionId": thread, "newSession": false})]
    {
        same(&body.to_string(), refusal(house.chat(&body)).await?.code, Code::NotFound)?;
    }
    let request =
        ChatRequest { message: "hi".to_owned(), session_id: Some(thread), new_session: Some(true), ..ChatRequest::default() };
    let mut live = house.say_as(&request).await?;
    same("the thread", live.started.thread, thread)?;
    live.done().await?;
    let mut again = house.say_as(&request).await?;
    same("`newSession` in a thread that exists", again.done().await?, ExecutionStatus::Success)?;
    same("its messages", house.read(thread).await?.messages.len(), 4)
}

fn note() -> NewAttachment {
    NewAttachment {
        name: "note.txt".to_owned(),
        media_type: "text/plain".to_owned(),
        data: STANDARD.encode("Remember the milk."),
    }
}

async fn attach(house: &House) -> Result<(ThreadId, Uuid)> {
    let request = ChatRequest { message: "see this".to_owned(), attachments: vec![note()], ..ChatRequest::default() };
    let mut live = house.say_as(&request).await?;
    live.done().await?;
    let read = house.read(live.started.thread).await?;
    let file = read.messages[0].content.iter().find_map(|part| match part {
        Part::File { id, name, media_type, size } => Some((*id, name.clone(), media_type.clone(), *size)),
        _ => None,
    });
    let (id, name, media_type, size) = file.with_context(|| format!("a file part in {read:#?}"))?;
    same("the file", (name.as_str(), media_type.as_str(), size), ("note.txt", "text/plain", 18))?;
    Ok((live.started.thread, id))
}

async fn attachments(house: Arc<House>) -> Result<()> {
    let (thread, _) = attach(&house).await?;
    let blank = ChatRequest { session_id: Some(thread), attachments: vec![note()], ..ChatRequest::default() };
    same("files without a word", house.say_as(&blank).await?.done().await?, ExecutionStatus::Success)?;
    let bad = json!({"message": "hi", "attachments": [{"name": "x", "mediaType": "text/plain", "data": "no base64 !"}]});
    same("bytes that are none", refusal(house.chat(&bad)).await?.code, Code::InvalidRequest)
}

async fn attachment_bytes(house: Arc<House>) -> Result<()> {
    let (_, id) = attach(&house).await?;
    let path = format!("/chat/attachments/{id}");
    let response = within("the bytes", house.at(&house.second, Method::GET, &path).send()).await?;
    same("the status", response.status(), StatusCode::OK)?;
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    same("x-content-type-options", header("x-content-type-options"), "nosniff".to_owned())?;
    ensure!(header("content-security-policy").contains("sandbox"), "{:?}", response.headers());
    same("the bytes", &*within("the bytes", response.bytes()).await?, b"Remember the milk.".as_slice())?;
    let theirs = refusal(house.at(&house.other, Method::GET, &path)).await?;
    let unknown = refusal(house.at(&house.other, Method::GET, &format!("/chat/attachments/{}", Uuid::new_v4()))).await?;
    same("for another user", theirs.code, Code::NotFound)?;
    same("as an unknown one", theirs, unknown)
}

/// The state and the error of the one tool call of a thread's last message.
async fn call_of(house: &House, thread: ThreadId) -> Result<(ToolState, Option<String>)> {
    let message = house.settled(thread).await?;
    let call = message.content.iter().find_map(Part::as_tool_call).with_context(|| format!("a call in {message:#?}"))?;
    Ok((call.state, call.error.clone()))
}

async fn approve(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/approve").await?;
    ensure!(
        matches!(&asked.suspend_payload, Some(SuspendPayload::Approval { tool_name, .. }) if *tool_name == asked.tool_name),
        "{asked:?} asks for an approval of its tool"
    );
    let mut live = house.resume(&asked, ResumeData::Approval { approved: true, reason: None }).await?;
    same("the end", live.done().await?, ExecutionStatus::Success)?;
    same("the call", call_of(&house, started.thread).await?, (ToolState::Resolved, None))?;
    same("what is open", house.read(started.thread).await?.open_suspensions, vec![])
}

async fn deny(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/approve").await?;
    let reason = "postcards are dear".to_owned();
    let mut live = house.resume(&asked, ResumeData::Approval { approved: false, reason: Some(reason.clone()) }).await?;
    same("the end", live.done().await?, ExecutionStatus::Success)?;
    let (state, error) = call_of(&house, started.thread).await?;
    same("the call", state, ToolState::Rejected)?;
    ensure!(error.as_ref().is_some_and(|error| error.contains(&reason)), "the call's error {error:?} gives the reason");
    ensure!(live.text().contains(&reason), "the agent was told: {}", live.text());
    Ok(())
}

async fn answer_a_question(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    let Some(SuspendPayload::Question { options: Some(options), .. }) = &asked.suspend_payload else {
        anyhow::bail!("{asked:?} is no question with options")
    };
    let choice = options.last().context("an option")?.clone();
    let mut live = house.resume(&asked, ResumeData::Answer { answer: choice.clone() }).await?;
    same("the end", live.done().await?, ExecutionStatus::Success)?;
    ensure!(live.text().contains(&choice), "the agent was told: {}", live.text());
    same("the call", call_of(&house, started.thread).await?.0, ToolState::Resolved)
}

async fn messages(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/ask").await?;
    let read = house.read_json(started.thread, "").await?;
    for field in ["messages", "openSuspensions", "activeExecutionId", "revision"] {
        ensure!(read.get(field).is_some(), "`{field}` is missing in {read}");
    }
    same("nothing runs", &read["activeExecutionId"], &Value::Null)?;
    let read: ThreadSnapshot = serde_json::from_value(read)?;
    same("what waits is what the stream said", read.open_suspensions, vec![asked])?;
    ensure!(!read.partial && read.deleted_message_ids.is_none(), "a full read");
    house.stop(started.thread, started.execution).await?;
    Ok(())
}

async fn stop(house: Arc<House>) -> Result<()> {
    let mut live = house.say("/slow 600").await?;
    let started = live.started;
    let path = format!("/chat/{}/executions/{}", started.thread, started.execution);
    let asked: Value = answer(house.at(&house.owner, Method::DELETE, &path)).await?;
    same("the answer", asked, json!({"cancelRequested": true}))?;
    same("the end", live.done().await?, ExecutionStatus::Cancelled)?;
    let again: Value = answer(house.at(&house.owner, Method::DELETE, &path)).await?;
    same("afterwards", again, json!({"cancelRequested": false}))
}

async fn cancel_run(house: Arc<House>) -> Result<()> {
    let (started, asked) = house.suspended("/approve").await?;
    let cancel = || house.at(&house.second, Method::DELETE, &format!("/chat/runs/{}", asked.run_id));
    same("the first call", answer::<RunCancelAnswer>(cancel()).await?.cancelled, true)?;
    same("the second", answer::<RunCancelAnswer>(cancel()).await?.cancelled, false)?;
    let message = house.settled(started.thread).await?;
    same("the status", message.execution_status, Some(ExecutionStatus::Cancelled))?;
    let late = refusal(house.answering(&house.owner, &asked, &json!({"approved": true}))).await?;
    same("a late answer", late.code, Code::InteractionClosed)?;
    same("the next turn", house.say_in(started.thread, "next").await?.done().await?, ExecutionStatus::Success)
}

async fn page(house: &House, query: &str) -> Result<ThreadPage> {
    answer(house.at(&house.owner, Method::GET, &format!("/threads{query}"))).await
}

async fn threads(house: Arc<House>) -> Result<()> {
    let mut ours = Vec::new();
    for n in 0..3 {
        ours.push(house.turn(&format!("thread {n}")).await?.started.thread);
    }
    // A turn in the oldest of them makes it the newest.
    house.say_in(ours[0], "once more").await?.done().await?;
    let wanted = vec![ours[0], ours[2], ours[1]];
    let (mut found, mut seen, mut cursor) = (Vec::new(), HashSet::new(), None::<String>);
    while found.len() < wanted.len() {
        let query = cursor.as_ref().map_or_else(|| "?limit=2".to_owned(), |cursor| format!("?limit=2&cursor={cursor}"));
        let page = page(&house, &query).await?;
        ensure!(page.threads.len() <= 2, "{page:?} is longer than asked for");
        ensure!(page.threads.is_sorted_by(|one, next| one.updated_at >= next.updated_at), "{page:?} is not newest first");
        ensure!(page.next_cursor.is_none() || page.next_cursor != cursor, "the cursor of {page:?} leads to where it came from");
        for row in page.threads {
            // Other tests' threads move to the front meanwhile; ours stand still.
            if wanted.contains(&row.id) {
                ensure!(seen.insert(row.id), "{row:?} is on two pages");
                found.push(row.id);
            }
        }
        cursor = page.next_cursor;
        ensure!(cursor.is_some() || found.len() == wanted.len(), "the list ended after {found:?}");
    }
    same("their order", found, wanted)
}

async fn threads_limit(house: Arc<House>) -> Result<()> {
    for bad in ["0", "101", "-1", "ten", ""] {
        let refused = refusal(house.at(&house.owner, Method::GET, &format!("/threads?limit={bad}"))).await?;
        same(&format!("limit={bad}"), (refused.code, refused.field.as_deref()), (Code::InvalidRequest, Some("limit")))?;
    }
    for _ in 0..21 {
        house.turn("/long 1").await?;
    }
    same("a page without a limit", page(&house, "").await?.threads.len(), 20)?;
    same("a page of one", page(&house, "?limit=1").await?.threads.len(), 1)?;
    ensure!(page(&house, "?limit=100").await?.threads.len() >= 21, "a hundred are taken");
    Ok(())
}

async fn read_thread(house: &House, thread: ThreadId) -> Result<Thread> {
    answer(house.at(&house.second, Method::GET, &format!("/threads/{thread}"))).await
}

async fn thread(house: Arc<House>) -> Result<()> {
    let live = house.turn("Which way is up?").await?;
    let thread = live.started.thread;
    let row = read_thread(&house, thread).await?;
    same("the title", row.title.as_str(), "Which way is up?")?;
    same("the revision", row.revision, house.read(thread).await?.revision)?;
    same("nothing runs", row.active_execution_id, None)?;
    let running = house.say_in(thread, "/slow 600").await?.started;
    same("what runs", read_thread(&house, thread).await?.active_execution_id, Some(running.execution))?;
    house.stop(thread, running.execution).await?;
    Ok(())
}

async fn rename(house: Arc<House>) -> Result<()> {
    let thread = house.turn("hello").await?.started.thread;
    let patch = |body: Value| house.at(&house.owner, Method::PATCH, &format!("/threads/{thread}")).json(&body);
    let renamed: Thread = answer(patch(json!({"title": "Ümläuts 🦀"}))).await?;
    same("the answer", renamed.title.as_str(), "Ümläuts 🦀")?;
    same("what others read", read_thread(&house, thread).await?.title.as_str(), "Ümläuts 🦀")?;
    for bad in [json!({"title": "  "}), json!({"title": 7}), json!({}), json!({"title": "x", "owner": "me"})] {
        same(&bad.to_string(), refusal(patch(bad)).await?.code, Code::InvalidRequest)?;
    }
    house.say_in(thread, "and on").await?.done().await?;
    same("after another turn", read_thread(&house, thread).await?.title.as_str(), "Ümläuts 🦀")
}

async fn delete(house: Arc<House>) -> Result<()> {
    let live = house.say("/slow 600").await?;
    let started = live.started;
    let delete = || house.at(&house.second, Method::DELETE, &format!("/threads/{}", started.thread));
    let refused = refusal(delete()).await?;
    same("while it runs", (refused.code, refused.active_execution_id), (Code::TurnAlreadyRunning, Some(started.execution)))?;
    house.stop(started.thread, started.execution).await?;
    house.settled(started.thread).await?;
    let mut push = house.owner.push().await?;
    let done = within("the deletion", delete().send()).await?;
    ensure!(done.status().is_success(), "{}", done.status());
    let told = async {
        loop {
            if push.update().await?.is_some_and(|update| update.thread_id == started.thread) {
                return anyhow::Ok(());
            }
        }
    };
    within("a notification of the deletion", told).await?;
    same("a second time", refusal(delete()).await?.code, Code::NotFound)?;
    let read = house.at(&house.owner, Method::GET, &format!("/chat/{}/messages", started.thread));
    same("a read", refusal(read).await?.code, Code::NotFound)
}

async fn push(house: Arc<House>) -> Result<()> {
    same("nobody", refusal(house.nobody.request(Method::GET, "/push")).await?.code, Code::Unauthenticated)?;
    house.owner.push().await.map(drop)
}

async fn me(house: Arc<House>) -> Result<()> {
    let me: Value = answer(house.owner.request(Method::GET, "/auth/me")).await?;
    ensure!(me["id"].is_string() && me["name"].is_string(), "{me}");
    same("nobody", refusal(house.nobody.request(Method::GET, "/auth/me")).await?.code, Code::Unauthenticated)
}

async fn projects(house: Arc<House>) -> Result<()> {
    let list: Value = answer(house.owner.request(Method::GET, "/projects")).await?;
    let ours = list["projects"].as_array().context("projects")?.iter().find(|project| project["id"] == house.target.project);
    ensure!(ours.is_some_and(|project| project["name"].is_string()), "{list}");
    same("nobody", refusal(house.nobody.request(Method::GET, "/projects")).await?.code, Code::Unauthenticated)
}

async fn agents(house: Arc<House>) -> Result<()> {
    let base = format!("/projects/{}/agents/v2", house.target.project);
    let list: Value = answer(house.owner.request(Method::GET, &base)).await?;
    let ours = list["agents"].as_array().context("agents")?.iter().find(|agent| agent["id"] == house.target.agent);
    let ours = ours.with_context(|| format!("the agent in {list}"))?;
    let one: Value = answer(house.owner.request(Method::GET, &format!("{base}/{}", house.target.agent))).await?;
    same("the agent by itself", &one, ours)?;
    for unknown in [format!("{base}/no-such-agent"), "/projects/no-such-project/agents/v2".to_owned()] {
        same(&unknown, refusal(house.owner.request(Method::GET, &unknown)).await?.code, Code::NotFound)?;
    }
    Ok(())
}

async fn health(house: Arc<House>) -> Result<()> {
    for path in ["/healthz", "/readyz"] {
        let response = within(path, house.nobody.request(Method::GET, path).send()).await?;
        same(path, response.status(), StatusCode::OK)?;
    }
    Ok(())
}

async fn openapi(house: Arc<House>) -> Result<()> {
    let document: Value = answer(house.nobody.request(Method::GET, "/openapi.json")).await?;
    ensure!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "an OpenAPI 3 document");
    let paths = document["paths"].as_object().context("paths")?;
    for (method, end) in [
        ("post", "/chat"),
        ("post", "/chat/resume"),
        ("get", "/messages"),
        ("delete", "/executions/{}"),
        ("delete", "/chat/runs/{}"),
        ("get", "/threads"),
        ("get", "/threads/{}"),
        ("patch", "/threads/{}"),
        ("delete", "/threads/{}"),
        ("get", "/chat/attachments/{}"),
        ("get", "/push"),
        ("post", "/auth/login"),
        ("post", "/auth/logout"),
        ("get", "/auth/me"),
        ("get", "/projects"),
        ("get", "/agents/v2"),
        ("get", "/agents/v2/{}"),
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/openapi.json"),
    ] {
        // What a place in a path is called is nobody's promise.
        let shape = |path: &str| {
            path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
        };
        let found = paths.iter().any(|(path, operations)| shape(path).ends_with(end) && operations.get(method).is_some());
        ensure!(found, "{method} …{end} is not in {:?}", paths.keys());
    }
    Ok(())
}

async fn no_metrics_here(house: Arc<House>) -> Result<()> {
    for who in [&house.nobody, &house.owner] {
        same("/metrics", refusal(who.request(Method::GET, "/metrics")).await?.code, Code::NotFound)?;
    }
    Ok(())
}
