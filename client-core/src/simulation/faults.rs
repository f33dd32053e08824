//! Things broken on purpose, around the machines and not in them: each invariant has to notice one. A check that finds nothing here
//! would find nothing in the machines either.

use std::{collections::VecDeque, rc::Rc};

use super::{
    invariants::{Gave, Rule},
    world::World,
};
use crate::{
    follow,
    thread::{Effect, EffectId, Input, Occasion, View},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A submit whose connection broke is sent again.
    SendsAgain,
    /// A submit of an unknown fate is sent again by the person, and gets another id.
    ForgetsId,
    /// A failed read clears the screen.
    ClearsOnFailure,
    /// A message goes back to an earlier revision.
    GoesBack,
    /// A refused submit clears the box.
    ClearsDraft,
    /// A successful read removes what is kept of the draft.
    RemovesDraft,
    /// What is typed is not kept.
    KeepsNothing,
    /// Stop names whatever ran last.
    StopsAnother,
    /// Each Stop is asked for twice.
    StopsTwice,
    /// The last message is shown twice.
    ShowsTwice,
    /// Pieces of a stream are taken twice.
    TakesTwice,
    /// Each piece of a stream is decoded alone.
    DecodesAlone,
    /// The order of messages is turned around.
    Reverses,
    /// Reads do not wait for each other.
    ReadsAtOnce,
    /// It reads whenever something is typed.
    ReadsForNothing,
    /// A timer pretends to be an occasion.
    Restless,
    /// Connections are not closed.
    KeepsConnections,
    /// Each tab connects for itself.
    EachForItself,
    /// Notifications are ignored.
    HearsNothing,
    /// A new `/push` connection is no reason to read.
    MissesReconnects,
    /// Timers do not fire.
    LosesTimers,
}

/// Each fault, and the promises that it breaks: which one is noticed first depends on the story.
pub(super) const FAULTS: [(Fault, &[Rule]); 21] = [
    (Fault::SendsAgain, &[Rule::Submit]),
    (Fault::ForgetsId, &[Rule::Submit]),
    (Fault::ClearsOnFailure, &[Rule::FailedRead]),
    (Fault::GoesBack, &[Rule::Revision]),
    (Fault::ClearsDraft, &[Rule::Draft]),
    (Fault::RemovesDraft, &[Rule::Draft]),
    (Fault::KeepsNothing, &[Rule::Draft]),
    (Fault::StopsAnother, &[Rule::Stop]),
    (Fault::StopsTwice, &[Rule::Stop]),
    (Fault::ShowsTwice, &[Rule::Twice]),
    (Fault::TakesTwice, &[Rule::State]),
    (Fault::DecodesAlone, &[Rule::State]),
    (Fault::Reverses, &[Rule::State]),
    (Fault::ReadsAtOnce, &[Rule::ReadsAtOnce]),
    (Fault::ReadsForNothing, &[Rule::Occasion]),
    (Fault::Restless, &[Rule::Quiet]),
    (Fault::KeepsConnections, &[Rule::Push]),
    (Fault::EachForItself, &[Rule::Push]),
    (Fault::HearsNothing, &[Rule::Healed]),
    (Fault::MissesReconnects, &[Rule::Healed]),
    (Fault::LosesTimers, &[Rule::Healed]),
];

/// Effects that a fault makes up have ids that no machine uses.
const MADE_UP: u64 = 1 << 40;

impl World {
    /// What a machine gets in place of an input.
    pub(super) fn distort_input(&mut self, input: Input) -> VecDeque<Input> {
        match (self.fault, input) {
            (Some(Fault::TakesTwice), input @ Input::StreamBytes { .. }) => [input.clone(), input].into(),
            (Some(Fault::DecodesAlone), Input::StreamBytes { id, bytes }) => {
                [Input::StreamBytes { id, bytes: String::from_utf8_lossy(&bytes).into_owned().into_bytes() }].into()
            }
            (Some(Fault::HearsNothing), Input::Notified(_))
            | (Some(Fault::MissesReconnects), Input::Occasion(Occasion::PushConnected))
            | (Some(Fault::LosesTimers), Input::TimerFired { .. }) => VecDeque::new(),
            (_, input) => [input].into(),
        }
    }

    /// What comes of an input, in place of what the machine made of it.
    pub(super) fn distort(&mut self, gave: &Gave, effects: &mut Vec<Effect>, view: &mut View) {
        let Some(fault) = self.fault else { return };
        let made_up = EffectId(MADE_UP + self.steps);
        let last = effects.last().cloned();
        match (fault, gave) {
            (Fault::SendsAgain, Gave::StreamOver(_, None)) => effects.extend(self.remembered.clone()),
            (Fault::SendsAgain, _) => {
                self.remembered =
                    effects.iter().find(|effect| matches!(effect, Effect::Submit { .. })).cloned().or(self.remembered.take());
            }
            (Fault::ForgetsId, _) => {
                for effect in effects {
                    if let Effect::Submit { request, .. } = effect {
                        request.message_id = Some(self.rng.uuid().into());
                    }
                }
            }
            (Fault::ClearsOnFailure, Gave::ReadFailed) => {
                view.settled = Rc::default();
                view.live = None;
            }
            (Fault::GoesBack, Gave::ReadOk) => {
                if let Some(message) = Rc::make_mut(&mut view.settled).last_mut() {
                    let message = Rc::make_mut(message);
                    message.revision = message.revision.saturating_sub(1);
                }
            }
            (Fault::ClearsDraft, Gave::StreamOver(_, Some(_))) => view.draft = "".into(),
            (Fault::RemovesDraft, Gave::ReadOk) => {
                effects.push(Effect::SaveDraft { id: made_up, thread: view.thread, draft: Default::default() });
            }
            (Fault::KeepsNothing, Gave::Typed(_)) => effects.clear(),
            (Fault::StopsAnother, _) => {
                let newest = self.server.origins.last_key_value().map(|(execution, _)| *execution);
                for effect in effects {
                    if let (Effect::Stop { execution, .. }, Some(newest)) = (effect, newest) {
                        *execution = newest;
                    }
                }
            }
            (Fault::StopsTwice, _) => {
                if let Some(Effect::Stop { thread, execution, .. }) = last {
                    effects.push(Effect::Stop { id: made_up, thread, execution });
                }
            }
            (Fault::ShowsTwice, _) => {
                let list = Rc::make_mut(&mut view.settled);
                list.extend(list.last().cloned());
            }
            (Fault::Reverses, _) => Rc::make_mut(&mut view.settled).reverse(),
            (Fault::ReadsAtOnce, Gave::Notified) => {
                if let (false, Some(thread)) = (matches!(last, Some(Effect::Read { .. })), view.thread) {
                    effects.push(Effect::Read { id: made_up, thread, since: None });
                }
            }
            (Fault::ReadsForNothing, Gave::Typed(_)) => {
                if let Some(thread) = view.thread {
                    effects.push(Effect::Read { id: made_up, thread, since: None });
                }
            }
            _ => {}
        }
    }

    /// Whether an effect of who holds the connection is not carried out.
    pub(super) fn swallows(&self, effect: &follow::Effect) -> bool {
        self.fault == Some(Fault::KeepsConnections) && matches!(effect, follow::Effect::Disconnect { .. })
    }
}
