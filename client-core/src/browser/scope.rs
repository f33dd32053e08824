//! Where a client finds what a browser offers.

use js_sys::{Array, Function, Object, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use web_sys::{BroadcastChannel, Document, EventSource, RequestInit, Storage};

#[wasm_bindgen]
extern "C" {
    /// The global object, or one that stands in for it, with these of its members: `fetch`, `EventSource`, `BroadcastChannel`,
    /// `localStorage`, `navigator` (of which `locks`), `document`, `addEventListener` and `removeEventListener`.
    #[derive(Clone, Debug)]
    pub type Scope;

    #[wasm_bindgen(method, catch)]
    fn fetch(this: &Scope, url: &str, init: &RequestInit) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, getter, catch, js_name = "localStorage")]
    fn local_storage(this: &Scope) -> Result<Option<Storage>, JsValue>;

    #[wasm_bindgen(method, getter)]
    fn document(this: &Scope) -> Option<Document>;

    /// `navigator.locks`.
    pub(super) type Locks;

    #[wasm_bindgen(method, catch)]
    pub(super) fn request(this: &Locks, name: &str, options: &Object, callback: &JsValue) -> Result<Promise, JsValue>;
}

impl Scope {
    /// The global object.
    #[must_use]
    #[inline(never)]
    pub fn global() -> Self {
        js_sys::global().unchecked_into()
    }

    /// Sends a request. `None`: it could not even be tried.
    pub(super) fn send(&self, url: &str, init: &RequestInit) -> Option<Promise> {
        self.fetch(url, init).ok()
    }

    /// What is kept over reloads; `None` where that is missing or forbidden.
    pub(super) fn storage(&self) -> Option<Storage> {
        self.local_storage().ok()?
    }

    /// The page, where there is one.
    pub(super) fn page(&self) -> Option<Document> {
        self.document()
    }

    /// Web Locks; absent in old browsers, and in pages that came over plain HTTP from another machine.
    pub(super) fn locks(&self) -> Option<Locks> {
        let locks = member(&member(self, "navigator")?, "locks")?;
        locks.is_object().then(|| locks.unchecked_into())
    }

    pub(super) fn new_channel(&self, name: &str) -> Option<BroadcastChannel> {
        self.construct("BroadcastChannel", name)
    }

    pub(super) fn new_source(&self, url: &str) -> Option<EventSource> {
        self.construct("EventSource", url)
    }

    fn construct<T: JsCast>(&self, class: &str, argument: &str) -> Option<T> {
        let class: Function = member(self, class)?.unchecked_into();
        // Fails for what is no class too. What stands in for a browser's class need not be derived from it.
        Reflect::construct(&class, &Array::of1(&argument.into())).ok().map(JsCast::unchecked_into)
    }
}

#[inline(never)]
fn member(of: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(of, &name.into()).ok()
}
