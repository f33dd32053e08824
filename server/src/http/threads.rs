//! Projects, agents and threads as lists show them.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use turnfast_shared::{
    Code,
    api::{Agent, AgentList, Project, ProjectList, RenameThread, Thread, ThreadPage},
    limits::{THREADS_DEFAULT, THREADS_MAX, TITLE_CHARS},
};

use super::{access, body, path, problem::ApiError, query};
use crate::{
    agents::catalog::Entry,
    app::App,
    auth::{Caller, Scope},
    clock,
    config::EngineKind,
    store::turns::{ThreadCursor, ThreadRow},
};

/// Bytes of a rename's body.
const RENAME_BODY_MAX: usize = 16 * 1024;

/// GET `/projects`: those in which the caller has `agent:read`.
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

/// GET `/projects/{p}/agents/v2`: scope `agent:read`.
pub async fn agents(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(project): Path<String>,
) -> Result<Json<AgentList>, ApiError> {
    let project = access::project(&app, &caller, &project, Scope::AgentRead)?;
    Ok(Json(AgentList { agents: app.catalog.agents(&project.id).map(wire_agent).collect() }))
}

/// GET `/projects/{p}/agents/v2/{a}`: scope `agent:read`.
pub async fn agent(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent)): Path<(String, String)>,
) -> Result<Json<Agent>, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentRead)?;
    Ok(Json(wire_agent(agent.entry)))
}

fn wire_agent(entry: &Entry) -> Agent {
    let agent = &entry.agent;
    let engine = match agent.engine {
        EngineKind::Native => "native",
        EngineKind::Openclaw => "openclaw",
        EngineKind::Demo => "demo",
    };
    Agent { id: agent.id.clone(), name: agent.name.clone(), engine: engine.to_owned(), model: agent.model.clone() }
}

/// GET `/threads`: scope `agent:read`; the caller's own.
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<ThreadPage>, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentRead)?;
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

/// GET `/threads/{threadId}`: scope `agent:read`; the thread must be the caller's.
pub async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent, thread)): Path<(String, String, String)>,
) -> Result<Json<Thread>, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentRead)?;
    let key = agent.thread(path::uuid("threadId", &thread)?.into());
    Ok(Json(wire_thread(app.store.thread(&key).await?.ok_or_else(ApiError::not_found)?)))
}

/// PATCH `/threads/{threadId}`: scope `agent:execute`; the thread must be the caller's.
pub async fn rename(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent, thread)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Thread>, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentExecute)?;
    let key = agent.thread(path::uuid("threadId", &thread)?.into());
    let request: RenameThread = body::json(&headers, body, RENAME_BODY_MAX).await?;
    let title = request.title.trim();
    if title.is_empty() || title.chars().count() > TITLE_CHARS {
        return Err(ApiError::field("title", format!("A title takes 1 to {TITLE_CHARS} characters.")));
    }
    if !app.turns.rename_thread(&key, title.to_owned()).await? {
        return Err(ApiError::not_found());
    }
    Ok(Json(wire_thread(app.store.thread(&key).await?.ok_or_else(ApiError::not_found)?)))
}

/// DELETE `/threads/{threadId}`: scope `agent:execute`; the thread must be the caller's.
pub async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path((project, agent, thread)): Path<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    let agent = access::agent(&app, &caller, &project, &agent, Scope::AgentExecute)?;
    let key = agent.thread(path::uuid("threadId", &thread)?.into());
    app.turns.delete_thread(&key).await.map_err(|refused| {
        let mut error = ApiError::from(refused);
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
        };
        let cursor = ThreadCursor { updated_at: row.updated_at, id: row.id };
        assert_eq!(decode_cursor(&encode_cursor(&row)), Some(cursor));
        for odd in ["", "!", "AAAA", &URL_SAFE_NO_PAD.encode("1:2"), &URL_SAFE_NO_PAD.encode("x:y")] {
            assert_eq!(decode_cursor(odd), None, "{odd}");
        }
    }
}
