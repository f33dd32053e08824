//! What the end-to-end tests are made of. Nothing here is a fake: the server is the real binary, the provider is a process of its
//! own that speaks the real protocol, the browser is Chromium.
//!
//! | module | job |
//! | --- | --- |
//! | [`installation`] | a data folder and a configuration, and the servers that run on them |
//! | [`client`] | a person's API client |
//! | [`conformance`] | contract 1 as tests of any server that keeps it |
//! | [`mutants`] | a proxy that breaks one thing of the contract, so that those tests are tested |
//! | [`provider`] | a model provider that does what the message tells it to |
//! | [`mcp`] | an MCP server with tools that fail in every way |
//! | [`browser`] | a browser and what a person does with it |
//! | [`walks`] | random sequences of what people do, against a server that dies in between |
//! | [`chaos`] | three servers, one database, many clients, and all that can go wrong between them |
//! | [`bench`] | what is measured, and against which bounds |
//! | [`process`] | programs that are started, watched and killed |
//!
//! Tests wait for a state and never for a time. [`within`] is the one deadline, and it is generous: a test that meets it has failed.

pub mod bench;
pub mod browser;
pub mod chaos;
pub mod client;
pub mod conformance;
mod dice;
pub mod installation;
pub mod mcp;
pub mod mutants;
pub mod process;
pub mod provider;
pub mod walks;

use std::time::Duration;

use anyhow::{Context, Result};

/// How long anything may take before a test gives it up.
pub const GUARD: Duration = Duration::from_secs(60);

tokio::task_local! {
    static PATIENCE: Duration;
}

/// Runs `future` with another limit than [`GUARD`], where waiting in vain is what is expected.
pub async fn with_patience<F: Future>(limit: Duration, future: F) -> F::Output {
    PATIENCE.scope(limit, future).await
}

/// How long anything may take here: [`GUARD`], unless [`with_patience`] says otherwise.
#[must_use]
pub fn patience() -> Duration {
    PATIENCE.try_with(|limit| *limit).unwrap_or(GUARD)
}

/// Waits for `future`, or fails after [`patience`].
///
/// # Errors
/// The future's own, or that it took too long; both say `what` was waited for.
pub async fn within<T, E>(what: &str, future: impl Future<Output = Result<T, E>>) -> Result<T>
where
    Result<T, E>: Context<T, E>,
{
    let limit = patience();
    match tokio::time::timeout(limit, future).await {
        Ok(outcome) => outcome.with_context(|| format!("while waiting for {what}")),
        Err(_) => anyhow::bail!("waited {} s for {what}", limit.as_secs()),
    }
}
