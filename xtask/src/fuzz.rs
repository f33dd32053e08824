//! The document and the live server hold each other to their word: schemathesis makes requests up from the document, and no answer
//! may be a 500 or one that the document does not have.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    install,
    repo::{Repo, run, say},
};

/// The version is pinned: another one makes up other requests.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Questions the development server, which must be built.
///
/// # Errors
/// Something is missing, or an answer is not as documented: schemathesis has shown which, and a `curl` that gets it.
pub(crate) fn run_against_server(repo: &Repo) -> Result<()> {
    let schemathesis = installed(repo)?;
    let data = repo.target("fuzz");
    if data.exists() {
        fs::remove_dir_all(&data).with_context(|| format!("cannot empty {}", data.display()))?;
    }
    let turnfast = |args: &[&str]| {
        let mut command = Command::new(repo.target("debug/turnfast"));
        // The settings of whoever runs this are not part of the test.
        let own = std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("TURNFAST_"));
        own.for_each(|name| {
            command.env_remove(name);
        });
        command.args(args).arg("--data-dir").arg(&data);
        command
    };
    fs::create_dir_all(&data)?;
    let log = fs::File::create(data.join("server.log"))?;
    let mut serve = turnfast(&["serve", "--listen", "127.0.0.1:0"]);
    let mut server = Server(serve.stdout(Stdio::piped()).stderr(log).spawn().context("cannot start the server")?);
    let address = server.address()?;
    let token = turnfast(&["token", "create", "--user", "admin"]).output().context("cannot make a token")?;
    if !token.status.success() {
        bail!("cannot make a token: {}", String::from_utf8_lossy(&token.stderr));
    }
    let token = String::from_utf8(token.stdout).context("the token is not text")?;
    say("questioning the server: its log is server.log in the build folder's `fuzz`");
    run(repo
        .program(schemathesis)
        .arg("--config-file")
        .arg(repo.path("tests/schemathesis.toml"))
        .args(["run", "--no-color"])
        .arg(format!("{address}/openapi.json"))
        .current_dir(&data)
        .env("TURNFAST_TOKEN", token.trim()))?;
    // Had the token not been taken, every answer would be a 401, as documented.
    if !fs::read_to_string(data.join("server.log"))?.contains("turn accepted") {
        bail!("no request got as far as a turn");
    }
    Ok(())
}

/// A server that ends when it is no longer needed.
struct Server(Child);

impl Server {
    /// Where it listens, once it does.
    fn address(&mut self) -> Result<String> {
        let mut lines = BufReader::new(self.0.stdout.take().context("its output is piped")?).lines();
        let line = lines.next().context("the server ended before it listened")??;
        // The rest is read too: a full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        line.strip_prefix("turnfast listening on ").map(str::to_owned).with_context(|| format!("not the ready line: {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// schemathesis, in a virtual environment of this checkout.
fn installed(repo: &Repo) -> Result<PathBuf> {
    let folder = repo.target("schemathesis");
    let (program, stamp) = (folder.join("bin/schemathesis"), folder.join("installed"));
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|text| text == SCHEMATHESIS) {
        return Ok(program);
    }
    install::python()?;
    say("installing schemathesis");
    run(repo.program("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    run(repo.program(folder.join("bin/python")).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        SCHEMATHESIS,
    ]))
    .context("schemathesis comes from the Python package index")?;
    fs::write(stamp, SCHEMATHESIS)?;
    Ok(program)
}
