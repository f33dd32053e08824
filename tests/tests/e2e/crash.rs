//! Processes die, and are asked to end (contract 1, section 9).

use anyhow::Result;
use turnfast_shared::{Event, ExecutionStatus, api::ChatRequest, problem::Code};
use turnfast_tests::{
    client::{http, refusal},
    installation::Installation,
};

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

#[tokio::test]
async fn metrics_are_on_a_listener_of_their_own() -> Result<()> {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let config = format!(
        "[server]\nmetrics_listen = \"127.0.0.1:{port}\"\n[[projects]]\nid = \"demo\"\nmembers = {{ alice = \"admin\" }}\n\n[[agents]]\nproject = \"demo\"\nid = \"demo\"\nengine = \"demo\"\n"
    );
    let installation = Installation::with_config(&config)?;
    let token = installation.user("alice").await?;
    let server = installation.serve().await?;
    let alice = server.client(&token)?;
    let push = alice.push().await?;
    assert_eq!(alice.say("demo", "/long 3").await?.done().await?, ExecutionStatus::Success);
    let read = |url: String| async move {
        let answer = http()?.get(url).send().await?;
        let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        anyhow::Ok((answer.status().as_u16(), kind, answer.text().await?))
    };
    let (status, kind, text) = read(format!("http://127.0.0.1:{port}/metrics")).await?;
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    for line in ["turnfast_turns_total{status=\"success\"} 1", "turnfast_turns_running 0", "turnfast_followers 1"] {
        assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
    }
    let flushes = text.lines().find_map(|line| line.strip_prefix("turnfast_flush_seconds_count ")?.parse::<u64>().ok());
    assert!(flushes.is_some_and(|flushes| flushes > 0), "{text}");
    drop(push);
    assert_eq!(read(format!("{}/metrics", server.url)).await?.0, 404, "not where everybody is");
    Ok(())
}
