//! A person's API client. It follows contract 1 and checks, on the way, what the contract says of every stream and every problem.

use std::{collections::VecDeque, fmt, sync::Once};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use reqwest::{RequestBuilder, Response, redirect::Policy};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use turnfast_shared::{
    Event, ExecutionStatus, Message, Part,
    api::{CancelAnswer, ChatRequest, ExecutionUpdated, PushEvent, ResumeRequest, ThreadSnapshot},
    ids::{ExecutionId, MessageId, ThreadId},
    message::Role,
    problem::Problem,
    sse::{Parser, SseEvent},
};

use crate::within;

/// The project that tests use where they name no other.
pub const PROJECT: &str = "demo";

/// An HTTP client that talks to this machine only and follows no redirect.
///
/// # Errors
/// It cannot be built.
pub fn http() -> Result<reqwest::Client> {
    Ok(http_builder().build()?)
}

/// The same, with a connection of its own for every request.
///
/// # Errors
/// It cannot be built.
pub fn http_without_reuse() -> Result<reqwest::Client> {
    Ok(http_builder().pool_max_idle_per_host(0).build()?)
}

fn http_builder() -> reqwest::ClientBuilder {
    static TLS: Once = Once::new();
    // The client wants a TLS provider although no test speaks TLS. An error says that there is one already.
    TLS.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    reqwest::Client::builder().no_proxy().redirect(Policy::none())
}

/// A signed-in caller.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
    project: String,
}

impl Client {
    /// A caller of the server at `url`. Without a token (an empty one), nobody.
    ///
    /// # Errors
    /// No HTTP client is to be had.
    pub fn new(url: &str, token: &str) -> Result<Self> {
        Ok(Self { http: http()?, url: url.to_owned(), token: token.to_owned(), project: PROJECT.to_owned() })
    }

    /// Another caller, perhaps of another server, over the same HTTP client.
    #[must_use]
    pub fn with(&self, url: &str, token: &str) -> Self {
        Self { url: url.to_owned(), token: token.to_owned(), ..self.clone() }
    }

    /// The same caller, at another server.
    #[must_use]
    pub fn at(self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self }
    }

    /// The same caller, whose requests go another way.
    #[must_use]
    pub fn over(self, http: reqwest::Client) -> Self {
        Self { http, ..self }
    }

    /// The same caller, whose agents are those of another project.
    #[must_use]
    pub fn in_project(self, project: &str) -> Self {
        Self { project: project.to_owned(), ..self }
    }

    /// A request to any path.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        if self.token.is_empty() { request } else { request.bearer_auth(&self.token) }
    }

    /// A request to a path below the agent's.
    pub fn agent(&self, method: Method, agent: &str, path: &str) -> RequestBuilder {
        self.request(method, &format!("/projects/{}/agents/v2/{agent}{path}", self.project))
    }

    /// Submits a message.
    ///
    /// # Errors
    /// It is refused.
    pub async fn submit(&self, agent: &str, request: &ChatRequest) -> Result<Live> {
        Live::begin(self.agent(Method::POST, agent, "/chat").json(request)).await
    }

    /// Submits `text` in a new thread.
    ///
    /// # Errors
    /// It is refused.
    pub async fn say(&self, agent: &str, text: &str) -> Result<Live> {
        self.submit(agent, &ChatRequest { message: text.to_owned(), ..ChatRequest::default() }).await
    }

    /// Submits `text` in a thread that exists.
    ///
    /// # Errors
    /// It is refused.
    pub async fn say_in(&self, agent: &str, thread: ThreadId, text: &str) -> Result<Live> {
        let request = ChatRequest { message: text.to_owned(), session_id: Some(thread), ..ChatRequest::default() };
        self.submit(agent, &request).await
    }

    /// Answers an open interaction.
    ///
    /// # Errors
    /// It is refused.
    pub async fn resume(&self, agent: &str, request: &ResumeRequest) -> Result<Live> {
        Live::begin(self.agent(Method::POST, agent, "/chat/resume").json(request)).await
    }

    /// Reads a thread.
    ///
    /// # Errors
    /// It is refused.
    pub async fn read(&self, agent: &str, thread: ThreadId) -> Result<ThreadSnapshot> {
        answer(self.agent(Method::GET, agent, &format!("/chat/{thread}/messages"))).await
    }

    /// Asks an execution to stop.
    ///
    /// # Errors
    /// It is refused.
    pub async fn stop(&self, agent: &str, thread: ThreadId, execution: ExecutionId) -> Result<CancelAnswer> {
        answer(self.agent(Method::DELETE, agent, &format!("/chat/{thread}/executions/{execution}"))).await
    }

    /// Follows the user's notifications.
    ///
    /// # Errors
    /// It is refused.
    pub async fn push(&self) -> Result<Push> {
        self.try_push().await?.map_err(|problem| anyhow::anyhow!("refused: {problem:#?}"))
    }

    /// Follows the user's notifications, unless it is refused.
    ///
    /// # Errors
    /// The connection failed, or the answer is not as the contract says.
    pub async fn try_push(&self) -> Result<Result<Push, Problem>> {
        let response = within("a stream", self.request(Method::GET, "/push").send()).await?;
        if !response.status().is_success() {
            return Ok(Err(problem(response).await?));
        }
        let mut push = Push { stream: EventStream::of(response)? };
        let first = push.next().await?;
        ensure!(first == PushEvent::Connected, "the first notification is {first:?}");
        Ok(Ok(push))
    }

    /// Reads a thread until `found` is content, and again only when told that it changed: a notification that is lost fails the
    /// test.
    ///
    /// # Errors
    /// A read is refused, or the state does not come.
    pub async fn read_until(
        &self,
        agent: &str,
        thread: ThreadId,
        what: &str,
        found: impl Fn(&ThreadSnapshot) -> bool,
    ) -> Result<ThreadSnapshot> {
        let mut push = self.push().await?;
        let mut last = None;
        let outcome = within(what, async {
            loop {
                let snapshot = self.read(agent, thread).await?;
                if found(&snapshot) {
                    return anyhow::Ok(snapshot);
                }
                let newer_than = snapshot.revision;
                last = Some(snapshot);
                loop {
                    match push.next().await? {
                        PushEvent::AgentExecutionUpdated(update)
                            if update.thread_id == thread && update.revision > newer_than =>
                        {
                            break;
                        }
                        // Anything may have changed.
                        PushEvent::Connected => break,
                        PushEvent::AgentExecutionUpdated(_) | PushEvent::Ping => {}
                    }
                }
            }
        })
        .await;
        outcome.with_context(|| format!("the last read was {last:#?}"))
    }

    /// Waits until nothing runs in the thread, and returns its last message.
    ///
    /// # Errors
    /// It keeps running.
    pub async fn settled(&self, agent: &str, thread: ThreadId) -> Result<Message> {
        let snapshot = self.read_until(agent, thread, "the end of the turn", |read| read.active_execution_id.is_none()).await?;
        Ok(assistant(&snapshot)?.clone())
    }
}

/// The thread's last message, which must be the agent's.
///
/// # Errors
/// It is not.
pub fn assistant(snapshot: &ThreadSnapshot) -> Result<&Message> {
    let last = snapshot.messages.last().context("the thread is empty")?;
    ensure!(last.role == Role::Assistant, "the last message is not the agent's: {last:#?}");
    Ok(last)
}

/// Parts as JSON without the times in them: a reader of the live stream knows none but the tools'.
#[must_use]
pub fn without_times(parts: &[Part]) -> Value {
    let mut json = serde_json::to_value(parts).unwrap_or_default();
    for part in json.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        part.retain(|name, _| !name.ends_with("Time"));
    }
    json
}

/// What a reader has who held `before` and then read what changed after it.
#[must_use]
pub fn merged(before: &ThreadSnapshot, change: ThreadSnapshot) -> ThreadSnapshot {
    if !change.partial {
        return change;
    }
    let gone = change.deleted_message_ids.clone().unwrap_or_default();
    let mut messages: Vec<_> = before.messages.iter().filter(|message| !gone.contains(&message.id)).cloned().collect();
    for new in change.messages {
        match messages.iter_mut().find(|message| message.id == new.id) {
            Some(old) => *old = new,
            None => messages.push(new),
        }
    }
    ThreadSnapshot { messages, partial: false, deleted_message_ids: None, ..change }
}

/// Sends a request that is to succeed.
///
/// # Errors
/// It does not; its problem is in the text.
pub async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> Result<T> {
    let response = within("an answer", request.send()).await?;
    if !response.status().is_success() {
        bail!("refused: {:#?}", problem(response).await?);
    }
    within("a body", response.json()).await
}

/// Sends a request that may succeed or be refused.
///
/// # Errors
/// The connection failed, or the answer is not as the contract says.
pub async fn answer_or_problem<T: DeserializeOwned>(request: RequestBuilder) -> Result<Result<T, Problem>> {
    let response = within("an answer", request.send()).await?;
    if !response.status().is_success() {
        return Ok(Err(problem(response).await?));
    }
    Ok(Ok(within("a body", response.json()).await?))
}

/// Sends a request that is to be refused.
///
/// # Errors
/// It is not, or not as the contract says.
pub async fn refusal(request: RequestBuilder) -> Result<Problem> {
    problem(within("a refusal", request.send()).await?).await
}

async fn problem(response: Response) -> Result<Problem> {
    let status = response.status();
    let comes_back = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let body = within("a body", response.text()).await?;
    ensure!(kind == "application/problem+json", "{status} with a body of type `{kind}`: {body}");
    let problem: Problem = serde_json::from_str(&body).with_context(|| format!("{status}: {body}"))?;
    ensure!(problem.status == status.as_u16() && problem.code.status() == status.as_u16(), "{status} does not go with {body}");
    ensure!(!matches!(problem.status, 429 | 503) || comes_back.is_some(), "{status} without a time to come back: {body}");
    Ok(problem)
}

/// An event stream that is read piece by piece.
#[derive(Debug)]
struct EventStream {
    response: Response,
    parser: Parser,
    ready: VecDeque<SseEvent>,
    /// How the connection ended, once it did.
    broken: Option<String>,
}

impl EventStream {
    async fn open(request: RequestBuilder) -> Result<Self> {
        let response = within("a stream", request.send()).await?;
        if !response.status().is_success() {
            bail!("refused: {:#?}", problem(response).await?);
        }
        Self::of(response)
    }

    fn of(response: Response) -> Result<Self> {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        ensure!(header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream")), "{:?}", response.headers());
        ensure!(header("cache-control") == Some("no-cache, no-transform"), "{:?}", response.headers());
        // nginx takes this one for itself.
        let by_nginx = header("server").is_some_and(|server| server.starts_with("nginx"));
        ensure!(by_nginx || header("x-accel-buffering") == Some("no"), "{:?}", response.headers());
        Ok(Self { response, parser: Parser::new(), ready: VecDeque::new(), broken: None })
    }

    /// The next event; `None`: the stream has ended, well or not.
    async fn next(&mut self) -> Result<Option<SseEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let chunk =
                tokio::time::timeout(crate::patience(), self.response.chunk()).await.context("the stream stands still")?;
            match chunk {
                Ok(Some(bytes)) => self.parser.feed(&bytes, |event| self.ready.push_back(event))?,
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.broken = Some(format!("{error:#}"));
                    return Ok(None);
                }
            }
        }
    }
}

/// What `execution-started` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Started {
    /// The execution.
    pub execution: ExecutionId,
    /// The thread.
    pub thread: ThreadId,
    /// The message that was submitted.
    pub message: MessageId,
    /// The message that answers it.
    pub assistant: MessageId,
}

/// The live stream of a turn, from its first event on. Dropping it closes the connection.
#[derive(Debug)]
pub struct Live {
    stream: EventStream,
    /// What `execution-started` said.
    pub started: Started,
    /// All events so far.
    pub seen: Vec<Event>,
    number: Option<u64>,
}

/// What became of a submit or an answer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once")]
pub enum Attempt {
    /// It was accepted.
    Accepted(Live),
    /// It was refused.
    Refused(Problem),
}

/// A stream ended before it said what was waited for.
#[derive(Debug)]
pub struct EndedEarly;

impl fmt::Display for EndedEarly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream ended early")
    }
}

impl std::error::Error for EndedEarly {}

/// Sends a submit or an answer that may be refused.
///
/// # Errors
/// The connection failed, or an answer is not as the contract says.
pub async fn attempt(request: RequestBuilder) -> Result<Attempt> {
    let response = within("an answer", request.send()).await?;
    if response.status().is_success() {
        Ok(Attempt::Accepted(Live::from(EventStream::of(response)?).await?))
    } else {
        Ok(Attempt::Refused(problem(response).await?))
    }
}

impl Live {
    async fn begin(request: RequestBuilder) -> Result<Self> {
        Self::from(EventStream::open(request).await?).await
    }

    async fn from(mut stream: EventStream) -> Result<Self> {
        let first = stream.next().await?.ok_or(EndedEarly)?;
        let event: Event = serde_json::from_str(&first.data).with_context(|| first.data.clone())?;
        let Event::ExecutionStarted { execution_id, session_id, message_id, assistant_message_id } = event else {
            bail!("the first event is {}", first.data);
        };
        let started =
            Started { execution: execution_id, thread: session_id, message: message_id, assistant: assistant_message_id };
        let mut live = Self { stream, started, seen: vec![event], number: None };
        live.check_id(&first.id)?;
        Ok(live)
    }

    /// Ids are `<executionId>:<n>`, and `n` grows by one.
    fn check_id(&mut self, id: &str) -> Result<()> {
        let (execution, number) = id.split_once(':').with_context(|| format!("`{id}` is no id of an event"))?;
        let number: u64 = number.parse()?;
        ensure!(execution == self.started.execution.to_string(), "the id {id} belongs to another execution");
        ensure!(self.number.is_none_or(|last| number == last + 1), "the id {id} comes after number {:?}", self.number);
        self.number = Some(number);
        Ok(())
    }

    /// The next event; `None`: the stream has ended, well or not.
    ///
    /// # Errors
    /// An event is not as the contract says, or none comes.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let Some(next) = self.stream.next().await? else { return Ok(None) };
        self.check_id(&next.id)?;
        let event: Event = serde_json::from_str(&next.data).with_context(|| next.data.clone())?;
        ensure!(!matches!(self.seen.last(), Some(Event::Done { .. })), "{} comes after `done`", next.data);
        self.seen.push(event.clone());
        Ok(Some(event))
    }

    /// Reads on until `found` is content with an event.
    ///
    /// # Errors
    /// The stream ends before.
    pub async fn until(&mut self, what: &str, found: impl Fn(&Event) -> bool) -> Result<Event> {
        while let Some(event) = self.next().await? {
            if found(&event) {
                return Ok(event);
            }
        }
        bail!("the stream ended before {what} ({:?}): {:#?}", self.stream.broken, self.seen)
    }

    /// Reads on until this much text has come.
    ///
    /// # Errors
    /// The stream ends before.
    pub async fn until_text(&mut self, text: &str) -> Result<()> {
        while !self.text().contains(text) {
            let event = self.next().await?;
            ensure!(event.is_some(), "the stream ended ({:?}) before `{text}` came: {:#?}", self.stream.broken, self.seen);
        }
        Ok(())
    }

    /// Reads to the end, which must be a `done`, and returns its status.
    ///
    /// # Errors
    /// The stream ends otherwise.
    pub async fn done(&mut self) -> Result<ExecutionStatus> {
        while self.next().await?.is_some() {}
        match self.seen.last() {
            Some(Event::Done { session_id, execution_id, status }) => {
                ensure!(*session_id == self.started.thread && *execution_id == self.started.execution, "`done` of another turn");
                Ok(*status)
            }
            last => bail!("the stream ended ({:?}) with {last:?}", self.stream.broken),
        }
    }

    /// Reads to the end, whatever it is.
    ///
    /// # Errors
    /// An event is not as the contract says.
    pub async fn rest(&mut self) -> Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// The text so far.
    #[must_use]
    pub fn text(&self) -> String {
        self.seen
            .iter()
            .filter_map(|event| if let Event::TextDelta { delta, .. } = event { Some(delta.as_str()) } else { None })
            .collect()
    }
}

/// A user's notifications.
#[derive(Debug)]
pub struct Push {
    stream: EventStream,
}

impl Push {
    /// The next notification.
    ///
    /// # Errors
    /// The stream ended.
    pub async fn next(&mut self) -> Result<PushEvent> {
        let next = self.next_json().await?;
        serde_json::from_value(next.clone()).with_context(|| next.to_string())
    }

    /// The same as it came: a type would not see a field that it does not know.
    ///
    /// # Errors
    /// The stream ended.
    pub async fn next_json(&mut self) -> Result<Value> {
        let next = self.stream.next().await?.ok_or(EndedEarly).with_context(|| format!("`/push`: {:?}", self.stream.broken))?;
        serde_json::from_str(&next.data).with_context(|| next.data.clone())
    }

    /// The next notification, where it is an update.
    ///
    /// # Errors
    /// The stream ended.
    pub async fn update(&mut self) -> Result<Option<ExecutionUpdated>> {
        Ok(match self.next().await? {
            PushEvent::AgentExecutionUpdated(update) => Some(update),
            PushEvent::Connected | PushEvent::Ping => None,
        })
    }
}
