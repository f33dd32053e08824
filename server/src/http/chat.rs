//! Turns over HTTP: submit, resume, read, stop (contract 1, sections 3 to 6).

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::value::RawValue;
use turnfast_shared::{
    Code, ExecutionStatus, Role,
    api::{CancelAnswer, ChatRequest, ResumeRequest, RunCancelAnswer},
    event::Suspension,
    ids::{ExecutionId, MessageId},
    message::ExecutionError,
};

use super::{access, body, path, problem::ApiError, query, sse};
use crate::{
    agents::Engine,
    app::App,
    auth::{Caller, Scope},
    clock,
    store::turns::{RecordedMessage, ThreadChoice},
    turns::{Resume, Submit, new_message_id, new_thread_id},
};

/// Bytes of a resume's body. Answers are typed by people.
const RESUME_BODY_MAX: usize = 256 * 1024;
/// JSON may escape one byte as six, and the other fields need room too.
const ESCAPED: usize = 6;
const ENVELOPE: usize = 16 * 1024;

/// POST `/chat`: scope `agent:execute`; an existing thread must be the caller's.
pub async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentExecute)?;
    let max = app.config.limits.max_message_bytes;
    let request: ChatRequest = body::json(&headers, body, max * ESCAPED + ENVELOPE).await?;
    if request.message.len() > max {
        let detail = format!("The message has {} bytes; {max} are taken.", request.message.len());
        let mut error = ApiError::new(Code::PayloadTooLarge, detail);
        error.0.field = Some("message".to_owned());
        return Err(error);
    }
    if !request.attachments.is_empty() {
        return Err(ApiError::field("attachments", "This server does not take attachments yet."));
    }
    if request.message.trim().is_empty() {
        return Err(ApiError::field("message", "The message is blank. Write something."));
    }
    let engine = engine(agent)?;
    let (thread, choice) = match (request.session_id, request.new_session) {
        (None, _) => (new_thread_id(), ThreadChoice::NewIfUnknown),
        (Some(thread), Some(true)) => (thread, ThreadChoice::NewIfUnknown),
        (Some(thread), _) => (thread, ThreadChoice::Existing),
    };
    let stream = app
        .turns
        .submit(Submit {
            key: agent.thread(thread),
            choice,
            message: request.message_id.unwrap_or_else(new_message_id),
            text: request.message,
            engine,
        })
        .await?;
    Ok(sse::response(stream, app.streams.clone()))
}

/// POST `/chat/resume`: scope `agent:execute`; the turn must be the caller's.
pub async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentExecute)?;
    let request: ResumeRequest = body::json(&headers, body, RESUME_BODY_MAX).await?;
    let engine = engine(agent)?;
    let stream = app
        .turns
        .resume(Resume {
            project: agent.project.id.clone(),
            agent: agent.entry.agent.id.clone(),
            owner: agent.user,
            run: request.run_id,
            tool_call_id: request.tool_call_id,
            answer: request.resume_data,
            engine,
        })
        .await?;
    Ok(sse::response(stream, app.streams.clone()))
}

fn engine(agent: access::AgentAccess<'_>) -> Result<Arc<dyn Engine>, ApiError> {
    agent.entry.engine().map_err(|missing| {
        let detail = format!("The agent is not set up; missing: {}. Whoever runs this server can fix it.", missing.join("; "));
        let mut error = ApiError::new(Code::AgentMisconfigured, detail);
        error.0.missing = Some(missing.to_vec());
        error
    })
}

/// A message on the wire. Recorded parts go out as the JSON text that they are.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireMessage {
    id: MessageId,
    role: Role,
    content: Box<RawValue>,
    execution_id: Option<ExecutionId>,
    execution_status: Option<ExecutionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_error: Option<ExecutionError>,
    created_at: String,
    revision: u64,
}

impl From<RecordedMessage> for WireMessage {
    fn from(message: RecordedMessage) -> Self {
        Self {
            id: message.id,
            role: message.role,
            content: message.content,
            execution_id: message.execution,
            execution_status: message.status,
            execution_error: message.error,
            created_at: clock::rfc3339(message.created_at),
            revision: message.revision,
        }
    }
}

/// [`turnfast_shared::api::ThreadSnapshot`] with raw parts.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireSnapshot {
    messages: Vec<WireMessage>,
    open_suspensions: Vec<Suspension>,
    active_execution_id: Option<ExecutionId>,
    revision: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_message_ids: Option<[MessageId; 0]>,
}

/// GET `/chat/{threadId}/messages`: scope `agent:read`; the thread must be the caller's.
pub async fn messages(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent, thread)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentRead)?;
    let key = agent.thread(path::uuid("threadId", &thread)?.into());
    let since = query::parse(query.as_deref(), ["since"])?.get(0, |text| {
        text.parse::<u64>().map_err(|_| ApiError::field("since", "since takes a revision: a whole number from 0 up."))
    })?;
    let etag_of = |revision: u64| format!("\"{}-{revision}\"", key.thread);
    if headers.contains_key(header::IF_NONE_MATCH) {
        let revision = app.store.revision(&key).await?.ok_or_else(ApiError::not_found)?;
        if matches_etag(&headers, &etag_of(revision)) {
            return Ok(with_etag(StatusCode::NOT_MODIFIED.into_response(), &etag_of(revision)));
        }
    }
    let mut snapshot = app.store.snapshot(&key, since).await?.ok_or_else(ApiError::not_found)?;
    let mut partial = since.is_some();
    if since.is_some_and(|since| since > snapshot.revision) {
        // The reader knows a later revision than the record has: the record was put back to an earlier state. What it merges into
        // is void, so it gets everything.
        snapshot = app.store.snapshot(&key, None).await?.ok_or_else(ApiError::not_found)?;
        partial = false;
    }
    let etag = etag_of(snapshot.revision);
    let wire = WireSnapshot {
        messages: snapshot.messages.into_iter().map(WireMessage::from).collect(),
        open_suspensions: snapshot.suspensions,
        active_execution_id: snapshot.active,
        revision: snapshot.revision,
        partial,
        deleted_message_ids: partial.then_some([]),
    };
    Ok(with_etag(Json(wire).into_response(), &etag))
}

fn with_etag(mut response: Response, etag: &str) -> Response {
    let headers = response.headers_mut();
    // An ETag is made of a UUID and a number: it is always a valid header value.
    if let Ok(etag) = HeaderValue::from_str(etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// If-None-Match of RFC 9110, section 13.1.2: a list, or `*`, compared weakly.
fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|candidate| candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == etag)
}

/// DELETE `/chat/{threadId}/executions/{executionId}`: scope `agent:execute`; the thread must be the caller's.
pub async fn stop(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent, thread, execution)): Path<(String, String, String, String)>,
) -> Result<Json<CancelAnswer>, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentExecute)?;
    let key = agent.thread(path::uuid("threadId", &thread)?.into());
    let execution = path::uuid("executionId", &execution)?.into();
    let cancel_requested = app.turns.stop(&key, execution).await?.ok_or_else(ApiError::not_found)?;
    Ok(Json(CancelAnswer { cancel_requested }))
}

/// DELETE `/chat/runs/{runId}`: scope `agent:execute`; the turn must be the caller's.
pub async fn cancel_run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent, run)): Path<(String, String, String)>,
) -> Result<Json<RunCancelAnswer>, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentExecute)?;
    let run = path::uuid("runId", &run)?.into();
    let cancelled =
        app.turns.cancel_run(&agent.project.id, &agent.entry.agent.id, agent.user, run).await?.ok_or_else(ApiError::not_found)?;
    Ok(Json(RunCancelAnswer { cancelled }))
}
