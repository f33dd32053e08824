//! How an MCP server is reached.
//!
//! A program gets its own process group: a Ctrl-C in the terminal is for this server, whose running turns may still need the
//! program, and when the program is killed, so is what it started. It gets what every program needs from the environment and what
//! `env` gives it, and nothing else: this server's own secrets are none of its business.

use std::{collections::BTreeMap, ffi::OsString, io, process::Stdio};

use process_wrap::tokio::{CommandWrap, KillOnDrop, ProcessGroup};
use reqwest::{Client, Url};
use rmcp::transport::{
    StreamableHttpClientTransport, TokioChildProcess, streamable_http_client::StreamableHttpClientTransportConfig,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStderr, Command},
};

use crate::{
    agents::openai::Clients,
    config::{EnvValue, McpTransport, Secret, SecretSource},
};

/// What a program finds in its environment without being configured: where programs, its home, temporary files and certificates
/// are, who runs it, and in which language and time zone. No proxies: their addresses may hold passwords.
const INHERITED: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "SYSTEMROOT",
    "COMSPEC",
    "PATHEXT",
];

/// Bytes of one line of a program's stderr that go into the log.
const LOG_LINE_BYTES: u64 = 8 * 1024;

/// How a server is reached, or why it cannot be.
pub(super) enum Transport {
    /// A program.
    Program {
        /// Itself and its arguments.
        command: Vec<String>,
        /// What it gets in its environment beside [`INHERITED`].
        env: BTreeMap<String, OsString>,
    },
    /// An address.
    Http {
        /// The address.
        url: String,
        /// The bearer token.
        token: Option<Secret>,
        /// What connects to it.
        client: Client,
    },
    /// Something is missing in the configuration.
    Missing(String),
}

impl Transport {
    pub(super) fn new(config: &McpTransport, clients: &mut Clients) -> Self {
        match config {
            McpTransport::Command { command, env } => {
                let mut given = BTreeMap::new();
                for (name, value) in env {
                    let value = match value {
                        EnvValue::Plain(text) => text.clone(),
                        EnvValue::Secret(SecretSource::Present(secret)) => secret.expose().to_owned(),
                        EnvValue::Secret(SecretSource::Missing(place)) => {
                            return Self::Missing(format!("`{name}` of its env is not there: nothing found at {place}"));
                        }
                    };
                    given.insert(name.clone(), value.into());
                }
                Self::Program { command: command.clone(), env: given }
            }
            McpTransport::Url { url, token } => {
                let token = match token {
                    None => None,
                    Some(SecretSource::Present(token)) => Some(token.clone()),
                    Some(SecretSource::Missing(place)) => {
                        return Self::Missing(format!("its token is not there: nothing found at {place}"));
                    }
                };
                let client = match Url::parse(url) {
                    Ok(address) => clients.get(&address),
                    Err(error) => Err(error.to_string()),
                };
                match client {
                    Ok(client) => Self::Http { url: url.clone(), token, client },
                    Err(why) => Self::Missing(format!("there is no HTTP client for its address ({why})")),
                }
            }
        }
    }
}

/// Starts a program. What it writes to its stderr comes with it.
pub(super) fn start(
    command: &[String],
    env: &BTreeMap<String, OsString>,
) -> io::Result<(TokioChildProcess, Option<ChildStderr>)> {
    let (program, arguments) = command.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(env);
    let mut command = CommandWrap::from(command);
    command.wrap(KillOnDrop).wrap(ProcessGroup::leader());
    TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn()
}

/// A connection over streamable HTTP. Nothing is sent yet.
pub(super) fn http(client: &Client, url: &str, token: Option<&Secret>) -> StreamableHttpClientTransport<Client> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.auth_header = token.map(|token| token.expose().to_owned());
    StreamableHttpClientTransport::with_client(client.clone(), config)
}

/// Puts what a program writes to its stderr into the log, line by line, until it closes it.
pub(super) async fn log(server: String, stderr: ChildStderr, mask: impl Fn(String) -> String) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(LOG_LINE_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => tracing::debug!(server, "{}", mask(String::from_utf8_lossy(&line).trim_end().to_owned())),
        }
    }
}
