//! Raw bytes in, events out. Each row goes in whole, byte by byte, and cut in two at every place.

use proptest::prelude::*;
use serde_json::{Value, json};
use turnfast_shared::event::Usage;

use crate::agents::{
    model::{FinishReason, ModelEvent},
    openai::{answer::Fault, body::BodyReader},
};

/// What an answer comes to, without the cuts between its deltas.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    /// Text (`t`), reasoning (`r`) and the starts of calls (`c`), in order.
    said: Vec<(char, String)>,
    calls: Vec<Made>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
    fault: Option<Fault>,
}

#[derive(Debug, PartialEq)]
struct Made {
    id: Option<String>,
    name: String,
    deltas: String,
    input: Option<Result<Value, String>>,
}

fn read(pieces: &[&[u8]]) -> Outcome {
    let mut reader = BodyReader::default();
    let mut events = Vec::new();
    let mut fault = None;
    for piece in pieces {
        if let Err(failure) = reader.feed(piece, &mut events) {
            fault = Some(failure);
            break;
        }
        if reader.is_done() {
            break;
        }
    }
    if fault.is_none() {
        fault = reader.end(&mut events).err();
    }
    if fault.is_some() {
        reader.keep(&mut events);
    }
    let mut outcome = Outcome { fault, ..Outcome::default() };
    let mut say = |kind: char, more: &str| match outcome.said.last_mut() {
        Some((last, text)) if *last == kind && kind != 'c' => text.push_str(more),
        _ => outcome.said.push((kind, more.to_owned())),
    };
    let mut numbers = Vec::new();
    let place = |numbers: &[usize], call: usize| numbers.iter().position(|&number| number == call).unwrap();
    for event in events {
        assert_eq!(outcome.finish, None, "Finish is the last event");
        match event {
            ModelEvent::Text(text) => say('t', &text),
            ModelEvent::Reasoning(text) => say('r', &text),
            ModelEvent::CallStart { call, id, name } => {
                numbers.push(call);
                say('c', &name);
                outcome.calls.push(Made { id, name, deltas: String::new(), input: None });
            }
            ModelEvent::CallInput { call, delta } => outcome.calls[place(&numbers, call)].deltas.push_str(&delta),
            ModelEvent::Call { call, input } => outcome.calls[place(&numbers, call)].input = Some(input),
            ModelEvent::Usage(usage) => outcome.usage = Some(usage),
            ModelEvent::Finish(reason) => outcome.finish = Some(reason),
        }
    }
    outcome
}

/// What `body` comes to, which must not depend on how it is cut.
fn outcome(body: &str) -> Outcome {
    let bytes = body.as_bytes();
    let whole = read(&[bytes]);
    let single: Vec<_> = bytes.chunks(1).collect();
    assert_eq!(read(&single), whole, "byte by byte: {body}");
    for cut in 1..bytes.len() {
        assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}: {body}");
    }
    whole
}

fn said(body: &str) -> Vec<(char, String)> {
    let outcome = outcome(body);
    assert_eq!((outcome.fault, outcome.finish), (None, Some(FinishReason::Stop)), "{body}");
    outcome.said
}

fn stream(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn text(said: &str) -> Vec<(char, String)> {
    vec![('t', said.to_owned())]
}

#[test]
fn lines() {
    let hi = r#"{"choices":[{"delta":{"content":"hé 🦀"}}]}"#;
    let end = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    for (row, body) in [
        ("LF", format!("data: {hi}\n\ndata: {end}\n\ndata: [DONE]\n\n")),
        ("CRLF", format!("data: {hi}\r\n\r\ndata: {end}\r\n\r\ndata: [DONE]\r\n\r\n")),
        ("no space", format!("data:{hi}\n\ndata:{end}\n\ndata:[DONE]\n\n")),
        (
            "comments before and between",
            format!(": ROUTER PROCESSING\n\n: x\n\ndata: {hi}\n\n: ping\n\ndata: {end}\n\ndata: [DONE]\n\n"),
        ),
        ("blank lines first", format!("\r\n\n data\n\ndata: {hi}\n\ndata: {end}\n\ndata: [DONE]\n\n")),
        ("byte order mark", format!("\u{feff}data: {hi}\n\ndata: {end}\n\ndata: [DONE]\n\n")),
        ("event names and ids", format!("event: chunk\nid: 1\ndata: {hi}\n\ndata: {end}\n\ndata: [DONE]\n\n")),
        ("no last blank line", format!("data: {hi}\n\ndata: {end}\n\ndata: [DONE]")),
        ("more behind the end", format!("data: {hi}\n\ndata: {end}\n\ndata: [DONE]\n\ndata: {hi}\n\n")),
    ] {
        assert_eq!(said(&body), text("hé 🦀"), "{row}");
    }
}

/// A server whose text is UTF-16 cuts a character in two.
#[test]
fn half_a_character() {
    let chunk = |content: &str| format!("data: {{\"choices\": [{{\"delta\": {{\"content\": \"{content}\"}}}}]}}\n\n");
    let body = |pieces: &[&str]| pieces.iter().map(|piece| chunk(piece)).collect::<String>() + "data: [DONE]\n\n";
    assert_eq!(said(&body(&["a\\ud83d", "\\ude00b"])), text("a\u{fffd}\u{fffd}b"));
    assert_eq!(said(&body(&["\\ud83d\\ude00 \\ud83dx \\\\ud83d \\u0041"])), text("😀 \u{fffd}x \\ud83d A"));
}

#[test]
fn start() {
    let rows = [
        ("no choices", vec![json!({"choices": [], "prompt_filter_results": [{"index": 0}]}), delta(json!({"content": "hi"}))]),
        ("choices null", vec![json!({"choices": null}), delta(json!({"content": "hi"}))]),
        (
            "role in each",
            vec![delta(json!({"role": "assistant", "content": "h"})), delta(json!({"role": "assistant", "content": "i"}))],
        ),
        ("role in none", vec![delta(json!({"content": "h"})), delta(json!({"content": "i"}))]),
        ("content null", vec![delta(json!({"role": "assistant", "content": null})), delta(json!({"content": "hi"}))]),
        ("empty delta", vec![delta(json!({})), delta(json!({"content": ""})), delta(json!({"content": "hi"}))]),
        ("no delta", vec![json!({"choices": [{"index": 0}]}), delta(json!({"content": "hi"}))]),
        ("another choice", vec![json!({"choices": [{"index": 1, "delta": {"content": "no"}}]}), delta(json!({"content": "hi"}))]),
        ("parts", vec![delta(json!({"content": [{"type": "text", "text": "hi"}, {"type": "image", "url": {"a": [1]}}]}))]),
        ("refusal", vec![delta(json!({"content": null, "refusal": "hi"}))]),
    ];
    for (row, chunks) in rows {
        assert_eq!(said(&stream(&chunks)), text("hi"), "{row}");
    }
}

#[test]
fn reasoning() {
    let both = vec![('r', "mm".to_owned()), ('t', "hi".to_owned())];
    let rows = [
        (
            "reasoning_content",
            vec![json!({"reasoning_content": "m", "content": null}), json!({"reasoning_content": "m"}), json!({"content": "hi"})],
        ),
        ("reasoning", vec![json!({"reasoning": "m", "content": ""}), json!({"reasoning": "m"}), json!({"content": "hi"})]),
        ("under both names", vec![json!({"reasoning": "mm", "reasoning_content": "mm"}), json!({"content": "hi"})]),
        ("tags", vec![json!({"content": "<think>mm</think>\n\nhi"})]),
        (
            "tags after white space",
            vec![json!({"content": "\n"}), json!({"content": " <think>"}), json!({"content": "mm</think> hi"})],
        ),
        ("two thoughts", vec![json!({"content": "<think>m</think>\n<think>m</think>hi"})]),
    ];
    for (row, deltas) in rows {
        let chunks: Vec<_> = deltas.into_iter().map(delta).collect();
        assert_eq!(said(&stream(&chunks)), both, "{row}");
    }
    let tagged = "<think>mm</think>hi";
    for cut in 1..tagged.len() {
        let chunks = [delta(json!({"content": tagged[..cut]})), delta(json!({"content": tagged[cut..]}))];
        assert_eq!(read(&[stream(&chunks).as_bytes()]).said, both, "cut at {cut}");
    }
    let single: Vec<_> = tagged.chars().map(|c| delta(json!({"content": c}))).collect();
    assert_eq!(read(&[stream(&single).as_bytes()]).said, both);
}

#[test]
fn text_that_only_looks_like_reasoning_stays_text() {
    for plain in ["a <think> b </think> c", "<thinker>", "<think", "<", "  <b>", "x</think>y", "\n\nindented"] {
        for cut in 0..=plain.len() {
            let chunks = [delta(json!({"content": plain[..cut]})), delta(json!({"content": plain[cut..]}))];
            assert_eq!(read(&[stream(&chunks).as_bytes()]).said, text(plain), "cut at {cut}");
        }
    }
    let unclosed = stream(&[delta(json!({"content": "<think>mm</thi"}))]);
    assert_eq!(said(&unclosed), [('r', "mm</thi".to_owned())]);
}

/// Ids, names and inputs of the calls of a stream.
fn calls(chunks: &[Value]) -> Vec<(Option<String>, String, Value)> {
    let outcome = outcome(&stream(chunks));
    assert_eq!((&outcome.fault, outcome.finish), (&None, Some(FinishReason::Stop)));
    let calls = outcome.calls.into_iter().map(|made| {
        let input = match made.input.unwrap() {
            Ok(input) => input,
            Err(text) => json!({"no json": text}),
        };
        if !made.deltas.trim().is_empty() && made.deltas.trim() != "null" {
            assert_eq!(serde_json::from_str::<Value>(&made.deltas).unwrap_or_else(|_| json!({"no json": made.deltas})), input);
        }
        (made.id, made.name, input)
    });
    calls.collect()
}

fn piece(call: Value) -> Value {
    delta(json!({"tool_calls": [call]}))
}

#[test]
fn one_tool_call() {
    let whole = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "clock", "arguments": "{\"z\":1}"}});
    let rows = [
        ("whole", vec![piece(whole.clone())]),
        (
            "finish in the same chunk",
            vec![json!({"choices": [{"delta": {"tool_calls": [whole.clone()]}, "finish_reason": "tool_calls"}]})],
        ),
        ("stop although there are calls", vec![piece(whole.clone()), finish("stop")]),
        ("tool_calls", vec![piece(whole), finish("tool_calls")]),
        (
            "in pieces",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "clock", "arguments": ""}})),
                piece(json!({"index": 0, "function": {"arguments": "{\"z\""}})),
                piece(json!({"index": 0, "function": {"arguments": ":1}"}})),
            ],
        ),
        (
            "id and name repeated",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "clock", "arguments": "{\"z\""}})),
                piece(json!({"index": 0, "id": "a", "function": {"name": "clock", "arguments": ":1}"}})),
            ],
        ),
        (
            "id and name empty later",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "clock", "arguments": null}})),
                piece(json!({"index": 0, "id": "", "function": {"name": "", "arguments": "{\"z\":"}})),
                piece(json!({"index": 0, "id": null, "function": {"name": null, "arguments": "1}"}})),
            ],
        ),
        (
            "another id in each piece",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "clock", "arguments": "{\"z\""}})),
                piece(json!({"index": 0, "id": "b", "function": {"arguments": ":1}"}})),
            ],
        ),
        (
            "no index",
            vec![
                piece(json!({"id": "a", "function": {"name": "clock", "arguments": "{\"z\""}})),
                piece(json!({"function": {"arguments": ":1}"}})),
            ],
        ),
        (
            "no index, id repeated",
            vec![
                piece(json!({"id": "a", "function": {"name": "clock", "arguments": "{\"z\""}})),
                piece(json!({"id": "a", "function": {"name": "clock", "arguments": ":1}"}})),
            ],
        ),
        (
            "name after the first piece",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"arguments": "{\"z\""}})),
                piece(json!({"index": 0, "function": {"name": "clock", "arguments": ":1}"}})),
            ],
        ),
        (
            "arguments as an object",
            vec![piece(json!({"index": 0, "id": "a", "function": {"name": "clock", "arguments": {"z": 1}}}))],
        ),
    ];
    for (row, chunks) in rows {
        assert_eq!(calls(&chunks), [(Some("a".to_owned()), "clock".to_owned(), json!({"z": 1}))], "{row}");
    }
}

#[test]
fn no_id_at_all() {
    for index in [json!({"index": 0}), json!({})] {
        let with = |function: Value| {
            let mut call = index.clone();
            call["function"] = function;
            piece(call)
        };
        let chunks = [with(json!({"name": "clock", "arguments": "{\"z\""})), with(json!({"name": "clock", "arguments": ":1}"}))];
        assert_eq!(calls(&chunks), [(None, "clock".to_owned(), json!({"z": 1}))]);
    }
}

#[test]
fn arguments_that_are_empty_or_no_json() {
    for (arguments, input) in [
        (json!(""), json!({})),
        (json!(null), json!({})),
        (json!("null"), json!({})),
        (json!("{}"), json!({})),
        (json!(" "), json!({})),
        (json!("{\"a\":"), json!({"no json": "{\"a\":"})),
        (json!("call me"), json!({"no json": "call me"})),
    ] {
        let chunk = piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}));
        assert_eq!(calls(&[chunk]), [(Some("a".to_owned()), "f".to_owned(), input)], "{arguments}");
    }
    let absent = piece(json!({"index": 0, "id": "a", "function": {"name": "f"}}));
    assert_eq!(calls(&[absent]), [(Some("a".to_owned()), "f".to_owned(), json!({}))]);
}

#[test]
fn several_tool_calls() {
    let a = json!({"name": "f", "arguments": "{\"n\":1}"});
    let b = json!({"name": "f", "arguments": "{\"n\":2}"});
    let ids = |first: Option<&str>, second: Option<&str>| {
        vec![
            (first.map(str::to_owned), "f".to_owned(), json!({"n": 1})),
            (second.map(str::to_owned), "f".to_owned(), json!({"n": 2})),
        ]
    };
    let rows = [
        (
            "one index, two ids, no arguments",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
                piece(json!({"index": 0, "id": "b", "function": {"name": "f", "arguments": ""}})),
            ],
            vec![(Some("a".to_owned()), "f".to_owned(), json!({})), (Some("b".to_owned()), "f".to_owned(), json!({}))],
        ),
        (
            "indexes as text, and below nought",
            vec![
                piece(json!({"index": "0", "id": "a", "function": {"name": "f", "arguments": "{\"n\":1}"}})),
                piece(json!({"index": -1, "id": "b", "function": {"name": "f", "arguments": "{\"n\":2}"}})),
            ],
            ids(Some("a"), Some("b")),
        ),
        (
            "interleaved by index",
            vec![
                piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}})),
                piece(json!({"index": 1, "id": "b", "function": {"name": "f", "arguments": "{\"n\""}})),
                piece(json!({"index": 0, "function": {"arguments": "{\"n\":"}})),
                piece(json!({"index": 1, "function": {"arguments": ":2}"}})),
                piece(json!({"index": 0, "function": {"arguments": "1}"}})),
            ],
            ids(Some("a"), Some("b")),
        ),
        (
            "in one chunk",
            vec![delta(json!({"tool_calls": [{"index": 0, "id": "a", "function": a}, {"index": 1, "id": "b", "function": b}]}))],
            ids(Some("a"), Some("b")),
        ),
        (
            "in one chunk, without index and id",
            vec![delta(json!({"tool_calls": [{"function": a}, {"function": b}]}))],
            ids(None, None),
        ),
        (
            "without index",
            vec![piece(json!({"id": "a", "function": a})), piece(json!({"id": "b", "function": b}))],
            ids(Some("a"), Some("b")),
        ),
        ("without index and id", vec![piece(json!({"function": a})), piece(json!({"function": b}))], ids(None, None)),
        (
            "all with index 0",
            vec![piece(json!({"index": 0, "id": "a", "function": a})), piece(json!({"index": 0, "id": "b", "function": b}))],
            ids(Some("a"), Some("b")),
        ),
        (
            "all with index 0 in one chunk, without ids",
            vec![delta(json!({"tool_calls": [{"index": 0, "function": a}, {"index": 0, "function": b}]}))],
            ids(None, None),
        ),
        (
            "indexes from one",
            vec![piece(json!({"index": 1, "id": "a", "function": a})), piece(json!({"index": 2, "id": "b", "function": b}))],
            ids(Some("a"), Some("b")),
        ),
        (
            "the same id twice",
            vec![piece(json!({"index": 0, "id": "a", "function": a})), piece(json!({"index": 1, "id": "a", "function": b}))],
            ids(Some("a"), Some("a")),
        ),
    ];
    for (row, chunks, expected) in rows {
        assert_eq!(calls(&chunks), expected, "{row}");
    }
}

#[test]
fn text_before_calls_keeps_its_place() {
    let call = piece(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}));
    let spoken = said(&stream(&[delta(json!({"content": "<"})), call.clone()]));
    assert_eq!(spoken, [('t', "<".to_owned()), ('c', "f".to_owned())]);
    let silent = said(&stream(&[delta(json!({"content": "\n\n"})), call]));
    assert_eq!(silent, [('c', "f".to_owned())]);
}

#[test]
fn end() {
    let hi = format!("data: {}\n\n", delta(json!({"content": "hi"})));
    let stop = format!("data: {}\n\n", finish("stop"));
    let done = "data: [DONE]\n\n";
    let cut = (Some(Fault::Cut), None);
    for (row, body, expected) in [
        ("both", format!("{hi}{stop}{done}"), (None, Some(FinishReason::Stop))),
        ("no finish_reason but DONE", format!("{hi}{done}"), (None, Some(FinishReason::Stop))),
        ("a clean close after finish_reason", format!("{hi}{stop}"), (None, Some(FinishReason::Stop))),
        ("an unknown finish_reason", format!("{hi}data: {}\n\n", finish("eos")), (None, Some(FinishReason::Stop))),
        ("length", format!("{hi}data: {}\n\n{done}", finish("length")), (None, Some(FinishReason::Length))),
        (
            "content_filter",
            format!("{hi}data: {}\n\n{done}", finish("content_filter")),
            (None, Some(FinishReason::ContentFilter)),
        ),
        ("a close without either", hi.clone(), cut.clone()),
        ("a close within an event", format!("{hi}data: {{\"cho"), cut),
    ] {
        let outcome = outcome(&body);
        assert_eq!((outcome.fault, outcome.finish), expected, "{row}");
        assert_eq!(outcome.said, text("hi"), "{row}");
    }
    assert_eq!(outcome("").fault, Some(Fault::Cut));
    assert_eq!(outcome(": nothing but comments\n\n").fault, Some(Fault::Cut));
}

#[test]
fn usage() {
    let counted = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 1}});
    let usage = Some(Usage { input_tokens: Some(3), output_tokens: Some(2), reasoning_tokens: Some(1) });
    let with = |mut chunk: Value, usage: Value| {
        chunk["usage"] = usage;
        chunk
    };
    let hi = delta(json!({"content": "hi"}));
    let last = json!({"choices": [], "usage": counted});
    let rows = [
        ("a last chunk", vec![hi.clone(), finish("stop"), last], usage),
        (
            "in every chunk",
            vec![with(hi.clone(), json!({"prompt_tokens": 3, "completion_tokens": 1})), with(finish("stop"), counted.clone())],
            usage,
        ),
        ("null until the end", vec![with(hi.clone(), json!(null)), with(finish("stop"), counted)], usage),
        ("never", vec![hi.clone(), finish("stop")], None),
        ("not understood", vec![with(hi.clone(), json!({"prompt_tokens": "many"})), finish("stop")], None),
    ];
    for (row, chunks, expected) in rows {
        let outcome = outcome(&stream(&chunks));
        assert_eq!((outcome.usage, outcome.said), (expected, text("hi")), "{row}");
    }
}

#[test]
fn errors_in_the_middle() {
    let hi = delta(json!({"content": "hi"}));
    for (row, event) in [
        ("an object", format!("data: {}\n\n", json!({"error": {"message": "overloaded", "code": 502}}))),
        ("a string", format!("data: {}\n\n", json!({"error": "overloaded"}))),
        (
            "with choices",
            format!("data: {}\n\n", json!({"error": {"message": "overloaded"}, "choices": [{"delta": {"content": ""}}]})),
        ),
        (
            "in the choice",
            format!("data: {}\n\n", json!({"choices": [{"error": {"message": "overloaded"}, "finish_reason": "error"}]})),
        ),
        ("an error object", format!("data: {}\n\n", json!({"object": "error", "message": "overloaded", "code": 500}))),
        ("an error event", "event: error\ndata: overloaded\n\n".to_owned()),
        ("an error event with JSON", "event: error\ndata: {\"detail\": [{\"msg\": \"overloaded\"}]}\n\n".to_owned()),
    ] {
        let outcome = outcome(&format!("data: {hi}\n\n{event}"));
        assert_eq!(outcome.fault, Some(Fault::Reported("overloaded".to_owned())), "{row}");
        assert_eq!((outcome.said, outcome.finish), (text("hi"), None), "{row}");
    }
    let nonsense = outcome(&format!("data: {hi}\n\ndata: hello\n\n"));
    assert_eq!((nonsense.fault, nonsense.said), (Some(Fault::Malformed("hello".to_owned())), text("hi")));
    assert_eq!(outcome("<!doctype html><title>x</title>").fault, Some(Fault::WebPage));
}

#[test]
fn one_document_instead_of_a_stream() {
    let call = json!({"id": "a", "function": {"name": "f", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": "hi", "tool_calls": [call]});
    let document = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}});
    let outcome_of = outcome(&document.to_string());
    assert_eq!(outcome_of.said, [('t', "hi".to_owned()), ('c', "f".to_owned())]);
    assert_eq!(outcome_of.usage.unwrap().input_tokens, Some(1));
    assert_eq!(outcome(r#"{"error":{"message":"no such model"}}"#).fault, Some(Fault::Reported("no such model".to_owned())));
}

proptest! {
    /// Nothing that comes in can do worse than end the answer, and nothing depends on how it is cut.
    #[test]
    fn any_bytes_cut_anywhere(
        lines in proptest::collection::vec(
            prop_oneof![
                Just(r#"data: {"choices":[{"delta":{"content":"<think>é"}}]}"#.to_owned()),
                Just(r#"data: {"choices":[{"delta":{"content":"</think> x"}}]}"#.to_owned()),
                Just(r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}]}"#.to_owned()),
                Just(r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"}"}}]}}]}"#.to_owned()),
                Just("data: [DONE]".to_owned()),
                Just(String::new()),
                "\\PC{0,20}",
            ],
            0..12,
        ),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let body = lines.join("\n");
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|pair| &body.as_bytes()[pair[0]..pair[1]]).collect();
        prop_assert_eq!(read(&pieces), read(&[body.as_bytes()]));
    }
}
