//! What a person sees: the page in a real browser, over everything that happens to tabs, networks and processes.

mod accounts;
mod axe;
mod browser_side;
mod connection;
mod files;
mod layout;
mod reading;
mod refusals;
mod states;

use anyhow::Result;
use turnfast_tests::{
    browser::Browser,
    installation::{Installation, password},
};

use crate::House;

/// Signs alice in with her password, at the assistant.
async fn sign_in(house: &House, browser: &Browser) -> Result<()> {
    sign_in_at(house, browser, "alice", "/demo/assistant").await?;
    browser.label("Message").await?;
    Ok(())
}

/// Signs a user in with their password, at some place of the page.
async fn sign_in_at(house: &House, browser: &Browser, name: &str, path: &str) -> Result<()> {
    browser.open(&format!("{}{path}", house.server.url)).await?;
    fill_in(browser, name).await
}

/// Fills in the sign-in form that the page shows, and waits until it is gone.
async fn fill_in(browser: &Browser, name: &str) -> Result<()> {
    browser.label("Name").await?.send_keys(name).await?;
    browser.label("Password").await?.send_keys(&password(name)).await?;
    browser.role("button", "Sign in").await?.click().await?;
    browser.hides("Password").await
}

/// What a script returns in the page.
async fn ask(browser: &Browser, script: &str) -> Result<serde_json::Value> {
    Ok(browser.web().execute(script, Vec::new()).await?)
}

/// Waits until a script returns true.
async fn holds(browser: &Browser, script: &str) -> Result<()> {
    browser.until(script, async || Ok((ask(browser, script).await? == true).then_some(()))).await
}

/// Fills the message box with what a script makes: text that no key types.
async fn fill(browser: &Browser, text: &str) -> Result<()> {
    browser.label("Message").await?;
    let script = format!(
        "const box = document.querySelector('#composer'); box.value = {text}; \
         box.dispatchEvent(new Event('input', {{bubbles: true}}))"
    );
    ask(browser, &script).await.map(drop)
}

/// Waits until an element is in sight as a whole, without any scrolling.
async fn in_sight(browser: &Browser, selector: &str) -> Result<()> {
    let script = format!(
        "const box = document.querySelector({selector:?})?.getBoundingClientRect(); return !!box && box.height > 0 && box.top >= 0 \
         && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth"
    );
    holds(browser, &script).await
}

/// Looks at a state from all sides, wide and narrow, light and dark: axe-core must find nothing, and there are pictures for people.
/// Leaves the page wide and light.
async fn inspect(browser: &Browser, name: &str) -> Result<()> {
    for (size, width, height) in [("narrow", 390, 844), ("wide", 1280, 800)] {
        for (colours, dark) in [("dark", true), ("light", false)] {
            // Little motion first: the picture is of the page at rest.
            browser.prefers(dark, true).await?;
            browser.viewport(width, height).await?;
            let name = format!("{name}-{size}-{colours}");
            browser.screenshot(&name).await?;
            let found = axe::violations(browser).await?;
            assert!(found.is_empty(), "{name}:\n{}", found.join("\n"));
        }
    }
    Ok(())
}

pub(super) async fn send(browser: &Browser, text: &str) -> Result<()> {
    browser.label("Message").await?.send_keys(text).await?;
    browser.role("button", "Send").await?.click().await?;
    Ok(())
}

/// Waits until the page shows exactly these many messages of the agent, the last of them with that status.
async fn answered(browser: &Browser, count: usize, status: &str) -> Result<()> {
    let settled = format!(
        "const all = document.querySelectorAll('[data-testid=message-assistant]'); \
         return all.length === {count} && all[{count} - 1].dataset.status === '{status}'"
    );
    holds(browser, &settled).await
}

/// The text of the page's messages.
async fn messages(browser: &Browser) -> Result<String> {
    Ok(browser.test_id("messages").await?.text().await?)
}

#[tokio::test]
async fn a_person_signs_in_by_the_link_and_a_reply_streams() -> Result<()> {
    let installation = Installation::empty()?;
    let mut server = installation.serve().await?;
    let browser = Browser::start().await?;
    browser.open(&server.sign_in_link().await?).await?;
    send(&browser, "/slow 5").await?;
    browser.shows("word5").await?;
    answered(&browser, 1, "success").await?;
    assert_eq!(browser.count("[data-testid=message-user]").await?, 1);

    browser.hides("Replying…").await?;
    browser.screenshot("reply-wide").await?;
    // Little motion first: the picture is of the page at rest.
    browser.prefers(true, true).await?;
    browser.viewport(390, 844).await?;
    browser.screenshot("reply-narrow-dark").await?;
    let overflows = "return document.documentElement.scrollWidth > innerWidth";
    assert_eq!(browser.web().execute(overflows, Vec::new()).await?, false, "the page is wider than a phone");
    assert_eq!(browser.console_errors().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_reload_in_the_middle_of_a_turn_loses_nothing() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word3").await?;
    browser.web().refresh().await?;
    browser.shows("word3").await?;
    answered(&browser, 1, "running").await?;

    house.provider.release("gate").await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    answered(&browser, 1, "success").await?;
    assert_eq!(house.provider.requests().await?.len(), 1, "nothing is sent twice");
    Ok(())
}

#[tokio::test]
async fn a_second_tab_follows_and_can_stop_the_turn() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    let address = browser.web().current_url().await?;
    browser.open_beside(address.as_str(), true).await?;
    browser.shows("word3").await?;
    browser.role("button", "Stop").await?.click().await?;
    answered(&browser, 1, "cancelled").await?;
    assert!(messages(&browser).await?.contains("word1 word2 word3"));

    browser.switch_to(0).await?;
    answered(&browser, 1, "cancelled").await?;
    send(&browser, "[[say:next]]").await?;
    answered(&browser, 2, "success").await?;
    browser.switch_to(1).await?;
    answered(&browser, 2, "success").await?;
    Ok(())
}

#[tokio::test]
async fn a_network_that_goes_and_comes_back_ends_nothing() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word3").await?;
    browser.offline(true).await?;
    house.provider.release("gate").await?;
    house.provider.end_of(0).await?;
    browser.offline(false).await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    answered(&browser, 1, "success").await?;
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_shows_an_honest_end() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    // A tab that reads what is recorded says when the text is safe.
    let address = browser.web().current_url().await?;
    browser.open_beside(address.as_str(), true).await?;
    browser.shows("word3").await?;

    let listens = house.server.address().to_owned();
    house.server.kill().await?;
    let _server = house.installation.serve_at(&listens).await?;
    for tab in [0, 1] {
        browser.switch_to(tab).await?;
        answered(&browser, 1, "interrupted").await?;
        assert!(messages(&browser).await?.contains("word1 word2 word3"));
    }
    send(&browser, "[[say:still here]]").await?;
    browser.shows("still here").await?;
    answered(&browser, 2, "success").await?;
    Ok(())
}

#[tokio::test]
async fn a_question_is_answered_in_one_tab_and_shows_so_in_the_other() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"]}]]"#).await?;
    browser.role("button", "blue").await?;
    let address = browser.web().current_url().await?;
    browser.open_beside(address.as_str(), true).await?;
    browser.role("button", "blue").await?.click().await?;
    answered(&browser, 1, "success").await?;
    browser.switch_to(0).await?;
    answered(&browser, 1, "success").await?;
    assert!(!browser.has_role("button", "blue").await?, "the question is answered");
    Ok(())
}

#[tokio::test]
async fn eight_tabs_share_the_connections_that_a_browser_has() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:hello]]").await?;
    browser.shows("hello").await?;
    answered(&browser, 1, "success").await?;
    let address = browser.web().current_url().await?;
    for _ in 1..8 {
        browser.open_beside(address.as_str(), true).await?;
        browser.shows("hello").await?;
    }
    send(&browser, "[[say:to all of you]]").await?;
    for tab in 0..8 {
        browser.switch_to(tab).await?;
        browser.shows("to all of you").await?;
        answered(&browser, 2, "success").await?;
    }
    Ok(())
}
