//! Which processes live, as a fact: each holds a lock for as long as it lives, and whoever waits for that lock learns of its death
//! the moment the lock is given up, by the operating system or by the database server. Nobody guesses from silence.
//!
//! Those who wait share the lock of the dead process ([`Death`]) while they recover what it left: the record decides who of them
//! does (`turns::recovery`), and a process that only lost its connection cannot have its lock back before they are done.

mod alone;
mod postgres;

pub use alone::Alone;
pub use postgres::PostgresLocks;

use std::{any::Any, fmt, io, path::PathBuf};

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

/// Why a process may not serve.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another one serves this folder, and one at a time does.
    #[error(
        "another server uses the data folder {}; one at a time does. Stop it first, give this one a folder of its own (--data-dir), \
         or let both use one PostgreSQL (--database-url)",
        folder.display()
    )]
    Served {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("the file {} cannot be locked: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    async fn claim(&self) -> Result<Claim, ClaimError>;

    /// Gives a claim up, once nothing that runs belongs to it any more.
    async fn release(&self, claim: Claim);

    /// Whether any process has a claim at this moment.
    ///
    /// # Errors
    /// The locks cannot be looked at.
    async fn is_served(&self) -> Result<bool, ClaimError>;

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

    /// Forgets a dead process: from now on nothing begins in its name. What has begun by then is still to be recovered.
    ///
    /// # Errors
    /// It stays known.
    async fn forget(&self, process: ProcessId) -> Result<(), StoreError>;
}
