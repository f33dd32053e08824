//! Writes TypeScript that holds the package's types to what Rust writes, to be checked with `tsc --strict`; `cargo xtask test` does.
//!
//! Of every type there are samples with all fields and with as few as possible. `Required<…>` of a sample with all fields is wrong if
//! either side has a field that the other lacks; `Record<…, true>` over the tags of a union is wrong if either side has a variant
//! that the other lacks; a sample with few fields is wrong if TypeScript requires one that may be absent. A variant that is added in
//! Rust does not compile here before it is listed.
#![expect(clippy::expect_used, reason = "a sample that cannot be written fails the check, as it should")]

use serde::Serialize;
use serde_json::{Value, json};
use turnfast_client::words;
use turnfast_client_core::thread::{
    Attempt, Cause, Failure, Interaction, InteractionState, Load, Running, SendBlocked, Stop, Trouble, Warning,
};
use turnfast_shared::{
    Code, Event, ExecutionStatus, Message, Part, Problem, Role, ToolState,
    api::{
        Agent, AttachmentLimits, CancelAnswer, ChatRequest, ExecutionUpdated, Me, NewAttachment, Project, PushEvent,
        ResumeRequest, RunCancelAnswer, Thread, ThreadPage, ThreadSnapshot,
    },
    event::{Suspension, Usage},
    message::{ChildStep, ChildTrace, ExecutionError, ResumeData, SuspendPayload, ToolCall},
};
use uuid::Uuid;

/// All values of an enum without fields. A variant that is missing does not compile.
macro_rules! every {
    ($type:ident: $($variant:ident),*) => {{
        let _listed = |value: $type| match value { $($type::$variant => {})* };
        [$($type::$variant),*]
    }};
}

fn id<T: From<Uuid>>() -> T {
    Uuid::from_u128(7).into()
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn main() {
    let out = &mut Samples::default();
    enums(out);
    record(out);
    events(out);
    bodies(out);
    state(out);
    println!("{}", out.lines.join("\n"));
}

/// The lines of the file. Each sample is a check of its own.
struct Samples {
    lines: Vec<String>,
    count: usize,
}

impl Default for Samples {
    fn default() -> Self {
        Self {
            lines: vec![
                text("// Written by client-js/examples/samples.rs."),
                text("import type * as t from \"turnfast-client\";"),
            ],
            count: 0,
        }
    }
}

impl Samples {
    fn line(&mut self, of: &str, value: &Value) {
        self.count += 1;
        self.lines.push(format!("export const sample{}: {of} = {value};", self.count));
    }

    /// A sample with as few fields as there can be, or one of several.
    fn some(&mut self, of: &str, value: &impl Serialize) {
        self.line(&format!("t.{of}"), &serde_json::to_value(value).expect("a sample can be written"));
    }

    /// A sample with all fields.
    fn full(&mut self, of: &str, value: &impl Serialize) {
        self.line(&format!("Required<t.{of}>"), &serde_json::to_value(value).expect("a sample can be written"));
    }

    /// A sample with all fields of one variant of a union, which `tag` tells from the others.
    fn variant(&mut self, of: &str, tag: &str, value: &impl Serialize) {
        let value = serde_json::to_value(value).expect("a sample can be written");
        self.line(&format!("Required<Extract<t.{of}, {{ {tag}: {} }}>>", value[tag]), &value);
    }

    /// All names of a union, each once.
    fn names<'n>(&mut self, of: &str, names: impl IntoIterator<Item = &'n Value>) {
        let all: serde_json::Map<_, _> =
            names.into_iter().map(|name| (text(name.as_str().expect("a name is text")), Value::Bool(true))).collect();
        self.line(&format!("Record<t.{of}, true>"), &Value::Object(all));
    }

    fn all_names<T: Serialize>(&mut self, of: &str, values: &[T]) {
        let names: Vec<_> = values.iter().map(|value| serde_json::to_value(value).expect("a name can be written")).collect();
        self.names(of, &names);
    }

    /// Every variant of a union with all its fields, and that there is no other.
    fn union<T: Serialize>(&mut self, of: &str, tag: &str, variants: &[T]) {
        let values: Vec<_> = variants.iter().map(|value| serde_json::to_value(value).expect("a sample can be written")).collect();
        for value in &values {
            self.variant(of, tag, value);
        }
        self.names(&format!("{of}[\"{tag}\"]"), values.iter().map(|value| &value[tag]));
    }
}

fn enums(out: &mut Samples) {
    out.all_names("Role", &every!(Role: User, Assistant));
    out.all_names("ExecutionStatus", &every!(ExecutionStatus: Running, Suspended, Success, Error, Cancelled, Interrupted));
    out.all_names("ToolState", &every!(ToolState: InputStreaming, Pending, Running, Suspended, Resolved, Rejected, Cancelled));
    out.all_names(
        "Code",
        &every!(Code: InvalidRequest, Unauthenticated, MissingScope, NotFound, AgentsDisabled, TurnAlreadyRunning, InteractionOpen,
            InteractionClosed, MessageAlreadyAccepted, MethodNotAllowed, UnsupportedMediaType, PayloadTooLarge, AgentMisconfigured,
            RateLimited, ShuttingDown, StorageUnavailable, CrossOrigin, Internal),
    );
}

fn payloads() -> [SuspendPayload; 2] {
    let _listed = |payload: SuspendPayload| match payload {
        SuspendPayload::Approval { .. } | SuspendPayload::Question { .. } => {}
    };
    [
        SuspendPayload::Approval { tool_name: text("clock"), input: json!({}) },
        SuspendPayload::Question { question: text("?"), options: Some(vec![text("a")]), free_text: Some(true) },
    ]
}

fn suspension(payload: Option<SuspendPayload>) -> Suspension {
    Suspension { tool_call_id: text("c"), run_id: id(), tool_name: text("ask_user"), input: json!({}), suspend_payload: payload }
}

fn trace() -> ChildTrace {
    ChildTrace {
        text: text("t"),
        reasoning_segments: vec![text("r")],
        steps: vec![ChildStep { tool_call_id: text("c"), tool_name: text("clock"), running: true }],
    }
}

fn call(full: bool) -> ToolCall {
    ToolCall {
        tool_call_id: text("c"),
        tool_name: text("delegate"),
        input: json!(null),
        state: ToolState::Resolved,
        output: full.then(|| json!("done")),
        error: full.then(|| text("e")),
        start_time: 1,
        end_time: full.then_some(2),
        step: full.then_some(1),
        suspend_payload: full.then(|| payloads()[0].clone()),
        child_trace: full.then(trace),
    }
}

fn message(full: bool) -> Message {
    Message {
        id: id(),
        role: Role::Assistant,
        content: vec![Part::Text { text: text("t") }, Part::ToolCall(call(full))],
        execution_id: full.then(id),
        execution_status: full.then_some(ExecutionStatus::Error),
        execution_error: full.then(|| ExecutionError { message: text("m"), error_code: Some(text("c")) }),
        created_at: text("2026-01-01T00:00:00Z"),
        revision: 1,
    }
}

fn record(out: &mut Samples) {
    out.full("Message", &message(true));
    out.some("Message", &message(false));
    out.full("ExecutionError", &ExecutionError { message: text("m"), error_code: Some(text("c")) });
    out.some("ExecutionError", &ExecutionError { message: text("m"), error_code: None });
    out.full("ToolCall", &call(true));
    out.some("ToolCall", &call(false));
    out.full("ChildTrace", &trace());
    out.full("ChildStep", &trace().steps[0]);
    let _listed = |part: Part| match part {
        Part::Text { .. } | Part::Reasoning { .. } | Part::File { .. } | Part::ToolCall(_) => {}
    };
    let file = Part::File { id: id(), name: text("n"), media_type: text("image/png"), size: 1 };
    let reasoning = |end_time| Part::Reasoning { text: text("r"), start_time: 1, end_time };
    out.union("Part", "type", &[Part::Text { text: text("t") }, reasoning(Some(2)), file, Part::ToolCall(call(true))]);
    out.some("Part", &reasoning(None));
    out.union("SuspendPayload", "kind", &payloads());
    out.some("SuspendPayload", &SuspendPayload::Question { question: text("?"), options: None, free_text: None });
    out.full("Suspension", &suspension(Some(payloads()[0].clone())));
    out.some("Suspension", &suspension(None));
}

fn events(out: &mut Samples) {
    let _listed = |event: Event| match event {
        Event::ExecutionStarted { .. }
        | Event::StartStep
        | Event::FinishStep { .. }
        | Event::TextStart { .. }
        | Event::TextDelta { .. }
        | Event::TextEnd { .. }
        | Event::ReasoningStart { .. }
        | Event::ReasoningDelta { .. }
        | Event::ReasoningEnd { .. }
        | Event::ToolInputStart { .. }
        | Event::ToolInputDelta { .. }
        | Event::ToolCall { .. }
        | Event::ToolExecutionStart { .. }
        | Event::ToolExecutionEnd { .. }
        | Event::ToolResult { .. }
        | Event::ToolCallSuspended { .. }
        | Event::SubagentChunk { .. }
        | Event::Warning { .. }
        | Event::Error { .. }
        | Event::Done { .. } => {}
    };
    let (part, call, tool) = (|| text("1"), || text("c"), || text("clock"));
    let usage = Usage { input_tokens: Some(1), output_tokens: Some(2), reasoning_tokens: Some(3) };
    let result =
        |flag| Event::ToolResult { tool_call_id: call(), tool_name: tool(), output: json!(1), is_error: flag, canceled: flag };
    let chunk = Box::new(Event::TextDelta { id: part(), delta: text("d") });
    out.union(
        "Event",
        "type",
        &[
            Event::ExecutionStarted { execution_id: id(), session_id: id(), message_id: id(), assistant_message_id: id() },
            Event::StartStep,
            Event::FinishStep { usage: Some(usage) },
            Event::TextStart { id: part() },
            Event::TextDelta { id: part(), delta: text("d") },
            Event::TextEnd { id: part() },
            Event::ReasoningStart { id: part() },
            Event::ReasoningDelta { id: part(), delta: text("d") },
            Event::ReasoningEnd { id: part() },
            Event::ToolInputStart { tool_call_id: call(), tool_name: tool() },
            Event::ToolInputDelta { tool_call_id: call(), delta: text("{") },
            Event::ToolCall { tool_call_id: call(), tool_name: tool(), input: json!({"a": [1, null]}) },
            Event::ToolExecutionStart { tool_call_id: call(), tool_name: tool(), start_time: 1 },
            Event::ToolExecutionEnd { tool_call_id: call(), tool_name: tool(), is_error: false, end_time: 2 },
            result(Some(true)),
            Event::ToolCallSuspended { payload: suspension(None) },
            Event::SubagentChunk { parent_tool_call_id: call(), task_path: vec![call()], chunk },
            Event::Warning { message: text("m"), code: Some(text("c")) },
            Event::Error { message: text("m"), error_code: Some(text("c")) },
            Event::Done { session_id: id(), execution_id: id(), status: ExecutionStatus::Success },
        ],
    );
    out.full("Usage", &usage);
    out.some("Usage", &Usage::default());
    out.some("Event", &Event::FinishStep { usage: None });
    out.some("Event", &result(None));
    out.some("Event", &Event::Warning { message: text("m"), code: None });
    out.some("Event", &Event::Error { message: text("m"), error_code: None });
}

fn bodies(out: &mut Samples) {
    let attachment = NewAttachment { name: text("n"), media_type: text("text/plain"), data: text("") };
    out.full("NewAttachment", &attachment);
    let request = ChatRequest {
        message: text("m"),
        session_id: Some(id()),
        new_session: Some(true),
        message_id: Some(id()),
        attachments: vec![attachment],
    };
    out.full("ChatRequest", &request);
    out.some("ChatRequest", &ChatRequest::default());
    let _listed = |data: ResumeData| match data {
        ResumeData::Approval { .. } | ResumeData::Answer { .. } => {}
    };
    let approval = |reason| ResumeData::Approval { approved: true, reason };
    out.line("Required<Extract<t.ResumeData, { approved: boolean }>>", &json!(approval(Some(text("r")))));
    out.some("ResumeData", &approval(None));
    let answer = ResumeData::Answer { answer: text("a") };
    out.line("Required<Extract<t.ResumeData, { answer: string }>>", &json!(answer));
    out.full("ResumeRequest", &ResumeRequest { run_id: id(), tool_call_id: text("c"), resume_data: answer });
    let snapshot = |full: bool| ThreadSnapshot {
        messages: vec![message(full)],
        open_suspensions: vec![suspension(None)],
        active_execution_id: full.then(id),
        revision: 1,
        partial: full,
        deleted_message_ids: full.then(|| vec![id()]),
    };
    out.full("ThreadSnapshot", &snapshot(true));
    out.some("ThreadSnapshot", &snapshot(false));
    out.full("CancelAnswer", &CancelAnswer { cancel_requested: true });
    out.full("RunCancelAnswer", &RunCancelAnswer { cancelled: true });
    let thread = Thread {
        id: id(),
        title: text("t"),
        created_at: text("2026-01-01T00:00:00Z"),
        updated_at: text("2026-01-01T00:00:00Z"),
        revision: 1,
        active_execution_id: None,
        suspended: true,
    };
    out.full("Thread", &thread);
    out.full("ThreadPage", &ThreadPage { threads: vec![thread], next_cursor: None });
    out.full("Me", &Me { id: id(), name: text("n") });
    let slug = || "demo".parse().expect("a slug");
    out.full("Project", &Project { id: slug(), name: text("n"), scopes: vec![text("agent:read")] });
    let agent = |full: bool| Agent {
        id: slug(),
        name: text("n"),
        engine: text("native"),
        model: full.then(|| text("m")),
        attachments: full.then_some(AttachmentLimits { max: 1, max_bytes: 2 }),
    };
    out.full("AttachmentLimits", &AttachmentLimits { max: 1, max_bytes: 2 });
    out.full("Agent", &agent(true));
    out.some("Agent", &agent(false));
    let updated =
        |execution_id| ExecutionUpdated { project_id: slug(), agent_id: slug(), thread_id: id(), execution_id, revision: 1 };
    out.full("ExecutionUpdated", &updated(Some(id())));
    let _listed = |event: PushEvent| match event {
        PushEvent::Connected | PushEvent::AgentExecutionUpdated(_) | PushEvent::Ping => {}
    };
    let pushed = [PushEvent::Connected, PushEvent::AgentExecutionUpdated(updated(None)), PushEvent::Ping];
    out.union("PushEvent", "type", &pushed);
    out.full("Problem", &problem(true));
    out.some("Problem", &problem(false));
}

fn problem(full: bool) -> Problem {
    Problem {
        field: full.then(|| text("f")),
        scope: full.then(|| text("s")),
        active_execution_id: full.then(id),
        execution_id: full.then(id),
        missing: full.then(|| vec![text("m")]),
        ..Problem::new(Code::NotFound, "d")
    }
}

fn state(out: &mut Samples) {
    let _listed = |failure: Failure| match failure {
        Failure::Refused { .. } | Failure::Unreadable { .. } | Failure::Broken => {}
    };
    let refused = Failure::Refused { problem: Box::new(problem(false)), retry_after: Some(1) };
    let failures = [refused, Failure::Unreadable { status: 502 }, Failure::Broken];
    out.union("Failure", "kind", &failures.each_ref().map(words::failure));

    let _listed = |load: Load| match load {
        Load::New | Load::Loading | Load::Loaded | Load::NotFound | Load::Failed(_) => {}
    };
    let loads = [Load::New, Load::Loading, Load::Loaded, Load::NotFound, Load::Failed(Failure::Broken)];
    out.union("Load", "state", &loads.each_ref().map(words::load));

    let _listed = |running: Running| match running {
        Running::Starting | Running::Live(_) | Running::Followed(_) => {}
    };
    out.union("Running", "state", &[Running::Starting, Running::Live(id()), Running::Followed(id())].map(words::running));

    out.all_names("Stop", &every!(Stop: Hidden, Usable, WaitingForId, Stopping).map(words::stop));
    let reasons = every!(SendBlocked: SignedOut, Loading, NotFound, Checking, Running, InteractionOpen, Empty);
    out.all_names("SendBlocked", &reasons.map(words::send_blocked));

    let states = every!(InteractionState: Answerable, Answering, Waiting, Closed);
    let interactions =
        states.map(|state| words::interaction(&Interaction { suspension: suspension(Some(payloads()[0].clone())), state }));
    out.full("Interaction", &interactions[0]);
    out.names("InteractionState", interactions.iter().map(|interaction| &interaction["state"]));

    let _listed = |cause: Cause| match cause {
        Cause::Failed(_) | Cause::NotAccepted | Cause::Detached | Cause::GivenUp | Cause::Reported(_) => {}
    };
    let causes =
        [Cause::Failed(Failure::Broken), Cause::NotAccepted, Cause::Detached, Cause::GivenUp, Cause::Reported(text("m"))];
    let troubles = causes.map(|cause| words::trouble(&Trouble { attempt: Attempt::Submit, cause }));
    out.union("Cause", "kind", &troubles.each_ref().map(|trouble| &trouble["cause"]));
    out.full("Trouble", &troubles[0]);
    let attempts = every!(Attempt: Submit, Answer, Stop, Cancel, Stream);
    let attempts = attempts.map(|attempt| words::trouble(&Trouble { attempt, cause: Cause::Detached }));
    out.names("Attempt", attempts.iter().map(|trouble| &trouble["attempt"]));

    for code in [Some(text("c")), None] {
        out.full("Warning", &words::warning(&Warning { message: text("m"), code }));
    }
}
