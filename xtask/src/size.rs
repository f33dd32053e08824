//! What a browser downloads to show the page.

use std::{fs, process::ExitCode};

use anyhow::{Context, Result};

use crate::{repo::Repo, web};

/// Most that the page's wasm and JavaScript may weigh together, in bytes, packed as they are sent.
const LIMIT: usize = 200_000;

/// Prints the weights and compares them with the limit.
pub(crate) fn check(repo: &Repo) -> Result<ExitCode> {
    let mut total = 0;
    println!("{:<44} {:>10} {:>10}", "file", "bytes", "gzip");
    for (name, path) in web::files(&repo.web())? {
        if name.ends_with(".gz") {
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let packed = web::gzip(&bytes)?.len();
        println!("{name:<44} {:>10} {packed:>10}", bytes.len());
        if name.ends_with(".wasm") || name.ends_with(".js") {
            total += packed;
        }
    }
    let fits = total <= LIMIT;
    println!("wasm and JavaScript: {total} of {LIMIT} bytes{}", if fits { "" } else { ": too much" });
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
