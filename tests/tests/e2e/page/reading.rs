//! Reading and answering: a page that follows and lets go, what can be copied, what is wider than the screen, and hands that stay on
//! the keyboard.

use anyhow::{Result, ensure};
use serde_json::json;
use turnfast_tests::browser::Browser;

use super::{answered, ask, fill, holds, send, sign_in, sign_in_at};
use crate::House;

const TAB: &str = "\u{e004}";
const SHIFT_TAB: &str = "\u{e008}\u{e004}\u{e000}";
const ENTER: &str = "\u{e007}";
const SPACE: &str = "\u{e00d}";

/// Waits until the end of the conversation is in sight, or is not.
async fn at_end(browser: &Browser, expected: bool) -> Result<()> {
    let script = format!(
        "const it = document.querySelector('.scroll'); return (it.scrollHeight - it.scrollTop - it.clientHeight < 2) === {expected}"
    );
    holds(browser, &script).await
}

async fn position(browser: &Browser) -> Result<serde_json::Value> {
    ask(browser, "return document.querySelector('.scroll').scrollTop").await
}

async fn wheel(browser: &Browser, distance: i32) -> Result<()> {
    let turn = json!({"type": "mouseWheel", "x": 700, "y": 300, "deltaX": 0, "deltaY": distance});
    browser.devtools("Input.dispatchMouseEvent", turn).await.map(drop)
}

#[tokio::test]
async fn the_page_follows_a_reply_until_the_reader_scrolls_away() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    browser.prefers(false, true).await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[markdown:9000]][[hold:one]][[markdown:9000]][[hold:two]][[markdown:9000]][[say:The end.]]").await?;
    holds(&browser, "return document.querySelectorAll('.prose h3').length > 3").await?;
    at_end(&browser, true).await?;
    // A smaller screen, as with a keyboard on it, or a longer draft takes nothing of the end away.
    browser.viewport(1280, 500).await?;
    at_end(&browser, true).await?;
    fill(&browser, "'line\\n'.repeat(8)").await?;
    at_end(&browser, true).await?;
    fill(&browser, "''").await?;
    browser.viewport(1280, 800).await?;
    at_end(&browser, true).await?;

    wheel(&browser, -900).await?;
    at_end(&browser, false).await?;
    browser.test_id("jump").await?;
    let (before, sections) =
        (position(&browser).await?, ask(&browser, "return document.querySelectorAll('.prose h3').length").await?);
    house.provider.release("one").await?;
    holds(&browser, &format!("return document.querySelectorAll('.prose h3').length > {sections} + 3")).await?;
    assert_eq!(position(&browser).await?, before, "the page leaves the reader alone");
    at_end(&browser, false).await?;

    browser.role("button", "Jump to latest").await?.click().await?;
    at_end(&browser, true).await?;
    house.provider.release("two").await?;
    browser.shows("The end.").await?;
    answered(&browser, 1, "success").await?;
    at_end(&browser, true).await?;
    // What the person sends is what they want to see next, wherever they were.
    wheel(&browser, -900).await?;
    at_end(&browser, false).await?;
    send(&browser, "[[say:And another.]]").await?;
    browser.shows("And another.").await?;
    at_end(&browser, true).await
}

#[tokio::test]
async fn all_of_a_long_conversation_can_be_found_and_reached() -> Result<()> {
    let house = House::open().await?;
    let mut first = house.alice.say("assistant", "[[say:the very first]][[say: words of all]]").await?;
    first.done().await?;
    for _ in 0..40 {
        house.alice.say_in("assistant", first.started.thread, "[[markdown:600]]").await?.done().await?;
    }
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    browser.open(&format!("{}/demo/assistant/{}", house.server.url, first.started.thread)).await?;
    holds(&browser, "return document.querySelectorAll('.message').length === 82").await?;
    at_end(&browser, true).await?;
    // What the browser's own search finds, it shows.
    holds(&browser, "return window.find('first words of all', false, true)").await?;
    let seen =
        "const {top, bottom} = getSelection().getRangeAt(0).getBoundingClientRect(); return top >= 0 && bottom <= innerHeight";
    holds(&browser, seen).await?;
    // And so do the keys of somebody who has no mouse.
    browser.css(".scroll").await?.send_keys("\u{e010}").await?;
    at_end(&browser, true).await?;
    browser.css(".scroll").await?.send_keys("\u{e011}").await?;
    holds(&browser, "return document.querySelector('.scroll').scrollTop === 0").await
}

#[tokio::test]
async fn code_and_whole_replies_can_be_copied_as_they_were_written() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    let permissions = json!({"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": house.server.url});
    browser.devtools("Browser.grantPermissions", permissions).await?;
    let code = "fn main() {\n    println!(\"<b> & *c*\");\n}\n";
    let reply = format!("Some *code*:\n\n```rust\n{code}```");
    fill(&browser, &serde_json::to_string(&format!("[[say:{reply}]]"))?).await?;
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 1, "success").await?;
    let clipboard = async || browser.execute_async("navigator.clipboard.readText().then(arguments[arguments.length - 1])").await;
    browser.css("[data-copy]").await?.click().await?;
    browser.role("button", "Copied").await?;
    assert_eq!(clipboard().await?, code);
    // The button says what it does again.
    holds(&browser, "return document.querySelector('[data-copy]').textContent === 'Copy'").await?;
    browser.css(".meta .copy").await?.send_keys(ENTER).await?;
    holds(&browser, "return document.querySelector('.meta .copy').textContent === 'Copied'").await?;
    assert_eq!(clipboard().await?, reply);
    Ok(())
}

#[tokio::test]
async fn what_is_wider_than_a_phone_scrolls_in_its_own_place_and_by_the_keyboard() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    let cells = "| a rather long cell ".repeat(8);
    let reply = format!("{cells}|\n{}|\n{cells}|\n\n```\n{}\n```", "| --- ".repeat(8), "x".repeat(400));
    fill(&browser, &serde_json::to_string(&format!("[[say:{reply}]]"))?).await?;
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 1, "success").await?;
    browser.viewport(390, 844).await?;
    for selector in [".table", ".code pre"] {
        let wide = format!(
            "const it = document.querySelector({selector:?}); it.focus(); \
             return it.scrollWidth > it.clientWidth && document.activeElement === it"
        );
        holds(&browser, &wide).await?;
        browser.css(selector).await?.send_keys("\u{e014}").await?;
        holds(&browser, &format!("return document.querySelector({selector:?}).scrollLeft > 0")).await?;
    }
    assert_eq!(ask(&browser, "return document.documentElement.scrollWidth > innerWidth").await?, false);
    Ok(())
}

/// Presses a key until the focus is on something with that name, as whoever has no mouse does.
async fn reach(browser: &Browser, key: &str, name: &str) -> Result<()> {
    let focused = "const it = document.activeElement; return (it.labels?.[0]?.innerText || it.getAttribute('aria-label') || it.innerText || '').trim()";
    for _ in 0..40 {
        browser.web().active_element().await?.send_keys(key).await?;
        if ask(browser, focused).await? == name {
            holds(browser, "return document.activeElement.matches(':focus-visible')").await?;
            return Ok(());
        }
    }
    ensure!(false, "`{name}` is out of reach");
    Ok(())
}

async fn press(browser: &Browser, key: &str) -> Result<()> {
    Ok(browser.web().active_element().await?.send_keys(key).await?)
}

#[tokio::test]
async fn approvals_and_questions_are_answered_without_a_mouse() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/careful").await?;
    let composes = "return document.activeElement.id === 'composer'";
    holds(&browser, composes).await?;
    let say = async |text: &str| -> Result<()> {
        browser.web().active_element().await?.send_keys(text).await?;
        press(&browser, ENTER).await
    };
    say(r#"[[tool:clock:{"timezone":"UTC"}]][[say:done]]"#).await?;
    browser.role("button", "Approve").await?;
    reach(&browser, SHIFT_TAB, "Approve").await?;
    press(&browser, ENTER).await?;
    answered(&browser, 1, "success").await?;
    holds(&browser, composes).await?;

    say(r#"[[tool:clock:{"timezone":"UTC"}]][[say:done]]"#).await?;
    browser.role("button", "Deny").await?;
    reach(&browser, SHIFT_TAB, "Reason, if you like (the agent reads it)").await?;
    press(&browser, "not now").await?;
    reach(&browser, TAB, "Deny").await?;
    press(&browser, SPACE).await?;
    answered(&browser, 2, "success").await?;
    browser.shows("not now").await?;

    say(r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"],"freeText":true}]][[say:done]]"#).await?;
    browser.role("button", "blue").await?;
    reach(&browser, SHIFT_TAB, "red").await?;
    reach(&browser, TAB, "blue").await?;
    press(&browser, SPACE).await?;
    answered(&browser, 3, "success").await?;

    say(r#"[[tool:ask_user:{"question":"What is your name?"}]][[say:done]]"#).await?;
    browser.role("button", "Answer").await?;
    reach(&browser, SHIFT_TAB, "Your answer").await?;
    press(&browser, "Ada").await?;
    press(&browser, ENTER).await?;
    answered(&browser, 4, "success").await?;
    browser.shows("Ada").await?;
    holds(&browser, composes).await?;

    // What a call was given and gave unfolds by the keyboard too.
    reach(&browser, SHIFT_TAB, "Copy").await?;
    browser.css("[data-testid=tool-card] summary").await?.send_keys(ENTER).await?;
    browser.shows("Input").await
}
