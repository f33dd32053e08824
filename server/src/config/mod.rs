//! The configuration as the rest of the server sees it. Names, defaults and meanings are those of the configuration file.
//! [`load`] reads it.

mod cron;
mod fields;
pub mod load;

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use turnfast_shared::ids::Slug;

pub(crate) use load::public_origin;
pub use load::{LoadError, Mistake, Overrides};

/// The data folder where none is named.
pub const DEFAULT_DATA_DIR: &str = "./turnfast-data";

/// The user that a server without users starts with, and the admin of the project that it starts with.
pub const FIRST_USER: &str = "admin";

/// What no project may be called: the page of an agent is at `/{project}/{agent}`, and these first segments are the API's.
pub const RESERVED_PROJECT_IDS: [&str; 6] = ["projects", "auth", "push", "healthz", "readyz", "metrics"];

/// The tools that every native agent may be given by name.
pub const BUILT_IN_TOOLS: [&str; 3] = ["clock", "ask_user", "delegate"];

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
    /// `[database] url`; `None`: SQLite in the data folder. Secret: it may hold a password.
    pub database_url: Option<Secret>,
    /// `[features] agents`.
    pub agents_enabled: bool,
    /// `[limits]`.
    pub limits: Limits,
    /// `[[providers]]`.
    pub providers: Vec<Provider>,
    /// `[[mcp_servers]]`.
    pub mcp_servers: Vec<McpServer>,
    /// `[[gateways]]`.
    pub gateways: Vec<Gateway>,
    /// `[[projects]]`; without any, one called `demo`.
    pub projects: Vec<Project>,
    /// `[[agents]]`; where there is neither an agent nor a project, one called `assistant` of engine `demo`.
    pub agents: Vec<Agent>,
    /// What is not wrong in the file and still will not work, in the order of its lines: secrets that are not there, agents that lack
    /// a part.
    pub warnings: Vec<Mistake>,
}

impl Config {
    /// The SQLite database in the data folder.
    #[must_use]
    pub fn sqlite_path(&self) -> PathBuf {
        self.data_dir.join("turnfast.db")
    }

    /// Creates the data folder where it is missing; then only its owner may look inside, for it holds password hashes.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn create_data_dir(&self) -> io::Result<()> {
        create_private_dir(&self.data_dir)
    }

    /// Where browsers reach this server, without a trailing slash: `public_url`, else `bound`. An address that stands for every
    /// interface is shown as the local one.
    #[must_use]
    pub fn base_url(&self, bound: SocketAddr) -> String {
        if let Some(url) = &self.server.public_url {
            return url.clone();
        }
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        format!("http://{}", SocketAddr::new(ip, bound.port()))
    }

    /// The project of that id.
    #[must_use]
    pub fn project(&self, id: &str) -> Option<&Project> {
        self.projects.iter().find(|project| project.id.as_str() == id)
    }

    /// The agent of that id in that project.
    #[must_use]
    pub fn agent(&self, project: &Slug, id: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.project == *project && agent.id.as_str() == id)
    }

    /// What the server connects to.
    fn addresses(&self) -> impl Iterator<Item = &str> {
        let providers = self.providers.iter().map(|provider| provider.base_url.as_str());
        let gateways = self.gateways.iter().map(|gateway| gateway.url.as_str());
        let servers = self.mcp_servers.iter().filter_map(|server| match &server.transport {
            McpTransport::Url { url, .. } => Some(url.as_str()),
            McpTransport::Command { .. } => None,
        });
        providers.chain(gateways).chain(servers)
    }

    /// Every secret that the configuration holds, longest first, to be cut out of whatever leaves the server: a provider may
    /// echo a key in an error.
    #[must_use]
    pub fn secrets(&self) -> Vec<&str> {
        let keys = self.providers.iter().filter_map(|provider| provider.api_key.as_ref());
        let tokens = self.gateways.iter().filter_map(|gateway| gateway.token.as_ref());
        let mut secrets: Vec<&str> = keys
            .chain(tokens)
            .chain(self.mcp_servers.iter().flat_map(|server| server.transport.secrets()).map(|(_, source)| source))
            .filter_map(|source| match source {
                SecretSource::Present(secret) => Some(secret.expose()),
                SecretSource::Missing(_) => None,
            })
            .chain(self.database_url.iter().map(Secret::expose))
            .chain(self.addresses().flat_map(secrets_in_address))
            .collect();
        secrets.sort_unstable_by_key(|secret| (std::cmp::Reverse(secret.len()), *secret));
        secrets.dedup();
        secrets
    }
}

/// What may be a key in an address: user and password, every value of its query, and long steps of its path with digits in them. Hosts of tools hand out
/// such addresses. As it stands in the file; masked for nothing it costs a word in a log line.
fn secrets_in_address(address: &str) -> impl Iterator<Item = &str> {
    let (_, rest) = address.split_once("://").unwrap_or(("", address));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let values = query.split(['&', '#']).map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let steps = path.split('/').filter(|step| step.len() >= PATH_SECRET_BYTES && step.contains(|c: char| c.is_ascii_digit()));
    user.split(':').chain(values).chain(steps).filter(|secret| !secret.is_empty())
}

/// Creates `path` and what is missing above it, readable by its owner alone where the system knows of owners.
fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// A step of an address's path from which on it may be a key: longer than any that has a meaning.
const PATH_SECRET_BYTES: usize = 24;

/// Whether `name` can be a user's: 1 to 64 of `A-Z a-z 0-9 . _ - @ +`, the first one a letter or digit. Case counts.
#[must_use]
pub fn is_user_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-@+".contains(&b))
}

/// `[server]`.
#[derive(Clone, Debug)]
pub struct Server {
    /// `listen`, 127.0.0.1:8080 by default.
    pub listen: SocketAddr,
    /// `drain_seconds`, 30 by default.
    pub drain: Duration,
    /// `public_url`: what browsers see; cookies and origin checks follow it. An origin: scheme, host and port, no path, no
    /// trailing slash.
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
    /// `interaction_expiry_hours`: how long a suspended turn waits for a person; `None`: for as long as it takes.
    pub interaction_expiry: Option<Duration>,
    /// Files that go with one message; 8 by default.
    pub max_attachments: usize,
    /// Length of each of them in bytes; 5 MiB by default.
    pub max_attachment_bytes: usize,
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

/// `[[mcp_servers]]`.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// `id`.
    pub id: Slug,
    /// How it is reached.
    pub transport: McpTransport,
    /// `start_seconds`: how long it may take to start and be greeted, and to list its tools; 10 by default.
    pub start: Duration,
    /// `call_seconds`: how long one call may take; 60 by default.
    pub call: Duration,
}

/// A value of an MCP server's `env`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// Written in the file as it is.
    Plain(String),
    /// `env:NAME` or `file:PATH`.
    Secret(SecretSource),
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// `command` and `env`: a program, spoken to over its standard streams.
    Command {
        /// The program and its arguments. Never empty.
        command: Vec<String>,
        /// What it finds in its environment beside what every program needs.
        env: BTreeMap<String, EnvValue>,
    },
    /// `url` and `token`: streamable HTTP.
    Url {
        /// `url`.
        url: String,
        /// `token`, sent as a bearer token; `None`: none is sent.
        token: Option<SecretSource>,
    },
}

impl McpTransport {
    /// Its secrets, each with the name of the key that holds it.
    fn secrets(&self) -> impl Iterator<Item = (&str, &SecretSource)> {
        let (env, token) = match self {
            Self::Command { env, .. } => (Some(env), None),
            Self::Url { token, .. } => (None, token.as_ref()),
        };
        let env = env.into_iter().flatten().filter_map(|(name, value)| match value {
            EnvValue::Secret(source) => Some((name.as_str(), source)),
            EnvValue::Plain(_) => None,
        });
        env.chain(token.map(|token| ("token", token)))
    }
}

/// `[[gateways]]`: an OpenClaw Gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// `id`.
    pub id: Slug,
    /// `url`: `ws://` or `wss://`.
    pub url: String,
    /// `token`; `None`: none is sent.
    pub token: Option<SecretSource>,
}

/// What a user is in a project. Each role may do what the ones before it may.
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
    /// `tools`: built-in tools, `mcp:SERVER` for all tools of a server, `mcp:SERVER/TOOL` for one.
    pub tools: Vec<String>,
    /// `approve`: tools whose calls wait for a person.
    pub approve: Vec<String>,
    /// `delegates`: agents that `delegate` may run.
    pub delegates: Vec<Slug>,
    /// `continue_interrupted`; false by default.
    pub continue_interrupted: bool,
    /// `attachments`: whether files may go with a message; true by default.
    pub attachments: bool,
    /// `gateway`: an id of `[[gateways]]`, for engine `openclaw`.
    pub gateway: Option<Slug>,
    /// `gateway_agent`: the Gateway's own agent id, `main` by default.
    pub gateway_agent: String,
    /// `schedules`.
    pub schedules: Vec<Schedule>,
}

/// One of an agent's `schedules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// `id`, unique within the agent.
    pub id: Slug,
    /// `cron`: five fields (minute, hour, day of month, month, day of week). Only its form has been checked.
    pub cron: String,
    /// `tz`: an IANA zone name, `UTC` by default.
    pub tz: String,
    /// `message`: what the agent is told.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_addresses_are_secrets() {
        let secrets = |address| secrets_in_address(address).collect::<Vec<_>>();
        assert_eq!(secrets("http://127.0.0.1:11434/v1"), [""; 0]);
        assert_eq!(secrets("https://ada:s3cret@tools.example.org/mcp?key=k1&mode=all#x"), ["ada", "s3cret", "k1", "all", "x"]);
        assert_eq!(
            secrets("https://tools.example.org/s/0123456789abcdef01234567/mcp?bare"),
            ["bare", "0123456789abcdef01234567"]
        );
        assert_eq!(secrets("https://tools.example.org/a-long-name-without-any-digit/mcp"), [""; 0]);
        assert_eq!(secrets("wss://:t0ken@gateway"), ["t0ken"]);
    }
}
