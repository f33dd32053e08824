//! The page: a state, actions that change it, and views of it that become elements.

mod app;
mod composer;
mod conversation;
mod dom;
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
    if let Some(root) = page::find("#app") {
        root.set_text_content(None);
        app::App::start(root);
    }
}
