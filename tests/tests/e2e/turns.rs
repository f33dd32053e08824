//! A turn outlives its reader, there is one at a time, and everyone reads the same (contract 1, sections 2 to 5).

use anyhow::{Context, Result};
use http::Method;
use turnfast_shared::{
    Event, ExecutionStatus, Role,
    api::{ChatRequest, ThreadSnapshot},
    problem::Code,
};
use turnfast_tests::{
    client::{assistant, refusal},
    installation::Installation,
    provider::End,
    within,
};
use uuid::Uuid;

use crate::House;

#[tokio::test]
async fn a_reply_streams_and_is_recorded_as_it_was_streamed() -> Result<()> {
    let installation = Installation::with_config("")?;
    let token = installation.user("admin").await?;
    let server = installation.serve().await?;
    let admin = server.client(&token)?;

    let mut live = admin.say("assistant", "/slow 3").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert!(live.text().contains("word1 word2 word3"), "{}", live.text());

    let read = admin.read("assistant", live.started.thread).await?;
    assert_eq!(read.active_execution_id, None);
    let [asked, answered] = read.messages.as_slice() else { panic!("two messages: {read:#?}") };
    assert_eq!((asked.role, asked.id, asked.text().as_str()), (Role::User, live.started.message, "/slow 3"));
    assert_eq!((answered.role, answered.id), (Role::Assistant, live.started.assistant));
    assert_eq!(answered.execution_status, Some(ExecutionStatus::Success));
    assert_eq!(answered.text(), live.text());
    Ok(())
}

#[tokio::test]
async fn a_reader_who_leaves_ends_nothing() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:3]][[hold:gate]][[say: and the rest]]").await?;
    live.until("a first delta", |event| matches!(event, Event::TextDelta { .. })).await?;
    let started = live.started;
    drop(live);

    house.provider.holds("gate").await?;
    let during = house.alice.read("assistant", started.thread).await?;
    assert_eq!(during.active_execution_id, Some(started.execution));
    house.provider.release("gate").await?;

    let message = house.alice.settled("assistant", started.thread).await?;
    assert_eq!((message.id, message.execution_status), (started.assistant, Some(ExecutionStatus::Success)));
    assert_eq!(message.text(), "word1 word2 word3 and the rest");
    assert_eq!(house.provider.end_of(0).await?, End::Finished);
    Ok(())
}

#[tokio::test]
async fn a_second_reader_follows_by_notifications_and_sees_text_while_it_is_written() -> Result<()> {
    let house = House::open().await?;
    let mut push = house.alice.push().await?;
    let mut live = house.alice.say("assistant", "[[reason:hm]][[words:3]][[hold:gate]][[say: end]]").await?;
    let started = live.started;

    let has = |text: &'static str| {
        move |read: &ThreadSnapshot| read.messages.last().is_some_and(|message| message.text().contains(text))
    };
    let during = house.alice.read_until("assistant", started.thread, "text of the turn that runs", has("word3")).await?;
    assert_eq!(during.active_execution_id, Some(started.execution));
    assert_eq!(assistant(&during)?.execution_status, Some(ExecutionStatus::Running));
    house.provider.release("gate").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);

    // The other connection was told of this thread, in revisions that only grow, up to the last.
    let last = house.alice.read("assistant", started.thread).await?;
    assert_eq!(assistant(&last)?.text(), "word1 word2 word3 end");
    let mut revision = 0;
    while revision < last.revision {
        let Some(update) = push.update().await? else { continue };
        assert_eq!((update.thread_id, update.agent_id.as_str()), (started.thread, "assistant"));
        assert!(update.revision > revision, "{update:?} after revision {revision}");
        revision = update.revision;
    }
    assert_eq!(revision, last.revision);
    Ok(())
}

#[tokio::test]
async fn a_read_since_a_revision_gives_what_changed_and_an_etag_saves_a_read() -> Result<()> {
    let house = House::open().await?;
    let mut first = house.alice.say("assistant", "one").await?;
    first.done().await?;
    let thread = first.started.thread;
    let before = house.alice.read("assistant", thread).await?;
    house.alice.say_in("assistant", thread, "two").await?.done().await?;
    let full = house.alice.read("assistant", thread).await?;

    let path = format!("/chat/{thread}/messages");
    let since = house.alice.agent(Method::GET, "assistant", &format!("{path}?since={}", before.revision));
    let since: ThreadSnapshot = turnfast_tests::client::answer(since).await?;
    assert!(since.partial);
    assert_eq!((since.revision, since.messages.as_slice()), (full.revision, &full.messages[2..]));

    let response = within("a read", house.alice.agent(Method::GET, "assistant", &path).send()).await?;
    let etag = response.headers().get("etag").context("an ETag")?.clone();
    assert!(etag.to_str()?.starts_with('"'), "a strong one: {etag:?}");
    let again = house.alice.agent(Method::GET, "assistant", &path).header("if-none-match", etag);
    assert_eq!(within("a read", again.send()).await?.status(), 304);
    Ok(())
}

#[tokio::test]
async fn a_competing_submit_is_refused_and_the_thread_goes_on_afterwards() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:1]][[hold:gate]]").await?;
    let started = live.started;
    let competing = ChatRequest { message: "me too".to_owned(), session_id: Some(started.thread), ..ChatRequest::default() };
    let refused = refusal(house.alice.agent(Method::POST, "assistant", "/chat").json(&competing)).await?;
    assert_eq!((refused.code, refused.active_execution_id), (Code::TurnAlreadyRunning, Some(started.execution)));
    let kept = refusal(house.alice.agent(Method::DELETE, "assistant", &format!("/threads/{}", started.thread))).await?;
    assert_eq!(kept.code, Code::TurnAlreadyRunning);

    house.provider.release("gate").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    let mut next = house.alice.submit("assistant", &competing).await?;
    assert_eq!(next.done().await?, ExecutionStatus::Success);
    let read = house.alice.read("assistant", started.thread).await?;
    assert_eq!(read.messages.len(), 4, "the refused message is not in the thread: {read:#?}");
    assert_eq!(house.provider.requests().await?.len(), 2);
    Ok(())
}

#[tokio::test]
async fn a_message_that_is_sent_twice_starts_one_turn() -> Result<()> {
    let house = House::open().await?;
    let request =
        ChatRequest { message: "[[words:1]]".to_owned(), message_id: Some(Uuid::from_u128(7).into()), ..ChatRequest::default() };
    let mut live = house.alice.submit("assistant", &request).await?;
    live.done().await?;
    let again = refusal(house.alice.agent(Method::POST, "assistant", "/chat").json(&request)).await?;
    assert_eq!((again.code, again.execution_id), (Code::MessageAlreadyAccepted, Some(live.started.execution)));
    assert_eq!(house.provider.requests().await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_provider_is_given_the_whole_conversation() -> Result<()> {
    let house = House::open().await?;
    let mut first = house.alice.say("assistant", "My name is Ada.").await?;
    first.done().await?;
    house.alice.say_in("assistant", first.started.thread, "What is my name?").await?.done().await?;

    let seen = house.provider.request(1).await?;
    let messages = seen.body["messages"].as_array().context("messages")?;
    let said: Vec<_> = messages.iter().map(|m| (m["role"].as_str().unwrap_or(""), m["content"].as_str().unwrap_or(""))).collect();
    assert_eq!(said[0].0, "system");
    assert!(said[0].1.contains("You are under test."), "{said:?}");
    assert_eq!(
        said[1..],
        [("user", "My name is Ada."), ("assistant", "You said: My name is Ada."), ("user", "What is my name?")]
    );
    assert!(seen.headers.iter().any(|(name, _)| name == "authorization"));
    Ok(())
}

#[tokio::test]
async fn a_step_says_what_it_took() -> Result<()> {
    let house = House::open().await?;
    let mut live = house.alice.say("assistant", "[[words:1]]").await?;
    live.done().await?;
    let usage = live.seen.iter().find_map(|event| if let Event::FinishStep { usage } = event { *usage } else { None });
    // As the test's provider counts.
    let usage = usage.context("a step with its usage")?;
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(7), Some(11)));
    Ok(())
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments() -> Result<()> {
    let house = House::open().await?;
    let chat = house.alice.agent(Method::POST, "assistant", "/chat");
    let mut response = within("a stream", chat.json(&serde_json::json!({"message": "[[words:1]][[stall]]"})).send()).await?;
    let mut text = String::new();
    within("a comment", async {
        while !text.lines().any(|line| line.starts_with(':')) {
            let chunk = response.chunk().await?.context("the stream ended")?;
            text.push_str(&String::from_utf8_lossy(&chunk));
        }
        anyhow::Ok(())
    })
    .await?;
    assert!(text.contains("word1"), "{text}");
    Ok(())
}
