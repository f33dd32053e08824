//! Where the person writes.

use std::rc::Rc;

use leptos::{ev, html, prelude::*};
use turnfast_client_core::{
    browser::ThreadHandle,
    thread::{SendBlocked, Stop},
};

use super::{
    conversation::{focus_composer, open},
    icon,
};
use crate::words;

/// Lines that the box grows to where the browser does not size it by itself.
const MAX_LINES: usize = 10;

/// The message box with Send and Stop. The draft is the machine's: it keeps it until the message is accepted.
#[component]
pub(super) fn Composer() -> impl IntoView {
    let open = open();
    let area = NodeRef::<html::Textarea>::new();
    let stop = Memo::new(move |_| open.view.with(|view| view.stop));
    let blocked = Memo::new(move |_| open.view.with(|view| view.send_blocked));
    let draft_kept = Memo::new(move |_| open.view.with(|view| view.draft_kept));
    let lines = RwSignal::new(1_usize);
    let composing = StoredValue::new(false);

    // The machine's draft differs from the box only after it was loaded or accepted.
    let shown = StoredValue::new_local(None::<Rc<str>>);
    Effect::new(move |_| {
        let Some(area) = area.get() else { return };
        let draft = open.view.with(|view| Rc::clone(&view.draft));
        if composing.get_value() || shown.with_value(|shown| shown.as_ref().is_some_and(|shown| Rc::ptr_eq(shown, &draft))) {
            return;
        }
        if area.value() != *draft {
            area.set_value(&draft);
            lines.set(count_lines(&draft));
        }
        shown.set_value(Some(draft));
    });
    Effect::new(move |_| {
        if area.get().is_some() && !coarse_pointer() {
            focus_composer();
        }
    });

    let typed = move |_| {
        if let Some(area) = area.get_untracked() {
            let text = area.value();
            let count = count_lines(&text);
            if lines.get_untracked() != count {
                lines.set(count);
            }
            open.act(|handle| handle.set_draft(&text));
        }
    };
    let send = move || {
        // The newest state counts, not the one of the last frame.
        open.act(|handle| {
            if handle.view().can_send() {
                handle.send();
            }
        });
        focus_composer();
    };
    let keys = move |event: ev::KeyboardEvent| {
        // 229: some browsers end a composition before they tell of the Enter that ended it.
        let composing = event.is_composing() || event.key_code() == 229;
        match event.key().as_str() {
            "Enter" if !event.shift_key() && !composing => {
                event.prevent_default();
                send();
            }
            "Escape" if !composing && stop.get_untracked() == Stop::Usable => {
                event.prevent_default();
                open.act(ThreadHandle::stop);
            }
            _ => {}
        }
    };
    let why = move || {
        let why = blocked.get().and_then(words::send_blocked);
        why.or_else(|| (!draft_kept.get()).then_some("This browser keeps no drafts: a reload loses what is not sent."))
    };
    view! {
        <form class="composer" on:submit=move |event| { event.prevent_default(); send(); }>
            <label class="said" for="composer">"Message"</label>
            <textarea
                id="composer" data-testid="composer" node_ref=area placeholder="Write a message" enterkeyhint="send"
                aria-describedby="composer-why composer-keys"
                rows=move || lines.get().to_string()
                on:input=typed on:keydown=keys
                on:compositionstart=move |_| composing.set_value(true)
                on:compositionend=move |_| composing.set_value(false)
            ></textarea>
            {move || (stop.get() != Stop::Hidden).then(|| view! {
                <button
                    type="button" class="stop" data-testid="stop"
                    aria-disabled=move || (stop.get() != Stop::Usable).to_string()
                    on:click=move |_| { open.act(ThreadHandle::stop); focus_composer(); }
                >
                    {icon::stop()}
                    <span>{move || if stop.get() == Stop::Usable { "Stop" } else { "Stopping…" }}</span>
                </button>
            })}
            <button
                type="submit" class="send" data-testid="send" aria-label="Send" aria-describedby="composer-why"
                aria-disabled=move || blocked.get().is_some().to_string()
            >
                {icon::send()}
            </button>
        </form>
        <p class="under">
            <span id="composer-why" data-testid="send-blocked" data-why=move || blocked.get().map(name)>{why}</span>
            <span id="composer-keys" class="keys">
                {move || if stop.get() == Stop::Usable { "Esc stops" } else { "Enter sends, Shift+Enter starts a line" }}
            </span>
        </p>
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

/// Whether a finger is what points: the keyboard on the screen should then wait to be asked for.
fn coarse_pointer() -> bool {
    window().match_media("(pointer: coarse)").ok().flatten().is_some_and(|query| query.matches())
}
