//! Runs [`turnfast_tests::chaos`] with the server that `TURNFAST_BIN` names.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use turnfast_tests::chaos::{self, Options};

const USAGE: &str = "usage: cargo xtask chaos [--minutes 1] [--seed N]";

/// How long people and faults go on in one epoch. A run ends with the epoch that it is in when its time is over.
const EPOCH: Duration = Duration::from_secs(75);

fn options(mut words: impl Iterator<Item = String>) -> Result<Options> {
    // Of the time as many bits as a person likes to type.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 1_000_000;
    let mut options = Options { seed: now, lasts: Duration::from_secs(60), epoch: EPOCH, keep: PathBuf::from("target/chaos") };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} takes a value\n{USAGE}"))?;
        match word.as_str() {
            "--seed" => options.seed = value.parse().with_context(|| format!("`{value}` is no seed\n{USAGE}"))?,
            "--minutes" => {
                let minutes: u32 = value.parse().with_context(|| format!("`{value}` is no number of minutes\n{USAGE}"))?;
                options.lasts = Duration::from_secs(60) * minutes;
            }
            _ => bail!("`{word}` is no option\n{USAGE}"),
        }
    }
    Ok(options)
}

async fn chaos() -> Result<ExitCode> {
    let options = options(std::env::args().skip(1))?;
    let report = tokio::select! {
        report = chaos::run(options) => report?,
        // What was started ends with this program, in order.
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    };
    print!("{report}");
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let outcome = tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(chaos()));
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
