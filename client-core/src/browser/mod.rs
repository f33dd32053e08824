//! The browser's side: performs the machines' effects with fetch, timers, storage and `/push`. It decides nothing by itself.

mod client;
mod drafts;
mod handle;
mod http;
mod listen;
mod push;
mod scope;
mod subscribers;

pub use client::Client;
pub use drafts::forget_drafts;
pub use handle::ThreadHandle;
pub use http::{Answer, request};
pub use scope::Scope;
pub use subscribers::Subscription;
