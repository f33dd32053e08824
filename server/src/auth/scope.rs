//! What someone may do, and where.

use std::{fmt, str::FromStr};

use crate::config::{Config, Project, Role};

/// One thing that a route takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// `agent:read`: see agents and threads.
    AgentRead,
    /// `agent:execute`: talk to agents.
    AgentExecute,
    /// `agent:update`: change agents.
    AgentUpdate,
    /// `agent:run`: start runs that nobody typed.
    AgentRun,
    /// `user:manage`: add and disable users.
    UserManage,
}

impl Scope {
    /// All scopes, in the order in which roles gain them.
    pub const ALL: [Self; 5] = [Self::AgentRead, Self::AgentExecute, Self::AgentUpdate, Self::AgentRun, Self::UserManage];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentRead => "agent:read",
            Self::AgentExecute => "agent:execute",
            Self::AgentUpdate => "agent:update",
            Self::AgentRun => "agent:run",
            Self::UserManage => "user:manage",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a scope was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a scope is one of agent:read, agent:execute, agent:update, agent:run, user:manage")]
pub struct InvalidScope;

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// What a role may do.
    #[must_use]
    pub fn of(role: Role) -> Self {
        let count = match role {
            Role::Viewer => 1,
            Role::Member => 2,
            Role::Editor => 3,
            Role::Admin => Scope::ALL.len(),
        };
        Scope::ALL.into_iter().take(count).collect()
    }

    /// Whether `scope` is in it.
    #[must_use]
    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Its scopes, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// The names on the wire.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.iter().map(|scope| scope.to_string()).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

/// Names separated by spaces, as the record keeps them.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

impl FromStr for Scopes {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_ascii_whitespace().map(str::parse::<Scope>).collect()
    }
}

/// Why a caller does not get into a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is no such project, or the caller is no member of it. The two must look the same.
    NotFound,
    /// A member without this scope.
    MissingScope(Scope),
}

/// The project, if there is one of that id in which `name`, restricted to `limit`, has `scope`.
pub(super) fn admit<'c>(
    config: &'c Config,
    name: &str,
    limit: Option<Scopes>,
    project: &str,
    scope: Scope,
) -> Result<&'c Project, Denied> {
    let project = config.project(project).ok_or(Denied::NotFound)?;
    let scopes = scopes_in(project, name, limit).ok_or(Denied::NotFound)?;
    if scopes.contains(scope) { Ok(project) } else { Err(Denied::MissingScope(scope)) }
}

/// What `name`, restricted to `limit`, may do in `project`; `None`: no member.
pub(super) fn scopes_in(project: &Project, name: &str, limit: Option<Scopes>) -> Option<Scopes> {
    let scopes = Scopes::of(*project.members.get(name)?);
    Some(limit.map_or(scopes, |limit| scopes.intersection(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    #[test]
    fn each_role_adds_to_the_one_before_it() {
        let names = |role| Scopes::of(role).to_string();
        assert_eq!(names(Role::Viewer), "agent:read");
        assert_eq!(names(Role::Member), "agent:read agent:execute");
        assert_eq!(names(Role::Editor), "agent:read agent:execute agent:update");
        assert_eq!(names(Role::Admin), "agent:read agent:execute agent:update agent:run user:manage");
    }

    #[test]
    fn scopes_survive_the_record() {
        for bits in 0..32 {
            let scopes = Scopes(bits);
            assert_eq!(scopes.to_string().parse(), Ok(scopes));
        }
        assert_eq!("agent:read agent:fly".parse::<Scopes>(), Err(InvalidScope));
    }

    #[test]
    fn strangers_cannot_tell_a_project_from_none() {
        let mut config = Config::load(&Overrides::default()).unwrap();
        config.projects.first_mut().unwrap().members.insert("guest".to_owned(), Role::Viewer);
        let admit =
            |name, limit, project, scope| super::admit(&config, name, limit, project, scope).map(|project| project.id.as_str());
        assert_eq!(admit("admin", None, "demo", Scope::AgentRun), Ok("demo"));
        assert_eq!(admit("guest", None, "demo", Scope::AgentRead), Ok("demo"));
        assert_eq!(admit("guest", None, "demo", Scope::AgentExecute), Err(Denied::MissingScope(Scope::AgentExecute)));
        assert_eq!(admit("nobody", None, "demo", Scope::AgentRead), Err(Denied::NotFound));
        assert_eq!(admit("admin", None, "other", Scope::AgentRead), Err(Denied::NotFound));
        let limit = Some(Scopes::from_iter([Scope::AgentRead, Scope::AgentExecute]));
        assert_eq!(admit("admin", limit, "demo", Scope::AgentExecute), Ok("demo"));
        assert_eq!(admit("admin", limit, "demo", Scope::AgentRun), Err(Denied::MissingScope(Scope::AgentRun)));
        assert_eq!(admit("guest", limit, "demo", Scope::AgentExecute), Err(Denied::MissingScope(Scope::AgentExecute)));
    }
}
