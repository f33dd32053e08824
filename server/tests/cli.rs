//! The command line, as scripts use it: the real binary, its output and its exit codes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// How a command ended.
#[derive(Debug)]
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Run {
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    fn fails(self, code: i32, says: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(says), "{says}: {self:?}");
        assert_eq!(self.out, "", "a failure has no result");
        self
    }
}

/// A folder to run in, with nothing of ours in the environment.
struct House(TempDir);

impl House {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnfast"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TURNFAST_")) {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(self.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        finish(&mut self.command(arguments), "")
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Run {
        finish(&mut self.command(arguments), input)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }
}

fn finish(command: &mut Command, input: &str) -> Run {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read its input may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server, killed at the end whatever becomes of the test.
struct Server {
    child: Child,
    address: String,
    /// What it says of signing in.
    sign_in: String,
}

impl Server {
    /// Its log goes to the file `log`.
    fn start(house: &House, arguments: &[&str]) -> Self {
        Self::of(house, house.command(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat()))
    }

    fn of(house: &House, mut command: Command) -> Self {
        let log = fs::File::create(house.path().join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().unwrap().unwrap();
        let address = ready.strip_prefix("turnfast listening on http://").unwrap_or_else(|| panic!("{ready}")).to_owned();
        let sign_in = lines.next().unwrap().unwrap();
        Self { child, address, sign_in }
    }

    /// The one-time link that it printed.
    fn link(&self) -> &str {
        self.sign_in.strip_prefix("sign in once: ").unwrap_or_else(|| panic!("{}", self.sign_in))
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Sends a request and gives the whole answer.
    fn get(&self, path: &str, header: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{header}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn status(&self, token: &str) -> String {
        let answer = self.get("/auth/me", &format!("authorization: Bearer {token}"));
        answer.split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, as some tests ask it to.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
fn usage_is_told_apart_from_failure() {
    let house = House::new();
    assert_eq!(house.run(&["--version"]).ok(), format!("turnfast {}\n", env!("CARGO_PKG_VERSION")));
    assert!(house.run(&["--help"]).ok().contains("serve"));
    house.run(&[]).fails(2, "Usage");
    house.run(&["dance"]).fails(2, "dance");
    house.run(&["user", "add", "a b"]).fails(2, "1 to 64");
    house.run(&["user", "add", "-x"]).fails(2, "-x");
    house.run(&["serve", "--listen", "somewhere"]).fails(2, "--listen");
    house.run(&["token", "create", "--user", "ada", "--scopes", "agent:fly"]).fails(2, "agent:execute");
    house.run(&["token", "create", "--user", "ada", "--expires", "soon"]).fails(2, "30d");
    house.run(&["token", "revoke", "x"]).fails(2, "<ID>");
    house.run(&["migrate"]).ok();
    house.run(&["user", "link", "nobody"]).fails(1, "no user `nobody`");
    house.run(&["user", "disable", "nobody"]).fails(1, "no user `nobody`");
    house.run(&["token", "create", "--user", "nobody"]).fails(1, "no user `nobody`");
    house.run(&["token", "revoke", "00000000-0000-0000-0000-000000000000"]).fails(1, "token list");
    house.run(&["check", "--config", "missing.toml"]).fails(1, "missing.toml");
}

#[test]
fn users_are_added_listed_and_shut_out() {
    let house = House::new();
    let link = house.run(&["user", "add", "admin"]).ok();
    assert!(link.starts_with("http://127.0.0.1:8080/auth/link/") && link.lines().count() == 1, "{link}");
    house.run(&["user", "add", "admin"]).fails(1, "`admin` already");
    let added = house.run_with_input(&["user", "add", "ada", "--password-stdin"], "correct horse\n");
    assert!(added.err.contains("members"), "ada is in no project: {added:?}");
    assert_eq!(added.ok(), "");
    house.run_with_input(&["user", "add", "bob", "--password-stdin"], "\n").fails(1, "empty");
    house.run_with_input(&["user", "add", "bob", "--password-stdin"], "two\nlines\n").fails(1, "one line");
    house.run_with_input(&["user", "add", "bob", "--password-stdin"], &"x".repeat(1_025)).fails(1, "at most");
    assert_eq!(house.run(&["user", "disable", "ada"]).ok(), "");
    let listed = house.run(&["user", "list"]).ok();
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["ada", "disabled", "yes", "never", "-"], ["admin", "enabled", "no", "never", "demo"]]);
    house.run(&["user", "link", "ada"]).fails(1, "disabled");
    house.run(&["token", "create", "--user", "ada"]).fails(1, "disabled");
    assert_eq!(house.run(&["user", "enable", "ada"]).ok(), "");
    assert!(house.run(&["user", "link", "ada"]).ok().contains("/auth/link/"));
    assert_eq!(house.run_with_input(&["user", "password", "admin"], "battery staple").ok(), "");
    assert!(house.run(&["user", "list"]).ok().lines().last().unwrap().contains("yes"));
}

#[test]
fn a_token_is_printed_alone_and_once() {
    let house = House::new();
    house.run(&["user", "add", "admin"]).ok();
    let token =
        house.run(&["token", "create", "--user", "admin", "--scopes", "agent:read,agent:execute", "--expires", "30d"]).ok();
    let other = house.run(&["token", "create", "--user", "admin"]).ok();
    for token in [&token, &other] {
        assert!(token.starts_with("turnfast_") && token.split_whitespace().count() == 1 && token.ends_with('\n'), "{token}");
    }
    let listed = house.run(&["token", "list"]).ok();
    assert!(!listed.contains(token.trim()) && !listed.contains(other.trim()), "{listed}");
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let [first, second] = rows.as_slice() else { panic!("two tokens: {listed}") };
    assert_eq!(first.get(1..4).unwrap(), ["admin", "valid", "agent:read,agent:execute"]);
    assert_eq!((second.get(1..4).unwrap(), *second.last().unwrap()), (&["admin", "valid", "all"][..], "never"));
    house.run(&["token", "revoke", first.first().unwrap()]).ok();
    assert!(house.run(&["token", "list"]).ok().contains("revoked"));
}

#[test]
fn check_says_every_mistake_with_file_and_line() {
    let house = House::new();
    assert!(house.run(&["check"]).ok().contains("defaults"));
    house.write(
        "bad.toml",
        "[server]\nlisten = \"here\"\nport = 1\n\n[[providers]]\nid = \"p\"\nbase_url = \"http://x\"\napi_key = \"sk-hunter2\"\n\n\
         [[projects]]\nid = \"Demo\"\n",
    );
    let run = house.run(&["check", "--config", "bad.toml"]).fails(1, "bad.toml:2: ");
    assert!(!run.err.contains("hunter2"), "{run:?}");
    let lines: Vec<&str> = run.err.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["bad.toml:2", "bad.toml:3", "bad.toml:8", "bad.toml:11"]);
    house.run(&["serve", "--config", "bad.toml"]).fails(1, "bad.toml:11");
    house.run(&["user", "list", "--config", "bad.toml"]).fails(1, "bad.toml:11");

    house.write("good.toml", "[[providers]]\nid = \"p\"\nbase_url = \"http://x/v1\"\napi_key = \"env:TURNFAST_TEST_KEY\"\n");
    let run = house.run(&["check", "--config", "good.toml"]);
    let said = "good.toml:4: warning: `api_key` of [[providers]] `p` has no secret: nothing found at env:TURNFAST_TEST_KEY\n";
    assert_eq!(run.err, said);
    run.ok();
    let mut command = house.command(&["check"]);
    let run = finish(command.env("TURNFAST_CONFIG", "good.toml").env("TURNFAST_TEST_KEY", "hunter2-and-more"), "");
    assert_eq!(run.err, "");
    run.ok();
}

#[test]
fn the_command_line_wins_over_the_environment() {
    let house = House::new();
    let mut command = house.command(&["user", "add", "ada", "--data-dir", "named"]);
    finish(command.env("TURNFAST_DATA_DIR", "unnamed"), "").ok();
    assert!(house.path().join("named/turnfast.db").exists());
    assert!(!house.path().join("unnamed").exists());
    let mut command = house.command(&["user", "list"]);
    assert!(finish(command.env("TURNFAST_DATA_DIR", "named"), "").ok().contains("ada"));
    house.run(&["--data-dir", "named", "user", "add", "ada"]).fails(1, "already");
    house.run(&["migrate"]).ok();
    assert!(house.path().join("turnfast-data/turnfast.db").exists());
}

#[cfg(unix)]
#[test]
fn what_is_written_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let house = House::new();
    house.run(&["migrate"]).ok();
    house.run(&["backup", "copy.db"]).ok();
    let mode = |name| fs::metadata(house.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("turnfast-data"), mode("copy.db")), (0o700, 0o600));

    // A folder that is there keeps its rights: what lies in it has its own.
    fs::create_dir(house.path().join("open")).unwrap();
    fs::set_permissions(house.path().join("open"), fs::Permissions::from_mode(0o755)).unwrap();
    let _server = Server::start(&house, &["--data-dir", "open"]);
    for file in ["open/turnfast.db", "open/turnfast.db-wal", "open/turnfast.db-shm"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    assert_eq!(mode("open"), 0o755);
}

#[test]
fn a_database_that_cannot_be_used_is_named_without_its_password() {
    let house = House::new();
    // Nobody listens on port 1.
    let url = "postgres://ada:hunter2@127.0.0.1:1/turnfast";
    for arguments in [&["serve"][..], &["migrate"], &["user", "list"]] {
        let run = house.run(&[arguments, &["--database-url", url]].concat()).fails(1, "cannot connect to 127.0.0.1:1");
        assert!(!run.err.contains("hunter2"), "{run:?}");
    }
    house.run(&["backup", "x", "--database-url", url]).fails(1, "pg_dump");
    let run = house.run(&["migrate", "--database-url", "mysql://ada:hunter2@localhost"]).fails(1, "postgres://");
    assert!(!run.err.contains("hunter2"), "{run:?}");
    let run = house.run(&["copy", "--from", url, "--to", "mysql://ada:hunter2@localhost"]).fails(1, "sqlite:FILE");
    assert!(!run.err.contains("hunter2"), "{run:?}");
    assert!(!house.path().join("turnfast-data").exists());
}

#[test]
fn a_record_moves_to_postgres_and_back_while_no_server_runs() {
    let house = House::new();
    let url = turnfast_test_postgres::database().unwrap();
    house.run(&["copy", "--from", "sqlite:nowhere.db", "--to", &url]).fails(1, "no database nowhere.db");
    let here = "sqlite:turnfast-data/turnfast.db";
    let server = Server::start(&house, &[]);
    house.run(&["user", "add", "ada"]).ok();
    house.run(&["copy", "--from", here, "--to", &url]).fails(1, "stop it first");
    drop(server);
    house.run(&["copy", "--from", here, "--to", &url]).ok();
    house.run(&["copy", "--from", here, "--to", &url]).fails(1, "must be empty");
    assert!(house.run(&["user", "list", "--database-url", &url]).ok().contains("ada"));
    house.run(&["copy", "--from", &url, "--to", "sqlite:back.db"]).ok();
    fs::create_dir(house.path().join("back")).unwrap();
    fs::rename(house.path().join("back.db"), house.path().join("back/turnfast.db")).unwrap();
    assert!(house.run(&["user", "list", "--data-dir", "back"]).ok().contains("ada"));
}

#[test]
fn one_server_at_a_time_uses_a_data_folder() {
    let house = House::new();
    let server = Server::start(&house, &[]);
    house.run(&["serve", "--listen", "127.0.0.1:0"]).fails(1, "another server uses the data folder");
    // Commands are not servers.
    house.run(&["user", "add", "ada"]).ok();
    assert!(house.run(&["user", "list"]).ok().contains("ada"));
    house.run(&["backup", "copy.db"]).ok();
    assert!(server.get("/readyz", "").starts_with("HTTP/1.1 200"), "the first one goes on");
    drop(server);
    let mut next =
        house.command(&["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let ready = BufReader::new(next.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    assert!(ready.starts_with("turnfast listening on "), "a killed server leaves no lock behind: {ready}");
    next.kill().unwrap();
    next.wait().unwrap();
}

#[test]
fn a_backup_is_complete_and_replaces_nothing() {
    let house = House::new();
    house.run(&["backup", "copy.db"]).fails(1, "no database");
    assert!(!house.path().join("turnfast-data").exists());
    house.run(&["user", "add", "ada"]).ok();
    house.run(&["backup", "copy.db"]).ok();
    house.run(&["backup", "copy.db"]).fails(1, "copy.db");
    house.run(&["backup", "no/such/folder.db"]).fails(1, "folder.db");
    house.run(&["backup", "turnfast-data"]).fails(1, "turnfast-data");
    assert!(!house.path().join("copy.db.part").exists());
    fs::create_dir(house.path().join("restored")).unwrap();
    fs::rename(house.path().join("copy.db"), house.path().join("restored/turnfast.db")).unwrap();
    assert!(house.run(&["user", "list", "--data-dir", "restored"]).ok().contains("ada"));
}

#[test]
fn commands_work_while_the_server_runs() {
    let house = House::new();
    let server = Server::start(&house, &[]);
    house.run(&["user", "add", "ada"]).ok();
    let token = house.run(&["token", "create", "--user", "ada"]).ok();
    let token = token.trim();
    assert_eq!(server.status(token), "200");
    assert_eq!(server.status("turnfast_made-up"), "401");
    house.run(&["user", "disable", "ada"]).ok();
    assert_eq!(server.status(token), "401");
    house.run(&["user", "enable", "ada"]).ok();
    assert_eq!(server.status(token), "200");
    let listed = house.run(&["token", "list"]).ok();
    house.run(&["token", "revoke", listed.lines().nth(1).unwrap().split(' ').next().unwrap()]).ok();
    assert_eq!(server.status(token), "401");
    house.run(&["backup", "copy.db"]).ok();
}

#[test]
fn the_first_start_prints_a_link_that_signs_in_once() {
    let house = House::new();
    let server = Server::start(&house, &[]);
    let base = format!("http://{}", server.address);
    let path = server.link().strip_prefix(&base).unwrap_or_else(|| panic!("{}", server.link()));
    let answer = server.get(path, "accept: text/html");
    assert!(answer.starts_with("HTTP/1.1 303") && answer.contains("set-cookie: turnfast_session="), "{answer}");
    let answer = server.get(path, "accept: text/html");
    assert!(answer.contains("location: /?signin=expired"), "{answer}");
    assert!(house.run(&["user", "list"]).ok().contains("admin"));

    drop(server);
    let again = Server::start(&house, &["--data-dir", "./turnfast-data"]);
    let program = env!("CARGO_BIN_EXE_turnfast");
    assert_eq!(again.sign_in, format!("for a sign-in link: {program} user link NAME"));
    drop(again);
    let copied = house.path().join("copied");
    fs::rename(house.path().join("turnfast-data"), &copied).unwrap();
    let elsewhere = Server::start(&house, &["--data-dir", copied.to_str().unwrap()]);
    assert_eq!(elsewhere.sign_in, format!("for a sign-in link: {program} user link NAME --data-dir {}", copied.display()));
}

#[test]
fn a_link_leads_to_the_server_that_runs_and_else_says_what_it_assumes() {
    let house = House::new();
    house.run(&["user", "add", "ada"]).ok();
    let server = Server::start(&house, &[]);
    let run = house.run(&["user", "link", "ada"]);
    assert!(run.out.starts_with(&format!("http://{}/auth/link/", server.address)) && !run.err.contains("no server"), "{run:?}");
    let path = run.out.trim().strip_prefix(&format!("http://{}", server.address)).unwrap().to_owned();
    assert!(server.get(&path, "accept: text/html").contains("set-cookie: turnfast_session="));
    house.write("public.toml", "[server]\npublic_url = \"https://chat.example.org\"\n");
    let public = house.run(&["user", "link", "ada", "--config", "public.toml"]).ok();
    assert!(public.starts_with("https://chat.example.org/auth/link/"), "{public}");
    // Killed, so that it leaves everything as it is.
    drop(server);
    let run = house.run(&["user", "link", "ada"]);
    assert!(run.out.starts_with("http://127.0.0.1:8080/auth/link/") && run.err.contains("no server runs"), "{run:?}");
    house.write("any.toml", "[server]\nlisten = \"127.0.0.1:0\"\n");
    let run = house.run(&["user", "link", "ada", "--config", "any.toml"]);
    assert!(run.out.starts_with("/auth/link/") && run.err.contains("put the address that it will print in front"), "{run:?}");
    let _behind = Server::start(&house, &["--config", "public.toml"]);
    let run = house.run(&["user", "link", "ada"]).ok();
    assert!(run.starts_with("https://chat.example.org/auth/link/"), "as the server is reached: {run}");
}

#[test]
fn commands_on_a_mistyped_folder_make_nothing() {
    let house = House::new();
    let nobody = "00000000-0000-0000-0000-000000000000";
    for arguments in [
        &["user", "list"][..],
        &["user", "link", "ada"],
        &["user", "disable", "ada"],
        &["user", "enable", "ada"],
        &["user", "password", "ada"],
        &["token", "list"],
        &["token", "create", "--user", "ada"],
        &["token", "revoke", nobody],
        &["backup", "copy.db"],
    ] {
        let run = finish(&mut house.command(&[arguments, &["--data-dir", "mistyped"]].concat()), "correct horse\n");
        run.fails(1, "there is no database mistyped/turnfast.db; is --data-dir right?");
        assert!(!house.path().join("mistyped").exists(), "{arguments:?}");
    }
}

/// What a start says that fails.
fn refused_start(house: &House, arguments: &[&str]) -> String {
    let run = house.run(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat());
    assert_eq!((run.code, run.out.as_str()), (1, ""), "{run:?}");
    let last: serde_json::Value = serde_json::from_str(run.err.lines().last().unwrap()).unwrap();
    let said = last.get("message").unwrap().as_str().unwrap().to_owned();
    assert!(!said.contains("the database does not answer: the database does not answer"), "{said}");
    said
}

#[test]
fn a_start_that_fails_names_the_path_and_what_to_do() {
    let house = House::new();
    fs::create_dir(house.path().join("damaged")).unwrap();
    house.write("damaged/turnfast.db", "this is no database");
    let said = refused_start(&house, &["--data-dir", "damaged"]);
    assert!(said.contains("damaged/turnfast.db is damaged") && said.contains("put a backup in its place"), "{said}");
    house.run(&["user", "add", "ada", "--data-dir", "damaged"]).fails(1, "put a backup in its place");
    house.write("file", "");
    let said = refused_start(&house, &["--data-dir", "file"]);
    assert!(said.contains("the data folder file cannot be used") && said.contains("--data-dir"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    use std::os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    };
    let house = House::new();
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let folder = house.path().join("locked");
    fs::create_dir(&folder).unwrap();
    set(&folder, 0o555);
    let program = house.path().join("turnfast");
    fs::copy(env!("CARGO_BIN_EXE_turnfast"), &program).unwrap();
    set(&program, 0o755);
    let mut command = Command::new(&program);
    command.args(["user", "add", "ada", "--data-dir", "locked"]).current_dir(house.path());
    if fs::metadata(&folder).unwrap().uid() == 0 {
        // Nothing is read-only for root.
        set(house.path(), 0o755);
        command.uid(65_534).gid(65_534);
    }
    finish(&mut command, "").fails(1, "locked/turnfast.db cannot be opened for writing (Permission denied");
}

#[cfg(unix)]
#[test]
fn a_hangup_drains_unless_it_is_to_be_ignored() {
    let house = House::new();
    // Whoever runs the tests may have them ignore hangups, and programs inherit that.
    let mut command = Command::new("env");
    let program = env!("CARGO_BIN_EXE_turnfast");
    command.args(["--default-signal=HUP", program, "serve", "--listen", "127.0.0.1:0"]).current_dir(house.path());
    let mut server = Server::of(&house, command);
    server.signal("HUP");
    assert!(server.child.wait().unwrap().success());
    assert!(fs::read_to_string(house.path().join("log")).unwrap().contains("shutting down"));

    let mut command = Command::new("sh");
    let serve = "trap '' HUP; exec \"$0\" serve --listen 127.0.0.1:0";
    command.args(["-c", serve, env!("CARGO_BIN_EXE_turnfast")]).current_dir(house.path());
    let mut server = Server::of(&house, command);
    server.signal("HUP");
    assert!(server.get("/healthz", "").starts_with("HTTP/1.1 200"));
    server.signal("TERM");
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn logs_are_json_lines_where_nobody_watches() {
    let house = House::new();
    house.write("server.toml", "[server]\nlisten = \"203.0.113.1:1\"\n");
    let run = house.run(&["serve", "--config", "server.toml"]);
    assert_eq!(run.code, 1, "{run:?}");
    let last = run.err.lines().last().unwrap();
    for line in run.err.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    assert!(last.contains("203.0.113.1:1") && last.contains("\"level\":\"ERROR\""), "{last}");
}

#[test]
fn a_member_who_is_no_user_is_said_in_the_log_and_stops_nothing() {
    let house = House::new();
    house.write("team.toml", "[[projects]]\nid = \"team\"\nmembers = { admin = \"admin\", ghost = \"viewer\" }\n");
    let _server = Server::start(&house, &["--config", "team.toml"]);
    let log = fs::read_to_string(house.path().join("log")).unwrap();
    let names: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line.get("message").is_some_and(|message| message.to_string().contains("no user yet")))
        .map(|line| line.get("name").unwrap().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["ghost"], "{log}");
}
