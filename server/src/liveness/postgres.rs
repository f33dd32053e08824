//! Session advisory locks in the database that all processes share, for PostgreSQL.
//!
//! Each process holds one on a connection of its own, and for each other process a connection that waits for that one's lock. The
//! server gives a session's locks up when its connection goes. The connection that holds the claim also listens for new processes.
//!
//! A claim outlives a connection where nobody took this process for dead meanwhile, as when the server itself was restarted: those
//! who wait lost their connections too, and give it [`GRACE`] to claim anew. So do those who come only then: the locks of a server
//! that is younger than that say nothing yet.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    Connection as _, Executor as _, PgConnection,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::{sync::Notify, task::AbortHandle};
use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ProcessId;
use uuid::Uuid;

use super::{Claim, Death, Liveness};
use crate::{
    clock,
    store::{StoreError, postgres::PostgresStore},
};

/// Where new processes are announced.
const CHANNEL: &str = "turnfast_processes";
/// How long the owner of a lock that the server lost has for taking it again.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between attempts to connect.
const RECONNECT: Duration = Duration::from_millis(100);
/// Pause between attempts to have the own lock back.
const RECLAIM: Duration = Duration::from_millis(50);
/// How long connecting and what is done at once after it may take.
const ANSWER: Duration = Duration::from_secs(5);
/// The same for taking the own lock again: several attempts fit into [`GRACE`].
const RECLAIM_ANSWER: Duration = Duration::from_secs(2);

/// One advisory lock per process.
#[derive(Clone, Debug)]
pub struct PostgresLocks {
    options: PgConnectOptions,
    arrivals: Arc<Notify>,
    store: PostgresStore,
}

/// What holds a claim: the task that watches over its connection.
struct Holder(AbortHandle);

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PostgresLocks {
    /// Locks in the database of `store`.
    #[must_use]
    pub fn new(store: &PostgresStore) -> Self {
        let options = store.options().clone().options([
            // These connections wait. A server whose client vanished without a word notices within seconds.
            ("statement_timeout", "0"),
            ("lock_timeout", "0"),
            ("idle_session_timeout", "0"),
            ("client_connection_check_interval", "2s"),
            ("tcp_keepalives_idle", "5"),
            ("tcp_keepalives_interval", "2"),
            ("tcp_keepalives_count", "3"),
        ]);
        Self { options, arrivals: Arc::default(), store: store.clone() }
    }

    /// A connection that holds the lock of `process` and listens.
    async fn hold(&self, process: ProcessId) -> Result<Option<PgListener>, StoreError> {
        within(async {
            // The listener wants a pool; one of its own, so that nothing else has its connection.
            let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).acquire_timeout(ANSWER);
            let mut listener = PgListener::connect_with(&pool.connect_with(self.options.clone()).await?).await?;
            listener.eager_reconnect(false);
            listener.listen(CHANNEL).await?;
            let (locked,): (bool,) =
                sqlx::query_as("SELECT pg_try_advisory_lock($1)").bind(lock_of(process)).fetch_one(&mut listener).await?;
            Ok(locked.then_some(listener))
        })
        .await
    }

    /// Takes the lock again after its connection broke. `None`: others took this process for dead.
    async fn reclaim(&self, process: ProcessId) -> Option<PgListener> {
        loop {
            let attempt = tokio::time::timeout(RECLAIM_ANSWER, self.try_reclaim(process)).await;
            let pause = match attempt.unwrap_or_else(|_elapsed| Err(no_answer(RECLAIM_ANSWER))) {
                Ok(Reclaimed::Held(listener)) => return Some(listener),
                Ok(Reclaimed::Lost) => return None,
                Ok(Reclaimed::Taken) => RECLAIM,
                Err(error) => {
                    tracing::warn!(%error, "the connection that says that this process lives is gone; trying again");
                    RECONNECT
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn try_reclaim(&self, process: ProcessId) -> Result<Reclaimed, StoreError> {
        let held = self.hold(process).await?;
        // Looked up with the lock in hand: whoever recovers this process forgets it before giving the lock up.
        if !self.known().await?.contains(&process) {
            return Ok(Reclaimed::Lost);
        }
        if held.is_none() {
            // The server may not know yet that the old connection is gone.
            self.end_sessions_that_hold(process).await?;
        }
        Ok(held.map_or(Reclaimed::Taken, Reclaimed::Held))
    }

    async fn end_sessions_that_hold(&self, process: ProcessId) -> Result<(), StoreError> {
        within(async {
            sqlx::query(
                "SELECT pg_terminate_backend(pid) FROM pg_locks
                 WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                   AND classid::bigint = ($1 >> 32) & 4294967295 AND objid::bigint = $1 & 4294967295",
            )
            .bind(lock_of(process))
            .execute(self.store.pool())
            .await?;
            Ok(())
        })
        .await
    }

    async fn watch_over(self, process: ProcessId, mut listener: PgListener, lost: CancellationToken) {
        loop {
            match listener.try_recv().await {
                Ok(Some(_)) => self.arrivals.notify_one(),
                Ok(None) | Err(_) => {
                    drop(listener);
                    match self.reclaim(process).await {
                        Some(held) => listener = held,
                        None => return lost.cancel(),
                    }
                    // Whatever was announced meanwhile was missed.
                    self.arrivals.notify_one();
                }
            }
        }
    }

    /// Waits for the lock of `process` after `grace`.
    async fn wait(&self, process: ProcessId, grace: Duration) -> Result<PgConnection, StoreError> {
        let (mut connection, rest) = within(async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            let rest = rest_of_grace(&mut connection).await?;
            Ok((connection, rest))
        })
        .await?;
        tokio::time::sleep(grace.max(rest)).await;
        sqlx::query("SELECT pg_advisory_lock_shared($1)").bind(lock_of(process)).execute(&mut connection).await?;
        Ok(connection)
    }
}

enum Reclaimed {
    Held(PgListener),
    Taken,
    Lost,
}

#[async_trait]
impl Liveness for PostgresLocks {
    async fn claim(&self) -> Result<Claim, StoreError> {
        let process = ProcessId::from(Uuid::now_v7());
        let listener = self.hold(process).await?;
        let listener = listener.ok_or_else(|| StoreError::Unavailable("the lock of a fresh id is taken".to_owned()))?;
        within(async {
            sqlx::query("WITH it AS (INSERT INTO processes (id, started_at) VALUES ($1, $2)) SELECT pg_notify($3, '')")
                .bind(process.0)
                .bind(clock::now())
                .bind(CHANNEL)
                .execute(self.store.pool())
                .await?;
            Ok(())
        })
        .await?;
        let lost = CancellationToken::new();
        let watch = tokio::spawn(self.clone().watch_over(process, listener, lost.clone()));
        Ok(Claim { process, lost, held: Box::new(Holder(watch.abort_handle())) })
    }

    async fn release(&self, claim: Claim) {
        if let Err(error) = self.forget(claim.process).await {
            tracing::warn!(%error, process = %claim.process, "this process stays known; another one will find it gone");
        }
        drop(claim.held);
    }

    async fn known(&self) -> Result<Vec<ProcessId>, StoreError> {
        within(async {
            let rows: Vec<(Uuid,)> = sqlx::query_as("SELECT id FROM processes").fetch_all(self.store.pool()).await?;
            Ok(rows.into_iter().map(|(id,)| id.into()).collect())
        })
        .await
    }

    async fn arrivals(&self) {
        self.arrivals.notified().await;
    }

    async fn is_dead(&self, process: ProcessId) -> Result<Option<Death>, StoreError> {
        within(async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            if rest_of_grace(&mut connection).await?.is_zero() {
                let (dead,): (bool,) = sqlx::query_as("SELECT pg_try_advisory_lock_shared($1)")
                    .bind(lock_of(process))
                    .fetch_one(&mut connection)
                    .await?;
                if dead {
                    return Ok(Some(Death(Some(Box::new(connection)))));
                }
            }
            // How the connection ends does not matter: it holds nothing.
            let _ = connection.close().await;
            Ok(None)
        })
        .await
    }

    async fn death(&self, process: ProcessId) -> Death {
        let mut grace = Duration::ZERO;
        loop {
            match self.wait(process, grace).await {
                Ok(connection) => return Death(Some(Box::new(connection))),
                Err(error) => tracing::warn!(%error, %process, "cannot wait for the lock of a process; trying again"),
            }
            grace = GRACE;
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn forget(&self, process: ProcessId) -> Result<(), StoreError> {
        within(async {
            self.store.pool().execute(sqlx::query("DELETE FROM processes WHERE id = $1").bind(process.0)).await?;
            Ok(())
        })
        .await
    }
}

/// How much of [`GRACE`] is left since the server started.
async fn rest_of_grace(connection: &mut PgConnection) -> Result<Duration, sqlx::Error> {
    let (age,): (f64,) = sqlx::query_as("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8")
        .fetch_one(connection)
        .await?;
    // A clock that was set back makes it negative: then the whole of it is left.
    Ok(GRACE.saturating_sub(Duration::try_from_secs_f64(age).unwrap_or_default()))
}

/// The lock of a process: the random half of its id.
fn lock_of(process: ProcessId) -> i64 {
    process.0.as_u64_pair().1.cast_signed()
}

async fn within<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(ANSWER, work).await.unwrap_or_else(|_elapsed| Err(no_answer(ANSWER)))
}

fn no_answer(within: Duration) -> StoreError {
    StoreError::Unavailable(format!("no answer within {} s", within.as_secs()))
}

#[cfg(test)]
mod tests {
    use turnfast_test_postgres::Cluster;

    use super::*;

    async fn locks(url: &str) -> PostgresLocks {
        PostgresLocks::new(&PostgresStore::open(url).await.unwrap())
    }

    #[tokio::test]
    async fn a_death_is_noticed_by_all_who_wait_for_it() {
        let url = turnfast_test_postgres::database().unwrap();
        let (locks, other) = (locks(&url).await, locks(&url).await);
        let first = other.claim().await.unwrap();
        let claim = locks.claim().await.unwrap();
        let process = claim.process;
        other.arrivals().await;
        let mut known = other.known().await.unwrap();
        known.sort_unstable();
        assert_eq!(known, [first.process, process]);
        assert!(other.is_dead(process).await.unwrap().is_none());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let other = other.clone();
                tokio::spawn(async move { other.death(process).await })
            })
            .collect();
        assert!(other.is_dead(process).await.unwrap().is_none(), "waiting takes nothing from the living");
        drop(claim);
        let mut deaths = Vec::new();
        for waiting in waiting {
            deaths.push(waiting.await.unwrap());
        }
        assert!(other.is_dead(process).await.unwrap().is_some());
        other.forget(process).await.unwrap();
        assert_eq!(other.known().await.unwrap(), [first.process]);
        other.release(first).await;
        assert!(other.known().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_process_whose_connection_is_cut_is_dead_once_another_has_recovered_it() {
        let url = turnfast_test_postgres::database().unwrap();
        let (locks, other) = (locks(&url).await, locks(&url).await);
        let claim = locks.claim().await.unwrap();
        let waiting = tokio::spawn({
            let (other, process) = (other.clone(), claim.process);
            async move { other.death(process).await }
        });
        // Only once the other one waits is its death noticed in time.
        let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while sqlx::query(waits).fetch_optional(other.store.pool()).await.unwrap().is_none() {}
        other.end_sessions_that_hold(claim.process).await.unwrap();
        let death = waiting.await.unwrap();
        assert!(!claim.lost.is_cancelled(), "it is not lost before it is recovered");
        other.forget(claim.process).await.unwrap();
        drop(death);
        claim.lost.cancelled().await;
    }

    #[tokio::test]
    async fn a_claim_outlives_a_restart_of_the_server() {
        let mut cluster = Cluster::start().unwrap();
        let url = cluster.database().unwrap();
        let (locks, other) = (locks(&url).await, locks(&url).await);
        let claim = locks.claim().await.unwrap();
        let waiting = tokio::spawn({
            let (other, process) = (other.clone(), claim.process);
            async move { other.death(process).await }
        });
        cluster.kill();
        cluster.restart().unwrap();
        // The lock is taken again before those who wait may have it.
        let held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock'";
        while !matches!(sqlx::query(held).fetch_optional(other.store.pool()).await, Ok(Some(_))) {}
        assert!(!claim.lost.is_cancelled());
        assert!(!waiting.is_finished());
        drop(claim);
        waiting.await.unwrap();
    }
}
