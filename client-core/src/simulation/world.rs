//! The one clock, the queue of what is to happen, and what travels between tabs and server.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt,
};

use turnfast_shared::{
    Millis,
    api::{ExecutionUpdated, ThreadSnapshot},
    ids::{ExecutionId, MessageId, ThreadId},
};

use super::{
    browser::{Browser, Tab, Task},
    faults::Fault,
    invariants::{Rule, Violation},
    network::{ConnId, Network, Weather},
    rng::Rng,
    server::{Out, Server},
};
use crate::thread::Effect;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TabId(pub(super) u32);

/// One thread machine within a tab. A tab has several after it switched threads as the page does it, by a new machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PaneId(pub(super) u32);

/// Something that is to happen.
#[derive(Debug)]
pub(super) enum Happening {
    /// A request reaches the server.
    Arrives(ConnId),
    /// The server sees that its peer closed a connection.
    Closed(ConnId),
    /// Something reaches a tab.
    Reaches(TabId, Task),
    /// A running turn goes on.
    Works(ExecutionId),
    /// Open text of a running turn is recorded.
    Records(ExecutionId),
    /// A keep-alive is due on a stream.
    Pings(ConnId),
    /// Collected notifications go out on a `/push` connection.
    Flushes(ConnId),
    /// The server process starts again.
    Starts,
    /// It ends what its predecessor left running.
    Recovers,
    /// A person, or a browser, does something.
    Acts,
    /// The network changes.
    Weather,
}

struct Queued {
    at: Millis,
    order: u64,
    what: Happening,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// How often things happened, so that a test can tell that they do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) submits: u64,
    pub(super) resumes: u64,
    pub(super) stops: u64,
    /// Stops pressed before an execution was known.
    pub(super) kept_stops: u64,
    pub(super) reads: u64,
    pub(super) failed_reads: u64,
    /// Own streams that broke while their turn ran.
    pub(super) detached: u64,
    /// Readers that were too slow.
    pub(super) cut_readers: u64,
    /// Turns that a restart ended.
    pub(super) interrupted: u64,
    /// Answers that came second.
    pub(super) closed_interactions: u64,
    /// Submits that came second.
    pub(super) busy: u64,
    /// Locks taken from a frozen tab.
    pub(super) steals: u64,
    pub(super) handovers: u64,
    /// Submits without an answer that a read showed to be accepted.
    pub(super) recognised: u64,
}

impl Counts {
    pub(super) fn named(&self) -> [(&'static str, u64); 14] {
        [
            ("submit", self.submits),
            ("resume", self.resumes),
            ("stop", self.stops),
            ("kept stop", self.kept_stops),
            ("read", self.reads),
            ("failed read", self.failed_reads),
            ("detached stream", self.detached),
            ("cut reader", self.cut_readers),
            ("interrupted turn", self.interrupted),
            ("closed interaction", self.closed_interactions),
            ("busy thread", self.busy),
            ("stolen lock", self.steals),
            ("hand-over", self.handovers),
            ("recognised submit", self.recognised),
        ]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.submits += other.submits;
        self.resumes += other.resumes;
        self.stops += other.stops;
        self.kept_stops += other.kept_stops;
        self.reads += other.reads;
        self.failed_reads += other.failed_reads;
        self.detached += other.detached;
        self.cut_readers += other.cut_readers;
        self.interrupted += other.interrupted;
        self.closed_interactions += other.closed_interactions;
        self.busy += other.busy;
        self.steals += other.steals;
        self.handovers += other.handovers;
        self.recognised += other.recognised;
    }
}

/// A submit as it left a client.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) at: Millis,
    pub(super) browser: usize,
    pub(super) pane: PaneId,
    pub(super) message: MessageId,
    pub(super) text: String,
}

pub(super) struct World {
    pub(super) now: Millis,
    pub(super) rng: Rng,
    pub(super) net: Network,
    pub(super) server: Server,
    pub(super) browsers: Vec<Browser>,
    pub(super) tabs: BTreeMap<TabId, Tab>,
    /// What persons typed so far, for words that differ.
    pub(super) words: u32,
    pub(super) last_tab: u32,
    pub(super) last_pane: u32,
    /// What is broken on purpose.
    pub(super) fault: Option<Fault>,
    /// What a fault keeps in mind.
    pub(super) remembered: Option<Effect>,
    /// Every submit of a client.
    pub(super) sent: Vec<Sent>,
    pub(super) violation: Option<Violation>,
    pub(super) counts: Counts,
    pub(super) healed: bool,
    pub(super) steps: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    order: u64,
    /// Notifications that a `/push` connection has still to send, the newest of each thread.
    pub(super) unsent: BTreeMap<ConnId, BTreeMap<ThreadId, ExecutionUpdated>>,
    /// Reads that something between server and browsers remembers.
    pub(super) remembered_reads: BTreeMap<ThreadId, ThreadSnapshot>,
    trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64, fault: Option<Fault>, traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let browsers = (0..1 + rng.below(3)).map(|_| Browser::any(&mut rng)).collect();
        Self {
            now: 0,
            rng,
            net: Network::new(),
            server: Server::default(),
            browsers,
            tabs: BTreeMap::new(),
            words: 0,
            last_tab: 0,
            last_pane: 0,
            fault,
            remembered: None,
            sent: Vec::new(),
            violation: None,
            counts: Counts::default(),
            healed: false,
            steps: 0,
            queue: BinaryHeap::new(),
            order: 0,
            unsent: BTreeMap::new(),
            remembered_reads: BTreeMap::new(),
            trace: traced.then(Vec::new),
        }
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} s  {}", self.now as f64 / 1_000.0, what()));
        }
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    pub(super) fn fail(&mut self, rule: Rule, what: impl fmt::Display) {
        if self.violation.is_none() {
            let what = what.to_string();
            self.note(|| format!("VIOLATION of {rule:?}: {what}"));
            self.violation = Some(Violation { rule, what });
        }
    }

    pub(super) fn at(&mut self, at: Millis, what: Happening) {
        self.order += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), order: self.order, what }));
    }

    pub(super) fn after(&mut self, pause: Millis, what: Happening) {
        self.at(self.now + pause, what);
    }

    /// Lets the world go on until `end`, or until a promise is broken.
    pub(super) fn run_until(&mut self, end: Millis) {
        while self.violation.is_none() && self.queue.peek().is_some_and(|next| next.0.at <= end) {
            let Some(Reverse(next)) = self.queue.pop() else { break };
            self.now = next.at;
            self.steps += 1;
            self.happen(next.what);
            self.check_pushes();
        }
        self.now = self.now.max(end);
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrives(conn) => self.arrives(conn),
            Happening::Closed(conn) => {
                if let Some(open) = self.net.conns.get_mut(&conn) {
                    open.server_open = false;
                }
                self.net.sweep(conn);
            }
            Happening::Reaches(tab, task) => self.reach(tab, task),
            Happening::Works(execution) => {
                if !self.server.down && self.server.turns.contains_key(&execution) {
                    self.note(|| format!("server: {execution} goes on"));
                    if self.server.work(execution, &mut self.rng) {
                        self.server.out.push(Out::WorkSoon(execution));
                    }
                }
                self.drain();
            }
            Happening::Records(execution) => {
                if !self.server.down && self.server.turns.get(&execution).is_some_and(|turn| turn.unrecorded) {
                    self.server.record(execution);
                    self.drain();
                }
            }
            Happening::Pings(conn) => self.ping(conn),
            Happening::Flushes(conn) => self.flush(conn),
            Happening::Starts => {
                self.note(|| "server: up".to_owned());
                self.server.down = false;
                let pause = self.rng.within(0..1_000);
                self.after(pause, Happening::Recovers);
            }
            Happening::Recovers => {
                self.note(|| "server: recovers".to_owned());
                self.server.recover();
                self.drain();
            }
            Happening::Acts => self.somebody_acts(),
            Happening::Weather => {
                if !self.healed {
                    self.net.weather = Weather::any(&mut self.rng);
                    self.note(|| "network: other weather".to_owned());
                    let pause = self.rng.within(3_000..40_000);
                    self.after(pause, Happening::Weather);
                }
            }
        }
    }
}
