//! The loop of every native agent: ask the model, run what it calls, ask again, until it calls nothing.
//!
//! A tool runs only while the stream is polled, and not before its [`Event::ToolExecutionStart`] was taken: whoever polls decides
//! when that is recorded. Nothing is spawned, so dropping the stream stops the model and every tool, children included.
//!
//! What an earlier execution left open is never run again in silence. A call without a result after a crash becomes an error that
//! the model reads; a call that waits for a person waits on.
//!
//! A reply that the provider's content filter stopped is an error of the turn, so that the record says why it ends; a reply that
//! reached the length limit is complete as far as it goes, and a warning says so.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fmt, mem,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use async_stream::{stream, try_stream};
use futures::{
    StreamExt,
    future::join_all,
    stream::{BoxStream, SelectAll},
};
use serde_json::{Value, json};
use tracing::Instrument as _;
use turnfast_shared::{
    Event, Part, ToolState,
    event::{Suspension, Usage},
    ids::{RunId, Slug},
    limits::JSON_DEPTH,
    message::{ResumeData, SuspendPayload, ToolCall},
};

use super::{
    Engine, EventStream, TurnError, TurnInput,
    conversation::{self, Call, Item, Outcome},
    model::{FinishReason, Model, ModelEvent, ModelRequest, ToolDefinition},
    tools::{Tool, ToolContext, ToolEvent, ToolSource},
};
use crate::{SPANS, clock};

/// Steps that one run of an agent may take.
pub const STEPS_PER_RUN: u32 = 50;

/// Steps that an execution may take together with all its children.
pub const STEPS_PER_EXECUTION: u32 = 250;

/// How many delegations may lie within each other.
pub const DELEGATION_DEPTH: usize = 4;

/// Tool calls of one step that run at the same time; more wait for their turn.
pub const CONCURRENT_CALLS: usize = 8;

/// Longest id of a provider's tool call that is taken as it is, in bytes.
const CALL_ID_BYTES: usize = 128;

/// A native agent, ready to run.
pub struct NativeAgent {
    /// Its model.
    pub model: Arc<dyn Model>,
    /// Its system prompt.
    pub instructions: Option<String>,
    /// What it may call.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Where it has more tools from.
    pub sources: Vec<Arc<dyn ToolSource>>,
    /// Names of tools whose calls wait for a person. A tool that asks a person by itself needs no approval on top.
    pub approve: BTreeSet<String>,
}

/// Agents by project and id. An `Err` says why an agent cannot run.
pub type Agents = BTreeMap<(Slug, Slug), Result<Arc<NativeAgent>, String>>;

/// The native agents, for delegation. It is filled once all agents are made, since they may delegate to each other.
#[derive(Default)]
pub struct Roster(OnceLock<Agents>);

impl Roster {
    /// Fills the roster. Later calls change nothing.
    pub fn fill(&self, agents: Agents) {
        let _ = self.0.set(agents);
    }

    /// An agent to delegate to.
    ///
    /// # Errors
    /// Why it cannot be used, for the model.
    pub fn get(&self, project: &Slug, agent: &Slug) -> Result<Arc<NativeAgent>, String> {
        match self.0.get().and_then(|agents| agents.get(&(project.clone(), agent.clone()))) {
            Some(found) => found.clone(),
            None => Err(format!("There is no agent `{agent}` to delegate to.")),
        }
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.get().into_iter().flat_map(BTreeMap::keys)).finish()
    }
}

/// Where a run of an agent stands: at the top of a turn, or below a delegation.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The thread's project.
    pub project: Slug,
    /// Who can be delegated to.
    pub roster: Arc<Roster>,
    /// The turn; `None` below a delegation.
    run: Option<RunId>,
    /// Delegations above this run.
    depth: usize,
    /// What is left of [`STEPS_PER_EXECUTION`].
    steps_left: Arc<AtomicU32>,
}

impl Scope {
    /// The scope of a turn's own agent.
    #[must_use]
    pub fn of_turn(project: Slug, roster: Arc<Roster>, run: RunId) -> Self {
        Self { project, roster, run: Some(run), depth: 0, steps_left: Arc::new(AtomicU32::new(STEPS_PER_EXECUTION)) }
    }

    /// The scope of a child; `None` where delegations are nested as deeply as they may be.
    #[must_use]
    pub fn child(&self) -> Option<Self> {
        (self.depth < DELEGATION_DEPTH).then(|| Self { run: None, depth: self.depth + 1, ..self.clone() })
    }

    fn take_step(&self) -> bool {
        self.steps_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// What a run starts from.
#[derive(Debug, Default)]
pub struct Start {
    /// What was said before.
    pub conversation: Vec<Item>,
    /// What earlier executions of the turn recorded.
    pub so_far: Vec<Part>,
    /// Answers to suspended calls of `so_far`.
    pub answers: Vec<(String, ResumeData)>,
}

/// Runs a [`NativeAgent`] as an [`Engine`].
pub struct NativeEngine {
    agent: Arc<NativeAgent>,
    roster: Arc<Roster>,
}

impl NativeEngine {
    /// An engine for `agent`, which may delegate to those on the roster.
    #[must_use]
    pub fn new(agent: Arc<NativeAgent>, roster: Arc<Roster>) -> Self {
        Self { agent, roster }
    }
}

impl Engine for NativeEngine {
    fn start(&self, input: TurnInput) -> EventStream {
        let TurnInput { project, run, history, attachments, so_far, answers, .. } = input;
        Run {
            agent: Arc::clone(&self.agent),
            scope: Scope::of_turn(project, Arc::clone(&self.roster), run),
            start: Start { conversation: conversation::of_history(&history, &attachments), so_far, answers },
        }
        .into_stream()
    }

    fn reads_attachments(&self) -> bool {
        self.agent.model.reads_files()
    }
}

/// One run of an agent.
pub struct Run {
    /// The agent.
    pub agent: Arc<NativeAgent>,
    /// Where it runs.
    pub scope: Scope,
    /// What it starts from.
    pub start: Start,
}

impl Run {
    /// The events of the run.
    #[must_use]
    pub fn into_stream(self) -> EventStream {
        let Self { agent, scope, start: Start { mut conversation, so_far, answers } } = self;
        try_stream! {
            let mut toolbox = Toolbox::new(Arc::clone(&agent), scope.clone());
            for warning in toolbox.refresh().await {
                yield warning;
            }
            let mut ids = CallIds::new(&so_far);
            let mut parts = PartIds::default();
            let mut buffer = Vec::new();

            let Left { mut settled, approved, waiting, words } = left_open(&so_far, answers);
            for (call, outcome) in &settled {
                yield result_event(call, outcome);
            }
            let mut work = toolbox.start(approved);
            while let Some(progress) = work.next().await {
                match progress {
                    Progress::Event(event) => yield event,
                    Progress::Settled(call, outcome) => settled.push((call, outcome)),
                }
            }
            if !waiting.is_empty() {
                for (call, payload) in waiting {
                    if let Some(event) = toolbox.suspension(call, payload) {
                        yield event;
                    }
                }
                return;
            }
            let settled = settled.into_iter().map(|(call, outcome)| (call.id, outcome)).collect();
            conversation::push_so_far(&mut conversation, &so_far, &settled);
            conversation.extend(words.into_iter().map(Item::person));
            let resumed = !so_far.is_empty();
            drop(so_far);

            for step in 0.. {
                if step == STEPS_PER_RUN || !scope.take_step() {
                    Err(TurnError {
                        message: "The agent took too many steps without coming to an end, so it was ended. What it wrote is kept; \
                                  send a message to go on."
                            .to_owned(),
                        code: Some("too_many_steps"),
                    })?;
                }
                if step > 0 {
                    for warning in toolbox.refresh().await {
                        yield warning;
                    }
                }
                yield Event::StartStep;
                let request = ModelRequest {
                    instructions: agent.instructions.as_deref(),
                    conversation: &conversation,
                    tools: &toolbox.definitions,
                };
                let mut answer = agent.model.stream(request);
                let mut writer = Step::new(&mut ids, &mut parts);
                let mut failure = None;
                while let Some(event) = answer.next().await {
                    match event {
                        Ok(event) => writer.take(event, &mut buffer),
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    }
                    for event in buffer.drain(..) {
                        yield event;
                    }
                }
                drop(answer);
                writer.close(&mut buffer);
                for event in buffer.drain(..) {
                    yield event;
                }
                let Step { text, calls, usage, finish, .. } = writer;
                yield Event::FinishStep { usage };
                if let Some(failure) = failure {
                    Err(failure)?;
                }
                match finish {
                    Some(FinishReason::ContentFilter) => Err(TurnError {
                        message: "The provider's content filter stopped this reply. What was written is kept; put the request in \
                                  other words, or use another model."
                            .to_owned(),
                        code: Some("content_filter"),
                    })?,
                    Some(FinishReason::Length) => yield Event::Warning {
                        message: "The reply reached the provider's length limit and is cut off.".to_owned(),
                        code: Some("length".to_owned()),
                    },
                    Some(FinishReason::Stop) | None => {}
                }
                if calls.is_empty() {
                    if step == 0 && !resumed && text.is_empty() && finish != Some(FinishReason::Length) {
                        yield Event::Warning {
                            message: "The model answered with nothing.".to_owned(),
                            code: Some("empty_reply".to_owned()),
                        };
                    }
                    return;
                }

                let mut outcomes = HashMap::new();
                let mut ready = Vec::new();
                let mut waiting = Vec::new();
                let mut asked = Vec::with_capacity(calls.len());
                for StepCall { id, name, input } in calls {
                    let call = CallRef { id, name, input: recorded_input(&input) };
                    match toolbox.admit(&call, input) {
                        Admission::Run => ready.push(call.clone()),
                        Admission::Ask(payload) => waiting.push((call.clone(), Some(payload))),
                        Admission::Refuse(why) => {
                            let outcome = Outcome::error(why);
                            yield result_event(&call, &outcome);
                            outcomes.insert(call.id.clone(), outcome);
                        }
                    }
                    asked.push(call);
                }
                let mut work = toolbox.start(ready);
                while let Some(progress) = work.next().await {
                    match progress {
                        Progress::Event(event) => yield event,
                        Progress::Settled(call, outcome) => {
                            outcomes.insert(call.id, outcome);
                        }
                    }
                }
                if !waiting.is_empty() {
                    for (call, payload) in waiting {
                        if let Some(event) = toolbox.suspension(call, payload) {
                            yield event;
                        }
                    }
                    return;
                }
                let calls = asked
                    .into_iter()
                    .map(|CallRef { id, name, input }| {
                        let outcome = outcomes.remove(&id).unwrap_or_else(|| Outcome::error("It gave no result."));
                        Call { id, name, input, outcome }
                    })
                    .collect();
                conversation.push(Item::Agent { text, calls });
            }
        }
        .boxed()
    }
}

/// A complete tool call.
#[derive(Clone, Debug)]
struct CallRef {
    id: String,
    name: String,
    input: Value,
}

/// What earlier executions left open, sorted by what is to happen.
struct Left {
    settled: Vec<(CallRef, Outcome)>,
    approved: Vec<CallRef>,
    waiting: Vec<(CallRef, Option<SuspendPayload>)>,
    /// What people said along with an approval. The model hears it behind the results.
    words: Vec<String>,
}

fn left_open(so_far: &[Part], answers: Vec<(String, ResumeData)>) -> Left {
    let mut answers: HashMap<String, ResumeData> = answers.into_iter().collect();
    let mut left = Left { settled: Vec::new(), approved: Vec::new(), waiting: Vec::new(), words: Vec::new() };
    for call in so_far.iter().filter_map(Part::as_tool_call) {
        let ToolCall { tool_call_id: id, tool_name: name, input, .. } = call;
        let reference = CallRef { id: id.clone(), name: name.clone(), input: input.clone() };
        let outcome = match call.state {
            ToolState::Resolved | ToolState::Rejected | ToolState::Cancelled => continue,
            ToolState::InputStreaming => Outcome::error("Interrupted before the call was complete. It did not run."),
            ToolState::Pending => Outcome::error("Interrupted before this call started. It did not run."),
            ToolState::Running => Outcome::error("Interrupted while this call ran. It is unknown whether it took effect."),
            ToolState::Suspended => {
                let answer =
                    answers.remove(id).filter(|data| call.suspend_payload.as_ref().is_some_and(|p| p.accepts(data).is_ok()));
                match answer {
                    None => {
                        left.waiting.push((reference, call.suspend_payload.clone()));
                        continue;
                    }
                    Some(ResumeData::Approval { approved: true, reason }) => {
                        if let Some(reason) = stated(reason.as_deref()) {
                            left.words.push(format!("(I allowed the call of {name} and say: {reason})"));
                        }
                        left.approved.push(reference);
                        continue;
                    }
                    Some(ResumeData::Approval { approved: false, reason }) => Outcome::error(match stated(reason.as_deref()) {
                        Some(reason) => format!("Denied by the user: {reason}"),
                        None => "Denied by the user.".to_owned(),
                    }),
                    Some(ResumeData::Answer { answer }) => Outcome::ok(json!({"answer": answer})),
                }
            }
        };
        left.settled.push((reference, outcome));
    }
    left
}

/// A reason, where there is one.
fn stated(reason: Option<&str>) -> Option<&str> {
    reason.map(str::trim).filter(|reason| !reason.is_empty())
}

/// Text that is no JSON is recorded as a JSON string, so that a person can see it.
fn recorded_input(input: &Result<Value, String>) -> Value {
    match input {
        Ok(input) => input.clone(),
        Err(text) => Value::String(text.clone()),
    }
}

/// Whether `value` has more than so many levels of arrays and objects.
fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(values) => values.iter().any(|value| is_deeper(value, levels - 1)),
        Value::Object(fields) => fields.values().any(|value| is_deeper(value, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn result_event(call: &CallRef, outcome: &Outcome) -> Event {
    Event::ToolResult {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        output: outcome.output.clone(),
        is_error: outcome.is_error.then_some(true),
        canceled: None,
    }
}

/// What is to happen with a call.
enum Admission {
    Run,
    Ask(SuspendPayload),
    Refuse(String),
}

enum Progress {
    Event(Event),
    Settled(CallRef, Outcome),
}

/// The tools of one run.
struct Toolbox {
    agent: Arc<NativeAgent>,
    scope: Scope,
    tools: Vec<Arc<dyn Tool>>,
    /// Of `tools`.
    definitions: Vec<ToolDefinition>,
    /// Sources that failed in this run, by what the names of their tools begin with, and why. They are not asked again: the run
    /// is not to wait for them at every step.
    failed: BTreeMap<String, String>,
}

impl Toolbox {
    fn new(agent: Arc<NativeAgent>, scope: Scope) -> Self {
        Self { agent, scope, tools: Vec::new(), definitions: Vec::new(), failed: BTreeMap::new() }
    }

    /// Finds out which tools there are now. Gives warnings for those that cannot be had.
    async fn refresh(&mut self) -> Vec<Event> {
        let asked = self.agent.sources.iter().filter(|source| !self.failed.contains_key(source.prefix()));
        let answers = join_all(asked.map(|source| async move { (source.prefix().to_owned(), source.tools().await) })).await;
        self.tools.clone_from(&self.agent.tools);
        let mut warnings = Vec::new();
        for (prefix, answer) in answers {
            match answer {
                Ok(tools) => self.tools.extend(tools),
                Err(why) => {
                    warnings.push(Event::Warning {
                        message: format!("{why} The agent goes on without its tools."),
                        code: Some("tools_unavailable".to_owned()),
                    });
                    self.failed.insert(prefix, why);
                }
            }
        }
        // A child gets no tool that would wait for a person: nobody sees it ask.
        if self.scope.run.is_none() {
            self.tools.retain(|tool| !tool.asks_person() && !self.agent.approve.contains(&tool.definition().name));
        }
        self.definitions = self.tools.iter().map(|tool| tool.definition().clone()).collect();
        warnings
    }

    fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, String> {
        self.tools.iter().find(|tool| tool.definition().name == name).ok_or_else(|| {
            if let Some((_, why)) = self.failed.iter().find(|(prefix, _)| name.starts_with(prefix.as_str())) {
                return format!("{why} The tool did not run.");
            }
            let names: Vec<_> = self.tools.iter().map(|tool| tool.definition().name.as_str()).collect();
            if names.is_empty() {
                format!("There is no tool `{name}`; there are no tools here.")
            } else {
                format!("There is no tool `{name}`. The tools are: {}.", names.join(", "))
            }
        })
    }

    fn admit(&self, call: &CallRef, input: Result<Value, String>) -> Admission {
        let tool = match self.find(&call.name) {
            Ok(tool) => tool,
            Err(why) => return Admission::Refuse(why),
        };
        match input {
            Ok(value) if is_deeper(&value, JSON_DEPTH) => {
                return Admission::Refuse(format!(
                    "The arguments are nested more than {JSON_DEPTH} levels deep. The tool did not run."
                ));
            }
            Ok(Value::Object(_)) => {}
            Ok(_) => return Admission::Refuse("The arguments must be a JSON object. The tool did not run.".to_owned()),
            Err(text) => {
                let why = serde_json::from_str::<Value>(&text).err().map(|error| error.to_string()).unwrap_or_default();
                return Admission::Refuse(format!("The arguments are not valid JSON ({why}). The tool did not run."));
            }
        }
        match tool.question(&call.input) {
            Err(why) => Admission::Refuse(why),
            Ok(Some(payload)) => Admission::Ask(payload),
            Ok(None) if self.agent.approve.contains(&call.name) => {
                Admission::Ask(SuspendPayload::Approval { tool_name: call.name.clone(), input: call.input.clone() })
            }
            Ok(None) => Admission::Run,
        }
    }

    /// A suspension of the turn; `None` below a delegation, where no tool that suspends is offered.
    fn suspension(&self, call: CallRef, suspend_payload: Option<SuspendPayload>) -> Option<Event> {
        let run_id = self.scope.run?;
        let CallRef { id: tool_call_id, name: tool_name, input } = call;
        Some(Event::ToolCallSuspended { payload: Suspension { tool_call_id, run_id, tool_name, input, suspend_payload } })
    }

    /// Runs `calls`, several at a time.
    fn start(&self, calls: Vec<CallRef>) -> Work {
        let mut work = Work { running: SelectAll::new(), queue: VecDeque::with_capacity(calls.len()) };
        for call in calls {
            let progress = match self.find(&call.name) {
                Ok(tool) => run_call(Arc::clone(tool), call, self.scope.clone()),
                Err(why) => {
                    let outcome = Outcome::error(why);
                    let event = result_event(&call, &outcome);
                    futures::stream::iter([Progress::Event(event), Progress::Settled(call, outcome)]).boxed()
                }
            };
            work.queue.push_back(progress);
        }
        for _ in 0..CONCURRENT_CALLS {
            work.running.extend(work.queue.pop_front());
        }
        work
    }
}

/// Calls at work.
struct Work {
    running: SelectAll<BoxStream<'static, Progress>>,
    queue: VecDeque<BoxStream<'static, Progress>>,
}

impl Work {
    async fn next(&mut self) -> Option<Progress> {
        let progress = self.running.next().await?;
        if matches!(progress, Progress::Settled(..)) {
            self.running.extend(self.queue.pop_front());
        }
        Some(progress)
    }
}

fn run_call(tool: Arc<dyn Tool>, call: CallRef, scope: Scope) -> BoxStream<'static, Progress> {
    stream! {
        yield Progress::Event(Event::ToolExecutionStart {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            start_time: clock::now(),
        });
        let span = tracing::debug_span!(target: SPANS, "tool call", tool = call.name);
        let mut events = tool.call(call.input.clone(), ToolContext { call_id: call.id.clone(), scope });
        let mut outcome = Outcome::error("The tool ended without a result.");
        while let Some(event) = events.next().instrument(span.clone()).await {
            match event {
                ToolEvent::Child { task_path, event } => yield Progress::Event(Event::SubagentChunk {
                    parent_tool_call_id: call.id.clone(),
                    task_path,
                    chunk: Box::new(event),
                }),
                ToolEvent::Output(output) => {
                    outcome = Outcome::ok(output);
                    break;
                }
                ToolEvent::Failed(why) => {
                    outcome = Outcome::error(why);
                    break;
                }
            }
        }
        drop(events);
        yield Progress::Event(Event::ToolExecutionEnd {
            tool_call_id: call.id.clone(),
            tool_name: call.name.clone(),
            is_error: outcome.is_error,
            end_time: clock::now(),
        });
        yield Progress::Event(result_event(&call, &outcome));
        yield Progress::Settled(call, outcome);
    }
    .boxed()
}

/// Ids of tool calls, unique within the message over all its executions, whatever the provider sends.
struct CallIds {
    used: HashSet<String>,
    step: usize,
}

impl CallIds {
    fn new(so_far: &[Part]) -> Self {
        Self { used: so_far.iter().filter_map(Part::as_tool_call).map(|call| call.tool_call_id.clone()).collect(), step: 0 }
    }

    fn next_step(&mut self) {
        self.step += 1;
    }

    fn take(&mut self, wanted: Option<String>, nth: usize) -> String {
        // Whoever answers a call names it: what cannot be sent back is no name.
        let fits =
            |id: &String| (1..=CALL_ID_BYTES).contains(&id.len()) && !id.contains(char::is_control) && !self.used.contains(id);
        let id = wanted.filter(fits).unwrap_or_else(|| {
            let base = format!("call_{}_{}", self.step, nth + 1);
            // An earlier execution counted its steps from one too.
            (1..)
                .map(|n: u32| if n == 1 { base.clone() } else { format!("{base}_{n}") })
                .find(|id| !self.used.contains(id))
                .unwrap_or(base)
        });
        self.used.insert(id.clone());
        id
    }
}

/// Ids of text and reasoning, unique within the stream.
#[derive(Default)]
struct PartIds {
    texts: usize,
    reasonings: usize,
}

/// The part that deltas go to.
enum Open {
    Nothing,
    Text(String),
    Reasoning(String),
}

/// A tool call of the step.
struct StepCall {
    id: String,
    name: String,
    input: Result<Value, String>,
}

/// Turns the answer of a model into the events of one step.
struct Step<'run> {
    ids: &'run mut CallIds,
    parts: &'run mut PartIds,
    open: Open,
    /// The calls by the model's number.
    numbers: HashMap<usize, usize>,
    text: String,
    calls: Vec<StepCall>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
}

impl<'run> Step<'run> {
    fn new(ids: &'run mut CallIds, parts: &'run mut PartIds) -> Self {
        ids.next_step();
        Self {
            ids,
            parts,
            open: Open::Nothing,
            numbers: HashMap::new(),
            text: String::new(),
            calls: Vec::new(),
            usage: None,
            finish: None,
        }
    }

    fn take(&mut self, event: ModelEvent, events: &mut Vec<Event>) {
        match event {
            ModelEvent::Text(delta) => {
                if delta.is_empty() {
                    return;
                }
                if !matches!(self.open, Open::Text(_)) {
                    self.close(events);
                    let id = format!("t{}", self.parts.texts);
                    self.parts.texts += 1;
                    events.push(Event::TextStart { id: id.clone() });
                    self.open = Open::Text(id);
                }
                self.text.push_str(&delta);
                if let Open::Text(id) = &self.open {
                    events.push(Event::TextDelta { id: id.clone(), delta });
                }
            }
            ModelEvent::Reasoning(delta) => {
                if delta.is_empty() {
                    return;
                }
                if !matches!(self.open, Open::Reasoning(_)) {
                    self.close(events);
                    let id = format!("r{}", self.parts.reasonings);
                    self.parts.reasonings += 1;
                    events.push(Event::ReasoningStart { id: id.clone() });
                    self.open = Open::Reasoning(id);
                }
                if let Open::Reasoning(id) = &self.open {
                    events.push(Event::ReasoningDelta { id: id.clone(), delta });
                }
            }
            ModelEvent::CallStart { call, id, name } => {
                self.close(events);
                let nth = self.calls.len();
                let id = self.ids.take(id, nth);
                self.numbers.insert(call, nth);
                events.push(Event::ToolInputStart { tool_call_id: id.clone(), tool_name: name.clone() });
                self.calls.push(StepCall { id, name, input: Err(String::new()) });
            }
            ModelEvent::CallInput { call, delta } => {
                if let Some(call) = self.call(call) {
                    events.push(Event::ToolInputDelta { tool_call_id: call.id.clone(), delta });
                }
            }
            ModelEvent::Call { call, input } => {
                if let Some(call) = self.call(call) {
                    call.input = input;
                    events.push(Event::ToolCall {
                        tool_call_id: call.id.clone(),
                        tool_name: call.name.clone(),
                        input: recorded_input(&call.input),
                    });
                }
            }
            ModelEvent::Usage(usage) => self.usage = Some(usage),
            ModelEvent::Finish(reason) => self.finish = Some(reason),
        }
    }

    fn call(&mut self, number: usize) -> Option<&mut StepCall> {
        let nth = *self.numbers.get(&number)?;
        self.calls.get_mut(nth)
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        match mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => {}
            Open::Text(id) => events.push(Event::TextEnd { id }),
            Open::Reasoning(id) => events.push(Event::ReasoningEnd { id }),
        }
    }
}
