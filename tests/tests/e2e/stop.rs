//! Stop names one execution, reaches the provider, and touches nothing else (contract 1, section 6).

use anyhow::Result;
use turnfast_shared::ExecutionStatus;
use turnfast_tests::provider::End;

use crate::House;

#[tokio::test]
async fn stop_closes_the_providers_connection_and_keeps_the_text() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:3]][[stall]]").await?;
    live.until_text("word3").await?;
    let started = live.started;
    assert!(house.alice.stop("assistant", started.thread, started.execution).await?.cancel_requested);
    assert_eq!(house.provider.end_of(0).await?, End::HungUp);
    assert_eq!(live.done().await?, ExecutionStatus::Cancelled);

    let message = house.alice.settled("assistant", started.thread).await?;
    assert_eq!((message.execution_status, message.text().as_str()), (Some(ExecutionStatus::Cancelled), "word1 word2 word3"));
    assert!(!house.alice.stop("assistant", started.thread, started.execution).await?.cancel_requested, "it is over");
    Ok(())
}

#[tokio::test]
async fn stop_of_a_turn_that_is_over_leaves_the_next_one_alone() -> Result<()> {
    let house = House::open().await?;
    let mut first = house.alice.say("assistant", "[[words:1]]").await?;
    first.done().await?;
    let thread = first.started.thread;
    let mut second = house.alice.say_in("assistant", thread, "[[words:2]][[hold:gate]][[say: end]]").await?;
    house.provider.holds("gate").await?;

    assert!(!house.alice.stop("assistant", thread, first.started.execution).await?.cancel_requested);
    house.provider.release("gate").await?;
    assert_eq!(second.done().await?, ExecutionStatus::Success);
    assert_eq!(second.text(), "word1 word2 end");
    Ok(())
}

#[tokio::test]
async fn a_stop_that_was_answered_survives_the_process() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:3]][[stall]]").await?;
    live.until_text("word3").await?;
    let started = live.started;
    house.alice.stop("assistant", started.thread, started.execution).await?;
    house.server.kill().await?;

    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    let message = alice.settled("assistant", started.thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Cancelled));
    Ok(())
}
