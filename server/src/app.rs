//! Puts the parts together, serves, and takes them apart again.
//!
//! Start: database, dead processes' executions recovered, listener, ready line. Stop, in two phases: open streams end and new turns are
//! refused at once; running turns get the drain deadline, then end `interrupted`.

use std::{io, io::Write as _, net::SocketAddr, path::Path, sync::Arc, task::Poll};

use futures::{Stream, StreamExt, stream};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    address::Published,
    agents::catalog::Catalog,
    auth::{Auth, link_url},
    config::{Config, DEFAULT_DATA_DIR},
    http,
    liveness::ClaimError,
    metrics::Metrics,
    relay::{Hub, Relay},
    store::{Database, Store, StoreError},
    turns::{self, Turns},
};

/// What handlers work with.
pub struct App {
    /// The configuration.
    pub config: Config,
    /// Projects, agents, engines.
    pub catalog: Arc<Catalog>,
    /// Who someone is.
    pub auth: Auth,
    /// The record.
    pub store: Arc<dyn Store>,
    /// The turns of this process.
    pub turns: Arc<Turns>,
    /// Who is told that a thread changed.
    pub hub: Arc<Hub>,
    /// What is counted here.
    pub metrics: Metrics,
    /// Ends open streams when it is cancelled.
    pub streams: CancellationToken,
}

/// Why the server did not start, or failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data folder cannot be used.
    #[error("the data folder {path} cannot be used: {error}; choose another with --data-dir")]
    DataFolder {
        /// The folder.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This process may not serve, as another one does.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The address for metrics cannot be listened on.
    #[error("cannot listen on {address} for metrics: {error}; choose another address as `metrics_listen`, or leave it out")]
    ListenMetrics {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The address it listens on, or signals, are not to be had from the system.
    #[error("the server failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves until SIGTERM, SIGINT or SIGHUP, and drains. A second signal ends the drain: what still runs is marked `interrupted`.
///
/// # Errors
/// [`ServeError`] says what to do about it.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    raise_open_files();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A terminal that goes away. Who started the server with `nohup` does not want it to end then.
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    let signals = stream::poll_fn(move |context| {
        if terminate.poll_recv(context).is_ready()
            || interrupt.poll_recv(context).is_ready()
            || hangup.as_mut().is_some_and(|hangup| hangup.poll_recv(context).is_ready())
        {
            Poll::Ready(Some(()))
        } else {
            Poll::Pending
        }
    });
    let data_dir = config.data_dir.clone();
    serve_until(config, |listening, sign_in| announce(listening, sign_in, &data_dir), signals).await
}

/// Whether SIGHUP was set to be ignored before the process began. Where the system does not say it is taken for not.
fn ignores_hangup() -> bool {
    let ignored = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    // The lowest bit is signal 1, which is SIGHUP everywhere.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Every open tab holds a connection, and many systems give a process 1,024 files until it asks for more.
fn raise_open_files() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit of open files stays as it is: every open tab takes one");
    }
}

fn announce(listening: SocketAddr, sign_in: Option<&str>, data_dir: &Path) {
    let mut out = io::stdout().lock();
    // Whoever closed our standard output does not want the lines; that is no reason to end.
    let _ = writeln!(out, "turnfast listening on http://{listening}");
    match sign_in {
        Some(link) => drop(writeln!(out, "sign in once: {link}")),
        None => {
            let program = std::env::args().next().unwrap_or_else(|| "turnfast".to_owned());
            let folder = if data_dir == Path::new(DEFAULT_DATA_DIR) {
                String::new()
            } else {
                format!(" --data-dir {}", data_dir.display())
            };
            let _ = writeln!(out, "for a sign-in link: {program} user link NAME{folder}");
        }
    }
    let _ = out.flush();
}

/// Serves until the first item of `signals`, and drains; the second ends the drain. `ready` is told the address, and the sign-in link
/// of a server without users, once requests are answered.
///
/// # Errors
/// [`ServeError`] says what to do about it.
pub async fn serve_until(
    config: Config,
    ready: impl FnOnce(SocketAddr, Option<&str>),
    mut signals: impl Stream<Item = ()> + Unpin,
) -> Result<(), ServeError> {
    if config.database_url.is_none() {
        let unusable = |error| ServeError::DataFolder { path: config.data_dir.display().to_string(), error };
        config.create_data_dir().map_err(unusable)?;
    }
    let database = Database::open(&config).await?;
    let store = database.store();
    let metrics = Metrics::default();
    let hub = Arc::new(Hub::new(&metrics));
    let relay = Arc::new(match &database {
        Database::Sqlite(_) => Relay::local(hub.clone()),
        Database::Postgres(postgres) => Relay::postgres(hub.clone(), postgres, &metrics),
    });
    let catalog = Arc::new(Catalog::new(&config));
    let continuable = catalog.clone();
    let turns = Turns::start(turns::Parts {
        store: store.clone(),
        relay: relay.clone(),
        liveness: database.locks(),
        continuable: Box::new(move |project, agent| continuable.agent(project, agent)?.engine_to_continue()),
        max_running_per_user: config.limits.max_running_turns_per_user,
        metrics: metrics.clone(),
    })
    .await?;
    let auth = Auth::new(store.clone());
    let address = config.server.listen;
    let listener = TcpListener::bind(address).await.map_err(|error| ServeError::Listen { address, error })?;
    let bound = listener.local_addr()?;
    let metrics_listener = match config.server.metrics_listen {
        Some(address) => Some(TcpListener::bind(address).await.map_err(|error| ServeError::ListenMetrics { address, error })?),
        None => None,
    };

    let app = Arc::new(App {
        catalog,
        auth,
        store: store.clone(),
        turns: turns.clone(),
        hub,
        metrics,
        streams: CancellationToken::new(),
        config,
    });
    for warning in &app.config.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(limit) = app.config.limits.interaction_expiry {
        tokio::spawn({
            let turns = turns.clone();
            async move { turns.expire_suspensions(limit).await }
        });
    }
    let link = app.auth.first_sign_in().await?;
    for name in app.auth.unknown_members(&app.config).await? {
        tracing::warn!(name, "a member of a project is no user yet: `turnfast user add` makes one");
    }
    let base_url = app.config.base_url(bound);
    // Held to the end. Links that commands print are the worse without it, and nothing else.
    let published = Published::new(&app.config.data_dir, &base_url).unwrap_or_else(|error| {
        tracing::warn!(%error, "the address is not in the data folder: `turnfast user link` will not know it");
        None
    });
    let link = link.map(|link| link_url(&base_url, &link));
    ready(bound, link.as_deref());

    let drained = CancellationToken::new();
    if let Some(listener) = metrics_listener {
        tracing::info!(address = %listener.local_addr()?, "metrics are at /metrics");
        tokio::spawn(http::serve::serve(
            listener,
            http::metrics::router(app.clone()),
            http::serve::Patience::default(),
            drained.clone(),
        ));
    }
    let serving =
        tokio::spawn(http::serve::serve(listener, http::router(app.clone()), http::serve::Patience::default(), drained.clone()));

    signals.next().await;
    tracing::info!(running = turns.running(), "shutting down: streams end, running turns go on until the drain deadline");
    // Refuse first, then end the streams: a reader that comes back at once must not start a turn here.
    turns.start_draining();
    app.streams.cancel();
    turns
        .drain(async {
            tokio::select! {
                () = tokio::time::sleep(app.config.server.drain) => tracing::warn!("the drain deadline is over"),
                _ = signals.next() => tracing::warn!("second signal: running turns end now"),
            }
        })
        .await;
    tokio::select! {
        // Only now: turns that drain may still use them.
        () = app.catalog.close() => {}
        _ = signals.next() => tracing::warn!("one more signal: tools are not waited for"),
    }
    drained.cancel();
    // Requests that are still answered get a moment; a client that does not read must not keep the process alive.
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), serving).await;
    drop(published);
    turns.release().await;
    relay.close().await;
    store.close().await;
    Ok(())
}
