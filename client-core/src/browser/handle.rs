//! An open thread, with its effects performed.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use gloo_timers::callback::Timeout;
use turnfast_shared::{
    api::{NewAttachment, PushEvent},
    few::Few,
    ids::{Slug, ThreadId},
    message::ResumeData,
};
use wasm_bindgen_futures::spawn_local;
use web_sys::AbortController;

use super::{
    Client, Scope, Subscription,
    drafts::Drafts,
    http::{self, Answer},
    push::Push,
    subscribers::Subscribers,
};
use crate::thread::{Effect, EffectId, Failure, Input, Machine, Occasion, View};

/// An open thread. Clones are the same thread; when the last one is dropped the thread is closed. A turn runs on regardless.
#[derive(Clone)]
pub struct ThreadHandle {
    inner: Rc<Inner>,
    _closes: Rc<Closes>,
}

struct Inner {
    scope: Scope,
    /// Where the agent's routes are.
    base: String,
    project: Slug,
    agent: Slug,
    drafts: Drafts,
    machine: RefCell<Machine>,
    /// Inputs that came while one was worked on.
    inputs: RefCell<VecDeque<Input>>,
    working: Cell<bool>,
    timers: RefCell<Few<EffectId, Timeout>>,
    calls: RefCell<Few<EffectId, AbortController>>,
    changed: Subscribers<()>,
}

/// Closes the thread with the last handle. Requests under way hold [`Inner`], but not this.
struct Closes {
    inner: Rc<Inner>,
    _push: Rc<Push>,
    _subscriptions: [Subscription; 2],
}

impl Drop for Closes {
    fn drop(&mut self) {
        self.inner.input(Input::Disposed);
    }
}

impl ThreadHandle {
    pub(super) fn open(client: &Client, project: Slug, agent: Slug, thread: Option<ThreadId>) -> Self {
        let inner = Rc::new(Inner {
            scope: client.scope().clone(),
            base: format!("{}/projects/{project}/agents/v2/{agent}", client.base_url()),
            drafts: Drafts::new(client, &project, &agent),
            project,
            agent,
            machine: RefCell::new(Machine::new()),
            inputs: RefCell::default(),
            working: Cell::new(false),
            timers: RefCell::default(),
            calls: RefCell::default(),
            changed: Subscribers::new(),
        });
        // Listen first, read then: what changes in between is heard of.
        let push = Rc::clone(client.push());
        let notified = {
            let inner = Rc::downgrade(&inner);
            push.events.subscribe(move |event| {
                if let (Some(inner), PushEvent::AgentExecutionUpdated(update)) = (inner.upgrade(), event)
                    && update.project_id == inner.project
                    && update.agent_id == inner.agent
                {
                    inner.input(Input::Notified(update.clone()));
                }
            })
        };
        let occasions = {
            let inner = Rc::downgrade(&inner);
            push.occasions.subscribe(move |occasion| {
                if let Some(inner) = inner.upgrade() {
                    inner.input(Input::Occasion(*occasion));
                }
            })
        };
        inner.input(Input::Opened { thread });
        let closes = Rc::new(Closes { inner: Rc::clone(&inner), _push: push, _subscriptions: [notified, occasions] });
        Self { inner, _closes: closes }
    }

    /// Calls `callback` after every change; it then asks [`ThreadHandle::view`]. Not called before something happens.
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

    /// Shows another thread of the same agent instead; `None`: a new one. The thread that is shown already: reads it again.
    pub fn switch(&self, thread: Option<ThreadId>) {
        self.inner.input(Input::Opened { thread });
    }

    /// The whole draft, after every change. It is kept over reloads.
    pub fn set_draft(&self, text: &str) {
        self.inner.input(Input::DraftChanged(text.to_owned()));
    }

    /// The files that go with the draft. They are not kept over reloads; [`View::attachments`] is empty again once they are accepted.
    pub fn set_attachments(&self, attachments: Vec<NewAttachment>) {
        self.inner.input(Input::AttachmentsChanged(attachments));
    }

    /// Sends the draft, where [`View::send_blocked`] is `None`; else nothing happens.
    pub fn send(&self) {
        let message_id = uuid::Uuid::new_v4().into();
        self.inner.input(Input::SubmitPressed { message_id, thread_id: uuid::Uuid::new_v4().into() });
    }

    /// Stops what runs; of a suspended turn, cancels it. A second call does nothing.
    pub fn stop(&self) {
        self.inner.input(Input::StopPressed);
    }

    /// Answers a suspended tool call (see [`View::interactions`]).
    pub fn answer(&self, tool_call_id: &str, data: ResumeData) {
        self.inner.input(Input::AnswerGiven { tool_call_id: tool_call_id.to_owned(), data });
    }

    /// Cancels the suspended turn.
    pub fn cancel_suspended(&self) {
        self.inner.input(Input::CancelSuspendedPressed);
    }

    /// Takes [`View::trouble`] away.
    pub fn dismiss_trouble(&self) {
        self.inner.input(Input::TroubleDismissed);
    }

    /// The person signed in again: reads what was missed.
    pub fn signed_in(&self) {
        self.inner.input(Input::Occasion(Occasion::SignedIn));
    }
}

impl Inner {
    /// Gives the machine an input, performs what it asks for, and tells the subscribers once all of that is done.
    fn input(self: &Rc<Self>, input: Input) {
        self.inputs.borrow_mut().push_back(input);
        if self.working.replace(true) {
            return;
        }
        loop {
            let Some(input) = self.inputs.borrow_mut().pop_front() else { break };
            let effects = self.machine.borrow_mut().handle(js_sys::Date::now() as i64, input);
            for effect in effects {
                self.perform(effect);
            }
        }
        self.working.set(false);
        self.changed.call(&());
    }

    fn perform(self: &Rc<Self>, effect: Effect) {
        let base = &self.base;
        match effect {
            Effect::Read { id, thread, since } => {
                let since = since.map(|revision| format!("?since={revision}")).unwrap_or_default();
                let url = format!("{base}/chat/{thread}/messages{since}");
                self.call(
                    id,
                    "GET",
                    url,
                    Box::new(move |answer| Input::ReadDone { id, outcome: answer.and_then(|answer| answer.read()) }),
                );
            }
            Effect::Submit { id, request } => self.stream(id, "/chat", serde_json::to_string(&request).ok()),
            Effect::Resume { id, request } => self.stream(id, "/chat/resume", serde_json::to_string(&request).ok()),
            Effect::Stop { id, thread, execution } => {
                let url = format!("{base}/chat/{thread}/executions/{execution}");
                self.call(
                    id,
                    "DELETE",
                    url,
                    Box::new(move |answer| Input::StopDone { id, outcome: answer.and_then(|answer| answer.read()) }),
                );
            }
            Effect::CancelRun { id, run } => {
                let url = format!("{base}/chat/runs/{run}");
                self.call(
                    id,
                    "DELETE",
                    url,
                    Box::new(move |answer| Input::CancelRunDone { id, outcome: answer.and_then(|answer| answer.read()) }),
                );
            }
            Effect::SetTimer { id, after_ms } => {
                let this = Rc::downgrade(self);
                let timer = Timeout::new(after_ms, move || {
                    if let Some(this) = this.upgrade() {
                        // Dropped after the callback that it owns has run.
                        let _timer = this.timers.borrow_mut().remove(&id);
                        this.input(Input::TimerFired { id });
                    }
                });
                self.timers.borrow_mut().insert(id, timer);
            }
            Effect::CancelTimer { id } => drop(self.timers.borrow_mut().remove(&id)),
            Effect::LoadDraft { id, thread } => {
                self.input(Input::DraftLoaded { id, draft: self.drafts.load(&self.scope, thread) })
            }
            Effect::SaveDraft { id, thread, draft } => {
                self.input(Input::DraftSaved { id, ok: self.drafts.save(&self.scope, thread, &draft) });
            }
            Effect::Abort { id } => {
                if let Some(abort) = self.calls.borrow_mut().remove(&id) {
                    abort.abort();
                }
            }
        }
    }

    fn call(
        self: &Rc<Self>,
        id: EffectId,
        method: &'static str,
        url: String,
        outcome: Box<dyn FnOnce(Result<Answer, Failure>) -> Input>,
    ) {
        let this = Rc::clone(self);
        let Some(abort) = this.controller(id) else {
            this.input(outcome(Err(Failure::Broken)));
            return;
        };
        spawn_local(async move {
            let answer = http::request(&this.scope, method, &url, None, abort).await;
            this.calls.borrow_mut().remove(&id);
            this.input(outcome(answer));
        });
    }

    fn stream(self: &Rc<Self>, id: EffectId, path: &str, body: Option<String>) {
        let this = Rc::clone(self);
        let (Some(abort), Some(body)) = (this.controller(id), body) else {
            this.input(Input::StreamRefused { id, failure: Failure::Broken });
            return;
        };
        let url = format!("{}{path}", self.base);
        spawn_local(async move {
            let sink = Rc::clone(&this);
            let sink = Box::new(move |bytes| sink.input(Input::StreamBytes { id, bytes }));
            let ended = http::stream(&this.scope, &url, body, abort.signal(), sink).await;
            this.calls.borrow_mut().remove(&id);
            this.input(match ended {
                Ok(()) => Input::StreamEnded { id },
                Err(failure) => Input::StreamRefused { id, failure },
            });
        });
    }

    fn controller(&self, id: EffectId) -> Option<AbortController> {
        let abort = AbortController::new().ok()?;
        self.calls.borrow_mut().insert(id, abort.clone());
        Some(abort)
    }
}
