//! The least device memory that a job needs.
//!
//! More memory can make a job fail: an allocator that had to empty its cache may have less
//! fragmentation afterwards than one that did not. The minimum is therefore not bisected if it can
//! be searched from below. An allocator that observes only grants and refusals behaves the same on
//! all devices between two sizes, and each replay finds both: its peak, and the least total with
//! which it would have got more. The search starts at the peak of the live memory. Each failed
//! replay yields the next size that could suffice, and the first that does not fail is the minimum.

use crate::replay::{Outcome, Replay};
use crate::workload::Workload;
use gpu_allocator_policy::{Failure, PolicyConfig};
use gpu_core::Bytes;
use serde::Serialize;

/// The step between the tried sizes, for an allocator that reads the size of its device.
const STEP: u64 = 2 << 20;
/// How many sizes below the result of the bisection are tried.
const BELOW: u64 = 16;
/// How many steps are replayed before the search falls back to a bisection.
const MAX_STEPS: u64 = 100_000_000;

/// The device memory that a job needs under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The least memory with which the job completes, without a CUDA context.
    #[serde(rename = "least_bytes")]
    pub least: Bytes,
    /// Whether no smaller device suffices; otherwise only some smaller sizes were tried.
    pub exact: bool,
    /// The number of replays.
    pub replays: usize,
    /// The replay with unlimited memory.
    pub unlimited: Outcome,
    /// The replay with the least memory.
    pub tight: Outcome,
}

/// Returns the device memory that a job needs under a policy.
///
/// # Errors
/// If the policy cannot be created, or the job does not complete with any amount of memory.
pub fn need(workload: &Workload, choice: &PolicyConfig) -> Result<Need, Failure> {
    let mut search = Search { workload, choice, replays: 0, steps: 0 };
    let endless = search.attempt(PolicyConfig::ENDLESS)?;
    if let Some(stop) = &endless.outcome.stop {
        return Err(Failure::OutOfMemory(Box::new(stop.shortage)));
    }
    let unlimited = endless.outcome.clone();
    let most = endless.peak;
    let live = Bytes(workload.peak_requested());
    let (least, tight, exact) = match choice.sees_only_grants() {
        true => search.upward(live, endless)?,
        false => {
            let (least, tight) = search.bisect(live, most, None)?;
            (least, tight, false)
        }
    };
    Ok(Need { least, exact, replays: search.replays, unlimited, tight })
}

struct Attempt {
    outcome: Outcome,
    peak: Bytes,
    least_refused: Option<Bytes>,
}

struct Search<'a> {
    workload: &'a Workload,
    choice: &'a PolicyConfig,
    replays: usize,
    steps: u64,
}

impl Search<'_> {
    fn attempt(&mut self, total: Bytes) -> Result<Attempt, Failure> {
        let (memory, mut policy) = self.choice.model(total)?;
        let outcome = Replay::new(self.workload).run(policy.as_mut(), &mut ())?;
        self.replays += 1;
        self.steps += outcome.steps as u64 + 1;
        Ok(Attempt { outcome, peak: memory.peak(), least_refused: memory.least_refused() })
    }

    /// Tries the sizes that could suffice, smallest first.
    fn upward(&mut self, live: Bytes, endless: Attempt) -> Result<(Bytes, Outcome, bool), Failure> {
        let mut total = live;
        loop {
            let attempt = self.attempt(total)?;
            if attempt.outcome.survived() {
                return Ok((attempt.peak.max(live), attempt.outcome, true));
            }
            match attempt.least_refused.filter(|next| *next > total) {
                Some(next) => total = next,
                // Only requests larger than any device were refused.
                None => return Ok((endless.peak, endless.outcome, false)),
            }
            if self.steps > MAX_STEPS {
                let (least, tight) = self.bisect(total, endless.peak, Some(endless))?;
                return Ok((least, tight, false));
            }
        }
    }

    /// Bisects between a size that is too small or just enough and one that suffices.
    fn bisect(
        &mut self,
        low: Bytes,
        high: Bytes,
        known: Option<Attempt>,
    ) -> Result<(Bytes, Outcome), Failure> {
        let mut low = low.0.div_ceil(STEP);
        let mut high = high.0.div_ceil(STEP).max(low);
        let mut best = match known {
            Some(attempt) => (Bytes(high * STEP), attempt.outcome),
            None => self.enough(&mut high)?,
        };
        while low < high {
            let middle = low + (high - low) / 2;
            let attempt = self.attempt(Bytes(middle * STEP))?;
            if attempt.outcome.survived() {
                (high, best) = (middle, (Bytes(middle * STEP), attempt.outcome));
            } else {
                low = middle + 1;
            }
        }
        // More memory can make a job fail, so some smaller sizes may suffice too.
        for below in (high.saturating_sub(BELOW)..high).filter(|below| *below > 0) {
            let attempt = self.attempt(Bytes(below * STEP))?;
            if attempt.outcome.survived() {
                return Ok((Bytes(below * STEP), attempt.outcome));
            }
        }
        Ok(best)
    }

    /// Doubles a size until it suffices.
    fn enough(&mut self, size: &mut u64) -> Result<(Bytes, Outcome), Failure> {
        loop {
            let attempt = self.attempt(Bytes(*size * STEP))?;
            if attempt.outcome.survived() {
                return Ok((Bytes(*size * STEP), attempt.outcome));
            }
            match attempt.outcome.stop {
                Some(stop) if *size > 1 << 40 => {
                    return Err(Failure::OutOfMemory(Box::new(stop.shortage)));
                }
                _ => *size *= 2,
            }
        }
    }
}

/// Returns the maximal sets of jobs that fit on a device together, by index; with many jobs, the
/// first sets found.
///
/// Assumes that all peaks coincide.
pub fn together(needs: &[Bytes], total: Bytes) -> Vec<Vec<usize>> {
    let mut sets = Sets { needs, set: Vec::new(), found: Vec::new(), looks: 0 };
    sets.extend(total.0, 0, u64::MAX);
    sets.found
}

struct Sets<'a> {
    needs: &'a [Bytes],
    set: Vec<usize>,
    found: Vec<Vec<usize>>,
    looks: usize,
}

impl Sets<'_> {
    /// The maximum numbers of returned and of examined sets.
    const MAX: usize = 64;
    const LOOKS: usize = 1_000_000;

    /// Adds jobs from this index on; `skipped` is the least need of the jobs skipped so far.
    fn extend(&mut self, left: u64, from: usize, mut skipped: u64) {
        self.looks += 1;
        let mut rest = self.needs[from..].iter().map(|need| need.0).fold(0, u64::saturating_add);
        for job in from..self.needs.len() {
            // Even with all the others, a skipped job would fit.
            if skipped <= left.saturating_sub(rest)
                || self.found.len() >= Self::MAX
                || self.looks > Self::LOOKS
            {
                return;
            }
            let need = self.needs[job].0;
            if need <= left {
                self.set.push(job);
                self.extend(left - need, job + 1, skipped);
                self.set.pop();
            }
            skipped = skipped.min(need);
            rest = self.needs[job + 1..].iter().map(|need| need.0).fold(0, u64::saturating_add);
        }
        if skipped > left && !self.set.is_empty() && self.found.len() < Self::MAX {
            self.found.push(self.set.clone());
        }
    }
}
