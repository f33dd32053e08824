//! What a running turn writes: text, reasoning, tool calls and questions, step by step.

use turnfast_shared::{
    Event, ExecutionStatus,
    api::ResumeRequest,
    event::Suspension,
    ids::{ExecutionId, MessageId, ThreadId},
    message::{SuspendPayload, ToolCall},
    timeline::Timeline,
};

use super::{network::ConnId, rng::Rng, server::Server};

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) execution: ExecutionId,
    pub(super) thread: ThreadId,
    pub(super) assistant: MessageId,
    pub(super) timeline: Timeline,
    /// The connection that gets live events.
    pub(super) reader: Option<ConnId>,
    pub(super) stop_asked: bool,
    pub(super) unrecorded: bool,
    steps_left: usize,
    parts_said: usize,
    open: Open,
    /// The answer that resumed it, to be said first.
    answer: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Reasoning,
    Called,
    Running,
}

const TOOL: &str = "clock";
const QUESTION: &str = "ask_user";

impl Turn {
    pub(super) fn new(
        execution: ExecutionId,
        thread: ThreadId,
        assistant: MessageId,
        timeline: Timeline,
        reader: Option<ConnId>,
        rng: &mut Rng,
    ) -> Self {
        Self {
            execution,
            thread,
            assistant,
            timeline,
            reader,
            stop_asked: false,
            unrecorded: false,
            steps_left: rng.below(14),
            parts_said: 0,
            open: Open::Nothing,
            answer: None,
        }
    }

    pub(super) fn answers(&mut self, request: &ResumeRequest, rng: &mut Rng) {
        self.answer = Some(Event::ToolResult {
            tool_call_id: request.tool_call_id.clone(),
            tool_name: QUESTION.to_owned(),
            output: "blue".into(),
            is_error: None,
            canceled: None,
        });
        // As the record has it from the resumption's commit on; the live stream says it too.
        if let (Some(answer), true) = (&self.answer, rng.percent(50)) {
            self.timeline.apply(answer, 0);
        }
    }

    pub(super) fn suspensions(&self) -> Vec<Suspension> {
        self.timeline.suspended().map(|call| self.suspension(call)).collect()
    }

    fn suspension(&self, call: &ToolCall) -> Suspension {
        Suspension {
            tool_call_id: call.tool_call_id.clone(),
            run_id: self.assistant.into(),
            tool_name: call.tool_name.clone(),
            input: call.input.clone(),
            suspend_payload: call.suspend_payload.clone(),
        }
    }

    fn id(&self, kind: &str) -> String {
        format!("{kind}-{}-{}", self.execution, self.parts_said)
    }
}

impl Server {
    /// One step of a running turn; how many steps it may still take is bounded. Returns whether it goes on.
    pub(super) fn work(&mut self, execution: ExecutionId, rng: &mut Rng) -> bool {
        let Some(turn) = self.turns.get_mut(&execution) else { return false };
        if turn.stop_asked {
            self.end(execution, ExecutionStatus::Cancelled);
            return false;
        }
        if let Some(answer) = turn.answer.take() {
            self.say(execution, answer);
            return true;
        }
        if turn.timeline.suspended().next().is_some() {
            // One of several questions is answered: the others still wait.
            let rest = if rng.percent(50) { turn.suspensions() } else { Vec::new() };
            for payload in rest {
                self.say(execution, Event::ToolCallSuspended { payload });
            }
            self.end(execution, ExecutionStatus::Suspended);
            return false;
        }
        let Some(steps_left) = turn.steps_left.checked_sub(1) else {
            self.come_to_an_end(execution, rng);
            return false;
        };
        turn.steps_left = steps_left;
        let (open, next, events) = step(turn, rng);
        turn.open = open;
        turn.parts_said += next;
        for event in events {
            self.say(execution, event);
        }
        true
    }

    fn come_to_an_end(&mut self, execution: ExecutionId, rng: &mut Rng) {
        match rng.below(10) {
            0..=5 => self.end(execution, ExecutionStatus::Success),
            6 => {
                self.say(execution, Event::Error { message: "The provider is down.".to_owned(), error_code: None });
                self.end(execution, ExecutionStatus::Error);
            }
            _ => {
                for _ in 0..rng.weighted(&[(4, 1), (1, 2)]) {
                    self.ask(execution);
                }
                self.end(execution, ExecutionStatus::Suspended);
            }
        }
    }

    fn ask(&mut self, execution: ExecutionId) {
        let Some(turn) = self.turns.get_mut(&execution) else { return };
        turn.parts_said += 1;
        let payload = Suspension {
            tool_call_id: turn.id("ask"),
            run_id: turn.assistant.into(),
            tool_name: QUESTION.to_owned(),
            input: serde_json::json!({}),
            suspend_payload: Some(SuspendPayload::Question { question: "Which?".to_owned(), options: None, free_text: None }),
        };
        let input = payload.input.clone();
        let call = Event::ToolCall { tool_call_id: payload.tool_call_id.clone(), tool_name: QUESTION.to_owned(), input };
        self.say(execution, call);
        self.say(execution, Event::ToolCallSuspended { payload });
    }
}

/// What comes next: what is open then, how many parts are complete with it, what is said.
fn step(turn: &Turn, rng: &mut Rng) -> (Open, usize, Vec<Event>) {
    // Of several bytes per character, so that a cut can fall inside of one.
    let delta = rng.pick(&["Grüße ", "日本 ", "😀 ", "plain ", "a longer stretch of text, so that a slow reader falls behind, "]);
    let delta = delta.unwrap_or_default().to_owned();
    let goes_on = rng.percent(70);
    match turn.open {
        Open::Text if goes_on => (Open::Text, 0, vec![Event::TextDelta { id: turn.id("text"), delta }]),
        Open::Text => (Open::Nothing, 1, vec![Event::TextEnd { id: turn.id("text") }]),
        Open::Reasoning if goes_on => (Open::Reasoning, 0, vec![Event::ReasoningDelta { id: turn.id("why"), delta }]),
        Open::Reasoning => (Open::Nothing, 1, vec![Event::ReasoningEnd { id: turn.id("why") }]),
        Open::Called => {
            let start = Event::ToolExecutionStart { tool_call_id: turn.id("call"), tool_name: TOOL.to_owned(), start_time: 0 };
            (Open::Running, 0, vec![start])
        }
        Open::Running => {
            let (tool_call_id, tool_name) = (turn.id("call"), TOOL.to_owned());
            let ended = Event::ToolExecutionEnd {
                tool_call_id: tool_call_id.clone(),
                tool_name: tool_name.clone(),
                is_error: false,
                end_time: 0,
            };
            let output = "noon".into();
            let result = Event::ToolResult { tool_call_id, tool_name, output, is_error: None, canceled: None };
            (Open::Nothing, 1, vec![ended, result])
        }
        Open::Nothing => match rng.below(4) {
            0 => {
                let id = turn.id("why");
                let begin = Event::ReasoningStart { id: id.clone() };
                (Open::Reasoning, 0, vec![begin, Event::ReasoningDelta { id, delta }])
            }
            1 => {
                let (tool_call_id, tool_name) = (turn.id("call"), TOOL.to_owned());
                let begin = Event::ToolInputStart { tool_call_id: tool_call_id.clone(), tool_name: tool_name.clone() };
                let call = Event::ToolCall { tool_call_id, tool_name, input: serde_json::json!({ "zone": "Europe/Zürich" }) };
                (Open::Called, 0, vec![begin, call])
            }
            _ => {
                let id = turn.id("text");
                (Open::Text, 0, vec![Event::TextStart { id: id.clone() }, Event::TextDelta { id, delta }])
            }
        },
    }
}
