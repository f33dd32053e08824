//! What the views need of the browser, in short.

use gloo_timers::callback::Timeout;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{Document, Element, HtmlElement, HtmlInputElement, Window};

use crate::route::Route;

#[expect(clippy::expect_used, reason = "it says why it cannot fail")]
pub(super) fn window() -> Window {
    web_sys::window().expect("the page runs in a window")
}

#[expect(clippy::expect_used, reason = "it says why it cannot fail")]
pub(super) fn document() -> Document {
    window().document().expect("a window with a page has a document")
}

/// The first element of the page that `selector` fits.
pub(super) fn find(selector: &str) -> Option<Element> {
    document().query_selector(selector).ok()?
}

pub(super) fn focus(element: Option<Element>) {
    if let Some(element) = element.and_then(|element| element.dyn_into::<HtmlElement>().ok()) {
        let _ = element.focus();
    }
}

/// Puts the focus where the person writes.
pub(super) fn focus_composer() {
    focus(find("#composer"));
}

/// The first input of `within` that `selector` fits.
pub(super) fn input(within: &Element, selector: &str) -> Option<HtmlInputElement> {
    within.query_selector(selector).ok()??.dyn_into().ok()
}

/// The place that the address bar names.
pub(super) fn here() -> Route {
    Route::parse(&window().location().pathname().unwrap_or_default())
}

/// Leaves for `/`, and all that the page holds.
pub(super) fn start_over() {
    let _ = window().location().assign("/");
}

/// Shows nothing of the page, or all of it again.
pub(super) fn veil(on: bool) {
    if let Some(body) = document().body() {
        let _ = body.class_list().toggle_with_force("veil", on);
    }
}

pub(super) fn kept(key: &str) -> Option<String> {
    window().local_storage().ok()??.get_item(key).ok()?
}

pub(super) fn keep(key: &str, value: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        let _ = storage.set_item(key, value);
    }
}

pub(super) fn forget(key: &str) {
    if let Ok(Some(storage)) = window().local_storage() {
        let _ = storage.remove_item(key);
    }
}

/// Whether the page is at most this wide, in CSS pixels.
pub(super) fn narrower_than(width: f64) -> bool {
    window().inner_width().ok().and_then(|inner| inner.as_f64()).is_some_and(|inner| inner <= width)
}

/// Whether the event is of the Escape key, and does nothing else.
pub(super) fn is_escape(event: &web_sys::Event) -> bool {
    event.dyn_ref::<web_sys::KeyboardEvent>().is_some_and(|event| event.key() == "Escape" && !event.is_composing())
}

pub(super) fn now() -> turnfast_shared::Millis {
    js_sys::Date::now() as turnfast_shared::Millis
}

/// Milliseconds since the epoch of an RFC 3339 time.
pub(super) fn millis(time: &str) -> Option<turnfast_shared::Millis> {
    let at = js_sys::Date::parse(time);
    at.is_finite().then_some(at as turnfast_shared::Millis)
}

/// A point in time in the reader's own way of writing it.
pub(super) fn local_time(time: &str) -> String {
    let date = js_sys::Date::new(&JsValue::from_str(time));
    if date.get_time().is_nan() { String::new() } else { String::from(date.to_locale_string("default", &JsValue::UNDEFINED)) }
}

/// Whether a click on a link is one that the page should take, and not the browser (new tab, new window, download).
pub(super) fn plain_click(event: &web_sys::Event) -> bool {
    event.dyn_ref::<web_sys::MouseEvent>().is_some_and(|event| {
        event.button() == 0 && !event.ctrl_key() && !event.meta_key() && !event.shift_key() && !event.alt_key()
    })
}

/// Whether a finger is what points: the keyboard on the screen should then wait to be asked for.
pub(super) fn coarse_pointer() -> bool {
    window().match_media("(pointer: coarse)").ok().flatten().is_some_and(|query| query.matches())
}

/// The Copy button of a block of code was clicked, or something else was: replies hold many, so the page has one listener.
pub(super) fn copy_code(event: &web_sys::Event) -> Option<()> {
    let button = event.target()?.dyn_into::<Element>().ok()?.closest("[data-copy]").ok()??;
    let code = button.closest(".code").ok()??.query_selector("pre").ok()??;
    copy(code.text_content().unwrap_or_default(), button);
    Some(())
}

/// Puts `text` on the clipboard, and says on `button` for a moment how that went.
pub(super) fn copy(text: String, button: Element) {
    spawn_local(async move {
        // Pages that are not served over https or from this machine have no clipboard.
        let clipboard =
            js_sys::Reflect::get(&window().navigator(), &"clipboard".into()).is_ok_and(|clipboard| clipboard.is_object());
        let copied = clipboard && JsFuture::from(window().navigator().clipboard().write_text(&text)).await.is_ok();
        let before = button.get_attribute("data-label").or_else(|| button.text_content()).unwrap_or_default();
        let _ = button.set_attribute("data-label", &before);
        button.set_text_content(Some(if copied { "Copied" } else { "Could not copy" }));
        Timeout::new(1_600, move || button.set_text_content(Some(&before))).forget();
    });
}
