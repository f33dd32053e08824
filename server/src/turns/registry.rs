//! The executions that run in this process, and the handles that end them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use tokio_util::sync::CancellationToken;
use turnfast_shared::ids::ExecutionId;

/// Why an execution is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A person asked for it: it ends `cancelled`.
    Stop,
    /// The server goes down and the drain is over: it ends `interrupted`.
    Shutdown,
    /// This process lost its claim, and another one ends it: it writes nothing more.
    ClaimLost,
}

/// Ends one execution, once: the first reason counts.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    token: CancellationToken,
    reason: Arc<OnceLock<Reason>>,
}

impl CancelHandle {
    /// Asks the execution to end.
    pub fn cancel(&self, reason: Reason) {
        // Whoever comes second changes nothing: the execution is already ending.
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    /// Waits until the execution is asked to end.
    pub async fn cancelled(&self) -> Reason {
        self.token.cancelled().await;
        self.reason.get().copied().unwrap_or(Reason::Shutdown)
    }
}

/// The executions that run here.
#[derive(Debug, Default)]
pub struct Registry {
    running: Mutex<HashMap<ExecutionId, CancelHandle>>,
}

/// An execution's entry; dropping it removes the entry.
#[derive(Debug)]
pub struct Registered {
    registry: Arc<Registry>,
    execution: ExecutionId,
    /// What ends it.
    pub cancel: CancelHandle,
}

impl Registry {
    /// Registers an execution. Done before its row is committed, so that a Stop that reads the row finds the handle.
    #[must_use]
    pub fn register(self: &Arc<Self>, execution: ExecutionId) -> Registered {
        let cancel = CancelHandle::default();
        self.lock().insert(execution, cancel.clone());
        Registered { registry: self.clone(), execution, cancel }
    }

    /// Ends one execution if it runs here; says whether it does.
    pub fn cancel(&self, execution: ExecutionId, reason: Reason) -> bool {
        match self.lock().get(&execution) {
            Some(handle) => {
                handle.cancel(reason);
                true
            }
            None => false,
        }
    }

    /// All that run here.
    pub fn running(&self) -> Vec<ExecutionId> {
        self.lock().keys().copied().collect()
    }

    /// Ends all that run here.
    pub fn cancel_all(&self, reason: Reason) {
        for handle in self.lock().values() {
            handle.cancel(reason);
        }
    }

    /// How many run here.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none runs here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ExecutionId, CancelHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.execution);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn a_cancel_reaches_one_execution_and_keeps_its_first_reason() {
        let registry = Arc::new(Registry::default());
        let first = registry.register(Uuid::from_u128(1).into());
        let second = registry.register(Uuid::from_u128(2).into());
        assert!(registry.cancel(Uuid::from_u128(1).into(), Reason::Stop));
        assert!(registry.cancel(Uuid::from_u128(1).into(), Reason::Shutdown));
        assert!(!registry.cancel(Uuid::from_u128(9).into(), Reason::Stop));
        assert_eq!(registry.running().len(), 2);
        assert_eq!(first.cancel.cancelled().await, Reason::Stop);
        assert!(second.cancel.cancelled().now_or_never().is_none());
        drop((first, second));
        assert!(registry.is_empty());
    }
}
