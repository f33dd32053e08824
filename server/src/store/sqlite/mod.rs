//! The record in SQLite: one writer connection, a pool of readers, write-ahead log.

mod auth;
pub mod backup;
mod copy;
mod turns;

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use sqlx::{
    Connection as _, SqliteConnection, SqlitePool,
    migrate::MigrateError,
    pool::PoolConnectionMetadata,
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
    /// Whether the last write failed for want of the database; see [`SqliteStore::check`].
    write_failed: Arc<AtomicBool>,
}

impl SqliteStore {
    /// Opens the database at `path`, creates it where it is missing, and brings its schema up to date.
    ///
    /// # Errors
    /// The file cannot be opened, or a migration fails.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let unusable = |error| unusable(path, &error);
        create_private(path).map_err(|error| unusable(sqlx::Error::Io(error)))?;
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
            .before_acquire(is_at_rest)
            .connect_with(options.clone())
            .await
            .map_err(unusable)?;
        sqlx::migrate!("migrations/sqlite").run(&writer).await.map_err(|error| unmigrated(path, error))?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(ACQUIRE)
            .before_acquire(is_at_rest)
            .connect_with(options.read_only(true))
            .await
            .map_err(unusable)?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { writer, readers, folder, writes: TaskTracker::new(), write_failed: Arc::default() })
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
        let write_failed = self.write_failed.clone();
        let task = self.writes.spawn(async move {
            let written = async {
                let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
                let value = work(&mut transaction).await?;
                transaction.commit().await?;
                Ok(value)
            };
            let written = written.await;
            write_failed.store(matches!(written, Err(StoreError::Unavailable(_))), Ordering::Relaxed);
            written
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Whether the database can be read and written. It writes only where the last write failed: a page that stays as it is.
    async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(self.readers()).await?;
        if self.write_failed.load(Ordering::Relaxed) {
            self.write(|connection| {
                Box::pin(async move {
                    // The number is free for an application's use, and this one has none for it.
                    sqlx::query("PRAGMA user_version = 0").execute(connection).await?;
                    Ok(())
                })
            })
            .await?;
        }
        Ok(())
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

/// Creates the database's file where it is missing, for its owner alone: it holds password hashes and conversations. SQLite gives the
/// files beside it the same rights. One that is there is not opened: closing it would take SQLite's locks off it.
fn create_private(path: &Path) -> io::Result<()> {
    let mut create = OpenOptions::new();
    create.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut create, 0o600);
    match create.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Why a file cannot be used, and what to do about it.
fn unusable(path: &Path, error: &sqlx::Error) -> StoreError {
    let path = path.display();
    let database = error.as_database_error();
    let says = match (database, error) {
        (Some(error), _) => error.message().to_owned(),
        (None, sqlx::Error::Io(error)) => error.to_string(),
        (None, error) => error.to_string(),
    };
    let code = database.and_then(|error| error.code()?.parse::<u32>().ok());
    // The low byte of SQLite's result codes says what kind of error it is.
    match code.map(|code| code & 0xff) {
        // SQLITE_CORRUPT, SQLITE_NOTADB
        Some(11 | 26) => StoreError::Corrupt(format!(
            "{path} is damaged or no database of Turnfast ({says}); put a backup in its place, or move it away to start anew"
        )),
        // SQLITE_PERM, SQLITE_READONLY, SQLITE_CANTOPEN
        Some(3 | 8 | 14) => StoreError::Unavailable(cannot_open(&path, &says)),
        None if matches!(error, sqlx::Error::Io(_)) => StoreError::Unavailable(cannot_open(&path, &says)),
        _ => StoreError::Unavailable(format!("{path}: {says}")),
    }
}

fn cannot_open(path: &impl std::fmt::Display, says: &str) -> String {
    format!("{path} cannot be opened for writing ({says}); it and its folder must belong to the user that runs Turnfast")
}

/// Why a database was not brought up to date, and what to do about it.
fn unmigrated(path: &Path, error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(_) | MigrateError::VersionMismatch(_) => StoreError::Corrupt(format!(
            "{} was written by another, probably newer version of Turnfast than this {}; run that version, or put a backup from before \
             in its place",
            path.display(),
            env!("CARGO_PKG_VERSION")
        )),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => unusable(path, &error),
        other => StoreError::Unavailable(format!("{} cannot be brought up to date: {other}", path.display())),
    }
}

/// Whether a connection may be used again. Where the disk is full or broken, SQLite ends a transaction by itself; `ROLLBACK` and
/// `COMMIT` then fail, and sqlx takes the connection to be inside the transaction for ever. Such a connection is closed, and the pool
/// opens another in its place.
fn is_at_rest(connection: &mut SqliteConnection, _: PoolConnectionMetadata) -> BoxFuture<'_, sqlx::Result<bool>> {
    let at_rest = !connection.is_in_transaction();
    if !at_rest {
        tracing::warn!("a transaction could not be ended; its connection is replaced");
    }
    Box::pin(std::future::ready(Ok(at_rest)))
}

#[cfg(test)]
mod tests {
    use super::{SqliteStore, StoreError};
    use crate::store::conformance::conformance;

    async fn open() -> (SqliteStore, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("turnfast.db")).await.unwrap();
        (store, folder)
    }

    conformance! { open() }

    /// What opening the database says.
    async fn refusal(path: &std::path::Path) -> String {
        let error = SqliteStore::open(path).await.unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        error
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_named_with_what_to_do() {
        let (store, folder) = open().await;
        let path = folder.path().join("turnfast.db");
        store.close().await;

        let whole = std::fs::read(&path).unwrap();
        for damaged in [&b"this is no database"[..], &[7; 10_000], &whole[..whole.len() / 2]] {
            std::fs::write(&path, damaged).unwrap();
            let error = refusal(&path).await;
            assert!(error.contains("damaged") && error.contains("backup"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), damaged, "nothing was changed");
        }

        std::fs::write(&path, &whole).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                     VALUES (99991231000000, 'of the future', TRUE, x'00', 0)";
        sqlx::query(newer).execute(&store.writer).await.unwrap();
        store.close().await;
        assert!(refusal(&path).await.contains("newer version of Turnfast"));

        let nowhere = folder.path().join("no/such/folder.db");
        assert!(refusal(&nowhere).await.contains("must belong to the user"));
        let occupied = folder.path().join("occupied.db");
        std::fs::create_dir(&occupied).unwrap();
        assert!(refusal(&occupied).await.contains("cannot be opened for writing"));
    }

    /// Ends the transaction beneath sqlx, as SQLite does where the disk is full.
    async fn cut(connection: &mut sqlx::SqliteConnection) {
        sqlx::query("ROLLBACK").execute(connection).await.unwrap();
    }

    #[tokio::test]
    async fn a_transaction_that_cannot_be_ended_takes_only_its_own_connection_along() {
        let (store, _folder) = open().await;
        let write = || store.write(|c| Box::pin(async move { Ok(sqlx::query("PRAGMA user_version = 0").execute(c).await?) }));
        for _ in 0..2 {
            let failed: Result<(), _> = store
                .write(|c| {
                    Box::pin(async move {
                        cut(c).await;
                        Err(StoreError::Unavailable("the disk is full".to_owned()))
                    })
                })
                .await;
            assert!(failed.unwrap_err().to_string().contains("the disk is full"));
            write().await.unwrap();
            let uncommitted = store
                .write(|c| {
                    Box::pin(async move {
                        cut(c).await;
                        Ok(())
                    })
                })
                .await;
            assert!(uncommitted.unwrap_err().to_string().contains("no transaction is active"));
            write().await.unwrap();
            let panicked: Result<(), _> = store
                .write(|c| {
                    Box::pin(async move {
                        cut(c).await;
                        panic!("a bug")
                    })
                })
                .await;
            panicked.unwrap_err();
            write().await.unwrap();
        }
        for _ in 0..2 * super::READERS {
            let cut_read = store
                .read(|c| {
                    Box::pin(async move {
                        cut(c).await;
                        Ok(())
                    })
                })
                .await;
            cut_read.unwrap_err();
        }
        store.read(|c| Box::pin(async move { Ok(sqlx::query("SELECT 1").execute(c).await?) })).await.unwrap();
    }

    #[tokio::test]
    async fn readiness_tries_a_write_only_after_one_that_failed() {
        let (store, _folder) = open().await;
        let read_only = async |on: bool| {
            let statement = if on { "PRAGMA query_only = ON" } else { "PRAGMA query_only = OFF" };
            sqlx::query(statement).execute(&store.writer).await.unwrap();
        };
        let write = || store.write(|c| Box::pin(async move { Ok(sqlx::query("CREATE TABLE t (a)").execute(c).await?) }));
        store.check().await.unwrap();
        read_only(true).await;
        store.check().await.unwrap();
        write().await.unwrap_err();
        for _ in 0..2 {
            store.check().await.unwrap_err();
        }
        read_only(false).await;
        store.check().await.unwrap();
        read_only(true).await;
        store.check().await.unwrap();
        read_only(false).await;
        write().await.unwrap();
    }
}
