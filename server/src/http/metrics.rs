//! GET `/metrics`, on a listener of its own (`metrics_listen`): whoever reaches it may read it, so it is not among the API's routes.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{app::App, metrics::CONTENT_TYPE};

/// What the metrics listener answers.
pub fn router(app: Arc<App>) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(app)
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.metrics.running.set(i64::try_from(app.turns.running()).unwrap_or(i64::MAX));
    match app.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
