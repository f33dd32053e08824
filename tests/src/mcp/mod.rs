//! An MCP server that a test controls: a process of its own that speaks the real protocol, over its standard streams or over HTTP.
//! It reports what happens to it to the test that made it: `started`, `call NAME`, `cancelled NAME`, `listed`, and, when it is gone,
//! [`Happened::Gone`].

pub mod app;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Result;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::Command,
    sync::watch,
};

use crate::{
    process::{Process, program},
    within,
};

/// Something that a server reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// One line of it.
    Said(String),
    /// The process has ended.
    Gone,
}

/// Hears what MCP servers report.
#[derive(Debug)]
pub struct Reports {
    address: SocketAddr,
    seen: watch::Receiver<Vec<Happened>>,
}

impl Reports {
    /// Listens.
    ///
    /// # Errors
    /// No port is to be had.
    pub async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, seen) = watch::channel(Vec::new());
        let sender = Arc::new(sender);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = Arc::clone(&sender);
                tokio::spawn(async move {
                    let mut lines = BufReader::new(stream).lines();
                    while let Ok(Some(line)) = lines.next_line().await {
                        sender.send_modify(|seen| seen.push(Happened::Said(line)));
                    }
                    sender.send_modify(|seen| seen.push(Happened::Gone));
                });
            }
        });
        Ok(Self { address, seen })
    }

    /// The command that starts a server over standard streams, for a configuration.
    ///
    /// # Errors
    /// The server has not been built.
    pub fn command(&self) -> Result<Vec<String>> {
        Ok(vec![binary()?.display().to_string(), "--report".to_owned(), self.address.to_string()])
    }

    /// Starts a server over HTTP, at `address` or, with port 0, at a free one.
    ///
    /// # Errors
    /// It does not start.
    pub async fn http(&self, address: &str) -> Result<HttpServer> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(binary()?);
        command.args(["--report", &self.address.to_string(), "--http", address]);
        let mut process = Process::start(command, folder.path().join("stderr"))?;
        let url = process.line("the address", |line| line.strip_prefix("listening on ").map(str::to_owned)).await?;
        Ok(HttpServer { process, _folder: folder, url })
    }

    /// What was reported so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Happened> {
        self.seen.borrow().clone()
    }

    /// How often this line was reported.
    #[must_use]
    pub fn count(&self, line: &str) -> usize {
        self.seen.borrow().iter().filter(|happened| **happened == Happened::Said(line.to_owned())).count()
    }

    /// Waits until this line was reported `times` times.
    ///
    /// # Errors
    /// It is not.
    pub async fn said(&self, line: &str, times: usize) -> Result<()> {
        self.wait(Happened::Said(line.to_owned()), times).await
    }

    /// Waits until `times` servers are gone.
    ///
    /// # Errors
    /// They stay.
    pub async fn gone(&self, times: usize) -> Result<()> {
        self.wait(Happened::Gone, times).await
    }

    async fn wait(&self, what: Happened, times: usize) -> Result<()> {
        let mut seen = self.seen.clone();
        within(&format!("{what:?} of an MCP server"), async {
            seen.wait_for(|seen| seen.iter().filter(|happened| **happened == what).count() >= times).await.map(drop)
        })
        .await
    }
}

/// A server over HTTP, killed when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    process: Process,
    _folder: TempDir,
    /// Where it listens.
    pub url: String,
}

impl HttpServer {
    /// `kill -9`.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn kill(self) -> Result<()> {
        self.process.kill().await
    }
}

fn binary() -> Result<PathBuf> {
    program("TURNFAST_TEST_MCP_BIN", "turnfast-test-mcp")
}
