//! What to do with executions whose process died: a pure [`plan`], and the task that carries it out.

use turnfast_shared::{ExecutionStatus, Millis, message::ExecutionError, timeline};

use crate::store::{
    Store, StoreError,
    turns::{End, Flush, FlushOutcome, Orphan},
};

/// How an orphaned execution ends.
///
/// A wish to stop that was committed before the process died wins (contract 1, section 9, durable Stop). Text and results that
/// were recorded stay.
///
/// # Errors
/// The parts cannot be written as JSON.
pub fn plan(orphan: Orphan, at: Millis) -> Result<Flush, serde_json::Error> {
    let (status, error) = if orphan.cancel_requested {
        (ExecutionStatus::Cancelled, None)
    } else {
        let error = ExecutionError {
            message: "The server stopped unexpectedly while this reply was being written.".to_owned(),
            error_code: Some("process_died".to_owned()),
        };
        (ExecutionStatus::Interrupted, Some(error))
    };
    let parts = timeline::closed(orphan.parts, status, at);
    let content = Some(serde_json::to_string(&parts)?);
    Ok(Flush {
        execution: orphan.execution,
        process: orphan.process,
        key: orphan.key,
        parts: Vec::new(),
        end: Some(End { status, error, suspensions: Vec::new(), content, at }),
    })
}

/// Ends everything that a dead process left running. Gives what was ended, for notifications.
///
/// # Errors
/// The database does not answer; what was not ended stays for the next attempt.
pub async fn recover(store: &dyn Store, mut orphans: Vec<Orphan>, at: Millis) -> Result<Vec<(Flush, FlushOutcome)>, StoreError> {
    let mut ended = Vec::with_capacity(orphans.len());
    while !orphans.is_empty() {
        let done = recover_once(store, orphans.clone(), at).await?;
        // A Stop that came after the orphans were looked up wins too: those are ended once more, as what they are now.
        orphans.retain(|orphan| {
            done.iter().any(|(flush, outcome)| {
                flush.execution == orphan.execution && matches!(outcome, FlushOutcome::Written { ended: false, .. })
            })
        });
        for orphan in &mut orphans {
            orphan.cancel_requested = true;
        }
        ended.extend(done);
    }
    Ok(ended)
}

async fn recover_once(store: &dyn Store, orphans: Vec<Orphan>, at: Millis) -> Result<Vec<(Flush, FlushOutcome)>, StoreError> {
    let flushes = orphans
        .into_iter()
        .map(|orphan| plan(orphan, at))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let outcomes = store.flush(flushes.clone().into()).await?;
    Ok(flushes.into_iter().zip(outcomes).collect())
}
