//! The live stream of one execution: from the task that runs it to the one connection that submitted it.
//!
//! The connection may be slow, stalled or gone; the turn never waits for it. Events are written once, as server-sent events, into
//! a bounded buffer, and the connection takes all that is ready in one piece.

use std::{
    io::Write as _,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use turnfast_shared::{Event, ids::ExecutionId};

/// Bytes that may wait for one connection when one more event comes. A reader that is further behind is cut off and recovers by
/// reading (contract 1, section 4).
pub const BUFFER_MAX: usize = 1 << 20;

/// Bytes from which on the turn lets the connection's task have its turn, so that a reader is not taken for slow before it could
/// read at all.
const BUFFER_MUCH: usize = BUFFER_MAX / 4;

#[derive(Debug, Default)]
struct Buffer {
    bytes: BytesMut,
    ended: bool,
    reader_gone: bool,
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<Buffer>>;

/// Makes the two ends of an execution's live stream.
#[must_use]
pub fn channel(execution: ExecutionId) -> (LiveSink, LiveStream) {
    let buffer = Shared::default();
    (LiveSink { buffer: buffer.clone(), execution, sent: 0 }, LiveStream { buffer })
}

/// The end that the turn writes to. Dropping it ends the stream.
#[derive(Debug)]
pub struct LiveSink {
    buffer: Shared,
    execution: ExecutionId,
    sent: u64,
}

impl LiveSink {
    /// Sends an event if anyone is still there to read it. `true`: much waits to be read; the task that sends should yield once.
    pub fn send(&mut self, event: &Event) -> bool {
        self.sent += 1;
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if buffer.reader_gone || buffer.ended {
            return false;
        }
        let waiting = buffer.bytes.len();
        let mut out = (&mut buffer.bytes).writer();
        // Writing to memory and serialising our own types cannot fail; if it did, a cut stream is the honest outcome.
        let written = write!(out, "id: {}:{}\ndata: ", self.execution, self.sent)
            .map_err(serde_json::Error::io)
            .and_then(|()| serde_json::to_writer(&mut out, event))
            .and_then(|()| out.write_all(b"\n\n").map_err(serde_json::Error::io));
        // What counts is what waited before: one event may be larger than the bound, and a reader that keeps up gets it.
        let too_slow = waiting > BUFFER_MAX;
        if written.is_err() || too_slow {
            buffer.bytes = BytesMut::new();
            buffer.ended = true;
        }
        let much = buffer.bytes.len() > BUFFER_MUCH;
        let waker = buffer.waker.take();
        drop(buffer);
        if let Some(waker) = waker {
            waker.wake();
        }
        much
    }
}

impl Drop for LiveSink {
    fn drop(&mut self) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.ended = true;
        let waker = buffer.waker.take();
        drop(buffer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The end that the connection reads: each item is all that was ready.
#[derive(Debug)]
pub struct LiveStream {
    buffer: Shared,
}

impl Stream for LiveStream {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if !buffer.bytes.is_empty() {
            return Poll::Ready(Some(buffer.bytes.split().freeze()));
        }
        if buffer.ended {
            return Poll::Ready(None);
        }
        buffer.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for LiveStream {
    fn drop(&mut self) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.reader_gone = true;
        buffer.bytes = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use uuid::Uuid;

    use super::*;

    fn delta(text: &str) -> Event {
        Event::TextDelta { id: "t".to_owned(), delta: text.to_owned() }
    }

    fn pair() -> (LiveSink, LiveStream) {
        channel(Uuid::from_u128(5).into())
    }

    #[tokio::test]
    async fn events_are_numbered_and_gathered() {
        let (mut sink, mut stream) = pair();
        sink.send(&delta("a\nb"));
        sink.send(&delta("c"));
        let bytes = stream.next().await.unwrap();
        let id = ExecutionId(Uuid::from_u128(5));
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            format!(
                "id: {id}:1\ndata: {{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"a\\nb\"}}\n\n\
                 id: {id}:2\ndata: {{\"type\":\"text-delta\",\"id\":\"t\",\"delta\":\"c\"}}\n\n"
            )
        );
        assert!(stream.next().now_or_never().is_none(), "open, and nothing there");
        drop(sink);
        assert_eq!(stream.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_is_cut_off_and_the_turn_does_not_notice() {
        let (mut sink, mut stream) = pair();
        let kilobyte = delta(&"x".repeat(1024));
        for _ in 0..2 * BUFFER_MAX / 1024 {
            sink.send(&kilobyte);
            assert!(sink.buffer.lock().unwrap().bytes.len() <= BUFFER_MAX + 2 * 1024);
        }
        assert_eq!(stream.next().await, None, "cut: no half event is left behind");
    }

    #[tokio::test]
    async fn one_huge_event_reaches_a_reader_that_keeps_up() {
        let (mut sink, mut stream) = pair();
        sink.send(&delta("a small one before it"));
        assert!(sink.send(&delta(&"x".repeat(2 * BUFFER_MAX))));
        assert!(stream.next().await.unwrap().len() > 2 * BUFFER_MAX);
        assert!(!sink.send(&delta("y")));
        assert!(stream.next().await.is_some());
    }

    #[tokio::test]
    async fn a_reader_that_left_costs_nothing() {
        let (mut sink, stream) = pair();
        drop(stream);
        sink.send(&delta("x"));
        assert!(sink.buffer.lock().unwrap().bytes.is_empty());
    }
}
