//! Locks on files in a folder that all processes of the database share, for SQLite.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ProcessId;
use uuid::Uuid;

use super::{Claim, Death, Liveness};
use crate::store::StoreError;

/// How often the folder is looked through for new processes. Their death, once they are known, is noticed without such a pause.
const LOOK: Duration = Duration::from_secs(1);
/// Pause before a lock file that cannot be opened is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// What lock files are called: the process's id, and this.
const SUFFIX: &str = ".lock";

/// One lock file per process.
#[derive(Clone, Debug)]
pub struct LockFiles {
    folder: PathBuf,
}

impl LockFiles {
    /// Locks in `folder`, which is created where it is missing.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(folder).map_err(|error| unusable(folder, &error))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self, process: ProcessId) -> PathBuf {
        self.folder.join(format!("{process}{SUFFIX}"))
    }

    fn remove(&self, process: ProcessId) -> io::Result<()> {
        match fs::remove_file(self.path(process)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Liveness for LockFiles {
    async fn claim(&self) -> Result<Claim, StoreError> {
        let process = ProcessId::from(Uuid::now_v7());
        // Locked before it has its name: nobody may find it unlocked.
        let unnamed = self.folder.join(format!("{process}.new"));
        let lock = || {
            let file = File::create_new(&unnamed)?;
            file.lock()?;
            fs::rename(&unnamed, self.path(process))?;
            Ok(file)
        };
        let file = lock().map_err(|error: io::Error| unusable(&self.folder, &error))?;
        // The system takes such a lock from nobody who lives.
        Ok(Claim { process, lost: CancellationToken::new(), held: Box::new(file) })
    }

    async fn release(&self, claim: Claim) {
        // Removed while still locked. A file that stays behind is harmless: nobody holds its lock.
        if let Err(error) = self.remove(claim.process) {
            tracing::warn!(%error, process = %claim.process, "a lock file could not be removed");
        }
        drop(claim.held);
    }

    async fn known(&self) -> Result<Vec<ProcessId>, StoreError> {
        let read = || -> io::Result<Vec<ProcessId>> {
            let mut known = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                let name = entry?.file_name();
                known.extend(name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse::<ProcessId>().ok()));
            }
            Ok(known)
        };
        read().map_err(|error| unusable(&self.folder, &error))
    }

    async fn arrivals(&self) {
        tokio::time::sleep(LOOK).await;
    }

    async fn is_dead(&self, process: ProcessId) -> Result<Option<Death>, StoreError> {
        let Some(file) = open(&self.path(process)).map_err(|error| unusable(&self.folder, &error))? else {
            return Ok(Some(Death(None)));
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(Death(Some(Box::new(file))))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(unusable(&self.folder, &error)),
        }
    }

    async fn death(&self, process: ProcessId) -> Death {
        loop {
            let path = self.path(process);
            let (tell, told) = oneshot::channel();
            // A thread of its own and not one of the runtime's: it waits for as long as the other process lives, and must not keep
            // this one from ending.
            let waiting = thread::Builder::new().name("liveness".to_owned()).spawn(move || {
                let locked = open(&path).and_then(|file| {
                    let Some(file) = file else { return Ok(Death(None)) };
                    file.lock_shared()?;
                    Ok(Death(Some(Box::new(file))))
                });
                // Nobody listens any more: then the lock is given up again.
                let _ = tell.send(locked);
            });
            let outcome = match waiting {
                Ok(_thread) => told.await.unwrap_or_else(|_gone| Err(io::Error::other("the waiting thread failed"))),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(death) => return death,
                Err(error) => tracing::warn!(%error, %process, "cannot wait for the lock of a process; trying again"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn forget(&self, process: ProcessId) -> Result<(), StoreError> {
        self.remove(process).map_err(|error| unusable(&self.folder, &error))
    }
}

/// The file, or `None` where there is none: a process without a lock file is dead.
fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unusable(folder: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("the lock folder {}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_death_is_noticed_by_all_who_wait_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let locks = LockFiles::open(folder.path()).unwrap();
        let claim = locks.claim().await.unwrap();
        let process = claim.process;
        assert_eq!(locks.known().await.unwrap(), [process]);
        assert!(locks.is_dead(process).await.unwrap().is_none());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let locks = locks.clone();
                tokio::spawn(async move { locks.death(process).await })
            })
            .collect();
        assert!(locks.is_dead(process).await.unwrap().is_none(), "waiting takes nothing from the living");
        // As the system does when the process ends.
        drop(claim);
        let mut deaths = Vec::new();
        for waiting in waiting {
            deaths.push(waiting.await.unwrap());
        }
        assert!(locks.is_dead(process).await.unwrap().is_some());
        locks.forget(process).await.unwrap();
        locks.forget(process).await.unwrap();
        assert!(locks.known().await.unwrap().is_empty());
        assert!(locks.is_dead(process).await.unwrap().is_some(), "without a file it is dead too");
        locks.death(process).await;
    }

    #[tokio::test]
    async fn a_released_claim_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let locks = LockFiles::open(folder.path()).unwrap();
        let claim = locks.claim().await.unwrap();
        locks.release(claim).await;
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
