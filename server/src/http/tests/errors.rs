//! The error table of contract 1, section 3, and the codes that this server adds: each provoked over HTTP.

use super::*;
use crate::store::auth::{Digest, Token};

/// What every problem answer holds to.
fn check(answer: &Answer, code: Code) {
    let problem = answer.json();
    assert_eq!(answer.status, code.status(), "{problem}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(problem["code"], serde_json::to_value(code).unwrap(), "{problem}");
    assert_eq!(problem["status"], json!(code.status()));
    assert_eq!(problem["title"], json!(code.title()));
    assert_eq!(problem["type"], json!("about:blank"));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.len() > 10, "{detail}");
    for trace in ["panicked", ".rs:", "stack", "sqlx", "SELECT"] {
        assert!(!detail.contains(trace), "{detail}");
    }
    let has_time = answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0);
    assert_eq!(has_time, matches!(code.status(), 429 | 503), "Retry-After: {:?}", answer.header("retry-after"));
}

macro_rules! table {
    ($($code:ident => $provoke:ident,)*) => {
        mod row {
            use super::*;

            $(
                #[tokio::test]
                async fn $provoke() {
                    let answers = super::$provoke().await;
                    assert!(!answers.is_empty());
                    for answer in &answers {
                        check(answer, Code::$code);
                    }
                }
            )*
        }

        #[test]
        fn every_code_has_a_row() {
            let document: Value = serde_json::from_str(&openapi::text()).unwrap();
            let all: Vec<Code> = serde_json::from_value(document["components"]["schemas"]["Code"]["enum"].clone()).unwrap();
            assert_eq!(all, [$(Code::$code),*]);
        }
    };
}

table! {
    InvalidRequest => invalid_request,
    Unauthenticated => unauthenticated,
    MissingScope => missing_scope,
    NotFound => not_found,
    AgentsDisabled => agents_disabled,
    TurnAlreadyRunning => turn_already_running,
    InteractionOpen => interaction_open,
    InteractionClosed => interaction_closed,
    MessageAlreadyAccepted => message_already_accepted,
    MethodNotAllowed => method_not_allowed,
    UnsupportedMediaType => unsupported_media_type,
    PayloadTooLarge => payload_too_large,
    AgentMisconfigured => agent_misconfigured,
    RateLimited => rate_limited,
    ShuttingDown => shutting_down,
    StorageUnavailable => storage_unavailable,
    CrossOrigin => cross_origin,
    Internal => internal,
}

fn chat() -> String {
    format!("{BASE}/chat")
}

async fn world_and_olga() -> (World, String) {
    let world = World::new().await;
    let olga = world.token("olga", &[], None).await;
    (world, olga)
}

async fn invalid_request() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let turn = world.turn(&olga, "/ask").await;
    let mut answers = Vec::new();
    let resume = |data: Value| json!({ "runId": turn.run, "toolCallId": turn.call, "resumeData": data });
    let resume_path = format!("{BASE}/chat/resume");
    for (path, body, field) in [
        (&chat(), json!({ "message": "  \n" }), Some("message")),
        (&chat(), json!({}), Some("message")),
        (&chat(), json!({ "message": 7 }), Some("message")),
        (&chat(), json!({ "message": "x", "sessionId": "7" }), Some("sessionId")),
        (&chat(), json!({ "message": "x", "sessionID": unknown() }), Some("sessionID")),
        (&chat(), json!({ "message": "x", "messageId": "x" }), Some("messageId")),
        (&chat(), json!({ "message": "\u{200b}\u{feff}" }), Some("message")),
        (&chat(), json!({ "message": "a\0b" }), Some("message")),
        (&chat(), json!({ "message": "x", "messageId": format!("{{{}}}", unknown()) }), Some("messageId")),
        (&chat(), json!({ "message": "x", "sessionId": format!("urn:uuid:{}", unknown()) }), Some("sessionId")),
        (&chat(), json!("x"), None),
        (&resume_path, json!({ "runId": turn.run }), Some("toolCallId")),
        (&resume_path, json!({ "runId": turn.run, "toolCallId": "\0", "resumeData": { "answer": "red" } }), Some("toolCallId")),
        (&resume_path, resume(json!({})), Some("resumeData")),
        (&resume_path, resume(json!({ "answer": "\u{2060}" })), Some("resumeData")),
        (&resume_path, resume(json!({ "answer": "re\0d" })), Some("resumeData.answer")),
        (&resume_path, resume(json!({ "approved": true, "reason": "\0" })), Some("resumeData.reason")),
        (&resume_path, resume(json!({ "approved": true })), Some("resumeData")),
        (&resume_path, resume(json!({ "answer": "purple" })), Some("resumeData")),
        (&resume_path, resume(json!({ "answer": " " })), Some("resumeData")),
        (&resume_path, resume(json!({ "answer": "red", "approved": true })), Some("resumeData")),
    ] {
        let answer = world.post(path, &olga, body.clone()).await;
        assert_eq!(answer.json().get("field").and_then(Value::as_str), field, "{body}");
        answers.push(answer);
    }
    let still_open = world.get(&format!("{BASE}/chat/{}/messages", turn.thread), &olga).await.json();
    assert_eq!(still_open["openSuspensions"][0]["toolCallId"], json!(turn.call), "the question is as it was");
    for (method, path, field) in [
        ("GET", format!("{BASE}/threads?limit=0"), "limit"),
        ("GET", format!("{BASE}/threads?limit=101"), "limit"),
        ("GET", format!("{BASE}/threads?limit=1&limit=1"), "limit"),
        ("GET", format!("{BASE}/threads?cursor=made-up"), "cursor"),
        ("GET", format!("{BASE}/threads?page=2"), "page"),
        ("GET", format!("{BASE}/threads/7"), "threadId"),
        ("GET", format!("{BASE}/chat/7/messages"), "threadId"),
        ("GET", format!("{BASE}/chat/{}/messages?since=-1", turn.thread), "since"),
        ("DELETE", format!("{BASE}/chat/{}/executions/7", turn.thread), "executionId"),
        ("DELETE", format!("{BASE}/chat/runs/7"), "runId"),
        ("DELETE", format!("{BASE}/chat/runs/{}", turn.run.replace('-', "")), "runId"),
        ("DELETE", format!("{BASE}/chat/runs/urn:uuid:{}", turn.run), "runId"),
        ("GET", format!("{BASE}/threads/%7B{}%7D", turn.thread), "threadId"),
        ("POST", format!("{BASE}/chat?sessionId={}", turn.thread), "sessionId"),
        ("DELETE", format!("{BASE}/threads/{}?force=1", turn.thread), "force"),
        ("GET", format!("{BASE}/threads/{}?since=1", turn.thread), "since"),
        ("GET", "/auth/me?x".to_owned(), "x"),
    ] {
        let answer = world.send(method, &path, &[("authorization", &olga)], None).await;
        assert_eq!(answer.json()["field"], json!(field), "{path}");
        answers.push(answer);
    }
    answers.push(world.get("/projects/%ff/agents/v2", &olga).await);
    for text in ["", "{", "{\"message\":\"x\"} y", "\u{feff}{}"] {
        let request = Request::post(chat()).header("authorization", &olga).header("content-type", "application/json");
        answers.push(world.request(request.body(text.into()).unwrap()).await);
    }
    let login = json!({ "name": "olga", "password": PASSWORD, "remember": true });
    answers.push(world.send("POST", "/auth/login", &[], Some(login)).await);
    answers.push(world.send("POST", "/auth/login", &[], Some(json!({ "name": "ol\0ga", "password": PASSWORD }))).await);
    for title in [&"x".repeat(121), "", " ", "\u{200b}", "a\0", "a\nb", "\u{1b}[31m"] {
        let path = format!("{BASE}/threads/{}", turn.thread);
        let answer = world.send("PATCH", &path, &[("authorization", &olga)], Some(json!({ "title": title }))).await;
        assert_eq!(answer.json()["field"], json!("title"), "{title:?}");
        answers.push(answer);
    }
    let upper = format!("{BASE}/threads/{}", turn.thread.to_uppercase());
    assert_eq!(world.get(&upper, &olga).await.json()["id"], json!(turn.thread), "ids are taken in either case");
    answers
}

async fn unauthenticated() -> Vec<Answer> {
    let world = World::new().await;
    let wrong = json!({ "name": "olga", "password": "wrong" });
    let answers = vec![
        world.send("GET", "/auth/me", &[], None).await,
        world.get("/projects", "Bearer turnfast_made-up").await,
        world.send("POST", "/auth/login", &[], Some(wrong)).await,
    ];
    assert!(answers.iter().all(|answer| answer.header("www-authenticate") == "Bearer"));
    answers
}

async fn missing_scope() -> Vec<Answer> {
    let world = World::new().await;
    let vera = world.token("vera", &[], None).await;
    let answer = world.post(&chat(), &vera, json!({ "message": "x" })).await;
    assert_eq!(answer.json()["scope"], json!("agent:execute"));
    vec![answer]
}

async fn not_found() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let mut answers = vec![world.post(&chat(), &olga, json!({ "message": "x", "sessionId": unknown() })).await];
    for path in [
        "/projects/demo/agents/v2/nobody/threads",
        "/projects/demo",
        "/projects/demo/agents/v3",
        "/auth/nothing",
        "/push/x",
        "/metrics",
        "/healthz/x",
        "/openapi.json/x",
        &format!("{BASE}/threads/{}", unknown()),
        &format!("{BASE}/chat/{}/messages", unknown()),
    ] {
        // As a browser asks that would take a page too.
        answers.push(world.send("GET", path, &[("authorization", &olga), ("accept", "text/html")], None).await);
    }
    answers
}

async fn agents_disabled() -> Vec<Answer> {
    let world = World::with("[features]\nagents = false").await;
    let olga = world.token("olga", &[], None).await;
    vec![world.post(&chat(), &olga, json!({ "message": "x" })).await]
}

async fn turn_already_running() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let thread = world.endless_turn(&olga).await;
    let answers = vec![
        world.post(&chat(), &olga, json!({ "message": "x", "sessionId": thread })).await,
        world.send("DELETE", &format!("{BASE}/threads/{thread}"), &[("authorization", &olga)], None).await,
    ];
    let active = world.get(&format!("{BASE}/threads/{thread}"), &olga).await.json()["activeExecutionId"].clone();
    assert!(active.is_string());
    assert!(answers.iter().all(|answer| answer.json()["activeExecutionId"] == active));
    // What runs in a thread is for those who may read it.
    let writes = world.token("olga", &[Scope::AgentExecute], None).await;
    let unnamed = vec![
        world.post(&chat(), &writes, json!({ "message": "x", "sessionId": thread })).await,
        world.send("DELETE", &format!("{BASE}/threads/{thread}"), &[("authorization", &writes)], None).await,
    ];
    assert!(unnamed.iter().all(|answer| answer.json().get("activeExecutionId").is_none()), "{unnamed:?}");
    answers.into_iter().chain(unnamed).collect()
}

async fn interaction_open() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let turn = world.turn(&olga, "/ask").await;
    vec![world.post(&chat(), &olga, json!({ "message": "x", "sessionId": turn.thread })).await]
}

async fn interaction_closed() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let path = format!("{BASE}/chat/resume");
    let answer = |turn: &Turn| json!({ "runId": turn.run, "toolCallId": turn.call, "resumeData": { "answer": "red" } });
    let answered = world.turn(&olga, "/ask").await;
    assert_eq!(world.post(&path, &olga, answer(&answered)).await.status, 200);
    let cancelled = world.turn(&olga, "/ask").await;
    let run = format!("{BASE}/chat/runs/{}", cancelled.run);
    assert_eq!(world.send("DELETE", &run, &[("authorization", &olga)], None).await.status, 200);
    vec![world.post(&path, &olga, answer(&answered)).await, world.post(&path, &olga, answer(&cancelled)).await]
}

async fn message_already_accepted() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let turn = world.turn(&olga, "/long 2").await;
    let answer = world.post(&chat(), &olga, json!({ "message": "/long 2", "messageId": turn.message })).await;
    assert_eq!(answer.json()["executionId"], json!(turn.execution));
    vec![answer]
}

async fn method_not_allowed() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let mut answers = Vec::new();
    for (method, path, allowed) in [
        ("PUT", "/projects", "GET,HEAD"),
        ("GET", &*chat(), "POST"),
        ("POST", "/healthz", "GET,HEAD"),
        ("POST", &format!("{BASE}/threads/{}", unknown()), "GET,HEAD,PATCH,DELETE"),
        ("PUT", "/", "GET,HEAD"),
        ("DELETE", "/demo/assistant", "GET,HEAD"),
    ] {
        let answer = world.send(method, path, &[("authorization", &olga)], None).await;
        assert_eq!(answer.header("allow"), allowed, "{path}");
        answers.push(answer);
    }
    answers
}

async fn unsupported_media_type() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let turn = world.turn(&olga, "/long 2").await;
    let text = [("authorization", &*olga), ("content-type", "text/plain")];
    let form = [("authorization", &*olga), ("content-type", "application/x-www-form-urlencoded")];
    let mut answers = Vec::new();
    for (method, path) in [
        ("POST", chat()),
        ("POST", format!("{BASE}/chat/resume")),
        ("PATCH", format!("{BASE}/threads/{}", turn.thread)),
        ("POST", "/auth/login".to_owned()),
    ] {
        answers.push(world.send(method, &path, &text, Some(json!({ "message": "x" }))).await);
        answers.push(world.send(method, &path, &form, Some(json!({ "message": "x" }))).await);
        answers.push(world.send(method, &path, &[("authorization", &olga)], None).await);
    }
    answers
}

async fn payload_too_large() -> Vec<Answer> {
    let world = World::with("[limits]\nmax_message_bytes = 1000\nmax_attachments = 0").await;
    let olga = world.token("olga", &[], None).await;
    let value = world.post(&chat(), &olga, json!({ "message": "x".repeat(1_001) })).await;
    assert_eq!(value.json()["field"], json!("message"));
    assert_eq!(
        world.post(&chat(), &olga, json!({ "message": "ä".repeat(500) })).await.status,
        200,
        "exactly as much as is taken"
    );
    let body = world.post(&chat(), &olga, json!({ "message": "x".repeat(100_000) })).await;
    // Without a length that could be checked first.
    let piece = Bytes::from(vec![b' '; 10_000]);
    let pieces = futures::stream::iter((0..10).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    let request = Request::post(chat()).header("authorization", &olga).header("content-type", "application/json");
    let streamed = world.request(request.body(Body::from_stream(pieces)).unwrap()).await;
    let login = json!({ "name": "olga", "password": "x".repeat(20_000) });
    vec![value, body, streamed, world.send("POST", "/auth/login", &[], Some(login)).await]
}

async fn agent_misconfigured() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let answer = world.post("/projects/demo/agents/v2/broken/chat", &olga, json!({ "message": "x" })).await;
    let missing = answer.json()["missing"].as_array().unwrap().clone();
    assert!(missing.iter().any(|place| place.as_str().unwrap().contains("TURNFAST_TEST_KEY_THAT_NOBODY_SETS")), "{missing:?}");
    vec![answer]
}

async fn rate_limited() -> Vec<Answer> {
    let world = World::with("[limits]\nmax_running_turns_per_user = 1").await;
    let olga = world.token("olga", &[], None).await;
    world.endless_turn(&olga).await;
    let turns = world.post(&chat(), &olga, json!({ "message": "x" })).await;
    let otto = world.token("otto", &[], None).await;
    assert_eq!(world.post(&chat(), &otto, json!({ "message": "/long 2" })).await.status, 200, "each user for themselves");
    let wrong = || json!({ "name": "nobody", "password": "wrong" });
    for _ in 0..10 {
        assert_eq!(world.send("POST", "/auth/login", &[], Some(wrong())).await.status, 401);
    }
    vec![turns, world.send("POST", "/auth/login", &[], Some(wrong())).await]
}

async fn shutting_down() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let turn = world.turn(&olga, "/ask").await;
    world.app.turns.start_draining();
    assert_eq!(world.send("GET", "/healthz", &[], None).await.status, 200, "it lives until it is gone");
    assert_eq!(world.get(&format!("{BASE}/chat/{}/messages", turn.thread), &olga).await.status, 200, "reads go on");
    let answer = json!({ "runId": turn.run, "toolCallId": turn.call, "resumeData": { "answer": "red" } });
    vec![
        world.post(&chat(), &olga, json!({ "message": "x" })).await,
        world.post(&format!("{BASE}/chat/resume"), &olga, answer).await,
        world.send("GET", "/readyz", &[], None).await,
        world.get("/push", &olga).await,
    ]
}

async fn storage_unavailable() -> Vec<Answer> {
    let (world, olga) = world_and_olga().await;
    let turn = world.turn(&olga, "/long 2").await;
    world.sqlite.limit_size(true).await;
    let long = json!({ "message": "x".repeat(200_000), "sessionId": turn.thread });
    let mut answers = vec![world.post(&chat(), &olga, long).await];
    world.sqlite.limit_size(false).await;
    let messages = world.get(&format!("{BASE}/chat/{}/messages", turn.thread), &olga).await.json()["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 2, "nothing of what was refused stays");
    world.sqlite.close().await;
    for path in ["/readyz", "/projects", "/auth/me", "/push", &format!("{BASE}/threads")] {
        answers.push(world.get(path, &olga).await);
    }
    answers.push(world.login("olga").await);
    answers.push(world.post(&chat(), &olga, json!({ "message": "x" })).await);
    answers
}

async fn cross_origin() -> Vec<Answer> {
    let world = World::new().await;
    let cookie = world.login("olga").await.cookie();
    let mut answers = Vec::new();
    for header in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "same-site")] {
        let headers = [("cookie", &*cookie), header];
        answers.push(world.send("POST", &chat(), &headers, Some(json!({ "message": "x" }))).await);
    }
    answers
}

/// A record that no version of the server writes.
async fn internal() -> Vec<Answer> {
    use sha2::Digest as _;

    let world = World::new().await;
    let olga = world.sqlite.user_named("olga").await.unwrap().unwrap();
    let token = Token {
        id: Uuid::now_v7(),
        user: olga.id,
        name: olga.name,
        scopes: Some("agent:fly".to_owned()),
        expires_at: None,
        revoked_at: None,
        created_at: 0,
    };
    world.sqlite.add_token(token, Digest(sha2::Sha256::digest("damaged").into())).await.unwrap();
    vec![world.get("/projects", "Bearer damaged").await, panicked(Box::new("a secret detail")).into_answer().await]
}

trait IntoAnswer {
    async fn into_answer(self) -> Answer;
}

impl IntoAnswer for Response {
    async fn into_answer(self) -> Answer {
        let (parts, body) = self.into_parts();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body: to_bytes(body, usize::MAX).await.unwrap() }
    }
}
