//! What whoever runs a server sees of it: metrics and traces.

use std::sync::Arc;

use anyhow::Result;
use axum::{Json, Router, extract::State, routing::post};
use serde_json::Value;
use tokio::{net::TcpListener, sync::Mutex};
use turnfast_shared::ExecutionStatus;
use turnfast_tests::{
    client::http,
    installation::{Installation, PROVIDER_KEY},
    provider::Provider,
};

#[tokio::test]
async fn metrics_are_on_a_listener_of_their_own() -> Result<()> {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let config = format!(
        "[server]\nmetrics_listen = \"127.0.0.1:{port}\"\n[[projects]]\nid = \"demo\"\nmembers = {{ alice = \"admin\" }}\n\n[[agents]]\nproject = \"demo\"\nid = \"demo\"\nengine = \"demo\"\n"
    );
    let installation = Installation::with_config(&config)?;
    let token = installation.user("alice").await?;
    let server = installation.serve().await?;
    let alice = server.client(&token)?;
    let push = alice.push().await?;
    assert_eq!(alice.say("demo", "/long 3").await?.done().await?, ExecutionStatus::Success);
    let read = |url: String| async move {
        let answer = http()?.get(url).send().await?;
        let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        anyhow::Ok((answer.status().as_u16(), kind, answer.text().await?))
    };
    let (status, kind, text) = read(format!("http://127.0.0.1:{port}/metrics")).await?;
    assert_eq!((status, kind.as_str()), (200, "application/openmetrics-text; version=1.0.0; charset=utf-8"));
    for line in ["turnfast_turns_total{status=\"success\"} 1", "turnfast_turns_running 0", "turnfast_followers 1"] {
        assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
    }
    let flushes = text.lines().find_map(|line| line.strip_prefix("turnfast_flush_seconds_count ")?.parse::<u64>().ok());
    assert!(flushes.is_some_and(|flushes| flushes > 0), "{text}");
    drop(push);
    assert_eq!(read(format!("{}/metrics", server.url)).await?.0, 404, "not where everybody is");
    Ok(())
}

type Spans = Arc<Mutex<Vec<Value>>>;

/// A collector that keeps what it is sent.
async fn collector() -> Result<(String, Spans)> {
    async fn take(State(spans): State<Spans>, Json(export): Json<Value>) -> Json<Value> {
        spans.lock().await.push(export);
        Json(Value::Object(serde_json::Map::new()))
    }
    let spans = Spans::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/v1/traces", post(take)).with_state(spans.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((format!("http://{address}"), spans))
}

#[tokio::test]
async fn a_turn_is_traced_without_what_was_said() -> Result<()> {
    let (endpoint, exports) = collector().await?;
    let provider = Provider::start().await?;
    let installation = Installation::with_provider(&provider)?;
    let token = installation.user("alice").await?;
    let server = installation.serve_after(&format!("export OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}")).await?;
    let mut live = server.client(&token)?.say("assistant", "[[tool:clock:{}]][[say:a word of a secret conversation]]").await?;
    assert_eq!(live.done().await?, ExecutionStatus::Success);
    server.ask_to_end()?;
    assert!(server.ended().await?.success());

    let exports = exports.lock().await;
    let text = serde_json::to_string(&*exports)?;
    let all = exports.iter().flat_map(|export| export["resourceSpans"].as_array().cloned().unwrap_or_default());
    let spans: Vec<Value> = all
        .flat_map(|resource| resource["scopeSpans"].as_array().cloned().unwrap_or_default())
        .flat_map(|scope| scope["spans"].as_array().cloned().unwrap_or_default())
        .collect();
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let [turn] = named("turn")[..] else { panic!("one turn: {spans:#?}") };
    assert!(turn.to_string().contains(&live.started.execution.to_string()), "{turn:#}");
    // Asked twice: for the call, and with its result.
    for (name, count) in [("model request", 2), ("tool call", 1)] {
        let within = named(name);
        assert_eq!(within.len(), count, "{name}: {spans:#?}");
        assert!(within.iter().all(|span| span["parentSpanId"] == turn["spanId"]), "{name} is part of the turn: {within:#?}");
    }
    assert!(!named("flush").is_empty() && !named("http request").is_empty(), "{spans:#?}");
    assert!(text.contains("\"turnfast\""), "the service says who it is");
    for secret in ["a secret conversation", PROVIDER_KEY, &token] {
        assert!(!text.contains(secret), "`{secret}` is in the traces");
    }
    Ok(())
}
