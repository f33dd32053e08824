//! Whether a process lives, as a fact: each process holds a lock on a file named after it, and the operating system gives the lock
//! up when the process ends, however it ends.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use turnfast_shared::ids::ProcessId;

/// The lock that this process holds for as long as it lives.
#[derive(Debug)]
pub struct Claim {
    file: File,
    path: PathBuf,
}

impl Claim {
    /// Claims `process`, in the folder that all processes of this database share.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn acquire(folder: &Path, process: ProcessId) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = lock_path(folder, process);
        let file = File::create_new(&path)?;
        file.lock()?;
        Ok(Self { file, path })
    }

    /// Takes over the claim of a process that is dead; `None`: it lives, or another process is taking over.
    ///
    /// # Errors
    /// The lock file cannot be opened.
    pub fn take_over(folder: &Path, process: ProcessId) -> io::Result<Option<Self>> {
        fs::create_dir_all(folder)?;
        let path = lock_path(folder, process);
        // Created where it is missing: a process without a lock file is dead, and taking over must still exclude others.
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file, path })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Gives the claim up and removes its file, once nothing in the record belongs to the process any more.
    pub fn release(self) {
        // Removed while still locked. A file that stays behind is harmless: nobody holds its lock.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a lock file could not be removed");
        }
        drop(self.file);
    }
}

fn lock_path(folder: &Path, process: ProcessId) -> PathBuf {
    folder.join(format!("{process}.lock"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_living_process_cannot_be_taken_over_and_a_dead_one_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let process = Uuid::from_u128(1).into();
        let claim = Claim::acquire(folder.path(), process).unwrap();
        assert!(Claim::take_over(folder.path(), process).unwrap().is_none());
        drop(claim);
        let taken = Claim::take_over(folder.path(), process).unwrap();
        assert!(taken.is_some());
        assert!(Claim::take_over(folder.path(), process).unwrap().is_none());
        taken.unwrap().release();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
