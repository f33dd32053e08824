//! What the page says of the connection: what it knows, and no more.

use anyhow::Result;
use http::Method;
use turnfast_tests::browser::Browser;

use super::{answered, ask, inspect, messages, send, sign_in};
use crate::House;

/// Lets no read of a thread through, or all of them again.
async fn block_reads(browser: &Browser, blocked: bool) -> Result<()> {
    browser.block(if blocked { &["*/messages*"] } else { &[] }).await
}

async fn status(browser: &Browser) -> Result<String> {
    Ok(browser.test_id("status").await?.text().await?)
}

#[tokio::test]
async fn of_a_server_that_is_gone_the_page_says_no_more_than_it_knows() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    house.server.kill().await?;
    browser.shows("Connection lost. A turn does not need it; this page catches up when it is back.").await?;
    assert!(!browser.text().await?.contains("runs on"));
    assert!(messages(&browser).await?.contains("word1 word2 word3"));
    inspect(&browser, "connection-lost").await
}

#[tokio::test]
async fn a_server_that_restarts_is_said_to_and_the_page_catches_up() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word3").await?;
    let listens = house.server.address().to_owned();
    house.server.ask_to_end()?;
    browser.shows("The server is restarting. This page catches up when it is back.").await?;
    inspect(&browser, "restarting").await?;
    house.provider.release("gate").await?;
    house.server.ended().await?;
    let _server = house.installation.serve_at(&listens).await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    answered(&browser, 1, "success").await?;
    browser.hides("restarting").await
}

#[tokio::test]
async fn when_nothing_is_tried_any_more_there_is_a_way_out() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:first]]").await?;
    answered(&browser, 1, "success").await?;
    browser.hides("Replying…").await?;
    block_reads(&browser, true).await?;
    ask(&browser, "document.dispatchEvent(new Event('visibilitychange'))").await?;
    browser.shows("Reconnecting…").await?;
    browser.shows("Not up to date.").await?;
    assert!(!status(&browser).await?.contains("Reconnecting"));
    inspect(&browser, "not-up-to-date").await?;
    block_reads(&browser, false).await?;
    browser.role("button", "Try again").await?.click().await?;
    super::holds(&browser, "return document.querySelector('[data-testid=status]').innerText === ''").await?;
    Ok(())
}

#[tokio::test]
async fn a_first_load_that_fails_claims_to_show_nothing() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:first]]").await?;
    answered(&browser, 1, "success").await?;
    block_reads(&browser, true).await?;
    browser.web().refresh().await?;
    browser.shows("Not loaded yet. Trying again…").await?;
    browser.shows("The conversation could not be loaded").await?;
    assert_eq!(status(&browser).await?, "");
    inspect(&browser, "load-failed").await?;
    block_reads(&browser, false).await?;
    browser.role("button", "Try again").await?.click().await?;
    browser.shows("first").await
}

#[tokio::test]
async fn a_conversation_that_was_deleted_elsewhere_is_said_to_be() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:something to keep]]").await?;
    answered(&browser, 1, "success").await?;
    browser.hides("Replying…").await?;
    let title = "[[say:something to keep]]";
    browser.role("heading", title).await?;
    browser.label("Message").await?.send_keys("not lost").await?;
    let address = browser.web().current_url().await?;
    let thread = address.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default().to_owned();
    let deleted = house.alice.agent(Method::DELETE, "assistant", &format!("/threads/{thread}")).send().await?;
    assert_eq!(deleted.status(), 204);
    browser.shows("This conversation is gone").await?;
    browser.role("heading", title).await?;
    assert!(!browser.text().await?.contains("Reconnecting"));
    inspect(&browser, "deleted").await?;
    browser.role("button", "Start a new one").await?.click().await?;
    browser.hides("This conversation is gone").await?;
    super::holds(&browser, "return document.querySelector('#composer')?.value === 'not lost'").await
}

#[tokio::test]
async fn what_is_sent_offline_is_not_sent_and_says_so() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    browser.offline(true).await?;
    browser.shows("You are offline.").await?;
    send(&browser, "[[say:hello]]").await?;
    browser.shows("The message was not sent. You are offline. It stays in the box.").await?;
    super::in_sight(&browser, "[data-testid=trouble]").await?;
    inspect(&browser, "sent-offline").await?;
    browser.offline(false).await?;
    browser.shows("send it again").await?;
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 1, "success").await?;
    assert_eq!(house.provider.requests().await?.len(), 1);
    Ok(())
}
