//! The dialects of providers.md row by row, and the connection against a real server.

mod connection;
mod dialects;
mod request;
