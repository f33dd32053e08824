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
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
};
use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ProcessId;
use uuid::Uuid;

use super::{Claim, ClaimError, Death, Liveness};
use crate::{
    clock,
    store::{
        StoreError,
        postgres::{Listener, PostgresStore, WATCHED, within},
    },
};

/// Where new processes are announced.
const CHANNEL: &str = "turnfast_processes";
/// How long a process may be without the connection that holds its claim. Others may have taken over long before; what it runs
/// until then is work for nothing, but in a mere outage of the database nobody else can.
const CLAIM: Duration = Duration::from_secs(60);
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
    /// Counts how often the connection that holds the claim was lost. It is the one that is asked whether it is there; those that
    /// wait for locks cannot be, and are given up with it.
    losses: watch::Sender<u64>,
    store: PostgresStore,
    claim: Duration,
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
        let options = store.options().clone().options(WATCHED);
        Self { options, arrivals: Arc::default(), losses: watch::Sender::new(0), store: store.clone(), claim: CLAIM }
    }

    /// A connection that holds the lock of `process` and listens; `None`: another session holds it.
    async fn hold(&self, process: ProcessId) -> Result<Option<Listener>, StoreError> {
        let mut listener = Listener::connect(&self.options, CHANNEL).await?;
        let locking = sqlx::query_as("SELECT pg_try_advisory_lock($1)").bind(lock_of(process)).fetch_one(listener.session());
        let (locked,): (bool,) = within(ANSWER, locking).await?;
        Ok(locked.then_some(listener))
    }

    /// Takes the lock again after its connection broke. `None`: others took this process for dead.
    async fn reclaim(&self, process: ProcessId) -> Option<Listener> {
        loop {
            let pause = match within(RECLAIM_ANSWER, self.try_reclaim(process)).await {
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
        let ending = self.store.statement(move |c| {
            Box::pin(async move {
                let terminate = sqlx::query(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks
                     WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                       AND classid::bigint = ($1 >> 32) & 4294967295 AND objid::bigint = $1 & 4294967295",
                );
                terminate.bind(lock_of(process)).execute(c).await?;
                Ok(())
            })
        });
        within(ANSWER, ending).await
    }

    async fn watch_over(self, process: ProcessId, mut listener: Listener, lost: CancellationToken) {
        loop {
            match listener.told().await {
                Ok(_) => self.arrivals.notify_one(),
                Err(error) => {
                    tracing::warn!(%error, "the connection that says that this process lives is lost");
                    drop(listener);
                    self.losses.send_modify(|losses| *losses += 1);
                    match tokio::time::timeout(self.claim, self.reclaim(process)).await {
                        Ok(Some(held)) => listener = held,
                        Ok(None) | Err(_) => return lost.cancel(),
                    }
                    // Whatever was announced meanwhile was missed.
                    self.arrivals.notify_one();
                }
            }
        }
    }

    /// Waits for the lock of `process` after `grace`.
    async fn wait(&self, process: ProcessId, grace: Duration) -> Result<PgConnection, StoreError> {
        let connecting = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            let rest = rest_of_grace(&mut connection).await?;
            Ok::<_, sqlx::Error>((connection, rest))
        };
        let (mut connection, rest) = within(ANSWER, connecting).await?;
        tokio::time::sleep(grace.max(rest)).await;
        sqlx::query("SELECT pg_advisory_lock_shared($1)").bind(lock_of(process)).execute(&mut connection).await?;
        Ok(connection)
    }
}

enum Reclaimed {
    Held(Listener),
    Taken,
    Lost,
}

#[async_trait]
impl Liveness for PostgresLocks {
    async fn claim(&self) -> Result<Claim, ClaimError> {
        let process = ProcessId::from(Uuid::now_v7());
        let listener = self.hold(process).await?;
        let listener = listener.ok_or_else(|| StoreError::Unavailable("the lock of a fresh id is taken".to_owned()))?;
        let telling = self.store.statement(move |c| {
            Box::pin(async move {
                sqlx::query("WITH it AS (INSERT INTO processes (id, started_at) VALUES ($1, $2)) SELECT pg_notify($3, '')")
                    .bind(process.0)
                    .bind(clock::now())
                    .bind(CHANNEL)
                    .execute(c)
                    .await?;
                Ok(())
            })
        });
        within(ANSWER, telling).await?;
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

    async fn is_served(&self) -> Result<bool, ClaimError> {
        for process in self.known().await? {
            if self.is_dead(process).await?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn known(&self) -> Result<Vec<ProcessId>, StoreError> {
        let looking = self.store.statement(|c| {
            Box::pin(async move {
                let rows: Vec<(Uuid,)> = sqlx::query_as("SELECT id FROM processes").fetch_all(c).await?;
                Ok(rows.into_iter().map(|(id,)| id.into()).collect())
            })
        });
        within(ANSWER, looking).await
    }

    async fn arrivals(&self) {
        self.arrivals.notified().await;
    }

    async fn is_dead(&self, process: ProcessId) -> Result<Option<Death>, StoreError> {
        within(ANSWER, async {
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
            Ok::<_, sqlx::Error>(None)
        })
        .await
    }

    async fn death(&self, process: ProcessId) -> Death {
        let mut losses = self.losses.subscribe();
        let mut grace = Duration::ZERO;
        loop {
            losses.mark_unchanged();
            tokio::select! {
                waited = self.wait(process, grace) => match waited {
                    Ok(connection) => return Death(Some(Box::new(connection))),
                    Err(error) => tracing::warn!(%error, %process, "cannot wait for the lock of a process; trying again"),
                },
                // Fails only when the sender is gone, and `self` holds it.
                _ = losses.changed() => {}
            }
            grace = GRACE;
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn forget(&self, process: ProcessId) -> Result<(), StoreError> {
        let forgetting = self.store.statement(move |c| {
            Box::pin(async move {
                sqlx::query("DELETE FROM processes WHERE id = $1").bind(process.0).execute(c).await?;
                Ok(())
            })
        });
        within(ANSWER, forgetting).await
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

#[cfg(test)]
mod tests {
    use turnfast_test_postgres::{Cluster, Wire};

    use super::*;

    async fn locks(url: &str) -> PostgresLocks {
        PostgresLocks::new(&PostgresStore::open(url).await.unwrap())
    }

    async fn until_somebody_waits(locks: &PostgresLocks) {
        let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        while sqlx::query(waits).fetch_optional(locks.store.pool()).await.unwrap().is_none() {}
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
        until_somebody_waits(&locks).await;
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

    #[tokio::test]
    async fn a_process_that_is_cut_off_for_too_long_takes_its_claim_for_lost() {
        let wire = Wire::to(&turnfast_test_postgres::database().unwrap()).unwrap();
        let mut locks = locks(wire.url()).await;
        locks.claim = Duration::from_millis(200);
        let claim = locks.claim().await.unwrap();
        wire.cut();
        claim.lost.cancelled().await;
        wire.mend();
        let anew = locks.claim().await.unwrap();
        assert_ne!(anew.process, claim.process);
    }

    #[tokio::test]
    async fn those_who_wait_for_a_lock_wait_anew_once_their_own_connection_is_lost() {
        let url = turnfast_test_postgres::database().unwrap();
        let wire = Wire::to(&url).unwrap();
        let (locks, other) = (locks(&url).await, locks(wire.url()).await);
        let (claim, own) = (locks.claim().await.unwrap(), other.claim().await.unwrap());
        let waiting = tokio::spawn({
            let (other, process) = (other.clone(), claim.process);
            async move { other.death(process).await }
        });
        until_somebody_waits(&locks).await;
        // The server sees them go; they see nothing.
        wire.swallow();
        wire.mend();
        drop(claim);
        // As the connection that holds the claim does when it gets no answer.
        other.losses.send_modify(|losses| *losses += 1);
        waiting.await.unwrap();
        drop(own);
    }
}
