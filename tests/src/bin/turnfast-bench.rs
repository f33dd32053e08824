//! Runs a measurement of [`turnfast_tests::bench`] with the server that `TURNFAST_BIN` names.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use turnfast_tests::bench;

const USAGE: &str = "usage: cargo xtask bench reliability [--repetitions 50], cargo xtask bench page";

async fn measure(words: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let repetitions = match words[..] {
        ["page"] => {
            let holds = bench::page::run().await?;
            return Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        ["reliability"] => 50,
        ["reliability", "--repetitions", count] => count.parse().with_context(|| format!("`{count}` is no number\n{USAGE}"))?,
        _ => bail!("{USAGE}"),
    };
    let measures = bench::reliability::run(repetitions).await?;
    for measure in &measures {
        println!("{measure}");
    }
    Ok(if measures.iter().all(bench::Measure::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = tokio::runtime::Runtime::new().map_err(Into::into).and_then(|runtime| runtime.block_on(measure(&words)));
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
