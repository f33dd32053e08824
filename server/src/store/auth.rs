//! Users, browser sessions, sign-in links and API tokens: the part of the record that says who someone is.

use async_trait::async_trait;

/// Reads and writes who someone is.
#[async_trait]
pub trait AuthStore: Send + Sync {}
