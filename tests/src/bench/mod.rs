//! Measurements of the real binary, on this machine.

pub mod page;
pub mod reliability;

use std::{fmt, time::Duration};

/// One measured quantity, and what it must keep below.
#[derive(Clone, Debug)]
pub struct Measure {
    /// What was measured.
    pub what: &'static str,
    /// What the 99th percentile must be below.
    pub bound: Duration,
    /// What it took, each time.
    pub samples: Vec<Duration>,
}

impl Measure {
    fn new(what: &'static str, bound: Duration) -> Self {
        Self { what, bound, samples: Vec::new() }
    }

    /// The smallest sample that `percent` of all do not exceed; zero without any.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Whether there is anything to judge by, and it is within its bound.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.samples.is_empty() && self.percentile(99) < self.bound
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
        writeln!(f, "{} (n = {})", self.what, self.samples.len())?;
        write!(
            f,
            "  p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; bound of the p99: {:.0} ms: {}",
            ms(self.percentile(50)),
            ms(self.percentile(99)),
            ms(self.percentile(100)),
            ms(self.bound),
            if self.holds() { "holds" } else { "BROKEN" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_rank() {
        let mut measure = Measure::new("something", Duration::from_millis(100));
        assert!(!measure.holds(), "nothing was measured");
        measure.samples = (1..=100).rev().map(Duration::from_millis).collect();
        for (percent, expected) in [(0, 1), (1, 1), (50, 50), (99, 99), (100, 100)] {
            assert_eq!(measure.percentile(percent), Duration::from_millis(expected), "{percent}");
        }
        assert!(measure.holds());
        measure.samples.extend([Duration::from_secs(1); 2]);
        assert!(!measure.holds(), "two of 102 are too late");
        assert!(measure.to_string().contains("(n = 102)") && measure.to_string().contains("max 1000.0 ms"), "{measure}");
    }
}
