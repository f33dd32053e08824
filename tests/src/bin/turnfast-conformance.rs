//! Runs [`turnfast_tests::conformance`] against a server, or without an address against one of its own.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail, ensure};
use turnfast_tests::{
    conformance::{self, Target},
    installation::Installation,
};

const USAGE: &str = "usage: cargo xtask conformance [--url URL --token TOKEN --other-token TOKEN] [--second-url URL] \
                     [--project demo] [--agent assistant] [--filter TEXT] [--write]";

#[derive(Default)]
struct Args {
    url: Option<String>,
    second_url: Option<String>,
    token: Option<String>,
    other_token: Option<String>,
    project: Option<String>,
    agent: Option<String>,
    filter: Option<String>,
    write: bool,
}

impl Args {
    fn parse(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut args = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let place = match word.as_str() {
                "--write" => {
                    args.write = true;
                    continue;
                }
                "--url" => &mut args.url,
                "--second-url" => &mut args.second_url,
                "--token" => &mut args.token,
                "--other-token" => &mut args.other_token,
                "--project" => &mut args.project,
                "--agent" => &mut args.agent,
                "--filter" => &mut args.filter,
                _ => bail!("`{word}` is no option\n{USAGE}"),
            };
            *place = Some(words.next().with_context(|| format!("{word} takes a value\n{USAGE}"))?);
        }
        ensure!(!args.write || args.filter.is_none(), "--write writes the result of all tests, without --filter");
        Ok(args)
    }
}

async fn conformance(args: Args) -> Result<ExitCode> {
    let project = args.project.unwrap_or_else(|| "demo".to_owned());
    let agent = args.agent.unwrap_or_else(|| "assistant".to_owned());
    let mut own = None;
    let target = match (args.url, args.token, args.other_token) {
        (Some(url), Some(token), Some(other_token)) => {
            Target { url, second_url: args.second_url, token, other_token, project, agent }
        }
        (None, None, None) => {
            let installation = Installation::with_config(conformance::CONFIG)?;
            let (token, other_token) = (installation.user("alice").await?, installation.user("bob").await?);
            let server = installation.serve().await?;
            let url = server.url.clone();
            own = Some((server, installation));
            Target { url, second_url: None, token, other_token, project, agent }
        }
        _ => bail!("--url, --token and --other-token go together\n{USAGE}"),
    };
    let report = conformance::run(target, args.filter.as_deref()).await?;
    if args.write {
        let page = PathBuf::from("docs/conformance.md");
        if let Some(folder) = page.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&page, report.document()).with_context(|| page.display().to_string())?;
    }
    let (passed, failed) = report.counts();
    if let Some((server, _)) = &mut own
        && failed == 0
    {
        server.hush();
    }
    drop(own);
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let outcome =
        Args::parse(std::env::args().skip(1)).and_then(|args| tokio::runtime::Runtime::new()?.block_on(conformance(args)));
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
