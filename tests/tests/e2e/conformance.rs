//! The conformance suite against servers that break the contract in one thing each: every line must notice. What passes when a
//! promise is broken shows nothing.

use std::sync::Arc;

use anyhow::{Context, Result};
use futures::StreamExt;
use turnfast_tests::{
    client::http,
    conformance::{self, Case, House, Outcome, Target},
    installation::{Installation, Server},
    mutants::{BROKEN, MUTANTS, Mutant, Proxy},
    with_patience,
};

/// Lines that run at the same time.
const AT_ONCE: usize = 12;

/// A server with its two users.
struct Original {
    server: Server,
    tokens: [String; 2],
    http: reqwest::Client,
    _installation: Installation,
}

impl Original {
    async fn start(more: &str) -> Result<Self> {
        let installation = Installation::with_config(&format!("{}{more}", conformance::CONFIG))?;
        let tokens = [installation.user("alice").await?, installation.user("bob").await?];
        Ok(Self { server: installation.serve().await?, tokens, http: http()?, _installation: installation })
    }

    /// What a line says of it through a proxy.
    async fn try_line(&self, mutant: Option<&Mutant>, case: Case) -> Result<Outcome> {
        let [token, other_token] = self.tokens.clone();
        let proxy = Proxy::start(mutant, &self.server.url, &token, self.http.clone()).await?;
        // What a proxy has room for is all that a turn can say: for this line even one that breaks nothing breaks something.
        let direct = mutant.is_none() && case.id == "4 slow reader";
        let url = if direct { self.server.url.clone() } else { proxy.url.clone() };
        let (project, agent) = ("demo".to_owned(), "assistant".to_owned());
        let house = House::new(Target { url, second_url: None, token, other_token, project, agent })?;
        let patience = mutant.map_or(turnfast_tests::GUARD, Mutant::patience);
        Ok(with_patience(patience, case.run(Arc::new(house))).await)
    }
}

/// What is wrong with what a line said, if anything.
fn judge(mutant: Option<&Mutant>, case: Case, outcome: Outcome) -> Option<String> {
    match (mutant, outcome) {
        (None, Outcome::Passed) => None,
        (None, outcome) => Some(format!("{}: {outcome:?} where nothing is broken", case.id)),
        (Some(mutant), Outcome::Failed(why)) => {
            // That something took too long, or that the proxy failed, says nothing of the line.
            let for_another_reason = (!mutant.keeps_back && why.contains("waited ")) || why.contains(BROKEN);
            for_another_reason.then(|| format!("{}: where {}, it failed for another reason: {why}", case.id, mutant.breaks))
        }
        (Some(mutant), outcome) => Some(format!("{}: {outcome:?} where {}", case.id, mutant.breaks)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_notices_that_its_promise_is_broken() -> Result<()> {
    // One on which many turns may run at once, and one as it comes for the lines that meet that limit.
    let (wide, plain) =
        tokio::try_join!(Original::start("\n[limits]\nmax_running_turns_per_user = 1000\n"), Original::start(""))?;
    let cases = conformance::all();
    let case = |id: &str| cases.iter().copied().find(|case| case.id == id).with_context(|| format!("there is no line `{id}`"));
    let whole: Vec<_> = cases.iter().filter(|case| case.is_tried()).map(|case| (None, *case)).collect();
    let mut broken = Vec::new();
    for mutant in MUTANTS {
        for line in mutant.lines {
            broken.push((Some(mutant), case(line)?));
        }
    }
    let mut wrong = Vec::new();
    // First that all pass, so that a failure is the mutant's doing.
    for round in [whole, broken] {
        let (alone, mut together): (Vec<_>, Vec<_>) = round.into_iter().partition(|(_, case)| case.is_alone());
        // It waits 15 s for a ping, so it goes first.
        together.sort_by_key(|(_, case)| case.id != "5 /push");
        let wide = &wide;
        let mut outcomes = futures::stream::iter(together)
            .map(|(mutant, case)| async move { (mutant, case, wide.try_line(mutant, case).await) })
            .buffer_unordered(AT_ONCE);
        while let Some((mutant, case, outcome)) = outcomes.next().await {
            wrong.extend(judge(mutant, case, outcome?));
        }
        for (mutant, case) in alone {
            let outcome = plain.try_line(mutant, case).await?;
            wrong.extend(judge(mutant, case, outcome));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
