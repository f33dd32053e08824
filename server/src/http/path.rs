//! Values in paths.

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use serde::{Deserialize, de::DeserializeOwned};
use turnfast_shared::{
    Code,
    ids::{ExecutionId, RunId, Slug, ThreadId},
};
use utoipa::IntoParams;
use uuid::Uuid;

use super::problem::ApiError;

/// A path's values. Text as it comes: what a value may be is told only to those who may use the route.
#[derive(Clone, Debug)]
pub struct Segments<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(values)) => Ok(Self(values)),
            Err(rejection) if rejection.status().is_client_error() => {
                Err(ApiError::new(Code::InvalidRequest, "The path is not UTF-8 once its percent signs are decoded."))
            }
            Err(rejection) => {
                tracing::error!(%rejection, "a route's path does not have the values that its handler takes");
                Err(ApiError::new(Code::Internal, "The server failed on this request. Its log says more."))
            }
        }
    }
}

/// `/projects/{projectId}/…`.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct ProjectPath {
    /// The project.
    #[param(value_type = Slug)]
    pub project_id: String,
}

/// `/projects/{projectId}/agents/v2/{agentId}/…`: the base of the contract.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct AgentPath {
    /// The project.
    #[param(value_type = Slug)]
    pub project_id: String,
    /// The agent.
    #[param(value_type = Slug)]
    pub agent_id: String,
}

/// A thread of an agent.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct ThreadPath {
    /// The project.
    #[param(value_type = Slug)]
    pub project_id: String,
    /// The agent.
    #[param(value_type = Slug)]
    pub agent_id: String,
    /// The thread.
    #[param(value_type = ThreadId)]
    pub thread_id: String,
}

/// An execution of a thread.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct ExecutionPath {
    /// The project.
    #[param(value_type = Slug)]
    pub project_id: String,
    /// The agent.
    #[param(value_type = Slug)]
    pub agent_id: String,
    /// The thread.
    #[param(value_type = ThreadId)]
    pub thread_id: String,
    /// The execution.
    #[param(value_type = ExecutionId)]
    pub execution_id: String,
}

/// A suspended turn of an agent.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct RunPath {
    /// The project.
    #[param(value_type = Slug)]
    pub project_id: String,
    /// The agent.
    #[param(value_type = Slug)]
    pub agent_id: String,
    /// The turn.
    #[param(value_type = RunId)]
    pub run_id: String,
}

/// A file that went with a message to an agent.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub struct AttachmentPath {
    /// The project.
    #[param(value_type = Slug)]
    pub project_id: String,
    /// The agent.
    #[param(value_type = Slug)]
    pub agent_id: String,
    /// The attachment.
    #[param(value_type = String, format = "uuid")]
    pub attachment_id: String,
}

/// A UUID.
///
/// # Errors
/// `invalid_request`, naming the field.
pub fn uuid(field: &str, text: &str) -> Result<Uuid, ApiError> {
    let takes = "a UUID such as 0198c0de-0000-7000-8000-000000000001";
    parse_uuid(text).ok_or_else(|| ApiError::field(field, format!("`{field}` takes {takes}.")))
}

/// A UUID in the one form that is taken: hyphenated, in lower or upper case (RFC 9562, section 4). Answers have it in lower case.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<Uuid> {
    // Only the hyphenated form has this length.
    (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_one_form() {
        let id = Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_000a);
        for good in [id.to_string(), id.to_string().to_uppercase()] {
            assert_eq!(parse_uuid(&good), Some(id), "{good}");
        }
        let other = [id.simple().to_string(), id.braced().to_string(), id.urn().to_string()];
        for bad in other.iter().map(String::as_str).chain(["", "7", "0198c0de-0000-7000-8000-00000000000g"]) {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }
}
