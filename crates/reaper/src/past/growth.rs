//! Memory that grows endlessly.

use gpu_core::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// The interval whose lowest use counts, so that memory that is allocated and freed again is not
/// growth.
const WINDOW: Duration = Duration::from_secs(30 * 60);

/// The minimum increase from window to window: CUDA allocates pages of 2 MiB.
const STEP: Bytes = Bytes::from_mib(2);

/// The number of windows over which a rise is judged, if available: six hours.
const JUDGED: usize = 12;

/// Fewer prove nothing: three hours. Jobs load data and warm up caches for an hour or two.
const LEAST: usize = 6;

/// An amount of memory over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    /// When the current window began.
    since: Duration,
    last: Duration,
    /// The lowest use in the current window.
    low: Option<Bytes>,
    /// The start of each of the last windows and the lowest use in it, each higher than in the one
    /// before.
    lows: VecDeque<(Duration, Bytes)>,
    /// The same for the window in which the rise began.
    from: (Duration, Bytes),
}

/// A rise of memory: in each half-hour the lowest use was higher than in the one before, and the
/// growth does not slow down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rise {
    pub(crate) from: Bytes,
    pub(crate) to: Bytes,
    pub(crate) span: Duration,
    /// The growth in the last six hours, or in a shorter time if it has not lasted as long, and
    /// that time.
    pub(crate) recent: (Bytes, Duration),
    /// The rise has lasted for six hours.
    pub(crate) is_long: bool,
}

impl Growth {
    pub(super) fn note(&mut self, memory: Option<Bytes>, now: Duration, longest: Duration) {
        let Some(memory) = memory else { return };
        let Some(low) = self.low.filter(|_| now - self.last <= longest) else {
            *self = Growth { since: now, last: now, low: Some(memory), ..Growth::default() };
            return;
        };
        self.last = now;
        if now - self.since < WINDOW {
            self.low = Some(low.min(memory));
            return;
        }
        let rises = self.lows.back().is_some_and(|(_, before)| low >= *before + STEP);
        if !rises {
            self.lows.clear();
            self.from = (self.since, low);
        }
        self.lows.push_back((self.since, low));
        if self.lows.len() > JUDGED + 1 {
            self.lows.pop_front();
        }
        (self.since, self.low) = (now, Some(memory));
    }

    /// Returns the rise, if there is one.
    ///
    /// A caching allocator grows in steps and stops, or grows ever more slowly; the later half of
    /// the rise must therefore have at least three quarters of the earlier half's growth.
    pub(crate) fn rise(&self) -> Option<Rise> {
        let ((first, start), (last, to)) = (*self.lows.front()?, *self.lows.back()?);
        let steps = self.lows.len() - 1;
        if steps < LEAST || self.low? < to {
            return None;
        }
        let (_, middle) = self.lows[steps / 2];
        let (early, late) = (middle.saturating_sub(start), to.saturating_sub(middle));
        let is_steady = u128::from(late.0) * 4 >= u128::from(early.0) * 3;
        is_steady.then(|| Rise {
            from: self.from.1,
            to,
            span: last.saturating_sub(self.from.0),
            recent: (to.saturating_sub(start), last.saturating_sub(first)),
            is_long: steps >= JUDGED,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rise after these hours of a use in MiB that depends on the minute.
    fn after(hours: u64, mib: impl Fn(u64) -> u64) -> Option<Rise> {
        let mut growth = Growth::default();
        for minute in 0..=hours * 60 {
            let memory = Some(Bytes::from_mib(mib(minute)));
            growth.note(memory, Duration::from_secs(minute * 60), Duration::from_secs(300));
        }
        growth.rise()
    }

    #[test]
    fn steady_growth_is_a_rise_after_three_hours_and_long_after_six() {
        let leak = |minute| 1_000 + minute * 10;
        assert_eq!(after(3, leak), None);
        let rise = after(4, leak).unwrap();
        assert_eq!((rise.from, rise.is_long), (Bytes::from_mib(1_000), false));
        let rise = after(9, leak).unwrap();
        assert_eq!(rise.to, Bytes::from_mib(1_000 + 17 * 300));
        assert_eq!(rise.span, Duration::from_secs(17 * 1_800));
        assert!(rise.is_long);
    }

    #[test]
    fn fluctuating_or_saturating_memory_is_not_a_rise() {
        for (name, mib) in [
            ("constant", (|_| 9_000) as fn(u64) -> u64),
            ("batches", |minute| 9_000 + minute % 7 * 500),
            ("falls each two hours", |minute| 1_000 + minute % 120 * 50),
            ("steps that stop", |minute| 1_000 + minute.min(90) / 10 * 500),
            ("first minutes", |minute| minute.min(20) * 3_000),
            ("a step each two hours", |minute| 1_000 + minute / 120 * 4_000),
            ("ever more slowly", |minute| 1_000 + (f64::from(minute as u32).ln_1p() * 900.) as u64),
        ] {
            for hours in 1..=24 {
                let rise = after(hours, mib);
                let is_leak = |rise: Rise| rise.recent.0 >= Bytes::from_mib(1_024);
                assert!(!rise.is_some_and(is_leak), "{name}, {hours} h: {rise:?}");
            }
        }
    }

    #[test]
    fn leak_below_fluctuating_use_is_a_rise() {
        assert!(after(8, |minute| 1_000 + minute * 10 + minute % 7 * 400).unwrap().is_long);
    }

    #[test]
    fn rise_ends_when_the_memory_falls() {
        assert_eq!(after(9, |minute| if minute < 530 { minute * 10 } else { 10 }), None);
    }

    #[test]
    fn gap_ends_a_rise() {
        let mut growth = Growth::default();
        for minute in (0..=480).chain(600..=610) {
            let memory = Some(Bytes::from_mib(minute * 10));
            growth.note(memory, Duration::from_secs(minute * 60), Duration::from_secs(300));
        }
        assert_eq!(growth.rise(), None);
    }
}
