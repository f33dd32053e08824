//! The OpenAPI document, made from the routes themselves.
//!
//! Routes come into the router together with their documentation, so there is none without. A handler documents what is its own: its
//! values, its body, its answer. Three extensions say the rest, in one word each, and [`document`] spells it out for readers:
//!
//! | extension | value | means |
//! | --- | --- | --- |
//! | `x-access` | `public` | anyone |
//! | | `signed-in` | a session cookie or a bearer token |
//! | | a scope | that scope in the project; whoever is no member finds nothing |
//! | `x-owner` | a name in the path or body | what it names must be the caller's own; that of another is as good as unknown |
//! | `x-problems` | codes | refusals beside those that follow from the route's access and body |

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde_json::{Value, json};
use turnfast_shared::{Code, Event, Problem, api::PushEvent, ids};
use utoipa::{
    OpenApi,
    openapi::{
        RefOr,
        content::ContentBuilder,
        header::HeaderBuilder,
        path::Operation,
        response::{Response as Answer, ResponseBuilder},
        schema::{AllOfBuilder, ObjectBuilder, Ref, Schema, Type},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

/// What the document says beside the routes.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Turnfast",
        description = "A chat server for AI agents in which an accepted turn always finishes and shows as exactly one message.\n\n\
            Refusals are `application/problem+json` with a `code`. A method that a path does not have gets 405 \
            `method_not_allowed`, a path that does not exist 404 `not_found`. Unknown fields in bodies and unknown query parameters \
            are refused.\n\n\
            `x-access` of an operation is `public`, `signed-in` or the scope that it takes; `x-owner` names what must be the \
            caller's own. The schema of a `text/event-stream` is that of each of its events: `data` is JSON text, and \
            `contentSchema` its schema.",
    ),
    components(schemas(
        Event, PushEvent, Problem, Code, ids::Slug, ids::ThreadId, ids::MessageId, ids::ExecutionId, ids::RunId, ids::UserId
    )),
    tags(
        (name = "turns", description = "Submit, resume, read, stop."),
        (name = "threads", description = "Threads as lists show them."),
        (name = "agents", description = "What the caller may use."),
        (name = "notifications", description = "That something changed."),
        (name = "auth", description = "Signing in and out."),
        (name = "operations", description = "For whoever runs the server."),
    )
)]
pub struct Base;

/// This document
///
/// OpenAPI 3.1, generated from the server's routes.
#[utoipa::path(get, path = "/openapi.json", tag = "operations",
    responses((status = 200, description = "The document.", content_type = "application/json", body = Object)),
    extensions(("x-access" = json!("public"))))]
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes()).into_response()
}

fn bytes() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| text().into()).clone()
}

/// The document as it is served, and as `server/openapi.json` has it.
#[must_use]
pub fn text() -> String {
    let mut document = super::routes().into_openapi();
    let mut refusals = BTreeMap::new();
    for item in document.paths.paths.values_mut() {
        let methods = [
            (&mut item.get, false),
            (&mut item.head, false),
            (&mut item.post, true),
            (&mut item.put, true),
            (&mut item.patch, true),
            (&mut item.delete, true),
        ];
        for (operation, is_unsafe) in methods {
            if let Some(operation) = operation {
                complete(operation, is_unsafe, &mut refusals);
            }
        }
    }
    let components = document.components.get_or_insert_default();
    components.responses.extend(refusals);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An API token (`turnfast token create`)."));
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
    let cookie = "The session of a browser, from POST /auth/login or a sign-in link. `__Host-turnfast_session` behind https. Requests \
        that change something must come from this server's own pages (`Sec-Fetch-Site` or `Origin`).";
    let cookie = ApiKey::Cookie(ApiKeyValue::with_description("turnfast_session", cookie));
    components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    let mut document = serde_json::to_value(document).unwrap_or_default();
    // The order of extensions is that of a hash map, and not the same twice.
    document.sort_all_objects();
    plain(&mut document);
    format!("{document:#}\n")
}

/// Takes the links of Rust's documentation out of descriptions: ``[`name`]`` becomes `` `name` ``.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "description" => *text = text.replace("[`", "`").replace("`]", "`"),
                    value => plain(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

fn extension<'o>(operation: &'o Operation, name: &str) -> Option<&'o Value> {
    operation.extensions.as_ref()?.get(name)
}

/// Adds what follows from the extensions: security, the rule in words, and refusals, which go into `refusals` by name.
fn complete(operation: &mut Operation, is_unsafe: bool, refusals: &mut BTreeMap<String, RefOr<Answer>>) {
    let access = extension(operation, "x-access").and_then(Value::as_str).unwrap_or_default().to_owned();
    let owner = extension(operation, "x-owner").and_then(Value::as_str).map(str::to_owned);
    let own = extension(operation, "x-problems").cloned().unwrap_or_default();
    let mut codes: Vec<Code> = serde_json::from_value(own).unwrap_or_default();
    codes.push(Code::Internal);
    let mut rule = String::new();
    if access != "public" {
        codes.extend([Code::Unauthenticated, Code::StorageUnavailable]);
        if is_unsafe {
            codes.push(Code::CrossOrigin);
        }
        operation.security = Some(vec![no_scopes("bearer"), no_scopes("session")]);
        "Takes a session or a token.".clone_into(&mut rule);
    }
    if access.contains(':') {
        codes.extend([Code::NotFound, Code::AgentsDisabled, Code::MissingScope, Code::InvalidRequest]);
        rule = format!("Takes the scope `{access}` in the project. Whoever is no member of the project finds nothing.");
    }
    if let Some(owner) = owner {
        rule =
            format!("{rule} `{owner}` must be the caller's own: the answer to that of another is the answer to an unknown one.");
    }
    for answer in operation.responses.responses.values_mut() {
        if let RefOr::T(answer) = answer
            && let Some(RefOr::T(stream)) = answer.content.get_mut("text/event-stream")
        {
            stream.schema = stream.schema.take().map(event);
        }
    }
    if operation.request_body.is_some() {
        codes.extend([Code::InvalidRequest, Code::UnsupportedMediaType, Code::PayloadTooLarge]);
    }
    if !rule.is_empty() {
        let description = operation.description.take().filter(|text| !text.is_empty());
        operation.description = Some(description.map_or_else(|| rule.clone(), |text| format!("{text}\n\n{rule}")));
    }
    let mut by_status: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    let names: Vec<(u16, String, &str)> = codes.iter().map(|code| (code.status(), name(*code), code.title())).collect();
    for (status, name, _) in &names {
        by_status.entry(*status).or_default().insert(name);
    }
    for (status, codes) in by_status {
        let titles = codes.iter().filter_map(|code| names.iter().find(|(_, name, _)| name == code));
        let lines: Vec<String> = titles.map(|(_, name, title)| format!("`{name}`: {title}.")).collect();
        let shared = codes.iter().fold(status.to_string(), |name, code| format!("{name}.{code}"));
        operation.responses.responses.insert(status.to_string(), RefOr::Ref(Ref::from_response_name(&shared)));
        refusals.entry(shared).or_insert_with(|| RefOr::T(refusal(status, &codes, lines.join(" "))));
    }
}

/// One event of a stream whose data is JSON of `schema`.
fn event(schema: RefOr<Schema>) -> RefOr<Schema> {
    let data = ObjectBuilder::new()
        .schema_type(Type::String)
        .content_media_type("application/json")
        .content_schema(Some(schema))
        .description(Some("JSON text."));
    let id = ObjectBuilder::new().schema_type(Type::String).description(Some("Of turns: `<executionId>:<n>`, from 1 up."));
    let retry = ObjectBuilder::new().schema_type(Type::Integer).description(Some("Milliseconds to wait before reconnecting."));
    let event = ObjectBuilder::new().schema_type(Type::Object).property("data", data).property("id", id).property("retry", retry);
    RefOr::T(Schema::Object(event.build()))
}

fn no_scopes(scheme: &str) -> SecurityRequirement {
    SecurityRequirement::new::<_, [String; 0], _>(scheme, [])
}

/// A code's name on the wire.
fn name(code: Code) -> String {
    serde_json::to_value(code).ok().as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn refusal(status: u16, codes: &BTreeSet<&str>, description: String) -> Answer {
    let one_of =
        |values: Vec<Value>, kind| Schema::Object(ObjectBuilder::new().schema_type(kind).enum_values(Some(values)).build());
    let narrowed = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("status", one_of(vec![json!(status)], Type::Integer))
        .property("code", one_of(codes.iter().map(|code| json!(code)).collect(), Type::String));
    let schema = AllOfBuilder::new().item(Ref::from_schema_name("Problem")).item(narrowed.build()).build();
    let content = ContentBuilder::new().schema(Some(RefOr::T(Schema::AllOf(schema)))).build();
    let answer = ResponseBuilder::new().description(description).content("application/problem+json", content);
    let header = |kind, text| {
        let schema = ObjectBuilder::new().schema_type(kind).build();
        HeaderBuilder::new().schema(Some(Schema::Object(schema))).description(Some(text)).build()
    };
    match status {
        401 => answer.header("WWW-Authenticate", header(Type::String, "`Bearer`.")).build(),
        429 | 503 => answer.header("Retry-After", header(Type::Integer, "Seconds until another try makes sense.")).build(),
        _ => answer.build(),
    }
}
