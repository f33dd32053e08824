use std::sync::Arc;

use tokio::sync::Barrier;
use turnfast_shared::{ExecutionStatus, Part, ids::ProcessId};
use turnfast_test_postgres::Wire;

use super::{CONNECTIONS, PostgresStore, register};
use crate::store::{
    Store, StoreError, TurnStore,
    conformance::{self, approval, end, execution, flush_of, key, process, resume, suspend, text_write, turn},
    turns::{Admission, Continuation, ContinueOutcome, Flush, FlushOutcome, NewTurn, ResumeAdmission},
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

/// Has all of the store's connections at work when the network swallows everything, and lets the work end.
async fn go_silent(store: &PostgresStore, wire: &Wire) {
    let (begun, go_on) = (Arc::new(Barrier::new(CONNECTIONS as usize + 1)), Arc::new(Barrier::new(CONNECTIONS as usize + 1)));
    let work: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (store, begun, go_on) = (store.clone(), begun.clone(), go_on.clone());
            tokio::spawn(async move {
                let works = store.statement(move |c| {
                    Box::pin(async move {
                        sqlx::query("SELECT 1").execute(c).await?;
                        begun.wait().await;
                        go_on.wait().await;
                        Ok(())
                    })
                });
                works.await
            })
        })
        .collect();
    begun.wait().await;
    wire.swallow();
    go_on.wait().await;
    for work in work {
        work.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn connections_that_went_silent_are_replaced() {
    let wire = Wire::to(&turnfast_test_postgres::database().unwrap()).unwrap();
    let store = PostgresStore::open(wire.url()).await.unwrap();
    go_silent(&store, &wire).await;
    wire.mend();
    while store.running_processes().await.is_err() {}
}

#[tokio::test]
async fn a_database_that_went_silent_does_not_keep_a_process_from_ending() {
    let wire = Wire::to(&turnfast_test_postgres::database().unwrap()).unwrap();
    let store = PostgresStore::open(wire.url()).await.unwrap();
    go_silent(&store, &wire).await;
    TurnStore::close(&store).await;
}

async fn forget(store: &PostgresStore, process: ProcessId) {
    sqlx::query("DELETE FROM processes WHERE id = $1").bind(process.0).execute(store.pool()).await.unwrap();
}

/// Else whoever recovers it would end its message as it was when they looked.
#[tokio::test]
async fn a_process_that_was_forgotten_writes_nothing_more() {
    let (store, ()) = open().await;
    store.admit(turn(key(1), 1)).await.unwrap();
    let write = async |flush: Flush| store.flush([flush].into()).await.unwrap()[0];
    let saying = |text: &str| Flush { parts: vec![text_write(0, 0, text)], ..flush_of(key(1), 1) };
    assert!(matches!(write(saying("half a")).await, FlushOutcome::Written { .. }));
    forget(&store, process(1)).await;
    assert_eq!(write(saying("half a word")).await, FlushOutcome::Fenced);
    let orphan = store.orphans(process(1)).await.unwrap().remove(0);
    assert_eq!(orphan.parts, [Part::Text { text: "half a".to_owned() }]);
    let end = Some(end(ExecutionStatus::Interrupted, &orphan.parts));
    let ended = write(Flush { end, by_survivor: true, ..flush_of(key(1), 1) }).await;
    assert!(matches!(ended, FlushOutcome::Written { ended: true, .. }));
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
