//! How much the parsers look at, counted in tests.
//!
//! A text of a paste is hostile: each parser must look at no more than a fixed multiple of its
//! length. Time says that badly, so every loop that looks at text or at what was read before
//! reports how many bytes or items it looked at, and the tests below hold the sum to a bound.
//! Outside of tests nothing is counted.

#[cfg(test)]
thread_local! {
    static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Reports that so many bytes or items were looked at.
#[inline]
pub(crate) fn add(amount: usize) {
    #[cfg(test)]
    LOOKED_AT.with(|count| count.set(count.get() + amount as u64));
    #[cfg(not(test))]
    let _ = amount;
}

/// Returns how much `work` looked at.
#[cfg(test)]
fn of(work: impl FnOnce()) -> u64 {
    let before = LOOKED_AT.get();
    work();
    LOOKED_AT.get() - before
}

#[cfg(test)]
mod tests;
