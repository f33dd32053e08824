//! GET `/push`: the signed-in user's notifications (contract 1, section 5). Invalidations only; who gets one reads.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use axum::{extract::State, response::Response};
use bytes::Bytes;
use futures::stream;
use tokio::time::{Instant, Interval, interval_at};
use turnfast_shared::{api::PushEvent, limits::KEEP_ALIVE_SECONDS};

use super::{problem::ApiError, sse};
use crate::{
    app::App,
    auth::Caller,
    relay::{Follower, Told},
    turns::Refused,
};

/// Reconnects are spread over this range of milliseconds, so that a restart does not bring every browser back at once.
const RETRY_MS: std::ops::Range<u32> = 1_000..4_000;

/// Follows the caller's threads
///
/// Invalidations without content, over all projects: who gets one reads. No memory: who reconnects reads.
#[utoipa::path(get, path = "/push", tag = "notifications",
    responses((status = 200, content_type = "text/event-stream", body = PushEvent, description = "Notifications, one per `data:`, until the reader leaves.")),
    extensions(("x-access" = json!("signed-in")), ("x-problems" = json!(["shutting_down"]))))]
pub async fn follow(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, ApiError> {
    if app.turns.is_draining() {
        return Err(Refused::ShuttingDown.into());
    }
    // Subscribed before the answer begins: whoever sees `connected` misses nothing that is committed from then on.
    let follower = app.hub.follow(caller.user);
    let period = Duration::from_secs(KEEP_ALIVE_SECONDS);
    let pings = interval_at(Instant::now() + period, period);
    let state = Following { follower, connected: false, pings };
    Ok(sse::response(&app, &caller, Box::pin(stream::unfold(state, next))))
}

struct Following {
    follower: Follower,
    connected: bool,
    pings: Interval,
}

async fn next(mut state: Following) -> Option<(Bytes, Following)> {
    let mut out = String::new();
    if !state.connected {
        state.connected = true;
        let retry = rand::random_range(RETRY_MS);
        let _ = write!(out, "retry: {retry}\n\n");
        put(&mut out, &PushEvent::Connected)?;
        return Some((out.into(), state));
    }
    tokio::select! {
        biased;
        // On a clock of its own: a busy user's connection is pinged as often as a quiet one's.
        _ = state.pings.tick() => put(&mut out, &PushEvent::Ping)?,
        told = state.follower.changed() => match told? {
            Told::Changed(changes) => {
                for change in changes {
                    put(&mut out, &PushEvent::AgentExecutionUpdated(change))?;
                }
            }
            // As after a connection that broke: whoever sees it reads again.
            Told::Everything => put(&mut out, &PushEvent::Connected)?,
        },
    }
    Some((out.into(), state))
}

fn put(out: &mut String, event: &PushEvent) -> Option<()> {
    let json = serde_json::to_string(event).ok()?;
    let _ = write!(out, "data: {json}\n\n");
    Some(())
}
