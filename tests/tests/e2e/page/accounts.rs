//! Who is at the page: nobody sees what belongs to somebody else, and every tab knows who is signed in.

use anyhow::Result;
use turnfast_tests::browser::Browser;

use super::{ask, fill_in, holds, inspect, send, sign_in, sign_in_at};
use crate::House;

/// What a person finds in the message box.
async fn draft(browser: &Browser) -> Result<String> {
    browser.label("Message").await?;
    let value = ask(browser, "return document.querySelector('#composer').value").await?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

async fn sign_out(browser: &Browser) -> Result<()> {
    browser.role("button", "Sign out").await?.click().await?;
    browser.label("Password").await?;
    Ok(())
}

/// That a tab shows that nobody is signed in, and nothing of who was.
async fn shows_nobody(browser: &Browser, theirs: &[&str]) -> Result<()> {
    browser.shows("You are signed out").await?;
    let html = ask(browser, "return document.documentElement.outerHTML + document.title").await?;
    for one in theirs {
        assert!(!html.as_str().unwrap_or_default().contains(one), "`{one}` is still in the page");
    }
    Ok(())
}

#[tokio::test]
async fn a_draft_waits_for_its_writer_and_nobody_else_sees_it() -> Result<()> {
    let house = House::open().await?;
    house.user("bob").await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    ask(&browser, "localStorage.setItem('turnfast.draft.demo.assistant.new', '{\"text\":\"of an earlier version\"}')").await?;
    browser.label("Message").await?.send_keys("only alice may read this").await?;
    sign_out(&browser).await?;

    sign_in_at(&house, &browser, "bob", "/demo/assistant").await?;
    assert_eq!(draft(&browser).await?, "");
    browser.label("Message").await?.send_keys("bob was here").await?;
    let old = ask(&browser, "return localStorage.getItem('turnfast.draft.demo.assistant.new')").await?;
    assert!(old.is_null(), "a draft of nobody is removed");
    sign_out(&browser).await?;

    sign_in_at(&house, &browser, "alice", "/demo/assistant").await?;
    assert_eq!(draft(&browser).await?, "only alice may read this");
    Ok(())
}

#[tokio::test]
async fn every_tab_shows_a_sign_out_at_once_and_comes_back_for_the_same_person() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    let new = format!("{}/demo/assistant", house.server.url);
    // A tab with a turn that streams, one with a new conversation, one that signs out.
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word3").await?;
    browser.open_beside(&new, true).await?;
    browser.label("Message").await?.send_keys("half a thought").await?;
    browser.open_beside(&new, true).await?;
    sign_out(&browser).await?;

    for tab in [0, 1] {
        browser.switch_to(tab).await?;
        shows_nobody(&browser, &["word3", "alice", "half a thought"]).await?;
    }
    inspect(&browser, "signed-out").await?;
    browser.shows("turnfast user link NAME").await?;
    house.provider.release("gate").await?;
    house.provider.end_of(0).await?;
    browser.switch_to(0).await?;
    shows_nobody(&browser, &["word3", "and the rest"]).await?;

    fill_in(&browser, "alice").await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    browser.switch_to(1).await?;
    assert_eq!(draft(&browser).await?, "half a thought");
    Ok(())
}

#[tokio::test]
async fn somebody_else_who_signs_in_finds_nothing_of_the_one_before() -> Result<()> {
    let house = House::open().await?;
    house.user("bob").await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:for alice alone]]").await?;
    browser.shows("for alice alone").await?;
    let new = format!("{}/demo/assistant", house.server.url);
    browser.open_beside(&new, true).await?;
    browser.label("Message").await?.send_keys("alice thinks").await?;
    browser.open_beside(&new, true).await?;
    sign_out(&browser).await?;
    browser.switch_to(1).await?;
    browser.shows("You are signed out").await?;
    fill_in(&browser, "bob").await?;
    browser.shows("bob").await?;
    for tab in 0..3 {
        browser.switch_to(tab).await?;
        browser.shows("bob").await?;
        let html = ask(&browser, "return document.documentElement.outerHTML").await?;
        assert!(!html.as_str().unwrap_or_default().contains("alice"), "tab {tab} still has something of alice");
    }
    browser.switch_to(1).await?;
    browser.open(&new).await?;
    assert_eq!(draft(&browser).await?, "");
    Ok(())
}

#[tokio::test]
async fn a_session_that_the_server_ended_shows_in_a_tab_that_is_looked_at_again() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    house.installation.run(&["user", "disable", "alice"], "").await?;
    assert!(browser.has_role("button", "Sign out").await?, "nothing has told the page yet");
    ask(&browser, "document.dispatchEvent(new Event('visibilitychange'))").await?;
    shows_nobody(&browser, &["alice"]).await
}

#[tokio::test]
async fn a_push_connection_that_is_refused_shows_that_the_session_is_over() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    house.installation.run(&["user", "disable", "alice"], "").await?;
    let listens = house.server.address().to_owned();
    house.server.kill().await?;
    let _server = house.installation.serve_at(&listens).await?;
    shows_nobody(&browser, &["alice"]).await?;
    holds(&browser, "return localStorage.getItem('turnfast.user') === null").await
}
