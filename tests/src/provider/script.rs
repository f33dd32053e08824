//! What a message tells the provider to do: directives in double brackets, in order.
//!
//! | directive | the provider |
//! | --- | --- |
//! | `[[words:N]]`, `[[words:N:20ms]]` | streams `word1 word2 … wordN`, one every so often |
//! | `[[letters:N]]` | streams N characters as so many pieces, every second one a space: little text in many events |
//! | `[[markdown:BYTES]]`, `[[markdown:BYTES:20ms]]` | streams as much Markdown of every kind, one word every so often |
//! | `[[say:TEXT]]` | streams TEXT in one piece |
//! | `[[reason:TEXT]]` | reasons TEXT |
//! | `[[tool:NAME:{json}]]` | calls a tool. What follows is for the request that brings the result |
//! | `[[fail:STATUS]]` | answers with that status instead of a stream |
//! | `[[html:STATUS]]` | the same, with a page as a proxy would send |
//! | `[[key:WHERE]]` | repeats the key that it was sent: `say`, `reason` (both cut in two), `tool` (a clock's input), `error`, `fail` |
//! | `[[error:TEXT]]` | reports an error in the middle of the stream |
//! | `[[cut:N]]` | streams N words and breaks the connection |
//! | `[[close]]` | ends the stream without saying that it is done |
//! | `[[malformed]]` | sends an event that is no JSON |
//! | `[[stall]]` | sends nothing more and keeps the connection |
//! | `[[hold:NAME]]` | waits until the test releases NAME |
//! | `[[finish:REASON]]` | ends with that `finish_reason` |
//!
//! Text outside of directives is not looked at. Without a directive the provider quotes what it was given.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `[[words:N:PAUSE]]`.
    Words {
        /// How many.
        count: u64,
        /// Between two of them.
        pause: Duration,
    },
    /// `[[letters:N]]`.
    Letters(u32),
    /// `[[markdown:BYTES:PAUSE]]`.
    Markdown {
        /// How much at least.
        bytes: usize,
        /// Between two words.
        pause: Duration,
    },
    /// `[[say:TEXT]]`.
    Say(String),
    /// `[[reason:TEXT]]`.
    Reason(String),
    /// `[[tool:NAME:{json}]]`.
    Tool {
        /// The tool.
        name: String,
        /// Its input.
        input: Value,
    },
    /// `[[key:WHERE]]`.
    Key(Place),
    /// `[[fail:STATUS]]`.
    Fail(u16),
    /// `[[html:STATUS]]`.
    Html(u16),
    /// `[[error:TEXT]]`.
    Error(String),
    /// `[[cut:N]]`.
    Cut(u64),
    /// `[[close]]`.
    Close,
    /// `[[malformed]]`.
    Malformed,
    /// `[[stall]]`.
    Stall,
    /// `[[hold:NAME]]`.
    Hold(String),
    /// `[[finish:REASON]]`.
    Finish(String),
}

impl Step {
    /// Whether a tool is called. What follows is for the request that brings the result.
    fn is_call(&self) -> bool {
        matches!(self, Self::Tool { .. } | Self::Key(Place::Tool))
    }
}

/// Where the provider repeats its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In text.
    Say,
    /// In reasoning.
    Reason,
    /// In the input of a call.
    Tool,
    /// In an error in the middle of the stream.
    Error,
    /// In a refusal.
    Fail,
}

/// What to do for a chat completion with these messages. Every request that brings tool results goes on where the one before it
/// called the tools.
///
/// # Errors
/// A directive is unknown or has a value that it does not take.
pub fn steps(messages: &[Value]) -> Result<Vec<Step>> {
    let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
    let asked = messages.iter().rposition(|message| role(message) == "user").context("no message of a user")?;
    let text = content_text(&messages[asked]);
    let rounds = messages[asked..].iter().filter(|m| role(m) == "assistant" && m["tool_calls"].is_array()).count();

    let mut script = parse(&text)?.into_iter().peekable();
    for _ in 0..rounds {
        while script.next_if(|step| !step.is_call()).is_some() {}
        while script.next_if(|step| step.is_call()).is_some() {}
    }
    let mut steps = Vec::new();
    while let Some(step) = script.next_if(|step| !step.is_call()) {
        steps.push(step);
    }
    while let Some(step) = script.next_if(|step| step.is_call()) {
        steps.push(step);
    }
    if steps.is_empty() {
        let results: Vec<_> = messages[asked..].iter().filter(|m| role(m) == "tool").map(content_text).collect();
        steps.push(Step::Say(if results.is_empty() {
            format!("You said: {text}")
        } else {
            format!("The tools answered: {}", results.join(" | "))
        }));
    }
    Ok(steps)
}

/// The text of a message, whose content is a string or a list of parts.
fn content_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// Markdown of every kind, of so many bytes at least: as a long reply of a model is, and the same each time.
#[must_use]
pub fn markdown(bytes: usize) -> String {
    let mut text = String::new();
    for section in 1.. {
        if text.len() >= bytes {
            break;
        }
        let prose =
            "A paragraph of *ordinary* text, with `code`, **weight** and a [link](https://example.org/page) in it. ".repeat(4);
        text.push_str(&format!(
            "## Section {section}\n\n{prose}\n\n- one\n- two\n  1. nested\n  2. twice\n\n> {prose}\n\n| name | size |\n| --- | ---: |\n\
             | a | {section} |\n| b | 22 |\n\n```rust\nfn section_{section}() {{\n    println!(\"{{}}\", {section});\n}}\n```\n\n"
        ));
    }
    text
}

fn parse(text: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("[[") {
        let (step, after) = directive(behind).with_context(|| format!("in `[[{behind}`"))?;
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

/// The directive that `text` starts with, and what follows it.
fn directive(text: &str) -> Result<(Step, &str)> {
    // JSON may hold the brackets that end a directive.
    if let Some((name, json)) = text.strip_prefix("tool:").and_then(|call| call.split_once(':')) {
        let mut values = serde_json::Deserializer::from_str(json).into_iter();
        let input = values.next().context("no input")??;
        let after = json[values.byte_offset()..].strip_prefix("]]").context("`]]` must follow the input")?;
        return Ok((Step::Tool { name: name.to_owned(), input }, after));
    }
    let (inside, after) = text.split_once("]]").context("`]]` is missing")?;
    let (name, value) = inside.split_once(':').unwrap_or((inside, ""));
    let paced = || -> Result<(&str, Duration)> {
        let (count, pause) = value.split_once(':').unwrap_or((value, "0ms"));
        let pause = pause.strip_suffix("ms").context("the pause is in ms")?;
        Ok((count, Duration::from_millis(pause.parse()?)))
    };
    let step = match name {
        "words" => {
            let (count, pause) = paced()?;
            Step::Words { count: count.parse()?, pause }
        }
        "letters" => Step::Letters(value.parse()?),
        "markdown" => {
            let (bytes, pause) = paced()?;
            Step::Markdown { bytes: bytes.parse()?, pause }
        }
        "say" => Step::Say(value.to_owned()),
        "reason" => Step::Reason(value.to_owned()),
        "key" => Step::Key(match value {
            "say" => Place::Say,
            "reason" => Place::Reason,
            "tool" => Place::Tool,
            "error" => Place::Error,
            "fail" => Place::Fail,
            _ => bail!("`{value}` is no place for a key"),
        }),
        "fail" => Step::Fail(value.parse()?),
        "html" => Step::Html(value.parse()?),
        "error" => Step::Error(value.to_owned()),
        "cut" => Step::Cut(value.parse()?),
        "close" => Step::Close,
        "malformed" => Step::Malformed,
        "stall" => Step::Stall,
        "hold" => Step::Hold(value.to_owned()),
        "finish" => Step::Finish(value.to_owned()),
        _ => bail!("`{name}` is no directive"),
    };
    Ok((step, after))
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;

    #[test]
    fn directives_are_read_in_order() {
        let message =
            json!({"role": "user", "content": "Please [[reason:hm]] and [[words:3:20ms]][[hold:gate]] then [[cut:2]]."});
        let pause = Duration::from_millis(20);
        assert_eq!(
            steps(&[message]).unwrap(),
            [Step::Reason("hm".into()), Step::Words { count: 3, pause }, Step::Hold("gate".into()), Step::Cut(2)]
        );
    }

    #[test]
    fn plain_text_is_quoted_and_an_unknown_directive_is_an_error() {
        assert_eq!(steps(&[json!({"role": "user", "content": "Hello"})]).unwrap(), [Step::Say("You said: Hello".into())]);
        assert!(steps(&[json!({"role": "user", "content": "[[dance]]"})]).is_err());
    }

    #[test]
    fn there_is_as_much_markdown_as_was_asked_for() {
        for bytes in [0, 1, 5_000] {
            assert!((bytes..bytes + 3_000).contains(&markdown(bytes).len()));
        }
        let pause = Duration::from_millis(5);
        let asked = json!({"role": "user", "content": "[[markdown:10:5ms]]"});
        assert_eq!(steps(&[asked]).unwrap(), [Step::Markdown { bytes: 10, pause }]);
    }

    #[test]
    fn a_result_continues_the_script_behind_its_call() {
        let asked = json!({"role": "user", "content": "[[say:a]][[tool:clock:{\"x\":[[1]]}]][[say:b]][[tool:clock:{}]]"});
        let call = json!({"role": "assistant", "content": "a", "tool_calls": [{}]});
        let result = json!({"role": "tool", "content": "noon"});
        let clock = |input| Step::Tool { name: "clock".into(), input };
        assert_eq!(steps(std::slice::from_ref(&asked)).unwrap(), [Step::Say("a".into()), clock(json!({"x": [[1]]}))]);
        let first = [asked, call.clone(), result.clone()];
        assert_eq!(steps(&first).unwrap(), [Step::Say("b".into()), clock(json!({}))]);
        let second: Vec<_> = first.into_iter().chain([call, result]).collect();
        assert_eq!(steps(&second).unwrap(), [Step::Say("The tools answered: noon | noon".into())]);
    }
}
