//! What travels between tabs and server: requests, answers, streams, notifications.

use std::collections::BTreeMap;

use turnfast_shared::{
    Code, Event, Millis,
    api::{PushEvent, ThreadSnapshot},
    ids::ThreadId,
    limits::{KEEP_ALIVE_SECONDS, RECORD_WITHIN_MS},
};

use super::{
    browser::Task,
    network::{Caller, ConnId, Piece, READER_LIMIT, Request, pieces},
    server::{Out, refused},
    world::{Happening, World},
};
use crate::thread::Failure;

impl World {
    // Requests.

    /// A tab opens a connection.
    pub(super) fn open(&mut self, caller: Caller, request: Request) -> ConnId {
        let offline = !self.browsers[caller.browser].online;
        let conn = self.net.open(caller, request, &mut self.rng);
        let pause = self.net.weather.delay(&mut self.rng);
        if offline || self.rng.percent(self.net.weather.refused) {
            self.break_off(conn, pause);
        } else if self.net.conns[&conn].silent {
            // It may get there all the same, and only the answer be swallowed.
            if self.rng.percent(50) {
                self.after(pause, Happening::Arrives(conn));
            }
        } else {
            self.after(pause, Happening::Arrives(conn));
        }
        conn
    }

    /// The connection breaks: the client sees it, after all that was sent before.
    pub(super) fn break_off(&mut self, conn: ConnId, pause: Millis) {
        let Some(open) = self.net.conns.get_mut(&conn) else { return };
        open.server_open = false;
        if !open.silent {
            let (tab, at) = (open.caller.tab, open.busy_until.max(self.now + pause));
            open.busy_until = at;
            self.at(at, Happening::Reaches(tab, Task::Broken(conn)));
        }
        self.net.sweep(conn);
    }

    /// The client closes it.
    pub(super) fn close(&mut self, conn: ConnId) {
        let Some(open) = self.net.conns.get_mut(&conn) else { return };
        open.client_open = false;
        if !open.silent {
            let pause = self.net.weather.delay(&mut self.rng);
            self.after(pause, Happening::Closed(conn));
        }
        self.net.sweep(conn);
    }

    pub(super) fn arrives(&mut self, conn: ConnId) {
        let Some(open) = self.net.conns.get(&conn).filter(|open| open.server_open) else { return };
        if self.server.down {
            self.break_off(conn, 1);
            return;
        }
        let (request, browser) = (open.request.clone(), open.caller.browser);
        self.note(|| format!("server: {conn:?} of browser {browser}: {request:?}"));
        let proxied = self.rng.percent(self.net.weather.proxied);
        if !self.browsers[browser].signed_in {
            self.send(conn, Piece::Refused(refused(Code::Unauthenticated)));
            return;
        }
        if let (true, Some(thread)) = (self.browsers[browser].stranger, thread_of(&request)) {
            self.note(|| format!("server: {thread} is someone else's"));
            self.send(conn, Piece::Refused(refused(Code::NotFound)));
            return;
        }
        if proxied && self.rng.percent(60) {
            let failure = match self.rng.below(4) {
                0 => Failure::Unreadable { status: 502 },
                1 => refused(Code::StorageUnavailable),
                2 => refused(Code::RateLimited),
                _ => refused(Code::ShuttingDown),
            };
            self.send(conn, Piece::Refused(failure));
            return;
        }
        let reader = (!proxied).then_some(conn);
        let answer = match request {
            Request::Read { thread, since } => Some(self.read(thread, since, proxied)),
            Request::Submit(request) => self.server.submit(reader, &request, &mut self.rng).err().map(Piece::Refused),
            Request::Resume(request) => self.server.resume(reader, &request, &mut self.rng).err().map(Piece::Refused),
            Request::Stop { thread, execution } => Some(match self.server.stop(thread, execution) {
                Ok(answer) => Piece::Stop(answer),
                Err(failure) => Piece::Refused(failure),
            }),
            Request::CancelRun(run) => Some(Piece::CancelRun(self.server.cancel_run(run))),
            Request::Push(_) => {
                self.unsent.insert(conn, BTreeMap::new());
                Some(Piece::Push(PushEvent::Connected))
            }
        };
        let is_stream = match &answer {
            None => true,
            Some(Piece::Push(_)) => true,
            Some(_) => false,
        };
        if is_stream {
            if let Some(open) = self.net.conns.get_mut(&conn) {
                open.answered = true;
            }
            self.after(KEEP_ALIVE_SECONDS as Millis * 1_000, Happening::Pings(conn));
        }
        if proxied && !matches!(&answer, Some(Piece::Snapshot(_))) {
            // Something between gives up on the answer of a request that the server has acted on.
            self.send(conn, Piece::Refused(Failure::Unreadable { status: 504 }));
        } else if self.net.conns.get(&conn).is_some_and(|open| open.reply_lost) {
            let pause = self.net.weather.delay(&mut self.rng);
            self.break_off(conn, pause);
        } else if let Some(piece) = answer {
            self.send(conn, piece);
        }
        self.drain();
    }

    /// The newest state; where something between answers, what it remembers from earlier. A client can tell where it knows more.
    fn read(&mut self, thread: ThreadId, since: Option<u64>, proxied: bool) -> Piece {
        let older = |old: &&ThreadSnapshot| since.is_some_and(|since| old.revision < since);
        if proxied && let Some(old) = self.remembered_reads.get(&thread).filter(older) {
            return Piece::Snapshot(Box::new(old.clone()));
        }
        match self.server.read(thread, since) {
            Ok(snapshot) => {
                if let (true, Ok(whole)) = (self.rng.percent(15), self.server.read(thread, None)) {
                    self.remembered_reads.insert(thread, whole);
                }
                Piece::Snapshot(Box::new(snapshot))
            }
            Err(failure) => Piece::Refused(failure),
        }
    }

    // What the server sends.

    /// Does what the server wants to happen.
    pub(super) fn drain(&mut self) {
        for out in std::mem::take(&mut self.server.out) {
            match out {
                Out::Event(conn, event) => self.send_event(conn, &event),
                Out::End(conn) => self.send(conn, Piece::End),
                Out::RecordSoon(execution) => {
                    let pause = self.rng.within(100..RECORD_WITHIN_MS as Millis);
                    self.after(pause, Happening::Records(execution));
                }
                Out::WorkSoon(execution) => {
                    let longest = self.rng.weighted(&[(6, 120), (4, 900), (1, if self.healed { 900 } else { 25_000 })]);
                    let pause = self.rng.within(1..longest);
                    self.after(pause, Happening::Works(execution));
                }
                Out::Notify(update) => {
                    for conn in self.net.pushes() {
                        let unsent = self.unsent.entry(conn).or_default();
                        if unsent.insert(update.thread_id, update.clone()).is_none() {
                            let pause = self.rng.within(0..60);
                            self.after(pause, Happening::Flushes(conn));
                        }
                    }
                }
            }
        }
    }

    fn send_event(&mut self, conn: ConnId, event: &Event) {
        let Ok(json) = serde_json::to_string(event) else { return };
        let bytes = format!("id: x:1\ndata: {json}\n\n").into_bytes();
        for piece in pieces(bytes, &mut self.rng) {
            self.send(conn, Piece::Bytes(piece));
        }
    }

    pub(super) fn flush(&mut self, conn: ConnId) {
        for update in std::mem::take(self.unsent.entry(conn).or_default()).into_values() {
            let times = if self.rng.percent(5) { 2 } else { 1 };
            for _ in 0..times {
                self.send(conn, Piece::Push(PushEvent::AgentExecutionUpdated(update.clone())));
            }
        }
    }

    pub(super) fn ping(&mut self, conn: ConnId) {
        let Some(open) = self.net.conns.get(&conn).filter(|open| open.server_open) else { return };
        let push = matches!(open.request, Request::Push(_));
        if push && !self.browsers[open.caller.browser].signed_in {
            self.send(conn, Piece::End);
            return;
        }
        self.send(conn, if push { Piece::Push(PushEvent::Ping) } else { Piece::Bytes(b": keep-alive\n\n".to_vec()) });
        self.after(KEEP_ALIVE_SECONDS as Millis * 1_000, Happening::Pings(conn));
    }

    /// Puts a piece on its way to the client.
    fn send(&mut self, conn: ConnId, piece: Piece) {
        let weather = self.net.weather;
        let Some(open) = self.net.conns.get_mut(&conn).filter(|open| open.server_open) else { return };
        let stream = matches!(piece, Piece::Bytes(_) | Piece::Push(_));
        if stream && self.rng.below(1_000) < weather.cut {
            if self.rng.percent(40) {
                open.silent = true;
            } else {
                self.break_off(conn, 1);
                return;
            }
        }
        open.untaken += piece.len();
        if open.untaken > READER_LIMIT {
            // A reader slower than the turn is cut off.
            self.counts.cut_readers += 1;
            self.break_off(conn, 1);
            return;
        }
        let last = !stream;
        open.server_open &= !last;
        if !open.silent {
            let pause = weather.delay(&mut self.rng);
            let (tab, at) = (open.caller.tab, open.busy_until.max(self.now + pause));
            open.busy_until = at;
            self.at(at, Happening::Reaches(tab, Task::Piece(conn, piece)));
        }
        self.net.sweep(conn);
    }

    /// The server process dies, and is started again a little later.
    pub(super) fn restart_server(&mut self) {
        if self.server.down {
            return;
        }
        self.note(|| "server: dies".to_owned());
        self.counts.interrupted += self.server.turns.len() as u64;
        self.server.die();
        let open: Vec<_> = self.net.conns.iter().filter(|(_, conn)| conn.server_open).map(|(id, _)| *id).collect();
        for conn in open {
            let pause = self.net.weather.delay(&mut self.rng);
            self.break_off(conn, pause);
        }
        self.unsent.clear();
        let pause = self.rng.within(100..15_000);
        self.after(pause, Happening::Starts);
    }
}

/// The thread that a request is about, where it names or starts one.
fn thread_of(request: &Request) -> Option<ThreadId> {
    match request {
        Request::Read { thread, .. } | Request::Stop { thread, .. } => Some(*thread),
        Request::Submit(request) => request.session_id,
        _ => None,
    }
}
