//! Where the person writes.

use std::rc::Rc;

use turnfast_client_core::thread::{SendBlocked, Stop};
use wasm_bindgen::JsCast;
use web_sys::{Element, HtmlTextAreaElement, KeyboardEvent};

use super::{
    app::{Action, App, Draft},
    conversation::Conversation,
    files, icon,
    node::element,
    page,
};
use crate::words;

/// Lines that the box grows to where the browser does not size it by itself.
const MAX_LINES: usize = 10;

/// The message box with Send and Stop. The draft is the machine's: it keeps it until the message is accepted.
pub(super) fn view(open: &Conversation) -> [Draft; 2] {
    let view = &open.view;
    let usable = view.stop == Stop::Usable;
    let area = element(
        "textarea",
        &[
            ("id", "composer"),
            ("data-testid", "composer"),
            ("placeholder", "Write a message"),
            ("enterkeyhint", "send"),
            ("dir", "auto"),
            ("aria-describedby", "composer-why composer-keys"),
        ],
    )
    .set("rows", count_lines(&view.draft).to_string())
    .on("input", Action::Typed)
    .on("keydown", Action::ComposerKey)
    .on("paste", Action::Pasted)
    .on("compositionstart", Action::Composing(true))
    .on("compositionend", Action::Composing(false))
    .mounted(Action::FocusComposer);
    let stop = (view.stop != Stop::Hidden).then(|| {
        element("button", &[("type", "button"), ("class", "stop"), ("data-testid", "stop")])
            .key(super::Key::Name("stop"))
            .flag("aria-disabled", !usable)
            .on("click", Action::Stop)
            .with(icon::stop())
            .with(element("span", &[]).text(if usable { "Stop" } else { "Stopping…" }))
    });
    let send = element(
        "button",
        &[
            ("type", "submit"),
            ("class", "send"),
            ("data-testid", "send"),
            ("aria-label", "Send"),
            ("aria-describedby", "composer-why"),
        ],
    )
    .flag("aria-disabled", view.send_blocked.is_some())
    .with(icon::send());
    let row = element("div", &[("class", "composer-row")])
        .with(element("label", &[("class", "said"), ("for", "composer")]).text("Message"))
        .children(files::button(open).into_iter().flatten().map(Draft::done).collect())
        .with(area)
        .with_some(stop)
        .with(send);
    let form = element("form", &[("class", "composer")])
        .on("submit", Action::Submit)
        .with_some(files::chosen(&view.attachments))
        .with(row);
    // What was sent without a network did not arrive, and the note says so.
    let known = view.send_blocked.filter(|why| *why != SendBlocked::Checking || !open.sent_offline);
    let why = known.and_then(words::send_blocked);
    let why = why.or_else(|| (!view.draft_kept).then_some("This browser keeps no drafts: a reload loses what is not sent."));
    let why = why.or_else(|| (!view.attachments.is_empty()).then_some("Files are not kept when you leave before sending."));
    let under = element("p", &[("class", "under")])
        .with(
            element("span", &[("id", "composer-why"), ("data-testid", "send-blocked")])
                .maybe("data-why", view.send_blocked.map(name))
                .text(why.unwrap_or_default()),
        )
        .with(element("span", &[("id", "composer-keys"), ("class", "keys")]).text(if usable {
            "Esc stops"
        } else {
            "Enter sends, Shift+Enter starts a line"
        }));
    [form, under]
}

/// Puts the machine's draft into the box, from which it differs only after it was loaded or accepted.
pub(super) fn show_draft(app: &App) {
    let mut state = app.peek();
    let Some(open) = &mut state.open else { return };
    let draft = &open.view.draft;
    if open.composing || open.draft_shown.as_ref().is_some_and(|shown| Rc::ptr_eq(shown, draft)) {
        return;
    }
    let Some(area) = page::find("#composer").and_then(|area| area.dyn_into::<HtmlTextAreaElement>().ok()) else { return };
    if area.value() != **draft {
        area.set_value(draft);
    }
    open.draft_shown = Some(Rc::clone(draft));
}

pub(super) fn typed(app: &App, area: &Element) {
    if let (Some(handle), Some(area)) = (app.handle(), area.dyn_ref::<HtmlTextAreaElement>()) {
        handle.set_draft(&area.value());
    }
}

pub(super) fn send(app: &App) {
    if let Some(handle) = app.handle() {
        // The newest state counts, not the one of the last frame.
        if handle.view().can_send() {
            if let Some(open) = &mut app.peek().open {
                open.sent_offline = !page::window().navigator().on_line();
                open.file_trouble = None;
            }
            handle.send();
        }
    }
    page::focus_composer();
}

pub(super) fn key(app: &App, event: &KeyboardEvent) {
    // 229: some browsers end a composition before they tell of the Enter that ended it.
    let composing = event.is_composing() || event.key_code() == 229;
    match event.key().as_str() {
        "Enter" if !event.shift_key() && !composing => {
            event.prevent_default();
            send(app);
        }
        "Escape" if !composing => {
            if let Some(handle) = app.handle().filter(|handle| handle.view().stop == Stop::Usable) {
                event.prevent_default();
                handle.stop();
            }
        }
        _ => {}
    }
}

fn name(why: SendBlocked) -> &'static str {
    match why {
        SendBlocked::SignedOut => "signed-out",
        SendBlocked::Loading => "loading",
        SendBlocked::NotFound => "not-found",
        SendBlocked::Checking => "checking",
        SendBlocked::Running => "running",
        SendBlocked::InteractionOpen => "interaction-open",
        SendBlocked::Empty => "empty",
    }
}

fn count_lines(text: &str) -> usize {
    text.matches('\n').count().saturating_add(1).min(MAX_LINES)
}
