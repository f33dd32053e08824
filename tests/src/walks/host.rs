//! The server that the walks walk on: it comes and goes, at the same address.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use http::Method;
use sqlx::{Connection as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::{
    runtime::Runtime,
    sync::{Mutex as AsyncMutex, mpsc, watch},
    task::JoinHandle,
};
use turnfast::{
    app,
    config::{Config, Overrides},
};
use turnfast_shared::{
    api::{PushEvent, ThreadSnapshot},
    ids::ThreadId,
    problem::Code,
};

use crate::{
    client::{Client, answer_or_problem},
    installation::{Installation, Server},
    within,
};

/// Two members, the demo agent, and no limit that a crowd of walks would meet.
const CONFIG: &str = r#"
[server]
drain_seconds = 0

[limits]
max_running_turns_per_user = 10000

[[projects]]
id = "demo"
members = { alice = "member", bob = "member" }

[[agents]]
project = "demo"
id = "assistant"
engine = "demo"
"#;

/// How the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In this process, in a runtime of its own. A crash throws the runtime away with everything that runs in it.
    InProcess,
    /// The real binary. A crash is a `kill -9`.
    Binary,
}

#[expect(clippy::large_enum_variant, reason = "there is one of them")]
enum Running {
    InProcess { runtime: Runtime, signals: mpsc::UnboundedSender<()>, serving: JoinHandle<()> },
    Binary(Server),
}

/// What the connections of one user to `/push` know of each thread: its newest revision, told or read.
type Known = Arc<watch::Sender<HashMap<ThreadId, u64>>>;

/// A user of the walks.
pub(super) struct Person {
    /// Their API client.
    pub(super) client: Client,
    known: Known,
}

/// See the module.
pub(super) struct Host {
    kind: Kind,
    installation: Installation,
    address: SocketAddr,
    running: AsyncMutex<Option<Running>>,
    /// Odd while the server is away.
    generation: watch::Sender<u64>,
    /// Both users.
    pub(super) people: [Person; 2],
    followers: Mutex<Vec<JoinHandle<()>>>,
    /// What followers saw that must not be.
    pub(super) broken: Arc<Mutex<Vec<String>>>,
}

impl Host {
    pub(super) async fn open(kind: Kind) -> Result<Self> {
        let installation = Installation::with_config(CONFIG)?;
        let tokens = [installation.user("alice").await?, installation.user("bob").await?];
        let (running, address) = start(kind, &installation, "127.0.0.1:0".parse()?).await?;
        let url = format!("http://{address}");
        let person = |token: &str| Ok::<_, anyhow::Error>(Person { client: Client::new(&url, token)?, known: Known::default() });
        let host = Self {
            kind,
            installation,
            address,
            running: AsyncMutex::new(Some(running)),
            generation: watch::Sender::new(0),
            people: [person(&tokens[0])?, person(&tokens[1])?],
            followers: Mutex::default(),
            broken: Arc::default(),
        };
        for person in &host.people {
            let follower = follow(person.client.clone(), person.known.clone(), host.generation.subscribe(), host.broken.clone());
            host.followers.lock().unwrap_or_else(PoisonError::into_inner).push(tokio::spawn(follower));
        }
        Ok(host)
    }

    /// Changes whenever the server goes and whenever it is back.
    pub(super) fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Waits until the server has gone, or come back, since that generation.
    pub(super) async fn changed_since(&self, generation: u64) -> Result<()> {
        self.generation.subscribe().wait_for(|now| *now != generation).await?;
        Ok(())
    }

    /// Waits until the server is there.
    pub(super) async fn up(&self) -> Result<()> {
        within("the server", async { self.generation.subscribe().wait_for(|n| n.is_multiple_of(2)).await.map(drop) }).await
    }

    /// Waits until the followers of a person know of this revision, and checks that they know of none that is newer.
    pub(super) async fn knows(&self, person: usize, thread: ThreadId, revision: u64) -> Result<()> {
        let mut known = self.people[person].known.subscribe();
        let what = format!("a notification of revision {revision} of thread {thread}");
        let newest = within(&what, async {
            let known = known.wait_for(|known| known.get(&thread).is_some_and(|newest| *newest >= revision)).await?;
            anyhow::Ok(known.get(&thread).copied().unwrap_or_default())
        })
        .await?;
        anyhow::ensure!(newest == revision, "revision {newest} was told of, and {revision} is the newest that can be read");
        Ok(())
    }

    /// The newest revision that a person's followers know of changes, or the server goes.
    pub(super) async fn news(&self, person: usize, thread: ThreadId, than: u64) -> Result<()> {
        let mut known = self.people[person].known.subscribe();
        let mut generation = self.generation.subscribe();
        generation.mark_unchanged();
        within("news of a thread", async {
            tokio::select! {
                found = known.wait_for(|known| known.get(&thread).is_some_and(|newest| *newest > than)) => found.map(drop)?,
                gone = generation.changed() => gone?,
            }
            anyhow::Ok(())
        })
        .await
    }

    /// Followers read a thread that they hear of, as a tab reads the one that it shows.
    pub(super) fn watch(&self, person: usize, thread: ThreadId) {
        self.people[person].known.send_modify(|known| {
            known.entry(thread).or_insert(0);
        });
    }

    /// They need not read it any more.
    pub(super) fn forget(&self, person: usize, thread: ThreadId) {
        self.people[person].known.send_modify(|known| {
            known.remove(&thread);
        });
    }

    /// One fault: a crash, an end that is asked for, or a database that takes no writes for a while.
    pub(super) async fn suffer(&self, which: u64) -> Result<()> {
        if which % 4 == 3 {
            return self.lock_database().await;
        }
        let mut place = self.running.lock().await;
        let running = place.take().context("a server")?;
        self.generation.send_modify(|n| *n += 1);
        if which % 4 == 2 {
            end(running).await?
        } else {
            crash(running).await?
        }
        *place = Some(start(self.kind, &self.installation, self.address).await?.0);
        self.generation.send_modify(|n| *n += 1);
        Ok(())
    }

    /// Holds the lock that writers need, for less than they wait for it: writes are late, none is refused.
    async fn lock_database(&self) -> Result<()> {
        let options = SqliteConnectOptions::new().filename(self.installation.data_dir().join("turnfast.db"));
        let mut connection = SqliteConnection::connect_with(&options.busy_timeout(Duration::from_secs(30))).await?;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
        // The one pause of the walks: how long a lock is held is a time, whatever the machine.
        tokio::time::sleep(Duration::from_millis(400)).await;
        sqlx::query("ROLLBACK").execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    pub(super) async fn close(self, quietly: bool) -> Result<()> {
        for follower in self.followers.into_inner().unwrap_or_else(PoisonError::into_inner) {
            follower.abort();
        }
        if let Some(mut running) = self.running.into_inner() {
            if let (true, Running::Binary(server)) = (quietly, &mut running) {
                server.hush();
            }
            crash(running).await?;
        }
        Ok(())
    }
}

async fn start(kind: Kind, installation: &Installation, address: SocketAddr) -> Result<(Running, SocketAddr)> {
    if kind == Kind::Binary {
        let server = installation.serve_at(&address.to_string()).await?;
        let address = server.address().parse()?;
        return Ok((Running::Binary(server), address));
    }
    let overrides = Overrides {
        config: installation.config().map(ToOwned::to_owned),
        data_dir: Some(installation.data_dir()),
        listen: Some(address),
        ..Overrides::default()
    };
    let config = Config::load(&overrides).map_err(|error| anyhow::anyhow!("{error}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (signals, mut asked) = mpsc::unbounded_channel();
    let (ready, listening) = tokio::sync::oneshot::channel();
    let serving = runtime.spawn(async move {
        let ready = |address, _: Option<&str>| {
            // Whoever waited may have given up.
            let _ = ready.send(address);
        };
        let asked = futures::stream::poll_fn(move |context| asked.poll_recv(context));
        if let Err(error) = app::serve_until(config, ready, asked).await {
            println!("the server failed: {error}");
        }
    });
    let address = within("a server that listens", listening).await?;
    Ok((Running::InProcess { runtime, signals, serving }, address))
}

async fn crash(running: Running) -> Result<()> {
    match running {
        Running::Binary(server) => server.kill().await,
        Running::InProcess { runtime, .. } => {
            // Everything is dropped where it stands. Only then is its lock free, as that of a process that is gone.
            tokio::task::spawn_blocking(move || runtime.shutdown_timeout(crate::GUARD)).await?;
            Ok(())
        }
    }
}

async fn end(running: Running) -> Result<()> {
    match running {
        Running::Binary(server) => {
            server.ask_to_end()?;
            let status = server.ended().await?;
            anyhow::ensure!(status.success(), "a server that was asked to end: {status}");
            Ok(())
        }
        Running::InProcess { runtime, signals, serving } => {
            signals.send(())?;
            within("the end of a server that was asked to", serving).await?;
            tokio::task::spawn_blocking(move || runtime.shutdown_timeout(crate::GUARD)).await?;
            Ok(())
        }
    }
}

/// A tab: follows, and reads whatever it watches each time it is connected.
async fn follow(client: Client, known: Known, mut generation: watch::Receiver<u64>, broken: Arc<Mutex<Vec<String>>>) {
    loop {
        if generation.wait_for(|n| n.is_multiple_of(2)).await.is_err() {
            return;
        }
        // Any error is a server that went; what it did not tell, the reads after the next connection show.
        let _ = follow_once(&client, &known, &broken).await;
        tokio::task::yield_now().await;
    }
}

async fn follow_once(client: &Client, known: &Known, broken: &Mutex<Vec<String>>) -> Result<()> {
    let mut push = client.push().await?;
    let watched: Vec<_> = known.borrow().keys().copied().collect();
    let learn = |thread: ThreadId, revision: u64| {
        known.send_modify(|known| {
            // Threads that no walk watches any more need no place.
            if let Some(newest) = known.get_mut(&thread) {
                *newest = revision.max(*newest);
            }
        });
    };
    let mut told = HashMap::new();
    let reads = async {
        for thread in watched {
            // One that was deleted, or does not exist yet, has nothing to read; a database that is busy is asked again.
            loop {
                match answer_or_problem(client.agent(Method::GET, "assistant", &format!("/chat/{thread}/messages"))).await? {
                    Ok(ThreadSnapshot { revision, .. }) => learn(thread, revision),
                    Err(problem) if problem.code == Code::StorageUnavailable => continue,
                    Err(_) => {}
                }
                break;
            }
        }
        futures::future::pending::<Result<()>>().await
    };
    let notifications = async {
        loop {
            let update = match push.next().await? {
                PushEvent::AgentExecutionUpdated(update) => update,
                PushEvent::Ping => continue,
                // Something may have been missed: read all, as after a connection that broke.
                PushEvent::Connected => return Ok(()),
            };
            if let Some(last) = told.insert(update.thread_id, update.revision)
                && last >= update.revision
            {
                let what = format!("a notification of revision {} after one of {last}: {update:?}", update.revision);
                broken.lock().unwrap_or_else(PoisonError::into_inner).push(what);
            }
            learn(update.thread_id, update.revision);
        }
    };
    tokio::select! {
        ended = reads => ended,
        ended = notifications => ended,
    }
}
