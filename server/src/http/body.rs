//! Request bodies: JSON, of bounded length, with errors that name the field.

use axum::{
    body::{Body, to_bytes},
    http::{HeaderMap, header},
};
use serde::de::DeserializeOwned;
use turnfast_shared::Code;

use super::problem::ApiError;

/// Reads a JSON body. Call it after the caller's rights are known: a body is never looked at for someone who may not send one.
///
/// # Errors
/// `unsupported_media_type`, `payload_too_large`, or `invalid_request` with the field at fault.
pub async fn json<T: DeserializeOwned>(headers: &HeaderMap, body: Body, limit: usize) -> Result<T, ApiError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::new(Code::UnsupportedMediaType, "Send the body as application/json."));
    }
    let too_large =
        || ApiError::new(Code::PayloadTooLarge, format!("The body is longer than the {limit} bytes that are taken here."));
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let bytes = to_bytes(body, limit).await.map_err(|error| {
        // The only error with a cause of this kind is the limit; any other is a connection that broke.
        if std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("length limit")) {
            too_large()
        } else {
            ApiError::new(Code::InvalidRequest, "The body did not arrive whole.")
        }
    })?;
    // Struct types would take a list of their fields' values too, in an order that nobody promised.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|&first| first == b'[') {
        return Err(ApiError::new(Code::InvalidRequest, "The body does not fit: it must be a JSON object."));
    }
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let detail = format!("The body does not fit: {}.", error.inner());
        if path == "." { ApiError::new(Code::InvalidRequest, detail) } else { ApiError::field(&path, detail) }
    })?;
    reader.end().map_err(|error| ApiError::new(Code::InvalidRequest, format!("The body does not fit: {error}.")))?;
    Ok(value)
}
