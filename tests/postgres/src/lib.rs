//! A throw-away PostgreSQL for tests: the distribution's programs, a cluster in a temporary folder, a port of its own.
//!
//! [`database`] gives a fresh database in a cluster that all tests of one program share; it starts with the first of them. A cluster
//! ends when the program that started it does, however that ends: a shell between the two waits for its standard input to close.
//! A [`Wire`] to it can be cut.

mod wire;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

pub use wire::Wire;

/// How long a server may take to answer.
const GUARD: Duration = Duration::from_secs(60);

/// Runs the server until standard input closes, then ends it by the signal named there. `$1` is the cluster's folder, `$2` the server,
/// the rest are its arguments. Without a word on standard input the folder goes too: whoever started this is gone.
const WATCH: &str = r#"folder=$1; program=$2; shift 2
"$program" "$@" </dev/null & server=$!
word=$(cat)
kill -"${word:-QUIT}" $server 2>/dev/null; wait $server
[ -n "$word" ] || rm -rf "$folder""#;

/// A PostgreSQL cluster.
#[derive(Debug)]
pub struct Cluster {
    bin: PathBuf,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
    /// The shell that ends the server.
    watch: Option<Child>,
    databases: AtomicU32,
}

/// The URL of a fresh, empty database in the cluster that the tests of this program share.
///
/// # Errors
/// PostgreSQL is not installed, or does not start.
pub fn database() -> Result<String> {
    static SHARED: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let cluster = SHARED.get_or_init(|| Cluster::start().map_err(|error| format!("{error:#}")));
    cluster.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?.database()
}

impl Cluster {
    /// Makes a cluster and starts its server.
    ///
    /// # Errors
    /// PostgreSQL is not installed, or does not start.
    pub fn start() -> Result<Self> {
        Self::start_in(&std::env::temp_dir(), &[])
    }

    /// The same in a folder of `parent`, with more settings (`name=value`).
    ///
    /// # Errors
    /// PostgreSQL is not installed, or does not start.
    pub fn start_in(parent: &Path, settings: &[&str]) -> Result<Self> {
        let bin = programs()?;
        let folder = tempfile::Builder::new().prefix("turnfast-pg-").tempdir_in(parent)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut cluster = Self { bin, folder, port, settings, watch: None, databases: AtomicU32::new(0) };
        if is_root() {
            run(Command::new("chown").arg("postgres:").arg(cluster.folder.path()))?;
        }
        let mut initdb = as_server(&cluster.bin.join("initdb"));
        initdb.arg("-D").arg(cluster.data()).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        initdb.args(["--locale", "C.UTF-8"]);
        run(&mut initdb)?;
        cluster.restart()?;
        Ok(cluster)
    }

    /// Starts the server, also after [`Cluster::kill`], and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(&mut self) -> Result<()> {
        let server = as_server(&self.bin.join("postgres"));
        let mut watch = Command::new("sh");
        watch.args(["-c", WATCH, "sh"]).arg(self.folder.path()).arg(server.get_program()).args(server.get_args());
        watch.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        for setting in [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            "max_connections=300".to_owned(),
            // The machine does not crash in a test; the server may.
            "fsync=off".to_owned(),
        ]
        .iter()
        .chain(&self.settings)
        {
            watch.arg("-c").arg(setting);
        }
        let log = fs::File::options().create(true).append(true).open(self.log_path())?;
        let watch = watch.current_dir("/").stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).spawn()?;
        self.watch = Some(watch);
        let begun = Instant::now();
        while let Err(error) = self.sql("postgres", "SELECT 1") {
            if !self.is_running() || begun.elapsed() > GUARD {
                bail!("PostgreSQL does not answer: {error}\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        self.end("QUIT");
    }

    /// Ends the server, or only its first process, by a signal: `INT` is an orderly end that waits for no client, `KILL` leaves the
    /// other processes to find out by themselves.
    pub fn end(&mut self, signal: &str) {
        if let Some(mut watch) = self.watch.take() {
            if let Some(mut stdin) = watch.stdin.take() {
                // If it cannot be written to, the shell has ended already.
                let _ = stdin.write_all(signal.as_bytes());
            }
            // It ends by itself now; how, does not matter.
            let _ = watch.wait();
        }
    }

    /// Whether the server was started and has not ended since.
    pub fn is_running(&mut self) -> bool {
        self.watch.as_mut().is_some_and(|watch| matches!(watch.try_wait(), Ok(None)))
    }

    /// The URL of a fresh, empty database.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn database(&self) -> Result<String> {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(format!("postgres://postgres@127.0.0.1:{}/{name}", self.port))
    }

    /// Where the server listens on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a statement and gives what it returns.
    ///
    /// # Errors
    /// It fails.
    pub fn sql(&self, database: &str, statement: &str) -> Result<String> {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres", "-d", database]);
        psql.arg("-p").arg(self.port.to_string()).arg("-c").arg(statement);
        Ok(String::from_utf8_lossy(&run(&mut psql)?.stdout).trim().to_owned())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What the server logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the programs are: Debian keeps them off the PATH, one folder per version.
fn programs() -> Result<PathBuf> {
    let mut debian: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    debian.sort();
    let on_path = std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut folders = debian.into_iter().rev().map(|(_, folder)| folder).chain(on_path);
    folders.find(|folder| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).is_file())).context(
        "PostgreSQL is not installed: `cargo xtask test` installs it, or: apt-get install postgresql (its programs `initdb`, \
         `postgres` and `psql` are needed, no running server)",
    )
}

/// `program`, as a user that the server runs for: it refuses root.
fn as_server(program: &Path) -> Command {
    if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stdout(Stdio::piped()).spawn();
    let mut text = String::new();
    id.is_ok_and(|mut id| {
        let read = id.stdout.take().is_some_and(|mut out| out.read_to_string(&mut text).is_ok());
        id.wait().is_ok() && read && text.trim() == "0"
    })
}

fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.current_dir("/").stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    ensure!(
        output.status.success(),
        "{name}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_comes_back_with_its_data_after_a_crash() {
        let mut cluster = Cluster::start().unwrap();
        let url = cluster.database().unwrap();
        let name = url.rsplit('/').next().unwrap();
        cluster.sql(name, "CREATE TABLE t (n INT); INSERT INTO t VALUES (7)").unwrap();
        for signal in ["QUIT", "INT"] {
            cluster.end(signal);
            assert!(cluster.sql(name, "SELECT n FROM t").is_err());
            cluster.restart().unwrap();
            assert_eq!(cluster.sql(name, "SELECT n FROM t").unwrap(), "7");
        }
        assert_ne!(cluster.database().unwrap(), url);
        let folder = cluster.folder.path().to_owned();
        drop(cluster);
        assert!(!folder.exists());
    }
}
