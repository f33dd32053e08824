//! Every state of the page, looked at from all sides: what it says, what axe-core thinks of it, and pictures for people. States that
//! other tests lead to are looked at there.

use anyhow::Result;
use serde_json::json;
use turnfast_tests::browser::Browser;

use super::{answered, ask, fill, holds, inspect, messages, send, sign_in, sign_in_at};
use crate::House;

/// What the line above the message box says, as its state and in words.
async fn status(browser: &Browser, state: &str, words: &str) -> Result<()> {
    holds(browser, &format!("return document.querySelector('[data-testid=status]')?.dataset.state === {state:?}")).await?;
    let said = browser.test_id("status").await?.text().await?;
    assert!(said.contains(words), "{state} is said as `{said}`");
    Ok(())
}

/// A reply with everything that Markdown has.
const RICH: &str = r#"### A reply begins anywhere

Some *emphasis*, **strength**, ~~regret~~, `code`, a [link](https://example.org/page) and <https://example.org>.

# And goes on elsewhere

- one
- two
  1. nested
  2. twice

- [x] done
- [ ] not done

> A quote
> with two lines.

| name | size |
| :--- | ---: |
| a | 1 |
| b | 22 |

```rust
fn main() { println!("a line that is long enough to need its own way of scrolling, on a narrow screen at least"); }
```

---

![a picture](https://example.org/picture.png)
"#;

/// Sends a message that makes the assistant say `text`, which may hold line breaks.
async fn have_said(browser: &Browser, text: &str, then: &str) -> Result<()> {
    fill(browser, &serde_json::to_string(&format!("[[say:{text}]]{then}"))?).await?;
    browser.role("button", "Send").await?.click().await?;
    Ok(())
}

#[tokio::test]
async fn signing_in_and_what_keeps_one_from_it() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    browser.open(&house.server.url).await?;
    browser.label("Password").await?;
    inspect(&browser, "sign-in").await?;

    let attempt = async || -> Result<()> {
        browser.label("Name").await?.clear().await?;
        browser.label("Name").await?.send_keys("alice").await?;
        browser.label("Password").await?.send_keys("wrong").await?;
        browser.role("button", "Sign in").await?.click().await?;
        Ok(())
    };
    attempt().await?;
    browser.shows("Name and password do not fit together.").await?;
    inspect(&browser, "sign-in-refused").await?;

    let again = "const done = arguments[arguments.length - 1]; const body = JSON.stringify({name: 'alice', password: 'wrong'}); \
        const one = () => fetch('/auth/login', {method: 'POST', headers: {'content-type': 'application/json'}, body}) \
        .then(({status}) => status === 429 ? done(true) : one(), done); one()";
    assert_eq!(browser.execute_async(again).await?, true);
    attempt().await?;
    browser.shows("Too many attempts. Try again in").await?;
    inspect(&browser, "sign-in-limited").await?;

    browser.open(&format!("{}/?signin=expired", house.server.url)).await?;
    browser.shows("That sign-in link was used before or is too old").await?;
    inspect(&browser, "sign-in-expired").await
}

#[tokio::test]
async fn whom_to_talk_to_and_nobody() -> Result<()> {
    let house = House::open().await?;
    house.user("nora").await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/").await?;
    browser.role("heading", "Whom would you like to talk to?").await?;
    inspect(&browser, "agents").await?;
    browser.open(&format!("{}/demo/unknown", house.server.url)).await?;
    browser.role("heading", "Nothing here").await?;
    inspect(&browser, "no-such-agent").await?;
    browser.open(&format!("{}/demo/assistant/01890000-0000-7000-8000-000000000000", house.server.url)).await?;
    browser.role("heading", "There is no such conversation").await?;
    inspect(&browser, "no-such-conversation").await?;

    browser.block(&["*/agents/v2"]).await?;
    browser.web().refresh().await?;
    browser.role("heading", "The list of agents could not be loaded").await?;
    inspect(&browser, "agents-failed").await?;
    browser.block(&["*/auth/me"]).await?;
    browser.web().refresh().await?;
    browser.role("heading", "Turnfast cannot be reached").await?;
    inspect(&browser, "unreachable").await?;
    browser.block(&[]).await?;
    browser.role("button", "Try again").await?.click().await?;
    browser.role("button", "Sign out").await?.click().await?;
    browser.label("Password").await?;

    sign_in_at(&house, &browser, "nora", "/").await?;
    browser.shows("There is no agent that you may use yet.").await?;
    inspect(&browser, "no-agents").await
}

#[tokio::test]
async fn agents_that_are_switched_off() -> Result<()> {
    let house = House::open_with("[features]\nagents = false").await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/assistant").await?;
    browser.role("heading", "Agents are switched off").await?;
    inspect(&browser, "agents-disabled").await
}

#[tokio::test]
async fn an_empty_conversation_and_one_that_loads() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/demo").await?;
    browser.shows("What should Demo do?").await?;
    inspect(&browser, "empty-demo").await?;
    browser.open(&format!("{}/demo/assistant", house.server.url)).await?;
    browser.shows("What should Assistant do?").await?;
    inspect(&browser, "empty").await?;

    for (held, name) in [("*/auth/me", "loading-page"), ("*/agents/v2", "loading-agents")] {
        browser.hold(&[held]).await?;
        browser.web().refresh().await?;
        browser.shows("Loading…").await?;
        inspect(&browser, name).await?;
        browser.let_go().await?;
        browser.shows("What should Assistant do?").await?;
    }
    send(&browser, "[[say:hello]]").await?;
    answered(&browser, 1, "success").await?;
    browser.hold(&["*/messages*", "*/threads*"]).await?;
    browser.web().refresh().await?;
    browser.test_id("loading").await?;
    browser.shows("You can type. Sending waits until the conversation is loaded.").await?;
    inspect(&browser, "loading").await?;
    browser.let_go().await?;
    browser.shows("hello").await
}

#[tokio::test]
async fn a_turn_from_sending_to_its_end() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    browser.hold(&["*/chat"]).await?;
    have_said(&browser, RICH, "[[reason:Let me think about that.]][[hold:gate]]").await?;
    status(&browser, "sending", "Sending…").await?;
    inspect(&browser, "sending").await?;
    browser.role("button", "Stop").await?.click().await?;
    status(&browser, "stopping", "Stopping as soon as the turn has begun…").await?;
    inspect(&browser, "stopping-before").await?;
    browser.let_go().await?;
    answered(&browser, 1, "cancelled").await?;
    browser.shows("Stopped. What was written until then is kept.").await?;

    have_said(&browser, RICH, "[[reason:Let me think about that.]][[hold:gate]]").await?;
    browser.shows("nested").await?;
    browser.shows("Reasoning…").await?;
    status(&browser, "running", "Replying…").await?;
    browser.css("[data-testid=reasoning] summary").await?.click().await?;
    browser.shows("Let me think about that.").await?;
    inspect(&browser, "streaming").await?;

    let address = browser.web().current_url().await?;
    browser.open_beside(address.as_str(), true).await?;
    browser.shows("nested").await?;
    status(&browser, "following", "Still running elsewhere.").await?;
    inspect(&browser, "following").await?;

    browser.switch_to(0).await?;
    browser.hold(&["*/executions/*"]).await?;
    browser.role("button", "Stop").await?.click().await?;
    status(&browser, "stopping", "Stopping…").await?;
    inspect(&browser, "stopping").await?;
    browser.let_go().await?;
    answered(&browser, 2, "cancelled").await?;
    browser.shows("Stopped. What was written until then is kept.").await?;
    status(&browser, "idle", "").await?;
    inspect(&browser, "stopped").await?;

    have_said(&browser, RICH, "").await?;
    answered(&browser, 3, "success").await?;
    inspect(&browser, "reply").await?;
    browser.block(&["*/executions/*"]).await?;
    send(&browser, "[[words:3]][[stall]]").await?;
    browser.shows("word3").await?;
    browser.role("button", "Stop").await?.click().await?;
    browser.shows("Stop did not reach the turn. The server could not be reached.").await?;
    inspect(&browser, "stop-failed").await
}

#[tokio::test]
async fn replies_that_fail_and_that_are_interrupted() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[words:3]][[error:The provider is out of tokens.]]").await?;
    answered(&browser, 1, "error").await?;
    browser.shows("This reply failed.").await?;
    inspect(&browser, "failed").await?;

    send(&browser, "[[say:half of a reply]][[stall]]").await?;
    browser.shows("half of a reply").await?;
    let listens = house.server.address().to_owned();
    house.server.kill().await?;
    let _server = house.installation.serve_at(&listens).await?;
    answered(&browser, 2, "interrupted").await?;
    browser.shows("Interrupted.").await?;
    status(&browser, "idle", "").await?;
    inspect(&browser, "interrupted").await
}

#[tokio::test]
async fn what_waits_for_a_person() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/careful").await?;
    send(&browser, r#"[[tool:clock:{"timezone":"UTC"}]][[say:done]]"#).await?;
    browser.role("button", "Approve").await?;
    browser.shows("May clock run?").await?;
    status(&browser, "suspended", "Waiting for your answer above.").await?;
    inspect(&browser, "approval").await?;
    browser.hold(&["*/chat/resume"]).await?;
    browser.role("button", "Deny").await?.click().await?;
    browser.shows("Sending your answer…").await?;
    inspect(&browser, "answering").await?;
    browser.let_go().await?;
    answered(&browser, 1, "success").await?;
    inspect(&browser, "denied").await?;

    let question = json!({"question": "Which colour?", "options": ["red", "blue"], "freeText": true});
    send(&browser, &format!("[[tool:ask_user:{question}]][[say:done]]")).await?;
    browser.role("button", "blue").await?;
    inspect(&browser, "question").await?;
    browser.role("button", "blue").await?.click().await?;
    answered(&browser, 2, "success").await?;
    inspect(&browser, "answered").await?;

    let both = r#"[[tool:clock:{"timezone":"UTC"}]][[tool:ask_user:{"question":"And what is your name?"}]][[say:done]]"#;
    send(&browser, both).await?;
    browser.role("button", "Answer").await?;
    status(&browser, "suspended", "Waiting for 2 answers above.").await?;
    inspect(&browser, "several").await?;
    browser.role("button", "Stop").await?.click().await?;
    answered(&browser, 3, "cancelled").await?;
    browser.shows("Not answered: the turn was stopped.").await?;
    inspect(&browser, "several-stopped").await
}

#[tokio::test]
async fn what_another_agent_does_is_within_the_call_that_asked_for_it() -> Result<()> {
    let house = House::open_with(
        "[[agents]]\nproject = \"demo\"\nid = \"boss\"\nname = \"Boss\"\nprovider = \"test\"\nmodel = \"test-model\"\n\
         tools = [\"delegate\"]\ndelegates = [\"assistant\"]\n",
    )
    .await?;
    let browser = Browser::start().await?;
    sign_in_at(&house, &browser, "alice", "/demo/boss").await?;
    let task = "[[reason:Hm.]][[tool:clock:{\"timezone\":\"UTC\"}]][[say:It is **late**.]][[hold:gate]]";
    let call = json!({"agent": "assistant", "task": task});
    send(&browser, &format!("[[tool:delegate:{call}]][[say:That was that.]]")).await?;
    browser.shows("The other agent is at work…").await?;
    browser.shows("It is late.").await?;
    let nested = "const trace = document.querySelector('[data-testid=tool-card] [data-testid=trace][open]'); \
        return !!trace && trace.querySelector('.steps')?.innerText.includes('clock') && !!trace.querySelector('.prose strong')";
    holds(&browser, nested).await?;
    inspect(&browser, "delegating").await?;

    house.provider.release("gate").await?;
    answered(&browser, 1, "success").await?;
    browser.shows("What the other agent did").await?;
    browser.shows("Its reasoning").await?;
    ask(&browser, "document.querySelectorAll('details').forEach((it) => { it.open = true })").await?;
    browser.shows("Output").await?;
    assert!(messages(&browser).await?.contains("Hm."));
    inspect(&browser, "delegated").await
}

#[tokio::test]
async fn conversations_that_are_renamed_and_deleted() -> Result<()> {
    let house = House::open().await?;
    let browser = Browser::start().await?;
    sign_in(&house, &browser).await?;
    send(&browser, "[[say:hello]]").await?;
    answered(&browser, 1, "success").await?;
    let title = "[[say:hello]]";
    browser.role("button", &format!("Rename “{title}”")).await?.click().await?;
    browser.role("dialog", "Rename conversation").await?;
    inspect(&browser, "rename").await?;
    browser.label("Name").await?.clear().await?;
    browser.role("button", "Rename").await?.click().await?;
    browser.shows("A conversation needs a name.").await?;
    inspect(&browser, "rename-refused").await?;
    browser.label("Name").await?.send_keys("Greetings").await?;
    browser.role("button", "Rename").await?.click().await?;
    browser.role("heading", "Greetings").await?;
    browser.role("button", "Delete “Greetings”").await?.click().await?;
    browser.role("dialog", "Delete this conversation?").await?;
    inspect(&browser, "delete").await
}
