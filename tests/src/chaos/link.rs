//! A connection that can be harmed: a small TCP proxy.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

use super::fault::Harm;

/// How long one way takes on a slow connection.
const DELAY: Duration = Duration::from_millis(120);

/// Passes connections on to one of its targets, in turns.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    targets: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
    /// `None`: all is well.
    harm: watch::Sender<Option<Harm>>,
}

type Watched = watch::Receiver<Option<Harm>>;

impl Link {
    /// One to `targets`.
    ///
    /// # Errors
    /// No port is to be had.
    pub async fn to(targets: Vec<SocketAddr>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { targets: Mutex::new(targets), next: AtomicUsize::new(0), harm: watch::Sender::new(None) });
        let accepting = tokio::spawn({
            let shared = shared.clone();
            async move {
                loop {
                    // An error is a connection that is gone again.
                    let Ok((near, _)) = listener.accept().await else { continue };
                    tokio::spawn(carry(near, shared.clone()));
                }
            }
        });
        Ok(Self { address, shared, accepting })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// New connections lead to `target`.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner) = vec![target];
    }

    /// Harms all connections, those that there are and new ones.
    pub fn harm(&self, harm: Harm) {
        self.shared.harm.send_replace(Some(harm));
    }

    /// Ends the harm.
    pub fn mend(&self) {
        self.shared.harm.send_replace(None);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// One connection, to its end.
async fn carry(near: TcpStream, shared: Arc<Shared>) {
    let mut harm = shared.harm.subscribe();
    // What nobody answers yet is not connected yet.
    if harm.wait_for(|harm| *harm != Some(Harm::Silent)).await.is_err() {
        return;
    }
    let now = *harm.borrow_and_update();
    match now {
        Some(Harm::Cut) => return,
        Some(Harm::HalfOpen) => return swallow(near).await,
        Some(Harm::Slow | Harm::Silent) | None => {}
    }
    let Some(far) = connect(&shared).await else { return };
    // Errors say that an end is gone already; the pumps find out.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    let both = async { tokio::join!(pump(from_near, to_far, harm.clone()), pump(from_far, to_near, harm.clone())) };
    let mut strikes = shared.harm.subscribe();
    tokio::select! {
        // Both ends are closed by dropping them.
        () = struck(&mut strikes, Harm::Cut) => {}
        (near, far) = both => {
            // The halves of the near side are left only where it is not to notice the end.
            if let (Some(from_near), Some(to_near)) = (near.0, far.1) {
                drop((near.1, far.0));
                if let Ok(near) = from_near.reunite(to_near) {
                    swallow(near).await;
                }
            }
        }
    }
}

async fn connect(shared: &Shared) -> Option<TcpStream> {
    let targets = shared.targets.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let first = shared.next.fetch_add(1, Ordering::Relaxed);
    for place in 0..targets.len() {
        let target = targets.get((first + place) % targets.len())?;
        if let Ok(far) = TcpStream::connect(target).await {
            return Some(far);
        }
    }
    None
}

/// Passes bytes on until one side ends. Gives both halves back where the connection is half open from now on.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut harm: Watched,
) -> (Option<OwnedReadHalf>, Option<OwnedWriteHalf>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let now = *harm.borrow_and_update();
        match now {
            Some(Harm::HalfOpen) => return (Some(from), Some(to)),
            Some(Harm::Silent) => {
                if harm.changed().await.is_err() {
                    return (None, None);
                }
                continue;
            }
            Some(Harm::Cut | Harm::Slow) | None => {}
        }
        let read = tokio::select! {
            _ = harm.changed() => continue,
            read = from.read(&mut buffer) => read,
        };
        let Ok(length @ 1..) = read else { break };
        if *harm.borrow() == Some(Harm::Slow) {
            tokio::time::sleep(DELAY).await;
        }
        let mut strikes = harm.clone();
        tokio::select! {
            written = to.write_all(&buffer[..length]) => if written.is_err() { break },
            // What is half written is lost with the connection.
            () = struck(&mut strikes, Harm::HalfOpen) => return (Some(from), Some(to)),
        }
    }
    // The other direction ends by itself once the far side is told.
    let _ = to.shutdown().await;
    (None, None)
}

/// Waits for that harm, or until the link is gone.
async fn struck(harm: &mut Watched, by: Harm) {
    let _ = harm.wait_for(|harm| *harm == Some(by)).await;
}

/// Reads until the client goes, and says nothing.
async fn swallow(mut near: TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = near.read(&mut buffer).await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it is sent, and a connection to it over a link.
    async fn echo() -> (Link, TcpStream, watch::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Link::to(vec![listener.local_addr().unwrap()]).await.unwrap();
        let (ends, ended) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let ends = ends.clone();
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    ends.send_modify(|ends| *ends += 1);
                });
            }
        });
        let mut client = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(say(&mut client, b"hello").await, Some(*b"hello"));
        (link, client, ended)
    }

    async fn say(client: &mut TcpStream, words: &[u8; 5]) -> Option<[u8; 5]> {
        client.write_all(words).await.ok()?;
        let mut answer = [0; 5];
        client.read_exact(&mut answer).await.ok()?;
        Some(answer)
    }

    #[tokio::test]
    async fn a_cut_ends_both_sides_and_refuses_until_it_is_mended() {
        let (link, mut client, mut ended) = echo().await;
        link.harm(Harm::Cut);
        assert_eq!(say(&mut client, b"there").await, None);
        ended.wait_for(|ends| *ends == 1).await.unwrap();
        let mut another = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(say(&mut another, b"there").await, None);
        link.mend();
        let mut another = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(say(&mut another, b"again").await, Some(*b"again"));
    }

    #[tokio::test]
    async fn what_is_said_in_silence_comes_through_afterwards() {
        let (link, mut client, _ended) = echo().await;
        link.harm(Harm::Silent);
        client.write_all(b"later").await.unwrap();
        // Another connection waits as well; that it was accepted by the system says nothing.
        let mut another = TcpStream::connect(link.address()).await.unwrap();
        another.write_all(b"other").await.unwrap();
        link.mend();
        for (client, words) in [(&mut client, b"later"), (&mut another, b"other")] {
            let mut answer = [0; 5];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, words);
        }
    }

    #[tokio::test]
    async fn a_half_open_connection_is_gone_for_the_far_side_and_quiet_for_the_near_one() {
        let (link, mut client, mut ended) = echo().await;
        link.harm(Harm::HalfOpen);
        ended.wait_for(|ends| *ends == 1).await.unwrap();
        link.mend();
        client.write_all(b"hello").await.unwrap();
        let mut another = TcpStream::connect(link.address()).await.unwrap();
        assert_eq!(say(&mut another, b"fresh").await, Some(*b"fresh"));
        let nothing = client.try_read(&mut [0; 5]).unwrap_err();
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock, "neither an answer nor an end");
    }

    #[tokio::test]
    async fn a_slow_connection_is_whole() {
        let (link, mut client, _ended) = echo().await;
        link.harm(Harm::Slow);
        let begun = std::time::Instant::now();
        assert_eq!(say(&mut client, b"patie").await, Some(*b"patie"));
        assert!(begun.elapsed() >= DELAY * 2);
    }

    #[tokio::test]
    async fn targets_take_turns_and_one_that_is_gone_is_passed_over() {
        let (link, _client, _) = echo().await;
        let (other, _other_client, _) = echo().await;
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let front = Link::to(vec![gone, link.address(), other.address()]).await.unwrap();
        for _ in 0..6 {
            let mut client = TcpStream::connect(front.address()).await.unwrap();
            assert_eq!(say(&mut client, b"round").await, Some(*b"round"));
        }
    }
}
