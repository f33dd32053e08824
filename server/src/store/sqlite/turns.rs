//! [`TurnStore`] on SQLite.

use crate::store::{TurnStore, sqlite::SqliteStore};

impl TurnStore for SqliteStore {}
