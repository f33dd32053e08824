//! A browser of several tabs, played without one.

use std::collections::VecDeque;

use proptest::prelude::*;
use turnfast_shared::api::ExecutionUpdated;

use super::*;

fn update(revision: u64) -> PushEvent {
    PushEvent::AgentExecutionUpdated(ExecutionUpdated {
        project_id: "demo".parse().unwrap(),
        agent_id: "assistant".parse().unwrap(),
        thread_id: uuid::Uuid::from_u128(1).into(),
        execution_id: None,
        revision,
    })
}

/// A tab, and what came of its effects.
#[derive(Default)]
struct Tab {
    follow: Follow,
    open: bool,
    frozen: bool,
    connection: Option<EffectId>,
    timers: Vec<(Millis, EffectId)>,
    delivered: Vec<PushEvent>,
}

/// A browser: one lock, one channel, a virtual clock.
#[derive(Default)]
struct Browser {
    now: Millis,
    tabs: Vec<Tab>,
    holder: Option<usize>,
    queue: VecDeque<usize>,
    connects: usize,
}

impl Browser {
    fn open(&mut self) -> usize {
        self.tabs.push(Tab { follow: Follow::new(), open: true, ..Tab::default() });
        let tab = self.tabs.len() - 1;
        self.input(tab, Input::Started { shared: true });
        tab
    }

    /// The tab goes as tabs go: without a word.
    fn kill(&mut self, tab: usize) {
        self.tabs[tab].open = false;
        self.tabs[tab].connection = None;
        self.queue.retain(|waiting| *waiting != tab);
        if self.holder == Some(tab) {
            self.holder = None;
            self.grant();
        }
    }

    fn grant(&mut self) {
        if self.holder.is_none()
            && let Some(next) = self.queue.pop_front()
        {
            self.holder = Some(next);
            self.input(next, Input::LockGranted);
        }
    }

    fn input(&mut self, tab: usize, input: Input) {
        if !self.tabs[tab].open || self.tabs[tab].frozen {
            return;
        }
        for effect in self.tabs[tab].follow.handle(self.now, input) {
            match effect {
                Effect::RequestLock { steal: false } => {
                    self.queue.push_back(tab);
                    self.grant();
                }
                Effect::RequestLock { steal: true } => {
                    self.queue.retain(|waiting| *waiting != tab);
                    let before = self.holder.replace(tab);
                    if let Some(before) = before {
                        self.input(before, Input::LockLost);
                    }
                    self.input(tab, Input::LockGranted);
                }
                Effect::ReleaseLock => self.kill(tab),
                Effect::Connect { id } => {
                    assert_eq!(self.tabs[tab].connection.replace(id), None, "one connection per tab");
                    self.connects += 1;
                }
                Effect::Disconnect { id } => assert_eq!(self.tabs[tab].connection.take(), Some(id)),
                Effect::Say(event) => {
                    for other in (0..self.tabs.len()).filter(|other| *other != tab) {
                        self.input(other, Input::Heard(event.clone()));
                    }
                }
                Effect::Deliver(event) => self.tabs[tab].delivered.push(event),
                Effect::SetTimer { id, after_ms } => self.tabs[tab].timers.push((self.now + Millis::from(after_ms), id)),
            }
        }
    }

    /// What the server sends, on every connection.
    fn push(&mut self, event: &PushEvent) {
        for tab in 0..self.tabs.len() {
            if let Some(id) = self.tabs[tab].connection {
                self.input(tab, Input::Push { id, event: event.clone() });
            }
        }
    }

    fn fail_connections(&mut self) {
        for tab in 0..self.tabs.len() {
            if let Some(id) = self.tabs[tab].connection {
                self.input(tab, Input::PushFailed { id, random: 0 });
            }
        }
    }

    /// Lets time pass; timers fire in their order.
    fn wait(&mut self, ms: Millis) {
        let end = self.now + ms;
        loop {
            let due = (0..self.tabs.len())
                .filter(|tab| self.tabs[*tab].open && !self.tabs[*tab].frozen)
                .flat_map(|tab| self.tabs[tab].timers.iter().map(move |timer| (timer.0, timer.1, tab)))
                .filter(|(at, ..)| *at <= end)
                .min_by_key(|(at, ..)| *at);
            let Some((at, id, tab)) = due else { break };
            self.now = self.now.max(at);
            self.tabs[tab].timers.retain(|timer| timer.1 != id);
            self.input(tab, Input::TimerFired { id, random: 0 });
        }
        self.now = end;
    }

    fn connections(&self) -> usize {
        self.tabs.iter().filter(|tab| tab.open && tab.connection.is_some()).count()
    }

    fn take_delivered(&mut self, tab: usize) -> Vec<PushEvent> {
        std::mem::take(&mut self.tabs[tab].delivered)
    }
}

#[test]
fn eight_tabs_share_one_connection_and_each_hears_everything_once() {
    let mut browser = Browser::default();
    for _ in 0..8 {
        browser.open();
    }
    browser.push(&PushEvent::Connected);
    browser.push(&update(1));
    browser.push(&PushEvent::Ping);
    browser.push(&update(2));
    assert_eq!((browser.connects, browser.connections()), (1, 1));
    for tab in 0..8 {
        assert_eq!(browser.take_delivered(tab), [PushEvent::Connected, update(1), update(2)], "tab {tab}");
    }
}

#[test]
fn when_the_leader_goes_another_takes_over_and_every_tab_reads_once() {
    let mut browser = Browser::default();
    for _ in 0..3 {
        browser.open();
    }
    browser.push(&PushEvent::Connected);
    browser.kill(0);
    for tab in 1..3 {
        browser.take_delivered(tab);
    }
    assert_eq!(browser.connections(), 1);
    browser.push(&PushEvent::Connected);
    for tab in 1..3 {
        assert_eq!(browser.take_delivered(tab), [PushEvent::Connected], "tab {tab}");
    }
}

#[test]
fn a_tab_that_closes_in_order_hands_over_too() {
    let mut browser = Browser::default();
    browser.open();
    browser.open();
    browser.input(0, Input::Stopped);
    assert_eq!((browser.connections(), browser.holder), (1, Some(1)));
}

#[test]
fn without_the_shared_apis_each_tab_connects_and_says_nothing() {
    let mut follow = Follow::new();
    let effects = follow.handle(0, Input::Started { shared: false });
    let Effect::Connect { id } = effects[0] else { unreachable!("{effects:?}") };
    assert!(follow.holds_connection());
    assert_eq!(follow.handle(1, Input::Push { id, event: update(1) }), [Effect::Deliver(update(1))]);
    assert_eq!(follow.handle(2, Input::Push { id, event: PushEvent::Ping }), []);
}

#[test]
fn three_missed_pings_reconnect_and_a_heard_one_does_not() {
    let mut browser = Browser::default();
    browser.open();
    browser.push(&PushEvent::Connected);
    for _ in 0..20 {
        browser.wait(15_000);
        browser.push(&PushEvent::Ping);
    }
    assert_eq!(browser.connects, 1);
    browser.wait(44_000);
    assert_eq!((browser.connects, browser.connections()), (1, 1));
    browser.wait(1_000 + Millis::from(GRACE_MS));
    assert_eq!(browser.connections(), 0, "the dead connection is closed");
    browser.wait(Millis::from(FIRST_PAUSE_MS));
    assert_eq!((browser.connects, browser.connections()), (2, 1));
}

#[test]
fn a_page_that_slept_gets_to_see_what_came_meanwhile_before_it_reconnects() {
    let mut browser = Browser::default();
    let tab = browser.open();
    browser.push(&PushEvent::Connected);
    browser.now += 600_000;
    let (_, timer) = browser.tabs[tab].timers[0];
    browser.tabs[tab].timers.clear();
    browser.input(tab, Input::TimerFired { id: timer, random: 0 });
    browser.push(&PushEvent::Ping);
    browser.wait(Millis::from(GRACE_MS));
    assert_eq!((browser.connects, browser.connections()), (1, 1));
}

#[test]
fn pauses_double_up_to_half_a_minute_and_are_cut_by_up_to_half() {
    for (random, share) in [(0, 1.0), (u32::MAX, 0.5), (u32::MAX / 2, 0.75)] {
        let mut follow = Follow::new();
        let mut effects = follow.handle(0, Input::Started { shared: false });
        for expected in [2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            let id = effects.iter().find_map(|e| if let Effect::Connect { id } = e { Some(*id) } else { None }).unwrap();
            let paused = follow.handle(0, Input::PushFailed { id, random });
            let (timer, after) = paused
                .iter()
                .find_map(|e| if let Effect::SetTimer { id, after_ms } = e { Some((*id, *after_ms)) } else { None })
                .unwrap();
            assert!((f64::from(after) - f64::from(expected) * share).abs() <= 1.0, "{after} for {expected} * {share}");
            effects = follow.handle(0, Input::TimerFired { id: timer, random });
        }
        let id = effects.iter().find_map(|e| if let Effect::Connect { id } = e { Some(*id) } else { None }).unwrap();
        follow.handle(0, Input::Push { id, event: PushEvent::Connected });
        let paused = follow.handle(0, Input::PushFailed { id, random: 0 });
        assert!(paused.iter().any(|e| matches!(e, Effect::SetTimer { after_ms: FIRST_PAUSE_MS, .. })), "a success starts over");
    }
}

#[test]
fn the_network_or_a_look_at_the_tab_ends_a_pause() {
    for occasion in [Input::Online, Input::Visible(true)] {
        let mut browser = Browser::default();
        browser.open();
        browser.fail_connections();
        assert_eq!(browser.connections(), 0);
        browser.input(0, occasion);
        assert_eq!(browser.connections(), 1);
        browser.wait(60_000);
        assert_eq!(browser.connections(), 1, "the pause's own timer does nothing any more");
    }
}

#[test]
fn a_visible_tab_takes_the_lock_from_a_frozen_one_and_a_hidden_one_does_not() {
    for visible in [true, false] {
        let mut browser = Browser::default();
        browser.open();
        browser.open();
        browser.push(&PushEvent::Connected);
        browser.input(1, Input::Visible(visible));
        browser.tabs[0].frozen = true;
        browser.wait(Millis::from(FROZEN_MS + GRACE_MS));
        assert_eq!(browser.holder, Some(usize::from(visible)));
        if visible {
            browser.tabs[0].frozen = false;
            browser.input(0, Input::LockLost);
            assert_eq!(browser.connections(), 1, "the thawed tab closes its connection");
            assert!(browser.tabs[1].connection.is_some());
            assert!(!browser.tabs[0].follow.holds_connection());
        }
    }
}

#[test]
fn a_thawed_tab_that_hears_its_successor_before_it_hears_of_its_loss_reads_too() {
    let mut browser = Browser::default();
    let tab = browser.open();
    browser.push(&PushEvent::Connected);
    browser.take_delivered(tab);
    // What came meanwhile, in the order of the channel and the lock, which is any.
    browser.input(tab, Input::Heard(PushEvent::Connected));
    browser.input(tab, Input::Heard(update(7)));
    browser.input(tab, Input::LockLost);
    assert_eq!(browser.take_delivered(tab), [PushEvent::Connected, update(7)]);
}

#[test]
fn while_the_server_is_away_the_leader_keeps_the_lock() {
    let mut browser = Browser::default();
    browser.open();
    browser.open();
    browser.push(&PushEvent::Connected);
    for _ in 0..30 {
        browser.fail_connections();
        browser.wait(20_000);
    }
    assert_eq!(browser.holder, Some(0));
    assert!(browser.tabs[1].connection.is_none());
}

proptest! {
    #[test]
    fn there_is_never_more_than_one_connection_and_in_the_end_there_is_one(
        steps in prop::collection::vec((0u8..7, any::<prop::sample::Index>()), 0..60),
    ) {
        let mut browser = Browser::default();
        browser.open();
        for (what, which) in steps {
            let tab = which.index(browser.tabs.len());
            match what {
                0 => { browser.open(); }
                1 if browser.tabs.iter().filter(|tab| tab.open).count() > 1 => browser.kill(tab),
                2 => browser.fail_connections(),
                3 => browser.wait(7_000),
                4 => browser.push(&PushEvent::Ping),
                5 => browser.push(&update(1)),
                6 => browser.input(tab, Input::Online),
                _ => {}
            }
            prop_assert!(browser.connections() <= 1);
        }
        browser.wait(Millis::from(LONGEST_PAUSE_MS));
        browser.push(&PushEvent::Connected);
        let open: Vec<_> = (0..browser.tabs.len()).filter(|tab| browser.tabs[*tab].open).collect();
        for tab in open.clone() {
            browser.take_delivered(tab);
        }
        if browser.connections() == 0 {
            browser.wait(Millis::from(LONGEST_PAUSE_MS));
        }
        prop_assert_eq!(browser.connections(), 1);
        browser.push(&update(9));
        for tab in open {
            prop_assert_eq!(browser.take_delivered(tab), vec![update(9)]);
        }
    }
}
