//! Events to parts: the ONE reducer of Turnfast. The recorder runs it to know what to write, the browser to know what to show.
//!
//! It is pure: the time of an event is an argument. It tells after each event which part changed and whether that was a boundary,
//! so that the recorder writes no more than what changed, and the view renders no more than one part.

use serde_json::Value;

use crate::{
    Millis,
    event::Event,
    few::Few,
    limits::CHILD_TRACE_CHARS,
    message::{ChildStep, ChildTrace, ExecutionStatus, Part, ToolCall, ToolState},
};

/// What one event did to the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The part it touched, if any.
    pub part: Option<usize>,
    /// Whether all it did was append to that part's text.
    pub appended: bool,
    /// Whether it is to be recorded at once: a part ended, a tool started or ended, a suspension (contract 1, section 5).
    pub boundary: bool,
}

impl Applied {
    const NOTHING: Self = Self { part: None, appended: false, boundary: false };

    fn changed(part: usize) -> Self {
        Self { part: Some(part), appended: false, boundary: false }
    }

    fn appended(part: usize) -> Self {
        Self { part: Some(part), appended: true, boundary: false }
    }

    fn boundary(part: usize) -> Self {
        Self { part: Some(part), appended: false, boundary: true }
    }
}

/// The parts of one assistant message while it is written.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    parts: Vec<Part>,
    /// Open text and reasoning by stream id; `None`: started, and empty so far. Text and reasoning have separate ids.
    text: Few<String, Option<usize>>,
    reasoning: Few<String, Option<usize>>,
    tools: Few<String, usize>,
    children: Few<usize, ChildProgress>,
    /// Steps that have begun, of earlier executions too, and whether the last one is open.
    steps: u64,
    step_open: bool,
}

/// What a delegation has spent, and whether its current stretch of reasoning already has a segment.
#[derive(Clone, Debug, Default)]
struct ChildProgress {
    chars: usize,
    reasoning_open: bool,
}

impl Timeline {
    /// An empty message.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A message that earlier executions wrote to: this one goes on behind what is there.
    #[must_use]
    pub fn from_parts(parts: Vec<Part>) -> Self {
        let mut tools = Few::default();
        let mut children = Few::default();
        for (index, call) in parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.as_tool_call()?))) {
            tools.insert(call.tool_call_id.clone(), index);
            if let Some(trace) = &call.child_trace {
                let chars = trace.text.chars().count()
                    + trace.reasoning_segments.iter().map(|segment| segment.chars().count()).sum::<usize>();
                children.insert(index, ChildProgress { chars, reasoning_open: false });
            }
        }
        let steps = parts.iter().filter_map(|part| part.as_tool_call()?.step).max().unwrap_or(0);
        Self { parts, tools, children, steps, ..Self::default() }
    }

    /// The parts so far.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parts, when nothing more will come.
    #[must_use]
    pub fn into_parts(self) -> Vec<Part> {
        self.parts
    }

    /// The tool call of that id.
    #[must_use]
    pub fn tool_call(&self, tool_call_id: &str) -> Option<&ToolCall> {
        self.tools.get(tool_call_id).and_then(|&index| self.parts[index].as_tool_call())
    }

    /// Tool calls that wait for a person, in order.
    pub fn suspended(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_tool_call).filter(|call| call.state == ToolState::Suspended)
    }

    /// Applies one event that happened at `at`.
    ///
    /// Events that repeat, come late or name nothing known change nothing: a settled tool call keeps its result, an ended text
    /// takes no more.
    pub fn apply(&mut self, event: &Event, at: Millis) -> Applied {
        match event {
            Event::TextStart { id } => {
                self.text.get_or_insert(id.as_str(), None);
                Applied::NOTHING
            }
            Event::TextDelta { id, delta } => self.append(false, id, delta, at),
            Event::TextEnd { id } => match self.text.remove(id.as_str()) {
                Some(Some(index)) => Applied::boundary(index),
                _ => Applied::NOTHING,
            },
            Event::ReasoningStart { id } => {
                self.reasoning.get_or_insert(id.as_str(), None);
                Applied::NOTHING
            }
            Event::ReasoningDelta { id, delta } => self.append(true, id, delta, at),
            Event::ReasoningEnd { id } => match self.reasoning.remove(id.as_str()) {
                Some(Some(index)) => {
                    if let Part::Reasoning { end_time, .. } = &mut self.parts[index] {
                        *end_time = Some(at);
                    }
                    Applied::boundary(index)
                }
                _ => Applied::NOTHING,
            },
            Event::ToolInputStart { tool_call_id, tool_name } => {
                if self.tools.has(tool_call_id.as_str()) {
                    return Applied::NOTHING;
                }
                Applied::changed(self.add_tool(tool_call_id, tool_name, ToolState::InputStreaming, at))
            }
            Event::ToolCall { tool_call_id, tool_name, input } => {
                let index = match self.tools.get(tool_call_id.as_str()) {
                    Some(&index) => index,
                    None => self.add_tool(tool_call_id, tool_name, ToolState::InputStreaming, at),
                };
                self.update_tool(index, |call| {
                    (call.state == ToolState::InputStreaming).then(|| {
                        call.input = input.clone();
                        call.state = ToolState::Pending;
                        Applied::changed(index)
                    })
                })
            }
            Event::ToolExecutionStart { tool_call_id, start_time, .. } => self.with_tool(tool_call_id, |index, call| {
                call.state = ToolState::Running;
                call.start_time = *start_time;
                Applied::boundary(index)
            }),
            Event::ToolExecutionEnd { tool_call_id, end_time, .. } => self.with_tool(tool_call_id, |index, call| {
                call.end_time = Some(*end_time);
                Applied::boundary(index)
            }),
            Event::ToolResult { tool_call_id, output, is_error, canceled, .. } => self.with_tool(tool_call_id, |index, call| {
                settle(call, output, is_error == &Some(true), canceled == &Some(true));
                call.end_time.get_or_insert(at);
                Applied::boundary(index)
            }),
            Event::ToolCallSuspended { payload } => self.with_tool(&payload.tool_call_id, |index, call| {
                call.state = ToolState::Suspended;
                call.suspend_payload.clone_from(&payload.suspend_payload);
                Applied::boundary(index)
            }),
            Event::SubagentChunk { parent_tool_call_id, task_path, chunk } => {
                self.apply_child(parent_tool_call_id, task_path, chunk)
            }
            Event::StartStep => {
                self.steps += 1;
                self.step_open = true;
                Applied::NOTHING
            }
            Event::FinishStep { .. } => {
                self.step_open = false;
                Applied::NOTHING
            }
            Event::ExecutionStarted { .. }
            | Event::ToolInputDelta { .. }
            | Event::Warning { .. }
            | Event::Error { .. }
            | Event::Done { .. } => Applied::NOTHING,
        }
    }

    /// Takes back a suspension that no reader was told of and none will be: the call is as it was before.
    pub fn withdraw_suspension(&mut self, tool_call_id: &str) {
        self.with_tool(tool_call_id, |index, call| {
            call.state = ToolState::Pending;
            call.suspend_payload = None;
            Applied::changed(index)
        });
    }

    /// The events that bring an unfinished message to rest when its execution ends with `status` at `at`: open text and reasoning
    /// end, tools that run end, tool calls without a result get one that says why, an open step is finished. The caller applies and
    /// sends them, so that the live stream and the record agree on the ending too. After a suspension the suspended calls stay.
    #[must_use]
    pub fn closing_events(&self, status: ExecutionStatus, at: Millis) -> Vec<Event> {
        let mut open_text: Vec<_> = self.text.iter().map(|(id, index)| (*index, id)).collect();
        let mut open_reasoning: Vec<_> = self.reasoning.iter().map(|(id, index)| (*index, id)).collect();
        open_text.sort_unstable();
        open_reasoning.sort_unstable();
        let mut events: Vec<_> = open_reasoning
            .into_iter()
            .map(|(_, id)| Event::ReasoningEnd { id: id.clone() })
            .chain(open_text.into_iter().map(|(_, id)| Event::TextEnd { id: id.clone() }))
            .collect();
        for call in self.parts.iter().filter_map(Part::as_tool_call) {
            let stays = status == ExecutionStatus::Suspended && call.state == ToolState::Suspended;
            if call.state.is_settled() || stays {
                continue;
            }
            if call.state == ToolState::Running && call.end_time.is_none() {
                events.push(Event::ToolExecutionEnd {
                    tool_call_id: call.tool_call_id.clone(),
                    tool_name: call.tool_name.clone(),
                    is_error: true,
                    end_time: at,
                });
            }
            let (why, is_error, canceled) = match status {
                ExecutionStatus::Cancelled => ("The turn was stopped before this call ended.", None, Some(true)),
                ExecutionStatus::Interrupted if call.state == ToolState::Running => {
                    ("The server stopped while this call ran; whether it took effect is not known.", Some(true), None)
                }
                _ => ("The turn ended before this call did.", Some(true), None),
            };
            events.push(Event::ToolResult {
                tool_call_id: call.tool_call_id.clone(),
                tool_name: call.tool_name.clone(),
                output: Value::String(why.to_owned()),
                is_error,
                canceled,
            });
        }
        if self.step_open {
            events.push(Event::FinishStep { usage: None });
        }
        events
    }

    fn append(&mut self, reasoning: bool, id: &str, delta: &str, at: Millis) -> Applied {
        if delta.is_empty() {
            return Applied::NOTHING;
        }
        let open = if reasoning { &mut self.reasoning } else { &mut self.text };
        // A delta whose start was not seen opens its part all the same: half a stream is better than none.
        let slot = open.get_or_insert(id, None);
        if let Some(index) = *slot {
            if let Part::Text { text } | Part::Reasoning { text, .. } = &mut self.parts[index] {
                text.push_str(delta);
            }
            return Applied::appended(index);
        }
        let index = self.parts.len();
        *slot = Some(index);
        self.parts.push(if reasoning {
            Part::Reasoning { text: delta.to_owned(), start_time: at, end_time: None }
        } else {
            Part::Text { text: delta.to_owned() }
        });
        Applied::changed(index)
    }

    fn add_tool(&mut self, id: &str, name: &str, state: ToolState, at: Millis) -> usize {
        let index = self.parts.len();
        self.parts.push(Part::ToolCall(ToolCall {
            tool_call_id: id.to_owned(),
            tool_name: name.to_owned(),
            input: Value::Null,
            state,
            output: None,
            error: None,
            start_time: at,
            end_time: None,
            step: (self.steps > 0).then_some(self.steps),
            suspend_payload: None,
            child_trace: None,
        }));
        self.tools.insert(id.to_owned(), index);
        index
    }

    fn update_tool(&mut self, index: usize, change: impl FnOnce(&mut ToolCall) -> Option<Applied>) -> Applied {
        match &mut self.parts[index] {
            Part::ToolCall(call) => change(call).unwrap_or(Applied::NOTHING),
            _ => Applied::NOTHING,
        }
    }

    /// Changes a known tool call that has no result yet.
    fn with_tool(&mut self, id: &str, change: impl FnOnce(usize, &mut ToolCall) -> Applied) -> Applied {
        let Some(&index) = self.tools.get(id) else { return Applied::NOTHING };
        self.update_tool(index, |call| (!call.state.is_settled()).then(|| change(index, call)))
    }

    /// A child's event. Only a direct child's text and tool calls are recorded: a grandchild shows in its parent's trace as the
    /// `delegate` step it is, and its text reaches the record as that step's result.
    fn apply_child(&mut self, parent: &str, task_path: &[String], chunk: &Event) -> Applied {
        if task_path.len() > 1 {
            return Applied::NOTHING;
        }
        let Some(&index) = self.tools.get(parent) else { return Applied::NOTHING };
        let Part::ToolCall(call) = &mut self.parts[index] else { return Applied::NOTHING };
        if call.state.is_settled() {
            return Applied::NOTHING;
        }
        let progress = self.children.get_or_insert(&index, ChildProgress::default());
        let trace = call.child_trace.get_or_insert_default();
        if apply_to_trace(trace, progress, chunk) { Applied::changed(index) } else { Applied::NOTHING }
    }
}

/// The parts of a message that nobody writes any more, brought to rest as [`Timeline::closing_events`] says.
#[must_use]
pub fn closed(parts: Vec<Part>, status: ExecutionStatus, at: Millis) -> Vec<Part> {
    let mut timeline = Timeline::from_parts(parts);
    for event in timeline.closing_events(status, at) {
        timeline.apply(&event, at);
    }
    let mut parts = timeline.into_parts();
    for part in &mut parts {
        if let Part::Reasoning { end_time, .. } = part {
            end_time.get_or_insert(at);
        }
    }
    parts
}

fn settle(call: &mut ToolCall, output: &Value, is_error: bool, canceled: bool) {
    if canceled {
        call.state = ToolState::Cancelled;
    } else if is_error {
        call.state = ToolState::Rejected;
        call.error = Some(output.as_str().map_or_else(|| output.to_string(), str::to_owned));
    } else {
        call.state = ToolState::Resolved;
        call.output = Some(output.clone());
    }
    if let Some(trace) = &mut call.child_trace {
        for step in &mut trace.steps {
            step.running = false;
        }
    }
}

/// Whether the trace changed.
fn apply_to_trace(trace: &mut ChildTrace, progress: &mut ChildProgress, chunk: &Event) -> bool {
    match chunk {
        Event::TextDelta { delta, .. } => {
            let kept = within_budget(progress, delta);
            trace.text.push_str(kept);
            !kept.is_empty()
        }
        Event::ReasoningStart { .. } | Event::ReasoningEnd { .. } => {
            progress.reasoning_open = false;
            false
        }
        Event::ReasoningDelta { delta, .. } => {
            let kept = within_budget(progress, delta);
            if kept.is_empty() {
                return false;
            }
            match trace.reasoning_segments.last_mut() {
                Some(segment) if progress.reasoning_open => segment.push_str(kept),
                _ => trace.reasoning_segments.push(kept.to_owned()),
            }
            progress.reasoning_open = true;
            true
        }
        Event::ToolInputStart { tool_call_id, tool_name } | Event::ToolCall { tool_call_id, tool_name, .. } => {
            if trace.steps.iter().any(|step| step.tool_call_id == *tool_call_id) {
                return false;
            }
            trace.steps.push(ChildStep { tool_call_id: tool_call_id.clone(), tool_name: tool_name.clone(), running: true });
            true
        }
        Event::ToolResult { tool_call_id, .. } => match trace.steps.iter_mut().find(|step| step.tool_call_id == *tool_call_id) {
            Some(step) if step.running => {
                step.running = false;
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// The start of `delta` that the delegation may still record.
fn within_budget<'d>(progress: &mut ChildProgress, delta: &'d str) -> &'d str {
    let left = CHILD_TRACE_CHARS.saturating_sub(progress.chars);
    let (kept, chars) = match delta.char_indices().nth(left) {
        Some((end, _)) => (&delta[..end], left),
        None => (delta, delta.chars().count()),
    };
    progress.chars += chars;
    kept
}

#[cfg(test)]
mod tests;
