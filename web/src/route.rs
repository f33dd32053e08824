//! What an address of the page names: `/`, `/{project}/{agent}` or `/{project}/{agent}/{thread}`.

use turnfast_shared::ids::{Slug, ThreadId};

/// A place in the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// No agent chosen.
    Home,
    /// An agent.
    Agent {
        /// Its project.
        project: Slug,
        /// The agent.
        agent: Slug,
        /// A thread of it; `None`: a new one.
        thread: Option<ThreadId>,
    },
    /// An address that names nothing.
    Unknown,
}

impl Route {
    /// The place that `path` names.
    #[must_use]
    pub fn parse(path: &str) -> Self {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (project, agent, thread) = match *parts.as_slice() {
            [] => return Self::Home,
            [project, agent] => (project, agent, None),
            [project, agent, thread] => (project, agent, Some(thread)),
            _ => return Self::Unknown,
        };
        let (Ok(project), Ok(agent)) = (project.parse(), agent.parse()) else { return Self::Unknown };
        match thread.map(str::parse).transpose() {
            Ok(thread) => Self::Agent { project, agent, thread },
            Err(_) => Self::Unknown,
        }
    }

    /// Its address.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Home | Self::Unknown => "/".to_owned(),
            Self::Agent { project, agent, thread: None } => format!("/{project}/{agent}"),
            Self::Agent { project, agent, thread: Some(thread) } => format!("/{project}/{agent}/{thread}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_places_go_both_ways() {
        for path in ["/", "/demo/assistant", "/demo/assistant/6f1c1c9e-7b1f-4c2c-9a52-0f4d3c2b1a00"] {
            assert_eq!(Route::parse(path).path(), path);
        }
        assert_eq!(Route::parse("/demo/assistant/"), Route::parse("/demo/assistant"));
    }

    #[test]
    fn an_address_that_names_nothing_is_said_to() {
        for path in ["/demo", "/Demo/x", "/demo/assistant/17", "/a/b/c/d", "/demo/%2e%2e"] {
            assert_eq!(Route::parse(path), Route::Unknown, "{path}");
        }
    }
}
