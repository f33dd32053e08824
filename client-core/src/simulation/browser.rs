//! Browsers and their tabs: what performs the machines' effects, as `browser/` does it in a page. One lock, one channel and one
//! storage per browser.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use turnfast_shared::{Millis, api::PushEvent, ids::ThreadId};

use super::{
    faults::Fault,
    invariants::{Book, Step},
    network::{Caller, Conn, ConnId, Piece, Request},
    rng::Rng,
    world::{Happening, PaneId, TabId, World},
};
use crate::{
    follow::{self, Follow},
    thread::{Effect, EffectId, Failure, Input, Machine, Occasion, REQUEST_TIMEOUT_MS, StoredDraft, View},
};

#[derive(Debug)]
pub(super) struct Browser {
    /// Whether it has Web Locks and BroadcastChannel.
    pub(super) shared: bool,
    /// Whether its storage takes anything.
    pub(super) keeps: bool,
    pub(super) online: bool,
    pub(super) signed_in: bool,
    /// Somebody else is signed in, to whom no thread of these tabs exists.
    pub(super) stranger: bool,
    /// localStorage: one draft per thread.
    pub(super) drafts: BTreeMap<Option<ThreadId>, StoredDraft>,
    /// Who has the Web Lock, and by which of its requests.
    pub(super) holder: Option<(TabId, u32)>,
    pub(super) waiting: VecDeque<(TabId, u32)>,
    pub(super) lock_requests: u32,
}

impl Browser {
    pub(super) fn any(rng: &mut Rng) -> Self {
        Self {
            shared: rng.percent(85),
            keeps: rng.percent(95),
            online: true,
            signed_in: true,
            stranger: false,
            drafts: BTreeMap::new(),
            holder: None,
            waiting: VecDeque::new(),
            lock_requests: 0,
        }
    }
}

/// Something that reaches a tab. A frozen tab gets it when it thaws.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Piece(ConnId, Piece),
    /// The connection broke.
    Broken(ConnId),
    /// It took too long to answer.
    TimedOut(ConnId),
    Timer(PaneId, EffectId),
    FollowTimer(follow::EffectId),
    /// What a request ends in that the machine gave up.
    GivenUp(PaneId, Box<Input>),
    Heard(PushEvent),
    LockGranted(u32),
    LockLost(u32),
    Online,
}

pub(super) struct Pane {
    pub(super) machine: Machine,
    pub(super) view: View,
    pub(super) book: Book,
    /// The person went elsewhere; requests under way still end here.
    pub(super) disposed: bool,
    pub(super) calls: BTreeMap<EffectId, ConnId>,
    timers: BTreeSet<EffectId>,
}

pub(super) struct Tab {
    pub(super) browser: usize,
    pub(super) follow: Follow,
    /// The last is the one that is shown.
    pub(super) panes: Vec<(PaneId, Option<Pane>)>,
    pub(super) visible: bool,
    pub(super) frozen: bool,
    /// In the back/forward cache: frozen, without connections, and deaf to the channel.
    pub(super) cached: bool,
    pub(super) held: Vec<Task>,
    pub(super) pushes: HashMap<follow::EffectId, ConnId>,
    /// Its last request for the lock.
    pub(super) lock: Option<u32>,
    /// When the last message of the channel reaches it: nothing overtakes there.
    pub(super) hears_until: Millis,
}

impl Tab {
    pub(super) fn shown(&self) -> Option<&Pane> {
        self.panes.last()?.1.as_ref()
    }

    /// Whether its lock was stolen, and it has not heard of that yet.
    pub(super) fn is_losing_lock(&self, browser: &Browser) -> bool {
        self.lock.is_some_and(|request| {
            browser.holder.is_none_or(|holder| holder.1 != request) && browser.waiting.iter().all(|waiting| waiting.1 != request)
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.visible && !self.frozen
    }
}

impl World {
    // A tab's life.

    pub(super) fn open_tab(&mut self, browser: usize, thread: Option<ThreadId>, visible: bool) -> TabId {
        self.last_tab += 1;
        let id = TabId(self.last_tab);
        let tab = Tab {
            browser,
            follow: Follow::new(),
            panes: Vec::new(),
            visible,
            frozen: false,
            cached: false,
            held: Vec::new(),
            pushes: HashMap::new(),
            lock: None,
            hears_until: 0,
        };
        self.tabs.insert(id, tab);
        self.note(|| format!("{id:?} opens in browser {browser} on {thread:?}"));
        let shared = self.browsers[browser].shared && self.fault != Some(Fault::EachForItself);
        // Listen first, read then.
        self.follow_input(id, follow::Input::Started { shared });
        self.open_pane(id, thread);
        id
    }

    pub(super) fn open_pane(&mut self, tab: TabId, thread: Option<ThreadId>) {
        self.last_pane += 1;
        let id = PaneId(self.last_pane);
        let mut machine = Machine::new();
        let view = machine.view();
        let (calls, timers, book) = (BTreeMap::new(), BTreeSet::new(), Book::default());
        let pane = Pane { machine, view, book, disposed: false, calls, timers };
        if let Some(tab) = self.tabs.get_mut(&tab) {
            tab.panes.push((id, Some(pane)));
        }
        self.pane_input(tab, id, Input::Opened { thread });
    }

    /// The tab is gone, without a word: the browser closes what it had open, and gives its lock back.
    pub(super) fn kill_tab(&mut self, id: TabId) {
        let Some(tab) = self.tabs.remove(&id) else { return };
        self.note(|| format!("{id:?} is gone"));
        for conn in self.net.of(tab.browser, Some(id)) {
            self.close(conn);
        }
        self.release_lock(tab.browser, id);
    }

    // What reaches a tab.

    pub(super) fn reach(&mut self, id: TabId, task: Task) {
        let Some(tab) = self.tabs.get_mut(&id) else { return };
        if tab.frozen {
            tab.held.push(task);
            return;
        }
        match task {
            Task::Piece(conn, piece) => self.piece(id, conn, piece),
            Task::Broken(conn) | Task::TimedOut(conn) => self.broken(id, conn),
            Task::Timer(pane, timer) => {
                if self.pane_mut(id, pane).is_some_and(|pane| pane.timers.remove(&timer)) {
                    self.pane_input(id, pane, Input::TimerFired { id: timer });
                }
            }
            Task::FollowTimer(timer) => {
                if self.fault == Some(Fault::Restless) {
                    self.occasion(id, Occasion::TabVisible);
                }
                let random = self.rng.next() as u32;
                self.follow_input(id, follow::Input::TimerFired { id: timer, random });
            }
            Task::GivenUp(pane, input) => self.pane_input(id, pane, *input),
            Task::Heard(event) => self.follow_input(id, follow::Input::Heard(event)),
            Task::LockGranted(request) if tab.lock == Some(request) => self.follow_input(id, follow::Input::LockGranted),
            Task::LockLost(request) if tab.lock == Some(request) => {
                tab.lock = None;
                self.follow_input(id, follow::Input::LockLost);
            }
            Task::LockGranted(_) | Task::LockLost(_) => {}
            Task::Online => {
                self.follow_input(id, follow::Input::Online);
                self.occasion(id, Occasion::Online);
            }
        }
    }

    pub(super) fn pane_mut(&mut self, tab: TabId, pane: PaneId) -> Option<&mut Pane> {
        self.tabs.get_mut(&tab)?.panes.iter_mut().find(|known| known.0 == pane)?.1.as_mut()
    }

    /// The client takes what the server sent.
    fn piece(&mut self, tab: TabId, conn: ConnId, piece: Piece) {
        let Some(open) = self.net.conns.get_mut(&conn).filter(|open| open.client_open) else { return };
        open.untaken = open.untaken.saturating_sub(piece.len());
        let (request, caller) = (open.request.clone(), open.caller);
        let goes_on = matches!(piece, Piece::Bytes(_) | Piece::Push(_));
        if !goes_on {
            open.client_open = false;
            self.net.sweep(conn);
        }
        let Some((pane, id)) = caller.pane else {
            let Request::Push(id) = request else { return };
            self.push_piece(tab, id, piece);
            return;
        };
        let input = match (request, piece) {
            (Request::Read { .. }, Piece::Snapshot(snapshot)) => Input::ReadDone { id, outcome: Ok(snapshot) },
            (Request::Read { .. }, Piece::Refused(failure)) => Input::ReadDone { id, outcome: Err(failure) },
            (Request::Stop { .. }, Piece::Stop(answer)) => Input::StopDone { id, outcome: Ok(answer) },
            (Request::Stop { .. }, Piece::Refused(failure)) => Input::StopDone { id, outcome: Err(failure) },
            (Request::CancelRun(_), Piece::CancelRun(answer)) => Input::CancelRunDone { id, outcome: Ok(answer) },
            (Request::CancelRun(_), Piece::Refused(failure)) => Input::CancelRunDone { id, outcome: Err(failure) },
            (_, Piece::Bytes(bytes)) => Input::StreamBytes { id, bytes },
            (_, Piece::Refused(failure)) => Input::StreamRefused { id, failure },
            (_, Piece::End) => Input::StreamEnded { id },
            (request, piece) => unreachable!("{piece:?} on {request:?}"),
        };
        self.ended(tab, pane, id, !goes_on);
        self.pane_input(tab, pane, input);
    }

    fn push_piece(&mut self, tab: TabId, id: follow::EffectId, piece: Piece) {
        if let Piece::Push(event) = piece {
            self.follow_input(tab, follow::Input::Push { id, event });
        } else {
            let random = self.rng.next() as u32;
            self.follow_input(tab, follow::Input::PushFailed { id, random });
        }
    }

    fn broken(&mut self, tab: TabId, conn: ConnId) {
        let Some(open) = self.net.conns.get(&conn).filter(|open| open.client_open) else { return };
        let (request, caller, answered) = (open.request.clone(), open.caller, open.answered);
        self.close(conn);
        let Some((pane, id)) = caller.pane else {
            let Request::Push(id) = request else { return };
            self.push_piece(tab, id, Piece::End);
            return;
        };
        let input = match request {
            Request::Read { .. } => Input::ReadDone { id, outcome: Err(Failure::Broken) },
            Request::Stop { .. } => Input::StopDone { id, outcome: Err(Failure::Broken) },
            Request::CancelRun(_) => Input::CancelRunDone { id, outcome: Err(Failure::Broken) },
            _ if answered && self.rng.percent(50) => Input::StreamEnded { id },
            _ => Input::StreamRefused { id, failure: Failure::Broken },
        };
        self.ended(tab, pane, id, true);
        self.pane_input(tab, pane, input);
    }

    fn ended(&mut self, tab: TabId, pane: PaneId, id: EffectId, ended: bool) {
        if let (true, Some(pane)) = (ended, self.pane_mut(tab, pane)) {
            pane.calls.remove(&id);
        }
    }

    // The thread machines.

    pub(super) fn occasion(&mut self, tab: TabId, occasion: Occasion) {
        self.each_pane(tab, |_| Input::Occasion(occasion));
    }

    pub(super) fn each_pane(&mut self, tab: TabId, input: impl Fn(PaneId) -> Input) {
        let panes: Vec<_> = self.tabs.get(&tab).into_iter().flat_map(|tab| &tab.panes).map(|pane| pane.0).collect();
        for pane in panes {
            // A closed thread listens to nothing any more.
            if self.pane_mut(tab, pane).is_some_and(|pane| !pane.disposed) {
                self.pane_input(tab, pane, input(pane));
            }
        }
    }

    /// Gives a machine an input, checks what it makes of it, and performs that.
    pub(super) fn pane_input(&mut self, tab: TabId, id: PaneId, input: Input) {
        let mut inputs = self.distort_input(input);
        while let Some(input) = inputs.pop_front() {
            if self.violation.is_some() {
                return;
            }
            // Taken out, so that the world is free for its effects.
            let Some(slot) = self.tabs.get_mut(&tab).and_then(|tab| tab.panes.iter_mut().find(|known| known.0 == id)) else {
                return;
            };
            let Some(mut pane) = slot.1.take() else { return };
            self.note(|| format!("{tab:?} {id:?} < {input:?}"));
            let gave = pane.book.before(&input, &pane.view);
            pane.disposed |= matches!(input, Input::Disposed);
            let mut effects = pane.machine.handle(self.now, input);
            let mut view = pane.machine.view();
            self.distort(&gave, &mut effects, &mut view);
            let before = std::mem::replace(&mut pane.view, view);
            self.check_aborts(&pane, &gave, &effects);
            let saves = effects.iter().any(|effect| matches!(effect, Effect::SaveDraft { .. }));
            let stored = saves.then(|| self.browsers[self.tabs[&tab].browser].drafts.clone());
            for effect in &effects {
                self.note(|| format!("{tab:?} {id:?} > {effect:?}"));
                self.perform(tab, (id, &mut pane), effect, &mut inputs);
            }
            let step = Step { tab, pane: id, before: &before, gave: &gave, effects: &effects, stored: stored.as_ref() };
            self.check_pane(&mut pane, &step);
            if let Some(slot) = self.tabs.get_mut(&tab).and_then(|tab| tab.panes.iter_mut().find(|known| known.0 == id)) {
                slot.1 = Some(pane);
            }
        }
    }

    fn perform(&mut self, tab: TabId, (id, pane): (PaneId, &mut Pane), effect: &Effect, inputs: &mut VecDeque<Input>) {
        let browser = self.tabs[&tab].browser;
        let (effect, request) = match effect.clone() {
            Effect::Read { id, thread, since } => (id, Request::Read { thread, since }),
            Effect::Submit { id, request } => (id, Request::Submit(request)),
            Effect::Resume { id, request } => (id, Request::Resume(request)),
            Effect::Stop { id, thread, execution } => (id, Request::Stop { thread, execution }),
            Effect::CancelRun { id, run } => (id, Request::CancelRun(run)),
            Effect::SetTimer { id: timer, after_ms } => {
                pane.timers.insert(timer);
                let late = self.lateness(tab);
                self.after(Millis::from(after_ms) + late, Happening::Reaches(tab, Task::Timer(id, timer)));
                return;
            }
            Effect::CancelTimer { id } => {
                pane.timers.remove(&id);
                return;
            }
            Effect::LoadDraft { id, thread } => {
                inputs.push_back(Input::DraftLoaded { id, draft: self.browsers[browser].drafts.get(&thread).cloned() });
                return;
            }
            Effect::SaveDraft { id, thread, draft } => {
                let ok = self.browsers[browser].keeps;
                if ok && draft.is_empty() {
                    self.browsers[browser].drafts.remove(&thread);
                } else if ok {
                    self.browsers[browser].drafts.insert(thread, draft);
                }
                inputs.push_back(Input::DraftSaved { id, ok });
                return;
            }
            Effect::Abort { id: call } => {
                if let Some(conn) = pane.calls.remove(&call) {
                    let read = matches!(self.net.conns.get(&conn), Some(Conn { request: Request::Read { .. }, .. }));
                    let input = if read {
                        Input::ReadDone { id: call, outcome: Err(Failure::Broken) }
                    } else {
                        Input::StreamRefused { id: call, failure: Failure::Broken }
                    };
                    self.close(conn);
                    self.after(0, Happening::Reaches(tab, Task::GivenUp(id, Box::new(input))));
                }
                return;
            }
        };
        let timed = !matches!(request, Request::Submit(_) | Request::Resume(_));
        let conn = self.open(Caller { browser, tab, pane: Some((id, effect)) }, request);
        pane.calls.insert(effect, conn);
        if timed {
            self.after(Millis::from(REQUEST_TIMEOUT_MS), Happening::Reaches(tab, Task::TimedOut(conn)));
        }
    }

    /// Browsers let the timers of hidden tabs wait, up to a minute.
    pub(super) fn lateness(&mut self, tab: TabId) -> Millis {
        match self.tabs.get(&tab) {
            Some(tab) if !tab.visible && self.rng.percent(20) => self.rng.within(0..60_000),
            Some(tab) if !tab.visible => self.rng.within(0..1_000),
            _ => self.rng.within(0..5),
        }
    }
}
