//! The states of a thread in the words of `package/state.d.ts`, as JSON values.
//!
//! Matches name every variant: one that is added must get a word here, and `examples/samples.rs` then holds the TypeScript to it.

use serde::Serialize;
use serde_json::{Value, json};
use turnfast_client_core::thread::{
    Attempt, Cause, Failure, Interaction, InteractionState, Load, Running, SendBlocked, Stop, Trouble, Warning,
};

/// `Load`.
#[must_use]
pub fn load(load: &Load) -> Value {
    match load {
        Load::New => json!({"state": "new"}),
        Load::Loading => json!({"state": "loading"}),
        Load::Loaded => json!({"state": "loaded"}),
        Load::NotFound => json!({"state": "notFound"}),
        Load::Failed(reason) => json!({"state": "failed", "failure": failure(reason)}),
    }
}

/// `Failure`.
#[must_use]
pub fn failure(failure: &Failure) -> Value {
    let message = failure.to_string();
    match failure {
        Failure::Refused { problem, retry_after } => {
            json!({"kind": "refused", "problem": value(problem), "retryAfter": retry_after, "message": message})
        }
        Failure::Unreadable { status } => json!({"kind": "unreadable", "status": status, "message": message}),
        Failure::Broken => json!({"kind": "broken", "message": message}),
    }
}

/// `Running`.
#[must_use]
pub fn running(running: Running) -> Value {
    match running {
        Running::Starting => json!({"state": "starting"}),
        Running::Live(execution) => json!({"state": "live", "executionId": value(&execution)}),
        Running::Followed(execution) => json!({"state": "followed", "executionId": value(&execution)}),
    }
}

/// `Stop`.
#[must_use]
pub fn stop(stop: Stop) -> &'static str {
    match stop {
        Stop::Hidden => "hidden",
        Stop::Usable => "usable",
        Stop::WaitingForId => "waitingForId",
        Stop::Stopping => "stopping",
    }
}

/// `SendBlocked`.
#[must_use]
pub fn send_blocked(reason: SendBlocked) -> &'static str {
    match reason {
        SendBlocked::SignedOut => "signedOut",
        SendBlocked::Loading => "loading",
        SendBlocked::NotFound => "notFound",
        SendBlocked::Checking => "checking",
        SendBlocked::Running => "running",
        SendBlocked::InteractionOpen => "interactionOpen",
        SendBlocked::Empty => "empty",
    }
}

/// `Interaction`: the suspension as the wire has it, and its state.
#[must_use]
pub fn interaction(interaction: &Interaction) -> Value {
    let state = match interaction.state {
        InteractionState::Answerable => "answerable",
        InteractionState::Answering => "answering",
        InteractionState::Waiting => "waiting",
        InteractionState::Closed => "closed",
    };
    let mut value = value(&interaction.suspension);
    if let Value::Object(fields) = &mut value {
        fields.insert("state".to_owned(), state.into());
    }
    value
}

/// `Trouble`.
#[must_use]
pub fn trouble(trouble: &Trouble) -> Value {
    let attempt = match trouble.attempt {
        Attempt::Submit => "submit",
        Attempt::Answer => "answer",
        Attempt::Stop => "stop",
        Attempt::Cancel => "cancel",
        Attempt::Stream => "stream",
    };
    let cause = match &trouble.cause {
        Cause::Failed(reason) => json!({"kind": "failed", "failure": failure(reason)}),
        Cause::NotAccepted => json!({"kind": "notAccepted"}),
        Cause::Detached => json!({"kind": "detached"}),
        Cause::GivenUp => json!({"kind": "givenUp"}),
        Cause::Reported(message) => json!({"kind": "reported", "message": message}),
    };
    json!({"attempt": attempt, "cause": cause, "code": value(&trouble.code()), "message": trouble.to_string()})
}

/// `Warning`.
#[must_use]
pub fn warning(warning: &Warning) -> Value {
    json!({"message": warning.message, "code": warning.code})
}

/// What the wire has; its types can always be written.
pub(crate) fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}
