//! An open thread: what was said, how things stand, and where to write.

use std::rc::Rc;

use gloo_timers::callback::Timeout;
use turnfast_client_core::{
    browser::{Subscription, ThreadHandle},
    thread::{Attempt, Interaction, InteractionState, Load, Running, Stop, View, Warning},
};
use turnfast_shared::{
    Code, Message, Role,
    api::{Agent, AttachmentLimits},
    ids::{MessageId, RunId, Slug, ThreadId},
};
use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{Element, KeyboardEvent, ResizeObserver};

use super::{
    app::{Action, App, Child, Draft, Link, State},
    composer, icon,
    message::{Row, SentFile},
    node::{Key, element},
    page, shell, sidebar,
};
use crate::{files, route::Route, words};

/// How near to the end a reader counts as following it, in CSS pixels.
const FOLLOWS_WITHIN: i32 = 80;
/// Messages that are shown together, and how many such groups at once: the rest of a long thread follows group by group.
const GROUP: usize = 12;
const FIRST_GROUPS: usize = 2;
/// Milliseconds between one group and the one before it.
const REVEAL_MS: u32 = 16;

/// What a person can unfold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fold {
    pub(super) message: MessageId,
    pub(super) part: usize,
    pub(super) what: Folding,
}

/// Which of the things that fold in a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Folding {
    Body,
    Trace,
}

/// An open thread.
pub(super) struct Conversation {
    pub(super) number: usize,
    project: Slug,
    agent: Agent,
    /// Whether the person may send and answer, beside reading.
    pub(super) may_send: bool,
    /// Its title, as the list had it last.
    pub(super) title: Option<String>,
    pub(super) handle: ThreadHandle,
    _subscription: Subscription,
    /// What is shown.
    pub(super) view: View,
    rows: Vec<Shown>,
    /// The views of consecutive messages, of those groups in which nothing changed.
    groups: Vec<Option<Child>>,
    /// How many groups are still to come, from the first on; `None` before there is a message.
    hidden: Option<usize>,
    unfolded: Vec<Fold>,
    /// Whether the reader is at the end, and wants to stay there.
    pub(super) follows: bool,
    /// How far the page was scrolled when that was last looked at, in CSS pixels.
    scrolled_to: i32,
    last_sent: Option<MessageId>,
    /// The files of the message that was sent last, until the record shows them.
    sent: Option<(MessageId, Vec<SentFile>)>,
    /// Why files were not added.
    pub(super) file_trouble: Option<String>,
    /// Whether there was no network when the last message was to be sent.
    pub(super) sent_offline: bool,
    /// Whether an input method is at work in the message box.
    pub(super) composing: bool,
    /// The draft that was put into the message box last.
    pub(super) draft_shown: Option<Rc<str>>,
    watched: Option<Watched>,
}

/// A message and the view of it, where that is up to date.
struct Shown {
    message: Rc<Message>,
    view: Option<Child>,
}

/// Tells of every change of an element's size.
struct Watched {
    observer: ResizeObserver,
    _changed: Closure<dyn FnMut()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.observer.disconnect();
    }
}

impl Conversation {
    pub(super) fn new(
        number: usize,
        project: Slug,
        agent: Agent,
        may_send: bool,
        handle: ThreadHandle,
        subscription: Subscription,
    ) -> Self {
        let view = handle.view();
        let mut this = Self {
            number,
            project,
            agent,
            may_send,
            title: None,
            handle,
            _subscription: subscription,
            view,
            rows: Vec::new(),
            groups: Vec::new(),
            hidden: None,
            unfolded: Vec::new(),
            follows: true,
            scrolled_to: 0,
            last_sent: None,
            sent: None,
            file_trouble: None,
            sent_offline: false,
            composing: false,
            draft_shown: None,
            watched: None,
        };
        this.take_list();
        this.last_sent = this.newest_sent();
        this
    }

    /// The address of this agent with a thread.
    pub(super) fn route(&self, thread: Option<ThreadId>) -> Route {
        Route::Agent { project: self.project.clone(), agent: self.agent.id.clone(), thread }
    }

    /// What files may go with a message; `None`: none.
    pub(super) fn takes_files(&self) -> Option<AttachmentLimits> {
        self.agent.attachments.filter(|_| self.may_send)
    }

    /// Whether the thread was there, and is not any more.
    pub(super) fn is_gone(&self) -> bool {
        let code = self.view.read_failure.as_ref().and_then(turnfast_client_core::thread::Failure::code);
        self.view.load == Load::Loaded && code == Some(Code::NotFound)
    }

    /// Whether there is a message box.
    pub(super) fn has_composer(&self) -> bool {
        self.may_send && !self.is_gone() && self.view.load != Load::NotFound
    }

    /// Takes what the machine shows now; only what changed is looked at. Returns what was shown before.
    fn take(&mut self, new: View) -> View {
        let old = std::mem::replace(&mut self.view, new);
        if Rc::ptr_eq(&old.settled, &self.view.settled) {
            let touched = [&old.live, &self.view.live].map(|live| live.as_ref().map(|live| live.index));
            for index in touched.into_iter().flatten() {
                let live = self.view.live.as_ref().filter(|live| live.index == index).map(|live| &live.message);
                if let Some(message) = live.or_else(|| self.view.settled.get(index)).cloned() {
                    self.set(index, message);
                }
            }
        } else {
            self.take_list();
        }
        if old.interactions != self.view.interactions {
            let runs = old.interactions.iter().chain(&self.view.interactions).map(|one| one.suspension.run_id);
            for run in runs.collect::<Vec<_>>() {
                self.outdate(MessageId::from(run));
            }
        }
        let newest = self.newest_sent();
        if newest != self.last_sent {
            // What the person sent is what they want to see next.
            self.last_sent = newest;
            self.follows = true;
            if self.view.attachments.is_empty() && !old.attachments.is_empty() {
                self.sent = newest.map(|id| (id, old.attachments.iter().map(SentFile::of).collect()));
                newest.into_iter().for_each(|id| self.outdate(id));
            }
        }
        old
    }

    fn take_list(&mut self) {
        let messages: Vec<_> = self.view.messages().cloned().collect();
        let count = messages.len();
        for (index, message) in messages.into_iter().enumerate() {
            self.set(index, message);
        }
        if self.rows.len() > count {
            self.rows.truncate(count);
            self.touch(count);
        }
        self.groups.resize(count.div_ceil(GROUP), None);
        if self.hidden.is_none() && count > 0 {
            self.hidden = Some(self.groups.len().saturating_sub(FIRST_GROUPS));
        }
    }

    fn set(&mut self, index: usize, message: Rc<Message>) {
        match self.rows.get_mut(index) {
            Some(row) if Rc::ptr_eq(&row.message, &message) => return,
            Some(row) => *row = Shown { message, view: None },
            None => self.rows.push(Shown { message, view: None }),
        }
        self.touch(index);
    }

    fn touch(&mut self, index: usize) {
        if let Some(group) = self.groups.get_mut(index / GROUP) {
            *group = None;
        }
    }

    fn outdate(&mut self, id: MessageId) {
        // From the end: what is asked about is near it.
        if let Some(index) = self.rows.iter().rposition(|row| row.message.id == id) {
            self.rows[index].view = None;
            self.touch(index);
        }
    }

    fn newest_sent(&self) -> Option<MessageId> {
        self.rows.iter().rev().find(|row| row.message.role == Role::User).map(|row| row.message.id)
    }

    pub(super) fn fold(&mut self, fold: Fold, unfolded: bool) {
        self.unfolded.retain(|known| *known != fold);
        if unfolded {
            self.unfolded.push(fold);
        }
        self.outdate(fold.message);
    }

    /// What a Copy button takes.
    pub(super) fn copied(&self, id: MessageId) -> Option<String> {
        self.rows.iter().find(|row| row.message.id == id).map(|row| words::copied(&row.message))
    }

    /// Scrolls to the end. Before the first message there is a page to be read from its top.
    pub(super) fn to_end(&self) {
        if let Some(scroll) = page::find(".scroll").filter(|_| !self.rows.is_empty()) {
            scroll.set_scroll_top(scroll.scroll_height());
        }
    }

    /// The groups of messages, each with its place from the start: nothing that is shown ever moves in the page.
    fn groups(&mut self) -> Vec<Child> {
        let hidden = self.hidden.unwrap_or(0);
        for index in 0..self.groups.len() {
            if self.groups[index].is_none() {
                let rows = if index < hidden { Vec::new() } else { self.group(index) };
                let group = element("div", &[("class", "rows")]).key(Key::Number(index)).children(rows).done();
                self.groups[index] = Some(group);
            }
        }
        self.groups.iter().flatten().cloned().collect()
    }

    fn group(&mut self, index: usize) -> Vec<Child> {
        let end = self.rows.len().min((index + 1) * GROUP);
        let mut views = Vec::with_capacity(GROUP);
        for shown in &mut self.rows[index * GROUP..end] {
            if let Some(view) = &shown.view {
                views.push(Child::clone(view));
                continue;
            }
            let run = RunId::from(shown.message.id);
            let row = Row {
                message: &shown.message,
                agent_name: &self.agent.name,
                project: &self.project,
                agent: &self.agent.id,
                interactions: self.view.interactions.iter().filter(|one| one.suspension.run_id == run).collect(),
                unfolded: &self.unfolded,
                may_answer: self.may_send,
                sent: self.sent.as_ref().filter(|(id, _)| *id == shown.message.id).map_or(&[], |(_, files)| files),
            };
            let view = row.view();
            shown.view = Some(Child::clone(&view));
            views.push(view);
        }
        views
    }
}

impl App {
    /// Takes what the open thread's machine shows now, and does what follows from it for the rest of the page.
    pub(super) fn take_view(&self) {
        let Some(handle) = self.handle() else { return };
        let new = handle.view();
        let (said, ended, adopted, reveal) = {
            let mut state = self.peek();
            let Some(open) = &mut state.open else { return };
            let hidden = open.hidden;
            let old = open.take(new);
            let new = &open.view;
            let adopted = new.thread.filter(|_| old.thread.is_none()).map(|thread| open.route(Some(thread)));
            let (said, ended) = news(&old, new);
            let reveal = (hidden.is_none() && open.hidden > Some(0)).then_some(open.number);
            let signed_out = new.signed_out;
            if let Some(title) = state.thread().and_then(|thread| state.list.title(thread)).map(str::to_owned)
                && let Some(open) = &mut state.open
            {
                open.title = Some(title);
            }
            if signed_out {
                drop(state);
                self.signed_out();
                return;
            }
            (said, ended, adopted, reveal)
        };
        if let Some(said) = said {
            self.say(said);
        }
        if ended {
            self.refresh_threads();
        }
        if let Some(route) = adopted {
            self.adopt(route);
        }
        if let Some(number) = reveal {
            self.reveal(number);
        }
    }

    /// Shows the older groups of a conversation moment by moment: the newest came first.
    fn reveal(&self, number: usize) {
        let app = self.clone();
        let next = move || {
            {
                let mut state = app.peek();
                let Some(open) = state.open.as_mut().filter(|open| open.number == number) else { return };
                let Some(hidden) = open.hidden.filter(|hidden| *hidden > 0) else { return };
                open.hidden = Some(hidden - 1);
                if let Some(group) = open.groups.get_mut(hidden - 1) {
                    *group = None;
                }
            }
            app.schedule();
            app.reveal(number);
        };
        Timeout::new(REVEAL_MS, next).forget();
    }
}

/// What screen readers are told, which is a turn's beginning and end and not every word between; and whether a turn has ended.
fn news(old: &View, new: &View) -> (Option<&'static str>, bool) {
    let waits = "The agent waits for your answer.";
    if new.read_failure.is_some() && old.catching_up && !new.catching_up {
        return (Some("This conversation is not up to date."), false);
    }
    match (old.running.is_some(), new.running.is_some()) {
        (false, true) if new.load == Load::Loaded || new.load == Load::New => (Some("The agent is replying."), false),
        (true, false) => {
            let status = new.messages().last().and_then(|message| message.execution_status);
            (Some(words::announcement(status)), true)
        }
        (false, false) if new.interactions.len() > old.interactions.len() => (Some(waits), false),
        _ => (None, false),
    }
}

/// Whether a call can be answered right now.
pub(super) fn is_answerable(handle: &ThreadHandle, call: &str) -> bool {
    let answerable = |one: &Interaction| one.suspension.tool_call_id == call && one.state == InteractionState::Answerable;
    handle.view().interactions.iter().any(answerable)
}

/// The page was scrolled, by the reader or by what grew in it. Only who goes up leaves the end: messages that come into sight and
/// turn out longer than they were taken for move the end away from a reader who stays there.
pub(super) fn scrolled(app: &App, scroll: &Element) {
    let top = scroll.scroll_top();
    let near = scroll.scroll_height() - top - scroll.client_height() < FOLLOWS_WITHIN;
    let mut state = app.peek();
    let Some(open) = &mut state.open else { return };
    let follows = near || (open.follows && top >= open.scrolled_to);
    open.scrolled_to = top;
    if open.follows != follows {
        open.follows = follows;
        app.schedule();
    }
}

/// The keys for either end. A browser's own way there ends where the end was when it set out.
pub(super) fn scroll_key(app: &App, scroll: &Element, event: &KeyboardEvent) {
    let within = event.target().and_then(|target| target.dyn_into::<Element>().ok());
    if within.as_ref() != Some(scroll) || event.ctrl_key() || event.alt_key() || event.meta_key() || event.shift_key() {
        return;
    }
    let end = match event.key().as_str() {
        "End" => true,
        "Home" => false,
        _ => return,
    };
    event.prevent_default();
    if let Some(open) = &mut app.state().open {
        open.follows = end;
        if end {
            open.to_end();
        } else {
            scroll.set_scroll_top(0);
        }
    }
}

/// Stays at the end of `content` as it grows, while the reader wants that.
pub(super) fn follow_end(app: &App, content: &Element) {
    let following = app.clone();
    let changed = Closure::<dyn FnMut()>::new(move || {
        if let Some(open) = following.peek().open.as_ref().filter(|open| open.follows) {
            open.to_end();
        }
    });
    let Ok(observer) = ResizeObserver::new(changed.as_ref().unchecked_ref()) else { return };
    observer.observe(content);
    // Its place gets smaller too: by a keyboard on the screen, or a message box that grows.
    if let Some(scroll) = content.parent_element() {
        observer.observe(&scroll);
    }
    if let Some(open) = &mut app.peek().open {
        open.watched = Some(Watched { observer, _changed: changed });
    }
}

/// The open thread.
pub(super) fn view(state: &mut State) -> Draft {
    let unnamed = if state.thread().is_some() { "Conversation" } else { "New conversation" };
    let title = state.title().unwrap_or(unnamed).to_owned();
    let menu = shell::menu_button(state);
    let (online, link) = (state.online, state.link);
    let Some(open) = &mut state.open else { return element("main", &[]) };
    let bar = element("header", &[("class", "bar")]).with(menu).with(
        element("div", &[("class", "bar-title")])
            .with(element("h1", &[("dir", "auto")]).text(title))
            .with(element("p", &[("dir", "auto")]).text(open.agent.name.clone())),
    );
    let foot = element("footer", &[("class", "foot")]).with(status_line(open, online, link)).children(foot(open, online));
    element("main", &[("class", "conversation"), ("id", "main"), ("tabindex", "-1")])
        .key(Key::Number(open.number))
        .with(bar)
        .with(scroll(open))
        .with(jump(open))
        .with(foot)
}

/// What is always in sight: what went wrong, and where to write or why not.
fn foot(open: &Conversation, online: bool) -> Vec<Child> {
    let view = &open.view;
    let note = |words: String, dismiss: Action, test_id: &'static str| {
        element("div", &[("class", "note bad"), ("role", "alert")])
            .key(Key::Name(test_id))
            .set("data-testid", test_id)
            .with(element("p", &[]).text(words))
            .with(element("button", &[("type", "button"), ("class", "quiet")]).on("click", dismiss).text("Dismiss"))
            .done()
    };
    // That the live stream broke is a state, and the line above says it.
    let trouble = view.trouble.as_ref().filter(|trouble| trouble.attempt != Attempt::Stream).map(|trouble| {
        let checking = view.send_blocked == Some(turnfast_client_core::thread::SendBlocked::Checking);
        note(words::trouble(trouble, checking, open.sent_offline, online), Action::DismissTrouble, "trouble")
    });
    let files = open.file_trouble.clone().map(|trouble| note(trouble, Action::DismissFileTrouble, "file-trouble"));
    let mut children: Vec<_> = trouble.into_iter().chain(files).collect();
    if open.is_gone() {
        let gone = element("div", &[("class", "note bad"), ("role", "alert"), ("data-testid", "gone")])
            .key(Key::Name("gone"))
            .with(element("p", &[]).text(
                "This conversation is gone: it was deleted, or it is no longer yours to see. What is shown here goes when you leave it.",
            ))
            .with(element("button", &[("type", "button")]).on("click", Action::Fresh).text("Start a new one"));
        children.push(gone.done());
    } else if !open.may_send {
        let reader = element("p", &[("class", "note"), ("data-testid", "reader")])
            .key(Key::Name("reader"))
            .text("You can read here, but not send. Whoever runs this server can let you.");
        children.push(reader.done());
    } else if open.has_composer() {
        children.extend(composer::view(open).map(Draft::done));
    }
    children
}

/// The messages. Follows the end until the reader scrolls away from it.
fn scroll(open: &mut Conversation) -> Draft {
    let groups = element("div", &[("class", "messages")]).key(Key::Name("messages")).children(open.groups());
    let column = element("div", &[("class", "column")])
        .mounted(Action::FollowEnd)
        .with_some(in_place_of_messages(open))
        .with(groups)
        .children(notes(&open.view));
    element(
        "div",
        &[("class", "scroll"), ("tabindex", "0"), ("role", "region"), ("aria-label", "Messages"), ("data-testid", "messages")],
    )
    .on("scroll", Action::Scrolled)
    .on("keydown", Action::ScrollKey)
    .with(column)
}

fn jump(open: &Conversation) -> Draft {
    let button = (!open.follows).then(|| {
        element("button", &[("class", "jump"), ("data-testid", "jump")])
            .on("click", Action::Jump)
            .with(icon::down())
            .text("Jump to latest")
    });
    element("div", &[("class", "jump-place")]).with_some(button)
}

fn in_place_of_messages(open: &Conversation) -> Option<Draft> {
    match (&open.view.load, open.rows.is_empty()) {
        (Load::Loading, true) => {
            let place = element("div", &[("class", "skeleton tall"), ("role", "status"), ("data-testid", "loading")]);
            Some(sidebar::skeleton(place.key(Key::Name("loading")), "Loading the conversation…"))
        }
        (Load::NotFound, _) => Some(
            element("section", &[("class", "notice"), ("data-testid", "not-found")])
                .key(Key::Name("not-found"))
                .with(element("h2", &[]).text("There is no such conversation"))
                .with(element("p", &[]).text("It was deleted, or it belongs to someone else."))
                .with(element("button", &[("class", "primary")]).on("click", Action::Fresh).text("Start a new one")),
        ),
        (Load::Failed(failure), _) => Some(
            element("section", &[("class", "notice"), ("data-testid", "load-failed")])
                .key(Key::Name("load-failed"))
                .with(element("h2", &[]).text("The conversation could not be loaded"))
                .with(element("p", &[("role", "alert")]).text(words::failure(failure)))
                .with(element("button", &[("class", "primary")]).on("click", Action::ReloadThread).text("Try again")),
        ),
        (Load::New | Load::Loaded, true) => Some(welcome(open)),
        _ => None,
    }
}

/// What stands where there are no messages yet.
fn welcome(open: &Conversation) -> Draft {
    const TRIES: [(&str, &str); 6] = [
        ("/slow 60", "A slow reply. Close the tab midway and come back."),
        ("/think", "Reason first, then reply."),
        ("/tool", "Call a tool."),
        ("/approve", "Ask you before a tool runs."),
        ("/ask", "Ask you a question."),
        ("/delegate 40", "Let another agent do the work."),
    ];
    let agent = &open.agent;
    if !open.may_send {
        let section = element("section", &[("class", "welcome")]).key(Key::Name("welcome"));
        return section
            .with(element("h2", &[("dir", "auto")]).text(agent.name.clone()))
            .with(element("p", &[]).text("There is nothing to read yet."));
    }
    let files = open.takes_files().map(|_| element("p", &[]).text(["You can send it ", files::KINDS, "."].concat()));
    let tries = (agent.engine == "demo").then(|| {
        let tries = TRIES.into_iter().map(|(command, what)| {
            let button = element("button", &[])
                .on("click", Action::Try(command))
                .with(element("code", &[]).text(command))
                .with(element("span", &[]).text(what));
            element("li", &[]).with(button).done()
        });
        element("ul", &[("class", "tries")]).children(tries.collect())
    });
    element("section", &[("class", "welcome")])
        .key(Key::Name("welcome"))
        .with(element("h2", &[("dir", "auto")]).text(format!("What should {} do?", agent.name)))
        .with(element("p", &[]).text("A reply goes on when you close this tab. Come back, and it is here."))
        .with_some(files.filter(|_| tries.is_none()))
        .with_some(tries)
}

/// What the turn warned of.
fn notes(view: &View) -> Vec<Child> {
    let note = |Warning { message, .. }: &Warning| {
        element("p", &[("class", "note warning")]).with(element("strong", &[]).text("Note. ")).text(message.clone()).done()
    };
    // Of an empty reply the reply itself says so, also to whoever comes later.
    view.warnings.iter().filter(|warning| warning.code.as_deref() != Some("empty_reply")).map(note).collect()
}

/// How things stand, in one line of words.
fn status_line(open: &Conversation, online: bool, link: Link) -> Draft {
    let Status { state, words, again } = status(open, online, link);
    let again = again.then(|| {
        element("button", &[("type", "button"), ("class", "quiet"), ("data-testid", "again")])
            .on("click", Action::ReloadThread)
            .text("Try again")
    });
    element("p", &[("class", "status"), ("data-testid", "status")])
        .set("data-state", state)
        .with(element("span", &[("class", "dot"), ("aria-hidden", "true")]))
        .with(element("span", &[]).text(words))
        .with_some(again)
}

struct Status {
    state: &'static str,
    words: String,
    /// Whether nothing happens until the person, or the network, gives occasion.
    again: bool,
}

fn status(open: &Conversation, online: bool, link: Link) -> Status {
    let view = &open.view;
    let say = |state, words: &str| Status { state, words: words.to_owned(), again: false };
    if open.is_gone() || matches!(view.load, Load::NotFound) {
        return say("idle", "");
    }
    if !online {
        return say("offline", "You are offline. A turn does not need this page; it catches up when you are back.");
    }
    let waits = view.read_failure.is_some() && !view.catching_up;
    let again = |state, words: &str| Status { again: waits, ..say(state, words) };
    match link {
        Link::Restarting => return again("reconnecting", "The server is restarting. This page catches up when it is back."),
        Link::Lost => return again("reconnecting", words::CONNECTION_LOST),
        Link::Up => {}
    }
    match (&view.read_failure, &view.load) {
        // The page itself says so.
        (Some(_), Load::Failed(_)) => return say("idle", ""),
        (Some(_), Load::Loading) => return say("reconnecting", "Not loaded yet. Trying again…"),
        (Some(failure), _) if view.catching_up => {
            return say("reconnecting", &["Reconnecting… ", &words::failure(failure)].concat());
        }
        (Some(failure), _) => {
            return again("reconnecting", &["Not up to date. ", &words::failure(failure)].concat());
        }
        (None, _) => {}
    }
    if view.trouble.as_ref().is_some_and(|trouble| trouble.attempt == Attempt::Stream) {
        return say("reconnecting", words::CONNECTION_LOST);
    }
    if let Some(words) = words::running(view.running, view.stop) {
        return say(running_state(view.stop, view.running), words);
    }
    match view.interactions.len() {
        0 => say("idle", ""),
        1 => say("suspended", "Waiting for your answer above."),
        more => say("suspended", &format!("Waiting for {more} answers above.")),
    }
}

fn running_state(stop: Stop, running: Option<Running>) -> &'static str {
    match (stop, running) {
        (Stop::Stopping | Stop::WaitingForId, _) => "stopping",
        (_, Some(Running::Starting)) => "sending",
        (_, Some(Running::Live(_))) => "running",
        (_, Some(Running::Followed(_))) => "following",
        (_, None) => "idle",
    }
}
