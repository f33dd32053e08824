//! [`Copyable`] on SQLite.

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use crate::store::{
    StoreError,
    copy::{Cell, Copyable, Kind, Rows, Table},
    sqlite::SqliteStore,
};

#[async_trait]
impl Copyable for SqliteStore {
    async fn is_empty(&self) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT NOT EXISTS (SELECT 1 FROM users) AND NOT EXISTS (SELECT 1 FROM threads)");
        Ok(row.fetch_one(self.readers()).await?.try_get(0)?)
    }

    async fn thread_ids(&self) -> Result<Vec<Uuid>, StoreError> {
        let rows: Vec<(String,)> = sqlx::query_as("SELECT id FROM threads ORDER BY id").fetch_all(self.readers()).await?;
        rows.into_iter().map(|(id,)| uuid(&id)).collect()
    }

    async fn export(&self, tables: &'static [Table], thread: Option<Uuid>) -> Result<Vec<Rows>, StoreError> {
        self.read(move |c| {
            Box::pin(async move {
                let mut all = Vec::with_capacity(tables.len());
                for table in tables {
                    let mut query = sqlx::query(AssertSqlSafe(table.select("?1")));
                    if let Some(thread) = thread {
                        query = query.bind(thread.to_string());
                    }
                    let mut rows = Rows::new();
                    for row in query.fetch_all(&mut *c).await? {
                        let cells = table.columns.iter().map(|&(name, kind)| {
                            Ok(match kind {
                                Kind::Id => Cell::Id(row.try_get::<Option<String>, _>(name)?.as_deref().map(uuid).transpose()?),
                                Kind::Text => Cell::Text(row.try_get(name)?),
                                Kind::Integer => Cell::Integer(row.try_get(name)?),
                                Kind::Flag => Cell::Flag(row.try_get(name)?),
                                Kind::Bytes => Cell::Bytes(row.try_get(name)?),
                            })
                        });
                        rows.push(cells.collect::<Result<_, StoreError>>()?);
                    }
                    all.push(rows);
                }
                Ok(all)
            })
        })
        .await
    }

    async fn import(&self, tables: &'static [Table], rows: Vec<Rows>) -> Result<(), StoreError> {
        self.write(move |c| {
            Box::pin(async move {
                for (table, rows) in tables.iter().zip(rows) {
                    let insert = table.insert(|n| format!("?{n}"));
                    for row in rows {
                        let mut query = sqlx::query(AssertSqlSafe(insert.clone()));
                        for cell in row {
                            query = match cell {
                                Cell::Id(id) => query.bind(id.map(|id| id.to_string())),
                                Cell::Text(text) => query.bind(text),
                                Cell::Integer(number) => query.bind(number),
                                Cell::Flag(flag) => query.bind(flag),
                                Cell::Bytes(bytes) => query.bind(bytes),
                            };
                        }
                        query.execute(&mut *c).await?;
                    }
                }
                Ok(())
            })
        })
        .await
    }

    async fn finish(&self) -> Result<(), StoreError> {
        // New messages get the number behind the greatest by themselves.
        Ok(())
    }
}

fn uuid(text: &str) -> Result<Uuid, StoreError> {
    text.parse().map_err(|error| StoreError::Corrupt(format!("{text:?} is no id: {error}")))
}
