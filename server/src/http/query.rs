//! Query strings. Unknown and repeated parameters are refused: a misspelt one must not be ignored.

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::problem::ApiError;

/// The values of the parameters that a route takes.
#[derive(Debug)]
pub struct Query<const N: usize>([Option<String>; N]);

/// Reads a query string that takes only `names`.
///
/// # Errors
/// `invalid_request`, naming the parameter.
pub fn parse<const N: usize>(query: Option<&str>, names: [&'static str; N]) -> Result<Query<N>, ApiError> {
    let mut values = [const { None }; N];
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let Some(place) = names.iter().position(|known| *known == name) else {
            let known = if names.is_empty() { " none".to_owned() } else { format!(": {}", names.join(", ")) };
            return Err(ApiError::field(&name, format!("Unknown parameter. This route takes{known}.")));
        };
        if values[place].replace(value.into_owned()).is_some() {
            return Err(ApiError::field(&name, "The parameter is given twice."));
        }
    }
    Ok(Query(values))
}

impl<const N: usize> Query<N> {
    /// The value of the parameter at `place` in the names, converted.
    ///
    /// # Errors
    /// What `convert` says.
    pub fn get<T>(&self, place: usize, convert: impl FnOnce(&str) -> Result<T, ApiError>) -> Result<Option<T>, ApiError> {
        self.0[place].as_deref().map(convert).transpose()
    }
}

/// Routes that take parameters, and look at them themselves.
const WITH_PARAMETERS: [&str; 2] =
    ["/projects/{projectId}/agents/v2/{agentId}/chat/{threadId}/messages", "/projects/{projectId}/agents/v2/{agentId}/threads"];

/// Refuses parameters of routes that take none: what somebody puts there is meant to have an effect, such as a `sessionId` that
/// belongs into the body.
pub async fn refuse_unknown(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // A sign-in link is followed from anywhere, and mail programs add theirs.
    let takes_none = request
        .extensions()
        .get::<MatchedPath>()
        .is_some_and(|path| !(reads && (WITH_PARAMETERS.contains(&path.as_str()) || path.as_str().starts_with("/auth/link/"))));
    if takes_none && let Err(error) = parse(request.uri().query(), []) {
        return error.into_response();
    }
    next.run(request).await
}
