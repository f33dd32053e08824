//! What can be counted, for Prometheus. Each module counts through handles that it is given; nothing reads them but `/metrics`.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};
use turnfast_shared::ExecutionStatus;

use crate::turns::recovery::Fate;

/// What `/metrics` is, as its clients are told.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Seconds from a tenth of a millisecond to ten seconds.
const SECONDS: [f64; 11] = [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0];

/// How an execution ended, as a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    status: &'static str,
}

/// What became of an execution whose process died, as a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Recovered {
    fate: &'static str,
}

/// The counts of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    turns: Family<Ended, Counter>,
    recoveries: Family<Recovered, Counter>,
    /// Turns that run here.
    pub running: Gauge,
    /// Open `/push` connections.
    pub followers: Gauge,
    /// Flushes that wait for the writer.
    pub queued: Gauge,
    /// How long a transaction of the writer takes.
    pub flush: Histogram,
    /// Transactions of the writer that failed. What was in them is written again.
    pub flush_failures: Counter,
    /// News that waits to be sent to other processes.
    pub relay_waiting: Gauge,
    /// How long news for other processes waits until the database has passed it on.
    pub relay_lag: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            turns: Family::default(),
            recoveries: Family::default(),
            running: Gauge::default(),
            followers: Gauge::default(),
            queued: Gauge::default(),
            flush: Histogram::new(SECONDS),
            flush_failures: Counter::default(),
            relay_waiting: Gauge::default(),
            relay_lag: Histogram::new(SECONDS),
        };
        // All of them are there from the start: what is not there yet looks like nought only to people.
        for status in [
            ExecutionStatus::Success,
            ExecutionStatus::Error,
            ExecutionStatus::Cancelled,
            ExecutionStatus::Interrupted,
            ExecutionStatus::Suspended,
        ] {
            drop(metrics.turns.get_or_create(&Ended { status: status_label(status) }));
        }
        for fate in [Fate::Cancelled, Fate::Interrupted, Fate::Continued] {
            drop(metrics.recoveries.get_or_create(&Recovered { fate: fate_label(fate) }));
        }
        metrics
    }
}

/// As on the wire.
fn status_label(status: ExecutionStatus) -> &'static str {
    match status {
        ExecutionStatus::Running => "running",
        ExecutionStatus::Suspended => "suspended",
        ExecutionStatus::Success => "success",
        ExecutionStatus::Error => "error",
        ExecutionStatus::Cancelled => "cancelled",
        ExecutionStatus::Interrupted => "interrupted",
    }
}

fn fate_label(fate: Fate) -> &'static str {
    match fate {
        Fate::Cancelled => "cancelled",
        Fate::Interrupted => "interrupted",
        Fate::Continued => "continued",
    }
}

impl Metrics {
    /// An execution ended, and its end is committed.
    pub fn ended(&self, status: ExecutionStatus) {
        self.turns.get_or_create(&Ended { status: status_label(status) }).inc();
    }

    /// An execution of a dead process was recovered by this one.
    pub fn recovered(&self, fate: Fate) {
        self.recoveries.get_or_create(&Recovered { fate: fate_label(fate) }).inc();
    }

    /// All of it, in the text format of OpenMetrics.
    ///
    /// # Errors
    /// There is no memory for the text.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::with_prefix("turnfast");
        registry.register("build", "The version that runs", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        registry.register(
            "turns",
            "Executions that this process ended, by their recorded status; a turn that waits for a person is suspended",
            self.turns.clone(),
        );
        registry.register("turns_running", "Executions that run in this process", self.running.clone());
        registry.register(
            "recoveries",
            "Executions of dead processes that this one ended or went on with",
            self.recoveries.clone(),
        );
        registry.register_with_unit("flush", "Time for one transaction of the writer", Unit::Seconds, self.flush.clone());
        registry.register(
            "flush_failures",
            "Transactions of the writer that failed and are tried again",
            self.flush_failures.clone(),
        );
        registry.register("flush_queue", "Flushes that wait for the writer", self.queued.clone());
        registry.register("followers", "Open connections that follow notifications", self.followers.clone());
        registry.register("relay_queue", "News that waits to be sent to other processes", self.relay_waiting.clone());
        registry.register_with_unit(
            "relay_lag",
            "Time that news for other processes waited until the database had passed it on",
            Unit::Seconds,
            self.relay_lag.clone(),
        );
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// Counts something for as long as it lives.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    /// One more, until this is dropped.
    pub fn by(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_there_from_the_start_and_counts() {
        let metrics = Metrics::default();
        let text = metrics.text().unwrap();
        for line in [
            "turnfast_turns_total{status=\"interrupted\"} 0",
            "turnfast_recoveries_total{fate=\"continued\"} 0",
            "turnfast_followers 0",
            "turnfast_flush_seconds_count 0",
            "turnfast_relay_lag_seconds_count 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
        }
        metrics.ended(ExecutionStatus::Interrupted);
        metrics.recovered(Fate::Continued);
        let one = Counted::by(&metrics.followers);
        let text = metrics.text().unwrap();
        assert!(text.contains("turns_total{status=\"interrupted\"} 1"), "{text}");
        assert!(text.contains("recoveries_total{fate=\"continued\"} 1") && text.contains("turnfast_followers 1"), "{text}");
        drop(one);
        assert!(metrics.text().unwrap().contains("turnfast_followers 0"));
    }
}
