use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use super::*;

/// Both ways of reading give `value` back from what it is on the wire, whole, and agree on every text that lacks one of its fields
/// or has another value in it.
fn check<T: FromJson + Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let wire = serde_json::to_value(value).unwrap();
    assert_eq!(T::from_json(wire.clone()).as_ref(), Some(value));
    assert_eq!(read::<T>(&wire.to_string()).as_ref(), Some(value));
    for changed in changed(&wire) {
        let by_serde = serde_json::from_str::<T>(&changed.to_string()).ok();
        assert_eq!(T::from_json(changed.clone()), by_serde, "{changed}");
    }
}

/// `value` with one thing in it changed, anywhere.
fn changed(value: &Value) -> Vec<Value> {
    let mut out: Vec<Value> = [json!(null), json!("odd"), json!(-1), json!(1.5), json!(true), json!({})].into();
    if !value.is_object() {
        // Serde takes a list for a struct, in the order of the declaration. No server of ours writes one.
        out.push(json!([]));
    }
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                let mut without = map.clone();
                without.remove(name);
                out.push(Value::Object(without));
                for inner in changed(inner) {
                    let mut other = map.clone();
                    other.insert(name.clone(), inner);
                    out.push(Value::Object(other));
                }
            }
            let mut more = map.clone();
            more.insert("notKnown".to_owned(), json!(1));
            out.push(Value::Object(more));
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                for inner in changed(inner) {
                    let mut other = items.clone();
                    other[index] = inner;
                    out.push(Value::Array(other));
                }
            }
        }
        _ => {}
    }
    out
}

fn id<T: From<Uuid>>(n: u128) -> T {
    Uuid::from_u128(n).into()
}

fn call() -> ToolCall {
    ToolCall {
        tool_call_id: "c".into(),
        tool_name: "t".into(),
        input: json!({"a": 1}),
        state: ToolState::InputStreaming,
        output: Some(json!(["x"])),
        error: Some("e".into()),
        start_time: 5,
        end_time: Some(6),
        step: Some(2),
        suspend_payload: Some(SuspendPayload::Question {
            question: "q".into(),
            options: Some(vec!["o".into()]),
            free_text: Some(true),
        }),
        child_trace: Some(ChildTrace {
            text: "t".into(),
            reasoning_segments: vec!["r".into()],
            steps: vec![ChildStep { tool_call_id: "s".into(), tool_name: "n".into(), running: true }],
        }),
    }
}

fn message() -> Message {
    Message {
        id: id(1),
        role: Role::Assistant,
        content: vec![
            Part::Text { text: "é".into() },
            Part::Reasoning { text: "r".into(), start_time: 1, end_time: Some(2) },
            Part::File { id: id(3), name: "f".into(), media_type: "image/png".into(), size: 9 },
        ],
        execution_id: Some(id(4)),
        execution_status: Some(ExecutionStatus::Error),
        execution_error: Some(ExecutionError { message: "m".into(), error_code: Some("c".into()) }),
        created_at: "2026-11-30T00:00:00Z".into(),
        revision: 7,
    }
}

fn suspension() -> Suspension {
    Suspension {
        tool_call_id: "c".into(),
        run_id: id(1),
        tool_name: "t".into(),
        input: json!({}),
        suspend_payload: Some(SuspendPayload::Approval { tool_name: "t".into(), input: json!(null) }),
    }
}

#[test]
fn messages_read_as_serde_reads_them() {
    check(&message());
    check(&Part::ToolCall(call()));
    let bare = Message {
        content: vec![],
        execution_id: None,
        execution_status: None,
        execution_error: None,
        role: Role::User,
        ..message()
    };
    check(&bare);
    check(&ToolCall {
        output: None,
        error: None,
        end_time: None,
        step: None,
        suspend_payload: None,
        child_trace: None,
        ..call()
    });
}

#[test]
fn answers_read_as_serde_reads_them() {
    check(&ThreadSnapshot {
        messages: vec![message()],
        open_suspensions: vec![suspension()],
        active_execution_id: Some(id(2)),
        revision: 3,
        partial: true,
        deleted_message_ids: Some(vec![id(9)]),
    });
    check(&CancelAnswer { cancel_requested: true });
    check(&RunCancelAnswer { cancelled: false });
    let thread = Thread {
        id: id(1),
        title: "t".into(),
        created_at: "c".into(),
        updated_at: "u".into(),
        revision: 1,
        active_execution_id: Some(id(2)),
        suspended: true,
    };
    check(&ThreadPage { threads: vec![thread], next_cursor: Some("n".into()) });
    check(&Me { id: id(1), name: "n".into() });
    let slug: Slug = "demo".parse().unwrap();
    check(&ProjectList { projects: vec![Project { id: slug.clone(), name: "n".into(), scopes: vec!["agent:read".into()] }] });
    check(&AgentList {
        agents: vec![Agent {
            id: slug.clone(),
            name: "n".into(),
            engine: "demo".into(),
            model: Some("m".into()),
            attachments: Some(AttachmentLimits { max: 8, max_bytes: 100 }),
        }],
    });
    check(&Problem {
        field: Some("f".into()),
        scope: Some("s".into()),
        active_execution_id: Some(id(1)),
        execution_id: Some(id(2)),
        missing: Some(vec!["m".into()]),
        ..Problem::new(Code::AgentsDisabled, "d")
    });
    check(&PushEvent::AgentExecutionUpdated(ExecutionUpdated {
        project_id: slug.clone(),
        agent_id: slug,
        thread_id: id(1),
        execution_id: Some(id(2)),
        revision: 3,
    }));
    assert_eq!(read(r#"{"type":"connected"}"#), Some(PushEvent::Connected));
    assert_eq!(read(r#"{"type":"ping"}"#), Some(PushEvent::Ping));
}

#[test]
fn every_event_reads_as_serde_reads_it() {
    let (c, t) = (|| "c".to_owned(), || "t".to_owned());
    for event in [
        Event::ExecutionStarted { execution_id: id(1), session_id: id(2), message_id: id(3), assistant_message_id: id(4) },
        Event::StartStep,
        Event::FinishStep { usage: Some(Usage { input_tokens: Some(1), output_tokens: Some(2), reasoning_tokens: Some(3) }) },
        Event::TextStart { id: c() },
        Event::TextDelta { id: c(), delta: t() },
        Event::TextEnd { id: c() },
        Event::ReasoningStart { id: c() },
        Event::ReasoningDelta { id: c(), delta: t() },
        Event::ReasoningEnd { id: c() },
        Event::ToolInputStart { tool_call_id: c(), tool_name: t() },
        Event::ToolInputDelta { tool_call_id: c(), delta: t() },
        Event::ToolCall { tool_call_id: c(), tool_name: t(), input: json!([1]) },
        Event::ToolExecutionStart { tool_call_id: c(), tool_name: t(), start_time: 1 },
        Event::ToolExecutionEnd { tool_call_id: c(), tool_name: t(), is_error: true, end_time: 1 },
        Event::ToolResult { tool_call_id: c(), tool_name: t(), output: json!("o"), is_error: Some(true), canceled: Some(true) },
        Event::ToolCallSuspended { payload: suspension() },
        Event::SubagentChunk { parent_tool_call_id: c(), task_path: vec![c()], chunk: Box::new(Event::TextEnd { id: t() }) },
        Event::Warning { message: c(), code: Some(t()) },
        Event::Error { message: c(), error_code: Some(t()) },
        Event::Done { session_id: id(1), execution_id: id(2), status: ExecutionStatus::Success },
    ] {
        check(&event);
    }
}

#[test]
fn what_is_no_json_is_no_value() {
    for odd in ["", "{", "null", "[]", "{}", "\"text\"", "{\"type\":\"not-known\"}"] {
        assert_eq!(read::<Event>(odd), None, "{odd}");
        assert_eq!(read::<Message>(odd), None, "{odd}");
    }
}
