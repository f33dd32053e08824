//! The provider's process: an OpenAI-compatible endpoint, and beside it what a test asks of it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Result;
use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt,
    net::TcpListener,
    sync::{mpsc, watch},
    time::Instant,
};

use super::script::{self, Place, Step};

/// A request that the provider was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// Its body.
    pub body: Value,
    /// Its headers; of `authorization` only whether there was one.
    pub headers: Vec<(String, String)>,
    /// What became of it.
    pub end: Option<End>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// The provider did all it was told to.
    Finished,
    /// The caller closed the connection before.
    HungUp,
}

/// What tests ask about.
#[derive(Default)]
struct Record {
    requests: Vec<Seen>,
    /// Holds that a script waits at, or has passed.
    reached: BTreeSet<String>,
    released: BTreeSet<String>,
}

type Shared = Arc<watch::Sender<Record>>;

/// Listens on a free port, says where on stdout, and ends when stdin does.
///
/// # Errors
/// No port is to be had.
pub async fn main() -> Result<()> {
    let shared: Shared = Arc::new(watch::Sender::new(Record::default()));
    let app = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(async || Json(json!({"object": "list", "data": [{"id": "test-model", "object": "model"}]}))))
        .route("/control/requests", get(requests))
        .route("/control/wait-request/{n}", get(wait_request))
        .route("/control/wait-end/{n}", get(wait_end))
        .route("/control/wait-hold/{name}", get(wait_hold))
        .route("/control/release/{name}", post(release))
        .with_state(shared);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = async { tokio::io::stdin().read(&mut [0]).await } => {}
    }
    Ok(())
}

async fn requests(State(shared): State<Shared>) -> Json<Vec<Seen>> {
    Json(shared.borrow().requests.clone())
}

/// Answers once request `n` (from 0, by arrival) is there.
async fn wait_request(State(shared): State<Shared>, Path(n): Path<usize>) -> Json<Option<Seen>> {
    wait(&shared, |record| record.requests.get(n).cloned()).await
}

/// Answers once request `n` is over, with how it ended.
async fn wait_end(State(shared): State<Shared>, Path(n): Path<usize>) -> Json<Option<End>> {
    wait(&shared, |record| record.requests.get(n).and_then(|seen| seen.end)).await
}

/// Answers once a script waits at `[[hold:NAME]]`.
async fn wait_hold(State(shared): State<Shared>, Path(name): Path<String>) -> Json<Option<()>> {
    wait(&shared, |record| record.reached.contains(&name).then_some(())).await
}

async fn wait<T>(shared: &Shared, find: impl Fn(&Record) -> Option<T>) -> Json<Option<T>> {
    let mut changes = shared.subscribe();
    // Fails only when the sender is gone, and `shared` holds it.
    Json(changes.wait_for(|record| find(record).is_some()).await.ok().and_then(|record| find(&record)))
}

/// Lets every script go on that waits at `[[hold:NAME]]`, now and later.
async fn release(State(shared): State<Shared>, Path(name): Path<String>) {
    shared.send_modify(|record| {
        record.released.insert(name);
    });
}

async fn complete(State(shared): State<Shared>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let steps = script::steps(body["messages"].as_array().map_or(&[], Vec::as_slice));
    let seen = Seen {
        headers: headers
            .iter()
            .map(|(name, value)| {
                let shown = if name == header::AUTHORIZATION { "(there is one)" } else { value.to_str().unwrap_or("(not text)") };
                (name.to_string(), shown.to_owned())
            })
            .collect(),
        body: body.clone(),
        end: None,
    };
    let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = key.trim_start_matches("Bearer ").to_owned();
    let mut number = 0;
    shared.send_modify(|record| {
        number = record.requests.len();
        record.requests.push(seen);
    });
    let steps = match steps {
        Ok(steps) => steps,
        Err(error) => return refuse(&shared, number, StatusCode::BAD_REQUEST, &format!("{error:#}")),
    };
    match steps.first() {
        Some(Step::Fail(status)) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_REQUEST);
            return refuse(&shared, number, status, "The message told me to fail.");
        }
        Some(Step::Key(Place::Fail)) => {
            return refuse(&shared, number, StatusCode::UNAUTHORIZED, &format!("Incorrect API key provided: {key}."));
        }
        Some(Step::Html(status)) => {
            end(&shared, number, End::Finished);
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_REQUEST);
            let page = "<html><head><title>Bad gateway</title></head><body><h1>nginx</h1></body></html>";
            return (status, [(header::CONTENT_TYPE, "text/html")], page).into_response();
        }
        _ => {}
    }

    // One chunk at most waits: what the script has done is what the caller was sent.
    let (chunks, receiver) = mpsc::channel(1);
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let usage = body["stream_options"]["include_usage"] == json!(true);
    tokio::spawn(async move {
        let mut script = Script { chunks, model, usage, number, key, shared };
        let outcome = script.run(steps).await;
        end(&script.shared, number, if outcome.is_ok() { End::Finished } else { End::HungUp });
    });
    let stream = futures::stream::unfold(receiver, async |mut receiver| {
        let chunk: Result<Bytes, std::io::Error> = receiver.recv().await?;
        Some((chunk, receiver))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

fn refuse(shared: &Shared, number: usize, status: StatusCode, message: &str) -> Response {
    end(shared, number, End::Finished);
    (status, Json(json!({"error": {"message": message, "type": "test_error", "code": "told_to"}}))).into_response()
}

fn end(shared: &Shared, number: usize, end: End) {
    shared.send_modify(|record| {
        if let Some(seen) = record.requests.get_mut(number) {
            seen.end = Some(end);
        }
    });
}

/// The caller closed the connection.
struct HungUp;

/// A response that is being streamed.
struct Script {
    chunks: mpsc::Sender<Result<Bytes, std::io::Error>>,
    model: String,
    usage: bool,
    number: usize,
    /// What the caller authorised itself with.
    key: String,
    shared: Shared,
}

impl Script {
    async fn run(&mut self, steps: Vec<Step>) -> Result<(), HungUp> {
        self.delta(json!({"role": "assistant", "content": ""})).await?;
        let mut calls = 0;
        let mut finish = None;
        for step in steps {
            match step {
                Step::Words { count, pause } => self.words(count, pause).await?,
                Step::Letters(count) => {
                    let letter = |n: u32| if n.is_multiple_of(2) { char::from(b'a' + (n / 2 % 26) as u8) } else { ' ' };
                    self.paced((0..count).map(|n| letter(n).to_string()), Duration::ZERO).await?;
                }
                Step::Markdown { bytes, pause } => {
                    let text = script::markdown(bytes);
                    self.paced(text.split_inclusive(' ').map(str::to_owned), pause).await?;
                }
                Step::Say(text) => self.delta(json!({"content": text})).await?,
                Step::Reason(text) => self.delta(json!({"reasoning_content": text})).await?,
                Step::Tool { name, input } => {
                    self.call(calls, &name, &input).await?;
                    calls += 1;
                }
                Step::Key(Place::Tool) => {
                    self.call(calls, "clock", &json!({"zone": self.key})).await?;
                    calls += 1;
                }
                Step::Key(place @ (Place::Say | Place::Reason)) => {
                    let field = if place == Place::Say { "content" } else { "reasoning_content" };
                    let (one, other) = self.key.split_at(self.key.len() / 2);
                    for text in [format!("The key is {one}"), format!("{other}, I think.")] {
                        self.delta(json!({field: text})).await?;
                    }
                }
                Step::Key(Place::Error) => {
                    let message = format!("The key {} is used up.", self.key);
                    return self.event(&json!({"error": {"message": message}}).to_string()).await;
                }
                Step::Key(Place::Fail) => return self.event("{\"error\": {\"message\": \"Too late to fail.\"}}").await,
                Step::Fail(_) | Step::Html(_) => return self.event("{\"error\": {\"message\": \"Too late to fail.\"}}").await,
                Step::Error(text) => return self.event(&json!({"error": {"message": text}}).to_string()).await,
                Step::Cut(count) => {
                    self.words(count, Duration::ZERO).await?;
                    return self.send(Err(std::io::Error::other("told to break the connection"))).await;
                }
                Step::Close => return Ok(()),
                Step::Malformed => self.event("{\"choices\": [oops").await?,
                Step::Stall => {
                    self.chunks.closed().await;
                    return Err(HungUp);
                }
                Step::Hold(name) => self.hold(&name).await?,
                Step::Finish(reason) => finish = Some(reason),
            }
        }
        let reason = finish.unwrap_or_else(|| if calls > 0 { "tool_calls" } else { "stop" }.to_owned());
        self.chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}]), Value::Null).await?;
        if self.usage {
            self.chunk(json!([]), json!({"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18})).await?;
        }
        self.event("[DONE]").await
    }

    async fn call(&self, nth: usize, name: &str, input: &Value) -> Result<(), HungUp> {
        let id = format!("call-{}-{nth}", self.number);
        let function = json!({"name": name, "arguments": input.to_string()});
        self.delta(json!({"tool_calls": [{"index": nth, "id": id, "type": "function", "function": function}]})).await
    }

    async fn words(&mut self, count: u64, pause: Duration) -> Result<(), HungUp> {
        let word = |n| if n == 1 { "word1".to_owned() } else { format!(" word{n}") };
        self.paced((1..=count).map(word), pause).await
    }

    /// One piece every so often.
    async fn paced(&mut self, pieces: impl Iterator<Item = String>, pause: Duration) -> Result<(), HungUp> {
        let start = Instant::now();
        for (n, text) in (0..).zip(pieces) {
            if !pause.is_zero() {
                self.unless_hung_up(tokio::time::sleep_until(start + pause * n)).await?;
            }
            self.delta(json!({"content": text})).await?;
        }
        Ok(())
    }

    async fn hold(&self, name: &str) -> Result<(), HungUp> {
        self.shared.send_modify(|record| {
            record.reached.insert(name.to_owned());
        });
        let mut changes = self.shared.subscribe();
        let released = changes.wait_for(|record| record.released.contains(name));
        // It fails only when the sender is gone, and `self` holds it.
        self.unless_hung_up(released).await.map(drop)
    }

    async fn unless_hung_up<T>(&self, wait: impl Future<Output = T>) -> Result<T, HungUp> {
        tokio::select! {
            done = wait => Ok(done),
            () = self.chunks.closed() => Err(HungUp),
        }
    }

    async fn delta(&self, delta: Value) -> Result<(), HungUp> {
        self.chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]), Value::Null).await
    }

    async fn chunk(&self, choices: Value, usage: Value) -> Result<(), HungUp> {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.number),
            "object": "chat.completion.chunk",
            "created": 0,
            "model": self.model,
            "choices": choices,
        });
        if !usage.is_null() {
            chunk["usage"] = usage;
        }
        self.event(&chunk.to_string()).await
    }

    async fn event(&self, data: &str) -> Result<(), HungUp> {
        self.send(Ok(format!("data: {data}\n\n").into())).await
    }

    async fn send(&self, chunk: Result<Bytes, std::io::Error>) -> Result<(), HungUp> {
        self.chunks.send(chunk).await.map_err(|_| HungUp)
    }
}
