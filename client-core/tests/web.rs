//! What only a browser can show: storage, fetch with its streams, Web Locks and BroadcastChannel.
//!
//! The server is scripted in the page (`web.js` replaces `fetch` and `EventSource`); everything else is the browser's own. Two
//! clients in one page are to Web Locks and BroadcastChannel what two tabs are.
#![cfg(target_arch = "wasm32")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::{cell::Cell, cell::RefCell, rc::Rc};

use gloo_timers::future::TimeoutFuture;
use js_sys::{Array, Function, Reflect};
use serde_json::{Value, json};
use turnfast_client_core::{
    browser::{Client, Scope, Subscription, ThreadHandle, forget_drafts},
    shared::{Code, api::PushEvent, ids::ThreadId, message::ExecutionStatus},
    thread::{Cause, Failure, Load, Running, Stop},
};
use uuid::Uuid;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_browser);

const EXECUTION: Uuid = Uuid::from_u128(0xe1);
const ANSWER: Uuid = Uuid::from_u128(0xa1);

/// Calls a function of `web.js`.
fn script(name: &str, args: &[JsValue]) -> JsValue {
    let window = web_sys::window().unwrap();
    if Reflect::get(&window, &"script".into()).unwrap().is_undefined() {
        js_sys::eval(include_str!("web.js")).unwrap();
    }
    let script = Reflect::get(&window, &"script".into()).unwrap();
    let function: Function = Reflect::get(&script, &name.into()).unwrap().unchecked_into();
    function.apply(&script, &args.iter().collect::<Array>()).unwrap()
}

/// Lets the browser go on until `found` gives something.
async fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_000 {
        if let Some(found) = found() {
            return found;
        }
        TimeoutFuture::new(5).await;
    }
    panic!("waited in vain for {what}");
}

/// The next request to `url` that nobody answered; then `answer` and the like speak of it.
async fn request(method: &str, url: &str) -> (JsValue, String) {
    let call = until(&format!("{method} {url}"), || {
        let call = script("take", &[method.into(), url.into()]);
        (!call.is_undefined()).then_some(call)
    })
    .await;
    let body = Reflect::get(&call, &"body".into()).unwrap().as_string().unwrap_or_default();
    (call, body)
}

fn answer(call: &JsValue, status: u16, body: &Value) {
    script("answer", &[call.clone(), status.into(), "application/json".into(), body.to_string().into()]);
}

fn say(call: &JsValue, event: &Value) {
    // Cut in the middle: what a network does.
    let text = format!("data: {event}\n\n");
    let at = text.len() / 2;
    for piece in [&text.as_bytes()[..at], &text.as_bytes()[at..]] {
        script("say", &[call.clone(), js_sys::Uint8Array::from(piece).into()]);
    }
}

fn is_aborted(call: &JsValue) -> bool {
    Reflect::get(call, &"aborted".into()).unwrap().is_truthy()
}

/// The server's connections to `url`/push that are open.
fn sources(url: &str) -> Vec<JsValue> {
    script("sources", &[format!("{url}/push").into()]).unchecked_into::<Array>().iter().collect()
}

fn push(source: &JsValue, event: &Value) {
    script("push", &[source.clone(), event.to_string().into()]);
}

fn open(base: &str, thread: Option<u128>) -> ThreadHandle {
    open_as(base, 1, thread)
}

fn open_as(base: &str, user: u128, thread: Option<u128>) -> ThreadHandle {
    script("install", &[]);
    let client = Client::new(base);
    client.set_user(Uuid::from_u128(user));
    client.open("demo".parse().unwrap(), "assistant".parse().unwrap(), thread.map(|n| Uuid::from_u128(n).into()))
}

fn chat(base: &str) -> String {
    format!("{base}/projects/demo/agents/v2/assistant/chat")
}

fn messages(base: &str, thread: u128) -> String {
    format!("{}/{}/messages", chat(base), Uuid::from_u128(thread))
}

fn empty(revision: u64) -> Value {
    json!({"messages": [], "openSuspensions": [], "activeExecutionId": null, "revision": revision})
}

/// A handle to a thread that is read and empty.
async fn loaded(base: &str, thread: u128) -> ThreadHandle {
    let handle = open(base, Some(thread));
    let (call, _) = request("GET", &messages(base, thread)).await;
    answer(&call, 200, &empty(1));
    until("the thread", || (handle.view().load == Load::Loaded).then_some(())).await;
    handle
}

fn started(body: &str) -> Value {
    let sent: Value = serde_json::from_str(body).unwrap();
    json!({"type": "execution-started", "executionId": EXECUTION, "sessionId": sent["sessionId"], "messageId": sent["messageId"],
        "assistantMessageId": ANSWER})
}

fn texts(handle: &ThreadHandle) -> Vec<String> {
    handle.view().messages().map(|message| message.text()).collect()
}

#[wasm_bindgen_test]
async fn a_draft_survives_in_storage_until_it_is_forgotten() {
    let handle = loaded("/draft", 1).await;
    handle.set_draft("not yet");
    assert!(handle.view().draft_kept);
    drop(handle);
    assert_eq!(&*open("/draft", Some(1)).view().draft, "not yet");
    assert_eq!(&*open("/draft", Some(2)).view().draft, "");
    forget_drafts(&Scope::global());
    assert_eq!(&*open("/draft", Some(1)).view().draft, "");
}

#[wasm_bindgen_test]
async fn drafts_are_kept_for_their_writer_and_for_nobody_else() {
    let base = "/drafts-of-two";
    let storage = web_sys::window().unwrap().local_storage().unwrap().unwrap();
    storage.set_item("turnfast.draft.demo.assistant.new", r#"{"text": "of nobody"}"#).unwrap();
    let draft = |user: u128| open_as(base, user, None).view().draft.to_string();
    let handle = open_as(base, 1, None);
    handle.set_draft("mine");
    drop(handle);
    assert_eq!([draft(2), draft(1)], ["", "mine"]);
    assert_eq!(storage.get_item("turnfast.draft.demo.assistant.new").unwrap(), None);
    script("install", &[]);
    let stranger = Client::new(base).open("demo".parse().unwrap(), "assistant".parse().unwrap(), None);
    assert_eq!(&*stranger.view().draft, "");
    stranger.set_draft("whose?");
    assert!(!stranger.view().draft_kept);
    drop(stranger);
    assert_eq!([draft(2), draft(1)], ["", "mine"]);
    forget_drafts(&Scope::global());
    assert_eq!(draft(1), "");
}

#[wasm_bindgen_test]
async fn every_tab_hears_that_the_connection_broke() {
    let base = "/lost";
    let tabs = [Tab::open(base), Tab::open(base)];
    let source = until("the connection", || sources(base).pop()).await;
    script("break", std::slice::from_ref(&source));
    until("word of it in every tab", || tabs.iter().all(|tab| tab.lost.get() == 1).then_some(())).await;
}

#[wasm_bindgen_test]
async fn a_turn_streams_over_fetch_and_ends_in_a_read() {
    let base = "/turn";
    let handle = loaded(base, 1).await;
    let changes = Rc::new(Cell::new(0));
    let counted = Rc::clone(&changes);
    let subscription = handle.subscribe(move || counted.set(counted.get() + 1));
    handle.set_draft("go");
    handle.send();
    let (call, body) = request("POST", &chat(base)).await;
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["message"], "go");
    script("stream", std::slice::from_ref(&call));
    say(&call, &started(&body));
    say(&call, &json!({"type": "text-delta", "id": "1", "delta": "Grüße 😀"}));
    until("the text", || (texts(&handle) == ["go", "Grüße 😀"]).then_some(())).await;
    let view = handle.view();
    assert_eq!((view.running, view.stop, &*view.draft), (Some(Running::Live(EXECUTION.into())), Stop::Usable, ""));
    handle.stop();
    let (stop, _) = request("DELETE", &format!("{}/{}/executions/{EXECUTION}", chat(base), Uuid::from_u128(1))).await;
    answer(&stop, 200, &json!({"cancelRequested": true}));
    let session = Uuid::from_u128(1);
    say(&call, &json!({"type": "done", "sessionId": session, "executionId": EXECUTION, "status": "cancelled"}));
    let (read, _) = request("GET", &format!("{}?since=1", messages(base, 1))).await;
    let recorded = json!({"id": ANSWER, "role": "assistant", "content": [{"type": "text", "text": "Grüße 😀"}], "executionId": EXECUTION,
        "executionStatus": "cancelled", "createdAt": "2026-01-01T00:00:00Z", "revision": 9});
    let mut snapshot = empty(9);
    snapshot["messages"] = json!([recorded]);
    snapshot["partial"] = json!(true);
    answer(&read, 200, &snapshot);
    until("the record", || (texts(&handle) == ["Grüße 😀"]).then_some(())).await;
    assert_eq!(handle.view().messages().next().unwrap().execution_status, Some(ExecutionStatus::Cancelled));
    assert!(changes.get() > 0);
    drop(subscription);
    let before = changes.get();
    handle.set_draft("quiet");
    assert_eq!(changes.get(), before, "a dropped subscription is not called");
}

#[wasm_bindgen_test]
async fn problems_and_broken_connections_are_told_apart() {
    let base = "/problems";
    let handle = loaded(base, 1).await;
    handle.set_draft("go");
    handle.send();
    let (call, _) = request("POST", &chat(base)).await;
    let problem = json!({"type": "about:blank", "title": "Too many requests", "status": 429, "detail": "Slow down.", "code": "rate_limited"});
    script("answer", &[call, 429.into(), "application/problem+json".into(), problem.to_string().into(), "7".into()]);
    let trouble = until("the problem", || handle.view().trouble).await;
    assert_eq!(trouble.code(), Some(Code::RateLimited));
    assert!(matches!(trouble.cause, Cause::Failed(Failure::Refused { retry_after: Some(7), .. })), "{trouble:?}");

    for (status, kind, failure) in [
        (0, "", Failure::Broken),
        (502, "text/html", Failure::Unreadable { status: 502 }),
        (200, "text/html", Failure::Unreadable { status: 200 }),
    ] {
        handle.dismiss_trouble();
        handle.send();
        let (call, _) = request("POST", &chat(base)).await;
        if status == 0 {
            script("fail", &[call]);
        } else {
            script("answer", &[call, status.into(), kind.into(), "<html>".into()]);
        }
        let trouble = until("the failure", || handle.view().trouble).await;
        assert_eq!(trouble.cause, Cause::Failed(failure));
        let (read, _) = request("GET", &format!("{}?since=1", messages(base, 1))).await;
        answer(&read, 200, &empty(1));
        until("the check", || handle.view().can_send().then_some(())).await;
        assert_eq!(&*handle.view().draft, "go");
    }
}

#[wasm_bindgen_test]
async fn the_last_handle_closes_the_live_stream_and_a_submit_on_its_way_stays() {
    let base = "/close";
    let handle = loaded(base, 1).await;
    handle.set_draft("go");
    handle.send();
    let (call, body) = request("POST", &chat(base)).await;
    let clone = handle.clone();
    drop(handle);
    script("stream", std::slice::from_ref(&call));
    say(&call, &started(&body));
    until("the turn", || clone.view().running.and_then(Running::execution)).await;
    assert!(!is_aborted(&call));
    drop(clone);
    assert!(is_aborted(&call));

    let handle = loaded(base, 2).await;
    handle.set_draft("go on");
    handle.send();
    let (call, body) = request("POST", &chat(base)).await;
    drop(handle);
    assert!(!is_aborted(&call), "closing it would take the message back");
    script("stream", std::slice::from_ref(&call));
    say(&call, &started(&body));
    until("the end of the stream", || is_aborted(&call).then_some(())).await;
    assert_eq!(&*open(base, Some(2)).view().draft, "", "it was accepted");
}

#[wasm_bindgen_test]
async fn the_network_and_the_page_coming_back_are_occasions_to_read() {
    let base = "/occasions";
    let handle = loaded(base, 1).await;
    for event in ["online", "pageshow"] {
        web_sys::window().unwrap().dispatch_event(&web_sys::Event::new(event).unwrap()).unwrap();
        let (read, _) = request("GET", &format!("{}?since=1", messages(base, 1))).await;
        answer(&read, 200, &empty(1));
    }
    drop(handle);
}

/// A tab: a client, and what it heard.
struct Tab {
    heard: Rc<RefCell<Vec<PushEvent>>>,
    lost: Rc<Cell<usize>>,
    _subscriptions: [Subscription; 2],
    _client: Client,
}

impl Tab {
    fn open(base: &str) -> Self {
        script("install", &[]);
        let client = Client::new(base);
        let heard = Rc::new(RefCell::new(Vec::new()));
        let list = Rc::clone(&heard);
        let lost = Rc::new(Cell::new(0));
        let count = Rc::clone(&lost);
        let subscriptions = [
            client.on_push(move |event| list.borrow_mut().push(event.clone())),
            client.on_push_lost(move || count.set(count.get() + 1)),
        ];
        Self { heard, lost, _subscriptions: subscriptions, _client: client }
    }

    fn heard(&self) -> usize {
        self.heard.borrow().len()
    }
}

fn update() -> Value {
    json!({"type": "agentExecutionUpdated", "data": {"projectId": "demo", "agentId": "assistant",
        "threadId": Uuid::from_u128(1), "revision": 3}})
}

#[wasm_bindgen_test]
async fn eight_tabs_hold_one_connection_and_hand_it_over() {
    let base = "/eight";
    let mut tabs: Vec<_> = (0..8).map(|_| Tab::open(base)).collect();
    let source = until("the connection", || sources(base).pop()).await;
    push(&source, &json!({"type": "connected"}));
    push(&source, &update());
    until("the messages in every tab", || tabs.iter().all(|tab| tab.heard() == 2).then_some(())).await;
    assert_eq!(sources(base).len(), 1);

    drop(tabs.remove(0));
    let next = until("another connection", || sources(base).pop().filter(|next| *next != source)).await;
    push(&next, &json!({"type": "connected"}));
    until("word of it in every tab", || tabs.iter().all(|tab| tab.heard() == 3).then_some(())).await;
    assert!(tabs.iter().all(|tab| tab.heard.borrow().last() == Some(&PushEvent::Connected)));
    assert_eq!(sources(base).len(), 1);
}

#[wasm_bindgen_test]
async fn a_tab_whose_lock_is_taken_closes_its_connection() {
    let base = "/stolen";
    let tab = Tab::open(base);
    until("the connection", || sources(base).pop()).await;
    let release: Function = script("steal", &[format!("turnfast-push {base}").into()]).unchecked_into();
    until("the end of the connection", || sources(base).is_empty().then_some(())).await;
    release.call0(&JsValue::UNDEFINED).unwrap();
    until("the connection again", || sources(base).pop()).await;
    drop(tab);
}

#[wasm_bindgen_test]
async fn without_a_broadcast_channel_each_tab_connects() {
    let base = "/alone";
    let class = script("hide", &["BroadcastChannel".into()]);
    let tabs = [Tab::open(base), Tab::open(base)];
    assert_eq!(sources(base).len(), 2);
    script("show", &["BroadcastChannel".into(), class]);
    for source in sources(base) {
        push(&source, &update());
    }
    assert!(tabs.iter().all(|tab| tab.heard() == 1));
}

#[wasm_bindgen_test]
async fn a_notification_makes_an_open_thread_of_another_tab_read() {
    let base = "/notified";
    let leader = Tab::open(base);
    let source = until("the connection", || sources(base).pop()).await;
    let handle = loaded(base, 1).await;
    push(&source, &update());
    let (read, _) = request("GET", &format!("{}?since=1", messages(base, 1))).await;
    answer(&read, 200, &empty(3));
    push(&source, &json!({"type": "connected"}));
    request("GET", &format!("{}?since=3", messages(base, 1))).await;
    drop((leader, handle));
}

#[wasm_bindgen_test]
async fn a_broken_push_connection_comes_back() {
    let base = "/again";
    let tab = Tab::open(base);
    let first = until("the connection", || sources(base).pop()).await;
    script("break", std::slice::from_ref(&first));
    until("the pause", || sources(base).is_empty().then_some(())).await;
    web_sys::window().unwrap().dispatch_event(&web_sys::Event::new("online").unwrap()).unwrap();
    let second = until("the connection again", || sources(base).pop()).await;
    assert_ne!(first, second);
    drop(tab);
}

#[wasm_bindgen_test]
async fn a_page_that_is_left_holds_nothing_and_takes_part_again_when_it_comes_back() {
    let base = "/left";
    let tab = Tab::open(base);
    let first = until("the connection", || sources(base).pop()).await;
    let happens = |name: &str| web_sys::window().unwrap().dispatch_event(&web_sys::Event::new(name).unwrap()).unwrap();
    happens("pagehide");
    until("the end of the connection", || sources(base).is_empty().then_some(())).await;
    happens("pageshow");
    let second = until("the connection again", || sources(base).pop()).await;
    assert_ne!(first, second);
    push(&second, &json!({"type": "connected"}));
    until("the message", || (tab.heard() == 1).then_some(())).await;
    // That the page is shown is news to those only who left it.
    happens("pageshow");
    assert_eq!(sources(base), [second]);
}

#[wasm_bindgen_test]
async fn a_new_thread_learns_its_id_from_the_acceptance() {
    let base = "/new";
    let handle = open(base, None);
    handle.set_draft("first");
    handle.send();
    let (call, body) = request("POST", &chat(base)).await;
    let sent: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&sent["newSession"], handle.view().thread), (&json!(true), None));
    script("stream", std::slice::from_ref(&call));
    say(&call, &started(&body));
    let thread = until("the thread's id", || handle.view().thread).await;
    assert_eq!(json!(thread), sent["sessionId"]);
    let same: ThreadId = thread;
    handle.switch(Some(same));
    assert!(!is_aborted(&call));
}
