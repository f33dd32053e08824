//! Reads the configuration: command line over environment over file over default. Every mistake of the file is reported, with its
//! line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::tz::TimeZone;
use toml::de::DeTable;
use turnfast_shared::ids::Slug;

use super::{
    Agent, BUILT_IN_TOOLS, Config, DEFAULT_DATA_DIR, EngineKind, EnvValue, FIRST_USER, Gateway, Limits, McpServer, McpTransport,
    Project, Provider, RESERVED_PROJECT_IDS, Role, Schedule, Secret, SecretSource, Server, cron,
    fields::{At, Fields, Source},
    is_user_name,
};
use crate::redact::SECRET_BYTES;

/// What the command line and the environment say. Each one given wins over the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--config`; `None`: the defaults.
    pub config: Option<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// `--database-url`.
    pub database_url: Option<Secret>,
    /// `--listen`.
    pub listen: Option<SocketAddr>,
}

/// One mistake in the configuration file, or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as it was named.
    pub file: PathBuf,
    /// From 1.
    pub line: usize,
    /// What is wrong and what is taken there. Holds no secret.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.message)
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {error}", path.display())]
    Read {
        /// The file, as it was named.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// `--database-url` is none.
    #[error("the database URL {TAKES_DATABASE_URL}")]
    DatabaseUrl,
    /// The file has mistakes, in the order of their lines. Never empty.
    #[error("{}", lines(.0))]
    Mistakes(Vec<Mistake>),
}

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n")
}

const TAKES_DATABASE_URL: &str = "takes postgres://…; leave it out for SQLite in the data folder";
const TAKES_ID: &str = "1 to 64 of the characters a-z, 0-9 and `-`";

impl Config {
    /// Reads the configuration that `overrides` name, and the secrets that it points to.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes.
    pub fn load(overrides: &Overrides) -> Result<Self, LoadError> {
        Self::load_with(overrides, &|name| std::env::var(name).ok())
    }

    /// As [`Config::load`], with the environment that `env:NAME` looks in.
    ///
    /// # Errors
    /// The file cannot be read or has mistakes.
    pub fn load_with(overrides: &Overrides, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, LoadError> {
        let mut config = match &overrides.config {
            None => parse(Path::new(""), "", env),
            Some(path) => {
                let bytes = fs::read(path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
                text_of(path, bytes).and_then(|text| parse(path, &text, env))
            }
        }
        .map_err(LoadError::Mistakes)?;
        if let Some(data_dir) = &overrides.data_dir {
            config.data_dir.clone_from(data_dir);
        }
        if let Some(url) = &overrides.database_url {
            if !is_database_url(url.expose()) {
                return Err(LoadError::DatabaseUrl);
            }
            config.database_url = Some(url.clone());
        }
        if let Some(listen) = overrides.listen {
            config.server.listen = listen;
        }
        Ok(config)
    }
}

/// The text of a file, which TOML takes in UTF-8.
fn text_of(file: &Path, bytes: Vec<u8>) -> Result<String, Vec<Mistake>> {
    String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = good.filter(|byte| **byte == b'\n').count() + 1;
        vec![Mistake { file: file.to_owned(), line, message: "this is not UTF-8 text".to_owned() }]
    })
}

/// Reads the text of a configuration file.
fn parse(file: &Path, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Vec<Mistake>> {
    let mut source = Source::new(file, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let span = error.span().unwrap_or_default();
        let named = if error.message() == "duplicate key" { format!(": {}", source.slice(span.clone())) } else { String::new() };
        source.broken(span.start, format!("this is no TOML: {}{named}", error.message()));
    }
    let mut config = Reader { source: &mut source, env }.document(document.get_ref());
    let (mistakes, warnings) = source.finish();
    config.warnings = warnings;
    if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
}

struct Reader<'r, 's> {
    source: &'r mut Source<'s>,
    env: &'r dyn Fn(&str) -> Option<String>,
}

impl Reader<'_, '_> {
    fn document(&mut self, table: &DeTable<'_>) -> Config {
        let mut root = Fields::new(table, 0, "the configuration");
        let server = self.server(&mut root);
        let database_url = self.database(&mut root);
        let agents_enabled = self.features(&mut root);
        let limits = self.limits(&mut root);
        let providers = self.each(&mut root, "providers", Self::provider);
        let mcp_servers = self.each(&mut root, "mcp_servers", Self::mcp_server);
        let gateways = self.each(&mut root, "gateways", Self::gateway);
        let (has_projects, has_agents) = (root.has("projects"), root.has("agents"));
        let mut projects = self.each(&mut root, "projects", Self::project);
        if !has_projects {
            projects.push(default_project());
        }
        let mut agents = self.each(&mut root, "agents", Self::agent);
        root.finish(self.source);

        self.unique(&providers, "provider", |provider| provider.id.clone());
        self.unique(&mcp_servers, "MCP server", |server| server.id.to_string());
        self.unique(&gateways, "gateway", |gateway| gateway.id.to_string());
        self.unique(&projects, "project", |project| project.id.to_string());
        self.unique(&agents, "agent of that project", |Draft { agent, .. }| format!("{}/{}", agent.project, agent.id));
        self.references(&agents, &providers, &mcp_servers, &gateways, &projects);
        if !has_projects && !has_agents {
            agents.push(At { at: 0, value: Draft { agent: default_agent(), references: Vec::new(), approve: Vec::new() } });
        }
        Config {
            server,
            data_dir: PathBuf::from(DEFAULT_DATA_DIR),
            database_url,
            agents_enabled,
            limits,
            providers: values(providers),
            mcp_servers: values(mcp_servers),
            gateways: values(gateways),
            projects: values(projects),
            agents: agents.into_iter().map(|draft| draft.value.agent).collect(),
            warnings: Vec::new(),
        }
    }

    fn server(&mut self, root: &mut Fields<'_>) -> Server {
        let mut server = Server {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            drain: Duration::from_secs(30),
            public_url: None,
            metrics_listen: None,
        };
        let Some(mut fields) = section(self.source, root, "server") else { return server };
        if let Some(listen) = self.address(&mut fields, "listen") {
            server.listen = listen;
        }
        if let Some(seconds) = fields.integer(self.source, "drain_seconds", 0..=86_400) {
            server.drain = Duration::from_secs(seconds);
        }
        if let Some(url) = fields.string(self.source, "public_url") {
            server.public_url = public_origin(url.value);
            if server.public_url.is_none() {
                self.source.wrong(
                    url.at,
                    "`public_url` takes the address that browsers see, such as https://chat.example.org: http or https, no path",
                );
            }
        }
        server.metrics_listen = self.address(&mut fields, "metrics_listen");
        fields.finish(self.source);
        server
    }

    fn address(&mut self, fields: &mut Fields<'_>, key: &'static str) -> Option<SocketAddr> {
        let text = fields.string(self.source, key)?;
        let address = text.value.parse().ok();
        if address.is_none() {
            self.source.wrong(text.at, format!("`{key}` takes an IP address and a port, such as 127.0.0.1:8080"));
        }
        address
    }

    fn database(&mut self, root: &mut Fields<'_>) -> Option<Secret> {
        let mut fields = section(self.source, root, "database")?;
        let url = fields.string(self.source, "url");
        fields.finish(self.source);
        let url = url?;
        if !is_database_url(url.value) {
            self.source.wrong(url.at, format!("`url` of [database] {TAKES_DATABASE_URL}"));
        }
        Some(Secret::new(url.value.to_owned()))
    }

    fn features(&mut self, root: &mut Fields<'_>) -> bool {
        let Some(mut fields) = section(self.source, root, "features") else { return true };
        let agents = fields.boolean(self.source, "agents").unwrap_or(true);
        fields.finish(self.source);
        agents
    }

    fn limits(&mut self, root: &mut Fields<'_>) -> Limits {
        let mut limits = Limits {
            max_running_turns_per_user: 8,
            max_message_bytes: 262_144,
            max_attachments: 8,
            max_attachment_bytes: 5 * 1024 * 1024,
            interaction_expiry: None,
        };
        let Some(mut fields) = section(self.source, root, "limits") else { return limits };
        let turns = fields.integer(self.source, "max_running_turns_per_user", 1..=10_000);
        if let Some(turns) = turns.and_then(|turns| turns.try_into().ok()) {
            limits.max_running_turns_per_user = turns;
        }
        let bytes = fields.integer(self.source, "max_message_bytes", 1..=67_108_864);
        if let Some(bytes) = bytes.and_then(|bytes| bytes.try_into().ok()) {
            limits.max_message_bytes = bytes;
        }
        let hours = fields.integer(self.source, "interaction_expiry_hours", 1..=87_600);
        limits.interaction_expiry = hours.map(|hours| Duration::from_secs(hours * 3_600));
        let attachments = fields.integer(self.source, "max_attachments", 0..=100);
        if let Some(attachments) = attachments.and_then(|attachments| attachments.try_into().ok()) {
            limits.max_attachments = attachments;
        }
        let bytes = fields.integer(self.source, "max_attachment_bytes", 1..=67_108_864);
        if let Some(bytes) = bytes.and_then(|bytes| bytes.try_into().ok()) {
            limits.max_attachment_bytes = bytes;
        }
        fields.finish(self.source);
        limits
    }

    /// Reads every table of `[[key]]`; those that lack something are noted and left out. `read` gets `None` for the id where it is
    /// unusable: the rest is read all the same, for its mistakes.
    fn each<T>(
        &mut self,
        root: &mut Fields<'_>,
        key: &'static str,
        read: fn(&mut Self, &mut Fields<'_>, Option<Slug>) -> Option<T>,
    ) -> Vec<At<T>> {
        let mut read_all = Vec::new();
        for table in root.tables(self.source, key).unwrap_or_default() {
            let mut fields = Fields::new(table.value, table.at, format!("[[{key}]]"));
            let id = self.id(&mut fields, "id");
            if let Some(id) = &id {
                fields.rename(format!("[[{key}]] `{id}`"));
            }
            let value = read(self, &mut fields, id);
            fields.finish(self.source);
            read_all.extend(value.map(|value| At { at: table.at, value }));
        }
        read_all
    }

    fn id(&mut self, fields: &mut Fields<'_>, key: &'static str) -> Option<Slug> {
        let text = fields.required(self.source, key, TAKES_ID)?;
        self.slug(text, key)
    }

    fn slug(&mut self, text: At<&str>, key: &str) -> Option<Slug> {
        let slug = text.value.parse().ok();
        if slug.is_none() {
            self.source.wrong(text.at, format!("`{key}` takes {TAKES_ID}"));
        }
        slug
    }

    fn reference(
        &mut self,
        fields: &mut Fields<'_>,
        key: &'static str,
        to: fn(Slug) -> Reference,
        references: &mut Vec<At<Reference>>,
    ) -> Option<Slug> {
        let text = fields.string(self.source, key)?;
        let id = self.slug(text, key)?;
        references.push(At { at: text.at, value: to(id.clone()) });
        Some(id)
    }

    fn provider(&mut self, fields: &mut Fields<'_>, id: Option<Slug>) -> Option<Provider> {
        if let Some(kind) = fields.string(self.source, "kind")
            && kind.value != "openai"
        {
            self.source.wrong(kind.at, "`kind` takes \"openai\": any endpoint that speaks OpenAI's chat completions");
        }
        let base_url = fields.required(self.source, "base_url", "an http:// or https:// address");
        let base_url = base_url.and_then(|text| self.url(text, "base_url", &["http", "https"]));
        let api_key = self.secret(fields, "api_key");
        let stall = fields.integer(self.source, "stall_seconds", 1..=86_400).unwrap_or(120);
        Some(Provider { id: id?.to_string(), base_url: base_url?, api_key, stall: Duration::from_secs(stall) })
    }

    fn mcp_server(&mut self, fields: &mut Fields<'_>, id: Option<Slug>) -> Option<McpServer> {
        let command = fields.strings(self.source, "command");
        let env = fields.table(self.source, "env");
        let url = fields.string(self.source, "url");
        let token = self.secret(fields, "token");
        let transport = match (command, url) {
            (Some(command), None) if command.first().is_some_and(|program| !program.value.is_empty()) => {
                if token.is_some() {
                    self.source.wrong(fields.at, format!("`token` of {} goes with `url`; a program takes `env`", fields.title()));
                }
                let command = command.iter().map(|word| word.value.to_owned()).collect();
                let env = env.map(|table| self.env_values(table.value, fields.title())).unwrap_or_default();
                Some(McpTransport::Command { command, env })
            }
            (None, Some(url)) => {
                if let Some(env) = env {
                    self.source
                        .wrong(env.at, format!("`env` of {} goes with `command`; an address takes `token`", fields.title()));
                }
                self.url(url, "url", &["http", "https"]).map(|url| McpTransport::Url { url, token })
            }
            _ => {
                let takes = "takes either `command`, a program and its arguments, or `url`";
                self.source.absent(fields.at, format!("{} {takes}", fields.title()));
                None
            }
        };
        let start = fields.integer(self.source, "start_seconds", 1..=86_400).unwrap_or(10);
        let call = fields.integer(self.source, "call_seconds", 1..=86_400).unwrap_or(60);
        Some(McpServer { id: id?, transport: transport?, start: Duration::from_secs(start), call: Duration::from_secs(call) })
    }

    /// `NAME = "text"`, where the text may be `env:NAME` or `file:PATH`.
    fn env_values(&mut self, table: &DeTable<'_>, title: &str) -> BTreeMap<String, EnvValue> {
        let mut values = BTreeMap::new();
        for (name, value) in table.iter() {
            let name_is_good = !name.get_ref().is_empty() && !name.get_ref().contains(['=', '\0']);
            match value.get_ref().as_str().filter(|text| name_is_good && !text.contains('\0')) {
                Some(text) => {
                    let source = self.secret_source(text);
                    self.warn_of_secret(value.span().start, name.get_ref(), title, source.as_ref());
                    let value = match source {
                        Some(source) => EnvValue::Secret(source),
                        None => EnvValue::Plain(text.to_owned()),
                    };
                    values.insert(name.get_ref().to_string(), value);
                }
                None => self.source.wrong(value.span().start, "`env` takes NAME = \"text\", \"env:NAME\" or \"file:PATH\""),
            }
        }
        values
    }

    fn gateway(&mut self, fields: &mut Fields<'_>, id: Option<Slug>) -> Option<Gateway> {
        let url = fields.required(self.source, "url", "a ws:// or wss:// address");
        let url = url.and_then(|text| self.url(text, "url", &["ws", "wss"]));
        let token = self.secret(fields, "token");
        Some(Gateway { id: id?, url: url?, token })
    }

    fn project(&mut self, fields: &mut Fields<'_>, id: Option<Slug>) -> Option<Project> {
        if let Some(id) = id.as_ref().filter(|id| RESERVED_PROJECT_IDS.contains(&id.as_str())) {
            self.source.wrong(fields.at, format!("a project cannot be called `{id}`: the paths below /{id} are the API's"));
        }
        let name = self.name(fields, id.as_ref());
        let mut members = BTreeMap::new();
        if let Some(table) = fields.table(self.source, "members") {
            for (user, role) in table.value.iter() {
                if !is_user_name(user.get_ref()) {
                    self.source.wrong(user.span().start, "`members`: a user's name takes 1 to 64 of A-Z a-z 0-9 . _ - @ +");
                }
                match role.get_ref().as_str().and_then(Role::parse) {
                    Some(role) => {
                        members.insert(user.get_ref().to_string(), role);
                    }
                    None => self.source.wrong(
                        role.span().start,
                        format!("the role of `{}` takes admin, editor, member or viewer", user.get_ref()),
                    ),
                }
            }
        }
        Some(Project { id: id?, name, members })
    }

    fn name(&mut self, fields: &mut Fields<'_>, id: Option<&Slug>) -> String {
        let Some(name) = fields.string(self.source, "name") else { return id.map_or("", Slug::as_str).to_owned() };
        if name.value.trim().is_empty() {
            self.source.wrong(name.at, "`name` is blank; leave it out to show the id");
        }
        name.value.to_owned()
    }

    fn agent(&mut self, fields: &mut Fields<'_>, id: Option<Slug>) -> Option<Draft> {
        let mut references = Vec::new();
        let project = fields.required(self.source, "project", "the id of one of [[projects]]");
        let project = project.and_then(|text| {
            let id = self.slug(text, "project")?;
            references.push(At { at: text.at, value: Reference::Project(id.clone()) });
            Some(id)
        });
        let name = self.name(fields, id.as_ref());
        let engine = match fields.string(self.source, "engine") {
            None => EngineKind::Native,
            Some(engine) => match engine.value {
                "native" => EngineKind::Native,
                "openclaw" => EngineKind::Openclaw,
                "demo" => EngineKind::Demo,
                _ => {
                    self.source.wrong(engine.at, "`engine` takes native, openclaw or demo");
                    EngineKind::Native
                }
            },
        };
        let provider = self.reference(fields, "provider", Reference::Provider, &mut references);
        let model = fields.string(self.source, "model").map(|model| model.value.to_owned());
        let instructions = fields.string(self.source, "instructions").map(|text| text.value.to_owned());
        let tools = self.tools(fields, "tools", &mut references);
        let approve = self.tools(fields, "approve", &mut references);
        let mut delegates = Vec::new();
        for text in fields.strings(self.source, "delegates").unwrap_or_default() {
            if let Some(delegate) = self.slug(text, "delegates") {
                references.push(At { at: text.at, value: Reference::Delegate(delegate.clone()) });
                delegates.push(delegate);
            }
        }
        let continue_interrupted = fields.boolean(self.source, "continue_interrupted").unwrap_or(false);
        let attachments = fields.boolean(self.source, "attachments").unwrap_or(true);
        let gateway = self.reference(fields, "gateway", Reference::Gateway, &mut references);
        let gateway_agent = fields.string(self.source, "gateway_agent");
        if let Some(agent) = gateway_agent
            && agent.value.trim().is_empty()
        {
            self.source.wrong(agent.at, "`gateway_agent` is blank; leave it out for `main`");
        }
        let schedules = self.schedules(fields);
        let missing: &[(&str, bool)] = match engine {
            EngineKind::Native => &[("provider", provider.is_none()), ("model", model.is_none())],
            EngineKind::Openclaw => &[("gateway", gateway.is_none())],
            EngineKind::Demo => &[],
        };
        for (key, _) in missing.iter().filter(|(_, missing)| *missing) {
            self.source.warn(fields.at, format!("{} cannot run: it has no `{key}`", fields.title()));
        }
        if engine == EngineKind::Openclaw {
            let at = fields.value("engine").map_or(fields.at, |engine| engine.span().start);
            self.source.warn(at, format!("{} cannot run: this version does not speak to OpenClaw Gateways", fields.title()));
        }
        let agent = Agent {
            project: project?,
            id: id?,
            name,
            engine,
            provider: provider.map(String::from),
            model,
            instructions,
            tools: tools.into_iter().map(|tool| tool.value).collect(),
            approve: approve.iter().map(|tool| tool.value.clone()).collect(),
            delegates,
            continue_interrupted,
            attachments,
            gateway,
            gateway_agent: gateway_agent.map_or("main", |agent| agent.value).to_owned(),
            schedules,
        };
        Some(Draft { agent, references, approve })
    }

    /// `tools` takes `mcp:SERVER` and `mcp:SERVER/TOOL`, `approve` only the latter; both take built-in tools.
    fn tools(&mut self, fields: &mut Fields<'_>, key: &'static str, references: &mut Vec<At<Reference>>) -> Vec<At<String>> {
        let form = if key == "approve" { "mcp:SERVER/TOOL" } else { "mcp:SERVER or mcp:SERVER/TOOL" };
        let mut tools = Vec::new();
        for tool in fields.strings(self.source, key).unwrap_or_default() {
            let server = tool.value.strip_prefix("mcp:").and_then(|rest| match rest.split_once('/') {
                Some((server, name)) => (!name.is_empty()).then_some(server),
                None => (key != "approve").then_some(rest),
            });
            match server.and_then(|server| server.parse().ok()) {
                Some(server) => references.push(At { at: tool.at, value: Reference::McpServer(server) }),
                None if BUILT_IN_TOOLS.contains(&tool.value) => {}
                None => {
                    let known = BUILT_IN_TOOLS.join(", ");
                    self.source.wrong(tool.at, format!("`{key}` takes the built-in tools ({known}) and {form}"));
                }
            }
            tools.push(At { at: tool.at, value: tool.value.to_owned() });
        }
        tools
    }

    fn schedules(&mut self, fields: &mut Fields<'_>) -> Vec<Schedule> {
        let mut schedules: Vec<Schedule> = Vec::new();
        let tables = fields.tables(self.source, "schedules").unwrap_or_default();
        if let Some(first) = tables.first() {
            self.source.warn(first.at, format!("`schedules` of {}: this version does not run them", fields.title()));
        }
        for table in tables {
            let mut entry = Fields::new(table.value, table.at, format!("a schedule of {}", fields.title()));
            let id = self.id(&mut entry, "id");
            let cron = entry.required(self.source, "cron", "five fields, such as 0 8 * * 1-5");
            if let Some(cron) = cron
                && let Err(wrong) = cron::check(cron.value)
            {
                self.source.wrong(cron.at, format!("`cron` {wrong}"));
            }
            let tz = entry.string(self.source, "tz");
            if let Some(tz) = tz
                && TimeZone::get(tz.value).is_err()
            {
                let name = if cron::is_zone_name(tz.value) { format!("; there is no `{}`", tz.value) } else { String::new() };
                self.source.wrong(tz.at, format!("`tz` takes an IANA zone name, such as Europe/Berlin{name}"));
            }
            let message = entry.required(self.source, "message", "what the agent is told");
            if let Some(message) = message
                && message.value.trim().is_empty()
            {
                self.source.wrong(message.at, "`message` is blank: say what the agent is told");
            }
            entry.finish(self.source);
            let (Some(id), Some(cron), Some(message)) = (id, cron, message) else { continue };
            if schedules.iter().any(|schedule| schedule.id == id) {
                self.source.wrong(table.at, format!("a second schedule `{id}` of {}", fields.title()));
            }
            schedules.push(Schedule {
                id,
                cron: cron.value.to_owned(),
                tz: tz.map_or("UTC", |tz| tz.value).to_owned(),
                message: message.value.to_owned(),
            });
        }
        schedules
    }

    fn url(&mut self, text: At<&str>, key: &str, schemes: &[&str]) -> Option<String> {
        let url = reqwest::Url::parse(text.value).ok().filter(|url| schemes.contains(&url.scheme()) && url.has_host());
        let Some(url) = url else {
            self.source.wrong(text.at, format!("`{key}` takes an address that starts with {}://", schemes.join(":// or ")));
            return None;
        };
        if !url.username().is_empty() || url.password().is_some() {
            self.source.wrong(text.at, format!("`{key}` holds a user name or password; secrets do not go into addresses"));
        }
        Some(text.value.trim_end_matches('/').to_owned())
    }

    /// `env:NAME` or `file:PATH`; the file's folder is where relative paths start. Anything else could be the secret itself, so it
    /// is refused and not repeated.
    fn secret(&mut self, fields: &mut Fields<'_>, key: &'static str) -> Option<SecretSource> {
        let text = fields.string(self.source, key)?;
        let source = self.secret_source(text.value);
        if source.is_none() {
            let message = format!("`{key}` takes env:NAME or file:PATH; a secret itself does not belong into this file");
            self.source.wrong(text.at, message);
        }
        self.warn_of_secret(text.at, key, fields.title(), source.as_ref());
        source
    }

    fn warn_of_secret(&mut self, at: usize, key: &str, title: &str, source: Option<&SecretSource>) {
        match source {
            Some(SecretSource::Missing(place)) => {
                self.source.warn(at, format!("`{key}` of {title} has no secret: nothing found at {place}"));
            }
            Some(SecretSource::Present(secret)) if secret.expose().len() < SECRET_BYTES => {
                let message = format!(
                    "`{key}` of {title} has fewer than {SECRET_BYTES} bytes: it looks like a word, and is not kept out of what is recorded \
                     and shown"
                );
                self.source.warn(at, message);
            }
            Some(SecretSource::Present(_)) | None => {}
        }
    }

    /// What `env:NAME` or `file:PATH` leads to; `None`: the text is neither.
    fn secret_source(&self, text: &str) -> Option<SecretSource> {
        let found = match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => (self.env)(name),
            Some(("file", path)) if !path.is_empty() => fs::read_to_string(self.source.folder().join(path)).ok(),
            _ => return None,
        };
        let found = found.map(|secret| secret.trim().to_owned()).filter(|secret| !secret.is_empty());
        Some(found.map_or_else(|| SecretSource::Missing(text.to_owned()), |secret| SecretSource::Present(Secret::new(secret))))
    }

    fn unique<T>(&mut self, items: &[At<T>], what: &str, id: impl Fn(&T) -> String) {
        let mut seen = BTreeSet::new();
        for item in items {
            let id = id(&item.value);
            if !seen.insert(id.clone()) {
                self.source.wrong(item.at, format!("a second {what} `{id}`"));
            }
        }
    }

    fn references(
        &mut self,
        drafts: &[At<Draft>],
        providers: &[At<Provider>],
        mcp_servers: &[At<McpServer>],
        gateways: &[At<Gateway>],
        projects: &[At<Project>],
    ) {
        for At { value: Draft { agent, references, approve }, .. } in drafts {
            for tool in approve {
                let server = tool.value.strip_prefix("mcp:").and_then(|rest| rest.split_once('/')).map(|(server, _)| server);
                // What is said of others elsewhere is enough.
                let is_tool = match server {
                    Some(server) => mcp_servers.iter().any(|known| known.value.id.as_str() == server),
                    None => BUILT_IN_TOOLS.contains(&tool.value.as_str()),
                };
                let of_server = server.map(|server| format!("mcp:{server}"));
                let has = agent.tools.iter().any(|has| *has == tool.value || Some(has) == of_server.as_ref());
                if is_tool && !has {
                    self.source
                        .wrong(tool.at, format!("`approve` names `{}`, which is not among the agent's `tools`", tool.value));
                }
            }
            for reference in references {
                let (known, what) = match &reference.value {
                    // Not a mistake: `delegate` answers the model with an error, and the agent may be added later.
                    Reference::Delegate(id) => {
                        let project = &agent.project;
                        let is_there = drafts.iter().any(|d| d.value.agent.project == *project && d.value.agent.id == *id);
                        if !is_there {
                            let said =
                                format!("agent `{}` delegates to `{id}`, which project `{project}` does not have", agent.id);
                            self.source.warn(reference.at, said);
                        }
                        continue;
                    }
                    Reference::Project(id) => (projects.iter().any(|p| p.value.id == *id), format!("project `{id}`")),
                    Reference::Provider(id) => (providers.iter().any(|p| p.value.id == id.as_str()), format!("provider `{id}`")),
                    Reference::Gateway(id) => (gateways.iter().any(|g| g.value.id == *id), format!("gateway `{id}`")),
                    Reference::McpServer(id) => (mcp_servers.iter().any(|s| s.value.id == *id), format!("MCP server `{id}`")),
                };
                if !known {
                    self.source.absent(reference.at, format!("there is no {what}"));
                }
            }
        }
    }
}

/// An agent whose references have not been looked up yet.
struct Draft {
    agent: Agent,
    references: Vec<At<Reference>>,
    /// `approve`, and where each stands.
    approve: Vec<At<String>>,
}

/// What an agent refers to.
enum Reference {
    Delegate(Slug),
    Project(Slug),
    Provider(Slug),
    Gateway(Slug),
    McpServer(Slug),
}

/// A section of its own, where it is there.
fn section<'a>(source: &mut Source<'_>, root: &mut Fields<'a>, key: &'static str) -> Option<Fields<'a>> {
    let table = root.table(source, key)?;
    Some(Fields::new(table.value, table.at, format!("[{key}]")))
}

fn values<T>(items: Vec<At<T>>) -> Vec<T> {
    items.into_iter().map(|item| item.value).collect()
}

fn is_database_url(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// The origin of `url`; `None` where it is not one that browsers could have this server under.
pub(crate) fn public_origin(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    let bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    let open = url.username().is_empty() && url.password().is_none();
    (matches!(url.scheme(), "http" | "https") && bare && open).then(|| url.origin().ascii_serialization())
}

/// What there is without a `[[projects]]`: something to try.
fn default_project() -> At<Project> {
    let members = BTreeMap::from([(FIRST_USER.to_owned(), Role::Admin)]);
    At { at: 0, value: Project { id: slug("demo"), name: "Demo".to_owned(), members } }
}

fn default_agent() -> Agent {
    Agent {
        project: slug("demo"),
        id: slug("assistant"),
        name: "Assistant".to_owned(),
        engine: EngineKind::Demo,
        provider: None,
        model: None,
        instructions: None,
        tools: Vec::new(),
        approve: Vec::new(),
        delegates: Vec::new(),
        continue_interrupted: false,
        attachments: true,
        gateway: None,
        gateway_agent: "main".to_owned(),
        schedules: Vec::new(),
    }
}

#[expect(clippy::expect_used, reason = "the ids above are constants, and a test loads them")]
fn slug(id: &'static str) -> Slug {
    id.parse().expect("a constant of a slug's form")
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "viewer" => Self::Viewer,
            "member" => Self::Member,
            "editor" => Self::Editor,
            "admin" => Self::Admin,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
