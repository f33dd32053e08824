//! The end of every story: the network is well, everything is awake, and what persons see is the record.

use std::collections::BTreeSet;

use turnfast_shared::{Millis, api::ChatRequest};

use super::{
    browser::Tab,
    invariants::Rule,
    network::Weather,
    server::words,
    world::{PaneId, TabId, World},
};
use crate::thread::{Attempt, InteractionState, Load, Stop, View};

/// Milliseconds within which a dead connection is noticed and another one stands, with room for the timeouts of three reads: 45 s and
/// 5 s until a stream or `/push` is given up, up to 30 s of pause, up to 66 s until a tab takes over, and a turn that goes on meanwhile.
const SETTLED_MS: Millis = 240_000;
/// Milliseconds in which nothing happens any more.
const QUIET_MS: Millis = 120_000;
/// Milliseconds within which a tab takes over from one that crashed, even where the lock goes to a frozen one first.
const HANDED_OVER_MS: Millis = 120_000;
/// Milliseconds within which a turn ends and everyone has heard of it.
const HEARD_MS: Millis = 30_000;

impl World {
    /// The network heals and everything wakes. Tabs that were awake get no sign of that: what they missed they must notice.
    pub(super) fn heal(&mut self) {
        self.note(|| "-- all is well".to_owned());
        self.healed = true;
        self.net.weather = Weather::FAIR;
        for browser in 0..self.browsers.len() {
            self.come_online(browser);
        }
        // Tabs that nobody looks at may stay frozen for good, with all that they hold: the others must do without them.
        let thaws = self.rng.percent(60) || self.tabs.values().all(|tab| tab.frozen);
        if thaws {
            for tab in self.tabs.keys().copied().collect::<Vec<_>>() {
                self.thaw(tab);
            }
        }
        let tabs: Vec<_> = self.tabs.iter().filter(|(_, tab)| !tab.frozen).map(|(id, _)| *id).collect();
        self.run_until(self.now + 1_000);
        for tab in &tabs {
            if self.tabs.get(tab).is_some_and(|tab| !tab.visible) {
                self.show(*tab, true);
            }
        }
        for browser in 0..self.browsers.len() {
            self.browsers[browser].stranger = false;
            self.sign_in(browser);
        }
        self.run_until(self.now + SETTLED_MS / 2);
        // Who hears that a tab's state may be old, or is asked to sign in, does something about it; nobody else does.
        for browser in 0..self.browsers.len() {
            self.sign_in(browser);
        }
        for tab in tabs {
            let says_so = |view: &View| view.read_failure.is_some() || matches!(view.load, Load::Failed(_) | Load::NotFound);
            if self.tabs.get(&tab).and_then(|tab| tab.shown()).is_some_and(|pane| says_so(&pane.view)) {
                self.retry(tab);
            }
        }
        self.run_until(self.now + SETTLED_MS / 2);
        if self.violation.is_none() {
            self.check_healed();
        }
        let reads = self.counts.reads;
        self.run_until(self.now + QUIET_MS);
        if self.counts.reads != reads {
            self.fail(Rule::Quiet, "a read where nothing happened");
        }
        self.hand_over();
    }

    /// The tabs that hold connections crash, and then somebody says something elsewhere: the others hear of it.
    fn hand_over(&mut self) {
        let holds = |tab: &Tab| !tab.frozen && tab.follow.holds_connection();
        for tab in self.tabs.iter().filter(|(_, tab)| holds(tab)).map(|(id, _)| *id).collect::<Vec<_>>() {
            self.kill_tab(tab);
        }
        self.run_until(self.now + HANDED_OVER_MS);
        for thread in self.server.threads.keys().copied().collect::<Vec<_>>() {
            let request = ChatRequest { message: "elsewhere".to_owned(), session_id: Some(thread), ..ChatRequest::default() };
            // Refused where an answer is waited for.
            let _ = self.server.submit(None, &request, &mut self.rng);
        }
        self.drain();
        self.run_until(self.now + HEARD_MS);
        if self.violation.is_none() {
            self.check_healed();
        }
    }

    fn check_healed(&mut self) {
        let mut problems = Vec::new();
        for (id, tab) in self.tabs.iter().filter(|(_, tab)| !tab.frozen) {
            let Some((pane, Some(shown))) = tab.panes.last().map(|(id, pane)| (id, pane)) else { continue };
            problems.extend(self.differs(*id, *pane, &shown.view));
        }
        for (at, browser) in self.browsers.iter().enumerate() {
            let tabs = self.tabs.values().filter(|tab| tab.browser == at && !tab.frozen);
            let (count, connected) = tabs.fold((0, 0), |(tabs, open), tab| (tabs + 1, open + tab.pushes.len()));
            let wanted = if browser.shared { count.min(1) } else { count };
            if connected != wanted {
                problems.push(format!("browser {at} has {connected} connections and {count} tabs"));
            }
        }
        if let Some(problem) = problems.into_iter().next() {
            self.fail(Rule::Healed, problem);
        }
    }

    /// What is not as the record has it.
    fn differs(&self, tab: TabId, pane: PaneId, view: &View) -> Option<String> {
        let problem = |what: &str| Some(format!("{tab:?}: {what}: {view:?}"));
        if view.signed_out || view.read_failure.is_some() {
            return problem("signed out or unable to read");
        }
        if view.trouble.as_ref().is_some_and(|trouble| trouble.attempt == Attempt::Stream) {
            return problem("still called detached");
        }
        let Some(recorded) = view.thread.and_then(|thread| self.server.threads.get(&thread)) else {
            let nothing = view.settled.is_empty() && view.running.is_none() && view.stop == Stop::Hidden;
            return if nothing && view.load == Load::New { None } else { problem("a thread that is none") };
        };
        if view.load != Load::Loaded || !view.messages().map(AsRef::as_ref).eq(&recorded.messages) {
            return problem(&format!("the record is {:?}", recorded.messages));
        }
        if recorded.active.is_some() {
            return problem("the model's turn should be over by now");
        }
        let waits = !recorded.open.is_empty();
        let open: BTreeSet<_> = recorded.open.iter().map(|open| &open.tool_call_id).collect();
        let shown: BTreeSet<_> = view.interactions.iter().map(|open| &open.suspension.tool_call_id).collect();
        let answerable = view.interactions.iter().all(|open| open.state == InteractionState::Answerable);
        if open != shown || !answerable || view.interactions.len() != open.len() {
            return problem("other interactions than the record's");
        }
        if view.running.is_some() || view.stop != if waits { Stop::Usable } else { Stop::Hidden } {
            return problem("something still runs, or is being stopped");
        }
        let blank = view.draft.trim().is_empty();
        if (view.send_blocked.is_none()) != (!blank && !waits) {
            return problem("sending is blocked, or not");
        }
        // Who alone sent it, once, and whose message is in the record, does not have it in the box any more.
        let left = words(&view.draft).find(|word| {
            let mut sent = self.sent.iter().filter(|sent| words(&sent.text).any(|known| known == *word));
            let first = sent.next();
            first.is_some_and(|first| {
                first.pane == pane
                    && recorded.messages.iter().any(|message| message.id == first.message)
                    && sent.all(|other| other.pane == pane && other.message == first.message)
            })
        });
        left.and_then(|word| problem(&format!("{word} was accepted and is still in the draft")))
    }
}
