//! Who holds the one `/push` connection of a browser, and how the other tabs hear from it (contract 1, section 7).
//!
//! Browsers allow six connections per host over HTTP/1.1, so only the tab that has the Web Lock connects; it passes on over a
//! BroadcastChannel what it hears. When it goes, the browser gives the lock to another tab, which connects: the `connected` message
//! that it gets and passes on makes every tab read once. Where either API is missing, each tab holds a connection of its own.
//!
//! A tab that the browser froze cannot hand over: a visible one takes the lock from it. Until the frozen tab thaws, and hears that it
//! lost the lock, its old connection stands beside the new one, unread.
//!
//! The machine is pure: time and random numbers come in with the inputs. It does not know what a notification is about.

use turnfast_shared::{
    Millis,
    api::PushEvent,
    limits::{KEEP_ALIVE_SECONDS, MISSED_PINGS},
};

/// Silence after which a connection is taken for dead: three missed pings.
const SILENCE_MS: u32 = (KEEP_ALIVE_SECONDS * MISSED_PINGS * 1_000) as u32;

/// Silence after which the tab that holds the connection is taken for frozen. Longer than it takes that tab to notice that its
/// connection is dead, and longer than [`LONGEST_PAUSE_MS`].
const FROZEN_MS: u32 = 2 * SILENCE_MS;

/// How much longer a silent connection gets. A page that slept may see the timer before the messages that came meanwhile.
const GRACE_MS: u32 = 5_000;

/// The first pause before connecting again, and the longest, in milliseconds. Each is shortened by up to half of it at random, so
/// that the tabs of many people do not come back at the same moment.
const FIRST_PAUSE_MS: u32 = 2_000;
/// See [`FIRST_PAUSE_MS`].
const LONGEST_PAUSE_MS: u32 = 30_000;

/// Names one connection or timer, within one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EffectId(pub u64);

/// Something to be done outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask for the lock. Ends in [`Input::LockGranted`], which may take until another tab is closed.
    RequestLock {
        /// Take it from the tab that has it, which gets [`Input::LockLost`].
        steal: bool,
    },
    /// Give the lock back, and the wish for it.
    ReleaseLock,
    /// Connect to `/push`. Gives [`Input::Push`] any number of times, and ends in [`Input::PushFailed`].
    Connect {
        /// This connection.
        id: EffectId,
    },
    /// Close a connection. Nothing more is wanted from it.
    Disconnect {
        /// The [`Effect::Connect`].
        id: EffectId,
    },
    /// Pass a message on to the other tabs.
    Say(PushEvent),
    /// Hand a message to this page.
    Deliver(PushEvent),
    /// Wait. Ends in [`Input::TimerFired`]; a timer that the machine has given up is ignored when it fires.
    SetTimer {
        /// This timer.
        id: EffectId,
        /// How long, in milliseconds.
        after_ms: u32,
    },
}

/// What happened outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The page begins to listen. The first input.
    Started {
        /// Whether the browser has Web Locks and a BroadcastChannel; the channel listens already.
        shared: bool,
    },
    /// The page goes. The last input.
    Stopped,
    /// This tab has the lock.
    LockGranted,
    /// Another tab took the lock.
    LockLost,
    /// A message of `/push`.
    Push {
        /// The connection.
        id: EffectId,
        /// The message.
        event: PushEvent,
    },
    /// A connection broke, or never came about.
    PushFailed {
        /// The connection.
        id: EffectId,
        /// Evenly distributed over all values.
        random: u32,
    },
    /// The tab that holds the connection passed a message on.
    Heard(PushEvent),
    /// Outcome of [`Effect::SetTimer`].
    TimerFired {
        /// The timer.
        id: EffectId,
        /// Evenly distributed over all values.
        random: u32,
    },
    /// The tab became visible or hidden.
    Visible(bool),
    /// The network is back.
    Online,
}

/// What this tab does for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Role {
    #[default]
    Stopped,
    /// Another tab has the connection.
    Listening,
    /// This tab has it, and passes on what it hears.
    Leading,
    /// Each tab for itself.
    Alone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    None,
    Open(EffectId),
    Pausing(EffectId),
}

/// One tab's part in holding the connection.
#[derive(Debug, Default)]
pub struct Follow {
    last_id: u64,
    fx: Vec<Effect>,
    role: Role,
    link: Link,
    visible: bool,
    failures: u32,
    last_sign: Millis,
    watch: Option<EffectId>,
    grace: bool,
}

impl Follow {
    /// A tab that does not listen yet. Its first input is [`Input::Started`].
    #[must_use]
    pub fn new() -> Self {
        Self { visible: true, ..Self::default() }
    }

    /// Whether this tab holds a connection, or tries to.
    #[must_use]
    pub fn holds_connection(&self) -> bool {
        matches!(self.role, Role::Leading | Role::Alone)
    }

    /// Takes what happened at `now`, and tells what is to be done.
    pub fn handle(&mut self, now: Millis, input: Input) -> Vec<Effect> {
        match input {
            Input::Started { shared } if self.role == Role::Stopped => {
                if shared {
                    self.role = Role::Listening;
                    self.fx.push(Effect::RequestLock { steal: false });
                    self.watch_from(now);
                } else {
                    self.role = Role::Alone;
                    self.connect(now);
                }
            }
            Input::Stopped => {
                self.drop_link();
                if matches!(self.role, Role::Listening | Role::Leading) {
                    self.fx.push(Effect::ReleaseLock);
                }
                self.role = Role::Stopped;
                self.watch = None;
            }
            Input::LockGranted if self.role == Role::Listening => {
                self.role = Role::Leading;
                self.failures = 0;
                self.connect(now);
            }
            Input::LockLost if self.role == Role::Leading => {
                self.drop_link();
                self.role = Role::Listening;
                self.fx.push(Effect::RequestLock { steal: false });
                self.watch_from(now);
            }
            Input::Push { id, event } if self.link == Link::Open(id) => {
                self.last_sign = now;
                self.failures = 0;
                self.pass_on(event);
            }
            Input::PushFailed { id, random } if self.link == Link::Open(id) => self.pause(random),
            // A tab that was frozen may hear its successor before it hears that it lost the lock.
            Input::Heard(event) if matches!(self.role, Role::Listening | Role::Leading) => {
                if self.role == Role::Listening {
                    self.last_sign = now;
                }
                if event != PushEvent::Ping {
                    self.fx.push(Effect::Deliver(event));
                }
            }
            Input::TimerFired { id, random } => self.timer_fired(now, id, random),
            Input::Visible(visible) => {
                self.visible = visible;
                if visible {
                    self.hurry(now);
                }
            }
            Input::Online => self.hurry(now),
            // Of a role, or a connection, that is over.
            Input::Started { .. }
            | Input::LockGranted
            | Input::LockLost
            | Input::Push { .. }
            | Input::PushFailed { .. }
            | Input::Heard(_) => {}
        }
        std::mem::take(&mut self.fx)
    }

    fn next_id(&mut self) -> EffectId {
        self.last_id += 1;
        EffectId(self.last_id)
    }

    fn set_timer(&mut self, after_ms: u32) -> EffectId {
        let id = self.next_id();
        self.fx.push(Effect::SetTimer { id, after_ms });
        id
    }

    fn connect(&mut self, now: Millis) {
        let id = self.next_id();
        self.link = Link::Open(id);
        self.fx.push(Effect::Connect { id });
        self.watch_from(now);
        self.say_alive();
    }

    fn drop_link(&mut self) {
        if let Link::Open(id) = std::mem::take(&mut self.link) {
            self.fx.push(Effect::Disconnect { id });
        }
    }

    fn pass_on(&mut self, event: PushEvent) {
        if self.role == Role::Leading {
            self.fx.push(Effect::Say(event.clone()));
        }
        if event != PushEvent::Ping {
            self.fx.push(Effect::Deliver(event));
        }
    }

    /// Waits before the next attempt.
    fn pause(&mut self, random: u32) {
        self.drop_link();
        let pause = FIRST_PAUSE_MS.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE_MS);
        self.failures = self.failures.saturating_add(1);
        let jitter = u64::from(pause / 2) * u64::from(random) / u64::from(u32::MAX);
        self.link = Link::Pausing(self.set_timer(pause - u32::try_from(jitter).unwrap_or(0)));
        self.watch = None;
        self.say_alive();
    }

    /// Lets the other tabs know that this one still tries: it is the server that is away.
    fn say_alive(&mut self) {
        if self.role == Role::Leading {
            self.fx.push(Effect::Say(PushEvent::Ping));
        }
    }

    /// An occasion to try at once.
    fn hurry(&mut self, now: Millis) {
        if matches!(self.link, Link::Pausing(_)) {
            self.connect(now);
        }
    }

    fn watch_from(&mut self, now: Millis) {
        self.last_sign = now;
        self.watch_again(self.patience(), false);
    }

    fn patience(&self) -> u32 {
        if self.role == Role::Listening { FROZEN_MS } else { SILENCE_MS }
    }

    fn watch_again(&mut self, after_ms: u32, grace: bool) {
        self.watch = Some(self.set_timer(after_ms));
        self.grace = grace;
    }

    fn timer_fired(&mut self, now: Millis, id: EffectId, random: u32) {
        if self.link == Link::Pausing(id) {
            self.connect(now);
            return;
        }
        if self.watch != Some(id) {
            return;
        }
        let silent = u32::try_from(now.saturating_sub(self.last_sign).max(0)).unwrap_or(u32::MAX);
        match (self.patience().checked_sub(silent), self.role) {
            (Some(left @ 1..), _) => self.watch_again(left, false),
            _ if !self.grace => self.watch_again(GRACE_MS, true),
            (_, Role::Leading | Role::Alone) => self.pause(random),
            // A browser may freeze the tab that has the lock. Only a tab that someone looks at takes it away: one, not all.
            (_, Role::Listening) if self.visible => {
                self.fx.push(Effect::RequestLock { steal: true });
                self.watch_from(now);
            }
            (_, Role::Listening) => self.watch_again(GRACE_MS, true),
            (_, Role::Stopped) => {}
        }
    }
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;
