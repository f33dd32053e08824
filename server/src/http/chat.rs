//! Turns over HTTP: submit, resume, read, stop (contract 1, sections 3 to 6).

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{RawQuery, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::value::RawValue;
use turnfast_shared::{
    Code, ExecutionStatus, Role,
    api::{CancelAnswer, ChatRequest, ResumeRequest, RunCancelAnswer, ThreadSnapshot},
    event::{Event, Suspension},
    ids::{ExecutionId, MessageId},
    message::{ExecutionError, ResumeData},
};

use super::{
    access, attachments, body,
    path::{self, AgentPath, ExecutionPath, RunPath, Segments, ThreadPath},
    problem::ApiError,
    query, sse,
};
use crate::{
    agents::Engine,
    app::App,
    auth::{Caller, Scope},
    clock,
    store::turns::{RecordedMessage, ThreadChoice},
    text,
    turns::{Resume, Submit, new_message_id, new_thread_id},
};

/// Bytes of a resume's body. Answers are typed by people.
const RESUME_BODY_MAX: usize = 256 * 1024;
/// JSON may escape one byte as six, and the other fields need room too.
const ESCAPED: usize = 6;
const ENVELOPE: usize = 16 * 1024;

/// Submits a message, and streams the turn
///
/// The turn runs on whatever becomes of the connection. `message` has at most `[limits] max_message_bytes` bytes and is not blank
/// without attachments; these are pictures (PNG, JPEG, GIF, WebP) and text files, at most `max_attachments` of at most
/// `max_attachment_bytes` each. An unknown `sessionId` without `newSession` is not found.
#[utoipa::path(post, path = "/chat", tag = "turns",
    params(AgentPath),
    request_body(content = ChatRequest, examples(
        ("a new thread" = (value = json!({ "message": "Hello" }))),
        ("a thread whose id the caller chose" = (value = json!({
            "message": "Hello", "sessionId": "0198c0de-0000-7000-8000-000000000001", "newSession": true
        }))),
    )),
    responses((status = 200, content_type = "text/event-stream", body = Event, description = "The live stream: events of the execution, one per `data:`.")),
    extensions(("x-access" = json!("agent:execute")), ("x-owner" = json!("sessionId")), ("x-problems" = json!(["turn_already_running", "interaction_open", "message_already_accepted", "agent_misconfigured", "rate_limited", "shutting_down"]))))]
pub async fn submit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<AgentPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentExecute)?;
    let limits = &app.config.limits;
    let max = limits.max_message_bytes;
    let most = max * ESCAPED + ENVELOPE + attachments::body_bytes(limits);
    let request: ChatRequest = body::json(&headers, body, most).await?;
    if request.message.len() > max {
        let detail = format!("The message has {} bytes; {max} are taken.", request.message.len());
        let mut error = ApiError::new(Code::PayloadTooLarge, detail);
        error.0.field = Some("message".to_owned());
        return Err(error);
    }
    if !request.attachments.is_empty() && !agent.entry.agent.attachments {
        return Err(ApiError::field("attachments", "This agent takes no attachments."));
    }
    let attachments = attachments::decode(request.attachments, limits)?;
    if text::is_blank(&request.message) && attachments.is_empty() {
        return Err(ApiError::field("message", "The message is blank. Write something."));
    }
    without_nul("message", &request.message)?;
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
            attachments,
            engine,
        })
        .await
        .map_err(|refused| access::refusal(&app, &caller, &path.project_id, refused))?;
    Ok(sse::response(&app, &caller, stream))
}

/// Answers a suspended tool call, and streams the turn on
///
/// The first answer wins; every other is told `interaction_closed`.
#[utoipa::path(post, path = "/chat/resume", tag = "turns",
    params(AgentPath),
    request_body = ResumeRequest,
    responses((status = 200, content_type = "text/event-stream", body = Event, description = "The live stream: events of the execution, one per `data:`.")),
    extensions(("x-access" = json!("agent:execute")), ("x-owner" = json!("runId")), ("x-problems" = json!(["turn_already_running", "interaction_closed", "agent_misconfigured", "rate_limited", "shutting_down"]))))]
pub async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<AgentPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentExecute)?;
    let request: ResumeRequest = body::json(&headers, body, RESUME_BODY_MAX).await?;
    without_nul("toolCallId", &request.tool_call_id)?;
    match &request.resume_data {
        ResumeData::Approval { reason, .. } => without_nul("resumeData.reason", reason.as_deref().unwrap_or_default())?,
        ResumeData::Answer { answer } if text::is_blank(answer) => {
            return Err(ApiError::field("resumeData", "The answer is blank. Write something."));
        }
        ResumeData::Answer { answer } => without_nul("resumeData.answer", answer)?,
    }
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
        .await
        .map_err(|refused| access::refusal(&app, &caller, &path.project_id, refused))?;
    Ok(sse::response(&app, &caller, stream))
}

/// Databases take no NUL in text, and nobody types one.
fn without_nul(field: &str, text: &str) -> Result<(), ApiError> {
    if text.contains('\0') {
        return Err(ApiError::field(field, format!("`{field}` takes text without NUL characters.")));
    }
    Ok(())
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

/// [`ThreadSnapshot`] with raw parts.
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

/// Reads a thread
///
/// The newest recorded state. The `ETag` stands for the thread and its revision.
#[utoipa::path(get, path = "/chat/{threadId}/messages", tag = "turns",
    params(
        ThreadPath,
        ("since" = Option<u64>, Query, description = "A revision: only what changed after it, and `partial` is set."),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of the read before."),
    ),
    responses(
        (status = 200, body = ThreadSnapshot, description = "The thread, or what changed in it.", headers(("ETag" = String, description = "Strong."))),
        (status = 304, description = "It is as the `ETag` says.", headers(("ETag" = String, description = "Strong."))),
    ),
    extensions(("x-access" = json!("agent:read")), ("x-owner" = json!("threadId"))))]
pub async fn messages(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<ThreadPath>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentRead)?;
    let key = agent.thread(path::uuid("threadId", &path.thread_id)?.into());
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

/// Asks an execution to stop
///
/// The record says what became of it. `cancelRequested` is false where it had ended.
#[utoipa::path(delete, path = "/chat/{threadId}/executions/{executionId}", tag = "turns",
    params(ExecutionPath),
    responses((status = 200, body = CancelAnswer, description = "Whether it was asked.")),
    extensions(("x-access" = json!("agent:execute")), ("x-owner" = json!("threadId"))))]
pub async fn stop(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<ExecutionPath>,
) -> Result<Json<CancelAnswer>, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentExecute)?;
    let key = agent.thread(path::uuid("threadId", &path.thread_id)?.into());
    let execution = path::uuid("executionId", &path.execution_id)?.into();
    let cancel_requested = app.turns.stop(&key, execution).await?.ok_or_else(ApiError::not_found)?;
    Ok(Json(CancelAnswer { cancel_requested }))
}

/// Cancels a suspended turn
///
/// A second call says `false`.
#[utoipa::path(delete, path = "/chat/runs/{runId}", tag = "turns",
    params(RunPath),
    responses((status = 200, body = RunCancelAnswer, description = "Whether this call ended it.")),
    extensions(("x-access" = json!("agent:execute")), ("x-owner" = json!("runId"))))]
pub async fn cancel_run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<RunPath>,
) -> Result<Json<RunCancelAnswer>, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentExecute)?;
    let run = path::uuid("runId", &path.run_id)?.into();
    let cancelled =
        app.turns.cancel_run(&agent.project.id, &agent.entry.agent.id, agent.user, run).await?.ok_or_else(ApiError::not_found)?;
    Ok(Json(RunCancelAnswer { cancelled }))
}
