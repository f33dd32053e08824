//! The configuration as the rest of the server sees it. Names, defaults and meanings are those of the configuration file.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use turnfast_shared::ids::Slug;

/// A secret from the configuration. Never shown: its `Debug` is a placeholder and it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The secret itself, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where a secret comes from, and what was found there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// Found.
    Present(Secret),
    /// Not found: the text names the place (`env:NAME`, `file:PATH`), for `agent_misconfigured`.
    Missing(String),
}

/// Everything `turnfast serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[server]`.
    pub server: Server,
    /// `--data-dir`: SQLite, locks, keys.
    pub data_dir: PathBuf,
    /// `[database] url`; `None`: SQLite in the data folder.
    pub database_url: Option<String>,
    /// `[features] agents`.
    pub agents_enabled: bool,
    /// `[limits]`.
    pub limits: Limits,
    /// `[[providers]]`.
    pub providers: Vec<Provider>,
    /// `[[projects]]`.
    pub projects: Vec<Project>,
    /// `[[agents]]`.
    pub agents: Vec<Agent>,
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// `listen`, 127.0.0.1:8080 by default.
    pub listen: SocketAddr,
    /// `drain_seconds`, 30 by default.
    pub drain: Duration,
    /// `public_url`: what browsers see; cookies and origin checks follow it.
    pub public_url: Option<String>,
    /// `metrics_listen`; `None`: off.
    pub metrics_listen: Option<SocketAddr>,
}

/// `[limits]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Turns that one user may have running at once; 8 by default.
    pub max_running_turns_per_user: u32,
    /// Length of a typed message in bytes; 262,144 by default.
    pub max_message_bytes: usize,
}

/// `[[providers]]` of kind `openai`: any endpoint that speaks OpenAI's chat completions.
#[derive(Clone, Debug)]
pub struct Provider {
    /// `id`.
    pub id: String,
    /// `base_url`, without a trailing slash.
    pub base_url: String,
    /// `api_key`; `None`: none is sent.
    pub api_key: Option<SecretSource>,
    /// `stall_seconds`: how long a stream may stay silent before it counts as stalled; 120 by default.
    pub stall: Duration,
}

/// What a user is in a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Talks to agents.
    Member,
    /// Changes agents.
    Editor,
    /// Starts runs and manages users.
    Admin,
}

/// `[[projects]]`.
#[derive(Clone, Debug)]
pub struct Project {
    /// `id`.
    pub id: Slug,
    /// `name`; the id where absent.
    pub name: String,
    /// `members`: user name to role.
    pub members: BTreeMap<String, Role>,
}

/// `engine` of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// A model provider and tools, run here.
    Native,
    /// An agent of an OpenClaw Gateway.
    Openclaw,
    /// No model behind it; for trying things out.
    Demo,
}

/// `[[agents]]`.
#[derive(Clone, Debug)]
pub struct Agent {
    /// `project`.
    pub project: Slug,
    /// `id`, unique within the project.
    pub id: Slug,
    /// `name`; the id where absent.
    pub name: String,
    /// `engine`.
    pub engine: EngineKind,
    /// `provider`: an id of `[[providers]]`.
    pub provider: Option<String>,
    /// `model`.
    pub model: Option<String>,
    /// `instructions`: the system prompt.
    pub instructions: Option<String>,
    /// `tools`: built-in tools, `mcp:SERVER`.
    pub tools: Vec<String>,
    /// `approve`: tools whose calls wait for a person.
    pub approve: Vec<String>,
    /// `delegates`: agents that `delegate` may run.
    pub delegates: Vec<Slug>,
    /// `continue_interrupted`.
    pub continue_interrupted: bool,
}
