//! Routes, extractors, problem answers, SSE. Knows no SQL.
//!
//! Every route's scope and owner rule stands in the doc of its handler; [`access`] enforces the scope, the store's
//! [`ThreadKey`](crate::store::turns::ThreadKey) the owner.

pub mod access;
pub mod assets;
pub mod auth;
pub mod body;
pub mod chat;
pub mod extract;
pub mod health;
pub mod path;
pub mod problem;
pub mod push;
pub mod query;
pub mod sse;
pub mod threads;

use std::{any::Any, sync::Arc};

use axum::{
    Router,
    http::{HeaderValue, Uri, header},
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};
use turnfast_shared::Code;

use self::problem::ApiError;
use crate::app::App;

/// First segments of paths that belong to the API: an unknown path below one is a problem answer, not the page.
const API: [&str; 7] = ["projects", "auth", "push", "healthz", "readyz", "openapi.json", "metrics"];

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    const AGENT: &str = "/projects/{project}/agents/v2/{agent}";
    let agent = Router::new()
        .route("/", get(threads::agent))
        .route("/chat", post(chat::submit))
        .route("/chat/resume", post(chat::resume))
        .route("/chat/{thread}/messages", get(chat::messages))
        .route("/chat/{thread}/executions/{execution}", delete(chat::stop))
        .route("/chat/runs/{run}", delete(chat::cancel_run))
        .route("/threads", get(threads::list))
        .route("/threads/{thread}", get(threads::get).patch(threads::rename).delete(threads::delete));
    Router::new()
        .route("/projects", get(threads::projects))
        .route("/projects/{project}/agents/v2", get(threads::agents))
        .nest(AGENT, agent)
        .route("/push", get(push::follow))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .merge(auth::routes())
        .method_not_allowed_fallback(method_not_allowed)
        .fallback_service(assets::router().layer(axum::middleware::from_fn(unknown_api_path)))
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(SetResponseHeaderLayer::if_not_present(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app)
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(Code::MethodNotAllowed, "This path exists, but not with this method.")
}

async fn unknown_api_path(uri: Uri, request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    let first = uri.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    if API.contains(&first) { ApiError::not_found().into_response() } else { next.run(request).await }
}

fn panicked(_panic: Box<dyn Any + Send>) -> Response {
    ApiError::new(Code::Internal, "The server failed on this request. Its log says more.").into_response()
}
