//! What to do with executions whose process died. Pure: what is recorded in, what to write out.

use turnfast_shared::{
    ExecutionStatus, Millis,
    ids::{ExecutionId, ProcessId},
    message::ExecutionError,
    timeline,
};

use crate::store::turns::{Continuation, End, Flush, Orphan};

/// How often one message is continued. An agent that kills its server must not do so for ever.
pub const CONTINUATIONS_MAX: u32 = 3;

/// What becomes of an orphaned execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A Stop was asked for before the process died, and wins (contract 1, section 9, durable Stop).
    Cancelled,
    /// Another execution goes on in the same message.
    Continued,
    /// It ends as it is.
    Interrupted,
}

/// Decides on an orphan. `may_continue`: its agent wants that, and can run here.
#[must_use]
pub fn fate(orphan: &Orphan, may_continue: bool) -> Fate {
    if orphan.cancel_requested {
        Fate::Cancelled
    } else if may_continue && orphan.continuations < CONTINUATIONS_MAX {
        Fate::Continued
    } else {
        Fate::Interrupted
    }
}

/// What ends an orphan, in the name of the dead process. Text and results that were recorded stay.
///
/// # Errors
/// The parts cannot be written as JSON.
pub fn ending(orphan: Orphan, status: ExecutionStatus, at: Millis) -> Result<Flush, serde_json::Error> {
    let error = (status == ExecutionStatus::Interrupted).then(|| ExecutionError {
        message: if orphan.continuations < CONTINUATIONS_MAX {
            "The server stopped unexpectedly while this reply was being written.".to_owned()
        } else {
            format!(
                "The server stopped unexpectedly while this reply was being written, also after {} attempts to go on with it.",
                orphan.continuations
            )
        },
        error_code: Some("process_died".to_owned()),
    });
    let parts = timeline::closed(orphan.parts, status, at);
    let content = Some(serde_json::to_string(&parts)?);
    Ok(Flush {
        execution: orphan.execution,
        process: orphan.process,
        key: orphan.key,
        parts: Vec::new(),
        end: Some(End { status, error, suspensions: Vec::new(), content, at }),
        by_survivor: true,
    })
}

/// What lets `execution` of `process` go on where an orphan stopped.
#[must_use]
pub fn continuation(orphan: &Orphan, execution: ExecutionId, process: ProcessId, at: Millis) -> Continuation {
    Continuation { orphan: orphan.execution, dead: orphan.process, key: orphan.key.clone(), execution, process, at }
}

#[cfg(test)]
mod tests {
    use turnfast_shared::{
        Part,
        message::{ToolCall, ToolState},
    };
    use uuid::Uuid;

    use super::*;
    use crate::store::turns::ThreadKey;

    fn orphan(cancel_requested: bool, continuations: u32) -> Orphan {
        Orphan {
            execution: Uuid::from_u128(1).into(),
            key: ThreadKey {
                project: "demo".parse().unwrap(),
                agent: "assistant".parse().unwrap(),
                thread: Uuid::from_u128(2).into(),
                owner: Uuid::from_u128(3).into(),
            },
            process: Uuid::from_u128(4).into(),
            cancel_requested,
            message: Uuid::from_u128(5).into(),
            continuations,
            answers: Vec::new(),
            parts: Vec::new(),
        }
    }

    #[test]
    fn a_stop_wins_then_the_agents_wish_up_to_its_bound() {
        for (cancel_requested, continuations, may_continue, expected) in [
            (false, 0, false, Fate::Interrupted),
            (false, 0, true, Fate::Continued),
            (false, 2, true, Fate::Continued),
            (false, 3, true, Fate::Interrupted),
            (false, 4, true, Fate::Interrupted),
            (false, 3, false, Fate::Interrupted),
            (true, 0, false, Fate::Cancelled),
            (true, 0, true, Fate::Cancelled),
            (true, 3, true, Fate::Cancelled),
        ] {
            let orphan = orphan(cancel_requested, continuations);
            assert_eq!(fate(&orphan, may_continue), expected, "{cancel_requested} {continuations} {may_continue}");
        }
    }

    #[test]
    fn an_ending_keeps_what_was_written_and_settles_what_was_open() {
        let call = |id: &str, state| {
            Part::ToolCall(ToolCall {
                tool_call_id: id.to_owned(),
                tool_name: "clock".to_owned(),
                input: serde_json::json!({}),
                state,
                output: (state == ToolState::Resolved).then(|| serde_json::json!("noon")),
                error: None,
                start_time: 1,
                end_time: None,
                suspend_payload: None,
                step: None,
                child_trace: None,
            })
        };
        let written = vec![
            Part::Text { text: "half a".to_owned() },
            call("done", ToolState::Resolved),
            call("ran", ToolState::Running),
            call("waits", ToolState::Suspended),
        ];
        for (status, continuations, ran) in [
            (ExecutionStatus::Interrupted, 0, ToolState::Rejected),
            (ExecutionStatus::Interrupted, 3, ToolState::Rejected),
            (ExecutionStatus::Cancelled, 0, ToolState::Cancelled),
        ] {
            let orphan = Orphan { parts: written.clone(), ..orphan(false, continuations) };
            let flush = ending(orphan.clone(), status, 9).unwrap();
            assert_eq!((flush.execution, flush.process, &flush.key), (orphan.execution, orphan.process, &orphan.key));
            let end = flush.end.unwrap();
            assert_eq!((end.status, end.at), (status, 9));
            let error = end.error.map(|error| (error.error_code.unwrap(), error.message.contains("attempts")));
            let expected = (status == ExecutionStatus::Interrupted).then(|| ("process_died".to_owned(), continuations == 3));
            assert_eq!(error, expected);
            let parts: Vec<Part> = serde_json::from_str(&end.content.unwrap()).unwrap();
            let states: Vec<_> = parts.iter().filter_map(Part::as_tool_call).map(|call| call.state).collect();
            assert_eq!(states, [ToolState::Resolved, ran, ran]);
            assert!(matches!(&parts[0], Part::Text { text } if text == "half a"));
        }
    }
}
