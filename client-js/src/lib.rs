//! What the npm package `turnfast-client` is made of, beside the hand-written files in `package`: client-core's threads as
//! JavaScript sees them.
//!
//! [`words`] puts what the machine shows into the package's words, and is pure. [`state`] (wasm only) keeps the newest snapshot and
//! makes the next one out of it, converting nothing but what changed; [`exports`] is what `package/index.js` calls.

pub mod words;

#[cfg(target_arch = "wasm32")]
pub mod exports;
#[cfg(target_arch = "wasm32")]
mod state;
