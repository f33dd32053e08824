//! What must hold after chaos, whatever happened: pure functions over the clients' logs and the record.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use turnfast_shared::{
    ExecutionStatus, Message, Role,
    api::ThreadSnapshot,
    ids::{ExecutionId, MessageId, RunId, ThreadId},
};

use super::log::{Asked, Entry, Evidence, Outcome, Seen, StreamEnd};
use crate::walks::well_formed;

/// One promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Check {
    /// Every accepted turn is in the record exactly once, with a final status; nothing else is in it.
    AcceptedOnce,
    /// Every acknowledged Stop ended its execution, and no other.
    Stops,
    /// No text that was read shrank, nothing final changed, and no reader was sent back in time.
    TextGrows,
    /// Nothing says `running` without an owner that lives.
    Owners,
    /// Every follower ended on the newest revision.
    Followers,
    /// Every server reads the same, and what it reads is well formed.
    OneRecord,
    /// Of several answers to one question one was taken.
    AnsweredOnce,
    /// What a stream said to its end is what was recorded.
    Streams,
    /// Every answer and every stream was as the contract says.
    Contract,
}

/// All of them.
pub const CHECKS: [Check; 9] = [
    Check::AcceptedOnce,
    Check::Stops,
    Check::TextGrows,
    Check::Owners,
    Check::Followers,
    Check::OneRecord,
    Check::AnsweredOnce,
    Check::Streams,
    Check::Contract,
];

impl Check {
    /// What it promises.
    #[must_use]
    pub fn promise(self) -> &'static str {
        match self {
            Self::AcceptedOnce => "every accepted turn is in the record once, with a final status, and nothing else is",
            Self::Stops => "every acknowledged Stop ended its execution and no other",
            Self::TextGrows => "no text that was read shrank, and no reader was sent back in time",
            Self::Owners => "nothing runs without an owner that lives",
            Self::Followers => "every follower ended on the newest revision",
            Self::OneRecord => "every server reads the same record, and it is well formed",
            Self::AnsweredOnce => "every question was answered once",
            Self::Streams => "what a stream said to its end is what was recorded",
            Self::Contract => "every answer and every stream was as the contract says",
        }
    }

    /// Where it is broken.
    #[must_use]
    pub fn broken(self, evidence: &Evidence) -> Vec<String> {
        let case = Case::of(evidence);
        match self {
            Self::AcceptedOnce => case.accepted_once(),
            Self::Stops => case.stops(),
            Self::TextGrows => case.text_grows(),
            Self::Owners => case.owners(),
            Self::Followers => case.followers(),
            Self::OneRecord => case.one_record(),
            Self::AnsweredOnce => case.answered_once(),
            Self::Streams => case.streams(),
            Self::Contract => case.contract(),
        }
    }
}

/// Evidence with what is looked up in it.
struct Case<'e> {
    evidence: &'e Evidence,
    /// The record as the first server reads it.
    threads: BTreeMap<ThreadId, &'e ThreadSnapshot>,
    messages: BTreeMap<MessageId, &'e Message>,
    /// Executions by the message that they write.
    executions: BTreeMap<MessageId, Vec<(ExecutionId, &'e str)>>,
}

impl<'e> Case<'e> {
    fn of(evidence: &'e Evidence) -> Self {
        let threads: BTreeMap<_, _> =
            evidence.record.reads.first().into_iter().flatten().map(|(thread, read)| (*thread, read)).collect();
        let messages = threads.values().flat_map(|read| &read.messages).map(|message| (message.id, message)).collect();
        let mut executions = BTreeMap::<_, Vec<_>>::new();
        for execution in &evidence.record.executions {
            executions.entry(execution.message).or_default().push((execution.id, execution.status.as_str()));
        }
        Self { evidence, threads, messages, executions }
    }

    fn entries(&self) -> impl Iterator<Item = &'e Entry> {
        self.evidence.logs.iter().flat_map(|log| &log.entries)
    }

    fn executions_of(&self, message: MessageId) -> &[(ExecutionId, &'e str)] {
        self.executions.get(&message).map_or(&[], Vec::as_slice)
    }

    fn accepted_once(&self) -> Vec<String> {
        let mut broken = Vec::new();
        // A message may have been submitted several times, with the same id.
        let mut submits = BTreeMap::<(ThreadId, MessageId), (&str, Vec<Outcome>)>::new();
        for entry in self.entries() {
            if let Entry::Submitted { thread, message, text, outcome } = entry {
                submits.entry((*thread, *message)).or_insert((text, Vec::new())).1.push(*outcome);
            }
        }
        for ((thread, message), (text, outcomes)) in &submits {
            let there = self.threads.get(thread).map_or(&[][..], |read| &read.messages);
            let places: Vec<_> = (0..there.len()).filter(|&place| there[place].id == *message).collect();
            let accepted: Vec<_> = outcomes
                .iter()
                .filter_map(|outcome| if let Outcome::Accepted(started) = outcome { Some(started) } else { None })
                .collect();
            if accepted.len() > 1 {
                broken.push(format!("message {message} was accepted {} times: {accepted:?}", accepted.len()));
            }
            if places.len() > 1 {
                broken.push(format!("message {message} is in the record {} times", places.len()));
            }
            let unknown = outcomes.contains(&Outcome::Unknown);
            let Some(&place) = places.first() else {
                if let Some(started) = accepted.first() {
                    broken.push(format!("lost: {started:?} was accepted and is not in the record"));
                }
                continue;
            };
            if accepted.is_empty() && !unknown {
                broken.push(format!("message {message} was refused ({outcomes:?}) and is in the record"));
            }
            if there[place].text() != **text {
                broken.push(format!("message {message} is not as it was submitted: {:?}", there[place]));
            }
            let Some(answer) = there.get(place + 1).filter(|answer| answer.role == Role::Assistant) else {
                broken.push(format!("message {message} of thread {thread} has no answer behind it"));
                continue;
            };
            if let Some(started) = accepted.first().filter(|started| started.assistant != answer.id) {
                broken.push(format!("{started:?} is answered by {}", answer.id));
            }
            let ends: Vec<_> =
                self.executions_of(answer.id).iter().filter(|(_, status)| !matches!(*status, "resumed" | "continued")).collect();
            if ends.len() != 1 {
                broken.push(format!("message {} was ended by {} executions: {ends:?}", answer.id, ends.len()));
            }
            if !answer.execution_status.is_some_and(ExecutionStatus::is_final) {
                broken.push(format!("stuck: message {} of thread {thread} is {:?}", answer.id, answer.execution_status));
            }
            if let Some(started) = accepted.first()
                && !self.executions_of(answer.id).iter().any(|(id, _)| *id == started.execution)
            {
                broken.push(format!("{started:?} has no execution in the record"));
            }
        }
        for (thread, read) in &self.threads {
            for message in read.messages.iter().filter(|message| message.role == Role::User) {
                if !submits.contains_key(&(*thread, message.id)) {
                    broken.push(format!("nobody submitted {message:?}"));
                }
            }
        }
        broken
    }

    fn stops(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let (mut stopped, mut cancelled) = (BTreeSet::<ExecutionId>::new(), BTreeSet::<RunId>::new());
        let status: BTreeMap<_, _> =
            self.evidence.record.executions.iter().map(|execution| (execution.id, execution.status.as_str())).collect();
        for entry in self.entries() {
            match entry {
                Entry::Stopped { execution, asked: asked @ (Asked::Acknowledged | Asked::Unknown) } => {
                    stopped.insert(*execution);
                    let status = status.get(execution);
                    if *asked == Asked::Acknowledged && status != Some(&"cancelled") {
                        broken.push(format!("a Stop of {execution} was acknowledged, and it is {status:?}"));
                    }
                }
                Entry::Cancelled { run, asked: asked @ (Asked::Acknowledged | Asked::Unknown) } => {
                    cancelled.insert(*run);
                    let status = self.messages.get(&MessageId::from(*run)).and_then(|message| message.execution_status);
                    if *asked == Asked::Acknowledged && status != Some(ExecutionStatus::Cancelled) {
                        broken.push(format!("turn {run} was cancelled, and is {status:?}"));
                    }
                }
                _ => {}
            }
        }
        for execution in self.evidence.record.executions.iter().filter(|execution| execution.status == "cancelled") {
            if !stopped.contains(&execution.id) && !cancelled.contains(&RunId::from(execution.message.0)) {
                broken.push(format!("{execution:?} is cancelled, and nobody asked for it"));
            }
        }
        broken
    }

    fn text_grows(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for log in &self.evidence.logs {
            let mut newest = BTreeMap::new();
            for entry in &log.entries {
                if let Entry::Read { thread, revision, .. } = entry {
                    let before = newest.insert(*thread, *revision).unwrap_or_default();
                    if *revision < before {
                        broken.push(format!("{} read revision {revision} of {thread} after {before}", log.who));
                    }
                }
            }
        }
        let mut states = BTreeMap::<MessageId, Vec<Seen>>::new();
        for entry in self.entries() {
            if let Entry::Read { seen, .. } = entry {
                for seen in seen {
                    states.entry(seen.message).or_default().push(seen.clone());
                }
            }
        }
        for (id, mut states) in states {
            let Some(message) = self.messages.get(&id) else {
                broken.push(format!("lost: message {id} was read and is not in the record"));
                continue;
            };
            states.push(Seen { message: id, revision: message.revision, status: message.execution_status, text: message.text() });
            states.sort_by_key(|state| state.revision);
            for pair in states.windows(2) {
                let [before, after] = pair else { continue };
                let same = before.revision == after.revision || before.status.is_some_and(ExecutionStatus::is_final);
                if if same { before != after } else { !after.text.starts_with(&before.text) } {
                    broken.push(format!("{before:?} became {after:?}"));
                }
            }
        }
        broken
    }

    fn owners(&self) -> Vec<String> {
        let owners = &self.evidence.owners;
        let orphans = owners.running.iter().filter(|(_, process)| !owners.alive.contains(process));
        orphans.map(|(execution, process)| format!("{execution} runs in {process}, which is dead")).collect()
    }

    fn followers(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for log in &self.evidence.logs {
            for entry in &log.entries {
                let Entry::Shows { thread, revision } = entry else { continue };
                let newest = self.threads.get(thread).map_or(0, |read| read.revision);
                if *revision != newest {
                    broken.push(format!("{} shows revision {revision} of {thread}, and {newest} is the newest", log.who));
                }
            }
        }
        broken
    }

    fn one_record(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (thread, read) in &self.threads {
            if let Err(error) = well_formed(read) {
                broken.push(format!("thread {thread}: {error:#}: {read:?}"));
            }
        }
        let Some((first, others)) = self.evidence.record.reads.split_first() else { return vec!["nobody read".to_owned()] };
        for (number, other) in others.iter().enumerate() {
            if other != first {
                broken.push(format!("server {} does not read what server 0 reads", number + 1));
            }
        }
        broken
    }

    fn answered_once(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut answers = BTreeMap::<(RunId, &str), (u32, u32)>::new();
        for entry in self.entries() {
            if let Entry::Answered { run, call, outcome } = entry {
                let (accepted, unknown) = answers.entry((*run, call.as_str())).or_default();
                match outcome {
                    Outcome::Accepted(_) => *accepted += 1,
                    Outcome::Unknown => *unknown += 1,
                    Outcome::Refused(_) => {}
                }
            }
        }
        let mut by_run = BTreeMap::<RunId, (u32, u32)>::new();
        for ((run, call), (accepted, unknown)) in answers {
            if accepted > 1 {
                broken.push(format!("{accepted} answers to {call} of {run} were accepted"));
            }
            let (all_accepted, all_unknown) = by_run.entry(run).or_default();
            *all_accepted += accepted;
            *all_unknown += unknown;
        }
        for (message, executions) in &self.executions {
            let resumed = executions.iter().filter(|(_, status)| *status == "resumed").count();
            let (accepted, unknown) = by_run.get(&RunId::from(message.0)).copied().unwrap_or_default();
            if resumed < accepted as usize || resumed > (accepted + unknown) as usize {
                broken.push(format!(
                    "turn {message} went on {resumed} times, of {accepted} answers that were accepted and {unknown} unknown"
                ));
            }
        }
        broken
    }

    fn streams(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for entry in self.entries() {
            let Entry::Streamed { started, text, end: StreamEnd::Done(status) } = entry else { continue };
            let Some(message) = self.messages.get(&started.assistant) else { continue };
            let alone = self.executions_of(message.id).len() == 1;
            let recorded = message.text();
            let same = if alone { recorded == *text } else { recorded.ends_with(text.as_str()) };
            if message.execution_id != Some(started.execution) || message.execution_status != Some(*status) || !same {
                broken.push(format!("the stream of {started:?} ended {status:?} with `{text}`, and recorded is {message:?}"));
            }
        }
        broken
    }

    fn contract(&self) -> Vec<String> {
        let broken = |log: &'e super::log::Log| {
            log.entries.iter().filter_map(|entry| if let Entry::Broken(what) = entry { Some(what) } else { None })
        };
        self.evidence.logs.iter().flat_map(|log| broken(log).map(|what| format!("{}: {what}", log.who))).collect()
    }
}

#[cfg(test)]
mod tests {
    use turnfast_shared::{Part, problem::Code};
    use uuid::Uuid;

    use super::*;
    use crate::{
        chaos::log::{Execution, Log, Owners, Record},
        client::Started,
    };

    fn id<T: From<Uuid>>(n: u128) -> T {
        Uuid::from_u128(n).into()
    }

    fn message(n: u128, role: Role, text: &str) -> Message {
        let answer = role == Role::Assistant;
        Message {
            id: id(n),
            role,
            content: vec![Part::Text { text: text.to_owned() }],
            execution_id: answer.then(|| id(n + 100)),
            execution_status: answer.then_some(ExecutionStatus::Success),
            execution_error: None,
            created_at: String::new(),
            revision: 5,
        }
    }

    fn started(n: u128) -> Started {
        Started { thread: id(1), message: id(n), assistant: id(n + 1), execution: id(n + 101) }
    }

    fn submitted(n: u128, text: &str, outcome: Outcome) -> Entry {
        Entry::Submitted { thread: id(1), message: id(n), text: text.to_owned(), outcome }
    }

    /// Three turns of one thread, all as they should be: a plain one, one that waited and went on, one that was stopped.
    fn clean() -> Evidence {
        let mut stopped = message(15, Role::Assistant, "stopp");
        stopped.execution_status = Some(ExecutionStatus::Cancelled);
        let read = ThreadSnapshot {
            messages: vec![
                message(10, Role::User, "a"),
                message(11, Role::Assistant, "said a"),
                message(12, Role::User, "b"),
                message(13, Role::Assistant, "said b, and more"),
                message(14, Role::User, "c"),
                stopped,
            ],
            open_suspensions: Vec::new(),
            active_execution_id: None,
            revision: 9,
            partial: false,
            deleted_message_ids: None,
        };
        let reads = vec![BTreeMap::from([(id(1), read)]); 3];
        let execution =
            |n: u128, message: u128, status: &str| Execution { id: id(n), message: id(message), status: status.to_owned() };
        let executions = vec![
            execution(111, 11, "success"),
            execution(200, 13, "resumed"),
            execution(113, 13, "success"),
            execution(115, 15, "cancelled"),
        ];
        let seen = |revision, text: &str, status| Seen { message: id(11), revision, status: Some(status), text: text.to_owned() };
        let one = Log {
            who: "one".to_owned(),
            entries: vec![
                submitted(10, "a", Outcome::Unknown),
                submitted(10, "a", Outcome::Accepted(started(10))),
                Entry::Read { thread: id(1), revision: 3, seen: vec![seen(3, "said", ExecutionStatus::Running)] },
                Entry::Read { thread: id(1), revision: 5, seen: vec![seen(5, "said a", ExecutionStatus::Success)] },
                Entry::Streamed {
                    started: started(10),
                    text: "said a".to_owned(),
                    end: StreamEnd::Done(ExecutionStatus::Success),
                },
                Entry::Shows { thread: id(1), revision: 9 },
            ],
        };
        let two = Log {
            who: "two".to_owned(),
            entries: vec![
                submitted(16, "d", Outcome::Refused(Code::TurnAlreadyRunning)),
                submitted(12, "b", Outcome::Accepted(Started { execution: id(200), ..started(12) })),
                Entry::Answered {
                    run: id(13),
                    call: "call".to_owned(),
                    outcome: Outcome::Accepted(Started { message: id(12), ..started(12) }),
                },
                Entry::Answered { run: id(13), call: "call".to_owned(), outcome: Outcome::Refused(Code::InteractionClosed) },
                submitted(14, "c", Outcome::Accepted(started(14))),
                Entry::Stopped { execution: id(115), asked: Asked::Acknowledged },
                Entry::Stopped { execution: id(111), asked: Asked::TooLate },
            ],
        };
        let owners = Owners { running: vec![(id(115), id(70))], alive: BTreeSet::from([id(70), id(71)]) };
        Evidence { logs: vec![one, two], record: Record { reads, executions }, owners }
    }

    /// Every server reads the thread so.
    fn edit(evidence: &mut Evidence, edit: impl Fn(&mut ThreadSnapshot)) {
        for read in evidence.record.reads.iter_mut().flat_map(BTreeMap::values_mut) {
            edit(read);
        }
    }

    #[track_caller]
    fn notices(check: Check, what: &str, spoil: impl Fn(&mut Evidence)) {
        let mut evidence = clean();
        spoil(&mut evidence);
        let broken = check.broken(&evidence);
        assert!(broken.iter().any(|broken| broken.contains(what)), "`{what}` is not noticed: {broken:#?}");
    }

    #[test]
    fn nothing_is_wrong_with_what_is_right() {
        for check in CHECKS {
            assert_eq!(check.broken(&clean()), [""; 0], "{check:?}");
        }
    }

    #[test]
    fn a_turn_that_is_lost_doubled_stuck_or_made_up_is_noticed() {
        let check = Check::AcceptedOnce;
        notices(check, "lost", |evidence| edit(evidence, |read| drop(read.messages.drain(..2))));
        notices(check, "lost", |evidence| evidence.record.reads.iter_mut().for_each(BTreeMap::clear));
        notices(check, "is in the record 2 times", |evidence| {
            edit(evidence, |read| read.messages.extend_from_within(..2));
        });
        notices(check, "was accepted 2 times", |evidence| {
            evidence.logs[1].entries.push(submitted(10, "a", Outcome::Accepted(started(10))));
        });
        notices(check, "was ended by 2 executions", |evidence| {
            let twice = Execution { id: id(300), ..evidence.record.executions[0].clone() };
            evidence.record.executions.push(twice);
        });
        notices(check, "stuck", |evidence| {
            edit(evidence, |read| read.messages[1].execution_status = Some(ExecutionStatus::Running));
        });
        notices(check, "was refused", |evidence| {
            edit(evidence, |read| {
                read.messages.extend([message(16, Role::User, "d"), message(17, Role::Assistant, "said d")]);
            });
        });
        notices(check, "nobody submitted", |evidence| {
            edit(evidence, |read| read.messages.push(message(90, Role::User, "who?")));
        });
        notices(check, "is not as it was submitted", |evidence| {
            edit(evidence, |read| read.messages[0] = message(10, Role::User, "another text"));
        });
        notices(check, "has no answer", |evidence| edit(evidence, |read| drop(read.messages.remove(1))));
        notices(check, "is answered by", |evidence| edit(evidence, |read| read.messages[1].id = id(99)));
        notices(check, "has no execution", |evidence| evidence.record.executions[0].id = id(99));
    }

    #[test]
    fn a_stop_that_did_nothing_or_too_much_is_noticed() {
        notices(Check::Stops, "was acknowledged", |evidence| evidence.record.executions[3].status = "interrupted".to_owned());
        notices(Check::Stops, "was acknowledged", |evidence| drop(evidence.record.executions.pop()));
        notices(Check::Stops, "nobody asked", |evidence| evidence.record.executions[0].status = "cancelled".to_owned());
        notices(Check::Stops, "was cancelled, and is", |evidence| {
            evidence.logs[0].entries.push(Entry::Cancelled { run: id(13), asked: Asked::Acknowledged });
        });
    }

    #[test]
    fn text_that_shrinks_and_time_that_runs_backwards_are_noticed() {
        notices(Check::TextGrows, "became", |evidence| {
            edit(evidence, |read| read.messages[1] = message(11, Role::Assistant, "sai"));
        });
        notices(Check::TextGrows, "became", |evidence| {
            edit(evidence, |read| {
                read.messages[1] = message(11, Role::Assistant, "said a, and then more");
                read.messages[1].revision = 6;
            });
        });
        notices(Check::TextGrows, "lost", |evidence| edit(evidence, |read| drop(read.messages.remove(1))));
        notices(Check::TextGrows, "read revision 2", |evidence| {
            evidence.logs[0].entries.push(Entry::Read { thread: id(1), revision: 2, seen: Vec::new() });
        });
    }

    #[test]
    fn an_orphan_is_noticed() {
        notices(Check::Owners, "which is dead", |evidence| evidence.owners.alive.clear());
    }

    #[test]
    fn a_follower_that_was_not_told_is_noticed() {
        notices(Check::Followers, "one shows revision 9", |evidence| edit(evidence, |read| read.revision = 10));
        notices(Check::Followers, "0 is the newest", |evidence| {
            evidence.logs[0].entries.push(Entry::Shows { thread: id(2), revision: 1 });
        });
    }

    #[test]
    fn servers_that_do_not_agree_and_threads_that_make_no_sense_are_noticed() {
        notices(Check::OneRecord, "server 2", |evidence| evidence.record.reads[2].clear());
        notices(Check::OneRecord, "active and running", |evidence| edit(evidence, |read| read.active_execution_id = Some(id(5))));
        notices(Check::OneRecord, "nobody read", |evidence| evidence.record.reads.clear());
    }

    #[test]
    fn a_question_that_was_answered_twice_or_by_nobody_is_noticed() {
        let answer = |execution: u128| Entry::Answered {
            run: id(13),
            call: "call".to_owned(),
            outcome: Outcome::Accepted(Started { execution: id(execution), ..started(12) }),
        };
        notices(Check::AnsweredOnce, "2 answers", |evidence| evidence.logs[0].entries.push(answer(1)));
        notices(Check::AnsweredOnce, "went on 2 times", |evidence| {
            let again = Execution { id: id(201), ..evidence.record.executions[1].clone() };
            evidence.record.executions.push(again);
        });
        notices(Check::AnsweredOnce, "went on 0 times", |evidence| drop(evidence.record.executions.remove(1)));
    }

    #[test]
    fn a_stream_that_said_something_else_is_noticed() {
        for (text, status) in [("said", ExecutionStatus::Success), ("said a", ExecutionStatus::Interrupted)] {
            notices(Check::Streams, "and recorded is", |evidence| {
                evidence.logs[0].entries.push(Entry::Streamed {
                    started: started(10),
                    text: text.to_owned(),
                    end: StreamEnd::Done(status),
                });
            });
        }
    }

    #[test]
    fn a_broken_answer_is_noticed() {
        notices(Check::Contract, "one: odd", |evidence| evidence.logs[0].entries.push(Entry::Broken("odd".to_owned())));
    }
}
