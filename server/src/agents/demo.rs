//! The demo agent: a [`Model`] that follows a script, so that every part of a turn can be tried without a provider.
//!
//! It goes through the same loop as a provider's model: tools, approvals, questions and children are real. It is deterministic.
//! What it writes follows from the conversation alone, and a reply that a restart cut off goes on at the word where it stopped.
//!
//! Its first reply in a thread says that no model is behind it, except where the text is to be exactly the words that were asked
//! for (`/slow`, `/long`). `/delegate N` gives its child the task `/words N`: it reasons, looks at the clock, and writes N words, one
//! every 20 ms.

use std::{ops::RangeInclusive, time::Duration};

use async_stream::try_stream;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::{self, MissedTickBehavior};
use turnfast_shared::ids::Slug;

use super::{
    TurnError,
    conversation::{Call, Item},
    model::{FinishReason, Model, ModelEvent, ModelRequest, ModelStream, ToolDefinition},
    tools::{AskUser, Clock, Delegate, Tool, ToolContext, ToolEvent, ToolRun},
};

/// Pause between the words of `/slow`.
const SLOW: Duration = Duration::from_millis(100);
/// Pause between the words of a child.
const CHILD: Duration = Duration::from_millis(20);
/// Pause between the words of everything else that is said.
const TALK: Duration = Duration::from_millis(10);
/// Words that can be asked for.
const WORDS: RangeInclusive<usize> = 1..=100_000;
/// Characters of a message that a reply repeats.
const ECHO_CHARS: usize = 200;

const DISCLOSURE: &str = "This is the demo agent: there is no model behind it. ";
const HELP: &str = "The demo understands: /slow N (N words, one every 100 ms), /long N (N words at once), /think (reasons first), \
                    /tool (calls the clock), /approve (waits for your approval), /ask (asks you a question), /delegate N (a child \
                    writes N words), /fail (fails). Anything else gets a short reply.";

/// The script.
#[derive(Debug)]
pub struct DemoModel {
    agent: Slug,
}

impl DemoModel {
    /// The script of the demo agent with this id; `/delegate` runs the agent itself as a child.
    #[must_use]
    pub fn new(agent: Slug) -> Self {
        Self { agent }
    }
}

/// Something the script does.
#[derive(Debug, PartialEq)]
enum Act {
    Think(&'static str),
    Say { text: String, pause: Option<Duration> },
    Call { tool: &'static str, input: Value },
    Fail,
}

fn say(text: impl Into<String>) -> Act {
    Act::Say { text: text.into(), pause: Some(TALK) }
}

/// `word1 word2 … wordN`.
fn words(count: usize) -> String {
    let mut text = String::with_capacity(count * 10);
    for n in 1..=count {
        if n > 1 {
            text.push(' ');
        }
        text.push_str("word");
        text.push_str(&n.to_string());
    }
    text
}

impl DemoModel {
    /// What to do in answer to `message`, with `call` done already. `intro` comes before what is said first.
    fn script(&self, message: &str, intro: &str, call: Option<&Call>) -> Vec<Act> {
        let (command, argument) = message.trim().split_once(char::is_whitespace).unwrap_or((message.trim(), ""));
        let count = || {
            argument
                .trim()
                .lines()
                .next()
                .unwrap_or_default()
                .parse::<usize>()
                .ok()
                .filter(|count| WORDS.contains(count))
                .ok_or_else(|| vec![say(format!("{intro}{command} takes a number from {} to {}.", WORDS.start(), WORDS.end()))])
        };
        let write = |pause| match count() {
            Ok(count) => vec![Act::Say { text: words(count), pause }],
            Err(refusal) => refusal,
        };
        let call_then = |lead: &str, tool, input, report: fn(&Call) -> String| match call {
            Some(call) => vec![say(report(call))],
            None => vec![say(format!("{intro}{lead}")), Act::Call { tool, input }],
        };
        match command {
            "/slow" => write(Some(SLOW)),
            "/long" => write(None),
            // The child of `/delegate`. It shows everything that a child's trace has a place for.
            "/words" => match (count(), call) {
                (Ok(count), Some(_)) => vec![Act::Say { text: words(count), pause: Some(CHILD) }],
                (Ok(_), None) => {
                    vec![Act::Think("Before I write, I look at the clock."), Act::Call { tool: Clock::NAME, input: json!({}) }]
                }
                (Err(refusal), _) => refusal,
            },
            "/think" => vec![
                Act::Think(
                    "The message asks for some thought first. The demo has none to offer, so it counts to three: one, two, three.",
                ),
                say(format!("{intro}I have thought about it, and the answer is three.")),
            ],
            "/tool" => call_then("I look at the clock.", Clock::NAME, json!({}), |call| match failure(call) {
                None => format!("The clock says {}.", call.outcome.output["time"].as_str().unwrap_or("nothing")),
                Some(why) => format!("The clock did not answer: {why}"),
            }),
            "/approve" => {
                let input = json!({"to": "the moon", "text": "Greetings from the demo"});
                call_then("I want to send a postcard, if you let me.", Postcard::NAME, input, |call| match failure(call) {
                    None => "You let me, and the postcard is on its way (only as a demo).".to_owned(),
                    Some(why) => format!("The postcard was not sent: {why}"),
                })
            }
            "/ask" => {
                let input = json!({"question": "Which colour do you like best?", "options": ["red", "green", "blue"]});
                call_then("I have a question.", AskUser::NAME, input, |call| match failure(call) {
                    None => format!("You like {} best.", call.outcome.output["answer"].as_str().unwrap_or("nothing")),
                    Some(why) => format!("There was no answer: {why}"),
                })
            }
            "/delegate" => match count() {
                Err(refusal) => refusal,
                Ok(count) => {
                    let input = json!({"agent": self.agent, "task": format!("/words {count}")});
                    call_then("I give this to a child.", Delegate::NAME, input, |call| match failure(call) {
                        None => {
                            let written = call.outcome.output.as_str().unwrap_or_default().split_whitespace().count();
                            format!("The child wrote {written} words.")
                        }
                        Some(why) => format!("The child failed: {why}"),
                    })
                }
            },
            "/fail" => vec![say(format!("{intro}I fail now, as you asked.")), Act::Fail],
            _ if command.starts_with('/') => vec![say(format!("{intro}{HELP}"))],
            _ => {
                let mut echo: String = message.trim().chars().take(ECHO_CHARS).collect();
                if echo.len() < message.trim().len() {
                    echo.push('…');
                }
                vec![say(format!("{intro}You wrote: {echo}\n\nSend /help to see what else it can do."))]
            }
        }
    }

    /// What is left to do in answer to a conversation.
    fn acts(&self, conversation: &[Item]) -> Vec<Act> {
        let last = conversation.iter().rposition(|item| matches!(item, Item::Person { .. }));
        let (before, turn) = conversation.split_at(last.unwrap_or(0));
        let message = match turn.first() {
            Some(Item::Person { text, .. }) => text.as_str(),
            _ => "",
        };
        let first_reply = !before.iter().any(|item| matches!(item, Item::Agent { .. }));
        let mut done = None;
        let mut written = String::new();
        for item in turn {
            if let Item::Agent { text, calls } = item {
                match calls.last() {
                    Some(call) => {
                        done = Some(call);
                        written.clear();
                    }
                    None => written.push_str(text),
                }
            }
        }
        let mut acts = self.script(message, if first_reply { DISCLOSURE } else { "" }, done);
        for act in &mut acts {
            if let Act::Say { text, .. } = act
                && text.starts_with(&written)
            {
                text.drain(..written.len());
            }
        }
        acts
    }
}

fn failure(call: &Call) -> Option<&str> {
    call.outcome.is_error.then(|| call.outcome.output.as_str().unwrap_or("no reason was given"))
}

/// The words of `text`, each with the space before it.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let end = rest[first..].find(' ').map_or(rest.len(), |at| first + at);
        let (piece, left) = rest.split_at(end);
        rest = left;
        Some(piece)
    })
}

impl Model for DemoModel {
    fn stream(&self, request: ModelRequest<'_>) -> ModelStream {
        let acts = self.acts(request.conversation);
        try_stream! {
            for (number, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Think(text) => {
                        for piece in pieces(text) {
                            yield ModelEvent::Reasoning(piece.to_owned());
                            time::sleep(TALK).await;
                        }
                    }
                    Act::Say { text, pause: Some(pause) } => {
                        let mut ticks = time::interval(pause);
                        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                        for piece in pieces(&text) {
                            ticks.tick().await;
                            yield ModelEvent::Text(piece.to_owned());
                        }
                    }
                    Act::Say { text, pause: None } => {
                        for (nth, piece) in pieces(&text).enumerate() {
                            // Other turns on this thread of the runtime want to move too.
                            if nth % 64 == 63 {
                                tokio::task::yield_now().await;
                            }
                            yield ModelEvent::Text(piece.to_owned());
                        }
                    }
                    Act::Call { tool, input } => {
                        yield ModelEvent::CallStart { call: number, id: None, name: tool.to_owned() };
                        yield ModelEvent::CallInput { call: number, delta: input.to_string() };
                        yield ModelEvent::Call { call: number, input: Ok(input) };
                    }
                    Act::Fail => Err(TurnError {
                        message: "The demo agent failed because /fail asked it to. Nothing is wrong with the server.".to_owned(),
                        code: Some("demo_failure"),
                    })?,
                }
            }
            yield ModelEvent::Finish(FinishReason::Stop);
        }
        .boxed()
    }
}

/// `postcard {to, text}`: what `/approve` calls. It sends nothing.
#[derive(Debug)]
pub struct Postcard {
    definition: ToolDefinition,
}

impl Postcard {
    /// Its name.
    pub const NAME: &str = "postcard";

    /// The tool.
    #[must_use]
    pub fn new() -> Self {
        Self {
            definition: ToolDefinition {
                name: Self::NAME.to_owned(),
                description: "Pretends to send a postcard.".to_owned(),
                input_schema: json!({
                    "type": "object",
                    "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
                    "required": ["to", "text"],
                }),
            },
        }
    }
}

impl Default for Postcard {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Postcard {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call(&self, input: Value, _: ToolContext) -> ToolRun {
        futures::stream::iter([ToolEvent::Output(json!({"sent": true, "to": input["to"]}))]).boxed()
    }
}
