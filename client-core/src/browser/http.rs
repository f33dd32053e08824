//! Requests over fetch. It turns what comes back into outcomes, and decides nothing.

use gloo_timers::callback::Timeout;
use js_sys::{Promise, Uint8Array};
use turnfast_shared::{
    Problem,
    json::{self, FromJson},
};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, AbortSignal, ReadableStreamDefaultReader, RequestCache, RequestInit, Response};

use super::Scope;
use crate::thread::{Failure, REQUEST_TIMEOUT_MS};

/// Milliseconds that the body of an answer may take.
const BODY_TIMEOUT_MS: u32 = 60_000;

/// An answer in JSON.
#[derive(Debug)]
pub struct Answer {
    status: u16,
    text: String,
}

impl Answer {
    /// What it says.
    ///
    /// # Errors
    /// [`Failure::Unreadable`]: something else.
    pub fn read<T: FromJson>(&self) -> Result<T, Failure> {
        json::read(&self.text).ok_or(Failure::Unreadable { status: self.status })
    }

    /// The text that it is; empty where the server has nothing to say.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Sends a request, with a JSON text as its body where there is one. The head of the answer is waited for
/// [`REQUEST_TIMEOUT_MS`], and its body, which may be a long thread over a slow line, 60 s. `abort` gives the request up.
///
/// # Errors
/// Whatever was not an answer that says success.
pub async fn request(
    scope: &Scope,
    method: &str,
    url: &str,
    body: Option<String>,
    abort: AbortController,
) -> Result<Answer, Failure> {
    let timeout = |after_ms| {
        let abort = abort.clone();
        Timeout::new(after_ms, move || abort.abort())
    };
    let head = timeout(REQUEST_TIMEOUT_MS);
    let response = send(scope, method, url, "application/json", body, &abort.signal()).await?;
    drop(head);
    let _body = timeout(BODY_TIMEOUT_MS);
    let status = response.status();
    if !response.ok() {
        return Err(refusal(response).await);
    }
    let text = text(&response).await.ok_or(Failure::Broken)?;
    Ok(Answer { status, text })
}

/// Sends `body` and hands the bytes of the event stream that answers to `sink`, until it ends. `Err`: there was no stream.
pub(super) async fn stream(
    scope: &Scope,
    url: &str,
    body: String,
    signal: AbortSignal,
    mut sink: Box<dyn FnMut(Vec<u8>)>,
) -> Result<(), Failure> {
    let response = send(scope, "POST", url, "text/event-stream", Some(body), &signal).await?;
    if !response.ok() {
        return Err(refusal(response).await);
    }
    let is_stream = header(&response, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let (Some(body), true) = (response.body(), is_stream) else {
        return Err(Failure::Unreadable { status: response.status() });
    };
    let reader: ReadableStreamDefaultReader = body.get_reader().unchecked_into();
    while !signal.aborted() {
        let Ok(piece) = settled(reader.read()).await else { break };
        let field = |name: &str| js_sys::Reflect::get(&piece, &name.into());
        match (field("done"), field("value")) {
            (Ok(done), Ok(bytes)) if done.is_falsy() => sink(Uint8Array::new(&bytes).to_vec()),
            _ => break,
        }
    }
    Ok(())
}

async fn send(
    scope: &Scope,
    method: &str,
    url: &str,
    accept: &str,
    body: Option<String>,
    signal: &AbortSignal,
) -> Result<Response, Failure> {
    let options = RequestInit::new();
    options.set_method(method);
    options.set_cache(RequestCache::NoStore);
    options.set_signal(Some(signal));
    // Headers as a plain object of names and values.
    let headers = js_sys::Object::new();
    let set = |name: &str, value: &str| js_sys::Reflect::set(&headers, &name.into(), &value.into());
    let _ = set("accept", accept);
    if let Some(body) = body {
        let _ = set("content-type", "application/json");
        options.set_body(&body.into());
    }
    options.set_headers(&headers);
    let answer = scope.send(url, &options).ok_or(Failure::Broken)?;
    Ok(settled(answer).await.map_err(|_| Failure::Broken)?.unchecked_into())
}

/// The one place that waits for promises, whatever their type.
async fn settled<T>(promise: Promise<T>) -> Result<JsValue, JsValue> {
    JsFuture::from(promise.unchecked_into::<Promise>()).await
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).ok()?
}

async fn text(response: &Response) -> Option<String> {
    settled(response.text().ok()?).await.ok()?.as_string()
}

async fn refusal(response: Response) -> Failure {
    let status = response.status();
    let retry_after = header(&response, "retry-after").and_then(|value| value.trim().parse().ok());
    match text(&response).await.and_then(|body| json::read::<Problem>(&body)) {
        Some(problem) => Failure::Refused { problem: Box::new(problem), retry_after },
        None => Failure::Unreadable { status },
    }
}
