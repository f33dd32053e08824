//! A conversation as the body of a request.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Value, json};

use super::names;
use crate::agents::{
    conversation::{Call, File, Item},
    model::{ModelRequest, ToolDefinition},
};

/// What stands in for a person after a reply that was cut off: some endpoints refuse a conversation that ends with the assistant.
const GO_ON: &str = "[Your last message was cut off by a restart. Go on exactly where it stopped, without repeating any of it and \
                     without mentioning this.]";

/// The body, with and without `stream_options`: some endpoints refuse those.
pub(super) struct Body {
    /// The JSON object without its closing brace.
    open: BytesMut,
}

#[derive(Serialize)]
struct Wire<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    stream: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: &'a str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: String,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: String,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Definition<'a>,
}

#[derive(Serialize)]
struct Definition<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
}

impl Body {
    /// Asks `model`.
    pub(super) fn new(model: &str, request: ModelRequest<'_>) -> Result<Self, serde_json::Error> {
        let mut messages = Vec::with_capacity(request.conversation.len() + 1);
        messages.extend(request.instructions.map(|content| Message::System { content }));
        for item in request.conversation {
            match item {
                Item::Person { text, files } => messages.push(Message::User { content: content(text, files) }),
                Item::CutOff => messages.push(Message::User { content: Content::Text(GO_ON) }),
                Item::Agent { text, calls } => {
                    messages.push(Message::Assistant { content: text, tool_calls: calls.iter().map(wire_call).collect() });
                    messages.extend(calls.iter().map(|call| Message::Tool { tool_call_id: &call.id, content: result(call) }));
                }
            }
        }
        let tools = request
            .tools
            .iter()
            .map(|ToolDefinition { name, description, input_schema }| Tool {
                r#type: "function",
                function: Definition { name: names::sent(name), description, parameters: input_schema },
            })
            .collect();
        let mut body = BytesMut::new().writer();
        serde_json::to_writer(&mut body, &Wire { model, messages, tools, stream: true })?;
        let mut open = body.into_inner();
        open.truncate(open.len() - 1);
        Ok(Self { open })
    }

    /// Without `stream_options`.
    pub(super) fn plain(&self) -> Bytes {
        self.closed(b"}")
    }

    /// With a wish for usage figures.
    pub(super) fn with_options(&self) -> Bytes {
        self.closed(br#","stream_options":{"include_usage":true}}"#)
    }

    fn closed(&self, end: &[u8]) -> Bytes {
        let mut body = BytesMut::with_capacity(self.open.len() + end.len());
        body.put_slice(&self.open);
        body.put_slice(end);
        body.freeze()
    }
}

/// Text alone stays text: not every endpoint takes parts.
fn content<'a>(text: &'a str, files: &'a [File]) -> Content<'a> {
    if files.is_empty() {
        return Content::Text(text);
    }
    let said = (!text.is_empty()).then_some(ContentPart::Text { text: text.into() });
    let files = files.iter().map(|File { name, media_type, data }| {
        if media_type.starts_with("image/") {
            let url = format!("data:{media_type};base64,{}", STANDARD.encode(data));
            ContentPart::ImageUrl { image_url: ImageUrl { url } }
        } else {
            let text = format!("[attached file {}]\n{}", json!(name), String::from_utf8_lossy(data));
            ContentPart::Text { text: text.into() }
        }
    });
    Content::Parts(said.into_iter().chain(files).collect())
}

fn wire_call(call: &Call) -> WireCall<'_> {
    // Endpoints parse the arguments: they get an object even where the model wrote none.
    let arguments = match &call.input {
        Value::Object(_) => call.input.to_string(),
        Value::Null => "{}".to_owned(),
        other => json!({"invalid_arguments": other}).to_string(),
    };
    WireCall { id: &call.id, r#type: "function", function: Function { name: names::sent(&call.name), arguments } }
}

fn result(call: &Call) -> String {
    let text = call.outcome.output.as_str().map_or_else(|| call.outcome.output.to_string(), str::to_owned);
    if call.outcome.is_error { format!("Error: {text}") } else { text }
}
