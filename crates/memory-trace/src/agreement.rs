//! A recorded job, replayed under the policy that recorded it and compared decision by decision.

use crate::initial_state::with_lengths;
use crate::pages::{MappedPages, page_of};
use crate::recorded::{Divergence, RecordedMemory, Tally, incomparable};
use crate::replay::{Level, Observer, Outcome, Replay};
use crate::trace::{DeviceTrace, Segment};
use crate::workload::{Step, StepKind, Workload};
use gpu_allocator_policy::Allocation;
use gpu_allocator_policy::caching::{AdoptError, Adopted, Caching, Settings};
use gpu_core::{Bytes, Error, Region};
use serde::Serialize;
use std::collections::HashMap;

/// The assumed size of an address range, because a recording contains only its mapped parts.
const RANGE: u64 = 1 << 40;

/// How many of PyTorch's recorded decisions the policy predicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Addresses of allocations.
    pub addresses: Tally,
    /// Regions, and pages of expandable segments, taken from the device.
    pub segments: Tally,
    /// Regions and pages freed.
    pub segments_freed: Tally,
    /// Regions and pages that the policy took or freed without a recorded event.
    pub unrecorded: usize,
    /// The first difference; later ones may follow from it.
    pub first: Option<Divergence>,
    /// The result of the replay.
    pub outcome: Outcome,
    /// How many times the device refused and the cache was emptied.
    pub retries: u64,
}

impl Agreement {
    /// Returns whether every decision was predicted.
    pub fn is_complete(&self) -> bool {
        let tallies = [self.addresses, self.segments, self.segments_freed];
        self.first.is_none()
            && self.unrecorded == 0
            && self.outcome.survived()
            && self.outcome.failures_avoided == 0
            && tallies.iter().all(|tally| tally.is_complete())
    }
}

/// Why a recording cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The regions held at the start are inconsistent.
    #[error(transparent)]
    AdoptError(#[from] AdoptError),
    /// The recording is incomplete, or the policy failed for a reason other than a lack of memory.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// Replays a job that PyTorch recorded under PyTorch's policy, on a device that returns the
/// recorded regions, and compares each decision.
///
/// # Errors
/// [`CompareError`] if the recording does not contain the held regions, or they are inconsistent.
pub fn compare(
    trace: &DeviceTrace,
    workload: &Workload,
    settings: &Settings,
) -> Result<Agreement, CompareError> {
    if trace.segments.is_none() {
        return Err(incomparable("the recording has no segment list").into());
    }
    let expandable = workload.start.segments.iter().any(|segment| segment.expandable);
    if (expandable || settings.expandable_segments())
        && settings.large_segment_size() != Settings::default().large_segment_size()
    {
        return Err(incomparable("its expandable segments have a different page size").into());
    }
    if settings.per_process_memory_fraction().is_some() && trace.total.is_none() {
        return Err(incomparable("the device total for the memory fraction is unknown").into());
    }
    let memory = RecordedMemory::new(trace, workload);
    let mut policy = Caching::new(memory.clone(), settings.clone())?;
    let mut replay = Replay::new(workload);
    adopt(&mut policy, trace, workload, &mut replay)?;
    let mut comparison =
        Comparison { trace, workload, memory: &memory, addresses: Tally::default() };
    let outcome = replay.run(&mut policy, &mut comparison)?;
    let addresses = comparison.addresses;
    let found = memory.found();
    Ok(Agreement {
        addresses,
        segments: found.taken,
        segments_freed: found.given_back,
        unrecorded: found.unrecorded,
        first: found.first,
        outcome,
        retries: policy.statistics().num_alloc_retries,
    })
}

/// Starts the policy and the job with the memory that they held when the recording began.
fn adopt(
    policy: &mut Caching<RecordedMemory>,
    trace: &DeviceTrace,
    workload: &Workload,
    replay: &mut Replay<'_>,
) -> Result<(), CompareError> {
    let slots: HashMap<u64, u32> =
        workload.held.iter().map(|held| (held.address, held.slot)).collect();
    let mut give = |adopted: Adopted| {
        for allocation in adopted.allocations {
            if let Some(&slot) = slots.get(&allocation.address()) {
                replay.hold(slot, allocation);
            }
        }
        for retired in adopted.retired {
            if let Some(&slot) = slots.get(&retired.address()) {
                replay.hold_retired(slot, retired);
            }
        }
    };
    let is_block_size =
        |segment: &Segment, request, size| policy.is_block_size(segment, request, size);
    let segments = with_lengths(&workload.start, trace, is_block_size);
    for segment in segments.iter().filter(|segment| !segment.expandable) {
        give(policy.adopt(segment)?);
    }
    for (range, parts) in ranges(&segments, trace) {
        give(policy.adopt_range(range, &parts)?);
        policy.memory().hold_range(range);
    }
    Ok(())
}

/// Returns the address ranges of expandable segments. A recording contains only their mapped parts:
/// each range extends from its lowest mapped pages to the next range above.
fn ranges(held: &[Segment], trace: &DeviceTrace) -> Vec<(Region, Vec<Segment>)> {
    // Consecutive parts belong to one range.
    let alike = |a: &Segment, b: &Segment| {
        let key = |segment: &Segment| (segment.stream, segment.kind, segment.pool);
        a.expandable && b.expandable && key(a) == key(b)
    };
    let groups: Vec<&[Segment]> = held.chunk_by(alike).collect();
    let end =
        |group: &[Segment]| group.last().map_or(0, |last| last.address.saturating_add(last.size));
    let pages = MappedPages::of(trace.events.iter());
    let owner = |segment: &Segment| (segment.stream, segment.kind);
    let mut starts = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        let lowest = &group[0];
        let below = number.checked_sub(1).map_or(0, |below| end(groups[below]));
        let floor = below.max(lowest.address.saturating_sub(RANGE));
        let below = floor..lowest.address;
        let first = lowest.expandable.then(|| pages.first_below(below, owner(lowest))).flatten();
        starts.push(first.unwrap_or(lowest.address));
    }
    let ranges = groups.iter().enumerate().filter(|(_, group)| group[0].expandable);
    ranges
        .map(|(number, group)| {
            let (first, end) = (starts[number], end(group));
            let other = pages.other_from(end, owner(&group[0]));
            let above = starts.get(number + 1).copied().into_iter().chain(other).min();
            let room = above.unwrap_or(u64::MAX).min(first.saturating_add(RANGE)) - first;
            let page = page_of(group[0].kind);
            let size = (room / page * page).max(end - first);
            (Region { address: first, size: Bytes(size) }, group.to_vec())
        })
        .collect()
}

struct Comparison<'a> {
    trace: &'a DeviceTrace,
    workload: &'a Workload,
    memory: &'a RecordedMemory,
    addresses: Tally,
}

impl Observer for Comparison<'_> {
    fn before(&mut self, number: usize, _step: Step) {
        self.memory.turn_to(self.workload, number);
    }

    fn after(&mut self, number: usize, step: Step, given: Option<&Allocation>, _now: Level) {
        self.memory.leave();
        if step.kind != StepKind::Allocate {
            return;
        }
        let event = self.workload.events[number] as usize;
        let recorded = self.trace.events[event].address;
        let given = given.map(Allocation::address);
        self.addresses.count(given == Some(recorded));
        if let Some(given) = given.filter(|given| *given != recorded) {
            self.memory.differ(event, || {
                format!("{} bytes allocated at {given:#x}, recorded at {recorded:#x}", step.size)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Action, Event};

    #[test]
    fn agreement_is_complete_without_any_divergence() {
        let tally = Tally { predicted: 2, of: 2 };
        let outcome = Outcome {
            peak: Level::default(),
            peak_step: None,
            in_use_at_peak: Bytes(0),
            stop: None,
            steps: 0,
            failures_avoided: 0,
        };
        let all = Agreement {
            addresses: tally,
            segments: tally,
            segments_freed: tally,
            unrecorded: 0,
            first: None,
            outcome: outcome.clone(),
            retries: 9,
        };
        assert!(all.is_complete());
        let partly = Tally { predicted: 1, of: 2 };
        let first = Some(Divergence { event: 0, what: String::new() });
        let granted = Outcome { failures_avoided: 1, ..outcome };
        for incomplete in [
            Agreement { addresses: partly, ..all.clone() },
            Agreement { segments: partly, ..all.clone() },
            Agreement { segments_freed: partly, ..all.clone() },
            Agreement { unrecorded: 1, ..all.clone() },
            Agreement { first, ..all.clone() },
            Agreement { outcome: granted, ..all.clone() },
        ] {
            assert!(!incomplete.is_complete(), "{incomplete:?}");
        }
    }

    #[test]
    fn rejects_comparison_of_incomplete_recording() {
        let known = DeviceTrace { segments: Some(vec![]), ..DeviceTrace::default() };
        let compared = |trace: &DeviceTrace, settings: &str| {
            let settings: Settings = settings.parse().expect("PyTorch accepts it");
            compare(trace, &Workload::default(), &settings).map_err(|error| error.to_string())
        };
        assert!(compared(&known, "").is_ok());
        let error = compared(&DeviceTrace::default(), "").unwrap_err();
        assert!(error.contains("no segment list"), "{error}");
        let fraction = "per_process_memory_fraction:0.5";
        let error = compared(&known, fraction).unwrap_err();
        assert!(error.contains("the device total"), "{error}");
        let total = DeviceTrace { total: Some(Bytes(1 << 30)), ..known.clone() };
        assert!(compared(&total, fraction).is_ok());
    }

    #[test]
    fn ranges_extend_to_next_range_above() {
        let page = 2u64 << 20;
        let part = |at: u64, size: u64, stream| Segment {
            address: at * page,
            size: size * page,
            stream,
            kind: crate::trace::SegmentKind::Small,
            expandable: true,
            ..Segment::default()
        };
        let map = |at: u64, stream| Event {
            action: Action::SegmentMap,
            address: at * page,
            size: page,
            stream,
            time_us: 0,
        };
        let of = |held: &[Segment], events: Vec<Event>| {
            let trace = DeviceTrace { events, ..DeviceTrace::default() };
            let ranges = ranges(held, &trace).into_iter();
            ranges
                .map(|(range, parts)| (range.address / page, range.size.0 / page, parts.len()))
                .collect::<Vec<_>>()
        };
        let all = RANGE / page;
        assert_eq!(of(&[part(100, 2, 0)], vec![]), [(100, all, 1)]);
        assert_eq!(of(&[part(100, 2, 0), part(200, 1, 0)], vec![]), [(100, all, 2)]);
        assert_eq!(of(&[part(100, 2, 0), part(200, 1, 1)], vec![]), [(100, 100, 1), (200, all, 1)]);
        assert_eq!(of(&[part(100, 2, 0)], vec![map(90, 0), map(95, 1)]), [(90, all, 1)]);
        assert_eq!(
            of(&[part(100, 2, 0)], vec![map(150, 1), map(140, 0), map(160, 1)]),
            [(100, 50, 1)]
        );
        let ordinary = Segment { expandable: false, ..part(200, 1, 0) };
        assert_eq!(of(&[part(100, 2, 0), ordinary], vec![]), [(100, 100, 1)]);
    }
}
