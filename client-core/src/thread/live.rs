//! The tab's own stream: from the request to its last byte.

use std::rc::Rc;

use turnfast_shared::{
    Event, ExecutionStatus, Message, Millis, Part, Role, Timeline,
    api::NewAttachment,
    event::Suspension,
    ids::{ExecutionId, MessageId, RunId, ThreadId},
    json,
    message::ExecutionError,
    sse::{Parser, TooLarge},
};

use super::EffectId;

/// A stream that this tab asked for.
#[derive(Debug)]
pub(super) struct Own {
    /// The submit or resume.
    pub(super) id: EffectId,
    /// The thread it went to; of a new one, the proposed id.
    pub(super) thread: ThreadId,
    pub(super) kind: Kind,
    /// Set from `execution-started` on.
    pub(super) turn: Option<LiveTurn>,
    /// The timer of a Stop that waits for the execution's id.
    pub(super) stop_wish: Option<EffectId>,
    /// The timer that looks whether the connection still lives.
    pub(super) stall_timer: EffectId,
    /// Whether that timer looks for the second time.
    pub(super) stall_grace: bool,
    pub(super) last_byte: Millis,
    /// What an `error` before `execution-started` said.
    pub(super) reported: Option<String>,
    parser: Parser,
}

/// What the stream was asked for by.
#[derive(Debug)]
pub(super) enum Kind {
    Submit(Submitted),
    Resume { run: RunId, tool_call_id: String },
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(super) struct Submitted {
    pub(super) message_id: MessageId,
    /// Whether it starts a thread.
    pub(super) new_thread: bool,
    pub(super) text: Rc<str>,
    pub(super) attachments: Rc<Vec<NewAttachment>>,
}

/// What one piece of the stream said.
pub(super) enum Said {
    Event(Event),
    /// It cannot be understood any further.
    Broken,
}

impl Own {
    pub(super) fn new(id: EffectId, thread: ThreadId, kind: Kind, stall_timer: EffectId, now: Millis) -> Self {
        Self {
            id,
            thread,
            kind,
            turn: None,
            stop_wish: None,
            stall_timer,
            stall_grace: false,
            last_byte: now,
            reported: None,
            parser: Parser::new(),
        }
    }

    /// The events that `bytes` complete. An event of a kind that this client does not know is skipped: the server may be newer.
    pub(super) fn parse(&mut self, bytes: &[u8]) -> Vec<Said> {
        let mut said = Vec::new();
        let fed = self.parser.feed(bytes, |event| match json::read::<Event>(&event.data) {
            Some(event) => said.push(Said::Event(event)),
            None if is_some_event(&event.data) => {}
            None => said.push(Said::Broken),
        });
        if let Err(TooLarge { .. }) = fed {
            said.push(Said::Broken);
        }
        said
    }
}

fn is_some_event(data: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(data).is_ok_and(|value| value.get("type").is_some_and(serde_json::Value::is_string))
}

/// The turn whose events arrive here.
#[derive(Debug)]
pub(super) struct LiveTurn {
    pub(super) execution: ExecutionId,
    /// The person's message, until a read shows it.
    pub(super) user: Option<Rc<Message>>,
    /// Whether this stream ended in a suspension.
    pub(super) suspended: bool,
    /// The assistant message, but for its content.
    frame: Message,
    timeline: Timeline,
    shown: Option<Rc<Message>>,
}

impl LiveTurn {
    /// The assistant message of a typed turn, or of a resumed one, which goes on behind `before`.
    pub(super) fn new(
        execution: ExecutionId,
        assistant: MessageId,
        user: Option<Rc<Message>>,
        before: Option<&Message>,
        created_at: String,
    ) -> Self {
        Self {
            execution,
            user,
            suspended: false,
            frame: Message {
                id: assistant,
                role: Role::Assistant,
                content: Vec::new(),
                execution_id: Some(execution),
                execution_status: Some(ExecutionStatus::Running),
                execution_error: None,
                created_at: before.map_or(created_at, |message| message.created_at.clone()),
                revision: before.map_or(0, |message| message.revision),
            },
            timeline: before.map_or_else(Timeline::new, |message| Timeline::from_parts(message.content.clone())),
            shown: None,
        }
    }

    /// Applies an event of the turn. Costs what the event costs, however long the message and the thread are.
    pub(super) fn apply(&mut self, event: &Event, at: Millis) {
        if self.timeline.apply(event, at).part.is_some() {
            self.shown = None;
        }
    }

    pub(super) fn fail(&mut self, message: String, error_code: Option<String>) {
        self.frame.execution_error = Some(ExecutionError { message, error_code });
        self.shown = None;
    }

    pub(super) fn set_status(&mut self, status: ExecutionStatus) {
        self.frame.execution_status = Some(status);
        self.shown = None;
    }

    /// The assistant message as it is now; the same [`Rc`] until it changes.
    pub(super) fn message(&mut self) -> Rc<Message> {
        let (frame, timeline) = (&self.frame, &self.timeline);
        Rc::clone(self.shown.get_or_insert_with(|| Rc::new(Message { content: timeline.parts().to_vec(), ..frame.clone() })))
    }

    /// The message of a person, as it shows before a read.
    pub(super) fn user_message(id: MessageId, text: &str, execution: ExecutionId, created_at: String) -> Rc<Message> {
        let content = if text.is_empty() { Vec::new() } else { vec![Part::Text { text: text.to_owned() }] };
        Rc::new(Message {
            id,
            role: Role::User,
            content,
            execution_id: Some(execution),
            execution_status: None,
            execution_error: None,
            created_at,
            revision: 0,
        })
    }
}

/// Adds a suspension that is not in the list yet.
pub(super) fn add_suspension(list: &mut Vec<Suspension>, suspension: Suspension) {
    if list.iter().all(|known| known.tool_call_id != suspension.tool_call_id) {
        list.push(suspension);
    }
}

/// A time as the record writes it (RFC 3339, UTC).
pub(super) fn rfc3339(at: Millis) -> String {
    let (days, ms) = (at.div_euclid(86_400_000), at.rem_euclid(86_400_000));
    // Days to a date of the proleptic Gregorian calendar, in years that begin in March so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second, ms) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_record_writes_them() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00.000Z"),
            (1_767_225_599_001, "2025-12-31T23:59:59.001Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(at), expected);
        }
    }
}
