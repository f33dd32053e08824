//! What an engine says, in a form that every database holds and every reader reads.

use serde_json::Value;
use turnfast_shared::{Event, event::Suspension, limits::JSON_DEPTH, message::SuspendPayload};

/// `event` as it is recorded and shown.
///
/// Databases take no NUL in text; models have been seen to send one. JSON that is nested without end is written by any writer and
/// read by none: readers stop at some depth, so that a few bytes cannot exhaust their stack.
pub(super) fn event(mut event: Event) -> Event {
    match &mut event {
        Event::TextDelta { delta, .. } | Event::ReasoningDelta { delta, .. } => without_nul(delta),
        Event::ToolCall { input, .. } => bound(input, JSON_DEPTH),
        Event::ToolResult { output, .. } => bound(output, JSON_DEPTH),
        Event::ToolCallSuspended { payload: Suspension { input, suspend_payload, .. } } => {
            bound(input, JSON_DEPTH);
            if let Some(SuspendPayload::Approval { input, .. }) = suspend_payload {
                bound(input, JSON_DEPTH);
            }
        }
        _ => {}
    }
    event
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
}
