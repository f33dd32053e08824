//! The connection, against a real server on the loopback that writes bytes as the test tells it.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time,
};
use turnfast_shared::{ExecutionStatus, ToolState};

use crate::{
    agents::{
        TurnError,
        catalog::Catalog,
        conversation::Item,
        model::{FinishReason, Model, ModelEvent, ModelRequest, ModelStream},
        openai::{Clients, Endpoint, OpenAiModel},
        tests::{
            demo::{agent, config},
            execute, input, slug, typed,
        },
    },
    clock,
    config::{Agent, EngineKind, Provider, Secret, SecretSource},
    redact::Redactor,
};

const KEY: &str = "sk-a-secret-that-nobody-may-see";
/// Another's: an MCP server's token, say.
const ANOTHER_SECRET: &str = "mcp-token-that-is-none-of-the-model's-business";
const HI: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A server that takes one connection after the other, and a model behind it.
struct Rig {
    listener: TcpListener,
    model: OpenAiModel,
}

impl Rig {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = model(&format!("http://{}/v1", listener.local_addr().unwrap()));
        Self { listener, model }
    }

    fn ask(&self) -> ModelStream {
        ask(&self.model)
    }

    /// Waits for the next request.
    async fn request(&self) -> Exchange {
        let (mut socket, _) = self.listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        loop {
            assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "a whole request");
            let text = String::from_utf8(bytes.clone()).unwrap();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let head = head.to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap().trim().parse::<usize>().unwrap();
            if body.len() == length {
                return Exchange { socket, head, body: serde_json::from_str(body).unwrap() };
            }
        }
    }

    /// Answers one request with `answer`, closes, and returns what the model made of it.
    async fn answer(&self, answer: &str) -> (Vec<ModelEvent>, Option<TurnError>) {
        let (_, outcome) = tokio::join!(
            async {
                let mut exchange = self.request().await;
                exchange.write(answer).await;
            },
            collect(self.ask())
        );
        outcome
    }
}

/// A request, and the socket to answer on.
struct Exchange {
    socket: TcpStream,
    head: String,
    body: Value,
}

impl Exchange {
    async fn write(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }
}

fn model(base_url: &str) -> OpenAiModel {
    let provider = Provider {
        id: "local".to_owned(),
        base_url: base_url.to_owned(),
        api_key: Some(SecretSource::Present(Secret::new(KEY.to_owned()))),
        stall: Duration::from_secs(60),
    };
    let endpoint = Endpoint::new(&provider, &mut Clients::default(), Redactor::new([KEY, ANOTHER_SECRET])).unwrap();
    OpenAiModel::new(Arc::new(endpoint), "m".to_owned())
}

fn ask(model: &OpenAiModel) -> ModelStream {
    model.stream(ModelRequest { instructions: None, conversation: &[Item::person("hello".to_owned())], tools: &[] })
}

async fn collect(mut stream: ModelStream) -> (Vec<ModelEvent>, Option<TurnError>) {
    let mut events = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

fn head(status: u16, headers: &[(&str, &str)]) -> String {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {}\r\nconnection: close\r\n{headers}\r\n", StatusCode::from_u16(status).unwrap())
}

fn streaming() -> String {
    head(200, &[("content-type", "text/event-stream")])
}

fn hi() -> ModelEvent {
    ModelEvent::Text("hi".to_owned())
}

#[tokio::test]
async fn a_request_and_its_answer() {
    let rig = Rig::new().await;
    let (exchange, outcome) = tokio::join!(
        async {
            let mut exchange = rig.request().await;
            exchange.write(&format!("{}{HI}{END}", streaming())).await;
            exchange
        },
        collect(rig.ask())
    );
    assert_eq!(outcome, (vec![hi(), ModelEvent::Finish(FinishReason::Stop)], None));
    assert!(exchange.head.starts_with("post /v1/chat/completions http/1.1"), "{}", exchange.head);
    assert!(exchange.head.contains(&format!("authorization: bearer {KEY}")), "{}", exchange.head);
    assert_eq!(exchange.body["model"], "m");
    assert_eq!(exchange.body["stream_options"], json!({"include_usage": true}));
}

#[tokio::test]
async fn the_end_of_the_stream_is_enough_on_an_open_connection() {
    let rig = Rig::new().await;
    let (_open, outcome) = tokio::join!(
        async {
            let mut exchange = rig.request().await;
            exchange.write(&format!("{}{HI}{END}", streaming())).await;
            exchange
        },
        collect(rig.ask())
    );
    assert_eq!(outcome.1, None);
}

#[tokio::test]
async fn statuses_become_errors_that_say_what_to_do() {
    let rig = Rig::new().await;
    let json = r#"{"error": {"message": "The model is on fire.", "type": "x"}}"#;
    let html = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
    let rows = [
        (401, json, "provider_unauthorized", vec!["401", "on fire.", "api_key"]),
        (403, "", "provider_unauthorized", vec!["403", "api_key"]),
        (404, r#"{"error": "model 'm' not found"}"#, "provider_error", vec!["404", "model 'm' not found", "base_url"]),
        (413, r#"{"detail": "too big"}"#, "provider_error", vec!["413", "too big"]),
        (429, json, "provider_rate_limited", vec!["429", "on fire."]),
        (500, "", "provider_error", vec!["500", "Try again"]),
        (502, html, "provider_error", vec!["502", "web page, \"502 Bad Gateway\""]),
        (503, "plain words", "provider_error", vec!["503", "plain words"]),
    ];
    for (status, body, code, words) in rows {
        let (events, error) = rig.answer(&format!("{}{body}", head(status, &[]))).await;
        let error = error.unwrap();
        assert_eq!((events, error.code), (vec![], Some(code)), "{status}");
        for word in words {
            assert!(error.message.contains(word), "{status}: {}", error.message);
        }
        assert!(!error.message.contains("nginx") && !error.message.contains(".."), "{}", error.message);
    }
    let (_, error) = rig.answer(&head(308, &[("location", "https://elsewhere.example/v1")])).await;
    assert!(error.unwrap().message.contains("https://elsewhere.example/v1"));
}

#[tokio::test]
async fn long_words_are_cut_and_the_key_is_never_repeated() {
    let rig = Rig::new().await;
    // The key lies where the words are cut.
    let body = format!("{} {KEY} {}", "x".repeat(285), "y".repeat(100_000));
    let (_, error) = rig.answer(&format!("{}{body}", head(500, &[]))).await;
    let message = error.unwrap().message;
    assert!(message.len() < 500 && !message.contains("sk-a"), "{message}");
    let echo = json!({"error": {"message": format!("Incorrect API key provided: {KEY}")}});
    for answer in
        [format!("{}{echo}", head(401, &[])), format!("{}data: {echo}\n\n", streaming()), format!("{}{KEY}", head(401, &[]))]
    {
        let (_, error) = rig.answer(&answer).await;
        let message = error.unwrap().message;
        assert!(message.contains("[secret]") && !message.contains(KEY), "{message}");
    }
}

#[tokio::test]
async fn an_echoed_key_is_kept_out_of_the_answer() {
    let rig = Rig::new().await;
    let chunk = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
    let call =
        |arguments: &str| json!({"tool_calls": [{"index": 0, "id": KEY, "function": {"name": "f", "arguments": arguments}}]});
    let mut body = streaming();
    body += &chunk(json!({"reasoning": format!("the key is {}", &KEY[..9])}));
    body += &chunk(json!({"reasoning": format!("{}, and s", &KEY[9..])}));
    for c in format!("{KEY} sk-a {KEY}{ANOTHER_SECRET}").chars() {
        body += &chunk(json!({"content": c}));
    }
    body += &chunk(call(&format!("{{\"k\": [\"{}", &KEY[..3])));
    body += &chunk(call(&format!("{}\"]}}", &KEY[3..])));
    let (events, error) = rig.answer(&(body + END)).await;
    assert_eq!(error, None);
    let shown = format!("{events:?}");
    assert!(!shown.contains(KEY) && !shown.contains(ANOTHER_SECRET), "{shown}");
    let (mut reasoning, mut text, mut deltas) = (String::new(), String::new(), String::new());
    for event in &events {
        match event {
            ModelEvent::Reasoning(delta) => reasoning += delta,
            ModelEvent::Text(delta) => text += delta,
            ModelEvent::CallInput { delta, .. } => deltas += delta,
            _ => {}
        }
    }
    assert_eq!(reasoning, "the key is [secret], and s");
    // It came letter by letter: a quarter of it may be shown before it is known for one.
    let first = |secret: &str| secret[..secret.len() / 4].to_owned();
    assert_eq!(text, format!("{0}[secret] sk-a {0}[secret]{1}[secret]", first(KEY), first(ANOTHER_SECRET)));
    assert_eq!(deltas, format!("{{\"k\": [\"{}[secret]\"]}}", &KEY[..3]));
    assert!(events.contains(&ModelEvent::Call { call: 0, input: Ok(json!({"k": ["[secret]"]})) }), "{shown}");
}

#[tokio::test]
async fn retry_after_in_seconds_and_as_a_date() {
    let rig = Rig::new().await;
    let (_, error) = rig.answer(&head(429, &[("retry-after", "17")])).await;
    assert!(error.unwrap().message.contains("Try again in 17 s."));
    let at = jiff::Timestamp::from_millisecond(clock::now() + 3_600_000).unwrap();
    let date = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let (_, error) = rig.answer(&head(429, &[("retry-after", &date)])).await;
    let message = error.unwrap().message;
    let (minutes, unit) = message.split("Try again in ").nth(1).unwrap().split_once(' ').unwrap();
    assert!((50..=60).contains(&minutes.parse::<u64>().unwrap()) && unit.starts_with("minutes."), "{message}");
    let (_, error) = rig.answer(&head(429, &[("retry-after", "86400")])).await;
    assert!(error.unwrap().message.contains("Try again in 24 hours."));
    let (_, error) = rig.answer(&head(429, &[("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT")])).await;
    assert!(error.unwrap().message.contains("Try again later."));
    let (_, error) = rig.answer(&head(429, &[("retry-after", "Mon, 30 Nov 2020 15:25:09 GMT")])).await;
    assert!(error.unwrap().message.contains("Try again in 0 s."));
    let (_, error) = rig.answer(&head(429, &[("retry-after", "soon")])).await;
    assert!(error.unwrap().message.contains("Try again later."));
}

#[tokio::test]
async fn a_server_that_refuses_stream_options_is_asked_without_them_from_then_on() {
    let rig = Rig::new().await;
    let (bodies, outcome) = tokio::join!(
        async {
            let mut first = rig.request().await;
            first.write(&format!("{}{{\"error\":\"Unknown field stream_options\"}}", head(400, &[]))).await;
            drop(first.socket);
            let mut second = rig.request().await;
            second.write(&format!("{}{HI}{END}", streaming())).await;
            [first.body, second.body]
        },
        collect(rig.ask())
    );
    assert_eq!(outcome, (vec![hi(), ModelEvent::Finish(FinishReason::Stop)], None));
    assert!(bodies[0].get("stream_options").is_some() && bodies[1].get("stream_options").is_none());
    let (body, _) = tokio::join!(
        async {
            let mut third = rig.request().await;
            third.write(&format!("{}{HI}{END}", streaming())).await;
            third.body
        },
        collect(rig.ask())
    );
    assert_eq!(body.get("stream_options"), None);
}

#[tokio::test]
async fn a_request_that_is_bad_in_itself_stays_an_error() {
    let rig = Rig::new().await;
    for _ in 0..2 {
        let ((), outcome) = tokio::join!(
            async {
                for options in [true, false] {
                    let mut exchange = rig.request().await;
                    assert_eq!(exchange.body.get("stream_options").is_some(), options);
                    exchange.write(&format!("{}{{\"error\":\"context too long\"}}", head(400, &[]))).await;
                }
            },
            collect(rig.ask())
        );
        let error = outcome.1.unwrap();
        assert!(error.code == Some("provider_error") && error.message.contains("context too long"), "{}", error.message);
    }
}

#[tokio::test]
async fn a_cut_keeps_the_text() {
    let rig = Rig::new().await;
    let chunked = |body: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n", body.len());
    for answer in [format!("{}{HI}", streaming()), chunked(HI)] {
        let (events, error) = rig.answer(&answer).await;
        assert_eq!((events, error.unwrap().code), (vec![hi()], Some("provider_cut")));
    }
    let (events, error) = rig.answer(&chunked(&END.replace("data: [DONE]\n\n", ""))).await;
    assert_eq!((events, error), (vec![ModelEvent::Finish(FinishReason::Stop)], None), "all of the answer was there");
    let (events, error) = rig.answer("").await;
    assert_eq!((events, error.unwrap().code), (vec![], Some("provider_cut")));
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    let rig = Rig::new().await;
    let (events, error) = rig.answer(&format!("{}<!doctype html><p>hello", head(200, &[("content-type", "text/html")]))).await;
    let error = error.unwrap();
    assert_eq!((events, error.code), (vec![], Some("provider_malformed")));
    assert!(error.message.contains("base_url"), "{}", error.message);
}

#[tokio::test]
async fn a_document_that_is_no_completion_is_an_error_with_its_words() {
    let rig = Rig::new().await;
    let (events, error) =
        rig.answer(&format!("{}{{\"detail\":\"boom\"}}", head(200, &[("content-type", "application/json")]))).await;
    assert!(events.is_empty(), "{events:?}");
    assert!(error.unwrap().message.contains("boom"));
}

#[tokio::test]
async fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = model(&format!("http://{}", listener.local_addr().unwrap()));
    drop(listener);
    let (events, error) = collect(ask(&model)).await;
    let error = error.unwrap();
    assert_eq!((events, error.code), (vec![], Some("provider_unreachable")));
    assert!(error.message.contains("refused") && error.message.contains("base_url"), "{}", error.message);
}

/// Real time until the text is there; then nothing is left to wait for but the limit.
#[tokio::test]
async fn a_stall_ends_the_answer_and_keeps_the_text() {
    let rig = Rig::new().await;
    let mut stream = rig.ask();
    let (_open, first) = tokio::join!(
        async {
            let mut exchange = rig.request().await;
            exchange.write(&format!("{}{HI}", streaming())).await;
            exchange
        },
        stream.next()
    );
    assert_eq!(first.unwrap().unwrap(), hi());
    time::pause();
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!(error.code, Some("provider_stalled"));
    assert!(error.message.contains("60 s") && error.message.contains("stall_seconds"), "{}", error.message);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_server_that_never_answers_stalls_too() {
    let rig = Rig::new().await;
    let answer = tokio::spawn(collect(rig.ask()));
    let _open = rig.request().await;
    time::pause();
    let (events, error) = answer.await.unwrap();
    assert_eq!((events, error.unwrap().code), (vec![], Some("provider_stalled")));
}

#[tokio::test]
async fn a_silent_connection_behind_a_finished_answer_is_no_error() {
    let rig = Rig::new().await;
    let mut stream = rig.ask();
    let (_open, first) = tokio::join!(
        async {
            let mut exchange = rig.request().await;
            let end = END.replace("data: [DONE]\n\n", "");
            exchange.write(&format!("{}{HI}{end}", streaming())).await;
            exchange
        },
        stream.next()
    );
    assert_eq!(first.unwrap().unwrap(), hi());
    time::pause();
    assert_eq!(stream.next().await.unwrap().unwrap(), ModelEvent::Finish(FinishReason::Stop));
}

#[tokio::test]
async fn dropping_the_answer_hangs_up() {
    let rig = Rig::new().await;
    let mut stream = rig.ask();
    let (mut exchange, first) = tokio::join!(
        async {
            let mut exchange = rig.request().await;
            exchange.write(&format!("{}{HI}", streaming())).await;
            exchange
        },
        stream.next()
    );
    assert_eq!(first.unwrap().unwrap(), hi());
    drop(stream);
    let mut rest = Vec::new();
    // Either end of a connection will do; what counts is that it comes.
    let _ = exchange.socket.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
}

#[test]
fn what_is_wrong_with_a_provider_is_said_when_it_is_made() {
    let provider = |base_url: &str, api_key| Provider {
        id: "p".to_owned(),
        base_url: base_url.to_owned(),
        api_key,
        stall: Duration::from_secs(1),
    };
    let refuse = |provider: Provider| match Endpoint::new(&provider, &mut Clients::default(), Redactor::default()) {
        Ok(_) => panic!("made an endpoint of {}", provider.base_url),
        Err(why) => why,
    };
    assert_eq!(refuse(provider("http://localhost", Some(SecretSource::Missing("env:NO_KEY".to_owned())))), "env:NO_KEY");
    for bad in ["", "localhost:1", "ftp://x", "http://"] {
        assert!(refuse(provider(bad, None)).contains("base_url"), "{bad}");
    }
    let key = SecretSource::Present(Secret::new("two\nlines".to_owned()));
    assert!(refuse(provider("http://localhost", Some(key))).contains("api_key"));
}

/// All of it at once: configuration, loop, tool, connection.
#[tokio::test]
async fn a_turn_with_a_tool_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let rig = Rig { listener, model: model(&base_url) };
    let mut config = config(vec![Agent {
        provider: Some("local".to_owned()),
        model: Some("m".to_owned()),
        instructions: Some("Be brief.".to_owned()),
        tools: vec!["clock".to_owned()],
        ..agent("assistant", EngineKind::Native)
    }]);
    config.providers = vec![Provider { id: "local".to_owned(), base_url, api_key: None, stall: Duration::from_secs(60) }];
    let catalog = Catalog::new(&config);
    let engine = catalog.agent(&slug("demo"), &slug("assistant")).unwrap().engine().unwrap();
    let (exchange, done) = tokio::join!(
        async {
            let mut first = rig.request().await;
            let call = json!({"choices": [{"delta": {"tool_calls": [{"function": {"name": "clock", "arguments": {}}}]}, "finish_reason": "stop"}]});
            first.write(&format!("{}data: {call}\n\ndata: [DONE]\n\n", streaming())).await;
            drop(first.socket);
            let mut second = rig.request().await;
            second.write(&format!("{}{HI}{END}", streaming())).await;
            second
        },
        execute(&*engine, input(vec![typed("What time is it?")]))
    );
    assert_eq!((done.status(), done.text().as_str()), (ExecutionStatus::Success, "hi"));
    let call = done.calls()[0];
    assert_eq!((call.tool_call_id.as_str(), call.state), ("call_1_1", ToolState::Resolved));
    let messages = &exchange.body["messages"];
    assert_eq!(messages[0], json!({"role": "system", "content": "Be brief."}));
    assert_eq!(messages[2]["tool_calls"][0]["function"], json!({"name": "clock", "arguments": "{}"}));
    assert_eq!(messages[3]["tool_call_id"], "call_1_1");
    assert_eq!(messages[3]["content"].as_str().unwrap(), call.output.as_ref().unwrap().to_string());
    assert_eq!(exchange.body["tools"][0]["function"]["name"], "clock");
    assert!(!exchange.head.contains("authorization"), "{}", exchange.head);
}
