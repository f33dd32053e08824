//! What holds after every step, whatever happened (contract 1, section 7).

use std::collections::{BTreeMap, BTreeSet};

use turnfast_shared::{
    Code, Millis,
    api::{CancelAnswer, RunCancelAnswer},
    ids::{ExecutionId, MessageId, RunId, ThreadId},
};

use super::{
    browser::Pane,
    network::Request,
    world::{PaneId, Sent, TabId, World},
};
use crate::thread::{Cause, Effect, EffectId, Input, Load, Running, Stop, StoredDraft, View};

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Rule {
    /// Nothing is submitted without a press, nothing twice, and nothing is taken back.
    Submit,
    /// A failed read changes no message on screen.
    FailedRead,
    /// The revision on screen never falls.
    Revision,
    /// A draft survives everything but its acceptance.
    Draft,
    /// A Stop names the execution that the person saw or meant, once.
    Stop,
    /// No message is shown twice.
    Twice,
    /// What is shown is a state that the record, or the stream on its way there, went through.
    State,
    /// One read is in flight at most, and none while the own stream is live.
    ReadsAtOnce,
    /// Every read has its occasion; there is no polling.
    Occasion,
    /// One `/push` connection per browser.
    Push,
    /// Once all is well, every tab shows the record, and nothing hangs.
    Healed,
    /// Once all is well and nothing happens, nobody asks for anything.
    Quiet,
}

#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) rule: Rule,
    pub(super) what: String,
}

/// What an input was, as far as the checks care.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gave {
    Opened,
    Disposed,
    Typed(String),
    Send,
    Stop,
    Answer,
    Cancel,
    ReadOk,
    ReadFailed,
    Bytes,
    /// The stream is over; with the code of a refusal.
    StreamOver(EffectId, Option<Code>),
    Timer,
    /// A Stop came to nothing: late, or not at all.
    StopFailed {
        late: bool,
        execution: Option<ExecutionId>,
    },
    CancelDone,
    Loaded(Option<String>),
    /// Of this thread, and of a revision above the one that was asked for last.
    Notified,
    Occasion,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meant {
    Message(MessageId),
    Run(RunId),
}

/// What the checks remember of a machine.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) revisions: BTreeMap<MessageId, u64>,
    since: Option<u64>,
    /// When the thread was opened, and its draft loaded.
    opened: Millis,
    loading: Option<EffectId>,
    in_flight: BTreeSet<EffectId>,
    /// The read that was asked for last, and the one that was answered last.
    last_read: Option<EffectId>,
    read_done: Option<EffectId>,
    /// The read that was the last when a stream came to nothing.
    broken_after: Option<EffectId>,
    /// An occasion came while a read was in flight.
    owed: bool,
    /// Reads by timer since the last occasion.
    retries: usize,
    asked: BTreeMap<EffectId, ExecutionId>,
    sent: Vec<(EffectId, Meant)>,
    /// Submits and answers whose streams are open.
    streams: BTreeSet<EffectId>,
    /// What a Stop was pressed for before an execution was known.
    wishes: Vec<(Option<ThreadId>, Meant)>,
}

impl Book {
    /// Notes an input before the machine gets it.
    pub(super) fn before(&mut self, input: &Input, view: &View) -> Gave {
        match input {
            Input::Opened { .. } => Gave::Opened,
            Input::Disposed => Gave::Disposed,
            Input::DraftChanged(text) => Gave::Typed(text.clone()),
            Input::SubmitPressed { .. } => Gave::Send,
            Input::StopPressed => Gave::Stop,
            Input::AnswerGiven { .. } => Gave::Answer,
            Input::CancelSuspendedPressed => Gave::Cancel,
            Input::ReadDone { id, .. } if !self.in_flight.remove(id) => Gave::Other,
            Input::ReadDone { id, outcome } => {
                self.read_done = Some(*id);
                if outcome.is_ok() { Gave::ReadOk } else { Gave::ReadFailed }
            }
            Input::StreamBytes { .. } => Gave::Bytes,
            Input::StreamEnded { id } => self.stream_over(*id, None),
            Input::StreamRefused { id, failure } => self.stream_over(*id, failure.code()),
            Input::TimerFired { .. } => Gave::Timer,
            Input::StopDone { outcome: Ok(CancelAnswer { cancel_requested: true }), .. } => Gave::Other,
            Input::StopDone { id, outcome } => Gave::StopFailed { late: outcome.is_ok(), execution: self.asked.remove(id) },
            Input::CancelRunDone { outcome: Ok(RunCancelAnswer { .. }), .. } => Gave::CancelDone,
            Input::DraftLoaded { id, draft } if self.loading == Some(*id) => {
                Gave::Loaded(draft.as_ref().map(|draft| draft.text.clone()))
            }
            Input::Notified(update)
                if view.thread == Some(update.thread_id) && self.since.is_none_or(|since| since < update.revision) =>
            {
                Gave::Notified
            }
            Input::Occasion(_) => Gave::Occasion,
            _ => Gave::Other,
        }
    }

    /// Of a stream that nobody waits for any more it says nothing.
    fn stream_over(&mut self, id: EffectId, code: Option<Code>) -> Gave {
        if !self.streams.remove(&id) {
            return Gave::Other;
        }
        self.broken_after = self.last_read;
        Gave::StreamOver(id, code)
    }
}

/// What a check of one step looks at.
pub(super) struct Step<'a> {
    pub(super) tab: TabId,
    pub(super) pane: PaneId,
    pub(super) before: &'a View,
    pub(super) gave: &'a Gave,
    pub(super) effects: &'a [Effect],
    /// The browser's drafts before, where a draft was saved.
    pub(super) stored: Option<&'a BTreeMap<Option<ThreadId>, StoredDraft>>,
}

impl World {
    /// Checks what a machine made of an input.
    pub(super) fn check_pane(&mut self, pane: &mut Pane, step: &Step<'_>) {
        let loading = step.effects.iter().find_map(|effect| match effect {
            Effect::LoadDraft { id, .. } => Some(*id),
            _ => None,
        });
        if let (Gave::Opened, Some(_)) = (step.gave, loading) {
            // Another thread; the one that is shown already is only read again.
            pane.book.loading = loading;
            pane.book.opened = self.now;
            pane.book.revisions.clear();
            pane.book.since = None;
        }
        self.check_requests(pane, step);
        self.check_reads(pane, step);
        self.check_stops(pane, step);
        self.check_draft(pane, step);
        self.check_transcript(pane, step);
        self.count(pane, step);
    }

    fn check_requests(&mut self, pane: &mut Pane, step: &Step<'_>) {
        let browser = self.tabs[&step.tab].browser;
        let count = |wanted: fn(&Effect) -> bool| step.effects.iter().filter(|effect| wanted(effect)).count();
        let submits = count(|effect| matches!(effect, Effect::Submit { .. }));
        let resumes = count(|effect| matches!(effect, Effect::Resume { .. }));
        let cancels = count(|effect| matches!(effect, Effect::CancelRun { .. }));
        if submits > usize::from(*step.gave == Gave::Send) {
            self.fail(Rule::Submit, "a message was sent without a press, or twice");
        }
        if resumes > usize::from(*step.gave == Gave::Answer) {
            self.fail(Rule::Submit, "an answer was sent that nobody gave");
        }
        if cancels > usize::from(matches!(step.gave, Gave::Cancel | Gave::Stop)) {
            self.fail(Rule::Submit, "a turn was cancelled without a press");
        }
        let cause = |view: &View| view.trouble.as_ref().map(|trouble| trouble.cause.clone());
        let book = &pane.book;
        if cause(&pane.view) == Some(Cause::NotAccepted)
            && cause(step.before) != Some(Cause::NotAccepted)
            && book.broken_after.is_some()
            && book.read_done <= book.broken_after
        {
            self.fail(Rule::Submit, "a read from before the connection broke decided what became of a message");
        }
        let blocked = step.before.running.is_some() || step.before.load == Load::Loading;
        if submits + resumes > 0 && blocked || submits > 0 && !step.before.interactions.is_empty() {
            self.fail(Rule::Submit, "sent where sending is blocked");
        }
        for effect in step.effects {
            match effect {
                Effect::Submit { id, request } => {
                    let Some(message) = request.message_id else {
                        self.fail(Rule::Submit, "a message without an id");
                        continue;
                    };
                    let fresh = self.sent.iter().all(|sent| sent.message != message);
                    // A tab that had the same draft before another one sent it does not hear of that.
                    let again = self.sent.iter().any(|sent| {
                        let known = sent.pane == step.pane || sent.at < pane.book.opened;
                        sent.browser == browser && sent.text == request.message && known
                    });
                    if fresh && again {
                        self.fail(Rule::Submit, format_args!("{:?} may be accepted twice", request.message));
                    }
                    let text = request.message.clone();
                    self.sent.push(Sent { at: self.now, browser, pane: step.pane, message, text });
                    pane.book.sent.push((*id, Meant::Message(message)));
                    pane.book.streams.insert(*id);
                }
                Effect::Resume { id, request } => {
                    pane.book.sent.push((*id, Meant::Run(request.run_id)));
                    pane.book.streams.insert(*id);
                }
                _ => {}
            }
        }
    }

    /// A submit or an answer is not taken back by going elsewhere: only its silence ends the wait for it.
    pub(super) fn check_aborts(&mut self, pane: &Pane, gave: &Gave, effects: &[Effect]) {
        let taken_back = effects.iter().any(|effect| {
            let Effect::Abort { id } = effect else { return false };
            let conn = pane.calls.get(id).and_then(|conn| self.net.conns.get(conn));
            conn.is_some_and(|conn| !conn.answered && matches!(conn.request, Request::Submit(_) | Request::Resume(_)))
        });
        if taken_back && *gave != Gave::Timer {
            self.fail(Rule::Submit, format_args!("a submit or an answer was taken back by {gave:?}"));
        }
    }

    fn check_reads(&mut self, pane: &mut Pane, step: &Step<'_>) {
        let book = &mut pane.book;
        let is_live = matches!(pane.view.running, Some(Running::Live(_)));
        let mut closed = step.effects.iter().filter(|effect| matches!(effect, Effect::Abort { id } if book.streams.remove(id)));
        let stream_closed = closed.next().is_some();
        if stream_closed {
            book.broken_after = book.last_read;
        }
        // The occasions of section 7, and what is beyond that list: an answer which says that what is shown is old (a refused submit
        // or answer, a Stop or a cancel that came late).
        let occasion = match step.gave {
            Gave::Opened | Gave::Notified | Gave::Occasion => true,
            // By its last event, or by its silence.
            Gave::Bytes | Gave::Timer => stream_closed,
            Gave::StreamOver(..) => true,
            Gave::StopFailed { late, .. } => *late,
            Gave::CancelDone => true,
            // A new thread's submit of an unknown fate is looked for.
            Gave::Loaded(_) => pane.view.thread.is_none(),
            _ => false,
        };
        let mut problem = None;
        let mut read = false;
        for effect in step.effects {
            match effect {
                Effect::Abort { id } => book.owed &= !book.in_flight.remove(id),
                Effect::Read { id, since, .. } => {
                    book.in_flight.insert(*id);
                    book.last_read = Some(*id);
                    if book.since.is_some_and(|shown| since.is_none_or(|since| since < shown)) {
                        problem = Some((Rule::Revision, "an older state was asked for".to_owned()));
                    }
                    book.since = *since;
                    let retry = *step.gave == Gave::Timer && !occasion;
                    let allowed = if retry {
                        book.retries += 1;
                        book.retries <= 2
                    } else if occasion {
                        true
                    } else {
                        matches!(step.gave, Gave::ReadOk | Gave::ReadFailed) && book.owed
                    };
                    if !allowed || read {
                        problem = Some((Rule::Occasion, format!("a read without an occasion: {:?}", step.gave)));
                    }
                    if !retry {
                        book.retries = 0;
                        book.owed = false;
                    }
                    read = true;
                }
                _ => {}
            }
        }
        book.owed |= occasion && !read && !book.in_flight.is_empty();
        if book.in_flight.len() > 1 {
            problem = Some((Rule::ReadsAtOnce, "two reads are in flight".to_owned()));
        }
        if read && is_live {
            problem = Some((Rule::ReadsAtOnce, "a read while the own stream is live".to_owned()));
        }
        if let Some((rule, what)) = problem {
            self.fail(rule, what);
        }
    }

    fn check_stops(&mut self, pane: &mut Pane, step: &Step<'_>) {
        for effect in step.effects {
            let Effect::Stop { id, thread, execution } = effect else { continue };
            let origin = self.server.origins.get(execution).copied();
            let named = origin.is_some_and(|origin| origin.thread == *thread);
            let shown =
                step.before.running.and_then(Running::execution) == Some(*execution) && step.before.thread == Some(*thread);
            let meant = origin.is_some_and(|origin| {
                let mut wishes = pane.book.wishes.iter();
                wishes.any(|(_, wish)| origin.message.map(Meant::Message) == Some(*wish) || Meant::Run(origin.run) == *wish)
            });
            if !named || !(if *step.gave == Gave::Stop { shown } else { meant }) {
                self.fail(Rule::Stop, format_args!("{execution} was to end, which nobody meant"));
            }
            if pane.book.asked.values().any(|asked| asked == execution) {
                self.fail(Rule::Stop, format_args!("{execution} was asked to end twice"));
            }
            pane.book.asked.insert(*id, *execution);
        }
        if let Gave::StopFailed { execution: Some(execution), .. } = step.gave
            && step.before.running.and_then(Running::execution) == Some(*execution)
            && pane.view.stop == Stop::Stopping
        {
            self.fail(Rule::Stop, "a Stop that came to nothing cannot be pressed again");
        }
        let begun = step.effects.iter().any(|effect| matches!(effect, Effect::Submit { .. } | Effect::Resume { .. }));
        let waits = pane.view.stop == Stop::WaitingForId;
        let left = matches!(step.gave, Gave::Opened | Gave::Disposed);
        if begun || (step.before.stop == Stop::WaitingForId && !waits && !left) {
            pane.book.wishes.retain(|(thread, _)| *thread != step.before.thread);
        }
        if *step.gave == Gave::Stop && waits && step.before.stop != Stop::WaitingForId {
            pane.book.wishes.extend(pane.book.sent.last().map(|sent| (step.before.thread, sent.1)));
            self.counts.kept_stops += 1;
        }
    }

    /// At most one connection per browser. A frozen tab keeps what it has until it thaws and hears that it lost the lock.
    pub(super) fn check_pushes(&mut self) {
        for at in 0..self.browsers.len() {
            let browser = &self.browsers[at];
            let mut connected = 0;
            let mut of_one = 0;
            for tab in self.tabs.values().filter(|tab| tab.browser == at) {
                of_one = of_one.max(tab.pushes.len());
                let to_be_told = tab.frozen || tab.is_losing_lock(browser);
                connected += if to_be_told { 0 } else { tab.pushes.len() };
            }
            let shared = browser.shared;
            if of_one > 1 || (shared && connected > 1) {
                self.fail(Rule::Push, format_args!("browser {at} has {connected} connections, one tab of it {of_one}"));
                return;
            }
        }
    }

    fn count(&mut self, pane: &Pane, step: &Step<'_>) {
        for effect in step.effects {
            match effect {
                Effect::Submit { .. } => self.counts.submits += 1,
                Effect::Resume { .. } => self.counts.resumes += 1,
                Effect::Stop { .. } => self.counts.stops += 1,
                Effect::Read { .. } => self.counts.reads += 1,
                _ => {}
            }
        }
        match step.gave {
            Gave::ReadFailed => self.counts.failed_reads += 1,
            Gave::StreamOver(_, Some(Code::InteractionClosed)) => self.counts.closed_interactions += 1,
            Gave::StreamOver(_, Some(Code::TurnAlreadyRunning)) => self.counts.busy += 1,
            Gave::ReadOk if !step.before.draft.is_empty() && pane.view.draft.is_empty() => self.counts.recognised += 1,
            Gave::StreamOver(..) if matches!(step.before.running, Some(Running::Live(_))) => {
                self.counts.detached += u64::from(matches!(pane.view.running, Some(Running::Followed(_))));
            }
            _ => {}
        }
    }
}
