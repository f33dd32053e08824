//! Endpoints that speak OpenAI's chat completions, in the dialects seen in the field.
//!
//! | module | job |
//! | --- | --- |
//! | [`request`] | a conversation as the body of a request |
//! | [`answer`] | the data of a stream as [`ModelEvent`]s |
//! | [`body`] | the bytes of an answer, whatever form they have |
//! | [`names`] | names of tools that every endpoint takes |
//! | [`think`] | `<think>…</think>` inside the text |
//! | [`redact`] | keeps secrets out of everything that comes back |
//! | this one | the connection: statuses, stalls, cuts |

mod answer;
mod body;
mod names;
mod redact;
mod request;
mod think;

#[cfg(test)]
mod tests;

use std::{
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_stream::stream;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::{Client, Response, Url, redirect};
use tokio::time::timeout;
use tracing::Instrument as _;

use self::{answer::Fault, body::BodyReader, names::Names, redact::Redaction};
use super::{
    TurnError,
    model::{Model, ModelRequest, ModelStream},
};
use crate::{
    SPANS, clock,
    config::{Provider, SecretSource},
    redact::Redactor,
};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of an error's body that are read.
const ERROR_BODY_BYTES: usize = 64 * 1024;
/// Longest wait for the body of an error.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(10);
/// Characters of a provider's own words that an error repeats.
const QUOTE_CHARS: usize = 300;

/// The HTTP clients of all providers and MCP servers, made when they are first needed.
#[derive(Default)]
pub struct Clients {
    plain: Option<Client>,
    tls: Option<Client>,
}

impl Clients {
    /// The client for addresses of the scheme of `url`.
    ///
    /// # Errors
    /// Why there is none: HTTPS needs the certificates of the system.
    pub(super) fn get(&mut self, url: &Url) -> Result<Client, String> {
        let tls = url.scheme() == "https";
        let slot = if tls { &mut self.tls } else { &mut self.plain };
        if let Some(client) = slot {
            return Ok(client.clone());
        }
        // Fails when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .user_agent(concat!("turnfast/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            // A redirect would carry the conversation somewhere that nobody configured.
            .redirect(redirect::Policy::none())
            .no_proxy();
        // Without TLS no certificates are needed: a machine that has none can still reach its own model.
        let builder = if tls { builder } else { builder.tls_certs_only([]) };
        let client = builder.build().map_err(|error| root_cause(&error))?;
        *slot = Some(client.clone());
        Ok(client)
    }
}

/// A provider of the configuration. Shared by the agents that use it, so that what one learns of it serves all.
pub struct Endpoint {
    id: String,
    /// Host and port, for errors. The address itself may hold a password.
    host: String,
    url: Url,
    authorization: Option<HeaderValue>,
    redactor: Redactor,
    stall: Duration,
    client: Client,
    /// It refuses `stream_options`.
    without_options: AtomicBool,
}

impl Endpoint {
    /// An endpoint for `provider`.
    ///
    /// # Errors
    /// What is missing or wrong in the configuration.
    pub fn new(provider: &Provider, clients: &mut Clients, redactor: Redactor) -> Result<Self, String> {
        let id = provider.id.clone();
        let mut url = Url::parse(&provider.base_url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| format!("provider `{id}`: base_url is no http or https address"))?;
        // A query stays: some endpoints want a version in it.
        url.set_path(&format!("{}/chat/completions", url.path().trim_end_matches('/')));
        let key = match &provider.api_key {
            None => None,
            Some(SecretSource::Present(key)) => Some(key.clone()),
            Some(SecretSource::Missing(place)) => return Err(place.clone()),
        };
        let authorization = match &key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))
                    .map_err(|_| format!("provider `{id}`: api_key has characters that HTTP cannot send"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let client = clients.get(&url).map_err(|why| format!("provider `{id}`: no HTTPS client ({why})"))?;
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let without_options = AtomicBool::new(false);
        Ok(Self { id, host, url, authorization, redactor, stall: provider.stall, client, without_options })
    }

    fn error(&self, code: &'static str, what: &str) -> TurnError {
        let message = format!("Provider `{}` ({}) {what}", self.id, self.host);
        TurnError { message: self.redactor.text(message), code: Some(code) }
    }

    /// Words of the endpoint as an error repeats them: without secrets, and short.
    fn quote(&self, words: String) -> String {
        shorten(&self.redactor.text(words))
    }

    fn fault(&self, fault: Fault) -> TurnError {
        match fault {
            Fault::Reported(words) => self.error("provider_error", &format!("reported an error: {}.", self.quote(words))),
            Fault::Malformed(data) => {
                self.error("provider_malformed", &format!("sent something that is no chat completion: {}.", self.quote(data)))
            }
            Fault::WebPage => self.error(
                "provider_malformed",
                "answered with a web page instead of a completion. Check base_url; it often ends in /v1.",
            ),
            Fault::TooLong => self.error("provider_malformed", "sent an answer without end. What came first is kept."),
            Fault::Cut => self.error("provider_cut", "closed the connection before the answer was complete. Try again."),
            Fault::Stalled => self.error(
                "provider_stalled",
                &format!(
                    "sent nothing for {} s. Try again; raise stall_seconds if the model needs longer.",
                    self.stall.as_secs_f32()
                ),
            ),
        }
    }

    async fn send(&self, body: Bytes) -> Result<Response, TurnError> {
        let mut request = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream, application/json;q=0.5")
            .body(body);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        match timeout(self.stall, request.send()).await {
            Err(_) => Err(self.fault(Fault::Stalled)),
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() || error.is_timeout() => Err(self.error(
                "provider_unreachable",
                &format!("cannot be reached: {}. Check that it runs and that base_url is right.", root_cause(&error)),
            )),
            Ok(Err(error)) => Err(self
                .error("provider_cut", &format!("closed the connection before it answered: {}. Try again.", root_cause(&error)))),
        }
    }

    /// Sends the request and waits for the head of a good answer.
    async fn open(&self, body: request::Body) -> Result<Response, TurnError> {
        let plain = self.without_options.load(Ordering::Relaxed);
        let response = self.send(if plain { body.plain() } else { body.with_options() }).await?;
        let refused = matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
        if plain || !refused {
            return self.accept(response).await;
        }
        // Perhaps it only does not know `stream_options`. If it does not like the request without them either, that is the error.
        let response = self.accept(self.send(body.plain()).await?).await?;
        self.without_options.store(true, Ordering::Relaxed);
        Ok(response)
    }

    async fn accept(&self, response: Response) -> Result<Response, TurnError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let target = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
            let target = self.quote(target.to_owned());
            return Err(
                self.error("provider_error", &format!("redirects to {target} ({status}). Set base_url to the final address."))
            );
        }
        let wait = match retry_after(response.headers()) {
            Some(seconds) if seconds < 120 => format!("Try again in {seconds} s."),
            Some(seconds) if seconds < 2 * 60 * 60 => format!("Try again in {} minutes.", seconds.div_ceil(60)),
            Some(seconds) if seconds < 2 * 24 * 60 * 60 => format!("Try again in {} hours.", seconds.div_ceil(60 * 60)),
            // In some days, or in the year 2099: no time to wait for.
            Some(_) | None => "Try again later.".to_owned(),
        };
        let body = timeout(ERROR_BODY_WAIT.min(self.stall), read(response, ERROR_BODY_BYTES)).await.unwrap_or_default();
        let words = error_words(&body).map(|words| format!(": {}", self.quote(words))).unwrap_or_default();
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.error(
                "provider_unauthorized",
                &format!("refused access ({status}){words}. Check api_key and what it may be used for."),
            ),
            StatusCode::TOO_MANY_REQUESTS => {
                self.error("provider_rate_limited", &format!("takes no more requests for now ({status}){words}. {wait}"))
            }
            StatusCode::NOT_FOUND => self.error(
                "provider_error",
                &format!("does not know the address or the model ({status}){words}. Check base_url and model."),
            ),
            status if status.is_server_error() => self.error("provider_error", &format!("failed ({status}){words}. {wait}")),
            status => self.error("provider_error", &format!("refused the request ({status}){words}.")),
        })
    }
}

/// A model of an endpoint.
pub struct OpenAiModel {
    endpoint: Arc<Endpoint>,
    model: String,
}

impl OpenAiModel {
    /// The model that the endpoint calls `model`.
    #[must_use]
    pub fn new(endpoint: Arc<Endpoint>, model: String) -> Self {
        Self { endpoint, model }
    }
}

impl Model for OpenAiModel {
    fn reads_files(&self) -> bool {
        true
    }

    fn stream(&self, request: ModelRequest<'_>) -> ModelStream {
        let endpoint = Arc::clone(&self.endpoint);
        let names = Names::new(request.tools);
        let body = request::Body::new(&self.model, request);
        let model = self.model.clone();
        stream! {
            // Lives as long as the answer is read.
            let span = tracing::debug_span!(target: SPANS, "model request", model);
            let opened = match body {
                Ok(body) => endpoint.open(body).instrument(span.clone()).await,
                Err(error) => Err(endpoint.error("provider_error", &format!("cannot be asked: {error}."))),
            };
            let mut body = match opened {
                Ok(response) => response.bytes_stream(),
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let mut reader = BodyReader::default();
            let mut redaction = Redaction::new(endpoint.redactor.clone());
            let mut events = Vec::new();
            let mut certain = Vec::new();
            let failure = loop {
                let read = match timeout(endpoint.stall, body.next()).await {
                    Ok(Some(Ok(bytes))) => reader.feed(&bytes, &mut events).map(|()| reader.is_done()),
                    Ok(None) => Ok(true),
                    Ok(Some(Err(_))) if !reader.may_end() => Err(Fault::Cut),
                    Err(_) if !reader.may_end() => Err(Fault::Stalled),
                    Ok(Some(Err(_))) | Err(_) => Ok(true),
                };
                match read {
                    Ok(false) => {}
                    Ok(true) => break reader.end(&mut events).err(),
                    Err(fault) => break Some(fault),
                }
                for event in events.drain(..) {
                    redaction.take(event, &mut certain);
                }
                for mut event in certain.drain(..) {
                    names.restore(&mut event);
                    yield Ok(event);
                }
            };
            drop(body);
            if failure.is_some() {
                reader.keep(&mut events);
            }
            for event in events {
                redaction.take(event, &mut certain);
            }
            redaction.end(&mut certain);
            for mut event in certain {
                names.restore(&mut event);
                yield Ok(event);
            }
            if let Some(fault) = failure {
                yield Err(endpoint.fault(fault));
            }
        }
        .boxed()
    }
}

/// At most `limit` bytes of a body, as far as it comes.
async fn read(response: Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        let room = limit - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() >= room {
            break;
        }
    }
    body
}

/// Seconds to wait, from a Retry-After in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(seconds);
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_millisecond();
    Some(u64::try_from(at - clock::now()).unwrap_or(0).div_ceil(1000))
}

/// What the body of an error says, in whatever form.
fn error_words(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if let Ok(value) = serde_json::from_str(text) {
        return Some(answer::words_of(&value).unwrap_or_else(|| text.to_owned()));
    }
    if text.starts_with('<') {
        let lower = text.to_ascii_lowercase();
        let title = lower.find("<title>").map(|at| at + "<title>".len());
        let title = title.and_then(|start| text.get(start..start + lower[start..].find('<')?)).map(str::trim);
        return Some(match title.filter(|title| !title.is_empty()) {
            Some(title) => format!("a web page, \"{title}\""),
            None => "a web page".to_owned(),
        });
    }
    (!text.is_empty()).then(|| text.to_owned())
}

/// `words` on one line, without its full stop, and not too long.
fn shorten(words: &str) -> String {
    let mut line = String::new();
    for word in words.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > QUOTE_CHARS * 4 {
            break;
        }
    }
    match line.char_indices().nth(QUOTE_CHARS) {
        Some((end, _)) => {
            line.truncate(end);
            line.push('…');
        }
        None => line.truncate(line.trim_end_matches('.').len()),
    }
    line
}

/// The innermost reason of an error, without the address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause = match error.source() {
        None if error.is_timeout() => return "it took too long".to_owned(),
        None => return "no reason was given".to_owned(),
        Some(cause) => cause,
    };
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
