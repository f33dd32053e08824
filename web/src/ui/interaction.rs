//! Cards that wait for a person: may this run, and which shall it be.

use std::rc::Rc;

use serde_json::Value;
use turnfast_client_core::thread::{Interaction, InteractionState};
use turnfast_shared::message::SuspendPayload;

use super::{
    app::{Action, Draft},
    node::{Fixed, Key, element},
    tool::pretty,
};

/// The form of an open interaction. Who may not answer sees what is asked.
pub(super) fn form(interaction: &Interaction, may_answer: bool) -> Draft {
    let suspension = &interaction.suspension;
    let call: Rc<str> = suspension.tool_call_id.as_str().into();
    let usable = may_answer && interaction.state == InteractionState::Answerable;
    let form = match &suspension.suspend_payload {
        Some(SuspendPayload::Question { question, options, free_text }) => {
            let options = options.as_deref().unwrap_or_default();
            let free = options.is_empty() || *free_text == Some(true);
            ask(&call, question, options, free, usable)
        }
        Some(SuspendPayload::Approval { tool_name, input }) => approval(&call, tool_name, input, usable),
        None => approval(&call, &suspension.tool_name, &suspension.input, usable),
    };
    element("div", &[("class", "ask"), ("data-testid", "interaction")]).key(Key::Name("ask")).with(form).with(
        element("p", &[("class", "hint"), ("role", "status")]).text(if may_answer {
            words(interaction.state)
        } else {
            "You can read here, but not answer."
        }),
    )
}

fn words(state: InteractionState) -> &'static str {
    match state {
        InteractionState::Answerable => "",
        InteractionState::Answering => "Sending your answer…",
        InteractionState::Waiting => "One moment: the turn is still being brought to rest.",
        InteractionState::Closed => "Answered or cancelled elsewhere. Loading what became of it…",
    }
}

fn button(fixed: Fixed, usable: bool) -> Draft {
    element("button", fixed).flag("aria-disabled", !usable)
}

fn approval(call: &Rc<str>, tool: &str, input: &Value, usable: bool) -> Draft {
    let shown = (!input.is_null())
        .then(|| element("pre", &[("tabindex", "0"), ("role", "group"), ("aria-label", "Input")]).text(pretty(input)));
    let reason = element("label", &[])
        .with(element("span", &[]).text("Reason, if you like (the agent reads it)"))
        .with(element("input", &[("type", "text"), ("data-testid", "approval-reason"), ("maxlength", "2000")]));
    let answer = |approved| Action::Approve { call: Rc::clone(call), approved };
    let actions = element("div", &[("class", "actions")])
        .with(button(&[("type", "button"), ("data-testid", "deny")], usable).on("click", answer(false)).text("Deny"))
        .with(
            button(&[("type", "button"), ("class", "primary"), ("data-testid", "approve")], usable)
                .on("click", answer(true))
                .text("Approve"),
        );
    element("fieldset", &[])
        .with(element("legend", &[]).text(format!("May {tool} run?")))
        .with_some(shown)
        .with(reason)
        .with(actions)
}

fn ask(call: &Rc<str>, question: &str, options: &[String], free: bool, usable: bool) -> Draft {
    let options = options.iter().map(|option| {
        button(&[("type", "button"), ("data-testid", "option"), ("dir", "auto")], usable)
            .on("click", Action::Choose { call: Rc::clone(call), answer: option.clone() })
            .text(option.clone())
            .done()
    });
    let free = free.then(|| {
        let input = element(
            "input",
            &[("type", "text"), ("placeholder", "Your answer"), ("data-testid", "answer-text"), ("dir", "auto")],
        );
        element("form", &[("class", "free")])
            .on("submit", Action::Answer { call: Rc::clone(call) })
            .with(
                element("label", &[("class", "grow")])
                    .with(element("span", &[("class", "said")]).text("Your answer"))
                    .with(input),
            )
            .with(button(&[("type", "submit"), ("class", "primary"), ("data-testid", "answer-send")], usable).text("Answer"))
    });
    element("fieldset", &[])
        .with(element("legend", &[("dir", "auto")]).text(question.to_owned()))
        .with(element("div", &[("class", "options")]).children(options.collect()))
        .with_some(free)
}
