//! What a person sees and typed: the checks of drafts and of the transcript.

use std::collections::BTreeSet;

use turnfast_shared::Message;

use super::{
    browser::Pane,
    invariants::{Gave, Rule, Step},
    server::{is_state_of, words},
    world::World,
};
use crate::thread::{Effect, Load, Running};

impl World {
    fn is_accepted(&self, word: &str) -> bool {
        self.server.accepted_words.contains(word)
    }

    pub(super) fn check_draft(&mut self, pane: &Pane, step: &Step<'_>) {
        let keeps = self.browsers[self.tabs[&step.tab].browser].keeps;
        let lost_of = |world: &Self, before: &str, after: &str| {
            let kept: BTreeSet<_> = words(after).collect();
            words(before).find(|word| !kept.contains(word) && !world.is_accepted(word)).map(str::to_owned)
        };
        let after = &pane.view.draft;
        let lost = match step.gave {
            Gave::Opened | Gave::Disposed => None,
            Gave::Typed(text) if !pane.disposed && **after != **text => Some(text.clone()),
            Gave::Typed(_) => None,
            // A submit that is still on its way has its draft with it.
            Gave::Loaded(Some(text)) if pane.view.running != Some(Running::Starting) => lost_of(self, text, after),
            _ => lost_of(self, &step.before.draft, after),
        };
        if let Some(word) = lost {
            self.fail(Rule::Draft, format_args!("{word:?} went from the screen unaccepted"));
        }
        let kept = &self.browsers[self.tabs[&step.tab].browser].drafts;
        if let Gave::Typed(text) = step.gave
            && keeps
            && !pane.disposed
            && kept.get(&pane.view.thread).map_or("", |draft| &draft.text) != text
        {
            self.fail(Rule::Draft, "what was typed is not kept");
            return;
        }
        let Some(stored) = step.stored.filter(|_| keeps) else { return };
        // Whoever types or sends last decides what is kept of that thread's draft.
        let own = matches!(step.gave, Gave::Typed(_) | Gave::Send).then_some(step.before.thread);
        // What was typed behind a first message goes with it to the thread that it began, over what another tab may have typed there.
        let empties = |effect: &Effect| matches!(effect, Effect::SaveDraft { thread: None, draft, .. } if draft.is_empty());
        let moved = step.effects.iter().any(empties).then_some(pane.view.thread);
        let everything: BTreeSet<_> = kept.values().flat_map(|draft| words(&draft.text)).collect();
        let lost = stored
            .iter()
            .filter(|(thread, _)| own != Some(**thread) && moved != Some(**thread))
            .flat_map(|(_, draft)| words(&draft.text))
            .find(|word| !everything.contains(word) && !self.is_accepted(word))
            .map(str::to_owned);
        if let Some(word) = lost {
            self.fail(Rule::Draft, format_args!("{word:?} went from the storage unaccepted"));
        }
    }

    pub(super) fn check_transcript(&mut self, pane: &mut Pane, step: &Step<'_>) {
        let view = &pane.view;
        let same = step.before.messages().eq(view.messages());
        if matches!(step.gave, Gave::ReadFailed) && !same {
            self.fail(Rule::FailedRead, "a failed read changed the transcript");
        }
        if matches!(step.gave, Gave::ReadFailed) && view.load == Load::NotFound && step.before.load == Load::Loaded {
            self.fail(Rule::FailedRead, "a thread that was shown is called missing");
        }
        if same && step.before.thread == view.thread {
            return;
        }
        let opened = matches!(step.gave, Gave::Opened | Gave::Disposed);
        if !opened && !matches!(step.gave, Gave::ReadOk) {
            let stays = |before: &Message| {
                view.messages().any(|after| after.id == before.id && is_state_of(&before.content, &after.content))
            };
            if !step.before.messages().all(|message| stays(message)) {
                self.fail(Rule::State, format_args!("what was shown went away by {:?}", step.gave));
            }
        }
        let mut ids = BTreeSet::new();
        let first = view.messages().next().map(|message| message.id);
        let recorded = view.thread.and_then(|thread| self.server.threads.get(&thread));
        let mut problem = None;
        let mut last = None;
        if first.is_some() && recorded.and_then(|thread| thread.messages.first()).map(|message| message.id) != first {
            problem = Some((Rule::State, "a thread is shown without its past".to_owned()));
        }
        for message in view.messages() {
            if !ids.insert(message.id) {
                problem = Some((Rule::Twice, format!("{} is shown twice", message.id)));
            }
            let place = recorded.and_then(|thread| thread.messages.iter().position(|known| known.id == message.id));
            if place.is_none() || place < last {
                problem = Some((Rule::State, format!("{} is shown where it does not belong", message.id)));
            }
            last = place;
            if let Some(what) = place.zip(recorded).and_then(|(at, thread)| self.unlike(message, &thread.messages[at])) {
                problem = Some((Rule::State, what));
            }
            let seen = pane.book.revisions.entry(message.id).or_default();
            // What a stream wrote has no revision before it is read.
            if message.revision != 0 && message.revision < *seen {
                problem = Some((Rule::Revision, format!("{} fell from {seen} to {}", message.id, message.revision)));
            }
            *seen = message.revision.max(*seen);
        }
        if let Some((rule, what)) = problem {
            self.fail(rule, what);
        }
    }

    fn unlike(&self, shown: &Message, recorded: &Message) -> Option<String> {
        let said = self.server.said.get(&shown.id).map(Vec::as_slice).unwrap_or_default();
        let fits = is_state_of(&shown.content, said) || is_state_of(&shown.content, &recorded.content);
        (!fits || shown.role != recorded.role)
            .then(|| format!("{:?} is no state of {said:?}, nor of {:?}", shown.content, recorded.content))
    }
}
