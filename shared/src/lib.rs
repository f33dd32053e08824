//! What server and browser must agree on: the wire types of contract 1 and the pure logic behind them.
//!
//! Nothing here does I/O, reads a clock or draws a random number: times and ids come in as arguments. Both sides run the same
//! [`timeline`] reducer, so what a live stream shows and what the record holds cannot drift apart.

pub mod api;
pub mod event;
pub mod few;
pub mod files;
pub mod identity;
pub mod ids;
pub mod json;
pub mod limits;
pub mod message;
pub mod problem;
pub mod sse;
pub mod timeline;

pub use event::Event;
pub use message::{ExecutionStatus, Message, Part, Role, ToolState};
pub use problem::{Code, Problem};
pub use timeline::Timeline;

/// A point in time: milliseconds since the Unix epoch.
pub type Millis = i64;
