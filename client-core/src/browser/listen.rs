//! DOM listeners that end when they are dropped.

use wasm_bindgen::{JsCast, closure::Closure};
use web_sys::{Event, EventTarget};

/// One listener.
pub(super) struct Listener {
    target: EventTarget,
    event: &'static str,
    closure: Closure<dyn FnMut(Event)>,
}

impl Listener {
    pub(super) fn new(target: &EventTarget, event: &'static str, callback: impl FnMut(Event) + 'static) -> Self {
        let closure = Closure::wrap(Box::new(callback) as Box<dyn FnMut(Event)>);
        // Only a listener that is no function is refused.
        let _ = target.add_event_listener_with_callback(event, closure.as_ref().unchecked_ref());
        Self { target: target.clone(), event, closure }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.target.remove_event_listener_with_callback(self.event, self.closure.as_ref().unchecked_ref());
    }
}
