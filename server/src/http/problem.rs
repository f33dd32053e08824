//! The one place where errors become answers: `application/problem+json` (RFC 9457; contract 1, section 3).
//!
//! | layer | its error | becomes |
//! | --- | --- | --- |
//! | extractors, bodies | a rejection | `invalid_request`, `unsupported_media_type`, `payload_too_large` |
//! | [`crate::auth`] | who may do what | `unauthenticated`, `missing_scope`, `not_found`, `rate_limited` |
//! | [`crate::turns`] | [`Refused`] | the 409s, `not_found`, `rate_limited`, `shutting_down` |
//! | [`crate::store`] | [`StoreError`] | `storage_unavailable`, `internal` |

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use turnfast_shared::{Code, Problem};

use crate::{auth::Denied, store::StoreError, turns::Refused};

/// Seconds after which a refused client may try again, where nothing better is known.
const RETRY_AFTER: u64 = 2;

/// An error answer, and after how many seconds to try again.
#[derive(Clone, Debug)]
pub struct ApiError(pub Box<Problem>, pub Option<u64>);

impl ApiError {
    /// An answer with `code`.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(code, detail)), None)
    }

    /// A wrong value.
    #[must_use]
    pub fn field(field: &str, detail: impl Into<String>) -> Self {
        let mut error = Self::new(Code::InvalidRequest, detail);
        error.0.field = Some(field.to_owned());
        error
    }

    /// Unknown, or private to someone else: the same answer to the byte.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "There is nothing here that you may see.")
    }

    /// The same answer with a time to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.1 = Some(seconds);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(problem, retry_after) = self;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if problem.code == Code::Unauthenticated {
            headers.insert(HeaderName::from_static("www-authenticate"), HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::ClaimLost => {
                tracing::error!("{error}");
                Self::new(Code::StorageUnavailable, "The database does not answer. Nothing was changed; try again shortly.")
                    .retry_after(RETRY_AFTER)
            }
            StoreError::Corrupt(error) => {
                tracing::error!(error, "the record cannot be read");
                Self::new(Code::Internal, "The record cannot be read. The server's log says more.")
            }
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NotFound => Self::not_found(),
            Denied::MissingScope(scope) => {
                let mut error =
                    Self::new(Code::MissingScope, format!("This takes the scope {scope}, which you do not have here."));
                error.0.scope = Some(scope.to_string());
                error
            }
        }
    }
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotFound => Self::not_found(),
            Refused::TurnRunning { active } => {
                let mut error = Self::new(
                    Code::TurnAlreadyRunning,
                    "This conversation runs a turn. Send again once it has ended or waits for an answer, or stop it; nothing was taken in.",
                );
                error.0.active_execution_id = Some(active);
                error
            }
            Refused::InteractionOpen => Self::new(
                Code::InteractionOpen,
                "This conversation waits for an answer. Give it, or cancel the turn; your text was not submitted.",
            ),
            Refused::InteractionClosed => {
                Self::new(Code::InteractionClosed, "This question has been answered, cancelled or has expired.")
            }
            Refused::AlreadyAccepted { execution } => {
                let mut error = Self::new(Code::MessageAlreadyAccepted, "This messageId was accepted before; read the thread.");
                error.0.execution_id = Some(execution);
                error
            }
            Refused::BadAnswer(mismatch) => Self::field("resumeData", mismatch.to_string()),
            Refused::TooManyTurns => Self::new(
                Code::RateLimited,
                "You have as many turns running as this server allows for one user. Wait until one has ended.",
            )
            .retry_after(RETRY_AFTER),
            Refused::ShuttingDown => {
                Self::new(Code::ShuttingDown, "The server is shutting down; try again once it is back.").retry_after(RETRY_AFTER)
            }
            Refused::Store(error) => error.into(),
        }
    }
}
