//! A job's requests, independent of the allocator.

use crate::initial_state::{Contradiction, Start, start};
use crate::private_pools::Private;
use crate::trace::{Action, DeviceTrace, Stacks};
use gpu_allocator_policy::{BlockState, Stream};
use gpu_core::Bytes;
use std::collections::HashMap;

/// The maximum number of streams of a job, counted per pool. Allocators keep free blocks for each
/// stream; PyTorch's own stream pools have 96.
const MAX_STREAMS: usize = 1 << 10;

/// An action of a job, or an action of its allocator that the recording shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The size; for an allocation, the requested size.
    pub size: u64,
    /// The slot of the memory; 0 if there is none.
    pub slot: u32,
    /// The index of an allocation's stream in [`Workload::streams`].
    pub stream: u16,
    /// The action.
    pub kind: StepKind,
}

/// An action of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Allocates memory.
    Allocate,
    /// Frees memory that work no longer uses.
    Free,
    /// Frees memory that work on the device still uses.
    Retire,
    /// The work that used freed memory has ended.
    Complete,
    /// Empties the allocator's cache.
    EmptyCache,
    /// Requests memory that the job did not get when it was recorded.
    Fail,
}

/// An allocation that a job had when its recording began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialAllocation {
    /// Its slot.
    pub slot: u32,
    /// Its requested size.
    pub size: u64,
    /// Its address.
    pub address: u64,
    /// The index of its stream in [`Workload::streams`].
    pub stream: u16,
    /// Whether the program has freed it and only work on the device still uses it.
    pub retired: bool,
}

/// A job as a sequence of requests to an allocator.
///
/// Every allocation has an index, its slot, so that a replay needs no lookups. A slot is reused
/// after its memory is freed, so the number of slots is the maximum number of live allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The streams of the requests, by index.
    pub streams: Vec<Stream>,
    /// The private pool of each stream, such as that of a CUDA graph; (0, 0) is the common pool. A
    /// stream that uses several pools has an entry for each.
    pub pools: Vec<(u64, u64)>,
    /// The allocations that the job had when the recording began, by address.
    pub held: Vec<InitialAllocation>,
    /// Its steps after that.
    pub steps: Vec<Step>,
    /// The event of the recording for each step.
    pub events: Vec<u32>,
    /// The number of slots.
    pub slots: u32,
    /// The memory that the allocator held when the recording began.
    pub start: Start,
}

/// Why a recording cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// The end of the recording contradicts its events.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The recording exceeds a limit of the replay.
    #[error("read the recording: more than {most} {what}")]
    TooMany {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        most: u64,
    },
    /// The job frees memory that it does not have.
    #[error("replay event {event}: memory at {address:#x} is freed but not allocated")]
    NotHeld {
        /// The event, counted from 0.
        event: usize,
        /// The start address of the memory.
        address: u64,
    },
}

impl Workload {
    /// Converts a trace to the requests of its job; `stacks` are those of its recording.
    ///
    /// # Errors
    /// A [`WorkloadError`] if the recording contradicts itself or is too long.
    pub fn of(trace: &DeviceTrace, stacks: &Stacks) -> Result<Self, WorkloadError> {
        let mut reading = Reading { private: Private::of(trace), ..Reading::default() };
        let start = start(trace)?;
        let pieces = start
            .segments
            .iter()
            .flat_map(|segment| segment.blocks.iter().map(move |block| (segment, block)))
            .map(|(segment, block)| (segment.stream, segment.pool, block))
            .chain(start.loose.iter().map(|block| (0, (0, 0), block)));
        for (stream, pool, block) in pieces {
            let stream = reading.stream(stream, pool)?;
            reading.hold(
                stream,
                block.address,
                block.requested.unwrap_or(block.size),
                block.state,
            )?;
        }
        reading.workload.held.sort_unstable_by_key(|held| held.address);
        reading.workload.start = start;
        for number in 0..trace.events.len() {
            reading.read(trace, stacks, number)?;
        }
        Ok(reading.workload)
    }

    /// Returns the maximum memory in use, as requested: no allocator can run the job with less.
    /// Freed memory that work on the device still uses does not count, because an allocator may
    /// wait for that work.
    pub fn peak_requested(&self) -> u64 {
        let mut sizes = vec![0; self.slots as usize];
        let mut now = 0u64;
        for held in self.held.iter().filter(|held| !held.retired) {
            sizes[held.slot as usize] = held.size;
            now = now.saturating_add(held.size);
        }
        let mut most = now;
        for step in &self.steps {
            let slot = step.slot as usize;
            match step.kind {
                StepKind::Allocate => {
                    sizes[slot] = step.size;
                    now = now.saturating_add(step.size);
                    most = most.max(now);
                }
                StepKind::Free | StepKind::Retire => {
                    now = now.saturating_sub(std::mem::take(&mut sizes[slot]));
                }
                StepKind::Complete | StepKind::EmptyCache | StepKind::Fail => {}
            }
        }
        most
    }

    /// Returns the job as it would run with sufficient memory, and the size of the failed request
    /// with which the recording ended.
    ///
    /// A failed request is omitted if the program continued without it. If it was the last request,
    /// the program ended there, so it is granted.
    pub fn granted(&self) -> (Self, Option<Bytes>) {
        let mut granted = Workload { steps: Vec::new(), events: Vec::new(), ..self.clone() };
        let last = self
            .steps
            .iter()
            .rposition(|step| matches!(step.kind, StepKind::Allocate | StepKind::Fail));
        let ended = last.filter(|last| self.steps[*last].kind == StepKind::Fail);
        for (number, (step, event)) in self.steps.iter().zip(&self.events).enumerate() {
            let mut step = *step;
            if Some(number) == ended {
                (step.kind, step.slot) = (StepKind::Allocate, granted.slots);
                granted.slots = granted.slots.saturating_add(1);
            }
            if step.kind != StepKind::Fail {
                granted.steps.push(step);
                granted.events.push(*event);
            }
        }
        (granted, ended.map(|ended| Bytes(self.steps[ended].size)))
    }
}

#[derive(Default)]
struct Reading {
    workload: Workload,
    vacant: Vec<u32>,
    /// The slots of memory that became free while the current request waited for all work.
    found_waiting: Vec<u32>,
    /// The end of the current sequence of completions, and whether the allocator found them while
    /// waiting for work.
    ended: (usize, bool),
    streams: HashMap<(u64, (u64, u64)), u16>,
    private: Private,
    /// The current slot of the memory at an address.
    slots: HashMap<u64, u32>,
    /// The slots of freed memory that work on the device still uses.
    retired: HashMap<u64, u32>,
}

impl Reading {
    fn stream(&mut self, stream: u64, pool: (u64, u64)) -> Result<u16, WorkloadError> {
        let next = self.streams.len();
        if next == MAX_STREAMS && !self.streams.contains_key(&(stream, pool)) {
            let most = MAX_STREAMS as u64;
            return Err(WorkloadError::TooMany { what: "streams", most });
        }
        Ok(*self.streams.entry((stream, pool)).or_insert_with(|| {
            self.workload.streams.push(Stream(stream));
            self.workload.pools.push(pool);
            next as u16
        }))
    }

    fn slot(&mut self) -> Result<u32, WorkloadError> {
        if let Some(slot) = self.vacant.pop() {
            return Ok(slot);
        }
        let slot = self.workload.slots;
        self.workload.slots = slot
            .checked_add(1)
            .ok_or(WorkloadError::TooMany { what: "allocations", most: u64::from(u32::MAX) })?;
        Ok(slot)
    }

    fn hold(
        &mut self,
        stream: u16,
        address: u64,
        size: u64,
        state: BlockState,
    ) -> Result<(), WorkloadError> {
        let slot = self.slot()?;
        let retired = state == BlockState::AwaitingFree;
        let slots = if retired { &mut self.retired } else { &mut self.slots };
        slots.insert(address, slot);
        self.workload.held.push(InitialAllocation { slot, size, address, stream, retired });
        Ok(())
    }

    fn read(
        &mut self,
        trace: &DeviceTrace,
        stacks: &Stacks,
        number: usize,
    ) -> Result<(), WorkloadError> {
        let event = trace.events[number];
        let (address, size) = (event.address, event.size);
        let not_held = WorkloadError::NotHeld { event: number, address };
        let pool = match event.action {
            Action::Alloc => self.private.pool(address, number),
            _ => (0, 0),
        };
        let stream = self.stream(event.stream, pool)?;
        let (kind, slot) = match event.action {
            Action::Alloc => {
                let slot = self.slot()?;
                self.slots.insert(address, slot);
                (StepKind::Allocate, slot)
            }
            Action::FreeRequested => {
                let slot = self.slots.remove(&address).ok_or(not_held)?;
                // Usually one directly follows the other.
                if is_completed_next(trace, number) {
                    self.retired.insert(address, u32::MAX);
                    (StepKind::Free, slot)
                } else {
                    self.retired.insert(address, slot);
                    (StepKind::Retire, slot)
                }
            }
            Action::FreeCompleted => match self.retired.remove(&address) {
                Some(u32::MAX) => return Ok(()),
                Some(slot) => {
                    if number >= self.ended.0 {
                        self.ended = row_of_ended_uses(trace, stacks, number);
                    }
                    if self.ended.1 {
                        self.found_waiting.push(slot);
                        return Ok(());
                    }
                    (StepKind::Complete, slot)
                }
                // Formats without a first event complete a free at once.
                None => (StepKind::Free, self.slots.remove(&address).ok_or(not_held)?),
            },
            Action::OutOfMemory => (StepKind::Fail, 0),
            action if action.gives_back() && is_emptied_by_hand(trace, stacks, number) => {
                (StepKind::EmptyCache, 0)
            }
            _ => return Ok(()),
        };
        let event = u32::try_from(number)
            .map_err(|_| WorkloadError::TooMany { what: "events", most: u64::from(u32::MAX) })?;
        self.push(Step { size, slot, stream, kind }, event);
        if matches!(kind, StepKind::Allocate | StepKind::Fail) {
            for slot in std::mem::take(&mut self.found_waiting) {
                self.push(Step { size: 0, slot, stream, kind: StepKind::Complete }, event);
            }
        }
        Ok(())
    }

    fn push(&mut self, step: Step, event: u32) {
        if matches!(step.kind, StepKind::Free | StepKind::Complete) {
            self.vacant.push(step.slot);
        }
        self.workload.steps.push(step);
        self.workload.events.push(event);
    }
}

fn is_completed_next(trace: &DeviceTrace, number: usize) -> bool {
    trace.events.get(number + 1).is_some_and(|next| {
        next.action == Action::FreeCompleted && next.address == trace.events[number].address
    })
}

/// Returns the end of a sequence of completions, and whether the allocator found them when it
/// waited for all work because the device had refused a request. Memory found free then is too late
/// for that request, so it counts as found afterwards.
fn row_of_ended_uses(trace: &DeviceTrace, stacks: &Stacks, number: usize) -> (usize, bool) {
    let row = trace.events[number..].iter();
    let after = number + row.take_while(|event| event.action == Action::FreeCompleted).count();
    let found_waiting = trace.events.get(after).is_some_and(|event| match event.action {
        Action::OutOfMemory => true,
        Action::SegmentFree | Action::SegmentUnmap => !is_emptied_by_hand(trace, stacks, after),
        _ => false,
    });
    (after, found_waiting)
}

/// Returns whether the event starts a sequence in which the program emptied the cache.
///
/// The stack of the event shows this. Without a stack, the next request shows it: an allocator that
/// frees regions because the device refused then asks the device again, and gets memory or fails. A
/// sequence without that request was started by the program.
fn is_emptied_by_hand(trace: &DeviceTrace, stacks: &Stacks, number: usize) -> bool {
    let before = number.checked_sub(1).map(|before| trace.events[before].action);
    if before.is_some_and(|action| action.gives_back() || action.takes()) {
        return false;
    }
    if let Some(stack) = trace.event_stacks.get(number).copied().flatten() {
        let empties = |name: &str| name.contains("empty_cache") || name.contains("emptyCache");
        return stacks.frames(stack).any(|frame| empties(&frame.function));
    }
    let after = trace.events[number..].iter().find(|event| !event.action.gives_back());
    !after.is_some_and(|event| event.action.takes() || event.action == Action::OutOfMemory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, RecordedBlock, Segment};

    fn trace(events: &[(Action, u64, u64)]) -> DeviceTrace {
        let events = events
            .iter()
            .map(|&(action, address, size)| Event { action, address, size, stream: 7, time_us: 0 })
            .collect();
        DeviceTrace { events, ..DeviceTrace::default() }
    }

    fn of(trace: &DeviceTrace) -> Result<Workload, WorkloadError> {
        Workload::of(trace, &Stacks::default())
    }

    fn kinds(workload: &Workload) -> Vec<(StepKind, u32)> {
        workload.steps.iter().map(|step| (step.kind, step.slot)).collect()
    }

    #[test]
    fn allocations_are_numbered_across_address_reuse() {
        use Action::*;
        let workload = of(&trace(&[
            (Alloc, 0, 10),
            (FreeRequested, 0, 10),
            (FreeCompleted, 0, 10),
            (Alloc, 0, 20),
            (FreeRequested, 0, 20),
            (Alloc, 512, 30),
            (FreeCompleted, 0, 20),
        ]))
        .expect("it is consistent");
        let (allocate, free) = (StepKind::Allocate, StepKind::Free);
        let (retire, complete) = (StepKind::Retire, StepKind::Complete);
        assert_eq!(
            kinds(&workload),
            [(allocate, 0), (free, 0), (allocate, 0), (retire, 0), (allocate, 1), (complete, 0)]
        );
        assert_eq!((workload.streams.len(), workload.peak_requested()), (1, 30));
        assert_eq!(workload.events, [0, 1, 3, 4, 5, 6]);
    }

    #[test]
    fn initial_allocations_are_numbered() {
        let held = |address, requested, state| RecordedBlock {
            address,
            size: 512,
            requested: Some(requested),
            state,
        };
        let blocks = vec![
            held(0, 5, BlockState::Active),
            held(512, 0, BlockState::Free),
            held(1024, 6, BlockState::AwaitingFree),
        ];
        let segment = Segment { size: 2 << 20, blocks, stream: 3, ..Segment::default() };
        let mut trace = trace(&[(Action::FreeCompleted, 2048, 9)]);
        trace.segments = Some(vec![segment]);
        let workload = of(&trace).expect("it is consistent");
        let held: Vec<_> =
            workload.held.iter().map(|held| (held.address, held.size, held.retired)).collect();
        assert_eq!(held, [(0, 5, false), (1024, 6, true), (2048, 9, true)]);
        assert_eq!(kinds(&workload), [(StepKind::Complete, 2)]);
        assert_eq!(
            workload.peak_requested(),
            5,
            "memory used by work no longer belongs to the program"
        );
    }

    #[test]
    fn explicit_empty_cache_is_distinguished_from_device_oom() {
        use Action::*;
        let by_hand = [(SegmentFree, 0, 9), (SegmentFree, 9, 9), (Alloc, 64, 1)];
        let refused = [(SegmentFree, 0, 9), (SegmentAlloc, 9, 9), (Alloc, 64, 1)];
        let failed = [(SegmentFree, 0, 9), (OutOfMemory, 0, 9)];
        let emptied = |events: &[_]| {
            let workload = of(&trace(events)).expect("it is consistent");
            workload.steps.iter().filter(|step| step.kind == StepKind::EmptyCache).count()
        };
        assert_eq!((emptied(&by_hand), emptied(&refused), emptied(&failed)), (1, 0, 0));
        assert_eq!(emptied(&by_hand[..2]), 1);
    }

    #[test]
    fn free_completed_during_wait_does_not_serve_waiting_request() {
        use Action::*;
        let begun =
            [(Alloc, 0, 20), (FreeRequested, 0, 20), (Snapshot, 0, 0), (FreeCompleted, 0, 20)];
        let (fail, complete) = (StepKind::Fail, StepKind::Complete);
        let (allocate, retire) = (StepKind::Allocate, StepKind::Retire);
        let last = |more: &[(Action, u64, u64)]| {
            let workload = of(&trace(&[&begun, more].concat())).expect("it is consistent");
            assert_eq!(kinds(&workload)[..2], [(allocate, 0), (retire, 0)]);
            workload.steps[2..].iter().map(|step| step.kind).collect::<Vec<_>>()
        };
        assert_eq!(last(&[(OutOfMemory, 99, 1000)]), [fail, complete]);
        let refused = [(SegmentFree, 0, 9), (SegmentAlloc, 9, 9), (Alloc, 64, 1)];
        assert_eq!(last(&refused), [allocate, complete]);
        assert_eq!(last(&[(SegmentAlloc, 9, 9), (Alloc, 64, 1)]), [complete, allocate]);
    }

    #[test]
    fn final_oom_request_is_granted_and_earlier_ones_dropped() {
        use Action::*;
        let begun =
            [(Alloc, 0, 20), (OutOfMemory, 99, 5000), (Alloc, 64, 30), (OutOfMemory, 99, 1000)];
        let recorded = of(&trace(&[&begun[..], &[(FreeCompleted, 0, 20)]].concat()));
        let (granted, ended) = recorded.expect("it is consistent").granted();
        let (allocate, free) = (StepKind::Allocate, StepKind::Free);
        assert_eq!(kinds(&granted), [(allocate, 0), (allocate, 1), (allocate, 2), (free, 0)]);
        assert_eq!((&granted.events[..], granted.slots), (&[0, 2, 3, 4][..], 3));
        assert_eq!((granted.peak_requested(), ended), (1050, Some(Bytes(1000))));

        let (whole, ended) = of(&trace(&begun[..3])).expect("it is consistent").granted();
        assert_eq!((kinds(&whole).len(), ended), (2, None));
    }

    #[test]
    fn too_many_streams_are_rejected() {
        let mut flood = trace(&vec![(Action::Alloc, 0, 1); MAX_STREAMS + 1]);
        for (number, event) in flood.events.iter_mut().enumerate() {
            (event.stream, event.address) = (number as u64, number as u64 * 512);
        }
        let error = of(&flood).expect_err("there are too many");
        assert_eq!(error, WorkloadError::TooMany { what: "streams", most: 1024 });
        flood.events.pop();
        assert!(of(&flood).is_ok());
    }

    #[test]
    fn double_free_is_rejected() {
        use Action::*;
        let error = of(&trace(&[(FreeRequested, 8, 1), (FreeRequested, 8, 1)]))
            .expect_err("it was freed before");
        assert_eq!(error, WorkloadError::NotHeld { event: 1, address: 8 });
    }
}
