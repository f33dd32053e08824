//! Sections 7 and 9: the browser's side, which a server cannot show, and what Turnfast promises beyond the reference.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use turnfast_shared::{ExecutionStatus, ids::MessageId, problem::Code};
use uuid::Uuid;

use super::{Case, cases, house::House, same};
use crate::{client::refusal, within};

pub(super) const CASES: &[Case] = cases! {
    "7 browser", "The client's machine keeps its promises whatever happens"
        => elsewhere "client-core/src/simulation/mod.rs", "seeds";
    "7 answered elsewhere", "Of two answers at the same instant one wins, the other hears `interaction_closed`" => test racing_answers;
    "9 idempotent submit", "One `messageId` sent several times at the same instant starts one turn" => test idempotent_submit;
    "9 durable Stop", "A Stop that was answered survives the death of its process"
        => elsewhere "tests/tests/e2e/stop.rs", "a_stop_that_was_answered_survives_the_process";
    "9 honest end", "A killed process leaves `interrupted`, its text and a thread that works"
        => elsewhere "tests/tests/e2e/crash.rs", "a_killed_process_leaves_an_honest_end_and_a_thread_that_works";
    "9 fencing", "Who lost the claim writes nothing more"
        => elsewhere "server/src/turns/tests.rs", "an_execution_that_lost_its_claim_writes_nothing_more";
    "9 racing submits", "Of submits to one thread at the same instant one is accepted" => test racing_submits;
};

/// What became of requests that were sent at the same instant: the status, and the problem's code.
async fn at_once(requests: Vec<reqwest::RequestBuilder>) -> Result<Vec<(u16, Value)>> {
    let answers = join_all(requests.into_iter().map(|request| async {
        let response = within("an answer", request.send()).await?;
        let status = response.status().as_u16();
        // A stream is not read here: its turn runs on without it.
        let body = if status == 200 { Value::Null } else { within("a body", response.json()).await? };
        anyhow::Ok((status, body))
    }))
    .await;
    answers.into_iter().collect()
}

async fn racing_answers(house: Arc<House>) -> Result<()> {
    for _ in 0..5 {
        let (started, asked) = house.suspended("/ask").await?;
        let Some(turnfast_shared::message::SuspendPayload::Question { options: Some(options), .. }) = &asked.suspend_payload
        else {
            bail!("{asked:?} is no question with options")
        };
        let requests = options
            .iter()
            .cycle()
            .take(4)
            .zip([&house.owner, &house.second].into_iter().cycle())
            .map(|(option, who)| house.answering(who, &asked, &json!({"answer": option})))
            .collect();
        let answers = at_once(requests).await?;
        let won: Vec<_> = answers.iter().enumerate().filter(|(_, (status, _))| *status == 200).map(|(n, _)| n).collect();
        let [won] = won[..] else { bail!("one answer wins: {answers:?}") };
        for (status, body) in answers.iter().filter(|(status, _)| *status != 200) {
            same("the others", (*status, &body["code"]), (409, &json!("interaction_closed")))?;
        }
        let message = house.settled(started.thread).await?;
        same("the status", message.execution_status, Some(ExecutionStatus::Success))?;
        let answer = options.get(won % options.len()).context("an option")?;
        let call = message.content.iter().find_map(turnfast_shared::Part::as_tool_call).context("a call")?;
        same("the recorded answer", call.output.as_ref().map(|output| &output["answer"]), Some(&json!(answer)))?;
        same("the messages", house.read(started.thread).await?.messages.len(), 2)?;
    }
    Ok(())
}

async fn idempotent_submit(house: Arc<House>) -> Result<()> {
    for _ in 0..5 {
        let (thread, message) = (Uuid::new_v4(), MessageId::from(Uuid::new_v4()));
        let body = json!({"message": "once", "messageId": message, "sessionId": thread, "newSession": true});
        let requests = [&house.owner, &house.second, &house.owner, &house.second]
            .into_iter()
            .map(|who| house.at(who, Method::POST, "/chat").json(&body))
            .collect();
        let answers = at_once(requests).await?;
        same("turns that were started", answers.iter().filter(|(status, _)| *status == 200).count(), 1)?;
        let end = house.settled(thread.into()).await?;
        for (status, body) in answers.iter().filter(|(status, _)| *status != 200) {
            same("the others", (*status, &body["code"]), (409, &json!("message_already_accepted")))?;
            same("the execution that they name", &body["executionId"], &json!(end.execution_id))?;
        }
        same("the messages", house.read(thread.into()).await?.messages.len(), 2)?;
    }
    Ok(())
}

async fn racing_submits(house: Arc<House>) -> Result<()> {
    let thread = house.turn("hello").await?.started.thread;
    let requests = [&house.owner, &house.second, &house.owner, &house.second]
        .into_iter()
        .map(|who| house.at(who, Method::POST, "/chat").json(&json!({"message": "/slow 3", "sessionId": thread})))
        .collect();
    let answers = at_once(requests).await?;
    same("turns that were started", answers.iter().filter(|(status, _)| *status == 200).count(), 1)?;
    for (status, body) in answers.iter().filter(|(status, _)| *status != 200) {
        same("the others", (*status, &body["code"]), (409, &json!("turn_already_running")))?;
    }
    house.settled(thread).await?;
    same("the messages", house.read(thread).await?.messages.len(), 4)?;
    let stranger = house.at(&house.other, Method::POST, "/chat").json(&json!({"message": "hi", "sessionId": thread}));
    ensure!(refusal(stranger).await?.code == Code::NotFound, "it is still private");
    Ok(())
}
