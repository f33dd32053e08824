//! Problem answers (RFC 9457) and their codes (contract 1, section 3).

use serde::{Deserialize, Serialize};

use crate::ids::ExecutionId;

/// What went wrong, for programs. The table of contract 1, section 3, and `turnfast`'s own additions at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A value is missing or wrong; the answer names the field and what it takes.
    InvalidRequest,
    /// Nobody is signed in, or the credentials are wrong.
    Unauthenticated,
    /// A member of the project without the scope that the route takes.
    MissingScope,
    /// Unknown, or private to someone else; the two cannot be told apart.
    NotFound,
    /// The Agents feature is switched off.
    AgentsDisabled,
    /// The thread's one running turn comes first.
    TurnAlreadyRunning,
    /// The thread waits for a person's answer.
    InteractionOpen,
    /// That question is answered, cancelled or expired.
    InteractionClosed,
    /// This `messageId` was accepted before.
    MessageAlreadyAccepted,
    /// The path exists, the method on it does not.
    MethodNotAllowed,
    /// The body is not of a media type that the route takes.
    UnsupportedMediaType,
    /// The body, or a value in it, is too large.
    PayloadTooLarge,
    /// The agent cannot run as configured; the answer lists what is missing.
    AgentMisconfigured,
    /// Too many turns or attempts; `Retry-After` says when to come back.
    RateLimited,
    /// The server is going down; try again once it is back.
    ShuttingDown,
    /// The database does not answer; nothing was accepted.
    StorageUnavailable,
    /// A cookie-authenticated request came from another origin. Beside the contract's table: a browser attack, not a client's mistake.
    CrossOrigin,
    /// A bug of the server; its log has the details.
    Internal,
}

impl Code {
    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest => 400,
            Self::Unauthenticated => 401,
            Self::MissingScope | Self::CrossOrigin => 403,
            Self::NotFound | Self::AgentsDisabled => 404,
            Self::MethodNotAllowed => 405,
            Self::TurnAlreadyRunning | Self::InteractionOpen | Self::InteractionClosed | Self::MessageAlreadyAccepted => 409,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::AgentMisconfigured => 422,
            Self::RateLimited => 429,
            Self::Internal => 500,
            Self::ShuttingDown | Self::StorageUnavailable => 503,
        }
    }

    /// A short summary that is the same for every occurrence.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "Invalid request",
            Self::Unauthenticated => "Not signed in",
            Self::MissingScope => "Missing scope",
            Self::NotFound => "Not found",
            Self::AgentsDisabled => "Agents are switched off",
            Self::TurnAlreadyRunning => "A turn is already running",
            Self::InteractionOpen => "The thread waits for an answer",
            Self::InteractionClosed => "This interaction is closed",
            Self::MessageAlreadyAccepted => "This message was accepted before",
            Self::MethodNotAllowed => "Method not allowed",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::PayloadTooLarge => "Too large",
            Self::AgentMisconfigured => "The agent cannot run as configured",
            Self::RateLimited => "Too many requests",
            Self::ShuttingDown => "The server is shutting down",
            Self::StorageUnavailable => "The database does not answer",
            Self::CrossOrigin => "Cross-origin request refused",
            Self::Internal => "Internal error",
        }
    }
}

/// An `application/problem+json` body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// Always `about:blank`: `code` carries the meaning.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// See [`Code::title`].
    pub title: String,
    /// The HTTP status.
    #[cfg_attr(feature = "openapi", schema(minimum = 400, maximum = 599))]
    pub status: u16,
    /// What happened here, and what to do about it.
    pub detail: String,
    /// For programs.
    pub code: Code,
    /// The field at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The scope that the caller lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The execution that holds the thread, where the caller may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_execution_id: Option<ExecutionId>,
    /// The execution that a repeated `messageId` started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// What a misconfigured agent lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<String>>,
}

impl Problem {
    /// A problem with `code` and nothing but a detail.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            type_uri: "about:blank".to_owned(),
            title: code.title().to_owned(),
            status: code.status(),
            detail: detail.into(),
            code,
            field: None,
            scope: None,
            active_execution_id: None,
            execution_id: None,
            missing: None,
        }
    }
}
