//! Each rule of contract 1, section 7, on its own.

use std::{collections::HashMap, rc::Rc};

use proptest::prelude::*;

use super::*;

// Opening and reading.

#[test]
fn opening_reads_and_blocks_sending_until_the_read_succeeds() {
    let mut page = Page::open(Some(thread(0)));
    page.input(Input::DraftChanged("early".to_owned()));
    assert_eq!((page.view().load, page.blocked()), (Load::Loading, Some(SendBlocked::Loading)));
    page.press_send();
    assert_eq!((page.submits.len(), page.draft()), (0, "early".to_owned()), "blocked, and the draft can be edited");
    assert_eq!((page.reads[0].1, page.reads[0].2), (thread(0), None));
    page.answer_read(Ok(snapshot(1, vec![user(1, "hi", 1)])));
    assert_eq!((page.view().load, page.blocked(), page.texts()), (Load::Loaded, None, vec!["hi".to_owned()]));
}

#[test]
fn a_first_read_that_fails_for_good_lets_the_person_send() {
    let mut page = Page::open(Some(thread(0)));
    page.input(Input::DraftChanged("x".to_owned()));
    for pause in [1_000, 2_000] {
        page.answer_read(Err(Failure::Broken));
        assert_eq!((page.blocked(), page.view().read_failure), (Some(SendBlocked::Loading), Some(Failure::Broken)));
        page.wait(pause);
    }
    page.answer_read(Err(Failure::Broken));
    assert_eq!((page.view().load, page.blocked()), (Load::Failed(Failure::Broken), None));
}

#[test]
fn a_new_thread_has_nothing_to_read() {
    let mut page = Page::open(None);
    page.input(Input::Occasion(Occasion::PushConnected));
    assert_eq!((page.reads.len(), page.view().load, page.blocked()), (0, Load::New, Some(SendBlocked::Empty)));
}

#[test]
fn every_occasion_reads_what_changed_since() {
    for occasion in [Occasion::PushConnected, Occasion::TabVisible, Occasion::Online, Occasion::SignedIn] {
        let mut page = Page::ready();
        page.input(Input::Occasion(occasion));
        assert_eq!(page.reads[0].2, Some(5), "{occasion:?}");
    }
    let mut page = Page::ready();
    page.input(update(thread(0), 6));
    assert_eq!(page.reads[0].2, Some(5));
    let mut page = Page::ready();
    page.input(update(thread(1), 6));
    assert_eq!(page.reads, [], "of another thread");
    page.wait(3_600_000);
    assert_eq!((page.reads.len(), page.timers.len()), (0, 0), "there is no polling");
}

#[test]
fn one_read_is_in_flight_and_at_most_one_waits() {
    let mut page = Page::ready();
    for revision in 6..20 {
        page.input(update(thread(0), revision));
        page.input(Input::Occasion(Occasion::TabVisible));
    }
    assert_eq!(page.reads.len(), 1);
    page.answer_read(Ok(partial(snapshot(19, vec![]))));
    assert_eq!(page.reads.len(), 1, "one waited");
    page.answer_read(Ok(partial(snapshot(19, vec![]))));
    assert_eq!(page.reads.len(), 0, "and no more than one");
}

#[test]
fn a_notification_of_what_a_read_already_showed_reads_nothing() {
    let mut page = Page::ready();
    page.input(update(thread(0), 6));
    page.input(update(thread(0), 7));
    page.answer_read(Ok(partial(snapshot(7, vec![]))));
    assert_eq!(page.reads, [], "the one in flight showed it");
    page.input(update(thread(0), 7));
    assert_eq!(page.reads, [], "late");
    page.input(update(thread(0), 8));
    page.input(update(thread(0), 9));
    page.answer_read(Ok(partial(snapshot(8, vec![]))));
    assert_eq!(page.reads.len(), 1, "the one in flight did not show 9");
}

#[test]
fn a_read_is_dropped_when_the_thread_is_switched_or_the_machine_disposed() {
    let mut page = Page::open(Some(thread(0)));
    let (old, ..) = page.reads[0];
    page.input(Input::Opened { thread: Some(thread(1)) });
    assert_eq!((page.aborted.clone(), page.reads[0].1), (vec![old], thread(1)));
    page.input(Input::ReadDone { id: old, outcome: Ok(Box::new(snapshot(9, vec![user(1, "wrong chat", 9)]))) });
    assert_eq!((page.texts().len(), page.view().load), (0, Load::Loading));
    let (old, ..) = page.reads[0];
    page.input(Input::Disposed);
    page.input(Input::ReadDone { id: old, outcome: Ok(Box::new(snapshot(9, vec![user(1, "late", 9)]))) });
    page.input(Input::Occasion(Occasion::TabVisible));
    page.input(Input::DraftChanged("late".to_owned()));
    page.press_send();
    assert_eq!((page.texts().len(), page.reads.len(), page.submits.len(), page.stored.len()), (0, 0, 0, 0));
}

#[test]
fn a_snapshot_of_a_lower_revision_is_dropped() {
    let mut page = Page::ready();
    let before = page.texts();
    page.input(Input::Occasion(Occasion::TabVisible));
    page.answer_read(Ok(running(9, snapshot(4, vec![user(1, "old", 1)]))));
    assert_eq!((page.texts(), page.view().running, page.view().read_failure), (before, None, None));
    page.wait(1_000);
    page.answer_read(Ok(snapshot(5, vec![user(1, "same revision", 5)])));
    assert_eq!(page.texts(), ["same revision"]);
}

#[test]
fn a_partial_answer_merges_by_id_and_leaves_other_messages_alone() {
    let mut page = Page::ready();
    let before = page.view();
    page.input(update(thread(0), 8));
    let changed = assistant(2, "hello again", 7, 1, ExecutionStatus::Success);
    page.answer_read(Ok(partial(snapshot(8, vec![changed, user(3, "more", 8)]))));
    let after = page.view();
    assert_eq!(page.texts(), ["hi", "hello again", "more"]);
    assert!(Rc::ptr_eq(&before.settled[0], &after.settled[0]));
    let mut gone = partial(snapshot(9, vec![]));
    gone.deleted_message_ids = Some(vec![message(2)]);
    page.input(update(thread(0), 9));
    page.answer_read(Ok(gone));
    assert_eq!(page.texts(), ["hi", "more"]);
    page.input(update(thread(0), 10));
    page.answer_read(Ok(partial(snapshot(10, vec![user(3, "more!", 10)]))));
    assert_eq!(page.texts(), ["hi", "more!"], "places are right after a deletion");
}

#[test]
fn a_full_answer_keeps_unchanged_messages_and_shows_an_id_once() {
    let mut page = Page::ready();
    let before = page.view();
    page.input(update(thread(0), 8));
    page.answer_read(Ok(snapshot(8, vec![user(1, "hi", 2), user(3, "a", 7), user(3, "b", 8)])));
    assert_eq!(page.texts(), ["hi", "b"]);
    assert!(Rc::ptr_eq(&before.settled[0], &page.view().settled[0]));
}

#[test]
fn a_failed_read_keeps_everything_says_so_and_is_tried_after_1_s_and_2_s_then_on_the_next_occasion() {
    for failure in
        [Failure::Broken, Failure::Unreadable { status: 502 }, refused(Code::StorageUnavailable), refused(Code::NotFound)]
    {
        let mut page = Page::ready();
        let before = page.texts();
        page.input(Input::Occasion(Occasion::TabVisible));
        for pause in [1_000, 2_000] {
            page.answer_read(Err(failure.clone()));
            assert_eq!((page.texts(), page.view().read_failure), (before.clone(), Some(failure.clone())));
            assert!(page.view().catching_up, "it is tried again by itself");
            page.wait(pause - 1);
            assert_eq!(page.reads, [], "not before {pause} ms");
            page.wait(1);
        }
        page.answer_read(Err(failure.clone()));
        page.wait(3_600_000);
        assert_eq!((page.reads.len(), page.texts(), page.view().catching_up), (0, before, false));
        page.input(Input::Occasion(Occasion::Online));
        assert!(page.view().catching_up);
        page.answer_read(Err(failure));
        page.wait(1_000);
        page.answer_read(Ok(partial(snapshot(5, vec![]))));
        assert_eq!(page.view().read_failure, None, "tried again from the start");
    }
}

#[test]
fn an_occasion_during_the_pause_reads_at_once_and_only_once() {
    let mut page = Page::ready();
    page.input(Input::Occasion(Occasion::TabVisible));
    page.answer_read(Err(Failure::Broken));
    page.input(Input::Occasion(Occasion::Online));
    page.answer_read(Ok(partial(snapshot(5, vec![]))));
    page.wait(10_000);
    assert_eq!(page.reads, []);
}

#[test]
fn not_found_clears_only_on_the_first_load_with_nothing_active() {
    let mut page = Page::open(Some(thread(0)));
    page.answer_read(Err(refused(Code::NotFound)));
    assert_eq!((page.view().load, page.blocked()), (Load::NotFound, Some(SendBlocked::NotFound)));
    page.wait(10_000);
    assert_eq!(page.reads, [], "it is no use to try again");

    let mut page = Page::ready();
    page.input(Input::Occasion(Occasion::TabVisible));
    page.answer_read(Err(refused(Code::NotFound)));
    assert_eq!((page.view().load, page.texts().len()), (Load::Loaded, 2), "later");

    let mut page = Page::open(None);
    let (id, sent) = page.send("first");
    let new = sent.session_id.unwrap();
    page.event(id, &started(2, new, sent.message_id.unwrap(), message(4)));
    page.event(id, &delta("text"));
    page.input(Input::StreamEnded { id });
    page.answer_read(Err(refused(Code::NotFound)));
    assert_eq!((page.view().load, page.texts()), (Load::Loaded, vec!["first".to_owned(), "text".to_owned()]), "it was accepted");
}

#[test]
fn a_feature_switched_off_is_no_missing_thread() {
    let mut page = Page::open(Some(thread(0)));
    for pause in [1_000, 2_000, 0] {
        page.answer_read(Err(refused(Code::AgentsDisabled)));
        page.wait(pause);
    }
    assert_eq!(page.view().load, Load::Failed(refused(Code::AgentsDisabled)));
}

// The own stream.

#[test]
fn while_the_own_stream_is_live_notifications_wait_for_one_read_at_its_end() {
    let (mut page, id) = Page::live("go");
    for revision in 6..40 {
        page.input(update(thread(0), revision));
        page.input(Input::Occasion(Occasion::TabVisible));
        page.event(id, &delta("a"));
    }
    assert_eq!(page.reads, []);
    page.event(id, &done(2, thread(0), ExecutionStatus::Success));
    page.input(Input::StreamEnded { id });
    assert_eq!(page.reads.len(), 1);
    page.answer_read(Ok(partial(snapshot(40, vec![]))));
    assert_eq!(page.reads, []);
}

#[test]
fn live_events_and_the_read_that_follows_show_each_text_once() {
    let (mut page, id) = Page::live("go");
    page.event(id, &delta("Hello"));
    page.event(id, &delta(" world"));
    assert_eq!(page.texts(), ["hi", "hello", "go", "Hello world"]);
    page.event(id, &done(2, thread(0), ExecutionStatus::Success));
    assert_eq!(page.texts(), ["hi", "hello", "go", "Hello world"], "before the read");
    let sent = page.view().messages().nth(2).unwrap().id;
    let recorded = vec![said(sent, Role::User, "go", 6), assistant(4, "Hello world", 9, 2, ExecutionStatus::Success)];
    page.answer_read(Ok(partial(snapshot(9, recorded))));
    assert_eq!(page.texts(), ["hi", "hello", "go", "Hello world"], "after it");
    assert_eq!(page.view().running, None);
}

#[test]
fn a_read_from_before_the_acceptance_does_not_hide_the_turn() {
    let mut page = Page::ready();
    page.input(Input::Occasion(Occasion::TabVisible));
    let (read, ..) = page.reads[0];
    let (id, sent) = page.send("go");
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert_eq!(page.aborted, [read]);
    page.input(Input::ReadDone { id: read, outcome: Ok(Box::new(snapshot(5, vec![]))) });
    assert_eq!(page.texts(), ["hi", "hello", "go", ""]);
}

#[test]
fn a_read_that_shows_the_turn_before_its_first_event_waits_for_the_stream() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    let sent = sent.message_id.unwrap();
    page.input(update(thread(0), 7));
    let recorded = vec![said(sent, Role::User, "go", 6), assistant(4, "He", 7, 2, ExecutionStatus::Running)];
    page.answer_read(Ok(running(2, partial(snapshot(7, recorded)))));
    assert_eq!((page.draft(), page.texts().len()), ("go".to_owned(), 2), "execution-started is on its way");
    page.event(id, &started(2, thread(0), sent, message(4)));
    page.event(id, &delta("Hello"));
    assert_eq!((page.texts(), page.draft()), (vec!["hi".into(), "hello".into(), "go".into(), "Hello".into()], String::new()));
}

#[test]
fn turns_of_others_that_were_not_read_yet_come_before_the_own_one() {
    let (mut page, id) = Page::live("go");
    page.event(id, &delta("answer"));
    page.event(id, &done(2, thread(0), ExecutionStatus::Success));
    let sent = page.view().messages().nth(2).unwrap().id;
    let recorded = vec![
        user(7, "from another tab", 6),
        assistant(8, "its answer", 7, 7, ExecutionStatus::Success),
        said(sent, Role::User, "go", 8),
        assistant(4, "answer", 9, 2, ExecutionStatus::Success),
    ];
    page.answer_read(Ok(partial(snapshot(9, recorded))));
    assert_eq!(page.texts(), ["hi", "hello", "from another tab", "its answer", "go", "answer"]);
}

#[test]
fn two_turns_may_follow_each_other_faster_than_reads() {
    let (mut page, id) = Page::live("one");
    page.event(id, &delta("first"));
    page.event(id, &done(2, thread(0), ExecutionStatus::Success));
    let (id, sent) = page.send("two");
    page.event(id, &started(5, thread(0), sent.message_id.unwrap(), message(6)));
    page.event(id, &delta("second"));
    assert_eq!(page.texts(), ["hi", "hello", "one", "first", "two", "second"]);
}

#[test]
fn a_delta_touches_one_message_and_neither_the_others_nor_the_list() {
    let (mut page, id) = Page::live("go");
    page.event(id, &delta("a"));
    let before = page.view();
    assert_eq!(before, page.view());
    assert!(Rc::ptr_eq(&before.live.as_ref().unwrap().message, &page.view().live.unwrap().message));
    page.event(id, &delta("b"));
    let after = page.view();
    assert!(Rc::ptr_eq(&before.settled, &after.settled));
    assert_eq!(after.live.as_ref().unwrap().message.text(), "ab");
    assert_eq!(before.live.unwrap().message.text(), "a", "an old view does not change");
}

#[test]
fn a_stream_that_just_ends_is_detached_and_recovers_by_reading() {
    let (mut page, id) = Page::live("go");
    page.event(id, &delta("Hel"));
    page.input(Input::StreamEnded { id });
    let view = page.view();
    assert_eq!((view.running, view.trouble.unwrap().cause), (Some(Running::Followed(execution(2))), Cause::Detached));
    assert_eq!((page.texts()[3].as_str(), page.blocked()), ("Hel", Some(SendBlocked::Running)));
    page.answer_read(Err(Failure::Broken));
    assert_eq!(page.texts()[3], "Hel", "a failed read changes nothing");
    page.wait(1_000);
    page.answer_read(Ok(running(2, partial(snapshot(7, vec![assistant(4, "Hello", 7, 2, ExecutionStatus::Running)])))));
    assert_eq!((page.texts()[2].as_str(), page.view().trouble), ("Hello", None));
    page.input(update(thread(0), 8));
    page.answer_read(Ok(partial(snapshot(8, vec![assistant(4, "Hello.", 8, 2, ExecutionStatus::Success)]))));
    assert_eq!((page.texts()[2].as_str(), page.view().running), ("Hello.", None));
}

#[test]
fn a_suspended_stream_just_ends_and_is_not_detached() {
    let (mut page, id) = Page::live("go");
    page.event(
        id,
        &Event::ToolCall { tool_call_id: "call-4".into(), tool_name: "ask_user".into(), input: serde_json::json!({}) },
    );
    page.event(id, &Event::ToolCallSuspended { payload: question(4) });
    assert_eq!(page.view().interactions[0].state, InteractionState::Waiting, "the stream is still open");
    page.input(Input::StreamEnded { id });
    let view = page.view();
    assert_eq!((view.running, &view.trouble, view.interactions[0].state), (None, &None, InteractionState::Answerable));
    assert_eq!(view.messages().last().unwrap().execution_status, Some(ExecutionStatus::Suspended));
    assert_eq!((page.blocked(), page.reads.len()), (Some(SendBlocked::InteractionOpen), 1));
}

#[test]
fn errors_and_warnings_of_the_stream_are_shown() {
    let (mut page, id) = Page::live("go");
    page.event(id, &Event::Warning { message: "slow".into(), code: Some("slow_provider".into()) });
    page.event(id, &Event::Error { message: "The provider is down.".into(), error_code: None });
    page.event(id, &done(2, thread(0), ExecutionStatus::Error));
    let view = page.view();
    assert_eq!(view.warnings[0].message, "slow");
    let last = view.messages().last().unwrap();
    assert_eq!(last.execution_error.as_ref().unwrap().message, "The provider is down.");
    assert_eq!(last.execution_status, Some(ExecutionStatus::Error));
}

#[test]
fn unknown_events_are_skipped_and_nonsense_detaches() {
    let (mut page, id) = Page::live("go");
    page.input(Input::StreamBytes { id, bytes: b"data: {\"type\":\"of-the-future\"}\n\n".to_vec() });
    page.event(id, &delta("a"));
    assert_eq!(page.texts()[3], "a");
    page.input(Input::StreamBytes { id, bytes: b"data: {\"type\n\n".to_vec() });
    assert_eq!((page.aborted.clone(), page.reads.len()), (vec![id], 1));
    page.event(id, &delta("b"));
    assert_eq!(page.texts()[3], "a", "nothing of it counts any more");
}

#[test]
fn a_stream_of_another_thread_is_not_shown() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    page.event(id, &started(2, thread(9), sent.message_id.unwrap(), message(4)));
    assert_eq!((page.aborted.clone(), page.texts().len(), page.draft()), (vec![id], 2, "go".to_owned()));
}

#[test]
fn a_done_of_another_execution_ends_nothing() {
    let (mut page, id) = Page::live("go");
    page.event(id, &done(9, thread(0), ExecutionStatus::Success));
    assert_eq!(page.view().running, Some(Running::Live(execution(2))));
}

#[test]
fn a_silent_stream_is_given_up_after_three_missed_keep_alives() {
    let (mut page, id) = Page::live("go");
    for _ in 0..10 {
        page.wait(15_000);
        page.input(Input::StreamBytes { id, bytes: b": ping\n\n".to_vec() });
    }
    assert_eq!(page.aborted, []);
    page.wait(45_000);
    assert_eq!(page.aborted, [], "it gets a moment more");
    page.wait(5_000);
    assert_eq!((page.aborted.clone(), page.reads.len()), (vec![id], 1));
}

#[test]
fn a_page_that_slept_does_not_give_a_healthy_stream_up() {
    let (mut page, id) = Page::live("go");
    page.now += 3_600_000;
    page.wait(0);
    page.event(id, &delta("a"));
    page.wait(5_000);
    assert_eq!((page.aborted.len(), page.view().running), (0, Some(Running::Live(execution(2)))));
}

#[test]
fn a_submit_that_gets_no_answer_at_all_is_given_up_too() {
    let mut page = Page::ready();
    let (id, _) = page.send("go");
    page.wait(50_000);
    assert_eq!((page.aborted.clone(), page.draft(), page.blocked()), (vec![id], "go".to_owned(), Some(SendBlocked::Checking)));
}

proptest! {
    #[test]
    fn bytes_cut_anywhere_show_the_same(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10)) {
        let mut whole = Page::ready();
        let (id, sent) = whole.send("go");
        let mut bytes = Vec::new();
        for event in [
            started(2, thread(0), sent.message_id.unwrap(), message(4)),
            delta("Hällo "),
            Event::Warning { message: "w".into(), code: None },
            delta("😀"),
            done(2, thread(0), ExecutionStatus::Success),
        ] {
            bytes.extend(sse(&event));
        }
        let mut cut: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
        cut.sort_unstable();
        let mut pieces = Page::ready();
        let (other, _) = pieces.send("go");
        whole.input(Input::StreamBytes { id, bytes: bytes.clone() });
        for piece in cut.windows(2) {
            pieces.input(Input::StreamBytes { id: other, bytes: bytes[piece[0]..piece[1]].to_vec() });
        }
        prop_assert_eq!(whole.view(), pieces.view());
        prop_assert_eq!(&whole.texts()[3], "Hällo 😀");
    }
}

// Submitting.

#[test]
fn sending_is_blocked_while_a_turn_runs_while_an_interaction_is_open_and_without_a_text() {
    let mut page = Page::open(Some(thread(0)));
    page.answer_read(Ok(running(9, snapshot(5, vec![]))));
    page.input(Input::DraftChanged("x".to_owned()));
    assert_eq!(page.blocked(), Some(SendBlocked::Running), "of another tab");
    let (mut page, id) = Page::live("go");
    page.input(Input::DraftChanged("next".to_owned()));
    assert_eq!(page.blocked(), Some(SendBlocked::Running));
    page.event(id, &done(2, thread(0), ExecutionStatus::Success));
    assert_eq!(page.blocked(), None, "the record is final");
    let mut page = Page::suspended();
    page.input(Input::DraftChanged("x".to_owned()));
    page.press_send();
    assert_eq!((page.blocked(), page.submits.len()), (Some(SendBlocked::InteractionOpen), 0));
    let mut page = Page::ready();
    page.input(Input::DraftChanged(" \n".to_owned()));
    page.press_send();
    assert_eq!((page.blocked(), page.submits.len()), (Some(SendBlocked::Empty), 0));
}

#[test]
fn a_second_press_sends_nothing() {
    let mut page = Page::ready();
    page.send("go");
    page.press_send();
    assert_eq!((page.submits.len(), page.view().running), (0, Some(Running::Starting)));
}

#[test]
fn the_draft_is_cleared_by_execution_started() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    assert_eq!((page.draft().as_str(), sent.message.as_str()), ("go", "go"));
    assert_eq!((sent.session_id, sent.new_session), (Some(thread(0)), None));
    page.input(Input::StreamBytes { id, bytes: b": hello\n\n".to_vec() });
    assert_eq!(page.draft(), "go");
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert_eq!((page.draft(), page.stored.len()), (String::new(), 0));
}

#[test]
fn what_was_typed_since_the_submit_stays() {
    for (typed, left) in [("go", ""), ("go and then", "and then"), ("gone", "gone"), ("other", "other"), ("", "")] {
        let mut page = Page::ready();
        let (id, sent) = page.send("go");
        page.input(Input::DraftChanged(typed.to_owned()));
        page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
        assert_eq!(page.draft(), left);
        let stored = page.stored.get(&Some(thread(0))).map(|draft| draft.text.clone()).unwrap_or_default();
        assert_eq!(stored, left);
    }
}

#[test]
fn a_refused_submit_keeps_the_draft_and_says_why() {
    for code in [
        Code::InvalidRequest,
        Code::Unauthenticated,
        Code::MissingScope,
        Code::NotFound,
        Code::TurnAlreadyRunning,
        Code::InteractionOpen,
        Code::PayloadTooLarge,
        Code::AgentMisconfigured,
        Code::RateLimited,
        Code::ShuttingDown,
        Code::StorageUnavailable,
        Code::Internal,
    ] {
        let mut page = Page::ready();
        let (id, _) = page.send("go");
        page.input(Input::StreamRefused { id, failure: refused(code) });
        let view = page.view();
        assert_eq!((view.draft.as_ref(), view.running), ("go", None), "{code:?}");
        assert_eq!(view.trouble.as_ref().unwrap().code(), Some(code));
        assert_eq!(view.signed_out, code == Code::Unauthenticated);
        let stale = matches!(code, Code::TurnAlreadyRunning | Code::InteractionOpen);
        assert_eq!(page.reads.len(), usize::from(stale), "{code:?}: what is shown is old");
        page.wait(3_600_000);
        assert_eq!(page.submits, [], "never sent again by itself");
    }
}

#[test]
fn after_a_busy_answer_the_other_turn_is_followed_and_the_draft_waits() {
    let mut page = Page::ready();
    let (id, _) = page.send("go");
    page.input(Input::StreamRefused { id, failure: refused(Code::TurnAlreadyRunning) });
    page.answer_read(Ok(running(9, partial(snapshot(6, vec![user(7, "other tab", 6)])))));
    assert_eq!((page.view().running, page.draft()), (Some(Running::Followed(execution(9))), "go".to_owned()));
    page.input(update(thread(0), 7));
    page.answer_read(Ok(partial(snapshot(7, vec![]))));
    assert_eq!((page.view().trouble, page.blocked()), (None, None), "the notice goes with the other turn");
}

fn broken_submits() -> [fn(EffectId) -> Input; 3] {
    [
        |id| Input::StreamRefused { id, failure: Failure::Broken },
        |id| Input::StreamRefused { id, failure: Failure::Unreadable { status: 502 } },
        |id| Input::StreamEnded { id },
    ]
}

#[test]
fn after_a_connection_that_broke_before_any_answer_a_read_tells_whether_the_draft_is_cleared() {
    for broken in broken_submits() {
        for accepted in [true, false] {
            let mut page = Page::ready();
            page.input(update(thread(0), 6));
            let (id, sent) = page.send("go");
            let (early, ..) = page.reads[0];
            page.input(broken(id));
            assert_eq!((page.draft(), page.blocked()), ("go".to_owned(), Some(SendBlocked::Checking)));
            assert_eq!(page.aborted, [early], "a read from before may have looked too early");
            let mut record = partial(snapshot(6, vec![]));
            if accepted {
                record = running(2, partial(snapshot(8, vec![said(sent.message_id.unwrap(), Role::User, "go", 8)])));
            }
            page.answer_read(Ok(record));
            assert_eq!(page.draft(), if accepted { "" } else { "go" });
            let cause = page.view().trouble.map(|trouble| trouble.cause);
            assert_eq!(cause, if accepted { None } else { Some(Cause::NotAccepted) });
            page.wait(3_600_000);
            assert_eq!(page.submits, [], "never sent again by itself");
            assert_eq!(page.blocked(), if accepted { Some(SendBlocked::Running) } else { None });
        }
    }
}

#[test]
fn while_reads_fail_nothing_is_known_and_in_the_end_the_person_may_send_again_with_the_same_id() {
    let mut page = Page::ready();
    let (id, first) = page.send("go");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    for pause in [1_000, 2_000] {
        page.answer_read(Err(Failure::Broken));
        assert_eq!(page.blocked(), Some(SendBlocked::Checking));
        page.wait(pause);
    }
    page.answer_read(Err(Failure::Broken));
    page.press_send();
    let (id, again) = page.submits.pop().unwrap();
    assert_eq!(again, first, "the same message: the server takes it once");
    page.input(Input::StreamRefused { id, failure: refused(Code::MessageAlreadyAccepted) });
    assert_eq!((page.draft(), page.reads.len(), page.view().trouble), (String::new(), 1, None));
}

#[test]
fn a_changed_text_is_another_message() {
    let mut page = Page::ready();
    let (id, first) = page.send("go");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    page.answer_read(Ok(partial(snapshot(5, vec![]))));
    let (_, second) = page.send("go on");
    assert_ne!(first.message_id, second.message_id);
}

#[test]
fn a_draft_that_the_person_replaced_has_nothing_to_do_with_the_lost_submit() {
    let mut page = Page::open(None);
    let (id, _) = page.send("first");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    page.answer_read(Err(refused(Code::NotFound)));
    assert!(page.stored[&None].pending.is_some());
    page.input(Input::DraftChanged(String::new()));
    assert_eq!(page.stored.len(), 0);
    page.reload(None);
    assert_eq!((page.reads.len(), page.view().trouble), (0, None));
}

#[test]
fn a_refusal_says_nothing_of_the_attempt_before_it_so_the_ids_stay() {
    let mut page = Page::ready();
    let (id, first) = page.send("go");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    for pause in [1_000, 2_000, 0] {
        page.answer_read(Err(Failure::Broken));
        page.wait(pause);
    }
    for code in [Code::RateLimited, Code::TurnAlreadyRunning] {
        page.press_send();
        let (id, again) = page.submits.pop().unwrap();
        assert_eq!(again, first, "the first may have been accepted");
        page.input(Input::StreamRefused { id, failure: refused(code) });
    }
    page.answer_read(Ok(partial(snapshot(6, vec![said(first.message_id.unwrap(), Role::User, "go", 6)]))));
    assert_eq!((page.draft(), page.stored.len()), (String::new(), 0), "it was");
}

/// What another tab of the browser keeps of thread 0 while "go" is on its way from here.
fn kept_elsewhere(text: &str, pending: Option<PendingSubmit>) -> HashMap<Option<ThreadId>, StoredDraft> {
    HashMap::from([(Some(thread(0)), StoredDraft { text: text.to_owned(), pending })])
}

#[test]
fn an_acceptance_clears_its_own_draft_and_not_the_one_that_another_tab_keeps() {
    for by_read in [true, false] {
        for left in [true, false] {
            let mut page = Page::ready();
            let (id, sent) = page.send("go");
            let message_id = sent.message_id.unwrap();
            page.stored = kept_elsewhere("other", None);
            if by_read {
                page.input(Input::StreamRefused { id, failure: Failure::Broken });
                page.answer_read(Ok(partial(snapshot(6, vec![said(message_id, Role::User, "go", 6)]))));
            } else {
                if left {
                    page.input(Input::Opened { thread: Some(thread(1)) });
                }
                page.event(id, &started(2, thread(0), message_id, message(4)));
            }
            assert_eq!(page.draft(), "");
            assert_eq!(page.stored, kept_elsewhere("other", None));
        }
    }
}

#[test]
fn what_another_tab_added_to_a_draft_on_its_way_stays_when_that_is_accepted() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    let pending = page.stored[&Some(thread(0))].pending.clone();
    page.stored = kept_elsewhere("go and then", pending);
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert_eq!(page.stored, kept_elsewhere("and then", None));
}

#[test]
fn a_refusal_leaves_the_draft_alone_that_another_tab_keeps() {
    for left in [true, false] {
        let mut page = Page::ready();
        let (id, _) = page.send("go");
        page.stored = kept_elsewhere("other", None);
        if left {
            page.input(Input::Opened { thread: Some(thread(1)) });
        }
        page.input(Input::StreamRefused { id, failure: refused(Code::RateLimited) });
        assert_eq!(page.stored, kept_elsewhere("other", None));
    }
}

#[test]
fn an_acceptance_that_is_read_late_still_clears_the_draft() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    page.answer_read(Ok(partial(snapshot(5, vec![]))));
    assert_eq!(page.draft(), "go");
    page.input(update(thread(0), 6));
    page.answer_read(Ok(partial(snapshot(6, vec![said(sent.message_id.unwrap(), Role::User, "go", 6)]))));
    assert_eq!(page.draft(), "");
}

#[test]
fn drafts_are_kept_per_thread_over_switches_and_reloads() {
    let mut page = Page::ready();
    page.input(Input::DraftChanged("for zero".to_owned()));
    page.input(Input::Opened { thread: Some(thread(1)) });
    assert_eq!(page.draft(), "");
    page.input(Input::DraftChanged("for one".to_owned()));
    page.input(Input::Opened { thread: Some(thread(0)) });
    assert_eq!(page.draft(), "for zero");
    page.reload(Some(thread(1)));
    assert_eq!(page.draft(), "for one");
    page.reload(None);
    assert_eq!(page.draft(), "");
}

#[test]
fn a_reload_between_submit_and_acceptance_finds_out_by_reading() {
    let mut page = Page::ready();
    let (_, sent) = page.send("go");
    page.reload(Some(thread(0)));
    assert_eq!((page.draft(), page.submits.len()), ("go".to_owned(), 0));
    page.answer_read(Ok(running(2, snapshot(8, vec![said(sent.message_id.unwrap(), Role::User, "go", 8)]))));
    assert_eq!((page.draft(), page.stored.len()), (String::new(), 0));
}

#[test]
fn a_draft_that_cannot_be_kept_says_so() {
    let mut machine = Machine::new();
    machine.handle(0, Input::Opened { thread: Some(thread(0)) });
    let effects = machine.handle(0, Input::DraftChanged("x".to_owned()));
    let [Effect::SaveDraft { id, .. }] = effects[..] else { panic!("{effects:?}") };
    machine.handle(0, Input::DraftSaved { id, ok: false });
    assert!(!machine.view().draft_kept);
}

#[test]
fn attachments_go_with_the_message_and_are_cleared_with_the_draft() {
    let file = turnfast_shared::api::NewAttachment { name: "a".into(), media_type: "text/plain".into(), data: "YQ==".into() };
    let mut page = Page::ready();
    page.input(Input::AttachmentsChanged(vec![file.clone()]));
    assert_eq!(page.blocked(), None, "a file alone can be sent");
    page.press_send();
    let (id, sent) = page.submits.pop().unwrap();
    assert_eq!(sent.attachments, std::slice::from_ref(&file));
    page.input(Input::StreamRefused { id, failure: refused(Code::RateLimited) });
    assert_eq!(*page.view().attachments, [file]);
    page.press_send();
    let (id, sent) = page.submits.pop().unwrap();
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert_eq!(page.view().attachments.len(), 0);
}

// A new thread.

#[test]
fn a_new_thread_gets_its_id_when_its_first_message_is_accepted() {
    let mut page = Page::open(None);
    let (id, sent) = page.send("first");
    let new = sent.session_id.unwrap();
    assert_eq!((sent.new_session, page.view().thread), (Some(true), None));
    page.event(id, &started(2, new, sent.message_id.unwrap(), message(4)));
    page.event(id, &delta("a"));
    assert_eq!((page.view().thread, page.view().load, page.stored.len()), (Some(new), Load::Loaded, 0));
    page.input(Input::Opened { thread: Some(new) });
    assert_eq!((page.aborted.len(), page.texts()), (0, vec!["first".to_owned(), "a".to_owned()]), "the page follows its address");
    page.event(id, &delta("b"));
    assert_eq!(page.texts(), ["first", "ab"]);
    page.event(id, &done(2, new, ExecutionStatus::Success));
    assert_eq!((page.reads[0].1, page.reads[0].2), (new, None));
}

#[test]
fn a_new_thread_whose_submit_broke_is_looked_for_under_its_proposed_id() {
    for accepted in [true, false] {
        for reloaded in [true, false] {
            let mut page = Page::open(None);
            let (id, sent) = page.send("first");
            let new = sent.session_id.unwrap();
            if reloaded {
                page.reload(None);
            } else {
                page.input(Input::StreamRefused { id, failure: Failure::Broken });
            }
            assert_eq!((page.reads[0].1, page.blocked()), (new, Some(SendBlocked::Checking)));
            if accepted {
                page.answer_read(Ok(running(2, snapshot(2, vec![said(sent.message_id.unwrap(), Role::User, "first", 2)]))));
                assert_eq!((page.view().thread, page.draft(), page.stored.len()), (Some(new), String::new(), 0));
                assert_eq!(page.view().running, Some(Running::Followed(execution(2))));
            } else {
                page.answer_read(Err(refused(Code::NotFound)));
                assert_eq!((page.view().thread, page.draft(), page.view().load), (None, "first".to_owned(), Load::New));
                assert_eq!(page.view().trouble.unwrap().cause, Cause::NotAccepted);
                page.press_send();
                assert_eq!(page.submits.pop().unwrap().1, sent, "sent again by the person, with the same ids");
            }
        }
    }
}

#[test]
fn a_new_thread_whose_submit_broke_is_looked_for_again_on_the_next_occasion() {
    let mut page = Page::open(None);
    let (id, sent) = page.send("first");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    for pause in [1_000, 2_000, 0] {
        page.answer_read(Err(Failure::Broken));
        page.wait(pause);
    }
    assert_eq!((page.reads.len(), page.view().read_failure), (0, Some(Failure::Broken)));
    page.input(Input::Occasion(Occasion::PushConnected));
    page.answer_read(Ok(running(2, snapshot(2, vec![said(sent.message_id.unwrap(), Role::User, "first", 2)]))));
    let view = page.view();
    assert_eq!((view.thread, view.read_failure, page.draft()), (sent.session_id, None, String::new()));
}

#[test]
fn a_failed_look_for_a_new_thread_is_forgotten_with_the_draft() {
    let mut page = Page::open(None);
    let (id, _) = page.send("first");
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    for pause in [1_000, 2_000, 0] {
        page.answer_read(Err(Failure::Broken));
        page.wait(pause);
    }
    page.input(Input::Occasion(Occasion::Online));
    page.input(Input::DraftChanged("other".to_owned()));
    assert_eq!((page.reads.len(), page.view().read_failure, page.blocked()), (0, None, None));
    page.input(Input::Occasion(Occasion::Online));
    assert_eq!(page.reads, [], "there is nothing to look for");
}

// Leaving a thread.

#[test]
fn what_was_typed_behind_a_first_message_does_not_follow_it_into_a_thread_that_was_left_for() {
    let mut page = Page::open(None);
    let (id, sent) = page.send("first");
    let new = sent.session_id.unwrap();
    page.input(Input::DraftChanged("first and more".to_owned()));
    page.input(Input::Opened { thread: Some(new) });
    page.answer_read(Ok(running(2, snapshot(2, vec![said(sent.message_id.unwrap(), Role::User, "first", 2)]))));
    page.input(Input::DraftChanged("for the thread".to_owned()));
    page.event(id, &started(2, new, sent.message_id.unwrap(), message(4)));
    let kept = |text: &str| StoredDraft { text: text.to_owned(), pending: None };
    assert_eq!(page.stored, HashMap::from([(None, kept("and more")), (Some(new), kept("for the thread"))]));
    assert_eq!(page.draft(), "for the thread");
}

#[test]
fn leaving_before_the_acceptance_does_not_take_the_submit_back() {
    for new_thread in [true, false] {
        let mut page = if new_thread { Page::open(None) } else { Page::ready() };
        let (id, sent) = page.send("go");
        let session = sent.session_id.unwrap();
        page.input(Input::StopPressed);
        page.input(Input::Opened { thread: Some(thread(1)) });
        page.answer_read(Ok(snapshot(1, vec![])));
        assert!(!page.aborted.contains(&id));
        page.event(id, &started(2, session, sent.message_id.unwrap(), message(4)));
        assert_eq!(
            (page.aborted.clone(), page.stored.len()),
            (vec![id], 0),
            "accepted: the draft is cleared, the stream not needed"
        );
        assert_eq!((page.stops[0].1, page.stops[0].2), (session, execution(2)), "the kept Stop was for it");
        assert_eq!((page.texts().len(), page.view().running, page.blocked()), (0, None, Some(SendBlocked::Empty)));
    }
}

#[test]
fn coming_back_before_the_acceptance_takes_the_stream_up_again() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    page.input(Input::Opened { thread: Some(thread(1)) });
    page.input(Input::Opened { thread: Some(thread(0)) });
    assert_eq!((page.draft(), page.view().running), ("go".to_owned(), Some(Running::Starting)));
    page.answer_read(Ok(snapshot(5, vec![user(1, "hi", 2)])));
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    page.event(id, &delta("a"));
    assert_eq!((page.texts(), page.draft()), (vec!["hi".into(), "go".into(), "a".into()], String::new()));
}

#[test]
fn a_turn_accepted_before_the_first_read_after_coming_back_is_followed_so_that_the_past_shows_too() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    page.input(Input::Opened { thread: Some(thread(1)) });
    page.input(Input::Opened { thread: Some(thread(0)) });
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert!(page.aborted.contains(&id));
    assert_eq!((page.draft(), page.view().running), (String::new(), Some(Running::Followed(execution(2)))));
    page.answer_read(Ok(running(2, snapshot(7, vec![user(1, "hi", 2), said(sent.message_id.unwrap(), Role::User, "go", 7)]))));
    assert_eq!(page.texts(), ["hi", "go"]);
}

#[test]
fn a_turn_accepted_where_the_first_read_failed_is_followed_so_that_the_past_shows_too() {
    let mut page = Page::open(Some(thread(0)));
    for pause in [1_000, 2_000, 0] {
        page.answer_read(Err(Failure::Broken));
        page.wait(pause);
    }
    let (id, sent) = page.send("go");
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert!(page.aborted.contains(&id));
    page.answer_read(Ok(running(2, snapshot(7, vec![user(1, "hi", 2), said(sent.message_id.unwrap(), Role::User, "go", 7)]))));
    assert_eq!((page.texts(), page.view().load), (vec!["hi".to_owned(), "go".to_owned()], Load::Loaded));
}

#[test]
fn a_submit_that_is_refused_after_leaving_leaves_the_draft_where_it_was() {
    let mut page = Page::ready();
    let (id, _) = page.send("go");
    page.input(Input::Opened { thread: Some(thread(1)) });
    page.input(Input::StreamRefused { id, failure: refused(Code::RateLimited) });
    assert_eq!(page.view().trouble, None);
    page.input(Input::Opened { thread: Some(thread(0)) });
    assert_eq!((page.draft(), page.view().running), ("go".to_owned(), None));
}

#[test]
fn leaving_a_live_turn_closes_the_stream_and_coming_back_reads() {
    let (mut page, id) = Page::live("go");
    page.event(id, &delta("Hel"));
    page.input(Input::Opened { thread: Some(thread(1)) });
    assert_eq!((page.aborted.clone(), page.stops.len(), page.texts().len()), (vec![id], 0, 0));
    page.event(id, &delta("lo"));
    assert_eq!(page.texts().len(), 0, "nothing of it appears in the other thread");
    page.input(Input::Opened { thread: Some(thread(0)) });
    page.answer_read(Ok(running(2, snapshot(7, vec![assistant(4, "Hello", 7, 2, ExecutionStatus::Running)]))));
    assert_eq!((page.texts(), page.view().running), (vec!["Hello".to_owned()], Some(Running::Followed(execution(2)))));
}

// Stopping.

#[test]
fn stop_is_asked_once_and_shows_stopping_until_the_record_shows_the_end() {
    let (mut page, id) = Page::live("go");
    assert_eq!(page.view().stop, Stop::Usable);
    page.input(Input::StopPressed);
    page.input(Input::StopPressed);
    let (stop, ..) = page.stops[0];
    assert_eq!((page.stops.len(), page.stops[0].2, page.view().stop), (1, execution(2), Stop::Stopping));
    page.input(Input::StopDone { id: stop, outcome: Ok(turnfast_shared::api::CancelAnswer { cancel_requested: true }) });
    page.input(Input::StopPressed);
    assert_eq!((page.stops.len(), page.view().stop), (1, Stop::Stopping), "asked is not stopped");
    page.input(Input::StreamEnded { id });
    assert_eq!(page.view().stop, Stop::Stopping, "a lost stream is no end");
    page.answer_read(Ok(running(2, partial(snapshot(7, vec![])))));
    assert_eq!(page.view().stop, Stop::Stopping);
    page.input(update(thread(0), 8));
    page.answer_read(Ok(partial(snapshot(8, vec![assistant(4, "", 8, 2, ExecutionStatus::Cancelled)]))));
    assert_eq!(page.view().stop, Stop::Hidden);
}

#[test]
fn done_shows_the_end_as_well() {
    let (mut page, id) = Page::live("go");
    page.input(Input::StopPressed);
    page.event(id, &done(2, thread(0), ExecutionStatus::Cancelled));
    assert_eq!(page.view().stop, Stop::Hidden);
}

#[test]
fn a_stop_that_came_to_nothing_can_be_pressed_again() {
    for outcome in
        [Ok(turnfast_shared::api::CancelAnswer { cancel_requested: false }), Err(Failure::Broken), Err(refused(Code::NotFound))]
    {
        let mut page = Page::open(Some(thread(0)));
        page.answer_read(Ok(running(9, snapshot(5, vec![]))));
        page.input(Input::StopPressed);
        let (id, _, named) = page.stops[0];
        assert_eq!(named, execution(9), "a turn that is only followed can be stopped");
        page.input(Input::StopDone { id, outcome: outcome.clone() });
        assert_eq!(page.view().stop, Stop::Usable);
        assert_eq!(page.view().trouble.is_some(), outcome.is_err());
        assert_eq!(page.reads.len(), usize::from(outcome.is_ok()), "ended already: what is shown is old");
        page.input(Input::StopPressed);
        assert_eq!(page.stops.len(), 2);
    }
}

#[test]
fn a_stop_pressed_before_the_id_is_known_is_kept_and_sent_once() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    page.input(Input::StopPressed);
    page.input(Input::StopPressed);
    assert_eq!((page.stops.len(), page.view().stop), (0, Stop::WaitingForId));
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert_eq!((page.stops.len(), page.stops[0].2, page.view().stop), (1, execution(2), Stop::Stopping));
    page.wait(40_000);
    assert_eq!(page.stops.len(), 1);
}

#[test]
fn a_kept_stop_is_given_up_after_30_s() {
    let mut page = Page::ready();
    let (id, sent) = page.send("go");
    page.input(Input::StopPressed);
    page.wait(29_999);
    assert_eq!(page.view().stop, Stop::WaitingForId);
    page.wait(1);
    assert_eq!((page.view().stop, page.view().trouble.unwrap().cause), (Stop::Usable, Cause::GivenUp));
    page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
    assert_eq!(page.stops.len(), 0);
}

#[test]
fn a_kept_stop_goes_with_a_refused_submit() {
    let mut page = Page::ready();
    let (id, _) = page.send("go");
    page.input(Input::StopPressed);
    page.input(Input::StreamRefused { id, failure: refused(Code::TurnAlreadyRunning) });
    page.answer_read(Ok(running(9, partial(snapshot(6, vec![])))));
    page.wait(60_000);
    assert_eq!((page.stops.len(), page.view().stop), (0, Stop::Usable), "the turn that runs is another one");
}

#[test]
fn a_kept_stop_outlives_a_broken_submit_and_names_only_its_own_execution() {
    for (active, stops) in [(2, 1), (9, 0)] {
        let mut page = Page::ready();
        let (id, sent) = page.send("go");
        page.input(Input::StopPressed);
        page.input(Input::StreamRefused { id, failure: Failure::Broken });
        assert_eq!(page.view().stop, Stop::WaitingForId);
        let mut mine = said(sent.message_id.unwrap(), Role::User, "go", 6);
        mine.execution_id = Some(execution(2));
        page.answer_read(Ok(running(active, partial(snapshot(8, vec![mine])))));
        assert_eq!(page.stops.iter().map(|stop| stop.2).collect::<Vec<_>>(), vec![execution(2); stops]);
    }
}

#[test]
fn a_kept_stop_is_sent_when_the_message_was_accepted_before() {
    let mut page = Page::ready();
    let (id, _) = page.send("go");
    page.input(Input::StopPressed);
    let mut problem = Problem::new(Code::MessageAlreadyAccepted, "Accepted before.");
    problem.execution_id = Some(execution(2));
    page.input(Input::StreamRefused { id, failure: Failure::Refused { problem: Box::new(problem), retry_after: None } });
    assert_eq!(page.stops[0].2, execution(2));
}

#[test]
fn a_stop_of_one_execution_does_not_cover_the_next() {
    let (mut page, id) = Page::live("go");
    page.input(Input::StopPressed);
    let (stop, ..) = page.stops[0];
    page.event(id, &done(2, thread(0), ExecutionStatus::Cancelled));
    let (id, sent) = page.send("again");
    page.event(id, &started(5, thread(0), sent.message_id.unwrap(), message(6)));
    page.input(Input::StopDone { id: stop, outcome: Err(Failure::Broken) });
    assert_eq!((page.view().stop, page.view().trouble), (Stop::Usable, None));
    page.input(Input::StopPressed);
    assert_eq!(page.stops[1].2, execution(5));
}

// Suspensions.

#[test]
fn a_suspension_is_answerable_after_a_reload_and_stop_cancels_the_suspended_turn() {
    let mut page = Page::suspended();
    page.reload(Some(thread(0)));
    page.answer_read(Ok(waiting(7)));
    let view = page.view();
    assert_eq!((view.interactions[0].state, view.stop, view.running), (InteractionState::Answerable, Stop::Usable, None));
    page.input(Input::StopPressed);
    page.input(Input::StopPressed);
    page.input(Input::CancelSuspendedPressed);
    let (id, run) = page.cancels[0];
    assert_eq!((page.cancels.len(), page.stops.len(), run), (1, 0, RunId::from(message(4))));
    assert_eq!((page.view().stop, page.view().interactions[0].state), (Stop::Stopping, InteractionState::Waiting));
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    assert_eq!(page.resumes, []);
    page.input(Input::CancelRunDone { id, outcome: Ok(turnfast_shared::api::RunCancelAnswer { cancelled: true }) });
    assert_eq!(page.view().stop, Stop::Stopping, "until the record shows it");
    page.answer_read(Ok(partial(snapshot(9, vec![assistant(4, "Let me ask. ", 9, 3, ExecutionStatus::Cancelled)]))));
    assert_eq!((page.view().stop, page.view().interactions.len()), (Stop::Hidden, 0));
}

#[test]
fn a_cancel_that_came_to_nothing_can_be_pressed_again() {
    for outcome in [Ok(turnfast_shared::api::RunCancelAnswer { cancelled: false }), Err(Failure::Broken)] {
        let mut page = Page::suspended();
        page.input(Input::CancelSuspendedPressed);
        page.input(Input::CancelRunDone { id: page.cancels[0].0, outcome });
        assert_eq!(page.view().stop, Stop::Usable);
        page.input(Input::CancelSuspendedPressed);
        assert_eq!(page.cancels.len(), 2);
    }
}

#[test]
fn an_answer_goes_on_in_the_same_message() {
    let mut page = Page::suspended();
    page.input(Input::DraftChanged("a draft".to_owned()));
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    assert_eq!(page.resumes.len(), 1, "once");
    assert_eq!(page.view().interactions[0].state, InteractionState::Answering);
    let (id, sent) = page.resumes.pop().unwrap();
    assert_eq!((sent.run_id, sent.resume_data), (RunId::from(message(4)), blue()));
    page.event(id, &started(5, thread(0), message(3), message(4)));
    let result = Event::ToolResult {
        tool_call_id: "call-4".into(),
        tool_name: "ask_user".into(),
        output: "blue".into(),
        is_error: None,
        canceled: None,
    };
    page.event(id, &result);
    page.event(id, &delta("Blue it is."));
    let view = page.view();
    assert_eq!((page.texts(), page.draft()), (vec!["ask me".into(), "Let me ask. Blue it is.".into()], "a draft".to_owned()));
    assert_eq!((view.interactions.len(), view.running), (0, Some(Running::Live(execution(5)))));
    let call = view.messages().last().unwrap().content[1].as_tool_call().unwrap().clone();
    assert_eq!((call.state, call.output), (ToolState::Resolved, Some("blue".into())), "the answer stays visible");
    page.input(Input::StopPressed);
    assert_eq!(page.stops[0].2, execution(5), "the resumed execution");
}

#[test]
fn when_one_tab_answers_the_others_show_it_answered() {
    let mut page = Page::suspended();
    page.input(update(thread(0), 9));
    let mut answered = waiting(9).messages.pop().unwrap();
    if let Part::ToolCall(call) = &mut answered.content[1] {
        call.state = ToolState::Resolved;
        call.output = Some("blue".into());
    }
    page.answer_read(Ok(running(5, partial(snapshot(9, vec![answered])))));
    let view = page.view();
    assert_eq!((view.interactions.len(), view.running), (0, Some(Running::Followed(execution(5)))));
    assert_eq!(view.messages().last().unwrap().content[1].as_tool_call().unwrap().output, Some("blue".into()));
}

#[test]
fn an_answer_that_came_second_shows_closed_and_reads() {
    let mut page = Page::suspended();
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    let (id, _) = page.resumes.pop().unwrap();
    page.input(Input::StreamRefused { id, failure: refused(Code::InteractionClosed) });
    assert_eq!((page.view().interactions[0].state, page.reads.len()), (InteractionState::Closed, 1));
    page.answer_read(Ok(partial(snapshot(9, vec![]))));
    assert_eq!(page.view().interactions.len(), 0);
}

#[test]
fn an_answer_of_the_wrong_shape_leaves_the_interaction_open() {
    let mut page = Page::suspended();
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: ResumeData::Approval { approved: true, reason: None } });
    let (id, _) = page.resumes.pop().unwrap();
    page.input(Input::StreamRefused { id, failure: refused(Code::InvalidRequest) });
    let view = page.view();
    assert_eq!((view.interactions[0].state, view.trouble.unwrap().attempt), (InteractionState::Answerable, Attempt::Answer));
}

#[test]
fn an_answer_whose_connection_broke_is_looked_up_and_never_sent_again() {
    let mut page = Page::suspended();
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    let (id, _) = page.resumes.pop().unwrap();
    page.input(Input::StopPressed);
    page.input(Input::StreamRefused { id, failure: Failure::Broken });
    let resumed = assistant(4, "Let me ask. ", 9, 5, ExecutionStatus::Running);
    page.answer_read(Ok(running(5, partial(snapshot(9, vec![resumed])))));
    assert_eq!((page.stops[0].2, page.resumes.len()), (execution(5), 0), "and the Stop that waited is sent");
}

#[test]
fn a_read_that_shows_the_resumed_turn_before_its_first_event_doubles_nothing() {
    let mut page = Page::suspended();
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    let (id, _) = page.resumes.pop().unwrap();
    page.input(update(thread(0), 9));
    let mut resumed = waiting(9).messages.pop().unwrap();
    resumed.execution_id = Some(execution(5));
    resumed.content.push(Part::Text { text: "Blue".to_owned() });
    page.answer_read(Ok(running(5, partial(snapshot(9, vec![resumed])))));
    assert_eq!(page.texts()[1], "Let me ask. ", "its stream is about to begin");
    page.event(id, &started(5, thread(0), message(3), message(4)));
    page.event(id, &delta("Blue it is."));
    assert_eq!(page.texts()[1], "Let me ask. Blue it is.");
}

#[test]
fn a_read_between_answer_and_acceptance_is_what_the_resumed_turn_goes_on_behind() {
    let mut page = Page::suspended();
    page.input(Input::Occasion(Occasion::TabVisible));
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    let (id, _) = page.resumes.pop().unwrap();
    // Another question of the turn was answered elsewhere, and this one still waits.
    let mut later = waiting(9);
    later.messages[1].content.insert(1, Part::Text { text: "One down. ".to_owned() });
    page.answer_read(Ok(partial(later)));
    page.event(id, &started(5, thread(0), message(3), message(4)));
    page.event(id, &delta("Blue it is."));
    assert_eq!(page.texts()[1], "Let me ask. One down. Blue it is.");
}

#[test]
fn a_resumed_stream_whose_message_is_not_here_is_followed_by_reads() {
    let mut page = Page::open(Some(thread(0)));
    let mut without = waiting(7);
    without.messages.clear();
    page.answer_read(Ok(without));
    page.input(Input::AnswerGiven { tool_call_id: "call-4".into(), data: blue() });
    let (id, _) = page.resumes.pop().unwrap();
    page.event(id, &started(5, thread(0), message(3), message(4)));
    assert!(page.aborted.contains(&id));
    assert_eq!((page.view().running, page.reads.len()), (Some(Running::Followed(execution(5))), 1));
}

// Signing out.

#[test]
fn an_answer_of_401_asks_for_a_sign_in_and_keeps_what_is_shown() {
    let mut page = Page::ready();
    page.input(Input::DraftChanged("x".to_owned()));
    page.input(Input::Occasion(Occasion::TabVisible));
    page.answer_read(Err(refused(Code::Unauthenticated)));
    assert_eq!((page.view().signed_out, page.blocked(), page.texts().len()), (true, Some(SendBlocked::SignedOut), 2));
    page.wait(60_000);
    assert_eq!(page.reads, [], "it is no use to try again");
    page.input(Input::Occasion(Occasion::SignedIn));
    page.answer_read(Ok(partial(snapshot(5, vec![]))));
    assert_eq!((page.view().signed_out, page.view().read_failure, page.blocked()), (false, None, None));
}

#[test]
fn trouble_is_worded_for_people() {
    let mut page = Page::ready();
    let (id, _) = page.send("go");
    let failure =
        Failure::Refused { problem: Box::new(Problem::new(Code::RateLimited, "Too many turns.")), retry_after: Some(3) };
    page.input(Input::StreamRefused { id, failure });
    assert_eq!(page.view().trouble.unwrap().to_string(), "The message was not sent. Too many turns. Try again in 3 s.");
    page.input(Input::TroubleDismissed);
    assert_eq!(page.view().trouble, None);
}
