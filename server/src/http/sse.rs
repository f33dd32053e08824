//! Answers that stay open: `text/event-stream`.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use turnfast_shared::limits::KEEP_ALIVE_SECONDS;

use crate::{app::App, auth::Caller};

/// What goes out when nothing else did for [`KEEP_ALIVE_SECONDS`].
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// An open answer with the bytes of `events`, for `caller`. It ends when they do, when the server goes down (an open stream must not
/// keep the process alive), or when the caller is no longer let in: signed out, revoked, disabled, expired. Its reader recovers by
/// reading, or learns there why not.
pub fn response(app: &App, caller: &Caller, events: impl Stream<Item = Bytes> + Send + Unpin + 'static) -> Response {
    let shut_out = app.auth.shut_out(caller, Duration::from_secs(KEEP_ALIVE_SECONDS));
    let shutdown = app.streams.clone().cancelled_owned();
    let end = async move {
        tokio::select! {
            () = shut_out => {}
            () = shutdown => {}
        }
    };
    let kept_alive = stream::unfold(events, |mut events| async move {
        match tokio::time::timeout(Duration::from_secs(KEEP_ALIVE_SECONDS), events.next()).await {
            Ok(bytes) => bytes.map(|bytes| (bytes, events)),
            Err(_elapsed) => Some((COMMENT, events)),
        }
    });
    let body = kept_alive.take_until(Box::pin(end)).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // no-transform and x-accel-buffering keep proxies from compressing and from collecting the stream.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
