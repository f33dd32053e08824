//! Random sequences of inputs against a model of the server: whatever happens, the promises of contract 1 hold, and once the network
//! is well again the page shows the record.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use proptest::prelude::*;
use turnfast_shared::api::{CancelAnswer, RunCancelAnswer};

use super::*;

/// A turn as the server has it.
#[derive(Clone, Debug)]
struct Turn {
    execution: ExecutionId,
    user: MessageId,
    assistant: MessageId,
}

#[derive(Default)]
struct ServerThread {
    revision: u64,
    messages: Vec<Message>,
    active: Option<Turn>,
    suspended: Option<Turn>,
}

#[derive(Default)]
struct Server {
    threads: BTreeMap<ThreadId, ServerThread>,
    accepted: HashMap<MessageId, Turn>,
    texts: HashSet<String>,
    count: u128,
}

impl Server {
    fn next(&mut self) -> u128 {
        self.count += 1;
        self.count
    }

    fn touch(thread: &mut ServerThread, id: MessageId, change: impl FnOnce(&mut Message)) {
        thread.revision += 1;
        let revision = thread.revision;
        let message = thread.messages.iter_mut().find(|message| message.id == id).unwrap();
        message.revision = revision;
        change(message);
    }

    fn begin(&mut self, thread: ThreadId, user: MessageId, text: &str) -> Turn {
        let n = self.next();
        let turn = Turn { execution: execution(n), user, assistant: message(0x8000 + n) };
        let entry = self.threads.entry(thread).or_default();
        entry.revision += 1;
        let mut typed = said(user, Role::User, text, entry.revision);
        typed.execution_id = Some(turn.execution);
        let mut answer = assistant(0x8000 + n, "", entry.revision, n, ExecutionStatus::Running);
        answer.content.clear();
        entry.messages.extend([typed, answer]);
        entry.active = Some(turn.clone());
        turn
    }

    fn submit(&mut self, request: &ChatRequest) -> Result<Turn, Failure> {
        let (thread, user) = (request.session_id.unwrap(), request.message_id.unwrap());
        if let Some(turn) = self.accepted.get(&user) {
            let mut problem = Problem::new(Code::MessageAlreadyAccepted, "Accepted before.");
            problem.execution_id = Some(turn.execution);
            return Err(Failure::Refused { problem: Box::new(problem), retry_after: None });
        }
        match self.threads.get(&thread) {
            None if request.new_session != Some(true) => return Err(refused(Code::NotFound)),
            Some(ServerThread { active: Some(_), .. }) => return Err(refused(Code::TurnAlreadyRunning)),
            Some(ServerThread { suspended: Some(_), .. }) => return Err(refused(Code::InteractionOpen)),
            _ => {}
        }
        let turn = self.begin(thread, user, &request.message);
        self.accepted.insert(user, turn.clone());
        self.texts.insert(request.message.clone());
        Ok(turn)
    }

    fn resume(&mut self, thread: ThreadId, request: &ResumeRequest) -> Result<Turn, Failure> {
        let n = self.next();
        let entry = self.threads.get_mut(&thread).unwrap();
        match entry.suspended.take_if(|turn| RunId::from(turn.assistant) == request.run_id) {
            None => Err(refused(Code::InteractionClosed)),
            Some(turn) => {
                let turn = Turn { execution: execution(n), ..turn };
                Self::touch(entry, turn.assistant, |message| {
                    message.execution_id = Some(turn.execution);
                    message.execution_status = Some(ExecutionStatus::Running);
                    for part in &mut message.content {
                        if let Part::ToolCall(call) = part
                            && call.tool_call_id == request.tool_call_id
                        {
                            call.state = ToolState::Resolved;
                            call.output = Some("blue".into());
                        }
                    }
                });
                entry.active = Some(turn.clone());
                Ok(turn)
            }
        }
    }

    fn end(&mut self, thread: ThreadId, status: ExecutionStatus) {
        let entry = self.threads.get_mut(&thread).unwrap();
        if let Some(turn) = entry.active.take() {
            Self::touch(entry, turn.assistant, |message| message.execution_status = Some(status));
        }
    }

    fn read(&self, thread: ThreadId, since: Option<u64>) -> Result<ThreadSnapshot, Failure> {
        let entry = self.threads.get(&thread).ok_or_else(|| refused(Code::NotFound))?;
        let open = entry.suspended.iter().map(|turn| suspension_of(entry, turn));
        Ok(ThreadSnapshot {
            messages: entry
                .messages
                .iter()
                .filter(|message| since.is_none_or(|since| message.revision > since))
                .cloned()
                .collect(),
            open_suspensions: open.collect(),
            active_execution_id: entry.active.as_ref().map(|turn| turn.execution),
            revision: entry.revision,
            partial: since.is_some(),
            deleted_message_ids: None,
        })
    }

    fn message(&self, id: MessageId) -> Option<&Message> {
        self.threads.values().flat_map(|thread| &thread.messages).find(|message| message.id == id)
    }
}

fn suspension_of(thread: &ServerThread, turn: &Turn) -> Suspension {
    let message = thread.messages.iter().find(|message| message.id == turn.assistant).unwrap();
    let call = message.content.iter().rev().find_map(Part::as_tool_call).unwrap();
    Suspension { tool_call_id: call.tool_call_id.clone(), run_id: turn.assistant.into(), ..question(0) }
}

enum Request {
    Submit(ChatRequest),
    Resume(ResumeRequest),
}

/// A stream's request, and what the server wants to say on it.
struct Stream {
    id: EffectId,
    request: Request,
    answer: Option<Result<VecDeque<Event>, Failure>>,
    thread: ThreadId,
    execution: Option<ExecutionId>,
    /// The server has nothing more to say.
    ended: bool,
}

/// A tab of some browser, and what is on its way to it.
#[derive(Default)]
struct Tab {
    page: Page,
    streams: Vec<Stream>,
    /// What the server answered to the read in flight, on its way.
    read_answer: Option<(EffectId, Result<ThreadSnapshot, Failure>)>,
    wished: HashSet<MessageId>,
    asked: HashSet<ExecutionId>,
    seen: HashMap<MessageId, u64>,
}

/// One server, two tabs; [`World::at`] is the one that things happen to.
struct World {
    server: Server,
    tabs: [Tab; 2],
    at: usize,
}

impl World {
    fn new() -> Self {
        let mut world = Self { server: Server::default(), tabs: Default::default(), at: 0 };
        for n in 0..2 {
            world.server.begin(thread(n), message(n), "hello there");
            world.server.end(thread(n), ExecutionStatus::Success);
        }
        for at in [1, 0] {
            world.at = at;
            world.act(Input::Opened { thread: Some(thread(0)) });
        }
        world
    }

    /// Gives the page an input, and checks what it makes of it.
    fn act(&mut self, input: Input) {
        let before = self.tabs[self.at].page.view();
        let counts = (self.tabs[self.at].page.submits.len(), self.tabs[self.at].page.resumes.len());
        let stopped = self.tabs[self.at].page.stops.len();
        let what = format!("{input:?}");
        let (pressed_send, answered, pressed_stop) = (
            matches!(input, Input::SubmitPressed { .. }),
            matches!(input, Input::AnswerGiven { .. }),
            matches!(input, Input::StopPressed),
        );
        let may_change_draft = matches!(input, Input::DraftChanged(_) | Input::Opened { .. });
        let timer = matches!(input, Input::TimerFired { .. });
        let failed_read = matches!(input, Input::ReadDone { outcome: Err(_), .. });
        self.tabs[self.at].page.input(input);
        let after = self.tabs[self.at].page.view();

        assert!(
            self.tabs[self.at].page.submits.len() - counts.0 <= usize::from(pressed_send),
            "submitted without a press: {what}"
        );
        assert!(self.tabs[self.at].page.resumes.len() - counts.1 <= usize::from(answered), "answered without an answer: {what}");
        if failed_read {
            assert!(before.messages().eq(after.messages()), "a failed read changed the transcript");
        }
        if before.draft != after.draft && before.thread.is_none_or(|thread| after.thread == Some(thread)) && !may_change_draft {
            assert!(self.server.texts.contains(&*before.draft), "{:?} was lost unaccepted: {what}", before.draft);
        }
        let stored = self.tabs[self.at].page.stored.get(&after.thread).map(|draft| draft.text.as_str()).unwrap_or_default();
        assert_eq!(stored, &*after.draft, "the draft is kept as it is shown: {what}");
        self.check_messages(&after, &what);
        if before.thread == after.thread {
            let now: HashMap<_, _> = after.messages().map(|message| (message.id, message.text())).collect();
            for message in before.messages() {
                let kept = now.get(&message.id).is_some_and(|text| text.starts_with(&message.text()));
                assert!(kept, "text that was shown went away: {what}");
            }
        }
        for (_, _, execution) in self.tabs[self.at].page.stops[stopped..].iter().copied() {
            let named = self.server.threads.values().flat_map(|thread| &thread.active).find(|turn| turn.execution == execution);
            let wished = named.is_some_and(|turn| {
                self.tabs[self.at].wished.contains(&turn.user) || self.tabs[self.at].wished.contains(&turn.assistant)
            });
            let shown = before.running.and_then(Running::execution) == Some(execution);
            assert!(if pressed_stop { shown } else { wished || named.is_none() }, "a Stop named another execution: {what}");
            assert!(self.tabs[self.at].asked.insert(execution), "asked twice to stop one execution: {what}");
        }
        let tab = &mut self.tabs[self.at];
        let submits = tab.page.submits.drain(..).map(|(id, request)| (id, request.session_id.unwrap(), Request::Submit(request)));
        let resumes = tab.page.resumes.drain(..).map(|(id, request)| (id, after.thread.unwrap(), Request::Resume(request)));
        for (id, thread, request) in submits.chain(resumes) {
            tab.streams.push(Stream { id, request, answer: None, thread, execution: None, ended: false });
        }
        if pressed_stop && after.stop == Stop::WaitingForId {
            for stream in &self.tabs[self.at].streams {
                self.tabs[self.at].wished.insert(match &stream.request {
                    Request::Submit(request) => request.message_id.unwrap(),
                    Request::Resume(request) => request.run_id.into(),
                });
            }
        }
        let aborted = std::mem::take(&mut self.tabs[self.at].page.aborted);
        if !timer {
            let taken_back =
                self.tabs[self.at].streams.iter().any(|stream| aborted.contains(&stream.id) && stream.answer.is_none());
            assert!(!taken_back, "a submit or answer was taken back: {what}");
        }
        assert!(
            self.tabs[self.at].page.reads.is_empty() || !matches!(after.running, Some(Running::Live(_))),
            "reads wait for the stream: {what}"
        );
        self.tabs[self.at].streams.retain(|stream| !aborted.contains(&stream.id));
    }

    fn check_messages(&mut self, view: &View, what: &str) {
        let mut ids = HashSet::new();
        for message in view.messages() {
            assert!(ids.insert(message.id), "shown twice: {what}");
            let recorded = self.server.message(message.id).expect_some("a message that the server has");
            assert!(recorded.text().starts_with(&message.text()), "{:?} is not of {:?}: {what}", message.text(), recorded.text());
            let seen = self.tabs[self.at].seen.entry(message.id).or_default();
            assert!(message.revision == 0 || message.revision >= *seen, "a revision fell: {what}");
            *seen = message.revision.max(*seen);
        }
        let elsewhere = view.messages().any(|message| {
            view.thread
                .and_then(|thread| self.server.threads.get(&thread))
                .is_none_or(|t| t.messages.iter().all(|m| m.id != message.id))
        });
        assert!(!elsewhere, "a message of another thread: {what}");
    }

    fn serve(&mut self, at: usize) {
        let stream = &mut self.tabs[self.at].streams[at];
        if stream.answer.is_some() {
            return;
        }
        let turn = match &stream.request {
            Request::Submit(request) => self.server.submit(request),
            Request::Resume(request) => self.server.resume(stream.thread, request),
        };
        stream.answer = Some(turn.map(|turn| {
            stream.execution = Some(turn.execution);
            let start = Event::ExecutionStarted {
                execution_id: turn.execution,
                session_id: stream.thread,
                message_id: turn.user,
                assistant_message_id: turn.assistant,
            };
            VecDeque::from([start])
        }));
    }

    /// Delivers what comes next on a stream.
    fn deliver(&mut self, at: usize) {
        let stream = &mut self.tabs[self.at].streams[at];
        let id = stream.id;
        let input = match &mut stream.answer {
            None => return,
            Some(Err(failure)) => Input::StreamRefused { id, failure: failure.clone() },
            Some(Ok(events)) => match events.pop_front() {
                Some(event) => Input::StreamBytes { id, bytes: sse(&event) },
                None if stream.ended => Input::StreamEnded { id },
                None => return,
            },
        };
        if !matches!(input, Input::StreamBytes { .. }) {
            self.tabs[self.at].streams.remove(at);
        }
        self.act(input);
    }

    fn cut(&mut self, at: usize) {
        let stream = self.tabs[self.at].streams.remove(at);
        let answered =
            matches!(&stream.answer, Some(Ok(events)) if events.iter().all(|e| !matches!(e, Event::ExecutionStarted { .. })));
        let id = stream.id;
        self.act(if answered { Input::StreamEnded { id } } else { Input::StreamRefused { id, failure: Failure::Broken } });
    }

    fn emit(&mut self, execution: ExecutionId, event: &Event, last: bool) {
        let streams = self.tabs.iter_mut().flat_map(|tab| &mut tab.streams);
        for stream in streams.filter(|stream| stream.execution == Some(execution)) {
            if let Some(Ok(events)) = &mut stream.answer {
                events.push_back(event.clone());
                stream.ended |= last;
            }
        }
    }

    fn active_turn(&self, which: usize) -> Option<(ThreadId, Turn)> {
        let mut active = self.server.threads.iter().filter_map(|(id, thread)| Some((*id, thread.active.clone()?)));
        let count = active.clone().count();
        active.nth(which.checked_rem(count)?)
    }

    fn write(&mut self, which: usize) {
        let Some((id, turn)) = self.active_turn(which) else { return };
        let word = format!("w{} ", self.server.next());
        Server::touch(self.server.threads.get_mut(&id).unwrap(), turn.assistant, |message| match message.content.last_mut() {
            Some(Part::Text { text }) => text.push_str(&word),
            _ => message.content.push(Part::Text { text: word.clone() }),
        });
        // A text of its own behind a tool call, as a model does it.
        let segment = self.server.message(turn.assistant).unwrap().content.len();
        self.emit(turn.execution, &Event::TextDelta { id: segment.to_string(), delta: word }, false);
    }

    fn finish(&mut self, which: usize, status: ExecutionStatus) {
        let Some((id, turn)) = self.active_turn(which) else { return };
        self.server.end(id, status);
        self.emit(turn.execution, &Event::Done { session_id: id, execution_id: turn.execution, status }, true);
    }

    fn suspend(&mut self, which: usize) {
        let Some((id, turn)) = self.active_turn(which) else { return };
        let call = format!("call-{}", self.server.next());
        let suspension = Suspension { tool_call_id: call.clone(), run_id: turn.assistant.into(), ..question(0) };
        let entry = self.server.threads.get_mut(&id).unwrap();
        Server::touch(entry, turn.assistant, |message| {
            message.execution_status = Some(ExecutionStatus::Suspended);
            let mut part = waiting(0).messages.pop().unwrap().content.pop().unwrap();
            if let Part::ToolCall(part) = &mut part {
                part.tool_call_id.clone_from(&call);
            }
            message.content.push(part);
        });
        entry.suspended = entry.active.take();
        let begin = Event::ToolCall { tool_call_id: call, tool_name: "ask_user".into(), input: serde_json::json!({}) };
        self.emit(turn.execution, &begin, false);
        self.emit(turn.execution, &Event::ToolCallSuspended { payload: suspension }, true);
    }

    fn read(&mut self, fails: bool) {
        let Some((id, thread, since)) = self.tabs[self.at].page.reads.first().copied() else { return };
        match self.tabs[self.at].read_answer.take().filter(|answer| answer.0 == id) {
            None => self.tabs[self.at].read_answer = Some((id, self.server.read(thread, since))),
            Some((_, outcome)) => {
                self.tabs[self.at].page.reads.clear();
                let outcome = if fails { Err(Failure::Broken) } else { outcome };
                self.act(Input::ReadDone { id, outcome: outcome.map(Box::new) });
            }
        }
    }

    fn serve_stop(&mut self, lost: bool) {
        if self.tabs[self.at].page.stops.is_empty() {
            return;
        }
        let (id, thread, execution) = self.tabs[self.at].page.stops.remove(0);
        let active = self.server.threads.get(&thread).and_then(|thread| thread.active.clone());
        let cancel_requested = active.is_some_and(|turn| turn.execution == execution);
        if cancel_requested {
            self.server.end(thread, ExecutionStatus::Cancelled);
            let done = Event::Done { session_id: thread, execution_id: execution, status: ExecutionStatus::Cancelled };
            self.emit(execution, &done, true);
        }
        if lost || !cancel_requested {
            self.tabs[self.at].asked.remove(&execution);
        }
        self.act(Input::StopDone {
            id,
            outcome: if lost { Err(Failure::Broken) } else { Ok(CancelAnswer { cancel_requested }) },
        });
    }

    fn serve_cancel(&mut self, lost: bool) {
        if self.tabs[self.at].page.cancels.is_empty() {
            return;
        }
        let (id, run) = self.tabs[self.at].page.cancels.remove(0);
        let mut cancelled = false;
        for thread in self.server.threads.values_mut() {
            if let Some(turn) = thread.suspended.take_if(|turn| RunId::from(turn.assistant) == run) {
                Server::touch(thread, turn.assistant, |message| message.execution_status = Some(ExecutionStatus::Cancelled));
                cancelled = true;
            }
        }
        self.act(Input::CancelRunDone {
            id,
            outcome: if lost { Err(Failure::Broken) } else { Ok(RunCancelAnswer { cancelled }) },
        });
    }

    fn wait(&mut self, ms: Millis) {
        let end = self.tabs[self.at].page.now + ms;
        while let Some(&(at, id)) =
            self.tabs[self.at].page.timers.iter().filter(|timer| timer.0 <= end).min_by_key(|timer| timer.0)
        {
            self.tabs[self.at].page.now = self.tabs[self.at].page.now.max(at);
            self.tabs[self.at].page.timers.retain(|timer| timer.1 != id);
            self.act(Input::TimerFired { id });
        }
        self.tabs[self.at].page.now = end;
    }

    fn notify(&mut self, which: usize) {
        let updates: Vec<_> = self.server.threads.iter().map(|(id, thread)| update(*id, thread.revision)).collect();
        self.act(updates[which % updates.len()].clone());
    }

    fn reload(&mut self) {
        let thread = self.tabs[self.at].page.view().thread;
        self.tabs[self.at].streams.clear();
        self.tabs[self.at].page.stops.clear();
        self.tabs[self.at].page.cancels.clear();
        self.tabs[self.at].read_answer = None;
        self.tabs[self.at].asked.clear();
        self.tabs[self.at].wished.clear();
        let mut page = std::mem::take(&mut self.tabs[self.at].page);
        page.reload(None);
        // A machine that shows the new thread is left at once for the one that was shown: the checks of `act` apply to that.
        self.tabs[self.at].page = page;
        self.act(Input::Opened { thread });
    }

    fn step(&mut self, what: u8, which: usize) {
        let some_stream = |world: &Self| which.checked_rem(world.tabs[world.at].streams.len());
        match what {
            0 => {
                let text = format!("m{}", self.server.next());
                self.act(Input::DraftChanged(text));
            }
            1 => {
                let n = self.server.next();
                self.act(Input::SubmitPressed { message_id: message(0x100_0000 + n), thread_id: thread(0x1_0000 + n) });
            }
            2 => self.act(Input::StopPressed),
            3 => self.read(false),
            4 => self.read(true),
            5 => _ = some_stream(self).map(|at| self.serve(at)),
            6 | 7 => _ = some_stream(self).map(|at| self.deliver(at)),
            8 => self.write(which),
            9 => self.finish(which, ExecutionStatus::Success),
            10 => _ = some_stream(self).map(|at| self.cut(at)),
            11 => self.notify(which),
            12 => self.act(Input::Occasion([Occasion::TabVisible, Occasion::PushConnected][which % 2])),
            13 => {
                let id = thread((which % 2) as u128);
                let entry = &self.server.threads[&id];
                if entry.active.is_none() && entry.suspended.is_none() {
                    let n = self.server.next();
                    self.server.begin(id, message(0x200_0000 + n), "from another tab");
                }
            }
            14 => self.act(Input::Opened { thread: [Some(thread(0)), Some(thread(1)), None][which % 3] }),
            15 => self.reload(),
            16 => self.wait(500 * (which % 40) as Millis),
            17 => self.serve_stop(which.is_multiple_of(3)),
            18 => self.suspend(which),
            19 => {
                let open = self.tabs[self.at].page.view().interactions.into_iter().next();
                if let Some(open) = open {
                    self.act(Input::AnswerGiven { tool_call_id: open.suspension.tool_call_id, data: blue() });
                }
            }
            20 => self.serve_cancel(which.is_multiple_of(3)),
            // Whole stretches, so that longer stories come about.
            21 => (0..4).for_each(|part| self.step([0, 1, 5, 6][part], self.tabs[self.at].streams.len().saturating_sub(1))),
            _ => (0..4).for_each(|_| self.read(false)),
        }
    }

    /// The network is well, and the server ends what runs: the page comes to show the record.
    fn heal(&mut self) {
        for _ in 0..200 {
            while !self.tabs[self.at].page.stops.is_empty() {
                self.serve_stop(false);
            }
            while !self.tabs[self.at].page.cancels.is_empty() {
                self.serve_cancel(false);
            }
            for at in (0..self.tabs[self.at].streams.len()).rev() {
                self.serve(at);
            }
            while self.active_turn(0).is_some() {
                self.finish(0, ExecutionStatus::Success);
            }
            if self.tabs[self.at].streams.is_empty() && self.tabs[self.at].page.reads.is_empty() {
                break;
            }
            if !self.tabs[self.at].streams.is_empty() {
                self.deliver(0);
            }
            self.read(false);
        }
        self.act(Input::Occasion(Occasion::PushConnected));
        while !self.tabs[self.at].page.reads.is_empty() {
            self.read(false);
        }
        let view = self.tabs[self.at].page.view();
        assert_eq!(view.running, None);
        let Some(thread) = view.thread else { return };
        let recorded = &self.server.threads[&thread];
        assert!(view.messages().map(AsRef::as_ref).eq(&recorded.messages), "the page shows the record");
        assert_eq!((view.read_failure, view.load), (None, Load::Loaded));
        assert_eq!(view.interactions.len(), usize::from(recorded.suspended.is_some()));
        let expected = if recorded.suspended.is_some() {
            Some(SendBlocked::InteractionOpen)
        } else if view.draft.is_empty() {
            Some(SendBlocked::Empty)
        } else {
            None
        };
        assert_eq!(view.send_blocked, expected, "nothing is stuck");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_promises_hold_whatever_happens(steps in prop::collection::vec((0u8..23, 0usize..120, 0usize..2), 0..160)) {
        let mut world = World::new();
        for (what, which, at) in steps {
            world.at = at;
            world.step(what, which);
        }
        for at in [0, 1, 0] {
            world.at = at;
            world.heal();
        }
    }

    #[test]
    fn no_order_of_answers_and_events_is_too_odd(inputs in prop::collection::vec(nonsense(), 0..80)) {
        let mut machine = Machine::new();
        for (now, input) in inputs {
            machine.handle(now, input);
            let view = machine.view();
            let mut ids = HashSet::new();
            prop_assert!(view.messages().all(|message| ids.insert(message.id)));
            prop_assert!(view.live.is_none_or(|live| live.index < view.settled.len()));
        }
    }
}

/// Inputs of every kind, whose ids now and then are those of effects.
fn nonsense() -> impl Strategy<Value = (Millis, Input)> {
    let id = || (1u64..16).prop_map(EffectId);
    let some_thread = || (0u128..2).prop_map(thread);
    let failure = || {
        prop::sample::select(vec![
            Failure::Broken,
            Failure::Unreadable { status: 502 },
            refused(Code::NotFound),
            refused(Code::Unauthenticated),
            refused(Code::InteractionClosed),
            refused(Code::MessageAlreadyAccepted),
            refused(Code::TurnAlreadyRunning),
        ])
    };
    let event = || {
        (0usize..9, 1u128..4, some_thread()).prop_map(|(what, n, thread)| match what {
            0 | 1 => started(n, thread, message(n), message(n + 1)),
            2 => delta("x"),
            3 => done(n, thread, ExecutionStatus::Success),
            4 => Event::ToolCallSuspended { payload: question(n) },
            5 => {
                Event::ToolCall { tool_call_id: format!("call-{n}"), tool_name: "ask_user".into(), input: serde_json::json!({}) }
            }
            6 => Event::Error { message: "e".into(), error_code: None },
            7 => Event::ReasoningEnd { id: "t".into() },
            _ => Event::Warning { message: "w".into(), code: None },
        })
    };
    let read = || {
        (1u64..6, any::<bool>(), any::<bool>()).prop_map(|(revision, part, open)| {
            let whole = if open {
                waiting(revision)
            } else {
                running(2, snapshot(revision, vec![user(1, "a", revision), user(1, "b", revision)]))
            };
            if part { partial(whole) } else { whole }
        })
    };
    let person = prop_oneof![
        prop::option::of(some_thread()).prop_map(|thread| Input::Opened { thread }),
        Just(Input::Disposed),
        "[a-c]{0,2}".prop_map(Input::DraftChanged),
        (1u128..4, some_thread()).prop_map(|(n, thread_id)| Input::SubmitPressed { message_id: message(n), thread_id }),
        Just(Input::StopPressed),
        (1u128..5).prop_map(|n| Input::AnswerGiven { tool_call_id: format!("call-{n}"), data: blue() }),
        Just(Input::CancelSuspendedPressed),
        Just(Input::Occasion(Occasion::TabVisible)),
        (some_thread(), 0u64..6).prop_map(|(thread, revision)| update(thread, revision)),
    ];
    let answers = prop_oneof![
        (id(), read()).prop_map(|(id, read)| Input::ReadDone { id, outcome: Ok(Box::new(read)) }),
        (id(), failure()).prop_map(|(id, failure)| Input::ReadDone { id, outcome: Err(failure) }),
        (id(), failure()).prop_map(|(id, failure)| Input::StreamRefused { id, failure }),
        (id(), event()).prop_map(|(id, event)| Input::StreamBytes { id, bytes: sse(&event) }),
        (id(), event()).prop_map(|(id, event)| Input::StreamBytes { id, bytes: sse(&event) }),
        (id(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(id, bytes)| Input::StreamBytes { id, bytes }),
        id().prop_map(|id| Input::StreamEnded { id }),
        id().prop_map(|id| Input::TimerFired { id }),
        (id(), any::<bool>())
            .prop_map(|(id, cancel_requested)| Input::StopDone { id, outcome: Ok(CancelAnswer { cancel_requested }) }),
        (id(), any::<bool>()).prop_map(|(id, cancelled)| Input::CancelRunDone { id, outcome: Ok(RunCancelAnswer { cancelled }) }),
        id().prop_map(|id| Input::DraftLoaded { id, draft: None }),
    ];
    (-100_000i64..100_000, prop_oneof![person, answers])
}
