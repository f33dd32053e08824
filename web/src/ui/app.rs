//! The page's state, what may happen to it, and what follows from that. Every change asks for a rendering with the next frame;
//! the views are functions of the state.

use std::{
    cell::{Cell, OnceCell, RefCell, RefMut},
    rc::Rc,
};

use turnfast_client_core::{
    browser::{Client, Scope, Subscription, ThreadHandle, forget_drafts},
    thread::Failure,
};
use turnfast_shared::{
    api::{Agent, Me, Project, PushEvent},
    ids::{MessageId, Slug, ThreadId},
    message::ResumeData,
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::spawn_local;
use web_sys::{Element, Event, HtmlDetailsElement, HtmlDialogElement, HtmlSelectElement};

use super::{
    composer,
    conversation::{self, Conversation, Fold},
    mount::Mount,
    node,
    page::{self, document, here, keep, kept, window},
    shell,
    sidebar::{Asking, ThreadList},
    signin,
};
use crate::{
    api::{self, Group},
    route::Route,
};

/// Where the agent that was open last is kept, so that `/` goes there.
const LAST_AGENT: &str = "turnfast.agent";

/// An element that is being described.
pub(super) type Draft = node::Draft<Action>;
/// A node of the page.
pub(super) type Child = node::Child<Action>;

/// Who is at this page.
pub(super) enum Session {
    /// Being asked.
    Checking,
    /// Nobody; with a word on why, where there is one.
    Out(Option<&'static str>),
    /// This user.
    In(Me),
    /// The server did not say.
    Failed(Failure),
}

/// What there is to talk to.
pub(super) enum Catalog {
    /// Being asked.
    Loading,
    /// This.
    Ready(Vec<Group>),
    /// The server did not say.
    Failed(Failure),
}

/// What a person does, and what elements want done once they are in the page.
#[derive(Clone)]
pub(super) enum Action {
    Recheck,
    ReloadCatalog,
    LeaveNowhere,
    OpenDrawer,
    CloseDrawer,
    SidebarKey,
    Follow(Route),
    PickAgent,
    SignIn,
    SignOut,
    RefreshThreads,
    MoreThreads,
    Ask(Asking),
    Rename(ThreadId),
    Delete(ThreadId),
    /// Of a button in a dialog.
    CloseDialog,
    DialogClosed,
    /// Keeps a dialog open that Escape would close.
    KeepOpen,
    ShowModal,
    Focus,
    Select,
    ReloadThread,
    Fresh,
    Try(&'static str),
    DismissTrouble,
    Jump,
    Scrolled,
    FollowEnd,
    Submit,
    Stop,
    Typed,
    ComposerKey,
    Composing(bool),
    FocusComposer,
    Folded(Fold),
    Unfold,
    CopyMessage(MessageId),
    Approve {
        call: Rc<str>,
        approved: bool,
    },
    Choose {
        call: Rc<str>,
        answer: String,
    },
    Answer {
        call: Rc<str>,
    },
}

/// All that the page shows.
pub(super) struct State {
    pub(super) session: Session,
    /// The session ended while something was open: it stays, under a dialog.
    pub(super) session_lost: bool,
    pub(super) signing_in: bool,
    pub(super) signin_error: Option<String>,
    pub(super) catalog: Catalog,
    pub(super) route: Route,
    pub(super) drawer: bool,
    pub(super) online: bool,
    /// What screen readers are told.
    pub(super) said: String,
    pub(super) list: ThreadList,
    /// What a dialog is open for, and what went wrong in it.
    pub(super) asking: Option<Asking>,
    pub(super) dialog_error: Option<String>,
    pub(super) open: Option<Conversation>,
    /// Counts what was opened: a conversation that is opened again is another one.
    opened: usize,
    /// The left column as it is shown, as long as nothing in it changed.
    pub(super) sidebar: Option<Child>,
    /// What gets the focus with the next rendering.
    focus_next: Option<&'static str>,
}

/// The page.
#[derive(Clone)]
pub(super) struct App(Rc<Inner>);

struct Inner {
    client: Client,
    state: RefCell<State>,
    mount: OnceCell<RefCell<Mount<Action>>>,
    waiting: Cell<bool>,
    frame: OnceCell<Closure<dyn FnMut()>>,
    pushed: OnceCell<Subscription>,
    title: RefCell<String>,
}

impl App {
    /// The page in `root`, which is empty.
    pub(super) fn start(root: Element) {
        let app = Self(Rc::new(Inner {
            client: Client::new(""),
            state: RefCell::new(State {
                session: Session::Checking,
                session_lost: false,
                signing_in: false,
                signin_error: None,
                catalog: Catalog::Loading,
                route: here(),
                drawer: false,
                online: window().navigator().on_line(),
                said: String::new(),
                list: ThreadList::default(),
                asking: None,
                dialog_error: None,
                open: None,
                opened: 0,
                sidebar: None,
                focus_next: None,
            }),
            mount: OnceCell::new(),
            waiting: Cell::new(false),
            frame: OnceCell::new(),
            pushed: OnceCell::new(),
            title: RefCell::default(),
        }));
        let acting = app.clone();
        let act = Box::new(move |action, element, event| acting.act(action, &element, Some(&event)));
        let _ = app.0.mount.set(RefCell::new(Mount::new(root, document(), act)));
        let rendering = app.clone();
        let _ = app.0.frame.set(Closure::new(move || rendering.render()));
        app.listen();
        app.load();
        app.render();
    }

    /// Listens to what concerns the whole page, for as long as that is there.
    fn listen(&self) {
        let app = self.clone();
        let heard = Closure::<dyn FnMut(Event)>::new(move |event: Event| match event.type_().as_str() {
            "popstate" => {
                app.state().drawer = false;
                app.open(here());
            }
            "online" => {
                app.state().online = true;
                app.refresh_threads();
            }
            "offline" => app.state().online = false,
            // The person may have signed in in another tab, by a link say.
            "focus" if app.peek().session_lost => app.look_again(),
            "click" => {
                page::copy_code(&event);
            }
            _ => {}
        });
        for name in ["popstate", "online", "offline", "focus", "click"] {
            let _ = window().add_event_listener_with_callback(name, heard.as_ref().unchecked_ref());
        }
        heard.forget();
    }

    /// The state, to be changed and then let go of: nothing that may call back is to be done before.
    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.schedule();
        let mut state = self.0.state.borrow_mut();
        state.sidebar = None;
        state
    }

    /// The state, to be looked at, or to be changed where the left column shows nothing of it.
    pub(super) fn peek(&self) -> RefMut<'_, State> {
        self.0.state.borrow_mut()
    }

    /// The open thread.
    pub(super) fn handle(&self) -> Option<ThreadHandle> {
        self.peek().open.as_ref().map(|open| open.handle.clone())
    }

    /// Renders with the next frame; in a hidden tab, which has no frames, a few times per second.
    pub(super) fn schedule(&self) {
        let Some(frame) = self.0.frame.get() else { return };
        if self.0.waiting.replace(true) {
            return;
        }
        let frame = frame.as_ref().unchecked_ref();
        let _ = if document().hidden() {
            window().set_timeout_with_callback_and_timeout_and_arguments_0(frame, 250)
        } else {
            window().request_animation_frame(frame)
        };
    }

    fn render(&self) {
        self.0.waiting.set(false);
        self.take_view();
        let (tree, title, focus) = {
            let mut state = self.peek();
            (shell::page(&mut state), shell::title(&state), state.focus_next.take())
        };
        let Some(mount) = self.0.mount.get() else { return };
        let wanted = mount.borrow_mut().show(&tree);
        for (action, element) in wanted {
            self.act(action, &element, None);
        }
        composer::show_draft(self);
        if let Some(selector) = focus {
            page::focus(page::find(selector));
        }
        if self.0.title.replace(title.clone()) != title {
            document().set_title(&title);
        }
    }

    /// Does what the person asked for by `event`, or, without one, what a new element wants.
    fn act(&self, action: Action, element: &Element, event: Option<&Event>) {
        match action {
            Action::Recheck => {
                self.state().session = Session::Checking;
                self.load();
            }
            Action::ReloadCatalog => {
                self.state().catalog = Catalog::Loading;
                let app = self.clone();
                spawn_local(async move { app.load_catalog().await });
            }
            Action::LeaveNowhere => {
                self.go(Route::Home);
                self.leave_home();
            }
            Action::OpenDrawer => {
                let mut state = self.state();
                state.drawer = true;
                state.focus_next = Some("#sidebar .menu");
            }
            Action::CloseDrawer => self.state().drawer = false,
            Action::SidebarKey => {
                if key_of(event).is_some_and(|event| event.key() == "Escape") && self.peek().drawer {
                    self.state().drawer = false;
                }
            }
            Action::Follow(route) => {
                if let Some(event) = event.filter(|event| page::plain_click(event)) {
                    event.prevent_default();
                    self.go(route);
                }
            }
            Action::PickAgent => {
                if let Some(select) = element.dyn_ref::<HtmlSelectElement>() {
                    self.go(Route::parse(&select.value()));
                }
            }
            Action::SignIn => {
                prevent(event);
                signin::submit(self, element);
            }
            Action::SignOut => self.sign_out(),
            Action::RefreshThreads => self.refresh_threads(),
            Action::MoreThreads => self.more_threads(),
            Action::Ask(asking) => {
                let mut state = self.state();
                state.asking = Some(asking);
                state.dialog_error = None;
            }
            Action::Rename(thread) => {
                prevent(event);
                self.rename_thread(thread, element);
            }
            Action::Delete(thread) => self.delete_thread(thread),
            Action::CloseDialog => close_dialog(),
            Action::DialogClosed => self.state().asking = None,
            Action::KeepOpen => prevent(event),
            Action::ShowModal => {
                if let Some(dialog) = element.dyn_ref::<HtmlDialogElement>() {
                    let _ = dialog.show_modal();
                }
            }
            Action::Focus => page::focus(Some(element.clone())),
            Action::Select => {
                if let Some(input) = element.dyn_ref::<web_sys::HtmlInputElement>() {
                    input.select();
                }
            }
            Action::Fresh => {
                let route = self.peek().open.as_ref().map(|open| open.route(None));
                if let Some(route) = route {
                    self.go(route);
                }
            }
            Action::ReloadThread
            | Action::Try(_)
            | Action::DismissTrouble
            | Action::Stop
            | Action::Approve { .. }
            | Action::Choose { .. }
            | Action::Answer { .. } => self.act_on_thread(action, element, event),
            Action::Submit => {
                prevent(event);
                composer::send(self);
            }
            Action::Typed => composer::typed(self, element),
            Action::ComposerKey => {
                if let Some(event) = key_of(event) {
                    composer::key(self, event);
                }
            }
            Action::Composing(composing) => {
                if let Some(open) = &mut self.peek().open {
                    open.composing = composing;
                }
            }
            Action::FocusComposer => {
                if !page::coarse_pointer() {
                    page::focus(Some(element.clone()));
                }
            }
            Action::Jump => {
                if let Some(open) = &mut self.state().open {
                    open.follows = true;
                    open.to_end();
                }
            }
            Action::Scrolled => conversation::scrolled(self, element),
            Action::FollowEnd => conversation::follow_end(self, element),
            Action::Folded(fold) => {
                let unfolded = element.dyn_ref::<HtmlDetailsElement>().is_some_and(HtmlDetailsElement::open);
                if let Some(open) = &mut self.peek().open {
                    open.fold(fold, unfolded);
                }
                self.schedule();
            }
            Action::Unfold => {
                if let Some(details) = element.dyn_ref::<HtmlDetailsElement>() {
                    details.set_open(true);
                }
            }
            Action::CopyMessage(id) => {
                let text = self.peek().open.as_ref().and_then(|open| open.copied(id));
                if let Some(text) = text {
                    page::copy(text, element.clone());
                }
            }
        }
    }

    fn act_on_thread(&self, action: Action, element: &Element, event: Option<&Event>) {
        let Some(handle) = self.handle() else { return };
        let answerable = |call: &str| conversation::is_answerable(&handle, call);
        match action {
            Action::ReloadThread => handle.switch(handle.view().thread),
            Action::Try(command) => {
                handle.set_draft(command);
                page::focus_composer();
            }
            Action::DismissTrouble => handle.dismiss_trouble(),
            Action::Stop => {
                handle.stop();
                page::focus_composer();
            }
            Action::Approve { call, approved } if answerable(&call) => {
                let form = element.closest("fieldset").ok().flatten();
                let reason = form.and_then(|form| page::input(&form, "input")).map(|input| input.value().trim().to_owned());
                let reason = reason.filter(|reason| !reason.is_empty());
                handle.answer(&call, ResumeData::Approval { approved, reason });
                page::focus_composer();
            }
            Action::Choose { call, answer } if answerable(&call) => {
                handle.answer(&call, ResumeData::Answer { answer });
                page::focus_composer();
            }
            Action::Answer { call } => {
                prevent(event);
                let answer = page::input(element, "input").map(|input| input.value()).unwrap_or_default();
                if answerable(&call) && !answer.trim().is_empty() {
                    handle.answer(&call, ResumeData::Answer { answer });
                    page::focus_composer();
                }
            }
            _ => {}
        }
    }

    /// Tells screen readers, politely.
    pub(super) fn say(&self, what: impl Into<String>) {
        self.state().said = what.into();
    }

    pub(super) fn go(&self, route: Route) {
        self.state().drawer = false;
        put(&route, false);
        self.open(route);
    }

    /// As [`App::go`], without a step to go back to.
    pub(super) fn go_instead(&self, route: Route) {
        put(&route, true);
        self.open(route);
    }

    /// What is open got this address; it stays as it is.
    pub(super) fn adopt(&self, route: Route) {
        put(&route, true);
        self.state().route = route;
    }

    /// Opens what `route` names, where that is there already.
    fn open(&self, route: Route) {
        let found = {
            let mut state = self.state();
            state.route = route.clone();
            state.opened += 1;
            match &route {
                Route::Agent { project, agent, thread } => {
                    state.find(project, agent).map(|(project, agent)| (state.opened, project.id.clone(), agent.clone(), *thread))
                }
                _ => None,
            }
        };
        let opened = found.map(|(number, project, agent, thread)| {
            self.show_threads(&project, &agent.id);
            let handle = self.0.client.open(project.clone(), agent.id.clone(), thread);
            let app = self.clone();
            let subscription = handle.subscribe(move || app.schedule());
            Conversation::new(number, project, agent, handle, subscription)
        });
        // The thread that is closed tells its subscribers so.
        let closed = std::mem::replace(&mut self.peek().open, opened);
        drop(closed);
    }

    /// Asks who is signed in, and then what there is.
    pub(super) fn load(&self) {
        let expired = window().location().search().is_ok_and(|search| search.contains("signin=expired"));
        let app = self.clone();
        spawn_local(async move {
            match api::me().await {
                Ok(me) => {
                    app.state().session = Session::In(me);
                    app.hear();
                    app.load_catalog().await;
                }
                Err(failure) if api::is_signed_out(&failure) => {
                    app.state().session = Session::Out(expired.then_some(signin::LINK_USED_UP));
                }
                Err(failure) => app.state().session = Session::Failed(failure),
            }
        });
    }

    /// Hears of changes in threads from now on.
    fn hear(&self) {
        self.0.pushed.get_or_init(|| {
            let app = self.clone();
            self.0.client.on_push(move |event| match event {
                PushEvent::Connected => app.refresh_threads(),
                PushEvent::AgentExecutionUpdated(update) => app.notified(update),
                PushEvent::Ping => {}
            })
        });
    }

    async fn load_catalog(&self) {
        match api::groups().await {
            Ok(groups) => {
                self.state().catalog = Catalog::Ready(groups);
                let route = self.peek().route.clone();
                let home = route == Route::Home;
                self.open(route);
                if home {
                    self.leave_home();
                }
            }
            Err(failure) if api::is_signed_out(&failure) => self.state().session = Session::Out(None),
            Err(failure) => self.state().catalog = Catalog::Failed(failure),
        }
    }

    /// From `/` to the one agent there is, or to the one that was open last.
    fn leave_home(&self) {
        let target = self.peek().usual();
        if let Some(route) = target {
            self.go_instead(route);
        }
    }

    fn sign_out(&self) {
        let app = self.clone();
        spawn_local(async move {
            match api::sign_out().await {
                Ok(()) => {
                    // Everything of this person leaves the screen, the memory and what this browser keeps.
                    forget_drafts(&Scope::global());
                    page::start_over();
                }
                Err(failure) if api::is_signed_out(&failure) => page::start_over(),
                Err(failure) => app.say(format!("Signing out failed. {failure}")),
            }
        });
    }

    /// The session ended here: whether someone is signed in by now.
    pub(super) fn look_again(&self) {
        let app = self.clone();
        spawn_local(async move {
            let Ok(me) = api::me().await else { return };
            let same = matches!(&app.peek().session, Session::In(before) if before.name == me.name);
            if !same {
                // Someone else: nothing of the one before may stay.
                page::start_over();
                return;
            }
            app.state().session_lost = false;
            app.refresh_threads();
            // What was missed is read.
            if let Some(handle) = app.handle() {
                handle.signed_in();
            }
        });
    }
}

impl State {
    /// The project and agent of those ids, where the person may use them.
    pub(super) fn find(&self, project: &Slug, agent: &Slug) -> Option<(&Project, &Agent)> {
        let Catalog::Ready(groups) = &self.catalog else { return None };
        let group = groups.iter().find(|group| group.project.id == *project)?;
        let agent = group.agents.iter().find(|candidate| candidate.id == *agent)?;
        Some((&group.project, agent))
    }

    /// The thread that the address names.
    pub(super) fn thread(&self) -> Option<ThreadId> {
        match &self.route {
            Route::Agent { thread, .. } => *thread,
            _ => None,
        }
    }

    /// The title of the thread that the address names, where the list has it.
    pub(super) fn title(&self) -> Option<&str> {
        self.list.title(self.thread()?)
    }

    fn usual(&self) -> Option<Route> {
        let Catalog::Ready(groups) = &self.catalog else { return None };
        let mut routes = groups.iter().flat_map(|group| {
            let route = |agent: &Agent| Route::Agent { project: group.project.id.clone(), agent: agent.id.clone(), thread: None };
            group.agents.iter().map(route)
        });
        let last = kept(LAST_AGENT);
        let first = routes.next()?;
        let Some(second) = routes.next() else { return Some(first) };
        [first, second].into_iter().chain(routes).find(|route| last.as_ref() == Some(&route.path()))
    }
}

fn put(route: &Route, replace: bool) {
    let Ok(history) = window().history() else { return };
    let path = route.path();
    let _ = if replace {
        history.replace_state_with_url(&JsValue::NULL, "", Some(&path))
    } else {
        history.push_state_with_url(&JsValue::NULL, "", Some(&path))
    };
    if let Route::Agent { project, agent, .. } = route {
        keep(LAST_AGENT, &format!("/{project}/{agent}"));
    }
}

fn prevent(event: Option<&Event>) {
    if let Some(event) = event {
        event.prevent_default();
    }
}

fn key_of(event: Option<&Event>) -> Option<&web_sys::KeyboardEvent> {
    event?.dyn_ref()
}

/// Closes the dialog about a thread, which gives the focus back.
pub(super) fn close_dialog() {
    if let Some(dialog) = page::find("dialog[open]").and_then(|dialog| dialog.dyn_into::<HtmlDialogElement>().ok()) {
        dialog.close();
    }
}
