//! What the tests need beside cargo, installed from the distribution's packages where that may be done.

use std::{path::Path, process::Command};

use anyhow::{Result, bail};

use crate::repo::{on_path, run, say};

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
    let wanted = "install Chromium and ChromeDriver (Debian: apt-get install chromium chromium-driver) and put both on the PATH";
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
    say("installing Chromium and ChromeDriver");
    let apt = |args: &[&str]| {
        let words =
            [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=600"], args].concat();
        run(Command::new(words[0]).args(&words[1..]))
    };
    let installed =
        apt(&["update"]).and_then(|()| apt(&["install", "--yes", "--no-install-recommends", "chromium", "chromium-driver"]));
    installed.map_err(|error| error.context(wanted))
}

fn succeeds(words: &[&str]) -> bool {
    Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
}
