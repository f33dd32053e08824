//! How soon what happens shows: text in the record, and at other processes the death of one and a Stop that was asked of another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use sqlx::{Connection as _, PgConnection};
use turnfast_shared::{ExecutionStatus, api::PushEvent};

use super::Measure;
use crate::{
    client::{Client, Push, Started},
    installation::Installation,
    provider::{End, Provider},
    within,
};

/// Turns that run in a process when it is killed.
const TURNS: usize = 4;

/// Runs two processes on a PostgreSQL of its own, kills one of them `repetitions` times, stops turns of one at the other, and waits for
/// the text of one at the other.
///
/// # Errors
/// PostgreSQL or the server is missing, or a turn does not end as it must.
pub async fn run(repetitions: usize) -> Result<[Measure; 3]> {
    let provider = Provider::start().await?;
    let url = turnfast_test_postgres::database()?;
    // For its first five seconds a PostgreSQL says nothing of who lives: whoever held a lock before gets them to take it again.
    let mut connection = PgConnection::connect(&url).await?;
    sqlx::query("SELECT pg_sleep(greatest(0, 5 - extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())))")
        .execute(&mut connection)
        .await?;
    connection.close().await?;
    let installation = Installation::with_provider(&provider)?.on_postgres(url);
    let mut survivor = installation.serve().await?;
    let token = installation.user("alice").await?;
    let reader = survivor.client(&token)?;

    let mut deaths = Measure::new(
        "from `kill -9` of the process that runs a turn until a reader at another one sees `interrupted`",
        Duration::from_secs(1),
    );
    for _ in 0..repetitions {
        let mut owner = installation.serve().await?;
        owner.hush();
        let at_owner = owner.client(&token)?;
        let running = try_join_all((0..TURNS).map(|_| running(&at_owner, &reader))).await?;
        let mut readers = Vec::new();
        for started in running {
            readers.push((reader.push().await?, started));
        }
        let killed = Instant::now();
        let noticed = readers.into_iter().map(|(push, started)| interrupted(&reader, push, started, killed));
        let (died, noticed) = tokio::join!(owner.kill(), try_join_all(noticed));
        died?;
        deaths.samples.extend(noticed?);
    }

    let mut stops = Measure::new(
        "from a Stop at one process until the provider sees that another one closed its connection",
        Duration::from_millis(100),
    );
    let mut owner = installation.serve().await?;
    let at_owner = owner.client(&token)?;
    // As many samples of both: one kill is seen by several readers.
    for _ in 0..repetitions * TURNS {
        let number = provider.requests().await?.len();
        let started = running(&at_owner, &reader).await?;
        let asked = Instant::now();
        let hung_up = async {
            let end = provider.end_of(number).await?;
            stops.samples.push(asked.elapsed());
            anyhow::Ok(end)
        };
        let stop = reader.stop("assistant", started.thread, started.execution);
        let (answer, end) = tokio::try_join!(stop, hung_up)?;
        ensure!(answer.cancel_requested && end == End::HungUp, "the turn was not stopped");
        reader.settled("assistant", started.thread).await?;
    }

    let mut texts = Measure::new(
        "from the first delta on the live stream until a reader at another process sees its text in the record",
        Duration::from_millis(250),
    );
    for _ in 0..repetitions {
        texts.samples.push(recorded(&at_owner, &reader).await?);
    }
    survivor.hush();
    owner.hush();
    Ok([deaths, stops, texts])
}

/// How long after the first delta of a turn its text is read, by who reads when told to.
async fn recorded(client: &Client, reader: &Client) -> Result<Duration> {
    let mut live = client.say("assistant", "[[words:1]][[stall]]").await?;
    let started = live.started;
    let mut push = reader.push().await?;
    live.until_text("word1").await?;
    let said = Instant::now();
    let waited = within("the text in the record", async {
        loop {
            let read = reader.read("assistant", started.thread).await?;
            if read.messages.last().is_some_and(|message| message.text().contains("word1")) {
                return anyhow::Ok(said.elapsed());
            }
            while !matches!(push.next().await?, PushEvent::AgentExecutionUpdated(update) if update.thread_id == started.thread) {}
        }
    })
    .await?;
    reader.stop("assistant", started.thread, started.execution).await?;
    live.rest().await?;
    Ok(waited)
}

/// A turn that has said something, which is recorded, and says no more.
async fn running(client: &Client, reader: &Client) -> Result<Started> {
    let started = client.say("assistant", "[[words:5]][[stall]]").await?.started;
    reader
        .read_until("assistant", started.thread, "text in the record", |read| {
            read.messages.last().is_some_and(|message| message.text().ends_with("word5"))
        })
        .await?;
    Ok(started)
}

/// Reads when told to, as a page does, until the turn is interrupted; gives how long that took.
async fn interrupted(client: &Client, mut push: Push, turn: Started, since: Instant) -> Result<Duration> {
    within("the end of the turn", async {
        loop {
            match push.next().await? {
                PushEvent::Ping => continue,
                PushEvent::AgentExecutionUpdated(update) if update.thread_id != turn.thread => continue,
                PushEvent::AgentExecutionUpdated(_) | PushEvent::Connected => {}
            }
            let read = client.read("assistant", turn.thread).await?;
            let message = read.messages.last().context("a message")?;
            if message.execution_status == Some(ExecutionStatus::Interrupted) {
                return anyhow::Ok(since.elapsed());
            }
        }
    })
    .await
}
