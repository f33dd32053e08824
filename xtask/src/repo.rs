//! Where things are, and how other programs are started.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// The target of everything that runs in a browser.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";

/// This checkout and its build folder.
pub(crate) struct Repo {
    root: PathBuf,
    target: PathBuf,
}

impl Repo {
    /// The checkout that this program was built from. Its build folder is the one this program lies in, however cargo was told to
    /// use it.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
        let exe = env::current_exe().context("cannot tell where this program lies")?;
        let target = exe.ancestors().nth(2).context("this program does not lie in a build folder of cargo")?;
        Ok(Self { root: root.to_owned(), target: target.to_owned() })
    }

    /// A path in the checkout.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// A path in the build folder.
    pub(crate) fn target(&self, relative: &str) -> PathBuf {
        self.target.join(relative)
    }

    /// The web app as the server embeds it.
    pub(crate) fn web(&self) -> PathBuf {
        self.target("web")
    }

    /// A program that runs in the checkout.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(name);
        command.current_dir(&self.root);
        command
    }

    /// Cargo with `args`, with the same build folder as this program.
    ///
    /// What `cargo xtask` told this program about its own package is not passed on: build scripts that look at it (ring's does) would
    /// take it for a change, and half of the dependencies would be compiled again whenever a person used cargo without `xtask`.
    pub(crate) fn cargo<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_package)) {
            command.env_remove(name);
        }
        command.env("CARGO_TARGET_DIR", &self.target).args(args);
        command
    }
}

/// Says on stderr what takes a while: stdout belongs to the program that is started in the end.
pub(crate) fn say(what: &str) {
    eprintln!("==> {what}");
}

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started, or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        let args: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
        bail!("`{name} {}` failed ({status})", args.join(" "));
    }
    Ok(())
}

/// Whether a program of that name is on the PATH.
pub(crate) fn on_path(name: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}
