//! Tool calls, and what the child of a delegation did.

use serde_json::Value;
use turnfast_shared::{
    ToolState,
    message::{ChildStep, ChildTrace, SuspendPayload, ToolCall},
};

use super::{
    app::{Action, Draft},
    conversation::Folding,
    interaction,
    message::{Row, elapsed},
    node::{Key, element},
};
use crate::words;

/// Characters of an input or output that are shown.
const SHOWN_CHARS: usize = 20_000;

/// A tool call.
pub(super) fn card(row: &Row<'_>, part: usize, call: &ToolCall) -> Draft {
    let duration = match (call.state.is_settled(), call.end_time) {
        (true, end @ Some(_)) => [" · ", &elapsed(call.start_time, end)].concat(),
        _ => String::new(),
    };
    let (folded, unfolded) = row.fold(part, Folding::Body);
    let summary = element("summary", &[])
        .with(element("span", &[("class", "tool-name")]).text(if call.tool_name.is_empty() {
            "(a tool without a name)".to_owned()
        } else {
            call.tool_name.clone()
        }))
        .with(element("span", &[("class", "tool-state")]).text(words::tool_state(call)).text(duration));
    let mut details = element("details", &[("class", "fold")]).key(Key::Name("call")).on("toggle", folded).with(summary);
    if unfolded {
        details = body(details, call);
    }
    // A call's id is unique within its message only.
    let asked = row.interactions.iter().find(|one| one.suspension.tool_call_id == call.tool_call_id);
    let answered = recorded_answer(call).filter(|_| asked.is_none()).map(|(question, answer)| {
        element("div", &[("class", "answered"), ("data-testid", "answered")])
            .key(Key::Name("answered"))
            .with(element("p", &[("dir", "auto")]).text(question))
            .with(element("p", &[("dir", "auto")]).with(element("strong", &[]).text(answer)))
    });
    element("div", &[("class", "tool"), ("role", "group"), ("data-testid", "tool-card")])
        .key(Key::Number(part))
        .set("data-tool-call", call.tool_call_id.clone())
        .set("data-state", state_name(call.state))
        .set("aria-label", format!("Tool {}", call.tool_name))
        .with(details)
        .with_some(asked.map(|asked| interaction::form(asked, row.may_answer)))
        .with_some(answered)
        .with_some(call.child_trace.as_ref().map(|child| trace(row, part, call, child)))
}

fn state_name(state: ToolState) -> &'static str {
    match state {
        ToolState::InputStreaming => "input-streaming",
        ToolState::Pending => "pending",
        ToolState::Running => "running",
        ToolState::Suspended => "suspended",
        ToolState::Resolved => "resolved",
        ToolState::Rejected => "rejected",
        ToolState::Cancelled => "cancelled",
    }
}

fn body(details: Draft, call: &ToolCall) -> Draft {
    let block = |title: &'static str, text: String| {
        element("div", &[("class", "io")])
            .key(Key::Name(title))
            .with(element("h3", &[]).text(title))
            .with(element("pre", &[("tabindex", "0"), ("role", "group")]).set("aria-label", title).text(text))
    };
    details
        .with_some((!call.input.is_null()).then(|| block("Input", pretty(&call.input))))
        .with_some(call.output.as_ref().map(|output| block("Output", pretty(output))))
        .with_some(call.error.clone().map(|error| block("Error", cut(error))))
}

/// A value as a person reads it best.
pub(super) fn pretty(value: &Value) -> String {
    cut(match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    })
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARS) {
        let left = text[end..].chars().count();
        text.truncate(end);
        text.push_str(&format!("\n… and {left} more characters"));
    }
    text
}

/// What was asked of a person and what they answered, once that is recorded.
fn recorded_answer(call: &ToolCall) -> Option<(String, String)> {
    let asked = call.suspend_payload.as_ref()?;
    if matches!(call.state, ToolState::Suspended | ToolState::InputStreaming) {
        return None;
    }
    Some(match asked {
        SuspendPayload::Approval { tool_name, .. } => {
            let answer = match (call.state, &call.error) {
                (ToolState::Cancelled, _) => "Not answered: the turn was stopped.".to_owned(),
                (ToolState::Rejected, error) => error.clone().unwrap_or_else(|| "Denied.".to_owned()),
                _ => "Approved.".to_owned(),
            };
            (format!("May {tool_name} run?"), answer)
        }
        SuspendPayload::Question { question, .. } => {
            let answer = match (call.state, &call.output) {
                (ToolState::Cancelled, _) => "Not answered: the turn was stopped.".to_owned(),
                (_, Some(Value::Object(fields))) => {
                    fields.get("answer").map_or_else(|| pretty(&Value::Object(fields.clone())), pretty)
                }
                (_, Some(output)) => pretty(output),
                (_, None) => call.error.clone().unwrap_or_else(|| "Answered.".to_owned()),
            };
            (question.clone(), answer)
        }
    })
}

/// What a child agent says and does, within the call that started it.
fn trace(row: &Row<'_>, part: usize, call: &ToolCall, child: &ChildTrace) -> Draft {
    let settled = call.state.is_settled();
    let (folded, unfolded) = row.fold(part, Folding::Trace);
    let mut details = element("details", &[("class", "fold trace"), ("data-testid", "trace")])
        .key(Key::Name("trace"))
        .on("toggle", folded)
        .with(element("summary", &[]).text(if settled { "What the other agent did" } else { "The other agent is at work…" }));
    if !settled {
        // Open while there is something to watch.
        details = details.mounted(Action::Unfold);
    }
    if !unfolded {
        return details;
    }
    let thoughts = (!child.reasoning_segments.is_empty()).then(|| {
        let thoughts = child.reasoning_segments.iter().map(|it| element("p", &[("class", "thought")]).text(it.clone()).done());
        element("details", &[("class", "fold reasoning")])
            .with(element("summary", &[]).text("Its reasoning"))
            .children(thoughts.collect())
    });
    let steps = child.steps.iter().map(|ChildStep { tool_name, running, .. }| {
        element("li", &[])
            .with(element("span", &[("class", "tool-name")]).text(tool_name.clone()))
            .with(element("span", &[("class", "tool-state")]).text(if *running { "running" } else { "done" }))
            .done()
    });
    details = details.with_some(thoughts).with(element("ul", &[("class", "steps")]).children(steps.collect()));
    if child.text.is_empty() { details } else { details.child(row.prose(part)) }
}
