//! The minimum device memory that a job needs.
//!
//! More memory can make a job fail: an allocator that had to empty its cache may be less fragmented
//! afterwards than one that did not. The minimum is therefore searched from below where possible,
//! instead of by bisection. An allocator that observes only grants and refusals behaves the same on
//! all devices between two sizes, and each replay finds both: its peak, and the smallest total with
//! which it would have been granted more. The search starts at the peak of the live memory. Each
//! failed replay yields the next size that could suffice, and the first that does not fail is the
//! minimum.
//!
//! Most failed replays need not be repeated from the start. If the request that failed is also the
//! first that the next size would grant, the job runs the same way on that size up to this point,
//! so the device grows and the replay continues. A replay starts over only if an earlier request
//! would be granted, or if the policy may have waited for work. A job that runs with a full device
//! for a long time has many such sizes; after [`MAX_STEPS`] steps, the rest is bisected.

use crate::replay::{Observer, Outcome, Replay};
use crate::workload::{InitialAllocation, Step, StepKind, Workload};
use gpu_allocator_policy::{Failure, ModelMemory, PolicyConfig};
use gpu_core::Bytes;
use serde::Serialize;
use std::sync::Arc;

/// The step between sizes, for an allocator that reads the size of its device.
const STEP: u64 = 2 << 20;
/// How many sizes below the result of the bisection are tried.
const BELOW: u64 = 16;
/// How many sizes are tried after [`MAX_STEPS`] steps.
const BELOW_LATE: u64 = 4;
/// How many steps are replayed before the search falls back to bisection, about a twentieth of a
/// second of work.
const MAX_STEPS: u64 = 250_000;

/// The device memory that a job needs under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The minimum memory with which the job completes, without a CUDA context.
    #[serde(rename = "least_bytes")]
    pub least: Bytes,
    /// Whether no smaller device suffices. Otherwise, only some smaller sizes were tried.
    pub exact: bool,
    /// The number of replays.
    pub replays: usize,
    /// The replay with unlimited memory.
    pub unlimited: Outcome,
    /// The replay with the minimum memory.
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
    let (least, tight, exact) = if choice.sees_only_grants() {
        search.upward(live, endless)?
    } else {
        let (least, tight) = search.bisect(live, most, None)?;
        (least, tight, false)
    };
    Ok(Need { least, exact, replays: search.replays, unlimited, tight })
}

struct Attempt {
    outcome: Outcome,
    /// The size of the device at the end.
    total: Bytes,
    peak: Bytes,
    least_refused: Option<Bytes>,
}

/// Grows the device to the next size that could suffice instead of ending the replay, provided that
/// the job then runs as on a device that had this size from the start.
struct Growing {
    memory: Arc<ModelMemory>,
    may_grow: bool,
    /// How many times the device grew.
    grown: u64,
}

impl Observer for Growing {
    fn before_held(&mut self, _held: InitialAllocation) {
        if self.may_grow {
            self.memory.begin_request();
        }
    }

    fn before(&mut self, _number: usize, step: Step) {
        if self.may_grow && matches!(step.kind, StepKind::Allocate | StepKind::Fail) {
            self.memory.begin_request();
        }
    }

    fn refused(&mut self, _number: Option<usize>, has_retired: bool) -> bool {
        // Even if the request then fails, a policy that waits for work gets retired memory back.
        let grows = self.may_grow && !has_retired && self.memory.raise();
        self.grown += u64::from(grows);
        grows
    }
}

struct Search<'a> {
    workload: &'a Workload,
    choice: &'a PolicyConfig,
    replays: usize,
    steps: u64,
}

impl Search<'_> {
    fn attempt(&mut self, total: Bytes) -> Result<Attempt, Failure> {
        self.run(total, false)
    }

    /// Replays on a device that grows where possible.
    fn grow(&mut self, total: Bytes) -> Result<Attempt, Failure> {
        self.run(total, true)
    }

    fn run(&mut self, total: Bytes, may_grow: bool) -> Result<Attempt, Failure> {
        let (memory, mut policy) = self.choice.model(total)?;
        let mut observer = Growing { memory: Arc::clone(&memory), may_grow, grown: 0 };
        let outcome = Replay::new(self.workload).run(policy.as_mut(), &mut observer)?;
        self.replays += 1;
        self.steps += outcome.steps as u64 + 1 + observer.grown;
        let (peak, least_refused) = (memory.peak(), memory.least_refused());
        Ok(Attempt { outcome, total: memory.total(), peak, least_refused })
    }

    /// Tries the sizes that could suffice, smallest first.
    fn upward(&mut self, live: Bytes, endless: Attempt) -> Result<(Bytes, Outcome, bool), Failure> {
        let mut total = live;
        loop {
            let mut attempt = self.grow(total)?;
            if attempt.outcome.survived() {
                // The job runs the same way on a device that had this size from the start.
                attempt = self.attempt(attempt.total)?;
            }
            if attempt.outcome.survived() {
                return Ok((attempt.peak.max(live), attempt.outcome, true));
            }
            match attempt.least_refused.filter(|next| *next > attempt.total) {
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

    /// Bisects between a size that is too small or barely sufficient and one that suffices.
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
        // More memory can make a job fail, so some smaller sizes may also suffice.
        let tried = if self.steps > MAX_STEPS { BELOW_LATE } else { BELOW };
        for below in (high.saturating_sub(tried)..high).filter(|below| *below > 0) {
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
    let mut sets = Sets { needs, set: Vec::new(), found: Vec::new(), examined: 0 };
    sets.extend(total.0, 0, u64::MAX);
    sets.found
}

struct Sets<'a> {
    needs: &'a [Bytes],
    set: Vec<usize>,
    found: Vec<Vec<usize>>,
    examined: usize,
}

impl Sets<'_> {
    /// The maximum numbers of returned and of examined sets.
    const MAX: usize = 64;
    const MAX_EXAMINED: usize = 1_000_000;

    /// Adds jobs starting at this index; `skipped` is the smallest need of the jobs skipped so far.
    fn extend(&mut self, left: u64, from: usize, mut skipped: u64) {
        self.examined += 1;
        let mut rest = self.needs[from..].iter().map(|need| need.0).fold(0, u64::saturating_add);
        for job in from..self.needs.len() {
            // A skipped job would fit even with all remaining ones.
            if skipped <= left.saturating_sub(rest)
                || self.found.len() >= Self::MAX
                || self.examined > Self::MAX_EXAMINED
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::InitialAllocation;
    use gpu_allocator_policy::Stream;
    use proptest::prelude::*;

    /// Builds a job.
    #[derive(Default)]
    struct Builder {
        steps: Vec<Step>,
        live: Vec<u32>,
        retired: Vec<u32>,
        slots: u32,
    }

    impl Builder {
        fn allocate(&mut self, size: u64, stream: u16) {
            self.live.push(self.slots);
            self.steps.push(Step { size, slot: self.slots, stream, kind: StepKind::Allocate });
            self.slots += 1;
        }

        fn end(&mut self, index: usize, kind: StepKind) {
            let list = match kind {
                StepKind::Complete => &mut self.retired,
                _ => &mut self.live,
            };
            if list.is_empty() {
                return;
            }
            let slot = list.remove(index % list.len());
            if kind == StepKind::Retire {
                self.retired.push(slot);
            }
            self.steps.push(Step { size: 0, slot, stream: 0, kind });
        }

        fn job(self) -> Workload {
            Workload {
                streams: (0..4).map(Stream).collect(),
                pools: vec![(0, 0); 4],
                events: (0..self.steps.len() as u32).collect(),
                steps: self.steps,
                slots: self.slots,
                ..Workload::default()
            }
        }
    }

    /// Returns the need and the replays of a search that starts over for each size.
    fn restarted(workload: &Workload, choice: &PolicyConfig) -> (Bytes, Outcome, bool) {
        let mut search = Search { workload, choice, replays: 0, steps: 0 };
        let mut total = Bytes(workload.peak_requested());
        loop {
            let attempt = search.attempt(total).expect("no faults");
            if attempt.outcome.survived() {
                return (attempt.peak.max(Bytes(workload.peak_requested())), attempt.outcome, true);
            }
            total = attempt.least_refused.expect("a request was refused");
        }
    }

    const POLICIES: [(&str, &[(&str, &str)]); 7] = [
        ("caching", &[]),
        ("expandable", &[]),
        ("stream-ordered", &[]),
        ("direct", &[]),
        ("caching", &[("max_split_size_mb", "25")]),
        ("expandable", &[("max_split_size_mb", "25")]),
        ("caching", &[("large_segment_size_mb", "12"), ("roundup_power2_divisions", "4")]),
    ];

    fn policies() -> impl Iterator<Item = PolicyConfig> {
        POLICIES.iter().map(|(name, settings)| {
            let mut choice = PolicyConfig::named(name).expect("there is one");
            settings.iter().for_each(|(key, value)| choice.set(key, value).expect("it has it"));
            choice
        })
    }

    /// Such a recording was stopped before the first allocation, or has only a failure.
    #[test]
    fn job_without_allocation_needs_no_memory() {
        let mut builder = Builder::default();
        for kind in [StepKind::EmptyCache, StepKind::Fail] {
            builder.steps.push(Step { size: 1 << 20, slot: 0, stream: 0, kind });
        }
        let workload = builder.job();
        for choice in policies() {
            assert_eq!(need(&workload, &choice).expect("no request is made").least, Bytes(0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn growing_device_finds_same_need_as_restarts(
            steps in proptest::collection::vec(
                (0u8..12, 1u64..40 << 20, 0u16..4, 0u32..24, any::<usize>()), 1..120,
            ),
            held in proptest::collection::vec((1u64..30 << 20, any::<bool>()), 0..4),
        ) {
            let mut builder = Builder { slots: held.len() as u32, ..Builder::default() };
            for (kind, size, stream, shift, index) in steps {
                match kind {
                    0..=5 => builder.allocate((size >> shift).max(1), stream),
                    6..=8 => builder.end(index, StepKind::Free),
                    9 => builder.end(index, StepKind::Retire),
                    10 => builder.end(index, StepKind::Complete),
                    _ => builder.steps.push(Step {
                        size: size >> shift,
                        slot: 0,
                        stream,
                        kind: if index % 2 == 0 { StepKind::EmptyCache } else { StepKind::Fail },
                    }),
                }
            }
            let held = held.into_iter().enumerate().map(|(index, (size, retired))| {
                InitialAllocation { slot: index as u32, size, address: 0, stream: 0, retired }
            });
            let workload = Workload { held: held.collect(), ..builder.job() };
            for choice in policies() {
                let found = need(&workload, &choice).expect("memory is unlimited");
                let (least, tight, exact) = restarted(&workload, &choice);
                let of = |need: &Need| (need.least, need.tight.clone(), need.exact);
                prop_assert_eq!(of(&found), (least, tight, exact), "{:?}", choice);
            }
        }
    }

    /// Fragmented jobs of about `count` allocations. Each is the worst of its kind for a search
    /// that starts over for each size.
    fn fragmented(count: u64) -> [Workload; 4] {
        // Every second block is freed, and larger ones follow.
        let mut comb = Builder::default();
        (0..count / 2).for_each(|_| comb.allocate(900_000, 0));
        (0..count / 4).for_each(|index| comb.end(index as usize, StepKind::Free));
        (0..count / 4).for_each(|_| comb.allocate(1_100_000, 0));
        // Each request is slightly larger than the memory freed before it.
        let mut growing = Builder::default();
        for index in 0..count {
            growing.allocate(100_000 + index * 512, 0);
            if index > 100 {
                growing.end((index % 90) as usize, StepKind::Free);
            }
        }
        // The streams cannot use each other's blocks.
        let mut streams = Builder::default();
        for index in 0..count {
            streams.allocate(300_000 + index % 7 * 90_000, (index % 4) as u16);
            if index % 3 > 0 {
                streams.end((index * 7919) as usize, StepKind::Free);
            }
        }
        // Memory is never free for long, so the device is always full.
        let mut full = Builder::default();
        for index in 0..count {
            full.allocate((1 + index * 7919 % 61) << 20, 0);
            if index > count / 4 {
                full.end((index * 104_729) as usize, StepKind::Free);
            }
        }
        [comb, growing, streams, full].map(Builder::job)
    }

    #[test]
    fn steps_grow_with_the_length_of_the_job() {
        for workload in fragmented(3000) {
            for choice in policies() {
                let mut search =
                    Search { workload: &workload, choice: &choice, replays: 0, steps: 0 };
                let live = Bytes(workload.peak_requested());
                let endless = search.attempt(PolicyConfig::ENDLESS).expect("no faults");
                search.upward(live, endless).expect("memory is unlimited");
                // One replay with unlimited memory, at most 64 of the sizes that could suffice, a
                // bisection, and 4 smaller sizes.
                let most = MAX_STEPS + 64 * workload.steps.len() as u64;
                assert!(search.steps < most, "{choice:?}: {} steps", search.steps);
            }
        }
        // Without a cache, no replay starts over: one has unlimited memory, one grows, and one
        // confirms.
        for workload in fragmented(3000) {
            let found = need(&workload, &PolicyConfig::Direct).expect("memory is unlimited");
            assert_eq!((found.replays, found.exact), (3, true));
        }
    }
}
