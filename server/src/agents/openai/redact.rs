//! Keeps secrets out of what a model streams, should its endpoint echo one.

use std::collections::HashMap;

use crate::{
    agents::model::ModelEvent,
    redact::{Begun, Redactor},
};

/// What a delta belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Channel {
    Text,
    Reasoning,
    Input(usize),
}

impl Channel {
    fn event(self, delta: String) -> ModelEvent {
        match self {
            Self::Text => ModelEvent::Text(delta),
            Self::Reasoning => ModelEvent::Reasoning(delta),
            Self::Input(call) => ModelEvent::CallInput { call, delta },
        }
    }
}

/// The end of what a channel said so far, as far as it may be the beginning of a secret.
#[derive(Default)]
struct Tail {
    text: String,
    /// Bytes of it that are shown already.
    shown: usize,
}

/// Redacts the events of one answer. A secret that is cut over deltas is found too: what may be its beginning is kept in mind, and from
/// some length on waits for the next delta.
pub(super) struct Redaction {
    redactor: Redactor,
    tails: HashMap<Channel, Tail>,
}

impl Redaction {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, tails: HashMap::new() }
    }

    /// Adds to `certain` what is certain with this event.
    pub(super) fn take(&mut self, event: ModelEvent, certain: &mut Vec<ModelEvent>) {
        if self.redactor.is_empty() {
            certain.push(event);
            return;
        }
        let (channel, delta) = match event {
            ModelEvent::Text(delta) => (Channel::Text, delta),
            ModelEvent::Reasoning(delta) => (Channel::Reasoning, delta),
            ModelEvent::CallInput { call, delta } => (Channel::Input(call), delta),
            mut other => {
                match &mut other {
                    ModelEvent::Call { input: Ok(value), .. } => *value = self.redactor.value(value.take()),
                    ModelEvent::Call { input: Err(text), .. } => *text = self.redactor.text(std::mem::take(text)),
                    ModelEvent::CallStart { id, name, .. } => {
                        *id = id.take().map(|id| self.redactor.text(id));
                        *name = self.redactor.text(std::mem::take(name));
                    }
                    _ => {}
                }
                self.end(certain);
                certain.push(other);
                return;
            }
        };
        // Text and reasoning keep their order.
        for other in [Channel::Text, Channel::Reasoning] {
            if other != channel && !matches!(channel, Channel::Input(_)) {
                self.show_rest(other, certain);
            }
        }
        let Tail { mut text, mut shown } = self.tails.remove(&channel).unwrap_or_default();
        text.push_str(&delta);
        if let Some(first) = self.redactor.first(&text)
            && first < shown
        {
            // Its first letters are out; the mask stands for the others.
            text.drain(..first);
            shown = 0;
        }
        let text = self.redactor.text(text);
        let Begun { possible, likely } = self.redactor.begun(&text);
        let tail = text.len() - possible;
        let certain_to = shown.max(text.len() - likely);
        if certain_to > shown {
            certain.push(channel.event(text[shown..certain_to].to_owned()));
        }
        if possible > 0 {
            self.tails.insert(channel, Tail { text: text[tail..].to_owned(), shown: certain_to - tail });
        }
    }

    fn show_rest(&mut self, channel: Channel, certain: &mut Vec<ModelEvent>) {
        let Some(Tail { text, shown }) = self.tails.remove(&channel) else { return };
        if shown < text.len() {
            certain.push(channel.event(text[shown..].to_owned()));
        }
    }

    /// Adds what waits: nothing more comes.
    pub(super) fn end(&mut self, certain: &mut Vec<ModelEvent>) {
        let channels: Vec<_> = self.tails.keys().copied().collect();
        for channel in channels {
            self.show_rest(channel, certain);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::redact::MASK;

    const KEY: &str = "sk-proj-0123456789";
    const SHOWN_MAX: usize = KEY.len() / 4;

    /// What a reader has after each delta.
    fn shown(deltas: &[&str], end: bool) -> String {
        let mut redaction = Redaction::new(Redactor::new([KEY]));
        let mut events = Vec::new();
        for delta in deltas {
            redaction.take(ModelEvent::Text((*delta).to_owned()), &mut events);
        }
        if end {
            redaction.end(&mut events);
        }
        events
            .into_iter()
            .map(|event| match event {
                ModelEvent::Text(delta) => delta,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn words_that_begin_like_a_key_are_shown_at_once() {
        assert_eq!(shown(&["It ends with s"], false), "It ends with s");
        assert_eq!(shown(&["ask", "-"], false), "ask-");
        assert_eq!(shown(&["sk-p", "s"], false), "sk-ps");
        assert_eq!(shown(&["sk-proj"], false), "", "this is no chance");
        assert_eq!(shown(&["sk-", "proj"], false), "sk-");
        assert_eq!(shown(&["sk-proj", "ects"], false), "sk-projects");
        assert_eq!(shown(&["sk-proj"], true), "sk-proj");
    }

    proptest! {
        /// However it is cut, at most the first letters of a key show, and nothing else changes.
        #[test]
        fn a_key_is_found_over_any_cuts(
            before in "[sk a-]{0,6}", after in "[sk a-]{0,6}", twice: bool, cuts in proptest::collection::vec(0_usize..60, 0..8),
        ) {
            let text = if twice { format!("{before}{KEY}{KEY}{after}") } else { format!("{before}{KEY}{after}") };
            let mut cuts: Vec<_> = cuts.into_iter().filter(|&cut| cut < text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let deltas: Vec<&str> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            let got = shown(&deltas, true);
            prop_assert!(!got.contains(&KEY[SHOWN_MAX..]), "{got}");
            let pieces: Vec<&str> = got.split(MASK).collect();
            prop_assert_eq!(pieces.len(), if twice { 3 } else { 2 }, "{}", got);
            let leads = |piece: &str, text: &str| {
                piece.strip_prefix(text).is_some_and(|rest| rest.len() <= SHOWN_MAX && KEY.starts_with(rest))
            };
            prop_assert!(leads(pieces[0], &before), "{}", got);
            prop_assert!(!twice || leads(pieces[1], ""), "{}", got);
            prop_assert_eq!(pieces[pieces.len() - 1], after.as_str());
        }
    }
}
