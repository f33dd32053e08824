//! The browser's side: performs the machines' effects with fetch, timers, storage and `/push`. It decides nothing by itself.

mod client;
mod handle;
mod subscribers;

pub use client::Client;
pub use handle::ThreadHandle;
pub use subscribers::Subscription;
