//! What the page says when the server says no: in its own words, where they are seen.

use anyhow::Result;
use turnfast_tests::browser::Browser;

use super::{fill, in_sight, inspect, send, sign_in, sign_in_at};
use crate::House;

/// Waits for the note on what went wrong, in sight, and returns its words.
async fn trouble(browser: &Browser) -> Result<String> {
    let note = browser.test_id("trouble").await?;
    in_sight(browser, "[data-testid=trouble]").await?;
    assert_eq!(note.attr("role").await?.as_deref(), Some("alert"), "screen readers are told");
    Ok(note.text().await?)
}

#[tokio::test]
async fn what_was_not_sent_is_said_beside_the_message_box() -> Result<()> {
    let house = House::open_with("[limits]\nmax_running_turns_per_user = 1\nmax_message_bytes = 4000").await?;
    let elsewhere = house.alice.say("assistant", "[[words:1]][[stall]]").await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    browser.viewport(390, 844).await?;
    send(&browser, "hello").await?;
    let said = trouble(&browser).await?;
    assert!(said.starts_with("The message was not sent. That is more at once than this server allows."), "{said}");
    inspect(&browser, "not-sent").await?;

    // A tall draft takes the room of what stands above it, and not that of the note.
    browser.web().refresh().await?;
    fill(&browser, "'line\\n'.repeat(30)").await?;
    browser.role("button", "Send").await?.click().await?;
    trouble(&browser).await?;
    in_sight(&browser, "#composer").await?;
    browser.screenshot("not-sent-tall").await?;

    browser.web().refresh().await?;
    fill(&browser, "'x'.repeat(5000)").await?;
    browser.role("button", "Send").await?.click().await?;
    let said = trouble(&browser).await?;
    assert!(said.starts_with("The message was not sent. It is longer than this server takes."), "{said}");
    browser.role("button", "Dismiss").await?.click().await?;
    browser.hides("was not sent").await?;
    drop(elsewhere);
    Ok(())
}

#[tokio::test]
async fn what_only_the_server_can_explain_stays_in_its_words() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/incomplete").await?;
    send(&browser, "hello").await?;
    let said = trouble(&browser).await?;
    assert!(said.contains("The agent is not set up; missing: ") && !said.contains('`'), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_viewer_is_told_that_this_is_for_reading() -> Result<()> {
    let house = House::open().await?;
    house.user("vera").await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "vera", "/demo/assistant").await?;
    // That nobody was signed in.
    browser.console_errors().await?;
    browser.shows("You can read here, but not send.").await?;
    assert_eq!(browser.count("textarea, [data-testid=new-thread], [type=file]").await?, 0, "nothing pretends to send");
    inspect(&browser, "viewer").await?;
    assert_eq!(browser.console_errors().await?, Vec::<String>::new());
    Ok(())
}
