//! A Turnfast of one's own: a data folder, a configuration and users. Servers come and go on it, as they do on a real machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    client::Client,
    process::{Process, program},
    provider::Provider,
    within,
};

/// The key that the provider's configuration names, and which must never show anywhere.
pub const PROVIDER_KEY: &str = "sk-test-a-secret-that-must-not-show";

/// The token of MCP servers, which `env:TURNFAST_TEST_MCP_TOKEN` leads to.
pub const MCP_TOKEN: &str = "a-token-for-the-mcp-server";

/// A data folder and what belongs to it. Removed when dropped.
#[derive(Debug)]
pub struct Installation {
    folder: TempDir,
    config: Option<PathBuf>,
    /// Without one, SQLite in the data folder.
    database_url: Option<String>,
    /// What its programs find in their environment.
    env: Vec<(String, String)>,
    hushed: bool,
}

impl Installation {
    /// One without a configuration: the demo agent on SQLite.
    ///
    /// # Errors
    /// No folder is to be had.
    pub fn empty() -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, config: None, database_url: None, env: Vec::new(), hushed: false })
    }

    /// One with `config` as its configuration file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn with_config(config: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("turnfast.toml");
        fs::write(&path, config)?;
        Ok(Self { folder, config: Some(path), database_url: None, env: Vec::new(), hushed: false })
    }

    /// One with project `demo`, in which `alice` is admin, `bob` member and `vera` viewer, and the agents `demo` (the demo agent),
    /// `assistant` (on `provider`, with all built-in tools), `steady` (which goes on after a crash), `careful` (which asks before it
    /// looks at the clock), `incomplete` (which lacks everything) and `impatient` (soon tired of a silent provider).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn with_provider(provider: &Provider) -> Result<Self> {
        Self::with_provider_and(provider, "")
    }

    /// [`Installation::with_provider`], with `more` behind its configuration.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn with_provider_and(provider: &Provider, more: &str) -> Result<Self> {
        let base_url = provider.base_url();
        Self::with_config(&format!(
            r#"
[server]
drain_seconds = 20

[[providers]]
id = "test"
kind = "openai"
base_url = "{base_url}"
api_key = "env:TURNFAST_TEST_PROVIDER_KEY"
stall_seconds = 3600

[[providers]]
id = "impatient"
kind = "openai"
base_url = "{base_url}"
stall_seconds = 1

[[projects]]
id = "demo"
name = "Demo"
members = {{ alice = "admin", bob = "member", vera = "viewer" }}

[[agents]]
project = "demo"
id = "demo"
name = "Demo"
engine = "demo"

[[agents]]
project = "demo"
id = "assistant"
name = "Assistant"
engine = "native"
provider = "test"
model = "test-model"
instructions = "You are under test."
tools = ["clock", "ask_user", "delegate"]
delegates = ["demo"]

[[agents]]
project = "demo"
id = "careful"
name = "Careful"
engine = "native"
provider = "test"
model = "test-model"
tools = ["clock", "ask_user"]
approve = ["clock"]

[[agents]]
project = "demo"
id = "incomplete"
name = "Incomplete"
engine = "native"

[[agents]]
project = "demo"
id = "impatient"
name = "Impatient"
engine = "native"
provider = "impatient"
model = "test-model"

[[agents]]
project = "demo"
id = "steady"
name = "Steady"
engine = "native"
provider = "test"
model = "test-model"
tools = ["clock", "ask_user"]
continue_interrupted = true

{more}
"#
        ))
    }

    /// The same on the PostgreSQL database at `url`.
    #[must_use]
    pub fn on_postgres(mut self, url: String) -> Self {
        self.database_url = Some(url);
        self
    }

    /// The same, whose programs find that in their environment.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same, whose servers' logs are not shown when they end.
    #[must_use]
    pub fn hushed(mut self) -> Self {
        self.hushed = true;
        self
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The data folder.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// `turnfast` with `args`, on this installation.
    ///
    /// # Errors
    /// The server has not been built.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        self.command_on(self.database_url.as_deref(), args)
    }

    fn command_on(&self, database_url: Option<&str>, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(program("TURNFAST_BIN", "turnfast")?);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TURNFAST_")) {
            command.env_remove(name);
        }
        command.args(args).arg("--data-dir").arg(self.data_dir());
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        if let Some(url) = database_url {
            command.arg("--database-url").arg(url);
        }
        command
            .env("TURNFAST_TEST_PROVIDER_KEY", PROVIDER_KEY)
            .env("TURNFAST_TEST_MCP_TOKEN", MCP_TOKEN)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path());
        Ok(command)
    }

    /// Runs a command of `turnfast` to its end and returns its stdout.
    ///
    /// # Errors
    /// It fails.
    pub async fn run(&self, args: &[&str], stdin: &str) -> Result<String> {
        let mut child =
            self.command(args)?.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut input = child.stdin.take().context("stdin is piped")?;
        input.write_all(stdin.as_bytes()).await?;
        drop(input);
        let output = within(&format!("`turnfast {}`", args.join(" ")), child.wait_with_output()).await?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "`turnfast {}`: {}\n{out}{err}", args.join(" "), output.status);
        Ok(out.into_owned())
    }

    /// Adds a user and returns an API token of theirs. Their password is [`password`].
    ///
    /// # Errors
    /// A command fails.
    pub async fn user(&self, name: &str) -> Result<String> {
        self.run(&["user", "add", name, "--password-stdin"], &format!("{}\n", password(name))).await?;
        Ok(self.run(&["token", "create", "--user", name], "").await?.trim().to_owned())
    }

    /// Starts a server and waits until it is ready.
    ///
    /// # Errors
    /// It does not start.
    pub async fn serve(&self) -> Result<Server> {
        self.serve_at("127.0.0.1:0").await
    }

    /// Starts a server at an address, as after a restart that a page does not notice, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start.
    pub async fn serve_at(&self, address: &str) -> Result<Server> {
        self.started(self.command(&["serve", "--listen", address])?).await
    }

    /// Starts a server that reaches its database by another way than the rest, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start.
    pub async fn serve_on(&self, database_url: &str) -> Result<Server> {
        self.started(self.command_on(Some(database_url), &["serve", "--listen", "127.0.0.1:0"])?).await
    }

    /// Starts a server from a shell that has done `first`, such as setting a limit, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start.
    pub async fn serve_after(&self, first: &str) -> Result<Server> {
        let serve = self.command(&["serve", "--listen", "127.0.0.1:0"])?;
        let serve = serve.as_std();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{first} && exec \"$@\""), "sh"]).arg(serve.get_program()).args(serve.get_args());
        for (name, value) in serve.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.current_dir(self.folder.path());
        self.started(shell).await
    }

    async fn started(&self, command: Command) -> Result<Server> {
        let mut process = Process::start(command, self.log_path())?;
        if self.hushed {
            process.hush();
        }
        let url = process.line("the ready line", |line| line.strip_prefix("turnfast listening on ").map(str::to_owned)).await?;
        Ok(Server { process, url })
    }

    /// What all servers on it have logged.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.folder.path().join("stderr")
    }

    /// The folder that everything lies in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The password of a user that [`Installation::user`] added.
#[must_use]
pub fn password(user: &str) -> String {
    format!("the password of {user}")
}

/// A server that runs, and is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    process: Process,
    /// Where it listens.
    pub url: String,
}

impl Server {
    /// Address and port, for [`Installation::serve_at`].
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// The one-time sign-in link that it printed.
    ///
    /// # Errors
    /// It printed none.
    pub async fn sign_in_link(&mut self) -> Result<String> {
        let link = |line: &str| line.split_whitespace().find(|word| word.starts_with("http")).map(str::to_owned);
        self.process.line("the sign-in link", link).await
    }

    /// An API client with that token.
    ///
    /// # Errors
    /// No HTTP client is to be had.
    pub fn client(&self, token: &str) -> Result<Client> {
        Client::new(&self.url, token)
    }

    /// The process's id.
    ///
    /// # Errors
    /// It has ended.
    pub fn id(&self) -> Result<u32> {
        self.process.id()
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn kill(self) -> Result<()> {
        self.process.kill().await
    }

    /// SIGTERM. It goes on until its turns have ended; see [`Server::ended`].
    ///
    /// # Errors
    /// It has ended already.
    pub fn ask_to_end(&self) -> Result<()> {
        self.process.ask_to_end()
    }

    /// Sends it a signal, by its name without `SIG`.
    ///
    /// # Errors
    /// It has ended already, or takes no such signal.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not say.
    pub fn end(&mut self) -> Result<Option<ExitStatus>> {
        self.process.end()
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn ended(self) -> Result<ExitStatus> {
        self.process.ended().await
    }

    /// Memory that it holds, in bytes.
    ///
    /// # Errors
    /// It has ended, or the system does not say.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.process.resident_bytes()
    }

    /// Its log is not shown when it ends: for a program whose output is not a test's.
    pub fn hush(&mut self) {
        self.process.hush();
    }

    /// What it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.stderr()
    }
}
