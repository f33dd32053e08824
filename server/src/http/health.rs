//! Whether the process lives, and whether it should be sent work.

use std::sync::Arc;

use axum::extract::State;

use super::problem::ApiError;
use crate::{app::App, turns::Refused};

/// Whether the process answers
#[utoipa::path(get, path = "/healthz", tag = "operations",
    responses((status = 200, content_type = "text/plain", body = String, description = "It does.")),
    extensions(("x-access" = json!("public"))))]
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the server takes turns and its database can be read and written
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, content_type = "text/plain", body = String, description = "It does.")),
    extensions(("x-access" = json!("public")), ("x-problems" = json!(["shutting_down", "storage_unavailable"]))))]
pub async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, ApiError> {
    if app.turns.is_draining() {
        return Err(Refused::ShuttingDown.into());
    }
    app.store.ping().await?;
    Ok("ready\n")
}
