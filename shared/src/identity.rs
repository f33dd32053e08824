//! Which message a run writes (contract 2, section 1): it follows from the run alone, so that every process, deploy and restart
//! computes the same one.

use uuid::Uuid;

use crate::ids::{MessageId, Slug, ThreadId};

/// Namespace of message ids that are derived from a run. Fixed for ever: another value would give old runs second messages.
pub const NAMESPACE: Uuid = Uuid::from_u128(0x5d9c_1f0e_7a34_4b56_9c2d_86e1_f03b_a7d4);

/// Runs with this prefix never show.
pub const INTERNAL_PREFIX: &str = "turnfast-internal-";

/// The run id of a typed turn's execution: `msg-<thread>-<message>-<suffix>`.
#[must_use]
pub fn typed_run_id(thread: ThreadId, message: MessageId, suffix: &str) -> String {
    format!("msg-{thread}-{message}-{suffix}")
}

/// The session key of a thread: `agent:<agent>:turnfast-<thread>`.
#[must_use]
pub fn session_key(agent: &Slug, thread: ThreadId) -> String {
    format!("agent:{agent}:turnfast-{thread}")
}

/// The agent and thread of a session key; `None`: not a thread of ours.
#[must_use]
pub fn parse_session_key(key: &str) -> Option<(Slug, ThreadId)> {
    let (agent, thread) = key.strip_prefix("agent:")?.split_once(":turnfast-")?;
    Some((agent.parse().ok()?, canonical_uuid(thread)?.into()))
}

/// The message of a run, or `None` where it shows nothing.
///
/// `repeated_start` is the run's own start (milliseconds since the Unix epoch) where a run of this id was seen to end before:
/// a real Gateway reuses ids, and two runs never share a message.
#[must_use]
pub fn message_id(session_key: &str, run_id: &str, repeated_start: Option<i64>) -> Option<MessageId> {
    if run_id.starts_with(INTERNAL_PREFIX) {
        return None;
    }
    if let Some((_, message)) = parse_typed_run_id(run_id) {
        return Some(message);
    }
    let name = match repeated_start {
        None => format!("{session_key}:{run_id}"),
        Some(start) => format!("{session_key}:{run_id}:{start}"),
    };
    Some(Uuid::new_v5(&NAMESPACE, name.as_bytes()).into())
}

/// The thread and message that a typed run id names.
#[must_use]
pub fn parse_typed_run_id(run_id: &str) -> Option<(ThreadId, MessageId)> {
    let rest = run_id.strip_prefix("msg-")?;
    let (thread, rest) = (rest.get(..36)?, rest.get(36..)?.strip_prefix('-')?);
    let (message, suffix) = (rest.get(..36)?, rest.get(36..)?.strip_prefix('-')?);
    if suffix.is_empty() {
        return None;
    }
    Some((canonical_uuid(thread)?.into(), canonical_uuid(message)?.into()))
}

/// A UUID in its hyphenated form only: other spellings would give one thread two keys.
fn canonical_uuid(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    (id.hyphenated().to_string() == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread() -> ThreadId {
        Uuid::from_u128(0x1234).into()
    }

    fn message() -> MessageId {
        Uuid::from_u128(0x5678).into()
    }

    #[test]
    fn a_typed_run_names_its_message_whatever_the_suffix() {
        for suffix in ["1", "resume-3", "input-1700000000"] {
            let run = typed_run_id(thread(), message(), suffix);
            assert_eq!(message_id("agent:main:turnfast-x", &run, None), Some(message()));
        }
    }

    #[test]
    fn any_other_run_gets_a_message_of_its_key_and_id() {
        let key = session_key(&"main".parse().unwrap(), thread());
        let first = message_id(&key, "cron-1", None);
        assert_eq!(first, message_id(&key, "cron-1", None));
        assert_eq!(first.unwrap().0.get_version_num(), 5);
        assert_ne!(first, message_id(&key, "cron-2", None));
        assert_ne!(first, message_id("agent:other:turnfast-x", "cron-1", None));
        assert_ne!(first, message_id(&key, "cron-1", Some(1)));
        assert_ne!(message_id(&key, "cron-1", Some(2)), message_id(&key, "cron-1", Some(1)));
    }

    #[test]
    fn internal_runs_and_broken_typed_ids_are_told_apart() {
        assert_eq!(message_id("k", "turnfast-internal-compact", None), None);
        for odd in [
            "msg-",
            "msg-x-y-z",
            &format!("msg-{}-{}", thread(), message()),
            &format!("msg-{}-{}-", thread(), message()),
            "msg-ä",
        ] {
            assert_eq!(parse_typed_run_id(odd), None, "{odd}");
            assert!(message_id("k", odd, None).is_some(), "still a run of its own");
        }
    }

    #[test]
    fn a_session_key_parses_back_and_nothing_else_does() {
        let agent: Slug = "main".parse().unwrap();
        assert_eq!(parse_session_key(&session_key(&agent, thread())), Some((agent, thread())));
        for odd in [
            "",
            "agent:main",
            "agent:main:main",
            "agent:Main:turnfast-x",
            "agent:main:turnfast-1234",
            &format!("agent:main:turnfast-{}", thread().0.simple()),
        ] {
            assert_eq!(parse_session_key(odd), None, "{odd}");
        }
    }
}
