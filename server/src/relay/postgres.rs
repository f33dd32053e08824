//! Between processes, by `LISTEN` and `NOTIFY`.
//!
//! A transaction with a NOTIFY takes a lock of the whole server at its commit. So news travels in small transactions of its own: what
//! comes while one is under way is gathered, one entry per thread, and goes with the next.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use turnfast_shared::{
    api::ExecutionUpdated,
    ids::{ExecutionId, ThreadId, UserId},
};
use uuid::Uuid;

use super::{Ears, Hub};
use crate::{
    metrics::Metrics,
    store::{
        StoreError,
        postgres::{Listener, PostgresStore, within},
    },
};

/// Where news is.
const CHANNEL: &str = "turnfast";
/// News that may wait while the database does not answer. Beyond it, it is dropped, and all are told to read everything.
const WAITING_MAX: usize = 10_000;
/// Pause after a failure to send or to connect.
const AGAIN: Duration = Duration::from_millis(100);
/// How long sending may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long [`Post::close`] waits for what is not sent yet.
const LAST_POST: Duration = Duration::from_secs(2);

/// One piece of news. Far shorter than the 8,000 bytes that fit into a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "kebab-case")]
enum News {
    Updated(Change),
    Cancel { execution: ExecutionId },
    Everything,
}

/// A thread that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    owner: UserId,
    update: ExecutionUpdated,
}

#[derive(Debug, Serialize, Deserialize)]
struct Letter<N> {
    /// Who sent it: nobody listens to itself.
    from: Uuid,
    #[serde(flatten)]
    news: N,
}

/// What waits to be sent.
#[derive(Debug, Default)]
struct Outbox {
    updates: HashMap<ThreadId, Change>,
    cancels: Vec<ExecutionId>,
    everything: bool,
    /// When the oldest of it came.
    since: Option<Instant>,
}

/// This process's way to the others.
#[derive(Debug)]
pub(super) struct Post {
    me: Uuid,
    options: PgConnectOptions,
    outbox: Mutex<Outbox>,
    wake: Notify,
    /// Cancelled to end both tasks.
    ended: CancellationToken,
    /// Cancelled when all is sent after that.
    sent: CancellationToken,
    metrics: Metrics,
}

impl Post {
    /// Starts the task that sends.
    pub(super) fn start(store: &PostgresStore, metrics: Metrics) -> Arc<Self> {
        let post = Arc::new(Self {
            me: Uuid::new_v4(),
            options: store.options().clone(),
            outbox: Mutex::default(),
            wake: Notify::new(),
            ended: CancellationToken::new(),
            sent: CancellationToken::new(),
            metrics,
        });
        tokio::spawn(post.clone().send(store.clone()));
        post
    }

    pub(super) fn updated(&self, owner: UserId, update: &ExecutionUpdated) {
        self.put(|outbox| outbox.add(Change { owner, update: update.clone() }));
    }

    pub(super) fn cancel(&self, execution: ExecutionId) {
        self.put(|outbox| outbox.cancels.push(execution));
    }

    fn put(&self, add: impl FnOnce(&mut Outbox)) {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut outbox);
        outbox.since.get_or_insert_with(Instant::now);
        if outbox.len() > WAITING_MAX {
            *outbox = Outbox { everything: true, since: outbox.since, ..Outbox::default() };
        }
        self.metrics.relay_waiting.set(i64::try_from(outbox.len()).unwrap_or(i64::MAX));
        drop(outbox);
        self.wake.notify_one();
    }

    fn take(&self) -> Outbox {
        let mut outbox = self.outbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.metrics.relay_waiting.set(0);
        std::mem::take(&mut *outbox)
    }

    /// Puts back what could not be sent, below what came meanwhile.
    fn put_back(&self, unsent: Outbox) {
        self.put(|outbox| {
            let newer = std::mem::replace(outbox, unsent);
            outbox.everything |= newer.everything;
            outbox.cancels.extend(newer.cancels);
            newer.updates.into_values().for_each(|change| outbox.add(change));
        });
    }

    async fn send(self: Arc<Self>, store: PostgresStore) {
        loop {
            let batch = self.take();
            if batch.len() == 0 {
                if self.ended.is_cancelled() {
                    return self.sent.cancel();
                }
                tokio::select! {
                    () = self.wake.notified() => {}
                    () = self.ended.cancelled() => {}
                }
                continue;
            }
            let letters: Vec<String> =
                batch.news().filter_map(|news| serde_json::to_string(&Letter { from: self.me, news }).ok()).collect();
            let count = letters.len();
            let sending = store.statement(|c| {
                Box::pin(async move {
                    let notify = sqlx::query("SELECT pg_notify($1, letter) FROM unnest($2::text[]) AS letter");
                    notify.bind(CHANNEL).bind(letters).execute(c).await?;
                    Ok(())
                })
            });
            let Err(error) = within(ANSWER, sending).await else {
                if let Some(since) = batch.since {
                    self.metrics.relay_lag.observe(since.elapsed().as_secs_f64());
                }
                continue;
            };
            if store.is_closed() {
                return;
            }
            tracing::warn!(%error, letters = count, "other processes are not told yet; trying again");
            self.put_back(batch);
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Starts the task that listens. When this returns, it does.
    pub(super) async fn listen(self: &Arc<Self>, hub: Arc<Hub>, ears: Arc<dyn Ears>) -> Result<(), StoreError> {
        let mut listener = Listener::connect(&self.options, CHANNEL).await?;
        let post = self.clone();
        tokio::spawn(async move {
            loop {
                let told = tokio::select! {
                    told = listener.told() => told,
                    () = post.ended.cancelled() => return,
                };
                match told {
                    Ok(letter) => post.deliver(&letter, &hub, &*ears),
                    Err(error) => {
                        tracing::warn!(%error, "the connection to what other processes tell is lost");
                        drop(listener);
                        let Some(again) = post.reconnect().await else { return };
                        listener = again;
                        // What was told meanwhile is lost; the record has it.
                        hub.everything();
                        ears.look_for_wishes().await;
                    }
                }
            }
        });
        Ok(())
    }

    fn deliver(&self, payload: &str, hub: &Hub, ears: &dyn Ears) {
        match serde_json::from_str::<Letter<News>>(payload) {
            Ok(Letter { from, .. }) if from == self.me => {}
            Ok(Letter { news: News::Updated(Change { owner, update }), .. }) => hub.updated(owner, &update),
            Ok(Letter { news: News::Cancel { execution }, .. }) => ears.cancel(execution),
            Ok(Letter { news: News::Everything, .. }) => hub.everything(),
            Err(error) => {
                // From another version, perhaps. To read too much is always right.
                tracing::warn!(%error, "another process told something that this one does not understand");
                hub.everything();
            }
        }
    }

    /// Connects, however long it takes; `None`: the process ends.
    async fn reconnect(&self) -> Option<Listener> {
        loop {
            tokio::select! {
                connected = Listener::connect(&self.options, CHANNEL) => match connected {
                    Ok(listener) => return Some(listener),
                    Err(error) => tracing::warn!(%error, "cannot listen to other processes yet; trying again"),
                },
                () = self.ended.cancelled() => return None,
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    pub(super) async fn close(&self) {
        self.ended.cancel();
        if tokio::time::timeout(LAST_POST, self.sent.cancelled()).await.is_err() {
            tracing::warn!(
                "other processes were not told of the last changes; their followers learn of them when they next read"
            );
        }
    }
}

impl Outbox {
    /// Changes of one thread go as one.
    fn add(&mut self, change: Change) {
        match self.updates.get_mut(&change.update.thread_id) {
            // Two tasks may commit in one order and tell in the other.
            Some(known) if known.update.revision >= change.update.revision => {}
            Some(known) => known.update = change.update,
            None => {
                self.updates.insert(change.update.thread_id, change);
            }
        }
    }

    fn len(&self) -> usize {
        self.updates.len() + self.cancels.len() + usize::from(self.everything)
    }

    fn news(&self) -> impl Iterator<Item = News> + '_ {
        let cancels = self.cancels.iter().map(|&execution| News::Cancel { execution });
        let everything = self.everything.then_some(News::Everything);
        let updates = self.updates.values().cloned().map(News::Updated);
        // Stops first: somebody waits for them.
        cancels.chain(everything).chain(updates)
    }
}

#[cfg(test)]
mod tests {
    use turnfast_test_postgres::Cluster;

    use super::*;
    use crate::relay::{Follower, Relay, Told};

    #[derive(Default)]
    struct Ear {
        cancelled: Mutex<Vec<ExecutionId>>,
        looked: std::sync::atomic::AtomicU32,
        heard: Notify,
    }

    #[async_trait::async_trait]
    impl Ears for Ear {
        fn cancel(&self, execution: ExecutionId) {
            self.cancelled.lock().unwrap().push(execution);
            self.heard.notify_one();
        }

        async fn look_for_wishes(&self) {
            self.looked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            self.heard.notify_one();
        }
    }

    struct Process {
        relay: Relay,
        follower: Follower,
        ear: Arc<Ear>,
    }

    async fn process(url: &str) -> Process {
        let store = PostgresStore::open(url).await.unwrap();
        let hub = Arc::new(Hub::default());
        let relay = Relay::postgres(hub.clone(), &store, &Metrics::default());
        let ear = Arc::new(Ear::default());
        relay.listen(ear.clone()).await.unwrap();
        Process { relay, follower: hub.follow(user()), ear }
    }

    fn user() -> UserId {
        Uuid::from_u128(1).into()
    }

    fn update(thread: u128, revision: u64) -> ExecutionUpdated {
        ExecutionUpdated {
            project_id: "demo".parse().unwrap(),
            agent_id: "assistant".parse().unwrap(),
            thread_id: Uuid::from_u128(thread).into(),
            execution_id: None,
            revision,
        }
    }

    #[tokio::test]
    async fn the_newest_reaches_every_process_and_the_sender_hears_itself_once() {
        let url = turnfast_test_postgres::database().unwrap();
        let (mut a, mut b) = (process(&url).await, process(&url).await);
        for revision in 1..=500 {
            a.relay.updated(user(), &update(7, revision));
        }
        a.relay.cancel(Uuid::from_u128(9).into());
        b.ear.heard.notified().await;
        assert_eq!(*b.ear.cancelled.lock().unwrap(), [Uuid::from_u128(9).into()]);
        assert!(a.ear.cancelled.lock().unwrap().is_empty());
        let mut told = 0;
        while told < 500 {
            let Some(Told::Changed(updates)) = b.follower.changed().await else { panic!("something was lost") };
            assert!(updates[0].revision > told);
            told = updates[0].revision;
        }
        assert_eq!(a.follower.changed().await, Some(Told::Changed(vec![update(7, 500)])));
        a.relay.updated(user(), &update(8, 1));
        a.relay.close().await;
        assert_eq!(b.follower.changed().await, Some(Told::Changed(vec![update(8, 1)])), "what is left goes out before the end");
        assert_eq!(a.follower.changed().await, Some(Told::Changed(vec![update(8, 1)])));
    }

    #[tokio::test]
    async fn a_relay_that_was_down_delays_and_loses_nothing() {
        let mut cluster = Cluster::start().unwrap();
        let url = cluster.database().unwrap();
        let (a, mut b) = (process(&url).await, process(&url).await);
        cluster.kill();
        a.relay.updated(user(), &update(7, 1));
        a.relay.cancel(Uuid::from_u128(9).into());
        cluster.restart().unwrap();
        b.ear.heard.notified().await;
        assert!(b.ear.looked.load(std::sync::atomic::Ordering::SeqCst) > 0 || !b.ear.cancelled.lock().unwrap().is_empty());
        // Either it was back before the news was sent, or it is told to read everything; both may be.
        assert!(matches!(b.follower.changed().await, Some(Told::Everything | Told::Changed(_))));
    }

    #[test]
    fn news_that_waits_is_bounded_and_a_cut_is_told() {
        let outbox = Outbox { everything: true, ..Outbox::default() };
        assert_eq!(outbox.news().collect::<Vec<_>>(), [News::Everything]);
        let letter = serde_json::to_string(&Letter { from: Uuid::from_u128(3), news: News::Everything }).unwrap();
        assert!(matches!(serde_json::from_str::<Letter<News>>(&letter).unwrap().news, News::Everything));
        let longest = ExecutionUpdated {
            project_id: "x".repeat(64).parse().unwrap(),
            agent_id: "y".repeat(64).parse().unwrap(),
            execution_id: Some(Uuid::from_u128(1).into()),
            ..update(1, u64::MAX)
        };
        let news = News::Updated(Change { owner: user(), update: longest });
        let letter = serde_json::to_string(&Letter { from: Uuid::from_u128(3), news }).unwrap();
        assert!(letter.len() < 1_000, "a notification takes 8,000 bytes");
    }
}
