//! What the machine asks for, and what it is told.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnfast_shared::{
    Problem,
    api::{CancelAnswer, ChatRequest, ExecutionUpdated, NewAttachment, ResumeRequest, RunCancelAnswer, ThreadSnapshot},
    ids::{ExecutionId, MessageId, RunId, ThreadId},
    json::{Fields, FromJson},
    message::ResumeData,
};

/// Names one effect, within one machine. Its outcome carries the same id; an outcome with an id that the machine has given up is
/// ignored, so a performer never has to ask whether one is still wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectId(pub u64);

/// Milliseconds by which the performer ends a [`Effect::Read`], [`Effect::Stop`] or [`Effect::CancelRun`] that got no answer, as
/// [`Failure::Broken`]. Without it one dead connection would hold back every later read.
pub const REQUEST_TIMEOUT_MS: u32 = 20_000;

/// Something to be done outside. Each one but [`Effect::CancelTimer`] and [`Effect::Abort`], which take an earlier one back, ends in
/// the input that its documentation names.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// GET `/chat/{thread}/messages`, with `?since=` where it is set. Ends in [`Input::ReadDone`].
    Read {
        /// This effect.
        id: EffectId,
        /// The thread.
        thread: ThreadId,
        /// The revision that is shown already.
        since: Option<u64>,
    },
    /// POST `/chat`. Its answer is an event stream: [`Input::StreamBytes`] any number of times, then [`Input::StreamEnded`]; or, when
    /// there is none, [`Input::StreamRefused`].
    Submit {
        /// This effect.
        id: EffectId,
        /// The body.
        request: ChatRequest,
    },
    /// POST `/chat/resume`. Ends as [`Effect::Submit`] does.
    Resume {
        /// This effect.
        id: EffectId,
        /// The body.
        request: ResumeRequest,
    },
    /// DELETE `/chat/{thread}/executions/{execution}`. Ends in [`Input::StopDone`].
    Stop {
        /// This effect.
        id: EffectId,
        /// The thread.
        thread: ThreadId,
        /// The execution that is to end.
        execution: ExecutionId,
    },
    /// DELETE `/chat/runs/{run}`. Ends in [`Input::CancelRunDone`].
    CancelRun {
        /// This effect.
        id: EffectId,
        /// The suspended turn.
        run: RunId,
    },
    /// Wait. Ends in [`Input::TimerFired`], unless it is cancelled.
    SetTimer {
        /// This effect.
        id: EffectId,
        /// How long, in milliseconds.
        after_ms: u32,
    },
    /// The timer `id` is not wanted any more.
    CancelTimer {
        /// The [`Effect::SetTimer`].
        id: EffectId,
    },
    /// Load what is kept now, by whichever tab. Ends in [`Input::DraftLoaded`].
    LoadDraft {
        /// This effect.
        id: EffectId,
        /// The thread whose draft it is; `None`: of the thread that has no id yet.
        thread: Option<ThreadId>,
    },
    /// Keep a draft over reloads; an empty one is removed. Ends in [`Input::DraftSaved`].
    SaveDraft {
        /// This effect.
        id: EffectId,
        /// See [`Effect::LoadDraft`].
        thread: Option<ThreadId>,
        /// What to keep.
        draft: StoredDraft,
    },
    /// The connection of a [`Effect::Read`], [`Effect::Submit`] or [`Effect::Resume`] is not wanted any more; close it.
    /// The turn itself is not touched by that.
    Abort {
        /// The effect whose connection it is.
        id: EffectId,
    },
}

/// A draft as it is kept per thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredDraft {
    /// What the person typed.
    pub text: String,
    /// The last submit of it, until it is known to be accepted: after a reload a read tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingSubmit>,
}

impl StoredDraft {
    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.pending.is_none()
    }
}

impl FromJson for StoredDraft {
    fn from_json(value: Value) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        Some(Self { text: fields.take("text")?, pending: fields.maybe("pending")? })
    }
}

impl FromJson for PendingSubmit {
    fn from_json(value: Value) -> Option<Self> {
        let mut fields = Fields::of(value)?;
        Some(Self { message_id: fields.take("messageId")?, thread_id: fields.take("threadId")?, text: fields.take("text")? })
    }
}

/// A submit that is not known to be accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingSubmit {
    /// The message's id, by which a read recognises it.
    pub message_id: MessageId,
    /// The thread it went to; of a new thread, the id that was proposed for it.
    pub thread_id: ThreadId,
    /// The text that was sent.
    pub text: String,
}

/// Why a request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refused it with a problem answer.
    Refused {
        /// The answer.
        problem: Box<Problem>,
        /// Its `Retry-After`, in seconds.
        retry_after: Option<u64>,
    },
    /// There was an answer, and not one that the server itself gives (a proxy's error page, say).
    Unreadable {
        /// The HTTP status.
        status: u16,
    },
    /// The connection broke, or never came about, before there was an answer.
    Broken,
}

/// What happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The person opened a thread, or went over to another one; `None`: a new thread. The first input of every machine.
    Opened {
        /// The thread.
        thread: Option<ThreadId>,
    },
    /// The view is gone. A submit that is on its way still gets its outcome, so that its draft can be cleared; nothing else goes on.
    Disposed,
    /// The person typed: the whole draft.
    DraftChanged(String),
    /// The person chose or took back files.
    AttachmentsChanged(Vec<NewAttachment>),
    /// The person pressed Send. Both ids are fresh random ones; the machine uses what it needs of them.
    SubmitPressed {
        /// For the message.
        message_id: MessageId,
        /// For the thread, where this starts one. Proposing the id lets a read tell after a broken connection what became of it.
        thread_id: ThreadId,
    },
    /// The person pressed Stop.
    StopPressed,
    /// The person answered a suspended tool call.
    AnswerGiven {
        /// The call.
        tool_call_id: String,
        /// The answer.
        data: ResumeData,
    },
    /// The person cancelled the suspended turn.
    CancelSuspendedPressed,
    /// The person has seen [`super::View::trouble`].
    TroubleDismissed,
    /// Outcome of [`Effect::Read`].
    ReadDone {
        /// The effect.
        id: EffectId,
        /// What came of it.
        outcome: Result<Box<ThreadSnapshot>, Failure>,
    },
    /// A [`Effect::Submit`] or [`Effect::Resume`] got no event stream.
    StreamRefused {
        /// The effect.
        id: EffectId,
        /// Why.
        failure: Failure,
    },
    /// The next bytes of an event stream, cut anywhere.
    StreamBytes {
        /// The [`Effect::Submit`] or [`Effect::Resume`].
        id: EffectId,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// An event stream ended, in order or not: the machine knows from the events which it was.
    StreamEnded {
        /// The [`Effect::Submit`] or [`Effect::Resume`].
        id: EffectId,
    },
    /// Outcome of [`Effect::Stop`].
    StopDone {
        /// The effect.
        id: EffectId,
        /// What came of it.
        outcome: Result<CancelAnswer, Failure>,
    },
    /// Outcome of [`Effect::CancelRun`].
    CancelRunDone {
        /// The effect.
        id: EffectId,
        /// What came of it.
        outcome: Result<RunCancelAnswer, Failure>,
    },
    /// Outcome of [`Effect::SetTimer`].
    TimerFired {
        /// The effect.
        id: EffectId,
    },
    /// Outcome of [`Effect::LoadDraft`]; `None`: nothing is kept, or it could not be read.
    DraftLoaded {
        /// The effect.
        id: EffectId,
        /// What was kept.
        draft: Option<StoredDraft>,
    },
    /// Outcome of [`Effect::SaveDraft`].
    DraftSaved {
        /// The effect.
        id: EffectId,
        /// Whether it will be there after a reload.
        ok: bool,
    },
    /// A thread changed. Those of other threads are ignored.
    Notified(ExecutionUpdated),
    /// Something happened after which what is shown may be old.
    Occasion(Occasion),
}

/// Occasions to read (contract 1, section 7). There is no polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occasion {
    /// `/push` is connected, for the first time or again.
    PushConnected,
    /// The tab is visible again.
    TabVisible,
    /// The network is back.
    Online,
    /// The person signed in again.
    SignedIn,
}
