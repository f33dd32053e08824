//! Moves a whole record from one database to another, row by row, thread by thread.
//!
//! Both databases have the same tables with the same columns; only the types differ, and those are named here. It knows nothing of
//! what the rows mean.

use async_trait::async_trait;
use uuid::Uuid;

use super::StoreError;

/// What a column holds, whatever the database calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Id,
    Text,
    Integer,
    Flag,
    Bytes,
}

/// One value. `None` is NULL.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Id(Option<Uuid>),
    Text(Option<String>),
    Integer(Option<i64>),
    Flag(Option<bool>),
    Bytes(Option<Vec<u8>>),
}

/// A table that is copied.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    /// Which of its rows belong to a thread whose id takes the place of the `{}`; empty: it knows no threads.
    of_thread: &'static str,
}

/// A table's rows.
pub(crate) type Rows = Vec<Vec<Cell>>;

use Kind::{Bytes, Flag, Id, Integer, Text};

/// What belongs to no thread. Users first: others refer to them.
pub(crate) const OUTSIDE_THREADS: [Table; 6] = [
    Table {
        name: "users",
        columns: &[
            ("id", Id),
            ("name", Text),
            ("password_hash", Text),
            ("disabled", Flag),
            ("signed_in_at", Integer),
            ("created_at", Integer),
        ],
        of_thread: "",
    },
    Table {
        name: "browser_sessions",
        columns: &[("digest", Bytes), ("user_id", Id), ("expires_at", Integer), ("created_at", Integer)],
        of_thread: "",
    },
    Table { name: "sign_in_links", columns: &[("user_id", Id), ("digest", Bytes), ("expires_at", Integer)], of_thread: "" },
    Table {
        name: "api_tokens",
        columns: &[
            ("id", Id),
            ("user_id", Id),
            ("digest", Bytes),
            ("scopes", Text),
            ("expires_at", Integer),
            ("revoked_at", Integer),
            ("created_at", Integer),
        ],
        of_thread: "",
    },
    Table { name: "deleted_threads", columns: &[("id", Id)], of_thread: "" },
    Table { name: "deleted_messages", columns: &[("owner_id", Id), ("id", Id), ("execution_id", Id)], of_thread: "" },
];

const OF_MESSAGES: &str = "message_pk IN (SELECT pk FROM messages WHERE thread_id = {})";

/// A thread and all it holds, each table behind those that it refers to.
pub(crate) const THREAD: [Table; 7] = [
    Table {
        name: "threads",
        columns: &[
            ("id", Id),
            ("project_id", Text),
            ("agent_id", Text),
            ("owner_id", Id),
            ("title", Text),
            ("revision", Integer),
            ("created_at", Integer),
            ("updated_at", Integer),
        ],
        of_thread: "id = {}",
    },
    Table {
        name: "messages",
        columns: &[
            ("pk", Integer),
            ("id", Id),
            ("thread_id", Id),
            ("owner_id", Id),
            ("position", Integer),
            ("role", Text),
            ("execution_id", Id),
            ("status", Text),
            ("error", Text),
            ("content", Text),
            ("created_at", Integer),
            ("revision", Integer),
            ("continuations", Integer),
        ],
        of_thread: "thread_id = {}",
    },
    Table { name: "parts", columns: &[("message_pk", Integer), ("part_index", Integer), ("data", Text)], of_thread: OF_MESSAGES },
    Table {
        name: "segments",
        columns: &[("message_pk", Integer), ("part_index", Integer), ("segment_index", Integer), ("text", Text)],
        of_thread: OF_MESSAGES,
    },
    Table {
        name: "attachments",
        columns: &[("id", Id), ("message_pk", Integer), ("name", Text), ("media_type", Text), ("data", Bytes)],
        of_thread: OF_MESSAGES,
    },
    Table {
        name: "executions",
        columns: &[
            ("id", Id),
            ("thread_id", Id),
            ("message_pk", Integer),
            ("user_id", Id),
            ("process_id", Id),
            ("status", Text),
            ("cancel_requested", Flag),
            ("started_at", Integer),
            ("ended_at", Integer),
        ],
        of_thread: "thread_id = {}",
    },
    Table {
        name: "suspensions",
        columns: &[
            ("message_pk", Integer),
            ("tool_call_id", Text),
            ("thread_id", Id),
            ("state", Text),
            ("data", Text),
            ("answer", Text),
            ("position", Integer),
        ],
        of_thread: "thread_id = {}",
    },
];

impl Table {
    fn names(&self) -> String {
        self.columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// The statement that reads a table, or those of its rows that belong to the thread `placeholder`.
    pub(crate) fn select(&self, placeholder: &str) -> String {
        let condition = if self.of_thread.is_empty() { "true".to_owned() } else { self.of_thread.replace("{}", placeholder) };
        format!("SELECT {} FROM {} WHERE {condition}", self.names(), self.name)
    }

    /// The statement that writes one row.
    pub(crate) fn insert(&self, placeholder: impl Fn(usize) -> String) -> String {
        let values: Vec<String> = (1..=self.columns.len()).map(placeholder).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, self.names(), values.join(", "))
    }
}

/// A database that can be copied from and to.
#[async_trait]
pub(crate) trait Copyable: Send + Sync {
    /// Whether nobody and nothing is recorded.
    async fn is_empty(&self) -> Result<bool, StoreError>;

    /// The ids of all threads.
    async fn thread_ids(&self) -> Result<Vec<Uuid>, StoreError>;

    /// The rows of some tables: all, or those of a thread, as of one moment.
    async fn export(&self, tables: &'static [Table], thread: Option<Uuid>) -> Result<Vec<Rows>, StoreError>;

    /// Writes rows that [`Copyable::export`] gave, all or none.
    async fn import(&self, tables: &'static [Table], rows: Vec<Rows>) -> Result<(), StoreError>;

    /// Called once after all rows are there.
    async fn finish(&self) -> Result<(), StoreError>;
}

/// Copies everything from one database to an empty other one. Gives how many threads there were.
///
/// # Errors
/// A database does not answer, or `to` is not empty. What was copied by then is there.
pub(crate) async fn copy(from: &dyn Copyable, to: &dyn Copyable) -> Result<usize, CopyError> {
    if !to.is_empty().await? {
        return Err(CopyError::NotEmpty);
    }
    to.import(&OUTSIDE_THREADS, from.export(&OUTSIDE_THREADS, None).await?).await?;
    let threads = from.thread_ids().await?;
    for &thread in &threads {
        to.import(&THREAD, from.export(&THREAD, Some(thread)).await?).await?;
    }
    to.finish().await?;
    Ok(threads.len())
}

/// Why a record was not copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the database to copy to holds something already; it must be empty")]
    NotEmpty,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{
        TurnStore as _,
        conformance::{another_turn, busy_record, everything},
        postgres::{self, PostgresStore},
        sqlite::SqliteStore,
    };

    #[tokio::test]
    async fn a_record_reads_the_same_there_and_back_again() {
        let folder = tempfile::tempdir().unwrap();
        let sqlite = |name: &str| {
            let path = folder.path().join(name);
            async move { SqliteStore::open(&path).await.unwrap() }
        };
        let (here, back) = (sqlite("here.db").await, sqlite("back.db").await);
        let there = PostgresStore::open(&turnfast_test_postgres::database().unwrap()).await.unwrap();
        busy_record(Arc::new(here.clone())).await;
        let read = everything(&here).await;
        assert!(read.len() > 1_000, "there is something to compare: {read}");

        assert_eq!(copy(&here, &there).await.unwrap(), 4);
        assert_eq!(everything(&there).await, read);
        assert_eq!(copy(&there, &back).await.unwrap(), 4);
        assert_eq!(everything(&back).await, read);
        assert!(matches!(copy(&here, &there).await, Err(CopyError::NotEmpty)));

        // What was copied goes on: new rows get numbers of their own.
        let mut orphans = there.running_processes().await.unwrap();
        let process = orphans.pop().unwrap();
        assert_eq!(there.orphans(process).await.unwrap(), here.orphans(process).await.unwrap());
        postgres::register(&there, [process]).await;
        another_turn(&there).await;
    }
}
