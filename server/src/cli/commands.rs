//! What the commands do. Each works on the database directly, also while a server runs on it.

use std::{
    fmt::Write as _,
    io::{self, Read as _},
    path::Path,
    sync::Arc,
};

use turnfast_shared::Millis;

use super::{
    Failure, Token, User, note,
    values::{self, Place},
};
use crate::{
    address,
    auth::{self, Auth, Scopes, link_url, password},
    clock,
    config::{Config, Secret},
    store::{Database, Store, auth as record, copy, postgres::PostgresStore, sqlite::SqliteStore},
};

/// Longest password, in bytes.
const MAX_PASSWORD: u64 = 1_024;

async fn open(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    if config.database_url.is_none() {
        let folder = config.data_dir.display();
        config.create_data_dir().map_err(|error| {
            Failure::new(format!("the data folder {folder} cannot be used: {error}; choose another with --data-dir"))
        })?;
    }
    Ok(Database::open(config).await?.store())
}

/// Opens a database that is there: a mistyped folder must not become an empty one.
async fn open_existing(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    if config.database_url.is_none() {
        there_is_one(config)?;
    }
    open(config).await
}

/// Whether there is an SQLite database to work on.
fn there_is_one(config: &Config) -> Result<(), Failure> {
    let path = config.sqlite_path();
    if path.exists() {
        return Ok(());
    }
    let what = "`serve`, `migrate` and `user add` make one";
    Err(Failure::new(format!("there is no database {}; is --data-dir right? {what}", path.display())))
}

/// `check`, of a configuration that has no mistakes.
pub(super) fn check(config: &Config, file: Option<&Path>) -> String {
    for warning in &config.warnings {
        note(&format!("{}:{}: warning: {}", warning.file.display(), warning.line, warning.message));
    }
    let (projects, agents) = (config.projects.len(), config.agents.len());
    let what = file.map_or_else(|| "no configuration file, the defaults".to_owned(), |file| file.display().to_string());
    format!("{what}: no mistakes; projects: {projects}, agents: {agents}\n")
}

/// `migrate`.
pub(super) async fn migrate(config: &Config) -> Result<String, Failure> {
    open(config).await?.close().await;
    Ok(match config.database_url {
        None => format!("{} is up to date\n", config.sqlite_path().display()),
        Some(_) => "the database is up to date\n".to_owned(),
    })
}

/// `backup`.
pub(super) async fn backup(config: &Config, to: &Path) -> Result<String, Failure> {
    if config.database_url.is_some() {
        return Err(Failure::new(
            "PostgreSQL has its own tool for a consistent copy, also while servers run: pg_dump --format=custom --file=FILE URL; \
             pg_restore brings it back",
        ));
    }
    there_is_one(config)?;
    let store = SqliteStore::open(&config.sqlite_path()).await?;
    let done = store.backup(to).await;
    store.close().await;
    done.map_err(|error| Failure::new(format!("no backup was written: {error}")))?;
    Ok(format!("{}\n", to.display()))
}

/// `copy`.
pub(super) async fn copy(from: &Secret, to: &Secret) -> Result<String, Failure> {
    let place = |text| values::place(text).ok_or_else(|| Failure::new("a database to copy is sqlite:FILE or postgres://…"));
    let (from, to) = (place(from)?, place(to)?);
    if let Place::Sqlite(file) = &from
        && !file.exists()
    {
        return Err(Failure::new(format!("there is no database {}", file.display())));
    }
    let from = at(&from).await?;
    refuse_while_served(&from).await?;
    let to = at(&to).await?;
    let copied = copy::copy(from.copyable(), to.copyable()).await;
    from.store().close().await;
    to.store().close().await;
    let threads = copied.map_err(|error| Failure::new(format!("not copied: {error}")))?;
    Ok(format!("copied all users and {threads} threads\n"))
}

async fn at(place: &Place) -> Result<Database, Failure> {
    Ok(match place {
        Place::Sqlite(file) => Database::Sqlite(SqliteStore::open(file).await?),
        Place::Postgres(url) => Database::Postgres(PostgresStore::open(url.expose()).await?),
    })
}

/// What a server writes while the record is copied would be missing, or half there.
async fn refuse_while_served(database: &Database) -> Result<(), Failure> {
    if database.locks().is_served().await.map_err(|error| Failure::new(error.to_string()))? {
        return Err(Failure::new("a server runs on the database that is to be copied; stop it first"));
    }
    Ok(())
}

/// `user …`.
pub(super) async fn user(config: &Config, command: User) -> Result<String, Failure> {
    // Before anything is opened: a pipe that brings no password changes nothing.
    let hash = match command {
        User::Add { password_stdin: true, .. } | User::Password { .. } => Some(read_password()?),
        _ => None,
    };
    let store = match command {
        User::Add { .. } => open(config).await?,
        _ => open_existing(config).await?,
    };
    let auth = Auth::new(store.clone());
    let output = match command {
        User::Add { name, .. } => add(config, &auth, &name, hash).await,
        User::List => list_users(config, &*store).await,
        User::Disable { name } => switch(&*store, &name, true).await,
        User::Enable { name } => switch(&*store, &name, false).await,
        User::Link { name } => link(config, &auth, &*store, &name).await,
        User::Password { name } => {
            let user = find(&*store, &name).await?;
            store.set_password_hash(user.id, hash.unwrap_or_default()).await?;
            Ok(String::new())
        }
    };
    store.close().await;
    output
}

async fn add(config: &Config, auth: &Auth, name: &str, hash: Option<String>) -> Result<String, Failure> {
    let needs_link = hash.is_none();
    let Some(id) = auth.add_user(name, hash).await? else {
        return Err(Failure::new(format!("there is a user `{name}` already; `turnfast user link {name}` makes a sign-in link")));
    };
    if !config.projects.iter().any(|project| project.members.contains_key(name)) {
        note(&format!("`{name}` can use nothing yet: name them in `members` of a project in the configuration"));
    }
    if needs_link { Ok(show_link(config, &auth.create_link(id).await?)) } else { Ok(String::new()) }
}

async fn link(config: &Config, auth: &Auth, store: &dyn Store, name: &str) -> Result<String, Failure> {
    let user = find_enabled(store, name).await?;
    Ok(show_link(config, &auth.create_link(user.id).await?))
}

fn show_link(config: &Config, link: &Secret) -> String {
    let hours = auth::LINK / (60 * 60 * 1_000);
    note(&format!("sign in once with this link, within {hours} hours:"));
    let listen = config.server.listen;
    if config.server.public_url.is_some() {
        return format!("{}\n", link_url(&config.base_url(listen), link));
    }
    if let Some(base_url) = address::of_running_server(&config.data_dir) {
        return format!("{}\n", link_url(&base_url, link));
    }
    let folder = config.data_dir.display();
    if listen.port() == 0 {
        note(&format!("no server runs on {folder}: put the address that it will print in front"));
        return format!("{}\n", link_url("", link));
    }
    note(&format!("no server runs on {folder}: the link is for one that listens on {listen}"));
    format!("{}\n", link_url(&config.base_url(listen), link))
}

async fn switch(store: &dyn Store, name: &str, disabled: bool) -> Result<String, Failure> {
    let user = find(store, name).await?;
    store.set_disabled(user.id, disabled).await?;
    Ok(String::new())
}

async fn find(store: &dyn Store, name: &str) -> Result<record::User, Failure> {
    let user = store.user_named(name).await?;
    user.ok_or_else(|| Failure::new(format!("there is no user `{name}`; `turnfast user list` shows who there is")))
}

async fn find_enabled(store: &dyn Store, name: &str) -> Result<record::User, Failure> {
    let user = find(store, name).await?;
    if user.disabled {
        return Err(Failure::new(format!("`{name}` is disabled; `turnfast user enable {name}` first")));
    }
    Ok(user)
}

async fn list_users(config: &Config, store: &dyn Store) -> Result<String, Failure> {
    let mut rows = vec![["NAME", "STATE", "PASSWORD", "LAST SIGN-IN", "PROJECTS"].map(str::to_owned)];
    for user in store.users().await? {
        let projects = config.projects.iter().filter(|project| project.members.contains_key(&user.name));
        let projects: Vec<&str> = projects.map(|project| project.id.as_str()).collect();
        rows.push([
            user.name.clone(),
            if user.disabled { "disabled" } else { "enabled" }.to_owned(),
            if user.has_password { "yes" } else { "no" }.to_owned(),
            moment(user.signed_in_at, "never"),
            if projects.is_empty() { "-".to_owned() } else { projects.join(",") },
        ]);
    }
    Ok(table(&rows))
}

/// `token …`.
pub(super) async fn token(config: &Config, command: Token) -> Result<String, Failure> {
    let store = open_existing(config).await?;
    let output = match command {
        Token::Create { user, scopes, expires } => {
            let auth = Auth::new(store.clone());
            let user = find_enabled(&*store, &user).await?;
            let scopes = scopes.map(Scopes::from_iter);
            Ok(format!("{}\n", auth.create_token(&user, scopes, expires).await?.expose()))
        }
        Token::List => list_tokens(&*store).await,
        Token::Revoke { id } if store.revoke_token(id, clock::now()).await? => Ok(String::new()),
        Token::Revoke { id } => Err(Failure::new(format!("there is no token {id}; `turnfast token list` shows which there are"))),
    };
    store.close().await;
    output
}

async fn list_tokens(store: &dyn Store) -> Result<String, Failure> {
    let now = clock::now();
    let mut rows = vec![["ID", "USER", "STATE", "SCOPES", "CREATED", "EXPIRES"].map(str::to_owned)];
    for token in store.tokens().await? {
        let state = match (token.revoked_at, token.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(at)) if at <= now => "expired",
            _ => "valid",
        };
        rows.push([
            token.id.to_string(),
            token.name,
            state.to_owned(),
            token.scopes.map_or_else(|| "all".to_owned(), |scopes| scopes.replace(' ', ",")),
            clock::rfc3339(token.created_at),
            moment(token.expires_at, "never"),
        ]);
    }
    Ok(table(&rows))
}

fn moment(at: Option<Millis>, none: &str) -> String {
    at.map_or_else(|| none.to_owned(), clock::rfc3339)
}

/// Columns as wide as their widest cell.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Reads a password from standard input, without the line's end, and hashes it.
fn read_password() -> Result<String, Failure> {
    let mut text = String::new();
    io::stdin()
        .take(MAX_PASSWORD + 3)
        .read_to_string(&mut text)
        .map_err(|error| Failure::new(format!("cannot read the password: {error}")))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(Failure::new("the password on standard input is empty"));
    }
    // Sign-in takes no NUL: no text of people has one.
    if text.len() as u64 > MAX_PASSWORD || text.contains(['\n', '\0']) {
        return Err(Failure::new(format!("a password is one line of at most {MAX_PASSWORD} bytes without NUL")));
    }
    if text.chars().count() < 8 {
        note("warning: this password has fewer than 8 characters");
    }
    password::hash(&Secret::new(text.to_owned())).map_err(|error| Failure::new(format!("cannot hash the password: {error}")))
}
