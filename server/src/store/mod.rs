//! What is recorded. One trait per concern, each with one implementation per database; [`Store`] is all of them.

pub mod auth;
#[cfg(test)]
pub(crate) mod conformance;
pub mod sqlite;
pub mod turns;

pub use auth::AuthStore;
pub use turns::TurnStore;

/// Why the record could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database does not answer, is locked, or its disk is full. What was asked has not happened; trying again may help.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// The record holds something that this version cannot read.
    #[error("the record cannot be read: {0}")]
    Corrupt(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::Decode(_)
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::TypeNotFound { .. } => Self::Corrupt(error.to_string()),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

/// The whole record.
pub trait Store: TurnStore + AuthStore {}

impl<S: TurnStore + AuthStore> Store for S {}
