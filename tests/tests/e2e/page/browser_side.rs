//! Contract 1, section 7, in a real browser: one test or more for each of its bullets, in its order.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Notify, oneshot},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;
use turnfast_shared::ids::ThreadId;
use turnfast_tests::{browser::Browser, within};

use super::{answered, ask, fill_in, holds, messages, send, sign_in, sign_in_at};
use crate::House;

/// Notes what the page asks of the network and of its clock, and lets a test answer in the network's place (`meddle`) or make the
/// clock run (`fire`). What is not meddled with goes the real way.
const SPY: &str = r"
    const real = {fetch: window.fetch.bind(window), EventSource, setTimeout: window.setTimeout.bind(window)};
    window.real = real;
    window.calls = [];
    window.fetch = (url, options = {}) => {
        window.calls.push(`${options.method ?? 'GET'} ${new URL(url, location).pathname}`);
        return window.meddle?.(String(url), options) ?? real.fetch(url, options);
    };
    window.sources = [];
    window.EventSource = class extends EventSource { constructor(...all) { super(...all); window.sources.push(this) } };
    const timers = new Map();
    const clear = window.clearTimeout.bind(window);
    window.setTimeout = (act, after, ...all) => {
        const id = real.setTimeout(() => { if (timers.delete(id)) act(...all) }, after);
        timers.set(id, {act: () => act(...all), after});
        return id;
    };
    window.clearTimeout = (id) => { timers.delete(id); clear(id) };
    window.fire = (from, to = Infinity) => {
        const due = [...timers].filter(([, {after}]) => after >= from && after <= to);
        for (const [id, {act}] of due) if (timers.delete(id)) { clear(id); act() }
        return due.length;
    };
    window.setInterval = () => { throw new Error('nothing is done at intervals') };
    window.reads = () => window.calls.filter((call) => /^GET .*\/messages$/.test(call)).length;
    window.shown = 0;
    document.addEventListener('visibilitychange', () => { if (!document.hidden) window.shown++ });
    window.made = (pattern) => window.calls.filter((call) => new RegExp(pattern).test(call)).length;
";

/// A browser whose tab is spied on, signed in as alice at the assistant.
async fn spied(house: &House) -> Result<Browser> {
    let browser = Browser::start().await?;
    browser.before_each_page(SPY).await?;
    sign_in(house, &browser).await?;
    Ok(browser)
}

/// How many reads of a thread the page has asked for since it was loaded.
async fn reads(browser: &Browser) -> Result<u64> {
    ask(browser, "return reads()").await?.as_u64().context("a count")
}

/// How many requests the page has made that fit a pattern.
async fn made(browser: &Browser, pattern: &str) -> Result<u64> {
    ask(browser, &format!("return made({pattern:?})")).await?.as_u64().context("a count")
}

/// The open thread's id, from the address.
async fn thread(browser: &Browser) -> Result<ThreadId> {
    let address = browser.web().current_url().await?;
    Ok(address.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default().parse()?)
}

/// What stands in the message box.
async fn draft(browser: &Browser) -> Result<String> {
    browser.label("Message").await?;
    let value = ask(browser, "return document.querySelector('#composer').value").await?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// Why Send does nothing, as the page tells its tests.
async fn blocked(browser: &Browser, why: &str) -> Result<()> {
    holds(browser, &format!("return document.querySelector('[data-testid=send-blocked]')?.dataset.why === {why:?}")).await
}

/// Hides the tab, as minimising its window does, and shows it again.
async fn hide(browser: &Browser) -> Result<()> {
    browser.web().minimize_window().await?;
    holds(browser, "return document.visibilityState === 'hidden'").await
}

async fn show(browser: &Browser) -> Result<()> {
    browser.web().set_window_rect(0, 0, 1280, 900).await?;
    holds(browser, "return document.visibilityState === 'visible'").await
}

/// Waits until nothing runs and the page knows it.
async fn quiet(browser: &Browser) -> Result<()> {
    holds(browser, "return document.querySelector('[data-testid=status]')?.dataset.state === 'idle'").await
}

/// A thread with one turn, in which the agent said `text`; shown by the page.
async fn with_one_turn(browser: &Browser, text: &str) -> Result<()> {
    send(browser, &format!("[[say:{text}]]")).await?;
    answered(browser, 1, "success").await?;
    quiet(browser).await
}

// On open: read; sending is blocked until the first read succeeds or fails for good.

#[tokio::test]
async fn on_open_it_reads_and_sending_waits_for_that() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    browser.hold(&["*/messages*"]).await?;
    browser.web().refresh().await?;
    browser.label("Message").await?.send_keys("[[say:second]]").await?;
    blocked(&browser, "loading").await?;
    browser.role("button", "Send").await?.click().await?;
    assert_eq!(made(&browser, "^POST .*/chat$").await?, 0, "nothing is sent before the first read");
    assert_eq!(reads(&browser).await?, 1);
    browser.let_go().await?;
    browser.shows("first").await?;
    assert_eq!(draft(&browser).await?, "[[say:second]]");
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 2, "success").await?;
    quiet(&browser).await?;

    // A first read that fails for good does not keep a person from sending either; what was said shows with the reply.
    browser.block(&["*/messages*"]).await?;
    browser.web().refresh().await?;
    browser.shows("The conversation could not be loaded").await?;
    browser.block(&[]).await?;
    send(&browser, "[[say:third]]").await?;
    answered(&browser, 3, "success").await?;
    assert!(messages(&browser).await?.contains("first"));
    Ok(())
}

// Reads happen on: open, a notification for this thread, push (re)connected, tab visible again, thread switched, the live stream
// ended. There is no polling. One read is in flight at a time, and at most one waits behind it.

#[tokio::test]
async fn reads_have_an_occasion_and_there_is_no_polling() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let open = thread(&browser).await?;
    assert_eq!(reads(&browser).await?, 1, "the live stream ended");

    browser.web().refresh().await?;
    browser.shows("first").await?;
    holds(&browser, "return sources.length === 1 && sources[0].readyState === 1").await?;
    quiet(&browser).await?;
    // The page opened the thread, and then push connected.
    holds(&browser, "return reads() === 1 || reads() === 2").await?;

    let before = reads(&browser).await?;
    house.alice.say_in("assistant", open, "[[say:from elsewhere]]").await?.done().await?;
    browser.shows("from elsewhere").await?;
    answered(&browser, 2, "success").await?;
    quiet(&browser).await?;
    assert!(reads(&browser).await? > before, "a notification");

    let before = reads(&browser).await?;
    hide(&browser).await?;
    assert_eq!(reads(&browser).await?, before, "a hidden tab reads nothing by itself");
    show(&browser).await?;
    holds(&browser, &format!("return reads() === {}", before + 1)).await?;

    ask(&browser, "sources[0].dispatchEvent(new Event('error'))").await?;
    holds(&browser, "fire(1000); return sources.length === 2 && sources[1].readyState === 1").await?;
    holds(&browser, &format!("return reads() === {}", before + 2)).await?;

    browser.test_id("new-thread").await?.click().await?;
    browser.shows("What should Assistant do?").await?;
    browser.web().back().await?;
    browser.shows("from elsewhere").await?;
    holds(&browser, &format!("return reads() === {}", before + 3)).await?;
    quiet(&browser).await?;

    // Whatever the page waits for: when that time is over, it reads nothing.
    for _ in 0..5 {
        let fired = ask(&browser, "return fire(0)").await?;
        assert!(fired.as_u64().is_some(), "{fired}");
    }
    assert_eq!(reads(&browser).await?, before + 3, "there is no polling");
    Ok(())
}

#[tokio::test]
async fn one_read_is_in_flight_and_one_at_most_waits_behind_it() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let before = reads(&browser).await?;
    browser.hold(&["*/messages*"]).await?;
    for _ in 0..5 {
        hide(&browser).await?;
        show(&browser).await?;
    }
    assert_eq!(reads(&browser).await?, before + 1, "one is in flight");
    browser.let_go().await?;
    holds(&browser, &format!("return reads() === {}", before + 2)).await?;
    // The last of them is over: whatever comes now is another one's.
    holds(&browser, "return !document.querySelector('[data-state=reconnecting]')").await?;
    hide(&browser).await?;
    show(&browser).await?;
    holds(&browser, &format!("return reads() === {}", before + 3)).await
}

// A read is dropped when a newer one was issued for what it was to show, when the thread was switched, or when the machine is
// disposed. A snapshot with a lower revision than the one shown is dropped.

#[tokio::test]
async fn a_read_of_a_thread_that_was_left_shows_nothing() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "of one thread").await?;
    let first = thread(&browser).await?;
    browser.test_id("new-thread").await?.click().await?;
    browser.shows("What should Assistant do?").await?;
    with_one_turn(&browser, "of another").await?;
    let second = thread(&browser).await?;
    let shows = async |text: &str| {
        let only =
            "['of one thread', 'of another'].filter((it) => document.querySelector('.messages').textContent.includes(it)).join()";
        holds(&browser, &format!("return {only} === {text:?}")).await
    };

    browser.hold(&[&format!("*{first}/messages*")]).await?;
    browser.css(&format!("a[href$='{first}']")).await?.click().await?;
    browser.test_id("loading").await?;
    browser.css(&format!("a[href$='{second}']")).await?.click().await?;
    shows("of another").await?;
    browser.let_go().await?;
    quiet(&browser).await?;
    // Whatever came of the first read is over when a second one of the same thread is answered.
    ask(
        &browser,
        &format!("real.fetch('/projects/demo/agents/v2/assistant/chat/{first}/messages').then(() => {{ window.over = true }})"),
    )
    .await?;
    holds(&browser, "return window.over === true").await?;
    shows("of another").await?;
    browser.css(&format!("a[href$='{first}']")).await?.click().await?;
    shows("of one thread").await
}

#[tokio::test]
async fn what_is_on_screen_never_goes_back() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    // Something between page and server keeps an old answer, and gives it once more.
    let path = format!("/projects/demo/agents/v2/assistant/chat/{}/messages", thread(&browser).await?);
    ask(&browser, &format!("real.fetch({path:?}).then((it) => it.text()).then((it) => {{ window.old = it }})")).await?;
    holds(&browser, "return !!window.old").await?;
    send(&browser, "[[say:second]]").await?;
    answered(&browser, 2, "success").await?;
    quiet(&browser).await?;
    let stale = "window.given = 0; window.meddle = (url) => url.includes('/messages') ? \
        (given++, Promise.resolve(new Response(old, {headers: {'content-type': 'application/json'}}))) : undefined";
    ask(&browser, stale).await?;
    hide(&browser).await?;
    show(&browser).await?;
    holds(&browser, "fire(500); return given >= 3").await?;
    assert!(messages(&browser).await?.contains("second"), "an older snapshot is dropped");
    assert_eq!(browser.count("[data-testid=message-assistant]").await?, 2);
    Ok(())
}

// While its own stream is live, notifications wait: one read at its end. Live events and the read that follows never show the same
// text twice: messages are keyed by id.

#[tokio::test]
async fn while_its_own_stream_is_live_notifications_wait() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    ask(&browser, "window.told = 0; new BroadcastChannel('turnfast-push ').onmessage = ({data}) => { if (data.includes('agentExecutionUpdated')) told++ }")
        .await?;
    send(&browser, "[[words:3]][[hold:gate]][[words:3]][[hold:more]][[say: and the rest]]").await?;
    browser.shows("word1 word2 word3").await?;
    let element = "window.live = document.querySelector('[data-testid=message-assistant][data-status=running]'); window.told = 0";
    ask(&browser, element).await?;
    let before = reads(&browser).await?;
    house.provider.release("gate").await?;
    browser.shows("word1 word2 word3word1 word2 word3").await?;
    holds(&browser, "return told > 0").await?;
    assert_eq!(reads(&browser).await?, before, "notifications wait");
    house.provider.release("more").await?;
    answered(&browser, 2, "success").await?;
    quiet(&browser).await?;
    assert_eq!(reads(&browser).await?, before + 1, "one read at its end");
    let said = messages(&browser).await?;
    assert_eq!(said.matches("word1 word2 word3word1 word2 word3 and the rest").count(), 1, "{said}");
    holds(&browser, "return live.isConnected && live.dataset.status === 'success'").await
}

// A failed read keeps the last known state, says so unobtrusively, and is retried after 1 s and 2 s, then on the next occasion. 404
// clears the screen only on the first load with nothing active.

#[tokio::test]
async fn a_failed_read_keeps_what_is_shown_and_is_tried_twice_more() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let before = reads(&browser).await?;
    browser.block(&["*/messages*"]).await?;
    hide(&browser).await?;
    show(&browser).await?;
    browser.shows("Reconnecting…").await?;
    browser.shows("Not up to date.").await?;
    assert_eq!(reads(&browser).await?, before + 3, "once, after 1 s and after 2 s");
    assert!(messages(&browser).await?.contains("first"), "what was known stays");
    assert_eq!(browser.count("[role=alert], dialog").await?, 0, "it is said unobtrusively");
    ask(&browser, "fire(500)").await?;
    assert_eq!(reads(&browser).await?, before + 3, "then it waits for an occasion");
    browser.block(&[]).await?;
    hide(&browser).await?;
    show(&browser).await?;
    quiet(&browser).await?;
    assert_eq!(reads(&browser).await?, before + 4);
    Ok(())
}

#[tokio::test]
async fn a_404_clears_the_screen_only_on_the_first_load() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let missing = "window.meddle = (url) => url.includes('/messages') ? Promise.resolve(new Response(JSON.stringify({type: 'about:blank', \
        title: 'Not Found', status: 404, code: 'not_found', detail: 'No.'}), \
        {status: 404, headers: {'content-type': 'application/problem+json'}})) : undefined";
    ask(&browser, missing).await?;
    hide(&browser).await?;
    show(&browser).await?;
    browser.shows("This conversation is gone").await?;
    assert!(messages(&browser).await?.contains("first"), "what was shown stays");
    browser.before_each_page(missing).await?;
    browser.web().refresh().await?;
    browser.role("heading", "There is no such conversation").await?;
    assert!(!browser.text().await?.contains("first\n"));
    Ok(())
}

// Submit: blocked while a turn runs, while loading, or while an interaction is open; the draft stays editable and is kept per thread
// across reloads.

#[tokio::test]
async fn a_draft_can_be_written_in_every_state_and_survives_reloads_in_its_own_thread() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    send(&browser, "[[words:3]][[hold:gate]]").await?;
    browser.shows("word3").await?;
    browser.label("Message").await?.send_keys("while it runs").await?;
    blocked(&browser, "running").await?;
    browser.role("button", "Send").await?.click().await?;
    browser.hold(&["*/messages*"]).await?;
    browser.web().refresh().await?;
    assert_eq!(draft(&browser).await?, "while it runs");
    blocked(&browser, "loading").await?;
    browser.label("Message").await?.send_keys(", and while it loads").await?;
    browser.role("button", "Send").await?.click().await?;
    browser.let_go().await?;
    browser.shows("word3").await?;
    blocked(&browser, "running").await?;
    assert_eq!(draft(&browser).await?, "while it runs, and while it loads");
    house.provider.release("gate").await?;
    answered(&browser, 1, "success").await?;
    let first = browser.web().current_url().await?;

    browser.test_id("new-thread").await?.click().await?;
    browser.hides("word3").await?;
    assert_eq!(draft(&browser).await?, "", "another thread has another draft");
    send(&browser, r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"]}]]"#).await?;
    browser.role("button", "blue").await?;
    browser.label("Message").await?.send_keys("while it asks").await?;
    blocked(&browser, "interaction-open").await?;
    browser.role("button", "Send").await?.click().await?;
    browser.web().refresh().await?;
    browser.role("button", "blue").await?;
    blocked(&browser, "interaction-open").await?;
    assert_eq!(draft(&browser).await?, "while it asks");
    browser.open(first.as_str()).await?;
    browser.shows("word3").await?;
    assert_eq!(draft(&browser).await?, "while it runs, and while it loads");
    assert_eq!(house.provider.requests().await?.len(), 2, "nothing was sent that was not to be");
    Ok(())
}

// The draft is cleared by `execution-started`, by nothing else: an HTTP error, a busy answer, a dropped connection before acceptance
// all keep it. The client never re-sends by itself: after a connection that broke before any answer it reads, and if its `messageId`
// is in the thread the draft is cleared, else it stays for the person.

#[tokio::test]
async fn the_draft_is_cleared_by_acceptance_and_by_nothing_else() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let open = thread(&browser).await?;

    // An error.
    let refuse = "window.meddle = (url) => url.endsWith('/chat') ? Promise.resolve(new Response('<h1>Bad gateway</h1>', {status: 502})) : \
        undefined";
    ask(&browser, refuse).await?;
    send(&browser, "[[say:second]]").await?;
    browser.shows("The message was not sent.").await?;
    assert_eq!(draft(&browser).await?, "[[say:second]]");
    ask(&browser, "window.meddle = undefined").await?;

    // A busy answer. The page does not know yet that a turn runs: its reads are held.
    browser.hold(&["*/messages*"]).await?;
    let mut elsewhere = house.alice.say_in("assistant", open, "[[words:3]][[hold:gate]]").await?;
    elsewhere.until_text("word3").await?;
    browser.role("button", "Send").await?.click().await?;
    browser.shows("A reply is still being written in this conversation.").await?;
    assert_eq!(draft(&browser).await?, "[[say:second]]");
    browser.let_go().await?;
    browser.shows("word3").await?;
    house.provider.release("gate").await?;
    answered(&browser, 2, "success").await?;

    // Until the turn has begun it stays; a reload in between is nothing to it.
    browser.hold(&["*/chat"]).await?;
    browser.role("button", "Send").await?.click().await?;
    browser.shows("Sending…").await?;
    assert_eq!(draft(&browser).await?, "[[say:second]]");
    browser.let_go().await?;
    answered(&browser, 3, "success").await?;
    assert_eq!(draft(&browser).await?, "");
    assert_eq!(house.provider.requests().await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_connection_that_breaks_before_any_answer_is_followed_by_a_read_and_never_by_a_second_submit() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    // The server gets the message, and its answer gets lost.
    let lose = "window.meddle = (url, options) => url.endsWith('/chat') ? real.fetch(url, options) \
        .then((it) => it.body.getReader().read()).then(() => Promise.reject(new TypeError('the connection broke'))) : undefined";
    ask(&browser, lose).await?;
    send(&browser, "[[say:it did arrive]]").await?;
    answered(&browser, 2, "success").await?;
    assert_eq!(draft(&browser).await?, "", "the thread has it");
    assert_eq!(made(&browser, "^POST .*/chat$").await?, 2);

    // It never gets there.
    let drop =
        "window.meddle = (url) => url.endsWith('/chat') ? Promise.reject(new TypeError('the connection broke')) : undefined";
    ask(&browser, drop).await?;
    send(&browser, "[[say:it did not]]").await?;
    browser.shows("It stays in the box: send it again.").await?;
    assert_eq!(draft(&browser).await?, "[[say:it did not]]");
    assert_eq!(made(&browser, "^POST .*/chat$").await?, 3, "the page does not send by itself");
    ask(&browser, "window.meddle = undefined; fire(0)").await?;
    assert_eq!(made(&browser, "^POST .*/chat$").await?, 3);
    browser.role("button", "Send").await?.click().await?;
    answered(&browser, 3, "success").await?;
    assert_eq!(house.provider.requests().await?.len(), 3, "nothing was submitted twice");
    Ok(())
}

// Stop: one request per execution, a second click does nothing; the button says "stopping" until the record shows the end.
// `cancelRequested: false` or a failed request makes it usable again. A Stop pressed before `execution-started` arrived is kept and
// sent when the id is known; given up after 30 s.

#[tokio::test]
async fn a_second_click_on_stop_does_nothing_and_stopping_lasts_until_the_record_shows_the_end() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    let address = browser.web().current_url().await?;
    // A tab that learns the end from the record alone.
    browser.open_beside("about:blank", true).await?;
    browser.before_each_page(SPY).await?;
    browser.open(address.as_str()).await?;
    browser.shows("word3").await?;
    browser.hold(&["*/messages*"]).await?;
    browser.role("button", "Stop").await?.click().await?;
    let stopping = browser.role("button", "Stopping…").await?;
    stopping.click().await?;
    browser.web().active_element().await?.send_keys("\u{e00c}").await?;
    house.provider.end_of(0).await?;
    browser.role("button", "Stopping…").await?;
    assert_eq!(made(&browser, "^DELETE .*/executions/").await?, 1);
    browser.let_go().await?;
    answered(&browser, 1, "cancelled").await?;
    holds(&browser, "return !document.querySelector('[data-testid=stop]')").await
}

#[tokio::test]
async fn a_stop_that_came_to_nothing_can_be_pressed_again() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    browser.block(&["*/executions/*"]).await?;
    browser.role("button", "Stop").await?.click().await?;
    browser.shows("Stop did not reach the turn.").await?;
    browser.block(&[]).await?;
    let too_late = "window.meddle = (url) => url.includes('/executions/') ? Promise.resolve(new Response('{\"cancelRequested\":false}', \
        {headers: {'content-type': 'application/json'}})) : undefined";
    ask(&browser, too_late).await?;
    browser.role("button", "Stop").await?.click().await?;
    holds(&browser, "return made('^DELETE') === 2").await?;
    browser.role("button", "Stop").await?;
    ask(&browser, "window.meddle = undefined").await?;
    browser.role("button", "Stop").await?.click().await?;
    answered(&browser, 1, "cancelled").await?;
    assert_eq!(made(&browser, "^DELETE .*/executions/").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_stop_before_the_turn_has_begun_is_kept_for_30_seconds() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    browser.hold(&["*/chat"]).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.role("button", "Stop").await?.click().await?;
    browser.shows("Stopping as soon as the turn has begun…").await?;
    assert_eq!(ask(&browser, "return fire(30000, 30000)").await?, 1, "the page waits 30 s for the id");
    browser.shows("Stop did not reach the turn. No turn began within 30 seconds.").await?;
    browser.role("button", "Stop").await?.click().await?;
    browser.shows("Stopping as soon as the turn has begun…").await?;
    assert_eq!(made(&browser, "^DELETE").await?, 0);
    browser.let_go().await?;
    answered(&browser, 1, "cancelled").await?;
    assert_eq!(made(&browser, "^DELETE .*/executions/").await?, 1);
    Ok(())
}

// A suspension stays answerable after a reload, in every tab; when one tab answers, the others show it answered.

#[tokio::test]
async fn an_approval_can_be_given_after_a_reload_and_in_every_tab() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/careful").await?;
    send(&browser, r#"[[tool:clock:{"timezone":"UTC"}]][[say:done]]"#).await?;
    browser.role("button", "Approve").await?;
    let address = browser.web().current_url().await?;
    browser.open_beside(address.as_str(), true).await?;
    browser.role("button", "Approve").await?;
    browser.switch_to(0).await?;
    browser.web().refresh().await?;
    browser.role("button", "Approve").await?.click().await?;
    answered(&browser, 1, "success").await?;
    for tab in [0, 1] {
        browser.switch_to(tab).await?;
        browser.shows("Approved.").await?;
        answered(&browser, 1, "success").await?;
        assert!(!browser.has_role("button", "Approve").await?, "tab {tab}");
    }
    Ok(())
}

// Many tabs: one `/push` connection per browser, not per tab. The tab that holds the Web Lock keeps it and passes notifications on
// over BroadcastChannel; when it goes, another takes over and every tab reads once.

/// Opens so many tabs at an address, all of them spied on, beside the first, which is.
async fn tabs(browser: &Browser, address: &str, count: usize) -> Result<()> {
    for _ in 1..count {
        browser.open_beside("about:blank", true).await?;
        browser.before_each_page(SPY).await?;
        browser.open(address).await?;
        browser.label("Message").await?;
    }
    Ok(())
}

/// How many connections to `/push` each tab holds, and how many reads it has made.
async fn held(browser: &Browser) -> Result<Vec<(u64, u64)>> {
    let mut all = Vec::new();
    for tab in 0..browser.web().windows().await?.len() {
        browser.switch_to(tab).await?;
        let found = ask(browser, "return [sources.filter((it) => it.readyState !== 2).length, reads()]").await?;
        all.push((found[0].as_u64().context("a count")?, found[1].as_u64().context("a count")?));
    }
    Ok(all)
}

#[tokio::test]
async fn nine_pages_hold_one_push_connection_and_the_ninth_still_loads() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "hello").await?;
    let address = browser.web().current_url().await?;
    tabs(&browser, address.as_str(), 9).await?;
    browser.shows("hello").await?;
    let held = held(&browser).await?;
    assert_eq!(held.iter().map(|(connections, _)| connections).sum::<u64>(), 1, "{held:?}");
    // All of them follow one turn, which the last one starts.
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    for tab in 0..9 {
        browser.switch_to(tab).await?;
        browser.shows("word1 word2 word3").await?;
    }
    house.provider.release("gate").await?;
    for tab in 0..9 {
        browser.switch_to(tab).await?;
        browser.shows("word1 word2 word3 and the rest").await?;
        answered(&browser, 2, "success").await?;
    }
    Ok(())
}

/// Has a thread open in three tabs, makes the first, which leads, go, and looks that the others take over and read once.
async fn hand_over(goes: impl AsyncFn(&Browser) -> Result<()>) -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let open = thread(&browser).await?;
    let address = browser.web().current_url().await?;
    tabs(&browser, address.as_str(), 3).await?;
    for tab in [1, 2] {
        browser.switch_to(tab).await?;
        browser.shows("first").await?;
        quiet(&browser).await?;
        holds(&browser, "return reads() >= 1").await?;
    }
    let before = held(&browser).await?;
    assert_eq!(before.iter().map(|(connections, _)| *connections).collect::<Vec<_>>(), [1, 0, 0]);
    let followers = browser.web().windows().await?.split_off(1);
    for follower in &followers {
        browser.web().switch_to_window(follower.clone()).await?;
        ask(&browser, "window.shown = 0; window.read = reads()").await?;
    }
    browser.switch_to(0).await?;
    goes(&browser).await?;

    browser
        .until("one of the others to take over", async || {
            let mut connections = 0;
            for follower in &followers {
                browser.web().switch_to_window(follower.clone()).await?;
                let open = ask(&browser, "return sources.filter((it) => it.readyState === 1).length").await?;
                connections += open.as_u64().context("a count")?;
            }
            Ok((connections == 1).then_some(()))
        })
        .await?;
    for follower in &followers {
        browser.web().switch_to_window(follower.clone()).await?;
        // Once for the new connection; and again where the browser showed the tab meanwhile.
        holds(&browser, "return reads() > read").await?;
        quiet(&browser).await?;
        holds(&browser, "return reads() <= read + 1 + shown").await?;
    }
    house.alice.say_in("assistant", open, "[[say:news]]").await?.done().await?;
    for follower in followers {
        browser.web().switch_to_window(follower).await?;
        browser.shows("news").await?;
        answered(&browser, 2, "success").await?;
    }
    Ok(())
}

#[tokio::test]
async fn when_the_tab_with_the_connection_is_closed_another_takes_over() -> Result<()> {
    hand_over(async |browser| Ok(browser.web().close_window().await?)).await
}

#[tokio::test]
async fn when_the_tab_with_the_connection_goes_elsewhere_another_takes_over() -> Result<()> {
    hand_over(async |browser| browser.open("about:blank").await).await
}

#[tokio::test]
async fn when_the_tab_with_the_connection_crashes_another_takes_over() -> Result<()> {
    // The answer to this is that the tab is gone.
    hand_over(async |browser| {
        let _gone = browser.devtools("Page.crash", json!({})).await;
        Ok(())
    })
    .await
}

// Over all of them: what browsers do to pages.

#[tokio::test]
async fn a_page_that_comes_back_from_the_back_forward_cache_catches_up() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word1 word2 word3").await?;
    browser.label("Message").await?.send_keys("half a thought").await?;
    ask(&browser, "addEventListener('pageshow', ({persisted}) => { window.cached = persisted })").await?;
    browser.open(&format!("{}/healthz", house.server.url)).await?;
    house.provider.release("gate").await?;
    house.provider.end_of(1).await?;
    browser.web().back().await?;
    holds(&browser, "return window.cached === true").await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    answered(&browser, 2, "success").await?;
    quiet(&browser).await?;
    assert_eq!(draft(&browser).await?, "half a thought");
    let said = messages(&browser).await?;
    assert_eq!(said.matches("word1 word2 word3").count(), 1, "{said}");
    // It hears of what happens from now on, too.
    house.alice.say_in("assistant", thread(&browser).await?, "[[say:news]]").await?.done().await?;
    browser.shows("news").await?;
    assert_eq!(house.provider.requests().await?.len(), 3);
    Ok(())
}

#[tokio::test]
async fn a_page_in_the_back_forward_cache_keeps_no_other_tab_from_hearing() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "first").await?;
    let open = thread(&browser).await?;
    let address = browser.web().current_url().await?;
    tabs(&browser, address.as_str(), 2).await?;
    browser.switch_to(0).await?;
    browser.open(&format!("{}/healthz", house.server.url)).await?;
    browser.switch_to(1).await?;
    holds(&browser, "return sources.some((it) => it.readyState === 1)").await?;
    house.alice.say_in("assistant", open, "[[say:news]]").await?.done().await?;
    browser.shows("news").await?;
    browser.switch_to(0).await?;
    browser.web().back().await?;
    browser.shows("news").await?;
    answered(&browser, 2, "success").await
}

#[tokio::test]
async fn a_hidden_tab_shows_what_happened_when_it_is_shown_again() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word3").await?;
    hide(&browser).await?;
    house.provider.release("gate").await?;
    house.provider.end_of(0).await?;
    // It is no less there while nobody looks.
    browser.shows("word1 word2 word3 and the rest").await?;
    show(&browser).await?;
    answered(&browser, 1, "success").await?;
    quiet(&browser).await
}

#[tokio::test]
async fn a_reload_in_each_state_finds_that_state() -> Result<()> {
    let house = House::open().await?;
    let browser = spied(&house).await?;
    let reload = async || -> Result<()> { Ok(browser.web().refresh().await?) };
    // Before acceptance: no turn starts, and the text is there.
    browser.hold(&["*/chat"]).await?;
    send(&browser, "[[say:never sent]]").await?;
    browser.shows("Sending…").await?;
    reload().await?;
    browser.let_go().await?;
    browser.shows("What should Assistant do?").await?;
    assert_eq!(draft(&browser).await?, "[[say:never sent]]");
    assert_eq!(house.provider.requests().await?.len(), 0);
    browser.label("Message").await?.clear().await?;

    // Running.
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    reload().await?;
    browser.shows("Still running elsewhere.").await?;
    answered(&browser, 1, "running").await?;
    // Stopping: the wish is at the server, or it is not.
    browser.hold(&["*/executions/*"]).await?;
    browser.role("button", "Stop").await?.click().await?;
    browser.role("button", "Stopping…").await?;
    reload().await?;
    browser.let_go().await?;
    browser.shows("word3").await?;
    browser.role("button", "Stop").await?.click().await?;
    // Stopped.
    answered(&browser, 1, "cancelled").await?;
    reload().await?;
    answered(&browser, 1, "cancelled").await?;
    browser.shows("Stopped. What was written until then is kept.").await?;
    // Suspended.
    send(&browser, r#"[[tool:ask_user:{"question":"Which colour?","options":["red","blue"]}]][[say:done]]"#).await?;
    browser.role("button", "blue").await?;
    reload().await?;
    browser.shows("Waiting for your answer above.").await?;
    browser.role("button", "blue").await?.click().await?;
    // Answered, and done.
    answered(&browser, 2, "success").await?;
    reload().await?;
    answered(&browser, 2, "success").await?;
    browser.test_id("answered").await?;
    // Failed.
    send(&browser, "[[words:3]][[error:The provider is out of tokens.]]").await?;
    answered(&browser, 3, "error").await?;
    reload().await?;
    answered(&browser, 3, "error").await?;
    browser.shows("This reply failed.").await?;
    // Offline: the browser shows a page of its own, and ours when the network is back.
    send(&browser, "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    browser.shows("word1 word2 word3").await?;
    browser.offline(true).await?;
    let _offline = browser.web().refresh().await;
    browser.offline(false).await?;
    house.provider.release("gate").await?;
    reload().await?;
    browser.shows("word1 word2 word3 and the rest").await?;
    answered(&browser, 4, "success").await?;
    // Signed out.
    browser.role("button", "Sign out").await?.click().await?;
    browser.label("Password").await?;
    reload().await?;
    browser.role("heading", "Sign in").await?;
    fill_in(&browser, "alice").await
}

/// A line to the server that carries the first piece of a live stream and then, until [`Line::go_on`], nothing.
struct Line {
    url: String,
    /// What it carried of the live stream, once that has ended.
    carried: oneshot::Receiver<Vec<u8>>,
    go_on: Arc<Notify>,
    _ends: AbortOnDropHandle<()>,
}

impl Line {
    async fn to(server: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (done, carried) = oneshot::channel();
        let done = Arc::new(Mutex::new(Some(done)));
        let (go_on, server) = (Arc::new(Notify::new()), server.to_owned());
        let waits = Arc::clone(&go_on);
        let accepts = tokio::spawn(async move {
            let mut lines = JoinSet::new();
            while let Ok((browser, _)) = listener.accept().await {
                let (server, waits, done) = (server.clone(), Arc::clone(&waits), Arc::clone(&done));
                // A connection that breaks is the page's to notice.
                lines.spawn(async move { drop(carry(browser, &server, &waits, &done).await) });
            }
        });
        Ok(Self { url, carried, go_on, _ends: AbortOnDropHandle::new(accepts) })
    }
}

/// Carries one connection. It is the slow one once a message is submitted over it.
async fn carry(browser: TcpStream, server: &str, go_on: &Notify, done: &Mutex<Option<oneshot::Sender<Vec<u8>>>>) -> Result<()> {
    // Little room on this side, so that what is not carried stays with the server.
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    let server = socket.connect(server.parse()?).await?;
    let ((mut from_browser, mut to_browser), (mut from_server, mut to_server)) = (browser.into_split(), server.into_split());
    let slow = AtomicBool::new(false);
    let there = async {
        let mut piece = vec![0; 65_536];
        loop {
            let size = from_browser.read(&mut piece).await?;
            if size == 0 {
                return anyhow::Ok(());
            }
            let head = String::from_utf8_lossy(&piece[..size]);
            if head.starts_with("POST ") && head.lines().next().is_some_and(|line| line.contains("/chat ")) {
                slow.store(true, Ordering::Relaxed);
            }
            to_server.write_all(&piece[..size]).await?;
        }
    };
    let back = async {
        let (mut piece, mut carried) = (vec![0; 1_024], Vec::new());
        loop {
            let size = from_server.read(&mut piece).await?;
            if size == 0 {
                break;
            }
            to_browser.write_all(&piece[..size]).await?;
            if slow.load(Ordering::Relaxed) {
                if carried.is_empty() {
                    go_on.notified().await;
                }
                carried.extend_from_slice(&piece[..size]);
            }
        }
        if let Some(done) = done.lock().ok().and_then(|mut done| done.take_if(|_| !carried.is_empty())) {
            // The test may not care.
            let _ = done.send(carried);
        }
        anyhow::Ok(())
    };
    tokio::select! { ended = there => ended, ended = back => ended }
}

#[tokio::test]
async fn a_reader_that_is_cut_off_for_being_slow_recovers_by_reading() -> Result<()> {
    let house = House::open().await?;
    let line = Line::to(house.server.address()).await?;
    let browser = Browser::start().await?;
    browser.open(&format!("{}/demo/assistant", line.url)).await?;
    fill_in(&browser, "alice").await?;
    // More than the server keeps for one connection (1 MiB), and than its socket holds.
    send(&browser, "[[letters:60000]][[say:the end]]").await?;
    house.provider.end_of(0).await?;
    browser.css("[data-testid=message-assistant][data-status=running]").await?;
    let open = thread(&browser).await?;
    house.alice.settled("assistant", open).await?;
    let ends =
        "[...document.querySelectorAll('.prose')].reduce((sum, it) => sum + it.textContent.split('the end').length - 1, 0)";
    assert_eq!(ask(&browser, &format!("return {ends}")).await?, 0);
    line.go_on.notify_one();
    answered(&browser, 1, "success").await?;
    quiet(&browser).await?;
    let carried = within("the end of the live stream", line.carried).await?;
    let carried = String::from_utf8_lossy(&carried);
    assert!(carried.contains("execution-started") || carried.contains("text-delta"), "it was a live stream");
    assert!(!carried.contains(r#""type":"done""#), "and it was cut off");
    holds(&browser, &format!("return {ends} === 1")).await
}

#[tokio::test]
async fn two_people_at_one_machine_see_their_own_and_nothing_else() -> Result<()> {
    let house = House::open().await?;
    house.user("bob").await?;
    let browser = spied(&house).await?;
    with_one_turn(&browser, "for alice alone").await?;
    let hers = browser.web().current_url().await?;
    browser.role("button", "Sign out").await?.click().await?;
    browser.label("Password").await?;
    fill_in(&browser, "bob").await?;
    browser.open(hers.as_str()).await?;
    browser.role("heading", "There is no such conversation").await?;
    let cached: Value = ask(&browser, "return document.documentElement.outerHTML").await?;
    assert!(!cached.as_str().unwrap_or_default().contains("for alice alone"));
    // Neither does the way back through the browser's own memory lead there.
    for _ in 0..2 {
        browser.web().back().await?;
        browser.shows("bob").await?;
        assert!(!browser.text().await?.contains("for alice alone"));
    }
    assert_eq!(
        json!([]),
        ask(&browser, "return Object.keys(localStorage).filter((key) => localStorage[key].includes('alice'))").await?
    );
    Ok(())
}
