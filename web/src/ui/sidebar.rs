//! The left column: which agent, and its threads. Under 720 px it is a drawer.

use gloo_timers::callback::Timeout;
use turnfast_client_core::thread::Failure;
use turnfast_shared::{
    Code,
    api::{ExecutionUpdated, Thread, ThreadPage},
    ids::{Slug, ThreadId},
    limits::TITLE_CHARS,
};
use wasm_bindgen_futures::spawn_local;
use web_sys::Element;

use super::{
    app::{Action, App, Catalog, Child, Draft, Link, Session, State, close_dialog},
    icon,
    node::{Key, element},
    page::{self, local_time, millis, now},
};
use crate::{api, route::Route, words};

/// Notifications of a running turn come several times a second, and change nothing that a list shows until it ends: a list is read
/// again once a thread has been quiet for this long, in milliseconds.
const QUIET_MS: u32 = 700;

/// The threads of the agent that is open.
#[derive(Default)]
pub(super) struct ThreadList {
    /// Whose they are.
    agent: Option<(Slug, Slug)>,
    threads: Vec<Thread>,
    next: Option<String>,
    first_read: bool,
    failure: Option<Failure>,
    /// One read at a time, and one behind it at most.
    reading: bool,
    again: bool,
    timer: Option<Timeout>,
    more: bool,
}

impl ThreadList {
    /// The title of a thread, where the list has it.
    pub(super) fn title(&self, thread: ThreadId) -> Option<&str> {
        self.threads.iter().find(|candidate| candidate.id == thread).map(|thread| thread.title.as_str())
    }

    /// Forgets everything. A read under way ends by itself, and finds that nobody waits for it.
    pub(super) fn clear(&mut self) {
        *self = Self { reading: self.reading, more: self.more, ..Self::default() };
    }

    fn take_first(&mut self, page: ThreadPage) {
        self.failure = None;
        self.first_read = true;
        let mut threads = page.threads;
        if page.next_cursor.is_none() {
            self.next = None;
        } else {
            let oldest = threads.last().map(|thread| thread.updated_at.clone()).unwrap_or_default();
            let known = |id| threads.iter().any(|thread| thread.id == id);
            let old = std::mem::take(&mut self.threads);
            let kept: Vec<_> = old.into_iter().filter(|thread| thread.updated_at < oldest && !known(thread.id)).collect();
            if kept.is_empty() {
                self.next = page.next_cursor;
            }
            threads.extend(kept);
        }
        self.threads = threads;
    }

    fn take_more(&mut self, page: ThreadPage) {
        self.failure = None;
        self.next = page.next_cursor;
        for thread in page.threads {
            if !self.threads.iter().any(|known| known.id == thread.id) {
                self.threads.push(thread);
            }
        }
    }
}

impl App {
    /// Shows another agent's threads.
    pub(super) fn show_threads(&self, project: &Slug, agent: &Slug) {
        let agent = Some((project.clone(), agent.clone()));
        {
            let mut state = self.state();
            if state.list.agent == agent {
                return;
            }
            let list = &mut state.list;
            // A read under way ends by itself, and finds that it is of another agent.
            *list = ThreadList { agent, reading: list.reading, again: list.again, more: list.more, ..ThreadList::default() };
        }
        self.refresh_threads();
    }

    /// Reads the first page of the list again.
    pub(super) fn refresh_threads(&self) {
        let agent = {
            let mut state = self.state();
            let list = &mut state.list;
            list.timer = None;
            list.again = list.reading;
            if list.reading || list.agent.is_none() {
                return;
            }
            list.reading = true;
            list.agent.clone()
        };
        let Some((project, agent)) = agent else { return };
        let app = self.clone();
        spawn_local(async move {
            let page = api::threads(&project, &agent, None).await;
            let mut failed = None;
            let again = {
                let mut state = app.state();
                state.list.reading = false;
                if state.list.agent == Some((project, agent)) {
                    match page {
                        Ok(page) => state.list.take_first(page),
                        Err(failure) => failed = Some(failure),
                    }
                }
                std::mem::take(&mut state.list.again)
            };
            failed.into_iter().for_each(|failure| app.list_failed(failure));
            if again {
                app.refresh_threads();
            }
        });
    }

    /// Reads the page behind what is shown.
    pub(super) fn more_threads(&self) {
        let (Some((project, agent)), Some(cursor)) = ({
            let mut state = self.state();
            if std::mem::replace(&mut state.list.more, true) {
                return;
            }
            (state.list.agent.clone(), state.list.next.clone())
        }) else {
            self.state().list.more = false;
            return;
        };
        let app = self.clone();
        spawn_local(async move {
            let page = api::threads(&project, &agent, Some(&cursor)).await;
            {
                let mut state = app.state();
                state.list.more = false;
                if state.list.agent != Some((project, agent)) {
                    return;
                }
                let Err(failure) = page.map(|page| state.list.take_more(page)) else { return };
                drop(state);
                app.list_failed(failure);
            }
        });
    }

    /// A thread changed somewhere.
    pub(super) fn notified(&self, update: &ExecutionUpdated) {
        {
            let mut state = self.peek();
            let list = &mut state.list;
            if list.agent.as_ref().is_none_or(|(project, agent)| *project != update.project_id || *agent != update.agent_id) {
                return;
            }
            let known_to_run = update.execution_id.is_some()
                && list
                    .threads
                    .iter()
                    .any(|thread| thread.id == update.thread_id && thread.active_execution_id == update.execution_id);
            if known_to_run {
                let app = self.clone();
                // Taken out of the state by a task: a timer is not to be dropped while it runs.
                let due = move || spawn_local(async move { app.refresh_threads() });
                list.timer = Some(Timeout::new(QUIET_MS, due));
                return;
            }
        }
        self.refresh_threads();
    }

    /// Gives a thread the name in the form.
    pub(super) fn rename_thread(&self, id: ThreadId, form: &Element) {
        let Some(title) = page::input(form, "input").map(|input| input.value().trim().to_owned()) else { return };
        if title.is_empty() {
            self.state().dialog_error = Some("A conversation needs a name.".to_owned());
            return;
        }
        let Some((project, agent)) = self.peek().list.agent.clone() else { return };
        let app = self.clone();
        spawn_local(async move {
            match api::rename(&project, &agent, id, title.clone()).await {
                Ok(_) => {
                    if let Some(thread) = app.state().list.threads.iter_mut().find(|thread| thread.id == id) {
                        thread.title = title;
                    }
                    app.say("Renamed.");
                    close_dialog();
                }
                Err(failure) => app.dialog_failed("Not renamed. ", &failure),
            }
        });
    }

    fn list_failed(&self, failure: Failure) {
        if api::is_signed_out(&failure) {
            self.signed_out();
        } else {
            self.state().list.failure = Some(failure);
        }
    }

    fn dialog_failed(&self, what: &'static str, failure: &Failure) {
        if api::is_signed_out(failure) {
            self.signed_out();
        } else {
            self.state().dialog_error = Some([what, &words::failure(failure)].concat());
        }
    }

    /// Deletes a thread for good.
    pub(super) fn delete_thread(&self, id: ThreadId) {
        let Some((project, agent)) = self.peek().list.agent.clone() else { return };
        let app = self.clone();
        let route = |thread| Route::Agent { project: project.clone(), agent: agent.clone(), thread };
        let (it, fresh) = (route(Some(id)), route(None));
        let open = self.peek().thread() == Some(id);
        if open {
            // Closed first: whoever has it open hears of the change, and would look for it.
            self.go_instead(fresh);
        }
        spawn_local(async move {
            match api::delete(&project, &agent, id).await {
                Ok(()) => {
                    close_dialog();
                    let mut state = app.state();
                    state.list.threads.retain(|thread| thread.id != id);
                    // The dialog gives the focus back to a button that goes with its row.
                    state.focus_next = Some(if state.drawer { "#sidebar .menu" } else { "#composer" });
                    drop(state);
                    app.say("Deleted.");
                }
                Err(failure) => {
                    app.dialog_failed("Not deleted. ", &failure);
                    if open {
                        app.go_instead(it);
                    }
                }
            }
        });
    }
}

/// What a dialog is open for.
#[derive(Clone)]
pub(super) enum Asking {
    Rename(ThreadId, String),
    Delete(ThreadId, String),
}

/// The left column.
pub(super) fn view(state: &State) -> Draft {
    let who = match &state.session {
        Session::In(me) => me.name.clone(),
        _ => String::new(),
    };
    let head = element("div", &[("class", "sidebar-head")])
        .with(element("div", &[("class", "brand")]).with(icon::mark()).with(element("span", &[]).text("Turnfast")))
        .with(
            element("button", &[("class", "icon menu"), ("aria-label", "Close")])
                .on("click", Action::CloseDrawer)
                .with(icon::close()),
        );
    let foot = element("div", &[("class", "sidebar-foot")])
        .with(element("span", &[("class", "who"), ("title", "Signed in")]).text(who))
        .with(
            element("button", &[("class", "quiet"), ("data-testid", "sign-out")]).on("click", Action::SignOut).text("Sign out"),
        );
    let error = state.signout_error.clone().map(|error| element("p", &[("class", "error"), ("role", "alert")]).text(error));
    element("nav", &[("class", "sidebar"), ("id", "sidebar"), ("aria-label", "Conversations")])
        .with(head)
        .with_some(agent_picker(state))
        .with_some(new_thread(state))
        .with(threads(state))
        .with_some(error)
        .with(foot)
}

/// Chooses project and agent; where there is one agent only, it just names it.
fn agent_picker(state: &State) -> Option<Draft> {
    let Catalog::Ready(groups) = &state.catalog else { return None };
    let count = groups.iter().map(|group| group.agents.len()).sum::<usize>();
    if count == 0 {
        return None;
    }
    if let [group] = groups.as_slice()
        && let [agent] = group.agents.as_slice()
    {
        return Some(
            element("p", &[("class", "only-agent")])
                .with(element("strong", &[]).text(agent.name.clone()))
                .with(element("span", &[]).text(group.project.name.clone())),
        );
    }
    let chosen = match &state.route {
        Route::Agent { project, agent, .. } => format!("/{project}/{agent}"),
        _ => String::new(),
    };
    let options = groups.iter().map(|group| {
        let agents = group.agents.iter().map(|agent| {
            let value = format!("/{}/{}", group.project.id, agent.id);
            element("option", &[]).set("value", value).text(agent.name.clone()).done()
        });
        element("optgroup", &[]).set("label", group.project.name.clone()).children(agents.collect()).done()
    });
    let none = chosen.is_empty().then(|| element("option", &[("value", "")]).text("Choose…"));
    let select = element("select", &[("data-testid", "agent-picker")])
        .value(chosen)
        .on("change", Action::PickAgent)
        .with_some(none)
        .children(options.collect());
    Some(element("label", &[("class", "picker")]).with(element("span", &[]).text("Agent")).with(select))
}

fn new_thread(state: &State) -> Option<Draft> {
    let Route::Agent { project, agent, .. } = &state.route else { return None };
    if !state.may_execute() {
        return None;
    }
    let target = Route::Agent { project: project.clone(), agent: agent.clone(), thread: None };
    let link = element("a", &[("class", "new"), ("data-testid", "new-thread")])
        .set("href", target.path())
        .on("click", Action::Follow(target))
        .with(icon::plus())
        .text("New conversation");
    Some(link)
}

/// Stands for what is being loaded.
pub(super) fn skeleton(draft: Draft, words: &'static str) -> Draft {
    let line = || element("i", &[]);
    draft.with(element("span", &[("class", "said")]).text(words)).with(line()).with(line()).with(line())
}

fn threads(state: &State) -> Draft {
    let list = &state.list;
    let loading = (!list.first_read && list.failure.is_none() && list.agent.is_some())
        .then(|| skeleton(element("div", &[("class", "skeleton"), ("role", "status")]), "Loading conversations…"));
    let empty = (list.first_read && list.threads.is_empty())
        .then(|| element("p", &[("class", "hint")]).key(Key::Name("empty")).text("Your conversations will be listed here."));
    let failure = list.failure.as_ref().map(|failure| {
        element("p", &[("class", "note"), ("role", "status")])
            .key(Key::Name("failure"))
            .text(match failure {
                Failure::Refused { problem, .. } if problem.code == Code::NotFound => {
                    "The list may be old: this agent is gone, or it is no longer yours to use. ".to_owned()
                }
                failure => ["The list may be old. ", &words::failure(failure), " "].concat(),
            })
            .with(element("button", &[("class", "quiet")]).on("click", Action::RefreshThreads).text("Try again"))
    });
    let more = list.next.is_some().then(|| {
        element("button", &[("class", "quiet more"), ("data-testid", "more-threads")])
            .on("click", Action::MoreThreads)
            .text(if list.more { "Loading…" } else { "Show older" })
    });
    element("div", &[("class", "threads")])
        .with_some(loading)
        .with_some(empty)
        .with(element("ul", &[]).children(list.threads.iter().map(|thread| item(state, thread)).collect()))
        .with_some(failure)
        .with_some(more)
}

fn item(state: &State, thread: &Thread) -> Child {
    let id = thread.id;
    let title = title_of(thread);
    let class = match thread {
        Thread { active_execution_id: Some(_), .. } => "thread-when running",
        Thread { suspended: true, .. } => "thread-when waiting",
        _ => "thread-when",
    };
    let current = state.thread() == Some(id);
    let mut link = element("a", &[]).maybe("aria-current", current.then_some("page"));
    if let Some((project, agent)) = state.list.agent.clone() {
        let route = Route::Agent { project, agent, thread: Some(id) };
        link = link.set("href", route.path()).on("click", Action::Follow(route));
    }
    let link = link
        .with(element("span", &[("class", "thread-title"), ("dir", "auto")]).text(title.to_owned()))
        .with(element("span", &[]).set("class", class).text(when(state, thread)));
    let buttons = state.may_execute().then(|| {
        let rename = element("button", &[("class", "icon"), ("data-testid", "rename-thread")])
            .set("aria-label", format!("Rename “{title}”"))
            .on("click", Action::Ask(Asking::Rename(id, thread.title.clone())))
            .with(icon::pen());
        let delete = element("button", &[("class", "icon"), ("data-testid", "delete-thread")])
            .set("aria-label", format!("Delete “{title}”"))
            .on("click", Action::Ask(Asking::Delete(id, title.to_owned())))
            .with(icon::bin());
        [rename.done(), delete.done()]
    });
    element("li", &[("data-testid", "thread-item")])
        .key(Key::Id(id.0.as_u128()))
        .set("class", if current { "thread current" } else { "thread" })
        .with(link)
        .children(buttons.into_iter().flatten().collect())
        .done()
}

fn when(state: &State, thread: &Thread) -> String {
    if thread.active_execution_id.is_some() {
        // Of what goes on without a connection nobody here knows.
        let heard = state.online && state.link == Link::Up;
        return if heard { "Replying…" } else { "Was replying" }.to_owned();
    }
    if thread.suspended {
        return "Waiting for you".to_owned();
    }
    let Some(updated) = millis(&thread.updated_at) else { return String::new() };
    words::ago(now() - updated).unwrap_or_else(|| {
        let time = local_time(&thread.updated_at);
        time.split([',', ' ']).next().unwrap_or_default().to_owned()
    })
}

fn title_of(thread: &Thread) -> &str {
    if thread.title.trim().is_empty() { "Untitled conversation" } else { &thread.title }
}

/// A modal dialog about a thread. It closes on Escape, and gives the focus back.
pub(super) fn dialog(asking: &Asking, error: Option<&str>) -> Draft {
    let modal = |title: &'static str| {
        element("dialog", &[("class", "panel"), ("aria-labelledby", "dialog-title")])
            .key(Key::Name(title))
            .on("close", Action::DialogClosed)
            .mounted(Action::ShowModal)
            .with(element("h2", &[("id", "dialog-title")]).text(title))
    };
    let error = element("p", &[("class", "error"), ("role", "alert")]).text(error.unwrap_or_default().to_owned());
    match asking {
        Asking::Rename(id, title) => {
            let input =
                element("input", &[("type", "text"), ("autofocus", ""), ("data-testid", "rename-input"), ("dir", "auto")])
                    .set("maxlength", TITLE_CHARS.to_string())
                    .set("value", title.clone())
                    .mounted(Action::Select);
            let actions = element("div", &[("class", "actions")])
                .with(element("button", &[("type", "button")]).on("click", Action::CloseDialog).text("Cancel"))
                .with(
                    element("button", &[("type", "submit"), ("class", "primary"), ("data-testid", "rename-confirm")])
                        .text("Rename"),
                );
            let form = element("form", &[("class", "fields")])
                .on("submit", Action::Rename(*id))
                .with(element("label", &[]).with(element("span", &[]).text("Name")).with(input))
                .with(error)
                .with(actions);
            modal("Rename conversation").with(form)
        }
        Asking::Delete(id, title) => {
            let actions = element("div", &[("class", "actions")])
                .with(
                    element("button", &[("type", "button"), ("autofocus", "")]).on("click", Action::CloseDialog).text("Keep it"),
                )
                .with(
                    element("button", &[("type", "button"), ("class", "danger"), ("data-testid", "delete-confirm")])
                        .on("click", Action::Delete(*id))
                        .text("Delete"),
                );
            modal("Delete this conversation?")
                .with(element("p", &[("dir", "auto")]).text(format!("“{title}” and everything in it will be gone for good.")))
                .with(error)
                .with(actions)
        }
    }
}
