//! The page's state, what may happen to it, and what follows from that. Every change asks for a rendering with the next frame;
//! the views are functions of the state.

use std::{
    cell::{Cell, OnceCell, RefCell, RefMut},
    rc::Rc,
};

use turnfast_client_core::{
    browser::{Client, Subscription, ThreadHandle},
    thread::Failure,
};
use turnfast_shared::{
    Code,
    api::{Agent, Me, NewAttachment, PushEvent},
    ids::{MessageId, Slug, ThreadId, UserId},
    message::ResumeData,
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::spawn_local;
use web_sys::{Element, Event, HtmlDetailsElement, HtmlDialogElement, HtmlSelectElement};

use super::{
    composer,
    conversation::{self, Conversation, Fold},
    files,
    mount::Mount,
    node,
    page::{self, document, forget, here, keep, kept, window},
    shell,
    sidebar::{Asking, ThreadList},
    signin,
};
use crate::{
    api::{self, Group},
    route::Route,
    words,
};

/// Where the agent that was open last is kept, so that `/` goes there.
const LAST_AGENT: &str = "turnfast.agent";

/// Where the id of the user who is signed in is kept, as far as the tabs of this browser know. Each hears when another changes it.
const USER: &str = "turnfast.user";

/// Widest page on which the left column is a drawer, in CSS pixels; as in app.css.
const DRAWER_UP_TO: f64 = 720.0;

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

/// What somebody had open when their session ended. It is theirs alone: whoever else signs in never sees it.
struct Before {
    user: UserId,
    route: Route,
    draft: Rc<str>,
    attachments: Rc<Vec<NewAttachment>>,
}

/// Whether changes are heard of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// As far as the page knows.
    Up,
    /// The connection is gone, and nothing says why.
    Lost,
    /// The server said that it goes down.
    Restarting,
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
    Skip(&'static str),
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
    ShowModal,
    Focus,
    Select,
    ReloadThread,
    Fresh,
    Try(&'static str),
    DismissTrouble,
    Jump,
    Scrolled,
    ScrollKey,
    FollowEnd,
    Submit,
    Stop,
    Typed,
    ComposerKey,
    Composing(bool),
    FocusComposer,
    PickFiles,
    FilesPicked,
    Pasted,
    RemoveFile(usize),
    DismissFileTrouble,
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
    before: Option<Before>,
    pub(super) signing_in: bool,
    /// Why somebody is still signed in who did not want to be.
    pub(super) signout_error: Option<String>,
    pub(super) signin_error: Option<String>,
    pub(super) catalog: Catalog,
    pub(super) route: Route,
    pub(super) drawer: bool,
    pub(super) online: bool,
    pub(super) link: Link,
    /// How often the connection for changes was lost since it last stood.
    losses: usize,
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
    pub(super) focus_next: Option<&'static str>,
}

/// The page.
#[derive(Clone)]
pub(super) struct App(Rc<Inner>);

struct Inner {
    /// Of the user who is signed in.
    client: RefCell<Option<Connected>>,
    state: RefCell<State>,
    mount: OnceCell<RefCell<Mount<Action>>>,
    waiting: Cell<bool>,
    frame: OnceCell<Closure<dyn FnMut()>>,
    title: RefCell<String>,
}

/// A user's connection to the server.
struct Connected {
    client: Client,
    _subscriptions: [Subscription; 2],
}

impl App {
    /// The page in `root`, which is empty.
    pub(super) fn start(root: Element) {
        let app = Self(Rc::new(Inner {
            client: RefCell::default(),
            state: RefCell::new(State {
                session: Session::Checking,
                before: None,
                signing_in: false,
                signout_error: None,
                signin_error: None,
                catalog: Catalog::Loading,
                route: here(),
                drawer: false,
                online: window().navigator().on_line(),
                link: Link::Up,
                losses: 0,
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
            // Another tab signed somebody in or out.
            "storage" => app.compare_user(),
            // It may come back from the browser's memory when somebody else is here: nothing shows before that is known.
            "pagehide" => page::veil(true),
            // What happened while the page slept, or lay in the browser's memory, was not heard of.
            "pageshow" | "visibilitychange" if !document().hidden() => {
                app.compare_user();
                app.check();
                if event.type_() == "pageshow" {
                    app.render();
                    page::veil(false);
                }
            }
            // A frame that was asked for does not come any more.
            "visibilitychange" if app.0.waiting.take() => app.schedule(),
            // The person may have signed in elsewhere, by a link say.
            "focus" if matches!(app.peek().session, Session::Out(_)) => app.check(),
            "resize" if app.peek().drawer && !page::narrower_than(DRAWER_UP_TO) => app.state().drawer = false,
            "keydown" if app.peek().drawer && page::is_escape(&event) => app.close_drawer(),
            "dragover" | "drop" => files::dragged(&app, &event),
            "click" => {
                page::copy_code(&event);
            }
            _ => {}
        });
        let names = [
            "popstate", "online", "offline", "storage", "pageshow", "pagehide", "focus", "resize", "keydown", "dragover", "drop",
            "click",
        ];
        for name in names {
            let _ = window().add_event_listener_with_callback(name, heard.as_ref().unchecked_ref());
        }
        let _ = document().add_event_listener_with_callback("visibilitychange", heard.as_ref().unchecked_ref());
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
            Action::CloseDrawer => self.close_drawer(),
            Action::Skip(target) => {
                prevent(event);
                page::focus(page::find(target));
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
            Action::Fresh => self.start_fresh(),
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
            Action::PickFiles => files::pick(),
            Action::FilesPicked => files::picked(self, element),
            Action::Pasted => {
                if let Some(event) = event {
                    files::pasted(self, event);
                }
            }
            Action::RemoveFile(at) => files::remove(self, at),
            Action::DismissFileTrouble => {
                if let Some(open) = &mut self.state().open {
                    open.file_trouble = None;
                }
            }
            Action::Jump => {
                if let Some(open) = &mut self.state().open {
                    open.follows = true;
                    open.to_end();
                }
            }
            Action::Scrolled => conversation::scrolled(self, element),
            Action::ScrollKey => {
                if let Some(event) = key_of(event) {
                    conversation::scroll_key(self, element, event);
                }
            }
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
            Action::ReloadThread => {
                handle.switch(handle.view().thread);
                self.refresh_threads();
            }
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
        {
            let mut state = self.state();
            if std::mem::take(&mut state.drawer) {
                // The focus was in what is hidden now.
                state.focus_next = Some(if page::coarse_pointer() { MENU } else { "#composer" });
            }
        }
        put(&route, false);
        self.open(route);
    }

    fn close_drawer(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.drawer) {
            state.focus_next = Some(MENU);
        }
    }

    /// A new conversation with the same agent. What was written for one that is deleted goes along.
    fn start_fresh(&self) {
        let found = self.peek().open.as_ref().map(|open| (open.route(None), open.handle.view()));
        let Some((route, view)) = found else { return };
        self.go(route);
        self.write(&view.draft, &view.attachments);
    }

    /// Puts a draft where there is none.
    fn write(&self, draft: &str, attachments: &Rc<Vec<NewAttachment>>) {
        let Some(handle) = self.handle() else { return };
        let view = handle.view();
        if view.draft.is_empty() && !draft.is_empty() {
            handle.set_draft(draft);
        }
        if view.attachments.is_empty() && !attachments.is_empty() {
            handle.set_attachments(attachments.to_vec());
        }
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
                Route::Agent { project, agent, thread } => state
                    .find(project, agent)
                    .map(|(group, agent)| (state.opened, group.project.id.clone(), agent.clone(), group.may_execute(), *thread)),
                _ => None,
            }
        };
        let client = self.0.client.borrow().as_ref().map(|connected| connected.client.clone());
        let opened = found.zip(client).map(|((number, project, agent, may_send, thread), client)| {
            self.show_threads(&project, &agent.id);
            let handle = client.open(project.clone(), agent.id.clone(), thread);
            let app = self.clone();
            let subscription = handle.subscribe(move || app.schedule());
            Conversation::new(number, project, agent, may_send, handle, subscription)
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
                Ok(me) => app.signed_in(me).await,
                Err(failure) if api::is_signed_out(&failure) => {
                    forget(USER);
                    app.state().session = Session::Out(expired.then_some(signin::LINK_USED_UP));
                }
                Err(failure) => app.state().session = Session::Failed(failure),
            }
        });
    }

    /// Somebody is signed in: the page becomes theirs.
    async fn signed_in(&self, me: Me) {
        let (user, before) = {
            let mut state = self.state();
            let user = match &state.session {
                Session::In(now) => Some(now.id),
                _ => state.before.as_ref().map(|before| before.user),
            };
            if matches!(state.session, Session::In(_)) && user == Some(me.id) {
                return;
            }
            (user, state.before.take())
        };
        if user.is_some_and(|user| user != me.id) {
            // Nothing of the one before may stay.
            self.signed_out();
            page::start_over();
            return;
        }
        keep(USER, &me.id.to_string());
        self.connect(me.id);
        self.state().session = Session::In(me);
        self.load_catalog().await;
        if let Some(before) = before.filter(|before| before.route == self.peek().route) {
            self.write(&before.draft, &before.attachments);
        }
    }

    /// The session is over: what belongs to it leaves the page at once, and what was typed waits for its writer.
    pub(super) fn signed_out(&self) {
        let (closed, user) = {
            let mut state = self.state();
            let Session::In(me) = &state.session else { return };
            let user = me.id;
            let open = state.open.take();
            let (draft, attachments) = open
                .as_ref()
                .map(|open| open.handle.view())
                .map_or_else(|| (Rc::from(""), Rc::default()), |view| (view.draft, view.attachments));
            state.before = Some(Before { user, route: state.route.clone(), draft, attachments });
            state.session = Session::Out(Some(signin::SESSION_OVER));
            state.catalog = Catalog::Loading;
            state.list.clear();
            state.asking = None;
            state.dialog_error = None;
            state.signin_error = None;
            state.signing_in = false;
            state.signout_error = None;
            state.drawer = false;
            state.said = String::new();
            state.link = Link::Up;
            (open, user)
        };
        // Both tell subscribers, which look at the state.
        drop(closed);
        let connection = self.0.client.take();
        drop(connection);
        if kept(USER) == Some(user.to_string()) {
            forget(USER);
        }
    }

    /// Compares who this tab thinks is signed in with what the tabs of this browser last knew.
    fn compare_user(&self) {
        let user = match &self.peek().session {
            Session::In(me) => Some(me.id.to_string()),
            _ => None,
        };
        let known = kept(USER);
        if known == user {
            return;
        }
        if user.is_some() {
            self.signed_out();
        }
        if known.is_some() {
            self.check();
        }
    }

    /// Asks again who is signed in, and follows.
    pub(super) fn check(&self) {
        if matches!(self.peek().session, Session::Checking) {
            return;
        }
        let app = self.clone();
        spawn_local(async move {
            match api::me().await {
                Ok(me) => app.signed_in(me).await,
                Err(failure) if api::is_signed_out(&failure) => app.signed_out(),
                Err(_) => {}
            }
        });
    }

    /// Hears of changes in the user's threads from now on.
    fn connect(&self, user: UserId) {
        let client = Client::new("");
        client.set_user(user);
        let (heard, lost) = (self.clone(), self.clone());
        let subscriptions = [
            client.on_push(move |event| {
                if *event == PushEvent::Connected {
                    heard.linked();
                    heard.refresh_threads();
                } else if let PushEvent::AgentExecutionUpdated(update) = event {
                    heard.notified(update);
                }
            }),
            client.on_push_lost(move || lost.link_lost()),
        ];
        self.0.client.replace(Some(Connected { client, _subscriptions: subscriptions }));
    }

    fn linked(&self) {
        let mut state = self.state();
        state.losses = 0;
        state.link = Link::Up;
    }

    /// The connection for changes broke, or was refused; browsers do not say why, so this asks. A proxy that cuts streams is no news:
    /// the connection comes back by itself.
    fn link_lost(&self) {
        self.peek().losses += 1;
        let app = self.clone();
        spawn_local(async move {
            let found = match api::me().await {
                Ok(_) => api::ready().await,
                Err(failure) => Err(failure),
            };
            match found {
                Err(failure) if api::is_signed_out(&failure) => app.signed_out(),
                found => {
                    let mut state = app.state();
                    match found {
                        // It stands again, or what is known says more.
                        _ if state.losses == 0 || state.link == Link::Restarting => {}
                        Err(failure) if failure.code() == Some(Code::ShuttingDown) => state.link = Link::Restarting,
                        Ok(()) if state.losses == 1 => {}
                        _ => state.link = Link::Lost,
                    }
                }
            }
        });
    }

    async fn load_catalog(&self) {
        let groups = api::groups().await;
        if !matches!(self.peek().session, Session::In(_)) {
            return;
        }
        match groups {
            Ok(groups) => {
                self.state().catalog = Catalog::Ready(groups);
                let route = self.peek().route.clone();
                let home = route == Route::Home;
                self.open(route);
                if home {
                    self.leave_home();
                }
            }
            Err(failure) if api::is_signed_out(&failure) => self.signed_out(),
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
                Err(failure) if !api::is_signed_out(&failure) => {
                    app.state().signout_error = Some(format!("You are still signed in. {}", words::failure(&failure)));
                }
                _ => {
                    // The other tabs hear of it. What this one shows goes now, for a page that is left may be kept as it is and come
                    // back; what it holds goes with it. Drafts wait for their writer.
                    forget(USER);
                    app.signed_out();
                    app.render();
                    page::start_over();
                }
            }
        });
    }
}

impl State {
    /// Whether somebody was signed in here, and is not any more.
    pub(super) fn was_signed_in(&self) -> bool {
        self.before.is_some()
    }

    /// The agent of those ids, where the person may use it, and the group that it is of.
    pub(super) fn find(&self, project: &Slug, agent: &Slug) -> Option<(&Group, &Agent)> {
        let Catalog::Ready(groups) = &self.catalog else { return None };
        let group = groups.iter().find(|group| group.project.id == *project)?;
        let agent = group.agents.iter().find(|candidate| candidate.id == *agent)?;
        Some((group, agent))
    }

    /// Whether the person may send and change anything at the open agent.
    pub(super) fn may_execute(&self) -> bool {
        let Route::Agent { project, agent, .. } = &self.route else { return false };
        self.find(project, agent).is_some_and(|(group, _)| group.may_execute())
    }

    /// The thread that the address names.
    pub(super) fn thread(&self) -> Option<ThreadId> {
        match &self.route {
            Route::Agent { thread, .. } => *thread,
            _ => None,
        }
    }

    /// The title of the thread that the address names: as the list has it, or had it.
    pub(super) fn title(&self) -> Option<&str> {
        self.list.title(self.thread()?).or_else(|| self.open.as_ref()?.title.as_deref())
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

/// The button that opens the drawer.
const MENU: &str = "main .menu";

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
