use proptest::prelude::*;

use super::*;

/// Everything that there is to say, with nothing wrong in it.
const FULL: &str = r#"
[server]
listen = "[::1]:0"
drain_seconds = 5
public_url = "https://chat.example.org/"
metrics_listen = "127.0.0.1:9090"

[database]
url = "postgres://ada:pa55word@db.example.org/turnfast"

[features]
agents = false

[limits]
max_running_turns_per_user = 2
max_message_bytes = 1_000
interaction_expiry_hours = 48
max_attachments = 3
max_attachment_bytes = 2_000

[[providers]]
id = "local"
kind = "openai"
base_url = "http://127.0.0.1:11434/v1/"
api_key = "env:KEY"
stall_seconds = 7

[[providers]]
id = "open"
base_url = "https://llm.example.org"

[[mcp_servers]]
id = "files"
command = ["npx", "some-mcp-server"]
env = { LEVEL = "debug", FILES_KEY = "env:KEY", OTHER_KEY = "env:ABSENT" }
start_seconds = 3
call_seconds = 4

[[mcp_servers]]
id = "web"
url = "http://127.0.0.1:3000/mcp"
token = "env:KEY"

[[gateways]]
id = "home"
url = "ws://127.0.0.1:18789"
token = "env:ABSENT"

[[projects]]
id = "demo"
name = "Demo"
members = { owner = "admin", guest = "viewer", "ada@example.org" = "editor", bob = "member" }

[[projects]]
id = "other"

[[agents]]
project = "demo"
id = "assistant"
name = "Assistant"
engine = "native"
provider = "local"
model = "llama3.2"
instructions = "Help."
tools = ["clock", "ask_user", "delegate", "mcp:files", "mcp:web/search"]
approve = ["clock", "mcp:files/write_file"]
delegates = ["claw"]
continue_interrupted = true
attachments = false
schedules = [{ id = "morning", cron = "0 8 * * 1-5", tz = "Europe/Berlin", message = "Plan." }, { id = "hourly", cron = "0 * * * *", message = "Look." }]

[[agents]]
project = "demo"
id = "claw"
engine = "openclaw"
gateway = "home"
gateway_agent = "ops"

[[agents]]
project = "other"
id = "assistant"
engine = "demo"
"#;

fn env(name: &str) -> Option<String> {
    (name == "KEY").then(|| "sk-hunter2\n".to_owned())
}

fn read(text: &str) -> Result<Config, Vec<Mistake>> {
    parse(Path::new("turnfast.toml"), text, &env)
}

/// `line: message` of each mistake.
fn mistakes(text: &str) -> Vec<String> {
    let mistakes = read(text).err().unwrap_or_default();
    mistakes.iter().map(|mistake| format!("{}: {}", mistake.line, mistake.message)).collect()
}

/// The one mistake in `text`.
fn mistake(text: &str) -> String {
    let mistakes = mistakes(text);
    let [mistake] = mistakes.as_slice() else { unreachable!("one mistake in {text}, not {mistakes:?}") };
    mistake.clone()
}

#[test]
fn everything_is_read() {
    let config = read(FULL).unwrap();
    assert_eq!(config.server.listen.to_string(), "[::1]:0");
    assert_eq!(config.server.drain, Duration::from_secs(5));
    assert_eq!(config.server.public_url.as_deref(), Some("https://chat.example.org"));
    assert_eq!(config.server.metrics_listen, Some(([127, 0, 0, 1], 9090).into()));
    assert!(config.database_url.as_ref().unwrap().expose().starts_with("postgres://"));
    assert!(!config.agents_enabled);
    assert_eq!((config.limits.max_running_turns_per_user, config.limits.max_message_bytes), (2, 1_000));
    assert_eq!(config.limits.interaction_expiry, Some(Duration::from_secs(48 * 3_600)));
    assert_eq!((config.limits.max_attachments, config.limits.max_attachment_bytes), (3, 2_000));
    let [local, open] = config.providers.as_slice() else { unreachable!() };
    assert_eq!((local.base_url.as_str(), local.stall), ("http://127.0.0.1:11434/v1", Duration::from_secs(7)));
    assert_eq!(local.api_key, Some(SecretSource::Present(Secret::new("sk-hunter2".to_owned()))));
    assert_eq!((&open.api_key, open.stall), (&None, Duration::from_secs(120)));
    let [files, web] = config.mcp_servers.as_slice() else { unreachable!() };
    assert_eq!((files.start, files.call), (Duration::from_secs(3), Duration::from_secs(4)));
    assert_eq!((web.start, web.call), (Duration::from_secs(10), Duration::from_secs(60)));
    let key = || SecretSource::Present(Secret::new("sk-hunter2".to_owned()));
    let env = [
        ("LEVEL", EnvValue::Plain("debug".to_owned())),
        ("FILES_KEY", EnvValue::Secret(key())),
        ("OTHER_KEY", EnvValue::Secret(SecretSource::Missing("env:ABSENT".to_owned()))),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    let command = ["npx", "some-mcp-server"].map(str::to_owned).to_vec();
    assert_eq!(files.transport, McpTransport::Command { command, env });
    assert_eq!(web.transport, McpTransport::Url { url: "http://127.0.0.1:3000/mcp".to_owned(), token: Some(key()) });
    let [gateway] = config.gateways.as_slice() else { unreachable!() };
    assert_eq!(gateway.token, Some(SecretSource::Missing("env:ABSENT".to_owned())));
    let [demo, other] = config.projects.as_slice() else { unreachable!() };
    assert_eq!((demo.name.as_str(), other.name.as_str()), ("Demo", "other"));
    let roles: Vec<_> = demo.members.iter().map(|(name, role)| (name.as_str(), *role)).collect();
    let expected = [("ada@example.org", Role::Editor), ("bob", Role::Member), ("guest", Role::Viewer), ("owner", Role::Admin)];
    assert_eq!(roles, expected);
    let assistant = config.agent(&demo.id, "assistant").unwrap();
    assert_eq!((assistant.engine, assistant.model.as_deref()), (EngineKind::Native, Some("llama3.2")));
    assert_eq!(assistant.tools, ["clock", "ask_user", "delegate", "mcp:files", "mcp:web/search"]);
    assert_eq!(assistant.approve, ["clock", "mcp:files/write_file"]);
    assert!(assistant.continue_interrupted && !assistant.attachments);
    let zones: Vec<_> = assistant.schedules.iter().map(|schedule| schedule.tz.as_str()).collect();
    assert_eq!(zones, ["Europe/Berlin", "UTC"]);
    let claw = config.agent(&demo.id, "claw").unwrap();
    assert_eq!((claw.gateway.as_ref().map(Slug::as_str), claw.gateway_agent.as_str()), (Some("home"), "ops"));
    assert!(!claw.continue_interrupted);
    assert_eq!(config.agent(&other.id, "assistant").unwrap().engine, EngineKind::Demo);
}

#[test]
fn without_a_file_there_is_something_to_try() {
    for text in ["", "[server]\ndrain_seconds = 1\n"] {
        let config = read(text).unwrap();
        assert_eq!(config.server.listen, SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!(config.data_dir, Path::new("./turnfast-data"));
        assert!(config.agents_enabled && config.warnings.is_empty());
        let project = config.project("demo").unwrap();
        assert_eq!((project.name.as_str(), project.members.get("admin")), ("Demo", Some(&Role::Admin)));
        let agent = config.agent(&project.id, "assistant").unwrap();
        assert_eq!((agent.name.as_str(), agent.engine, agent.gateway_agent.as_str()), ("Assistant", EngineKind::Demo, "main"));
    }
    assert!(read("[[projects]]\nid = \"mine\"\n").unwrap().agents.is_empty());
}

#[test]
fn the_command_line_wins_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turnfast.toml");
    fs::write(&file, FULL).unwrap();
    let overrides = Overrides {
        config: Some(file),
        data_dir: Some("elsewhere".into()),
        database_url: Some(Secret::new("postgresql://other".to_owned())),
        listen: Some(([0, 0, 0, 0], 80).into()),
    };
    let config = Config::load_with(&overrides, &env).unwrap();
    assert_eq!((config.data_dir.as_path(), config.server.listen), (Path::new("elsewhere"), ([0, 0, 0, 0], 80).into()));
    assert_eq!(config.database_url.unwrap().expose(), "postgresql://other");
    let bad = Overrides { database_url: Some(Secret::new("hunter2".to_owned())), ..Overrides::default() };
    let error = Config::load_with(&bad, &env).unwrap_err().to_string();
    assert!(error.contains("postgres://") && !error.contains("hunter2"), "{error}");
}

#[test]
fn a_secret_comes_from_the_environment_or_a_file_and_from_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turnfast.toml");
    fs::write(folder.path().join("key"), "  sk-hunter2\n").unwrap();
    fs::write(folder.path().join("blank"), "\n").unwrap();
    let key = |value: &str| {
        fs::write(&file, format!("[[providers]]\nid = \"p\"\nbase_url = \"http://x\"\napi_key = \"{value}\"\n")).unwrap();
        let config = Config::load_with(&Overrides { config: Some(file.clone()), ..Overrides::default() }, &env);
        config.map(|config| config.providers.into_iter().next().and_then(|provider| provider.api_key).unwrap())
    };
    let present = SecretSource::Present(Secret::new("sk-hunter2".to_owned()));
    for place in ["env:KEY", "file:key"] {
        assert_eq!(key(place).unwrap(), present, "{place}");
    }
    for place in ["env:ABSENT", "file:absent", "file:blank", "file:."] {
        assert_eq!(key(place).unwrap(), SecretSource::Missing(place.to_owned()));
    }
    for literal in ["sk-hunter2", "", "env:", "file:", "ENV:KEY", "sk:hunter2"] {
        let error = key(literal).unwrap_err().to_string();
        assert!(error.contains("turnfast.toml:4: `api_key` takes env:NAME or file:PATH"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn secrets_are_listed_and_never_shown() {
    let config = read(FULL).unwrap();
    assert_eq!(config.secrets(), ["postgres://ada:pa55word@db.example.org/turnfast", "sk-hunter2"]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("pa55word"), "{shown}");
}

/// `line: message` of each warning.
fn warnings(text: &str) -> Vec<String> {
    let config = read(text).unwrap();
    config.warnings.iter().map(|warning| format!("{}: {}", warning.line, warning.message)).collect()
}

#[test]
fn what_will_not_work_is_a_warning_with_its_line() {
    let line_of = |text: &str| FULL.lines().position(|line| line.starts_with(text)).unwrap() + 1;
    let said = warnings(FULL);
    let expected = [
        (line_of("env = {"), "`OTHER_KEY` of [[mcp_servers]] `files` has no secret: nothing found at env:ABSENT"),
        (line_of("token = \"env:ABSENT\""), "`token` of [[gateways]] `home` has no secret: nothing found at env:ABSENT"),
        (line_of("schedules"), "`schedules` of [[agents]] `assistant`: this version does not run them"),
        (line_of("engine = \"openclaw\""), "[[agents]] `claw` cannot run: this version does not speak to OpenClaw Gateways"),
    ];
    assert_eq!(said, expected.map(|(line, text)| format!("{line}: {text}")));
    let lacking = "[[agents]]\nproject = \"demo\"\nid = \"n\"\ndelegates = [\"gone\"]\n\n[[agents]]\nproject = \"demo\"\nid = \"o\"\nengine = \"openclaw\"\n";
    let expected = [
        "1: [[agents]] `n` cannot run: it has no `provider`",
        "1: [[agents]] `n` cannot run: it has no `model`",
        "4: agent `n` delegates to `gone`, which project `demo` does not have",
        "6: [[agents]] `o` cannot run: it has no `gateway`",
        "9: [[agents]] `o` cannot run: this version does not speak to OpenClaw Gateways",
    ];
    assert_eq!(warnings(lacking), expected);
}

#[test]
fn a_key_that_cannot_be_told_from_a_word_is_a_warning() {
    let config = |key: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("key"), key).unwrap();
        let file = folder.path().join("turnfast.toml");
        let text = "[[providers]]\nid = \"p\"\nkind = \"openai\"\nbase_url = \"http://x/v1\"\napi_key = \"file:key\"\n";
        fs::write(&file, text).unwrap();
        Config::load(&Overrides { config: Some(file), ..Overrides::default() }).unwrap()
    };
    let said = config("ollama").warnings;
    assert!(said.len() == 1 && said[0].line == 5 && said[0].message.contains("has fewer than 8 bytes"), "{said:?}");
    assert!(config("s3cr3t-k").warnings.is_empty());
}

#[test]
fn what_is_no_text_is_said_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turnfast.toml");
    fs::write(&file, b"[server]\nlisten = \"127.0.0.1:1\"\n# gr\xfc\xdfe\n").unwrap();
    let error = Config::load(&Overrides { config: Some(file.clone()), ..Overrides::default() }).unwrap_err().to_string();
    assert_eq!(error, format!("{}:3: this is not UTF-8 text", file.display()));
}

#[test]
fn a_zone_must_exist_and_an_approved_tool_must_be_there() {
    let agent = |more: &str| {
        format!("[[agents]]\nid = \"a\"\nproject = \"demo\"\n{more}\n[[mcp_servers]]\nid = \"m\"\nurl = \"http://x\"\n")
    };
    let scheduled =
        |tz: &str| agent(&format!("schedules = [{{ id = \"s\", cron = \"* * * * *\", message = \"m\", tz = \"{tz}\" }}]"));
    for zone in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Kolkata", "Etc/GMT+5"] {
        assert!(read(&scheduled(zone)).is_ok(), "{zone}");
    }
    assert_eq!(mistake(&scheduled("Mars/X")), "4: `tz` takes an IANA zone name, such as Europe/Berlin; there is no `Mars/X`");
    // Whatever the machine has: these are the zones inside the program.
    assert!(jiff::tz::TimeZoneDatabase::bundled().get("Europe/Berlin").is_ok());

    for good in
        ["tools = [\"clock\", \"mcp:m\"]\napprove = [\"clock\", \"mcp:m/x\"]", "tools = [\"mcp:m/x\"]\napprove = [\"mcp:m/x\"]"]
    {
        assert!(read(&agent(good)).is_ok(), "{good}");
    }
    for (bad, tool) in [
        ("tools = [\"ask_user\"]\napprove = [\"clock\"]", "clock"),
        ("tools = [\"mcp:m/x\"]\napprove = [\"mcp:m/y\"]", "mcp:m/y"),
    ] {
        assert_eq!(mistake(&agent(bad)), format!("5: `approve` names `{tool}`, which is not among the agent's `tools`"));
    }
}

#[test]
fn every_mistake_is_said_with_its_line() {
    for (text, expected) in [
        ("a = 1", "1: the configuration has no key `a`"),
        ("server = 1", "1: `server` of the configuration takes a table"),
        ("[server]\nlisten = 1", "2: `listen` of [server] takes text in quotes"),
        ("[server]\nlisten = \"localhost\"", "2: `listen` takes an IP address and a port"),
        ("[server]\nmetrics_listen = \":9090\"", "2: `metrics_listen` takes an IP address and a port"),
        ("[server]\nprot = 1", "2: [server] has no key `prot`; it takes `listen`"),
        ("[server]\ndrain_seconds = -1", "2: `drain_seconds` of [server] takes a whole number from 0 to 86400"),
        ("[server]\ndrain_seconds = 1.5", "2: `drain_seconds` of [server] takes a whole number"),
        ("[server]\ndrain_seconds = \"30\"", "2: `drain_seconds` of [server] takes a whole number"),
        ("[server]\npublic_url = \"chat.example.org\"", "2: `public_url` takes the address that browsers see"),
        ("[server]\npublic_url = \"https://x/chat\"", "2: `public_url` takes"),
        ("[server]\npublic_url = \"https://u:p@x\"", "2: `public_url` takes"),
        ("[database]\nurl = \"mysql://x\"", "2: `url` of [database] takes postgres://"),
        ("[features]\nagents = \"yes\"", "2: `agents` of [features] takes true or false"),
        ("[limits]\nmax_running_turns_per_user = 0", "2: `max_running_turns_per_user` of [limits] takes a whole number from 1"),
        ("[limits]\nmax_message_bytes = 99999999999999999999", "2: `max_message_bytes` of [limits] takes"),
        ("[[providers]]\nbase_url = \"http://x\"", "1: [[providers]] needs `id`"),
        ("[[providers]]\nid = \"P\"\nbase_url = \"http://x\"", "2: `id` takes 1 to 64"),
        ("[[providers]]\nid = \"p\"", "1: [[providers]] `p` needs `base_url`"),
        (
            "[[providers]]\nid = \"p\"\nbase_url = \"ftp://x\"",
            "3: `base_url` takes an address that starts with http:// or https://",
        ),
        ("[[providers]]\nid = \"p\"\nbase_url = \"http://u:p@x\"", "3: `base_url` holds a user name or password"),
        ("[[providers]]\nid = \"p\"\nbase_url = \"http://x\"\nkind = \"grpc\"", "4: `kind` takes \"openai\""),
        ("[providers]\nid = \"p\"", "1: `providers` of the configuration takes a list of tables"),
        ("[[mcp_servers]]\nid = \"m\"", "1: [[mcp_servers]] `m` takes either `command`"),
        ("[[mcp_servers]]\nid = \"m\"\ncommand = []", "1: [[mcp_servers]] `m` takes either `command`"),
        ("[[mcp_servers]]\nid = \"m\"\ncommand = [\"x\"]\nurl = \"http://x\"", "1: [[mcp_servers]] `m` takes either"),
        (
            "[[mcp_servers]]\nid = \"m\"\ncommand = [\"x\"]\ntoken = \"env:KEY\"",
            "1: `token` of [[mcp_servers]] `m` goes with `url`",
        ),
        (
            "[[mcp_servers]]\nid = \"m\"\nurl = \"http://x\"\nenv = { A = \"b\" }",
            "4: `env` of [[mcp_servers]] `m` goes with `command`",
        ),
        ("[[mcp_servers]]\nid = \"m\"\ncommand = [\"x\"]\nenv = { A = 1 }", "4: `env` takes NAME ="),
        ("[[mcp_servers]]\nid = \"m\"\ncommand = [\"x\"]\ncall_seconds = 0", "4: `call_seconds` of [[mcp_servers]] `m` takes"),
        ("[[gateways]]\nid = \"g\"\nurl = \"http://x\"", "3: `url` takes an address that starts with ws:// or wss://"),
        ("[[gateways]]\nid = \"g\"\nurl = \"ws://x\"\ntoken = \"t\"", "4: `token` takes env:NAME or file:PATH"),
        ("[[projects]]\nid = \"p\"\nname = \" \"", "3: `name` is blank"),
        ("[[projects]]\nid = \"p\"\nmembers = { ada = \"boss\" }", "3: the role of `ada` takes admin, editor, member or viewer"),
        ("[[projects]]\nid = \"p\"\nmembers = { \"a b\" = \"admin\" }", "3: `members`: a user's name takes"),
        ("[[projects]]\nid = \"p\"\nmembers = [\"ada\"]", "3: `members` of [[projects]] `p` takes a table"),
        ("[[projects]]\nid = \"p\"\n[[projects]]\nid = \"p\"", "3: a second project `p`"),
        ("[[projects]]\nid = \"push\"", "1: a project cannot be called `push`"),
        ("[[agents]]\nid = \"a\"", "1: [[agents]] `a` needs `project`"),
        ("[[agents]]\nid = \"a\"\nproject = \"x\"", "3: there is no project `x`"),
    ] {
        let said = mistake(text);
        assert!(said.starts_with(expected), "{text}\nsays {said}\nnot {expected}");
    }
}

#[test]
fn the_mistakes_of_an_agent_are_said_with_their_line() {
    for (line, expected) in [
        ("engine = \"gpt\"", "`engine` takes native, openclaw or demo"),
        ("provider = \"nowhere\"", "there is no provider `nowhere`"),
        ("gateway = \"nowhere\"", "there is no gateway `nowhere`"),
        ("gateway_agent = \"\"", "`gateway_agent` is blank"),
        ("tools = \"clock\"", "`tools` of [[agents]] `a` takes a list of texts"),
        ("tools = [1]", "`tools` of [[agents]] `a` takes a list of texts"),
        ("tools = [\"hammer\"]", "`tools` takes the built-in tools (clock, ask_user, delegate) and mcp:SERVER"),
        ("tools = [\"mcp:nowhere\"]", "there is no MCP server `nowhere`"),
        ("tools = [\"mcp:nowhere/x\"]", "there is no MCP server `nowhere`"),
        (
            "tools = [\"mcp:nowhere/\"]",
            "`tools` takes the built-in tools (clock, ask_user, delegate) and mcp:SERVER or mcp:SERVER/TOOL",
        ),
        ("approve = [\"mcp:nowhere/x\"]", "there is no MCP server `nowhere`"),
        ("approve = [\"mcp:nowhere\"]", "`approve` takes the built-in tools (clock, ask_user, delegate) and mcp:SERVER/TOOL"),
        ("schedules = [{ id = \"s\", message = \"m\" }]", "a schedule of [[agents]] `a` needs `cron`"),
        ("schedules = [{ id = \"s\", cron = \"* * *\", message = \"m\" }]", "`cron` takes five fields"),
        ("schedules = [{ id = \"s\", cron = \"* * * * *\", message = \"\" }]", "`message` is blank"),
        ("schedules = [{ id = \"s\", cron = \"* * * * *\", message = \"m\", tz = \"1\" }]", "`tz` takes an IANA zone name"),
        (
            "schedules = [{ id = \"s\", cron = \"* * * * *\", message = \"m\", at = 1 }]",
            "a schedule of [[agents]] `a` has no key `at`",
        ),
    ] {
        let said = mistake(&format!("[[agents]]\nid = \"a\"\nproject = \"demo\"\n{line}\n"));
        let (at, said) = said.split_once(": ").unwrap();
        assert!(said.starts_with(expected) && at == "4", "{line}\nsays {at}: {said}\nnot {expected}");
    }
    let twice = "{ id = \"s\", cron = \"* * * * *\", message = \"m\" }";
    let said = mistake(&format!("[[agents]]\nid = \"a\"\nproject = \"demo\"\nschedules = [{twice}, {twice}]\n"));
    assert!(said.starts_with("4: a second schedule `s`"), "{said}");
}

#[test]
fn all_mistakes_are_said_at_once_in_the_order_of_their_lines() {
    let text = "[[agents]]\nid = \"a\"\nproject = \"x\"\nengine = \"y\"\n\n[server]\nlisten = 1\ndrain = 2\n";
    let lines: Vec<_> = mistakes(text).iter().map(|said| said.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["3", "4", "7", "8"]);
}

#[test]
fn what_is_no_toml_hides_no_other_mistake_and_makes_up_none() {
    let text =
        "[server]\nlisten = \n\n[limits]\nmax_message_bytes = 0\n\n[[agents]]\nid = \"a\"\nid = \"b\"\nproject = \"gone\"\n";
    let said = mistakes(text);
    let lines: Vec<_> = said.iter().map(|said| said.split(':').next().unwrap()).collect();
    assert_eq!(lines, ["2", "5", "9"], "{said:?}");
    assert!(said.last().unwrap().contains("duplicate key: id"), "{said:?}");
}

#[test]
fn user_names_are_plain() {
    for good in ["a", "7", "ada", "Ada.Lovelace", "ada@example.org", "a_b-c+d", &"x".repeat(64)] {
        assert!(is_user_name(good), "{good}");
    }
    for bad in ["", "-a", ".a", "a b", "ä", "a/b", "a\n", &"x".repeat(65)] {
        assert!(!is_user_name(bad), "{bad}");
    }
}

proptest! {
    /// Half-written files are what `check` is for: it ends, and says where.
    #[test]
    fn a_file_cut_anywhere_is_read_or_refused(from in 0..FULL.len(), length in 0..200usize) {
        let mut text = FULL.to_owned();
        text.replace_range(from..(from + length).min(FULL.len()), "");
        if let Err(mistakes) = read(&text) {
            prop_assert!(!mistakes.is_empty());
            let lines = text.lines().count() + 1;
            prop_assert!(mistakes.iter().all(|mistake| (1..=lines).contains(&mistake.line)));
        }
    }

    #[test]
    fn a_literal_secret_is_never_repeated(secret in "[a-zA-Z0-9:/_-]{12,40}") {
        let text = format!("[[gateways]]\nid = \"g\"\nurl = \"ws://x\"\ntoken = \"zq{secret}\"\n");
        let mistakes = read(&text).err().unwrap_or_default();
        prop_assert_eq!(mistakes.len(), 1);
        prop_assert!(mistakes.iter().all(|mistake| !mistake.message.contains(&secret)));
    }
}
