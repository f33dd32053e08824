//! The loop with the demo agent and with a scripted model, recorded the way the writer records it.

mod catalog;
pub(super) mod demo;
mod turn_loop;

use std::collections::HashMap;

use futures::StreamExt;
use turnfast_shared::{
    Event, ExecutionStatus, Message, Part, Role, Timeline,
    ids::{ExecutionId, MessageId, RunId, Slug, ThreadId},
    message::{ResumeData, ToolCall},
};
use uuid::Uuid;

use super::{Engine, TurnError, TurnInput};

pub(super) fn slug(id: &str) -> Slug {
    id.parse().unwrap()
}

pub(super) fn message(role: Role, content: Vec<Part>) -> Message {
    Message {
        id: MessageId(Uuid::new_v4()),
        role,
        content,
        execution_id: None,
        execution_status: None,
        execution_error: None,
        created_at: String::new(),
        revision: 1,
    }
}

pub(super) fn typed(text: &str) -> Message {
    message(Role::User, vec![Part::Text { text: text.to_owned() }])
}

pub(super) fn input(history: Vec<Message>) -> TurnInput {
    TurnInput {
        project: slug("demo"),
        agent: slug("assistant"),
        thread: ThreadId(Uuid::nil()),
        run: RunId(Uuid::nil()),
        execution: ExecutionId(Uuid::new_v4()),
        history,
        attachments: HashMap::new(),
        so_far: Vec::new(),
        answers: Vec::new(),
    }
}

/// One execution, recorded.
pub(super) struct Execution {
    pub(super) events: Vec<Event>,
    pub(super) parts: Vec<Part>,
    pub(super) error: Option<TurnError>,
}

impl Execution {
    pub(super) fn status(&self) -> ExecutionStatus {
        match (&self.error, self.suspended().is_empty()) {
            (Some(_), _) => ExecutionStatus::Error,
            (None, false) => ExecutionStatus::Suspended,
            (None, true) => ExecutionStatus::Success,
        }
    }

    pub(super) fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }

    pub(super) fn calls(&self) -> Vec<&ToolCall> {
        self.parts.iter().filter_map(Part::as_tool_call).collect()
    }

    pub(super) fn suspended(&self) -> Vec<String> {
        let events = self.events.iter().filter_map(|event| match event {
            Event::ToolCallSuspended { payload } => Some(payload.tool_call_id.clone()),
            _ => None,
        });
        events.collect()
    }

    /// The kinds of events, without repeated deltas.
    pub(super) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.events.iter().map(kind).collect();
        kinds.dedup();
        kinds
    }
}

pub(super) fn kind(event: &Event) -> String {
    serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned()
}

/// Runs an execution to its end.
pub(super) async fn execute(engine: &dyn Engine, input: TurnInput) -> Execution {
    let mut timeline = Timeline::from_parts(input.so_far.clone());
    let mut stream = engine.start(input);
    let mut events = Vec::new();
    let mut error = None;
    while let Some(item) = stream.next().await {
        assert!(error.is_none(), "an error is the last item");
        match item {
            Ok(event) => {
                timeline.apply(&event, 1);
                events.push(event);
            }
            Err(failure) => error = Some(failure),
        }
    }
    Execution { events, parts: timeline.into_parts(), error }
}

/// Runs the next execution of a suspended turn.
pub(super) async fn resume(engine: &dyn Engine, first: TurnInput, parts: Vec<Part>, answers: &[(&str, ResumeData)]) -> Execution {
    let answers = answers.iter().map(|(id, data)| ((*id).to_owned(), data.clone())).collect();
    execute(engine, TurnInput { so_far: parts, answers, ..first }).await
}

pub(super) fn approved(approved: bool, reason: Option<&str>) -> ResumeData {
    ResumeData::Approval { approved, reason: reason.map(str::to_owned) }
}

pub(super) fn answer(answer: &str) -> ResumeData {
    ResumeData::Answer { answer: answer.to_owned() }
}
