//! Who may use which agent: every route under a project goes through here.

use turnfast_shared::{
    Code,
    ids::{ThreadId, UserId},
};

use super::problem::ApiError;
use crate::{
    agents::catalog::Entry,
    app::App,
    auth::{Caller, Scope},
    config::Project,
    store::turns::ThreadKey,
    turns::Refused,
};

/// An agent that the caller may use, with the scope that the route takes.
#[derive(Clone, Copy)]
pub struct AgentAccess<'a> {
    /// The caller.
    pub user: UserId,
    /// The agent's project.
    pub project: &'a Project,
    /// The agent.
    pub entry: &'a Entry,
}

impl AgentAccess<'_> {
    /// The key under which the caller sees a thread: it finds the thread only if it is the caller's and the agent's.
    #[must_use]
    pub fn thread(&self, thread: ThreadId) -> ThreadKey {
        ThreadKey { project: self.project.id.clone(), agent: self.entry.agent.id.clone(), thread, owner: self.user }
    }
}

/// Why a request was refused, as far as the caller may know: what runs in a thread is for those who may read it.
pub fn refusal(app: &App, caller: &Caller, project: &str, refused: Refused) -> ApiError {
    let mut error = ApiError::from(refused);
    if caller.admit(&app.config, project, Scope::AgentRead).is_err() {
        error.0.active_execution_id = None;
    }
    error
}

/// A project in which the caller has `scope`.
///
/// # Errors
/// `agents_disabled`; `not_found` for whoever is no member; `missing_scope` for a member without the scope.
pub fn project<'a>(app: &'a App, caller: &Caller, project: &str, scope: Scope) -> Result<&'a Project, ApiError> {
    enabled(app)?;
    Ok(caller.admit(&app.config, project, scope)?)
}

/// An agent of a project in which the caller has `scope`.
///
/// # Errors
/// See [`project`]; `not_found` for an agent that does not exist.
pub fn agent<'a>(app: &'a App, caller: &Caller, project: &str, agent: &str, scope: Scope) -> Result<AgentAccess<'a>, ApiError> {
    let project = self::project(app, caller, project, scope)?;
    let entry = agent.parse().ok().and_then(|id| app.catalog.agent(&project.id, &id)).ok_or_else(ApiError::not_found)?;
    Ok(AgentAccess { user: caller.user, project, entry })
}

/// Whether the Agents feature is on.
///
/// # Errors
/// `agents_disabled`.
pub fn enabled(app: &App) -> Result<(), ApiError> {
    if app.config.agents_enabled {
        Ok(())
    } else {
        Err(ApiError::new(Code::AgentsDisabled, "The Agents feature is switched off on this server ([features] agents = false)."))
    }
}
