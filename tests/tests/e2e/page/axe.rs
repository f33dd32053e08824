//! axe-core, asked in the page itself.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use turnfast_tests::browser::Browser;

/// What axe-core finds wrong with the page as it is, by all of its rules, its best practices too; each with the elements it is about.
/// Contrast that it cannot judge counts as well.
pub(super) async fn violations(browser: &Browser) -> Result<Vec<String>> {
    if super::ask(browser, "return typeof axe").await? != "object" {
        browser.web().execute(&source()?, Vec::new()).await?;
    }
    let run = "const done = arguments[arguments.length - 1]; \
        axe.run(document, {resultTypes: ['violations', 'incomplete']}).then(({violations, incomplete}) => \
        done([...violations, ...incomplete.filter((rule) => rule.id.startsWith('color-contrast'))].map((rule) => \
        `${rule.id}: ${rule.help}\\n` + rule.nodes.map((node) => `  ${node.target}: ${node.failureSummary}`).join('\\n'))), \
        (error) => done(String(error)))";
    let Value::Array(found) = browser.execute_async(run).await? else { bail!("axe-core did not come to an end") };
    Ok(found.iter().map(|one| one.as_str().unwrap_or_default().to_owned()).collect())
}

fn source() -> Result<String> {
    let folder = match env::var_os("TURNFAST_AXE") {
        Some(folder) => PathBuf::from(folder),
        None => env::current_exe()?.ancestors().nth(3).context("no build folder")?.join("axe"),
    };
    let path = folder.join("node_modules/axe-core/axe.min.js");
    fs::read_to_string(&path).with_context(|| format!("{} is missing: `cargo xtask axe`", path.display()))
}
