//! Routes, extractors, problem answers, SSE. Knows no SQL.
//!
//! Every route's scope and owner rule stands with its handler ([`openapi`]); [`access`] enforces the scope, the store's
//! [`ThreadKey`](crate::store::turns::ThreadKey) the owner.

pub mod access;
pub mod assets;
pub mod attachments;
pub mod auth;
pub mod body;
pub mod chat;
pub mod extract;
pub mod health;
pub mod metrics;
pub mod openapi;
pub mod path;
pub mod problem;
pub mod push;
pub mod query;
pub mod serve;
pub mod sse;
pub mod threads;

use std::{any::Any, sync::Arc};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    http::{HeaderValue, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};
use tracing::Instrument as _;
use turnfast_shared::Code;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::problem::ApiError;
use crate::{SPANS, app::App, config::RESERVED_PROJECT_IDS};

/// A path of the API beside those below [`RESERVED_PROJECT_IDS`]. An unknown path below one of them is a problem answer, not the page.
const DOCUMENT: &str = "openapi.json";

/// The routes of the API, each with its documentation. A route comes in through `routes!` or not at all.
fn routes() -> OpenApiRouter<Arc<App>> {
    let agent = OpenApiRouter::new()
        .routes(routes!(threads::agent))
        .routes(routes!(chat::submit))
        .routes(routes!(chat::resume))
        .routes(routes!(chat::messages))
        .routes(routes!(chat::stop))
        .routes(routes!(chat::cancel_run))
        .routes(routes!(attachments::attachment))
        .routes(routes!(threads::list))
        .routes(routes!(threads::get, threads::rename, threads::delete));
    OpenApiRouter::with_openapi(openapi::Base::openapi())
        .routes(routes!(threads::projects))
        .routes(routes!(threads::agents))
        .nest("/projects/{projectId}/agents/v2/{agentId}", agent)
        .routes(routes!(push::follow))
        .routes(routes!(auth::login))
        .routes(routes!(auth::logout))
        .routes(routes!(auth::me))
        .routes(routes!(auth::link))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(openapi::document))
}

/// Everything that the server answers.
pub fn router(app: Arc<App>) -> Router {
    Router::from(routes())
        .layer(axum::middleware::from_fn(query::refuse_unknown))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback_service(assets::router().layer(axum::middleware::from_fn(unknown_api_path)))
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(SetResponseHeaderLayer::if_not_present(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(axum::middleware::from_fn(traced))
        .with_state(app)
}

/// A span without what stands in the address: it may be a secret.
async fn traced(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("page", MatchedPath::as_str);
    let span = tracing::debug_span!(target: SPANS, "http request", otel.kind = "server", method = %request.method(), route);
    next.run(request).instrument(span).await
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(Code::MethodNotAllowed, "This path exists, but not with this method.")
}

async fn unknown_api_path(uri: Uri, request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    let first = uri.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    if first == DOCUMENT || RESERVED_PROJECT_IDS.contains(&first) {
        ApiError::not_found().into_response()
    } else {
        next.run(request).await
    }
}

fn panicked(_panic: Box<dyn Any + Send>) -> Response {
    ApiError::new(Code::Internal, "The server failed on this request. Its log says more.").into_response()
}

#[cfg(test)]
pub(crate) mod tests;
