//! `cargo xtask …`: builds, serves, tests and measures Turnfast. It only starts other programs (cargo, the server, the package
//! manager) and moves files; what the product does is none of its business.

mod build;
mod fuzz;
mod install;
mod npm;
mod package;
mod repo;
mod shorten;
mod size;
mod test;
mod types;
mod web;

use std::{ffi::OsString, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::repo::Repo;

/// Builds, serves, tests and measures Turnfast.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds the web app and the server and starts it. Everything behind `serve` goes to `turnfast serve`.
    #[command(disable_help_flag = true)]
    Serve {
        /// Arguments for `turnfast serve`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Checks and tests everything; the last line is `N passed, N failed`.
    Test {
        /// Run only tests whose name contains TEXT, and no checks.
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
    },
    /// Tests a server against contract 1, line by line; without --url one of its own. See docs/conformance.md.
    #[command(disable_help_flag = true)]
    Conformance {
        /// Arguments for the suite: --url, --token, --other-token, --second-url, --project, --agent, --filter, --write.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
    /// Runs three servers, one PostgreSQL and many clients while everything fails, and checks that nothing is lost.
    Chaos {
        /// How long; the epoch that it is in by then is finished.
        #[arg(long, value_name = "MINUTES", default_value_t = 1)]
        minutes: u64,
        /// What decides what people do and what fails; another one every time unless given.
        #[arg(long, value_name = "NUMBER")]
        seed: Option<u64>,
    },
    /// Measures something against its bounds.
    #[command(subcommand)]
    Bench(Bench),
    /// Builds the release binary, target/release/turnfast, with the web app inside.
    Build {
        /// With traces for OpenTelemetry.
        #[arg(long)]
        otel: bool,
    },
    /// Builds the web app into target/web.
    Web,
    /// Builds the npm package into target/package.
    Package,
    /// Builds the npm package and the pages that the end-to-end tests try it with, into target/example.
    Example,
    /// Fetches axe-core from npm into target/axe: the end-to-end tests hold every state of the page to it.
    Axe,
    /// Writes server/openapi.json from the server's routes.
    Openapi,
    /// Makes requests up from the OpenAPI document and holds the answers of a live server to it.
    Fuzz,
    /// Measures what a browser downloads against its limit.
    Size,
}

#[derive(Subcommand)]
enum Bench {
    /// What one delta costs a front end in a short thread and in a long one.
    Client,
    /// What a long thread costs the page, beside a short one: first paint, one delta, typing and scrolling.
    Page,
    /// How soon other processes notice a death and a Stop, with the release binary.
    Reliability {
        /// How often each is measured.
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        repetitions: usize,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = Repo::find().and_then(|repo| match cli.command {
        Command::Serve { args } => build::serve(&repo, &args),
        Command::Test { filter } => test::everything(&repo, filter.as_deref()),
        Command::Conformance { args } => build::conformance(&repo, &args),
        Command::Build { otel } => build::release(&repo, otel),
        Command::Web => web::build(&repo).map(|()| ExitCode::SUCCESS),
        Command::Package => package::build(&repo).map(|()| ExitCode::SUCCESS),
        Command::Example => package::build(&repo).and_then(|()| package::example(&repo)).map(|()| ExitCode::SUCCESS),
        Command::Chaos { minutes, seed } => build::chaos(&repo, minutes, seed),
        Command::Axe => npm::axe(&repo).map(|()| ExitCode::SUCCESS),
        Command::Bench(Bench::Reliability { repetitions }) => build::bench(&repo, repetitions),
        Command::Bench(Bench::Client) => package::bench(&repo).map(|()| ExitCode::SUCCESS),
        Command::Bench(Bench::Page) => build::bench_page(&repo),
        Command::Openapi => build::openapi(&repo),
        Command::Fuzz => {
            repo::run(&mut build::dev_server(&repo))?;
            fuzz::run_against_server(&repo).map(|()| ExitCode::SUCCESS)
        }
        Command::Size => {
            web::build(&repo)?;
            size::check(&repo)
        }
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
