//! One message and its parts.

use std::rc::Rc;

use turnfast_client_core::thread::Interaction;
use turnfast_shared::{
    ExecutionStatus, Message, Part, Role,
    api::{AttachmentId, NewAttachment},
    ids::Slug,
};

use super::{
    app::{Action, Child, Draft},
    conversation::{Fold, Folding},
    node::{Key, Prose, element, prose},
    page::{local_time, now},
    tool,
};
use crate::{
    api, files,
    words::{self, Tone},
};

/// What the view of a message is made of.
pub(super) struct Row<'a> {
    pub(super) message: &'a Rc<Message>,
    pub(super) agent_name: &'a str,
    pub(super) project: &'a Slug,
    pub(super) agent: &'a Slug,
    /// Those of this message.
    pub(super) interactions: Vec<&'a Interaction>,
    /// What is unfolded, of any message.
    pub(super) unfolded: &'a [Fold],
    /// Whether the person may answer what is asked.
    pub(super) may_answer: bool,
    /// Files that went with it and that it does not show yet.
    pub(super) sent: &'a [SentFile],
}

/// A file that was sent, and that the record does not show yet.
pub(super) struct SentFile {
    name: String,
    about: String,
}

impl SentFile {
    pub(super) fn of(file: &NewAttachment) -> Self {
        Self { name: file.name.clone(), about: about(&file.media_type, files::size(file)) }
    }
}

/// What a file is, in words.
fn about(media_type: &str, size: u64) -> String {
    format!("{media_type}, {}", words::size(size))
}

impl Row<'_> {
    /// A part that can be folded, and whether it is unfolded.
    pub(super) fn fold(&self, part: usize, what: Folding) -> (Action, bool) {
        let fold = Fold { message: self.message.id, part, what };
        let unfolded = self.unfolded.contains(&fold);
        (Action::Folded(fold), unfolded)
    }

    /// A text of a part, as Markdown.
    pub(super) fn prose(&self, part: usize) -> Child {
        prose(Box::new(Passage { message: Rc::clone(self.message), part }))
    }

    fn is_running(&self) -> bool {
        self.message.execution_status == Some(ExecutionStatus::Running)
    }

    /// The message as an item of the list.
    pub(super) fn view(&self) -> Child {
        let message = self.message;
        let user = message.role == Role::User;
        let (speaker, test_id) = if user { ("You", "message-user") } else { (self.agent_name, "message-assistant") };
        let running = self.is_running();
        let mut parts: Vec<_> =
            message.content.iter().enumerate().filter_map(|(index, part)| self.part(index, part, user)).collect();
        if !message.content.iter().any(|part| matches!(part, Part::File { .. })) {
            parts.extend(self.sent.iter().map(|file| {
                element("div", &[("class", "file"), ("data-testid", "file")])
                    .with(element("strong", &[("dir", "auto")]).text(file.name.clone()))
                    .with(element("span", &[]).text(file.about.clone()))
                    .done()
            }));
        }
        let thinking = (running && message.content.is_empty())
            .then(|| element("p", &[("class", "thinking")]).key(Key::Name("thinking")).text("Working on it…"));
        let outcome = words::outcome(message).map(|(tone, text)| {
            element("p", &[("data-testid", "outcome")]).key(Key::Name("outcome")).set("class", tone_class(tone)).text(text)
        });
        let article = element("article", &[])
            .set("aria-label", speaker.to_owned())
            .maybe("aria-busy", running.then_some("true"))
            .with(element("h2", &[]).maybe("class", user.then_some("said")).text(speaker.to_owned()))
            .children(parts)
            .with_some(thinking)
            .with_some(outcome)
            .with_some((!user).then(|| self.meta()));
        element("div", &[])
            .key(Key::Id(message.id.0.as_u128()))
            .set("class", if user { "message user" } else { "message" })
            .set("data-testid", test_id)
            .set("data-id", message.id.to_string())
            .maybe("data-status", message.execution_status.map(ExecutionStatus::as_str))
            .with(article)
            .done()
    }

    fn part(&self, index: usize, part: &Part, user: bool) -> Option<Child> {
        Some(match part {
            // Only files were sent.
            Part::Text { text } if user && text.is_empty() => return None,
            Part::Text { text } if user => {
                element("p", &[("class", "bubble"), ("dir", "auto")]).key(Key::Number(index)).text(text.clone()).done()
            }
            Part::Text { .. } => self.prose(index),
            Part::Reasoning { start_time, end_time, .. } => self.reasoning(index, *start_time, *end_time).done(),
            Part::File { id, name, media_type, size } => self.file(index, *id, name, media_type, *size).done(),
            Part::ToolCall(call) => tool::card(self, index, call).done(),
        })
    }

    /// A picture as itself, anything else as a link to it.
    fn file(&self, index: usize, id: AttachmentId, name: &str, media_type: &str, size: u64) -> Draft {
        let path = api::attachment_path(self.project, self.agent, id);
        let link = element("a", &[("data-testid", "file")]).key(Key::Number(index)).set("href", path.clone());
        if media_type.starts_with("image/") {
            let picture = element("img", &[("loading", "lazy")]).set("src", path).set("alt", name.to_owned());
            return link.set("class", "picture").set("target", "_blank").set("rel", "noopener noreferrer").with(picture);
        }
        link.set("class", "file")
            .set("download", name.to_owned())
            .with(element("strong", &[("dir", "auto")]).text(name.to_owned()))
            .with(element("span", &[]).text(about(media_type, size)))
    }

    fn meta(&self) -> Draft {
        let created = &self.message.created_at;
        let copies = !self.is_running() && self.message.content.iter().any(|part| matches!(part, Part::Text { .. }));
        let copy = copies.then(|| {
            element("button", &[("type", "button"), ("class", "quiet copy")])
                .on("click", Action::CopyMessage(self.message.id))
                .text("Copy")
        });
        element("div", &[("class", "meta")])
            .with(element("time", &[]).set("datetime", created.clone()).text(local_time(created)))
            .with_some(copy)
    }

    /// The model's reasoning, folded.
    fn reasoning(&self, part: usize, start: turnfast_shared::Millis, end: Option<turnfast_shared::Millis>) -> Draft {
        let title = match (end, self.is_running()) {
            (Some(end), _) => format!("Reasoned for {}", words::duration(end - start)),
            (None, true) => "Reasoning…".to_owned(),
            (None, false) => "Reasoning".to_owned(),
        };
        let (folded, unfolded) = self.fold(part, Folding::Body);
        let details = element("details", &[("class", "fold reasoning"), ("data-testid", "reasoning")])
            .key(Key::Number(part))
            .on("toggle", folded)
            .with(element("summary", &[]).text(title));
        if unfolded { details.child(self.prose(part)) } else { details }
    }
}

fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Quiet => "note",
        Tone::Bad => "note bad",
    }
}

/// The text of a part; of a call, what its child says.
struct Passage {
    message: Rc<Message>,
    part: usize,
}

impl Prose for Passage {
    fn read(&self) -> (&str, bool) {
        let done = self.message.execution_status.is_none_or(ExecutionStatus::is_final);
        let text = match self.message.content.get(self.part) {
            Some(Part::Text { text } | Part::Reasoning { text, .. }) => text,
            Some(Part::ToolCall(call)) => call.child_trace.as_ref().map_or("", |trace| &trace.text),
            _ => "",
        };
        (text, done)
    }
}

/// Time since `start`, or up to `end`.
pub(super) fn elapsed(start: turnfast_shared::Millis, end: Option<turnfast_shared::Millis>) -> String {
    words::duration(end.unwrap_or_else(now) - start)
}
