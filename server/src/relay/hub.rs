//! The followers of this process. A [`Follower`] is one `/push` connection. Its memory is bounded by the number of threads that
//! changed since it last looked, and by [`PENDING_MAX`]: updates of one thread replace each other, so the newest is never lost.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use turnfast_shared::{
    api::ExecutionUpdated,
    ids::{ThreadId, UserId},
};

use crate::metrics::{Counted, Metrics};

/// Threads that may wait for one follower. Beyond it the connection is cut: whoever lags that far reads everything again.
pub const PENDING_MAX: usize = 1_024;

/// Threads whose newest told revision is remembered. Forgetting costs no more than a notification that comes out of order.
const NEWEST_MAX: usize = 4_096;

/// The followers of this process.
#[derive(Debug, Default)]
pub struct Hub {
    state: Mutex<State>,
    open: Gauge,
}

#[derive(Debug, Default)]
struct State {
    followers: HashMap<UserId, Vec<Weak<Slot>>>,
    /// Two tasks may commit in one order and tell in the other: what was told before a newer revision is merged into that.
    newest: HashMap<ThreadId, u64>,
}

impl State {
    /// Whether `update` is news: not older than what was told of its thread.
    fn is_news(&mut self, update: &ExecutionUpdated) -> bool {
        if self.newest.get(&update.thread_id).is_some_and(|newest| *newest > update.revision) {
            return false;
        }
        if self.newest.len() >= NEWEST_MAX {
            self.newest.clear();
        }
        self.newest.insert(update.thread_id, update.revision);
        true
    }
}

#[derive(Debug, Default)]
struct Slot {
    pending: Mutex<Pending>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    updates: HashMap<ThreadId, ExecutionUpdated>,
    /// Anything may have changed.
    everything: bool,
    overflowed: bool,
}

/// What a [`Follower`] is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// These threads changed, one entry per thread.
    Changed(Vec<ExecutionUpdated>),
    /// Notifications may have been lost: whoever follows reads again what it shows.
    Everything,
}

/// One `/push` connection's place in the [`Hub`]. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Follower {
    slot: Arc<Slot>,
    _counted: Counted,
}

impl Hub {
    /// One whose followers are counted.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        Self { state: Mutex::default(), open: metrics.followers.clone() }
    }

    /// Subscribes to what happens in a user's threads from now on.
    pub fn follow(&self, user: UserId) -> Follower {
        let slot = Arc::new(Slot::default());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.followers.retain(|_, slots| {
            slots.retain(|slot| slot.strong_count() > 0);
            !slots.is_empty()
        });
        state.followers.entry(user).or_default().push(Arc::downgrade(&slot));
        Follower { slot, _counted: Counted::by(&self.open) }
    }

    /// Tells the owner's connections that a thread changed. Call it after the commit.
    pub fn updated(&self, owner: UserId, update: &ExecutionUpdated) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_news(update) {
            return;
        }
        let Some(slots) = state.followers.get_mut(&owner) else { return };
        slots.retain(|slot| match slot.upgrade() {
            Some(slot) => {
                slot.put(update);
                true
            }
            None => false,
        });
        if slots.is_empty() {
            state.followers.remove(&owner);
        }
    }

    /// Tells all connections that notifications may have been lost.
    pub fn everything(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in state.followers.values().flatten().filter_map(Weak::upgrade) {
            slot.put_everything();
        }
    }
}

impl Slot {
    fn put_everything(&self) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever reads everything reads these threads too.
        pending.updates = HashMap::new();
        pending.everything = true;
        drop(pending);
        self.wake.notify_one();
    }

    fn put(&self, update: &ExecutionUpdated) {
        let mut guard = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = &mut *guard;
        let waiting = pending.updates.len();
        match pending.updates.get_mut(&update.thread_id) {
            // Two writers may report out of order; a reader must not be told of an older revision last.
            Some(known) if known.revision >= update.revision => {}
            Some(known) => known.clone_from(update),
            None if waiting >= PENDING_MAX => {
                pending.updates = HashMap::new();
                pending.overflowed = true;
            }
            None => {
                pending.updates.insert(update.thread_id, update.clone());
            }
        }
        drop(guard);
        self.wake.notify_one();
    }
}

impl Follower {
    /// Waits until threads changed, and takes what is known of them. `None`: too much was missed; the connection is to be closed.
    pub async fn changed(&mut self) -> Option<Told> {
        loop {
            {
                let mut pending = self.slot.pending.lock().unwrap_or_else(PoisonError::into_inner);
                if pending.overflowed {
                    return None;
                }
                if std::mem::take(&mut pending.everything) {
                    return Some(Told::Everything);
                }
                if !pending.updates.is_empty() {
                    // The map is given up with its capacity: an idle follower keeps no memory of a busy past.
                    return Some(Told::Changed(std::mem::take(&mut pending.updates).into_values().collect()));
                }
            }
            // A permit is stored when an update comes between the look and the wait.
            self.slot.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use uuid::Uuid;

    use super::*;

    fn update(thread: u128, revision: u64) -> ExecutionUpdated {
        ExecutionUpdated {
            project_id: "demo".parse().unwrap(),
            agent_id: "assistant".parse().unwrap(),
            thread_id: Uuid::from_u128(thread).into(),
            execution_id: None,
            revision,
        }
    }

    fn user(n: u128) -> UserId {
        Uuid::from_u128(n).into()
    }

    async fn changed(follower: &mut Follower) -> Vec<ExecutionUpdated> {
        match follower.changed().await {
            Some(Told::Changed(updates)) => updates,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn updates_of_one_thread_merge_and_the_newest_wins() {
        let hub = Hub::default();
        let mut follower = hub.follow(user(1));
        for revision in [2, 4, 3] {
            hub.updated(user(1), &update(7, revision));
        }
        hub.updated(user(1), &update(8, 1));
        let mut seen: Vec<_> = changed(&mut follower).await.into_iter().map(|u| (u.thread_id, u.revision)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(Uuid::from_u128(7).into(), 4), (Uuid::from_u128(8).into(), 1)]);
        assert!(follower.changed().now_or_never().is_none(), "nothing is told twice");
    }

    #[tokio::test]
    async fn every_connection_of_the_owner_is_told_and_nobody_else() {
        let hub = Hub::default();
        let (mut first, mut second, mut stranger) = (hub.follow(user(1)), hub.follow(user(1)), hub.follow(user(2)));
        hub.updated(user(1), &update(7, 1));
        assert_eq!(changed(&mut first).await.len(), 1);
        assert_eq!(changed(&mut second).await.len(), 1);
        assert!(stranger.changed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_follower_that_never_looks_is_cut_and_costs_no_memory() {
        let hub = Hub::default();
        let mut follower = hub.follow(user(1));
        for thread in 0..=PENDING_MAX as u128 {
            hub.updated(user(1), &update(thread, 1));
        }
        assert_eq!(follower.changed().await, None);
    }

    #[tokio::test]
    async fn after_a_loss_everyone_is_told_to_read_once() {
        let hub = Hub::default();
        let (mut first, mut second) = (hub.follow(user(1)), hub.follow(user(2)));
        hub.updated(user(1), &update(7, 1));
        hub.everything();
        hub.updated(user(1), &update(8, 1));
        assert_eq!(first.changed().await, Some(Told::Everything));
        assert_eq!(changed(&mut first).await, [update(8, 1)]);
        assert_eq!(second.changed().await, Some(Told::Everything));
        assert!(second.changed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_dropped_follower_leaves_no_trace() {
        let hub = Hub::default();
        drop(hub.follow(user(1)));
        hub.updated(user(1), &update(7, 1));
        assert!(hub.state.lock().unwrap().followers.is_empty());
    }

    #[tokio::test]
    async fn a_notification_that_comes_late_is_merged_into_the_newer_one() {
        let hub = Hub::default();
        let mut follower = hub.follow(user(1));
        hub.updated(user(1), &update(7, 3));
        assert_eq!(changed(&mut follower).await[0].revision, 3);
        hub.updated(user(1), &update(7, 2));
        assert!(follower.changed().now_or_never().is_none(), "revisions only rise");
    }
}
