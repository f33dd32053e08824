//! How the page holds together: small screens, long words, other scripts, keyboards, and a page that broke.

use anyhow::Result;
use serde_json::json;
use turnfast_tests::browser::Browser;

use super::{answered, ask, fill, holds, in_sight, inspect, send, sign_in};
use crate::House;

const ESCAPE: &str = "\u{e00c}";

#[tokio::test]
async fn a_long_word_breaks_no_dialog() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    let word = "n".repeat(120);
    send(&browser, &word).await?;
    answered(&browser, 1, "success").await?;
    browser.viewport(390, 844).await?;
    browser.role("button", "Conversations").await?.click().await?;
    browser.role("button", &format!("Delete “{word}”")).await?.click().await?;
    in_sight(&browser, "[data-testid=delete-confirm]").await?;
    let wide = "const dialog = document.querySelector('dialog'); return dialog.scrollWidth > dialog.clientWidth";
    assert_eq!(ask(&browser, wide).await?, false, "the dialog scrolls sideways");
    inspect(&browser, "delete-long").await
}

#[tokio::test]
async fn an_open_drawer_is_all_there_is_and_escape_closes_it() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    browser.viewport(390, 844).await?;
    for anywhere in ["document.activeElement.blur()", "document.querySelector('[data-testid=new-thread]').focus()"] {
        browser.role("button", "Conversations").await?.click().await?;
        holds(&browser, "return document.querySelector('main').inert").await?;
        ask(&browser, anywhere).await?;
        browser.web().active_element().await?.send_keys(ESCAPE).await?;
        holds(&browser, "return !document.querySelector('main').inert && document.activeElement.matches('main .menu')").await?;
    }
    browser.role("button", "Conversations").await?.click().await?;
    holds(&browser, "return document.querySelector('main').inert").await?;
    inspect(&browser, "drawer").await?;
    // There is no drawer on a wide page, so nothing is left inert.
    holds(&browser, "return !document.querySelector('main').inert").await
}

#[tokio::test]
async fn texts_run_the_way_their_script_does() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    fill(&browser, r"'שלום [[say:שלום עולם\n\n- אחת\n- שתיים\n\n> ציטוט\n\nEnglish again.]]'").await?;
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 1, "success").await?;
    browser.label("Message").await?.send_keys("مرحبا").await?;
    browser.shows("English again.").await?;
    let direction = "return ['.bubble', '.prose p', '.prose ul', '.prose blockquote', '.prose > p:last-child', '#composer', \
        '.thread-title', 'h1'].map((it) => getComputedStyle(document.querySelector(it)).direction)";
    assert_eq!(ask(&browser, direction).await?, json!(["rtl", "rtl", "rtl", "rtl", "ltr", "rtl", "rtl", "rtl"]));
    let mirrored = "const it = (name) => getComputedStyle(document.querySelector(name)); \
        return [it('.prose ul').paddingRight !== '0px', it('.prose ul').paddingLeft, it('.prose blockquote').borderRightWidth, \
        it('.prose blockquote').borderLeftWidth]";
    assert_eq!(ask(&browser, mirrored).await?, json!([true, "0px", "3px", "0px"]));
    inspect(&browser, "right-to-left").await
}

#[tokio::test]
async fn the_list_says_who_waits_for_whom() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"]}]]"#).await?;
    browser.role("button", "blue").await?;
    let listed = "return document.querySelector('[data-testid=thread-item]')?.innerText.includes('Waiting for you') === true";
    holds(&browser, listed).await?;
    inspect(&browser, "waiting").await?;
    browser.role("button", "blue").await?.click().await?;
    answered(&browser, 1, "success").await?;
    browser.hides("Waiting for you").await
}

#[tokio::test]
async fn where_one_is_shows_without_colours_too() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:hello]]").await?;
    browser.css(".thread.current").await?;
    let features = json!({"features": [{"name": "forced-colors", "value": "active"}]});
    browser.devtools("Emulation.setEmulatedMedia", features).await?;
    holds(&browser, "return getComputedStyle(document.querySelector('.thread.current')).outlineStyle === 'solid'").await?;
    browser.screenshot("forced-colours").await?;
    Ok(())
}

#[tokio::test]
async fn the_skip_link_leads_to_the_message_box_and_is_only_where_that_is() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    browser.open(&house.server.url).await?;
    browser.label("Name").await?;
    assert_eq!(browser.count(".skip").await?, 0);
    sign_in(&house, &browser).await?;
    ask(&browser, "document.querySelector('.skip').focus()").await?;
    browser.web().active_element().await?.send_keys("\u{e007}").await?;
    holds(&browser, "return document.activeElement.id === 'composer'").await
}

#[tokio::test]
async fn deleting_the_open_conversation_asks_for_nothing_that_is_gone() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    // That nobody was signed in.
    browser.console_errors().await?;
    send(&browser, "[[say:soon gone]]").await?;
    answered(&browser, 1, "success").await?;
    let name = "Delete “[[say:soon gone]]”";
    browser.role("button", name).await?.click().await?;
    browser.role("button", "Delete").await?.click().await?;
    holds(&browser, "return location.pathname === '/demo/assistant' && !document.querySelector('dialog')").await?;
    browser.shows("Your conversations will be listed here.").await?;
    // Its notification has come by now: it is sent before the answer.
    assert_eq!(browser.console_errors().await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_page_that_broke_says_so_and_can_be_loaded_again() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    // What the page takes for impossible: the browser refuses to make an element.
    let sabotage = "const make = document.createElement.bind(document); \
        document.createElement = (tag) => { if (tag === 'article') throw new Error('no'); return make(tag) }";
    ask(&browser, sabotage).await?;
    send(&browser, "[[say:recorded all the same]]").await?;
    browser.shows("This page has stopped working. Replies and all that was recorded are safe at the server.").await?;
    inspect(&browser, "panic").await?;
    browser.role("button", "Reload the page").await?.click().await?;
    browser.label("Message").await?;
    browser.shows("[[say:recorded all the same]]").await
}
