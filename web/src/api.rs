//! The routes that the page itself asks: who is signed in, what there is to talk to, and the lists of threads. An open thread is
//! client-core's business.

use serde::Serialize;
use turnfast_client_core::{
    browser::{Answer, Scope, request},
    thread::Failure,
};
use turnfast_shared::{
    Code,
    api::{Agent, AgentList, LoginRequest, Me, Project, ProjectList, RenameThread, Thread, ThreadPage},
    ids::{Slug, ThreadId},
    json::FromJson,
};

/// A project and the agents in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The project.
    pub project: Project,
    /// Its agents.
    pub agents: Vec<Agent>,
}

impl Group {
    /// Whether the person may send and change anything in it, beside reading.
    #[must_use]
    pub fn may_execute(&self) -> bool {
        self.project.scopes.iter().any(|scope| scope == "agent:execute")
    }
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
    answer("GET", "/auth/me", None).await
}

/// Signs in.
///
/// # Errors
/// `unauthenticated`: wrong name or password; `rate_limited`; and so on.
pub async fn sign_in(name: String, password: String) -> Result<(), Failure> {
    send("POST", "/auth/login", json(&LoginRequest { name, password })).await.map(drop)
}

/// Signs out, in every tab.
///
/// # Errors
/// When the server did not take it.
pub async fn sign_out() -> Result<(), Failure> {
    send("POST", "/auth/logout", None).await.map(drop)
}

/// Whether the server takes turns.
///
/// # Errors
/// `shutting_down` while it goes down, among others.
pub async fn ready() -> Result<(), Failure> {
    send("GET", "/readyz", None).await.map(drop)
}

/// What the person may talk to.
///
/// # Errors
/// `agents_disabled` among others.
pub async fn groups() -> Result<Vec<Group>, Failure> {
    let ProjectList { projects } = answer("GET", "/projects", None).await?;
    let mut groups = Vec::with_capacity(projects.len());
    for project in projects {
        let AgentList { agents } = answer("GET", &format!("/projects/{}/agents/v2", project.id), None).await?;
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
    answer("GET", &path, None).await
}

/// Gives a thread another title.
///
/// # Errors
/// When the server did not take it.
pub async fn rename(project: &Slug, agent: &Slug, thread: ThreadId, title: String) -> Result<Thread, Failure> {
    answer("PATCH", &format!("{}/threads/{thread}", base(project, agent)), json(&RenameThread { title })).await
}

/// Deletes a thread for good.
///
/// # Errors
/// `turn_already_running` while it runs, among others.
pub async fn delete(project: &Slug, agent: &Slug, thread: ThreadId) -> Result<(), Failure> {
    send("DELETE", &format!("{}/threads/{thread}", base(project, agent)), None).await.map(drop)
}

/// Where the bytes of an attachment are.
#[must_use]
pub fn attachment_path(project: &Slug, agent: &Slug, id: impl std::fmt::Display) -> String {
    format!("{}/chat/attachments/{id}", base(project, agent))
}

async fn answer<T: FromJson>(method: &'static str, path: &str, body: Option<String>) -> Result<T, Failure> {
    send(method, path, body).await?.read()
}

async fn send(method: &'static str, path: &str, body: Option<String>) -> Result<Answer, Failure> {
    let abort = web_sys::AbortController::new().map_err(|_| Failure::Broken)?;
    request(&Scope::global(), method, path, body, abort).await
}

/// The request's body; what these types hold can always be written.
fn json(body: &impl Serialize) -> Option<String> {
    serde_json::to_string(body).ok()
}
