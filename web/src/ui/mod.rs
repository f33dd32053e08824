//! The views. Each shows what it is given and hands intents on.

#![expect(unreachable_pub, reason = "leptos makes components public within their module, whatever their own visibility")]

mod composer;
mod conversation;
mod dom;
mod icon;
mod interaction;
mod message;
mod sidebar;
mod signin;
mod tool;

pub use dom::Rendered;

use std::{cell::Cell, rc::Rc};

use leptos::{ev, prelude::*, task::spawn_local};
use turnfast_client_core::{
    browser::{Client, forget_drafts},
    thread::Failure,
};
use turnfast_shared::{
    Code,
    api::{Agent, Me, Project},
    ids::{Slug, ThreadId},
};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};

use crate::{
    api::{self, Group},
    route::Route,
};
use conversation::Conversation;
use sidebar::{Sidebar, ThreadList};
use signin::{SignInDialog, SignInPage};

/// Where the agent that was open last is kept, so that `/` goes there.
const LAST_AGENT: &str = "turnfast.agent";

/// Puts the page into its document and starts it.
pub fn start() {
    console_error_panic_hook::set_once();
    let Some(root) = document().get_element_by_id("app").and_then(|root| root.dyn_into::<web_sys::HtmlElement>().ok()) else {
        return;
    };
    root.set_inner_text("");
    mount_to(root, Page).forget();
}

/// Who is at this page.
#[derive(Clone, Debug, PartialEq)]
enum Session {
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
#[derive(Clone, Debug, PartialEq)]
enum Catalog {
    Loading,
    Ready(Vec<Group>),
    Failed(Failure),
}

/// What all views share.
#[derive(Clone, Copy)]
struct App {
    client: StoredValue<Client, LocalStorage>,
    session: RwSignal<Session>,
    /// The session ended while something was open: it stays, under a dialog.
    session_lost: RwSignal<bool>,
    catalog: RwSignal<Catalog>,
    route: RwSignal<Route>,
    /// What is open, and has its view. It differs from `route` for a moment only: a new thread gets an address and stays open.
    opened: RwSignal<Route>,
    threads: ThreadList,
    drawer: RwSignal<bool>,
    online: RwSignal<bool>,
    /// What screen readers are told.
    said: RwSignal<String>,
}

fn app() -> App {
    expect_context()
}

impl App {
    fn new() -> Self {
        let route = here();
        Self {
            client: StoredValue::new_local(Client::new("")),
            session: RwSignal::new(Session::Checking),
            session_lost: RwSignal::new(false),
            catalog: RwSignal::new(Catalog::Loading),
            route: RwSignal::new(route.clone()),
            opened: RwSignal::new(route),
            threads: ThreadList::new(),
            drawer: RwSignal::new(false),
            online: RwSignal::new(window().navigator().on_line()),
            said: RwSignal::new(String::new()),
        }
    }

    /// Tells screen readers, politely.
    fn say(self, what: impl Into<String>) {
        self.said.set(what.into());
    }

    fn go(self, route: Route) {
        self.drawer.set(false);
        self.put(&route, false);
        self.opened.set(route.clone());
        self.route.set(route);
    }

    /// As [`App::go`], without a step to go back to.
    fn go_instead(self, route: Route) {
        self.put(&route, true);
        self.opened.set(route.clone());
        self.route.set(route);
    }

    /// What is open got this address; it stays as it is.
    fn adopt(self, route: Route) {
        self.put(&route, true);
        self.route.set(route);
    }

    fn put(self, route: &Route, replace: bool) {
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

    /// Asks who is signed in, and then what there is.
    fn load(self) {
        let expired = window().location().search().is_ok_and(|search| search.contains("signin=expired"));
        spawn_local(async move {
            match api::me().await {
                Ok(me) => {
                    self.session.set(Session::In(me));
                    self.load_catalog().await;
                }
                Err(failure) if api::is_signed_out(&failure) => {
                    self.session.set(Session::Out(expired.then_some(signin::LINK_USED_UP)))
                }
                Err(failure) => self.session.set(Session::Failed(failure)),
            }
        });
    }

    async fn load_catalog(self) {
        match api::groups().await {
            Ok(groups) => {
                self.catalog.set(Catalog::Ready(groups));
                if self.route.get_untracked() == Route::Home {
                    self.leave_home();
                }
            }
            Err(failure) if api::is_signed_out(&failure) => self.session.set(Session::Out(None)),
            Err(failure) => self.catalog.set(Catalog::Failed(failure)),
        }
    }

    /// From `/` to the one agent there is, or to the one that was open last.
    fn leave_home(self) {
        let target = self.catalog.with_untracked(|catalog| {
            let Catalog::Ready(groups) = catalog else { return None };
            let mut agents = groups.iter().flat_map(|group| group.agents.iter().map(|agent| (&group.project.id, &agent.id)));
            let last = kept(LAST_AGENT);
            let found = agents.clone().find(|(project, agent)| last.as_deref() == Some(&format!("/{project}/{agent}")));
            let only = agents.next().filter(|_| agents.next().is_none());
            found.or(only).map(|(project, agent)| (project.clone(), agent.clone()))
        });
        if let Some((project, agent)) = target {
            self.go_instead(Route::Agent { project, agent, thread: None });
        }
    }

    fn sign_out(self) {
        spawn_local(async move {
            match api::sign_out().await {
                Ok(()) => {
                    // Everything of this person leaves the screen, the memory and what this browser keeps.
                    forget_drafts();
                    let _ = window().location().assign("/");
                }
                Err(failure) if api::is_signed_out(&failure) => {
                    let _ = window().location().assign("/");
                }
                Err(failure) => self.say(format!("Signing out failed. {failure}")),
            }
        });
    }

    /// The project and agent of those ids, where the person may use them.
    fn find(self, project: &Slug, agent: &Slug) -> Option<(Project, Agent)> {
        self.catalog.with(|catalog| {
            let Catalog::Ready(groups) = catalog else { return None };
            let group = groups.iter().find(|group| group.project.id == *project)?;
            let agent = group.agents.iter().find(|candidate| candidate.id == *agent)?;
            Some((group.project.clone(), agent.clone()))
        })
    }

    /// The thread that the address names.
    fn thread(self) -> Option<ThreadId> {
        self.route.with(|route| match route {
            Route::Agent { thread, .. } => *thread,
            _ => None,
        })
    }
}

fn here() -> Route {
    Route::parse(&window().location().pathname().unwrap_or_default())
}

fn kept(key: &str) -> Option<String> {
    window().local_storage().ok()??.get_item(key).ok()?
}

fn keep(key: &str, value: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        let _ = storage.set_item(key, value);
    }
}

fn now() -> turnfast_shared::Millis {
    js_sys::Date::now() as turnfast_shared::Millis
}

/// Milliseconds since the epoch of an RFC 3339 time.
fn millis(time: &str) -> Option<turnfast_shared::Millis> {
    let at = js_sys::Date::parse(time);
    at.is_finite().then_some(at as turnfast_shared::Millis)
}

/// A point in time in the reader's own way of writing it.
fn local_time(time: &str) -> String {
    let date = js_sys::Date::new(&JsValue::from_str(time));
    if date.get_time().is_nan() { String::new() } else { String::from(date.to_locale_string("default", &JsValue::UNDEFINED)) }
}

/// Whether a click on a link is one that the page should take, and not the browser (new tab, new window, download).
fn plain_click(event: &web_sys::MouseEvent) -> bool {
    event.button() == 0 && !event.ctrl_key() && !event.meta_key() && !event.shift_key() && !event.alt_key()
}

#[component]
fn Page() -> impl IntoView {
    let app = App::new();
    provide_context(app);
    app.load();

    let popped = window_event_listener(ev::popstate, move |_| {
        let route = here();
        app.drawer.set(false);
        app.opened.set(route.clone());
        app.route.set(route);
    });
    let online = window_event_listener(ev::online, move |_| {
        app.online.set(true);
        app.threads.refresh(app);
    });
    let offline = window_event_listener(ev::offline, move |_| app.online.set(false));
    on_cleanup(move || {
        popped.remove();
        online.remove();
        offline.remove();
    });
    copy_on_click();

    Effect::new(move |_| {
        let title = app.route.with(|route| match route {
            Route::Agent { project, agent, thread } => {
                let title = thread.and_then(|thread| app.threads.title(thread));
                title.or_else(|| app.find(project, agent).map(|(_, agent)| agent.name))
            }
            _ => None,
        });
        document().set_title(&title.map_or_else(|| "Turnfast".to_owned(), |title| format!("{title} · Turnfast")));
    });

    view! {
        <a class="skip" href="#composer">"Skip to the message box"</a>
        <div class="said" role="status" aria-live="polite" data-testid="announcer">{move || app.said.get()}</div>
        {move || match app.session.get() {
            Session::Checking => view! { <div class="splash" role="status">"Loading…"</div> }.into_any(),
            Session::Out(notice) => view! { <SignInPage notice/> }.into_any(),
            Session::Failed(failure) => view! { <Unreachable failure/> }.into_any(),
            Session::In(me) => view! { <Shell me/> }.into_any(),
        }}
    }
}

/// The server did not say who is signed in.
#[component]
fn Unreachable(failure: Failure) -> impl IntoView {
    let app = app();
    view! {
        <main class="notice" id="main">
            <h1>"Turnfast cannot be reached"</h1>
            <p role="alert">{failure.to_string()}</p>
            <p>"Turns that were running go on without this page."</p>
            <button class="primary" on:click=move |_| { app.session.set(Session::Checking); app.load() }>"Try again"</button>
        </main>
    }
}

#[component]
fn Shell(me: Me) -> impl IntoView {
    let app = app();
    let name = me.name.clone();
    view! {
        <div class="shell" class:drawer-open=move || app.drawer.get()>
            <Sidebar me=me/>
            <div class="scrim" on:click=move |_| app.drawer.set(false)></div>
            {move || {
                let route = app.opened.get();
                match app.catalog.get() {
                    Catalog::Loading => view! { <main class="notice" id="main"><p role="status">"Loading…"</p></main> }.into_any(),
                    Catalog::Failed(failure) => catalog_failed(app, &failure).into_any(),
                    Catalog::Ready(groups) => match route {
                        Route::Agent { project, agent, thread } => match app.find(&project, &agent) {
                            Some((_, agent)) => view! { <Conversation project agent thread/> }.into_any(),
                            None => nowhere("There is no such agent, or it is not yours to use.").into_any(),
                        },
                        Route::Home => view! { <Chooser groups/> }.into_any(),
                        Route::Unknown => nowhere("There is no such page.").into_any(),
                    },
                }
            }}
            <Show when=move || app.session_lost.get()>
                <SignInDialog name=name.clone()/>
            </Show>
        </div>
    }
}

fn catalog_failed(app: App, failure: &Failure) -> impl IntoView {
    let disabled = failure.code() == Some(Code::AgentsDisabled);
    view! {
        <main class="notice" id="main">
            <MenuButton/>
            <h1>{if disabled { "Agents are switched off" } else { "The list of agents could not be loaded" }}</h1>
            <p role="alert">
                {if disabled { "Whoever runs this server has switched the Agents feature off. Nothing that was recorded is lost.".to_owned() } else { failure.to_string() }}
            </p>
            <button
                class="primary"
                on:click=move |_| { app.catalog.set(Catalog::Loading); spawn_local(app.load_catalog()) }
            >
                "Try again"
            </button>
        </main>
    }
}

fn nowhere(why: &'static str) -> impl IntoView {
    let app = app();
    view! {
        <main class="notice" id="main">
            <MenuButton/>
            <h1>"Nothing here"</h1>
            <p>{why}</p>
            <button class="primary" on:click=move |_| { app.go(Route::Home); app.leave_home() }>"To the start"</button>
        </main>
    }
}

/// Opens the drawer where the left column is one.
#[component]
fn MenuButton() -> impl IntoView {
    let app = app();
    view! {
        <button
            class="icon menu"
            aria-label="Conversations"
            aria-expanded=move || app.drawer.get().to_string()
            aria-controls="sidebar"
            on:click=move |_| app.drawer.set(true)
        >
            {icon::menu()}
        </button>
    }
}

/// All agents, to choose from.
#[component]
fn Chooser(groups: Vec<Group>) -> impl IntoView {
    let app = app();
    let none = groups.iter().all(|group| group.agents.is_empty());
    let list = groups
        .into_iter()
        .map(|Group { project, agents }| {
            let cards = agents
                .into_iter()
                .map(|agent| {
                    let route = Route::Agent { project: project.id.clone(), agent: agent.id.clone(), thread: None };
                    let path = route.path();
                    view! {
                        <li>
                            <a class="card" href=path on:click=move |event| {
                                if plain_click(&event) {
                                    event.prevent_default();
                                    app.go(route.clone());
                                }
                            }>
                                <strong>{agent.name}</strong>
                                <span>{agent.model.unwrap_or(agent.engine)}</span>
                            </a>
                        </li>
                    }
                })
                .collect_view();
            view! { <section><h2>{project.name}</h2><ul class="cards">{cards}</ul></section> }
        })
        .collect_view();
    view! {
        <main class="chooser" id="main">
            <MenuButton/>
            <h1>"Whom would you like to talk to?"</h1>
            {none.then(|| view! { <p>"There is no agent that you may use yet. Whoever runs this server can add you to a project."</p> })}
            {list}
        </main>
    }
}

/// One listener for every Copy button of the page: replies hold many.
fn copy_on_click() {
    let clicked = window_event_listener(ev::click, |event| {
        let Some(button) = event
            .target()
            .and_then(|target| target.dyn_into::<web_sys::Element>().ok())
            .and_then(|target| target.closest("[data-copy]").ok()?)
        else {
            return;
        };
        let Some(code) = button.closest(".code").ok().flatten().and_then(|block| block.query_selector("pre").ok()?) else {
            return;
        };
        copy(code.text_content().unwrap_or_default(), button);
    });
    on_cleanup(move || clicked.remove());
}

/// Puts `text` on the clipboard, and says on `button` for a moment how that went.
fn copy(text: String, button: web_sys::Element) {
    spawn_local(async move {
        // Pages that are not served over https or from this machine have no clipboard.
        let clipboard =
            js_sys::Reflect::get(&window().navigator(), &"clipboard".into()).is_ok_and(|clipboard| clipboard.is_object());
        let copied =
            clipboard && wasm_bindgen_futures::JsFuture::from(window().navigator().clipboard().write_text(&text)).await.is_ok();
        let before = button.get_attribute("data-label").or_else(|| button.text_content()).unwrap_or_default();
        let _ = button.set_attribute("data-label", &before);
        button.set_text_content(Some(if copied { "Copied" } else { "Could not copy" }));
        set_timeout(move || button.set_text_content(Some(&before)), std::time::Duration::from_millis(1_600));
    });
}

/// Calls of `run` become one per frame; in a hidden tab, which has no frames, a few per second.
fn once_per_frame(run: impl Fn() + 'static) -> impl Fn() + 'static {
    let waiting = Rc::new(Cell::new(false));
    let run = Rc::new(run);
    move || {
        if waiting.replace(true) {
            return;
        }
        let (waiting, run) = (Rc::clone(&waiting), Rc::clone(&run));
        let due = move || {
            waiting.set(false);
            run();
        };
        if document().hidden() {
            set_timeout(due, std::time::Duration::from_millis(250));
        } else {
            request_animation_frame(due);
        }
    }
}

/// Calls `changed` whenever the size of `element` does, until the view is gone.
fn on_resize(element: &web_sys::Element, changed: impl Fn() + 'static) {
    let callback = Closure::<dyn Fn()>::new(changed);
    let Ok(observer) = web_sys::ResizeObserver::new(callback.as_ref().unchecked_ref()) else { return };
    observer.observe(element);
    let kept = StoredValue::new_local((observer, callback));
    on_cleanup(move || {
        kept.try_with_value(|(observer, _)| observer.disconnect());
    });
}
