//! [`AuthStore`] on SQLite.

use crate::store::{AuthStore, sqlite::SqliteStore};

impl AuthStore for SqliteStore {}
