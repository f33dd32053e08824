use std::sync::Arc;

use turnfast_shared::ids::ProcessId;
use turnfast_test_postgres::Wire;

use super::{PostgresStore, register};
use crate::store::{
    Store, StoreError, TurnStore,
    conformance::{self, approval, execution, key, process, resume, suspend, turn},
    turns::{Admission, Continuation, ContinueOutcome, NewTurn, ResumeAdmission},
};

async fn open_at(url: &str) -> PostgresStore {
    let store = PostgresStore::open(url).await.unwrap();
    register(&store, conformance::processes()).await;
    store
}

async fn open() -> (PostgresStore, ()) {
    (open_at(&turnfast_test_postgres::database().unwrap()).await, ())
}

conformance::conformance! { open() }

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

async fn forget(store: &PostgresStore, process: ProcessId) {
    sqlx::query("DELETE FROM processes WHERE id = $1").bind(process.0).execute(store.pool()).await.unwrap();
}

#[tokio::test]
async fn nothing_begins_in_the_name_of_a_process_that_was_forgotten() {
    let (store, ()) = open().await;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    store.admit(turn(key(1), 1)).await.unwrap();
    suspend(&shared, key(1), 1, vec![approval("c1", 1)]).await;
    store.admit(NewTurn { process: process(2), ..turn(key(2), 2) }).await.unwrap();
    forget(&store, process(1)).await;
    assert!(matches!(store.admit(turn(key(3), 3)).await, Err(StoreError::ClaimLost)));
    assert!(store.snapshot(&key(3), None).await.unwrap().is_none(), "nothing is left behind");
    assert!(matches!(store.admit_resume(resume(1, "c1", 4)).await, Err(StoreError::ClaimLost)));
    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!(snapshot.suspensions.len(), 1, "the question stays open");
    let continuation = Continuation {
        orphan: execution(2),
        dead: process(2),
        key: key(2),
        execution: execution(5),
        process: process(1),
        at: 70,
    };
    assert!(matches!(store.continue_orphan(continuation).await, Err(StoreError::ClaimLost)));
    assert_eq!(store.orphans(process(2)).await.unwrap().len(), 1, "it is left to another one");
}

#[tokio::test]
async fn whoever_forgets_a_process_finds_all_that_began_in_its_name() {
    let (store, ()) = open().await;
    for round in 0..20 {
        let process = process(round + 1);
        let admissions: Vec<_> = (0..4)
            .map(|n| {
                let (store, n) = (store.clone(), round * 10 + n + 1);
                tokio::spawn(async move { store.admit(NewTurn { process, ..turn(key(n), n) }).await })
            })
            .collect();
        // At another moment each time: between the first admissions and the last.
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        forget(&store, process).await;
        let found = store.orphans(process).await.unwrap();
        let mut accepted = 0;
        for admission in admissions {
            match admission.await.unwrap() {
                Ok(Admission::Accepted { .. }) => accepted += 1,
                Err(StoreError::ClaimLost) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(found.len(), accepted, "in round {round}");
    }
}

#[tokio::test]
async fn what_began_is_known_to_have_begun_although_the_server_broke_off() {
    let wire = Wire::to(&turnfast_test_postgres::database().unwrap()).unwrap();
    let store = open_at(wire.url()).await;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    wire.break_after("COMMIT");
    assert_eq!(store.admit(turn(key(1), 1)).await.unwrap(), Admission::Accepted { revision: 1 });
    suspend(&shared, key(1), 1, vec![approval("c1", 1)]).await;
    wire.break_after("COMMIT");
    let accepted = store.admit_resume(resume(1, "c1", 2)).await.unwrap();
    let message = turn(key(1), 1).message;
    assert_eq!(accepted, ResumeAdmission::Accepted { thread: key(1).thread, message, revision: 3 });
    let continuation = Continuation {
        orphan: execution(2),
        dead: process(1),
        key: key(1),
        execution: execution(3),
        process: process(2),
        at: 70,
    };
    wire.break_after("COMMIT");
    assert_eq!(store.continue_orphan(continuation).await.unwrap(), ContinueOutcome::Continued { revision: 4 });
    assert_eq!(store.orphans(process(2)).await.unwrap()[0].continuations, 1, "once");
    // Others hear what they would have heard.
    let again = NewTurn { execution: execution(9), ..turn(key(1), 1) };
    assert_eq!(store.admit(again).await.unwrap(), Admission::AlreadyAccepted { execution: execution(1) });
}
