//! The server as a page sees it.

use std::{
    cell::{OnceCell, RefCell},
    fmt::Display,
    rc::Rc,
};

use turnfast_shared::{
    api::PushEvent,
    ids::{Slug, ThreadId},
};

use super::{Scope, Subscription, ThreadHandle, drafts::forget_drafts_of_nobody, push::Push};

/// One server, over the page's session cookie. Clones share the `/push` connection; make one per page.
#[derive(Clone)]
pub struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    scope: Scope,
    base_url: String,
    push: OnceCell<Rc<Push>>,
    drafts_of: RefCell<Option<String>>,
}

impl Client {
    /// The server at `base_url` (no slash at its end); empty: the one that the page came from. Nothing is connected until the first
    /// [`Client::open`] or [`Client::on_push`]; until then nobody need be signed in.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self::within(Scope::global(), base_url)
    }

    /// [`Client::new`], with what `scope` offers instead of what the page does.
    #[must_use]
    pub fn within(scope: Scope, base_url: impl Into<String>) -> Self {
        let inner = Inner { scope, base_url: base_url.into(), push: OnceCell::new(), drafts_of: RefCell::default() };
        Self { inner: Rc::new(inner) }
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.inner.scope
    }

    /// Where the server is; see [`Client::new`].
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.inner.base_url
    }

    /// Says who is signed in. Drafts are kept per user, so that whoever sits here next sees none of them: threads that are opened
    /// before this is known keep theirs only as long as they are open.
    pub fn set_user(&self, user: impl Display) {
        forget_drafts_of_nobody(self.scope());
        self.inner.drafts_of.replace(Some(user.to_string()));
    }

    pub(super) fn drafts_of(&self) -> Option<String> {
        self.inner.drafts_of.borrow().clone()
    }

    /// Opens a thread of an agent; `None`: a new one, which gets its id when its first message is accepted.
    #[must_use]
    pub fn open(&self, project: Slug, agent: Slug, thread: Option<ThreadId>) -> ThreadHandle {
        ThreadHandle::open(self, project, agent, thread)
    }

    /// Calls `callback` on every message of `/push` but pings, whichever tab holds the connection: [`PushEvent::Connected`] means
    /// that something may have been missed. For lists of threads; an open thread hears of its changes by itself.
    pub fn on_push(&self, callback: impl Fn(&PushEvent) + 'static) -> Subscription {
        self.push().events.subscribe(callback)
    }

    /// Calls `callback` whenever the connection to `/push` breaks or is refused, whichever tab holds it. Browsers do not tell why;
    /// [`PushEvent::Connected`] says that it is back.
    pub fn on_push_lost(&self, callback: impl Fn() + 'static) -> Subscription {
        self.push().lost.subscribe(move |()| callback())
    }

    pub(super) fn push(&self) -> &Rc<Push> {
        self.inner.push.get_or_init(|| Push::start(self.inner.scope.clone(), &self.inner.base_url))
    }
}
