//! The record in SQLite: one writer connection, a pool of readers, write-ahead log.

mod auth;
pub mod backup;
mod copy;
mod turns;

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use futures::future::BoxFuture;
use sqlx::{
    SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio_util::task::TaskTracker;

use super::StoreError;

/// How long a writer waits for another process's lock before it reports the database as unavailable.
const BUSY: Duration = Duration::from_secs(5);
/// How long a caller waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(10);
/// Readers. SQLite reads are short; more connections than this cost memory and win nothing.
const READERS: u32 = 4;

/// A SQLite database.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    folder: PathBuf,
    /// Writes that run; see [`SqliteStore::write`].
    writes: TaskTracker,
}

impl SqliteStore {
    /// Opens the database at `path`, creates it where it is missing, and brings its schema up to date.
    ///
    /// # Errors
    /// The file cannot be opened, or a migration fails.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::from_str("sqlite:")?
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // An application crash loses nothing with NORMAL; a power cut may lose the last commits but never the database. FULL
            // would cost an fsync for every group of flushes.
            .synchronous(SqliteSynchronous::Normal)
            .foreign_keys(true)
            .busy_timeout(BUSY);
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options.clone())
            .await?;
        sqlx::migrate!("migrations/sqlite")
            .run(&writer)
            .await
            .map_err(|error| StoreError::Unavailable(format!("migrating {}: {error}", path.display())))?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(ACQUIRE)
            .connect_with(options.read_only(true))
            .await?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { writer, readers, folder, writes: TaskTracker::new() })
    }

    /// The folder that the database lies in.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where single-statement reads come from.
    fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    /// Runs `work` in one transaction that holds SQLite's write lock from its start (`BEGIN IMMEDIATE`: a read that is upgraded
    /// to a write fails at once under concurrency, whatever the busy timeout). `Err` rolls back.
    ///
    /// It runs in a task of its own: a caller that is dropped midway, as a request's future is when the client goes away, must
    /// not leave a half-begun transaction on the connection.
    async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let pool = self.writer.clone();
        let task = self.writes.spawn(async move {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            let value = work(&mut transaction).await?;
            transaction.commit().await?;
            Ok(value)
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Runs `work` on one state of the database: a read transaction, in a task of its own for the reason given at
    /// [`SqliteStore::write`].
    async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let pool = self.readers.clone();
        let task = tokio::spawn(async move {
            let mut transaction = pool.begin_with("BEGIN").await?;
            let value = work(&mut transaction).await?;
            transaction.commit().await?;
            Ok(value)
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Makes the database as full as its disk would, or gives it room again.
    #[cfg(test)]
    pub(crate) async fn limit_size(&self, limited: bool) {
        let statement = if limited { "PRAGMA max_page_count = 1" } else { "PRAGMA max_page_count = 1073741823" };
        sqlx::query(statement).execute(&self.writer).await.unwrap();
    }

    #[cfg(test)]
    pub(crate) async fn execute(&self, statement: &'static str) {
        sqlx::query(statement).execute(&self.writer).await.unwrap();
    }

    /// Waits for the writes that run and closes the database.
    pub async fn close(&self) {
        self.writes.close();
        self.writes.wait().await;
        self.readers.close().await;
        self.writer.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::SqliteStore;
    use crate::store::conformance::conformance;

    async fn open() -> (SqliteStore, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("turnfast.db")).await.unwrap();
        (store, folder)
    }

    conformance! { open() }
}
