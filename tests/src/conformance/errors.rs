//! Section 3: the table of refusals, and what is refused instead of guessed.

use std::sync::Arc;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use turnfast_shared::{api::ChatRequest, ids::MessageId, message::ResumeData, problem::Code};
use uuid::Uuid;

use super::{Case, cases, house::House, same};
use crate::{
    client::{answer, refusal},
    within,
};

pub(super) const CASES: &[Case] = cases! {
    "3 problem", "A refusal is `application/problem+json` with `code`, and holds nothing of the program's inside" => test problems;
    "3 error invalid_request", "A bad value is refused, not guessed, and starts nothing" => test bad_values;
    "3 error invalid_request field", "The refusal names the field" => test bad_values_are_named;
    "3 error unauthenticated", "No credentials, or wrong ones: 401 on every route" => test unauthenticated;
    "3 error missing_scope", "A member without the scope is told which one it takes"
        => elsewhere "tests/tests/e2e/access.rs", "roles_decide_and_strangers_see_nothing";
    "3 error not_found", "Unknown threads, executions, turns, agents and paths" => test not_found;
    "3 error agents_disabled", "With the feature off the routes say so" => elsewhere "tests/tests/e2e/refusals.rs", "switched_off_agents_say_so";
    "3 error turn_already_running", "A second turn in a thread is refused with the execution that holds it" => test turn_already_running;
    "3 error interaction_open", "A new message while the thread waits for an answer" => test interaction_open;
    "3 error interaction_closed", "An answer to what is answered or cancelled" => test interaction_closed;
    "3 error interaction_closed expired", "An answer to what has expired" => elsewhere "server/src/turns/tests.rs", "a_question_that_nobody_answers_expires_and_says_so";
    "3 error message_already_accepted", "A repeated `messageId` is refused with the execution that it started" => test message_already_accepted;
    "3 error method_not_allowed", "A path that exists, with another method" => test method_not_allowed;
    "3 error unsupported_media_type", "A body that is not said to be JSON" => test unsupported_media_type;
    "3 error payload_too_large", "A message longer than the limit" => test payload_too_large;
    "3 error agent_misconfigured", "An agent that lacks a part, with what it lacks"
        => elsewhere "tests/tests/e2e/refusals.rs", "an_agent_that_lacks_a_part_says_which";
    "3 error rate_limited turns", "More turns at once than one user may have" => alone rate_limited_turns;
    "3 error rate_limited login", "Too many attempts to sign in, with Retry-After" => alone rate_limited_login;
    "3 error shutting_down", "A submit to a server that goes down, with Retry-After"
        => elsewhere "tests/tests/e2e/crash.rs", "a_server_that_is_asked_to_end_lets_its_turns_finish";
    "3 error storage_unavailable", "A submit while the database takes no writes, with Retry-After"
        => elsewhere "tests/tests/e2e/disk.rs", "a_limit_of_file_sizes_delays_the_record_and_loses_nothing";
    "3 error every code", "Each code of the table with its status, as the server gives it"
        => elsewhere "server/src/http/tests/errors.rs", "every_code_has_a_row";
    "3 login time", "An unknown name costs the time that a wrong password does"
        => elsewhere "server/src/auth/password.rs", "nobody_costs_as_much_as_somebody";
    "3 login", "A wrong password and an unknown name get the same 401" => test wrong_login;
    "3 resumeData", "An answer of the wrong shape is refused, and the interaction stays open" => test wrong_answers;
};

async fn problems(house: Arc<House>) -> Result<()> {
    // The members of RFC 9457 and those that the contract adds.
    const MEMBERS: [&str; 11] = [
        "type",
        "title",
        "status",
        "detail",
        "instance",
        "code",
        "field",
        "scope",
        "activeExecutionId",
        "executionId",
        "missing",
    ];
    let unknown = house.at(&house.owner, Method::GET, &format!("/threads/{}", Uuid::new_v4()));
    let nobody = house.nobody.request(Method::GET, "/auth/me");
    for (request, status, code) in [
        (house.chat(&json!({"message": 7})), 400, "invalid_request"),
        (nobody, 401, "unauthenticated"),
        (unknown, 404, "not_found"),
        (house.at(&house.owner, Method::PUT, "/chat"), 405, "method_not_allowed"),
    ] {
        let response = within("a refusal", request.send()).await?;
        same(code, response.status().as_u16(), status)?;
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        same("its type", kind.as_deref(), Some("application/problem+json"))?;
        let problem: Value = within("its body", response.json()).await?;
        same("its code", &problem["code"], &json!(code))?;
        same("its status", &problem["status"], &json!(status))?;
        for (member, value) in problem.as_object().into_iter().flatten() {
            ensure!(MEMBERS.contains(&member.as_str()), "`{member}` in {problem}");
            let text = value.to_string();
            ensure!(!["panicked", ".rs:", "backtrace"].iter().any(|trace| text.contains(trace)), "{problem}");
        }
    }
    Ok(())
}

async fn bad_values(house: Arc<House>) -> Result<()> {
    let said = format!("refused {}", Uuid::new_v4());
    let chat = || house.at(&house.other, Method::POST, "/chat");
    for body in [
        json!({"message": ""}),
        json!({"message": " \n\t"}),
        json!({"message": null}),
        json!({"message": 7}),
        json!({"message": said, "sessionId": "no-uuid"}),
        json!({"message": said, "messageId": "7"}),
        json!({"message": said, "newSession": "yes"}),
        json!({"message": said, "sessionID": Uuid::new_v4()}),
        json!([said]),
        json!({}),
    ] {
        same(&body.to_string(), refusal(chat().json(&body)).await?.code, Code::InvalidRequest)?;
    }
    for text in ["", "{\"message\": ", "{\"message\": \"hi\"} and more", "\u{feff}"] {
        let request = chat().header("content-type", "application/json").body(text);
        same(&format!("{text:?}"), refusal(request).await?.code, Code::InvalidRequest)?;
    }
    for path in ["/chat/no-uuid/messages", "/threads?cursor=unknown", "/threads?limit=1&limit=2", "/threads/no-uuid"] {
        same(path, refusal(house.at(&house.other, Method::GET, path)).await?.code, Code::InvalidRequest)?;
    }
    let threads: Value = answer(house.at(&house.other, Method::GET, "/threads?limit=100")).await?;
    ensure!(!threads.to_string().contains(&said), "a refused message started a thread: {threads}");
    Ok(())
}

async fn bad_values_are_named(house: Arc<House>) -> Result<()> {
    for (body, field) in [
        (json!({"message": " "}), "message"),
        (json!({"message": "hi", "sessionId": "no-uuid"}), "sessionId"),
        (json!({"message": "hi", "messageId": 7}), "messageId"),
    ] {
        let refused = refusal(house.chat(&body)).await?;
        same(&body.to_string(), refused.field.as_deref(), Some(field))?;
        ensure!(!refused.detail.trim().is_empty(), "{refused:?} says what the field takes");
    }
    let thread = house.turn("hello").await?.started.thread;
    let refused = refusal(house.at(&house.owner, Method::GET, &format!("/chat/{thread}/messages?since=yesterday"))).await?;
    same("?since=yesterday", (refused.code, refused.field.as_deref()), (Code::InvalidRequest, Some("since")))
}

async fn unauthenticated(house: Arc<House>) -> Result<()> {
    let id = Uuid::new_v4();
    let base = format!("/projects/{}/agents/v2/{}", house.target.project, house.target.agent);
    for (method, path) in [
        (Method::POST, format!("{base}/chat")),
        (Method::POST, format!("{base}/chat/resume")),
        (Method::GET, format!("{base}/chat/{id}/messages")),
        (Method::DELETE, format!("{base}/chat/{id}/executions/{id}")),
        (Method::DELETE, format!("{base}/chat/runs/{id}")),
        (Method::GET, format!("{base}/threads")),
        (Method::GET, format!("{base}/threads/{id}")),
        (Method::PATCH, format!("{base}/threads/{id}")),
        (Method::DELETE, format!("{base}/threads/{id}")),
        (Method::GET, format!("{base}/chat/attachments/{id}")),
        (Method::GET, base.clone()),
        (Method::GET, format!("/projects/{}/agents/v2", house.target.project)),
        (Method::GET, "/projects".to_owned()),
        (Method::POST, "/auth/logout".to_owned()),
        (Method::GET, "/push".to_owned()),
        (Method::GET, "/auth/me".to_owned()),
    ] {
        let nobody = house.nobody.request(method.clone(), &path);
        same(&format!("{method} {path}"), refusal(nobody).await?.code, Code::Unauthenticated)?;
        let wrong = house.nobody.request(method.clone(), &path).bearer_auth("not-a-token");
        same(&format!("{method} {path} with a wrong token"), refusal(wrong).await?.code, Code::Unauthenticated)?;
    }
    Ok(())
}

async fn not_found(house: Arc<House>) -> Result<()> {
    let thread = house.turn("hello").await?.started.thread;
    let id = Uuid::new_v4();
    for (method, path) in [
        (Method::GET, format!("/chat/{id}/messages")),
        (Method::GET, format!("/threads/{id}")),
        (Method::DELETE, format!("/threads/{id}")),
        (Method::DELETE, format!("/chat/{thread}/executions/{id}")),
        (Method::DELETE, format!("/chat/runs/{id}")),
        (Method::GET, format!("/chat/attachments/{id}")),
        (Method::GET, "/no/such/path".to_owned()),
    ] {
        same(&format!("{method} {path}"), refusal(house.at(&house.owner, method, &path)).await?.code, Code::NotFound)?;
    }
    let resume = json!({"runId": id, "toolCallId": "call", "resumeData": {"answer": "red"}});
    let resume = house.at(&house.owner, Method::POST, "/chat/resume").json(&resume);
    same("an answer to nothing", refusal(resume).await?.code, Code::NotFound)
}

async fn turn_already_running(house: Arc<House>) -> Result<()> {
    let started = house.say("/slow 600").await?.started;
    let refused = refusal(house.chat(&json!({"message": "me too", "sessionId": started.thread}))).await?;
    same("the refusal", (refused.status, refused.code), (409, Code::TurnAlreadyRunning))?;
    same("the execution that it names", refused.active_execution_id, Some(started.execution))?;
    house.stop(started.thread, started.execution).await?;
    Ok(())
}

async fn interaction_open(house: Arc<House>) -> Result<()> {
    let (started, _) = house.suspended("/ask").await?;
    let refused = refusal(house.chat(&json!({"message": "never mind", "sessionId": started.thread}))).await?;
    same("the refusal", (refused.status, refused.code), (409, Code::InteractionOpen))?;
    same("what is open", house.read(started.thread).await?.open_suspensions.len(), 1)?;
    house.stop(started.thread, started.execution).await?;
    Ok(())
}

async fn interaction_closed(house: Arc<House>) -> Result<()> {
    let (_, asked) = house.suspended("/approve").await?;
    house.resume(&asked, ResumeData::Approval { approved: true, reason: None }).await?.done().await?;
    let again = refusal(house.answering(&house.second, &asked, &json!({"approved": false}))).await?;
    same("after an answer", (again.status, again.code), (409, Code::InteractionClosed))
}

async fn message_already_accepted(house: Arc<House>) -> Result<()> {
    let id = MessageId::from(Uuid::new_v4());
    let request = ChatRequest { message: "once".to_owned(), message_id: Some(id), ..ChatRequest::default() };
    let mut live = house.say_as(&request).await?;
    same("the message", live.started.message, id)?;
    live.done().await?;
    let again = refusal(house.at(&house.second, Method::POST, "/chat").json(&request)).await?;
    same("the refusal", (again.status, again.code), (409, Code::MessageAlreadyAccepted))?;
    same("the execution that it names", again.execution_id, Some(live.started.execution))?;
    same("the messages", house.read(live.started.thread).await?.messages.len(), 2)
}

async fn method_not_allowed(house: Arc<House>) -> Result<()> {
    for (method, path) in [(Method::PUT, "/chat"), (Method::GET, "/chat/resume"), (Method::POST, "/threads")] {
        let refused = refusal(house.at(&house.owner, method, path)).await?;
        same(path, (refused.status, refused.code), (405, Code::MethodNotAllowed))?;
    }
    Ok(())
}

async fn unsupported_media_type(house: Arc<House>) -> Result<()> {
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = house.at(&house.owner, Method::POST, "/chat").header("content-type", kind).body(r#"{"message":"hi"}"#);
        let refused = refusal(request).await?;
        same(kind, (refused.status, refused.code), (415, Code::UnsupportedMediaType))?;
    }
    Ok(())
}

async fn payload_too_large(house: Arc<House>) -> Result<()> {
    // One byte more than `max_message_bytes` where nothing else is configured.
    let refused = refusal(house.chat(&json!({"message": "x".repeat(262_145)}))).await?;
    same("the refusal", (refused.status, refused.code), (413, Code::PayloadTooLarge))?;
    let mut live = house.say(&"x".repeat(262_144)).await?;
    live.rest().await?;
    same("the longest message", house.read(live.started.thread).await?.messages[0].text().len(), 262_144)
}

async fn rate_limited_turns(house: Arc<House>) -> Result<()> {
    let mut running = Vec::new();
    let mut refused = None;
    // `max_running_turns_per_user` where nothing else is configured, and one more.
    for _ in 0..9 {
        let request = house.at(&house.other, Method::POST, "/chat").json(&json!({"message": "/slow 600"}));
        let response = within("a submit", request.send()).await?;
        if response.status() == 429 {
            refused = Some(response);
            break;
        }
        running.push(response);
    }
    let threads: Value = answer(house.at(&house.other, Method::GET, "/threads?limit=20")).await?;
    let rows = threads["threads"].as_array().cloned().unwrap_or_default();
    for (thread, execution) in rows.iter().filter_map(|row| Some((row["id"].as_str()?, row["activeExecutionId"].as_str()?))) {
        answer::<Value>(house.at(&house.other, Method::DELETE, &format!("/chat/{thread}/executions/{execution}"))).await?;
    }
    let refused = refused.ok_or_else(|| anyhow::anyhow!("{} turns at once were accepted", running.len()))?;
    same("turns that were accepted", running.len(), 8)?;
    ensure!(refused.headers().contains_key("retry-after"), "{:?}", refused.headers());
    let problem: Value = within("the refusal", refused.json()).await?;
    same("the code", &problem["code"], &json!("rate_limited"))
}

fn login(house: &House, name: &str) -> reqwest::RequestBuilder {
    house.nobody.request(Method::POST, "/auth/login").json(&json!({"name": name, "password": "wrong"}))
}

async fn rate_limited_login(house: Arc<House>) -> Result<()> {
    let nobody = format!("nobody-{}", Uuid::new_v4().simple());
    for _ in 0..100 {
        let response = within("an attempt", login(&house, &nobody).send()).await?;
        if response.status() == 429 {
            ensure!(response.headers().contains_key("retry-after"), "{:?}", response.headers());
            return Ok(());
        }
        same("an attempt", response.status().as_u16(), 401)?;
    }
    anyhow::bail!("a hundred attempts with one name were answered")
}

async fn wrong_login(house: Arc<House>) -> Result<()> {
    let me: Value = answer(house.owner.request(Method::GET, "/auth/me")).await?;
    let wrong = refusal(login(&house, me["name"].as_str().unwrap_or_default())).await?;
    let unknown = refusal(login(&house, "nobody-of-that-name")).await?;
    same("a wrong password", (wrong.status, wrong.code), (401, Code::Unauthenticated))?;
    same("an unknown name", unknown, wrong)
}

async fn wrong_answers(house: Arc<House>) -> Result<()> {
    for (command, wrong, right) in [
        (
            "/approve",
            vec![
                json!({"answer": "yes"}),
                json!({"approved": "yes"}),
                json!([true]),
                json!(true),
                json!({}),
                json!(null),
                json!({"approved": true, "more": 1}),
            ],
            json!({"approved": true}),
        ),
        (
            "/ask",
            vec![
                json!({"answer": "a colour that is no option"}),
                json!({"answer": " "}),
                json!(["red"]),
                json!("red"),
                json!({"approved": true}),
            ],
            json!(null),
        ),
    ] {
        let (started, asked) = house.suspended(command).await?;
        for data in wrong {
            let refused = refusal(house.answering(&house.owner, &asked, &data)).await?;
            same(&format!("{command}: {data}"), (refused.status, refused.code), (400, Code::InvalidRequest))?;
        }
        same("what is open", house.read(started.thread).await?.open_suspensions, vec![asked.clone()])?;
        if right.is_null() {
            house.stop(started.thread, started.execution).await?;
        } else {
            house.resume(&asked, serde_json::from_value(right)?).await?.done().await?;
        }
    }
    Ok(())
}
