//! Projects, agents and threads as lists show them.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use turnfast_shared::{
    Code,
    api::{Agent, AgentList, Project, ProjectList, RenameThread, Thread, ThreadPage},
    limits::{THREADS_DEFAULT, THREADS_MAX, TITLE_CHARS},
};

use super::{
    access, attachments, body,
    path::{self, AgentPath, ProjectPath, Segments, ThreadPath},
    problem::ApiError,
    query,
};
use crate::{
    agents::catalog::Entry,
    app::App,
    auth::{Caller, Scope},
    clock,
    config::EngineKind,
    store::turns::{ThreadCursor, ThreadRow},
    text,
};

/// Bytes of a rename's body.
const RENAME_BODY_MAX: usize = 16 * 1024;

/// The projects in which the caller has `agent:read`
#[utoipa::path(get, path = "/projects", tag = "agents",
    responses((status = 200, body = ProjectList, description = "In the order of the configuration.")),
    extensions(("x-access" = json!("signed-in")), ("x-problems" = json!(["agents_disabled"]))))]
pub async fn projects(State(app): State<Arc<App>>, caller: Caller) -> Result<Json<ProjectList>, ApiError> {
    access::enabled(&app)?;
    let visible = app.config.projects.iter().filter_map(|project| Some((project, caller.scopes_in(project)?)));
    let projects = visible.filter(|(_, scopes)| scopes.contains(Scope::AgentRead)).map(|(project, scopes)| Project {
        id: project.id.clone(),
        name: project.name.clone(),
        scopes: scopes.names(),
    });
    Ok(Json(ProjectList { projects: projects.collect() }))
}

/// The agents of a project
#[utoipa::path(get, path = "/projects/{projectId}/agents/v2", tag = "agents",
    params(ProjectPath),
    responses((status = 200, body = AgentList, description = "In the order of the configuration.")),
    extensions(("x-access" = json!("agent:read"))))]
pub async fn agents(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<ProjectPath>,
) -> Result<Json<AgentList>, ApiError> {
    let project = access::project(&app, &caller, &path.project_id, Scope::AgentRead)?;
    Ok(Json(AgentList { agents: app.catalog.agents(&project.id).map(|entry| wire_agent(&app, entry)).collect() }))
}

/// An agent
#[utoipa::path(get, path = "/", tag = "agents",
    params(AgentPath),
    responses((status = 200, body = Agent, description = "The agent.")),
    extensions(("x-access" = json!("agent:read"))))]
pub async fn agent(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<AgentPath>,
) -> Result<Json<Agent>, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentRead)?;
    Ok(Json(wire_agent(&app, agent.entry)))
}

fn wire_agent(app: &App, entry: &Entry) -> Agent {
    let agent = &entry.agent;
    let engine = match agent.engine {
        EngineKind::Native => "native",
        EngineKind::Openclaw => "openclaw",
        EngineKind::Demo => "demo",
    };
    Agent {
        id: agent.id.clone(),
        name: agent.name.clone(),
        engine: engine.to_owned(),
        model: agent.model.clone(),
        attachments: attachments::wire_limits(&app.config.limits).filter(|_| agent.attachments),
    }
}

/// The caller's threads, newest first
#[utoipa::path(get, path = "/threads", tag = "threads",
    params(
        AgentPath,
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Threads of a page; 20 where absent."),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before."),
    ),
    responses((status = 200, body = ThreadPage, description = "A page.")),
    extensions(("x-access" = json!("agent:read"))))]
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<AgentPath>,
    RawQuery(query): RawQuery,
) -> Result<Json<ThreadPage>, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentRead)?;
    let query = query::parse(query.as_deref(), ["limit", "cursor"])?;
    let limit = query.get(0, |text| {
        let limit = text.parse().ok().filter(|limit| (1..=THREADS_MAX).contains(limit));
        limit.ok_or_else(|| ApiError::field("limit", format!("limit takes a whole number from 1 to {THREADS_MAX}.")))
    })?;
    let after = query.get(1, |text| {
        decode_cursor(text).ok_or_else(|| ApiError::field("cursor", "Unknown cursor. Pass one that nextCursor gave, or none."))
    })?;
    let limit = limit.unwrap_or(THREADS_DEFAULT);
    // One more than asked for: it tells whether there is a next page.
    let mut rows = app.store.threads(&agent.project.id, &agent.entry.agent.id, agent.user, after, limit + 1).await?;
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows.last().filter(|_| has_more).map(encode_cursor);
    Ok(Json(ThreadPage { threads: rows.into_iter().map(wire_thread).collect(), next_cursor }))
}

/// A thread
#[utoipa::path(get, path = "/threads/{threadId}", tag = "threads",
    params(ThreadPath),
    responses((status = 200, body = Thread, description = "The thread.")),
    extensions(("x-access" = json!("agent:read")), ("x-owner" = json!("threadId"))))]
pub async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<ThreadPath>,
) -> Result<Json<Thread>, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentRead)?;
    let key = agent.thread(path::uuid("threadId", &path.thread_id)?.into());
    Ok(Json(wire_thread(app.store.thread(&key).await?.ok_or_else(ApiError::not_found)?)))
}

/// Renames a thread
#[utoipa::path(patch, path = "/threads/{threadId}", tag = "threads",
    params(ThreadPath),
    request_body = RenameThread,
    responses((status = 200, body = Thread, description = "The thread as it is now.")),
    extensions(("x-access" = json!("agent:execute")), ("x-owner" = json!("threadId"))))]
pub async fn rename(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<ThreadPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Thread>, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentExecute)?;
    let key = agent.thread(path::uuid("threadId", &path.thread_id)?.into());
    let request: RenameThread = body::json(&headers, body, RENAME_BODY_MAX).await?;
    let title = request.title.trim();
    if text::is_blank(title) || title.chars().count() > TITLE_CHARS || title.chars().any(char::is_control) {
        let detail = format!("A title takes 1 to {TITLE_CHARS} characters, none of them a control character, and is not blank.");
        return Err(ApiError::field("title", detail));
    }
    if !app.turns.rename_thread(&key, title.to_owned()).await? {
        return Err(ApiError::not_found());
    }
    Ok(Json(wire_thread(app.store.thread(&key).await?.ok_or_else(ApiError::not_found)?)))
}

/// Deletes a thread
///
/// Not while it runs a turn.
#[utoipa::path(delete, path = "/threads/{threadId}", tag = "threads",
    params(ThreadPath),
    responses((status = 204, description = "It is gone.")),
    extensions(("x-access" = json!("agent:execute")), ("x-owner" = json!("threadId")), ("x-problems" = json!(["turn_already_running"]))))]
pub async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segments(path): Segments<ThreadPath>,
) -> Result<StatusCode, ApiError> {
    let agent = access::agent(&app, &caller, &path.project_id, &path.agent_id, Scope::AgentExecute)?;
    let key = agent.thread(path::uuid("threadId", &path.thread_id)?.into());
    app.turns.delete_thread(&key).await.map_err(|refused| {
        let mut error = access::refusal(&app, &caller, &path.project_id, refused);
        if error.0.code == Code::TurnAlreadyRunning {
            "This conversation runs a turn. Stop it or wait for its end before you delete it.".clone_into(&mut error.0.detail);
        }
        error
    })?;
    Ok(StatusCode::NO_CONTENT)
}

fn wire_thread(row: ThreadRow) -> Thread {
    Thread {
        id: row.id,
        title: row.title,
        created_at: clock::rfc3339(row.created_at),
        updated_at: clock::rfc3339(row.updated_at),
        revision: row.revision,
        active_execution_id: row.active,
        suspended: row.suspended,
    }
}

fn encode_cursor(row: &ThreadRow) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}:{}", row.updated_at, row.id))
}

fn decode_cursor(text: &str) -> Option<ThreadCursor> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let (updated_at, id) = text.split_once(':')?;
    Some(ThreadCursor { updated_at: updated_at.parse().ok()?, id: id.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_cursor_comes_back_and_nothing_else_is_one() {
        let row = ThreadRow {
            id: Uuid::from_u128(7).into(),
            title: String::new(),
            created_at: 1,
            updated_at: 1_796_052_309_007,
            revision: 1,
            active: None,
            suspended: false,
        };
        let cursor = ThreadCursor { updated_at: row.updated_at, id: row.id };
        assert_eq!(decode_cursor(&encode_cursor(&row)), Some(cursor));
        for odd in ["", "!", "AAAA", &URL_SAFE_NO_PAD.encode("1:2"), &URL_SAFE_NO_PAD.encode("x:y")] {
            assert_eq!(decode_cursor(odd), None, "{odd}");
        }
    }
}
