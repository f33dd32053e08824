//! Performs the effects of [`Follow`]: Web Locks, BroadcastChannel and the EventSource of `/push`.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use gloo_timers::callback::Timeout;
use js_sys::{Function, Promise, Reflect};
use turnfast_shared::{api::PushEvent, few::Few};
use wasm_bindgen::{JsCast, JsValue, closure::Closure};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{AbortController, BroadcastChannel, EventSource, EventTarget, MessageEvent};

use super::{Scope, listen::Listener, subscribers::Subscribers};
use crate::{
    follow::{Effect, EffectId, Follow, Input},
    thread::Occasion,
};

/// What the tab that holds the connection tells the others when it breaks. Not a message of `/push`: the machine need not know.
const LOST: &str = "lost";

/// The page's share in the browser's one `/push` connection, and what else is an occasion to read.
pub(super) struct Push {
    scope: Scope,
    url: String,
    name: String,
    follow: RefCell<Follow>,
    channel: RefCell<Option<(BroadcastChannel, Listener)>>,
    sources: RefCell<Few<EffectId, Source>>,
    timers: RefCell<Few<EffectId, Timeout>>,
    lock: RefCell<Option<Rc<LockRequest>>>,
    listeners: RefCell<Vec<Listener>>,
    /// The page was left. It may come back as it is, from the browser's back/forward cache.
    left: Cell<bool>,
    pub(super) events: Subscribers<PushEvent>,
    pub(super) occasions: Subscribers<Occasion>,
    /// The connection broke, or was refused.
    pub(super) lost: Subscribers<()>,
}

struct Source {
    source: EventSource,
    _listeners: [Listener; 2],
}

impl Drop for Source {
    fn drop(&mut self) {
        self.source.close();
    }
}

/// One request for the lock: waiting, or holding it.
struct LockRequest {
    abort: AbortController,
    granted: Cell<bool>,
    /// Resolves the promise whose end gives the lock back.
    release: RefCell<Option<Function>>,
}

impl LockRequest {
    fn end(&self) {
        match self.release.take() {
            Some(release) => drop(release.call0(&JsValue::UNDEFINED)),
            None => self.abort.abort(),
        }
    }
}

impl Push {
    /// Begins to listen. The channel hears from now on, so whoever reads after this misses nothing.
    pub(super) fn start(scope: Scope, base_url: &str) -> Rc<Self> {
        let push = Rc::new(Self {
            scope,
            url: format!("{base_url}/push"),
            name: format!("turnfast-push {base_url}"),
            follow: RefCell::new(Follow::new()),
            channel: RefCell::default(),
            sources: RefCell::default(),
            timers: RefCell::default(),
            lock: RefCell::default(),
            listeners: RefCell::default(),
            left: Cell::new(false),
            events: Subscribers::new(),
            occasions: Subscribers::new(),
            lost: Subscribers::new(),
        });
        push.listen();
        push.begin();
        push
    }

    fn begin(self: &Rc<Self>) {
        let channel = self.scope.locks().and_then(|_| self.open_channel());
        let shared = channel.is_some();
        self.channel.replace(channel);
        self.input(Input::Started { shared });
    }

    /// Gives everything back that another tab may need, or that would keep the page out of the back/forward cache.
    fn page_left(self: &Rc<Self>) {
        self.left.set(true);
        self.input(Input::Stopped);
        if let Some((channel, _)) = self.channel.take() {
            channel.close();
        }
    }

    fn page_shown(self: &Rc<Self>) {
        if self.left.replace(false) {
            self.begin();
        }
        self.visibility_changed();
    }

    fn listen(self: &Rc<Self>) {
        let scope = self.scope.unchecked_ref::<EventTarget>();
        let mut listeners = self.listeners.borrow_mut();
        let on = |this: &Rc<Self>, act: fn(&Rc<Self>)| {
            let this = Rc::downgrade(this);
            move |_| {
                if let Some(this) = this.upgrade() {
                    act(&this);
                }
            }
        };
        if let Some(document) = self.scope.page() {
            listeners.push(Listener::new(&document, "visibilitychange", on(self, Self::visibility_changed)));
        }
        listeners.push(Listener::new(scope, "pageshow", on(self, Self::page_shown)));
        listeners.push(Listener::new(scope, "pagehide", on(self, Self::page_left)));
        listeners.push(Listener::new(
            scope,
            "online",
            on(self, |this| {
                this.input(Input::Online);
                this.occasions.call(&Occasion::Online);
            }),
        ));
    }

    fn visibility_changed(self: &Rc<Self>) {
        let visible = self.scope.page().is_some_and(|page| !page.hidden());
        self.input(Input::Visible(visible));
        if visible {
            self.occasions.call(&Occasion::TabVisible);
        }
    }

    fn open_channel(self: &Rc<Self>) -> Option<(BroadcastChannel, Listener)> {
        let channel = self.scope.new_channel(&self.name)?;
        let this = Rc::downgrade(self);
        let listener = Listener::new(&channel, "message", move |event| {
            let Some(this) = this.upgrade() else { return };
            if let Some(event) = push_event(&event) {
                this.input(Input::Heard(event));
            } else if text(&event).as_deref() == Some(LOST) {
                this.lost.call(&());
            }
        });
        Some((channel, listener))
    }

    fn input(self: &Rc<Self>, input: Input) {
        // Bound first: performing an effect may bring the next input, which borrows the machine again.
        let effects = self.follow.borrow_mut().handle(js_sys::Date::now() as i64, input);
        for effect in effects {
            self.perform(effect);
        }
    }

    fn perform(self: &Rc<Self>, effect: Effect) {
        match effect {
            Effect::RequestLock { steal } => self.request_lock(steal),
            Effect::ReleaseLock => {
                if let Some(lock) = self.lock.take() {
                    lock.end();
                }
            }
            Effect::Connect { id } => self.connect(id),
            Effect::Disconnect { id } => drop(self.sources.borrow_mut().remove(&id)),
            Effect::Say(event) => {
                if let Ok(text) = serde_json::to_string(&event) {
                    self.tell(&text);
                }
            }
            Effect::Deliver(event) => {
                self.events.call(&event);
                if event == PushEvent::Connected {
                    self.occasions.call(&Occasion::PushConnected);
                }
            }
            Effect::SetTimer { id, after_ms } => {
                let this = Rc::downgrade(self);
                let timer = Timeout::new(after_ms, move || {
                    if let Some(this) = this.upgrade() {
                        let timer = this.timers.borrow_mut().remove(&id);
                        this.input(Input::TimerFired { id, random: random() });
                        drop(timer);
                    }
                });
                self.timers.borrow_mut().insert(id, timer);
            }
        }
    }

    /// Tells the other tabs.
    fn tell(&self, text: &str) {
        if let Some((channel, _)) = &*self.channel.borrow() {
            // Refused only for what cannot be cloned, which text can.
            let _ = channel.post_message(&text.into());
        }
    }

    fn connect(self: &Rc<Self>, id: EffectId) {
        let Some(source) = self.scope.new_source(&self.url) else {
            self.fail_later(id);
            return;
        };
        let this = Rc::downgrade(self);
        let on_message = Listener::new(&source, "message", move |event| {
            if let (Some(this), Some(event)) = (this.upgrade(), push_event(&event)) {
                this.input(Input::Push { id, event });
            }
        });
        // EventSource would connect again by itself, always after the same pause. The machine does that better.
        let this = Rc::downgrade(self);
        let on_error = Listener::new(&source, "error", move |_| {
            if let Some(this) = this.upgrade() {
                this.fail_later(id);
            }
        });
        self.sources.borrow_mut().insert(id, Source { source, _listeners: [on_message, on_error] });
    }

    /// Out of the listener first: its closure must not be dropped while it runs.
    fn fail_later(self: &Rc<Self>, id: EffectId) {
        let this = Rc::downgrade(self);
        spawn_local(async move {
            if let Some(this) = this.upgrade() {
                this.input(Input::PushFailed { id, random: random() });
                this.tell(LOST);
                this.lost.call(&());
            }
        });
    }

    fn request_lock(self: &Rc<Self>, steal: bool) {
        let (Some(locks), Ok(abort)) = (self.scope.locks(), AbortController::new()) else { return };
        let request = Rc::new(LockRequest { abort, granted: Cell::new(false), release: RefCell::default() });
        if let Some(earlier) = self.lock.replace(Some(Rc::clone(&request))) {
            earlier.end();
        }
        let (this, granted) = (Rc::downgrade(self), Rc::clone(&request));
        // The lock is held until the promise that this gives back is resolved.
        let callback = Closure::once(move |_lock: JsValue| -> Promise { Self::granted(&this, &granted) });
        let options = js_sys::Object::new();
        let (name, value) = if steal { ("steal", JsValue::TRUE) } else { ("signal", request.abort.signal().into()) };
        let asked =
            Reflect::set(&options, &name.into(), &value).and_then(|_| locks.request(&self.name, &options, callback.as_ref()));
        let Ok(asked) = asked else { return };
        let this = Rc::downgrade(self);
        spawn_local(async move {
            let _callback = callback;
            let taken = JsFuture::from(asked).await.is_err() && request.granted.get();
            if let (true, Some(this)) = (taken, this.upgrade()) {
                this.lock.borrow_mut().take_if(|current| Rc::ptr_eq(current, &request));
                this.input(Input::LockLost);
            }
        });
    }

    fn granted(this: &Weak<Self>, request: &Rc<LockRequest>) -> Promise {
        let current = |push: &Rc<Self>| push.lock.borrow().as_ref().is_some_and(|lock| Rc::ptr_eq(lock, request));
        let Some(push) = this.upgrade().filter(current) else { return Promise::resolve(&JsValue::UNDEFINED) };
        request.granted.set(true);
        let held = Promise::new(&mut |resolve, _| {
            request.release.replace(Some(resolve.unchecked_into()));
        });
        push.input(Input::LockGranted);
        held.unchecked_into()
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        // Nobody can be told any more: what is left is to give the lock back. Fields close the rest as they are dropped.
        if let Some(lock) = self.lock.take() {
            lock.end();
        }
        if let Some((channel, _)) = self.channel.take() {
            channel.close();
        }
    }
}

fn push_event(event: &web_sys::Event) -> Option<PushEvent> {
    turnfast_shared::json::read(&text(event)?)
}

fn text(event: &web_sys::Event) -> Option<String> {
    event.unchecked_ref::<MessageEvent>().data().as_string()
}

fn random() -> u32 {
    (js_sys::Math::random() * f64::from(u32::MAX)) as u32
}
