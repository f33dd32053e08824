//! The data of a stream of chat completions as [`ModelEvent`]s. It knows nothing of connections.
//!
//! Chunks are parsed once, into borrowed text where they allow it. What no two endpoints do alike (ids and indexes of tool calls,
//! the end of a stream) is decided here; whatever is not understood and not needed is left aside.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use turnfast_shared::event::Usage;

use super::think::Splitter;
use crate::agents::model::{FinishReason, ModelEvent};

/// Bytes of text, reasoning and arguments that one answer may have.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Why an answer cannot be followed any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The endpoint says so, in these words.
    Reported(String),
    /// This is no chunk of a chat completion.
    Malformed(String),
    /// There is no end to it.
    TooLong,
    /// It ended without an end.
    Cut,
    /// It stays silent.
    Stalled,
    /// It is a web page.
    WebPage,
}

/// Text, whatever the endpoint makes of it: a string, null, or a list of parts with text in them.
#[derive(Debug, Default)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Text::default())
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Text::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
                let mut text = String::new();
                while let Some(part) = parts.next_element::<Text<'de>>()? {
                    text.push_str(&part.0);
                }
                Ok(Text(Cow::Owned(text)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
                let mut text = Text::default();
                while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
                    if name == "text" {
                        text = fields.next_value()?;
                    } else {
                        fields.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(text)
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

impl Text<'_> {
    fn get(text: &Option<Self>) -> &str {
        text.as_ref().map_or("", |text| &text.0)
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// In place of the delta in an answer that is not streamed.
    #[serde(borrow, default)]
    message: Option<Delta<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Piece<'a>>>,
}

/// A piece of a tool call, or all of it.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(default, deserialize_with = "index")]
    index: Option<u64>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    function: Option<Function<'a>>,
}

/// What is no number from 0 on says nothing.
fn index<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| raw.get().trim_matches('"').parse().ok()))
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    completion_tokens_details: Option<UsageDetails>,
}

#[derive(Deserialize)]
struct UsageDetails {
    reasoning_tokens: Option<u64>,
}

/// A tool call while it is written.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    started: bool,
}

impl OpenCall {
    fn is_whole(&self) -> bool {
        self.arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }
}

/// An answer while it comes in.
#[derive(Debug, Default)]
pub(super) struct Answer {
    splitter: Splitter,
    calls: Vec<OpenCall>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    done: bool,
    bytes: usize,
}

impl Answer {
    /// Takes one event of the stream: its type and its data.
    pub(super) fn take(&mut self, kind: &str, data: &str, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let data = data.trim();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if kind == "error" {
            return Err(Fault::Reported(words_in(data)));
        }
        self.take_chunk(data, events)
    }

    /// Takes an answer that came as one document.
    pub(super) fn take_document(&mut self, document: &str, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let document = document.trim();
        self.take_chunk(document, events)?;
        if serde_json::from_str::<Chunk<'_>>(document).is_ok_and(|chunk| chunk.choices.is_none()) {
            // No completion, whatever its status said: an error of some gateway.
            return Err(Fault::Reported(words_in(document)));
        }
        self.done = true;
        Ok(())
    }

    /// Whether the endpoint said that nothing more comes.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the answer is complete if nothing more comes.
    pub(super) fn may_end(&self) -> bool {
        self.done || self.finish.is_some()
    }

    /// The rest of a complete answer.
    pub(super) fn end(&mut self, events: &mut Vec<ModelEvent>) {
        self.splitter.flush(events);
        for (number, call) in self.calls.iter_mut().enumerate() {
            if !call.started {
                start(number, call, events);
            }
            let arguments = std::mem::take(&mut call.arguments);
            let input = match arguments.trim() {
                "" => Ok(Value::Object(serde_json::Map::new())),
                text => match serde_json::from_str(text) {
                    Ok(Value::Null) => Ok(Value::Object(serde_json::Map::new())),
                    Ok(input) => Ok(input),
                    Err(_) => Err(arguments),
                },
            };
            events.push(ModelEvent::Call { call: number, input });
        }
        events.extend(self.usage.take().map(ModelEvent::Usage));
        events.push(ModelEvent::Finish(self.finish.unwrap_or(FinishReason::Stop)));
    }

    /// What there is of an answer that failed.
    pub(super) fn keep(&mut self, events: &mut Vec<ModelEvent>) {
        self.splitter.flush(events);
        events.extend(self.usage.take().map(ModelEvent::Usage));
    }

    fn take_chunk(&mut self, data: &str, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let mended;
        let chunk: Chunk<'_> = match serde_json::from_str(data) {
            Ok(chunk) => chunk,
            Err(_) => {
                mended = without_lone_surrogates(data);
                serde_json::from_str(&mended).map_err(|_| Fault::Malformed(data.to_owned()))?
            }
        };
        if let Some(error) = chunk.error {
            return Err(Fault::Reported(words_in(error.get())));
        }
        if Text::get(&chunk.object) == "error" {
            return Err(Fault::Reported(words_in(data)));
        }
        if let Some(usage) = chunk.usage.and_then(|usage| serde_json::from_str::<WireUsage>(usage.get()).ok()) {
            self.usage = Some(Usage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
                reasoning_tokens: usage.completion_tokens_details.and_then(|details| details.reasoning_tokens),
            });
        }
        // One answer was asked for.
        let Some(choice) = chunk.choices.unwrap_or_default().into_iter().find(|choice| choice.index.unwrap_or(0) == 0) else {
            return Ok(());
        };
        if let Some(error) = choice.error {
            return Err(Fault::Reported(words_in(error.get())));
        }
        if let Some(delta) = choice.delta.or(choice.message) {
            self.take_delta(&delta, events)?;
        }
        match Text::get(&choice.finish_reason) {
            "" => {}
            "length" => self.finish = Some(FinishReason::Length),
            "content_filter" => self.finish = Some(FinishReason::ContentFilter),
            "error" => return Err(Fault::Reported("the model stopped with an error".to_owned())),
            _ => self.finish = Some(FinishReason::Stop),
        }
        Ok(())
    }

    fn take_delta(&mut self, delta: &Delta<'_>, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        // Some send the same reasoning under both names.
        let reasoning = match Text::get(&delta.reasoning_content) {
            "" => Text::get(&delta.reasoning),
            reasoning => reasoning,
        };
        let content = Text::get(&delta.content);
        let refusal = Text::get(&delta.refusal);
        self.bytes += reasoning.len() + content.len() + refusal.len();
        if !reasoning.is_empty() {
            events.push(ModelEvent::Reasoning(reasoning.to_owned()));
        }
        for text in [content, refusal] {
            if !text.is_empty() {
                self.splitter.push(text, events);
            }
        }
        let mut touched = Vec::new();
        for piece in delta.tool_calls.iter().flatten() {
            self.take_piece(piece, &mut touched, events)?;
        }
        if self.bytes > ANSWER_BYTES { Err(Fault::TooLong) } else { Ok(()) }
    }

    fn take_piece(&mut self, piece: &Piece<'_>, touched: &mut Vec<usize>, events: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let id = Text::get(&piece.id);
        let name = piece.function.as_ref().map_or("", |function| Text::get(&function.name)).trim();
        let number = match self.find(piece.index, id, name, touched) {
            Some(number) => number,
            None => {
                self.splitter.flush(events);
                self.calls.push(OpenCall {
                    index: piece.index,
                    id: String::new(),
                    name: String::new(),
                    arguments: String::new(),
                    started: false,
                });
                self.calls.len() - 1
            }
        };
        touched.push(number);
        let call = &mut self.calls[number];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() && !name.is_empty() {
            name.clone_into(&mut call.name);
        }
        let arguments = match piece.function.as_ref().and_then(|function| function.arguments).map(RawValue::get) {
            None => Cow::Borrowed(""),
            Some(text) if text.starts_with('"') => {
                serde_json::from_str::<Text<'_>>(text).map_err(|_| Fault::Malformed(text.to_owned()))?.0
            }
            Some(object) => Cow::Borrowed(object),
        };
        self.bytes += arguments.len();
        call.arguments.push_str(&arguments);
        if call.started {
            if !arguments.is_empty() {
                events.push(ModelEvent::CallInput { call: number, delta: arguments.into_owned() });
            }
        } else if !call.name.is_empty() {
            start(number, call, events);
        }
        Ok(())
    }

    /// The call that a piece belongs to; `None`: a new one.
    ///
    /// An index decides, unless the endpoint gives all its calls the same: another id or another name behind a call that is whole
    /// is another call, and so is another id with a name where the call has no arguments yet. Without an index the id decides; without both, the piece goes on with the newest call, unless it names a
    /// tool when that call is whole already, or stands beside it in one chunk.
    fn find(&self, index: Option<u64>, id: &str, name: &str, touched: &[usize]) -> Option<usize> {
        if let Some(index) = index {
            let number = self.calls.iter().rposition(|call| call.index == Some(index))?;
            let call = &self.calls[number];
            let other_id = !id.is_empty() && !call.id.is_empty() && id != call.id;
            let other_name = !call.name.is_empty() && name != call.name;
            let another = !name.is_empty()
                && ((other_id && (other_name || call.arguments.is_empty()))
                    || ((other_id || other_name || touched.contains(&number)) && call.is_whole()));
            return (!another).then_some(number);
        }
        if !id.is_empty() {
            return self.calls.iter().rposition(|call| call.id == id);
        }
        let number = self.calls.len().checked_sub(1)?;
        let call = &self.calls[number];
        let another = touched.contains(&number) || (!name.is_empty() && (name != call.name || call.is_whole()));
        (!another).then_some(number)
    }
}

fn start(number: usize, call: &mut OpenCall, events: &mut Vec<ModelEvent>) {
    call.started = true;
    let id = (!call.id.is_empty()).then(|| call.id.clone());
    events.push(ModelEvent::CallStart { call: number, id, name: call.name.clone() });
    if !call.arguments.is_empty() {
        events.push(ModelEvent::CallInput { call: number, delta: call.arguments.clone() });
    }
}

/// `json` with U+FFFD in place of escapes that are half a character. Servers whose text is UTF-16 cut it between the halves, and one
/// character is not worth the turn.
fn without_lone_surrogates(json: &str) -> String {
    let unit = |at: usize| {
        let digits = json.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(length) = json.get(at..).and_then(|rest| rest.chars().next()).map(char::len_utf8) {
        let length = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push_str("\\ufffd");
                at += 6;
                continue;
            }
            (Some(_), _) => 6,
            // An escaped backslash is not the beginning of what follows it.
            (None, _) if json[at..].starts_with("\\\\") => 2,
            (None, _) => length,
        };
        out.push_str(&json[at..at + length]);
        at += length;
    }
    out
}

/// What an error says: the JSON's words, or the text as it is.
fn words_in(json: &str) -> String {
    serde_json::from_str::<Value>(json).ok().and_then(|value| words_of(&value)).unwrap_or_else(|| json.to_owned())
}

/// The words of an error in one of the shapes that endpoints use.
pub(super) fn words_of(error: &Value) -> Option<String> {
    match error {
        Value::String(text) => (!text.trim().is_empty()).then(|| text.clone()),
        Value::Array(errors) => errors.iter().find_map(words_of),
        Value::Object(fields) => ["error", "message", "detail", "msg", "error_description", "title"]
            .into_iter()
            .find_map(|name| fields.get(name).and_then(words_of)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}
