//! What a provider can do wrong ends the turn with an error, keeps what was written, and leaves the thread usable.

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use turnfast_shared::{Event, ExecutionStatus};
use turnfast_tests::{installation::PROVIDER_KEY, within};

use crate::House;

/// Which agent asks, what the provider is told, and the text that stays.
const FAILURES: [(&str, &str, &str); 9] = [
    ("assistant", "[[fail:400]]", ""),
    ("assistant", "[[fail:401]]", ""),
    ("assistant", "[[fail:500]]", ""),
    ("assistant", "[[html:502]]", ""),
    ("assistant", "[[words:3]][[error:out of memory]]", "word1 word2 word3"),
    ("assistant", "[[cut:3]]", "word1 word2 word3"),
    ("assistant", "[[words:3]][[close]]", "word1 word2 word3"),
    ("assistant", "[[words:3]][[malformed]]", "word1 word2 word3"),
    ("impatient", "[[words:3]][[stall]]", "word1 word2 word3"),
];

/// What the provider is told, and where its key would be seen: on the stream, in the record, in both.
const REPEATS: [&str; 5] = ["[[key:say]]", "[[key:reason]]", "[[key:tool]]", "[[words:1]][[key:error]]", "[[key:fail]]"];

#[tokio::test]
async fn a_key_that_the_provider_repeats_shows_nowhere() -> Result<()> {
    let house = House::open().await?;
    for script in REPEATS {
        let chat = house.alice.agent(Method::POST, "assistant", "/chat").json(&json!({"message": script}));
        let stream = within("a stream", async { chat.send().await?.text().await }).await?;
        let started: Value =
            serde_json::from_str(stream.lines().find_map(|line| line.strip_prefix("data: ")).context("an event")?)?;
        let path = format!("/chat/{}/messages", started["sessionId"].as_str().context("a thread")?);
        let read =
            within("a read", async { house.alice.agent(Method::GET, "assistant", &path).send().await?.text().await }).await?;
        for (what, text) in [("the stream", stream), ("the record", read)] {
            // What stands in its place shows that it was said.
            assert!(text.contains("[secret]"), "{script}: nothing was cut out of {what}: {text}");
            for piece in [PROVIDER_KEY, &PROVIDER_KEY[..PROVIDER_KEY.len() / 2], &PROVIDER_KEY[PROVIDER_KEY.len() / 2..]] {
                assert!(!text.contains(piece), "{script}: {what} holds the key: {text}");
            }
        }
    }
    assert!(!house.server.log().contains(PROVIDER_KEY), "the log holds the key");
    Ok(())
}

#[tokio::test]
async fn every_failure_of_a_provider_is_recorded_and_keeps_the_text() -> Result<()> {
    let house = House::open().await?;
    for (agent, script, kept) in FAILURES {
        let mut live = house.alice.say(agent, script).await?;
        assert_eq!(live.done().await?, ExecutionStatus::Error, "{script}");
        let told = live.seen.iter().find_map(|event| if let Event::Error { message, .. } = event { Some(message) } else { None });
        let thread = live.started.thread;

        let message = house.alice.settled(agent, thread).await?;
        assert_eq!(message.execution_status, Some(ExecutionStatus::Error), "{script}");
        assert_eq!(message.text(), kept, "{script}");
        let recorded = message.execution_error.map(|error| error.message).unwrap_or_default();
        assert_eq!(told, Some(&recorded), "{script}: stream and record say the same");
        assert!(!recorded.trim().is_empty() && !recorded.contains(PROVIDER_KEY), "{script}: {recorded}");

        let mut next = house.alice.say_in(agent, thread, "[[say:fine again]]").await?;
        assert_eq!(next.done().await?, ExecutionStatus::Success, "after {script}");
    }
    assert!(!house.server.log().contains(PROVIDER_KEY), "the log holds the key");
    Ok(())
}
