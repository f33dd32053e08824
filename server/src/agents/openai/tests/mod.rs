//! The dialects of providers.md row by row, and the connection against a real server.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod connection;
mod dialects;
mod request;
