//! A short run of chaos; see [`turnfast_tests::chaos`]. Longer ones are `cargo xtask chaos`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use turnfast_tests::chaos::{Options, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_run_of_chaos_keeps_every_promise() -> Result<()> {
    let keep = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("chaos");
    let report = run(Options { seed: 5, lasts: Duration::ZERO, epoch: Duration::from_secs(25), keep }).await?;
    ensure!(report.is_clean(), "{report}");
    // What nothing happened in shows nothing.
    for what in ["turns accepted", "Stops acknowledged", "answers accepted", "fault: kill -9 of a server"] {
        ensure!(report.times(what) > 0, "there was no {what}: {report}");
    }
    println!("{report}");
    Ok(())
}
