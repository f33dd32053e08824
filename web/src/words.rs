//! States in words. Colour and motion only repeat what these say.

use turnfast_client_core::thread::{Running, SendBlocked, Stop};
use turnfast_shared::{ExecutionStatus, Message, Millis, Part, ToolState, message::ToolCall};

/// How far a tool call is.
#[must_use]
pub fn tool_state(call: &ToolCall) -> &'static str {
    match call.state {
        ToolState::InputStreaming => "being written",
        ToolState::Pending => "about to run",
        ToolState::Running => "running",
        ToolState::Suspended => "waits for you",
        ToolState::Resolved => "done",
        // The record holds both a denial and a failure as rejected, and its text says which.
        ToolState::Rejected if call.suspend_payload.is_some() => "not done",
        ToolState::Rejected => "failed",
        ToolState::Cancelled => "stopped",
    }
}

/// What became of a reply, where that needs saying. A reply that simply ended says so by ending.
#[must_use]
pub fn outcome(message: &Message) -> Option<(Tone, String)> {
    let error = message.execution_error.as_ref().map(|error| error.message.as_str());
    match message.execution_status? {
        // What waits says so itself, in its card.
        ExecutionStatus::Success | ExecutionStatus::Running | ExecutionStatus::Suspended => None,
        ExecutionStatus::Error => Some((Tone::Bad, format!("This reply failed. {}", error.unwrap_or("No reason was recorded.")))),
        ExecutionStatus::Cancelled => Some((Tone::Quiet, "Stopped. What was written until then is kept.".to_owned())),
        ExecutionStatus::Interrupted => Some((
            Tone::Bad,
            format!(
                "Interrupted. {}",
                error.unwrap_or("The server went down while it was being written; what was written until then is kept.")
            ),
        )),
    }
}

/// How a statement is meant; a colour goes with each, and never alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// By the way.
    Quiet,
    /// Something went wrong.
    Bad,
}

/// What the line above the composer says of the running turn; `None`: nothing runs.
#[must_use]
pub fn running(running: Option<Running>, stop: Stop) -> Option<&'static str> {
    match (stop, running) {
        (Stop::WaitingForId, _) => Some("Stopping as soon as the turn has begun…"),
        (Stop::Stopping, _) => Some("Stopping…"),
        (_, Some(Running::Starting)) => Some("Sending…"),
        (_, Some(Running::Live(_))) => Some("Replying…"),
        (_, Some(Running::Followed(_))) => {
            Some("Still running elsewhere. It goes on without this tab, and is shown here as it is recorded.")
        }
        (_, None) => None,
    }
}

/// Why Send does nothing, where a person would wonder.
#[must_use]
pub fn send_blocked(why: SendBlocked) -> Option<&'static str> {
    match why {
        SendBlocked::Empty => None,
        SendBlocked::SignedOut => Some("Sign in to send."),
        SendBlocked::Loading => Some("You can type. Sending waits until the conversation is loaded."),
        SendBlocked::NotFound => Some("There is no such conversation to send to."),
        SendBlocked::Checking => Some("Checking whether the message arrived…"),
        SendBlocked::Running => Some("You can type. Sending waits until this reply has ended."),
        SendBlocked::InteractionOpen => Some("Answer the question above first, or stop the turn."),
    }
}

/// What a screen reader hears when a turn ends with `status`.
#[must_use]
pub fn announcement(status: Option<ExecutionStatus>) -> &'static str {
    match status {
        Some(ExecutionStatus::Error) => "The reply failed.",
        Some(ExecutionStatus::Cancelled) => "The reply was stopped.",
        Some(ExecutionStatus::Interrupted) => "The reply was interrupted.",
        Some(ExecutionStatus::Suspended) => "The agent waits for your answer.",
        Some(ExecutionStatus::Running) => "The agent is replying.",
        Some(ExecutionStatus::Success) | None => "The reply is complete.",
    }
}

/// A length of time, for people.
#[must_use]
pub fn duration(ms: Millis) -> String {
    match ms.max(0) {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms @ 10_000..60_000 => format!("{} s", ms / 1_000),
        ms @ 60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        ms => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// How long ago something was, as short as a list wants it; `None`: so long that a date says it better.
#[must_use]
pub fn ago(ms: Millis) -> Option<String> {
    match ms.max(0) / 60_000 {
        0 => Some("just now".to_owned()),
        minutes @ 1..60 => Some(format!("{minutes} min")),
        minutes @ 60..1_440 => Some(format!("{} h", minutes / 60)),
        minutes @ 1_440..10_080 => Some(format!("{} d", minutes / 1_440)),
        _ => None,
    }
}

/// A size in bytes, for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KB", bytes / 1_024),
        _ => format!("{}.{} MB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

/// The text that a Copy button of a reply takes: its text parts as they were written.
#[must_use]
pub fn copied(message: &Message) -> String {
    message.content.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_a_person_would_say_them() {
        for (ms, expected) in
            [(-5, "0 ms"), (999, "999 ms"), (1_250, "1.2 s"), (59_999, "59 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min")]
        {
            assert_eq!(duration(ms), expected);
        }
        for (ms, expected) in
            [(-1, Some("just now")), (60_000, Some("1 min")), (7_200_000, Some("2 h")), (86_400_000, Some("1 d"))]
        {
            assert_eq!(ago(ms).as_deref(), expected);
        }
        assert_eq!(ago(86_400_000 * 8), None);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!([size(12), size(2_048), size(1_572_864)], ["12 B", "2 KB", "1.5 MB"]);
    }

    #[test]
    fn every_state_that_blocks_or_ends_is_worded_differently() {
        let blocked = [
            SendBlocked::SignedOut,
            SendBlocked::Loading,
            SendBlocked::NotFound,
            SendBlocked::Checking,
            SendBlocked::Running,
            SendBlocked::InteractionOpen,
        ]
        .map(send_blocked);
        let ended = [
            ExecutionStatus::Running,
            ExecutionStatus::Suspended,
            ExecutionStatus::Success,
            ExecutionStatus::Error,
            ExecutionStatus::Cancelled,
            ExecutionStatus::Interrupted,
        ]
        .map(|status| announcement(Some(status)));
        for (i, words) in blocked.iter().enumerate() {
            assert!(words.is_some() && !blocked[..i].contains(words));
        }
        for (i, words) in ended.iter().enumerate() {
            assert!(!ended[..i].contains(words));
        }
    }
}
