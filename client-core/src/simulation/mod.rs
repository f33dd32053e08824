//! Browsers of several tabs and one server in a virtual world: one clock, one queue of events, one seeded source of chance.
//!
//! The machines of [`crate::thread`] and [`crate::follow`] are the real ones. What they run in is a model: tabs that freeze, crash and
//! are restored, a network that delays, loses, cuts and swallows, a server that restarts. The modules:
//!
//! - [`world`]: the clock and the queue; [`traffic`] over the [`network`];
//! - [`server`] and [`turn`]; [`browser`] and its share in [`push`];
//! - [`persons`]: what people do, and what happens to their browsers;
//! - [`invariants`] and [`screen`]: what holds after every step; [`healed`]: what holds once all is well again;
//! - [`faults`]: what is broken on purpose, to see the invariants notice.
//!
//! What it does not model: files that go with a message, the deletion of threads and messages, and pages that start over because
//! somebody else signed in (to the machines, threads of another person are threads that do not exist). Two tabs that show the same
//! draft do not hear of each other's typing: whoever types or sends last decides what is kept.
//!
//! A seed that fails prints itself, and its last steps. It alone runs again, with its whole trace, by
//! `TURNFAST_SEED=<seed> cargo test -p turnfast-client-core --lib simulation::seeds -- --nocapture`.

mod browser;
mod faults;
mod healed;
mod invariants;
mod network;
mod persons;
mod push;
mod rng;
mod screen;
mod server;
mod traffic;
mod turn;
mod world;

use std::{
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use faults::{FAULTS, Fault};
use invariants::{Rule, Violation};
use world::{Counts, World};

/// How many stories are told in every run of the tests.
const SEEDS: u64 = 10_000;

/// Steps that a failing seed prints.
const LAST_STEPS: usize = 80;

/// Tells one story to its end.
fn run(seed: u64, fault: Option<Fault>, traced: bool) -> (World, Option<Violation>) {
    let mut world = World::new(seed, fault, traced);
    world.play();
    if world.violation.is_none() {
        world.heal();
    }
    let violation = world.violation.take();
    (world, violation)
}

/// Tells one story, and what went wrong in it, with its last steps.
fn tell(seed: u64) -> Result<Counts, String> {
    let quick = catch_unwind(AssertUnwindSafe(|| run(seed, None, false)));
    match quick {
        Ok((world, None)) => Ok(world.counts),
        Ok((_, Some(violation))) => {
            let trace = run(seed, None, true).0.take_trace();
            let mut text = format!("seed {seed}: {:?}: {}\n", violation.rule, violation.what);
            for line in &trace[trace.len().saturating_sub(LAST_STEPS)..] {
                let _ = writeln!(text, "{line}");
            }
            let _ = writeln!(
                text,
                "again: TURNFAST_SEED={seed} cargo test -p turnfast-client-core --lib simulation::seeds -- --nocapture"
            );
            Err(text)
        }
        Err(panic) => {
            eprintln!("seed {seed} panicked");
            resume_unwind(panic)
        }
    }
}

/// Tells many stories, on all cores; the first that fails, by its number.
fn tell_all(seeds: std::ops::Range<u64>) -> Result<Counts, String> {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(None::<(u64, String)>);
    let counts = Mutex::new(Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut sum = Counts::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    match tell(seed) {
                        Ok(counts) => sum.add(&counts),
                        Err(text) => {
                            next.store(seeds.end, Ordering::Relaxed);
                            let mut failed = failed.lock().unwrap();
                            if failed.as_ref().is_none_or(|first| seed < first.0) {
                                *failed = Some((seed, text));
                            }
                        }
                    }
                }
                counts.lock().unwrap().add(&sum);
            });
        }
    });
    match failed.into_inner().unwrap() {
        Some((_, text)) => Err(text),
        None => Ok(counts.into_inner().unwrap()),
    }
}

#[test]
fn seeds() {
    if let Some(seed) = std::env::var("TURNFAST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        let (mut world, violation) = run(seed, None, true);
        for line in world.take_trace() {
            eprintln!("{line}");
        }
        assert!(violation.is_none(), "{violation:?}");
        return;
    }
    let counts = tell_all(0..SEEDS).unwrap_or_else(|text| panic!("{text}"));
    // Stories in which nothing happens hold every promise.
    for (what, count) in counts.named() {
        assert!(count >= SEEDS / 50, "{what} happened {count} times in {SEEDS} stories: {counts:?}");
    }
}

#[test]
fn each_invariant_notices_what_is_broken_on_purpose() {
    for (fault, rules) in FAULTS {
        let found = (0..400).find_map(|seed| Some((seed, run(seed, Some(fault), false).1?)));
        let Some((seed, violation)) = found else { panic!("nobody noticed {fault:?}") };
        eprintln!("{fault:?}: {:?} by seed {seed}: {}", violation.rule, violation.what);
        assert!(rules.contains(&violation.rule), "{fault:?} was noticed by {violation:?}");
    }
    let noticed: std::collections::BTreeSet<Rule> = FAULTS.iter().flat_map(|(_, rules)| rules.iter().copied()).collect();
    assert_eq!(noticed.len(), 12, "each promise has its fault");
}
