//! Watches over the processes that share the database, and recovers what those that die leave running. What is to be done is
//! [`recovery`]'s business; this does it.

use std::{collections::HashSet, sync::Arc};

use tokio_util::sync::CancellationToken;
use turnfast_shared::{
    ExecutionStatus,
    ids::{ExecutionId, MessageId, ProcessId},
};
use uuid::Uuid;

use super::{
    READ_AGAIN, Started, Turns, notify,
    recovery::{self, Fate},
    registry::Reason,
};
use crate::{
    agents::Engine,
    clock,
    store::{
        StoreError,
        turns::{ContinueOutcome, FlushOutcome, Orphan},
    },
};

impl Turns {
    /// Recovers what processes that are dead already left.
    pub(super) async fn recover_the_dead(self: &Arc<Self>) -> Result<(), StoreError> {
        for process in self.others().await? {
            if let Some(_death) = self.liveness.is_dead(process).await? {
                self.bury(process).await?;
            }
        }
        Ok(())
    }

    /// Starts the task that watches over the others, and over the own claim.
    pub(super) fn guard(self: Arc<Self>, lost: CancellationToken) {
        let guarding = self.guarding.clone();
        tokio::spawn(guarding.run_until_cancelled_owned(self.watch_all(lost)));
    }

    async fn watch_all(self: Arc<Self>, mut lost: CancellationToken) {
        let mut watched = HashSet::new();
        loop {
            match self.others().await {
                Ok(others) => {
                    for process in others.into_iter().filter(|process| watched.insert(*process)) {
                        self.clone().watch(process);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot see which processes there are; trying again");
                    tokio::time::sleep(READ_AGAIN).await;
                    continue;
                }
            }
            tokio::select! {
                () = self.liveness.arrivals() => {}
                () = lost.cancelled() => {
                    lost = self.claim_anew().await;
                }
            }
        }
    }

    /// Processes that have a claim or something that runs, but for this one.
    async fn others(&self) -> Result<HashSet<ProcessId>, StoreError> {
        let mut others: HashSet<_> = self.liveness.known().await?.into_iter().collect();
        others.extend(self.store.running_processes().await?);
        if let Ok(me) = self.process() {
            others.remove(&me);
        }
        Ok(others)
    }

    /// Waits for the death of `process` and recovers it.
    fn watch(self: Arc<Self>, process: ProcessId) {
        let guarding = self.guarding.clone();
        tokio::spawn(guarding.run_until_cancelled_owned(async move {
            let _death = self.liveness.death(process).await;
            self.bury_until_done(process).await;
        }));
    }

    async fn bury_until_done(self: &Arc<Self>, process: ProcessId) {
        while let Err(error) = self.bury(process).await {
            tracing::warn!(%error, %process, "what a dead process left cannot be recovered yet; trying again");
            tokio::time::sleep(READ_AGAIN).await;
        }
    }

    /// This process lost its claim: its turns end here, and it goes on under a new id. The old one is recovered like any dead process,
    /// by whoever comes first.
    async fn claim_anew(self: &Arc<Self>) -> CancellationToken {
        let old = self.claim_slot().take();
        tracing::error!(running = self.registry.len(), "this process lost its claim: others end its turns");
        self.registry.cancel_all(Reason::ClaimLost);
        if let Some(old) = old {
            // Known to be dead: this process says so itself.
            let (turns, guarding) = (self.clone(), self.guarding.clone());
            let burying = async move { turns.bury_until_done(old.process).await };
            tokio::spawn(guarding.run_until_cancelled_owned(burying));
        }
        loop {
            match self.liveness.claim().await {
                Ok(claim) => {
                    tracing::info!(process = %claim.process, "claimed anew");
                    let lost = claim.lost.clone();
                    *self.claim_slot() = Some(claim);
                    return lost;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot claim anew yet; trying again");
                    tokio::time::sleep(READ_AGAIN).await;
                }
            }
        }
    }

    /// Recovers all that a dead process left running. Others may be at it too: the record decides who of them does.
    pub(super) async fn bury(self: &Arc<Self>, process: ProcessId) -> Result<(), StoreError> {
        // First: whatever began in its name has begun by then, and is found.
        self.liveness.forget(process).await?;
        // More than one round where a Stop comes between the look and the deed. It is found by the next look, and a cancelled end
        // always takes effect; so there are two of them at most.
        loop {
            let orphans = self.store.orphans(process).await?;
            if orphans.is_empty() {
                break;
            }
            let mut endings = Vec::new();
            for orphan in orphans {
                let engine = (self.continuable)(&orphan.key.project, &orphan.key.agent);
                match (recovery::fate(&orphan, engine.is_some()), engine) {
                    (Fate::Continued, Some(engine)) => self.go_on(orphan, engine).await?,
                    (Fate::Cancelled, _) => endings.push((orphan, ExecutionStatus::Cancelled)),
                    (Fate::Interrupted | Fate::Continued, _) => endings.push((orphan, ExecutionStatus::Interrupted)),
                }
            }
            self.end_all(endings).await?;
        }
        // It may have died between a commit and telling of it.
        self.relay.everything();
        Ok(())
    }

    async fn end_all(&self, endings: Vec<(Orphan, ExecutionStatus)>) -> Result<(), StoreError> {
        let at = clock::now();
        let flushes = endings
            .into_iter()
            .map(|(orphan, status)| recovery::ending(orphan, status, at))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        if flushes.is_empty() {
            return Ok(());
        }
        let outcomes = self.store.flush(flushes.clone().into()).await?;
        for (flush, outcome) in flushes.into_iter().zip(outcomes) {
            // An interruption that met a Stop has not ended it; the next round does.
            let FlushOutcome::Written { revision, ended, .. } = outcome else { continue };
            if let (true, Some(end)) = (ended, &flush.end) {
                self.metrics.ended(end.status);
                self.metrics.recovered(if end.status == ExecutionStatus::Cancelled {
                    Fate::Cancelled
                } else {
                    Fate::Interrupted
                });
                tracing::warn!(execution = %flush.execution, thread = %flush.key.thread, "ended an execution whose process died");
            }
            notify(&self.relay, &flush.key, Some(flush.execution), revision);
        }
        Ok(())
    }

    /// Goes on with an orphan's message, unless another process does, or it was asked to stop meanwhile.
    async fn go_on(self: &Arc<Self>, orphan: Orphan, engine: Arc<dyn Engine>) -> Result<(), StoreError> {
        let execution = ExecutionId::from(Uuid::now_v7());
        let registered = self.registry.register(execution);
        let process = self.process()?;
        let continuation = recovery::continuation(&orphan, execution, process, clock::now());
        let ContinueOutcome::Continued { revision } = self.store.continue_orphan(continuation).await? else { return Ok(()) };
        tracing::warn!(%execution, dead = %orphan.execution, thread = %orphan.key.thread, "going on with an execution whose process died");
        self.metrics.recovered(Fate::Continued);
        notify(&self.relay, &orphan.key, Some(execution), revision);
        let assistant_message: MessageId = orphan.message;
        let started = Started { key: orphan.key, message: assistant_message, assistant_message, answers: orphan.answers };
        // Nobody submitted this one: its live stream has no reader.
        let (accepted, _) = self.started(execution, process, registered, started, engine);
        self.tasks.spawn(accepted.run(self.store.clone()));
        Ok(())
    }
}
