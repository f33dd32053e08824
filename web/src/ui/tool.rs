//! Tool calls, and what the child of a delegation did.

use leptos::{html, prelude::*};
use serde_json::Value;
use turnfast_shared::{
    ExecutionStatus, ToolState,
    ids::RunId,
    message::{ChildStep, SuspendPayload, ToolCall},
};

use super::{
    conversation::{Row, open},
    interaction::InteractionForm,
    message::{elapsed, is_open, show_markdown},
};
use crate::words;

/// Characters of an input or output that are shown.
const SHOWN_CHARS: usize = 20_000;

/// A tool call.
#[component]
pub(super) fn ToolCard(row: Row, index: usize) -> impl IntoView {
    let open = open();
    let (id, name) =
        untrack(|| with_call(row, index, |call| (call.tool_call_id.clone(), call.tool_name.clone()))).unwrap_or_default();
    let state = Memo::new(move |_| with_call(row, index, |call| (call.state, words::tool_state(call))));
    let times = Memo::new(move |_| with_call(row, index, |call| (call.start_time, call.end_time)));
    // Grows with every change of the body; cheaper to compare than the body.
    let body_version = Memo::new(move |_| {
        with_call(row, index, |call| (call.state, call.input.is_null(), call.output.is_some(), call.error.is_some()))
    });
    let delegates = Memo::new(move |_| with_call(row, index, |call| call.child_trace.is_some()).unwrap_or_default());
    let answer = Memo::new(move |_| with_call(row, index, recorded_answer).flatten());
    let interaction = {
        // A call's id is unique within its message only.
        let (run, id) = (RunId::from(row.id), id.clone());
        Memo::new(move |_| {
            open.interactions
                .with(|all| all.iter().find(|one| one.suspension.run_id == run && one.suspension.tool_call_id == id).cloned())
        })
    };
    let asks = Memo::new(move |_| interaction.with(Option::is_some));
    let unfolded = RwSignal::new(false);
    let duration = move || match (state.get(), times.get()) {
        (Some((ToolState::Resolved | ToolState::Rejected | ToolState::Cancelled, _)), Some((start, end @ Some(_)))) => {
            format!(" · {}", elapsed(start, end))
        }
        _ => String::new(),
    };
    view! {
        <section class="tool" data-testid="tool-card" data-tool-call=id data-state=move || state.get().map(|(state, _)| state_name(state)) aria-label=format!("Tool {name}")>
            <details class="fold" on:toggle=move |event| unfolded.set(is_open(&event))>
                <summary>
                    <span class="tool-name">{name.clone()}</span>
                    <span class="tool-state">{move || state.get().map(|(_, words)| words)}{duration}</span>
                </summary>
                {move || unfolded.get().then(|| {
                    body_version.track();
                    untrack(|| with_call(row, index, body))
                })}
            </details>
            {move || asks.get().then(|| view! { <InteractionForm interaction/> })}
            {move || answer.get().filter(|_| !asks.get()).map(|(question, answer)| view! {
                <div class="answered" data-testid="answered"><p>{question}</p><p><strong>{answer}</strong></p></div>
            })}
            {move || delegates.get().then(|| view! { <Trace row index/> })}
        </section>
    }
}

fn with_call<T>(row: Row, index: usize, read: impl FnOnce(&ToolCall) -> T) -> Option<T> {
    row.message.with(|message| message.content.get(index).and_then(|part| part.as_tool_call()).map(read))
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

fn body(call: &ToolCall) -> impl IntoView + use<> {
    let block = |title: &'static str, text: String| {
        view! {
            <div class="io">
                <h3>{title}</h3>
                <pre tabindex="0" role="region" aria-label=title>{text}</pre>
            </div>
        }
    };
    view! {
        {(!call.input.is_null()).then(|| block("Input", pretty(&call.input)))}
        {call.output.as_ref().map(|output| block("Output", pretty(output)))}
        {call.error.clone().map(|error| block("Error", cut(error)))}
    }
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
#[component]
fn Trace(row: Row, index: usize) -> impl IntoView {
    let steps = Memo::new(move |_| {
        with_call(row, index, |call| call.child_trace.as_ref().map(|trace| trace.steps.clone())).flatten().unwrap_or_default()
    });
    let thoughts = Memo::new(move |_| {
        with_call(row, index, |call| call.child_trace.as_ref().map(|trace| trace.reasoning_segments.clone()))
            .flatten()
            .unwrap_or_default()
    });
    let settled = Memo::new(move |_| with_call(row, index, |call| call.state.is_settled()).unwrap_or(true));
    let has_text = Memo::new(move |_| {
        with_call(row, index, |call| call.child_trace.as_ref().is_some_and(|trace| !trace.text.is_empty())).unwrap_or_default()
    });
    let unfolded = RwSignal::new(false);
    // Open while there is something to watch.
    let details = NodeRef::<html::Details>::new();
    Effect::new(move |before: Option<()>| {
        if let (None, Some(details)) = (before, details.get()) {
            details.set_open(!settled.get_untracked());
        }
    });
    view! {
        <details class="fold trace" data-testid="trace" node_ref=details on:toggle=move |event| unfolded.set(is_open(&event))>
            <summary>{move || if settled.get() { "What the other agent did" } else { "The other agent is at work…" }}</summary>
            {move || unfolded.get().then(|| view! {
                {move || (!thoughts.with(Vec::is_empty)).then(|| view! {
                    <details class="fold reasoning"><summary>"Its reasoning"</summary>{move || thoughts.get().into_iter().map(|thought| view! { <p class="thought">{thought}</p> }).collect_view()}</details>
                })}
                <ul class="steps">
                    {move || steps.get().into_iter().map(|ChildStep { tool_name, running, .. }| view! {
                        <li><span class="tool-name">{tool_name}</span><span class="tool-state">{if running { "running" } else { "done" }}</span></li>
                    }).collect_view()}
                </ul>
                {move || has_text.get().then(|| view! { <TraceText row index/> })}
            })}
        </details>
    }
}

#[component]
fn TraceText(row: Row, index: usize) -> impl IntoView {
    let host = NodeRef::<html::Div>::new();
    show_markdown(host, move |show| {
        row.message.with(|message| {
            let done = message.execution_status.is_none_or(ExecutionStatus::is_final);
            if let Some(trace) =
                message.content.get(index).and_then(|part| part.as_tool_call()).and_then(|call| call.child_trace.as_ref())
            {
                show(&trace.text, done);
            }
        });
    });
    view! { <div class="prose" node_ref=host></div> }
}
