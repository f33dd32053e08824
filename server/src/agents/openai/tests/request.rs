//! What goes out.

use serde_json::{Value, json};

use crate::agents::{
    conversation::{Call, File, Item, Outcome},
    model::{ModelRequest, ToolDefinition},
    openai::request::Body,
};

#[test]
fn a_conversation_as_a_body() {
    let call = |id: &str, input: Value, outcome| Call { id: id.to_owned(), name: "f".to_owned(), input, outcome };
    let conversation = [
        Item::person("do it".to_owned()),
        Item::Agent {
            text: "I will.".to_owned(),
            calls: vec![
                call("a", json!({"n": 1}), Outcome::ok(json!({"done": true}))),
                call("b", json!("{\"n\":"), Outcome::error("no JSON")),
                call("c", Value::Null, Outcome::ok(json!("plain"))),
            ],
        },
        Item::Agent { text: "Half a".to_owned(), calls: vec![] },
        Item::CutOff,
    ];
    let tools =
        [ToolDefinition { name: "f".to_owned(), description: "does it".to_owned(), input_schema: json!({"type": "object"}) }];
    let request = ModelRequest { instructions: Some("Be kind."), conversation: &conversation, tools: &tools };
    let body = Body::new("m", request).unwrap();
    let plain: Value = serde_json::from_slice(&body.plain()).unwrap();
    let messages = plain["messages"].as_array().unwrap();
    assert_eq!(
        messages[..7],
        [
            json!({"role": "system", "content": "Be kind."}),
            json!({"role": "user", "content": "do it"}),
            json!({"role": "assistant", "content": "I will.", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{\"invalid_arguments\":\"{\\\"n\\\":\"}"}},
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": "a", "content": "{\"done\":true}"}),
            json!({"role": "tool", "tool_call_id": "b", "content": "Error: no JSON"}),
            json!({"role": "tool", "tool_call_id": "c", "content": "plain"}),
            json!({"role": "assistant", "content": "Half a"}),
        ]
    );
    assert_eq!((messages.len(), &messages[7]["role"]), (8, &json!("user")));
    assert_eq!(plain["model"], "m");
    assert_eq!(plain["stream"], true);
    assert_eq!(
        plain["tools"],
        json!([{"type": "function", "function": {"name": "f", "description": "does it", "parameters": {"type": "object"}}}])
    );
    assert_eq!(plain.get("stream_options"), None);
    let mut with: Value = serde_json::from_slice(&body.with_options()).unwrap();
    assert_eq!(with.as_object_mut().unwrap().remove("stream_options"), Some(json!({"include_usage": true})));
    assert_eq!(with, plain);
}

#[test]
fn no_tools_and_no_instructions_are_left_out() {
    let request = ModelRequest { instructions: None, conversation: &[Item::person("hi".to_owned())], tools: &[] };
    let body: Value = serde_json::from_slice(&Body::new("m", request).unwrap().plain()).unwrap();
    assert_eq!(body, json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}));
}

#[test]
fn files_go_with_what_was_said() {
    let file = |name: &str, media_type: &str, data: &'static [u8]| File {
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        data: data.into(),
    };
    let files = vec![file("a.png", "image/png", b"\x89PNG"), file("b \"x\".md", "text/markdown", "# größe".as_bytes())];
    let conversation = [
        Item::Person { text: "look".to_owned(), files: files.clone() },
        Item::Person { text: String::new(), files: files[..1].to_vec() },
    ];
    let request = ModelRequest { instructions: None, conversation: &conversation, tools: &[] };
    let body: Value = serde_json::from_slice(&Body::new("m", request).unwrap().plain()).unwrap();
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                image,
                {"type": "text", "text": "[attached file \"b \\\"x\\\".md\"]\n# größe"},
            ]},
            {"role": "user", "content": [image]},
        ])
    );
}
