//! What comes from npm's registry: into the build folder, and nothing into the checkout.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::{
    install,
    repo::{Repo, run, say},
};

/// Installs what `manifest` (a `package.json`) names into `folder`, unless it is there.
///
/// # Errors
/// npm is missing, or cannot install something.
pub(crate) fn install(folder: &Path, manifest: &str) -> Result<()> {
    install::node()?;
    fs::create_dir_all(folder)?;
    let path = folder.join("package.json");
    fs::write(&path, manifest).with_context(|| format!("cannot write {}", path.display()))?;
    let stamp = folder.join("node_modules/.installed");
    if fs::read_to_string(&stamp).is_ok_and(|text| text == manifest) {
        return Ok(());
    }
    say(&format!("installing from npm into {}", folder.display()));
    let flags = ["--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier", "--loglevel=error"];
    run(Command::new("npm").current_dir(folder).arg("install").args(flags)).context("this comes from npm's registry")?;
    fs::write(&stamp, manifest).with_context(|| format!("cannot write {}", stamp.display()))
}

/// Puts axe-core, which the end-to-end tests hold every state of the page to, into `target/axe`.
///
/// # Errors
/// It cannot be installed.
pub(crate) fn axe(repo: &Repo) -> Result<()> {
    let manifest = repo.path("tests/axe/package.json");
    let manifest = fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    install(&repo.target("axe"), &manifest)
}
