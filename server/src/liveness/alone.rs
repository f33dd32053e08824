//! The one process that serves a data folder, for SQLite.
//!
//! Followers hear of a change from the process that made it, and nothing carries that from one process on a SQLite file to another.
//! So one at a time serves it: it holds a lock on a file beside the database, and every other process that the record names is dead.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ProcessId;
use uuid::Uuid;

use super::{Claim, ClaimError, Death, Liveness};
use crate::store::StoreError;

/// The file whose lock says that the folder is served. It stays when the lock goes.
const FILE: &str = "serving.lock";

/// The lock of a folder.
#[derive(Clone, Debug)]
pub struct Alone {
    folder: PathBuf,
}

impl Alone {
    /// The lock of `folder`, which must exist. Nothing is locked yet.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn failed(&self, error: std::io::Error) -> ClaimError {
        ClaimError::File { path: self.folder.join(FILE), error }
    }
}

#[async_trait]
impl Liveness for Alone {
    async fn claim(&self) -> Result<Claim, ClaimError> {
        let file = File::options().create(true).append(true).open(self.folder.join(FILE)).map_err(|error| self.failed(error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ClaimError::Served { folder: self.folder.clone() }),
            Err(TryLockError::Error(error)) => return Err(self.failed(error)),
        }
        // The system takes such a lock from nobody who lives.
        Ok(Claim { process: Uuid::now_v7().into(), lost: CancellationToken::new(), held: Box::new(file) })
    }

    async fn release(&self, claim: Claim) {
        drop(claim);
    }

    async fn is_served(&self) -> Result<bool, ClaimError> {
        match self.claim().await {
            Ok(_claim) => Ok(false),
            Err(ClaimError::Served { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn known(&self) -> Result<Vec<ProcessId>, StoreError> {
        Ok(Vec::new())
    }

    async fn arrivals(&self) {
        std::future::pending().await
    }

    async fn is_dead(&self, _process: ProcessId) -> Result<Option<Death>, StoreError> {
        Ok(Some(Death(None)))
    }

    async fn death(&self, _process: ProcessId) -> Death {
        Death(None)
    }

    async fn forget(&self, _process: ProcessId) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_serves_a_folder_and_the_next_may_once_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Alone::new(folder.path()), Alone::new(folder.path()));
        assert!(!other.is_served().await.unwrap());
        let claim = one.claim().await.unwrap();
        assert!(other.is_served().await.unwrap());
        let refused = other.claim().await.unwrap_err();
        assert!(matches!(&refused, ClaimError::Served { .. }), "{refused}");
        one.release(claim).await;
        let claim = other.claim().await.unwrap();
        // As the system does when the process ends.
        drop(claim);
        assert!(!one.is_served().await.unwrap());
        let missing = Alone::new(&folder.path().join("missing"));
        assert!(missing.claim().await.unwrap_err().to_string().contains("serving.lock"));
    }
}
