//! The left column: which agent, and its threads. Under 720 px it is a drawer.

use leptos::{ev, html, prelude::*, task::spawn_local};
use turnfast_client_core::{browser::Subscription, thread::Failure};
use turnfast_shared::{
    api::{ExecutionUpdated, Me, PushEvent, Thread, ThreadPage},
    ids::{Slug, ThreadId},
    limits::TITLE_CHARS,
};

use super::{App, Catalog, app, icon, local_time, millis, now, plain_click};
use crate::{api, route::Route, words};

/// Notifications of a running turn come several times a second, and change nothing that a list shows until it ends: a list is read
/// again once a thread has been quiet for this long, in milliseconds.
const QUIET_MS: u64 = 700;

/// The threads of the agent that is open.
#[derive(Clone, Copy)]
pub(super) struct ThreadList {
    /// Whose they are.
    agent: RwSignal<Option<(Slug, Slug)>>,
    threads: RwSignal<Vec<Thread>>,
    next: RwSignal<Option<String>>,
    first_read: RwSignal<bool>,
    failure: RwSignal<Option<Failure>>,
    reading: StoredValue<Reading>,
    more: RwSignal<bool>,
}

/// One read at a time, and one behind it at most.
#[derive(Clone, Copy, Default)]
struct Reading {
    now: bool,
    again: bool,
    timer: Option<TimeoutHandle>,
}

impl ThreadList {
    pub(super) fn new() -> Self {
        Self {
            agent: RwSignal::new(None),
            threads: RwSignal::new(Vec::new()),
            next: RwSignal::new(None),
            first_read: RwSignal::new(false),
            failure: RwSignal::new(None),
            reading: StoredValue::new(Reading::default()),
            more: RwSignal::new(false),
        }
    }

    /// The title of a thread, where the list has it.
    pub(super) fn title(self, thread: ThreadId) -> Option<String> {
        self.threads.with(|threads| threads.iter().find(|candidate| candidate.id == thread).map(|thread| thread.title.clone()))
    }

    /// Shows another agent's threads.
    fn show(self, app: App, project: Slug, agent: Slug) {
        let agent = Some((project, agent));
        if self.agent.get_untracked() == agent {
            return;
        }
        self.agent.set(agent);
        self.threads.set(Vec::new());
        self.next.set(None);
        self.first_read.set(false);
        self.failure.set(None);
        self.refresh(app);
    }

    /// Reads the first page again.
    pub(super) fn refresh(self, app: App) {
        let Some((project, agent)) = self.agent.get_untracked() else { return };
        let mut reading = self.reading.get_value();
        if let Some(timer) = reading.timer.take() {
            timer.clear();
        }
        reading.again = reading.now;
        let start = !reading.now;
        reading.now = true;
        self.reading.set_value(reading);
        if start {
            spawn_local(async move {
                let page = api::threads(&project, &agent, None).await;
                if self.agent.get_untracked() == Some((project, agent)) {
                    self.take_first(app, page);
                }
                let mut reading = self.reading.get_value();
                let again = std::mem::take(&mut reading.again);
                reading.now = false;
                self.reading.set_value(reading);
                if again {
                    self.refresh(app);
                }
            });
        }
    }

    fn take_first(self, app: App, page: Result<ThreadPage, Failure>) {
        match page {
            Ok(page) => {
                self.failure.set(None);
                self.first_read.set(true);
                if page.next_cursor.is_none() {
                    self.next.set(None);
                    self.threads.set(page.threads);
                    return;
                }
                let kept = self.threads.with_untracked(|old| {
                    let oldest = page.threads.last().map(|thread| thread.updated_at.clone()).unwrap_or_default();
                    let known = |id| page.threads.iter().any(|thread| thread.id == id);
                    old.iter().filter(|thread| thread.updated_at < oldest && !known(thread.id)).cloned().collect::<Vec<_>>()
                });
                if kept.is_empty() {
                    self.next.set(page.next_cursor);
                }
                self.threads.set(page.threads.into_iter().chain(kept).collect());
            }
            Err(failure) => self.fail(app, failure),
        }
    }

    fn fail(self, app: App, failure: Failure) {
        if api::is_signed_out(&failure) {
            app.lose_session();
        }
        self.failure.set(Some(failure));
    }

    /// Reads the page behind what is shown.
    fn read_more(self, app: App) {
        let (Some((project, agent)), Some(cursor)) = (self.agent.get_untracked(), self.next.get_untracked()) else { return };
        if self.more.get_untracked() {
            return;
        }
        self.more.set(true);
        spawn_local(async move {
            let page = api::threads(&project, &agent, Some(&cursor)).await;
            self.more.set(false);
            if self.agent.get_untracked() != Some((project, agent)) {
                return;
            }
            match page {
                Ok(page) => {
                    self.failure.set(None);
                    self.next.set(page.next_cursor);
                    self.threads.update(|threads| {
                        for thread in page.threads {
                            if !threads.iter().any(|known| known.id == thread.id) {
                                threads.push(thread);
                            }
                        }
                    });
                }
                Err(failure) => self.fail(app, failure),
            }
        });
    }

    /// A thread changed somewhere.
    fn notified(self, app: App, update: &ExecutionUpdated) {
        let ours = self
            .agent
            .with_untracked(|agent| agent.as_ref().is_some_and(|(p, a)| *p == update.project_id && *a == update.agent_id));
        if !ours {
            return;
        }
        let known_to_run = update.execution_id.is_some()
            && self.threads.with_untracked(|threads| {
                threads.iter().any(|thread| thread.id == update.thread_id && thread.active_execution_id == update.execution_id)
            });
        if !known_to_run {
            self.refresh(app);
            return;
        }
        let mut reading = self.reading.get_value();
        if let Some(timer) = reading.timer.take() {
            timer.clear();
        }
        reading.timer = set_timeout_with_handle(move || self.refresh(app), std::time::Duration::from_millis(QUIET_MS)).ok();
        self.reading.set_value(reading);
    }
}

/// What a dialog is open for.
#[derive(Clone, PartialEq)]
enum Asking {
    Rename(Thread),
    Delete(Thread),
}

/// The left column.
#[component]
pub(super) fn Sidebar(me: Me) -> impl IntoView {
    let app = app();
    let list = app.threads;
    let asking = RwSignal::new(None::<Asking>);
    let pushed: Subscription = app.client.with_value(|client| {
        client.on_push(move |event| match event {
            PushEvent::Connected => list.refresh(app),
            PushEvent::AgentExecutionUpdated(update) => list.notified(app, update),
            PushEvent::Ping => {}
        })
    });
    let pushed = StoredValue::new_local(pushed);
    on_cleanup(move || pushed.dispose());

    Effect::new(move |_| {
        if let Route::Agent { project, agent, .. } = app.route.get()
            && app.find(&project, &agent).is_some()
        {
            list.show(app, project, agent);
        }
    });
    let close = NodeRef::<html::Button>::new();
    Effect::new(move |_| {
        if app.drawer.get()
            && let Some(close) = close.get_untracked()
        {
            let _ = close.focus();
        }
    });
    let escape = move |event: ev::KeyboardEvent| {
        if event.key() == "Escape" && app.drawer.get_untracked() {
            app.drawer.set(false);
        }
    };

    view! {
        <nav class="sidebar" id="sidebar" aria-label="Conversations" on:keydown=escape>
            <div class="sidebar-head">
                <div class="brand">{icon::mark()}<span>"Turnfast"</span></div>
                <button class="icon menu" aria-label="Close" node_ref=close on:click=move |_| app.drawer.set(false)>{icon::close()}</button>
            </div>
            <AgentPicker/>
            <NewThread/>
            <Threads asking/>
            <div class="sidebar-foot">
                <span class="who" title="Signed in">{me.name}</span>
                <button class="quiet" data-testid="sign-out" on:click=move |_| app.sign_out()>"Sign out"</button>
            </div>
        </nav>
        {move || asking.get().map(|what| match what {
            Asking::Rename(thread) => view! { <RenameDialog thread asking/> }.into_any(),
            Asking::Delete(thread) => view! { <DeleteDialog thread asking/> }.into_any(),
        })}
    }
}

/// Chooses project and agent; where there is one agent only, it just names it.
#[component]
fn AgentPicker() -> impl IntoView {
    let app = app();
    let chosen = move || {
        app.route.with(|route| match route {
            Route::Agent { project, agent, .. } => format!("/{project}/{agent}"),
            _ => String::new(),
        })
    };
    move || {
        let Catalog::Ready(groups) = app.catalog.get() else { return ().into_any() };
        let count = groups.iter().map(|group| group.agents.len()).sum::<usize>();
        if count == 0 {
            return ().into_any();
        }
        if let [group] = groups.as_slice()
            && let [agent] = group.agents.as_slice()
        {
            return view! {
                <p class="only-agent"><strong>{agent.name.clone()}</strong><span>{group.project.name.clone()}</span></p>
            }
            .into_any();
        }
        let options = groups
            .into_iter()
            .map(|group| {
                let agents = group
                    .agents
                    .into_iter()
                    .map(|agent| {
                        let value = format!("/{}/{}", group.project.id, agent.id);
                        let mine = value.clone();
                        view! { <option value=value selected=move || chosen() == mine>{agent.name}</option> }
                    })
                    .collect_view();
                view! { <optgroup label=group.project.name>{agents}</optgroup> }
            })
            .collect_view();
        view! {
            <label class="picker">
                <span>"Agent"</span>
                <select
                    data-testid="agent-picker"
                    prop:value=chosen
                    on:change=move |event| app.go(Route::parse(&event_target_value(&event)))
                >
                    {move || chosen().is_empty().then(|| view! { <option value="">"Choose…"</option> })}
                    {options}
                </select>
            </label>
        }
        .into_any()
    }
}

#[component]
fn NewThread() -> impl IntoView {
    let app = app();
    move || {
        app.route.with(|route| match route {
            Route::Agent { project, agent, .. } => {
                let target = Route::Agent { project: project.clone(), agent: agent.clone(), thread: None };
                let path = target.path();
                view! {
                    <a class="new" href=path data-testid="new-thread" on:click=move |event| {
                        if plain_click(&event) {
                            event.prevent_default();
                            app.go(target.clone());
                        }
                    }>
                        {icon::plus()}"New conversation"
                    </a>
                }
                .into_any()
            }
            _ => ().into_any(),
        })
    }
}

#[component]
fn Threads(asking: RwSignal<Option<Asking>>) -> impl IntoView {
    let app = app();
    let list = app.threads;
    let some = Memo::new(move |_| list.threads.with(|threads| !threads.is_empty()));
    view! {
        <div class="threads">
            {move || (!list.first_read.get() && list.failure.with(Option::is_none) && list.agent.with(Option::is_some)).then(|| view! {
                <div class="skeleton" role="status"><span class="said">"Loading conversations…"</span><i></i><i></i><i></i></div>
            })}
            {move || (list.first_read.get() && !some.get()).then(|| view! { <p class="hint">"Your conversations will be listed here."</p> })}
            <ul>
                <For each=move || list.threads.get() key=|thread| thread.id let(thread)>
                    <ThreadItem id=thread.id asking/>
                </For>
            </ul>
            {move || list.failure.get().map(|failure| view! {
                <p class="note" role="status">
                    {format!("The list may be old. {failure}")}
                    <button class="quiet" on:click=move |_| list.refresh(app)>"Try again"</button>
                </p>
            })}
            {move || list.next.with(Option::is_some).then(|| view! {
                <button class="quiet more" data-testid="more-threads" on:click=move |_| list.read_more(app)>
                    {move || if list.more.get() { "Loading…" } else { "Show older" }}
                </button>
            })}
        </div>
    }
}

#[component]
fn ThreadItem(id: ThreadId, asking: RwSignal<Option<Asking>>) -> impl IntoView {
    let app = app();
    let list = app.threads;
    let thread = Memo::new(move |_| list.threads.with(|threads| threads.iter().find(|thread| thread.id == id).cloned()));
    let title = move || thread.with(|thread| thread.as_ref().map(|thread| title_of(thread).to_owned()).unwrap_or_default());
    let route = move || {
        let (project, agent) = list.agent.get_untracked()?;
        Some(Route::Agent { project, agent, thread: Some(id) })
    };
    let when = move || {
        thread.with(|thread| {
            let thread = thread.as_ref()?;
            if thread.active_execution_id.is_some() {
                return Some("Replying…".to_owned());
            }
            let ago = words::ago(now() - millis(&thread.updated_at)?);
            Some(ago.unwrap_or_else(|| local_time(&thread.updated_at).split([',', ' ']).next().unwrap_or_default().to_owned()))
        })
    };
    let current = move || app.thread() == Some(id);
    view! {
        <li class="thread" class:current=current data-testid="thread-item">
            <a
                href=move || route().map(|route| route.path())
                aria-current=move || current().then_some("page")
                on:click=move |event| {
                    if let (true, Some(route)) = (plain_click(&event), route()) {
                        event.prevent_default();
                        app.go(route);
                    }
                }
            >
                <span class="thread-title">{title}</span>
                <span class="thread-when" class:running=move || thread.with(|t| t.as_ref().is_some_and(|t| t.active_execution_id.is_some()))>{when}</span>
            </a>
            <button class="icon" aria-label=move || format!("Rename “{}”", title()) data-testid="rename-thread" on:click=move |_| asking.set(thread.get_untracked().map(Asking::Rename))>
                {icon::pen()}
            </button>
            <button class="icon" aria-label=move || format!("Delete “{}”", title()) data-testid="delete-thread" on:click=move |_| asking.set(thread.get_untracked().map(Asking::Delete))>
                {icon::bin()}
            </button>
        </li>
    }
}

fn title_of(thread: &Thread) -> &str {
    if thread.title.trim().is_empty() { "Untitled conversation" } else { &thread.title }
}

/// A modal dialog that closes on Escape, and gives the focus back.
#[component]
fn Modal(asking: RwSignal<Option<Asking>>, title: &'static str, children: Children) -> impl IntoView {
    let dialog = NodeRef::<html::Dialog>::new();
    Effect::new(move |_| {
        if let Some(dialog) = dialog.get() {
            let _ = dialog.show_modal();
        }
    });
    view! {
        <dialog class="panel" node_ref=dialog aria-labelledby="dialog-title" on:close=move |_| asking.set(None)>
            <h2 id="dialog-title">{title}</h2>
            {children()}
        </dialog>
    }
}

#[component]
fn RenameDialog(thread: Thread, asking: RwSignal<Option<Asking>>) -> impl IntoView {
    let app = app();
    let input = NodeRef::<html::Input>::new();
    let error = RwSignal::new(None::<String>);
    let id = thread.id;
    Effect::new(move |_| {
        if let Some(input) = input.get() {
            input.select();
        }
    });
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        let (Some(input), Some((project, agent))) = (input.get_untracked(), app.threads.agent.get_untracked()) else { return };
        let title = input.value().trim().to_owned();
        if title.is_empty() {
            error.set(Some("A conversation needs a name.".to_owned()));
            return;
        }
        spawn_local(async move {
            match api::rename(&project, &agent, id, title.clone()).await {
                Ok(_) => {
                    app.threads.threads.update(|threads| {
                        if let Some(thread) = threads.iter_mut().find(|thread| thread.id == id) {
                            thread.title = title;
                        }
                    });
                    app.say("Renamed.");
                    asking.set(None);
                }
                Err(failure) => error.set(Some(format!("Not renamed. {failure}"))),
            }
        });
    };
    view! {
        <Modal asking title="Rename conversation">
            <form class="fields" on:submit=submit>
                <label>
                    <span>"Name"</span>
                    <input type="text" value=thread.title.clone() maxlength=TITLE_CHARS.to_string() node_ref=input autofocus data-testid="rename-input"/>
                </label>
                <p class="error" role="alert">{move || error.get()}</p>
                <div class="actions">
                    <button type="button" on:click=move |_| asking.set(None)>"Cancel"</button>
                    <button type="submit" class="primary" data-testid="rename-confirm">"Rename"</button>
                </div>
            </form>
        </Modal>
    }
}

#[component]
fn DeleteDialog(thread: Thread, asking: RwSignal<Option<Asking>>) -> impl IntoView {
    let app = app();
    let error = RwSignal::new(None::<String>);
    let id = thread.id;
    let delete = move |_| {
        let Some((project, agent)) = app.threads.agent.get_untracked() else { return };
        spawn_local(async move {
            match api::delete(&project, &agent, id).await {
                Ok(()) => {
                    app.threads.threads.update(|threads| threads.retain(|thread| thread.id != id));
                    app.say("Deleted.");
                    asking.set(None);
                    if app.route.with_untracked(|route| matches!(route, Route::Agent { thread: Some(open), .. } if *open == id)) {
                        app.go_instead(Route::Agent { project, agent, thread: None });
                    }
                }
                Err(failure) => error.set(Some(format!("Not deleted. {failure}"))),
            }
        });
    };
    let question = format!("“{}” and everything in it will be gone for good.", title_of(&thread));
    view! {
        <Modal asking title="Delete this conversation?">
            <p>{question}</p>
            <p class="error" role="alert">{move || error.get()}</p>
            <div class="actions">
                <button type="button" autofocus on:click=move |_| asking.set(None)>"Keep it"</button>
                <button type="button" class="danger" data-testid="delete-confirm" on:click=delete>"Delete"</button>
            </div>
        </Modal>
    }
}
