//! A wire between a process and its database, for tests that cut it.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};

/// Passes connections on to a database, until it is told otherwise.
#[derive(Debug)]
pub struct Wire {
    url: String,
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Whole,
    Cut,
    Swallowing,
    Gone,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    /// What, once it is sent to the server, breaks the connection before the answer.
    trip: Option<String>,
    ends: Vec<Ends>,
}

/// A connection's two ends.
#[derive(Debug)]
struct Ends {
    client: TcpStream,
    server: TcpStream,
}

impl Wire {
    /// A wire to the database at `url`; [`Wire::url`] leads through it.
    ///
    /// # Errors
    /// The URL names no address, or no port is to be had.
    pub fn to(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").context("a URL")?;
        let (authority, path) = rest.split_once('/').context("a URL with a database")?;
        let (user, server) = authority.split_once('@').context("a URL with a user")?;
        let server: SocketAddr = server.parse().context("a URL with an address and a port")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::<Mutex<State>>::default();
        thread::spawn({
            let state = state.clone();
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    let mode = lock(&state).mode;
                    match mode {
                        Mode::Gone => return,
                        // Dropped: the client sees that it was closed.
                        Mode::Cut => {}
                        Mode::Swallowing => drop(thread::spawn(move || swallow(client))),
                        Mode::Whole => drop(connect(client, server, &state)),
                    }
                }
            }
        });
        Ok(Self { url: format!("{scheme}://{user}@{address}/{path}"), address, state })
    }

    /// The database's URL by way of this wire.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Breaks all connections, for both sides to see, and lets no new ones through.
    pub fn cut(&self) {
        self.switch(Mode::Cut);
    }

    /// Breaks all connections for the server to see; the client's stay, and whatever it sends is lost. So are new ones.
    pub fn swallow(&self) {
        self.switch(Mode::Swallowing);
    }

    /// Lets new connections through again.
    pub fn mend(&self) {
        self.switch(Mode::Whole);
    }

    /// The next time a client sends something with `word` in it, the server does it, and the connection breaks before the answer.
    pub fn break_after(&self, word: &str) {
        lock(&self.state).trip = Some(word.to_owned());
    }

    fn switch(&self, mode: Mode) {
        let mut state = lock(&self.state);
        state.mode = mode;
        if mode != Mode::Whole {
            for ends in state.ends.drain(..) {
                // Errors say that it has ended already.
                let _ = ends.server.shutdown(Shutdown::Both);
                if mode != Mode::Swallowing {
                    let _ = ends.client.shutdown(Shutdown::Both);
                }
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.switch(Mode::Gone);
        // Whoever accepts looks at the mode once more.
        drop(TcpStream::connect(self.address));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes a connection on. Errors end it, as the network does.
fn connect(client: TcpStream, server: SocketAddr, state: &Arc<Mutex<State>>) -> Result<()> {
    let server = TcpStream::connect(server)?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
    }
    let (from_client, to_client) = (client.try_clone()?, client.try_clone()?);
    let (from_server, to_server) = (server.try_clone()?, server.try_clone()?);
    let tripped = Arc::new(AtomicBool::new(false));
    lock(state).ends.push(Ends { client, server });
    thread::spawn({
        let (state, tripped) = (state.clone(), tripped.clone());
        move || {
            pump(from_client, &to_server, |bytes| {
                let mut state = lock(&state);
                let text = String::from_utf8_lossy(bytes);
                if state.trip.take_if(|word| text.contains(word.as_str())).is_some() {
                    tripped.store(true, Ordering::SeqCst);
                }
                true
            });
            let _ = to_server.shutdown(Shutdown::Both);
        }
    });
    thread::spawn({
        let state = state.clone();
        move || {
            pump(from_server, &to_client, |_| !tripped.load(Ordering::SeqCst));
            // A client that is to notice nothing keeps its end.
            if lock(&state).mode == Mode::Swallowing {
                swallow(to_client);
            } else {
                let _ = to_client.shutdown(Shutdown::Both);
            }
        }
    });
    Ok(())
}

/// Passes bytes on until one side ends, or `goes_on` says no to some, which then are not passed on.
fn pump(mut from: TcpStream, mut to: &TcpStream, goes_on: impl Fn(&[u8]) -> bool) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !goes_on(&buffer[..length]) || to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Reads until the client goes.
fn swallow(mut client: TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = client.read(&mut buffer) {}
}
