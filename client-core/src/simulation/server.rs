//! A model of the server: threads, revisions, partial reads, idempotent submits, one turn per thread, suspensions, Stop, restarts.
//! What a turn writes is decided in [`super::turn`].

use std::collections::{BTreeMap, BTreeSet};

use turnfast_shared::{
    Code, Event, ExecutionStatus, Message, Part, Problem, Role,
    api::{CancelAnswer, ChatRequest, ExecutionUpdated, ResumeRequest, RunCancelAnswer, ThreadSnapshot},
    event::Suspension,
    ids::{ExecutionId, MessageId, RunId, ThreadId},
    message::ToolState,
    timeline::{Timeline, closed},
};

use super::{network::ConnId, rng::Rng, turn::Turn};
use crate::thread::Failure;

/// What the server wants to happen; the world does it.
#[derive(Debug)]
pub(super) enum Out {
    Event(ConnId, Event),
    End(ConnId),
    Notify(ExecutionUpdated),
    /// Open text is to be recorded soon.
    RecordSoon(ExecutionId),
    /// A turn goes on.
    WorkSoon(ExecutionId),
}

#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) revision: u64,
    pub(super) messages: Vec<Message>,
    pub(super) active: Option<ExecutionId>,
    /// Tool calls that wait for a person.
    pub(super) open: Vec<Suspension>,
}

/// What started an execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) thread: ThreadId,
    /// The message, where a submit did.
    pub(super) message: Option<MessageId>,
    pub(super) run: RunId,
}

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) down: bool,
    pub(super) threads: BTreeMap<ThreadId, Thread>,
    pub(super) origins: BTreeMap<ExecutionId, Origin>,
    /// Everything that was ever said in a message, recorded or not.
    pub(super) said: BTreeMap<MessageId, Vec<Part>>,
    /// Words that were accepted as, or in, a message.
    pub(super) accepted_words: BTreeSet<String>,
    pub(super) turns: BTreeMap<ExecutionId, Turn>,
    /// Executions whose process died, until somebody notices.
    dead: Vec<Turn>,
    accepted: BTreeMap<MessageId, ExecutionId>,
    pub(super) out: Vec<Out>,
}

pub(super) fn refused(code: Code) -> Failure {
    Failure::Refused { problem: Box::new(Problem::new(code, "Because.")), retry_after: None }
}

fn refused_with(code: Code, execution: Option<ExecutionId>) -> Failure {
    let mut problem = Problem::new(code, "Because.");
    problem.execution_id = execution;
    Failure::Refused { problem: Box::new(problem), retry_after: None }
}

pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

impl Server {
    pub(super) fn read(&self, thread: ThreadId, since: Option<u64>) -> Result<ThreadSnapshot, Failure> {
        let entry = self.threads.get(&thread).ok_or_else(|| refused(Code::NotFound))?;
        Ok(ThreadSnapshot {
            messages: entry
                .messages
                .iter()
                .filter(|message| since.is_none_or(|since| message.revision > since))
                .cloned()
                .collect(),
            open_suspensions: if entry.active.is_none() { entry.open.clone() } else { Vec::new() },
            active_execution_id: entry.active,
            revision: entry.revision,
            partial: since.is_some(),
            deleted_message_ids: None,
        })
    }

    pub(super) fn submit(&mut self, reader: Option<ConnId>, request: &ChatRequest, rng: &mut Rng) -> Result<(), Failure> {
        let message = request.message_id.unwrap_or_else(|| rng.uuid().into());
        if let Some(execution) = self.accepted.get(&message) {
            return Err(refused_with(Code::MessageAlreadyAccepted, Some(*execution)));
        }
        let thread = request.session_id.unwrap_or_else(|| rng.uuid().into());
        match self.threads.get(&thread) {
            None if request.new_session != Some(true) => return Err(refused(Code::NotFound)),
            Some(entry) if entry.active.is_some() => return Err(refused_with(Code::TurnAlreadyRunning, entry.active)),
            Some(entry) if !entry.open.is_empty() => return Err(refused(Code::InteractionOpen)),
            _ => {}
        }
        let (execution, assistant) = (ExecutionId::from(rng.uuid()), MessageId::from(rng.uuid()));
        self.accepted.insert(message, execution);
        self.accepted_words.extend(words(&request.message).map(str::to_owned));
        let entry = self.threads.entry(thread).or_default();
        entry.revision += 1;
        entry.active = Some(execution);
        let frame = |id, role, content, status| Message {
            id,
            role,
            content,
            execution_id: Some(execution),
            execution_status: status,
            execution_error: None,
            created_at: "2026-01-01T00:00:00.000Z".to_owned(),
            revision: entry.revision,
        };
        let typed = vec![Part::Text { text: request.message.clone() }];
        let messages = [
            frame(message, Role::User, typed.clone(), None),
            frame(assistant, Role::Assistant, Vec::new(), Some(ExecutionStatus::Running)),
        ];
        entry.messages.extend(messages);
        self.said.insert(message, typed);
        self.origins.insert(execution, Origin { thread, message: Some(message), run: assistant.into() });
        self.begin(Turn::new(execution, thread, assistant, Timeline::new(), reader, rng), message);
        Ok(())
    }

    pub(super) fn resume(&mut self, reader: Option<ConnId>, request: &ResumeRequest, rng: &mut Rng) -> Result<(), Failure> {
        let waits = |open: &Suspension| open.run_id == request.run_id && open.tool_call_id == request.tool_call_id;
        let found = self.threads.iter_mut().find(|(_, entry)| entry.active.is_none() && entry.open.iter().any(waits));
        let Some((&thread, entry)) = found else { return Err(refused(Code::InteractionClosed)) };
        entry.open.retain(|open| !waits(open));
        let execution = ExecutionId::from(rng.uuid());
        entry.active = Some(execution);
        let Some(message) = entry.messages.iter().find(|message| RunId::from(message.id) == request.run_id) else {
            return Err(refused(Code::NotFound));
        };
        let (assistant, content) = (message.id, message.content.clone());
        let user = entry.messages.iter().take_while(|message| message.id != assistant).last().map(|message| message.id);
        self.origins.insert(execution, Origin { thread, message: None, run: request.run_id });
        let mut turn = Turn::new(execution, thread, assistant, Timeline::from_parts(content), reader, rng);
        turn.answers(request, rng);
        self.begin(turn, user.unwrap_or(assistant));
        Ok(())
    }

    fn begin(&mut self, turn: Turn, message: MessageId) {
        let execution = turn.execution;
        self.write(&turn, ExecutionStatus::Running);
        let started = Event::ExecutionStarted {
            execution_id: execution,
            session_id: turn.thread,
            message_id: message,
            assistant_message_id: turn.assistant,
        };
        self.out.extend(turn.reader.map(|reader| Out::Event(reader, started)));
        self.turns.insert(execution, turn);
        self.out.push(Out::WorkSoon(execution));
    }

    /// Commits a turn's state, and tells of it.
    fn write(&mut self, turn: &Turn, status: ExecutionStatus) {
        let Some(entry) = self.threads.get_mut(&turn.thread) else { return };
        entry.revision += 1;
        if let Some(message) = entry.messages.iter_mut().find(|message| message.id == turn.assistant) {
            message.revision = entry.revision;
            message.execution_id = Some(turn.execution);
            message.execution_status = Some(status);
            message.content = turn.timeline.parts().to_vec();
        }
        self.said.insert(turn.assistant, turn.timeline.parts().to_vec());
        self.notify(turn.thread, Some(turn.execution));
    }

    fn notify(&mut self, thread: ThreadId, execution: Option<ExecutionId>) {
        let Some(entry) = self.threads.get(&thread) else { return };
        // Both are slugs.
        let (Ok(project_id), Ok(agent_id)) = ("demo".parse(), "assistant".parse()) else { return };
        let revision = entry.revision;
        self.out.push(Out::Notify(ExecutionUpdated {
            project_id,
            agent_id,
            thread_id: thread,
            execution_id: execution,
            revision,
        }));
    }

    /// A running turn says an event: live first, then into what is to be recorded.
    pub(super) fn say(&mut self, execution: ExecutionId, event: Event) {
        let Some(turn) = self.turns.get_mut(&execution) else { return };
        self.out.extend(turn.reader.map(|reader| Out::Event(reader, event.clone())));
        let applied = turn.timeline.apply(&event, 0);
        if applied.part.is_some() {
            self.said.insert(turn.assistant, turn.timeline.parts().to_vec());
        }
        if applied.boundary {
            self.record(execution);
        } else if applied.part.is_some() && !std::mem::replace(&mut turn.unrecorded, true) {
            self.out.push(Out::RecordSoon(execution));
        }
    }

    pub(super) fn record(&mut self, execution: ExecutionId) {
        if let Some(mut turn) = self.turns.remove(&execution) {
            turn.unrecorded = false;
            self.write(&turn, ExecutionStatus::Running);
            self.turns.insert(execution, turn);
        }
    }

    /// A running turn ends. What is recorded is final before `done` goes out.
    pub(super) fn end(&mut self, execution: ExecutionId, status: ExecutionStatus) {
        let Some(turn) = self.turns.get(&execution) else { return };
        for event in turn.timeline.closing_events(status, 0) {
            self.say(execution, event);
        }
        let Some(turn) = self.turns.remove(&execution) else { return };
        if let Some(entry) = self.threads.get_mut(&turn.thread) {
            entry.active = None;
            entry.open = if status == ExecutionStatus::Suspended { turn.suspensions() } else { Vec::new() };
        }
        self.write(&turn, status);
        if let Some(reader) = turn.reader {
            if status != ExecutionStatus::Suspended {
                let done = Event::Done { session_id: turn.thread, execution_id: execution, status };
                self.out.push(Out::Event(reader, done));
            }
            self.out.push(Out::End(reader));
        }
    }

    pub(super) fn stop(&mut self, thread: ThreadId, execution: ExecutionId) -> Result<CancelAnswer, Failure> {
        if self.origins.get(&execution).is_none_or(|origin| origin.thread != thread) {
            return Err(refused(Code::NotFound));
        }
        let turn = self.turns.get_mut(&execution).or_else(|| self.dead.iter_mut().find(|turn| turn.execution == execution));
        let cancel_requested = turn.is_some();
        if let Some(turn) = turn {
            turn.stop_asked = true;
            self.out.push(Out::WorkSoon(execution));
        }
        Ok(CancelAnswer { cancel_requested })
    }

    pub(super) fn cancel_run(&mut self, run: RunId) -> RunCancelAnswer {
        let found = self.threads.iter_mut().find(|(_, entry)| entry.open.iter().any(|open| open.run_id == run));
        let Some((&thread, entry)) = found.filter(|(_, entry)| entry.active.is_none()) else {
            return RunCancelAnswer { cancelled: false };
        };
        entry.open.clear();
        entry.revision += 1;
        if let Some(message) = entry.messages.iter_mut().find(|message| RunId::from(message.id) == run) {
            message.revision = entry.revision;
            message.execution_status = Some(ExecutionStatus::Cancelled);
            message.content = closed(std::mem::take(&mut message.content), ExecutionStatus::Cancelled, 0);
            self.said.insert(message.id, message.content.clone());
        }
        self.notify(thread, None);
        RunCancelAnswer { cancelled: true }
    }

    /// The process dies: what was not recorded is lost.
    pub(super) fn die(&mut self) {
        self.down = true;
        self.dead.extend(std::mem::take(&mut self.turns).into_values());
    }

    /// The next process notices: an honest end for each execution of the dead one.
    pub(super) fn recover(&mut self) {
        for mut turn in std::mem::take(&mut self.dead) {
            let status = if turn.stop_asked { ExecutionStatus::Cancelled } else { ExecutionStatus::Interrupted };
            let Some(entry) = self.threads.get_mut(&turn.thread) else { continue };
            entry.active = None;
            entry.open.clear();
            let recorded =
                entry.messages.iter().find(|message| message.id == turn.assistant).map(|message| message.content.clone());
            turn.timeline = Timeline::from_parts(closed(recorded.unwrap_or_default(), status, 0));
            let said = self.said.remove(&turn.assistant).unwrap_or_default();
            self.write(&turn, status);
            self.said.insert(turn.assistant, said);
        }
    }
}

/// Whether `shown` is a state that a message which says `whole` went through, times aside.
pub(super) fn is_state_of(shown: &[Part], whole: &[Part]) -> bool {
    let last = shown.len().saturating_sub(1);
    let text_fits = |at: usize, shown: &str, whole: &str| if at == last { whole.starts_with(shown) } else { whole == shown };
    shown.len() <= whole.len()
        && shown.iter().zip(whole).enumerate().all(|(at, (shown, whole))| match (shown, whole) {
            (Part::Text { text: shown }, Part::Text { text: whole })
            | (Part::Reasoning { text: shown, .. }, Part::Reasoning { text: whole, .. }) => text_fits(at, shown, whole),
            (Part::ToolCall(shown), Part::ToolCall(whole)) => {
                shown.tool_call_id == whole.tool_call_id
                    && rank(shown.state) <= rank(whole.state)
                    && (!shown.state.is_settled() || shown.output == whole.output)
            }
            (shown, whole) => shown == whole,
        })
}

fn rank(state: ToolState) -> u8 {
    match state {
        ToolState::InputStreaming => 0,
        ToolState::Pending => 1,
        ToolState::Running => 2,
        ToolState::Suspended => 3,
        ToolState::Resolved | ToolState::Rejected | ToolState::Cancelled => 4,
    }
}
