//! Contract 1 as tests of any server that keeps it: each promise and each row of its tables is one test, named by it.
//!
//! A test knows a base URL, two users' tokens and an agent that does what the demo agent does, and nothing else of the server. What
//! cannot be seen from there (a process must die, a user of another role is needed) is listed with the test that shows it.

mod endpoints;
mod errors;
mod extra;
mod house;
mod promises;
mod record;
mod stop;
mod stream;

use std::{fmt::Write as _, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc};

use anyhow::{Context, Result, ensure};
use futures::{FutureExt, StreamExt};

pub use self::house::{House, Target};

/// Tests that run at the same time. Below the number of turns that one user may have running by default.
const AT_ONCE: usize = 4;

/// Configuration of a server that the suite can test: two members, `alice` and `bob`, who may talk to the demo agent.
pub const CONFIG: &str = r#"
[[projects]]
id = "demo"
members = { alice = "member", bob = "member" }

[[agents]]
project = "demo"
id = "assistant"
engine = "demo"
"#;

type Running = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// How a line of the contract is shown.
#[derive(Clone, Copy)]
enum How {
    /// By a test of this suite.
    Test(fn(Arc<House>) -> Running),
    /// By the same, while nothing else runs: it uses up what the others need.
    Alone(fn(Arc<House>) -> Running),
    /// By a test of the project that is no black box: its file and name.
    Elsewhere(&'static str, &'static str),
}

/// One line of the contract.
#[derive(Clone, Copy)]
pub struct Case {
    /// Section and promise or row.
    pub id: &'static str,
    /// What it shows, in our words.
    pub shows: &'static str,
    how: How,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.id, self.shows)
    }
}

/// Makes a list of cases: `id, what it shows => test function`, or `=> alone function`, or `=> elsewhere "file", "function"`.
macro_rules! cases {
    (@how elsewhere $file:literal, $name:literal) => { $crate::conformance::How::Elsewhere($file, $name) };
    (@how alone $function:path) => { $crate::conformance::How::Alone(|house| Box::pin($function(house))) };
    (@how test $function:path) => { $crate::conformance::How::Test(|house| Box::pin($function(house))) };
    ($($id:literal, $shows:literal => $how:ident $($what:tt),+;)*) => {
        &[$($crate::conformance::Case {
            id: $id,
            shows: $shows,
            how: $crate::conformance::cases!(@how $how $($what),+),
        }),*]
    };
}
use cases;

/// Every line of the contract that says what a server does.
#[must_use]
pub fn all() -> Vec<Case> {
    let sections = [promises::CASES, endpoints::CASES, errors::CASES, stream::CASES, record::CASES, stop::CASES, extra::CASES];
    sections.into_iter().flatten().copied().collect()
}

/// What became of each case, in their order.
#[derive(Debug, Default)]
pub struct Report {
    results: Vec<(Case, Outcome)>,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server does it.
    Passed,
    /// It does not; why.
    Failed(String),
    /// Another test shows it.
    Elsewhere,
}

impl Report {
    /// How many passed and failed.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let count = |wanted: fn(&Outcome) -> bool| self.results.iter().filter(|(_, outcome)| wanted(outcome)).count();
        (count(|outcome| *outcome == Outcome::Passed), count(|outcome| matches!(outcome, Outcome::Failed(_))))
    }

    /// The report as `docs/conformance.md`.
    #[must_use]
    pub fn document(&self) -> String {
        let (passed, failed) = self.counts();
        let mut text = String::from(
            "# Conformance\n\n\
             What contract 1 (\"a turn outlives its browser\") promises, line by line, and what a run of our suite said of each. The\n\
             suite sees the server from outside only and runs against any server that keeps the contract and has an agent that does\n\
             what the demo agent does:\n\n\
             ```\ncargo xtask conformance --url URL --token TOKEN --other-token TOKEN-OF-ANOTHER-USER\n```\n\n\
             Both users must be members of the project (`--project`, `demo` where absent) and may talk to the agent (`--agent`,\n\
             `assistant`). With `--second-url`, the address of a second process on the same database, the second reader, the Stop and\n\
             the competing answer of each test go there. Without `--url` it starts a server of its own. Lines that need more than that\n\
             name the test that shows them. The numbers are those of the contract's sections and promises.\n\n",
        );
        text.push_str(
            "The lines are tested themselves: `tests/src/mutants.rs` lists more than a hundred proxies that break one thing of the contract\n\
             each (an event, a field, a header, a status, a notification, what becomes of a request). `cargo xtask test` holds each\n\
             before a server and runs the lines that must fail of it (`tests/tests/e2e/conformance.rs`), after all lines have passed\n\
             through a proxy that breaks nothing. No line that says \"ok\" is without such a mutant.\n\n",
        );
        let _ =
            write!(text, "`cargo xtask conformance --write` writes this page. Last run: {passed} passed, {failed} failed.\n\n");
        text.push_str("| line | what it shows | result |\n| --- | --- | --- |\n");
        for (case, outcome) in &self.results {
            let result = match (outcome, case.how) {
                (Outcome::Passed, _) => "ok".to_owned(),
                (Outcome::Failed(_), _) => "**failed**".to_owned(),
                (Outcome::Elsewhere, How::Elsewhere(file, name)) => format!("`{file}`: `{name}`"),
                (Outcome::Elsewhere, _) => String::new(),
            };
            let _ = writeln!(text, "| {} | {} | {result} |", case.id, case.shows);
        }
        text
    }
}

/// Runs the cases whose id or sentence contains `filter`, one line of output for each.
///
/// # Errors
/// The target cannot be spoken to at all.
pub async fn run(target: Target, filter: Option<&str>) -> Result<Report> {
    let house = Arc::new(House::new(target)?);
    house.check().await.context("the target cannot be tested")?;
    let chosen: Vec<_> =
        all().into_iter().filter(|case| filter.is_none_or(|text| case.id.contains(text) || case.shows.contains(text))).collect();
    let mut outcomes = vec![Outcome::Elsewhere; chosen.len()];
    let run_one = |(number, function): (usize, fn(Arc<House>) -> Running)| {
        let (house, case) = (house.clone(), chosen[number]);
        async move {
            let outcome = outcome(house, function).await;
            match &outcome {
                Outcome::Failed(why) => println!("FAILED {} {}: {why}", case.id, case.shows),
                _ => println!("ok {} {}", case.id, case.shows),
            }
            (number, outcome)
        }
    };
    let together =
        chosen.iter().enumerate().filter_map(|(n, case)| if let How::Test(f) = case.how { Some((n, f)) } else { None });
    let alone = chosen.iter().enumerate().filter_map(|(n, case)| if let How::Alone(f) = case.how { Some((n, f)) } else { None });
    let mut results = futures::stream::iter(together).map(run_one).buffer_unordered(AT_ONCE);
    while let Some((number, outcome)) = results.next().await {
        outcomes[number] = outcome;
    }
    for one in alone {
        let (number, outcome) = run_one(one).await;
        outcomes[number] = outcome;
    }
    Ok(Report { results: chosen.iter().copied().zip(outcomes).collect() })
}

async fn outcome(house: Arc<House>, function: fn(Arc<House>) -> Running) -> Outcome {
    match AssertUnwindSafe(function(house)).catch_unwind().await {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(error)) => Outcome::Failed(format!("{error:#}")),
        Err(_panic) => Outcome::Failed("the test panicked; see above".to_owned()),
    }
}

impl Case {
    /// Whether a test of this suite shows it.
    #[must_use]
    pub fn is_tried(&self) -> bool {
        matches!(self.how, How::Test(_) | How::Alone(_))
    }

    /// Whether it is tried while nothing else runs.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        matches!(self.how, How::Alone(_))
    }

    /// Runs it.
    pub async fn run(&self, house: Arc<House>) -> Outcome {
        match self.how {
            How::Test(function) | How::Alone(function) => outcome(house, function).await,
            How::Elsewhere(..) => Outcome::Elsewhere,
        }
    }
}

/// That two values are the same.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<()> {
    ensure!(found == wanted, "{what}: found {found:?}, wanted {wanted:?}");
    Ok(())
}

#[cfg(test)]
mod tests {

    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    fn repository() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn the_page_lists_these_cases() {
        let page = fs::read_to_string(repository().join("docs/conformance.md")).unwrap();
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
        };
        let listed: Vec<_> = page.lines().filter_map(row).filter(|(id, _)| id != "line" && id != "---").collect();
        let ours: Vec<_> = all().into_iter().map(|case| (case.id.to_owned(), case.shows.to_owned())).collect();
        assert_eq!(listed, ours, "`cargo xtask conformance --write` brings docs/conformance.md up to date");
    }

    #[test]
    fn ids_are_unique_and_tests_elsewhere_exist() {
        let cases = all();
        assert_eq!(cases.iter().map(|case| case.id).collect::<BTreeSet<_>>().len(), cases.len());
        for case in cases {
            if let How::Elsewhere(file, name) = case.how {
                let source =
                    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{case:?}: {file}: {error}"));
                assert!(source.contains(&format!("fn {name}(")), "{case:?}: {file} has no test {name}");
            }
        }
    }
}
