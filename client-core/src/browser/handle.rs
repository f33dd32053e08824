//! An open thread, with its effects performed.

use std::{cell::RefCell, rc::Rc};

use turnfast_shared::{
    api::NewAttachment,
    ids::{Slug, ThreadId},
    message::ResumeData,
};

use super::{Client, Subscription, subscribers::Subscribers};
use crate::thread::{Input, Machine, View};

/// An open thread. Clones are the same thread; when the last one is dropped the thread is closed. A turn runs on regardless.
#[derive(Clone)]
pub struct ThreadHandle {
    inner: Rc<Inner>,
}

struct Inner {
    client: Client,
    project: Slug,
    agent: Slug,
    machine: RefCell<Machine>,
    changed: Subscribers<()>,
}

impl ThreadHandle {
    pub(super) fn open(client: Client, project: Slug, agent: Slug, thread: Option<ThreadId>) -> Self {
        let handle = Self {
            inner: Rc::new(Inner { client, project, agent, machine: RefCell::new(Machine::new()), changed: Subscribers::new() }),
        };
        handle.input(Input::Opened { thread });
        handle
    }

    /// Calls `callback` after every change; it then asks [`ThreadHandle::view`]. Never called from inside `subscribe`.
    pub fn subscribe(&self, callback: impl Fn() + 'static) -> Subscription {
        self.inner.changed.subscribe(move |()| callback())
    }

    /// What is to be shown now.
    #[must_use]
    pub fn view(&self) -> View {
        self.inner.machine.borrow_mut().view()
    }

    /// The thread's project.
    #[must_use]
    pub fn project(&self) -> &Slug {
        &self.inner.project
    }

    /// The thread's agent.
    #[must_use]
    pub fn agent(&self) -> &Slug {
        &self.inner.agent
    }

    /// Shows another thread of the same agent instead; `None`: a new one.
    pub fn switch(&self, thread: Option<ThreadId>) {
        self.input(Input::Opened { thread });
    }

    /// The whole draft, after every change. It is kept over reloads.
    pub fn set_draft(&self, text: &str) {
        self.input(Input::DraftChanged(text.to_owned()));
    }

    /// The files that go with the draft. They are not kept over reloads; [`View::attachments`] is empty again once they are accepted.
    pub fn set_attachments(&self, attachments: Vec<NewAttachment>) {
        self.input(Input::AttachmentsChanged(attachments));
    }

    /// Sends the draft, where [`View::send_blocked`] is `None`; else nothing happens.
    pub fn send(&self) {
        self.input(Input::SubmitPressed { message_id: uuid::Uuid::new_v4().into(), thread_id: uuid::Uuid::new_v4().into() });
    }

    /// Stops what runs; of a suspended turn, cancels it. A second call does nothing.
    pub fn stop(&self) {
        self.input(Input::StopPressed);
    }

    /// Answers a suspended tool call (see [`View::interactions`]).
    pub fn answer(&self, tool_call_id: &str, data: ResumeData) {
        self.input(Input::AnswerGiven { tool_call_id: tool_call_id.to_owned(), data });
    }

    /// Cancels the suspended turn.
    pub fn cancel_suspended(&self) {
        self.input(Input::CancelSuspendedPressed);
    }

    /// Takes [`View::trouble`] away.
    pub fn dismiss_trouble(&self) {
        self.input(Input::TroubleDismissed);
    }

    /// The person signed in again: reads what was missed.
    pub fn signed_in(&self) {
        self.input(Input::Occasion(crate::thread::Occasion::SignedIn));
    }

    fn input(&self, input: Input) {
        let effects = self.inner.machine.borrow_mut().handle(js_sys::Date::now() as i64, input);
        drop(effects);
        self.inner.changed.call(&());
    }
}
