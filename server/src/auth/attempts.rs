//! How often someone may try to sign in. Bounded in memory, whatever names and addresses are made up.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
};

use turnfast_shared::Millis;

use super::secret::digest;
use crate::store::auth::Digest;

/// Names and addresses remembered.
const REMEMBERED: usize = 8_192;

/// Who tries: each is counted on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The name, by digest: a name that nobody has may be long.
    Name(Digest),
    /// The client's address. A person with IPv6 has a whole /64.
    Address(IpAddr),
}

impl Key {
    /// Attempts that may come at once, and the pause after which one more may.
    fn allowance(self) -> (Millis, Millis) {
        match self {
            Self::Name(_) => (10, 15_000),
            Self::Address(_) => (30, 2_000),
        }
    }
}

/// Counts attempts to sign in. Those that succeed are given back.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// When all attempts of a key will be forgotten: each adds its pause (the "generic cell rate algorithm").
    free_at: Mutex<HashMap<Key, Millis>>,
}

impl Attempts {
    /// Counts an attempt. `Err`: too many; milliseconds until the next may come.
    pub(super) fn take(&self, name: &str, address: Option<IpAddr>, now: Millis) -> Result<(), Millis> {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let keys: Vec<Key> = keys(name, address).collect();
        let wait = |key: &Key| {
            let (burst, pause) = key.allowance();
            remaining(free_at.get(key), burst * pause, now) + pause - burst * pause
        };
        let wait = keys.iter().map(wait).max().unwrap_or(0);
        if wait > 0 {
            return Err(wait);
        }
        for key in keys {
            let (burst, pause) = key.allowance();
            let spent = remaining(free_at.get(&key), burst * pause, now);
            if free_at.len() >= REMEMBERED && !free_at.contains_key(&key) {
                forget_half(&mut free_at);
            }
            free_at.insert(key, now + spent + pause);
        }
        Ok(())
    }

    /// Gives an attempt back: it succeeded.
    pub(super) fn give_back(&self, name: &str, address: Option<IpAddr>) {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys(name, address) {
            if let Some(at) = free_at.get_mut(&key) {
                *at -= key.allowance().1;
            }
        }
    }
}

/// What is left of the time until a key is free, at most the whole: a clock that was set back shuts nobody out for longer.
fn remaining(free_at: Option<&Millis>, whole: Millis, now: Millis) -> Millis {
    free_at.map_or(0, |at| (at - now).clamp(0, whole))
}

/// Keeps those that are limited most.
fn forget_half(free_at: &mut HashMap<Key, Millis>) {
    let mut entries: Vec<(Key, Millis)> = free_at.drain().collect();
    let half = entries.len() / 2;
    entries.select_nth_unstable_by_key(half, |(_, at)| std::cmp::Reverse(*at));
    free_at.extend(entries.into_iter().take(half));
}

fn keys(name: &str, address: Option<IpAddr>) -> impl Iterator<Item = Key> {
    let name = Key::Name(digest(name));
    std::iter::once(name).chain(address.map(|address| Key::Address(network(address))))
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_name_has_ten_attempts_and_one_more_every_fifteen_seconds() {
        let attempts = Attempts::default();
        for n in 0..10 {
            assert_eq!(attempts.take("ada", address(&format!("10.0.0.{n}")), 0), Ok(()), "{n}");
        }
        assert_eq!(attempts.take("ada", address("10.0.1.1"), 0), Err(15_000));
        assert_eq!(attempts.take("ada", None, 5_000), Err(10_000));
        assert_eq!(attempts.take("bob", None, 5_000), Ok(()));
        assert_eq!(attempts.take("ada", None, 15_000), Ok(()));
        assert_eq!(attempts.take("ada", None, 15_000), Err(15_000));
    }

    #[test]
    fn an_address_has_thirty_attempts_over_all_names() {
        let attempts = Attempts::default();
        for n in 0..30 {
            assert_eq!(attempts.take(&n.to_string(), address(&format!("2001:db8::{n}")), 0), Ok(()), "{n}");
        }
        assert_eq!(attempts.take("x", address("2001:db8::ffff"), 0), Err(2_000));
        assert_eq!(attempts.take("x", address("2001:db8:0:1::1"), 0), Ok(()));
        assert_eq!(attempts.take("x", address("10.0.0.1"), 0), Ok(()));
    }

    #[test]
    fn attempts_that_succeed_do_not_count() {
        let attempts = Attempts::default();
        for _ in 0..100 {
            assert_eq!(attempts.take("ada", address("10.0.0.1"), 0), Ok(()));
            attempts.give_back("ada", address("10.0.0.1"));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_shuts_nobody_out() {
        let attempts = Attempts::default();
        for _ in 0..10 {
            attempts.take("ada", None, 1_000_000_000).unwrap();
        }
        assert_eq!(attempts.take("ada", None, 0), Err(15_000));
    }

    #[test]
    fn memory_is_bounded_and_the_most_limited_stay() {
        let attempts = Attempts::default();
        for _ in 0..10 {
            attempts.take("ada", None, 0).unwrap();
        }
        for n in 0..3 * REMEMBERED {
            attempts.take(&n.to_string(), None, 0).unwrap();
            assert!(attempts.free_at.lock().unwrap().len() <= REMEMBERED);
        }
        assert_eq!(attempts.take("ada", None, 0), Err(15_000));
    }
}
