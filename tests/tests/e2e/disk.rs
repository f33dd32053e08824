//! A disk that takes nothing more, and takes again (contract 1, sections 2 and 3: an accepted turn ends, a refused one has not begun).

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;
use turnfast_shared::{ExecutionStatus, problem::Code};
use turnfast_tests::{
    client::refusal,
    installation::{Installation, Server},
    provider::Provider,
    within,
};

/// What a turn says that does not fit into a full disk's last pages.
const LONG: usize = 100_000;

/// Where the server keeps its record.
trait Disk {
    /// From now on it takes nothing.
    fn fill(&mut self, server: &Server) -> Result<()>;
    /// It takes as much as before.
    fn free(&mut self, server: &Server) -> Result<()>;
}

async fn survives(installation: &Installation, provider: &Provider, mut disk: impl Disk) -> Result<()> {
    let token = installation.user("alice").await?;
    // What a limit of file sizes sends beside its error would end the process: with it ignored, there is only the error.
    let server = installation.serve_after("trap '' XFSZ").await?;
    let alice = server.client(&token)?;
    let ready = async || anyhow::Ok(within("readiness", alice.request(Method::GET, "/readyz").send()).await?.status());
    let chat = || alice.agent(Method::POST, "assistant", "/chat").json(&json!({"message": "x".repeat(LONG)}));

    let long = "y".repeat(LONG);
    let mut live = alice.say("assistant", &format!("[[words:2]][[hold:gate]][[say: {long}]]")).await?;
    let thread = live.started.thread;
    let recorded =
        |read: &turnfast_shared::api::ThreadSnapshot| read.messages.last().is_some_and(|last| last.text().contains("word2"));
    alice.read_until("assistant", thread, "the first words in the record", recorded).await?;

    disk.fill(&server)?;
    assert_eq!(ready().await?, 200, "nobody has tried to write");
    // The second finds the connection as the first has left it.
    for _ in 0..3 {
        assert_eq!(refusal(chat()).await?.code, Code::StorageUnavailable);
        assert_eq!(ready().await?, 503);
    }
    provider.release("gate").await?;
    live.until_text(&long).await?;
    assert_eq!(alice.read("assistant", thread).await?.messages.last().context("a message")?.text(), "word1 word2");
    assert_eq!(refusal(chat()).await?.code, Code::StorageUnavailable);

    disk.free(&server)?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert_eq!(ready().await?, 200);
    assert_eq!(alice.settled("assistant", thread).await?.text(), format!("word1 word2 {long}"));
    let mut next = alice.say_in("assistant", thread, "[[say:there is room again]]").await?;
    assert_eq!(next.done().await?, ExecutionStatus::Success);
    let log = server.log();
    assert!(!log.contains("transaction depth") && !log.contains("panicked"), "{log}");
    server.ask_to_end()?;
    assert!(server.ended().await?.success());
    Ok(())
}

/// No file of the server's may reach beyond its first page: its log's neither. It needs no rights and no disk of its own.
struct Limit;

impl Limit {
    fn set(server: &Server, bytes: u64) -> Result<()> {
        let id = server.id()?.try_into()?;
        let mut old = (0, 0);
        rlimit::prlimit(id, rlimit::Resource::FSIZE, None, Some((&mut old.0, &mut old.1)))?;
        Ok(rlimit::prlimit(id, rlimit::Resource::FSIZE, Some((bytes.min(old.1), old.1)), None)?)
    }
}

impl Disk for Limit {
    fn fill(&mut self, server: &Server) -> Result<()> {
        Self::set(server, 4_096)
    }

    fn free(&mut self, server: &Server) -> Result<()> {
        Self::set(server, u64::MAX)
    }
}

#[tokio::test]
async fn a_limit_of_file_sizes_delays_the_record_and_loses_nothing() -> Result<()> {
    let provider = Provider::start().await?;
    let installation = Installation::with_provider(&provider)?;
    survives(&installation, &provider, Limit).await
}

/// A small disk, and what fills it.
struct Small {
    mounted: PathBuf,
    filler: PathBuf,
}

impl Small {
    /// `None`: who runs the test may not mount one.
    fn mount(at: &Path) -> Result<Option<Self>> {
        fs::create_dir(at)?;
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(at).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            return Ok(None);
        }
        Ok(Some(Self { mounted: at.to_owned(), filler: at.join("filler") }))
    }
}

impl Disk for Small {
    fn fill(&mut self, _: &Server) -> Result<()> {
        let mut filler = File::create(&self.filler)?;
        for length in [65_536, 4_096, 1] {
            while filler.write_all(&vec![0; length]).is_ok() {}
        }
        ensure!(filler.metadata()?.len() > 0, "it was full before");
        Ok(())
    }

    fn free(&mut self, _: &Server) -> Result<()> {
        Ok(fs::remove_file(&self.filler)?)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a server that a failed test left there is killed only after this.
        let _ = Command::new("umount").arg("--lazy").arg(&self.mounted).status();
    }
}

#[tokio::test]
async fn a_full_disk_delays_the_record_and_loses_nothing() -> Result<()> {
    let provider = Provider::start().await?;
    let installation = Installation::with_provider(&provider)?;
    match Small::mount(&installation.data_dir())? {
        Some(disk) => survives(&installation, &provider, disk).await,
        None => {
            println!("no disk can be mounted here; a limit of file sizes stands in for it in the test above");
            Ok(())
        }
    }
}
