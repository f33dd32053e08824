//! Processes die, and are asked to end (contract 1, section 9).

use anyhow::Result;
use turnfast_shared::{Event, ExecutionStatus, api::ChatRequest, problem::Code};
use turnfast_tests::client::refusal;

use crate::House;

#[tokio::test]
async fn a_killed_process_leaves_an_honest_end_and_a_thread_that_works() -> Result<()> {
    let house = House::open().await?;
    let live = house.alice.say("assistant", "[[words:5]][[stall]]").await?;
    let started = live.started;
    house
        .alice
        .read_until("assistant", started.thread, "the text in the record", |read| {
            read.messages.last().is_some_and(|message| message.text().contains("word5"))
        })
        .await?;
    house.server.kill().await?;

    let server = house.installation.serve().await?;
    let alice = server.client(&house.token)?;
    let message = alice.settled("assistant", started.thread).await?;
    assert_eq!((message.id, message.execution_status), (started.assistant, Some(ExecutionStatus::Interrupted)));
    assert_eq!(message.text(), "word1 word2 word3 word4 word5");

    let mut next = alice.say_in("assistant", started.thread, "[[say:still here]]").await?;
    assert_eq!(next.done().await?, ExecutionStatus::Success);
    assert_eq!(next.text(), "still here");
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_lets_its_turns_finish() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:2]][[hold:gate]][[say: to the end]]").await?;
    let started = live.started;
    live.until_text("word2").await?;
    house.server.ask_to_end()?;

    live.rest().await?;
    assert!(!live.seen.iter().any(|event| matches!(event, Event::Done { .. })), "the turn still runs: {:#?}", live.seen);
    let late = ChatRequest { message: "too late".to_owned(), ..ChatRequest::default() };
    let refused = refusal(house.alice.agent(http::Method::POST, "assistant", "/chat").json(&late)).await?;
    assert_eq!(refused.code, Code::ShuttingDown);

    house.provider.release("gate").await?;
    let status = house.server.ended().await?;
    assert!(status.success(), "{status}");
    let server = house.installation.serve().await?;
    let message = server.client(&house.token)?.settled("assistant", started.thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Success));
    assert_eq!(message.text(), "word1 word2 to the end");
    Ok(())
}

#[tokio::test]
async fn a_second_signal_ends_the_wait_and_loses_nothing() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:2]][[stall]]").await?;
    let started = live.started;
    live.until_text("word2").await?;
    house.server.ask_to_end()?;
    live.rest().await?;
    house.server.ask_to_end()?;
    let status = house.server.ended().await?;
    assert!(status.success(), "{status}");

    let server = house.installation.serve().await?;
    let message = server.client(&house.token)?.settled("assistant", started.thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Interrupted));
    assert_eq!(message.text(), "word1 word2");
    let code = message.execution_error.and_then(|error| error.error_code);
    assert_ne!(code.as_deref(), Some("process_died"), "it was asked to end, and did not die");
    Ok(())
}
