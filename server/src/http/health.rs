//! Whether the process lives, and whether it should be sent work.

use std::sync::Arc;

use axum::extract::State;

use super::problem::ApiError;
use crate::{app::App, turns::Refused};

/// GET `/healthz`: the process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// GET `/readyz`: it takes turns, and its database answers.
///
/// # Errors
/// `shutting_down` while it drains, `storage_unavailable` without a database.
pub async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    if app.turns.is_draining() {
        return Err(Refused::ShuttingDown.into());
    }
    app.store.ping().await?;
    Ok("ready\n")
}
