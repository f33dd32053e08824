//! A model provider of our own: a process that speaks OpenAI's chat completions and does what the newest message of the user
//! [tells it to](script). It tells a test what it was asked, and when a caller hung up.

pub mod app;
pub mod script;

use anyhow::Result;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::process::Command;

pub use self::app::{End, Seen};
use crate::{
    client::http,
    process::{Process, program},
    within,
};

/// A provider that runs.
#[derive(Debug)]
pub struct Provider {
    _process: Process,
    _folder: TempDir,
    http: reqwest::Client,
    url: String,
}

impl Provider {
    /// Starts one.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let command = Command::new(program("TURNFAST_TEST_PROVIDER_BIN", "turnfast-test-provider")?);
        let mut process = Process::start(command, folder.path().join("stderr"))?;
        let url = process.line("the address", |line| line.strip_prefix("listening on ").map(str::to_owned)).await?;
        Ok(Self { _process: process, _folder: folder, http: http()?, url })
    }

    /// `base_url` for the configuration.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.url)
    }

    /// All requests so far.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn requests(&self) -> Result<Vec<Seen>> {
        self.ask("requests").await
    }

    /// Waits for request `n`, counted from 0.
    ///
    /// # Errors
    /// None comes.
    pub async fn request(&self, n: usize) -> Result<Seen> {
        self.ask(&format!("wait-request/{n}")).await
    }

    /// Waits until request `n` is over, and says how it ended.
    ///
    /// # Errors
    /// It does not end.
    pub async fn end_of(&self, n: usize) -> Result<End> {
        self.ask(&format!("wait-end/{n}")).await
    }

    /// Waits until a script waits at `[[hold:NAME]]`.
    ///
    /// # Errors
    /// None does.
    pub async fn holds(&self, name: &str) -> Result<()> {
        self.ask(&format!("wait-hold/{name}")).await
    }

    /// Lets scripts go on that wait at `[[hold:NAME]]`.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn release(&self, name: &str) -> Result<()> {
        let sent = self.http.post(format!("{}/control/release/{name}", self.url)).send();
        within("the provider", async { sent.await?.error_for_status() }).await?;
        Ok(())
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let sent = self.http.get(format!("{}/control/{path}", self.url)).send();
        within(&format!("{path} of the provider"), async { sent.await?.error_for_status()?.json().await }).await
    }
}
