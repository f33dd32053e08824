//! The wall clock, in the two forms that go on the wire.

use jiff::Timestamp;
use turnfast_shared::Millis;

/// Now, in milliseconds since the Unix epoch.
#[must_use]
pub fn now() -> Millis {
    Timestamp::now().as_millisecond()
}

/// `at` as RFC 3339 in UTC, with milliseconds, as `createdAt` and `updatedAt` show it.
#[must_use]
pub fn rfc3339(at: Millis) -> String {
    Timestamp::from_millisecond(at).map_or_else(|_| at.to_string(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_milliseconds_and_a_zone() {
        assert_eq!(super::rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(super::rfc3339(1_796_052_309_007), "2026-11-30T15:25:09.007Z");
    }
}
