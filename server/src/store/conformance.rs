//! What every [`Store`] must do, whatever database is below. One macro makes a test of each function here for one store.
//! Those about users and sign-in are in [`crate::auth`]'s tests, which run over every store too.

use std::sync::Arc;

use turnfast_shared::{
    ExecutionStatus, Message, Part, Role,
    event::Suspension,
    ids::{ExecutionId, MessageId, ProcessId, ThreadId, UserId},
    message::{AnswerMismatch, ExecutionError, ResumeData, SuspendPayload, ToolCall, ToolState},
};
use uuid::Uuid;

use super::{
    Store,
    auth::{Digest, NewSession, NewUser, Token},
    turns::*,
};

/// Makes a `#[tokio::test]` of each function of this module. `$open` gives a fresh store and whatever keeps it alive.
macro_rules! conformance {
    ($open:expr) => {
        $crate::store::conformance::conformance! { $open =>
            an_accepted_turn_shows_before_any_output
            a_thread_is_found_only_under_its_whole_key
            a_thread_runs_one_turn_at_a_time
            of_racing_submits_one_wins
            a_message_is_accepted_once
            a_user_runs_a_bounded_number_of_turns
            open_text_is_read_back_as_it_was_written
            a_late_or_foreign_write_is_refused_and_changes_nothing
            a_group_of_flushes_is_one_commit
            an_end_is_final
            a_partial_read_merges_to_the_full_one
            a_stop_is_recorded_and_names_one_execution
            a_suspension_waits_and_holds_the_thread
            an_answer_resumes_the_same_message
            of_racing_answers_one_wins
            a_stop_ends_a_suspension_whichever_came_first
            a_stop_wins_over_an_interruption
            a_suspended_turn_is_cancelled_once
            a_suspension_expires_after_its_time
            orphans_are_found_by_their_process
            threads_are_listed_newest_first_in_pages
            threads_are_renamed_and_deleted
            attachments_come_and_go_with_their_thread
            dropped_callers_leave_nothing_half_done
            a_dead_process_is_succeeded_once
            wishes_to_stop_are_found
        }
    };
    ($open:expr => $($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            let (store, _keep) = $open.await;
            $crate::store::conformance::$name(std::sync::Arc::new(store)).await;
        })*
    };
}
pub(crate) use conformance;

type S = Arc<dyn Store>;

fn user(n: u128) -> UserId {
    Uuid::from_u128(0x10_000 + n).into()
}

pub(crate) fn process(n: u128) -> ProcessId {
    Uuid::from_u128(0x20_000 + n).into()
}

/// Processes in whose name the tests begin executions.
pub(crate) fn processes() -> impl Iterator<Item = ProcessId> {
    (1..=20).map(process)
}

fn thread(n: u128) -> ThreadId {
    Uuid::from_u128(0x30_000 + n).into()
}

pub(crate) fn key(n: u128) -> ThreadKey {
    ThreadKey { project: "demo".parse().unwrap(), agent: "assistant".parse().unwrap(), thread: thread(n), owner: user(1) }
}

/// A typed turn number `n` in `key`: its ids follow from `n`.
pub(crate) fn turn(key: ThreadKey, n: u128) -> NewTurn {
    NewTurn {
        key,
        choice: ThreadChoice::NewIfUnknown,
        title: format!("title {n}"),
        message: message(n),
        content: vec![Part::Text { text: format!("question {n}") }],
        attachments: Vec::new(),
        assistant_message: answer(n),
        execution: execution(n),
        process: process(1),
        max_running: 100,
        at: i64::try_from(n).unwrap(),
    }
}

fn message(n: u128) -> MessageId {
    Uuid::from_u128(0x40_000 + n).into()
}

fn answer(n: u128) -> MessageId {
    Uuid::from_u128(0x50_000 + n).into()
}

pub(crate) fn execution(n: u128) -> ExecutionId {
    Uuid::from_u128(0x60_000 + n).into()
}

pub(crate) fn flush_of(key: ThreadKey, n: u128) -> Flush {
    Flush { execution: execution(n), process: process(1), key, parts: Vec::new(), end: None, by_survivor: false }
}

pub(crate) fn text_write(index: usize, segment: u32, text: &str) -> PartWrite {
    let data = (segment == 0).then(|| r#"{"type":"text","text":""}"#.to_owned());
    PartWrite { index, data, segment: Some((segment, text.to_owned())) }
}

pub(crate) fn end(status: ExecutionStatus, parts: &[Part]) -> End {
    End { status, error: None, suspensions: Vec::new(), content: Some(serde_json::to_string(parts).unwrap()), at: 99 }
}

async fn accept(store: &S, key: ThreadKey, n: u128) -> u64 {
    match store.admit(turn(key, n)).await.unwrap() {
        Admission::Accepted { revision } => revision,
        other => panic!("not accepted: {other:?}"),
    }
}

async fn write(store: &S, flush: Flush) -> FlushOutcome {
    store.flush([flush].into()).await.unwrap()[0]
}

async fn read(store: &S, key: &ThreadKey) -> (u64, Vec<Message>) {
    let snapshot = store.snapshot(key, None).await.unwrap().unwrap();
    (snapshot.revision, snapshot.messages.into_iter().map(|m| m.parse().unwrap()).collect())
}

/// Ends turn `n` with a text.
async fn finish(store: &S, key: ThreadKey, n: u128) {
    let end = end(ExecutionStatus::Success, &[Part::Text { text: format!("answer {n}") }]);
    let outcome = write(store, Flush { end: Some(end), ..flush_of(key, n) }).await;
    assert!(matches!(outcome, FlushOutcome::Written { ended: true, .. }), "{outcome:?}");
}

fn ask(id: &str, payload: SuspendPayload, n: u128) -> Suspension {
    Suspension {
        tool_call_id: id.to_owned(),
        run_id: answer(n).into(),
        tool_name: "tool".to_owned(),
        input: serde_json::json!({}),
        suspend_payload: Some(payload),
    }
}

pub(crate) fn approval(id: &str, n: u128) -> Suspension {
    ask(id, SuspendPayload::Approval { tool_name: "tool".to_owned(), input: serde_json::json!({}) }, n)
}

fn suspended_part(id: &str) -> Part {
    Part::ToolCall(ToolCall {
        tool_call_id: id.to_owned(),
        tool_name: "tool".to_owned(),
        input: serde_json::json!({}),
        state: ToolState::Suspended,
        output: None,
        error: None,
        start_time: 1,
        end_time: None,
        suspend_payload: None,
        step: None,
        child_trace: None,
    })
}

/// Suspends turn `n` on the calls `ids`.
pub(crate) async fn suspend(store: &S, key: ThreadKey, n: u128, asked: Vec<Suspension>) -> FlushOutcome {
    let parts = asked
        .iter()
        .enumerate()
        .map(|(index, asked)| PartWrite {
            index,
            data: Some(serde_json::to_string(&suspended_part(&asked.tool_call_id)).unwrap()),
            segment: None,
        })
        .collect();
    let end = End { status: ExecutionStatus::Suspended, error: None, suspensions: asked, content: None, at: 50 };
    write(store, Flush { parts, end: Some(end), ..flush_of(key, n) }).await
}

pub(crate) fn resume(n: u128, id: &str, new: u128) -> NewResume {
    let key = key(1);
    NewResume {
        project: key.project,
        agent: key.agent,
        owner: key.owner,
        run: answer(n).into(),
        tool_call_id: id.to_owned(),
        answer: ResumeData::Approval { approved: true, reason: None },
        execution: execution(new),
        process: process(1),
        max_running: 100,
        at: 60,
    }
}

/// An accepted turn shows at once: both messages, the active execution, one revision.
pub(crate) async fn an_accepted_turn_shows_before_any_output(store: S) {
    assert_eq!(accept(&store, key(1), 1).await, 1);
    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!((snapshot.revision, snapshot.active), (1, Some(execution(1))));
    let (_, messages) = read(&store, &key(1)).await;
    assert_eq!(
        messages.iter().map(|m| (m.id, m.role)).collect::<Vec<_>>(),
        [(message(1), Role::User), (answer(1), Role::Assistant)]
    );
    assert_eq!(messages[0].text(), "question 1");
    assert_eq!((messages[0].execution_id, messages[0].execution_status), (Some(execution(1)), None));
    assert_eq!((messages[1].execution_id, messages[1].execution_status), (Some(execution(1)), Some(ExecutionStatus::Running)));
    assert!(messages[1].content.is_empty());
    assert_eq!(store.revision(&key(1)).await.unwrap(), Some(1));
}

/// Unknown and foreign threads are the same: not found.
pub(crate) async fn a_thread_is_found_only_under_its_whole_key(store: S) {
    accept(&store, key(1), 1).await;
    let strangers = [
        ThreadKey { owner: user(2), ..key(1) },
        ThreadKey { project: "other".parse().unwrap(), ..key(1) },
        ThreadKey { agent: "other".parse().unwrap(), ..key(1) },
        key(2),
    ];
    for stranger in strangers {
        assert!(store.snapshot(&stranger, None).await.unwrap().is_none());
        assert_eq!(store.revision(&stranger).await.unwrap(), None);
        assert_eq!(store.thread(&stranger).await.unwrap(), None);
        assert_eq!(store.rename_thread(&stranger, "mine".to_owned()).await.unwrap(), None);
        assert_eq!(store.delete_thread(&stranger).await.unwrap(), DeleteOutcome::NotFound);
        assert_eq!(store.request_stop(&stranger, execution(1), 5).await.unwrap(), StopOutcome::NotFound);
        let existing = NewTurn { choice: ThreadChoice::Existing, ..turn(stranger.clone(), 2) };
        assert_eq!(store.admit(existing).await.unwrap(), Admission::ThreadNotFound);
        if stranger.thread == thread(1) {
            assert_eq!(
                store.admit(turn(stranger, 2)).await.unwrap(),
                Admission::ThreadNotFound,
                "a taken id is not a new thread"
            );
        }
    }
    assert_eq!(read(&store, &key(1)).await.0, 1, "nothing changed");
}

/// One thread runs one turn; the refused one leaves nothing behind.
pub(crate) async fn a_thread_runs_one_turn_at_a_time(store: S) {
    accept(&store, key(1), 1).await;
    assert_eq!(store.admit(turn(key(1), 2)).await.unwrap(), Admission::TurnRunning { active: execution(1) });
    assert_eq!(read(&store, &key(1)).await.1.len(), 2);
    finish(&store, key(1), 1).await;
    assert!(matches!(store.admit(turn(key(1), 2)).await.unwrap(), Admission::Accepted { .. }));
}

/// Of many submits at once, one is accepted, and the others hear why not.
pub(crate) async fn of_racing_submits_one_wins(store: S) {
    accept(&store, key(1), 1).await;
    finish(&store, key(1), 1).await;
    let races = (2..18).map(|n| {
        tokio::spawn({
            let store = store.clone();
            async move { store.admit(turn(key(1), n)).await.unwrap() }
        })
    });
    let mut accepted = 0;
    for race in races.collect::<Vec<_>>() {
        match race.await.unwrap() {
            Admission::Accepted { .. } => accepted += 1,
            Admission::TurnRunning { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 1);
    assert_eq!(read(&store, &key(1)).await.1.len(), 4);
}

/// The same message sent twice starts one turn, also at the same instant, also once it is over, also into a new thread.
pub(crate) async fn a_message_is_accepted_once(store: S) {
    let both = tokio::join!(store.admit(turn(key(1), 1)), {
        let again = NewTurn { execution: execution(9), assistant_message: answer(9), ..turn(key(1), 1) };
        store.admit(again)
    });
    let outcomes = [both.0.unwrap(), both.1.unwrap()];
    let first = if matches!(outcomes[0], Admission::Accepted { .. }) { execution(1) } else { execution(9) };
    assert!(outcomes.iter().any(|o| matches!(o, Admission::Accepted { .. })));
    assert!(outcomes.contains(&Admission::AlreadyAccepted { execution: first }), "{outcomes:?}");
    let elsewhere = NewTurn { key: key(2), ..turn(key(2), 1) };
    assert_eq!(store.admit(elsewhere).await.unwrap(), Admission::AlreadyAccepted { execution: first });
    let mine = ThreadKey { owner: user(2), ..key(3) };
    let theirs = NewTurn { execution: execution(5), assistant_message: answer(5), ..turn(mine, 1) };
    assert!(matches!(store.admit(theirs).await.unwrap(), Admission::Accepted { .. }), "another user's ids do not meet mine");
}

/// A user has a bounded number of turns running.
pub(crate) async fn a_user_runs_a_bounded_number_of_turns(store: S) {
    for n in 1..=2 {
        accept(&store, key(n), n).await;
    }
    let third = NewTurn { max_running: 2, ..turn(key(3), 3) };
    assert_eq!(store.admit(third.clone()).await.unwrap(), Admission::TooManyTurns);
    assert!(store.snapshot(&key(3), None).await.unwrap().is_none(), "no empty thread is left behind");
    finish(&store, key(1), 1).await;
    assert!(matches!(store.admit(third).await.unwrap(), Admission::Accepted { .. }));
}

/// Segments append and are rewritten; a read shows them joined, in order, with one revision per commit.
pub(crate) async fn open_text_is_read_back_as_it_was_written(store: S) {
    accept(&store, key(1), 1).await;
    let odd = "quotes \" ' \\ newline \n tab \t emoji 🦀 combining e\u{301} rtl \u{202e} json {\"a\":1} \u{7f}";
    for (segment, text) in [(0, "first"), (0, "first, longer; "), (1, odd)] {
        let flush = Flush { parts: vec![text_write(0, segment, text)], ..flush_of(key(1), 1) };
        assert!(matches!(write(&store, flush).await, FlushOutcome::Written { cancel_requested: false, ended: false, .. }));
    }
    let tool = PartWrite { index: 1, data: Some(serde_json::to_string(&suspended_part("c1")).unwrap()), segment: None };
    write(&store, Flush { parts: vec![tool, text_write(2, 0, "behind the tool")], ..flush_of(key(1), 1) }).await;
    let (revision, messages) = read(&store, &key(1)).await;
    assert_eq!(revision, 5);
    assert_eq!(messages[1].revision, 5);
    assert_eq!(
        messages[1].content,
        [
            Part::Text { text: format!("first, longer; {odd}") },
            suspended_part("c1"),
            Part::Text { text: "behind the tool".to_owned() }
        ]
    );
    let (history, own) = store.turn_input(thread(1), answer(1)).await.unwrap();
    assert_eq!(history.iter().map(Message::text).collect::<Vec<_>>(), ["question 1"]);
    assert_eq!(own, messages[1].content);
}

/// Only the process that runs an execution writes it, and only until it has ended.
pub(crate) async fn a_late_or_foreign_write_is_refused_and_changes_nothing(store: S) {
    accept(&store, key(1), 1).await;
    let foreign = Flush { process: process(2), parts: vec![text_write(0, 0, "foreign")], ..flush_of(key(1), 1) };
    assert_eq!(write(&store, foreign).await, FlushOutcome::Fenced);
    finish(&store, key(1), 1).await;
    let before = read(&store, &key(1)).await;
    let late = Flush { parts: vec![text_write(0, 0, "late")], ..flush_of(key(1), 1) };
    assert_eq!(write(&store, late).await, FlushOutcome::Fenced);
    let again = Flush { end: Some(end(ExecutionStatus::Error, &[])), ..flush_of(key(1), 1) };
    assert_eq!(write(&store, again).await, FlushOutcome::Fenced);
    assert_eq!(write(&store, flush_of(key(1), 7)).await, FlushOutcome::Fenced, "an execution that never was");
    assert_eq!(read(&store, &key(1)).await, before);
}

/// One transaction takes the flushes of many executions, and a fenced one does not fail its neighbours.
pub(crate) async fn a_group_of_flushes_is_one_commit(store: S) {
    for n in 1..=3 {
        accept(&store, key(n), n).await;
    }
    let flush = |n, text: &str| Flush { parts: vec![text_write(0, 0, text)], ..flush_of(key(n), n) };
    let fenced = Flush { process: process(2), ..flush(2, "no") };
    let ended =
        Flush { end: Some(end(ExecutionStatus::Success, &[Part::Text { text: "three".to_owned() }])), ..flush(3, "ignored") };
    let outcomes = store.flush([flush(1, "one"), fenced, ended].into()).await.unwrap();
    assert_eq!(
        outcomes,
        [
            FlushOutcome::Written { revision: 2, cancel_requested: false, ended: false },
            FlushOutcome::Fenced,
            FlushOutcome::Written { revision: 2, cancel_requested: false, ended: true }
        ]
    );
    let texts = |n| {
        let store = store.clone();
        async move { read(&store, &key(n)).await.1[1].text() }
    };
    assert_eq!((texts(1).await, texts(2).await, texts(3).await), ("one".to_owned(), String::new(), "three".to_owned()));
    assert!(store.flush(Arc::new([])).await.unwrap().is_empty());
}

/// The end: status, error and content; nothing runs any more.
pub(crate) async fn an_end_is_final(store: S) {
    accept(&store, key(1), 1).await;
    write(&store, Flush { parts: vec![text_write(0, 0, "so far")], ..flush_of(key(1), 1) }).await;
    let error = ExecutionError { message: "it broke".to_owned(), error_code: Some("provider_cut".to_owned()) };
    let parts = [Part::Text { text: "so far".to_owned() }];
    let end = End { error: Some(error.clone()), ..end(ExecutionStatus::Error, &parts) };
    write(&store, Flush { end: Some(end), ..flush_of(key(1), 1) }).await;
    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!(snapshot.active, None);
    let (_, messages) = read(&store, &key(1)).await;
    assert_eq!(messages[1].execution_status, Some(ExecutionStatus::Error));
    assert_eq!(messages[1].execution_error, Some(error));
    assert_eq!(messages[1].content, parts);
    assert_eq!(store.thread(&key(1)).await.unwrap().unwrap().updated_at, 99);
}

/// A partial read holds what changed after the revision and nothing else; merged by id it is the full read.
pub(crate) async fn a_partial_read_merges_to_the_full_one(store: S) {
    let mut known = Vec::<Message>::new();
    let mut revision = 0;
    for n in 1..=4 {
        accept(&store, key(1), n).await;
        for step in 0..3 {
            write(&store, Flush { parts: vec![text_write(0, step, "x")], ..flush_of(key(1), n) }).await;
            if step == 1 || n == 3 {
                let partial = store.snapshot(&key(1), Some(revision)).await.unwrap().unwrap();
                assert!(partial.messages.iter().all(|m| m.revision > revision));
                for message in partial.messages {
                    let message = message.parse().unwrap();
                    match known.iter_mut().find(|k| k.id == message.id) {
                        Some(known) => *known = message,
                        None => known.push(message),
                    }
                }
                revision = partial.revision;
                assert_eq!((revision, known.clone()), read(&store, &key(1)).await);
            }
        }
        finish(&store, key(1), n).await;
    }
    let (now, _) = read(&store, &key(1)).await;
    assert!(store.snapshot(&key(1), Some(now)).await.unwrap().unwrap().messages.is_empty());
}

/// A Stop is recorded while the execution runs, told to its writer, and touches nothing else.
pub(crate) async fn a_stop_is_recorded_and_names_one_execution(store: S) {
    accept(&store, key(1), 1).await;
    finish(&store, key(1), 1).await;
    accept(&store, key(1), 2).await;
    assert_eq!(store.request_stop(&key(1), execution(1), 5).await.unwrap(), StopOutcome::AlreadyEnded);
    assert_eq!(store.request_stop(&key(1), execution(9), 5).await.unwrap(), StopOutcome::NotFound);
    let written =
        |cancel_requested| move |o| matches!(o, FlushOutcome::Written { cancel_requested: c, .. } if c == cancel_requested);
    assert!(written(false)(write(&store, flush_of(key(1), 2)).await), "a Stop of an ended execution touches nothing after it");
    assert_eq!(store.request_stop(&key(1), execution(2), 5).await.unwrap(), StopOutcome::Requested);
    assert_eq!(store.request_stop(&key(1), execution(2), 5).await.unwrap(), StopOutcome::Requested, "asking twice is no error");
    assert!(written(true)(write(&store, flush_of(key(1), 2)).await));
}

/// A suspended turn waits: it is no active execution, keeps its parts, and holds the thread.
pub(crate) async fn a_suspension_waits_and_holds_the_thread(store: S) {
    accept(&store, key(1), 1).await;
    let asked = ["c2", "c10", "c1"].map(|id| approval(id, 1));
    suspend(&store, key(1), 1, asked.to_vec()).await;
    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!(snapshot.active, None);
    assert_eq!(snapshot.suspensions, asked, "in the order in which they were asked");
    let (_, messages) = read(&store, &key(1)).await;
    assert_eq!(messages[1].execution_status, Some(ExecutionStatus::Suspended));
    assert_eq!(messages[1].content, ["c2", "c10", "c1"].map(suspended_part));
    assert_eq!(store.admit(turn(key(1), 2)).await.unwrap(), Admission::InteractionOpen);
}

/// An answer opens a new execution of the same message, once.
pub(crate) async fn an_answer_resumes_the_same_message(store: S) {
    accept(&store, key(1), 1).await;
    suspend(&store, key(1), 1, vec![approval("c1", 1), approval("c2", 1)]).await;
    let wrong = NewResume { answer: ResumeData::Answer { answer: "yes".to_owned() }, ..resume(1, "c1", 8) };
    assert_eq!(store.admit_resume(wrong).await.unwrap(), ResumeAdmission::Mismatch(AnswerMismatch::WantsApproval));
    assert_eq!(store.admit_resume(resume(1, "nope", 8)).await.unwrap(), ResumeAdmission::NotFound);
    assert_eq!(store.admit_resume(NewResume { owner: user(2), ..resume(1, "c1", 8) }).await.unwrap(), ResumeAdmission::NotFound);
    assert_eq!(store.admit_resume(resume(7, "c1", 8)).await.unwrap(), ResumeAdmission::NotFound);

    let accepted = store.admit_resume(resume(1, "c1", 2)).await.unwrap();
    assert!(matches!(&accepted, ResumeAdmission::Accepted { thread: t, message: m, .. } if *t == thread(1) && *m == message(1)));
    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!((snapshot.active, snapshot.suspensions), (Some(execution(2)), vec![approval("c2", 1)]));
    let (_, messages) = read(&store, &key(1)).await;
    assert_eq!((messages[1].execution_id, messages[1].execution_status), (Some(execution(2)), Some(ExecutionStatus::Running)));
    assert_eq!(messages[1].content, [suspended_part("c1"), suspended_part("c2")]);
    assert_eq!(store.admit_resume(resume(1, "c1", 8)).await.unwrap(), ResumeAdmission::Closed);
    assert_eq!(store.admit_resume(resume(1, "c2", 8)).await.unwrap(), ResumeAdmission::TurnRunning { active: execution(2) });
    assert_eq!(write(&store, flush_of(key(1), 1)).await, FlushOutcome::Fenced, "the first execution is over");

    let end = end(ExecutionStatus::Success, &[Part::Text { text: "done".to_owned() }]);
    write(&store, Flush { end: Some(end), ..flush_of(key(1), 2) }).await;
    assert_eq!(store.admit_resume(resume(1, "c2", 8)).await.unwrap(), ResumeAdmission::Closed, "the turn is over");
    assert!(store.snapshot(&key(1), None).await.unwrap().unwrap().suspensions.is_empty());
}

/// Of answers that race, one wins.
pub(crate) async fn of_racing_answers_one_wins(store: S) {
    accept(&store, key(1), 1).await;
    suspend(&store, key(1), 1, vec![approval("c1", 1)]).await;
    let races = (2..10).map(|n| {
        tokio::spawn({
            let store = store.clone();
            async move { store.admit_resume(resume(1, "c1", n)).await.unwrap() }
        })
    });
    let mut accepted = 0;
    for race in races.collect::<Vec<_>>() {
        match race.await.unwrap() {
            ResumeAdmission::Accepted { .. } => accepted += 1,
            ResumeAdmission::Closed => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(accepted, 1);
}

/// A Stop that races a suspension ends it, whichever came first.
pub(crate) async fn a_stop_ends_a_suspension_whichever_came_first(store: S) {
    accept(&store, key(1), 1).await;
    store.request_stop(&key(1), execution(1), 5).await.unwrap();
    let outcome = suspend(&store, key(1), 1, vec![approval("c1", 1)]).await;
    assert!(matches!(outcome, FlushOutcome::Written { cancel_requested: true, ended: false, .. }), "{outcome:?}");
    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!((snapshot.active, snapshot.suspensions.len()), (Some(execution(1)), 0), "it still runs, to end as cancelled");
    write(&store, Flush { end: Some(end(ExecutionStatus::Cancelled, &[])), ..flush_of(key(1), 1) }).await;

    accept(&store, key(1), 2).await;
    suspend(&store, key(1), 2, vec![approval("c1", 2)]).await;
    let outcome = store.request_stop(&key(1), execution(2), 70).await.unwrap();
    assert!(matches!(outcome, StopOutcome::SuspensionEnded { .. }), "{outcome:?}");
    let (_, messages) = read(&store, &key(1)).await;
    assert_eq!(messages[3].execution_status, Some(ExecutionStatus::Cancelled));
    assert_eq!(messages[3].content[0].as_tool_call().unwrap().state, ToolState::Cancelled);
    assert_eq!(store.admit_resume(resume(2, "c1", 8)).await.unwrap(), ResumeAdmission::Closed);
    assert!(matches!(store.admit(turn(key(1), 3)).await.unwrap(), Admission::Accepted { .. }), "the thread is usable");
}

/// A Stop that was recorded wins over an end as `interrupted`, whoever writes that.
pub(crate) async fn a_stop_wins_over_an_interruption(store: S) {
    accept(&store, key(1), 1).await;
    store.request_stop(&key(1), execution(1), 5).await.unwrap();
    let interrupted = Flush { end: Some(end(ExecutionStatus::Interrupted, &[])), ..flush_of(key(1), 1) };
    let outcome = write(&store, interrupted).await;
    assert!(matches!(outcome, FlushOutcome::Written { cancel_requested: true, ended: false, .. }), "{outcome:?}");
    assert_eq!(store.snapshot(&key(1), None).await.unwrap().unwrap().active, Some(execution(1)), "open, to end as cancelled");
    let outcome = write(&store, Flush { end: Some(end(ExecutionStatus::Cancelled, &[])), ..flush_of(key(1), 1) }).await;
    assert!(matches!(outcome, FlushOutcome::Written { ended: true, .. }), "{outcome:?}");
}

/// A suspended turn is cancelled once; a running or ended one is not.
pub(crate) async fn a_suspended_turn_is_cancelled_once(store: S) {
    let cancel = |n, owner| {
        let (store, key) = (store.clone(), key(1));
        async move { store.cancel_run(&key.project, &key.agent, owner, answer(n).into(), 70).await.unwrap() }
    };
    assert_eq!(cancel(1, user(1)).await, RunCancelOutcome::NotFound);
    accept(&store, key(1), 1).await;
    assert_eq!(cancel(1, user(1)).await, RunCancelOutcome::NotSuspended);
    suspend(&store, key(1), 1, vec![approval("c1", 1)]).await;
    assert_eq!(cancel(1, user(2)).await, RunCancelOutcome::NotFound);
    let cancelled = cancel(1, user(1)).await;
    assert_eq!(cancelled, RunCancelOutcome::Cancelled { thread: thread(1), execution: execution(1), revision: 3 });
    assert_eq!(cancel(1, user(1)).await, RunCancelOutcome::NotSuspended);
    assert_eq!(read(&store, &key(1)).await.1[1].execution_status, Some(ExecutionStatus::Cancelled));
    assert_eq!(store.admit_resume(resume(1, "c1", 8)).await.unwrap(), ResumeAdmission::Closed);
}

/// Turns that wait for too long end with an explanation; those that wait for less, or run, go on.
pub(crate) async fn a_suspension_expires_after_its_time(store: S) {
    for n in 1..=3 {
        accept(&store, key(n), n).await;
    }
    // Suspended at 50; see `suspend`.
    suspend(&store, key(1), 1, vec![approval("c1", 1), approval("c2", 1)]).await;
    suspend(&store, key(2), 2, vec![approval("c1", 2)]).await;
    let answered = store.admit_resume(resume(2, "c1", 8)).await.unwrap();
    assert!(matches!(answered, ResumeAdmission::Accepted { .. }), "{answered:?}");
    let error = ExecutionError { message: "Nobody answered.".to_owned(), error_code: Some("expired".to_owned()) };
    assert_eq!(store.expire_suspended(50, &error, 90).await.unwrap(), []);
    let expired = store.expire_suspended(51, &error, 90).await.unwrap();
    assert_eq!(expired, [Expired { key: key(1), execution: execution(1), revision: 3 }]);
    assert_eq!(store.expire_suspended(51, &error, 90).await.unwrap(), []);

    let snapshot = store.snapshot(&key(1), None).await.unwrap().unwrap();
    assert_eq!((snapshot.revision, snapshot.active, snapshot.suspensions.len()), (3, None, 0));
    let message = read(&store, &key(1)).await.1.pop().unwrap();
    assert_eq!((message.execution_status, message.execution_error.clone()), (Some(ExecutionStatus::Cancelled), Some(error)));
    assert!(message.content.iter().all(|part| part.as_tool_call().unwrap().state == ToolState::Cancelled), "{message:?}");
    assert_eq!(store.admit_resume(resume(1, "c1", 9)).await.unwrap(), ResumeAdmission::Closed);
    assert_eq!(store.snapshot(&key(2), None).await.unwrap().unwrap().active, Some(execution(8)), "it was answered in time");
    assert_eq!(store.snapshot(&key(3), None).await.unwrap().unwrap().active, Some(execution(3)), "it never waited");
    assert!(matches!(store.admit(turn(key(1), 4)).await.unwrap(), Admission::Accepted { .. }), "the thread is usable");
}

/// What a process left running is found by its id, with all that recovery needs.
pub(crate) async fn orphans_are_found_by_their_process(store: S) {
    assert!(store.running_processes().await.unwrap().is_empty());
    for n in 1..=3 {
        accept(&store, key(n), n).await;
    }
    accept_by(&store, key(4), 4, process(2)).await;
    write(&store, Flush { parts: vec![text_write(0, 0, "half a")], ..flush_of(key(1), 1) }).await;
    store.request_stop(&key(2), execution(2), 5).await.unwrap();
    finish(&store, key(3), 3).await;
    let mut processes = store.running_processes().await.unwrap();
    processes.sort_unstable();
    assert_eq!(processes, [process(1), process(2)]);
    let mut orphans = store.orphans(process(1)).await.unwrap();
    orphans.sort_unstable_by_key(|orphan| orphan.execution);
    assert_eq!(
        orphans.iter().map(|o| (o.execution, o.cancel_requested)).collect::<Vec<_>>(),
        [(execution(1), false), (execution(2), true)]
    );
    assert_eq!(orphans[0].parts, [Part::Text { text: "half a".to_owned() }]);
    assert_eq!(orphans[0].key, key(1));
    assert_eq!((orphans[0].message, orphans[0].continuations, orphans[0].answers.len()), (answer(1), 0, 0));
}

/// The successor of a dead process's execution: the same message, a new execution, once, and not against a Stop.
pub(crate) async fn a_dead_process_is_succeeded_once(store: S) {
    accept(&store, key(1), 1).await;
    suspend(&store, key(1), 1, vec![approval("c1", 1)]).await;
    store.admit_resume(resume(1, "c1", 2)).await.unwrap();
    write(&store, Flush { parts: vec![text_write(1, 0, "half a")], ..flush_of(key(1), 2) }).await;
    let before = read(&store, &key(1)).await;
    let continuation = |new, by| Continuation {
        orphan: execution(2),
        dead: process(1),
        key: key(1),
        execution: execution(new),
        process: process(by),
        at: 70,
    };
    let races = (3..9).map(|n| {
        tokio::spawn({
            let (store, continuation) = (store.clone(), continuation(n, n));
            async move { (n, store.continue_orphan(continuation).await.unwrap()) }
        })
    });
    let mut winners = Vec::new();
    for race in races.collect::<Vec<_>>() {
        match race.await.unwrap() {
            (n, ContinueOutcome::Continued { revision }) => winners.push((n, revision)),
            (_, outcome) => assert_eq!(outcome, ContinueOutcome::Fenced),
        }
    }
    let [(winner, revision)] = winners[..] else { panic!("{winners:?}") };
    let after = read(&store, &key(1)).await;
    assert_eq!((revision, after.0), (before.0 + 1, before.0 + 1));
    assert_eq!(after.1[1].content, before.1[1].content, "what was written stays");
    assert_eq!(after.1[1].execution_id, Some(execution(winner)));
    assert_eq!(after.1[1].execution_status, Some(ExecutionStatus::Running));
    assert_eq!(write(&store, flush_of(key(1), 2)).await, FlushOutcome::Fenced, "the dead process is out");
    let orphans = store.orphans(process(winner)).await.unwrap();
    assert_eq!((orphans.len(), orphans[0].execution, orphans[0].continuations), (1, execution(winner), 1));
    let answered = ("c1".to_owned(), ResumeData::Approval { approved: true, reason: None });
    assert_eq!(orphans[0].answers, [answered]);

    store.request_stop(&key(1), execution(winner), 80).await.unwrap();
    let again = Continuation { orphan: execution(winner), dead: process(winner), ..continuation(20, 20) };
    assert_eq!(store.continue_orphan(again).await.unwrap(), ContinueOutcome::StopRequested);
    assert_eq!(store.orphans(process(winner)).await.unwrap().len(), 1, "left to be cancelled");
}

/// Stops that were asked for are found by the process that runs the executions.
pub(crate) async fn wishes_to_stop_are_found(store: S) {
    for n in 1..=3 {
        accept(&store, key(n), n).await;
    }
    for n in [1, 2] {
        store.request_stop(&key(n), execution(n), 5).await.unwrap();
    }
    let stopped = end(ExecutionStatus::Cancelled, &[]);
    let outcome = write(&store, Flush { end: Some(stopped), ..flush_of(key(2), 2) }).await;
    assert!(matches!(outcome, FlushOutcome::Written { ended: true, .. }), "{outcome:?}");
    assert_eq!(store.stop_wishes((1..=9).map(execution).collect()).await.unwrap(), [execution(1)]);
    assert_eq!(store.stop_wishes(vec![execution(3)]).await.unwrap(), []);
    assert_eq!(store.stop_wishes(Vec::new()).await.unwrap(), []);
}

async fn accept_by(store: &S, key: ThreadKey, n: u128, process: ProcessId) {
    let admission = store.admit(NewTurn { process, ..turn(key, n) }).await.unwrap();
    assert!(matches!(admission, Admission::Accepted { .. }));
}

/// Lists are newest first and page without gaps or repeats, also between equal times.
pub(crate) async fn threads_are_listed_newest_first_in_pages(store: S) {
    for n in 1..=5 {
        let at = if n <= 3 { 10 } else { 20 };
        let admission = store.admit(NewTurn { at, ..turn(key(n), n) }).await.unwrap();
        assert!(matches!(admission, Admission::Accepted { .. }));
    }
    accept(&store, ThreadKey { owner: user(2), ..key(9) }, 9).await;
    let k = key(1);
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store.threads(&k.project, &k.agent, k.owner, after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(ThreadCursor { updated_at: last.updated_at, id: last.id });
        seen.extend(page.iter().map(|row| row.id));
    }
    assert_eq!(seen, [5, 4, 3, 2, 1].map(thread));
    let row = store.thread(&key(2)).await.unwrap().unwrap();
    assert_eq!((row.title.as_str(), row.active, row.created_at), ("title 2", Some(execution(2)), 10));
    assert!(!row.suspended);
    suspend(&store, key(2), 2, vec![approval("c1", 2)]).await;
    let row = store.thread(&key(2)).await.unwrap().unwrap();
    assert_eq!((row.active, row.suspended), (None, true));
    assert_eq!(
        store.threads(&k.project, &k.agent, k.owner, None, 9).await.unwrap().iter().filter(|row| row.suspended).count(),
        1
    );
}

/// A thread is renamed, and deleted with all it holds, but not while it runs.
pub(crate) async fn threads_are_renamed_and_deleted(store: S) {
    accept(&store, key(1), 1).await;
    assert_eq!(store.rename_thread(&key(1), "new".to_owned()).await.unwrap(), Some(2));
    assert_eq!(store.thread(&key(1)).await.unwrap().unwrap().title, "new");
    assert_eq!(store.delete_thread(&key(1)).await.unwrap(), DeleteOutcome::TurnRunning { active: execution(1) });
    suspend(&store, key(1), 1, vec![approval("c1", 1)]).await;
    assert!(matches!(store.delete_thread(&key(1)).await.unwrap(), DeleteOutcome::Deleted { .. }));
    assert!(store.snapshot(&key(1), None).await.unwrap().is_none());
    assert_eq!(store.admit_resume(resume(1, "c1", 8)).await.unwrap(), ResumeAdmission::NotFound);
    // Its ids come to mean nothing else: an ETag of it, a revision, a message that is sent once more.
    assert_eq!(store.admit(turn(key(2), 1)).await.unwrap(), Admission::AlreadyAccepted { execution: execution(1) });
    assert_eq!(store.admit(turn(key(1), 2)).await.unwrap(), Admission::ThreadNotFound);
    assert!(matches!(store.admit(turn(key(2), 2)).await.unwrap(), Admission::Accepted { revision: 1 }));
    store.ping().await.unwrap();
}

/// Attachments are recorded with their turn or not at all, found only under their thread's whole key, and deleted with it.
pub(crate) async fn attachments_come_and_go_with_their_thread(store: S) {
    let id = |n: u128| Uuid::from_u128(0x70_000 + n);
    let file = |n, data: &[u8]| Attachment {
        id: id(n),
        name: format!("file {n} é.bin"),
        media_type: "text/plain; charset=utf-8".to_owned(),
        data: data.to_vec().into(),
    };
    let every_byte: Vec<u8> = (0..=u8::MAX).cycle().take(300_000).collect();
    let sent = [file(1, &every_byte), file(2, b"")];
    let with = |n, key, attachments: &[Attachment]| NewTurn { attachments: attachments.to_vec(), ..turn(key, n) };
    let get = |key: ThreadKey, n| {
        let store = store.clone();
        async move { store.attachment(&key.project, &key.agent, key.owner, id(n)).await.unwrap() }
    };
    assert!(matches!(store.admit(with(1, key(1), &sent)).await.unwrap(), Admission::Accepted { .. }));
    assert_eq!((get(key(1), 1).await, get(key(1), 2).await), (Some(sent[0].clone()), Some(sent[1].clone())));

    for refused in [with(2, key(1), &[file(3, b"x")]), with(1, key(1), &[file(4, b"x")])] {
        assert!(!matches!(store.admit(refused).await.unwrap(), Admission::Accepted { .. }));
    }
    accept(&store, ThreadKey { owner: user(2), ..key(2) }, 5).await;
    let strangers = [
        ThreadKey { owner: user(2), ..key(1) },
        ThreadKey { project: "other".parse().unwrap(), ..key(1) },
        ThreadKey { agent: "other".parse().unwrap(), ..key(1) },
    ];
    for stranger in strangers {
        assert_eq!(get(stranger, 1).await, None);
    }
    for never in [3, 4, 9] {
        assert_eq!(get(key(1), never).await, None, "nothing is left of a turn that was not accepted");
    }

    let mut found = store.attachments(thread(1), &[id(2), id(9), id(1)]).await.unwrap();
    found.sort_unstable_by_key(|attachment| attachment.id);
    assert_eq!(found, sent);
    assert!(store.attachments(thread(2), &[id(1)]).await.unwrap().is_empty(), "it belongs to another thread");
    assert!(store.attachments(thread(1), &[]).await.unwrap().is_empty());

    finish(&store, key(1), 1).await;
    assert!(matches!(store.delete_thread(&key(1)).await.unwrap(), DeleteOutcome::Deleted { .. }));
    assert_eq!(get(key(1), 1).await, None);
    assert!(store.attachments(thread(1), &[id(1), id(2)]).await.unwrap().is_empty());
    assert!(
        matches!(store.admit(with(2, key(3), &sent)).await.unwrap(), Admission::Accepted { .. }),
        "the files' ids are free again"
    );
}

/// A caller that is dropped midway, as a request's future is when its client goes away, leaves no transaction open.
pub(crate) async fn dropped_callers_leave_nothing_half_done(store: S) {
    for n in 1..=20 {
        let mut admit = Box::pin(store.admit(turn(key(n), n)));
        // Polled a different number of times each, then dropped.
        for _ in 0..n % 5 {
            if futures::poll!(admit.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    accept(&store, key(1_000), 1_000).await;
    for n in 1..=20 {
        let there = store.snapshot(&key(n), None).await.unwrap();
        assert!(there.is_none_or(|snapshot| snapshot.messages.len() == 2), "all or nothing");
    }
}

/// Fills a store with threads in every state: ended, running, suspended, resumed, renamed, with attachments and odd text; and users.
pub(crate) async fn busy_record(store: S) {
    let people = [("ada", user(1), Some("hash")), ("bob \u{1f980}", user(2), None)];
    for (name, id, hash) in people {
        let new = NewUser { id, name: name.to_owned(), password_hash: hash.map(str::to_owned), created_at: 3 };
        assert!(store.add_user(new).await.unwrap());
    }
    store.begin_session(user(1), NewSession { digest: Digest([1; 32]), now: 5, expires_at: 50 }).await.unwrap();
    store.put_link(user(2), Digest([2; 32]), 60).await.unwrap();
    let token = Token {
        id: Uuid::from_u128(5),
        user: user(1),
        name: "ada".to_owned(),
        scopes: Some("agent:read".to_owned()),
        expires_at: None,
        revoked_at: None,
        created_at: 4,
    };
    store.add_token(token, Digest([3; 32])).await.unwrap();
    store.set_disabled(user(2), true).await.unwrap();

    let attachments = vec![Attachment {
        id: Uuid::from_u128(0x70_001),
        name: "a \u{202e} name.png".to_owned(),
        media_type: "image/png".to_owned(),
        data: vec![0, 255, 10, 13].into(),
    }];
    store.admit(NewTurn { attachments, ..turn(key(1), 1) }).await.unwrap();
    finish(&store, key(1), 1).await;
    accept(&store, key(1), 2).await;
    let odd = "quotes \" ' \\ newline \n tab \t emoji \u{1f980} nothing \u{7f}";
    write(&store, Flush { parts: vec![text_write(0, 0, odd), text_write(0, 1, "more")], ..flush_of(key(1), 2) }).await;
    store.request_stop(&key(1), execution(2), 9).await.unwrap();

    accept(&store, key(2), 3).await;
    suspend(&store, key(2), 3, vec![approval("c2", 3), approval("c1", 3)]).await;

    accept(&store, key(3), 4).await;
    suspend(&store, key(3), 4, vec![approval("c1", 4), approval("c2", 4)]).await;
    store.admit_resume(NewResume { ..resume(4, "c1", 5) }).await.unwrap();

    accept(&store, key(4), 6).await;
    let error = ExecutionError { message: "it broke".to_owned(), error_code: None };
    let failed = End { error: Some(error), ..end(ExecutionStatus::Error, &[Part::Text { text: odd.to_owned() }]) };
    write(&store, Flush { end: Some(failed), ..flush_of(key(4), 6) }).await;
    store.rename_thread(&key(4), "renamed".to_owned()).await.unwrap();

    accept(&store, key(5), 7).await;
    finish(&store, key(5), 7).await;
    store.delete_thread(&key(5)).await.unwrap();
}

/// Another turn in a thread of [`busy_record`] that is free.
pub(crate) async fn another_turn(store: &dyn Store) {
    assert!(matches!(store.admit(turn(key(4), 40)).await.unwrap(), Admission::Accepted { .. }));
    // What was deleted is remembered as that.
    assert_eq!(store.admit(turn(key(5), 41)).await.unwrap(), Admission::ThreadNotFound);
    assert_eq!(store.admit(turn(key(6), 7)).await.unwrap(), Admission::AlreadyAccepted { execution: execution(7) });
}

/// All that can be read of [`busy_record`].
pub(crate) async fn everything(store: &dyn Store) -> String {
    use std::fmt::Write as _;

    let mut all = String::new();
    let k = key(1);
    let _ = writeln!(all, "{:#?}", store.users().await.unwrap());
    let _ = writeln!(all, "{:#?}", store.tokens().await.unwrap());
    let _ = writeln!(all, "{:#?}", store.token(Digest([3; 32]), 9).await.unwrap());
    let _ = writeln!(all, "{:#?}", store.session(Digest([1; 32]), 9).await.unwrap());
    let _ = writeln!(all, "{:#?}", store.password_hash("ada").await.unwrap());
    let _ = writeln!(all, "{:#?}", store.threads(&k.project, &k.agent, k.owner, None, 100).await.unwrap());
    let _ = writeln!(all, "{:#?}", store.attachment(&k.project, &k.agent, k.owner, Uuid::from_u128(0x70_001)).await.unwrap());
    for n in 1..=4 {
        let key = key(n);
        let _ = writeln!(all, "{:#?}", store.thread(&key).await.unwrap());
        for since in [None, Some(1), Some(2)] {
            let snapshot = store.snapshot(&key, since).await.unwrap().unwrap();
            let _ = writeln!(all, "{} {:?} {:#?}", snapshot.revision, snapshot.active, snapshot.suspensions);
            for message in snapshot.messages {
                let _ = writeln!(all, "{:#?}", message.parse().unwrap());
            }
        }
        for message in [1, 2, 3, 4, 6] {
            if let Ok(input) = store.turn_input(key.thread, answer(message)).await {
                let _ = writeln!(all, "{input:#?}");
            }
        }
    }
    let mut orphans = store.orphans(process(1)).await.unwrap();
    orphans.sort_unstable_by_key(|orphan| orphan.execution);
    let _ = writeln!(all, "{orphans:#?}");
    all
}
