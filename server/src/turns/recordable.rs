//! What an engine says, in a form that every database holds and every reader reads.

use serde_json::Value;
use turnfast_shared::{Event, event::Suspension, limits::JSON_DEPTH, message::SuspendPayload};

/// `event` as it is recorded and shown.
///
/// Databases take no NUL in text; models have been seen to send one. JSON that is nested without end is written by any writer and
/// read by none: readers stop at some depth, so that a few bytes cannot exhaust their stack.
pub(super) fn event(mut event: Event) -> Event {
    mend(&mut event);
    event
}

/// Every variant and every text of it: a reader sends back what it was shown, and must be able to.
fn mend(event: &mut Event) {
    match event {
        Event::TextStart { id } | Event::TextEnd { id } | Event::ReasoningStart { id } | Event::ReasoningEnd { id } => {
            without_nul(id)
        }
        Event::TextDelta { id, delta } | Event::ReasoningDelta { id, delta } => {
            without_nul(id);
            without_nul(delta);
        }
        Event::ToolInputDelta { tool_call_id, delta } => {
            without_nul(tool_call_id);
            without_nul(delta);
        }
        Event::ToolInputStart { tool_call_id, tool_name }
        | Event::ToolExecutionStart { tool_call_id, tool_name, .. }
        | Event::ToolExecutionEnd { tool_call_id, tool_name, .. } => {
            without_nul(tool_call_id);
            without_nul(tool_name);
        }
        Event::ToolCall { tool_call_id, tool_name, input: value }
        | Event::ToolResult { tool_call_id, tool_name, output: value, .. } => {
            without_nul(tool_call_id);
            without_nul(tool_name);
            bound(value, JSON_DEPTH);
        }
        Event::ToolCallSuspended { payload } => {
            let Suspension { tool_call_id, run_id: _, tool_name, input, suspend_payload } = payload;
            without_nul(tool_call_id);
            without_nul(tool_name);
            bound(input, JSON_DEPTH);
            match suspend_payload {
                Some(SuspendPayload::Approval { tool_name, input }) => {
                    without_nul(tool_name);
                    bound(input, JSON_DEPTH);
                }
                Some(SuspendPayload::Question { question, options, free_text: _ }) => {
                    without_nul(question);
                    options.iter_mut().flatten().for_each(without_nul);
                }
                None => {}
            }
        }
        Event::SubagentChunk { parent_tool_call_id, task_path, chunk } => {
            without_nul(parent_tool_call_id);
            task_path.iter_mut().for_each(without_nul);
            mend(chunk);
        }
        Event::Warning { message, code } | Event::Error { message, error_code: code } => {
            without_nul(message);
            code.iter_mut().for_each(without_nul);
        }
        Event::ExecutionStarted { .. } | Event::StartStep | Event::FinishStep { .. } | Event::Done { .. } => {}
    }
}

fn without_nul(text: &mut String) {
    if text.contains('\0') {
        // A replacement character says that something stood there.
        *text = text.replace('\0', "\u{fffd}");
    }
}

/// Puts a note in place of what lies more than `levels` deep.
fn bound(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = Value::String("[nested too deeply]".to_owned()),
        Value::Array(values) => values.iter_mut().for_each(|value| bound(value, levels - 1)),
        Value::Object(fields) => fields.values_mut().for_each(|value| bound(value, levels - 1)),
        Value::String(text) => without_nul(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
    }

    fn recorded(input: Value) -> Value {
        match event(Event::ToolCall { tool_call_id: "c".into(), tool_name: "t".into(), input }) {
            Event::ToolCall { input, .. } => input,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn whatever_is_recorded_can_be_read_again() {
        assert_eq!(recorded(nested(JSON_DEPTH)), nested(JSON_DEPTH));
        for levels in [JSON_DEPTH + 1, 126, 127] {
            let text = recorded(nested(levels)).to_string();
            assert!(text.contains("nested too deeply"), "{levels}");
            // Where it is read it lies within a message within an answer.
            let within = format!("[[[[[[[[{text}]]]]]]]]");
            assert!(serde_json::from_str::<Value>(&within).is_ok(), "{levels}");
        }
    }

    #[test]
    fn no_text_holds_a_nul() {
        assert_eq!(recorded(serde_json::json!({"a": ["x\0"]})), serde_json::json!({"a": ["x\u{fffd}"]}));
        let delta = event(Event::TextDelta { id: "t".into(), delta: "\0".into() });
        assert_eq!(delta, Event::TextDelta { id: "t".into(), delta: "\u{fffd}".into() });
    }

    #[test]
    fn what_a_person_is_asked_can_be_answered_as_it_is_shown() {
        let question = SuspendPayload::Question { question: "a\0?".into(), options: Some(vec!["b\0".into()]), free_text: None };
        let asked = Event::ToolCallSuspended {
            payload: Suspension {
                tool_call_id: "c\0".into(),
                run_id: uuid::Uuid::nil().into(),
                tool_name: "d\0".into(),
                input: serde_json::json!("e\0"),
                suspend_payload: Some(question),
            },
        };
        let chunk = Event::SubagentChunk {
            parent_tool_call_id: "f\0".into(),
            task_path: vec!["g\0".into()],
            chunk: Box::new(Event::TextDelta { id: "h\0".into(), delta: "i\0".into() }),
        };
        for (before, texts) in [(asked, 5), (chunk, 4)] {
            let shown = serde_json::to_string(&event(before)).unwrap();
            assert!(!shown.contains("\\u0000"), "{shown}");
            assert_eq!(shown.matches('\u{fffd}').count(), texts, "{shown}");
        }
    }
}
