//! The server with the web app inside, built and started.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
};

use anyhow::Result;

use crate::{
    install,
    repo::{Repo, run, say},
    web,
};

/// Builds the release binary.
pub(crate) fn release(repo: &Repo, otel: bool) -> Result<ExitCode> {
    web::build(repo)?;
    say("building the server (release)");
    let mut build = repo.cargo(["build", "--release", "--package", "turnfast"]);
    if otel {
        build.args(["--features", "otel"]);
    }
    run(&mut build)?;
    say(&format!("done: {}", repo.target("release/turnfast").display()));
    Ok(ExitCode::SUCCESS)
}

/// Builds web app and server and becomes the server. The development profile: it compiles in a fraction of the time, again after a
/// change, and tests use the same build.
pub(crate) fn serve(repo: &Repo, args: &[OsString]) -> Result<ExitCode> {
    web::build(repo)?;
    say("building the server");
    run(&mut dev_server(repo))?;
    let mut server = Command::new(repo.target("debug/turnfast"));
    server.arg("serve").args(args);
    become_program(server)
}

/// Builds the conformance suite and the server that it tests where it is given none, and becomes the suite.
pub(crate) fn conformance(repo: &Repo, args: &[OsString]) -> Result<ExitCode> {
    say("building the suite");
    run(&mut dev_build(repo, &["turnfast-conformance"]))?;
    if !args.iter().any(|arg| arg == "--url") {
        web::build(repo)?;
        run(&mut dev_server(repo))?;
    }
    let mut suite = repo.program(repo.target("debug/turnfast-conformance"));
    suite.args(args);
    become_program(suite)
}

/// Builds the release binary and what measures it, and becomes the latter.
pub(crate) fn bench(repo: &Repo, repetitions: usize) -> Result<ExitCode> {
    install::postgres()?;
    release(repo, false)?;
    say("building what measures it");
    run(&mut dev_build(repo, &["turnfast-bench", "turnfast-test-provider"]))?;
    let mut bench = repo.program(repo.target("debug/turnfast-bench"));
    bench.args(["reliability", "--repetitions", &repetitions.to_string()]);
    bench.env("TURNFAST_BIN", repo.target("release/turnfast"));
    bench.env("TURNFAST_TEST_PROVIDER_BIN", repo.target("debug/turnfast-test-provider"));
    become_program(bench)
}

/// Builds the server as tests run it and what drives it into chaos, and becomes the latter.
pub(crate) fn chaos(repo: &Repo, minutes: u64, seed: Option<u64>) -> Result<ExitCode> {
    install::postgres()?;
    install::faketime();
    say("building the server and what strikes it");
    run(&mut dev_build(repo, &["turnfast", "turnfast-chaos", "turnfast-test-provider"]))?;
    let mut chaos = repo.program(repo.target("debug/turnfast-chaos"));
    chaos.args(["--minutes", &minutes.to_string()]);
    if let Some(seed) = seed {
        chaos.args(["--seed", &seed.to_string()]);
    }
    chaos.env("TURNFAST_BIN", repo.target("debug/turnfast"));
    chaos.env("TURNFAST_TEST_PROVIDER_BIN", repo.target("debug/turnfast-test-provider"));
    become_program(chaos)
}

/// Builds the page, the server as tests run it and what measures the page, and becomes the latter.
pub(crate) fn bench_page(repo: &Repo) -> Result<ExitCode> {
    install::browser()?;
    web::build(repo)?;
    run(&mut dev_build(repo, &["turnfast", "turnfast-bench", "turnfast-test-provider"]))?;
    let mut bench = repo.program(repo.target("debug/turnfast-bench"));
    bench.arg("page");
    become_program(bench)
}

/// Builds the server as tests run it.
pub(crate) fn dev_server(repo: &Repo) -> Command {
    dev_build(repo, &["turnfast"])
}

/// Builds programs as tests run them. With the whole workspace selected, as for the tests, dependencies have the same features in both
/// and are compiled once.
fn dev_build(repo: &Repo, programs: &[&str]) -> Command {
    let mut build = repo.cargo(["build", "--workspace"]);
    build.args(programs.iter().map(|name| format!("--bin={name}")));
    build
}

/// Writes the OpenAPI document. The test that compares it with the file writes the file when asked to.
pub(crate) fn openapi(repo: &Repo) -> Result<ExitCode> {
    let mut test = repo.cargo(["test", "--package", "turnfast", "--lib", "the_document_is_the_one_checked_in"]);
    run(test.env("TURNFAST_WRITE_OPENAPI", "1"))?;
    say(&format!("done: {}", repo.path("server/openapi.json").display()));
    Ok(ExitCode::SUCCESS)
}

/// The program takes this one's place, and with it its signals and exit code.
#[cfg(unix)]
fn become_program(mut program: Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt;

    use anyhow::Context;

    Err(program.exec()).with_context(|| format!("cannot start {}", program.get_program().to_string_lossy()))
}

/// Where a process cannot be replaced, Ctrl-C reaches both of them through the console.
#[cfg(not(unix))]
fn become_program(mut program: Command) -> Result<ExitCode> {
    let status = program.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
