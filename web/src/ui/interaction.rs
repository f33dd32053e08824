//! Cards that wait for a person: may this run, and which shall it be.

use leptos::{ev, html, prelude::*};
use turnfast_client_core::thread::{Interaction, InteractionState};
use turnfast_shared::{
    event::Suspension,
    message::{ResumeData, SuspendPayload},
};

use super::{
    conversation::{focus_composer, open},
    tool::pretty,
};

/// The form of an open interaction. `interaction` is `Some` as long as this is shown.
#[component]
pub(super) fn InteractionForm(interaction: Memo<Option<Interaction>>) -> impl IntoView {
    let state = Memo::new(move |_| interaction.with(|it| it.as_ref().map(|it| it.state)));
    let Some(suspension) = interaction.with_untracked(|it| it.as_ref().map(|it| it.suspension.clone())) else {
        return ().into_any();
    };
    let form = match suspension.suspend_payload.clone() {
        Some(SuspendPayload::Question { question, options, free_text }) => {
            let options = options.unwrap_or_default();
            let free = options.is_empty() || free_text == Some(true);
            view! { <Question call=suspension.tool_call_id question options free state/> }.into_any()
        }
        payload => view! { <Approval suspension payload state/> }.into_any(),
    };
    view! {
        <div class="ask" data-testid="interaction">
            {form}
            <p class="hint" role="status">{move || state.get().map(words)}</p>
        </div>
    }
    .into_any()
}

fn words(state: InteractionState) -> &'static str {
    match state {
        InteractionState::Answerable => "",
        InteractionState::Answering => "Sending your answer…",
        InteractionState::Waiting => "One moment: the turn is still being brought to rest.",
        InteractionState::Closed => "Answered or cancelled elsewhere. Loading what became of it…",
    }
}

fn usable(state: Memo<Option<InteractionState>>) -> bool {
    state.get() == Some(InteractionState::Answerable)
}

#[component]
fn Approval(suspension: Suspension, payload: Option<SuspendPayload>, state: Memo<Option<InteractionState>>) -> impl IntoView {
    let open = open();
    let (tool, input) = match payload {
        Some(SuspendPayload::Approval { tool_name, input }) => (tool_name, input),
        _ => (suspension.tool_name, suspension.input),
    };
    let reason = NodeRef::<html::Input>::new();
    let call = StoredValue::new(suspension.tool_call_id);
    let answer = move |approved: bool| {
        if state.get_untracked() != Some(InteractionState::Answerable) {
            return;
        }
        let reason = reason.get_untracked().map(|input| input.value().trim().to_owned()).filter(|reason| !reason.is_empty());
        open.act(|handle| call.with_value(|call| handle.answer(call, ResumeData::Approval { approved, reason })));
        focus_composer();
    };
    view! {
        <fieldset>
            <legend>{format!("May {tool} run?")}</legend>
            {(!input.is_null()).then(|| view! { <pre tabindex="0" role="region" aria-label="Input">{pretty(&input)}</pre> })}
            <label><span>"Reason, if you like (the agent reads it)"</span><input type="text" node_ref=reason data-testid="approval-reason" maxlength="2000"/></label>
            <div class="actions">
                <button type="button" data-testid="deny" aria-disabled=move || (!usable(state)).to_string() on:click=move |_| answer(false)>"Deny"</button>
                <button type="button" class="primary" data-testid="approve" aria-disabled=move || (!usable(state)).to_string() on:click=move |_| answer(true)>"Approve"</button>
            </div>
        </fieldset>
    }
}

#[component]
fn Question(
    call: String,
    question: String,
    options: Vec<String>,
    free: bool,
    state: Memo<Option<InteractionState>>,
) -> impl IntoView {
    let open = open();
    let call = StoredValue::new(call);
    let text = NodeRef::<html::Input>::new();
    let answer = move |answer: String| {
        if state.get_untracked() == Some(InteractionState::Answerable) && !answer.trim().is_empty() {
            open.act(|handle| call.with_value(|call| handle.answer(call, ResumeData::Answer { answer })));
            focus_composer();
        }
    };
    let buttons = options
        .into_iter()
        .map(|option| {
            let label = option.clone();
            view! {
                <button type="button" data-testid="option" aria-disabled=move || (!usable(state)).to_string() on:click=move |_| answer(option.clone())>{label}</button>
            }
        })
        .collect_view();
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if let Some(text) = text.get_untracked() {
            answer(text.value());
        }
    };
    view! {
        <fieldset>
            <legend>{question}</legend>
            <div class="options">{buttons}</div>
            {free.then(|| view! {
                <form class="free" on:submit=submit>
                    <label class="grow"><span class="said">"Your answer"</span><input type="text" placeholder="Your answer" node_ref=text data-testid="answer-text"/></label>
                    <button type="submit" class="primary" data-testid="answer-send" aria-disabled=move || (!usable(state)).to_string()>"Answer"</button>
                </form>
            })}
        </fieldset>
    }
}
