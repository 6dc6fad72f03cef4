//! Consecutive snapshots that show the same state.

use crate::evidence::{Evidence, Sign};
use std::time::Duration;

/// A state, and the last snapshots in which it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streak {
    samples: usize,
    first: Duration,
    last: Duration,
}

impl Streak {
    /// Adds a snapshot: the state holds, does not hold, or is unknown. After a gap longer than
    /// `longest` it begins anew.
    pub(super) fn note(&mut self, is_so: Option<bool>, now: Duration, longest: Duration) {
        match is_so {
            Some(true) if self.samples > 0 && now - self.last <= longest => {
                (self.samples, self.last) = (self.samples + 1, now);
            }
            Some(true) => *self = Streak { samples: 1, first: now, last: now },
            Some(false) => *self = Streak::default(),
            None => {}
        }
    }

    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    /// Returns for how many snapshots it has lasted, and for how long.
    pub(super) fn until(self, now: Duration) -> Lasting {
        match self.samples {
            0 => Lasting { samples: 1, span: Duration::ZERO },
            samples => Lasting { samples, span: now.saturating_sub(self.first) },
        }
    }
}

/// For how long a state has lasted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lasting {
    pub(crate) samples: usize,
    pub(crate) span: Duration,
}

impl Lasting {
    /// Snapshots that span less than this prove no more than one.
    const MIN: Duration = Duration::from_secs(5);

    /// Returns the shorter of two: for how long both states have lasted.
    pub(crate) fn and(self, other: Lasting) -> Lasting {
        Lasting { samples: self.samples.min(other.samples), span: self.span.min(other.span) }
    }

    pub(crate) fn is_long(self) -> bool {
        self.samples > 1 && self.span >= Lasting::MIN
    }

    /// Returns whether it was watched for this long: two samples far apart may both have hit a
    /// pause.
    pub(crate) fn was_watched_for(self, least: Duration) -> bool {
        self.samples >= 3 && self.span >= least
    }

    /// Returns whether it was watched for this long, with a snapshot at least every two minutes on
    /// average.
    pub(crate) fn was_watched_closely_for(self, least: Duration) -> bool {
        self.span >= least && self.samples as u64 > self.span.as_secs() / 120
    }

    /// Returns the evidence of several snapshots.
    pub(crate) fn describe(self) -> Option<Evidence> {
        let text = || format!("the same in {} samples over {}", self.samples, span(self.span));
        (self.samples > 1).then(|| Evidence::new(Sign::SameInSeveralSamples, text()))
    }

    /// Returns the evidence that a process was idle in them.
    pub(crate) fn idle(self) -> Evidence {
        let text = if self.span < HOURS {
            format!("idle in {} samples over {}", self.samples, span(self.span))
        } else {
            format!("no compute for {}, in {} samples", span(self.span), self.samples)
        };
        Evidence::new(Sign::Idle, text)
    }
}

/// Longer times are formatted in hours.
pub(crate) const HOURS: Duration = Duration::from_secs(2 * 3_600);

/// Formats a watched time: `500 ms`, `119 s`, `59 min`, from two hours on `9 h`.
pub(crate) fn span(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(states: &[(u64, Option<bool>)], longest: u64) -> Lasting {
        let mut streak = Streak::default();
        for (at, is_so) in states {
            streak.note(*is_so, Duration::from_secs(*at), Duration::from_secs(longest));
        }
        streak.until(Duration::from_secs(states.last().unwrap().0))
    }

    fn lasting(samples: usize, seconds: u64) -> Lasting {
        Lasting { samples, span: Duration::from_secs(seconds) }
    }

    #[test]
    fn streak_counts_since_the_last_break() {
        let so = Some(true);
        assert_eq!(after(&[(0, so), (5, so), (9, so)], 60), lasting(3, 9));
        assert_eq!(after(&[(0, so), (5, Some(false)), (9, so)], 60), lasting(1, 0));
        assert_eq!(after(&[(0, Some(false))], 60), lasting(1, 0));
    }

    #[test]
    fn unknown_value_neither_counts_nor_breaks() {
        let so = Some(true);
        assert_eq!(after(&[(0, so), (5, None), (9, so)], 60), lasting(2, 9));
        assert_eq!(after(&[(0, so), (40, None), (80, so)], 60), lasting(1, 0), "unseen for long");
    }

    #[test]
    fn gap_ends_a_streak() {
        let so = Some(true);
        assert_eq!(after(&[(0, so), (60, so), (121, so), (130, so)], 60), lasting(2, 9));
    }

    #[test]
    fn close_watch_needs_a_snapshot_every_two_minutes() {
        let hours = Duration::from_secs(8 * 3_600);
        assert!(lasting(241, 28_800).was_watched_closely_for(hours));
        assert!(!lasting(240, 28_800).was_watched_closely_for(hours));
        assert!(!lasting(9_000, 28_799).was_watched_closely_for(hours));
    }
}
