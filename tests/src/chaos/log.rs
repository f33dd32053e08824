//! What clients did and saw, and what the record says in the end.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use turnfast_shared::{
    ExecutionStatus,
    api::ThreadSnapshot,
    ids::{ExecutionId, MessageId, ProcessId, RunId, ThreadId},
    problem::Code,
};

use crate::client::Started;

/// What became of a submit or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// `execution-started` came.
    Accepted(Started),
    /// It was refused.
    Refused(Code),
    /// The connection was lost before any answer, or nobody waited for one any longer.
    Unknown,
}

/// What became of a Stop, or of the cancelling of a suspended turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Asked {
    /// It was acknowledged.
    Acknowledged,
    /// There was nothing to stop any more.
    TooLate,
    /// It was refused.
    Refused(Code),
    /// Nobody knows.
    Unknown,
}

/// How a live stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StreamEnd {
    /// With `done`.
    Done(ExecutionStatus),
    /// With a suspension.
    Suspended,
    /// In any other way: its reader knows nothing of the end.
    Lost,
}

/// A message of the agent as a read showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// The message.
    pub message: MessageId,
    /// Its revision.
    pub revision: u64,
    /// Its status.
    pub status: Option<ExecutionStatus>,
    /// All its text.
    pub text: String,
}

/// One line of a client's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Entry {
    /// A message was submitted.
    Submitted {
        /// Where.
        thread: ThreadId,
        /// Its id, which the client chose.
        message: MessageId,
        /// Its text.
        text: String,
        /// What became of it.
        outcome: Outcome,
    },
    /// A suspension was answered.
    Answered {
        /// The turn.
        run: RunId,
        /// The call.
        call: String,
        /// What became of it.
        outcome: Outcome,
    },
    /// An execution was asked to stop.
    Stopped {
        /// The execution.
        execution: ExecutionId,
        /// What was answered.
        asked: Asked,
    },
    /// A suspended turn was cancelled.
    Cancelled {
        /// The turn.
        run: RunId,
        /// What was answered.
        asked: Asked,
    },
    /// A thread was read. Messages that are as they were at this client's read before are left out.
    Read {
        /// The thread.
        thread: ThreadId,
        /// Its revision.
        revision: u64,
        /// The agent's messages that are new or have changed.
        seen: Vec<Seen>,
    },
    /// A live stream was read as far as it went.
    Streamed {
        /// How it began.
        started: Started,
        /// All text in it.
        text: String,
        /// How it ended.
        end: StreamEnd,
    },
    /// What a follower shows in the end.
    Shows {
        /// The thread.
        thread: ThreadId,
        /// The revision that it read last; 0 for a thread that is not there.
        revision: u64,
    },
    /// An answer or a stream was not as the contract says.
    Broken(String),
}

/// What one client did and saw, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Log {
    /// Who.
    pub who: String,
    /// What.
    pub entries: Vec<Entry>,
}

/// An execution's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Execution {
    /// Its id.
    pub id: ExecutionId,
    /// The message that it writes.
    pub message: MessageId,
    /// An execution status, or `resumed` or `continued` where another execution went on.
    pub status: String,
}

/// The record at the end, once nothing runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The clients' threads as each server reads them. Threads that are not there are left out.
    pub reads: Vec<BTreeMap<ThreadId, ThreadSnapshot>>,
    /// All executions of these threads.
    pub executions: Vec<Execution>,
}

/// Who runs what while all servers live and some turns are held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Owners {
    /// Executions that say `running`, and the process that they name.
    pub running: Vec<(ExecutionId, ProcessId)>,
    /// Processes that hold their lock.
    pub alive: BTreeSet<ProcessId>,
}

/// All that the checks look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The clients' logs.
    pub logs: Vec<Log>,
    /// The record.
    pub record: Record,
    /// The owners.
    pub owners: Owners,
}
