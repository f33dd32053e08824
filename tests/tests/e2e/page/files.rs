//! Files: chosen, pasted, dropped, taken back, sent and shown.

use std::fs;

use anyhow::Result;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use turnfast_tests::browser::Browser;

use super::{answered, ask, holds, in_sight, inspect, send, sign_in, sign_in_at};
use crate::House;

/// A picture of one red dot.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/// Chooses files as a person does in the browser's own dialog.
async fn choose(browser: &Browser, house: &House, files: &[(&str, &[u8])]) -> Result<()> {
    for (name, data) in files {
        let path = house.installation.folder().join(name);
        fs::write(&path, data)?;
        let field = browser.test_id("files").await?;
        field.send_keys(&path.display().to_string()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn files_are_chosen_taken_back_sent_and_shown() -> Result<()> {
    let house = House::open_with("[limits]\nmax_attachments = 3\nmax_attachment_bytes = 1000").await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    browser.role("button", "Attach files").await?;
    let dot = STANDARD.decode(DOT)?;
    choose(&browser, &house, &[("dot.png", &dot), ("notes.md", b"# Notes"), ("spare.txt", b"spare")]).await?;
    for name in ["dot.png", "notes.md", "spare.txt"] {
        browser.role("button", &format!("Remove {name}")).await?;
    }
    inspect(&browser, "files-chosen").await?;
    choose(&browser, &house, &[("fourth.txt", b"too many")]).await?;
    browser.shows("Only 3 files go with one message").await?;

    // By the keyboard.
    browser.role("button", "Remove spare.txt").await?.send_keys("\u{e007}").await?;
    holds(&browser, "return document.querySelectorAll('[data-testid=chosen-file]').length === 2").await?;
    for (name, data, why) in
        [("odd.zip", b"PK\x03\x04".as_slice(), "only pictures"), ("big.txt", &[b'x'; 1001], "a file has at most 1000 B")]
    {
        choose(&browser, &house, &[(name, data)]).await?;
        browser.shows(why).await?;
        in_sight(&browser, "[data-testid=file-trouble]").await?;
        assert_eq!(browser.count("[data-testid=chosen-file]").await?, 2, "{name} is not added");
    }
    inspect(&browser, "files-refused").await?;

    send(&browser, "[[words:1]][[hold:gate]]").await?;
    browser.shows("word1").await?;
    assert_eq!(browser.count("[data-testid=chosen-file]").await?, 0);
    // The record is not read while the reply streams, and yet the message shows what it took along.
    browser.shows("notes.md").await?;
    house.provider.release("gate").await?;
    answered(&browser, 1, "success").await?;
    holds(&browser, "return document.querySelector('[data-testid=message-user] img[alt=\"dot.png\"]')?.naturalWidth === 1")
        .await?;
    let link = browser.role("link", "notes.md text/markdown, 7 B").await?;
    assert_eq!(link.attr("download").await?.as_deref(), Some("notes.md"));
    inspect(&browser, "files-sent").await?;
    let content = &house.provider.request(0).await?.body["messages"][1]["content"];
    assert_eq!(content[1]["image_url"]["url"], json!(format!("data:image/png;base64,{DOT}")));
    let errors = browser.console_errors().await?;
    assert!(errors.iter().all(|error| error.contains("/auth/me")), "beside that nobody was signed in at first: {errors:?}");
    Ok(())
}

#[tokio::test]
async fn files_are_pasted_and_dropped() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    let carry = "const data = new DataTransfer(); data.items.add(new File(['one'], NAME, {type: 'text/plain'})); ";
    let paste = "document.querySelector('#composer').dispatchEvent(new ClipboardEvent('paste', \
        {clipboardData: data, bubbles: true, cancelable: true}))";
    let drop = "const over = new DragEvent('dragover', {dataTransfer: data, bubbles: true, cancelable: true}); \
        document.querySelector('.messages').dispatchEvent(over); \
        document.querySelector('.messages').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})); \
        return over.defaultPrevented";
    ask(&browser, &format!("{carry}{paste}").replace("NAME", "'pasted.txt'")).await?;
    browser.role("button", "Remove pasted.txt").await?;
    let taken = ask(&browser, &format!("{carry}{drop}").replace("NAME", "'dropped.txt'")).await?;
    assert_eq!(taken, true, "the browser does not leave for the file");
    browser.role("button", "Remove dropped.txt").await?;

    // Only files, and no word.
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 1, "success").await?;
    assert_eq!(browser.count("[data-testid=message-user] [data-testid=file]").await?, 2);
    assert_eq!(browser.count(".bubble").await?, 0, "nothing was typed");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_takes_no_files_offers_none() -> Result<()> {
    let reader = "[[agents]]\nproject = \"demo\"\nid = \"reader\"\nname = \"Reader\"\nengine = \"demo\"\nattachments = false";
    let house = House::open_with(reader).await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/reader").await?;
    browser.label("Message").await?;
    assert!(!browser.has_role("button", "Attach files").await?);
    let drop = "const data = new DataTransfer(); data.items.add(new File(['one'], 'dropped.txt')); \
        document.querySelector('main').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))";
    ask(&browser, drop).await?;
    browser.shows("This agent takes no files.").await?;
    assert_eq!(browser.count("[data-testid=chosen-file]").await?, 0);
    Ok(())
}
