//! Contract 1, section 7, rule by rule ([`rules`]), and under inputs that make no sense ([`random`]). What browsers, networks and
//! servers do in earnest is simulated in `crate::simulation`.

mod random;
mod rules;

use std::collections::HashMap;

use turnfast_shared::{
    Code, Event, ExecutionStatus, Message, Millis, Part, Problem, Role,
    api::{ChatRequest, ExecutionUpdated, ResumeRequest, ThreadSnapshot},
    event::Suspension,
    ids::{ExecutionId, MessageId, RunId, ThreadId},
    message::{ResumeData, SuspendPayload, ToolCall, ToolState},
};
use uuid::Uuid;

use super::*;

fn thread(n: u128) -> ThreadId {
    Uuid::from_u128(0x7000 + n).into()
}

fn message(n: u128) -> MessageId {
    Uuid::from_u128(0x3000 + n).into()
}

fn execution(n: u128) -> ExecutionId {
    Uuid::from_u128(0xe000 + n).into()
}

fn said(id: MessageId, role: Role, text: &str, revision: u64) -> Message {
    Message {
        id,
        role,
        content: vec![Part::Text { text: text.to_owned() }],
        execution_id: None,
        execution_status: None,
        execution_error: None,
        created_at: "2026-01-01T00:00:00.000Z".to_owned(),
        revision,
    }
}

fn user(n: u128, text: &str, revision: u64) -> Message {
    said(message(n), Role::User, text, revision)
}

fn assistant(n: u128, text: &str, revision: u64, exec: u128, status: ExecutionStatus) -> Message {
    let frame = said(message(n), Role::Assistant, text, revision);
    Message { execution_id: Some(execution(exec)), execution_status: Some(status), ..frame }
}

fn snapshot(revision: u64, messages: Vec<Message>) -> ThreadSnapshot {
    ThreadSnapshot {
        messages,
        open_suspensions: Vec::new(),
        active_execution_id: None,
        revision,
        partial: false,
        deleted_message_ids: None,
    }
}

fn running(exec: u128, snapshot: ThreadSnapshot) -> ThreadSnapshot {
    ThreadSnapshot { active_execution_id: Some(execution(exec)), ..snapshot }
}

fn partial(snapshot: ThreadSnapshot) -> ThreadSnapshot {
    ThreadSnapshot { partial: true, ..snapshot }
}

fn refused(code: Code) -> Failure {
    Failure::Refused { problem: Box::new(Problem::new(code, "Because.")), retry_after: None }
}

fn started(exec: u128, thread: ThreadId, user: MessageId, assistant: MessageId) -> Event {
    Event::ExecutionStarted {
        execution_id: execution(exec),
        session_id: thread,
        message_id: user,
        assistant_message_id: assistant,
    }
}

fn delta(text: &str) -> Event {
    Event::TextDelta { id: "t".to_owned(), delta: text.to_owned() }
}

fn done(exec: u128, thread: ThreadId, status: ExecutionStatus) -> Event {
    Event::Done { session_id: thread, execution_id: execution(exec), status }
}

fn sse(event: &Event) -> Vec<u8> {
    format!(": ping\n\nid: x\ndata: {}\n\n", serde_json::to_string(event).unwrap()).into_bytes()
}

fn update(thread: ThreadId, revision: u64) -> Input {
    Input::Notified(ExecutionUpdated {
        project_id: "demo".parse().unwrap(),
        agent_id: "assistant".parse().unwrap(),
        thread_id: thread,
        execution_id: None,
        revision,
    })
}

fn question(n: u128) -> Suspension {
    Suspension {
        tool_call_id: format!("call-{n}"),
        run_id: RunId::from(message(n)),
        tool_name: "ask_user".to_owned(),
        input: serde_json::json!({}),
        suspend_payload: Some(SuspendPayload::Question { question: "Which?".to_owned(), options: None, free_text: None }),
    }
}

/// A page around a machine: it keeps drafts at once, and everything else until the test says what came of it.
#[derive(Default)]
struct Page {
    machine: Machine,
    now: Millis,
    stored: HashMap<Option<ThreadId>, StoredDraft>,
    timers: Vec<(Millis, EffectId)>,
    reads: Vec<(EffectId, ThreadId, Option<u64>)>,
    submits: Vec<(EffectId, ChatRequest)>,
    resumes: Vec<(EffectId, ResumeRequest)>,
    stops: Vec<(EffectId, ThreadId, ExecutionId)>,
    cancels: Vec<(EffectId, RunId)>,
    aborted: Vec<EffectId>,
    fresh: u128,
}

impl Page {
    fn open(thread: Option<ThreadId>) -> Self {
        let mut page = Self::default();
        page.input(Input::Opened { thread });
        page
    }

    /// A page that shows thread 0 with one finished turn, at revision 5.
    fn ready() -> Self {
        let mut page = Self::open(Some(thread(0)));
        page.answer_read(Ok(snapshot(5, vec![user(1, "hi", 2), assistant(2, "hello", 5, 1, ExecutionStatus::Success)])));
        page
    }

    /// The same, with `text` sent and accepted as message 3, execution 2, to be answered by message 4.
    fn live(text: &str) -> (Self, EffectId) {
        let mut page = Self::ready();
        let (id, sent) = page.send(text);
        page.event(id, &started(2, thread(0), sent.message_id.unwrap(), message(4)));
        (page, id)
    }

    /// A page whose turn (execution 3, message 4) waits for an answer.
    fn suspended() -> Self {
        let mut page = Self::open(Some(thread(0)));
        page.answer_read(Ok(waiting(7)));
        page
    }

    fn input(&mut self, input: Input) {
        let mut queue = std::collections::VecDeque::from([input]);
        while let Some(input) = queue.pop_front() {
            for effect in self.machine.handle(self.now, input) {
                match effect {
                    Effect::Read { id, thread, since } => self.reads.push((id, thread, since)),
                    Effect::Submit { id, request } => self.submits.push((id, request)),
                    Effect::Resume { id, request } => self.resumes.push((id, request)),
                    Effect::Stop { id, thread, execution } => self.stops.push((id, thread, execution)),
                    Effect::CancelRun { id, run } => self.cancels.push((id, run)),
                    Effect::SetTimer { id, after_ms } => self.timers.push((self.now + Millis::from(after_ms), id)),
                    Effect::CancelTimer { id } => self.timers.retain(|timer| timer.1 != id),
                    Effect::LoadDraft { id, thread } => {
                        queue.push_back(Input::DraftLoaded { id, draft: self.stored.get(&thread).cloned() });
                    }
                    Effect::SaveDraft { id, thread, draft } => {
                        if draft.is_empty() {
                            self.stored.remove(&thread);
                        } else {
                            self.stored.insert(thread, draft);
                        }
                        queue.push_back(Input::DraftSaved { id, ok: true });
                    }
                    Effect::Abort { id } => {
                        self.aborted.push(id);
                        self.reads.retain(|read| read.0 != id);
                    }
                }
                assert!(self.reads.len() <= 1, "one read in flight at a time");
            }
        }
    }

    /// Lets time pass, and timers fire.
    fn wait(&mut self, ms: Millis) {
        let end = self.now + ms;
        while let Some(&(at, id)) = self.timers.iter().filter(|timer| timer.0 <= end).min_by_key(|timer| timer.0) {
            self.now = self.now.max(at);
            self.timers.retain(|timer| timer.1 != id);
            self.input(Input::TimerFired { id });
        }
        self.now = end;
    }

    /// The same browser after a reload: a new machine, the same storage.
    fn reload(&mut self, thread: Option<ThreadId>) {
        let stored = std::mem::take(&mut self.stored);
        *self = Self { stored, now: self.now, fresh: self.fresh, ..Self::default() };
        self.input(Input::Opened { thread });
    }

    fn answer_read(&mut self, outcome: Result<ThreadSnapshot, Failure>) {
        let (id, ..) = self.reads.pop().expect_some("a read in flight");
        self.input(Input::ReadDone { id, outcome: outcome.map(Box::new) });
    }

    fn press_send(&mut self) {
        self.fresh += 1;
        let (message_id, thread_id) = (Uuid::from_u128(0xf000 + self.fresh).into(), thread(0x100 + self.fresh));
        self.input(Input::SubmitPressed { message_id, thread_id });
    }

    fn send(&mut self, text: &str) -> (EffectId, ChatRequest) {
        self.input(Input::DraftChanged(text.to_owned()));
        self.press_send();
        self.submits.pop().expect_some("a submit")
    }

    fn event(&mut self, id: EffectId, event: &Event) {
        self.input(Input::StreamBytes { id, bytes: sse(event) });
    }

    fn view(&mut self) -> View {
        self.machine.view()
    }

    fn draft(&mut self) -> String {
        self.view().draft.to_string()
    }

    fn texts(&mut self) -> Vec<String> {
        self.view().messages().map(|message| message.text()).collect()
    }

    fn blocked(&mut self) -> Option<SendBlocked> {
        self.view().send_blocked
    }
}

trait ExpectSome<T> {
    fn expect_some(self, what: &str) -> T;
}

impl<T> ExpectSome<T> for Option<T> {
    fn expect_some(self, what: &str) -> T {
        self.unwrap_or_else(|| panic!("there should be {what}"))
    }
}

/// A thread whose turn waits for an answer to [`question`] 4.
fn waiting(revision: u64) -> ThreadSnapshot {
    let mut answer = assistant(4, "Let me ask. ", revision, 3, ExecutionStatus::Suspended);
    answer.content.push(Part::ToolCall(ToolCall {
        tool_call_id: "call-4".to_owned(),
        tool_name: "ask_user".to_owned(),
        input: serde_json::json!({}),
        state: ToolState::Suspended,
        output: None,
        error: None,
        start_time: 0,
        end_time: None,
        suspend_payload: question(4).suspend_payload,
        step: None,
        child_trace: None,
    }));
    ThreadSnapshot { open_suspensions: vec![question(4)], ..snapshot(revision, vec![user(3, "ask me", 6), answer]) }
}

fn blue() -> ResumeData {
    ResumeData::Answer { answer: "blue".to_owned() }
}
