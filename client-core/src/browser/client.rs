//! The server as a page sees it.

use std::rc::Rc;

use turnfast_shared::{
    api::PushEvent,
    ids::{Slug, ThreadId},
};

use super::{Subscription, ThreadHandle, subscribers::Subscribers};

/// One server, over the page's session cookie. Clones share the `/push` connection; make one per page.
#[derive(Clone)]
pub struct Client {
    inner: Rc<Inner>,
}

struct Inner {
    base_url: String,
    push: Subscribers<PushEvent>,
}

impl Client {
    /// The server at `base_url` (no slash at its end); empty: the one that the page came from. Nothing is connected until the first
    /// [`Client::open`] or [`Client::on_push`].
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self { inner: Rc::new(Inner { base_url: base_url.into(), push: Subscribers::new() }) }
    }

    /// Where the server is; see [`Client::new`].
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.inner.base_url
    }

    /// Opens a thread of an agent; `None`: a new one, which gets its id when its first message is accepted.
    #[must_use]
    pub fn open(&self, project: Slug, agent: Slug, thread: Option<ThreadId>) -> ThreadHandle {
        ThreadHandle::open(self.clone(), project, agent, thread)
    }

    /// Calls `callback` on every message of `/push`, whichever tab holds the connection: [`PushEvent::Connected`] means that
    /// something may have been missed. For lists of threads; an open thread hears of its changes by itself.
    pub fn on_push(&self, callback: impl Fn(&PushEvent) + 'static) -> Subscription {
        self.inner.push.subscribe(callback)
    }
}
