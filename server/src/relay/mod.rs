//! Who is told that a thread changed, in this process and in others. Carries ids, never content: who is told reads.
//!
//! What it carries are hints. The record has what it says, and whoever may have missed something reads again; so a relay that is down
//! delays, and loses nothing.

mod hub;
mod postgres;

use std::sync::Arc;

use turnfast_shared::{
    api::ExecutionUpdated,
    ids::{ExecutionId, UserId},
};

pub use hub::{Follower, Hub, PENDING_MAX, Told};

use self::postgres::Post;
use crate::{
    metrics::Metrics,
    store::{StoreError, postgres::PostgresStore},
};

/// What the relay brings to this process beside notifications for its followers.
#[async_trait::async_trait]
pub trait Ears: Send + Sync {
    /// An execution was asked to stop; it may run here.
    fn cancel(&self, execution: ExecutionId);

    /// Requests to stop may have been lost: the record knows of all.
    async fn look_for_wishes(&self);
}

/// The way to everyone who follows.
pub struct Relay {
    hub: Arc<Hub>,
    /// To the other processes, where there can be any.
    post: Option<Arc<Post>>,
}

impl Relay {
    /// A relay within this process.
    #[must_use]
    pub fn local(hub: Arc<Hub>) -> Self {
        Self { hub, post: None }
    }

    /// A relay between all processes that use the database of `store`.
    #[must_use]
    pub fn postgres(hub: Arc<Hub>, store: &PostgresStore, metrics: &Metrics) -> Self {
        Self { hub, post: Some(Post::start(store, metrics.clone())) }
    }

    /// Brings what other processes send to the followers here and to `ears`, from now on and until [`Relay::close`].
    ///
    /// # Errors
    /// The database does not answer. Later it may: what was missed is read again.
    pub async fn listen(&self, ears: Arc<dyn Ears>) -> Result<(), StoreError> {
        match &self.post {
            None => Ok(()),
            Some(post) => post.listen(self.hub.clone(), ears).await,
        }
    }

    /// Tells the owner's connections, at every process, that a thread changed. Call it after the commit.
    pub fn updated(&self, owner: UserId, update: &ExecutionUpdated) {
        self.hub.updated(owner, update);
        if let Some(post) = &self.post {
            post.updated(owner, update);
        }
    }

    /// Tells whichever process runs it that an execution is to stop. Call it after the commit of the wish.
    pub fn cancel(&self, execution: ExecutionId) {
        if let Some(post) = &self.post {
            post.cancel(execution);
        }
    }

    /// Tells the followers of this process that notifications may have been lost.
    pub fn everything(&self) {
        self.hub.everything();
    }

    /// Sends what is not sent yet, within a moment, and ends.
    pub async fn close(&self) {
        if let Some(post) = &self.post {
            post.close().await;
        }
    }
}
