//! The one task that writes what executions produce. It commits all flushes that are due in one transaction, whoever's they are,
//! and tells the owners' connections after the commit.

use std::sync::Arc;

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::Instrument as _;

use crate::{
    SPANS,
    metrics::{Counted, Metrics},
    relay::Relay,
    store::{
        Store, StoreError,
        turns::{Flush, FlushOutcome},
    },
};

/// Flushes in one transaction, at most. A longer one would keep Stops and submits waiting.
const GROUP_MAX: usize = 256;

/// A flush that could not be committed, and why. Nothing of it is recorded; it may be submitted again as it is.
#[derive(Debug)]
pub struct Unwritten {
    /// What was to be written.
    pub flush: Flush,
    /// Why it was not.
    pub error: StoreError,
}

/// Where an execution learns what became of its flush.
pub type Pending = oneshot::Receiver<Result<FlushOutcome, Unwritten>>;

struct Job {
    flush: Flush,
    asker: Asker,
    /// Among those that wait, until it is taken.
    _queued: Counted,
}

/// Who waits for the answer.
struct Asker {
    /// Whether they were answered with an error before. What they ask for may have been committed all the same.
    again: bool,
    reply: oneshot::Sender<Result<FlushOutcome, Unwritten>>,
}

/// The way to the writer task. Unbounded, because an execution waits for its flush before it submits the next: what is queued is
/// bounded by the number of executions.
#[derive(Clone, Debug)]
pub struct Writer {
    jobs: mpsc::UnboundedSender<Job>,
    metrics: Metrics,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({})", self.flush.execution)
    }
}

impl Writer {
    /// Starts the task. It ends when the last `Writer` is gone and all is written.
    pub fn start(store: Arc<dyn Store>, relay: Arc<Relay>, metrics: Metrics) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let office = Office { store, relay, metrics: metrics.clone() };
        tokio::spawn(office.run(queue));
        Self { jobs, metrics }
    }

    /// Queues a flush. The receiver fails only if the task is gone, at the end of the process.
    pub fn submit(&self, flush: Flush) -> Pending {
        self.queue(flush, false)
    }

    /// Queues a flush that was [`Unwritten`].
    pub fn submit_again(&self, flush: Flush) -> Pending {
        self.queue(flush, true)
    }

    fn queue(&self, flush: Flush, again: bool) -> Pending {
        let (reply, pending) = oneshot::channel();
        // If the task is gone, `reply` is dropped with the job, and the receiver says so.
        let _ = self.jobs.send(Job { flush, asker: Asker { again, reply }, _queued: Counted::by(&self.metrics.queued) });
        pending
    }
}

/// What the task works with.
struct Office {
    store: Arc<dyn Store>,
    relay: Arc<Relay>,
    metrics: Metrics,
}

impl Office {
    async fn run(self, mut queue: mpsc::UnboundedReceiver<Job>) {
        let mut jobs = Vec::new();
        while queue.recv_many(&mut jobs, GROUP_MAX).await > 0 {
            let (flushes, askers): (Vec<_>, Vec<_>) = jobs.drain(..).map(|job| (job.flush, job.asker)).unzip();
            let flushes: Arc<[Flush]> = flushes.into();
            match self.write(flushes.clone()).await {
                Ok(outcomes) => {
                    for ((flush, outcome), asker) in flushes.iter().zip(outcomes).zip(askers) {
                        self.report(flush, outcome, asker).await;
                    }
                }
                Err(error) if flushes.len() > 1 => {
                    // One flush must not fail its neighbours: each gets its own transaction and its own answer.
                    tracing::warn!(%error, flushes = flushes.len(), "a group of flushes failed; writing them one by one");
                    for (flush, asker) in flushes.iter().zip(askers) {
                        self.write_one(flush, Asker { again: true, ..asker }).await;
                    }
                }
                Err(error) => {
                    for (flush, asker) in flushes.iter().zip(askers) {
                        let _ = asker.reply.send(Err(Unwritten { flush: flush.clone(), error: error.clone() }));
                    }
                }
            }
        }
    }

    async fn write(&self, flushes: Arc<[Flush]>) -> Result<Vec<FlushOutcome>, StoreError> {
        let begun = Instant::now();
        let span = tracing::debug_span!(target: SPANS, "flush", flushes = flushes.len());
        let outcomes = self.store.flush(flushes).instrument(span).await;
        self.metrics.flush.observe(begun.elapsed().as_secs_f64());
        if outcomes.is_err() {
            self.metrics.flush_failures.inc();
        }
        outcomes
    }

    async fn write_one(&self, flush: &Flush, asker: Asker) {
        match self.write([flush.clone()].into()).await.map(|outcomes| outcomes.first().copied()) {
            Ok(Some(outcome)) => self.report(flush, outcome, asker).await,
            Ok(None) => self.report(flush, FlushOutcome::Fenced, asker).await,
            Err(error) => {
                let _ = asker.reply.send(Err(Unwritten { flush: flush.clone(), error }));
            }
        }
    }

    /// The receiver may be gone: then nobody waits for the answer, and the notification goes out all the same.
    async fn report(&self, flush: &Flush, outcome: FlushOutcome, asker: Asker) {
        let revision = match outcome {
            FlushOutcome::Written { revision, .. } => Some(revision),
            // It may have been this very flush that ended the execution, at the first attempt, and then nobody was told.
            FlushOutcome::Fenced if asker.again => self.store.revision(&flush.key).await.ok().flatten(),
            FlushOutcome::Fenced => None,
        };
        if let (FlushOutcome::Written { ended: true, .. }, Some(end)) = (outcome, &flush.end) {
            self.metrics.ended(end.status);
        }
        if let Some(revision) = revision {
            super::notify(&self.relay, &flush.key, Some(flush.execution), revision);
        }
        let _ = asker.reply.send(Ok(outcome));
    }
}
