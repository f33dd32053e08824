//! The record in PostgreSQL, shared by any number of processes.
//!
//! Who changes a thread locks its row first (`FOR UPDATE`), so that writers of one thread queue; who accepts something on behalf of a
//! user locks the user before it ([`lock_user`]). Several threads are locked in the order of their ids. With that order nothing can
//! wait in a circle.
//!
//! An execution begins only in the name of a process whose row in `processes` is there, and stays there until the transaction ends
//! ([`turns`]). Whoever recovers a dead process deletes that row first, and so finds all that began in its name.

mod auth;
mod copy;
mod listener;
mod turns;

use std::{borrow::Cow, str::FromStr, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use sqlx::{
    Connection as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio_util::task::TaskTracker;
use turnfast_shared::ids::UserId;

pub(crate) use self::listener::{Listener, WATCHED};
use super::StoreError;

/// Connections that one process opens for its reads and writes, at most. Idle ones are closed again.
const CONNECTIONS: u32 = 10;
/// How long a caller waits for a connection.
const ACQUIRE: Duration = Duration::from_secs(5);
/// How long the server works on one statement, waiting for locks included.
const STATEMENT: &str = "10s";
/// How long a transaction may take as seen from here, and its commit once more.
const TRANSACTION: Duration = Duration::from_secs(15);
/// How long the server has for its word that a connection can be used again.
const GIVE_BACK: Duration = Duration::from_secs(2);
/// How long [`Store::close`](super::Store) waits for what still runs, and for connections to end.
const CLOSE: Duration = Duration::from_secs(5);
/// Pause before a transaction whose outcome is not known is tried again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

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

    /// Where statements of a command come from, or of a test. A server's are [`statements`](Self::statement): nothing else takes care
    /// of a connection on which no answer comes.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Whether it is closed: then nothing more can be read or written.
    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Runs `work` in one transaction. `Err` rolls back; where the server broke off at the commit, that is not known, and what is
    /// written must bear being written again.
    async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        self.transaction("BEGIN", work).await.map_err(|Failed { error, .. }| error)
    }

    /// Runs `work` in one transaction, and again until it is known to have been committed, or to have failed: an execution that
    /// begins must not be in the record without the process that runs it knowing. `work` is told whether it may have been committed
    /// before, and then finds out.
    async fn begin<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> Fn(&'c mut PgConnection, bool) -> BoxFuture<'c, Result<T, StoreError>> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let mut in_doubt = false;
        loop {
            let once = work.clone();
            let failed = match self.transaction("BEGIN", move |connection| once(connection, in_doubt)).await {
                Ok(done) => return Ok(done),
                Err(failed) => failed,
            };
            in_doubt |= failed.at_commit;
            if !in_doubt || !matches!(failed.error, StoreError::Unavailable(_)) || self.is_closed() {
                return Err(failed.error);
            }
            tracing::warn!(error = %failed.error, "the database broke off before it said whether an execution began; asking again");
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Runs `work` on one state of the database.
    async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        self.transaction(begin, work).await.map_err(|Failed { error, .. }| error)
    }

    async fn transaction<T, W>(&self, begin: &'static str, work: W) -> Result<T, Failed>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        self.connected(move |connection| {
            Box::pin(async move {
                let worked = within(TRANSACTION, async {
                    let mut transaction = connection.begin_with(begin).await?;
                    let value = work(&mut transaction).await?;
                    Ok::<_, StoreError>((transaction, value))
                });
                let (transaction, value) = worked.await?;
                let committed = within(TRANSACTION, transaction.commit()).await;
                committed.map_err(|error| Failed { error, at_commit: true })?;
                Ok(value)
            })
        })
        .await
    }

    /// Runs one statement.
    pub(crate) async fn statement<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        self.connected(move |connection| Box::pin(within(TRANSACTION, work(connection)))).await
    }

    /// Runs `work` on a connection of its own, in a task of its own: a caller that is dropped midway, as a request's future is when
    /// the client goes away, must not leave a half-begun transaction on the connection. One that failed is not used again.
    ///
    /// The pool asks the server once more before it takes a connection back, and waits for the answer for as long as it takes. Where
    /// the network swallows everything that would be for ever, and the connection's place in the pool would be lost.
    async fn connected<T, E, W>(&self, work: W) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    {
        let pool = self.pool.clone();
        let task = self.running.spawn(async move {
            let mut connection = pool.acquire().await.map_err(StoreError::from)?;
            let worked = work(&mut connection).await;
            if worked.is_err() {
                connection.close_on_drop();
            } else {
                let given_back = connection.return_to_pool();
                // Dropped where it takes too long, and the connection with it.
                tokio::spawn(async move { tokio::time::timeout(GIVE_BACK, given_back).await });
            }
            worked
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Unavailable(error.to_string()).into()))
    }
}

/// Why a transaction was not seen to succeed.
struct Failed {
    error: StoreError,
    /// Whether it may have succeeded all the same.
    at_commit: bool,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self { error, at_commit: false }
    }
}

/// Gives `work` up after `limit`: a server that vanished answers nothing and breaks no connection.
pub(crate) async fn within<T, E: Into<StoreError>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(limit, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_elapsed) => Err(StoreError::Unavailable(format!("no answer within {} s", limit.as_secs_f32()))),
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

/// Lets executions begin in the name of `processes`, as [`crate::liveness`] does for those that claim an id.
#[cfg(test)]
pub(crate) async fn register(store: &PostgresStore, processes: impl IntoIterator<Item = turnfast_shared::ids::ProcessId>) {
    let ids: Vec<_> = processes.into_iter().map(|process| process.0).collect();
    let insert = sqlx::query("INSERT INTO processes (id, started_at) SELECT id, 0 FROM unnest($1::uuid[]) AS p (id)");
    insert.bind(ids).execute(store.pool()).await.unwrap();
}

#[cfg(test)]
mod tests;
