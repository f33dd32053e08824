use super::PostgresStore;
use crate::store::conformance::conformance;

async fn open() -> (PostgresStore, ()) {
    let url = turnfast_test_postgres::database().unwrap();
    (PostgresStore::open(&url).await.unwrap(), ())
}

conformance! { open() }

#[tokio::test]
async fn processes_that_start_at_once_migrate_once() {
    let url = turnfast_test_postgres::database().unwrap();
    let starts: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { PostgresStore::open(&url).await })
        })
        .collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
}
