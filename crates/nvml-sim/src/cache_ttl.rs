//! For how long what `/proc` said of real processes is believed.

use std::time::Duration;

/// So long, at least.
const MIN_TTL: Duration = Duration::from_millis(20);
/// How many times as long as it took to find out: with thousands of them it takes its time.
const TIMES: u32 = 10;

/// Until when it is believed.
#[derive(Default)]
pub(crate) struct CacheTtl {
    until: Option<Duration>,
}

impl CacheTtl {
    /// Returns whether what was found out is still believed.
    pub(crate) fn holds(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Believes what was found out between two moments.
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
        let mut belief = CacheTtl::default();
        assert!(!belief.holds(Duration::ZERO));
        belief.renew(millis(100), millis(101));
        assert!(belief.holds(millis(120)) && !belief.holds(millis(121)));
        belief.renew(millis(200), millis(230));
        assert!(belief.holds(millis(529)) && !belief.holds(millis(530)));
    }
}
