//! Other people's front ends: the npm package in a real browser, with the example that comes with it, the example of its README, and
//! a page that counts what React renders.

use std::{env, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;
use turnfast_shared::ids::ThreadId;
use turnfast_tests::{browser::Browser, installation::password, process::Process};

use crate::{House, page::send};

/// The built pages, served as the example serves them: with the server behind them.
struct Site {
    url: String,
    _process: Process,
}

impl Site {
    async fn open(house: &House) -> Result<Self> {
        let folder = match env::var_os("TURNFAST_EXAMPLE") {
            Some(folder) => PathBuf::from(folder),
            None => env::current_exe()?.ancestors().nth(3).context("no build folder")?.join("example"),
        };
        ensure!(folder.join("dist/main.js").is_file(), "{} has not been built: `cargo xtask example`", folder.display());
        let mut command = Command::new("node");
        command.current_dir(&folder).args(["serve.mjs", "--port", "0", "--server", &house.server.url]);
        let mut process = Process::start(command, house.installation.folder().join("site-stderr"))?;
        let url = process.line("the address", |line| line.strip_prefix("listening on ").map(str::to_owned)).await?;
        Ok(Self { url, _process: process })
    }
}

async fn sign_in(site: &Site, browser: &Browser) -> Result<()> {
    browser.open(&site.url).await?;
    browser.label("Name").await?.send_keys("alice").await?;
    browser.label("Password").await?.send_keys(&password("alice")).await?;
    browser.role("button", "Sign in").await?.click().await?;
    browser.label("Message").await?;
    Ok(())
}

/// Waits until the page shows exactly these many messages of the agent, the last of them with that status.
async fn answered(browser: &Browser, count: usize, status: &str) -> Result<()> {
    browser.css(&format!("[data-testid=message-assistant][data-status={status}]:last-child")).await?;
    assert_eq!(browser.count("[data-testid=message-assistant]").await?, count);
    Ok(())
}

async fn draft(browser: &Browser) -> Result<String> {
    Ok(browser.label("Message").await?.prop("value").await?.unwrap_or_default())
}

#[tokio::test]
async fn a_reload_of_the_example_loses_neither_turn_nor_draft() -> Result<()> {
    let house = House::open().await?;
    let site = Site::open(&house).await?;
    let browser = Browser::start().await?;
    browser.open(&site.url).await?;
    browser.label("Name").await?.send_keys("alice").await?;
    browser.label("Password").await?.send_keys("wrong").await?;
    browser.role("button", "Sign in").await?.click().await?;
    browser.css("[role=alert]").await?;
    sign_in(&site, &browser).await?;
    // What a browser says of a sign-in that is wanted and of one that failed.
    browser.console_errors().await?;

    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word1 word2 word3").await?;
    browser.label("Message").await?.send_keys("not yet sent").await?;
    browser.web().refresh().await?;
    browser.shows("word1 word2 word3").await?;
    answered(&browser, 1, "running").await?;
    assert_eq!(draft(&browser).await?, "not yet sent");

    house.provider.release("gate").await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    answered(&browser, 1, "success").await?;
    assert_eq!(draft(&browser).await?, "not yet sent");
    assert_eq!(house.provider.requests().await?.len(), 1, "nothing is sent twice");
    browser.role("button", "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    assert_eq!(browser.console_errors().await?, Vec::<String>::new());
    browser.screenshot("example-react").await?;
    Ok(())
}

#[tokio::test]
async fn a_second_tab_of_the_example_follows_stops_and_answers() -> Result<()> {
    let house = House::open().await?;
    let site = Site::open(&house).await?;
    let browser = Browser::start().await?;
    sign_in(&site, &browser).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word1 word2 word3").await?;
    let address = browser.web().current_url().await?;
    browser.open_beside(address.as_str(), true).await?;
    browser.shows("word1 word2 word3").await?;
    browser.role("button", "Stop").await?.click().await?;
    answered(&browser, 1, "cancelled").await?;
    browser.switch_to(0).await?;
    answered(&browser, 1, "cancelled").await?;

    send(&browser, r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"]}]]"#).await?;
    browser.role("button", "blue").await?;
    browser.switch_to(1).await?;
    browser.role("button", "blue").await?.click().await?;
    answered(&browser, 2, "success").await?;
    browser.switch_to(0).await?;
    answered(&browser, 2, "success").await?;
    assert!(!browser.has_role("button", "blue").await?, "the question is answered");
    Ok(())
}

#[tokio::test]
async fn the_example_of_the_readme_works() -> Result<()> {
    let house = House::open().await?;
    let site = Site::open(&house).await?;
    let browser = Browser::start().await?;
    sign_in(&site, &browser).await?;
    browser.console_errors().await?;
    browser.open(&format!("{}/readme.html", site.url)).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word1 word2 word3").await?;
    browser.role("button", "Stop").await?.click().await?;
    // It says nothing of a turn that is being stopped, but sends once that has ended.
    browser.label("Message").await?.send_keys("[[say:and again]]").await?;
    browser.css("form button:enabled:not([type=button])").await?.click().await?;
    browser.shows("\nand again").await?;
    assert_eq!(browser.console_errors().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn one_row_of_a_thousand_is_rendered_per_delta() -> Result<()> {
    let house = House::open().await?;
    let thread = long_thread(&house, 500).await?;
    let site = Site::open(&house).await?;
    let browser = Browser::start().await?;
    sign_in(&site, &browser).await?;
    browser.open(&format!("{}/renders.html?agent=demo#{thread}", site.url)).await?;
    let look = async |script: &str| -> Result<Value> { Ok(browser.web().execute(script, Vec::new()).await?) };
    let counts = async || -> Result<(u64, u64)> {
        let counts = look("return [counts.rows, counts.lists]").await?;
        Ok((counts[0].as_u64().context("rows")?, counts[1].as_u64().context("lists")?))
    };
    let messages = async |count: usize, status: &str| {
        let settled = format!(
            "const all = document.querySelectorAll('p'); return all.length === {count} && all[{count} - 1].dataset.status === '{status}'"
        );
        browser.until(&format!("{count} messages"), async || Ok((look(&settled).await? == true).then_some(()))).await
    };
    messages(1_000, "success").await?;
    let (rows_before, lists_before) = counts().await?;
    assert_eq!(rows_before, 1_000, "each row is rendered once to begin with");

    // Twenty words, one every 100 ms: React renders each by itself.
    look("thread.setDraft('/slow 20'); thread.submit();").await?;
    browser.shows("word20").await?;
    messages(1_002, "success").await?;
    let (rows, lists) = counts().await?;
    let (rows, lists) = (rows - rows_before, lists - lists_before);
    assert!(rows >= 20, "it did stream: {rows} rows");
    // The two rows that are new, and what the record says of them in the end.
    assert!(rows <= lists + 3, "{rows} rows in {lists} renders of the list");
    Ok(())
}

/// A thread of so many turns with the demo agent.
async fn long_thread(house: &House, turns: usize) -> Result<ThreadId> {
    let mut first = house.alice.say("demo", "/long 1").await?;
    first.done().await?;
    let thread = first.started.thread;
    for _ in 1..turns {
        house.alice.say_in("demo", thread, "/long 1").await?.done().await?;
    }
    Ok(thread)
}
