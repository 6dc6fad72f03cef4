//! The amounts that are booked.

use gpu_core::{Bytes, Timestamp};
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// An amount of energy, in microjoules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Energy(pub u128);

impl Energy {
    /// Returns the amount in joules.
    pub fn joules(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns the amount in kilowatt-hours.
    pub fn kilowatt_hours(self) -> f64 {
        self.joules() / 3.6e6
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// The amounts booked for a user, job, GPU or day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// GPU time held.
    pub held: Duration,
    /// GPU time used.
    pub used: Duration,
    /// The held time without compute.
    pub idle: Duration,
    /// The peak memory.
    pub peak: Bytes,
    /// Energy.
    pub energy: Energy,
}

impl Amounts {
    /// Adds the amounts of an interval. The peak is updated separately.
    pub(crate) fn book(&mut self, booked: &Booked) {
        self.held = self.held.saturating_add(booked.held);
        self.used = self.used.saturating_add(booked.used);
        self.idle = self.idle.saturating_add(booked.idle);
        self.energy += booked.energy;
    }
}

/// The amounts booked for one holder on one device in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Booked {
    pub(crate) held: Duration,
    pub(crate) used: Duration,
    pub(crate) idle: Duration,
    pub(crate) energy: Energy,
}

/// A day in the caller's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    /// The year.
    pub year: i16,
    /// The month, from 1.
    pub month: i8,
    /// The day of the month, from 1.
    pub day: i8,
}

impl fmt::Display for Day {
    /// Writes `2026-11-24`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// An interval without observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The snapshot before it.
    pub from: Timestamp,
    /// The snapshot after it.
    pub to: Timestamp,
}

impl Gap {
    /// Returns its length.
    pub fn time(self) -> Duration {
        self.to.since(self.from)
    }
}

/// The intervals without observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The number of gaps.
    pub count: usize,
    /// The total length of the gaps.
    pub time: Duration,
    /// The longest gaps, at most [`Gaps::KEPT`], in order of time.
    pub longest: Vec<Gap>,
    /// How many times the wall clock was set back. No time is booked for such an interval.
    pub set_back: usize,
}

impl Gaps {
    /// The maximum number of gaps kept.
    pub const KEPT: usize = 20;

    pub(crate) fn add(&mut self, gap: Gap) {
        self.count += 1;
        self.time = self.time.saturating_add(gap.time());
        self.longest.push(gap);
        if self.longest.len() > Self::KEPT {
            let shortest = self.longest.iter().enumerate().min_by_key(|(_, gap)| gap.time());
            if let Some((index, _)) = shortest {
                self.longest.remove(index);
            }
        }
    }
}
