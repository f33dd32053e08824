//! The API as its callers meet it: the real router over a real database, with the demo agent behind it.

mod access;
mod attachments;
mod document;
mod errors;
mod secrets;
mod streams;

use std::sync::atomic::{AtomicI64, Ordering};

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{HeaderMap, Request},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use turnfast_shared::{
    Event,
    ids::{MessageId, ThreadId},
    sse::Parser,
};
use uuid::Uuid;

use super::*;
use crate::{
    agents::catalog::Catalog,
    auth::{Auth, Scope, password},
    config::{Config, Overrides, Secret},
    liveness::Alone,
    metrics::Metrics,
    relay::{Hub, Relay},
    store::{AuthStore, sqlite::SqliteStore},
    turns::{self, Turns},
};

/// One project with a member of each kind that matters, and a project that none of them is in.
const CONFIG: &str = r#"
[[projects]]
id = "demo"
members = { olga = "member", otto = "member", vera = "viewer", dora = "member" }

[[projects]]
id = "elsewhere"
members = { admin = "admin" }

[[providers]]
id = "keyless"
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
api_key = "env:TURNFAST_TEST_KEY_THAT_NOBODY_SETS"

[[agents]]
project = "demo"
id = "assistant"
engine = "demo"

[[agents]]
project = "demo"
id = "broken"
engine = "native"
provider = "keyless"
model = "m"
"#;

/// The password of every user.
pub(super) const PASSWORD: &str = "correct horse";
/// The base of the demo agent.
pub(super) const BASE: &str = "/projects/demo/agents/v2/assistant";

/// A server without its socket.
pub(super) struct World {
    pub(super) app: Arc<App>,
    pub(super) sqlite: SqliteStore,
    /// The clock of users, sessions and tokens.
    pub(super) now: Arc<AtomicI64>,
    pub(super) folder: TempDir,
    router: Router,
}

/// An answer, read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The status, and the code of a problem.
    pub(super) fn outcome(&self) -> (u16, String) {
        let is_problem = self.header("content-type") == "application/problem+json";
        let code = is_problem.then(|| self.json()["code"].as_str().unwrap().to_owned());
        (self.status, code.unwrap_or_default())
    }

    pub(super) fn events(&self) -> Vec<Event> {
        let mut parser = Parser::default();
        let mut events = Vec::new();
        parser.feed(&self.body, |message| events.push(serde_json::from_str(&message.data).unwrap())).unwrap();
        events
    }

    /// The cookie as a browser sends it back.
    pub(super) fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap().to_owned()
    }
}

/// What a turn that has come to its end, or to a question, left behind.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) thread: String,
    pub(super) message: String,
    pub(super) execution: String,
    pub(super) run: String,
    /// A file that went with the message.
    pub(super) attachment: String,
    /// The call that waits.
    pub(super) call: Option<String>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with("").await
    }

    /// With more in the configuration file.
    pub(super) async fn with(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("turnfast.toml");
        std::fs::write(&file, format!("{more}\n{CONFIG}")).unwrap();
        let overrides = Overrides { config: Some(file), data_dir: Some(folder.path().to_owned()), ..Overrides::default() };
        let config = Config::load(&overrides).unwrap();
        let sqlite = SqliteStore::open(&config.sqlite_path()).await.unwrap();
        let hub = Arc::new(Hub::default());
        let turns = Turns::start(turns::Parts {
            store: Arc::new(sqlite.clone()),
            relay: Arc::new(Relay::local(hub.clone())),
            liveness: Arc::new(Alone::new(folder.path())),
            continuable: Box::new(|_, _| None),
            max_running_per_user: config.limits.max_running_turns_per_user,
            metrics: Metrics::default(),
        })
        .await
        .unwrap();
        let now = Arc::new(AtomicI64::new(1_800_000_000_000));
        let clock = Arc::clone(&now);
        let auth = Auth::with_clock(Arc::new(sqlite.clone()), Arc::new(move || clock.load(Ordering::SeqCst)));
        let hash = password::hash(&Secret::new(PASSWORD.to_owned())).unwrap();
        for name in ["olga", "otto", "vera", "dora", "stranger"] {
            auth.add_user(name, Some(hash.clone())).await.unwrap().unwrap();
        }
        let streams = CancellationToken::new();
        let catalog = Arc::new(Catalog::new(&config));
        let app = Arc::new(App {
            catalog,
            auth,
            store: Arc::new(sqlite.clone()),
            turns,
            hub,
            metrics: Metrics::default(),
            streams,
            config,
        });
        Self { router: router(app.clone()), app, sqlite, now, folder }
    }

    /// A bearer token, restricted to `scopes` where there are some, as the header's value.
    pub(super) async fn token(&self, user: &str, scopes: &[Scope], valid: Option<i64>) -> String {
        let user = self.sqlite.user_named(user).await.unwrap().unwrap();
        let scopes = (!scopes.is_empty()).then(|| scopes.iter().copied().collect());
        format!("Bearer {}", self.app.auth.create_token(&user, scopes, valid).await.unwrap().expose())
    }

    pub(super) async fn login(&self, user: &str) -> Answer {
        let body = json!({ "name": user, "password": PASSWORD });
        self.send("POST", "/auth/login", &[], Some(body)).await
    }

    /// Sends a request and reads the answer to its end; of `/push`, which has none, only the head.
    pub(super) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:8080");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                if !headers.iter().any(|(name, _)| *name == "content-type") {
                    request = request.header("content-type", "application/json");
                }
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        self.request(request.body(body).unwrap()).await
    }

    pub(super) async fn request(&self, request: Request<Body>) -> Answer {
        let endless = request.uri().path() == "/push";
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let endless = endless && parts.status == 200;
        let body = if endless { Bytes::new() } else { to_bytes(body, usize::MAX).await.unwrap() };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(super) async fn get(&self, path: &str, token: &str) -> Answer {
        self.send("GET", path, &[("authorization", token)], None).await
    }

    pub(super) async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        self.send("POST", path, &[("authorization", token)], Some(body)).await
    }

    /// Runs a turn in a new thread until its stream ends.
    pub(super) async fn turn(&self, token: &str, message: &str) -> Turn {
        let note = json!({ "name": "note.txt", "mediaType": "text/plain", "data": "aGVsbG8=" });
        let answer = self.post(&format!("{BASE}/chat"), token, json!({ "message": message, "attachments": [note] })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let events = answer.events();
        let call = events.iter().find_map(|event| match event {
            Event::ToolCallSuspended { payload } => Some(payload.tool_call_id.clone()),
            _ => None,
        });
        let Some(Event::ExecutionStarted { execution_id, session_id, message_id, assistant_message_id }) = events.first() else {
            panic!("a stream begins with execution-started: {answer:?}")
        };
        let read = self.get(&format!("{BASE}/chat/{session_id}/messages"), token).await.json();
        Turn {
            attachment: read["messages"][0]["content"][1]["id"].as_str().unwrap().to_owned(),
            thread: session_id.to_string(),
            message: message_id.to_string(),
            execution: execution_id.to_string(),
            run: assistant_message_id.to_string(),
            call,
        }
    }

    /// Begins a turn in a new thread that will not end by itself, and leaves it.
    pub(super) async fn endless_turn(&self, token: &str) -> String {
        let thread = ThreadId(Uuid::now_v7()).to_string();
        let body = json!({ "message": "/slow 100000", "sessionId": thread, "newSession": true });
        let request = Request::post(format!("{BASE}/chat"))
            .header("authorization", token)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "accepted, and its reader leaves");
        thread
    }
}

/// An id that nothing has.
pub(super) fn unknown() -> String {
    MessageId(Uuid::now_v7()).to_string()
}
