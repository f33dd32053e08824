//! Connections between tabs and the server. Bytes of one connection stay in order; nothing else can be relied on.

use std::collections::BTreeMap;

use turnfast_shared::{
    Millis,
    api::{CancelAnswer, ChatRequest, PushEvent, ResumeRequest, RunCancelAnswer, ThreadSnapshot},
    ids::{ExecutionId, RunId, ThreadId},
};

use super::{
    rng::Rng,
    world::{PaneId, TabId},
};
use crate::{
    follow,
    thread::{EffectId, Failure},
};

/// Bytes that the server keeps for a reader that does not take them, before it cuts that reader off.
pub(super) const READER_LIMIT: usize = 1_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ConnId(pub(super) u64);

/// What a connection was opened for.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Read { thread: ThreadId, since: Option<u64> },
    Submit(ChatRequest),
    Resume(ResumeRequest),
    Stop { thread: ThreadId, execution: ExecutionId },
    CancelRun(RunId),
    Push(follow::EffectId),
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) browser: usize,
    pub(super) tab: TabId,
    /// The pane and its effect; `None`: the tab's `/push`.
    pub(super) pane: Option<(PaneId, EffectId)>,
}

/// What the server says on a connection.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Snapshot(Box<ThreadSnapshot>),
    Stop(CancelAnswer),
    CancelRun(RunCancelAnswer),
    Refused(Failure),
    Bytes(Vec<u8>),
    Push(PushEvent),
    /// The server ends the stream.
    End,
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Push(_) => 100,
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) caller: Caller,
    pub(super) request: Request,
    /// The client still wants what comes.
    pub(super) client_open: bool,
    /// The server still sends.
    pub(super) server_open: bool,
    /// Half open: what either side sends reaches nobody, and nobody is told.
    pub(super) silent: bool,
    /// The answer gets lost on its way, and the client sees that the connection broke.
    pub(super) reply_lost: bool,
    /// The head of an event stream has reached the client.
    pub(super) answered: bool,
    /// When the last piece reaches the client: nothing overtakes it.
    pub(super) busy_until: Millis,
    /// Bytes that were sent and not taken.
    pub(super) untaken: usize,
}

/// What the network does at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Longest delay of one way, in milliseconds.
    pub(super) delay: Millis,
    /// Percent of connections that break before the request arrives.
    pub(super) refused: usize,
    /// Percent of connections that are silent from the start.
    pub(super) silent: usize,
    /// Percent of connections whose answer is lost.
    pub(super) reply_lost: usize,
    /// Percent of requests that something between answers: with or without the server having acted, or with what it remembers.
    pub(super) proxied: usize,
    /// Of a thousand pieces of a stream, how many find the connection cut, and how many fall silent.
    pub(super) cut: usize,
}

impl Weather {
    pub(super) const FAIR: Self = Self { delay: 40, refused: 0, silent: 0, reply_lost: 0, proxied: 0, cut: 0 };

    pub(super) fn any(rng: &mut Rng) -> Self {
        let slow = Self { delay: 4_000, ..Self::FAIR };
        let rough = Self { delay: 900, refused: 12, silent: 4, reply_lost: 12, proxied: 6, cut: 20 };
        let storm = Self { delay: 9_000, refused: 40, silent: 15, reply_lost: 20, proxied: 10, cut: 80 };
        rng.weighted(&[(5, Self::FAIR), (3, slow), (4, rough), (1, storm)])
    }

    pub(super) fn delay(&self, rng: &mut Rng) -> Millis {
        // Mostly quick, now and then as slow as it gets.
        let most = if rng.percent(70) { self.delay / 8 } else { self.delay };
        1 + rng.within(0..most.max(1))
    }
}

/// All connections.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) conns: BTreeMap<ConnId, Conn>,
    pub(super) weather: Weather,
    last_id: u64,
}

impl Network {
    pub(super) fn new() -> Self {
        Self { conns: BTreeMap::new(), weather: Weather::FAIR, last_id: 0 }
    }

    pub(super) fn open(&mut self, caller: Caller, request: Request, rng: &mut Rng) -> ConnId {
        self.last_id += 1;
        let id = ConnId(self.last_id);
        let conn = Conn {
            caller,
            request,
            client_open: true,
            server_open: true,
            silent: rng.percent(self.weather.silent),
            reply_lost: rng.percent(self.weather.reply_lost),
            answered: false,
            busy_until: 0,
            untaken: 0,
        };
        self.conns.insert(id, conn);
        id
    }

    /// Forgets a connection that neither side has open.
    pub(super) fn sweep(&mut self, id: ConnId) {
        if self.conns.get(&id).is_some_and(|conn| !conn.client_open && !conn.server_open) {
            self.conns.remove(&id);
        }
    }

    /// The connections that a browser's tabs have open, or those of one tab.
    pub(super) fn of(&self, browser: usize, tab: Option<TabId>) -> Vec<ConnId> {
        let of = |conn: &Conn| conn.client_open && conn.caller.browser == browser && tab.is_none_or(|tab| conn.caller.tab == tab);
        self.conns.iter().filter(|(_, conn)| of(conn)).map(|(id, _)| *id).collect()
    }

    /// The open `/push` connections, as the server sees them.
    pub(super) fn pushes(&self) -> Vec<ConnId> {
        let push = |conn: &Conn| conn.server_open && conn.answered && matches!(conn.request, Request::Push(_));
        self.conns.iter().filter(|(_, conn)| push(conn)).map(|(id, _)| *id).collect()
    }
}

/// Cuts bytes anywhere, also inside a character and inside a line.
pub(super) fn pieces(bytes: Vec<u8>, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut cuts = vec![0, bytes.len()];
    for _ in 0..rng.weighted(&[(6, 0), (3, 1), (1, 4)]) {
        cuts.push(rng.below(bytes.len() + 1));
    }
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| bytes[cut[0]..cut[1]].to_vec()).filter(|piece| !piece.is_empty()).collect()
}
