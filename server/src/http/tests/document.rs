//! The document agrees with the file that is checked in, and with itself.

use std::{collections::BTreeSet, fs, path::Path};

use turnfast_shared::ids::Slug;

use super::*;

fn document() -> Value {
    serde_json::from_str(&openapi::text()).unwrap()
}

/// `cargo xtask openapi` writes the file.
#[test]
fn the_document_is_the_one_checked_in() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let text = openapi::text();
    if std::env::var_os("TURNFAST_WRITE_OPENAPI").is_some() {
        fs::write(&file, &text).unwrap();
    }
    let checked_in = fs::read_to_string(&file).unwrap_or_default();
    let differs = checked_in.lines().zip(text.lines()).position(|(was, is)| was != is);
    assert!(
        checked_in == text,
        "server/openapi.json is not what the routes say (from line {}). If the change is meant, run `cargo xtask openapi`, look at \
         the difference, and commit it: it is what clients see.",
        differs.unwrap_or_else(|| checked_in.lines().count().min(text.lines().count())) + 1
    );
}

/// The page of an agent is at `/{project}/{agent}`.
#[test]
fn no_project_can_hide_behind_a_route() {
    let document = document();
    for path in document["paths"].as_object().unwrap().keys() {
        let first = path.split('/').nth(1).unwrap();
        assert!(first.parse::<Slug>().is_err() || crate::config::RESERVED_PROJECT_IDS.contains(&first), "{path}");
    }
}

#[tokio::test]
async fn the_document_is_served() {
    let world = World::new().await;
    let answer = world.send("GET", "/openapi.json", &[], None).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    assert!(answer.body == openapi::text(), "the same every time");
    assert_eq!(answer.json()["openapi"], json!("3.1.0"));
}

fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 20, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_operation_says_who_may_use_it_and_how_it_refuses() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = format!("{method} {path}");
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{name}: another operation is called {id} too");
            let is_public = operation["x-access"] == json!("public");
            assert_eq!(operation.get("security").is_none(), is_public, "{name}");
            let extra = operation.get("x-problems").cloned().unwrap_or_else(|| json!([]));
            let codes: Vec<Code> = serde_json::from_value(extra).unwrap_or_else(|error| panic!("{name}: {error}"));
            let responses = operation["responses"].as_object().unwrap();
            for code in codes {
                assert!(responses.contains_key(&code.status().to_string()), "{name}: {code:?}");
            }
            for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
                let shared = response["$ref"].as_str().unwrap().strip_prefix('#').unwrap();
                let content = document.pointer(shared).unwrap()["content"].as_object().unwrap();
                assert_eq!(content.keys().collect::<Vec<_>>(), ["application/problem+json"], "{name} {status}");
            }
            let mut parameters: Vec<&str> = operation
                .get("parameters")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == json!("path"))
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            let mut in_path: Vec<&str> = path.split(['{', '}']).skip(1).step_by(2).collect();
            parameters.sort_unstable();
            in_path.sort_unstable();
            assert_eq!(parameters, in_path, "{name}");
        }
    }
}

#[test]
fn streams_say_what_their_events_are() {
    let document = document();
    let mut streams = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            if operation["responses"]["200"]["content"].get("text/event-stream").is_some() {
                let event = &operation["responses"]["200"]["content"]["text/event-stream"]["schema"];
                let schema = event["properties"]["data"]["contentSchema"]["$ref"].as_str().unwrap().rsplit('/').next();
                streams.push((path.rsplit('/').next().unwrap(), schema.unwrap()));
            }
        }
    }
    streams.sort_unstable();
    assert_eq!(streams, [("chat", "Event"), ("push", "PushEvent"), ("resume", "Event")]);
}

/// What the schema of a union says about one of its members.
fn member<'d>(document: &'d Value, union: &str, kind: &str) -> &'d Value {
    let members = document["components"]["schemas"][union]["oneOf"].as_array().unwrap();
    let is_it = |member: &&Value| member["properties"]["type"]["enum"] == json!([kind]);
    members.iter().find(is_it).unwrap_or_else(|| panic!("{union} has no {kind}"))
}

/// Events are not validated by a fuzzer, which reads no streams: so here, field by field, for those of real turns.
#[tokio::test]
async fn the_events_of_real_turns_have_the_fields_of_the_schema() {
    let document = document();
    let world = World::new().await;
    let olga = world.token("olga", &[], None).await;
    let mut kinds = BTreeSet::new();
    for message in ["hello", "/think", "/tool", "/ask", "/approve", "/delegate 3", "/fail"] {
        let answer = world.post(&format!("{BASE}/chat"), &olga, json!({ "message": message })).await;
        for event in answer.events() {
            let event = serde_json::to_value(event).unwrap();
            let kind = event["type"].as_str().unwrap().to_owned();
            let schema = member(&document, "Event", &kind);
            let fields: BTreeSet<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
            let known: BTreeSet<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let required: BTreeSet<&str> =
                schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            assert!(fields.is_subset(&known) && required.is_subset(&fields), "{event}\n{schema}");
            kinds.insert(kind);
        }
    }
    assert!(kinds.len() >= 14, "the demo shows most events: {kinds:?}");
}
