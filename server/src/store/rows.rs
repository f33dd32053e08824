//! What the databases' rows mean, wherever that does not depend on the database.

use std::collections::HashMap;

use serde::{Serialize, de::DeserializeOwned};
use turnfast_shared::{ExecutionStatus, Part, Role};

use super::StoreError;

/// Databases have no unsigned integers; a revision beyond `i64` is one that no thread has reached.
pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// A value of `column` that was written by [`signed`].
pub(super) fn unsigned(value: i64, column: &str) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|error| StoreError::Corrupt(format!("{column}: {error}")))
}

pub(super) fn to_json(value: &(impl Serialize + ?Sized)) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub(super) fn from_json<T: DeserializeOwned>(json: &str) -> Result<T, StoreError> {
    serde_json::from_str(json).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub(super) fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

pub(super) fn role(name: &str) -> Role {
    match name {
        "user" => Role::User,
        _ => Role::Assistant,
    }
}

pub(super) fn status(name: Option<&str>) -> Result<Option<ExecutionStatus>, StoreError> {
    name.map(|name| ExecutionStatus::from_name(name).ok_or_else(|| StoreError::Corrupt(format!("status {name:?}")))).transpose()
}

/// The parts of a message that is still written to: rows of parts, whose texts are empty, and the segments of those texts. Both come
/// with the index of their part, and in order.
pub(super) fn assembled(rows: &[(i64, String)], segments: &[(i64, String)]) -> Result<Vec<Part>, StoreError> {
    let mut parts = Vec::with_capacity(rows.len());
    let mut places = HashMap::with_capacity(rows.len());
    for (index, data) in rows {
        places.insert(index, parts.len());
        parts.push(from_json(data)?);
    }
    for (index, more) in segments {
        let place = places.get(index);
        if let Some(Part::Text { text } | Part::Reasoning { text, .. }) = place.and_then(|&place| parts.get_mut(place)) {
            text.push_str(more);
        }
    }
    Ok(parts)
}
