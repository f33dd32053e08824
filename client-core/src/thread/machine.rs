//! The machine itself.

use std::rc::Rc;

use turnfast_shared::{
    Code, Event, ExecutionStatus, Message, Millis,
    api::{CancelAnswer, ChatRequest, ExecutionUpdated, NewAttachment, ResumeRequest, RunCancelAnswer, ThreadSnapshot},
    event::Suspension,
    few::Few,
    ids::{ExecutionId, MessageId, RunId, ThreadId},
    limits::{KEEP_ALIVE_SECONDS, MISSED_PINGS},
    message::ResumeData,
};

use super::{
    Attempt, Cause, Effect, EffectId, Failure, Input, Interaction, InteractionState, Live, Load, Occasion, PendingSubmit,
    Running, SendBlocked, Stop, StoredDraft, Trouble, View, Warning,
    live::{Kind, LiveTurn, Own, Said, Submitted, add_suspension, rfc3339},
    record::{Record, Refused, apply_snapshot},
};

/// Pauses before a failed read is tried again; then it waits for the next occasion (contract 1, section 7).
const READ_RETRIES_MS: [u32; 2] = [1_000, 2_000];

/// How long a Stop waits for the execution's id (contract 1, section 7).
const STOP_WISH_MS: u32 = 30_000;

/// Silence after which a stream is looked at again: the server sends at least a comment every [`KEEP_ALIVE_SECONDS`].
const STALL_MS: u32 = (KEEP_ALIVE_SECONDS * MISSED_PINGS * 1_000) as u32;

/// How much longer a silent stream gets. A page that slept may see the timer before the bytes that came meanwhile.
const STALL_GRACE_MS: u32 = 5_000;

/// The state of one open thread. See the [module](super) for what it does not know.
#[derive(Debug, Default)]
pub struct Machine {
    last_id: u64,
    fx: Vec<Effect>,
    open: bool,
    signed_out: bool,
    shown: Shown,
    /// Streams of threads that are not shown any more, and that are not accepted yet: closing them would take the submit back.
    left: Vec<Left>,
    /// Executions that were asked to stop, over all threads, until the record shows their end.
    stops: Few<ExecutionId, Asked>,
    /// Accepted submits whose drafts are still kept; by the effect that loads what is kept.
    clearing: Few<EffectId, Clearing>,
}

/// What belongs to the thread that is shown, and goes when another one is.
#[derive(Debug, Default)]
struct Shown {
    thread: Option<ThreadId>,
    load: Load,
    record: Record,
    active: Option<ExecutionId>,
    suspensions: Vec<Suspension>,
    /// Suspensions that the server called closed, until the next read.
    closed: Vec<String>,
    /// Messages of streams that ended, until a read shows them.
    ended: Vec<Rc<Message>>,
    own: Option<Own>,
    reads: Reads,
    draft: Draft,
    /// A submit broke before any answer, and a read is to tell what became of it.
    checking: bool,
    /// A Stop for a submit or resume that broke before any answer.
    wish: Option<Wish>,
    cancels: Few<RunId, EffectId>,
    read_failure: Option<Failure>,
    trouble: Option<Trouble>,
    warnings: Rc<Vec<Warning>>,
    settled: Option<Settled>,
}

/// The list that is shown, and where the live message stands in it. Made again when more than that message changes.
#[derive(Clone, Debug)]
struct Settled {
    list: Rc<Vec<Rc<Message>>>,
    live: Option<usize>,
}

/// One read in flight, and at most one behind it.
#[derive(Debug, Default)]
struct Reads {
    in_flight: Option<EffectId>,
    waiting: Option<Want>,
    failures: usize,
    retry: Option<EffectId>,
}

/// What a waiting read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// For this revision; a read that shows it does as well.
    Revision(u64),
    /// For whatever there is.
    Newest,
}

impl Want {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Revision(a), Self::Revision(b)) => Self::Revision(a.max(b)),
            _ => Self::Newest,
        }
    }
}

#[derive(Debug, Default)]
struct Draft {
    text: Rc<str>,
    attachments: Rc<Vec<NewAttachment>>,
    loading: Option<EffectId>,
    typed: bool,
    saving: Option<EffectId>,
    not_kept: bool,
    /// The last submit, until it is known to be accepted.
    pending: Option<PendingSubmit>,
    pending_attachments: Rc<Vec<NewAttachment>>,
}

#[derive(Debug)]
struct Left {
    own: Own,
    /// The draft of its thread when that was left.
    text: Rc<str>,
}

/// An accepted submit whose draft is still kept.
#[derive(Debug)]
struct Clearing {
    message: MessageId,
    text: Rc<str>,
    /// Where its draft is kept.
    draft_key: Option<ThreadId>,
    /// Where what was typed since belongs.
    rest_key: Option<ThreadId>,
}

#[derive(Debug)]
struct Asked {
    thread: ThreadId,
    request: EffectId,
}

#[derive(Debug)]
struct Wish {
    timer: EffectId,
    of: WishOf,
}

#[derive(Clone, Copy, Debug)]
enum WishOf {
    Message(MessageId),
    Run(RunId),
}

impl Machine {
    /// A machine that shows nothing yet. Its first input is [`Input::Opened`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what happened at `now`, and tells what is to be done.
    pub fn handle(&mut self, now: Millis, input: Input) -> Vec<Effect> {
        match input {
            Input::Opened { thread } => self.opened(thread),
            Input::Disposed => self.leave(),
            Input::DraftChanged(text) if self.open => {
                self.shown.draft.typed = true;
                self.shown.draft.text = text.into();
                self.forget_replaced_submit();
                self.save_draft();
            }
            Input::AttachmentsChanged(attachments) if self.open => self.shown.draft.attachments = Rc::new(attachments),
            Input::DraftChanged(_) | Input::AttachmentsChanged(_) => {}
            Input::SubmitPressed { message_id, thread_id } => self.submit(now, message_id, thread_id),
            Input::StopPressed => self.stop_pressed(),
            Input::AnswerGiven { tool_call_id, data } => self.answer(now, tool_call_id, data),
            Input::CancelSuspendedPressed => self.cancel_suspended(),
            Input::TroubleDismissed => self.shown.trouble = None,
            Input::ReadDone { id, outcome } => self.read_done(id, outcome),
            Input::StreamRefused { id, failure } => self.stream_refused(id, failure),
            Input::StreamBytes { id, bytes } => self.stream_bytes(now, id, &bytes),
            Input::StreamEnded { id } => self.stream_ended(id),
            Input::StopDone { id, outcome } => self.stop_done(id, outcome),
            Input::CancelRunDone { id, outcome } => self.cancel_run_done(id, outcome),
            Input::TimerFired { id } => self.timer_fired(now, id),
            Input::DraftLoaded { id, draft } => self.draft_loaded(id, draft),
            Input::DraftSaved { id, ok } => {
                if self.shown.draft.saving == Some(id) {
                    self.shown.draft.saving = None;
                    self.shown.draft.not_kept = !ok;
                }
            }
            Input::Notified(update) => self.notified(&update),
            Input::Occasion(occasion) => {
                self.signed_out &= occasion != Occasion::SignedIn;
                self.want_read(Want::Newest);
            }
        }
        std::mem::take(&mut self.fx)
    }

    /// What is to be shown now. Without a [`Machine::handle`] in between it gives the same [`Rc`]s again.
    pub fn view(&mut self) -> View {
        let settled = self.shown.settled();
        let live = match (self.shown.turn_mut(), settled.live) {
            (Some(turn), Some(index)) => Some(Live { index, message: turn.message() }),
            _ => None,
        };
        View {
            thread: self.shown.thread,
            load: self.shown.load.clone(),
            settled: settled.list,
            live,
            read_failure: self.shown.read_failure.clone(),
            catching_up: self.shown.reads.in_flight.is_some() || self.shown.reads.retry.is_some(),
            running: self.running(),
            stop: self.stop_state(),
            interactions: self.interactions(),
            draft: Rc::clone(&self.shown.draft.text),
            attachments: Rc::clone(&self.shown.draft.attachments),
            draft_kept: !self.shown.draft.not_kept,
            send_blocked: self.send_blocked(),
            trouble: self.shown.trouble.clone(),
            warnings: Rc::clone(&self.shown.warnings),
            signed_out: self.signed_out,
        }
    }

    fn running(&self) -> Option<Running> {
        match (&self.shown.own, self.shown.active) {
            (Some(Own { turn: Some(turn), .. }), _) => Some(Running::Live(turn.execution)),
            (_, Some(active)) => Some(Running::Followed(active)),
            (Some(_), None) => Some(Running::Starting),
            (None, None) => None,
        }
    }

    fn stop_state(&self) -> Stop {
        if self.shown.wish.is_some() {
            return Stop::WaitingForId;
        }
        if let Some(own) = &self.shown.own
            && own.turn.is_none()
        {
            return if own.stop_wish.is_some() { Stop::WaitingForId } else { Stop::Usable };
        }
        let asked = match (self.shown.active, self.shown.suspensions.first()) {
            (Some(active), _) => self.stops.has(&active),
            (None, Some(open)) => self.shown.cancels.has(&open.run_id),
            (None, None) => return Stop::Hidden,
        };
        if asked { Stop::Stopping } else { Stop::Usable }
    }

    fn interactions(&self) -> Vec<Interaction> {
        self.shown
            .suspensions
            .iter()
            .map(|suspension| Interaction { suspension: suspension.clone(), state: self.interaction_state(suspension) })
            .collect()
    }

    fn interaction_state(&self, suspension: &Suspension) -> InteractionState {
        let answered_here = matches!(
            &self.shown.own,
            Some(Own { kind: Kind::Resume { tool_call_id, .. }, .. }) if *tool_call_id == suspension.tool_call_id
        );
        if self.shown.closed.contains(&suspension.tool_call_id) {
            InteractionState::Closed
        } else if answered_here {
            InteractionState::Answering
        } else if self.shown.own.is_some()
            || self.shown.active.is_some()
            || self.signed_out
            || self.shown.cancels.has(&suspension.run_id)
        {
            InteractionState::Waiting
        } else {
            InteractionState::Answerable
        }
    }

    fn send_blocked(&self) -> Option<SendBlocked> {
        let shown = &self.shown;
        let blank = shown.draft.text.trim().is_empty() && shown.draft.attachments.is_empty();
        match &shown.load {
            _ if !self.open => Some(SendBlocked::Loading),
            _ if self.signed_out => Some(SendBlocked::SignedOut),
            Load::Loading => Some(SendBlocked::Loading),
            Load::NotFound => Some(SendBlocked::NotFound),
            _ if shown.own.is_some() || shown.active.is_some() => Some(SendBlocked::Running),
            _ if shown.checking => Some(SendBlocked::Checking),
            _ if !shown.suspensions.is_empty() => Some(SendBlocked::InteractionOpen),
            _ if blank => Some(SendBlocked::Empty),
            _ => None,
        }
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

    fn cancel_timer(&mut self, id: Option<EffectId>) {
        self.fx.extend(id.map(|id| Effect::CancelTimer { id }));
    }

    fn trouble(&mut self, attempt: Attempt, cause: Cause) {
        if let Cause::Failed(failure) = &cause {
            self.signed_out |= failure.code() == Some(Code::Unauthenticated);
        }
        self.shown.trouble = Some(Trouble { attempt, cause });
    }

    // Opening and leaving.

    fn opened(&mut self, thread: Option<ThreadId>) {
        if self.open && self.shown.thread == thread {
            // The page put the new thread's id into its address and came back with it, or the person chose what is shown.
            self.want_read(Want::Newest);
            return;
        }
        self.leave();
        self.open = true;
        self.shown.thread = thread;
        self.shown.load = if thread.is_some() { Load::Loading } else { Load::New };
        if let Some(at) = self.left.iter().position(|left| left.belongs_to(thread)) {
            let Left { own, text } = self.left.remove(at);
            self.shown.draft.text = text;
            self.shown.draft.typed = true;
            self.shown.draft.pending = own.pending_submit();
            if let Kind::Submit(submitted) = &own.kind {
                self.shown.draft.attachments = Rc::clone(&submitted.attachments);
                self.shown.draft.pending_attachments = Rc::clone(&submitted.attachments);
            }
            self.shown.own = Some(own);
        }
        let id = self.next_id();
        self.shown.draft.loading = Some(id);
        self.fx.push(Effect::LoadDraft { id, thread });
        self.want_read(Want::Newest);
    }

    fn leave(&mut self) {
        let shown = std::mem::take(&mut self.shown);
        self.open = false;
        self.fx.extend(shown.reads.in_flight.map(|id| Effect::Abort { id }));
        self.cancel_timer(shown.reads.retry);
        self.cancel_timer(shown.wish.map(|wish| wish.timer));
        match shown.own {
            Some(own) if own.turn.is_none() => self.left.push(Left { own, text: shown.draft.text }),
            Some(own) => self.close(&own),
            None => {}
        }
    }

    /// Gives a stream up: its connection, its timers.
    fn close(&mut self, own: &Own) {
        self.fx.push(Effect::Abort { id: own.id });
        self.cancel_timer(Some(own.stall_timer));
        self.cancel_timer(own.stop_wish);
    }

    // Reads.

    fn want_read(&mut self, want: Want) {
        if self.shown.is_live() || self.read_target().is_none() {
            return;
        }
        let reads = &mut self.shown.reads;
        if reads.in_flight.is_some() {
            reads.waiting = Some(reads.waiting.map_or(want, |waiting| waiting.and(want)));
            return;
        }
        reads.failures = 0;
        self.read_now();
    }

    /// The thread to read; of a new one, the proposed id while it is not known what became of the submit.
    fn read_target(&self) -> Option<ThreadId> {
        if !self.open {
            return None;
        }
        let proposed = || self.shown.draft.pending.as_ref().filter(|_| self.shown.own.is_none()).map(|pending| pending.thread_id);
        self.shown.thread.or_else(proposed)
    }

    fn read_now(&mut self) {
        let retry = self.shown.reads.retry.take();
        self.cancel_timer(retry);
        let Some(thread) = self.read_target() else { return };
        let id = self.next_id();
        self.shown.reads.in_flight = Some(id);
        self.fx.push(Effect::Read { id, thread, since: self.shown.record.revision() });
    }

    fn read_done(&mut self, id: EffectId, outcome: Result<Box<ThreadSnapshot>, Failure>) {
        if self.shown.reads.in_flight != Some(id) {
            return;
        }
        self.shown.reads.in_flight = None;
        let failed = match outcome {
            Ok(snapshot) => self.read_succeeded(*snapshot).err(),
            Err(failure) => Some(Some(failure)),
        };
        let waiting = self.shown.reads.waiting.take().filter(|want| match want {
            Want::Revision(revision) => self.shown.record.revision().is_none_or(|shown| shown < *revision),
            Want::Newest => true,
        });
        match (failed, waiting) {
            (Some(failure), waiting) => self.read_failed(failure, waiting.is_some()),
            (None, Some(_)) => {
                self.shown.reads.failures = 0;
                self.read_now();
            }
            (None, None) => {}
        }
    }

    /// Takes a snapshot in. `Err`: it is not fit to be shown; where that is worth a note, with what to say.
    fn read_succeeded(&mut self, mut snapshot: ThreadSnapshot) -> Result<(), Option<Failure>> {
        self.signed_out = false;
        if self.shown.own.as_ref().is_some_and(|own| own.is_accepted_in(&snapshot)) {
            // Its stream is about to begin, from the start: what the record has of it by now would be shown, taken away and shown
            // again. However that stream ends, a read follows.
            return Ok(());
        }
        let draft_key = self.shown.thread;
        if draft_key.is_none() {
            let accepted =
                self.shown.draft.pending.as_ref().filter(|pending| snapshot.messages.iter().any(|m| m.id == pending.message_id));
            match accepted {
                Some(pending) => self.shown.thread = Some(pending.thread_id),
                None => {
                    self.not_accepted();
                    return Ok(());
                }
            }
        }
        apply_snapshot(&mut self.shown.record, &mut snapshot).map_err(|refused| match refused {
            Refused::Older => None,
            Refused::PartOfNothing => Some(Failure::Unreadable { status: 200 }),
        })?;
        let shown = &mut self.shown;
        shown.load = Load::Loaded;
        shown.read_failure = None;
        shown.reads.failures = 0;
        shown.active = snapshot.active_execution_id;
        shown.suspensions = snapshot.open_suspensions;
        shown.closed.clear();
        shown.ended.clear();
        shown.settled = None;
        shown.cancels.retain(|run, _| shown.suspensions.iter().any(|open| open.run_id == *run));
        if shown.trouble.as_ref().is_some_and(|trouble| trouble.is_over(shown.active)) {
            shown.trouble = None;
        }
        let (thread, active) = (shown.thread, shown.active);
        self.stops.retain(|execution, asked| Some(asked.thread) != thread || Some(*execution) == active);
        self.settle_pending(draft_key);
        self.settle_wish();
        Ok(())
    }

    fn read_failed(&mut self, failure: Option<Failure>, waiting: bool) {
        let code = failure.as_ref().and_then(Failure::code);
        self.signed_out |= code == Some(Code::Unauthenticated);
        if code == Some(Code::NotFound) {
            if self.shown.thread.is_none() {
                self.not_accepted();
                return;
            }
            if self.shown.load == Load::Loading && self.shown.own.is_none() {
                self.shown.load = Load::NotFound;
                return;
            }
        }
        let again = failure.as_ref().is_none_or(Failure::may_pass);
        if failure.is_some() {
            self.shown.read_failure.clone_from(&failure);
        }
        if waiting {
            self.shown.reads.failures = 0;
            self.read_now();
        } else if let Some(&pause) = READ_RETRIES_MS.get(self.shown.reads.failures).filter(|_| again) {
            self.shown.reads.failures += 1;
            self.shown.reads.retry = Some(self.set_timer(pause));
        } else {
            self.shown.checking = false;
            if let (Load::Loading, Some(failure)) = (&self.shown.load, failure) {
                self.shown.load = Load::Failed(failure);
            }
        }
    }

    /// Forgets the read in flight: a newer one is about to show more.
    fn drop_reads(&mut self) {
        let reads = std::mem::take(&mut self.shown.reads);
        self.fx.extend(reads.in_flight.map(|id| Effect::Abort { id }));
        self.cancel_timer(reads.retry);
    }

    fn notified(&mut self, update: &ExecutionUpdated) {
        let shown = &self.shown;
        let known = shown.record.revision().is_some_and(|revision| revision >= update.revision);
        if shown.thread == Some(update.thread_id) && !known {
            self.want_read(Want::Revision(update.revision));
        }
    }

    // Submitting.

    fn submit(&mut self, now: Millis, message_id: MessageId, thread_id: ThreadId) {
        if self.send_blocked().is_some() {
            return;
        }
        let shown = &mut self.shown;
        let draft = &mut shown.draft;
        // The person sends the same thing again because its fate is unknown: the same ids make that harmless.
        let same = draft.pending.take().filter(|pending| {
            *pending.text == *draft.text
                && draft.pending_attachments == draft.attachments
                && shown.thread.is_none_or(|thread| thread == pending.thread_id)
        });
        let pending = same.unwrap_or_else(|| PendingSubmit {
            message_id,
            thread_id: shown.thread.unwrap_or(thread_id),
            text: draft.text.as_ref().to_owned(),
        });
        let submitted = Submitted {
            message_id: pending.message_id,
            new_thread: shown.thread.is_none(),
            text: Rc::clone(&draft.text),
            attachments: Rc::clone(&draft.attachments),
        };
        let request = ChatRequest {
            message: pending.text.clone(),
            session_id: Some(pending.thread_id),
            new_session: submitted.new_thread.then_some(true),
            message_id: Some(pending.message_id),
            attachments: draft.attachments.as_ref().clone(),
        };
        draft.pending_attachments = Rc::clone(&draft.attachments);
        let thread = pending.thread_id;
        draft.pending = Some(pending);
        self.save_draft();
        let id = self.begin(now, thread, Kind::Submit(submitted));
        self.fx.push(Effect::Submit { id, request });
    }

    fn answer(&mut self, now: Millis, tool_call_id: String, data: ResumeData) {
        let Some(suspension) = self.shown.suspensions.iter().find(|open| open.tool_call_id == tool_call_id) else { return };
        let (Some(thread), InteractionState::Answerable) = (self.shown.thread, self.interaction_state(suspension)) else {
            return;
        };
        let run_id = suspension.run_id;
        let request = ResumeRequest { run_id, tool_call_id: tool_call_id.clone(), resume_data: data };
        let id = self.begin(now, thread, Kind::Resume { run: run_id, tool_call_id });
        self.fx.push(Effect::Resume { id, request });
    }

    fn begin(&mut self, now: Millis, thread: ThreadId, kind: Kind) -> EffectId {
        // A Stop that waits was meant for an earlier attempt.
        let wish = self.shown.wish.take();
        self.cancel_timer(wish.map(|wish| wish.timer));
        self.shown.trouble = None;
        self.shown.warnings = Rc::default();
        let id = self.next_id();
        let stall_timer = self.set_timer(STALL_MS);
        self.shown.own = Some(Own::new(id, thread, kind, stall_timer, now));
        id
    }

    /// The server has the message: what is left of the draft is what was typed since.
    fn accepted(&mut self, message: MessageId, text: Rc<str>, draft_key: Option<ThreadId>) {
        let shown = &mut self.shown;
        shown.checking = false;
        if shown.trouble.as_ref().is_some_and(|trouble| trouble.attempt == Attempt::Submit) {
            shown.trouble = None;
        }
        let draft = &mut shown.draft;
        draft.pending = None;
        draft.text = typed_since(&draft.text, &text);
        if draft.attachments == draft.pending_attachments {
            draft.attachments = Rc::default();
        }
        draft.pending_attachments = Rc::default();
        let rest_key = shown.thread;
        self.clear_kept(Clearing { message, text, draft_key, rest_key });
    }

    /// Clears what is kept of an accepted draft. It is loaded first: another tab may have kept another draft of the thread meanwhile.
    fn clear_kept(&mut self, clearing: Clearing) {
        let id = self.next_id();
        self.fx.push(Effect::LoadDraft { id, thread: clearing.draft_key });
        self.clearing.insert(id, clearing);
    }

    fn kept_loaded(&mut self, clearing: Clearing, stored: Option<StoredDraft>) {
        let Clearing { message, text, draft_key, rest_key } = clearing;
        let of_it = |stored: &StoredDraft| stored.pending.as_ref().is_some_and(|pending| pending.message_id == message);
        let Some(stored) = stored.filter(of_it) else {
            // It is another one's, unless this tab could not keep its own.
            if self.shown.draft.not_kept {
                self.save_draft();
            }
            return;
        };
        let rest = typed_since(&stored.text.into(), &text);
        if rest_key != draft_key {
            self.save(draft_key, StoredDraft::default());
        }
        if rest_key == draft_key || !rest.is_empty() {
            self.save(rest_key, StoredDraft { text: rest.as_ref().to_owned(), pending: None });
        }
    }

    /// A read shows that the submit whose answer never came was not accepted. Its ids stay, for when the person sends it again.
    fn not_accepted(&mut self) {
        self.shown.read_failure = None;
        if std::mem::take(&mut self.shown.checking) {
            self.trouble(Attempt::Submit, Cause::NotAccepted);
        }
        let wish = self.shown.wish.take();
        self.cancel_timer(wish.map(|wish| wish.timer));
    }

    /// After a read: was the submit accepted whose answer never came?
    fn settle_pending(&mut self, draft_key: Option<ThreadId>) {
        let shown = &self.shown;
        if matches!(&shown.own, Some(Own { kind: Kind::Submit(_), .. })) {
            return;
        }
        match &shown.draft.pending {
            Some(pending) if shown.record.get(pending.message_id).is_some() => {
                let (message, text) = (pending.message_id, pending.text.as_str().into());
                self.accepted(message, text, draft_key);
            }
            Some(_) if shown.checking => self.not_accepted(),
            _ => {}
        }
    }

    /// A submit that came to nothing matters while its text is still in the draft: to clear it, or to send it again as the same.
    fn forget_replaced_submit(&mut self) {
        let shown = &mut self.shown;
        let text = &shown.draft.text;
        let replaced = |pending: &mut PendingSubmit| !text.starts_with(&pending.text);
        if shown.own.is_none() && !shown.checking && shown.draft.pending.take_if(replaced).is_some() && shown.thread.is_none() {
            // There is nothing to read any more.
            shown.read_failure = None;
            self.drop_reads();
        }
    }

    fn save_draft(&mut self) {
        let shown = &self.shown;
        let draft = StoredDraft { text: shown.draft.text.as_ref().to_owned(), pending: shown.draft.pending.clone() };
        self.shown.draft.saving = Some(self.save(shown.thread, draft));
    }

    fn save(&mut self, thread: Option<ThreadId>, draft: StoredDraft) -> EffectId {
        let id = self.next_id();
        self.fx.push(Effect::SaveDraft { id, thread, draft });
        id
    }

    fn draft_loaded(&mut self, id: EffectId, stored: Option<StoredDraft>) {
        if let Some(clearing) = self.clearing.remove(&id) {
            self.kept_loaded(clearing, stored);
            return;
        }
        let draft = &mut self.shown.draft;
        if draft.loading != Some(id) {
            return;
        }
        draft.loading = None;
        let Some(stored) = stored else { return };
        if !draft.typed {
            draft.text = stored.text.into();
        }
        if self.shown.own.is_some() || stored.pending.is_none() {
            return;
        }
        self.shown.draft.pending = stored.pending;
        if self.shown.thread.is_none() {
            self.shown.checking = true;
            self.want_read(Want::Newest);
        } else if self.shown.load == Load::Loaded {
            self.settle_pending(self.shown.thread);
        }
    }

    // The own stream.

    fn stream_mut(&mut self, id: EffectId) -> Option<&mut Own> {
        self.shown.own.iter_mut().chain(self.left.iter_mut().map(|left| &mut left.own)).find(|own| own.id == id)
    }

    fn take_left(&mut self, id: EffectId) -> Option<Left> {
        let at = self.left.iter().position(|left| left.own.id == id)?;
        Some(self.left.remove(at))
    }

    fn take_shown_own(&mut self, id: EffectId) -> Option<Own> {
        self.shown.own.take_if(|own| own.id == id)
    }

    fn stream_bytes(&mut self, now: Millis, id: EffectId, bytes: &[u8]) {
        let Some(own) = self.stream_mut(id) else { return };
        own.last_byte = now;
        for said in own.parse(bytes) {
            match said {
                Said::Event(event) => self.event(now, id, event),
                Said::Broken => self.cut(id),
            }
        }
    }

    fn event(&mut self, now: Millis, id: EffectId, event: Event) {
        // An earlier event of the same bytes may have ended the stream.
        let Some(own) = self.stream_mut(id) else { return };
        match event {
            Event::ExecutionStarted { execution_id, session_id, message_id, assistant_message_id } if own.turn.is_none() => {
                if own.thread != session_id {
                    self.cut(id);
                } else if let Some(left) = self.take_left(id) {
                    self.fx.push(Effect::Abort { id });
                    self.left_accepted(&left.own, Some(execution_id));
                } else {
                    self.started(now, execution_id, message_id, assistant_message_id);
                }
            }
            Event::Error { message, .. } if own.turn.is_none() => own.reported = Some(message),
            event => self.turn_event(now, event),
        }
    }

    /// The turn that was submitted, or resumed, from here is accepted.
    fn started(&mut self, now: Millis, execution: ExecutionId, message: MessageId, assistant: MessageId) {
        let Some(mut own) = self.shown.own.take() else { return };
        // There was no first read yet (the person left and came back), or it failed: live events alone would show a thread without its
        // past.
        let unread = matches!(self.shown.load, Load::Loading | Load::Failed(_));
        let draft_key = self.shown.thread;
        self.drop_reads();
        self.shown.thread = Some(own.thread);
        self.shown.active = Some(execution);
        self.shown.settled = None;
        if let Some(timer) = own.stop_wish.take() {
            self.cancel_timer(Some(timer));
            self.ask_stop(own.thread, execution);
        }
        let turn = match &own.kind {
            Kind::Submit(submitted) => {
                self.accepted(submitted.message_id, Rc::clone(&submitted.text), draft_key);
                let user = LiveTurn::user_message(message, &submitted.text, execution, rfc3339(now));
                Some(LiveTurn::new(execution, assistant, Some(user), None, rfc3339(now)))
            }
            Kind::Resume { run, tool_call_id } => {
                self.shown.suspensions.retain(|open| open.tool_call_id != *tool_call_id);
                // As reads from before the answer show it: one that showed what the stream is going to say was not taken.
                let before = self.shown.message((*run).into());
                before.map(|before| LiveTurn::new(execution, assistant, None, Some(&before), rfc3339(now)))
            }
        };
        match turn {
            Some(turn) if !unread => {
                self.shown.load = Load::Loaded;
                own.turn = Some(turn);
                self.shown.own = Some(own);
            }
            _ => {
                self.close(&own);
                self.want_read(Want::Newest);
            }
        }
    }

    fn turn_event(&mut self, now: Millis, event: Event) {
        let Some(turn) = self.shown.own.as_mut().and_then(|own| own.turn.as_mut()) else { return };
        turn.apply(&event, now);
        match event {
            Event::Warning { message, code } => Rc::make_mut(&mut self.shown.warnings).push(Warning { message, code }),
            Event::Error { message, error_code } => turn.fail(message, error_code),
            Event::ToolCallSuspended { payload } => {
                turn.suspended = true;
                add_suspension(&mut self.shown.suspensions, payload);
            }
            Event::ToolResult { tool_call_id, .. } => self.shown.suspensions.retain(|open| open.tool_call_id != tool_call_id),
            Event::Done { status, execution_id, .. } if execution_id == turn.execution => {
                turn.set_status(status);
                self.stops.remove(&execution_id);
                let id = self.shown.own.as_ref().map(|own| own.id);
                self.fx.extend(id.map(|id| Effect::Abort { id }));
                self.turn_ended(None);
            }
            _ => {}
        }
    }

    /// The stream of the running turn is over; `active`: what is taken to run until the read that follows tells.
    fn turn_ended(&mut self, active: Option<ExecutionId>) {
        let Some(own) = self.shown.own.take() else { return };
        self.cancel_timer(Some(own.stall_timer));
        self.shown.active = active;
        self.shown.settled = None;
        if let Some(mut turn) = own.turn {
            let assistant = turn.message();
            self.shown.ended.retain(|message| message.id != assistant.id);
            self.shown.ended.extend(turn.user);
            self.shown.ended.push(assistant);
        }
        self.want_read(Want::Newest);
    }

    /// Gives a stream up that is silent or cannot be understood.
    fn cut(&mut self, id: EffectId) {
        if self.stream_mut(id).is_some() {
            self.fx.push(Effect::Abort { id });
            self.stream_ended(id);
        }
    }

    fn stream_ended(&mut self, id: EffectId) {
        let Some(own) = self.stream_mut(id) else { return };
        let reported = own.reported.take();
        match own.turn.as_mut() {
            None => self.unanswered(id, reported.map_or(Cause::Failed(Failure::Broken), Cause::Reported)),
            Some(turn) if turn.suspended => {
                turn.set_status(ExecutionStatus::Suspended);
                self.turn_ended(None);
            }
            Some(turn) => {
                let active = turn.execution;
                self.trouble(Attempt::Stream, Cause::Detached);
                self.turn_ended(Some(active));
            }
        }
    }

    fn stream_refused(&mut self, id: EffectId, failure: Failure) {
        let code = failure.code();
        let Some(own) = self.stream_mut(id) else { return };
        if own.turn.is_some() {
            self.stream_ended(id);
            return;
        }
        let Failure::Refused { problem, .. } = &failure else {
            self.unanswered(id, Cause::Failed(failure));
            return;
        };
        let (execution, accepted) = (problem.execution_id, code == Some(Code::MessageAlreadyAccepted));
        if let Some(left) = self.take_left(id) {
            if accepted {
                self.left_accepted(&left.own, execution);
            } else {
                self.left_ended(&left.own);
            }
            return;
        }
        let Some(own) = self.take_shown_own(id) else { return };
        self.cancel_timer(Some(own.stall_timer));
        self.cancel_timer(own.stop_wish);
        match own.kind {
            Kind::Submit(submitted) if accepted => {
                let draft_key = self.shown.thread;
                self.shown.thread = Some(own.thread);
                self.shown.load = Load::Loaded;
                self.accepted(submitted.message_id, Rc::clone(&submitted.text), draft_key);
                if let (Some(_), Some(execution)) = (own.stop_wish, execution) {
                    self.ask_stop(own.thread, execution);
                }
                self.want_read(Want::Newest);
            }
            Kind::Submit(_) => {
                // Its ids stay: this refusal says nothing of an attempt before it, or in another tab, that got no answer.
                self.trouble(Attempt::Submit, Cause::Failed(failure));
                if matches!(code, Some(Code::TurnAlreadyRunning | Code::InteractionOpen)) {
                    self.want_read(Want::Newest);
                }
            }
            Kind::Resume { tool_call_id, .. } => {
                self.trouble(Attempt::Answer, Cause::Failed(failure));
                if code == Some(Code::InteractionClosed) {
                    self.shown.closed.push(tool_call_id);
                }
                if matches!(code, Some(Code::InteractionClosed | Code::TurnAlreadyRunning | Code::NotFound)) {
                    self.want_read(Want::Newest);
                }
            }
        }
    }

    /// Nobody said whether the submit or resume was accepted: a read tells. It is never sent again from here.
    fn unanswered(&mut self, id: EffectId, cause: Cause) {
        if let Some(left) = self.take_left(id) {
            // Its stored draft still names the message, so the next visit to its thread finds out.
            self.left_ended(&left.own);
            return;
        }
        let Some(own) = self.take_shown_own(id) else { return };
        self.cancel_timer(Some(own.stall_timer));
        let (attempt, of) = match own.kind {
            Kind::Submit(submitted) => {
                self.shown.checking = true;
                (Attempt::Submit, WishOf::Message(submitted.message_id))
            }
            Kind::Resume { run, .. } => (Attempt::Answer, WishOf::Run(run)),
        };
        self.shown.wish = own.stop_wish.map(|timer| Wish { timer, of });
        self.trouble(attempt, cause);
        // A read that is in flight may have looked before the server accepted it.
        self.drop_reads();
        self.want_read(Want::Newest);
    }

    /// A submit or resume of a thread that is not shown any more is accepted.
    fn left_accepted(&mut self, own: &Own, execution: Option<ExecutionId>) {
        if let (Some(_), Some(execution)) = (own.stop_wish, execution) {
            self.ask_stop(own.thread, execution);
        }
        self.left_ended(own);
        if let Kind::Submit(submitted) = &own.kind {
            let draft_key = Some(own.thread).filter(|_| !submitted.new_thread);
            let (message, text) = (submitted.message_id, Rc::clone(&submitted.text));
            self.clear_kept(Clearing { message, text, draft_key, rest_key: draft_key });
        }
    }

    fn left_ended(&mut self, own: &Own) {
        self.cancel_timer(Some(own.stall_timer));
        self.cancel_timer(own.stop_wish);
    }

    // Stopping.

    fn stop_pressed(&mut self) {
        if self.stop_state() != Stop::Usable {
            return;
        }
        self.shown.trouble = None;
        if self.shown.own.as_ref().is_some_and(|own| own.turn.is_none()) {
            let timer = self.set_timer(STOP_WISH_MS);
            if let Some(own) = &mut self.shown.own {
                own.stop_wish = Some(timer);
            }
        } else if let (Some(thread), Some(execution)) = (self.shown.thread, self.shown.active) {
            self.ask_stop(thread, execution);
        } else {
            self.cancel_suspended();
        }
    }

    /// One request per execution: a second one does nothing until the first came to nothing.
    fn ask_stop(&mut self, thread: ThreadId, execution: ExecutionId) {
        if self.stops.has(&execution) {
            return;
        }
        let id = self.next_id();
        self.stops.insert(execution, Asked { thread, request: id });
        self.fx.push(Effect::Stop { id, thread, execution });
    }

    fn cancel_suspended(&mut self) {
        let Some(run) = self.shown.suspensions.first().map(|open| open.run_id) else { return };
        if self.shown.own.is_some() || self.shown.active.is_some() || self.shown.cancels.has(&run) {
            return;
        }
        self.shown.trouble = None;
        let id = self.next_id();
        self.shown.cancels.insert(run, id);
        self.fx.push(Effect::CancelRun { id, run });
    }

    fn stop_done(&mut self, id: EffectId, outcome: Result<CancelAnswer, Failure>) {
        let Some(execution) = self.stops.iter().find(|(_, asked)| asked.request == id).map(|(execution, _)| *execution) else {
            return;
        };
        if matches!(outcome, Ok(CancelAnswer { cancel_requested: true })) {
            return;
        }
        let shown = self.stops.remove(&execution).is_some_and(|asked| Some(asked.thread) == self.shown.thread);
        match outcome {
            // It ended, and the notification of that may be late.
            Ok(_) if shown => self.want_read(Want::Newest),
            Err(failure) if shown => self.trouble(Attempt::Stop, Cause::Failed(failure)),
            _ => {}
        }
    }

    fn cancel_run_done(&mut self, id: EffectId, outcome: Result<RunCancelAnswer, Failure>) {
        let Some(run) = self.shown.cancels.iter().find(|(_, request)| **request == id).map(|(run, _)| *run) else { return };
        if !matches!(outcome, Ok(RunCancelAnswer { cancelled: true })) {
            self.shown.cancels.remove(&run);
        }
        match outcome {
            Ok(_) => self.want_read(Want::Newest),
            Err(failure) => self.trouble(Attempt::Cancel, Cause::Failed(failure)),
        }
    }

    /// After a read: is the execution known now that a Stop waits for?
    fn settle_wish(&mut self) {
        let Some(Wish { timer, of }) = self.shown.wish.take() else { return };
        self.cancel_timer(Some(timer));
        let message = match of {
            WishOf::Message(id) => id,
            WishOf::Run(run) => run.into(),
        };
        let execution = self.shown.record.get(message).and_then(|message| message.execution_id);
        if let (Some(thread), Some(execution)) = (self.shown.thread, execution)
            && self.shown.active == Some(execution)
        {
            self.ask_stop(thread, execution);
        }
    }

    fn timer_fired(&mut self, now: Millis, id: EffectId) {
        if self.shown.reads.retry == Some(id) {
            self.shown.reads.retry = None;
            self.read_now();
        } else if self.shown.wish.take_if(|wish| wish.timer == id).is_some() {
            self.trouble(Attempt::Stop, Cause::GivenUp);
        } else if let Some(own) = &mut self.shown.own
            && own.stop_wish == Some(id)
        {
            own.stop_wish = None;
            self.trouble(Attempt::Stop, Cause::GivenUp);
        } else if let Some(left) = self.left.iter_mut().find(|left| left.own.stop_wish == Some(id)) {
            left.own.stop_wish = None;
        } else {
            self.look_for_life(now, id);
        }
    }

    /// A stream's stall timer fired.
    fn look_for_life(&mut self, now: Millis, timer: EffectId) {
        let streams = self.shown.own.iter().chain(self.left.iter().map(|left| &left.own));
        let Some(own) = streams.into_iter().find(|own| own.stall_timer == timer) else { return };
        let (id, grace) = (own.id, own.stall_grace);
        let silent = u32::try_from(now.saturating_sub(own.last_byte).max(0)).unwrap_or(u32::MAX);
        let again = match STALL_MS.checked_sub(silent) {
            Some(left @ 1..) => (left, false),
            _ if !grace => (STALL_GRACE_MS, true),
            _ => {
                self.cut(id);
                return;
            }
        };
        let timer = self.set_timer(again.0);
        if let Some(own) = self.stream_mut(id) {
            own.stall_timer = timer;
            own.stall_grace = again.1;
        }
    }
}

impl Shown {
    fn is_live(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.turn.is_some())
    }

    fn turn_mut(&mut self) -> Option<&mut LiveTurn> {
        self.own.as_mut()?.turn.as_mut()
    }

    /// A message in the state in which it is shown, unless it is the live one.
    fn message(&self, id: MessageId) -> Option<Rc<Message>> {
        self.ended.iter().rev().find(|message| message.id == id).or_else(|| self.record.get(id)).cloned()
    }

    /// The record with what this tab's streams added to it, and where the live message stands.
    fn settled(&mut self) -> Settled {
        if let Some(settled) = &self.settled {
            return settled.clone();
        }
        let own = self.own.as_mut().and_then(|own| own.turn.as_mut());
        let settled = if self.ended.is_empty() && own.is_none() {
            Settled { list: Rc::clone(self.record.messages()), live: None }
        } else {
            let mut list = self.record.messages().as_ref().clone();
            let recorded = list.len();
            let mut place = |message: Rc<Message>| {
                let at = self
                    .record
                    .position(message.id)
                    .or_else(|| list[recorded..].iter().position(|added| added.id == message.id).map(|at| at + recorded));
                match at {
                    Some(at) => {
                        list[at] = message;
                        at
                    }
                    None => {
                        list.push(message);
                        list.len() - 1
                    }
                }
            };
            for message in &self.ended {
                place(Rc::clone(message));
            }
            let live = own.map(|turn| {
                if let Some(user) = turn.user.as_ref().filter(|user| self.record.get(user.id).is_none()) {
                    place(Rc::clone(user));
                }
                place(turn.message())
            });
            Settled { list: Rc::new(list), live }
        };
        self.settled = Some(settled.clone());
        settled
    }
}

impl Left {
    /// Whether this is the stream of that thread; `None`: of the one that has no id yet.
    fn belongs_to(&self, thread: Option<ThreadId>) -> bool {
        match &self.own.kind {
            Kind::Submit(submitted) if submitted.new_thread => thread.is_none(),
            _ => thread == Some(self.own.thread),
        }
    }
}

impl Own {
    /// Whether the snapshot shows that the server has what was sent.
    fn is_accepted_in(&self, snapshot: &ThreadSnapshot) -> bool {
        match &self.kind {
            Kind::Submit(submitted) => snapshot.messages.iter().any(|message| message.id == submitted.message_id),
            Kind::Resume { tool_call_id, .. } => snapshot.open_suspensions.iter().all(|open| open.tool_call_id != *tool_call_id),
        }
    }

    fn pending_submit(&self) -> Option<PendingSubmit> {
        match &self.kind {
            Kind::Submit(submitted) => Some(PendingSubmit {
                message_id: submitted.message_id,
                thread_id: self.thread,
                text: submitted.text.as_ref().to_owned(),
            }),
            Kind::Resume { .. } => None,
        }
    }
}

impl Failure {
    /// Whether the same request may succeed a little later.
    fn may_pass(&self) -> bool {
        match self {
            Self::Broken | Self::Unreadable { .. } => true,
            Self::Refused { problem, .. } => problem.status >= 500 || matches!(problem.status, 404 | 429),
        }
    }
}

impl Trouble {
    /// Whether a read has made this old news.
    fn is_over(&self, active: Option<ExecutionId>) -> bool {
        match self.attempt {
            Attempt::Stream => true,
            Attempt::Submit => self.code() == Some(Code::TurnAlreadyRunning) && active.is_none(),
            _ => false,
        }
    }
}

/// What a person typed behind what was sent. A draft that was changed otherwise stays as it is: it is theirs.
fn typed_since(draft: &Rc<str>, sent: &str) -> Rc<str> {
    match draft.strip_prefix(sent) {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => rest.trim_start().into(),
        _ => Rc::clone(draft),
    }
}
