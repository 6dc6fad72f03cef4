//! Counts the work of the parsers, in tests only.
//!
//! Pasted text is hostile: each parser must read no more than a fixed multiple of its length. Time
//! is a poor measure of that, so every loop over text or earlier results reports how many bytes or
//! items it read, and the tests below bound the sum. Outside tests, this does nothing.

#[cfg(test)]
thread_local! {
    static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Reports that this many bytes or items were read.
#[inline]
pub(crate) fn add(amount: usize) {
    #[cfg(test)]
    LOOKED_AT.with(|count| count.set(count.get() + amount as u64));
    #[cfg(not(test))]
    let _ = amount;
}

/// Returns how much `work` read.
#[cfg(test)]
fn of(work: impl FnOnce()) -> u64 {
    let before = LOOKED_AT.get();
    work();
    LOOKED_AT.get() - before
}

#[cfg(test)]
mod tests;
