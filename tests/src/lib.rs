//! Helpers shared by several test programs.

/// Returns whether to run deep tests, which take minutes: whether `GPUWS_DEEP` is set.
pub fn is_deep() -> bool {
    std::env::var_os("GPUWS_DEEP").is_some()
}

/// Returns a number from an environment variable, with defaults for quick and for deep tests.
pub fn bound(variable: &str, quick: u64, deep: u64) -> u64 {
    let otherwise = if is_deep() { deep } else { quick };
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("the value is a number"))
}

/// A random number generator (Marsaglia's xorshift).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Creates the generator for a seed; adjacent seeds are unrelated.
    pub fn new(seed: u64) -> Self {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Chance((mixed ^ mixed >> 31).max(1))
    }

    /// Returns a number below a limit, which must be at least one.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Returns true once in `times` calls on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns an index of a nonempty list.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns an element of a nonempty list.
    pub fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.index(list.len())]
    }
}
