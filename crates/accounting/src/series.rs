//! Use over time, for charts.

use crate::division::divide_time;
use gpu_core::{Bytes, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;

/// The use of all GPUs over time, in buckets of equal width. There are at most [`Series::MOST`]
/// buckets, which grow wider as the time grows longer.
#[derive(Clone, Debug)]
pub struct Series {
    start: Option<Timestamp>,
    width: Duration,
    buckets: Vec<Bucket>,
}

/// The use in one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The watched time in the bucket, without gaps.
    pub watched: Duration,
    /// The parts of the holders, by their index in [`Accounts::owners`](crate::Accounts::owners).
    pub parts: BTreeMap<usize, Part>,
}

/// The part of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// GPU time used.
    pub used: Duration,
    /// Memory multiplied by the time for which it was held, in byte-milliseconds.
    memory_time: u128,
}

impl Part {
    /// Returns the mean memory over the watched time of a bucket.
    pub fn memory(&self, watched: Duration) -> Bytes {
        let mean = self.memory_time.checked_div(watched.as_millis()).unwrap_or(0);
        Bytes(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

impl Default for Series {
    fn default() -> Self {
        Series { start: None, width: Series::MIN_WIDTH, buckets: Vec::new() }
    }
}

impl Series {
    /// The maximum number of buckets.
    pub const MOST: usize = 512;
    /// The initial width of a bucket.
    const MIN_WIDTH: Duration = Duration::from_secs(1);

    /// Returns the start of the first bucket; `None` without buckets.
    pub fn start(&self) -> Option<Timestamp> {
        self.start
    }

    /// Returns the width of a bucket.
    pub fn width(&self) -> Duration {
        self.width
    }

    /// Returns the buckets in order of time.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Adds a watched interval. Returns the buckets it overlaps, each with the length of the
    /// overlap in milliseconds. If the clock was set back, time before the start counts towards the
    /// first bucket.
    pub(crate) fn watch(&mut self, from: Timestamp, to: Timestamp) -> Vec<(usize, u64)> {
        let start = *self.start.get_or_insert(from);
        let length = to.since(from).as_millis() as u64;
        let begin = from.since(start).as_millis() as u64;
        while u128::from(begin.saturating_add(length)) > self.width.as_millis() * Self::MOST as u128
        {
            self.widen();
        }
        let width = self.width.as_millis() as u64;
        let (mut at, end) = (begin, begin.saturating_add(length));
        let mut pieces = Vec::new();
        while at < end {
            let index = at / width;
            let until = (index + 1).saturating_mul(width).min(end);
            pieces.push((index as usize, until - at));
            at = until;
        }
        if let Some((last, _)) = pieces.last().filter(|(last, _)| *last >= self.buckets.len()) {
            self.buckets.resize_with(last + 1, Bucket::default);
        }
        for (index, millis) in &pieces {
            self.buckets[*index].watched += Duration::from_millis(*millis);
        }
        pieces
    }

    /// Books use and memory for an interval that consists of these pieces.
    pub(crate) fn book(
        &mut self,
        pieces: &[(usize, u64)],
        owner: usize,
        used: Duration,
        memory: Bytes,
    ) {
        let weights: Vec<u64> = pieces.iter().map(|(_, millis)| *millis).collect();
        for ((index, millis), used) in pieces.iter().zip(divide_time(used, &weights)) {
            let part = self.buckets[*index].parts.entry(owner).or_default();
            part.used = part.used.saturating_add(used);
            let memory_time = u128::from(memory.0) * u128::from(*millis);
            part.memory_time = part.memory_time.saturating_add(memory_time);
        }
    }

    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        let mut wider: Vec<Bucket> = Vec::with_capacity(self.buckets.len().div_ceil(2));
        for (index, bucket) in std::mem::take(&mut self.buckets).into_iter().enumerate() {
            match wider.last_mut().filter(|_| index % 2 == 1) {
                Some(first) => first.join(bucket),
                None => wider.push(bucket),
            }
        }
        self.buckets = wider;
    }
}

impl Bucket {
    fn join(&mut self, other: Bucket) {
        self.watched = self.watched.saturating_add(other.watched);
        for (owner, more) in other.parts {
            let part = self.parts.entry(owner).or_default();
            part.used = part.used.saturating_add(more.used);
            part.memory_time = part.memory_time.saturating_add(more.memory_time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_widen_without_loss() {
        let mut series = Series::default();
        let (second, gib) = (Duration::from_secs(1), Bytes::from_mib(1_024));
        for end in 1..=100_000 {
            let pieces = series.watch(Timestamp((end - 1) * 1_000), Timestamp(end * 1_000));
            series.book(&pieces, usize::from(end > 50_000), second, gib);
        }
        assert!(series.buckets().len() <= Series::MOST);
        assert_eq!(series.width(), Duration::from_secs(256));
        let used: Duration =
            series.buckets().iter().flat_map(|b| b.parts.values()).map(|p| p.used).sum();
        assert_eq!(used, Duration::from_secs(100_000));
        let first = &series.buckets()[0];
        assert_eq!(first.watched, series.width());
        assert_eq!(first.parts[&0].memory(first.watched), gib);
        assert_eq!(series.buckets().last().unwrap().parts.keys().copied().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn width_doubles_until_an_interval_fits() {
        for (seconds, width, buckets) in [(512, 1, 512), (513, 2, 257), (100_000, 256, 391)] {
            let mut series = Series::default();
            series.watch(Timestamp(0), Timestamp(seconds * 1_000));
            assert_eq!((series.width().as_secs(), series.buckets().len()), (width, buckets));
        }
    }

    #[test]
    fn interval_is_spread_over_overlapping_buckets() {
        let mut series = Series::default();
        let gib = Bytes::from_mib(1_024);
        let pieces = series.watch(Timestamp(500), Timestamp(3_000));
        series.book(&pieces, 0, Duration::from_millis(1_250), gib);
        let used: Vec<u128> =
            series.buckets().iter().map(|bucket| bucket.parts[&0].used.as_millis()).collect();
        assert_eq!(used, [500, 500, 250], "the first bucket starts at 500 ms");
        let last = &series.buckets()[2];
        assert_eq!(last.watched, Duration::from_millis(500));
        assert_eq!(last.parts[&0].memory(last.watched), gib);
    }
}
