//! What is recorded. One trait per concern, each with one implementation per database; [`Store`] is all of them.

pub mod auth;
#[cfg(test)]
pub(crate) mod conformance;
pub(crate) mod copy;
pub mod memory;
pub mod postgres;
mod rows;
pub mod sqlite;
pub mod turns;

use std::sync::Arc;

pub use auth::AuthStore;
pub use turns::TurnStore;

use self::{postgres::PostgresStore, sqlite::SqliteStore};
use crate::{
    config::Config,
    liveness::{Alone, Liveness, PostgresLocks},
};

/// Why the record could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The database does not answer, is locked, or its disk is full. What was asked has not happened; trying again may help.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// The process in whose name something was to begin is no longer counted among the living. What was asked has not happened.
    #[error("this process lost its claim and is taking a new one")]
    ClaimLost,
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

/// The database that a configuration names.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
pub enum Database {
    /// A file in the data folder, which one process at a time serves.
    Sqlite(SqliteStore),
    /// A server, shared with other processes.
    Postgres(PostgresStore),
}

impl Database {
    /// Opens it, creates it where it is a file that is missing, and brings its schema up to date. The data folder must exist.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn open(config: &Config) -> Result<Self, StoreError> {
        Ok(match &config.database_url {
            None => Self::Sqlite(SqliteStore::open(&config.sqlite_path()).await?),
            Some(url) => Self::Postgres(PostgresStore::open(url.expose()).await?),
        })
    }

    /// The record in it.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
        }
    }

    /// The same, for a copy.
    pub(crate) fn copyable(&self) -> &dyn copy::Copyable {
        match self {
            Self::Sqlite(store) => store,
            Self::Postgres(store) => store,
        }
    }

    /// The locks of the processes that use it.
    #[must_use]
    pub fn locks(&self) -> Arc<dyn Liveness> {
        match self {
            Self::Sqlite(store) => Arc::new(Alone::new(store.folder())),
            Self::Postgres(store) => Arc::new(PostgresLocks::new(store)),
        }
    }
}
