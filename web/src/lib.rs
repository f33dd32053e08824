//! The Turnfast page: renders the view of client-core's thread machine and forwards what the person does. It holds no recovery
//! logic: when to read, what to send and what to keep is the machine's business.
//!
//! [`files`], [`markdown`], [`route`] and [`words`] are pure and natively tested; the rest exists in a browser only.

pub mod files;
pub mod markdown;
pub mod route;
pub mod words;

#[cfg(target_arch = "wasm32")]
pub mod api;
#[cfg(target_arch = "wasm32")]
pub mod ui;
