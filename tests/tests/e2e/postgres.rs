//! Several processes on one PostgreSQL (contract 1, section 9): any of them serves any read, Stop, answer and notification, and one
//! that dies takes nothing with it.

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use reqwest::RequestBuilder;
use serde_json::json;
use turnfast_shared::{
    Event, ExecutionStatus,
    api::{ChatRequest, ResumeRequest, ThreadSnapshot},
    ids::ThreadId,
    message::ResumeData,
    problem::{Code, Problem},
};
use turnfast_test_postgres::{Cluster, Wire};
use turnfast_tests::{
    client::{Attempt, Client, Live, Push, Started, assistant, attempt, refusal},
    installation::{Installation, Server},
    provider::{End, Provider},
    within,
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

/// How often a race is run: one that is lost once in a while shows.
const ROUNDS: usize = 25;

/// Of two requests at the same instant, the one that was accepted, and the other's refusal.
async fn race(one: RequestBuilder, other: RequestBuilder) -> Result<(Live, Problem)> {
    match tokio::try_join!(attempt(one), attempt(other))? {
        (Attempt::Accepted(live), Attempt::Refused(problem)) | (Attempt::Refused(problem), Attempt::Accepted(live)) => {
            Ok((live, problem))
        }
        both => bail!("one of them wins, and one only: {both:#?}"),
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
    for round in 1..=ROUNDS {
        let message_id = Some(Uuid::now_v7().into());
        let request = ChatRequest { message: "[[say:once]]".to_owned(), message_id, ..ChatRequest::default() };
        let to = |client: &Client| client.agent(Method::POST, "assistant", "/chat").json(&request);
        let (mut live, refused) = race(to(&pair.at_a), to(&pair.at_b)).await?;
        assert_eq!((refused.code, refused.execution_id), (Code::MessageAlreadyAccepted, Some(live.started.execution)));
        assert_eq!(live.done().await?, ExecutionStatus::Success);
        assert_eq!(pair.provider.requests().await?.len(), round, "the model is asked once per message");
        assert_eq!(pair.at_b.read("assistant", live.started.thread).await?.messages.len(), 2);
    }
    Ok(())
}

#[tokio::test]
async fn of_two_answers_at_two_processes_one_wins() -> Result<()> {
    let pair = Pair::open().await?;
    for _ in 0..ROUNDS {
        let mut live = pair.at_a.say("assistant", r#"[[tool:ask_user:{"question":"Which colour?"}]]"#).await?;
        live.until("a suspension", |event| matches!(event, Event::ToolCallSuspended { .. })).await?;
        live.rest().await?;
        let started = live.started;
        let read = pair.at_b.read("assistant", started.thread).await?;
        let open = read.open_suspensions.first().context("an open question")?;
        let answer = |client: &Client, colour: &str| {
            client.agent(Method::POST, "assistant", "/chat/resume").json(&ResumeRequest {
                run_id: open.run_id,
                tool_call_id: open.tool_call_id.clone(),
                resume_data: ResumeData::Answer { answer: colour.to_owned() },
            })
        };
        let (mut live, refused) = race(answer(&pair.at_a, "yellow"), answer(&pair.at_b, "blue")).await?;
        assert_eq!(refused.code, Code::InteractionClosed);
        assert_eq!(live.done().await?, ExecutionStatus::Success);
        assert_eq!(live.started.assistant, started.assistant, "it goes on in the same message");
        let text = live.text();
        assert_ne!(
            text.contains("yellow"),
            text.contains("blue"),
            "the answer that won, and it alone, is told to the model: {text}"
        );
        assert_eq!(refusal(answer(&pair.at_b, "green")).await?.code, Code::InteractionClosed);
    }
    Ok(())
}

/// What a follower is told of a thread, until it knows of `revision`. Revisions rise.
async fn told(push: &mut Push, thread: ThreadId, revision: u64) -> Result<()> {
    let mut last = 0;
    within("a notification", async {
        while last < revision {
            let Some(update) = push.update().await?.filter(|update| update.thread_id == thread) else { continue };
            ensure!(update.revision > last, "revision {} is told of after {last}", update.revision);
            last = update.revision;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn followers_at_every_process_are_told_of_each_change_whoever_makes_it() -> Result<()> {
    let pair = Pair::open().await?;
    for (here, there) in [(&pair.at_a, &pair.at_b), (&pair.at_b, &pair.at_a)] {
        let mut followers = [here.push().await?, there.push().await?];
        let mut live = here.say("assistant", "[[words:3]][[stall]]").await?;
        let Started { thread, execution, .. } = live.started;
        let mut all_told = async |what: &str| {
            let revision = there.read("assistant", thread).await?.revision;
            for follower in &mut followers {
                told(follower, thread, revision).await.with_context(|| what.to_owned())?;
            }
            anyhow::Ok(revision)
        };
        let accepted = all_told("the acceptance").await?;
        // Not read again before it is told: a change that nobody is told of hangs here.
        live.until_text("word3").await?;
        there.read_until("assistant", thread, "the text", |read| read.revision > accepted).await?;
        all_told("the text").await?;
        assert!(there.stop("assistant", thread, execution).await?.cancel_requested);
        assert_eq!(live.done().await?, ExecutionStatus::Cancelled);
        all_told("the end by a Stop at the other process").await?;
        let rename = there.agent(Method::PATCH, "assistant", &format!("/threads/{thread}")).json(&json!({"title": "renamed"}));
        ensure!(rename.send().await?.status().is_success());
        all_told("a new title").await?;
        let last = there.read("assistant", thread).await?.revision;
        let delete = here.agent(Method::DELETE, "assistant", &format!("/threads/{thread}"));
        ensure!(delete.send().await?.status().is_success());
        for follower in &mut followers {
            told(follower, thread, last + 1).await.context("the deletion")?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_process_that_is_cut_off_is_succeeded_and_cannot_write_any_more() -> Result<()> {
    let url = turnfast_test_postgres::database()?;
    let wire = Wire::to(&url)?;
    let provider = Provider::start().await?;
    let installation = Installation::with_provider(&provider)?.on_postgres(url);
    let (a, b) = (installation.serve_on(wire.url()).await?, installation.serve().await?);
    let token = installation.user("alice").await?;
    let (at_a, at_b) = (a.client(&token)?, b.client(&token)?);
    for (agent, status) in [("assistant", ExecutionStatus::Interrupted), ("steady", ExecutionStatus::Success)] {
        let gate = format!("gate of {agent}");
        let mut live = at_a.say(agent, &format!("[[words:3]][[hold:{gate}]][[say: too late]]")).await?;
        let thread = live.started.thread;
        let recorded = |read: &ThreadSnapshot| read.messages.last().is_some_and(|message| message.text().ends_with("word3"));
        at_b.read_until(agent, thread, "the text in the record", recorded).await?;

        wire.cut();
        let ended = |read: &ThreadSnapshot| {
            read.messages.last().is_some_and(|message| message.execution_status.is_some_and(ExecutionStatus::is_final))
        };
        let succeeded = at_b.read_until(agent, thread, "an end by the other process", ended).await?;
        let message = assistant(&succeeded)?;
        assert_eq!((message.id, message.execution_status), (live.started.assistant, Some(status)));
        // It does not know yet, and its turn runs on in memory.
        provider.release(&gate).await?;
        live.until_text(" too late").await?;
        let refused = refusal(at_a.agent(Method::POST, agent, "/chat").json(&json!({"message": "now"}))).await?;
        assert_eq!(refused.code, Code::StorageUnavailable);

        wire.mend();
        live.rest().await?;
        assert!(
            !live.seen.iter().any(|event| matches!(event, Event::Done { .. })),
            "it has nothing final to say: {:#?}",
            live.seen
        );
        // It serves again, under another id, and what the other one wrote is untouched.
        let mut next = None;
        at_a.push().await?;
        within("a turn at the process that was cut off", async {
            while next.is_none() {
                match attempt(at_a.agent(Method::POST, agent, "/chat").json(&json!({"message": "[[say:back]]"}))).await? {
                    Attempt::Accepted(live) => next = Some(live),
                    Attempt::Refused(problem) => ensure!(problem.code == Code::StorageUnavailable, "{problem:#?}"),
                }
            }
            Ok(())
        })
        .await?;
        assert_eq!(next.context("a turn")?.done().await?, ExecutionStatus::Success);
        let read = at_b.read(agent, thread).await?;
        assert_eq!(read.revision, succeeded.revision, "not one more byte");
        assert!(!assistant(&read)?.text().contains("too late"));
    }
    Ok(())
}

#[tokio::test]
async fn servers_that_start_at_once_on_an_empty_database_make_it_once() -> Result<()> {
    let installation = Installation::empty()?.on_postgres(turnfast_test_postgres::database()?);
    let serve = || installation.serve();
    let servers: [_; 4] = tokio::try_join!(serve(), serve(), serve(), serve())?.into();
    let token = installation.user("alice").await?;
    for server in &servers {
        let me = server.client(&token)?.request(Method::GET, "/auth/me").send().await?;
        ensure!(me.status().is_success(), "{me:?}");
    }
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
