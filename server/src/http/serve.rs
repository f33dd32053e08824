//! Connections: accepted, served, and ended when the server goes down. A client that begins a request and does not go on with it is
//! not waited for; answers take as long as they take.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;
use tower_http::timeout::RequestBodyTimeoutLayer;

/// How long is waited before the next connection is accepted where the system gives none, for want of files for instance.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// What is read of a body that was refused, so that its sender gets to see the answer: more than any request may have by default.
const UNWANTED_BYTES: usize = 64 * 1024 * 1024;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the head of a request, from the beginning of the connection or the end of the answer before.
    pub head: Duration,
    /// For the next piece of a request's body.
    pub body: Duration,
    /// For the rest of a body that was refused.
    pub unwanted: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { head: Duration::from_secs(30), body: Duration::from_secs(30), unwanted: Duration::from_secs(10) }
    }
}

/// Serves until `stop`; then takes no more connections, and returns when those that are open have had their answers.
pub async fn serve(listener: TcpListener, router: Router, patience: Patience, stop: CancellationToken) {
    let router = router.layer(RequestBodyTimeoutLayer::new(patience.body));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                connections.spawn(connection(stream, peer, router.clone(), patience, stop.clone()));
            }
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted; trying again");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Whether the client went away before it was accepted.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, patience: Patience, stop: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (unread, mut rest) = oneshot::channel();
        let mut request = request.map(|body| Body::new(Returned { body: Some(body), unread: Some(unread) }));
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router.clone().oneshot(request);
        async move {
            let mut answer = answer.await.unwrap_or_else(|never| match never {});
            // A refusal that did not wait for the body. A client that still sends may not look for the answer before it is done, and
            // lose it where the connection ends under its hands.
            if let Ok(rest) = rest.try_recv()
                && !is_over(rest, patience.unwanted).await
            {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        // A client that went away, or took too long: its own affair.
        tracing::debug!(%error, %peer, "a connection ended early");
    }
}

/// Reads what nobody wanted, as far as that is reasonable; says whether it came to its end.
async fn is_over(mut rest: Incoming, within: Duration) -> bool {
    let reading = async {
        let mut bytes = 0;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await {
            let Ok(frame) = frame else { return false };
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > UNWANTED_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(within, reading).await.unwrap_or(false)
}

/// A request's body that comes back where it is dropped before its end.
struct Returned {
    body: Option<Incoming>,
    unread: Option<oneshot::Sender<Incoming>>,
}

impl http_body::Body for Returned {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let (Some(body), Some(unread)) = (self.body.take(), self.unread.take())
            && !body.is_end_stream()
        {
            // Nobody waits for it where the answer is out already.
            let _ = unread.send(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use bytes::Bytes;
    use futures::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    struct Served {
        address: SocketAddr,
        stop: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    /// With a stream that takes many times as long as a client may, and a route that reads its body.
    async fn served() -> Served {
        serving(SHORT).await
    }

    /// The same, with that much patience for what nobody wants.
    async fn serving(unwanted: Duration) -> Served {
        let ticks = || async {
            Body::from_stream(futures::stream::iter(0..12).then(|_| async {
                tokio::time::sleep(SHORT).await;
                Ok::<_, Infallible>(Bytes::from_static(b"tick\n"))
            }))
        };
        let echo = |headers: http::HeaderMap, body: Body| async move {
            crate::http::body::json::<turnfast_shared::api::RenameThread>(&headers, body, 1_000).await.map(|read| read.title)
        };
        let router = Router::new().route("/ticks", get(ticks)).route("/echo", post(echo));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, router, Patience { head: SHORT, body: SHORT, unwanted }, stop.clone()));
        Served { address, stop, task }
    }

    impl Served {
        /// Sends the pieces and reads until the server closes the connection.
        async fn send(&self, text: &str) -> String {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }
    }

    const ECHO: &str = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 13\r\n";

    #[tokio::test]
    async fn half_a_request_is_not_waited_for() {
        let served = served().await;
        for half in ["", "G", "GET /ticks HTTP/1.1\r\n", "GET /ticks HTTP/1.1\r\nhost: x\r\nx-a: "] {
            let answer = served.send(half).await;
            assert!(!answer.contains(" 200 "), "{half:?}: {answer}");
        }
        let answer = served.send(&format!("{ECHO}\r\n{{\"title\"")).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("not in time"), "{answer}");
        let whole = served.send(&format!("{ECHO}connection: close\r\n\r\n{{\"title\":\"x\"}}")).await;
        assert!(whole.starts_with("HTTP/1.1 200") && whole.ends_with("\r\n\r\nx"), "{whole}");
    }

    #[tokio::test]
    async fn a_refusal_is_seen_by_whoever_is_still_sending_and_the_connection_goes_on() {
        let served = serving(Duration::from_secs(600)).await;
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let head = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/css\r\ncontent-length: 9000000\r\n\r\n";
        let whole = format!("{head}{}{ECHO}connection: close\r\n\r\n{{\"title\":\"x\"}}", "a".repeat(9_000_000));
        stream.write_all(whole.as_bytes()).await.unwrap();
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.unwrap();
        assert!(answers.starts_with("HTTP/1.1 415") && answers.contains("HTTP/1.1 200"), "{answers}");
    }

    #[tokio::test]
    async fn where_the_rest_of_a_body_does_not_come_the_connection_ends_and_says_so() {
        let served = served().await;
        let head = "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-type: text/css\r\ncontent-length: 9\r\n\r\nabc";
        let answer = served.send(head).await;
        assert!(answer.starts_with("HTTP/1.1 415") && answer.contains("connection: close"), "{answer}");
    }

    #[tokio::test]
    async fn an_answer_takes_as_long_as_it_takes_and_is_finished_before_the_end() {
        let served = served().await;
        let request = "GET /ticks HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let answer = served.send(request).await;
        assert_eq!(answer.matches("tick").count(), 12, "{answer}");

        let mut open = TcpStream::connect(served.address).await.unwrap();
        open.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        open.read_exact(&mut first).await.unwrap();
        served.stop.cancel();
        let mut rest = String::new();
        open.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest.matches("tick").count(), 12, "{rest}");
        served.task.await.unwrap();
        TcpStream::connect(served.address).await.unwrap_err();
    }
}
