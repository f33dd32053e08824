//! The record in PostgreSQL, shared by any number of processes.
//!
//! Who changes a thread locks its row first (`FOR UPDATE`), so that writers of one thread queue; who accepts something on behalf of a
//! user locks the user before it ([`lock_user`]). Several threads are locked in the order of their ids. With that order nothing can
//! wait in a circle.

mod auth;
mod copy;
mod turns;

use std::{borrow::Cow, str::FromStr, time::Duration};

use futures::future::BoxFuture;
use sqlx::{
    Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio_util::task::TaskTracker;
use turnfast_shared::ids::UserId;

use super::StoreError;

/// Connections that one process opens for its reads and writes, at most. Idle ones are closed again.
const CONNECTIONS: u32 = 10;
/// How long a caller waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(5);
/// How long the server works on one statement, waiting for locks included.
const STATEMENT: &str = "10s";
/// How long a transaction may take as seen from here: a server that vanished answers no statement and breaks no connection.
const TRANSACTION: Duration = Duration::from_secs(15);

/// A PostgreSQL database.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    pool: PgPool,
    options: PgConnectOptions,
    /// Transactions that run; see [`PostgresStore::write`].
    running: TaskTracker,
}

impl PostgresStore {
    /// Connects to the database at `url` and brings its schema up to date. Processes that start at once wait for each other: the
    /// migrations hold an advisory lock.
    ///
    /// # Errors
    /// The URL is wrong, the server does not answer, or a migration fails. The URL is not repeated: it may hold a password.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url)
            .map_err(|error| StoreError::Unavailable(format!("the database URL cannot be used: {error}")))?
            .application_name("turnfast");
        let limited = options.clone().options([("statement_timeout", STATEMENT), ("idle_in_transaction_session_timeout", "60s")]);
        let place = format!("{}:{}", options.get_host(), options.get_port());
        let unreachable = |error: String| StoreError::Unavailable(format!("cannot connect to {place}: {error}"));
        // A pool tries again where a connection is refused, and says in the end only that time ran out: this one says why.
        let first = tokio::time::timeout(ACQUIRE, PgConnection::connect_with(&options))
            .await
            .map_err(|_elapsed| unreachable("no answer".to_owned()))?
            .map_err(|error| unreachable(error.to_string()))?;
        first.close().await?;
        // Beside the pool that limits statements: migrations may take their time, and wait for those of another process.
        let migrations = PgPoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE).connect_with(options.clone()).await?;
        let migrated = sqlx::migrate!("migrations/postgres").run(&migrations).await;
        migrations.close().await;
        migrated.map_err(|error| StoreError::Unavailable(format!("migrating the database: {error}")))?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(ACQUIRE).connect_lazy_with(limited);
        Ok(Self { pool, options, running: TaskTracker::new() })
    }

    /// How to connect beside the pool, for connections that wait.
    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Where short statements come from.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Runs `work` in one transaction. `Err` rolls back.
    async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        self.transaction("BEGIN", work).await
    }

    /// Runs `work` on one state of the database.
    async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        self.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", work).await
    }

    /// It runs in a task of its own: a caller that is dropped midway, as a request's future is when the client goes away, must not
    /// leave a half-begun transaction on the connection. A connection whose transaction ran out of time is not used again.
    async fn transaction<T, W>(&self, begin: &'static str, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let pool = self.pool.clone();
        let task = self.running.spawn(async move {
            let mut connection = pool.acquire().await?;
            let worked = tokio::time::timeout(TRANSACTION, async {
                let mut transaction = connection.begin_with(begin).await?;
                let value = work(&mut transaction).await?;
                transaction.commit().await?;
                Ok(value)
            })
            .await;
            worked.unwrap_or_else(|_elapsed| {
                connection.close_on_drop();
                Err(StoreError::Unavailable(format!("no answer within {} s", TRANSACTION.as_secs())))
            })
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }

    /// Runs one statement, in a task and within a time like a transaction.
    async fn statement<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let pool = self.pool.clone();
        let task = self.running.spawn(async move {
            let mut connection = pool.acquire().await?;
            let worked = tokio::time::timeout(TRANSACTION, work(&mut connection)).await;
            worked.unwrap_or_else(|_elapsed| {
                connection.close_on_drop();
                Err(StoreError::Unavailable(format!("no answer within {} s", TRANSACTION.as_secs())))
            })
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string())))
    }
}

/// Queues whoever accepts something on behalf of `user`, until the transaction ends: what is counted and looked up then stays true.
async fn lock_user(c: &mut PgConnection, user: UserId) -> Result<(), StoreError> {
    /// Keeps these locks apart from others that take two numbers.
    const CLASS: i32 = 0x7475_726e;
    sqlx::query("SELECT pg_advisory_xact_lock($1, hashtext($2))").bind(CLASS).bind(user.to_string()).execute(c).await?;
    Ok(())
}

/// PostgreSQL takes no NUL in text.
fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

#[cfg(test)]
mod tests;
