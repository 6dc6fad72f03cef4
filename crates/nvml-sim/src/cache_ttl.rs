//! The lifetime of cached `/proc` data about real processes.

use std::time::Duration;

/// The minimum lifetime.
const MIN_TTL: Duration = Duration::from_millis(20);
/// The lifetime as a multiple of the time to read the data: reading takes a while with thousands of
/// processes.
const TIMES: u32 = 10;

/// When the cache expires.
#[derive(Default)]
pub(crate) struct CacheTtl {
    until: Option<Duration>,
}

impl CacheTtl {
    /// Returns whether the cached data is still valid.
    pub(crate) fn holds(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Starts the lifetime of data read between `begin` and `end`.
    pub(crate) fn renew(&mut self, begin: Duration, end: Duration) {
        let took = end.saturating_sub(begin).saturating_mul(TIMES);
        self.until = Some(end.saturating_add(took.max(MIN_TTL)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_ttl_grows_with_lookup_time() {
        let millis = Duration::from_millis;
        let mut cache = CacheTtl::default();
        assert!(!cache.holds(Duration::ZERO));
        cache.renew(millis(100), millis(101));
        assert!(cache.holds(millis(120)) && !cache.holds(millis(121)));
        cache.renew(millis(200), millis(230));
        assert!(cache.holds(millis(529)) && !cache.holds(millis(530)));
    }
}
