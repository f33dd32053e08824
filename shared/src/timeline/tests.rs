//! The reducer, event by event.
