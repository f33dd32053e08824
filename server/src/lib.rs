//! The Turnfast server. Start reading at [`app`]: it puts the parts together.
//!
//! | module | job | knows nothing of |
//! | --- | --- | --- |
//! | [`http`] | routes, extractors, problem answers, SSE | SQL |
//! | [`turns`] | admission, the registry, the writer, Stop, recovery | HTTP, SQL |
//! | [`store`] | what is recorded | who asks |
//! | [`liveness`] | which processes live | what they do |
//! | [`relay`] | who is told that a thread changed | content |
//! | [`agents`] | engines, models, tools | the record |
//! | [`auth`] | users, sessions, tokens, scopes | turns |
//! | [`redact`] | keeps secrets out of what is recorded, shown and logged | where they come from |
//! | [`config`], [`cli`] | what is to run, and how it is told | |
//! | [`metrics`] | what can be counted | what it is counted for |
//! | `telemetry` | traces, with the feature `otel` | what they are of |
//! | [`address`] | where the running server of a data folder is reached | |
//! | [`text`] | what counts as blank in what people type | |

pub mod address;
pub mod agents;
pub mod app;
pub mod auth;
pub mod cli;
pub mod clock;
pub mod config;
pub mod http;
pub mod liveness;
pub mod metrics;
pub mod redact;
pub mod relay;
pub mod store;
#[cfg(feature = "otel")]
pub mod telemetry;
pub mod text;
pub mod turns;

/// The target of the spans that are traced. They are no business of the log.
pub(crate) const SPANS: &str = "turnfast::spans";
