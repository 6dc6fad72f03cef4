//! Looks of the last hour, for what a single one cannot show.

use crate::round::Look;
use gpu_core::Snapshot;
use std::collections::VecDeque;
use std::time::Duration;

/// How far back a diagnosis reaches: a notebook may be idle for an hour.
const SPAN: Duration = Duration::from_secs(65 * 60);

/// The time between two looks that are kept.
const STEP: Duration = Duration::from_secs(60);

/// The looks that a diagnosis takes into account.
#[derive(Clone, Debug, Default)]
pub struct Recent(VecDeque<Snapshot>);

impl Recent {
    /// Returns a look with the diagnosis of this snapshot and those before it.
    pub fn look(&mut self, snapshot: Snapshot) -> Look {
        let now = snapshot.taken_at;
        while self.0.front().is_some_and(|first| now.since(first.taken_at) > SPAN) {
            self.0.pop_front();
        }
        let close = self.0.len() > 1 && now.since(self.0[self.0.len() - 2].taken_at) < STEP;
        if close {
            self.0.pop_back();
        }
        self.0.push_back(snapshot.clone());
        let diagnosis = gpu_reaper::diagnose(self.0.make_contiguous());
        Look { snapshot, diagnosis }
    }
}
