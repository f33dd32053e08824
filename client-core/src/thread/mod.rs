//! One open thread: what the person does, what the server answers, stream bytes, notifications and visibility go in; effects and a
//! [`View`] come out (contract 1, section 7).
//!
//! The machine knows no clock, DOM, network or random number. It never waits: whatever takes time is an [`Effect`] with an id, and
//! its outcome is an [`Input`] with the same id.

mod effect;
mod live;
mod machine;
mod record;
mod view;

pub use effect::{Effect, EffectId, Failure, Input, Occasion, PendingSubmit, REQUEST_TIMEOUT_MS, StoredDraft};
pub use machine::Machine;
pub use view::{Attempt, Cause, Interaction, InteractionState, Live, Load, Running, SendBlocked, Stop, Trouble, View, Warning};

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;
