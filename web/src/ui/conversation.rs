//! An open thread: what was said, how things stand, and where to write.

use std::{collections::HashMap, rc::Rc};

use leptos::{html, prelude::*};
use turnfast_client_core::{
    browser::ThreadHandle,
    thread::{Interaction, Load, Running, Stop, Trouble, View, Warning},
};
use turnfast_shared::{
    Code, Message, Role,
    api::Agent,
    ids::{MessageId, Slug, ThreadId},
};

use super::{App, MenuButton, app, composer::Composer, icon, message::MessageRow, on_resize, once_per_frame};
use crate::{route::Route, words};

/// How near to the end a reader counts as following it, in CSS pixels.
const FOLLOWS_WITHIN: i32 = 80;
/// Messages that are shown together, and how many such groups at once: the rest of a long thread follows group by group.
const GROUP: usize = 12;
const FIRST_GROUPS: usize = 2;

/// A message and its place in the list. The message changes, the row stays: rows are the same when they are of the same message.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) id: MessageId,
    pub(super) role: Role,
    pub(super) message: RwSignal<Rc<Message>, LocalStorage>,
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// What the parts of an open thread share.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) handle: StoredValue<ThreadHandle, LocalStorage>,
    pub(super) view: RwSignal<View, LocalStorage>,
    pub(super) interactions: Memo<Vec<Interaction>>,
    pub(super) agent: StoredValue<Agent>,
    pub(super) project: StoredValue<Slug>,
    rows: RwSignal<Vec<Row>>,
}

pub(super) fn open() -> Open {
    expect_context()
}

impl Open {
    /// Does something with the thread, unless it is closed already.
    pub(super) fn act(self, act: impl FnOnce(&ThreadHandle)) {
        self.handle.try_with_value(act);
    }

    /// Takes what the machine shows now into the signals; only what changed is set.
    fn take(self, app: App, owner: &Owner, new: View) {
        let old = self.view.get_untracked();
        if Rc::ptr_eq(&old.settled, &new.settled) {
            let mut touched = [old.live.as_ref(), new.live.as_ref()].into_iter().flatten().map(|live| live.index);
            let (first, second) = (touched.next(), touched.next());
            for index in first.into_iter().chain(second.filter(|index| Some(*index) != first)) {
                let message = new.live.as_ref().filter(|live| live.index == index).map(|live| &live.message);
                if let (Some(row), Some(message)) =
                    (self.rows.with_untracked(|rows| rows.get(index).copied()), message.or_else(|| new.settled.get(index)))
                {
                    set_message(row, message);
                }
            }
        } else {
            self.take_list(owner, &new);
        }
        announce(app, &old, &new);
        if old.thread.is_none()
            && let Some(thread) = new.thread
        {
            let (project, agent) = (self.project.get_value(), self.agent.with_value(|agent| agent.id.clone()));
            app.adopt(Route::Agent { project, agent, thread: Some(thread) });
        }
        if new.signed_out && !old.signed_out {
            app.lose_session();
        }
        self.view.set(new);
    }

    fn take_list(self, owner: &Owner, new: &View) {
        let old = self.rows.get_untracked();
        let known: HashMap<MessageId, Row> = old.iter().map(|row| (row.id, *row)).collect();
        let rows: Vec<Row> = new
            .messages()
            .map(|message| match known.get(&message.id) {
                Some(row) => {
                    set_message(*row, message);
                    *row
                }
                None => {
                    owner.with(|| Row { id: message.id, role: message.role, message: RwSignal::new_local(Rc::clone(message)) })
                }
            })
            .collect();
        if rows.len() != old.len() || rows.iter().zip(&old).any(|(new, old)| new.id != old.id) {
            self.rows.set(rows);
        }
    }
}

fn set_message(row: Row, message: &Rc<Message>) {
    if !row.message.with_untracked(|shown| Rc::ptr_eq(shown, message)) {
        row.message.set(Rc::clone(message));
    }
}

/// Tells screen readers of a turn's beginning and end, and not of every word between.
fn announce(app: App, old: &View, new: &View) {
    match (old.running.is_some(), new.running.is_some()) {
        (false, true) if new.load == Load::Loaded || new.load == Load::New => app.say("The agent is replying."),
        (true, false) => {
            let status = new.messages().last().and_then(|message| message.execution_status);
            app.say(words::announcement(status));
            app.threads.refresh(app);
        }
        _ => {}
    }
    if new.interactions.len() > old.interactions.len() && new.running.is_none() && old.running.is_none() {
        app.say("The agent waits for your answer.");
    }
}

/// An open thread; `thread: None`: a new one.
#[component]
pub(super) fn Conversation(project: Slug, agent: Agent, thread: Option<ThreadId>) -> impl IntoView {
    let app = app();
    let handle = app.client.with_value(|client| client.open(project.clone(), agent.id.clone(), thread));
    let view = RwSignal::new_local(handle.view());
    let open = Open {
        handle: StoredValue::new_local(handle.clone()),
        view,
        interactions: Memo::new(move |_| view.with(|view| view.interactions.clone())),
        agent: StoredValue::new(agent),
        project: StoredValue::new(project),
        rows: RwSignal::new(Vec::new()),
    };
    provide_context(open);

    // The rows' signals live as long as this view.
    let owner = Owner::current().unwrap_or_default();
    view.with_untracked(|view| open.take_list(&owner, view));
    let pull = move || {
        if let Some(new) = open.handle.try_with_value(ThreadHandle::view) {
            open.take(app, &owner, new);
        }
    };
    let subscription = StoredValue::new_local(handle.subscribe(once_per_frame(pull)));
    on_cleanup(move || subscription.dispose());

    // Back from a dialog over a lost session: what was missed is read.
    Effect::new(move |before: Option<bool>| {
        let lost = app.session_lost.get();
        if before == Some(true) && !lost {
            open.act(ThreadHandle::signed_in);
        }
        lost
    });

    let name = open.agent.with_value(|agent| agent.name.clone());
    let title =
        move || app.thread().and_then(|thread| app.threads.title(thread)).unwrap_or_else(|| "New conversation".to_owned());
    view! {
        <main class="conversation" id="main">
            <header class="bar">
                <MenuButton/>
                <div class="bar-title"><h1>{title}</h1><p>{name}</p></div>
            </header>
            <Scroll/>
            <footer class="foot">
                <StatusLine/>
                <Composer/>
            </footer>
        </main>
    }
}

/// The messages. Follows the end until the reader scrolls away from it.
#[component]
fn Scroll() -> impl IntoView {
    let open = open();
    let scroll = NodeRef::<html::Div>::new();
    let content = NodeRef::<html::Div>::new();
    let follows = RwSignal::new(true);
    let to_end = move || {
        // Before the first message there is a page to be read from its top.
        if let (Some(scroll), Some(false)) = (scroll.get_untracked(), open.rows.try_with_untracked(Vec::is_empty)) {
            scroll.set_scroll_top(scroll.scroll_height());
        }
    };
    Effect::new(move |_| {
        if let Some(content) = content.get() {
            on_resize(&content, move || {
                if follows.try_get_untracked() == Some(true) {
                    to_end();
                }
            });
        }
    });
    let scrolled = move |_| {
        if let Some(scroll) = scroll.get_untracked() {
            let near = scroll.scroll_height() - scroll.scroll_top() - scroll.client_height() < FOLLOWS_WITHIN;
            if near != follows.get_untracked() {
                follows.set(near);
            }
        }
    };

    // What the person sent is what they want to see next.
    Effect::new(move |before: Option<Option<MessageId>>| {
        let last = open.rows.with(|rows| rows.iter().rev().find(|row| row.role == Role::User).map(|row| row.id));
        if before.is_some_and(|before| before != last) {
            follows.set(true);
        }
        last
    });

    // The newest rows come first, the older ones moment by moment. Each group keeps its place from the start: nothing that is
    // shown ever moves in the page.
    let groups = Memo::new(move |_| open.rows.with(Vec::len).div_ceil(GROUP));
    let hidden = RwSignal::new(None::<usize>);
    Effect::new(move |_| {
        let count = groups.get();
        if count > 0 && hidden.get_untracked().is_none() {
            hidden.set(Some(count.saturating_sub(FIRST_GROUPS)));
            reveal(hidden);
        }
    });

    let load = Memo::new(move |_| open.view.with(|view| view.load.clone()));
    let empty = Memo::new(move |_| open.rows.with(Vec::is_empty));
    view! {
        <div class="scroll" node_ref=scroll on:scroll=scrolled tabindex="0" role="region" aria-label="Messages" data-testid="messages">
            <div class="column" node_ref=content>
                {move || match (load.get(), empty.get()) {
                    (Load::Loading, true) => view! {
                        <div class="skeleton tall" role="status" data-testid="loading"><span class="said">"Loading the conversation…"</span><i></i><i></i><i></i></div>
                    }.into_any(),
                    (Load::NotFound, _) => view! { <NotFound/> }.into_any(),
                    (Load::Failed(failure), _) => view! {
                        <section class="notice" data-testid="load-failed">
                            <h2>"The conversation could not be loaded"</h2>
                            <p role="alert">{failure.to_string()}</p>
                            <button class="primary" on:click=move |_| open.act(|handle| handle.switch(open.view.with_untracked(|view| view.thread)))>"Try again"</button>
                        </section>
                    }.into_any(),
                    (Load::New | Load::Loaded, true) => view! { <Welcome/> }.into_any(),
                    _ => ().into_any(),
                }}
                <div class="messages">
                    <For each=move || 0..groups.get() key=|group| *group let(group)>
                        <Group group hidden/>
                    </For>
                </div>
                <Notes/>
            </div>
        </div>
        <div class="jump-place">
            <Show when=move || !follows.get()>
                <button class="jump" data-testid="jump" on:click=move |_| { follows.set(true); to_end(); }>{icon::down()}"Jump to latest"</button>
            </Show>
        </div>
    }
}

/// Some consecutive messages, once it is their turn to be shown.
#[component]
fn Group(group: usize, hidden: RwSignal<Option<usize>>) -> impl IntoView {
    let open = open();
    let shown = Memo::new(move |_| hidden.get().is_some_and(|hidden| group >= hidden));
    let rows = Memo::new(move |_| {
        if !shown.get() {
            return Vec::new();
        }
        open.rows.with(|rows| rows.chunks(GROUP).nth(group).map(<[Row]>::to_vec).unwrap_or_default())
    });
    view! {
        <div class="rows">
            <For each=move || rows.get() key=|row| row.id let(row)>
                <MessageRow row/>
            </For>
        </div>
    }
}

fn reveal(hidden: RwSignal<Option<usize>>) {
    if hidden.try_get_untracked().flatten().is_some_and(|hidden| hidden > 0) {
        set_timeout(
            move || {
                if hidden.try_update(|hidden| *hidden = hidden.map(|hidden| hidden.saturating_sub(1))).is_some() {
                    reveal(hidden);
                }
            },
            std::time::Duration::from_millis(16),
        );
    }
}

#[component]
fn NotFound() -> impl IntoView {
    let (app, open) = (app(), open());
    let fresh = move |_| {
        let (project, agent) = (open.project.get_value(), open.agent.with_value(|agent| agent.id.clone()));
        app.go(Route::Agent { project, agent, thread: None });
    };
    view! {
        <section class="notice" data-testid="not-found">
            <h2>"There is no such conversation"</h2>
            <p>"It was deleted, or it belongs to someone else."</p>
            <button class="primary" on:click=fresh>"Start a new one"</button>
        </section>
    }
}

/// What stands where there are no messages yet.
#[component]
fn Welcome() -> impl IntoView {
    let open = open();
    let (name, demo) = open.agent.with_value(|agent| (agent.name.clone(), agent.engine == "demo"));
    let tries = [
        ("/slow 60", "A slow reply. Close the tab midway and come back."),
        ("/think", "Reason first, then reply."),
        ("/tool", "Call a tool."),
        ("/approve", "Ask you before a tool runs."),
        ("/ask", "Ask you a question."),
        ("/delegate 40", "Let another agent do the work."),
    ];
    view! {
        <section class="welcome">
            <h2>{format!("What should {name} do?")}</h2>
            <p>"A reply goes on when you close this tab. Come back, and it is here."</p>
            {demo.then(|| view! {
                <ul class="tries">
                    {tries.map(|(command, what)| view! {
                        <li>
                            <button on:click=move |_| open.act(|handle| { handle.set_draft(command); focus_composer(); })>
                                <code>{command}</code><span>{what}</span>
                            </button>
                        </li>
                    }).into_iter().collect_view()}
                </ul>
            })}
        </section>
    }
}

/// Puts the focus where the person writes.
pub(super) fn focus_composer() {
    use wasm_bindgen::JsCast;
    if let Some(composer) = document().get_element_by_id("composer").and_then(|it| it.dyn_into::<web_sys::HtmlElement>().ok()) {
        let _ = composer.focus();
    }
}

/// What went wrong, and what the turn warned of.
#[component]
fn Notes() -> impl IntoView {
    let open = open();
    let trouble = Memo::new(move |_| open.view.with(|view| view.trouble.clone()));
    let warnings = Memo::new(move |_| open.view.with(|view| view.warnings.to_vec()));
    view! {
        {move || warnings.get().into_iter().map(|Warning { message, .. }| view! { <p class="note warning"><strong>"Note. "</strong>{message}</p> }).collect_view()}
        {move || trouble.get().map(|trouble| view! {
            <div class="note bad" role="alert" data-testid="trouble">
                <p>{worded(&trouble)}</p>
                <button class="quiet" on:click=move |_| open.act(ThreadHandle::dismiss_trouble)>"Dismiss"</button>
            </div>
        })}
    }
}

fn worded(trouble: &Trouble) -> String {
    match trouble.code() {
        Some(Code::AgentsDisabled) => {
            "Agents are switched off on this server. What you typed is kept in the box below.".to_owned()
        }
        _ => trouble.to_string(),
    }
}

/// How things stand, in one line of words.
#[component]
fn StatusLine() -> impl IntoView {
    let (app, open) = (app(), open());
    let facts = Memo::new(move |_| {
        open.view.with(|view| {
            (
                view.signed_out,
                view.stop,
                view.running,
                view.read_failure.as_ref().map(ToString::to_string),
                view.interactions.len(),
            )
        })
    });
    let line = Memo::new(move |_| {
        let (signed_out, stop, running, failure, waiting) = facts.get();
        if signed_out {
            return ("signed-out", "You are signed out.".to_owned());
        }
        if !app.online.get() {
            return ("offline", "You are offline. Turns go on at the server; this page catches up when you are back.".to_owned());
        }
        if let Some(failure) = failure {
            return ("reconnecting", format!("Reconnecting… {failure} What you see is what was last loaded."));
        }
        if let Some(words) = words::running(running, stop) {
            return (state(stop, running), words.to_owned());
        }
        match waiting {
            0 => ("idle", String::new()),
            1 => ("suspended", "Waiting for your answer above.".to_owned()),
            more => ("suspended", format!("Waiting for {more} answers above.")),
        }
    });
    view! {
        <p class="status" data-testid="status" data-state=move || line.with(|(state, _)| *state)>
            <span class="dot" aria-hidden="true"></span>
            <span>{move || line.with(|(_, words)| words.clone())}</span>
        </p>
    }
}

fn state(stop: Stop, running: Option<Running>) -> &'static str {
    match (stop, running) {
        (Stop::Stopping | Stop::WaitingForId, _) => "stopping",
        (_, Some(Running::Starting)) => "sending",
        (_, Some(Running::Live(_))) => "running",
        (_, Some(Running::Followed(_))) => "following",
        (_, None) => "idle",
    }
}
