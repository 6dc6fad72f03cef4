//! A job run under a policy.

use crate::workload::{InitialAllocation, Step, StepKind, Workload};
use gpu_allocator_policy::{Allocation, Failure, Policy, Retired, Shortage};
use gpu_core::{Bytes, Error, ErrorKind};
use serde::Serialize;

/// Observes a replay.
pub trait Observer {
    /// Called before each initial allocation of the job.
    fn before_held(&mut self, _held: InitialAllocation) {}

    /// Called after each initial allocation of the job, before the first step.
    fn begun(&mut self, _index: usize, _held: InitialAllocation, _given: &Allocation) {}

    /// Called before a step.
    fn before(&mut self, _number: usize, _step: Step) {}

    /// Called when the device refuses a request. The arguments are the number of its step (`None`
    /// before the first) and whether work still uses memory that the job has freed. Returns whether
    /// to repeat the request; by default, the replay ends.
    fn refused(&mut self, _number: Option<usize>, _has_retired: bool) -> bool {
        false
    }

    /// Called after a step, with its allocation, and the memory in use and held by the policy.
    fn after(&mut self, _number: usize, _step: Step, _given: Option<&Allocation>, _now: Level) {}
}

/// Ignores all events.
impl Observer for () {}

/// A policy's memory in use and held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Memory in use, rounded as the policy rounds it.
    #[serde(rename = "in_use_bytes")]
    pub in_use: Bytes,
    /// Device memory held.
    #[serde(rename = "reserved_bytes")]
    pub reserved: Bytes,
}

/// The result of a job under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The maximum memory in use and the maximum held, each at any time.
    pub peak: Level,
    /// The step at which the held memory first reached its maximum; `None` for the start.
    pub peak_step: Option<usize>,
    /// The memory in use when the held memory first reached its maximum.
    #[serde(rename = "in_use_at_peak_bytes")]
    pub in_use_at_peak: Bytes,
    /// Where the job ran out of memory.
    pub stop: Option<Stop>,
    /// The number of steps done.
    pub steps: usize,
    /// The number of requests that failed in the recording and were granted.
    pub failures_avoided: usize,
}

impl Outcome {
    /// Returns whether the job reached the end of its recording.
    pub fn survived(&self) -> bool {
        self.stop.is_none()
    }

    /// Returns the maximum held memory minus the maximum memory in use.
    pub fn wasted(&self) -> Bytes {
        self.peak.reserved.saturating_sub(self.peak.in_use)
    }

    fn rise<P: Policy + ?Sized>(&mut self, policy: &P, step: Option<usize>) -> Level {
        let now = Level { in_use: policy.in_use(), reserved: policy.reserved() };
        self.peak.in_use = self.peak.in_use.max(now.in_use);
        if now.reserved > self.peak.reserved {
            (self.peak.reserved, self.peak_step) = (now.reserved, step);
            self.in_use_at_peak = now.in_use;
        }
        now
    }
}

/// Where a job ran out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// The step, counted from 0; `None` if even the initial memory did not fit.
    pub step: Option<usize>,
    /// The state at that point.
    pub shortage: Shortage,
}

/// The current memory of a slot.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Vacant,
    Live(Allocation),
    Retired(Retired),
}

/// A replay of a job under a policy.
#[derive(Debug)]
pub struct Replay<'a> {
    workload: &'a Workload,
    slots: Vec<Slot>,
    /// The private pool that currently serves the requests.
    pool: (u64, u64),
    /// The number of slots with memory that the job has freed and that work still uses.
    retired: usize,
    /// The maximum number of steps to do.
    until: usize,
}

impl<'a> Replay<'a> {
    /// Creates a replay in which the job has no memory at its start.
    pub fn new(workload: &'a Workload) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(workload.slots as usize, Slot::default);
        Replay { workload, slots, pool: (0, 0), retired: 0, until: workload.steps.len() }
    }

    /// Creates a replay that ends after this many steps.
    pub(crate) fn until(workload: &'a Workload, until: usize) -> Self {
        Replay { until, ..Replay::new(workload) }
    }

    /// Provides memory that the job has at its start.
    pub fn hold(&mut self, slot: u32, allocation: Allocation) {
        self.slots[slot as usize] = Slot::Live(allocation);
    }

    /// Provides memory that the job had freed before its start but that work still uses.
    pub fn hold_retired(&mut self, slot: u32, retired: Retired) {
        self.retired += 1;
        self.slots[slot as usize] = Slot::Retired(retired);
    }

    /// Runs the job until the end of its recording, or until it runs out of memory. Initial memory
    /// that was not [provided](Replay::hold) is first allocated from the policy, by address.
    ///
    /// # Errors
    /// If the device fails for a reason other than a lack of memory.
    pub fn run<P: Policy + ?Sized>(
        mut self,
        policy: &mut P,
        observer: &mut impl Observer,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            peak: Level::default(),
            peak_step: None,
            in_use_at_peak: Bytes(0),
            stop: None,
            steps: 0,
            failures_avoided: 0,
        };
        if let Err(failure) = self.begin(policy, observer) {
            outcome.stop = Some(Stop { step: None, shortage: shortage(failure)? });
            return Ok(outcome);
        }
        for (index, &held) in self.workload.held.iter().enumerate() {
            match &self.slots[held.slot as usize] {
                Slot::Live(given) => observer.begun(index, held, given),
                Slot::Retired(retired) => observer.begun(index, held, retired.allocation()),
                Slot::Vacant => {}
            }
        }
        outcome.rise(policy, None);
        for (number, &step) in self.workload.steps.iter().enumerate().take(self.until) {
            observer.before(number, step);
            let mut done = self.step(policy, step);
            while let Err(Failure::OutOfMemory(_)) = done
                && observer.refused(Some(number), self.retired > 0)
            {
                done = self.step(policy, step);
            }
            match done {
                Ok(granted) => outcome.failures_avoided += usize::from(granted),
                Err(failure) => {
                    outcome.stop = Some(Stop { step: Some(number), shortage: shortage(failure)? });
                    break;
                }
            }
            outcome.steps += 1;
            let now = outcome.rise(policy, Some(number));
            let given = match self.slots.get(step.slot as usize) {
                Some(Slot::Live(allocation)) if step.kind == StepKind::Allocate => Some(allocation),
                _ => None,
            };
            observer.after(number, step, given, now);
        }
        Ok(outcome)
    }

    fn begin<P: Policy + ?Sized>(
        &mut self,
        policy: &mut P,
        observer: &mut impl Observer,
    ) -> Result<(), Failure> {
        for held in &self.workload.held {
            if !matches!(self.slots[held.slot as usize], Slot::Vacant) {
                continue;
            }
            observer.before_held(*held);
            let mut allocation = self.allocate(policy, held.stream, held.size);
            while let Err(Failure::OutOfMemory(_)) = allocation
                && observer.refused(None, self.retired > 0)
            {
                allocation = self.allocate(policy, held.stream, held.size);
            }
            self.slots[held.slot as usize] = if held.retired {
                self.retired += 1;
                Slot::Retired(policy.retire(allocation?)?)
            } else {
                Slot::Live(allocation?)
            };
        }
        Ok(())
    }

    /// Does a step; returns whether it granted a request that failed in the recording.
    fn step<P: Policy + ?Sized>(&mut self, policy: &mut P, step: Step) -> Result<bool, Failure> {
        let slot = step.slot as usize;
        match step.kind {
            StepKind::Allocate => {
                self.slots[slot] = Slot::Live(self.allocate(policy, step.stream, step.size)?);
            }
            StepKind::Free => {
                if let Slot::Live(allocation) = std::mem::take(&mut self.slots[slot]) {
                    policy.free(allocation)?;
                }
            }
            StepKind::Retire => {
                if let Slot::Live(allocation) = std::mem::take(&mut self.slots[slot]) {
                    self.retired += 1;
                    self.slots[slot] = Slot::Retired(policy.retire(allocation)?);
                }
            }
            StepKind::Complete => {
                if let Slot::Retired(retired) = std::mem::take(&mut self.slots[slot]) {
                    self.retired -= 1;
                    policy.complete(retired)?;
                }
            }
            StepKind::EmptyCache => {
                // No capture was in progress, since otherwise the cache would not have been
                // emptied.
                self.draw_from(policy, (0, 0));
                policy.empty_cache()?;
            }
            StepKind::Fail => {
                match self.allocate(policy, step.stream, step.size) {
                    // The program did not get this memory in the recording, so it does not use it.
                    Ok(allocation) => {
                        policy.free(allocation)?;
                        return Ok(true);
                    }
                    Err(Failure::OutOfMemory(_)) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(false)
    }

    /// Allocates from the recorded pool of the request.
    fn allocate<P: Policy + ?Sized>(
        &mut self,
        policy: &mut P,
        stream: u16,
        size: u64,
    ) -> Result<Allocation, Failure> {
        let stream = usize::from(stream);
        self.draw_from(policy, self.workload.pools[stream]);
        policy.allocate(Bytes(size), self.workload.streams[stream])
    }

    fn draw_from<P: Policy + ?Sized>(&mut self, policy: &mut P, pool: (u64, u64)) {
        if pool != self.pool {
            policy.draw_from(pool);
            self.pool = pool;
        }
    }
}

fn shortage(failure: Failure) -> Result<Shortage, Error> {
    match failure {
        Failure::OutOfMemory(shortage) => Ok(*shortage),
        Failure::Device(error) => Err(error),
        foreign @ Failure::Foreign { .. } => {
            Err(Error::new(ErrorKind::Invalid, foreign.to_string()))
        }
    }
}
