//! Random walks: sequences of what two people do, made from a seed, against the real server on SQLite, which is killed, asked to end
//! and kept from its database in between. After each walk the promises of contract 1 are checked; see [`walker`].

mod host;
mod plan;
mod walker;

use std::sync::Arc;

use anyhow::{Result, bail};
use futures::{StreamExt, stream};

use self::host::Host;
pub use self::host::Kind;
pub(crate) use self::walker::well_formed;
use crate::dice::Dice;

/// Runs the walks of `seeds`, `at_once` of them at the same time, while the server suffers `faults` faults.
///
/// # Errors
/// A promise was broken: the seed, what was done and what is wrong.
pub async fn run(kind: Kind, seeds: impl IntoIterator<Item = u64>, at_once: usize, faults: u64) -> Result<()> {
    let seeds: Vec<u64> = seeds.into_iter().collect();
    let host = Arc::new(Host::open(kind).await?);
    let walks = stream::iter(seeds.iter().copied()).map(|seed| {
        let host = host.clone();
        async move { (seed, walker::walk(&host, seed).await) }
    });
    let mut walks = walks.buffer_unordered(at_once);
    // Faults come when so many walks are done, not when so much time has passed: a slow machine sees as many as a fast one.
    let every = (seeds.len() as u64 / (faults + 1)).max(1);
    let mut dice = Dice::new(seeds.first().copied().unwrap_or_default());
    let (mut done, mut failures) = (0_u64, Vec::new());
    let mut fault = None;
    while let Some((seed, outcome)) = walks.next().await {
        done += 1;
        if let Err(error) = outcome {
            println!("FAILED seed {seed}: {error:#}");
            failures.push(seed);
        }
        if done.is_multiple_of(every)
            && done < seeds.len() as u64
            && let Some(earlier) = fault.replace(tokio::spawn({
                let (host, which) = (host.clone(), dice.next());
                async move { host.suffer(which).await }
            }))
        {
            earlier.await??;
        }
    }
    if let Some(last) = fault {
        last.await??;
    }
    println!("{done} walks, {} times the server came and went", host.generation() / 2);
    drop(walks);
    if let Some(host) = Arc::into_inner(host) {
        host.close(failures.is_empty()).await?;
    }
    if !failures.is_empty() {
        bail!("seeds {failures:?} broke a promise; see above. `walks::run(kind, [seed], 1, 0)` runs one again");
    }
    Ok(())
}
