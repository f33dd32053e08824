//! Where the running server of a data folder is reached, for commands that print links: a file beside the database, which means
//! something only while a server holds its lock. The system gives the lock up when the process ends, however it ends.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Write as _},
    path::Path,
};

/// In the data folder.
const FILE: &str = "address";

/// The address of this process's server, readable by others until it is dropped.
#[derive(Debug)]
pub struct Published {
    file: File,
}

impl Published {
    /// Publishes `base_url` in the data folder. `None`: another server of the same folder has done so, and stays.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(data_dir: &Path, base_url: &str) -> io::Result<Option<Self>> {
        let mut file = File::options().read(true).write(true).create(true).truncate(false).open(data_dir.join(FILE))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        // The line's end says that it is whole.
        file.write_all(format!("{base_url}\n").as_bytes())?;
        Ok(Some(Self { file }))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Emptied rather than removed: whoever has opened the file meanwhile must not lock one that is gone. What cannot be emptied is
        // harmless, for nobody holds its lock.
        let _ = self.file.set_len(0);
    }
}

/// What the running server of a data folder has published; `None`: none runs there.
#[must_use]
pub fn of_running_server(data_dir: &Path) -> Option<String> {
    let mut file = File::open(data_dir.join(FILE)).ok()?;
    if file.try_lock_shared().is_ok() {
        // Nobody held it.
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.strip_suffix('\n').filter(|url| url.starts_with("http")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_for_as_long_as_its_server() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(of_running_server(folder.path()), None);
        let first = Published::new(folder.path(), "http://127.0.0.1:1").unwrap().unwrap();
        assert!(Published::new(folder.path(), "http://127.0.0.1:2").unwrap().is_none(), "the first stays");
        assert_eq!(of_running_server(folder.path()).as_deref(), Some("http://127.0.0.1:1"));
        drop(first);
        assert_eq!(of_running_server(folder.path()), None);
        // As a killed process leaves it.
        std::fs::write(folder.path().join(FILE), "http://127.0.0.1:3\n").unwrap();
        assert_eq!(of_running_server(folder.path()), None);
        let next = Published::new(folder.path(), "http://[::1]:4").unwrap();
        assert_eq!(of_running_server(folder.path()).as_deref(), Some("http://[::1]:4"));
        drop(next);
    }
}
