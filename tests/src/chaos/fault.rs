//! What goes wrong, when, and for how long: made from a seed before anything runs.

use std::{fmt, time::Duration};

use crate::dice::Dice;

/// Servers of the cluster.
pub const SERVERS: usize = 3;

/// A connection between two parts of the cluster. Servers are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// From all clients to the one address that they know.
    ClientsToFront,
    /// From that address to a server.
    FrontToServer(usize),
    /// From a server to PostgreSQL.
    ServerToDatabase(usize),
    /// From a server to the model provider.
    ServerToProvider(usize),
}

/// What a connection may suffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Harm {
    /// It breaks, for both sides to see, and new ones break at once.
    Cut,
    /// Everything takes a while to come through.
    Slow,
    /// Nothing comes through; afterwards everything does, as over a network that was away.
    Silent,
    /// It breaks for the far side to see; the near side hears nothing, now or later.
    HalfOpen,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of a server, which is away for that long.
    KillServer(usize),
    /// SIGTERM to a server, which is started again once it has ended.
    EndServer(usize),
    /// SIGSTOP and SIGCONT of a server.
    FreezeServer(usize),
    /// A server's clock jumps, and jumps back.
    JumpClock(usize),
    /// PostgreSQL is told to end, and started again.
    RestartDatabase,
    /// `kill -9` of PostgreSQL, which is started again.
    KillDatabase,
    /// `kill -9` of one of PostgreSQL's own processes: it ends all others and recovers by itself.
    KillBackend,
    /// The database's disk is full.
    FillDisk,
    /// A connection suffers.
    Harm(Hop, Harm),
}

/// What can have one fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Server(usize),
    Database,
    Hop(Hop),
}

impl Fault {
    fn target(self) -> Target {
        match self {
            Self::KillServer(n) | Self::EndServer(n) | Self::FreezeServer(n) | Self::JumpClock(n) => Target::Server(n),
            Self::RestartDatabase | Self::KillDatabase | Self::KillBackend | Self::FillDisk => Target::Database,
            Self::Harm(hop, _) => Target::Hop(hop),
        }
    }

    /// What it is, whomever it strikes.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::KillServer(_) => "kill -9 of a server",
            Self::EndServer(_) => "SIGTERM to a server",
            Self::FreezeServer(_) => "SIGSTOP and SIGCONT of a server",
            Self::JumpClock(_) => "jump of a server's clock",
            Self::RestartDatabase => "restart of PostgreSQL",
            Self::KillDatabase => "kill -9 of PostgreSQL",
            Self::KillBackend => "kill -9 of a PostgreSQL backend",
            Self::FillDisk => "full disk under PostgreSQL",
            Self::Harm(hop, harm) => match (hop, harm) {
                (Hop::ClientsToFront, Harm::Cut) => "clients cut off",
                (Hop::ClientsToFront, Harm::Slow) => "clients far away",
                (Hop::ClientsToFront, Harm::Silent) => "clients unheard",
                (Hop::ClientsToFront, Harm::HalfOpen) => "clients half open",
                (Hop::FrontToServer(_), Harm::Cut) => "front cut off from a server",
                (Hop::FrontToServer(_), Harm::Slow) => "front far from a server",
                (Hop::FrontToServer(_), Harm::Silent) => "front unheard by a server",
                (Hop::FrontToServer(_), Harm::HalfOpen) => "front half open to a server",
                (Hop::ServerToDatabase(_), Harm::Cut) => "server cut off from PostgreSQL",
                (Hop::ServerToDatabase(_), Harm::Slow) => "server far from PostgreSQL",
                (Hop::ServerToDatabase(_), Harm::Silent) => "server unheard by PostgreSQL",
                (Hop::ServerToDatabase(_), Harm::HalfOpen) => "server half open to PostgreSQL",
                (Hop::ServerToProvider(_), Harm::Cut) => "server cut off from the provider",
                (Hop::ServerToProvider(_), Harm::Slow) => "server far from the provider",
                (Hop::ServerToProvider(_), Harm::Silent) => "server unheard by the provider",
                (Hop::ServerToProvider(_), Harm::HalfOpen) => "server half open to the provider",
            },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target() {
            Target::Server(n) | Target::Hop(Hop::FrontToServer(n) | Hop::ServerToDatabase(n) | Hop::ServerToProvider(n)) => {
                write!(f, "{} ({n})", self.kind())
            }
            Target::Database | Target::Hop(Hop::ClientsToFront) => f.write_str(self.kind()),
        }
    }
}

/// What this machine lets a test do.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// A small disk can be mounted.
    pub disk: bool,
    /// A program's clock can be set apart from the machine's.
    pub clock: bool,
}

/// A fault with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When it begins, from the start of the epoch.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// What it is.
    pub fault: Fault,
}

/// All kinds of faults, each once, striking something that `dice` chooses. A provider's connection is never left half open: a server
/// has no way to tell that from a model that thinks.
fn bag(dice: &mut Dice, abilities: Abilities) -> Vec<Fault> {
    let server = |dice: &mut Dice| dice.place(SERVERS);
    let mut faults = vec![
        Fault::KillServer(server(dice)),
        Fault::KillServer(server(dice)),
        Fault::EndServer(server(dice)),
        Fault::FreezeServer(server(dice)),
        Fault::RestartDatabase,
        Fault::KillDatabase,
        Fault::KillBackend,
    ];
    if abilities.clock {
        faults.push(Fault::JumpClock(server(dice)));
    }
    if abilities.disk {
        faults.push(Fault::FillDisk);
    }
    let hops: [fn(usize) -> Hop; 4] = [|_| Hop::ClientsToFront, Hop::FrontToServer, Hop::ServerToDatabase, Hop::ServerToProvider];
    for hop in hops {
        for harm in [Harm::Cut, Harm::Slow, Harm::Silent, Harm::HalfOpen] {
            let hop = hop(server(dice));
            if !matches!((hop, harm), (Hop::ServerToProvider(_), Harm::HalfOpen)) {
                faults.push(Fault::Harm(hop, harm));
            }
        }
    }
    // Fisher and Yates's shuffle.
    for place in (1..faults.len()).rev() {
        faults.swap(place, dice.place(place + 1));
    }
    faults
}

/// The faults of an epoch of that length. Each kind comes once before any comes again, and even in a short epoch all of them do; what
/// is struck has one fault at a time; at the end of the epoch all are over.
#[must_use]
pub fn schedule(seed: u64, length: Duration, abilities: Abilities) -> Vec<Planned> {
    let mut dice = Dice::new(seed);
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let length = ms(length);
    let longest = (length / 4).clamp(1, 15_000);
    let mut plan: Vec<Planned> = Vec::new();
    let mut now = 0;
    'bags: loop {
        let mut bag = bag(&mut dice, abilities);
        let mean_gap = (length / 2 / bag.len() as u64).clamp(1, 2_500);
        while !bag.is_empty() {
            now += 1 + dice.below(2 * mean_gap).min(mean_gap * 3 / 2);
            // The first of those that strike something that is whole by now; or else wait.
            let is_free = |fault: &Fault| {
                let struck = plan.iter().filter(|earlier| earlier.fault.target() == fault.target());
                struck.map(|earlier| ms(earlier.at + earlier.lasts)).max().is_none_or(|end| end < now)
            };
            let Some(place) = bag.iter().position(is_free) else {
                if now >= length {
                    break 'bags;
                }
                continue;
            };
            let fault = bag.remove(place);
            // Most are short, some are long.
            let lasts = match dice.below(8) {
                0 => longest / 3 + dice.below(longest * 2 / 3),
                _ => 100 + dice.below((longest / 3).min(2_000)),
            };
            // What would come in the last tenth is left out, and what would last longer than the epoch is cut short.
            if now >= length * 9 / 10 {
                break 'bags;
            }
            let lasts = lasts.min(length - now - 1);
            plan.push(Planned { at: Duration::from_millis(now), lasts: Duration::from_millis(lasts), fault });
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: Abilities = Abilities { disk: true, clock: true };

    #[test]
    fn a_seed_is_a_schedule_and_another_is_another() {
        let length = Duration::from_secs(60);
        assert_eq!(schedule(7, length, ALL), schedule(7, length, ALL));
        assert_ne!(schedule(7, length, ALL), schedule(8, length, ALL));
    }

    #[test]
    fn even_a_short_epoch_has_every_kind() {
        for (seed, length) in (0..200).zip([20, 25, 60, 120].into_iter().cycle()) {
            let plan = schedule(seed, Duration::from_secs(length), ALL);
            let kinds: BTreeSet<_> = plan.iter().map(|planned| planned.fault.kind()).collect();
            // 8 that strike servers and the database, 16 that strike connections, but for the one that is left out.
            assert_eq!(kinds.len(), 8 + 15, "seed {seed}, {length} s: {plan:#?}");
        }
        let none = Abilities { disk: false, clock: false };
        assert!(
            schedule(1, Duration::from_secs(60), none)
                .iter()
                .all(|planned| { !matches!(planned.fault, Fault::FillDisk | Fault::JumpClock(_)) })
        );
    }

    #[test]
    fn what_is_struck_is_whole_before_it_is_struck_again_and_at_the_end() {
        for seed in 0..200 {
            let length = Duration::from_secs(20 + seed);
            let plan = schedule(seed, length, ALL);
            for (place, planned) in plan.iter().enumerate() {
                assert!(planned.at + planned.lasts < length);
                let later = plan[place + 1..].iter().filter(|later| later.fault.target() == planned.fault.target());
                for later in later {
                    assert!(later.at > planned.at + planned.lasts, "seed {seed}: {planned:?} and {later:?}");
                }
            }
        }
    }
}
