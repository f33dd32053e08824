//! A consistent copy of the database, while it is in use.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use super::SqliteStore;

/// Why no copy was written.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target, or the file beside it in which the copy grows, cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Target {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The database cannot be copied.
    #[error("the database cannot be copied: {0}")]
    Database(#[from] sqlx::Error),
}

impl SqliteStore {
    /// Writes a copy of the database to `to`, which must not exist. The copy is complete or not there: it grows beside it, as
    /// `to` with `.part` behind. Only its owner may read it, for it holds password hashes and conversations.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub async fn backup(&self, to: &Path) -> Result<(), BackupError> {
        let refuse = |path: &Path, error| BackupError::Target { path: path.to_owned(), error };
        if to.exists() {
            return Err(refuse(to, io::ErrorKind::AlreadyExists.into()));
        }
        let mut growing = to.to_owned().into_os_string();
        growing.push(".part");
        let growing = PathBuf::from(growing);
        // The database takes its file names as text.
        let text = growing.to_str().ok_or_else(|| refuse(to, io::ErrorKind::InvalidFilename.into()))?;
        let mut create = OpenOptions::new();
        create.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut create, 0o600);
        create.open(&growing).map_err(|error| refuse(&growing, error))?;
        // SQLite fills an empty file. It reads in one transaction: writers go on meanwhile, and the copy shows one moment.
        let copied = sqlx::query("VACUUM INTO ?").bind(text).execute(self.readers()).await;
        let kept = copied.map_err(BackupError::from).and_then(|_| {
            let synced = fs::File::open(&growing).and_then(|file| file.sync_all());
            synced.and_then(|()| fs::rename(&growing, to)).map_err(|error| refuse(to, error))
        });
        if kept.is_err() {
            // What failed matters more than what it leaves behind.
            let _ = fs::remove_file(&growing);
        }
        kept
    }
}
