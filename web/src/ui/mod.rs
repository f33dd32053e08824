//! The page: a state, actions that change it, and views of it that become elements.

mod app;
mod composer;
mod conversation;
mod dom;
mod files;
mod icon;
mod interaction;
mod message;
mod mount;
mod node;
mod page;
mod shell;
mod sidebar;
mod signin;
mod tool;

pub use dom::Rendered;
pub use mount::Mount;
pub use node::{Child, Draft, Element, Fixed, Key, Node, Prose, element, prose, text};

/// Puts the page into its document and starts it.
pub fn start() {
    // boot.js says it: after a panic nothing of this module can be relied on.
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(event) = web_sys::Event::new("turnfast-panic") {
            let _ = page::window().dispatch_event(&event);
        }
        wasm_bindgen::throw_str(&panic.to_string());
    }));
    if let Some(root) = page::find("#app") {
        root.set_text_content(None);
        app::App::start(root);
    }
}
