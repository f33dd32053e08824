//! Typed ids. Threads, messages and executions are UUIDs; projects and agents are short strings (contract 1, section 1).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }
    };
}

uuid_id! {
    /// One conversation; `sessionId` on the wire.
    ThreadId
}
uuid_id! {
    /// One message. An assistant message answers one turn, however many executions that takes.
    MessageId
}
uuid_id! {
    /// One running of an agent for a turn.
    ExecutionId
}
uuid_id! {
    /// A turn as resume and cancel name it (`runId` on the wire): the id of its assistant message, so that it stays the same
    /// over every resumed execution.
    RunId
}
uuid_id! {
    /// A person or service that signs in.
    UserId
}
uuid_id! {
    /// One running server.
    ProcessId
}

impl From<MessageId> for RunId {
    fn from(id: MessageId) -> Self {
        Self(id.0)
    }
}

impl From<RunId> for MessageId {
    fn from(id: RunId) -> Self {
        Self(id.0)
    }
}

/// Why a project or agent id was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id takes 1 to 64 of the characters a-z, 0-9 and `-`")]
pub struct InvalidSlug;

/// A project's or an agent's id: `[a-z0-9-]{1,64}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[a-z0-9-]{1,64}$"))]
#[serde(try_from = "String", into = "String")]
pub struct Slug(String);

impl Slug {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Slug {
    type Error = InvalidSlug;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let fits =
            (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits { Ok(Self(text)) } else { Err(InvalidSlug) }
    }
}

impl FromStr for Slug {
    type Err = InvalidSlug;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.to_owned().try_into()
    }
}

impl From<Slug> for String {
    fn from(slug: Slug) -> Self {
        slug.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_takes_only_the_contracts_characters() {
        for good in ["a", "demo", "agent-7", &"x".repeat(64)] {
            assert_eq!(good.parse::<Slug>().map(|s| s.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "Demo", "a b", "a_b", "ä", "../x", &"x".repeat(65)] {
            assert_eq!(bad.parse::<Slug>(), Err(InvalidSlug), "{bad}");
        }
    }
}
