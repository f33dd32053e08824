//! What a provider can do wrong ends the turn with an error, keeps what was written, and leaves the thread usable.

use anyhow::Result;
use turnfast_shared::{Event, ExecutionStatus};
use turnfast_tests::installation::PROVIDER_KEY;

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
