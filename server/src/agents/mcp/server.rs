//! One MCP server and the connection to it.
//!
//! The connection is made when a turn first needs it, in a task of its own: turns that wait for it may come and go. Once it is lost,
//! the next turn that needs it makes a new one. A server that did not start is left alone for a while, longer each time, so that
//! turns do not wait for it over and over.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    error::Error,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::StatusCode;
use rmcp::{
    ClientHandler, Peer, RoleClient, ServiceError, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams,
        Tool as RawTool,
    },
    service::{ClientInitializeError, NotificationContext, RunningService},
    transport::streamable_http_client::StreamableHttpError,
};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::{
    Listed, output,
    transport::{self, Transport},
};
use crate::agents::{model::ToolDefinition, tools::ToolEvent};
use crate::redact::Redactor;

/// Tools of a server that are taken. Providers take fewer; this bounds what a broken server can make us keep.
const TOOLS_MAX: usize = 512;
/// Bytes of a tool's name.
const NAME_BYTES: usize = 128;
/// Bytes of a tool's description.
const DESCRIPTION_BYTES: usize = 16 * 1024;
/// Bytes of a server's own words that an error repeats.
const QUOTE_BYTES: usize = 500;
/// How long a server that did not start is left alone, the first time and at most.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a connection may take to be closed: the program is asked twice to end, and then killed.
const CLOSE: Duration = Duration::from_secs(7);

/// A connection that is being made. The error is for people.
type Starting = Shared<BoxFuture<'static, Result<Arc<Connection>, String>>>;

enum State {
    /// There is no connection.
    Down(Option<Failure>),
    Starting(Starting),
    Up(Arc<Connection>),
    /// This server goes down.
    Closed,
}

/// An attempt to connect that failed.
#[derive(Clone)]
struct Failure {
    why: String,
    /// Not tried again before that.
    until: Instant,
    pause: Duration,
}

/// A server of the configuration.
pub(super) struct Server {
    pub(super) id: String,
    transport: Transport,
    start: Duration,
    call: Duration,
    redactor: Redactor,
    state: Mutex<State>,
}

impl Server {
    pub(super) fn new(id: String, transport: Transport, start: Duration, call: Duration, redactor: Redactor) -> Self {
        Self { id, transport, start, call, redactor, state: Mutex::new(State::Down(None)) }
    }

    /// The tools that it has now.
    ///
    /// # Errors
    /// Why they cannot be listed, as a sentence.
    pub(super) async fn tools(self: &Arc<Self>) -> Result<Arc<[Arc<Listed>]>, String> {
        let connection = self.connection().await?;
        match timeout(self.start, connection.list(&self.id)).await {
            Ok(Ok(tools)) => Ok(tools),
            Ok(Err(error)) => {
                self.forget_if_lost(&connection, &error);
                Err(self.says(&format!("did not list its tools: {}.", self.words(&error))))
            }
            Err(_) => {
                let why = self.says(&format!("did not list its tools within {} s (start_seconds).", self.start.as_secs()));
                let failure = Failure { why: why.clone(), until: Instant::now() + PAUSE_MAX, pause: PAUSE_MAX };
                self.forget(&connection, Some(failure));
                Err(why)
            }
        }
    }

    /// Calls a tool. Dropping the future tells the server that nobody waits for the answer any more.
    pub(super) async fn call(self: &Arc<Self>, tool: &str, input: Value) -> ToolEvent {
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(why) => return ToolEvent::Failed(format!("{why} The tool did not run.")),
        };
        let mut request = CallToolRequestParams::new(tool.to_owned());
        request.arguments = match input {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        };
        let answer = match timeout(self.call, connection.peer.call_tool_once(request)).await {
            Ok(answer) => answer,
            Err(_) => {
                return ToolEvent::Failed(self.says(&format!(
                    "did not answer within {} s (call_seconds) and was told to stop. It is unknown whether the call took effect.",
                    self.call.as_secs()
                )));
            }
        };
        match answer {
            Ok(CallToolResponse::Complete(result)) => output::event(result, &self.redactor),
            Ok(_) => ToolEvent::Failed(self.says("wants something beside the call's input, which it cannot get here.")),
            Err(ServiceError::McpError(error)) => {
                ToolEvent::Failed(self.says(&format!("refused the call: {}.", self.quote(&error.message))))
            }
            Err(error) if is_refusal(&error) => {
                self.forget_if_lost(&connection, &error);
                ToolEvent::Failed(self.says(&format!("refused the call: {}.", self.words(&error))))
            }
            Err(error) => {
                self.forget_if_lost(&connection, &error);
                ToolEvent::Failed(self.says(&format!(
                    "was lost while the tool ran: {}. It is unknown whether the call took effect.",
                    self.words(&error)
                )))
            }
        }
    }

    /// Ends the connection, and the program behind it.
    pub(super) async fn close(&self) {
        let before = std::mem::replace(&mut *self.lock(), State::Closed);
        let closing = async {
            let connection = match before {
                State::Up(connection) => connection,
                State::Starting(starting) => starting.await.ok()?,
                State::Down(_) | State::Closed => return None,
            };
            let service = connection.service.lock().unwrap_or_else(PoisonError::into_inner).take();
            service?.close().await.ok()
        };
        if timeout(CLOSE, closing).await.is_err() {
            tracing::warn!(server = self.id, "an MCP server did not end when it was asked to");
        }
    }

    /// The connection, made where there is none.
    async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        let starting = {
            let mut state = self.lock();
            let failure = match &*state {
                State::Up(connection) if !connection.peer.is_transport_closed() => return Ok(Arc::clone(connection)),
                State::Closed => return Err(self.says("is closed: this server goes down.")),
                State::Down(Some(failure)) if Instant::now() < failure.until => return Err(failure.why.clone()),
                State::Down(failure) => failure.clone(),
                State::Up(_) | State::Starting(_) => None,
            };
            match &*state {
                State::Starting(starting) => starting.clone(),
                _ => {
                    let starting = Arc::clone(self).start(failure).boxed().shared();
                    tokio::spawn(starting.clone());
                    *state = State::Starting(starting.clone());
                    starting
                }
            }
        };
        starting.await
    }

    async fn start(self: Arc<Self>, before: Option<Failure>) -> Result<Arc<Connection>, String> {
        let connected = match timeout(self.start, self.connect()).await {
            Ok(connected) => connected,
            Err(_) => Err(format!("did not answer within {} s (start_seconds).", self.start.as_secs())),
        };
        let mut state = self.lock();
        if matches!(*state, State::Closed) {
            return connected.map(Arc::new).map_err(|what| self.says(&what));
        }
        match connected {
            Ok(connection) => {
                tracing::info!(server = self.id, "connected to an MCP server");
                let connection = Arc::new(connection);
                *state = State::Up(Arc::clone(&connection));
                Ok(connection)
            }
            Err(what) => {
                let why = self.says(&what);
                tracing::warn!(server = self.id, "{why}");
                let pause = before.map_or(PAUSE_FIRST, |before| (before.pause * 2).min(PAUSE_MAX));
                *state = State::Down(Some(Failure { why: why.clone(), until: Instant::now() + pause, pause }));
                Err(why)
            }
        }
    }

    /// Connects and greets. The error says what the server did, without naming it.
    async fn connect(&self) -> Result<Connection, String> {
        let stale = Arc::new(AtomicBool::new(false));
        let handler = Handler { stale: Arc::clone(&stale) };
        let service = match &self.transport {
            Transport::Missing(what) => return Err(format!("cannot be used: {what}.")),
            Transport::Program { command, env } => {
                let program = command.first().map_or("", String::as_str);
                let (process, stderr) = transport::start(command, env).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => format!("cannot be started: there is no program `{program}`."),
                    _ => format!("cannot be started: `{program}`: {error}."),
                })?;
                if let Some(stderr) = stderr {
                    let redactor = self.redactor.clone();
                    tokio::spawn(transport::log(self.id.clone(), stderr, move |line| redactor.text(line)));
                }
                handler.serve(process).await
            }
            Transport::Http { url, token, client } => handler.serve(transport::http(client, url, token.as_ref())).await,
        };
        let service = service.map_err(|error| match error {
            ClientInitializeError::ConnectionClosed(_) => "ended before it answered.".to_owned(),
            ClientInitializeError::JsonRpcError(error) => format!("refused to start: {}.", self.quote(&error.message)),
            ClientInitializeError::TransportError { error, .. } => {
                format!("cannot be reached: {}.", self.quote(&root_cause(error.error.as_ref())))
            }
            other => format!("does not speak MCP as expected: {}.", self.quote(&other.to_string())),
        })?;
        let peer = service.peer().clone();
        Ok(Connection { peer, service: Mutex::new(Some(service)), stale, listed: tokio::sync::Mutex::new(None) })
    }

    /// A connection that failed is not used again.
    fn forget_if_lost(&self, lost: &Arc<Connection>, error: &ServiceError) {
        if matches!(error, ServiceError::TransportClosed | ServiceError::TransportSend(_)) {
            self.forget(lost, None);
        }
    }

    fn forget(&self, lost: &Arc<Connection>, failure: Option<Failure>) {
        let mut state = self.lock();
        if matches!(&*state, State::Up(connection) if Arc::ptr_eq(connection, lost)) {
            *state = State::Down(failure);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn says(&self, what: &str) -> String {
        format!("The MCP server `{}` {what}", self.id)
    }

    fn words(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => self.quote(&error.message),
            ServiceError::TransportClosed => "it ended or closed the connection".to_owned(),
            ServiceError::TransportSend(error) => self.quote(&root_cause(error.error.as_ref())),
            other => self.quote(&other.to_string()),
        }
    }

    /// Words that are not ours: on one line, not too long, without a full stop and without secrets.
    fn quote(&self, words: &str) -> String {
        let line = self.redactor.text(words.split_whitespace().collect::<Vec<_>>().join(" "));
        line[..line.floor_char_boundary(QUOTE_BYTES)].trim_end_matches('.').to_owned()
    }
}

/// Whether the server answered that it does not take the request, so that nothing ran.
fn is_refusal(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    match error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(
            StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::InsufficientScope(_)
            | StreamableHttpError::SessionExpired,
        ) => true,
        Some(StreamableHttpError::HttpStatus(status)) => status.status == StatusCode::TOO_MANY_REQUESTS.as_u16(),
        // The library has no field for the status of any other answer.
        Some(StreamableHttpError::UnexpectedServerResponse(said)) => said.starts_with("HTTP 3") || said.starts_with("HTTP 4"),
        _ => false,
    }
}

/// The innermost reason of an error. The outer ones hold the address.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => error,
        Some(StreamableHttpError::UnexpectedServerResponse(said)) => {
            return format!("it answered {}", said.trim_end_matches([' ', ':']));
        }
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => {
            return "it refused access; check `token`".to_owned();
        }
        _ => error,
    };
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// A connection.
struct Connection {
    peer: Peer<RoleClient>,
    /// Dropping it closes the connection. Taken out to close it in order.
    service: Mutex<Option<RunningService<RoleClient, Handler>>>,
    /// The list of tools changed since it was asked for.
    stale: Arc<AtomicBool>,
    /// The tools, once they were asked for.
    listed: tokio::sync::Mutex<Option<Arc<[Arc<Listed>]>>>,
}

impl Connection {
    /// The tools, asked for where they are not known or have changed.
    async fn list(&self, server: &str) -> Result<Arc<[Arc<Listed>]>, ServiceError> {
        let mut listed = self.listed.lock().await;
        if let Some(tools) = &*listed
            && !self.stale.load(Ordering::Acquire)
        {
            return Ok(Arc::clone(tools));
        }
        // Before asking: a change that comes while the server answers may not be in the answer. And whoever asks may be dropped.
        *listed = None;
        self.stale.store(false, Ordering::Release);
        let tools = self.ask(server).await?;
        *listed = Some(Arc::clone(&tools));
        Ok(tools)
    }

    async fn ask(&self, server: &str) -> Result<Arc<[Arc<Listed>]>, ServiceError> {
        let mut tools = Vec::new();
        let mut names = BTreeSet::new();
        let (mut cursor, mut left_out) = (None, 0_u32);
        loop {
            let before = tools.len();
            let page =
                self.peer.list_tools(cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)))).await?;
            for tool in page.tools {
                let name = tool.name.to_string();
                let is_good = (1..=NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control);
                if !is_good || tools.len() == TOOLS_MAX || !names.insert(name.clone()) {
                    left_out += 1;
                    continue;
                }
                tools.push(Arc::new(Listed { definition: definition(server, tool), name }));
            }
            // A page without anything new leads nowhere, and may lead there for ever.
            cursor = page.next_cursor.filter(|_| (before + 1..TOOLS_MAX).contains(&tools.len()));
            if cursor.is_none() {
                if left_out > 0 {
                    tracing::warn!(
                        server,
                        left_out,
                        "left out tools of an MCP server: their names are unusable or taken, or there are more than {TOOLS_MAX}"
                    );
                }
                return Ok(tools.into());
            }
        }
    }
}

fn definition(server: &str, tool: RawTool) -> ToolDefinition {
    let description = tool.description.or(tool.title.map(Cow::Owned)).unwrap_or_default();
    let mut schema: Map<String, Value> = (*tool.input_schema).clone();
    // Providers refuse a schema that does not say that it is an object's.
    schema.entry("type").or_insert_with(|| "object".into());
    ToolDefinition {
        name: format!("mcp:{server}/{}", tool.name),
        description: description[..description.floor_char_boundary(DESCRIPTION_BYTES)].to_owned(),
        input_schema: Value::Object(schema),
    }
}

/// What the server hears and may say: that we offer nothing beside calling its tools, and that their list changed.
struct Handler {
    stale: Arc<AtomicBool>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("turnfast", env!("CARGO_PKG_VERSION")))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.stale.store(true, Ordering::Release);
    }
}
