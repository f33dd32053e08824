//! A browser's share in `/push`: the Web Lock, the channel, and the machine that uses them.

use turnfast_shared::{Millis, api::PushEvent};

use super::{
    browser::{Tab, Task},
    network::{Caller, Request},
    world::{Happening, TabId, World},
};
use crate::{
    follow,
    thread::{Input, Occasion},
};

impl World {
    pub(super) fn follow_input(&mut self, id: TabId, input: follow::Input) {
        if self.violation.is_some() {
            return;
        }
        let now = self.now;
        let Some(tab) = self.tabs.get_mut(&id) else { return };
        let heard = format!("{id:?} push < {input:?}");
        let effects = tab.follow.handle(now, input);
        self.note(|| heard);
        for effect in effects {
            if self.swallows(&effect) {
                continue;
            }
            self.note(|| format!("{id:?} push > {effect:?}"));
            self.perform_follow(id, effect);
        }
    }

    fn perform_follow(&mut self, id: TabId, effect: follow::Effect) {
        let Some(tab) = self.tabs.get_mut(&id) else { return };
        let browser = tab.browser;
        match effect {
            follow::Effect::RequestLock { steal } => self.request_lock(browser, id, steal),
            follow::Effect::ReleaseLock => self.release_lock(browser, id),
            follow::Effect::Connect { id: effect } => {
                let conn = self.open(Caller { browser, tab: id, pane: None }, Request::Push(effect));
                if let Some(tab) = self.tabs.get_mut(&id) {
                    tab.pushes.insert(effect, conn);
                }
            }
            follow::Effect::Disconnect { id: effect } => {
                if let Some(conn) = tab.pushes.remove(&effect) {
                    self.close(conn);
                }
            }
            follow::Effect::Say(event) => {
                let now = self.now;
                let listens = |other: &Tab| other.browser == browser && !other.cached;
                let others: Vec<_> =
                    self.tabs.iter().filter(|(other, tab)| **other != id && listens(tab)).map(|(other, _)| *other).collect();
                for other in others {
                    let pause = self.rng.within(0..5);
                    let Some(tab) = self.tabs.get_mut(&other) else { continue };
                    tab.hears_until = tab.hears_until.max(now + pause);
                    let at = tab.hears_until;
                    self.at(at, Happening::Reaches(other, Task::Heard(event.clone())));
                }
            }
            follow::Effect::Deliver(event) => match event {
                PushEvent::AgentExecutionUpdated(update) => self.each_pane(id, |_| Input::Notified(update.clone())),
                PushEvent::Connected => self.occasion(id, Occasion::PushConnected),
                PushEvent::Ping => {}
            },
            follow::Effect::SetTimer { id: timer, after_ms } => {
                let late = self.lateness(id);
                self.after(Millis::from(after_ms) + late, Happening::Reaches(id, Task::FollowTimer(timer)));
            }
        }
    }

    // The Web Lock.

    fn request_lock(&mut self, browser: usize, id: TabId, steal: bool) {
        // An earlier request of the same tab ends with the next one.
        self.release_lock(browser, id);
        let entry = &mut self.browsers[browser];
        entry.lock_requests += 1;
        let request = entry.lock_requests;
        let lost = if steal { entry.holder.replace((id, request)) } else { None };
        if !steal {
            entry.waiting.push_back((id, request));
        }
        if let Some(tab) = self.tabs.get_mut(&id) {
            tab.lock = Some(request);
        }
        if let Some((other, request)) = lost {
            self.counts.steals += 1;
            self.after(1, Happening::Reaches(other, Task::LockLost(request)));
        }
        if steal {
            self.after(1, Happening::Reaches(id, Task::LockGranted(request)));
        }
        self.grant(browser);
    }

    pub(super) fn release_lock(&mut self, browser: usize, id: TabId) {
        let entry = &mut self.browsers[browser];
        entry.waiting.retain(|waiting| waiting.0 != id);
        entry.holder.take_if(|holder| holder.0 == id);
        if let Some(tab) = self.tabs.get_mut(&id) {
            tab.lock = None;
        }
        self.grant(browser);
    }

    fn grant(&mut self, browser: usize) {
        let entry = &mut self.browsers[browser];
        if entry.holder.is_none()
            && let Some((tab, request)) = entry.waiting.pop_front()
        {
            entry.holder = Some((tab, request));
            self.counts.handovers += 1;
            let pause = self.rng.within(0..4);
            self.after(pause, Happening::Reaches(tab, Task::LockGranted(request)));
        }
    }
}
