//! What persons do, and what happens to their browsers.

use turnfast_shared::{Millis, ids::ThreadId, message::ResumeData};

use super::{
    browser::{Tab, Task},
    network::ConnId,
    rng::Rng,
    world::{Happening, PaneId, TabId, World},
};
use crate::{
    follow,
    thread::{Input, InteractionState, Occasion, View},
};

#[derive(Clone, Copy, Debug)]
enum Act {
    Type,
    Send,
    SendAndStop,
    Stop,
    Answer,
    CancelSuspended,
    Dismiss,
    Switch,
    SwitchWithin,
    Retry,
    OpenTab,
    Close,
    Crash,
    Reload,
    Hide,
    Show,
    Freeze,
    Thaw,
    LaptopSleeps,
    IntoCache,
    Offline,
    Online,
    Cut,
    Silence,
    RestartServer,
    SignOut,
    StrangerSignsIn,
    SignIn,
}

const ACTS: [(usize, Act); 28] = [
    (14, Act::Type),
    (26, Act::Send),
    (6, Act::SendAndStop),
    (9, Act::Stop),
    (14, Act::Answer),
    (3, Act::CancelSuspended),
    (2, Act::Dismiss),
    (5, Act::Switch),
    (4, Act::SwitchWithin),
    (1, Act::Retry),
    (5, Act::OpenTab),
    (2, Act::Close),
    (2, Act::Crash),
    (4, Act::Reload),
    (5, Act::Hide),
    (6, Act::Show),
    (4, Act::Freeze),
    (5, Act::Thaw),
    (1, Act::LaptopSleeps),
    (2, Act::IntoCache),
    (2, Act::Offline),
    (3, Act::Online),
    (6, Act::Cut),
    (4, Act::Silence),
    (2, Act::RestartServer),
    (1, Act::SignOut),
    (1, Act::StrangerSignsIn),
    (5, Act::SignIn),
];

impl World {
    pub(super) fn somebody_acts(&mut self) {
        if self.healed {
            return;
        }
        let act = self.rng.weighted(&ACTS);
        let usable = self.tabs_where(|tab| tab.is_usable());
        match self.rng.pick(&usable) {
            Some(tab) => self.act(act, tab),
            None => self.someone_looks(),
        }
        // Mostly one thing after the other, now and then a pause in which timers run out.
        let longest = self.rng.weighted(&[(5, 400), (10, 4_000), (2, 20_000), (1, 120_000)]);
        let pause = self.rng.within(10..longest);
        self.after(pause, Happening::Acts);
    }

    fn tabs_where(&self, wanted: impl Fn(&Tab) -> bool) -> Vec<TabId> {
        self.tabs.iter().filter(|(_, tab)| wanted(tab)).map(|(id, _)| *id).collect()
    }

    /// Nobody can do anything: a tab is shown, thawed or opened.
    fn someone_looks(&mut self) {
        let all = self.tabs_where(|_| true);
        match self.rng.pick(&all) {
            Some(tab) => {
                self.thaw(tab);
                self.show(tab, true);
            }
            None => {
                let (browser, thread) = (self.rng.below(self.browsers.len()), self.some_thread());
                self.open_tab(browser, thread, true);
            }
        }
    }

    fn some_thread(&mut self) -> Option<ThreadId> {
        let known: Vec<_> = self.server.threads.keys().copied().collect();
        if self.rng.percent(15) { None } else { self.rng.pick(&known) }
    }

    pub(super) fn shown_pane(&self, tab: TabId) -> Option<PaneId> {
        self.tabs.get(&tab)?.panes.last().map(|pane| pane.0)
    }

    fn view(&self, tab: TabId) -> Option<&View> {
        Some(&self.tabs.get(&tab)?.shown()?.view)
    }

    /// A person does something in a tab that they look at.
    pub(super) fn person(&mut self, tab: TabId, input: Input) {
        if let Some(pane) = self.shown_pane(tab) {
            self.pane_input(tab, pane, input);
        }
    }

    fn act(&mut self, act: Act, tab: TabId) {
        self.note(|| format!("-- {act:?} at {tab:?}"));
        let browser = self.tabs[&tab].browser;
        match act {
            Act::Type => self.types(tab),
            Act::Send => self.sends(tab),
            Act::SendAndStop => {
                self.sends(tab);
                self.person(tab, Input::StopPressed);
            }
            Act::Stop => self.person(tab, Input::StopPressed),
            Act::Answer => self.answers(tab),
            Act::CancelSuspended => self.person(tab, Input::CancelSuspendedPressed),
            Act::Dismiss => self.person(tab, Input::TroubleDismissed),
            Act::Switch => {
                let thread = self.some_thread();
                self.person(tab, Input::Disposed);
                self.open_pane(tab, thread);
            }
            Act::SwitchWithin => {
                let thread = self.some_thread();
                self.person(tab, Input::Opened { thread });
            }
            Act::Retry => self.retry(tab),
            Act::OpenTab if self.tabs.len() < 7 => {
                let (browser, thread, visible) = (self.rng.below(self.browsers.len()), self.some_thread(), self.rng.percent(70));
                self.open_tab(browser, thread, visible);
            }
            Act::Close => {
                self.person(tab, Input::Disposed);
                self.follow_input(tab, follow::Input::Stopped);
                self.kill_tab(tab);
            }
            Act::Crash => self.kill_tab(tab),
            Act::Reload => {
                let thread = self.view(tab).and_then(|view| view.thread);
                self.kill_tab(tab);
                self.open_tab(browser, thread, true);
            }
            Act::Hide => self.show(tab, false),
            Act::Show => {
                let hidden = self.tabs_where(|tab| !tab.visible && !tab.frozen);
                if let Some(tab) = self.rng.pick(&hidden) {
                    self.show(tab, true);
                }
            }
            Act::Freeze => {
                self.show(tab, false);
                self.freeze(tab);
            }
            Act::Thaw => {
                let frozen = self.tabs_where(|tab| tab.frozen);
                if let Some(tab) = self.rng.pick(&frozen) {
                    self.thaw(tab);
                    if self.rng.percent(60) {
                        self.show(tab, true);
                    }
                }
            }
            Act::LaptopSleeps => self.laptop_sleeps(browser),
            Act::IntoCache => self.put_into_cache(tab),
            Act::Offline => {
                self.browsers[browser].online = false;
                for conn in self.net.of(browser, None) {
                    self.disturb(conn);
                }
            }
            Act::Online => self.come_online(browser),
            Act::Cut | Act::Silence => {
                let open: Vec<_> = self.net.conns.iter().filter(|(_, conn)| conn.client_open).map(|(id, _)| *id).collect();
                if let Some(conn) = self.rng.pick(&open) {
                    if matches!(act, Act::Cut) { self.break_off(conn, 1) } else { self.silence(conn) }
                }
            }
            Act::RestartServer => self.restart_server(),
            Act::SignOut => self.browsers[browser].signed_in = false,
            Act::StrangerSignsIn => {
                self.browsers[browser].stranger = true;
                self.sign_in(browser);
            }
            Act::SignIn => {
                self.browsers[browser].stranger = false;
                self.sign_in(browser);
            }
            Act::OpenTab => {}
        }
    }

    fn types(&mut self, tab: TabId) {
        self.words += 1;
        let word = format!("m{}", self.words);
        let Some(view) = self.view(tab) else { return };
        let draft = view.draft.to_string();
        // Goes on, or starts over.
        let text = if draft.is_empty() || self.rng.percent(15) { word } else { format!("{draft} {word}") };
        self.person(tab, Input::DraftChanged(text));
    }

    fn sends(&mut self, tab: TabId) {
        if self.view(tab).is_some_and(|view| view.draft.trim().is_empty()) {
            self.types(tab);
        }
        self.presses_send(tab);
        // Somebody else may press at the same moment.
        let thread = self.view(tab).and_then(|view| view.thread);
        let same = |other: &Tab| other.is_usable() && other.shown().is_some_and(|pane| pane.view.thread == thread);
        let others = self.tabs_where(same);
        if let Some(other) = self.rng.pick(&others).filter(|other| *other != tab) {
            self.presses_send(other);
        }
    }

    fn presses_send(&mut self, tab: TabId) {
        let (message_id, thread_id) = (self.rng.uuid().into(), self.rng.uuid().into());
        self.person(tab, Input::SubmitPressed { message_id, thread_id });
        if self.rng.percent(15) {
            let (message_id, thread_id) = (self.rng.uuid().into(), self.rng.uuid().into());
            self.person(tab, Input::SubmitPressed { message_id, thread_id });
        }
    }

    fn answers(&mut self, tab: TabId) {
        let Some(view) = self.view(tab) else { return };
        let thread = view.thread;
        let open = view.interactions.iter().find(|interaction| interaction.state == InteractionState::Answerable);
        let Some(call) = open.map(|interaction| interaction.suspension.tool_call_id.clone()) else { return };
        // Two people, or one with two tabs, may answer the same question.
        let others = self.tabs_where(|other| other.is_usable() && other.shown().is_some_and(|pane| pane.view.thread == thread));
        for at in others {
            if at == tab || self.rng.percent(40) {
                let data = ResumeData::Answer { answer: "blue".to_owned() };
                self.person(at, Input::AnswerGiven { tool_call_id: call.clone(), data });
            }
        }
    }

    /// What the page offers next to "this may be old".
    pub(super) fn retry(&mut self, tab: TabId) {
        let thread = self.view(tab).and_then(|view| view.thread);
        self.person(tab, Input::Opened { thread });
    }

    // What happens to tabs.

    pub(super) fn show(&mut self, id: TabId, visible: bool) {
        let Some(tab) = self.tabs.get_mut(&id).filter(|tab| !tab.frozen) else { return };
        tab.visible = visible;
        self.follow_input(id, follow::Input::Visible(visible));
        if visible {
            self.occasion(id, Occasion::TabVisible);
        }
    }

    fn freeze(&mut self, id: TabId) {
        if let Some(tab) = self.tabs.get_mut(&id) {
            tab.frozen = true;
        }
    }

    /// What was held back comes, in any order, but for what comes from the same source.
    pub(super) fn thaw(&mut self, id: TabId) {
        let Some(tab) = self.tabs.get_mut(&id).filter(|tab| tab.frozen) else { return };
        tab.frozen = false;
        let restored = std::mem::take(&mut tab.cached);
        let held = std::mem::take(&mut tab.held);
        for task in shuffled(held, &mut self.rng) {
            self.after(0, Happening::Reaches(id, task));
        }
        if restored {
            self.show(id, true);
        }
    }

    /// Everything of a browser stops for a while; its connections may not be there any more.
    fn laptop_sleeps(&mut self, browser: usize) {
        for tab in self.tabs_where(|tab| tab.browser == browser) {
            self.freeze(tab);
        }
        for conn in self.net.of(browser, None) {
            if self.rng.percent(70) {
                self.disturb(conn);
            }
        }
    }

    fn put_into_cache(&mut self, id: TabId) {
        self.show(id, false);
        self.freeze(id);
        let Some(tab) = self.tabs.get_mut(&id) else { return };
        tab.cached = true;
        let browser = tab.browser;
        for conn in self.net.of(browser, Some(id)) {
            self.break_off(conn, 1);
        }
    }

    /// The connection breaks, with or without a word.
    fn disturb(&mut self, conn: ConnId) {
        if self.rng.percent(50) { self.break_off(conn, 1) } else { self.silence(conn) }
    }

    fn silence(&mut self, conn: ConnId) {
        if let Some(open) = self.net.conns.get_mut(&conn) {
            open.silent = true;
        }
    }

    pub(super) fn come_online(&mut self, browser: usize) {
        if !std::mem::replace(&mut self.browsers[browser].online, true) {
            for tab in self.tabs_where(|tab| tab.browser == browser) {
                self.after(0, Happening::Reaches(tab, Task::Online));
            }
        }
    }

    /// Somebody signs in, where a tab asks for it.
    pub(super) fn sign_in(&mut self, browser: usize) {
        self.browsers[browser].signed_in = true;
        let asked = |tab: &Tab| tab.browser == browser && !tab.frozen;
        for tab in self.tabs_where(|tab| asked(tab) && tab.shown().is_some_and(|pane| pane.view.signed_out)) {
            self.occasion(tab, Occasion::SignedIn);
        }
    }

    /// Sets a story up, and lets it happen.
    pub(super) fn play(&mut self) {
        for _ in 0..1 + self.rng.below(2) {
            let (thread, message) = (self.rng.uuid().into(), self.rng.uuid().into());
            let request = turnfast_shared::api::ChatRequest {
                message: "hello".to_owned(),
                session_id: Some(thread),
                new_session: Some(true),
                message_id: Some(message),
                attachments: Vec::new(),
            };
            // Without a reader nothing can be refused but a competing submit.
            let _ = self.server.submit(None, &request, &mut self.rng);
        }
        self.drain();
        for _ in 0..1 + self.rng.below(5) {
            let (browser, thread) = (self.rng.below(self.browsers.len()), self.some_thread());
            self.open_tab(browser, thread, true);
        }
        self.after(100, Happening::Acts);
        self.after(500, Happening::Weather);
        let length: Millis = self.rng.weighted(&[(4, 40_000), (4, 120_000), (1, 400_000)]);
        self.run_until(length);
    }
}

/// Any order that keeps what comes from one source in its order.
fn shuffled(held: Vec<Task>, rng: &mut Rng) -> Vec<Task> {
    let source = |task: &Task| match task {
        Task::Piece(conn, _) | Task::Broken(conn) => conn.0,
        Task::Timer(..) | Task::FollowTimer(_) | Task::TimedOut(_) => u64::MAX,
        Task::Heard(_) => u64::MAX - 1,
        Task::LockGranted(_) | Task::LockLost(_) => u64::MAX - 2,
        Task::GivenUp(..) | Task::Online => u64::MAX - 3,
    };
    let mut sources: Vec<(u64, std::collections::VecDeque<Task>)> = Vec::new();
    for task in held {
        let from = source(&task);
        match sources.iter_mut().find(|known| known.0 == from) {
            Some(known) => known.1.push_back(task),
            None => sources.push((from, [task].into())),
        }
    }
    let mut order = Vec::new();
    while !sources.is_empty() {
        let at = rng.below(sources.len());
        order.extend(sources[at].1.pop_front());
        if sources[at].1.is_empty() {
            sources.swap_remove(at);
        }
    }
    order
}
