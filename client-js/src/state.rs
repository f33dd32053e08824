//! Snapshots of a thread as JavaScript objects that share what did not change.

use std::{cell::OnceCell, collections::HashMap, rc::Rc};

use js_sys::{Array, JsString, Object, Reflect};
use serde::Serialize;
use serde_json::Value;
use turnfast_client_core::thread::View;
use turnfast_shared::{Message, Part, ids::MessageId};
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

use crate::words;

#[wasm_bindgen]
extern "C" {
    /// Makes frozen objects; `maker` in `package/index.js`.
    #[derive(Clone, Debug)]
    pub type Maker;

    /// The value of a JSON text.
    #[wasm_bindgen(method)]
    pub(crate) fn parse(this: &Maker, json: &str) -> JsValue;

    /// A text or reasoning part: the fields of a JSON text, and `text`.
    #[wasm_bindgen(method)]
    fn part(this: &Maker, json: &str, text: &JsString) -> JsValue;

    /// A message: the fields of a JSON text, and `content`.
    #[wasm_bindgen(method)]
    fn message(this: &Maker, json: &str, content: &JsValue) -> JsValue;

    /// A list of that content.
    #[wasm_bindgen(method)]
    fn list(this: &Maker, items: &Array) -> JsValue;

    /// The list with another item at `index`.
    #[wasm_bindgen(method)]
    fn replaced(this: &Maker, list: &JsValue, index: u32, item: &JsValue) -> JsValue;

    /// The snapshot before, or `undefined`, with the fields that changed.
    #[wasm_bindgen(method)]
    fn snapshot(this: &Maker, before: &JsValue, changes: &Object) -> JsValue;
}

/// The newest snapshot, and what it was made of.
pub(crate) struct State {
    maker: Maker,
    shown: Option<Shown>,
}

struct Shown {
    view: View,
    snapshot: JsValue,
    messages: Messages,
}

/// The messages of a snapshot.
#[derive(Default)]
struct Messages {
    settled: Vec<Rc<Converted>>,
    /// The list of `settled`.
    list: JsValue,
    /// The one that is being written, and its place in the list.
    live: Option<(usize, Rc<Converted>)>,
}

/// A message and its object.
struct Converted {
    message: Rc<Message>,
    parts: Vec<Rc<Piece>>,
    content: Rc<JsValue>,
    object: Rc<JsValue>,
}

/// The object of a part, and its text where it has one that grows.
struct Piece {
    object: JsValue,
    text: Option<JsString>,
}

impl Converted {
    fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.object, &other.object)
    }
}

impl State {
    pub(crate) fn new(maker: Maker) -> Self {
        Self { maker, shown: None }
    }

    /// The snapshot of `view`: the same object as before unless something differs.
    pub(crate) fn of(&mut self, view: View) -> JsValue {
        let (old, before, messages) = match self.shown.take() {
            Some(Shown { view, snapshot, messages }) => (Some(view), snapshot, messages),
            None => (None, JsValue::UNDEFINED, Messages::default()),
        };
        let changes = Object::new();
        let mut changed = false;
        let mut set = |name: &str, value: &JsValue| {
            changed = true;
            // It is a plain object of our own, which refuses nothing.
            let _ = Reflect::set(&changes, &name.into(), value);
        };
        let old = old.as_ref();
        let parse = |value: &Value| self.maker.parse(&value.to_string());
        macro_rules! field {
            ($name:literal, $field:ident, $to_js:expr) => {
                if old.is_none_or(|old| old.$field != view.$field) {
                    set($name, &$to_js(&view.$field));
                }
            };
        }
        field!("threadId", thread, |id| parse(&words::value(id)));
        field!("load", load, |load| parse(&words::load(load)));
        field!("readFailure", read_failure, |failure: &Option<_>| parse(&failure.as_ref().map(words::failure).into()));
        field!("catchingUp", catching_up, |reading: &bool| JsValue::from(*reading));
        field!("running", running, |running: &Option<_>| parse(&running.map(words::running).into()));
        field!("stop", stop, |stop: &_| JsValue::from(words::stop(*stop)));
        field!("interactions", interactions, |list: &Vec<_>| parse(&list.iter().map(words::interaction).collect()));
        field!("draft", draft, |draft: &Rc<str>| JsValue::from(&**draft));
        field!("attachments", attachments, |list: &Rc<Vec<_>>| parse(&words::value(&**list)));
        field!("draftKept", draft_kept, |kept: &bool| JsValue::from(*kept));
        field!("sendBlocked", send_blocked, |reason: &Option<_>| parse(&reason.map(words::send_blocked).into()));
        field!("trouble", trouble, |trouble: &Option<_>| parse(&trouble.as_ref().map(words::trouble).into()));
        field!("warnings", warnings, |list: &Rc<Vec<_>>| parse(&list.iter().map(words::warning).collect()));
        field!("signedOut", signed_out, |signed_out: &bool| JsValue::from(*signed_out));

        let (messages, list) = self.messages(&view, old, messages);
        if let Some(list) = list {
            set("messages", &list);
        }
        let snapshot = if changed { self.maker.snapshot(&before, &changes) } else { before };
        self.shown = Some(Shown { view, snapshot: snapshot.clone(), messages });
        snapshot
    }

    /// The messages of `view`, and their list where it is not the one before.
    fn messages(&self, view: &View, old: Option<&View>, before: Messages) -> (Messages, Option<JsValue>) {
        let live_before = before.live.as_ref().map(|(_, live)| live);
        let (settled, list, same_list) = match old {
            // One delta costs the same in a long thread: nothing is done per message.
            Some(old) if Rc::ptr_eq(&old.settled, &view.settled) => (before.settled, before.list, true),
            old => {
                let settled = self.settle(view, &before.settled, live_before);
                let same = |(a, b): (&Rc<Converted>, &Rc<Converted>)| a.is_same(b);
                let is_same =
                    old.is_some() && settled.len() == before.settled.len() && settled.iter().zip(&before.settled).all(same);
                let list = if is_same {
                    before.list
                } else {
                    self.maker.list(&settled.iter().map(|message| message.object.as_ref()).collect())
                };
                (settled, list, is_same)
            }
        };
        let live = view.live.as_ref().map(|now| {
            let older = live_before.filter(|live| live.message.id == now.message.id).or_else(|| settled.get(now.index));
            (now.index, self.convert(&now.message, older))
        });
        let same_live = match (&before.live, &live) {
            (None, None) => true,
            (Some((at, before)), Some((now_at, now))) => at == now_at && before.is_same(now),
            _ => false,
        };
        let shown = match &live {
            _ if same_list && same_live => None,
            Some((at, live)) => Some(self.maker.replaced(&list, *at as u32, &live.object)),
            None => Some(list.clone()),
        };
        (Messages { settled, list, live }, shown)
    }

    /// The messages of another list. What they are compared with is the newest state of each that was shown.
    fn settle(&self, view: &View, before: &[Rc<Converted>], live: Option<&Rc<Converted>>) -> Vec<Rc<Converted>> {
        let by_id: OnceCell<HashMap<MessageId, &Rc<Converted>>> = OnceCell::new();
        let newest = |at: usize, id: MessageId| {
            let is_it = |converted: &&Rc<Converted>| converted.message.id == id;
            // Most lists differ from the one before at their end only.
            live.filter(is_it).or_else(|| before.get(at).filter(is_it)).or_else(|| {
                by_id.get_or_init(|| before.iter().map(|before| (before.message.id, before)).collect()).get(&id).copied()
            })
        };
        view.settled.iter().enumerate().map(|(at, message)| self.convert(message, newest(at, message.id))).collect()
    }

    /// The message as an object; of `older`, a state of it that was shown, as much as is the same.
    fn convert(&self, message: &Rc<Message>, older: Option<&Rc<Converted>>) -> Rc<Converted> {
        if let Some(older) = older {
            if Rc::ptr_eq(&older.message, message) {
                return Rc::clone(older);
            }
            if older.message == *message {
                let Converted { parts, content, object, .. } = &**older;
                let (parts, content, object) = (parts.clone(), Rc::clone(content), Rc::clone(object));
                return Rc::new(Converted { message: Rc::clone(message), parts, content, object });
            }
        }
        let old = |at: usize| older.and_then(|older| Some((older.message.content.get(at)?, older.parts.get(at)?)));
        let parts: Vec<_> = message.content.iter().enumerate().map(|(at, part)| self.part(part, old(at))).collect();
        let is_same = |older: &&Rc<Converted>| {
            older.parts.len() == parts.len() && older.parts.iter().zip(&parts).all(|(a, b)| Rc::ptr_eq(a, b))
        };
        let content = match older.filter(is_same) {
            Some(older) => Rc::clone(&older.content),
            None => Rc::new(self.maker.list(&parts.iter().map(|part| &part.object).collect())),
        };
        let object = Rc::new(self.maker.message(&json(&without_content(message)), &content));
        Rc::new(Converted { message: Rc::clone(message), parts, content, object })
    }

    fn part(&self, part: &Part, older: Option<(&Part, &Rc<Piece>)>) -> Rc<Piece> {
        if let Some((_, piece)) = older.filter(|(older, _)| *older == part) {
            return Rc::clone(piece);
        }
        let (head, text) = match part {
            Part::Text { text } => (Part::Text { text: String::new() }, text),
            Part::Reasoning { text, start_time, end_time } => {
                (Part::Reasoning { text: String::new(), start_time: *start_time, end_time: *end_time }, text)
            }
            Part::File { .. } | Part::ToolCall(_) => {
                return Rc::new(Piece { object: self.maker.parse(&json(part)), text: None });
            }
        };
        // What a delta appended is all that crosses over.
        let appended = match older {
            Some((Part::Text { text: older } | Part::Reasoning { text: older, .. }, piece)) => {
                let shown = piece.text.as_ref();
                shown.zip(text.strip_prefix(older.as_str())).map(|(shown, rest)| shown.concat(&rest.into()))
            }
            _ => None,
        };
        let text = appended.unwrap_or_else(|| text.as_str().into());
        Rc::new(Piece { object: self.maker.part(&json(&head), &text), text: Some(text) })
    }
}

fn without_content(message: &Message) -> Message {
    Message {
        content: Vec::new(),
        id: message.id,
        role: message.role,
        execution_id: message.execution_id,
        execution_status: message.execution_status,
        execution_error: message.execution_error.clone(),
        created_at: message.created_at.clone(),
        revision: message.revision,
    }
}

fn json(of: &impl Serialize) -> String {
    // What the wire has can always be written.
    serde_json::to_string(of).unwrap_or_default()
}
