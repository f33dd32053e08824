//! Which processes live, as a fact: each holds a lock for as long as it lives, and whoever waits for that lock learns of its death
//! the moment the lock is given up, by the operating system or by the database server. Nobody guesses from silence.
//!
//! Those who wait share the lock of the dead process ([`Death`]) while they recover what it left: the record decides who of them
//! does (`turns::recovery`), and a process that only lost its connection cannot have its lock back before they are done.

mod files;
mod postgres;

pub use files::LockFiles;
pub use postgres::PostgresLocks;

use std::{any::Any, fmt};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ProcessId;

use crate::store::StoreError;

/// The claim of this process, held until it is [released](Liveness::release), lost or the process ends.
pub struct Claim {
    /// Who this process is.
    pub process: ProcessId,
    /// Cancelled when the claim is lost: others take this process for dead, and rightly so.
    pub lost: CancellationToken,
    held: Box<dyn Any + Send + Sync>,
}

/// That a process is dead. It stays dead at least for as long as this is held.
pub struct Death(#[expect(dead_code, reason = "held, not read")] Option<Box<dyn Any + Send + Sync>>);

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({})", self.process)
    }
}

/// The locks of the processes that share a database.
#[async_trait]
pub trait Liveness: Send + Sync {
    /// Claims a fresh id for this process.
    ///
    /// # Errors
    /// The lock cannot be had, whatever the reason; trying again may help.
    async fn claim(&self) -> Result<Claim, StoreError>;

    /// Gives a claim up, once nothing that runs belongs to it any more.
    async fn release(&self, claim: Claim);

    /// Processes that have a claim, or had one and were not [forgotten](Liveness::forget).
    ///
    /// # Errors
    /// The locks cannot be listed.
    async fn known(&self) -> Result<Vec<ProcessId>, StoreError>;

    /// Waits until there may be a process that [`Liveness::known`] did not name before.
    async fn arrivals(&self);

    /// Whether `process` is known to be dead. Does not wait: `None` may also mean that it cannot be told yet.
    ///
    /// # Errors
    /// The lock cannot be looked at.
    async fn is_dead(&self, process: ProcessId) -> Result<Option<Death>, StoreError>;

    /// Waits for the death of `process`, however long it lives.
    async fn death(&self, process: ProcessId) -> Death;

    /// Forgets a dead process: nothing that runs belongs to it any more.
    ///
    /// # Errors
    /// It stays known.
    async fn forget(&self, process: ProcessId) -> Result<(), StoreError>;
}
