//! The routes that the page itself asks: who is signed in, what there is to talk to, and the lists of threads. An open thread is
//! client-core's business.

use gloo_net::http::{Method, RequestBuilder, Response};
use serde::Serialize;
use turnfast_client_core::thread::{Failure, REQUEST_TIMEOUT_MS};
use turnfast_shared::{
    Code, Problem,
    api::{Agent, AgentList, LoginRequest, Me, Project, ProjectList, RenameThread, Thread, ThreadPage},
    ids::{Slug, ThreadId},
    json::{self, FromJson},
};

/// A project and the agents in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The project.
    pub project: Project,
    /// Its agents.
    pub agents: Vec<Agent>,
}

/// Whether nobody is signed in.
#[must_use]
pub fn is_signed_out(failure: &Failure) -> bool {
    failure.code() == Some(Code::Unauthenticated)
}

/// Who is signed in.
///
/// # Errors
/// `unauthenticated` among others.
pub async fn me() -> Result<Me, Failure> {
    answer(Method::GET, "/auth/me", None::<&()>).await
}

/// Signs in.
///
/// # Errors
/// `unauthenticated`: wrong name or password; `rate_limited`; and so on.
pub async fn sign_in(name: String, password: String) -> Result<(), Failure> {
    send(Method::POST, "/auth/login", Some(&LoginRequest { name, password })).await.map(drop)
}

/// Signs out, in every tab.
///
/// # Errors
/// When the server did not take it.
pub async fn sign_out() -> Result<(), Failure> {
    send(Method::POST, "/auth/logout", None::<&()>).await.map(drop)
}

/// What the person may talk to.
///
/// # Errors
/// `agents_disabled` among others.
pub async fn groups() -> Result<Vec<Group>, Failure> {
    let ProjectList { projects } = answer(Method::GET, "/projects", None::<&()>).await?;
    let mut groups = Vec::with_capacity(projects.len());
    for project in projects {
        let AgentList { agents } = answer(Method::GET, &format!("/projects/{}/agents/v2", project.id), None::<&()>).await?;
        groups.push(Group { project, agents });
    }
    Ok(groups)
}

fn base(project: &Slug, agent: &Slug) -> String {
    format!("/projects/{project}/agents/v2/{agent}")
}

/// A page of an agent's threads, newest first; `cursor` as the page before gave it.
///
/// # Errors
/// When the read failed.
pub async fn threads(project: &Slug, agent: &Slug, cursor: Option<&str>) -> Result<ThreadPage, Failure> {
    let base = base(project, agent);
    let path = match cursor {
        None => format!("{base}/threads"),
        Some(cursor) => format!("{base}/threads?cursor={}", String::from(js_sys::encode_uri_component(cursor))),
    };
    answer(Method::GET, &path, None::<&()>).await
}

/// Gives a thread another title.
///
/// # Errors
/// When the server did not take it.
pub async fn rename(project: &Slug, agent: &Slug, thread: ThreadId, title: String) -> Result<Thread, Failure> {
    answer(Method::PATCH, &format!("{}/threads/{thread}", base(project, agent)), Some(&RenameThread { title })).await
}

/// Deletes a thread for good.
///
/// # Errors
/// `turn_already_running` while it runs, among others.
pub async fn delete(project: &Slug, agent: &Slug, thread: ThreadId) -> Result<(), Failure> {
    send(Method::DELETE, &format!("{}/threads/{thread}", base(project, agent)), None::<&()>).await.map(drop)
}

/// Where the bytes of an attachment are.
#[must_use]
pub fn attachment_path(project: &Slug, agent: &Slug, id: impl std::fmt::Display) -> String {
    format!("{}/chat/attachments/{id}", base(project, agent))
}

async fn answer<T: FromJson>(method: Method, path: &str, body: Option<&impl Serialize>) -> Result<T, Failure> {
    let (status, text) = send(method, path, body).await?;
    json::read(&text).ok_or(Failure::Unreadable { status })
}

async fn send(method: Method, path: &str, body: Option<&impl Serialize>) -> Result<(u16, String), Failure> {
    let signal = web_sys::AbortSignal::timeout_with_u32(REQUEST_TIMEOUT_MS);
    let request = RequestBuilder::new(path).method(method).header("accept", "application/json").abort_signal(Some(&signal));
    let request = match body {
        Some(body) => {
            let body = serde_json::to_string(body).map_err(|_| Failure::Broken)?;
            request.header("content-type", "application/json").body(body)
        }
        None => request.build(),
    };
    let response = request.map_err(|_| Failure::Broken)?.send().await.map_err(|_| Failure::Broken)?;
    let status = response.status();
    let retry_after = retry_after(&response);
    let text = response.text().await.map_err(|_| Failure::Broken)?;
    if response.ok() {
        return Ok((status, text));
    }
    match json::read::<Problem>(&text) {
        Some(problem) => Err(Failure::Refused { problem: Box::new(problem), retry_after }),
        None => Err(Failure::Unreadable { status }),
    }
}

fn retry_after(response: &Response) -> Option<u64> {
    response.headers().get("retry-after")?.parse().ok()
}
