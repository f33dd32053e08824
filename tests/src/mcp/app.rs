//! The process. `--report ADDRESS`: who is told; `--http ADDRESS`: listen there, at `/mcp`, instead of the standard streams;
//! `--silent`: never answer anything; `--stubborn`: do not end when standard input does.
//!
//! Written against the protocol's text and not with the library that the product uses, so that the two check each other.

use std::{
    collections::HashMap,
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result};
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
    routing::post,
};
use futures::stream;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};
use uuid::Uuid;

use crate::installation::MCP_TOKEN;

/// What every part of the server works with.
struct Shared {
    /// Lines for the test.
    reports: mpsc::UnboundedSender<String>,
    /// What goes to the client by itself.
    notifications: mpsc::UnboundedSender<Value>,
    /// Calls that do not end by themselves, by the id of their request.
    waiting: Mutex<HashMap<String, (String, oneshot::Sender<()>)>>,
    /// Whether `grow` was called.
    grown: AtomicBool,
    silent: bool,
    session: String,
    notified: Mutex<Option<mpsc::UnboundedReceiver<Value>>>,
}

impl Shared {
    fn report(&self, line: impl Into<String>) {
        let _ = self.reports.send(line.into());
    }

    /// The answer to a message; `None`: it wants none, or gets none.
    async fn answer(&self, message: Value) -> Option<Value> {
        if self.silent {
            return None;
        }
        let method = message["method"].as_str().unwrap_or_default();
        if method == "notifications/cancelled" {
            let id = message["params"]["requestId"].to_string();
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            if let Some((name, sender)) = waiting {
                self.report(format!("cancelled {name}"));
                drop(sender);
            }
        }
        let id = message.get("id")?;
        let result = match method {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "turnfast-test-mcp", "version": "1"},
            }),
            "ping" => json!({}),
            "tools/list" => {
                self.report("listed");
                self.page(message["params"]["cursor"].as_str())
            }
            "tools/call" => match self.call(id, &message["params"]).await {
                Some(Ok(result)) => result,
                Some(Err(error)) => return Some(json!({"jsonrpc": "2.0", "id": id, "error": error})),
                None => return None,
            },
            _ => {
                let error = json!({"code": -32601, "message": format!("no method {method}")});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    /// Tools come in two pages.
    fn page(&self, cursor: Option<&str>) -> Value {
        let tool = |name: &str, properties: Value| json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object", "properties": properties}});
        if cursor.is_none() {
            let tools =
                [tool("echo", json!({"text": {"type": "string"}})), tool("write_file", json!({})), tool("read.text", json!({}))];
            return json!({"tools": tools, "nextCursor": "second"});
        }
        let names = ["add", "fail", "refuse", "wait", "die", "picture", "environment", "secret", "grow", "forbidden"];
        let mut tools: Vec<_> = names.into_iter().map(|name| tool(name, json!({}))).collect();
        if self.grown.load(Ordering::SeqCst) {
            tools.push(tool("grown", json!({})));
        }
        json!({"tools": tools})
    }

    /// The result of a call, or a protocol error; `None`: it was cancelled.
    async fn call(&self, id: &Value, params: &Value) -> Option<Result<Value, Value>> {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let arguments = &params["arguments"];
        self.report(format!("call {name}"));
        let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
        Some(Ok(match name.as_str() {
            "echo" => text(format!("echo: {}", arguments["text"].as_str().unwrap_or_default())),
            "write_file" | "read.text" => text(format!("{name} did {arguments}")),
            "add" => {
                let sum = arguments["a"].as_i64().unwrap_or(0) + arguments["b"].as_i64().unwrap_or(0);
                json!({"content": [{"type": "text", "text": format!("{{\"sum\":{sum}}}")}], "structuredContent": {"sum": sum}})
            }
            "fail" => json!({"content": [{"type": "text", "text": "out of paper"}], "isError": true}),
            "refuse" => return Some(Err(json!({"code": -32602, "message": "the arguments are not to my taste"}))),
            "wait" => {
                let (sender, cancelled) = oneshot::channel();
                self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_string(), (name.clone(), sender));
                self.report("waits");
                let _ = cancelled.await;
                return None;
            }
            "die" => std::process::exit(1),
            "picture" => json!({"content": [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}]}),
            "environment" => {
                let mut names: Vec<_> = env::vars().map(|(name, _)| name).collect();
                names.sort_unstable();
                text(names.join(" "))
            }
            "secret" => text(format!("the token is {}", env::var("FILES_TOKEN").unwrap_or_default())),
            "grow" => {
                self.grown.store(true, Ordering::SeqCst);
                let _ = self.notifications.send(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                text("it grew".to_owned())
            }
            "grown" => text("I am new here".to_owned()),
            _ => return Some(Err(json!({"code": -32602, "message": format!("there is no tool {name}")}))),
        }))
    }
}

/// Runs until standard input ends.
///
/// # Errors
/// An argument is wrong, or nobody listens to reports.
pub async fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (mut report, mut http, mut silent, mut stubborn) = (None, None, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--report" => report = arguments.next(),
            "--http" => http = arguments.next(),
            "--silent" => silent = true,
            "--stubborn" => stubborn = true,
            other => anyhow::bail!("unknown argument {other}"),
        }
    }
    let mut listener = TcpStream::connect(report.context("--report ADDRESS")?).await?;
    let (reports, mut lines) = mpsc::unbounded_channel::<String>();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            if listener.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let (notifications, notified) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        reports,
        notifications,
        waiting: Mutex::default(),
        grown: AtomicBool::new(false),
        silent,
        session: Uuid::new_v4().to_string(),
        notified: Mutex::new(None),
    });
    shared.report("started");
    match http {
        Some(address) => {
            *shared.notified.lock().unwrap_or_else(PoisonError::into_inner) = Some(notified);
            serve(&address, shared).await
        }
        None => {
            speak(shared, notified).await?;
            if stubborn {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    }
}

/// One message per line, in both directions.
async fn speak(shared: Arc<Shared>, mut notified: mpsc::UnboundedReceiver<Value>) -> Result<()> {
    eprintln!("the test server speaks, and what it says here is for the log");
    let (out, mut messages) = mpsc::unbounded_channel::<Value>();
    let notifications = out.clone();
    tokio::spawn(async move {
        while let Some(message) = notified.recv().await {
            let _ = notifications.send(message);
        }
    });
    tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(message) = messages.recv().await {
            if stdout.write_all(format!("{message}\n").as_bytes()).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let message: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        let (shared, out) = (Arc::clone(&shared), out.clone());
        tokio::spawn(async move {
            if let Some(answer) = shared.answer(message).await {
                let _ = out.send(answer);
            }
        });
    }
    Ok(())
}

/// Streamable HTTP with a session. Standard input ends it, so that it does not outlive a test that dies.
async fn serve(address: &str, shared: Arc<Shared>) -> Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let router = Router::new().route("/mcp", post(received).get(listen).delete(end_session)).with_state(shared);
    let mut stdin = BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        served = axum::serve(listener, router) => Ok(served?),
        _ = async { while let Ok(Some(_)) = stdin.next_line().await {} } => Ok(()),
    }
}

const SESSION: &str = "mcp-session-id";

async fn received(State(shared): State<Arc<Shared>>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    if message["method"] == json!("initialize") {
        if headers.get("authorization").is_none_or(|value| value != &format!("Bearer {MCP_TOKEN}")) {
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response();
        }
    } else if headers.get(SESSION).is_none_or(|session| session.as_bytes() != shared.session.as_bytes()) {
        return StatusCode::NOT_FOUND.into_response();
    }
    if message["params"]["name"] == json!("forbidden") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let wants_answer = message.get("id").is_some();
    match shared.answer(message).await {
        Some(answer) => ([(SESSION, shared.session.clone())], Json(answer)).into_response(),
        None if wants_answer => std::future::pending().await,
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// The stream of what the server says by itself. One client is enough for a test.
async fn listen(State(shared): State<Arc<Shared>>) -> Response {
    let notified = shared.notified.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(notified) = notified else { return StatusCode::CONFLICT.into_response() };
    let events = stream::unfold(notified, async |mut notified| {
        let message = notified.recv().await?;
        Some((Event::default().json_data(message), notified))
    });
    Sse::new(events).into_response()
}

async fn end_session() -> StatusCode {
    StatusCode::OK
}
