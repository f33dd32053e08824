//! What the tests need beside cargo, installed from the distribution's packages where that may be done.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, bail};

use crate::repo::{WASM, on_path, run, say};

/// Makes sure that there is a Chromium and a ChromeDriver.
///
/// # Errors
/// One is missing and cannot be installed; the message says what to install.
pub(crate) fn browser() -> Result<()> {
    let has_browser =
        ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"].into_iter().any(on_path);
    if has_browser && on_path("chromedriver") {
        return Ok(());
    }
    packages(
        "install Chromium and ChromeDriver (Debian: apt-get install chromium chromium-driver) and put both on the PATH",
        &["chromium", "chromium-driver"],
    )
}

/// Makes sure that the toolchain has the target of the page. rustup adds it by itself where it installs toolchains by itself; not
/// every machine lets it.
///
/// # Errors
/// It is missing and cannot be added; the message says what to do.
pub(crate) fn wasm_target() -> Result<()> {
    let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", WASM]).output();
    let there = folder.is_ok_and(|folder| Path::new(String::from_utf8_lossy(&folder.stdout).trim()).is_dir());
    if there {
        return Ok(());
    }
    if !on_path("rustup") {
        bail!("add the target {WASM} to the Rust toolchain");
    }
    say(&format!("adding the target {WASM}"));
    run(Command::new("rustup").args(["target", "add", WASM]))
}

/// Makes sure that there is a Python that can make virtual environments.
///
/// # Errors
/// It is missing and cannot be installed; the message says what to install.
pub(crate) fn python() -> Result<()> {
    if succeeds(&["python3", "-c", "import venv, ensurepip"]) {
        return Ok(());
    }
    packages("install Python 3 with venv (Debian: apt-get install python3 python3-venv)", &["python3", "python3-venv"])
}

/// Makes sure that there are the programs of a PostgreSQL server. The tests start their own; none need run.
///
/// # Errors
/// They are missing and cannot be installed; the message says what to install.
pub(crate) fn postgres() -> Result<()> {
    // Debian keeps them off the PATH, one folder per version.
    let mut versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    if on_path("initdb") || versions.any(|version| version.path().join("bin/initdb").is_file()) {
        return Ok(());
    }
    packages("install the PostgreSQL server (Debian: apt-get install postgresql)", &["postgresql"])
}

/// Installs what sets a program's clock apart from the machine's, where that may be done. Chaos leaves jumps of clocks out without it,
/// and says so.
pub(crate) fn faketime() {
    const WANTED: &str = "install libfaketime (Debian: apt-get install libfaketime) for jumps of clocks";
    let there = ["x86_64-linux-gnu/faketime", "aarch64-linux-gnu/faketime", "faketime"]
        .iter()
        .any(|folder| Path::new("/usr/lib").join(folder).join("libfaketimeMT.so.1").is_file());
    if !there && let Err(error) = packages(WANTED, &["libfaketime"]) {
        say(&format!("{error:#}"));
    }
}

/// Makes sure that there is a Node and an npm.
///
/// # Errors
/// One is missing and cannot be installed; the message says what to install.
pub(crate) fn node() -> Result<()> {
    if on_path("node") && on_path("npm") {
        return Ok(());
    }
    packages("install Node and npm (Debian: apt-get install nodejs npm) and put both on the PATH", &["nodejs", "npm"])
}

/// Makes sure that there are the proxies that `deploy/` has examples for. The tests start their own; none need run.
///
/// # Errors
/// One is missing and cannot be installed; the message says what to install.
pub(crate) fn proxies() -> Result<()> {
    // Debian keeps nginx where only administrators have their PATH.
    if (on_path("nginx") || Path::new("/usr/sbin/nginx").is_file()) && on_path("caddy") {
        return Ok(());
    }
    packages("install nginx and Caddy (Debian: apt-get install nginx caddy)", &["nginx", "caddy"])
}

/// Installs packages of the distribution where that may be done; else says what is `wanted`.
fn packages(wanted: &'static str, names: &[&str]) -> Result<()> {
    if !Path::new("/etc/debian_version").exists() {
        bail!("{wanted}");
    }
    let prefix: &[&str] = if succeeds(&["test", "-w", "/var/lib/dpkg"]) {
        &[]
    } else if succeeds(&["sudo", "-n", "true"]) {
        &["sudo", "-n"]
    } else {
        bail!("{wanted}");
    };
    say(&format!("installing {}", names.join(" ")));
    let apt = |args: &[&str]| {
        let words =
            [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=600"], args].concat();
        run(Command::new(words[0]).args(&words[1..]))
    };
    let installed = apt(&["update"]).and_then(|()| apt(&[&["install", "--yes", "--no-install-recommends"], names].concat()));
    installed.map_err(|error| error.context(wanted))
}

fn succeeds(words: &[&str]) -> bool {
    Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
}
