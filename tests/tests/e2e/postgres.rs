//! Several processes on one PostgreSQL (contract 1, section 9): any of them serves any read, Stop, answer and notification, and one
//! that dies takes nothing with it.

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::json;
use turnfast_shared::{
    Event, ExecutionStatus,
    api::{ChatRequest, ResumeRequest},
    message::ResumeData,
    problem::Code,
};
use turnfast_test_postgres::Cluster;
use turnfast_tests::{
    client::{Client, Live, assistant, refusal},
    installation::{Installation, Server},
    provider::{End, Provider},
};
use uuid::Uuid;

/// A provider, two servers on one database, and alice at both.
struct Pair {
    a: Server,
    b: Server,
    at_a: Client,
    at_b: Client,
    token: String,
    installation: Installation,
    provider: Provider,
}

impl Pair {
    async fn open() -> Result<Self> {
        Self::on(turnfast_test_postgres::database()?).await
    }

    /// Both servers start at once, on an empty database.
    async fn on(url: String) -> Result<Self> {
        let provider = Provider::start().await?;
        let installation = Installation::with_provider(&provider)?.on_postgres(url);
        let (a, b) = tokio::try_join!(installation.serve(), installation.serve())?;
        let token = installation.user("alice").await?;
        let (at_a, at_b) = (a.client(&token)?, b.client(&token)?);
        Ok(Self { a, b, at_a, at_b, token, installation, provider })
    }
}

/// What one of two racing submits or answers led to.
enum Raced {
    Won(Box<Live>),
    Lost(String),
}

fn raced(outcome: Result<Live>) -> Raced {
    match outcome {
        Ok(live) => Raced::Won(Box::new(live)),
        Err(error) => Raced::Lost(format!("{error:#}")),
    }
}

#[tokio::test]
async fn a_turn_of_one_process_is_followed_at_another() -> Result<()> {
    let pair = Pair::open().await?;
    let mut live = pair.at_a.say("assistant", "[[words:3]][[hold:gate]][[say: end]]").await?;
    let started = live.started;
    let midway = |text: &'static str| {
        let at_b = pair.at_b.clone();
        async move {
            at_b.read_until("assistant", started.thread, text, |read| {
                read.messages.last().is_some_and(|message| message.text().ends_with(text))
            })
            .await
        }
    };
    let read = midway("word3").await?;
    assert_eq!(read.active_execution_id, Some(started.execution));
    pair.provider.release("gate").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    let message = pair.at_b.settled("assistant", started.thread).await?;
    assert_eq!((message.id, message.text().as_str()), (started.assistant, "word1 word2 word3 end"));
    // And the thread goes on at the other one.
    let mut next = pair.at_b.say_in("assistant", started.thread, "[[say:from b]]").await?;
    assert_eq!(next.done().await?, ExecutionStatus::Success);
    assert_eq!(pair.at_a.settled("assistant", started.thread).await?.text(), "from b");
    Ok(())
}

#[tokio::test]
async fn a_stop_at_one_process_closes_the_providers_connection_of_another() -> Result<()> {
    let pair = Pair::open().await?;
    let mut live = pair.at_a.say("assistant", "[[words:3]][[stall]]").await?;
    live.until_text("word3").await?;
    let started = live.started;
    assert!(pair.at_b.stop("assistant", started.thread, started.execution).await?.cancel_requested);
    assert_eq!(pair.provider.end_of(0).await?, End::HungUp);
    assert_eq!(live.done().await?, ExecutionStatus::Cancelled);
    let message = pair.at_b.settled("assistant", started.thread).await?;
    assert_eq!((message.execution_status, message.text().as_str()), (Some(ExecutionStatus::Cancelled), "word1 word2 word3"));
    Ok(())
}

#[tokio::test]
async fn a_killed_process_is_noticed_by_another_and_its_turn_ends_honestly() -> Result<()> {
    let pair = Pair::open().await?;
    let started = pair.at_a.say("assistant", "[[words:5]][[stall]]").await?.started;
    pair.at_b
        .read_until("assistant", started.thread, "the text in the record", |read| {
            read.messages.last().is_some_and(|message| message.text().ends_with("word5"))
        })
        .await?;
    pair.a.kill().await?;
    let message = pair.at_b.settled("assistant", started.thread).await?;
    assert_eq!((message.id, message.execution_status), (started.assistant, Some(ExecutionStatus::Interrupted)));
    assert_eq!(message.text(), "word1 word2 word3 word4 word5");
    let mut next = pair.at_b.say_in("assistant", started.thread, "[[say:still here]]").await?;
    assert_eq!(next.done().await?, ExecutionStatus::Success);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_goes_on_does_so_at_another_process_in_the_same_message() -> Result<()> {
    let pair = Pair::open().await?;
    let started = pair.at_a.say("steady", "[[words:2]][[stall]]").await?.started;
    pair.at_b
        .read_until("steady", started.thread, "the text in the record", |read| {
            read.messages.last().is_some_and(|message| message.text().ends_with("word2"))
        })
        .await?;
    pair.a.kill().await?;
    // The provider is asked again, and told what there is already and to go on.
    let again = pair.provider.request(1).await?;
    let told = again.body["messages"].as_array().context("messages")?;
    let [.., so_far, go_on] = told.as_slice() else { bail!("{:#}", again.body) };
    assert_eq!((&so_far["role"], &so_far["content"]), (&json!("assistant"), &json!("word1 word2")), "{:#}", again.body);
    assert_eq!(go_on["role"], "user", "{:#}", again.body);
    let read =
        pair.at_b.read_until("steady", started.thread, "the end of the turn", |read| read.active_execution_id.is_none()).await?;
    assert_eq!(read.messages.len(), 2, "{read:#?}");
    let message = assistant(&read)?;
    assert_eq!((message.id, message.execution_status), (started.assistant, Some(ExecutionStatus::Success)));
    assert_ne!(message.execution_id, Some(started.execution));
    // The test's provider quotes what it is told to do.
    let text = message.text();
    assert_eq!(text.strip_prefix("word1 word2You said: "), go_on["content"].as_str(), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_stop_that_was_answered_survives_its_process_and_the_one_that_ran_the_turn() -> Result<()> {
    let pair = Pair::open().await?;
    let mut live = pair.at_a.say("steady", "[[words:3]][[stall]]").await?;
    live.until_text("word3").await?;
    let started = live.started;
    pair.at_b.stop("steady", started.thread, started.execution).await?;
    tokio::try_join!(pair.a.kill(), pair.b.kill())?;
    let server = pair.installation.serve().await?;
    let message = server.client(&pair.token)?.settled("steady", started.thread).await?;
    assert_eq!(message.execution_status, Some(ExecutionStatus::Cancelled));
    Ok(())
}

#[tokio::test]
async fn one_message_sent_to_two_processes_at_once_is_one_turn() -> Result<()> {
    let pair = Pair::open().await?;
    let request =
        ChatRequest { message: "[[say:once]]".to_owned(), message_id: Some(Uuid::now_v7().into()), ..ChatRequest::default() };
    let (at_a, at_b) = tokio::join!(pair.at_a.submit("assistant", &request), pair.at_b.submit("assistant", &request));
    let (Raced::Won(mut live), Raced::Lost(why)) = (match (raced(at_a), raced(at_b)) {
        (Raced::Lost(why), won) => (won, Raced::Lost(why)),
        other => other,
    }) else {
        panic!("one of them starts the turn, the other one hears of it")
    };
    assert!(why.contains("MessageAlreadyAccepted") && why.contains(&live.started.execution.to_string()), "{why}");
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert_eq!(pair.provider.requests().await?.len(), 1);
    assert_eq!(pair.at_b.read("assistant", live.started.thread).await?.messages.len(), 2);
    Ok(())
}

#[tokio::test]
async fn of_two_answers_at_two_processes_one_wins() -> Result<()> {
    let pair = Pair::open().await?;
    let mut live = pair.at_a.say("assistant", r#"[[tool:ask_user:{"question":"Which colour?"}]]"#).await?;
    live.until("a suspension", |event| matches!(event, Event::ToolCallSuspended { .. })).await?;
    live.rest().await?;
    let thread = live.started.thread;
    let read = pair.at_b.read("assistant", thread).await?;
    let open = read.open_suspensions.first().context("an open question")?;
    let answer = |colour: &str| ResumeRequest {
        run_id: open.run_id,
        tool_call_id: open.tool_call_id.clone(),
        resume_data: ResumeData::Answer { answer: colour.to_owned() },
    };
    let (red, blue) = (answer("red"), answer("blue"));
    let (at_a, at_b) = tokio::join!(pair.at_a.resume("assistant", &red), pair.at_b.resume("assistant", &blue));
    let (colour, mut live, why) = match (raced(at_a), raced(at_b)) {
        (Raced::Won(live), Raced::Lost(why)) => ("red", live, why),
        (Raced::Lost(why), Raced::Won(live)) => ("blue", live, why),
        _ => panic!("exactly one answer wins"),
    };
    assert!(why.contains("InteractionClosed") || why.contains("TurnAlreadyRunning"), "{why}");
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    assert!(live.text().contains(colour), "{}", live.text());
    let late = pair.at_b.agent(Method::POST, "assistant", "/chat/resume").json(&json!({
        "runId": open.run_id, "toolCallId": open.tool_call_id, "resumeData": {"answer": "green"}
    }));
    assert_eq!(refusal(late).await?.code, Code::InteractionClosed);
    Ok(())
}

#[tokio::test]
async fn turns_go_on_over_a_restart_of_the_database() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let pair = Pair::on(cluster.database()?).await?;
    let mut live = pair.at_a.say("assistant", "[[words:3]][[hold:gate]][[say: end]]").await?;
    let started = live.started;
    live.until_text("word3").await?;
    pair.at_b
        .read_until("assistant", started.thread, "the text in the record", |read| {
            read.messages.last().is_some_and(|message| message.text().ends_with("word3"))
        })
        .await?;
    cluster.kill();
    let refused = refusal(pair.at_b.agent(Method::POST, "assistant", "/chat").json(&json!({"message": "now"}))).await?;
    assert_eq!(refused.code, Code::StorageUnavailable);
    pair.provider.release("gate").await?;
    live.until_text(" end").await?;
    cluster.restart()?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    let message = pair.at_b.settled("assistant", started.thread).await?;
    assert_eq!((message.execution_status, message.text().as_str()), (Some(ExecutionStatus::Success), "word1 word2 word3 end"));
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_leaves_its_turns_whole_for_the_others() -> Result<()> {
    let pair = Pair::open().await?;
    let mut live = pair.at_a.say("assistant", "[[words:2]][[hold:gate]][[say: to the end]]").await?;
    live.until_text("word2").await?;
    let started = live.started;
    pair.a.ask_to_end()?;
    live.rest().await?;
    pair.provider.release("gate").await?;
    assert!(pair.a.ended().await?.success());
    let message = pair.at_b.settled("assistant", started.thread).await?;
    assert_eq!((message.execution_status, message.text().as_str()), (Some(ExecutionStatus::Success), "word1 word2 to the end"));
    drop(pair.b);
    Ok(())
}
