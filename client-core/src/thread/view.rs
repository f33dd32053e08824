//! What a page shows of a thread.

use std::{fmt, rc::Rc};

use turnfast_shared::{
    Code, Message,
    api::NewAttachment,
    event::Suspension,
    ids::{ExecutionId, ThreadId},
};

use super::Failure;

/// One consistent picture of the thread. Cheap to make and to clone: it shares the messages with the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The thread; `None` until a new one is accepted. When it becomes `Some`, the page puts it into its address.
    pub thread: Option<ThreadId>,
    /// How the first read went.
    pub load: Load,
    /// The thread's messages in order. Those that did not change stay the same [`Rc`]; the list itself stays the same [`Rc`] while
    /// only [`View::live`] changes. See [`View::messages`].
    pub settled: Rc<Vec<Rc<Message>>>,
    /// The message that the tab's own stream is writing, and its place in `settled`, where an older state of it stands.
    pub live: Option<Live>,
    /// The last read failed: what is shown may be old. For an unobtrusive note.
    pub read_failure: Option<Failure>,
    /// Whether a read is on its way, or due after a pause. Without one a failure stays until the next occasion.
    pub catching_up: bool,
    /// What runs in the thread.
    pub running: Option<Running>,
    /// What a Stop button shows.
    pub stop: Stop,
    /// Tool calls that wait for a person, in order.
    pub interactions: Vec<Interaction>,
    /// What the person typed and has not sent.
    pub draft: Rc<str>,
    /// The files that go with it.
    pub attachments: Rc<Vec<NewAttachment>>,
    /// Whether the draft could be kept for a reload.
    pub draft_kept: bool,
    /// Why Send does nothing; `None`: it sends. The draft can always be edited.
    pub send_blocked: Option<SendBlocked>,
    /// What went wrong last, until it is dismissed or the next attempt.
    pub trouble: Option<Trouble>,
    /// Warnings of the turn whose stream this tab has or had.
    pub warnings: Rc<Vec<Warning>>,
    /// The server wants a sign-in. What is shown stays.
    pub signed_out: bool,
}

impl View {
    /// The messages in order, with the live one in its newest state.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = &Rc<Message>> {
        self.settled.iter().enumerate().map(|(index, message)| match &self.live {
            Some(live) if live.index == index => &live.message,
            _ => message,
        })
    }

    /// Whether Send sends.
    #[must_use]
    pub fn can_send(&self) -> bool {
        self.send_blocked.is_none()
    }
}

/// The message that is being written.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// Its place in [`View::settled`].
    pub index: usize,
    /// Its newest state.
    pub message: Rc<Message>,
}

/// How the first read of a thread went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// A thread that does not exist yet: nothing to read.
    #[default]
    New,
    /// It is on its way.
    Loading,
    /// The thread is shown.
    Loaded,
    /// There is no such thread, or it is someone else's.
    NotFound,
    /// It failed for good; the next occasion tries again.
    Failed(Failure),
}

/// A running turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Running {
    /// Submitted from here, and not accepted yet.
    Starting,
    /// Its events arrive here.
    Live(ExecutionId),
    /// It runs somewhere; reads show how far it is.
    Followed(ExecutionId),
}

impl Running {
    /// The execution, once it is known.
    #[must_use]
    pub fn execution(self) -> Option<ExecutionId> {
        match self {
            Self::Starting => None,
            Self::Live(id) | Self::Followed(id) => Some(id),
        }
    }
}

/// What a Stop button shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Nothing runs: no button.
    Hidden,
    /// Pressing it stops the running turn, or cancels the suspended one.
    Usable,
    /// It was pressed before the execution's id was known, and is sent once it is.
    WaitingForId,
    /// It was asked; the record will show what became of it.
    Stopping,
}

/// A tool call that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Interaction {
    /// What it asks. Once it is closed, the tool call in its message shows the recorded answer.
    pub suspension: Suspension,
    /// Whether it can be answered.
    pub state: InteractionState,
}

/// How far an interaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InteractionState {
    /// It can be answered.
    Answerable,
    /// The answer given here is on its way.
    Answering,
    /// A stream is still open, or the turn is being cancelled: not right now.
    Waiting,
    /// It was answered or cancelled elsewhere, and the record is being read.
    Closed,
}

/// Why Send does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendBlocked {
    /// Nobody is signed in.
    SignedOut,
    /// The thread's first read is not done.
    Loading,
    /// There is no such thread.
    NotFound,
    /// The connection broke on the last submit, and a read is to show whether it was accepted.
    Checking,
    /// A turn runs.
    Running,
    /// The thread waits for an answer.
    InteractionOpen,
    /// There is nothing to send.
    Empty,
}

/// Something the reader should know about the turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// For people.
    pub message: String,
    /// For programs.
    pub code: Option<String>,
}

/// What was attempted when something went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// Sending a message. The draft still has it.
    Submit,
    /// Answering a suspended tool call.
    Answer,
    /// Stopping a turn.
    Stop,
    /// Cancelling a suspended turn.
    Cancel,
    /// Following the live stream.
    Stream,
}

/// What went wrong last. [`fmt::Display`] words it for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was attempted.
    pub attempt: Attempt,
    /// Why it came to nothing.
    pub cause: Cause,
}

/// Why an [`Attempt`] came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The request failed.
    Failed(Failure),
    /// The connection broke before any answer, and the record shows that nothing was accepted.
    NotAccepted,
    /// The live stream was cut off. The turn runs on, and reads follow it.
    Detached,
    /// A Stop was given up: no execution became known in time.
    GivenUp,
    /// The stream reported an error before the turn was accepted.
    Reported(String),
}

impl Trouble {
    /// The server's code, where it gave one: `turn_already_running`, `rate_limited` and so on.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match &self.cause {
            Cause::Failed(failure) => failure.code(),
            _ => None,
        }
    }
}

impl Failure {
    /// The server's code, where it gave one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { problem, .. } => Some(problem.code),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { problem, retry_after: None } => f.write_str(&problem.detail),
            Self::Refused { problem, retry_after: Some(seconds) } => write!(f, "{} Try again in {seconds} s.", problem.detail),
            Self::Unreadable { status } => write!(f, "Something between here and the server answered with status {status}."),
            Self::Broken => f.write_str("The server could not be reached."),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            Attempt::Submit => f.write_str("The message was not sent. ")?,
            Attempt::Answer => f.write_str("The answer was not taken. ")?,
            Attempt::Stop => f.write_str("Stop did not reach the turn. ")?,
            Attempt::Cancel => f.write_str("The turn was not cancelled. ")?,
            Attempt::Stream => {}
        }
        match &self.cause {
            Cause::Failed(failure) => failure.fmt(f),
            Cause::NotAccepted => f.write_str("The server does not have it. It is still in the box: send it again."),
            Cause::Detached => f.write_str("The live connection was lost. The turn runs on, and this page follows it."),
            Cause::GivenUp => f.write_str("No turn began within 30 s."),
            Cause::Reported(message) => f.write_str(message),
        }
    }
}
