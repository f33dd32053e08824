//! What `package/index.js` calls. Users of the package never see these.

use std::cell::RefCell;

use js_sys::Function;
use turnfast_client_core::{
    browser::{Client, Scope, Subscription, ThreadHandle, forget_drafts, request},
    thread::{Failure, Input, Machine},
};
use turnfast_shared::{
    api::NewAttachment,
    ids::{Slug, ThreadId},
    message::ResumeData,
    sse::Parser,
};
use wasm_bindgen::{JsError, JsValue, prelude::wasm_bindgen};
use web_sys::AbortController;

use crate::{
    state::{Maker, State},
    words,
};

/// One server.
#[wasm_bindgen]
pub struct RawClient {
    client: RefCell<Option<Client>>,
    base_url: String,
    scope: Scope,
    maker: Maker,
}

#[wasm_bindgen]
impl RawClient {
    /// The server at `base_url`, with what `scope` offers. `maker` makes what is handed out;
    /// drafts are `user`'s.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new(scope: Scope, maker: Maker, base_url: String, user: &str) -> Self {
        let client = Client::within(scope.clone(), base_url.clone());
        client.set_user(user);
        Self { client: RefCell::new(Some(client)), base_url, scope, maker }
    }

    /// The snapshot of a thread that nothing is known of yet.
    ///
    /// # Errors
    /// The id is no UUID.
    pub fn initial(&self, thread: Option<String>) -> Result<JsValue, JsError> {
        let mut machine = Machine::new();
        // What it asks for is done once the thread is opened.
        let _effects = machine.handle(0, Input::Opened { thread: thread_id(thread)? });
        Ok(State::new(self.maker.clone()).of(machine.view()))
    }

    /// Opens a thread.
    ///
    /// # Errors
    /// An id does not have its form, or the client is closed.
    pub fn open(&self, project: &str, agent: &str, thread: Option<String>) -> Result<RawThread, JsError> {
        let handle = self.client()?.open(slug(project)?, slug(agent)?, thread_id(thread)?);
        Ok(RawThread { handle: RefCell::new(Some(handle)), state: RefCell::new(State::new(self.maker.clone())) })
    }

    /// Sends a request and gives the JSON text that answers it, which may be empty.
    ///
    /// # Errors
    /// A `Failure`, as an object.
    pub async fn request(&self, method: String, path: String, body: Option<String>) -> Result<String, JsValue> {
        let (scope, maker, url) = (self.scope.clone(), self.maker.clone(), format!("{}{path}", self.base_url));
        let answer = match AbortController::new() {
            Ok(abort) => request(&scope, &method, &url, body, abort).await,
            Err(_) => Err(Failure::Broken),
        };
        answer.map(|answer| answer.text().to_owned()).map_err(|failure| maker.parse(&words::failure(&failure).to_string()))
    }

    /// Calls `callback` with every message of `/push`.
    ///
    /// # Errors
    /// The client is closed.
    pub fn on_push(&self, callback: Function) -> Result<RawSubscription, JsError> {
        let maker = self.maker.clone();
        let subscription = self.client()?.on_push(move |event| {
            // It throws nothing: index.js sees to that.
            let _ = callback.call1(&JsValue::UNDEFINED, &maker.parse(&words::value(event).to_string()));
        });
        Ok(RawSubscription { subscription: RefCell::new(Some(subscription)) })
    }

    /// Removes every draft.
    pub fn forget_drafts(&self) {
        forget_drafts(&self.scope);
    }

    /// Gives the connection to `/push` up, once no thread is open.
    pub fn close(&self) {
        self.client.take();
    }

    fn client(&self) -> Result<Client, JsError> {
        self.client.borrow().clone().ok_or_else(|| JsError::new("the client is disposed"))
    }
}

/// A callback that is called until this is ended.
#[wasm_bindgen]
pub struct RawSubscription {
    subscription: RefCell<Option<Subscription>>,
}

#[wasm_bindgen]
impl RawSubscription {
    /// Ends it.
    pub fn end(&self) {
        self.subscription.take();
    }
}

/// An open thread. All but [`RawThread::close`] does nothing once it is closed.
#[wasm_bindgen]
pub struct RawThread {
    handle: RefCell<Option<ThreadHandle>>,
    state: RefCell<State>,
}

#[wasm_bindgen]
impl RawThread {
    /// The newest snapshot; `undefined` once closed.
    #[must_use]
    pub fn snapshot(&self) -> JsValue {
        self.handle().map_or(JsValue::UNDEFINED, |handle| self.state.borrow_mut().of(handle.view()))
    }

    /// Calls `callback` after every change.
    #[must_use]
    pub fn subscribe(&self, callback: Function) -> RawSubscription {
        let subscription = self.handle().map(|handle| {
            handle.subscribe(move || {
                // As above.
                let _ = callback.call0(&JsValue::UNDEFINED);
            })
        });
        RawSubscription { subscription: RefCell::new(subscription) }
    }

    /// See [`ThreadHandle::switch`].
    ///
    /// # Errors
    /// The id is no UUID.
    pub fn switch(&self, thread: Option<String>) -> Result<(), JsError> {
        let thread = thread_id(thread)?;
        self.with(|handle| handle.switch(thread));
        Ok(())
    }

    /// See [`ThreadHandle::set_draft`].
    pub fn set_draft(&self, text: &str) {
        self.with(|handle| handle.set_draft(text));
    }

    /// Takes the files as JSON text; see [`ThreadHandle::set_attachments`].
    ///
    /// # Errors
    /// They do not have their form.
    pub fn set_attachments(&self, json: &str) -> Result<(), JsError> {
        let attachments: Vec<NewAttachment> = serde_json::from_str(json)?;
        self.with(|handle| handle.set_attachments(attachments));
        Ok(())
    }

    /// See [`ThreadHandle::send`].
    pub fn submit(&self) {
        self.with(ThreadHandle::send);
    }

    /// See [`ThreadHandle::stop`].
    pub fn stop(&self) {
        self.with(ThreadHandle::stop);
    }

    /// Takes the answer as JSON text; see [`ThreadHandle::answer`].
    ///
    /// # Errors
    /// It does not have its form.
    pub fn answer(&self, tool_call_id: &str, json: &str) -> Result<(), JsError> {
        let data: ResumeData = serde_json::from_str(json)?;
        self.with(|handle| handle.answer(tool_call_id, data));
        Ok(())
    }

    /// See [`ThreadHandle::cancel_suspended`].
    pub fn cancel_suspended(&self) {
        self.with(ThreadHandle::cancel_suspended);
    }

    /// See [`ThreadHandle::dismiss_trouble`].
    pub fn dismiss_trouble(&self) {
        self.with(ThreadHandle::dismiss_trouble);
    }

    /// See [`ThreadHandle::signed_in`].
    pub fn signed_in(&self) {
        self.with(ThreadHandle::signed_in);
    }

    /// Closes the thread. A turn runs on regardless.
    pub fn close(&self) {
        self.handle.take();
    }

    /// Cloned, so that whoever is called meanwhile may close it.
    fn handle(&self) -> Option<ThreadHandle> {
        self.handle.borrow().clone()
    }

    fn with(&self, act: impl FnOnce(&ThreadHandle)) {
        if let Some(handle) = self.handle() {
            act(&handle);
        }
    }
}

/// Reads an event stream in pieces.
#[wasm_bindgen]
#[derive(Default)]
pub struct RawParser {
    parser: Parser,
}

#[wasm_bindgen]
impl RawParser {
    /// At the start of a stream.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The data of the events that `bytes` complete.
    ///
    /// # Errors
    /// An event is too large.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, JsError> {
        let mut data = Vec::new();
        self.parser.feed(bytes, |event| data.push(event.data))?;
        Ok(data)
    }
}

fn slug(text: &str) -> Result<Slug, JsError> {
    Ok(text.parse()?)
}

fn thread_id(text: Option<String>) -> Result<Option<ThreadId>, JsError> {
    Ok(text.map(|text| text.parse()).transpose()?)
}
