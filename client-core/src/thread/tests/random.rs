//! Inputs in no order that a browser or a server would give them. What may happen in earnest is in `crate::simulation`.

use std::collections::HashSet;

use proptest::prelude::*;
use turnfast_shared::api::{CancelAnswer, RunCancelAnswer};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_answers_and_events_is_too_odd(inputs in prop::collection::vec(nonsense(), 0..80)) {
        let mut machine = Machine::new();
        for (now, input) in inputs {
            machine.handle(now, input);
            let view = machine.view();
            let mut ids = HashSet::new();
            prop_assert!(view.messages().all(|message| ids.insert(message.id)));
            prop_assert!(view.live.is_none_or(|live| live.index < view.settled.len()));
        }
    }
}

/// Inputs of every kind, whose ids now and then are those of effects.
fn nonsense() -> impl Strategy<Value = (Millis, Input)> {
    let id = || (1u64..16).prop_map(EffectId);
    let some_thread = || (0u128..2).prop_map(thread);
    let failure = || {
        prop::sample::select(vec![
            Failure::Broken,
            Failure::Unreadable { status: 502 },
            refused(Code::NotFound),
            refused(Code::Unauthenticated),
            refused(Code::InteractionClosed),
            refused(Code::MessageAlreadyAccepted),
            refused(Code::TurnAlreadyRunning),
        ])
    };
    let event = || {
        (0usize..9, 1u128..4, some_thread()).prop_map(|(what, n, thread)| match what {
            0 | 1 => started(n, thread, message(n), message(n + 1)),
            2 => delta("x"),
            3 => done(n, thread, ExecutionStatus::Success),
            4 => Event::ToolCallSuspended { payload: question(n) },
            5 => {
                Event::ToolCall { tool_call_id: format!("call-{n}"), tool_name: "ask_user".into(), input: serde_json::json!({}) }
            }
            6 => Event::Error { message: "e".into(), error_code: None },
            7 => Event::ReasoningEnd { id: "t".into() },
            _ => Event::Warning { message: "w".into(), code: None },
        })
    };
    let read = || {
        (1u64..6, any::<bool>(), any::<bool>()).prop_map(|(revision, part, open)| {
            let whole = if open {
                waiting(revision)
            } else {
                running(2, snapshot(revision, vec![user(1, "a", revision), user(1, "b", revision)]))
            };
            if part { partial(whole) } else { whole }
        })
    };
    let person = prop_oneof![
        prop::option::of(some_thread()).prop_map(|thread| Input::Opened { thread }),
        Just(Input::Disposed),
        "[a-c]{0,2}".prop_map(Input::DraftChanged),
        (1u128..4, some_thread()).prop_map(|(n, thread_id)| Input::SubmitPressed { message_id: message(n), thread_id }),
        Just(Input::StopPressed),
        (1u128..5).prop_map(|n| Input::AnswerGiven { tool_call_id: format!("call-{n}"), data: blue() }),
        Just(Input::CancelSuspendedPressed),
        Just(Input::Occasion(Occasion::TabVisible)),
        (some_thread(), 0u64..6).prop_map(|(thread, revision)| update(thread, revision)),
    ];
    let answers = prop_oneof![
        (id(), read()).prop_map(|(id, read)| Input::ReadDone { id, outcome: Ok(Box::new(read)) }),
        (id(), failure()).prop_map(|(id, failure)| Input::ReadDone { id, outcome: Err(failure) }),
        (id(), failure()).prop_map(|(id, failure)| Input::StreamRefused { id, failure }),
        (id(), event()).prop_map(|(id, event)| Input::StreamBytes { id, bytes: sse(&event) }),
        (id(), event()).prop_map(|(id, event)| Input::StreamBytes { id, bytes: sse(&event) }),
        (id(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(id, bytes)| Input::StreamBytes { id, bytes }),
        id().prop_map(|id| Input::StreamEnded { id }),
        id().prop_map(|id| Input::TimerFired { id }),
        (id(), any::<bool>())
            .prop_map(|(id, cancel_requested)| Input::StopDone { id, outcome: Ok(CancelAnswer { cancel_requested }) }),
        (id(), any::<bool>()).prop_map(|(id, cancelled)| Input::CancelRunDone { id, outcome: Ok(RunCancelAnswer { cancelled }) }),
        id().prop_map(|id| Input::DraftLoaded { id, draft: None }),
    ];
    (-100_000i64..100_000, prop_oneof![person, answers])
}
