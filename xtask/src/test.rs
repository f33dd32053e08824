//! Every check and test, one after the other, and one line that sums them up.
//!
//! Order and flags are chosen so that each dependency is compiled once per target: all native steps select the whole workspace, so
//! that features do not differ between them, and the web app is built before the server that carries it.

use std::{
    env,
    io::{BufRead, BufReader},
    num::NonZero,
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    build, fuzz, install, npm, package,
    repo::{self, Repo, WASM},
    size, web,
};

/// Packages with tests that run in a browser.
const BROWSER_PACKAGES: [&str; 2] = ["turnfast-client-core", "turnfast-web"];

/// What happened so far.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    /// Steps with a failure in them.
    failures: Vec<&'static str>,
    /// How long each step took.
    times: Vec<(&'static str, Duration)>,
}

impl Tally {
    /// A step that counts as one.
    fn check(&mut self, name: &'static str, step: impl FnOnce() -> Result<()>) {
        heading(name);
        let begun = Instant::now();
        let outcome = step();
        self.times.push((name, begun.elapsed()));
        match outcome {
            Ok(()) => self.passed += 1,
            Err(error) => self.failure(name, 1, &error),
        }
    }

    /// A step whose tests count one by one.
    fn tests(&mut self, name: &'static str, must_find: bool, commands: impl IntoIterator<Item = Command>) {
        heading(name);
        let begun = Instant::now();
        let (mut found, mut complete) = (0, true);
        for mut command in commands {
            let (counts, outcome) = run_tests(&mut command);
            found += counts.passed + counts.failed;
            self.passed += counts.passed;
            if let Err(error) = outcome {
                complete = false;
                // A run that fails without a failed test did not compile, or died.
                self.failure(name, counts.failed.max(1), &error);
            }
        }
        self.times.push((name, begun.elapsed()));
        if found == 0 && complete && must_find {
            self.failure(name, 1, &anyhow::anyhow!("no test was found"));
        }
    }

    fn failure(&mut self, name: &'static str, count: u64, error: &anyhow::Error) {
        println!("FAILED: {name}: {error:#}");
        self.failed += count;
        if self.failures.last() != Some(&name) {
            self.failures.push(name);
        }
    }
}

fn heading(name: &str) {
    println!("\n==> {name}");
}

/// Runs everything, or with a `filter` the tests whose name contains it.
pub(crate) fn everything(repo: &Repo, filter: Option<&str>) -> Result<ExitCode> {
    let mut tally = Tally::default();
    let all = filter.is_none();
    let cargo_test = |args: &[&str]| {
        let mut command = repo.cargo(["test", "--workspace", "--no-fail-fast"]);
        command.args(args);
        if let Some(text) = filter {
            command.args(["--", text]);
        }
        command
    };

    if all {
        tally.check("format", || run(repo.cargo(["fmt", "--all", "--check"])));
    }
    tally.check("browser and driver", install::browser);
    tally.check("PostgreSQL", install::postgres);
    tally.check("proxies", install::proxies);
    tally.check("web app", || web::build(repo));
    tally.check("npm package", || package::build(repo));
    tally.check("example of the npm package", || package::example(repo));
    tally.check("axe-core", || npm::axe(repo));
    if all {
        tally.check("page size", || match size::check(repo)? {
            code if code == ExitCode::SUCCESS => Ok(()),
            _ => bail!("the page weighs more than it may"),
        });
        tally.check("lints", || {
            run(repo.cargo(["clippy", "--workspace", "--keep-going", "--all-targets", "--", "--deny", "warnings"]))
        });
        // As it is released: the tests have the server with every feature.
        tally.check("lints (server without features)", || {
            run(repo.cargo(["clippy", "--package", "turnfast", "--bins", "--", "--deny", "warnings"]))
        });
        tally.check("lints (browser)", || {
            let mut clippy = repo.cargo(["clippy", "--keep-going", "--target", WASM, "--all-targets"]);
            clippy.args(BROWSER_PACKAGES.map(|package| format!("--package={package}")));
            clippy.args(["--package=turnfast-client", "--", "--deny", "warnings"]);
            run(clippy)
        });
    }
    if all {
        tally.check("types of the npm package", || package::check_types(repo));
        tally.tests("tests of the npm package", true, [package::node_tests(repo)]);
    }
    tally.tests("native tests", all, [cargo_test(&["--lib", "--bins"]), cargo_test(&["--doc"])]);
    tally.tests("browser tests", all, BROWSER_PACKAGES.map(|package| browser_tests(repo, package, filter)));
    tally.check("server for the end-to-end tests", || run(build::dev_server(repo)));
    if all {
        tally.check("answers and their document", || fuzz::run_against_server(repo));
    }
    if all {
        install::faketime();
    }
    let mut end_to_end = cargo_test(&["--test", "*"]);
    if env::var_os("RUST_TEST_THREADS").is_none() {
        // They wait for servers, browsers and timers more than they compute.
        let threads = 2 * thread::available_parallelism().map_or(2, NonZero::get);
        end_to_end.env("RUST_TEST_THREADS", threads.to_string());
    }
    end_to_end
        .env("TURNFAST_BIN", repo.target("debug/turnfast"))
        .env("TURNFAST_TEST_PROVIDER_BIN", repo.target("debug/turnfast-test-provider"))
        .env("TURNFAST_TEST_MCP_BIN", repo.target("debug/turnfast-test-mcp"))
        .env("TURNFAST_EXAMPLE", repo.target("example"))
        .env("TURNFAST_AXE", repo.target("axe"))
        .env("TURNFAST_SCREENSHOTS", repo.target("screenshots"));
    tally.tests("end-to-end tests", all, [end_to_end]);

    if all {
        let mut suite = repo.program(repo.target("debug/turnfast-conformance"));
        suite.env("TURNFAST_BIN", repo.target("debug/turnfast"));
        tally.tests("conformance", true, [suite]);
    }

    println!("\n==> time");
    for (name, time) in &tally.times {
        println!("{:>6} s  {name}", time.as_secs());
    }
    println!();
    if !tally.failures.is_empty() {
        println!("failed: {}", tally.failures.join(", "));
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(mut command: Command) -> Result<()> {
    repo::run(&mut command)
}

/// The tests that run in headless Chromium. A failed test is no reason for a backtrace of the program that drives the browser.
fn browser_tests(repo: &Repo, package: &str, filter: Option<&str>) -> Command {
    let mut command = repo.cargo(["test", "--no-fail-fast", "--target", WASM, "--package", package]);
    command
        .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", repo.target("debug/wasm-bindgen-test-runner"))
        .env("RUST_BACKTRACE", "0");
    if let Some(text) = filter {
        command.args(["--", text]);
    }
    command
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

/// Runs `cargo test`, or another program that reports as it does, shows its output as it comes, and counts what it reports.
fn run_tests(command: &mut Command) -> (Counts, Result<()>) {
    let mut counts = Counts::default();
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let outcome = (|| {
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {name}"))?;
        let output = child.stdout.take().context("its output is piped")?;
        for line in BufReader::new(output).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            if let Some(result) = parse_result(&line) {
                counts.passed += result.passed;
                counts.failed += result.failed;
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("{name} failed ({status})");
        }
        if counts.failed > 0 {
            bail!("tests failed");
        }
        Ok(())
    })();
    (counts, outcome)
}

/// The counts of `test result: ok. 12 passed; 0 failed; …`, of a line that is nothing but `12 passed, 0 failed`, or of one that says
/// `# pass 12` or `# fail 0`, as Node's test runner does.
fn parse_result(line: &str) -> Option<Counts> {
    let line = line.trim();
    if let Some((passed, failed)) = line.split_once(" passed, ") {
        return Some(Counts { passed: passed.parse().ok()?, failed: failed.strip_suffix(" failed")?.parse().ok()? });
    }
    if let Some(passed) = line.strip_prefix("# pass ") {
        return Some(Counts { passed: passed.parse().ok()?, failed: 0 });
    }
    if let Some(failed) = line.strip_prefix("# fail ") {
        return Some(Counts { passed: 0, failed: failed.parse().ok()? });
    }
    let rest = line.strip_prefix("test result: ")?;
    let count = |word: &str| -> Option<u64> { rest.split(word).next()?.split_whitespace().next_back()?.parse().ok() };
    Some(Counts { passed: count(" passed;")?, failed: count(" failed;")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_native_and_browser_tests_are_counted() {
        let native = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s";
        assert_eq!(parse_result(native), Some(Counts { passed: 12, failed: 3 }));
        let browser = "test result: ok. 7 passed; 0 failed; 0 ignored; 0 filtered out; finished in 0.31s";
        assert_eq!(parse_result(browser), Some(Counts { passed: 7, failed: 0 }));
        assert_eq!(parse_result("79 passed, 2 failed"), Some(Counts { passed: 79, failed: 2 }));
        assert_eq!(parse_result("# pass 9"), Some(Counts { passed: 9, failed: 0 }));
        assert_eq!(parse_result("# fail 1"), Some(Counts { passed: 0, failed: 1 }));
        assert_eq!(parse_result("a page says: 79 passed, 2 failed"), None);
        assert_eq!(parse_result("test web::a ... ok"), None);
        assert_eq!(parse_result("test result: odd"), None);
    }
}
