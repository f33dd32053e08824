//! Chaos: three servers behind one address, on one PostgreSQL and one provider, and many people at tabs, while everything between
//! and below them fails in every way that a test can arrange. See [`Fault`](fault::Fault) for these ways and [`Check`] for what must
//! hold all the same.
//!
//! A run is a sequence of epochs. Each has a seed of its own (the run's, and one more for every epoch), new people and new threads,
//! and goes so: faults come and go as planned while people do things; then all is mended, and whatever still runs comes to its end;
//! then the checks look at what the people logged and at what is recorded. The cluster goes on from epoch to epoch.
//!
//! A seed decides what is planned. What happens is up to the machine as well: a seed that failed once fails again with luck.

pub mod checks;
pub mod cluster;
pub mod fault;
pub mod link;
pub mod log;
mod people;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use futures::future::{join_all, try_join_all};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ThreadId;

use self::{
    checks::{CHECKS, Check},
    cluster::Cluster,
    fault::Planned,
    log::{Asked, Entry, Evidence, Outcome, Record, StreamEnd},
    people::{Closer, Desk, Follower, Left, Tab},
};
use crate::{
    GUARD,
    client::{Client, http_without_reuse},
};

/// Tabs that show the same thread.
const TABS_PER_DESK: usize = 2;
/// Agents that people talk to, by desk.
const AGENTS: [&str; 8] = ["assistant", "steady", "careful", "demo", "assistant", "steady", "careful", "steady"];
/// How long streams that are still read get for their end once everything is over.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Pause between two looks at what is to come about.
const LOOK: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides what people do and what fails.
    pub seed: u64,
    /// How long the run is: no epoch begins later.
    pub lasts: Duration,
    /// How long people and faults go on in an epoch.
    pub epoch: Duration,
    /// Where logs and evidence go if something is broken.
    pub keep: PathBuf,
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The seed of its epoch.
    pub seed: u64,
    /// The promise.
    pub check: Check,
    /// Each case.
    pub cases: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Epochs that ran.
    pub epochs: u64,
    /// What happened how often.
    pub counts: BTreeMap<String, u64>,
    /// What must not have.
    pub broken: Vec<Broken>,
    /// Why the last epoch could not be brought to its end: nothing is known of its promises, all else is of the epochs before.
    pub gave_up: Option<String>,
}

impl Report {
    /// Whether every epoch came to its end and every promise was kept.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.gave_up.is_none()
    }

    fn count(&mut self, what: impl Into<String>, times: usize) {
        *self.counts.entry(what.into()).or_default() += times as u64;
    }

    /// How often that happened.
    #[must_use]
    pub fn times(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    /// What holds and what does not, by promise.
    pub fn verdicts(&self) -> impl Iterator<Item = (Check, usize)> {
        CHECKS.into_iter().map(|check| {
            let broken = self.broken.iter().filter(|broken| broken.check == check);
            (check, broken.map(|broken| broken.cases.len()).sum())
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.counts {
            writeln!(f, "{times:>8}  {what}")?;
        }
        for (check, cases) in self.verdicts() {
            let verdict = if cases == 0 { "holds".to_owned() } else { format!("BROKEN {cases} times") };
            writeln!(f, "{}: {verdict}", check.promise())?;
        }
        for broken in &self.broken {
            for case in broken.cases.iter().take(5) {
                writeln!(f, "seed {}: {}: {case}", broken.seed, broken.check.promise())?;
            }
        }
        if let Some(why) = &self.gave_up {
            writeln!(f, "GIVEN UP in the last epoch, of which nothing above speaks: {why}")?;
        }
        Ok(())
    }
}

/// Runs it.
///
/// # Errors
/// The cluster cannot be started, or what is to be kept cannot be written. The report says which promises were broken, and whether the
/// run was given up since a fault could not be carried out or what was struck did not come back.
pub async fn run(options: Options) -> Result<Report> {
    println!("seed {}: {} s, in epochs of {} s", options.seed, options.lasts.as_secs(), options.epoch.as_secs());
    let cluster = Arc::new(Cluster::start().await?);
    let mut report = Report::default();
    let begun = Instant::now();
    while report.epochs == 0 || begun.elapsed() < options.lasts {
        let seed = options.seed.wrapping_add(report.epochs);
        let timeline = Arc::new(Timeline::default());
        let outcome = self::epoch(&cluster, seed, options.epoch, &timeline, &mut report).await;
        report.epochs += 1;
        let broken: Vec<_> = report.broken.iter().filter(|broken| broken.seed == seed).map(|broken| broken.check).collect();
        let folder = options.keep.join(format!("seed-{seed}"));
        if outcome.is_err() || !broken.is_empty() {
            keep(&cluster, &folder, &timeline, outcome.as_ref().ok())?;
        }
        if let Err(error) = outcome {
            report.gave_up = Some(format!("seed {seed}: {error:#}; logs are in {}", folder.display()));
            break;
        }
        let verdict =
            if broken.is_empty() { "clean".to_owned() } else { format!("BROKEN: {broken:?}; see {}", folder.display()) };
        println!(
            "epoch {} (seed {seed}): {} turns accepted so far; {}; {verdict}",
            report.epochs,
            report.times(ACCEPTED),
            timeline.phases()
        );
    }
    Ok(report)
}

/// The count that the progress shows.
const ACCEPTED: &str = "turns accepted";

/// When faults really came and went, and what came after them.
#[derive(Debug, Default)]
struct Timeline {
    text: Mutex<String>,
    phases: Mutex<Vec<String>>,
}

impl Timeline {
    /// The epoch has come so far.
    fn phase(&self, since: Instant, what: &str) {
        self.note(since, format_args!("{what}"));
        let phase = format!("{what} after {} s", since.elapsed().as_secs());
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).push(phase);
    }

    fn phases(&self) -> String {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).join(", ")
    }

    fn note(&self, since: Instant, what: fmt::Arguments<'_>) {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        // The time of day is that of the servers' logs.
        let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
        let (hour, minute, second) = (day / 3_600, day / 60 % 60, day % 60);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{hour:02}:{minute:02}:{second:02}Z {:>7.2} {what}", since.elapsed().as_secs_f64());
    }
}

fn keep(cluster: &Cluster, folder: &Path, timeline: &Timeline, evidence: Option<&Evidence>) -> Result<()> {
    cluster.keep_logs(folder)?;
    fs::write(folder.join("faults.txt"), timeline.text.lock().unwrap_or_else(PoisonError::into_inner).as_str())?;
    if let Some(evidence) = evidence {
        fs::write(folder.join("evidence.json"), serde_json::to_vec_pretty(evidence)?)?;
    }
    Ok(())
}

async fn epoch(
    cluster: &Arc<Cluster>,
    seed: u64,
    length: Duration,
    timeline: &Arc<Timeline>,
    report: &mut Report,
) -> Result<Evidence> {
    let gate = format!("gate-{seed}");
    let mut desks = Vec::new();
    let (mut tabs, mut followers) = (Vec::new(), Vec::new());
    let end = CancellationToken::new();
    for (number, agent) in AGENTS.into_iter().enumerate() {
        let token = &cluster.tokens[number % cluster.tokens.len()];
        let client = Client::new(&cluster.url(), token)?.over(http_without_reuse()?);
        let desk = Arc::new(Desk::new(client, agent, gate.clone()));
        for tab in 0..TABS_PER_DESK {
            let number = number * TABS_PER_DESK + tab;
            let reload = Arc::new(Notify::new());
            followers.push(Follower::start(number, desk.clone(), reload.clone()));
            let tab = Tab::new(number, desk.clone(), seed.wrapping_mul(1_000).wrapping_add(number as u64), reload);
            tabs.push(tab);
        }
        desks.push(desk);
    }

    // One tab of each desk: the other would be in its way.
    let (first, others): (Vec<_>, Vec<_>) = tabs.into_iter().enumerate().partition(|(number, _)| number % TABS_PER_DESK == 0);
    let first = try_join_all(first.into_iter().map(|(_, tab)| tab.begin())).await?;
    let tabs = first.into_iter().chain(others.into_iter().map(|(_, tab)| tab));
    let tabs: Vec<_> = tabs.map(|tab| tokio::spawn(tab.run(end.clone()))).collect();

    let since = Instant::now();
    let plan = fault::schedule(seed, length, cluster.abilities);
    let mut suffering = Vec::new();
    for Planned { at, lasts, fault } in plan {
        let (cluster, timeline) = (cluster.clone(), timeline.clone());
        suffering.push(tokio::spawn(async move {
            sleep_until(since + at).await;
            timeline.note(since, format_args!("{fault} for {} ms", lasts.as_millis()));
            let outcome = cluster.suffer(fault, lasts).await.with_context(|| fault.to_string());
            timeline.note(since, format_args!("{fault} is over"));
            outcome.map(|()| fault)
        }));
    }
    sleep_until(since + length).await;
    for suffered in join_all(suffering).await {
        report.count(format!("fault: {}", suffered??.kind()), 1);
    }
    timeline.phase(since, "mended");
    end.cancel();
    let mut logs = Vec::new();
    let mut beside = Vec::new();
    for left in join_all(tabs).await {
        let Left { log, beside: streams } = left?;
        logs.push(log);
        beside.extend(streams);
    }
    timeline.phase(since, "people done");
    let surprises = cluster.recovered().await?;
    timeline.phase(since, "ready");

    // Some turns are held, so there is something to look at.
    let mut evidence = Evidence::default();
    until(async || {
        evidence.owners = cluster.owners().await?;
        Ok(Check::Owners.broken(&evidence).is_empty())
    })
    .await?;
    timeline.phase(since, "owned");
    report.count("turns that ran on while their owners were looked up", evidence.owners.running.len());
    cluster.provider.release(&gate).await?;
    let threads: Vec<ThreadId> = desks.iter().flat_map(|desk| desk.threads()).collect();
    let mut closer = Closer::new();
    until(async || {
        for desk in &desks {
            closer.close(desk).await;
        }
        Ok(cluster.open(&threads).await?.is_empty())
    })
    .await?;
    timeline.phase(since, "settled");
    logs.push(closer.leave());
    let deadline = Instant::now() + LAST_WORDS;
    for mut stream in beside {
        match timeout(deadline.saturating_duration_since(Instant::now()), &mut stream).await {
            Ok(entries) => logs[0].entries.extend(entries?),
            Err(_elapsed) => stream.abort(),
        }
    }

    let urls = cluster.urls().await;
    let reads = async || {
        let mut reads = Vec::new();
        for url in &urls {
            reads.push(people::read_all(url, &desks).await?);
        }
        anyhow::Ok(reads)
    };
    let newest = reads().await?;
    let current = |follower: &Follower| {
        let (thread, revision) = *follower.shows.borrow();
        let newest = newest.first().and_then(|threads| threads.get(&thread)).map_or(0, |read| read.revision);
        revision == newest
    };
    until(async || Ok(followers.iter().all(current))).await?;
    for follower in followers {
        let connected = *follower.connected.borrow();
        report.count("connections of followers", usize::try_from(connected)?);
        logs.push(follower.leave().await);
    }
    evidence.record = Record { reads: reads().await?, executions: cluster.executions(&threads).await? };
    evidence.logs = logs;
    timeline.phase(since, "checked");
    tally(&evidence, report);
    for check in CHECKS {
        let mut cases = check.broken(&evidence);
        if check == Check::Contract {
            cases.extend(surprises.iter().cloned());
        }
        if !cases.is_empty() {
            report.broken.push(Broken { seed, check, cases });
        }
    }
    Ok(evidence)
}

/// Looks again and again until it is so, or for as long as anything may take; then the checks say what is wrong.
async fn until(mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + GUARD;
    while !is_so().await? && Instant::now() < deadline {
        sleep(LOOK).await;
    }
    Ok(())
}

fn tally(evidence: &Evidence, report: &mut Report) {
    for execution in &evidence.record.executions {
        report.count(format!("executions: {}", execution.status), 1);
    }
    for entry in evidence.logs.iter().flat_map(|log| &log.entries) {
        let what = match entry {
            Entry::Submitted { outcome: Outcome::Accepted(_), .. } => ACCEPTED.to_owned(),
            Entry::Submitted { outcome: Outcome::Unknown, .. } => "submits without an answer".to_owned(),
            Entry::Submitted { outcome: Outcome::Refused(code), .. } => format!("submits refused: {code:?}"),
            Entry::Answered { outcome: Outcome::Accepted(_), .. } => "answers accepted".to_owned(),
            Entry::Answered { outcome: Outcome::Unknown, .. } => "answers without an answer".to_owned(),
            Entry::Answered { outcome: Outcome::Refused(code), .. } => format!("answers refused: {code:?}"),
            Entry::Stopped { asked: Asked::Acknowledged, .. } => "Stops acknowledged".to_owned(),
            Entry::Stopped { asked: Asked::TooLate, .. } => "Stops that came too late".to_owned(),
            Entry::Stopped { asked: Asked::Unknown | Asked::Refused(_), .. } => "Stops lost or refused".to_owned(),
            Entry::Cancelled { .. } => "suspended turns cancelled".to_owned(),
            Entry::Read { .. } => "reads".to_owned(),
            Entry::Streamed { end: StreamEnd::Lost, .. } => "streams left or lost".to_owned(),
            Entry::Streamed { .. } => "streams read to their end".to_owned(),
            Entry::Shows { .. } => "followers".to_owned(),
            Entry::Broken(_) => continue,
        };
        report.count(what, 1);
    }
}
