//! Requests of one thread, over fetch. It turns what comes back into outcomes, and decides nothing.

use gloo_net::http::{Method, RequestBuilder, Response};
use gloo_timers::callback::Timeout;
use serde::Serialize;
use turnfast_shared::{
    Problem,
    json::{self, FromJson},
};
use wasm_bindgen::JsCast;
use web_sys::{AbortController, AbortSignal, RequestCache};

use crate::thread::{Failure, REQUEST_TIMEOUT_MS};

/// Milliseconds that the body of an answer may take.
const BODY_TIMEOUT_MS: u32 = 60_000;

/// A request that can be given up.
pub(super) struct Call {
    builder: RequestBuilder,
    signal: AbortSignal,
}

impl Call {
    pub(super) fn new(method: Method, url: &str, abort: &AbortController) -> Self {
        let signal = abort.signal();
        let builder = RequestBuilder::new(url).method(method).cache(RequestCache::NoStore).abort_signal(Some(&signal));
        Self { builder, signal }
    }

    /// The JSON answer: its head within [`REQUEST_TIMEOUT_MS`], and its body, which may be a long thread over a slow line, within
    /// [`BODY_TIMEOUT_MS`].
    pub(super) async fn json<T: FromJson>(self, abort: AbortController) -> Result<T, Failure> {
        let timeout = |after_ms| {
            let abort = abort.clone();
            Timeout::new(after_ms, move || abort.abort())
        };
        let head = timeout(REQUEST_TIMEOUT_MS);
        let response = self.builder.send().await.map_err(|_| Failure::Broken)?;
        drop(head);
        let _body = timeout(BODY_TIMEOUT_MS);
        if !response.ok() {
            return Err(refusal(response).await);
        }
        let status = response.status();
        let body = response.text().await.map_err(|_| Failure::Broken)?;
        json::read(&body).ok_or(Failure::Unreadable { status })
    }

    /// Sends `body` and hands the bytes of the event stream that answers to `sink`, until it ends. `Err`: there was no stream.
    pub(super) async fn stream(self, body: &impl Serialize, mut sink: impl FnMut(Vec<u8>)) -> Result<(), Failure> {
        let request = self.builder.header("accept", "text/event-stream").json(body).map_err(|_| Failure::Broken)?;
        let response = request.send().await.map_err(|_| Failure::Broken)?;
        if !response.ok() {
            return Err(refusal(response).await);
        }
        let is_stream = response.headers().get("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let (Some(body), true) = (response.body(), is_stream) else {
            return Err(Failure::Unreadable { status: response.status() });
        };
        let mut stream = wasm_streams::ReadableStream::from_raw(body.unchecked_into());
        let mut reader = stream.get_reader();
        while !self.signal.aborted() {
            match reader.read().await {
                Ok(Some(chunk)) => sink(js_sys::Uint8Array::new(&chunk).to_vec()),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }
}

async fn refusal(response: Response) -> Failure {
    let status = response.status();
    let retry_after = response.headers().get("retry-after").and_then(|value| value.trim().parse().ok());
    match response.text().await.ok().and_then(|body| json::read::<Problem>(&body)) {
        Some(problem) => Failure::Refused { problem: Box::new(problem), retry_after },
        None => Failure::Unreadable { status },
    }
}
