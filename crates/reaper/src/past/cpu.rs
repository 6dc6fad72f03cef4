//! The CPU time of a process over time.

use super::streak::Streak;
use std::time::Duration;

/// The minimum time over which to determine the share of a CPU, if the process was watched for as
/// long: a data loader that works in bursts has one within it.
const WINDOW: Duration = Duration::from_secs(10 * 60);

/// The CPU time of a process: an earlier value, and since when it has not changed.
#[derive(Clone, Debug, Default)]
pub(super) struct CpuTime {
    /// The latest reading and two before: the CPU time at each time.
    last: Option<(Duration, Duration)>,
    newer: Option<(Duration, Duration)>,
    older: Option<(Duration, Duration)>,
    /// The CPU time has not changed.
    still: Streak,
}

impl CpuTime {
    pub(super) fn note(&mut self, used: Option<Duration>, now: Duration, longest: Duration) {
        let Some(used) = used else { return };
        if self.last.is_some_and(|(at, _)| now - at > longest) {
            *self = CpuTime::default();
        }
        if self.last.is_some_and(|(_, before)| before != used) {
            self.still.note(Some(false), now, longest);
        }
        self.still.note(Some(true), now, longest);
        let mark = Some((now, used));
        match self.newer {
            None => (self.older, self.newer) = (mark, mark),
            Some((at, _)) if now - at >= WINDOW => (self.older, self.newer) = (self.newer, mark),
            Some(_) => {}
        }
        self.last = mark;
    }

    /// Returns since when it has not changed.
    pub(super) fn still(&self) -> Streak {
        self.still
    }

    /// Returns the CPU time used recently, and over how long.
    pub(super) fn recent(&self, now: Duration) -> Option<(Duration, Duration)> {
        let (last_at, last) = self.last.filter(|(at, _)| *at == now)?;
        let (first_at, first) = self.older?;
        (last_at > first_at).then(|| (last.saturating_sub(first), last_at - first_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn recent_time_covers_ten_to_twenty_minutes() {
        let mut cpu = CpuTime::default();
        let mut spans = Vec::new();
        for minute in 0..60 {
            // It computed for half an hour and has been waiting since.
            let used = minute.min(30) * 60;
            cpu.note(Some(seconds(used)), seconds(minute * 60), Duration::MAX);
            if let Some((used, span)) = cpu.recent(seconds(minute * 60)) {
                spans.push((used.as_secs() / 60, span.as_secs() / 60));
            }
        }
        assert_eq!(spans[..3], [(1, 1), (2, 2), (3, 3)]);
        assert!(spans[10..].iter().all(|(_, span)| (10..20).contains(span)), "{spans:?}");
        assert_eq!(spans.last().unwrap().0, 0, "what it did an hour ago is no matter");
        assert_eq!(cpu.still().until(seconds(59 * 60)).span, seconds(29 * 60));
    }

    #[test]
    fn gap_starts_anew() {
        let mut cpu = CpuTime::default();
        cpu.note(Some(seconds(1)), seconds(0), seconds(60));
        cpu.note(Some(seconds(1)), seconds(50), seconds(60));
        cpu.note(Some(seconds(1)), seconds(5_000), seconds(60));
        assert_eq!(cpu.recent(seconds(5_000)), None);
        assert_eq!(cpu.still().until(seconds(5_000)).samples, 1);
    }
}
