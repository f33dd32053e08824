//! States in words. Colour and motion only repeat what these say.

use turnfast_client_core::thread::{Attempt, Cause, Failure, Running, SendBlocked, Stop, Trouble};
use turnfast_shared::{Code, ExecutionStatus, Message, Millis, Part, Problem, ToolState, message::ToolCall};

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
    let error = message.execution_error.as_ref().map(|error| plain(&error.message));
    let error = error.as_deref();
    match message.execution_status? {
        // Nothing else would say that there is nothing more to come.
        ExecutionStatus::Success if message.content.is_empty() => {
            Some((Tone::Quiet, "The model answered with nothing.".to_owned()))
        }
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

/// Why a request came to nothing, in the page's own words: those of the API are for programs.
#[must_use]
pub fn failure(failure: &Failure) -> String {
    match failure {
        Failure::Broken => "The server could not be reached.".to_owned(),
        Failure::Unreadable { status } => {
            format!("Something between this page and the server answered in its place (status {status}).")
        }
        Failure::Refused { problem, retry_after } => {
            let mut words = refusal(problem);
            if let Some(seconds) = retry_after {
                words.push_str(" Try again ");
                words.push_str(&after(*seconds));
                words.push('.');
            }
            words
        }
    }
}

fn refusal(problem: &Problem) -> String {
    let field = problem.field.as_deref().unwrap_or_default();
    let words = match problem.code {
        Code::AgentMisconfigured => return plain(&problem.detail),
        Code::PayloadTooLarge if field == "message" => "It is longer than this server takes.",
        Code::PayloadTooLarge => "It is larger than this server takes.",
        Code::InvalidRequest if field == "title" => "That name is too long.",
        Code::InvalidRequest if field.starts_with("attachments") => {
            "A file is not of the kinds that are taken: pictures (PNG, JPEG, GIF, WebP) and text in UTF-8."
        }
        Code::InvalidRequest => "The server did not take it in this form.",
        Code::Unauthenticated => "You are signed out.",
        Code::MissingScope => "You can read here, but not send or change anything.",
        Code::NotFound => "It was deleted, or it belongs to someone else.",
        Code::AgentsDisabled => "Agents are switched off on this server.",
        Code::TurnAlreadyRunning => "A reply is still being written in this conversation. Wait for its end, or stop it.",
        Code::InteractionOpen => "This conversation waits for an answer. Give it first, or stop the turn.",
        Code::InteractionClosed => "The question was answered or withdrawn meanwhile.",
        Code::MessageAlreadyAccepted => "The server has this message already.",
        Code::MethodNotAllowed | Code::UnsupportedMediaType => "This page does not fit the server any more. Reload it.",
        Code::RateLimited => "That is more at once than this server allows.",
        Code::ShuttingDown => "The server is restarting.",
        Code::StorageUnavailable => "The server cannot reach its database.",
        Code::CrossOrigin => "The server takes nothing from a page under this address.",
        Code::Internal => "Something went wrong in the server. Its log says more.",
    };
    words.to_owned()
}

/// What a server says, without the marks that its readers take for code.
fn plain(detail: &str) -> String {
    detail.replace('`', "")
}

/// A time to wait, as a person would say it. Further away than a day, the number means nothing.
#[must_use]
pub fn after(seconds: u64) -> String {
    match seconds {
        0 | 1 => "in a moment".to_owned(),
        2..100 => format!("in {seconds} seconds"),
        100..5_400 => format!("in about {} minutes", seconds.div_ceil(60)),
        5_400..86_400 => format!("in about {} hours", seconds.div_ceil(3_600)),
        _ => "in more than a day".to_owned(),
    }
}

/// What went wrong with an attempt. `offline`: there was no network when it was made.
#[must_use]
pub fn trouble(trouble: &Trouble, checking: bool, offline: bool) -> String {
    let what = match trouble.attempt {
        Attempt::Submit => "The message was not sent. ",
        Attempt::Answer => "The answer was not taken. ",
        Attempt::Stop => "Stop did not reach the turn. ",
        Attempt::Cancel => "The turn was not cancelled. ",
        Attempt::Stream => "",
    };
    let why = match (&trouble.cause, trouble.attempt) {
        (Cause::Failed(Failure::Broken), Attempt::Submit) if offline => "You are offline. It stays in the box.".to_owned(),
        // Nobody knows, and sending it again is harmless: it has its id.
        (Cause::Failed(Failure::Broken), Attempt::Submit) if checking => {
            return "The server did not answer. Checking whether it has the message…".to_owned();
        }
        (Cause::Failed(Failure::Broken), Attempt::Submit) => {
            return "The message may not have been sent: the server did not answer. It stays in the box, and sending it again cannot \
                    send it twice."
                .to_owned();
        }
        (Cause::Failed(failed), Attempt::Submit) => format!("{} It stays in the box.", failure(failed)),
        (Cause::Failed(failed), _) => failure(failed),
        (Cause::NotAccepted, _) => "The connection broke first. It stays in the box: send it again.".to_owned(),
        (Cause::Detached, _) => CONNECTION_LOST.to_owned(),
        (Cause::GivenUp, _) => "No turn began within 30 seconds.".to_owned(),
        (Cause::Reported(message), _) => plain(message),
    };
    [what, &why].concat()
}

/// All that a page knows when its connection is gone.
pub const CONNECTION_LOST: &str = "Connection lost. A turn does not need it; this page catches up when it is back.";

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

    fn refused(code: Code, detail: &str, retry_after: Option<u64>) -> Failure {
        Failure::Refused { problem: Box::new(Problem::new(code, detail)), retry_after }
    }

    #[test]
    fn refusals_are_in_the_words_of_the_page() {
        let codes = [
            Code::InvalidRequest,
            Code::Unauthenticated,
            Code::MissingScope,
            Code::NotFound,
            Code::AgentsDisabled,
            Code::TurnAlreadyRunning,
            Code::InteractionOpen,
            Code::InteractionClosed,
            Code::MessageAlreadyAccepted,
            Code::MethodNotAllowed,
            Code::UnsupportedMediaType,
            Code::PayloadTooLarge,
            Code::RateLimited,
            Code::ShuttingDown,
            Code::StorageUnavailable,
            Code::CrossOrigin,
            Code::Internal,
        ];
        for code in codes {
            let said = failure(&refused(code, "The API's `words`, with a bearer token.", None));
            assert!(!said.is_empty() && !said.contains("API") && !said.contains('`'), "{code:?}: {said}");
        }
        let detail = "The agent is not set up; missing: `model`.";
        assert_eq!(failure(&refused(Code::AgentMisconfigured, detail, None)), "The agent is not set up; missing: model.");
    }

    #[test]
    fn a_time_to_wait_is_one_that_a_person_can_use() {
        for (seconds, expected) in [
            (1, "in a moment"),
            (2, "in 2 seconds"),
            (99, "in 99 seconds"),
            (600, "in about 10 minutes"),
            (7_200, "in about 2 hours"),
            (128_927_605, "in more than a day"),
            (u64::MAX, "in more than a day"),
        ] {
            assert_eq!(after(seconds), expected);
        }
        let limited = failure(&refused(Code::RateLimited, "", Some(7)));
        assert_eq!(limited, "That is more at once than this server allows. Try again in 7 seconds.");
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let broken = Trouble { attempt: Attempt::Submit, cause: Cause::Failed(Failure::Broken) };
        assert!(trouble(&broken, false, true).starts_with("The message was not sent. You are offline."));
        assert!(trouble(&broken, true, false).contains("Checking"));
        assert!(trouble(&broken, false, false).starts_with("The message may not have been sent"));
        assert!(!CONNECTION_LOST.contains("runs on"));
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
