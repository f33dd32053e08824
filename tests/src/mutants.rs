//! Servers that break the contract in one thing each: a proxy before a real one, which changes what comes through. They show of each
//! line of [`conformance`](crate::conformance) that it notices.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::{Notify, mpsc},
    task::JoinHandle,
};
use uuid::Uuid;

/// How long a line waits for what a mutant keeps back.
const SOON: Duration = Duration::from_secs(3);

/// What the proxy says where it fails itself: a line must not take that for a broken contract.
pub const BROKEN: &str = "the mutant's proxy failed";

/// A server that is broken in one thing.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What is broken.
    pub breaks: &'static str,
    /// The lines that must fail of it, by their ids.
    pub lines: &'static [&'static str],
    /// How it is broken.
    fault: Fault,
    /// Whether a line fails by waiting in vain.
    pub keeps_back: bool,
}

impl Mutant {
    /// How long its lines may wait for anything.
    #[must_use]
    pub fn patience(&self) -> Duration {
        if self.keeps_back { SOON } else { crate::GUARD }
    }
}

/// What is done to what comes through.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Events of these types do not come.
    Drop(&'static [&'static str]),
    /// An event of a turn changes.
    Event(fn(&mut Value)),
    /// An event becomes others, in view of those before it. What is behind a `done` is not sent.
    Events(fn(Value, &[Value]) -> Vec<Value>),
    /// A notification changes; `None`: it does not come.
    Push(fn(Value, &Memory) -> Option<Value>),
    /// A line of a stream that is no data changes.
    Line(fn(&str) -> Option<String>),
    /// Ids of events do not grow.
    Ids,
    /// A stream is taken in however slowly its reader reads.
    Eager,
    /// A recorded part, of whichever message.
    Part(fn(&mut Value)),
    /// What a thread's read gives.
    Read(fn(&mut Value, &Memory)),
    /// What is answered in JSON, and its status.
    Answer(fn(&Call, &mut StatusCode, &mut Value, &Memory)),
    /// The status alone.
    Status(fn(&Call) -> Option<StatusCode>),
    /// Headers of an answer.
    Headers(fn(&Call, &mut HeaderMap)),
    /// What is asked for.
    Request(fn(&mut Call, &Memory)),
    /// Answered without asking the server.
    Instead(fn(&Call) -> Option<Value>),
    /// A body that broke off is completed.
    Completes,
    /// A turn is stopped when its reader leaves.
    StopsWithReader,
    /// `/push` shows what the first user is told, whoever asks.
    SharesPush,
}

/// A request on its way.
struct Call {
    method: Method,
    /// Path and query.
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    fn is(&self, method: &Method, end: &str) -> bool {
        self.method == *method && self.path().ends_with(end)
    }

    fn path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    fn reads_messages(&self) -> bool {
        self.is(&Method::GET, "/messages")
    }

    fn stops(&self) -> bool {
        self.method == Method::DELETE && self.path.contains("/executions/")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn set_json(&mut self, body: &Value) {
        self.body = body.to_string().into();
    }

    /// Changes a body that is JSON.
    fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        if let Ok(mut body) = serde_json::from_slice(&self.body) {
            change(&mut body);
            self.set_json(&body);
        }
    }
}

/// What a proxy remembers.
#[derive(Default)]
struct Memory {
    /// The newest execution of each thread.
    newest: Mutex<HashMap<String, String>>,
    /// The first answer at each path, and whether the last one was another.
    first: Mutex<HashMap<String, (Value, bool)>>,
    /// Refusals so far.
    refused: Mutex<u64>,
    /// A body that broke off was completed.
    completed: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub url: String,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    fault: Option<Fault>,
    upstream: String,
    token: String,
    http: reqwest::Client,
    memory: Memory,
}

impl Proxy {
    /// Puts one before the server at `upstream`, broken like `mutant`; `None`: not at all. `token` is that of the first user. It asks
    /// the server by `http`.
    ///
    /// # Errors
    /// No port is to be had.
    pub async fn start(mutant: Option<&Mutant>, upstream: &str, token: &str, http: reqwest::Client) -> Result<Self> {
        let shared = Shared {
            fault: mutant.map(|mutant| mutant.fault),
            upstream: upstream.to_owned(),
            token: token.to_owned(),
            http,
            memory: Memory::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let app = Router::new().fallback(forward).with_state(Arc::new(shared));
        let task = tokio::spawn(async move {
            // It ends with the task: there is nobody to tell of a listener that broke.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { url, task })
    }
}

async fn forward(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    // In a task of its own: one of the faults goes on where the caller leaves.
    let answer = tokio::spawn(async move { shared.forward(request).await });
    match answer.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => (StatusCode::BAD_GATEWAY, format!("{BROKEN}: {error:#}")).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{BROKEN}: {error}")).into_response(),
    }
}

impl Shared {
    async fn forward(self: &Arc<Self>, request: Request) -> Result<Response> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let (body, broke_off) = self.body(body).await?;
        if matches!(self.fault, Some(Fault::Completes)) && parts.method == Method::GET {
            self.memory.completed.notified().await;
        }
        let mut call = Call { method: parts.method, path, headers: parts.headers, body };
        for name in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION, header::TRANSFER_ENCODING] {
            call.headers.remove(name);
        }
        match self.fault {
            Some(Fault::Request(change)) => change(&mut call, &self.memory),
            Some(Fault::Instead(answer)) => {
                if let Some(answer) = answer(&call) {
                    return Ok(axum::Json(answer).into_response());
                }
            }
            Some(Fault::SharesPush) if call.path() == "/push" => {
                call.headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {}", self.token))?);
            }
            _ => {}
        }
        let url = format!("{}{}", self.upstream, call.path);
        let sent = self.http.request(call.method.clone(), url).headers(call.headers.clone()).body(call.body.clone());
        let answer = sent.send().await?;
        if broke_off {
            self.memory.completed.notify_one();
        }
        let (mut status, mut headers) = (answer.status(), answer.headers().clone());
        for name in [header::CONTENT_LENGTH, header::CONNECTION, header::TRANSFER_ENCODING] {
            headers.remove(name);
        }
        match self.fault {
            Some(Fault::Headers(change)) => change(&call, &mut headers),
            Some(Fault::Status(change)) => status = change(&call).unwrap_or(status),
            _ => {}
        }
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let body = if kind.starts_with("text/event-stream") {
            self.stream(answer, &call)
        } else {
            let mut bytes = answer.bytes().await?;
            if kind.contains("json")
                && let Ok(mut json) = serde_json::from_slice(&bytes)
                && self.change(&call, &mut status, &mut json)
            {
                bytes = json.to_string().into();
            }
            Body::from(bytes)
        };
        let mut response = Response::new(body);
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }

    /// The body of a request, whole or not at all, and whether it broke off and was completed.
    async fn body(&self, body: Body) -> Result<(Bytes, bool)> {
        let mut chunks = body.into_data_stream();
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.next().await {
            match chunk {
                Ok(chunk) => bytes.extend_from_slice(&chunk),
                Err(_) if matches!(self.fault, Some(Fault::Completes)) => {
                    bytes.push(b'}');
                    return Ok((bytes.into(), true));
                }
                Err(error) => return Err(error).context("a body that broke off"),
            }
        }
        Ok((bytes.into(), false))
    }

    /// Breaks an answer, where the fault is one of answers.
    fn change(&self, call: &Call, status: &mut StatusCode, json: &mut Value) -> bool {
        match self.fault {
            Some(Fault::Answer(change)) => change(call, status, json, &self.memory),
            Some(Fault::Read(change)) if call.reads_messages() && *status == StatusCode::OK => change(json, &self.memory),
            Some(Fault::Part(change)) if call.reads_messages() && *status == StatusCode::OK => {
                for part in parts(json) {
                    change(part);
                }
            }
            _ => return false,
        }
        true
    }

    /// Passes a stream on, event by event. Whoever leaves it makes the server be left, too.
    fn stream(self: &Arc<Self>, mut answer: reqwest::Response, call: &Call) -> Body {
        let places = if matches!(self.fault, Some(Fault::Eager)) { 1_000_000 } else { 1 };
        let (sender, mut receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(places);
        let (shared, is_push) = (Arc::clone(self), call.path() == "/push");
        let base = call.path.split("/chat").next().unwrap_or_default().to_owned();
        tokio::spawn(async move {
            let mut blocks = Blocks {
                shared: Arc::clone(&shared),
                is_push,
                rest: Vec::new(),
                before: Vec::new(),
                first: None,
                sent: 0,
                over: false,
            };
            loop {
                let chunk = tokio::select! {
                    chunk = answer.chunk() => chunk,
                    () = sender.closed() => break,
                };
                let (bytes, ends) = match chunk {
                    Ok(Some(chunk)) => (Ok(blocks.take(&chunk)), false),
                    Ok(None) => return,
                    Err(error) => (Err(std::io::Error::other(error)), true),
                };
                if bytes.as_ref().is_ok_and(Bytes::is_empty) {
                    continue;
                }
                if sender.send(bytes).await.is_err() || ends {
                    break;
                }
                if blocks.over {
                    return;
                }
            }
            if matches!(shared.fault, Some(Fault::StopsWithReader))
                && let Some(started) = blocks.before.first()
            {
                let (thread, execution) = (text(&started["sessionId"]), text(&started["executionId"]));
                let url = format!("{}{base}/chat/{thread}/executions/{execution}", shared.upstream);
                let _ = shared.http.delete(url).bearer_auth(&shared.token).send().await;
            }
        });
        Body::from_stream(futures::stream::poll_fn(move |context| receiver.poll_recv(context)))
    }
}

/// A stream that is taken apart and put together again.
struct Blocks {
    shared: Arc<Shared>,
    is_push: bool,
    rest: Vec<u8>,
    /// Events so far, where a fault looks at them.
    before: Vec<Value>,
    /// Execution and number of the first event's id.
    first: Option<(String, u64)>,
    sent: u64,
    over: bool,
}

impl Blocks {
    fn take(&mut self, chunk: &[u8]) -> Bytes {
        if self.shared.fault.is_none() || matches!(self.shared.fault, Some(Fault::Eager)) {
            return Bytes::copy_from_slice(chunk);
        }
        self.rest.extend_from_slice(chunk);
        let mut out = String::new();
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            self.block(&String::from_utf8_lossy(&block), &mut out);
        }
        out.into()
    }

    fn block(&mut self, block: &str, out: &mut String) {
        let mut events = VecDeque::new();
        for line in block.lines().filter(|line| !line.is_empty()) {
            if let Some(data) = line.strip_prefix("data: ") {
                events.extend(self.event(serde_json::from_str(data).unwrap_or_default()));
            } else if let Some((execution, number)) = line.strip_prefix("id: ").and_then(|id| id.split_once(':')) {
                let number = number.parse().unwrap_or_default();
                self.first.get_or_insert((execution.to_owned(), number));
            } else {
                let line = match self.shared.fault {
                    Some(Fault::Line(change)) => change(line),
                    _ => Some(line.to_owned()),
                };
                if let Some(line) = line {
                    out.push_str(&format!("{line}\n\n"));
                }
            }
        }
        for event in events {
            if self.over {
                return;
            }
            if let Some((execution, first)) = &self.first {
                out.push_str(&format!("id: {execution}:{}\n", first + self.sent));
                self.sent += u64::from(!matches!(self.shared.fault, Some(Fault::Ids)));
            }
            // A fault that looks back decides for itself what the last event is.
            self.over = event["type"] == "done" && matches!(self.shared.fault, Some(Fault::Events(_)));
            out.push_str(&format!("data: {event}\n\n"));
        }
    }

    /// What is sent in an event's place.
    fn event(&mut self, mut event: Value) -> Vec<Value> {
        if event["type"] == "execution-started" {
            let (thread, execution) = (text(&event["sessionId"]), text(&event["executionId"]));
            locked(&self.shared.memory.newest).insert(thread, execution);
        }
        match self.shared.fault {
            Some(Fault::Push(change)) if self.is_push => change(event, &self.shared.memory).into_iter().collect(),
            Some(Fault::Drop(types)) if !self.is_push && types.iter().any(|name| event["type"] == *name) => Vec::new(),
            Some(Fault::Event(change)) if !self.is_push => {
                change(&mut event);
                vec![event]
            }
            Some(Fault::Events(change)) if !self.is_push => {
                let events = change(event.clone(), &self.before);
                self.before.push(event);
                events
            }
            Some(Fault::StopsWithReader) if !self.is_push => {
                if self.before.is_empty() {
                    self.before.push(event.clone());
                }
                vec![event]
            }
            _ => vec![event],
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// All parts of a read's messages.
fn parts(read: &mut Value) -> impl Iterator<Item = &mut Value> {
    let messages = read["messages"].as_array_mut().into_iter().flatten();
    messages.flat_map(|message| message["content"].as_array_mut().into_iter().flatten())
}

fn messages(read: &mut Value) -> impl Iterator<Item = &mut Value> {
    read["messages"].as_array_mut().into_iter().flatten()
}

fn remove(value: &mut Value, field: &str) {
    if let Some(object) = value.as_object_mut() {
        object.remove(field);
    }
}

/// Puts a value in place of the one at `pointer`, where there is one.
fn set(value: &mut Value, pointer: &str, new: Value) {
    if let Some(place) = value.pointer_mut(pointer) {
        *place = new;
    }
}

/// The same where it is `old`.
fn swap(value: &mut Value, pointer: &str, old: &Value, new: Value) {
    if value.pointer(pointer) == Some(old) {
        set(value, pointer, new);
    }
}

/// A Stop of any execution stops the thread's newest.
fn stop_the_newest(call: &mut Call, memory: &Memory) {
    if call.stops()
        && let Some((before, _)) = call.path.rsplit_once("/executions/")
        && let Some(thread) = before.rsplit('/').next()
        && let Some(newest) = locked(&memory.newest).get(thread)
    {
        call.path = format!("{before}/executions/{newest}");
    }
}

/// A Stop that is answered and comes to nothing.
fn no_stop(call: &Call) -> Option<Value> {
    call.stops().then(|| json!({"cancelRequested": true}))
}

fn problem_without(field: &'static str, json: &mut Value) {
    if json.get("code").is_some() {
        remove(json, field);
    }
}

const fn mutant(breaks: &'static str, lines: &'static [&'static str], fault: Fault) -> Mutant {
    Mutant { breaks, lines, fault, keeps_back: false }
}

/// A mutant that keeps something back, for which its lines wait in vain.
const fn silent(breaks: &'static str, lines: &'static [&'static str], fault: Fault) -> Mutant {
    Mutant { breaks, lines, fault, keeps_back: true }
}

/// All of them, in the order of the contract.
pub const MUTANTS: &[Mutant] = &[
    // Sections 1 and 2
    mutant("a message's id is no UUID", &["1 ids"], Fault::Read(|read, _| set(read, "/messages/0/id", json!("m-1")))),
    mutant(
        "a project's id is a sentence",
        &["1 ids"],
        Fault::Answer(|call, _, json, _| {
            if call.path() == "/projects" {
                set(json, "/projects/0/id", json!("The Project"));
            }
        }),
    ),
    mutant(
        "each execution writes another message",
        &["1 turn"],
        Fault::Event(|event| {
            if event["type"] == "execution-started" {
                event["assistantMessageId"] = json!(Uuid::new_v4());
            }
        }),
    ),
    mutant("the revision stands still", &["1 revision"], Fault::Read(|read, _| read["revision"] = json!(7))),
    mutant("`execution-started` does not come", &["2.1"], Fault::Drop(&["execution-started"])),
    mutant(
        "the active execution is never said",
        &["2.1", "5 activeExecutionId"],
        Fault::Read(|read, _| read["activeExecutionId"] = Value::Null),
    ),
    mutant("half a submit starts a turn", &["2.1 before acceptance"], Fault::Completes),
    mutant("a turn ends with its reader", &["2.2"], Fault::StopsWithReader),
    silent(
        "nobody is told of a change",
        &["2.3", "6.3 notification"],
        Fault::Push(|event, _| (event["type"] != "agentExecutionUpdated").then_some(event)),
    ),
    mutant(
        "reads go back to the first one",
        &["2.4"],
        Fault::Answer(|call, _, json, memory| {
            if call.reads_messages() {
                let mut first = locked(&memory.first);
                let (first, went_on) = first.entry(call.path.clone()).or_insert_with(|| (json.clone(), false));
                if *went_on {
                    *json = first.clone();
                }
                *went_on = json["revision"] != first["revision"];
            }
        }),
    ),
    mutant("a Stop ends whatever runs in the thread", &["2.5", "6.1", "6 later turns"], Fault::Request(stop_the_newest)),
    mutant(
        "a refusal does not say which execution runs",
        &["2.6", "3 error turn_already_running", "3 DELETE /threads/{threadId}"],
        Fault::Answer(|_, _, json, _| problem_without("activeExecutionId", json)),
    ),
    mutant(
        "what is not found says what was looked for",
        &["2.7"],
        Fault::Answer(|call, status, json, _| {
            if *status == StatusCode::NOT_FOUND {
                json["detail"] = json!(format!("There is no {}.", call.path));
            }
        }),
    ),
    mutant(
        "everyone's threads are listed for everyone",
        &["2.7"],
        Fault::Request(|call, memory| {
            // The first request of all is the owner's: it submits.
            let mut first = locked(&memory.newest);
            let authorization = call.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let owner = first.entry("owner".to_owned()).or_insert_with(|| authorization.to_owned()).clone();
            if call.is(&Method::GET, "/threads")
                && let Ok(owner) = HeaderValue::from_str(&owner)
            {
                call.headers.insert(header::AUTHORIZATION, owner);
            }
        }),
    ),
    // Section 3: endpoints
    mutant("a reply has no text", &["3 POST /chat", "2.2"], Fault::Drop(&["text-delta"])),
    mutant(
        "every thread that is named begins",
        &["3 POST /chat newSession"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/chat") {
                call.edit(|body| body["newSession"] = json!(true));
            }
        }),
    ),
    mutant(
        "files are lost",
        &["3 POST /chat attachments"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/chat") {
                call.edit(|body| remove(body, "attachments"));
            }
        }),
    ),
    mutant(
        "an approval counts as a denial",
        &["3 POST /chat/resume approve"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/resume") {
                call.edit(|body| swap(body, "/resumeData", &json!({"approved": true}), json!({"approved": false})));
            }
        }),
    ),
    mutant(
        "a denial loses its reason",
        &["3 POST /chat/resume deny"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/resume") {
                call.edit(|body| remove(&mut body["resumeData"], "reason"));
            }
        }),
    ),
    mutant(
        "every answer is the first option",
        &["3 POST /chat/resume answer"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/resume") {
                call.edit(|body| body["resumeData"] = json!({"answer": "red"}));
            }
        }),
    ),
    mutant(
        "reads do not say what is open",
        &["3 GET /chat/{threadId}/messages", "5 openSuspensions", "4 suspended"],
        Fault::Read(|read, _| read["openSuspensions"] = json!([])),
    ),
    mutant(
        "every Stop was asked for",
        &["3 DELETE /chat/{threadId}/executions/{executionId}", "6.4", "6 twice"],
        Fault::Answer(|_, _, json, _| swap(json, "/cancelRequested", &json!(false), json!(true))),
    ),
    mutant(
        "every cancel ends a turn",
        &["3 DELETE /chat/runs/{runId}"],
        Fault::Answer(|call, _, json, _| {
            if call.path.contains("/runs/") {
                json["cancelled"] = json!(true);
            }
        }),
    ),
    mutant(
        "a cancel comes to nothing",
        &["6 suspended", "3 DELETE /chat/runs/{runId}"],
        Fault::Instead(|call| call.path.contains("/runs/").then(|| json!({"cancelled": true}))),
    ),
    mutant(
        "threads come oldest first",
        &["3 GET /threads"],
        Fault::Answer(|_, _, json, _| {
            if let Some(threads) = json["threads"].as_array_mut() {
                threads.reverse();
            }
        }),
    ),
    mutant(
        "a cursor leads to the first page",
        &["3 GET /threads"],
        Fault::Request(|call, _| {
            if call.path.contains("cursor=") {
                call.path = format!("{}?limit=2", call.path());
            }
        }),
    ),
    mutant(
        "no limit is too large",
        &["3 GET /threads limit"],
        Fault::Request(|call, _| call.path = call.path.replace("limit=101", "limit=100")),
    ),
    mutant(
        "a thread has no title of its own",
        &["3 GET /threads/{threadId}"],
        Fault::Answer(|call, _, json, _| {
            if call.method == Method::GET && call.path.contains("/threads/") {
                json["title"] = json!("untitled");
            }
        }),
    ),
    mutant(
        "a new title is cut",
        &["3 PATCH /threads/{threadId}"],
        Fault::Request(|call, _| {
            if call.method == Method::PATCH {
                call.edit(|body| swap(body, "/title", &json!("Ümläuts 🦀"), json!("Ümläuts")));
            }
        }),
    ),
    mutant(
        "a thread is said to be deleted and stays",
        &["3 DELETE /threads/{threadId}"],
        Fault::Instead(|call| (call.method == Method::DELETE && call.path.contains("/threads/")).then(|| json!({}))),
    ),
    mutant(
        "a browser may guess what an attachment is",
        &["3 GET /chat/attachments/{id}"],
        Fault::Headers(|_, headers| drop(headers.remove(header::X_CONTENT_TYPE_OPTIONS))),
    ),
    mutant(
        "an attachment may run scripts",
        &["3 GET /chat/attachments/{id}"],
        Fault::Headers(|_, headers| drop(headers.remove(header::CONTENT_SECURITY_POLICY))),
    ),
    mutant(
        "nobody is not told to sign in",
        &["3 GET /push", "3 GET /auth/me", "3 GET /projects", "3 error unauthenticated"],
        Fault::Answer(|_, status, json, _| {
            if *status == StatusCode::UNAUTHORIZED {
                *status = StatusCode::NOT_FOUND;
                json["status"] = json!(404);
                json["code"] = json!("not_found");
            }
        }),
    ),
    mutant(
        "nobody may sign out",
        &["3 error unauthenticated"],
        Fault::Status(|call| (call.path() == "/auth/logout").then_some(StatusCode::NO_CONTENT)),
    ),
    mutant(
        "a project's agents are everybody's to see",
        &["3 error unauthenticated"],
        Fault::Answer(|call, status, json, _| {
            if call.path().ends_with("/agents/v2") {
                (*status, *json) = (StatusCode::OK, json!({"agents": []}));
            }
        }),
    ),
    mutant(
        "who one is has no name",
        &["3 GET /auth/me"],
        Fault::Answer(|call, _, json, _| {
            if call.path() == "/auth/me" {
                remove(json, "name");
            }
        }),
    ),
    mutant(
        "there are no projects",
        &["3 GET /projects"],
        Fault::Answer(|call, _, json, _| {
            if call.path() == "/projects" {
                json["projects"] = json!([]);
            }
        }),
    ),
    mutant(
        "an agent is another in the list",
        &["3 GET /projects/{p}/agents/v2"],
        Fault::Answer(|call, _, json, _| {
            if call.path().ends_with("/agents/v2") {
                set(json, "/agents/0/name", json!("another"));
            }
        }),
    ),
    mutant(
        "a server is never ready",
        &["3 GET /healthz, /readyz"],
        Fault::Status(|call| (call.path() == "/readyz").then_some(StatusCode::SERVICE_UNAVAILABLE)),
    ),
    mutant(
        "a route is missing in the document",
        &["3 GET /openapi.json"],
        Fault::Answer(|call, _, json, _| {
            if call.path() == "/openapi.json" {
                remove(&mut json["paths"], "/auth/logout");
            }
        }),
    ),
    mutant(
        "everyone may read the metrics",
        &["3 GET /metrics"],
        Fault::Status(|call| (call.path() == "/metrics").then_some(StatusCode::OK)),
    ),
    // Section 3: refusals
    mutant(
        "a refusal shows where in the program it comes from",
        &["3 problem"],
        Fault::Answer(|_, _, json, _| {
            if json.get("code").is_some() {
                json["stack"] = json!(["http::refuse at main.rs:1"]);
            }
        }),
    ),
    mutant(
        "a refusal shows a line of the program",
        &["3 problem"],
        Fault::Answer(|_, _, json, _| {
            if json.get("code").is_some() {
                json["detail"] = json!("panicked at server/src/main.rs:1");
            }
        }),
    ),
    mutant(
        "a refusal is plain JSON",
        &["3 problem"],
        Fault::Headers(|_, headers| {
            if headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json") {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
        }),
    ),
    mutant(
        "a blank message is sent on",
        &["3 error invalid_request", "3 error invalid_request field"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/chat") {
                call.edit(|body| {
                    if body["message"].as_str().is_some_and(|text| text.trim().is_empty()) {
                        body["message"] = json!("hi");
                    }
                });
            }
        }),
    ),
    mutant(
        "a refusal does not name the field",
        &["3 error invalid_request field", "3 GET /threads limit"],
        Fault::Answer(|_, _, json, _| problem_without("field", json)),
    ),
    mutant(
        "what is not found is forbidden",
        &["3 error not_found"],
        Fault::Answer(|_, status, json, _| {
            if *status == StatusCode::NOT_FOUND {
                *status = StatusCode::FORBIDDEN;
                (json["status"], json["code"]) = (json!(403), json!("missing_scope"));
            }
        }),
    ),
    mutant(
        "an open interaction is a running turn",
        &["3 error interaction_open"],
        Fault::Answer(|_, _, json, _| swap(json, "/code", &json!("interaction_open"), json!("turn_already_running"))),
    ),
    mutant(
        "a closed interaction is an open one",
        &["3 error interaction_closed", "7 answered elsewhere"],
        Fault::Answer(|_, _, json, _| swap(json, "/code", &json!("interaction_closed"), json!("interaction_open"))),
    ),
    mutant(
        "a repeated message does not say what it started",
        &["3 error message_already_accepted"],
        Fault::Answer(|_, _, json, _| problem_without("executionId", json)),
    ),
    mutant(
        "a message's id is not looked at",
        &["3 error message_already_accepted", "9 idempotent submit"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/chat") {
                call.edit(|body| remove(body, "messageId"));
            }
        }),
    ),
    mutant(
        "another method is another path",
        &["3 error method_not_allowed"],
        Fault::Answer(|_, status, json, _| {
            if *status == StatusCode::METHOD_NOT_ALLOWED {
                *status = StatusCode::NOT_FOUND;
                (json["status"], json["code"]) = (json!(404), json!("not_found"));
            }
        }),
    ),
    mutant(
        "every body is taken for JSON",
        &["3 error unsupported_media_type"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/chat") {
                call.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
        }),
    ),
    mutant(
        "a long message is cut",
        &["3 error payload_too_large"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/chat") {
                call.edit(|body| {
                    let cut = body["message"].as_str().map(|text| text.chars().take(1_000).collect::<String>());
                    body["message"] = json!(cut);
                });
            }
        }),
    ),
    mutant(
        "nobody is told when to come back",
        &["3 error rate_limited turns", "3 error rate_limited login"],
        Fault::Headers(|_, headers| drop(headers.remove(header::RETRY_AFTER))),
    ),
    mutant(
        "a wrong login names the name",
        &["3 login"],
        Fault::Answer(|call, status, json, _| {
            if *status == StatusCode::UNAUTHORIZED {
                json["detail"] = json!(format!("Wrong password of {}.", call.json()["name"]));
            }
        }),
    ),
    mutant(
        "an answer's shape is guessed",
        &["3 resumeData"],
        Fault::Request(|call, _| {
            if call.is(&Method::POST, "/resume") {
                call.edit(|body| swap(body, "/resumeData", &json!({"approved": "yes"}), json!({"approved": true})));
            }
        }),
    ),
    // Section 4
    mutant(
        "a proxy may keep back what follows an answer",
        &["4 headers"],
        Fault::Headers(|call, headers| {
            if call.path().ends_with("/resume") {
                headers.remove("x-accel-buffering");
            }
        }),
    ),
    mutant(
        "notifications may be kept by caches",
        &["4 headers"],
        Fault::Headers(|call, headers| {
            if call.path() == "/push" {
                headers.remove(header::CACHE_CONTROL);
            }
        }),
    ),
    mutant("ids of events do not grow", &["4 ids"], Fault::Ids),
    mutant(
        "there is an event of no known type",
        &["4 events"],
        Fault::Events(|event, _| {
            let more = (event["type"] == "start-step").then(|| json!({"type": "progress", "percent": 7}));
            [event].into_iter().chain(more).collect()
        }),
    ),
    mutant(
        "usage is `null`",
        &["4 events"],
        Fault::Event(|event| {
            if event["type"] == "finish-step" {
                event["usage"] = Value::Null;
            }
        }),
    ),
    mutant(
        "an approval does not say what would be called",
        &["4 events"],
        Fault::Event(|event| {
            if event["type"] == "tool-call-suspended" {
                remove(&mut event["payload"], "input");
            }
        }),
    ),
    mutant("texts do not end", &["4 text"], Fault::Drop(&["text-end"])),
    mutant("steps do not end", &["4 text"], Fault::Drop(&["finish-step"])),
    mutant(
        "a text's end names another",
        &["4 text"],
        Fault::Event(|event| {
            if event["type"] == "text-end" {
                event["id"] = json!("another");
            }
        }),
    ),
    mutant(
        "a reasoning's end names another",
        &["4 reasoning"],
        Fault::Event(|event| {
            if event["type"] == "reasoning-end" {
                event["id"] = json!("another");
            }
        }),
    ),
    mutant("reasoning does not come", &["4 reasoning"], Fault::Drop(&["reasoning-delta"])),
    mutant("calls are not announced", &["4 tool-input"], Fault::Drop(&["tool-input-start", "tool-input-delta"])),
    mutant(
        "another call is announced",
        &["4 tool-input"],
        Fault::Event(|event| {
            if event["type"] == "tool-input-start" {
                event["toolName"] = json!("another");
            }
        }),
    ),
    mutant(
        "a call's input is another than was written",
        &["4 tool-input"],
        Fault::Event(|event| {
            if event["type"] == "tool-input-delta" {
                event["delta"] = json!("{\"other\": 1}");
            }
        }),
    ),
    mutant(
        "a tool ends before it starts",
        &["4 tools"],
        Fault::Event(|event| {
            if event["type"] == "tool-execution-end" {
                event["endTime"] = json!(0);
            }
        }),
    ),
    mutant(
        "another call ends",
        &["4 tools"],
        Fault::Event(|event| {
            if event["type"] == "tool-execution-end" {
                event["toolCallId"] = json!("another");
            }
        }),
    ),
    mutant(
        "a tool's output is not what it gave",
        &["4 tools", "5 stream and record"],
        Fault::Event(|event| {
            if event["type"] == "tool-result" {
                event["output"] = json!("fine");
            }
        }),
    ),
    mutant(
        "a child's path leads elsewhere",
        &["4 subagent-chunk"],
        Fault::Event(|event| {
            if event["type"] == "subagent-chunk" {
                event["taskPath"] = json!(["elsewhere"]);
            }
        }),
    ),
    mutant(
        "of a child only its text comes",
        &["4 subagent-chunk"],
        Fault::Events(|event, _| {
            let hidden = event["type"] == "subagent-chunk" && !text(&event["chunk"]["type"]).starts_with("text");
            if hidden { Vec::new() } else { vec![event] }
        }),
    ),
    mutant("a failure is not said", &["4 error", "4 error errorCode"], Fault::Drop(&["error"])),
    mutant(
        "a failure has no code",
        &["4 error errorCode"],
        Fault::Event(|event| {
            if event["type"] == "error" {
                remove(event, "errorCode");
            }
        }),
    ),
    mutant(
        "`done` comes with the first word",
        &["4 done after record"],
        Fault::Events(|event, before| {
            let done = before.first().filter(|_| event["type"] == "text-delta").map(|started| {
                json!({
                    "type": "done",
                    "sessionId": started["sessionId"],
                    "executionId": started["executionId"],
                    "status": "success",
                })
            });
            [event].into_iter().chain(done).collect()
        }),
    ),
    mutant(
        "a suspended turn is done",
        &["4 suspended"],
        Fault::Events(|event, before| {
            let done = before.first().filter(|_| event["type"] == "tool-call-suspended").map(|started| {
                json!({
                    "type": "done",
                    "sessionId": started["sessionId"],
                    "executionId": started["executionId"],
                    "status": "success",
                })
            });
            [event].into_iter().chain(done).collect()
        }),
    ),
    mutant("whoever does not read gets everything in the end", &["4 slow reader"], Fault::Eager),
    // Section 5
    mutant(
        "messages have no date",
        &["5 message"],
        Fault::Read(|read, _| messages(read).for_each(|message| message["createdAt"] = json!("1970-01-01T00:00:00Z"))),
    ),
    mutant(
        "messages have no revision",
        &["5 message"],
        Fault::Read(|read, _| messages(read).for_each(|message| message["revision"] = json!(0))),
    ),
    mutant(
        "what failed has succeeded",
        &["5 status"],
        Fault::Read(|read, _| {
            messages(read).for_each(|message| swap(message, "/executionStatus", &json!("error"), json!("success")));
        }),
    ),
    mutant(
        "what was stopped has succeeded",
        &["6.3", "5 status", "6 suspended"],
        Fault::Read(|read, _| {
            messages(read).for_each(|message| swap(message, "/executionStatus", &json!("cancelled"), json!("success")));
        }),
    ),
    mutant(
        "the record does not say why a turn failed",
        &["5 executionError"],
        Fault::Read(|read, _| messages(read).for_each(|message| remove(message, "executionError"))),
    ),
    mutant("parts do not end", &["5 parts"], Fault::Part(|part| remove(part, "endTime"))),
    mutant("parts begin in 1970", &["5 parts"], Fault::Part(|part| set(part, "/startTime", json!(0)))),
    mutant(
        "the record has another text than the stream",
        &["5 stream and record", "6.4 races"],
        Fault::Part(|part| {
            if part["type"] == "text" {
                part["text"] = json!(text(&part["text"]) + ".");
            }
        }),
    ),
    mutant(
        "what was denied has run",
        &["5 tool states", "3 POST /chat/resume deny"],
        Fault::Part(|part| swap(part, "/state", &json!("rejected"), json!("resolved"))),
    ),
    mutant(
        "what was stopped has run",
        &["5 tool states", "6 calls"],
        Fault::Part(|part| swap(part, "/state", &json!("cancelled"), json!("resolved"))),
    ),
    mutant("a call does not keep what it asked", &["5 suspendPayload"], Fault::Part(|part| remove(part, "suspendPayload"))),
    mutant("a child's calls are not recorded", &["5 childTrace"], Fault::Part(|part| set(part, "/childTrace/steps", json!([])))),
    mutant(
        "a child's reasoning is not recorded",
        &["5 childTrace", "5 childTrace budget"],
        Fault::Part(|part| set(part, "/childTrace/reasoningSegments", json!([]))),
    ),
    mutant(
        "the budget ends a character early",
        &["5 childTrace budget"],
        Fault::Part(|part| {
            if let Some(text) = part["childTrace"]["text"].as_str().map(str::to_owned) {
                set(part, "/childTrace/text", json!(text.strip_suffix(|_: char| true).unwrap_or_default()));
            }
        }),
    ),
    silent(
        "what a child does shows when it is done",
        &["5 childTrace live"],
        Fault::Read(|read, _| {
            if !read["activeExecutionId"].is_null() {
                parts(read).for_each(|part| remove(part, "childTrace"));
            }
        }),
    ),
    mutant(
        "a tool that runs is still to come",
        &["5 boundary", "5 tool states"],
        Fault::Part(|part| swap(part, "/state", &json!("running"), json!("pending"))),
    ),
    silent(
        "text shows when it is complete",
        &["5 open text"],
        Fault::Read(|read, _| {
            if !read["activeExecutionId"].is_null() {
                parts(read).filter(|part| part["type"] == "text").for_each(|part| part["text"] = json!(""));
            }
        }),
    ),
    silent(
        "one is told of a thread once",
        &["5 notifications"],
        Fault::Push(|event, memory| {
            let thread = text(&event["data"]["threadId"]);
            let again = !thread.is_empty() && locked(&memory.newest).insert(format!("told of {thread}"), String::new()).is_some();
            (!again).then_some(event)
        }),
    ),
    mutant("everyone is told of everything", &["5 notifications privacy"], Fault::SharesPush),
    mutant(
        "a notification says what was said",
        &["5 notifications content"],
        Fault::Push(|mut event, _| {
            if event["type"] == "agentExecutionUpdated" {
                event["data"]["text"] = json!("a secret");
            }
            Some(event)
        }),
    ),
    mutant(
        "a refusal raises the revision",
        &["5 refused write"],
        Fault::Answer(|call, status, json, memory| {
            let mut refused = locked(&memory.refused);
            *refused += u64::from(status.is_client_error());
            if call.reads_messages() && status.is_success() {
                json["revision"] = json!(json["revision"].as_u64().unwrap_or_default() + *refused);
            }
        }),
    ),
    mutant("`connected` does not come", &["5 /push"], Fault::Push(|event, _| (event["type"] != "connected").then_some(event))),
    mutant(
        "nobody is told when to reconnect",
        &["5 /push"],
        Fault::Line(|line| (!line.starts_with("retry:")).then(|| line.to_owned())),
    ),
    mutant(
        "everyone reconnects at once",
        &["5 /push jitter"],
        Fault::Line(|line| Some(if line.starts_with("retry:") { "retry: 2000".to_owned() } else { line.to_owned() })),
    ),
    mutant(
        "an ETag is weak",
        &["5 ETag"],
        Fault::Headers(|_, headers| {
            let weak = headers.get(header::ETAG).and_then(|tag| HeaderValue::from_str(&format!("W/{}", tag.to_str().ok()?)).ok());
            if let Some(weak) = weak {
                headers.insert(header::ETAG, weak);
            }
        }),
    ),
    mutant(
        "an ETag names the revision and not the thread",
        &["5 ETag"],
        Fault::Headers(|_, headers| {
            let revision = headers.get(header::ETAG).and_then(|tag| {
                let (_, revision) = tag.to_str().ok()?.rsplit_once('-')?;
                HeaderValue::from_str(&format!("\"{revision}")).ok()
            });
            if let Some(revision) = revision {
                headers.insert(header::ETAG, revision);
            }
        }),
    ),
    mutant(
        "a read that was read before comes again",
        &["5 ETag"],
        Fault::Request(|call, _| drop(call.headers.remove(header::IF_NONE_MATCH))),
    ),
    mutant(
        "every read is a full one",
        &["5 since"],
        Fault::Request(|call, _| {
            if call.reads_messages() {
                call.path = call.path().to_owned();
            }
        }),
    ),
    mutant(
        "a read of what changed leaves the newest out",
        &["5 since"],
        Fault::Read(|read, _| {
            if read["partial"] == true
                && let Some(messages) = read["messages"].as_array_mut()
            {
                messages.pop();
            }
        }),
    ),
    mutant(
        "what is open does not say with what",
        &["5 openSuspensions"],
        Fault::Read(|read, _| {
            read["openSuspensions"].as_array_mut().into_iter().flatten().for_each(|open| open["input"] = json!({}));
        }),
    ),
    // Sections 6, 7 and 9
    silent("a Stop comes to nothing", &["6.3 relay", "6 suspension"], Fault::Instead(no_stop)),
    mutant(
        "a Stop takes what was written with it",
        &["6.3"],
        Fault::Read(|read, _| {
            messages(read).filter(|message| message["executionStatus"] == "cancelled").for_each(|message| {
                message["content"] = json!([]);
            });
        }),
    ),
    mutant(
        "a child's call runs on after its turn",
        &["6 calls"],
        Fault::Part(|part| {
            let steps = part.pointer_mut("/childTrace/steps").and_then(Value::as_array_mut);
            steps.into_iter().flatten().for_each(|step| step["running"] = json!(true));
        }),
    ),
    mutant(
        "a turn that runs is no reason to refuse",
        &["9 racing submits", "2.6"],
        Fault::Answer(|_, _, json, _| swap(json, "/code", &json!("turn_already_running"), json!("interaction_open"))),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::conformance;

    #[test]
    fn every_line_that_is_tried_has_a_mutant() {
        let tried: BTreeSet<_> = conformance::all().iter().filter(|case| case.is_tried()).map(|case| case.id).collect();
        let broken: BTreeSet<_> = MUTANTS.iter().flat_map(|mutant| mutant.lines).copied().collect();
        assert_eq!(tried, broken);
    }
}
