//! Numbers from a seed: the same ones in every version of every crate.

/// A small generator of numbers ("SplitMix64"). Its sequence belongs to the seeds in regression tests: it must not change.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A place in something of that length, which is not zero.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    pub(crate) fn of<T: Copy, const N: usize>(&mut self, values: [T; N]) -> T {
        values[self.place(N)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence_for_ever() {
        let mut dice = Dice::new(7);
        assert_eq!([dice.next(), dice.next()], [7_191_089_600_892_374_487, 309_689_372_594_955_804]);
    }
}
