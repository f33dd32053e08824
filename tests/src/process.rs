//! Programs that a test starts. Their stderr goes to a file, and from there to the test's own output when the test drops them: it
//! shows where the test failed, and nowhere else.

use std::{
    env,
    fs::{self, File},
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::within;

/// A program that runs, and is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
    hushed: bool,
    /// Held open: the provider ends when it closes, also when the test dies before it can kill anything.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts `command`; its stderr goes to `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(mut command: Command, log: PathBuf) -> Result<Self> {
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let stderr = File::options().create(true).append(true).open(&log).with_context(|| format!("{}", log.display()))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let stdin = child.stdin.take();
        Ok(Self { name, child, stdout: BufReader::new(stdout).lines(), log, hushed: false, _stdin: stdin })
    }

    /// The next line of stdout that `pick` takes something from.
    ///
    /// # Errors
    /// The program closed its stdout before, or took too long.
    pub async fn line<T>(&mut self, what: &str, pick: impl Fn(&str) -> Option<T>) -> Result<T> {
        let what = format!("{what} of {}", self.name);
        within(&what, async {
            loop {
                let line = self.stdout.next_line().await?.context("it closed its stdout")?;
                if let Some(found) = pick(&line) {
                    return anyhow::Ok(found);
                }
            }
        })
        .await
    }

    /// Its id.
    ///
    /// # Errors
    /// It has ended.
    pub fn id(&self) -> Result<u32> {
        self.child.id().context("it has ended already")
    }

    /// Kills it so that it cannot tidy up (`kill -9`), and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn kill(mut self) -> Result<()> {
        within("the end of a killed process", self.child.kill()).await
    }

    /// Asks it to end (SIGTERM).
    ///
    /// # Errors
    /// It has ended before, or cannot be asked.
    pub fn ask_to_end(&self) -> Result<()> {
        self.signal("TERM")
    }

    /// Sends it a signal, by its name without `SIG`.
    ///
    /// # Errors
    /// It has ended before, or takes no such signal.
    pub fn signal(&self, name: &str) -> Result<()> {
        let id = self.child.id().context("it has ended already")?;
        let status = std::process::Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status()?;
        anyhow::ensure!(status.success(), "kill -{name} {id}: {status}");
        Ok(())
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system does not say.
    pub fn end(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Memory that it holds (`VmRSS`), in bytes.
    ///
    /// # Errors
    /// It has ended, or the system does not say (it must be Linux).
    pub fn resident_bytes(&self) -> Result<u64> {
        let id = self.child.id().context("it has ended already")?;
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the system does not say VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1_024)
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// It takes too long.
    pub async fn ended(mut self) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        within(&what, self.child.wait()).await
    }

    /// What it wrote to stderr is not shown when this is dropped.
    pub fn hush(&mut self) {
        self.hushed = true;
    }

    /// What it wrote to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.hushed {
            return;
        }
        println!("--- stderr of {}\n{}---", self.name, self.stderr());
    }
}

/// A program of this workspace: where `variable` says, else beside the tests.
///
/// # Errors
/// It has not been built.
pub fn program(variable: &str, name: &str) -> Result<PathBuf> {
    let path = match env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => {
            let here = env::current_exe()?;
            let here = here.parent().context("no build folder")?;
            // Tests lie in `deps` of the folder that programs lie in.
            if here.ends_with("deps") { here.parent().unwrap_or(here).join(name) } else { here.join(name) }
        }
    };
    anyhow::ensure!(path.is_file(), "{} has not been built: `cargo build --bin {name}`", path.display());
    Ok(path)
}

/// A program of the machine: on the PATH, or where Debian keeps what only administrators have on theirs.
///
/// # Errors
/// It is not installed.
pub fn installed(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("{name} is not installed"))
}
