//! The cluster under chaos: three servers behind one address, on one PostgreSQL and one provider, with a [`Link`] between each pair;
//! and how each fault is carried out.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio::{sync::Mutex as AsyncMutex, task::spawn_blocking, time::sleep};
use turnfast_shared::ids::{ExecutionId, ProcessId, ThreadId};
use turnfast_test_postgres::Cluster as Postgres;
use uuid::Uuid;

use super::{
    fault::{Abilities, Fault, Hop, SERVERS},
    link::Link,
    log::{Execution, Owners},
};
use crate::{
    GUARD,
    installation::{Installation, Server},
    provider::Provider,
    within,
};

/// Users; see [`Cluster::tokens`].
pub const USERS: [&str; 2] = ["alice", "bob"];

/// What a small disk holds: the database, and room for a few minutes of chaos.
const DISK: &str = "512m";

/// Settings of PostgreSQL on a small disk: little room for its log, so that it reuses what it has.
const ON_A_SMALL_DISK: [&str; 3] = ["max_wal_size=64MB", "min_wal_size=32MB", "checkpoint_timeout=30s"];

/// Pause between attempts at what is not possible yet.
const AGAIN: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    /// What clients know.
    pub front: Link,
    /// The model provider.
    pub provider: Provider,
    /// API tokens of the [`USERS`].
    pub tokens: Vec<String>,
    /// What this machine allows.
    pub abilities: Abilities,
    nodes: Vec<Node>,
    database: Arc<Mutex<Postgres>>,
    /// Held by the fault that strikes the database.
    database_struck: AsyncMutex<()>,
    database_url: String,
    /// What servers did that no fault asked of them.
    surprises: Mutex<Vec<String>>,
    /// Goes last: the database lies on it.
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Node {
    from_front: Link,
    to_database: Link,
    to_provider: Link,
    installation: Installation,
    /// Held by the fault that strikes the server.
    struck: AsyncMutex<()>,
    running: AsyncMutex<Option<Server>>,
    /// What sets its clock.
    clock: Option<PathBuf>,
}

impl Cluster {
    /// Starts everything.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn start() -> Result<Self> {
        let disk = Disk::mount().map_err(|error| println!("full disks are left out: {error:#}")).ok();
        let faketime = faketime();
        if faketime.is_none() {
            println!("jumps of clocks are left out: libfaketime is not installed");
        }
        let folder = disk.as_ref().map_or_else(std::env::temp_dir, |disk| disk.folder.path().to_owned());
        let settings = if disk.is_some() { &ON_A_SMALL_DISK[..] } else { &[] };
        let (database, database_url) = spawn_blocking(move || {
            let database = Postgres::start_in(&folder, settings)?;
            let url = database.database()?;
            anyhow::Ok((Arc::new(Mutex::new(database)), url))
        })
        .await??;
        let provider = Provider::start().await?;
        let provider_url = provider.base_url();

        let mut nodes = Vec::new();
        for _ in 0..SERVERS {
            let (head, to, tail) = around_address(&database_url)?;
            let to_database = Link::to(vec![to]).await?;
            let url = format!("{head}{}{tail}", to_database.address());
            let (head, to, tail) = around_address(&provider_url)?;
            let to_provider = Link::to(vec![to]).await?;
            let base_url = format!("{head}{}{tail}", to_provider.address());
            let mut installation = Installation::with_config(&config(&base_url))?.on_postgres(url).hushed();
            let mut clock = None;
            if let Some(library) = &faketime {
                let file = installation.folder().join("clock");
                fs::write(&file, "+0")?;
                for (name, value) in [
                    ("LD_PRELOAD", library.as_str()),
                    ("FAKETIME_TIMESTAMP_FILE", file.to_str().context("a path in UTF-8")?),
                    ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                    ("FAKETIME_CACHE_DURATION", "1"),
                    ("FAKETIME_DISABLE_SHM", "1"),
                ] {
                    installation = installation.with_env(name, value);
                }
                clock = Some(file);
            }
            let from_front = Link::to(Vec::new()).await?;
            nodes.push(Node {
                from_front,
                to_database,
                to_provider,
                installation,
                struck: AsyncMutex::default(),
                running: AsyncMutex::default(),
                clock,
            });
        }
        let front = Link::to(nodes.iter().map(|node| node.from_front.address()).collect()).await?;
        let mut tokens = Vec::new();
        for user in USERS {
            tokens.push(nodes[0].installation.user(user).await?);
        }
        let abilities = Abilities { disk: disk.is_some(), clock: faketime.is_some() };
        let cluster = Self {
            front,
            provider,
            tokens,
            abilities,
            nodes,
            database,
            database_struck: AsyncMutex::default(),
            database_url,
            surprises: Mutex::default(),
            disk,
        };
        futures::future::try_join_all(cluster.nodes.iter().map(Node::start)).await?;
        Ok(cluster)
    }

    /// The one address of the cluster.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.front.address())
    }

    /// The address of each server that lives.
    pub async fn urls(&self) -> Vec<String> {
        let mut urls = Vec::new();
        for node in &self.nodes {
            urls.extend(node.running.lock().await.as_ref().map(|server| server.url.clone()));
        }
        urls
    }

    /// One fault, from its beginning until it is over.
    ///
    /// # Errors
    /// It cannot be carried out, or what was struck does not come back.
    pub async fn suffer(&self, fault: Fault, lasts: Duration) -> Result<()> {
        // Coming back can take longer than was planned: what strikes next waits for it.
        let _struck = match fault {
            Fault::KillServer(n) | Fault::EndServer(n) | Fault::FreezeServer(n) | Fault::JumpClock(n) => {
                Some(self.node(n)?.struck.lock().await)
            }
            Fault::RestartDatabase | Fault::KillDatabase | Fault::KillBackend | Fault::FillDisk => {
                Some(self.database_struck.lock().await)
            }
            // A link is mended at once.
            Fault::Harm(..) => None,
        };
        match fault {
            Fault::KillServer(n) => {
                let node = self.node(n)?;
                let server = node.running.lock().await.take().context("no server to kill")?;
                self.expect_alive(n, server).await?.kill().await?;
                sleep(lasts).await;
                node.start().await
            }
            Fault::EndServer(n) => {
                let node = self.node(n)?;
                let server = node.running.lock().await.take().context("no server to end")?;
                let server = self.expect_alive(n, server).await?;
                server.ask_to_end()?;
                let status = server.ended().await?;
                if !status.success() {
                    self.surprise(format!("server {n} was asked to end, and ended with {status}"));
                }
                sleep(lasts).await;
                node.start().await
            }
            Fault::FreezeServer(n) => {
                let node = self.node(n)?;
                let running = node.running.lock().await;
                let server = running.as_ref().context("no server to freeze")?;
                server.signal("STOP")?;
                sleep(lasts).await;
                server.signal("CONT")
            }
            Fault::JumpClock(n) => {
                let clock = self.node(n)?.clock.as_deref().context("no clock to set")?;
                // Forwards and backwards, by more than any lease or session would bear.
                let jump = if lasts.as_millis().is_multiple_of(2) { "+90000" } else { "-90000" };
                set_clock(clock, jump)?;
                sleep(lasts).await;
                set_clock(clock, "+0")
            }
            Fault::RestartDatabase => self.restart_database("INT", lasts).await,
            Fault::KillDatabase => self.restart_database("KILL", lasts).await,
            Fault::KillBackend => {
                let database = self.database.clone();
                spawn_blocking(move || {
                    let database = lock(&database);
                    // The oldest connection of a server.
                    let find =
                        "SELECT pid FROM pg_stat_activity WHERE application_name = 'turnfast' ORDER BY backend_start LIMIT 1";
                    let pid = database.sql("postgres", find)?;
                    // At this moment no server may be connected; and what was found may have ended by itself just now.
                    if !pid.is_empty() {
                        let _ = Command::new("sh").args(["-c", &format!("kill -KILL {pid}")]).status()?;
                    }
                    anyhow::Ok(())
                })
                .await??;
                sleep(lasts).await;
                self.database_answers().await
            }
            Fault::FillDisk => {
                let disk = self.disk.as_ref().context("no disk to fill")?;
                disk.fill()?;
                sleep(lasts).await;
                disk.make_room()?;
                self.database_answers().await
            }
            Fault::Harm(hop, harm) => {
                let link = self.link(hop)?;
                link.harm(harm);
                sleep(lasts).await;
                link.mend();
                Ok(())
            }
        }
    }

    fn node(&self, n: usize) -> Result<&Node> {
        self.nodes.get(n).with_context(|| format!("no server {n}"))
    }

    fn link(&self, hop: Hop) -> Result<&Link> {
        Ok(match hop {
            Hop::ClientsToFront => &self.front,
            Hop::FrontToServer(n) => &self.node(n)?.from_front,
            Hop::ServerToDatabase(n) => &self.node(n)?.to_database,
            Hop::ServerToProvider(n) => &self.node(n)?.to_provider,
        })
    }

    fn surprise(&self, what: String) {
        self.surprises.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// The server, or one in its place where it has ended although nobody asked it to: that is not the fault that was meant.
    async fn expect_alive(&self, n: usize, mut server: Server) -> Result<Server> {
        if let Some(status) = server.end()? {
            self.surprise(format!("server {n} ended by itself, with {status}"));
            let node = self.node(n)?;
            drop(server);
            node.start().await?;
            return node.running.lock().await.take().context("no server");
        }
        Ok(server)
    }

    async fn restart_database(&self, signal: &'static str, away: Duration) -> Result<()> {
        let database = self.database.clone();
        spawn_blocking(move || lock(&database).end(signal)).await?;
        sleep(away).await;
        self.database_answers().await
    }

    /// Starts the database where it has ended, and waits until it answers.
    async fn database_answers(&self) -> Result<()> {
        within("PostgreSQL", async {
            loop {
                let database = self.database.clone();
                let outcome = spawn_blocking(move || {
                    let mut database = lock(&database);
                    // What the dead server's processes still hold keeps a new one away for a moment.
                    if database.is_running() { database.sql("postgres", "SELECT 1").map(drop) } else { database.restart() }
                })
                .await?;
                if outcome.is_ok() {
                    return anyhow::Ok(());
                }
                sleep(AGAIN).await;
            }
        })
        .await
    }

    /// Waits until every server is there and says that it is ready, and gives what happened that nobody asked for.
    ///
    /// # Errors
    /// One does not get ready.
    pub async fn recovered(&self) -> Result<Vec<String>> {
        self.database_answers().await?;
        let http = crate::client::http()?;
        for (n, node) in self.nodes.iter().enumerate() {
            let mut running = node.running.lock().await;
            let server = running.as_mut().with_context(|| format!("server {n} is not there"))?;
            if let Some(status) = server.end()? {
                self.surprise(format!("server {n} ended by itself, with {status}"));
                *running = None;
                drop(running);
                node.start().await?;
                continue;
            }
            let url = format!("{}/readyz", server.url);
            within(&format!("server {n}, to be ready"), async {
                while !http.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                    sleep(AGAIN).await;
                }
                anyhow::Ok(())
            })
            .await?;
        }
        Ok(std::mem::take(&mut *self.surprises.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.database_url).await?)
    }

    /// Who runs what.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn owners(&self) -> Result<Owners> {
        let mut connection = self.connect().await?;
        // In one snapshot of the tables; locks are looked at afterwards, so whoever is alive then was alive before.
        let running: Vec<(Uuid, Uuid)> =
            sqlx::query_as("SELECT id, process_id FROM executions WHERE status = 'running'").fetch_all(&mut connection).await?;
        let processes: Vec<(Uuid,)> = sqlx::query_as("SELECT id FROM processes").fetch_all(&mut connection).await?;
        let locks: Vec<(i64,)> = sqlx::query_as(
            "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
             WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_all(&mut connection)
        .await?;
        connection.close().await?;
        let held: BTreeSet<i64> = locks.into_iter().map(|(lock,)| lock).collect();
        Ok(Owners {
            running: running.into_iter().map(|(execution, process)| (execution.into(), process.into())).collect(),
            alive: processes
                .into_iter()
                .filter(|(process,)| held.contains(&process.as_u64_pair().1.cast_signed()))
                .map(|(process,)| ProcessId::from(process))
                .collect(),
        })
    }

    /// What runs or waits in these threads.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn open(&self, threads: &[ThreadId]) -> Result<Vec<(ExecutionId, String)>> {
        let mut connection = self.connect().await?;
        let ids: Vec<Uuid> = threads.iter().map(|thread| thread.0).collect();
        let open: Vec<(Uuid, String)> =
            sqlx::query_as("SELECT id, status FROM executions WHERE thread_id = ANY($1) AND status IN ('running', 'suspended')")
                .bind(ids)
                .fetch_all(&mut connection)
                .await?;
        connection.close().await?;
        Ok(open.into_iter().map(|(id, status)| (id.into(), status)).collect())
    }

    /// All executions of these threads.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn executions(&self, threads: &[ThreadId]) -> Result<Vec<Execution>> {
        let mut connection = self.connect().await?;
        let ids: Vec<Uuid> = threads.iter().map(|thread| thread.0).collect();
        let rows: Vec<(Uuid, Uuid, String)> = sqlx::query_as(
            "SELECT executions.id, messages.id, executions.status FROM executions JOIN messages ON messages.pk = message_pk
             WHERE executions.thread_id = ANY($1) ORDER BY executions.started_at, executions.id",
        )
        .bind(ids)
        .fetch_all(&mut connection)
        .await?;
        connection.close().await?;
        Ok(rows.into_iter().map(|(id, message, status)| Execution { id: id.into(), message: message.into(), status }).collect())
    }

    /// Copies the logs of servers and database there.
    ///
    /// # Errors
    /// They cannot be copied.
    pub fn keep_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (n, node) in self.nodes.iter().enumerate() {
            fs::copy(node.installation.log_path(), folder.join(format!("server-{n}.log")))?;
        }
        fs::write(folder.join("postgres.log"), lock(&self.database).log())?;
        Ok(())
    }
}

impl Node {
    /// Starts a server, as whoever looks after it does: again and again where its database is away.
    async fn start(&self) -> Result<()> {
        let mut last = None;
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < GUARD * 2 {
            match self.installation.serve().await {
                Ok(server) => {
                    self.from_front.lead_to(server.address().parse()?);
                    *self.running.lock().await = Some(server);
                    return Ok(());
                }
                Err(error) => last = Some(error),
            }
            sleep(AGAIN).await;
        }
        bail!("a server does not start: {last:#?}")
    }
}

/// A disk that is soon full.
#[derive(Debug)]
struct Disk {
    folder: TempDir,
}

impl Disk {
    fn mount() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("turnfast-disk-").tempdir()?;
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={DISK},mode=0755"), "tmpfs"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status()?;
        ensure!(status.success(), "nothing can be mounted here");
        Ok(Self { folder })
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }

    fn fill(&self) -> Result<()> {
        let mut ballast = fs::File::create(self.ballast())?;
        // The copy ends where the disk does.
        let full = std::io::copy(&mut std::io::repeat(0), &mut ballast);
        ensure!(full.is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull), "the disk has no end");
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What still uses it, ends; the rest is the system's.
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}

fn set_clock(file: &Path, offset: &str) -> Result<()> {
    // Whoever reads it must not find it half written.
    let new = file.with_extension("new");
    fs::write(&new, offset)?;
    Ok(fs::rename(new, file)?)
}

/// The library that sets a program's clock apart from the machine's.
fn faketime() -> Option<String> {
    let folders = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    folders.iter().map(|folder| format!("{folder}/libfaketimeMT.so.1")).find(|path| Path::new(path).is_file())
}

fn lock(database: &Mutex<Postgres>) -> std::sync::MutexGuard<'_, Postgres> {
    database.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A URL's address, and what is before and behind it.
fn around_address(url: &str) -> Result<(&str, SocketAddr, &str)> {
    let start = url.find("127.0.0.1:").with_context(|| format!("no address in {url}"))?;
    let (head, rest) = url.split_at(start);
    let (address, tail) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    Ok((head, address.parse()?, tail))
}

fn config(base_url: &str) -> String {
    let native = |id: &str, more: &str| {
        format!(
            r#"
[[agents]]
project = "demo"
id = "{id}"
engine = "native"
provider = "test"
model = "test-model"
tools = ["clock", "ask_user"]
{more}
"#
        )
    };
    format!(
        r#"
[server]
drain_seconds = 2

[limits]
max_running_turns_per_user = 10000

[[providers]]
id = "test"
kind = "openai"
base_url = "{base_url}"
stall_seconds = 3600

[[projects]]
id = "demo"
members = {{ alice = "member", bob = "member" }}

[[agents]]
project = "demo"
id = "demo"
engine = "demo"
{}{}{}"#,
        native("assistant", ""),
        native("steady", "continue_interrupted = true"),
        native("careful", "approve = [\"clock\"]"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_url() {
        let (head, address, tail) = around_address("postgres://me@127.0.0.1:5432/test0").unwrap();
        assert_eq!((head, address.port(), tail), ("postgres://me@", 5432, "/test0"));
        let (head, address, tail) = around_address("http://127.0.0.1:80").unwrap();
        assert_eq!((head, address.port(), tail), ("http://", 80, ""));
        assert!(around_address("http://example.org").is_err());
    }
}
