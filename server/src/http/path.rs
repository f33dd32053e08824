//! Values in paths.

use uuid::Uuid;

use super::problem::ApiError;

/// A UUID.
///
/// # Errors
/// `invalid_request`, naming the field.
pub fn uuid(field: &str, text: &str) -> Result<Uuid, ApiError> {
    Uuid::try_parse(text).map_err(|_| ApiError::field(field, format!("{field} takes a UUID.")))
}
