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
    "7 open", "A first read comes first: until it succeeds nothing can be sent"
        => elsewhere "client-core/src/thread/tests/rules.rs", "opening_reads_and_blocks_sending_until_the_read_succeeds";
    "7 open fails", "Where the first read fails for good, sending is possible"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_first_read_that_fails_for_good_lets_the_person_send";
    "7 reads", "Every occasion reads, and nothing else does"
        => elsewhere "client-core/src/thread/tests/rules.rs", "every_occasion_reads_what_changed_since";
    "7 one read", "One read is in flight, and at most one waits"
        => elsewhere "client-core/src/thread/tests/rules.rs", "one_read_is_in_flight_and_at_most_one_waits";
    "7 dropped read", "A read is dropped when the thread was switched or the machine disposed of"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_read_is_dropped_when_the_thread_is_switched_or_the_machine_disposed";
    "7 lower revision", "A snapshot of a lower revision is dropped"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_snapshot_of_a_lower_revision_is_dropped";
    "7 own stream", "While the own stream is live, notifications wait for one read at its end"
        => elsewhere "client-core/src/thread/tests/rules.rs", "while_the_own_stream_is_live_notifications_wait_for_one_read_at_its_end";
    "7 no text twice", "Live events and the read behind them show each text once"
        => elsewhere "client-core/src/thread/tests/rules.rs", "live_events_and_the_read_that_follows_show_each_text_once";
    "7 failed read", "A failed read keeps what is shown, says so, and is tried again after 1 s and 2 s, then on the next occasion"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_failed_read_keeps_everything_says_so_and_is_tried_after_1_s_and_2_s_then_on_the_next_occasion";
    "7 404", "404 clears the screen only on the first load with nothing active"
        => elsewhere "client-core/src/thread/tests/rules.rs", "not_found_clears_only_on_the_first_load_with_nothing_active";
    "7 submit", "No submit while a turn runs, while an interaction is open, or without a text"
        => elsewhere "client-core/src/thread/tests/rules.rs", "sending_is_blocked_while_a_turn_runs_while_an_interaction_is_open_and_without_a_text";
    "7 draft", "The draft is kept per thread, across reloads"
        => elsewhere "client-core/src/thread/tests/rules.rs", "drafts_are_kept_per_thread_over_switches_and_reloads";
    "7 draft cleared", "`execution-started` clears the draft"
        => elsewhere "client-core/src/thread/tests/rules.rs", "the_draft_is_cleared_by_execution_started";
    "7 draft kept", "A refused submit keeps the draft and says why"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_refused_submit_keeps_the_draft_and_says_why";
    "7 no re-send", "After a connection that broke before any answer, a read decides about the draft, and nothing is sent again"
        => elsewhere "client-core/src/thread/tests/rules.rs", "after_a_connection_that_broke_before_any_answer_a_read_tells_whether_the_draft_is_cleared";
    "7 Stop", "One Stop per execution; \"stopping\" until the record shows the end"
        => elsewhere "client-core/src/thread/tests/rules.rs", "stop_is_asked_once_and_shows_stopping_until_the_record_shows_the_end";
    "7 Stop again", "A Stop that came to nothing can be pressed again"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_stop_that_came_to_nothing_can_be_pressed_again";
    "7 Stop early", "A Stop before `execution-started` is kept, and sent when the id is known"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_stop_pressed_before_the_id_is_known_is_kept_and_sent_once";
    "7 Stop given up", "And given up after 30 s"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_kept_stop_is_given_up_after_30_s";
    "7 suspension", "A suspension stays answerable after a reload, and Stop cancels the suspended turn"
        => elsewhere "client-core/src/thread/tests/rules.rs", "a_suspension_is_answerable_after_a_reload_and_stop_cancels_the_suspended_turn";
    "7 answered in another tab", "When one tab answers, the others show it answered"
        => elsewhere "client-core/src/thread/tests/rules.rs", "when_one_tab_answers_the_others_show_it_answered";
    "7 tabs", "Many tabs share one `/push` connection"
        => elsewhere "client-core/src/follow/tests.rs", "eight_tabs_share_one_connection_and_each_hears_everything_once";
    "7 leader", "When the tab that holds it goes, another takes over and every tab reads once"
        => elsewhere "client-core/src/follow/tests.rs", "when_the_leader_goes_another_takes_over_and_every_tab_reads_once";
    "7 answered elsewhere", "Of two answers at the same instant one wins, the other hears `interaction_closed`" => test racing_answers;
    "9 idempotent submit", "One `messageId` sent several times at the same instant starts one turn" => test idempotent_submit;
    "9 idempotent submit at two processes", "Also at two processes"
        => elsewhere "tests/tests/e2e/postgres.rs", "one_message_sent_to_two_processes_at_once_is_one_turn";
    "9 durable Stop", "A Stop that was answered survives the death of its process"
        => elsewhere "tests/tests/e2e/stop.rs", "a_stop_that_was_answered_survives_the_process";
    "9 honest end", "A killed process leaves `interrupted`, its text and a thread that works"
        => elsewhere "tests/tests/e2e/crash.rs", "a_killed_process_leaves_an_honest_end_and_a_thread_that_works";
    "9 honest end elsewhere", "Another process notices, tells the owner and leaves the same"
        => elsewhere "tests/tests/e2e/postgres.rs", "a_killed_process_is_noticed_by_another_and_its_turn_ends_honestly";
    "9 honest end soon", "It does so within a second, as `cargo xtask bench reliability` measures"
        => elsewhere "tests/src/bench/reliability.rs", "interrupted";
    "9 honest end policy", "Unless the agent's policy goes on with it: in the same message"
        => elsewhere "tests/tests/e2e/postgres.rs", "an_agent_that_goes_on_does_so_at_another_process_in_the_same_message";
    "9 fencing", "Who lost the claim writes nothing more"
        => elsewhere "server/src/turns/tests.rs", "an_execution_that_lost_its_claim_writes_nothing_more";
    "9 fencing elsewhere", "Nor does a process that was cut off and is succeeded"
        => elsewhere "tests/tests/e2e/postgres.rs", "a_process_that_is_cut_off_is_succeeded_and_cannot_write_any_more";
    "9 many processes", "Any process serves any read"
        => elsewhere "tests/tests/e2e/postgres.rs", "a_turn_of_one_process_is_followed_at_another";
    "9 many processes Stop", "And any Stop"
        => elsewhere "tests/tests/e2e/postgres.rs", "a_stop_at_one_process_closes_the_providers_connection_of_another";
    "9 many processes notification", "And any notification"
        => elsewhere "tests/tests/e2e/postgres.rs", "followers_at_every_process_are_told_of_each_change_whoever_makes_it";
    "9 many processes answer", "And any answer: of two at the same instant one wins"
        => elsewhere "tests/tests/e2e/postgres.rs", "of_two_answers_at_two_processes_one_wins";
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
        .map(|who| house.at(who, Method::POST, "/chat").json(&json!({"message": "/slow 600", "sessionId": thread})))
        .collect();
    let answers = at_once(requests).await?;
    same("turns that were started", answers.iter().filter(|(status, _)| *status == 200).count(), 1)?;
    for (status, body) in answers.iter().filter(|(status, _)| *status != 200) {
        same("the others", (*status, &body["code"]), (409, &json!("turn_already_running")))?;
    }
    let running = house.read(thread).await?.active_execution_id.context("the turn that was accepted")?;
    house.stop(thread, running).await?;
    house.settled(thread).await?;
    same("the messages", house.read(thread).await?.messages.len(), 4)?;
    let stranger = house.at(&house.other, Method::POST, "/chat").json(&json!({"message": "hi", "sessionId": thread}));
    ensure!(refusal(stranger).await?.code == Code::NotFound, "it is still private");
    Ok(())
}
