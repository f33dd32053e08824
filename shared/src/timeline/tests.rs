//! The reducer, event by event.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    event::Suspension,
    message::{ResumeData, SuspendPayload},
};

fn text(id: &str, delta: &str) -> Event {
    Event::TextDelta { id: id.to_owned(), delta: delta.to_owned() }
}

fn thought(id: &str, delta: &str) -> Event {
    Event::ReasoningDelta { id: id.to_owned(), delta: delta.to_owned() }
}

fn tool_call(id: &str) -> Event {
    Event::ToolCall { tool_call_id: id.to_owned(), tool_name: "clock".to_owned(), input: json!({"zone": "UTC"}) }
}

fn tool_start(id: &str, start_time: Millis) -> Event {
    Event::ToolExecutionStart { tool_call_id: id.to_owned(), tool_name: "clock".to_owned(), start_time }
}

fn tool_end(id: &str, end_time: Millis) -> Event {
    Event::ToolExecutionEnd { tool_call_id: id.to_owned(), tool_name: "clock".to_owned(), is_error: false, end_time }
}

fn tool_result(id: &str, output: Value, is_error: bool, canceled: bool) -> Event {
    Event::ToolResult {
        tool_call_id: id.to_owned(),
        tool_name: "clock".to_owned(),
        output,
        is_error: is_error.then_some(true),
        canceled: canceled.then_some(true),
    }
}

fn suspended(id: &str) -> Event {
    Event::ToolCallSuspended {
        payload: Suspension {
            tool_call_id: id.to_owned(),
            run_id: uuid::Uuid::nil().into(),
            tool_name: "clock".to_owned(),
            input: json!({}),
            suspend_payload: Some(question(None, None)),
        },
    }
}

fn question(options: Option<&[&str]>, free_text: Option<bool>) -> SuspendPayload {
    let options = options.map(|options| options.iter().map(ToString::to_string).collect());
    SuspendPayload::Question { question: "Which?".to_owned(), options, free_text }
}

fn child(parent: &str, chunk: Event) -> Event {
    Event::SubagentChunk { parent_tool_call_id: parent.to_owned(), task_path: vec![parent.to_owned()], chunk: Box::new(chunk) }
}

/// Applies events at 1, 2, 3 and so on.
fn play(timeline: &mut Timeline, events: &[Event]) -> Vec<Applied> {
    events.iter().zip(1..).map(|(event, at)| timeline.apply(event, at)).collect()
}

fn parts(events: &[Event]) -> Vec<Part> {
    let mut timeline = Timeline::new();
    play(&mut timeline, events);
    timeline.into_parts()
}

fn text_part(text: &str) -> Part {
    Part::Text { text: text.to_owned() }
}

fn call(timeline: &Timeline, id: &str) -> ToolCall {
    timeline.tool_call(id).unwrap().clone()
}

#[test]
fn text_opens_with_its_first_delta_grows_and_ends() {
    let mut timeline = Timeline::new();
    let applied = play(
        &mut timeline,
        &[
            Event::TextStart { id: "a".into() },
            text("a", ""),
            text("a", "Hel"),
            text("a", "lo"),
            Event::TextEnd { id: "a".into() },
            Event::TextEnd { id: "a".into() },
        ],
    );
    assert_eq!(
        applied,
        [Applied::NOTHING, Applied::NOTHING, Applied::changed(0), Applied::appended(0), Applied::boundary(0), Applied::NOTHING,]
    );
    assert_eq!(timeline.parts(), [text_part("Hello")]);
}

#[test]
fn a_text_without_a_delta_leaves_no_part() {
    assert_eq!(parts(&[Event::TextStart { id: "a".into() }, Event::TextEnd { id: "a".into() }]), []);
}

#[test]
fn a_delta_without_a_start_opens_its_part() {
    assert_eq!(parts(&[text("a", "x"), text("a", "y")]), [text_part("xy")]);
}

#[test]
fn a_stream_id_that_comes_again_after_its_end_is_another_part() {
    assert_eq!(parts(&[text("a", "x"), Event::TextEnd { id: "a".into() }, text("a", "y")]), [text_part("x"), text_part("y")]);
    assert_eq!(
        parts(&[text("a", "x"), Event::TextStart { id: "a".into() }, text("a", "y")]),
        [text_part("xy")],
        "but not before"
    );
}

#[test]
fn reasoning_has_times_and_ids_of_its_own() {
    let parts =
        parts(&[thought("a", "hm"), text("a", "Hi"), thought("a", "m"), Event::ReasoningEnd { id: "a".into() }, text("a", "!")]);
    assert_eq!(
        parts,
        [Part::Reasoning { text: "hmm".to_owned(), start_time: 1, end_time: Some(4) }, text_part("Hi!")],
        "interleaved, and of the same id"
    );
}

#[test]
fn parts_stand_in_the_order_in_which_they_began() {
    let events = [text("b", "1"), thought("r", "2"), tool_call("t"), text("a", "3"), text("b", "1"), thought("r", "2")];
    let parts = parts(&events);
    assert_eq!((parts[0].as_text(), parts[3].as_text()), (Some("11"), Some("3")));
    assert!(matches!(&parts[1], Part::Reasoning { text, end_time: None, .. } if text == "22"));
    assert_eq!(parts[2].as_tool_call().unwrap().tool_call_id, "t");
}

#[test]
fn a_tool_call_goes_through_its_states() {
    let mut timeline = Timeline::new();
    let steps: [(Event, ToolState, Applied); 6] = [
        (
            Event::ToolInputStart { tool_call_id: "t".into(), tool_name: "clock".into() },
            ToolState::InputStreaming,
            Applied::changed(0),
        ),
        (Event::ToolInputDelta { tool_call_id: "t".into(), delta: "{".into() }, ToolState::InputStreaming, Applied::NOTHING),
        (tool_call("t"), ToolState::Pending, Applied::changed(0)),
        (tool_start("t", 40), ToolState::Running, Applied::boundary(0)),
        (tool_end("t", 60), ToolState::Running, Applied::boundary(0)),
        (tool_result("t", json!("noon"), false, false), ToolState::Resolved, Applied::boundary(0)),
    ];
    for (event, state, applied) in steps {
        assert_eq!(timeline.apply(&event, 1), applied, "{event:?}");
        assert_eq!(call(&timeline, "t").state, state, "{event:?}");
    }
    let call = call(&timeline, "t");
    assert_eq!((call.input, call.output, call.error), (json!({"zone": "UTC"}), Some(json!("noon")), None));
    assert_eq!((call.start_time, call.end_time), (40, Some(60)), "the events' own times");
}

#[test]
fn a_failed_and_a_stopped_call_say_so() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[tool_call("a"), tool_result("a", json!("no disk"), true, false)]);
    play(&mut timeline, &[tool_call("b"), tool_result("b", json!({"code": 7}), true, false)]);
    play(&mut timeline, &[tool_call("c"), tool_result("c", json!("stopped"), false, true)]);
    let states = ["a", "b", "c"].map(|id| (call(&timeline, id).state, call(&timeline, id).error, call(&timeline, id).output));
    assert_eq!(
        states,
        [
            (ToolState::Rejected, Some("no disk".to_owned()), None),
            (ToolState::Rejected, Some("{\"code\":7}".to_owned()), None),
            (ToolState::Cancelled, None, None),
        ]
    );
    assert_eq!(call(&timeline, "a").end_time, Some(2), "the result's time, where no end was seen");
}

#[test]
fn events_that_repeat_or_come_late_change_nothing() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[tool_call("t"), tool_start("t", 1), tool_result("t", json!(1), false, false)]);
    let settled = timeline.parts().to_vec();
    for late in [
        Event::ToolInputStart { tool_call_id: "t".into(), tool_name: "other".into() },
        tool_call("t"),
        tool_start("t", 99),
        tool_end("t", 99),
        tool_result("t", json!(2), true, false),
        suspended("t"),
        child("t", text("a", "late")),
        tool_start("unknown", 1),
        tool_end("unknown", 1),
        tool_result("unknown", json!(1), false, false),
        suspended("unknown"),
        child("unknown", text("a", "x")),
        Event::TextEnd { id: "unknown".into() },
        Event::ReasoningEnd { id: "unknown".into() },
    ] {
        assert_eq!(timeline.apply(&late, 99), Applied::NOTHING, "{late:?}");
        assert_eq!(timeline.parts(), settled, "{late:?}");
    }
}

#[test]
fn a_second_input_of_a_call_does_not_replace_the_first() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[tool_call("t")]);
    let other = Event::ToolCall { tool_call_id: "t".into(), tool_name: "clock".into(), input: json!("other") };
    assert_eq!(timeline.apply(&other, 2), Applied::NOTHING);
    assert_eq!(call(&timeline, "t").input, json!({"zone": "UTC"}));
}

#[test]
fn a_suspended_call_keeps_what_it_asked_after_its_answer() {
    let mut timeline = Timeline::new();
    let applied = play(&mut timeline, &[tool_call("t"), suspended("t")]);
    assert_eq!(applied[1], Applied::boundary(0));
    assert_eq!(timeline.suspended().map(|call| call.tool_call_id.as_str()).collect::<Vec<_>>(), ["t"]);
    play(&mut timeline, &[tool_result("t", json!("blue"), false, false)]);
    assert_eq!(timeline.suspended().count(), 0);
    assert_eq!(
        (call(&timeline, "t").suspend_payload, call(&timeline, "t").output),
        (Some(question(None, None)), Some(json!("blue")))
    );
}

#[test]
fn events_about_the_turn_leave_its_parts_alone() {
    let id = uuid::Uuid::nil();
    let events = [
        Event::ExecutionStarted {
            execution_id: id.into(),
            session_id: id.into(),
            message_id: id.into(),
            assistant_message_id: id.into(),
        },
        Event::StartStep,
        Event::FinishStep { usage: None },
        Event::Warning { message: "w".into(), code: None },
        Event::Error { message: "e".into(), error_code: None },
        Event::Done { session_id: id.into(), execution_id: id.into(), status: ExecutionStatus::Success },
    ];
    let mut timeline = Timeline::new();
    assert!(play(&mut timeline, &events).iter().all(|applied| *applied == Applied::NOTHING));
    assert_eq!(timeline.parts(), []);
}

// Going on behind earlier executions.

#[test]
fn a_resumed_message_goes_on_behind_what_is_there() {
    let before = parts(&[text("a", "Before."), tool_call("t"), suspended("t")]);
    let mut timeline = Timeline::from_parts(before);
    play(&mut timeline, &[tool_start("t", 7), tool_result("t", json!("ok"), false, false), text("a", "After.")]);
    let parts = timeline.parts();
    assert_eq!((parts[0].as_text(), parts[2].as_text(), parts.len()), (Some("Before."), Some("After."), 3));
    assert_eq!(call(&timeline, "t").state, ToolState::Resolved);
}

#[test]
fn a_resumed_delegation_has_spent_what_its_record_holds() {
    let mut first = Timeline::new();
    play(&mut first, &[tool_call("d"), child("d", text("a", &"é".repeat(3_000))), child("d", thought("r", &"x".repeat(900)))]);
    let mut timeline = Timeline::from_parts(first.into_parts());
    play(&mut timeline, &[child("d", text("a", &"ü".repeat(200))), child("d", thought("r", "never"))]);
    let trace = call(&timeline, "d").child_trace.unwrap();
    assert_eq!((trace.text.chars().count(), trace.reasoning_segments.len()), (3_100, 1));
}

// Delegations.

#[test]
fn a_delegation_keeps_exactly_its_budget_in_characters() {
    for (chars, kept) in [(3_999, 3_999), (4_000, 4_000), (4_001, 4_000)] {
        for unit in ["x", "é", "😀"] {
            let mut timeline = Timeline::new();
            play(&mut timeline, &[tool_call("d"), child("d", text("a", &unit.repeat(chars)))]);
            assert_eq!(call(&timeline, "d").child_trace.unwrap().text, unit.repeat(kept), "{chars} of {unit}");
        }
    }
}

#[test]
fn text_and_reasoning_of_a_delegation_share_the_budget() {
    let mut timeline = Timeline::new();
    let applied = play(
        &mut timeline,
        &[
            tool_call("d"),
            child("d", thought("r", &"😀".repeat(2_500))),
            child("d", text("a", &"x".repeat(1_499))),
            child("d", thought("r", "éé")),
            child("d", text("a", "y")),
        ],
    );
    let trace = call(&timeline, "d").child_trace.unwrap();
    assert_eq!(trace.text, "x".repeat(1_499));
    assert_eq!(trace.reasoning_segments, [format!("{}é", "😀".repeat(2_500))]);
    assert_eq!(applied[4], Applied::NOTHING, "nothing to record");
}

#[test]
fn a_childs_reasoning_is_kept_by_stretches_and_its_calls_as_steps() {
    let mut timeline = Timeline::new();
    play(
        &mut timeline,
        &[
            tool_call("d"),
            child("d", thought("1", "first ")),
            child("d", thought("1", "stretch")),
            child("d", Event::ReasoningEnd { id: "1".into() }),
            child("d", Event::ToolInputStart { tool_call_id: "c".into(), tool_name: "clock".into() }),
            child("d", tool_call("c")),
            child("d", thought("2", "second")),
        ],
    );
    let trace = call(&timeline, "d").child_trace.unwrap();
    assert_eq!(trace.reasoning_segments, ["first stretch", "second"]);
    assert_eq!(trace.steps, [ChildStep { tool_call_id: "c".into(), tool_name: "clock".into(), running: true }]);
    play(&mut timeline, &[child("d", tool_result("c", json!(1), false, false))]);
    assert!(!call(&timeline, "d").child_trace.unwrap().steps[0].running);
    assert_eq!(timeline.apply(&child("d", tool_result("c", json!(1), false, false)), 9), Applied::NOTHING);
}

#[test]
fn two_delegations_at_once_have_a_trace_and_a_budget_each() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[tool_call("d1"), tool_call("d2")]);
    for _ in 0..50 {
        play(&mut timeline, &[child("d1", text("a", &"1".repeat(100))), child("d2", text("a", &"2".repeat(50)))]);
    }
    let texts = ["d1", "d2"].map(|id| call(&timeline, id).child_trace.unwrap().text);
    assert_eq!(texts, ["1".repeat(4_000), "2".repeat(2_500)]);
}

#[test]
fn a_grandchild_is_not_in_the_trace() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[tool_call("d")]);
    let deep = Event::SubagentChunk {
        parent_tool_call_id: "d".into(),
        task_path: vec!["d".into(), "e".into()],
        chunk: Box::new(text("a", "deep")),
    };
    assert_eq!(timeline.apply(&deep, 2), Applied::NOTHING);
    assert_eq!(call(&timeline, "d").child_trace, None);
}

#[test]
fn when_a_delegation_ends_its_steps_do_too() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[tool_call("d"), child("d", tool_call("c")), tool_result("d", json!("x"), false, true)]);
    assert!(!call(&timeline, "d").child_trace.unwrap().steps[0].running);
}

// Coming to rest.

/// A message in the middle of everything.
fn unfinished() -> Timeline {
    let mut timeline = Timeline::new();
    play(
        &mut timeline,
        &[
            text("a", "text"),
            thought("r", "reasoning"),
            Event::ToolInputStart { tool_call_id: "streaming".into(), tool_name: "clock".into() },
            tool_call("pending"),
            tool_call("running"),
            tool_start("running", 5),
            tool_call("waiting"),
            suspended("waiting"),
            tool_call("settled"),
            tool_result("settled", json!(1), false, false),
        ],
    );
    timeline
}

#[test]
fn closing_events_bring_every_ending_to_rest() {
    use ExecutionStatus::{Cancelled, Error, Interrupted, Success, Suspended};
    for status in [Success, Error, Cancelled, Interrupted, Suspended] {
        let mut timeline = unfinished();
        let events = timeline.closing_events(status, 9);
        assert!(play(&mut timeline, &events).iter().all(|applied| applied.boundary), "each of them does something");
        assert_eq!(timeline.closing_events(status, 9), [], "{status:?}: nothing is left to do");
        let ended = if status == Cancelled { ToolState::Cancelled } else { ToolState::Rejected };
        for id in ["streaming", "pending", "running"] {
            assert_eq!(call(&timeline, id).state, ended, "{status:?}, {id}");
        }
        let waits = if status == Suspended { ToolState::Suspended } else { ended };
        assert_eq!(call(&timeline, "waiting").state, waits, "{status:?}");
        assert_eq!(call(&timeline, "settled").output, Some(json!(1)));
        assert!(matches!(timeline.parts()[1], Part::Reasoning { end_time: Some(_), .. }));
        assert_eq!(timeline.apply(&text("a", "x"), 99).part, Some(timeline.parts().len() - 1), "the open text has ended");
    }
}

#[test]
fn what_began_ends_on_the_live_stream_too() {
    let mut timeline = Timeline::new();
    play(&mut timeline, &[Event::StartStep, tool_call("ends"), tool_call("runs"), tool_start("ends", 1), tool_start("runs", 2)]);
    play(&mut timeline, &[tool_end("ends", 3)]);
    let events = timeline.closing_events(ExecutionStatus::Cancelled, 9);
    let ends: Vec<_> = events.iter().filter(|event| matches!(event, Event::ToolExecutionEnd { .. })).collect();
    let expected =
        Event::ToolExecutionEnd { tool_call_id: "runs".into(), tool_name: "clock".into(), is_error: true, end_time: 9 };
    assert_eq!(ends, [&expected], "once for each tool that runs");
    assert_eq!(events.last(), Some(&Event::FinishStep { usage: None }));
    play(&mut timeline, &events);
    assert_eq!(timeline.closing_events(ExecutionStatus::Cancelled, 9), []);
    assert_eq!(call(&timeline, "runs").end_time, Some(9));
}

#[test]
fn steps_are_counted_over_all_executions_of_a_turn() {
    let finish = || Event::FinishStep { usage: None };
    let mut first = Timeline::new();
    play(&mut first, &[Event::StartStep, tool_call("a"), tool_call("b"), finish(), Event::StartStep, tool_call("c"), finish()]);
    let mut second = Timeline::from_parts(first.into_parts());
    play(&mut second, &[Event::StartStep, tool_call("d")]);
    let steps = ["a", "b", "c", "d"].map(|id| call(&second, id).step);
    assert_eq!(steps, [Some(1), Some(1), Some(2), Some(3)]);
}

#[test]
fn a_call_that_ran_when_the_server_died_may_have_taken_effect_and_says_so() {
    let mut timeline = unfinished();
    let events = timeline.closing_events(ExecutionStatus::Interrupted, 9);
    play(&mut timeline, &events);
    assert!(call(&timeline, "running").error.unwrap().contains("not known"));
    assert!(!call(&timeline, "pending").error.unwrap().contains("not known"));
}

#[test]
fn recorded_parts_that_nobody_writes_any_more_come_to_rest() {
    let parts = closed(unfinished().into_parts(), ExecutionStatus::Interrupted, 77);
    assert_eq!((parts[0].as_text(), parts.len()), (Some("text"), unfinished().parts().len()));
    assert!(matches!(parts[1], Part::Reasoning { end_time: Some(77), .. }));
    assert!(parts.iter().filter_map(Part::as_tool_call).all(|call| call.state.is_settled()));
    assert_eq!(closed(parts.clone(), ExecutionStatus::Interrupted, 99), parts, "once");
}

proptest! {
    #[test]
    fn any_cut_of_deltas_gives_the_same_parts(
        words in prop::collection::vec((0u8..5, "[a-zé😀 ]{0,12}"), 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 40),
    ) {
        let event = |kind: u8, delta: &str| match kind {
            0 => text("a", delta),
            1 => text("b", delta),
            2 => thought("r", delta),
            3 => child("d", text("a", delta)),
            _ => child("d", thought("r", delta)),
        };
        let mut whole = Timeline::new();
        let mut pieces = Timeline::new();
        for timeline in [&mut whole, &mut pieces] {
            timeline.apply(&tool_call("d"), 0);
            // Close to the budget, so that it is crossed in the middle of words.
            timeline.apply(&child("d", text("a", &"x".repeat(3_950))), 0);
        }
        for ((kind, word), cut) in words.iter().zip(&cuts) {
            whole.apply(&event(*kind, word), 1);
            let at = word.char_indices().map(|(at, _)| at).chain([word.len()]).nth(cut.index(word.chars().count() + 1)).unwrap();
            pieces.apply(&event(*kind, &word[..at]), 1);
            pieces.apply(&event(*kind, &word[at..]), 1);
        }
        prop_assert_eq!(whole.parts(), pieces.parts());
    }

    #[test]
    fn a_message_cut_between_executions_is_the_same_as_one(words in prop::collection::vec("[a-z😀]{1,200}", 1..60), cut in any::<prop::sample::Index>()) {
        let events: Vec<_> = words.iter().map(|word| child("d", text("a", word))).collect();
        let mut whole = Timeline::new();
        whole.apply(&tool_call("d"), 0);
        let mut first = whole.clone();
        events.iter().for_each(|event| _ = whole.apply(event, 1));
        let (before, after) = events.split_at(cut.index(events.len()));
        before.iter().for_each(|event| _ = first.apply(event, 1));
        let mut second = Timeline::from_parts(first.into_parts());
        after.iter().for_each(|event| _ = second.apply(event, 1));
        prop_assert_eq!(whole.parts(), second.parts());
    }
}

// The answers that bring a suspended call on.

#[test]
fn resume_data_takes_the_two_shapes_and_no_other() {
    let parse = |value: Value| serde_json::from_value::<ResumeData>(value).ok();
    assert_eq!(parse(json!({"approved": true})), Some(ResumeData::Approval { approved: true, reason: None }));
    let denied = ResumeData::Approval { approved: false, reason: Some("no".to_owned()) };
    assert_eq!(parse(json!({"approved": false, "reason": "no"})), Some(denied));
    assert_eq!(parse(json!({"answer": "blue"})), Some(ResumeData::Answer { answer: "blue".to_owned() }));
    for other in [
        json!({}),
        json!(null),
        json!("blue"),
        json!(true),
        json!([]),
        json!({"approved": "yes"}),
        json!({"approved": 1}),
        json!({"reason": "no"}),
        json!({"answer": 1}),
        json!({"answer": null}),
        json!({"approved": true, "answer": "blue"}),
        json!({"answer": "blue", "reason": "no"}),
        json!({"approved": true, "extra": 1}),
        json!({"answer": "blue", "extra": 1}),
    ] {
        assert_eq!(parse(other.clone()), None, "{other}");
    }
    for data in [json!({"approved": true}), json!({"answer": "blue"})] {
        assert_eq!(serde_json::to_value(parse(data.clone()).unwrap()).unwrap(), data, "and back");
    }
}

#[test]
fn an_answer_fits_its_question_or_is_told_what_would() {
    use crate::message::AnswerMismatch::{NotAnOption, WantsAnswer, WantsApproval};
    let approve = ResumeData::Approval { approved: true, reason: None };
    let say = |answer: &str| ResumeData::Answer { answer: answer.to_owned() };
    let approval = SuspendPayload::Approval { tool_name: "clock".to_owned(), input: json!({}) };
    let colours = Some(&["red", "blue"][..]);
    let only = || Err(NotAnOption(vec!["red".to_owned(), "blue".to_owned()]));
    for (asked, data, expected) in [
        (approval.clone(), approve.clone(), Ok(())),
        (approval, say("yes"), Err(WantsApproval)),
        (question(None, None), approve, Err(WantsAnswer)),
        (question(None, None), say("anything"), Ok(())),
        (question(None, None), say(" \n"), Err(WantsAnswer)),
        (question(Some(&[]), None), say("anything"), Ok(())),
        (question(colours, None), say("blue"), Ok(())),
        (question(colours, None), say("Blue"), only()),
        (question(colours, Some(false)), say("green"), only()),
        (question(colours, Some(true)), say("green"), Ok(())),
    ] {
        assert_eq!(asked.accepts(&data), expected, "{asked:?} {data:?}");
    }
}
