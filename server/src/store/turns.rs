//! Threads, messages and executions: the part of the record that says what was said.

use async_trait::async_trait;

/// Reads and writes threads.
#[async_trait]
pub trait TurnStore: Send + Sync {}
