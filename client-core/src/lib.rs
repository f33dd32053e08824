//! The browser's recovery logic of contract 1, section 7.
//!
//! [`thread`] and [`follow`] are pure state machines: input and time go in, effects come out as data. They never see a clock, a DOM,
//! a network or a random number, so that native tests can play any race. [`browser`] (wasm only) performs the effects.

pub mod follow;
pub mod thread;

#[cfg(target_arch = "wasm32")]
pub mod browser;

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod simulation;

pub use turnfast_shared as shared;
