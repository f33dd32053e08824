//! The command line. Results go to stdout, everything else to stderr.
//!
//! Exit codes: 0, 1 for a failure, 2 for wrong usage. Every option has an environment variable; the command line wins over it, and
//! both over the configuration file.

mod commands;
mod values;

use std::{
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, builder::BoolishValueParser};
use tracing_subscriber::{EnvFilter, Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};
use turnfast_shared::Millis;
use uuid::Uuid;

use crate::{
    auth::Scope,
    config::{Config, LoadError, Overrides, Secret},
    redact::{self, LogWriter},
};

/// A self-hosted chat server for AI agents, whose turns always finish.
#[derive(Debug, Parser)]
#[command(name = "turnfast", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

/// What is worked on; every command takes these.
#[derive(Debug, Args)]
struct Place {
    /// The configuration file (TOML). Without one, a project `demo` with a demo agent
    #[arg(long, global = true, env = "TURNFAST_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The data folder [default: ./turnfast-data]
    #[arg(long, global = true, env = "TURNFAST_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The database [default: SQLite in the data folder]
    #[arg(long, global = true, env = "TURNFAST_DATABASE_URL", hide_env_values = true, value_name = "URL", value_parser = values::secret)]
    database_url: Option<Secret>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve {
        /// Address and port to listen on; port 0 picks a free one [default: 127.0.0.1:8080]
        #[arg(long, env = "TURNFAST_LISTEN", value_name = "ADDR")]
        listen: Option<SocketAddr>,
    },
    /// Add, list, disable and enable users
    #[command(subcommand)]
    User(User),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(Token),
    /// Read the configuration and say every mistake with file and line
    Check,
    /// Bring the database up to date
    Migrate,
    /// Write a consistent copy of the database, also while the server runs
    Backup {
        /// The file to write; it must not exist
        to: PathBuf,
    },
    /// Copy everything into another, empty database, as from SQLite to PostgreSQL. No server may run on the first one
    Copy {
        /// The database to copy: sqlite:FILE or postgres://…
        #[arg(long, env = "TURNFAST_FROM", hide_env_values = true, value_name = "DATABASE", value_parser = values::secret)]
        from: Secret,
        /// The database to copy to: sqlite:FILE or postgres://…
        #[arg(long, env = "TURNFAST_TO", hide_env_values = true, value_name = "DATABASE", value_parser = values::secret)]
        to: Secret,
    },
}

#[derive(Debug, Subcommand)]
enum User {
    /// Add a user. Without a password, print a one-time sign-in link
    Add {
        /// What `members` of a project call them
        #[arg(value_parser = values::user_name)]
        name: String,
        /// Read the password from standard input
        #[arg(long, env = "TURNFAST_PASSWORD_STDIN", value_parser = BoolishValueParser::new())]
        password_stdin: bool,
    },
    /// List users
    List,
    /// Shut a user out, at once
    Disable {
        /// Their name
        name: String,
    },
    /// Let a disabled user in again
    Enable {
        /// Their name
        name: String,
    },
    /// Print a one-time sign-in link. Links made before no longer work
    Link {
        /// Their name
        name: String,
    },
    /// Set a password, read from standard input. Ends the user's sessions
    Password {
        /// Their name
        name: String,
    },
}

#[derive(Debug, Subcommand)]
enum Token {
    /// Create a token and print it, alone. It cannot be shown again
    Create {
        /// Whose it is
        #[arg(long, env = "TURNFAST_USER", value_name = "NAME")]
        user: String,
        /// What it is restricted to, such as agent:read,agent:execute [default: all that the user may do]
        #[arg(long, env = "TURNFAST_SCOPES", value_name = "SCOPE", value_delimiter = ',', num_args = 1..)]
        scopes: Option<Vec<Scope>>,
        /// How long it is good for, such as 30d or 12h [default: for ever]
        #[arg(long, env = "TURNFAST_EXPIRES", value_name = "TIME", value_parser = values::duration)]
        expires: Option<Millis>,
    },
    /// List tokens
    List,
    /// Revoke a token, at once
    Revoke {
        /// Its id, as `token list` shows it
        #[arg(value_parser = values::uuid)]
        id: Uuid,
    },
}

/// Why a command failed: for people.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self::Other(message.into())
    }
}

impl From<crate::store::StoreError> for Failure {
    fn from(error: crate::store::StoreError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<crate::app::ServeError> for Failure {
    fn from(error: crate::app::ServeError) -> Self {
        Self::Other(error.to_string())
    }
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is there to read what cannot be printed.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    let serves = matches!(cli.command, Command::Serve { .. });
    // Held to the end: then what is not sent yet is.
    let _traces = match log_to_stderr(serves) {
        Ok(traces) => traces,
        Err(why) => {
            report(&Failure::new(why), false);
            return ExitCode::FAILURE;
        }
    };
    match run(cli) {
        Ok(output) => print(&output),
        Err(failure) => {
            report(&failure, serves && !io::stderr().is_terminal());
            ExitCode::FAILURE
        }
    }
}

/// Runs one command; what it gives belongs to stdout.
fn run(cli: Cli) -> Result<String, Failure> {
    let Cli { place: Place { config, data_dir, database_url }, command } = cli;
    let file = config.clone();
    let listen = match command {
        Command::Serve { listen } => listen,
        _ => None,
    };
    let database_url = database_url.filter(|url| !url.expose().is_empty());
    let config = Config::load(&Overrides { config, data_dir, database_url, listen })?;
    redact::keep_out_of_the_log(&config);
    let mut runtime = match command {
        Command::Serve { .. } => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build().map_err(|error| Failure::new(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::Check => Ok(commands::check(&config, file.as_deref())),
            Command::Serve { .. } => {
                crate::app::serve(config).await?;
                Ok(String::new())
            }
            Command::User(command) => commands::user(&config, command).await,
            Command::Token(command) => commands::token(&config, command).await,
            Command::Migrate => commands::migrate(&config).await,
            Command::Backup { to } => commands::backup(&config, &to).await,
            Command::Copy { from, to } => commands::copy(&from, &to).await,
        }
    })
}

/// A reader that has seen enough, as `head` has, is no failure.
fn print(output: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            report(&Failure::new(format!("cannot write to standard output: {error}")), false);
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Says what went wrong: to people as it is, in a log of JSON lines as such.
fn report(failure: &Failure, as_log: bool) {
    match failure {
        Failure::Load(LoadError::Mistakes(mistakes)) => {
            for mistake in mistakes {
                say(as_log, "", &mistake.to_string());
            }
        }
        other => say(as_log, "error: ", &other.to_string()),
    }
}

fn say(as_log: bool, prefix: &str, text: &str) {
    if as_log {
        tracing::error!("{text}");
    } else {
        note(&format!("{prefix}{text}"));
    }
}

/// A line for people, beside the result.
fn note(text: &str) {
    // Nobody is there to read what cannot be written.
    let _ = writeln!(io::stderr(), "{text}");
}

/// What is logged where nothing else is asked for. The MCP library reports as errors what is none here; what matters of it is said
/// in `turnfast::agents::mcp`. PostgreSQL notes at each start that the table of migrations is there.
const LOG: &str = "info,rmcp=off,sqlx::postgres::notice=warn";

/// Where spans go, as long as it lives.
#[cfg(feature = "otel")]
type Traces = Option<crate::telemetry::Exporting>;
/// Where spans go: nowhere.
#[cfg(not(feature = "otel"))]
struct Traces;

/// `TURNFAST_LOG` takes filters as in `info,turnfast=debug`. Whoever `serves` is traced, where that is built in and asked for.
fn log_to_stderr(serves: bool) -> Result<Traces, String> {
    let wanted = std::env::var("TURNFAST_LOG").ok().filter(|wanted| !wanted.trim().is_empty());
    let (filter, bad) = match wanted.map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, false),
        Some(Err(_)) => (EnvFilter::new(LOG), true),
        None => (EnvFilter::new(LOG), false),
    };
    // A line that cannot be written, on a full disk for instance, is lost. Said on stderr, as it would be, it would end the task that
    // logs: `eprintln!` panics where stderr takes nothing.
    let lines = tracing_subscriber::fmt::layer().with_writer(LogWriter::default).log_internal_errors(false);
    let lines = if io::stderr().is_terminal() { lines.boxed() } else { lines.json().flatten_event(true).boxed() };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter));
    #[cfg(feature = "otel")]
    let (subscriber, traces) = {
        let (layer, traces) = serves.then(crate::telemetry::layer).transpose()?.flatten().unzip();
        (subscriber.with(layer), traces)
    };
    #[cfg(not(feature = "otel"))]
    let (traces, _) = (Traces, serves);
    subscriber.init();
    if bad {
        tracing::warn!("TURNFAST_LOG is no filter such as info,turnfast=debug; logging at info");
    }
    Ok(traces)
}
