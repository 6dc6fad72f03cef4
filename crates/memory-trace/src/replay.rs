//! A job run under a policy.

use crate::workload::{Held, Step, StepKind, Workload};
use gpu_allocator_policy::{Allocation, Failure, Policy, Retired, Shortage};
use gpu_core::{Bytes, Error, ErrorKind};
use serde::Serialize;

/// Watches a replay.
pub trait Witness {
    /// Is told of memory that the job has at its start, before the first step.
    fn begun(&mut self, _place: usize, _held: Held, _given: &Allocation) {}

    /// Is told of a step before it is done.
    fn before(&mut self, _number: usize, _step: Step) {}

    /// Is told of a step that was done, with the memory that it gave and what the policy now has
    /// handed out and holds.
    fn after(&mut self, _number: usize, _step: Step, _given: Option<&Allocation>, _now: Level) {}
}

/// Watches nothing.
impl Witness for () {}

/// How much memory a policy has handed out and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Handed out, rounded as the policy does.
    #[serde(rename = "in_use_bytes")]
    pub in_use: Bytes,
    /// Held of the device.
    #[serde(rename = "reserved_bytes")]
    pub reserved: Bytes,
}

/// How a job fared under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The most that was handed out, and the most that was held, at any time.
    pub peak: Level,
    /// The step at which what was held first was most; `None` where that was at the start.
    pub peak_step: Option<usize>,
    /// What was handed out when what was held first was most.
    #[serde(rename = "in_use_at_peak_bytes")]
    pub in_use_at_peak: Bytes,
    /// Where memory did not suffice and the job ended.
    pub stop: Option<Stop>,
    /// How many steps were done.
    pub steps: usize,
    /// How many requests that failed in the recording were granted.
    pub failures_avoided: usize,
}

impl Outcome {
    /// Returns whether the job came to the end of its recording.
    pub fn survived(&self) -> bool {
        self.stop.is_none()
    }

    /// Returns what was held at most beyond what was handed out at most.
    pub fn wasted(&self) -> Bytes {
        self.peak.reserved.saturating_sub(self.peak.in_use)
    }
}

/// Where a job ended for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// The step, counted from 0; `None` where not even what the job had at its start found room.
    pub step: Option<usize>,
    /// What there was then.
    pub shortage: Shortage,
}

/// What the memory of a slot is at present.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Vacant,
    Live(Allocation),
    Retired(Retired),
}

/// A job that is run under a policy.
#[derive(Debug)]
pub struct Replay<'a> {
    workload: &'a Workload,
    slots: Vec<Slot>,
    /// The private pool from which the policy takes what is asked for.
    pool: (u64, u64),
    /// How many steps are done at most.
    until: usize,
}

impl<'a> Replay<'a> {
    /// Makes a replay at whose start the job has nothing yet.
    pub fn new(workload: &'a Workload) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(workload.slots as usize, Slot::default);
        Replay { workload, slots, pool: (0, 0), until: workload.steps.len() }
    }

    /// Makes a replay that ends after so many steps.
    pub(crate) fn until(workload: &'a Workload, until: usize) -> Self {
        Replay { until, ..Replay::new(workload) }
    }

    /// Gives the job memory that it had at its start.
    pub fn hold(&mut self, slot: u32, allocation: Allocation) {
        self.slots[slot as usize] = Slot::Live(allocation);
    }

    /// Gives the job memory that it had given back before its start and that work still uses.
    pub fn hold_retired(&mut self, slot: u32, retired: Retired) {
        self.slots[slot as usize] = Slot::Retired(retired);
    }

    /// Runs the job from its start to the end of its recording, or to where memory does not
    /// suffice. What the job had at its start and was not [given](Replay::hold) is asked of the
    /// policy first, by address.
    ///
    /// # Errors
    /// When the device fails otherwise than for lack of memory.
    pub fn run<P: Policy + ?Sized>(
        mut self,
        policy: &mut P,
        witness: &mut impl Witness,
    ) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            peak: Level::default(),
            peak_step: None,
            in_use_at_peak: Bytes(0),
            stop: None,
            steps: 0,
            failures_avoided: 0,
        };
        if let Err(failure) = self.begin(policy) {
            outcome.stop = Some(Stop { step: None, shortage: shortage(failure)? });
            return Ok(outcome);
        }
        for (place, &held) in self.workload.held.iter().enumerate() {
            match &self.slots[held.slot as usize] {
                Slot::Live(given) => witness.begun(place, held, given),
                Slot::Retired(retired) => witness.begun(place, held, retired.allocation()),
                Slot::Vacant => {}
            }
        }
        outcome.rise(policy, None);
        for (number, &step) in self.workload.steps.iter().enumerate().take(self.until) {
            witness.before(number, step);
            match self.step(policy, step) {
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
            witness.after(number, step, given, now);
        }
        Ok(outcome)
    }

    fn begin<P: Policy + ?Sized>(&mut self, policy: &mut P) -> Result<(), Failure> {
        for held in &self.workload.held {
            let slot = &mut self.slots[held.slot as usize];
            if !matches!(slot, Slot::Vacant) {
                continue;
            }
            let stream = self.workload.streams[usize::from(held.stream)];
            draw_from(policy, &mut self.pool, self.workload, held.stream);
            let allocation = policy.allocate(Bytes(held.size), stream)?;
            *slot = match held.retired {
                true => Slot::Retired(policy.retire(allocation)?),
                false => Slot::Live(allocation),
            };
        }
        Ok(())
    }

    /// Does a step; tells whether it granted what failed in the recording.
    fn step<P: Policy + ?Sized>(&mut self, policy: &mut P, step: Step) -> Result<bool, Failure> {
        let slot = step.slot as usize;
        match step.kind {
            StepKind::Allocate => {
                let stream = self.workload.streams[usize::from(step.stream)];
                draw_from(policy, &mut self.pool, self.workload, step.stream);
                self.slots[slot] = Slot::Live(policy.allocate(Bytes(step.size), stream)?);
            }
            StepKind::Free => {
                if let Slot::Live(allocation) = std::mem::take(&mut self.slots[slot]) {
                    policy.free(allocation)?;
                }
            }
            StepKind::Retire => {
                if let Slot::Live(allocation) = std::mem::take(&mut self.slots[slot]) {
                    self.slots[slot] = Slot::Retired(policy.retire(allocation)?);
                }
            }
            StepKind::Complete => {
                if let Slot::Retired(retired) = std::mem::take(&mut self.slots[slot]) {
                    policy.complete(retired)?;
                }
            }
            StepKind::EmptyCache => {
                // No capture was under way, or the cache would not have been emptied.
                switch(policy, &mut self.pool, (0, 0));
                policy.empty_cache()?;
            }
            StepKind::Fail => {
                let stream = self.workload.streams[usize::from(step.stream)];
                draw_from(policy, &mut self.pool, self.workload, step.stream);
                match policy.allocate(Bytes(step.size), stream) {
                    // What the program did not get, it did not use.
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
}

/// Has a policy take what is asked for next from the pool that it was taken from.
fn draw_from<P: Policy + ?Sized>(
    policy: &mut P,
    now: &mut (u64, u64),
    workload: &Workload,
    stream: u16,
) {
    switch(policy, now, workload.pools[usize::from(stream)]);
}

fn switch<P: Policy + ?Sized>(policy: &mut P, now: &mut (u64, u64), pool: (u64, u64)) {
    if pool != *now {
        policy.draw_from(pool);
        *now = pool;
    }
}

impl Outcome {
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

fn shortage(failure: Failure) -> Result<Shortage, Error> {
    match failure {
        Failure::OutOfMemory(shortage) => Ok(*shortage),
        Failure::Device(error) => Err(error),
        foreign @ Failure::Foreign { .. } => {
            Err(Error::new(ErrorKind::Invalid, foreign.to_string()))
        }
    }
}
