//! A device that responds as recorded.

use crate::pages::{MappedPages, owner_of};
use crate::trace::{Action, DeviceTrace, Event, SegmentKind};
use crate::unmatched::Unmatched;
use crate::workload::{StepKind, Workload};
use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result,
};
use serde::Serialize;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The address of the first region without a recorded event.
const ELSEWHERE: u64 = 1 << 60;

/// How many recorded decisions of one kind were predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// The number of predicted decisions.
    pub predicted: usize,
    /// The number of all decisions.
    pub of: usize,
}

impl Tally {
    /// Returns whether all were predicted.
    pub fn is_complete(self) -> bool {
        self.predicted == self.of
    }

    pub(crate) fn count(&mut self, is_predicted: bool) {
        self.of += 1;
        self.predicted += usize::from(is_predicted);
    }
}

/// The first decision of a policy that differs from the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The event of the recording, counted from 0.
    pub event: usize,
    /// Describes the decision and the recorded one.
    pub what: String,
}

/// The memory of a recorded device. Clones share one device.
#[derive(Clone, Debug)]
pub(crate) struct RecordedMemory {
    total: Bytes,
    tape: Arc<Mutex<Tape>>,
}

#[derive(Debug)]
struct Tape {
    /// The recorded events of regions and pages, in order.
    events: Vec<(usize, Event)>,
    /// The range of these events for each step.
    windows: Vec<Range<usize>>,
    /// The recorded pages.
    pages: MappedPages,
    /// The events of the current step that the policy has not matched yet.
    left: Unmatched,
    /// The event of the current step, and whether it failed.
    step: usize,
    fails: bool,
    /// The stream and kind of the current request.
    asks: (u64, SegmentKind),
    /// The start of the events of later steps.
    window_end: usize,
    /// The address ranges that are held.
    ranges: Vec<Region>,
    /// The address of the next region without a recorded event.
    elsewhere: u64,
    found: Found,
}

/// The results of all comparisons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Regions and pages taken.
    pub(crate) taken: Tally,
    /// Regions and pages freed.
    pub(crate) given_back: Tally,
    /// Decisions of the policy without a recorded event.
    pub(crate) unrecorded: usize,
    pub(crate) first: Option<Divergence>,
}

impl RecordedMemory {
    pub(crate) fn new(trace: &DeviceTrace, workload: &Workload) -> Self {
        let of_device = |event: &Event| event.action.takes() || event.action.gives_back();
        let events: Vec<_> = trace
            .events
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, event)| of_device(event))
            .collect();
        let mut windows = Vec::with_capacity(workload.steps.len());
        let mut from = 0;
        for (step, &event) in workload.steps.iter().zip(&workload.events) {
            let mut to = events.partition_point(|(number, _)| *number < event as usize);
            if step.kind == StepKind::EmptyCache {
                let row = events[to..].iter().enumerate();
                to += row
                    .take_while(|(i, (number, event_))| {
                        *number == event as usize + i && event_.action.gives_back()
                    })
                    .count();
            }
            windows.push(from.min(to)..to);
            from = to;
        }
        let tape = Tape {
            events,
            windows,
            pages: MappedPages::of(trace.events.iter()),
            left: Unmatched::default(),
            step: 0,
            fails: false,
            asks: (0, SegmentKind::Large),
            window_end: 0,
            ranges: Vec::new(),
            elsewhere: ELSEWHERE,
            found: Found::default(),
        };
        RecordedMemory {
            total: trace.total.unwrap_or(Bytes(ELSEWHERE)),
            tape: Arc::new(Mutex::new(tape)),
        }
    }

    /// Adds an address range that was held when the recording began.
    pub(crate) fn hold_range(&self, range: Region) {
        self.lock().ranges.push(range);
    }

    /// Advances to the recorded events of a step.
    pub(crate) fn turn_to(&self, workload: &Workload, number: usize) {
        let mut tape = self.lock();
        tape.step = workload.events[number] as usize;
        tape.fails = workload.steps[number].kind == StepKind::Fail;
        let step = workload.steps[number];
        let kind = if step.size <= 1 << 20 { SegmentKind::Small } else { SegmentKind::Large };
        tape.asks = (workload.streams[usize::from(step.stream)].0, kind);
        let window = tape.windows[number].clone();
        tape.window_end = window.end;
        let tape = &mut *tape;
        tape.left.add(&tape.events[window]);
    }

    /// Counts the recorded events of a step that the policy did not match.
    pub(crate) fn leave(&self) {
        let mut tape = self.lock();
        while let Some((number, event)) = tape.left.pop() {
            let what = if event.action.takes() { "taken" } else { "released" };
            tape.differ(number, || {
                format!(
                    "the recording has {} bytes {what} at {:#x}; the replay does not",
                    event.size, event.address
                )
            });
            let tally = if event.action.takes() {
                &mut tape.found.taken
            } else {
                &mut tape.found.given_back
            };
            tally.count(false);
        }
    }

    pub(crate) fn found(&self) -> Found {
        self.lock().found.clone()
    }

    /// Records a divergence that does not concern regions.
    pub(crate) fn differ(&self, event: usize, what: impl FnOnce() -> String) {
        self.lock().differ(event, what);
    }

    fn lock(&self) -> MutexGuard<'_, Tape> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tape {
    /// Returns the address range in which the recording first maps pages, from the current step on,
    /// that belong to no held range. It ends where the recording maps pages of another kind.
    fn next_range(&self) -> Option<Region> {
        let later = &self.events[self.window_end.min(self.events.len())..];
        let is_held = |address: u64| {
            let inside =
                |range: &Region| address >= range.address && address - range.address < range.size.0;
            self.ranges.iter().any(inside)
        };
        let is_new = |event: &&Event| {
            event.action == Action::SegmentMap
                && owner_of(event) == self.asks
                && !is_held(event.address)
        };
        let first = self.left.iter().chain(later).map(|(_, event)| event).find(is_new)?;
        let after = first.address.saturating_add(1);
        let end = self.pages.other_from(after, owner_of(first)).unwrap_or(u64::MAX);
        Some(Region { address: first.address, size: Bytes(end - first.address) })
    }

    fn differ(&mut self, event: usize, what: impl FnOnce() -> String) {
        self.found.first.get_or_insert_with(|| Divergence { event, what: what() });
    }

    fn reserve_elsewhere(&mut self, size: u64) -> Result<Region> {
        let address = self.elsewhere;
        let end = size.checked_next_multiple_of(2 << 20).and_then(|size| address.checked_add(size));
        self.elsewhere = end.ok_or_else(|| refused(size))?;
        Ok(Region { address, size: Bytes(size) })
    }

    fn undecided(&mut self, what: impl FnOnce() -> String) {
        self.found.unrecorded += 1;
        let step = self.step;
        self.differ(step, || format!("{}, which is not in the recording", what()));
    }

    /// Takes the requested region if it is the next recorded event; of pages, only the requested
    /// ones. `None` if the next event differs.
    fn take(&mut self, action: Action, size: u64, at: Option<u64>) -> Result<Option<u64>> {
        let same = |event: &Event| {
            event.action == action && event.size == size && at.is_none_or(|at| event.address == at)
        };
        match self.left.first() {
            // If the recording continues by freeing regions, the device refuses.
            Some((_, event)) if event.action.gives_back() => Err(refused(size)),
            None if self.fails => Err(refused(size)),
            Some((_, event)) if same(&event) => {
                self.left.pop();
                self.found.taken.count(true);
                Ok(Some(event.address))
            }
            _ => {
                self.undecided(|| match at {
                    Some(at) => format!("{size} bytes are mapped at {at:#x}"),
                    None => format!("{size} bytes are taken from the device"),
                });
                Ok(None)
            }
        }
    }

    /// Removes the start of a recorded event that covers several pages.
    fn take_off(&mut self, action: Action, part: Region) -> bool {
        let is_longer = |event: &Event| event.size > part.size.0;
        let Some(index) = self.left.find(action, part.address, is_longer) else { return false };
        self.left.shorten(index, part.size.0);
        true
    }

    fn give_back(&mut self, action: Action, region: Region) {
        let is_same = |event: &Event| event.size == region.size.0;
        match self.left.find(action, region.address, is_same) {
            Some(index) => {
                self.left.remove(index);
                self.found.given_back.count(true);
            }
            None => self.undecided(|| {
                format!("{} bytes at {:#x} are returned", region.size.0, region.address)
            }),
        }
    }
}

fn refused(size: u64) -> Error {
    Error::new(DeviceFault::OutOfMemory, format!("reserve {size} bytes"))
}

impl DeviceMemory for RecordedMemory {
    fn info(&self) -> Result<MemoryInfo> {
        let unknown = Err(Absent::NotSupported);
        Ok(MemoryInfo { total: Ok(self.total), used: unknown, reserved: unknown })
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let mut tape = self.lock();
        match tape.take(Action::SegmentAlloc, size.0, None)? {
            Some(address) => Ok(Region { address, size }),
            None => tape.reserve_elsewhere(size.0),
        }
    }

    fn release(&self, region: Region) -> Result<()> {
        self.lock().give_back(Action::SegmentFree, region);
        Ok(())
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        let mut tape = self.lock();
        let range = match tape.next_range() {
            Some(range) => range,
            None => tape.reserve_elsewhere(size.0)?,
        };
        tape.ranges.push(range);
        Ok(Region { address: range.address, size })
    }

    fn map(&self, part: Region) -> Result<()> {
        let mut tape = self.lock();
        let next = tape.left.first().map(|(_, event)| event.action);
        if next == Some(Action::SegmentMap) && tape.take_off(Action::SegmentMap, part) {
            return Ok(());
        }
        tape.take(Action::SegmentMap, part.size.0, Some(part.address)).map(drop)
    }

    fn unmap(&self, part: Region) -> Result<()> {
        let mut tape = self.lock();
        if !tape.take_off(Action::SegmentUnmap, part) {
            tape.give_back(Action::SegmentUnmap, part);
        }
        Ok(())
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.lock().ranges.retain(|held| held.address != range.address);
        Ok(())
    }

    fn page(&self) -> Result<Bytes> {
        Ok(Bytes(2 << 20))
    }
}

/// Returns an error for a recording that cannot be compared at all.
pub(crate) fn incomparable(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("compare the replay with the recording: {what}"))
}
