//! From a seed to a sequence of operations. The same seed gives the same sequence, in every version of every crate.

use crate::dice::Dice;

/// How long a submitter reads its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Until the connection is closed after so many events.
    Leave(u64),
    /// To the end, before anything else is done.
    ToEnd,
    /// To the end, while other things are done.
    Beside,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Approve, or pick an option.
    Yes,
    /// Deny with a reason, or pick another option.
    No,
    /// Of the wrong shape.
    Wrong,
}

/// Which execution a Stop names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// The newest that this walk knows of.
    Newest,
    /// The first one.
    Oldest,
    /// None that exists.
    Unknown,
}

/// One thing that a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Submit a new message.
    Submit { command: &'static str, reading: Reading },
    /// Submit the last message again, with its id.
    SubmitAgain,
    /// Submit one new message twice at the same instant.
    SubmitTwice { command: &'static str },
    /// Answer the first open interaction.
    Answer { reply: Reply, reading: Reading },
    /// Answer it twice at the same instant, differently.
    AnswerTwice,
    /// Ask an execution to stop.
    Stop(Which),
    /// Cancel the suspended turn.
    Cancel,
    /// Rename the thread.
    Rename,
    /// Delete the thread; the walk goes on in a new one.
    Delete,
    /// Read the thread.
    Read,
    /// Read what changed since an earlier read.
    ReadSince,
    /// Everything that another user may try.
    Pry,
    /// Wait until nothing runs.
    Settle,
}

/// What the demo agent does in well under a second.
const COMMANDS: [&str; 10] =
    ["hello", "/long 40", "/long 3", "/tool", "/think", "/approve", "/ask", "/delegate 3", "/fail", "/slow 2"];

/// The operations of a seed.
pub(super) fn plan(seed: u64) -> Vec<Op> {
    let mut dice = Dice::new(seed);
    let length = 4 + dice.below(9);
    let reading = |dice: &mut Dice| match dice.below(6) {
        0 | 1 => Reading::Leave(dice.below(12)),
        2 => Reading::ToEnd,
        _ => Reading::Beside,
    };
    (0..length)
        .map(|number| match if number == 0 { 0 } else { dice.below(24) } {
            0..=5 => Op::Submit { command: dice.of(COMMANDS), reading: reading(&mut dice) },
            6 => Op::SubmitAgain,
            7 => Op::SubmitTwice { command: dice.of(COMMANDS) },
            8..=10 => {
                Op::Answer { reply: dice.of([Reply::Yes, Reply::Yes, Reply::No, Reply::Wrong]), reading: reading(&mut dice) }
            }
            11 => Op::AnswerTwice,
            12 | 13 => Op::Stop(dice.of([Which::Newest, Which::Newest, Which::Newest, Which::Oldest, Which::Unknown])),
            14 => Op::Cancel,
            15 => Op::Rename,
            16 => Op::Delete,
            17 | 18 => Op::Read,
            19 => Op::ReadSince,
            20 => Op::Pry,
            _ => Op::Settle,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_for_ever() {
        assert_eq!(plan(7), plan(7));
        assert!((0..200).any(|seed| plan(seed).contains(&Op::AnswerTwice)));
    }
}
