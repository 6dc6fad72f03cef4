//! The memory that an allocator held when its recording began.
//!
//! A recording contains the state at its end. Walking its events backward undoes them one by one:
//! freed memory is live again, an allocation disappears, and regions are taken and freed in
//! reverse.

use crate::pages::kind_of_pages;
use crate::trace::{Action, DeviceTrace, RecordedBlock, Segment, SegmentKind};
use gpu_allocator_policy::BlockState;
use std::collections::{BTreeMap, HashMap};

/// The size of a PyTorch segment of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;

/// A contradiction in a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reconstruct the initial state: event {event}: {what} at {address:#x}")]
pub struct Contradiction {
    /// The event, counted from 0.
    pub event: usize,
    /// The contradiction.
    pub what: &'static str,
    /// The start address of the memory.
    pub address: u64,
}

/// The memory held when a recording began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The regions by address, each with the blocks that were not free. If only the request is
    /// known, it is used as the size of the block.
    pub segments: Vec<Segment>,
    /// Blocks outside any known region, by address: all blocks, if the file contains no regions.
    pub loose: Vec<RecordedBlock>,
}

/// Returns the memory held when the recording began.
///
/// # Errors
/// A [`Contradiction`] if the recorded end does not follow from the events.
pub fn start(trace: &DeviceTrace) -> Result<Start, Contradiction> {
    let mut back = Backward::from(trace);
    for (number, event) in trace.events.iter().enumerate().rev() {
        let (address, size) = (event.address, event.size);
        let undone = match event.action {
            Action::Alloc => back.vanish(address),
            Action::FreeCompleted => back.revive(address, size),
            Action::FreeRequested => back.activate(address, size),
            Action::SegmentAlloc => back.give_back(address, size),
            Action::SegmentFree => back.regain(event.stream, address, size),
            Action::SegmentMap => back.unmap(address, size),
            Action::SegmentUnmap => back.map(event.stream, address, size),
            Action::OutOfMemory | Action::Snapshot => Ok(()),
        };
        undone.map_err(|what| Contradiction { event: number, what, address })?;
    }
    Ok(back.finish())
}

/// Returns the segments held when the recording began, with the sizes of blocks that exceed their
/// request and were freed before the end.
///
/// The large pool does not split off a small remainder. So if an allocation starts where the block
/// of a request may end, by the rules of the allocator, then it ends there. `is_block_size`
/// returns whether the block of a segment for a request can have a size.
pub(crate) fn with_lengths(
    start: &Start,
    trace: &DeviceTrace,
    is_block_size: impl Fn(&Segment, u64, u64) -> bool,
) -> Vec<Segment> {
    let mut segments = start.segments.clone();
    let unknown = |segment: &Segment, block: &RecordedBlock| {
        segment.kind == SegmentKind::Large
            && !segment.expandable
            && block.requested == Some(block.size)
    };
    // Live memory, and the index of its block if the size is not yet known.
    let mut live: BTreeMap<u64, Option<(usize, usize)>> = BTreeMap::new();
    for (index, segment) in segments.iter().enumerate() {
        let blocks = segment.blocks.iter().enumerate();
        live.extend(blocks.map(|(number, block)| {
            (block.address, unknown(segment, block).then_some((index, number)))
        }));
    }
    let mut left = live.values().flatten().count();
    for event in &trace.events {
        if left == 0 {
            break;
        }
        match event.action {
            Action::Alloc => {
                if let Some((_, below)) = live.range_mut(..event.address).next_back()
                    && let Some((index, number)) = *below
                {
                    let segment = &segments[index];
                    let block = segment.blocks[number];
                    let length = event.address - block.address;
                    let inside = event.address - segment.address < segment.size;
                    if inside && is_block_size(segment, block.size, length) {
                        segments[index].blocks[number].size = length;
                        *below = None;
                        left -= 1;
                    }
                }
                live.insert(event.address, None);
            }
            Action::FreeCompleted => {
                left -= usize::from(live.remove(&event.address).flatten().is_some());
            }
            _ => {}
        }
    }
    segments
}

/// The state of an allocator during the backward walk.
struct Backward {
    /// Whether the file contains regions.
    knows_segments: bool,
    segments: BTreeMap<u64, Segment>,
    live: HashMap<u64, RecordedBlock>,
}

impl Backward {
    fn from(trace: &DeviceTrace) -> Self {
        let mut back = Backward {
            knows_segments: trace.segments.is_some(),
            segments: BTreeMap::new(),
            live: HashMap::new(),
        };
        for segment in trace.segments.iter().flatten() {
            let held = segment.blocks.iter().filter(|block| block.state != BlockState::Free);
            back.live.extend(held.map(|block| (block.address, *block)));
            back.segments.insert(segment.address, Segment { blocks: Vec::new(), ..*segment });
        }
        back
    }

    fn vanish(&mut self, address: u64) -> Result<(), &'static str> {
        match self.live.remove(&address) {
            Some(_) => Ok(()),
            // Without the final regions, it is unknown which ones outlived the recording.
            None if !self.knows_segments => Ok(()),
            None => Err("allocated memory was neither freed nor live at the end"),
        }
    }

    fn revive(&mut self, address: u64, size: u64) -> Result<(), &'static str> {
        let state = BlockState::AwaitingFree;
        let block = RecordedBlock { address, size, requested: Some(size), state };
        match self.live.insert(address, block) {
            Some(_) => Err("freed memory belongs to another live allocation"),
            None => Ok(()),
        }
    }

    fn activate(&mut self, address: u64, size: u64) -> Result<(), &'static str> {
        let active =
            RecordedBlock { address, size, requested: Some(size), state: BlockState::Active };
        // Formats without a second event complete a free at once.
        self.live.entry(address).or_insert(active).state = BlockState::Active;
        Ok(())
    }

    fn give_back(&mut self, address: u64, size: u64) -> Result<(), &'static str> {
        match self.segments.remove(&address) {
            Some(segment) if segment.size == size => Ok(()),
            Some(_) => Err("segment size differs from its allocation event"),
            None if !self.knows_segments => Ok(()),
            None => Err("allocated segment was neither freed nor live at the end"),
        }
    }

    fn regain(&mut self, stream: u64, address: u64, size: u64) -> Result<(), &'static str> {
        let kind = if size == SMALL_SEGMENT { SegmentKind::Small } else { SegmentKind::Large };
        let segment = Segment { address, size, stream, kind, ..Segment::default() };
        match self.segments.insert(address, segment) {
            Some(_) => Err("freed segment is still live"),
            None => Ok(()),
        }
    }

    /// Unmaps pages of an expandable segment, which may split it.
    fn unmap(&mut self, address: u64, size: u64) -> Result<(), &'static str> {
        let end = address.checked_add(size).ok_or("pages exceed the address space")?;
        let Some((&start, segment)) = self.segments.range(..=address).next_back() else {
            return if self.knows_segments { Err("mapped pages are not live") } else { Ok(()) };
        };
        let mut upper = segment.clone();
        let segment_end = start.saturating_add(segment.size);
        if !segment.expandable || end > segment_end {
            return Err("mapped pages are not live");
        }
        self.segments.remove(&start);
        if start < address {
            let lower = Segment { size: address - start, ..upper.clone() };
            self.segments.insert(start, lower);
        }
        if end < segment_end {
            (upper.address, upper.size) = (end, segment_end - end);
            self.segments.insert(end, upper);
        }
        Ok(())
    }

    /// Maps pages of an expandable segment again, which may merge it with its neighbours.
    fn map(&mut self, stream: u64, address: u64, size: u64) -> Result<(), &'static str> {
        let end = address.checked_add(size).ok_or("pages exceed the address space")?;
        let kind = kind_of_pages(size);
        let mut whole =
            Segment { address, size, stream, kind, expandable: true, ..Segment::default() };
        if let Some((&start, below)) = self.segments.range(..=address).next_back() {
            if start.saturating_add(below.size) > address {
                return Err("unmapped pages are still live");
            }
            if below.expandable
                && (below.stream, below.kind) == (stream, kind)
                && start + below.size == address
            {
                whole = Segment { size: below.size + size, ..below.clone() };
                self.segments.remove(&start);
            }
        }
        if let Some(above) = self.segments.get(&end)
            && above.expandable
            && (above.stream, above.kind) == (stream, kind)
        {
            whole =
                Segment { address: whole.address, size: whole.size + above.size, ..above.clone() };
            self.segments.remove(&end);
        }
        self.segments.insert(whole.address, whole);
        Ok(())
    }

    fn finish(self) -> Start {
        let mut start =
            Start { segments: self.segments.into_values().collect(), loose: Vec::new() };
        let mut blocks: Vec<_> = self.live.into_values().collect();
        blocks.sort_unstable_by_key(|block| block.address);
        for block in blocks {
            let above = start.segments.partition_point(|segment| segment.address <= block.address);
            let segment = start.segments[..above]
                .last_mut()
                .filter(|segment| block.address - segment.address < segment.size);
            match segment {
                Some(segment) => segment.blocks.push(block),
                None => start.loose.push(block),
            }
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;

    fn event(action: Action, address: u64, size: u64) -> Event {
        Event { action, address, size, stream: 0, time_us: 0 }
    }

    fn held(address: u64, size: u64, requested: u64) -> RecordedBlock {
        RecordedBlock { address, size, requested: Some(requested), state: BlockState::Active }
    }

    fn segment(address: u64, size: u64, blocks: Vec<RecordedBlock>) -> Segment {
        let kind = if size == SMALL_SEGMENT { SegmentKind::Small } else { SegmentKind::Large };
        Segment { address, size, kind, blocks, ..Segment::default() }
    }

    fn trace(segments: Vec<Segment>, events: Vec<Event>) -> DeviceTrace {
        DeviceTrace { segments: Some(segments), events, ..DeviceTrace::default() }
    }

    #[test]
    fn events_are_undone_in_reverse() {
        let end =
            vec![segment(0, 2 << 20, vec![held(0, 512, 4)]), segment(4 << 20, 20 << 20, vec![])];
        let events = vec![
            event(Action::FreeRequested, 1024, 100),
            event(Action::FreeCompleted, 1024, 100),
            event(Action::SegmentFree, 100 << 20, 30 << 20),
            event(Action::SegmentAlloc, 4 << 20, 20 << 20),
            event(Action::Alloc, 4 << 20, 5 << 20),
            event(Action::FreeRequested, 4 << 20, 5 << 20),
            event(Action::FreeCompleted, 4 << 20, 5 << 20),
        ];
        let start = start(&trace(end, events)).expect("it is consistent");
        let small = segment(0, 2 << 20, vec![held(0, 512, 4), held(1024, 100, 100)]);
        assert_eq!(start.segments, [small, segment(100 << 20, 30 << 20, vec![])]);
        assert!(start.loose.is_empty());
    }

    #[test]
    fn block_length_is_derived_from_next_block() {
        let asked = 5 << 20;
        let is_block_size = |_: &Segment, request: u64, size: u64| {
            let rest = size.checked_sub(request.next_multiple_of(512));
            rest.is_some_and(|rest| rest <= 1 << 20)
        };
        let length_with_next_at = |next: u64| {
            let events = vec![
                event(Action::Alloc, next, 3 << 20),
                event(Action::FreeRequested, next, 3 << 20),
                event(Action::FreeCompleted, next, 3 << 20),
                event(Action::FreeCompleted, 0, asked),
            ];
            let end = vec![segment(0, 20 << 20, vec![])];
            let trace = trace(end, events);
            let start = start(&trace).expect("it is consistent");
            with_lengths(&start, &trace, is_block_size)[0].blocks[0].size
        };
        assert_eq!(length_with_next_at(asked + 512), asked + 512);
        assert_eq!(length_with_next_at(6 << 20), 6 << 20);
        assert_eq!(
            length_with_next_at((6 << 20) + 512),
            asked,
            "the memory in between was split off"
        );
    }

    #[test]
    fn pending_free_at_start_is_not_active() {
        let events = vec![event(Action::FreeCompleted, 512, 100)];
        let start =
            start(&trace(vec![segment(0, 2 << 20, vec![])], events)).expect("it is consistent");
        assert_eq!(start.segments[0].blocks[0].state, BlockState::AwaitingFree);
    }

    #[test]
    fn expandable_segment_maps_and_unmaps_are_undone() {
        let page = 2u64 << 20;
        let pages = |from: u64, count: u64| Segment {
            address: from * page,
            size: count * page,
            kind: SegmentKind::Small,
            expandable: true,
            ..Segment::default()
        };
        let mapped = event(Action::SegmentMap, 3 * page, page);
        let unmapped = event(Action::SegmentUnmap, 6 * page, 2 * page);
        let end = vec![pages(2, 4), pages(8, 1)];
        let walked = start(&trace(end, vec![unmapped, mapped])).expect("it is consistent");
        assert_eq!(walked.segments, [pages(2, 1), pages(4, 5)]);

        let error = start(&trace(vec![], vec![mapped])).expect_err("nothing is held");
        assert_eq!((error.event, error.address), (0, 3 * page));
    }

    #[test]
    fn inconsistent_recording_is_rejected() {
        for (segments, events) in [
            (vec![], vec![event(Action::Alloc, 0, 5)]),
            (vec![], vec![event(Action::SegmentAlloc, 0, 5)]),
            (vec![segment(0, 9, vec![])], vec![event(Action::SegmentAlloc, 0, 5)]),
            (vec![segment(0, 9, vec![])], vec![event(Action::SegmentFree, 0, 9)]),
            (vec![segment(0, 9, vec![held(0, 9, 9)])], vec![event(Action::FreeCompleted, 0, 9)]),
            (vec![], vec![event(Action::SegmentUnmap, u64::MAX, 9)]),
        ] {
            let error = start(&trace(segments, events)).expect_err("it contradicts itself");
            assert_eq!(error.event, 0, "{error}");
        }
    }

    #[test]
    fn memory_freed_before_any_alloc_existed_at_start() {
        let events = vec![event(Action::Alloc, 0, 5), event(Action::FreeCompleted, 64, 7)];
        let trace = DeviceTrace { events, ..DeviceTrace::default() };
        let start = start(&trace).expect("nothing says otherwise");
        assert_eq!(start.loose.iter().map(|block| block.address).collect::<Vec<_>>(), [64]);
    }

    const PAGE: u64 = 2 << 20;

    fn pages(from: u64, count: u64) -> Segment {
        Segment {
            address: from * PAGE,
            size: count * PAGE,
            kind: SegmentKind::Small,
            expandable: true,
            ..Segment::default()
        }
    }

    #[test]
    fn unmapped_pages_split_their_segment() {
        let unmapped = |from: u64, count: u64| {
            let end = vec![pages(2, 4)];
            let walked =
                start(&trace(end, vec![event(Action::SegmentMap, from * PAGE, count * PAGE)]));
            walked.map(|start| start.segments)
        };
        assert_eq!(unmapped(2, 4), Ok(vec![]));
        assert_eq!(unmapped(2, 1), Ok(vec![pages(3, 3)]));
        assert_eq!(unmapped(5, 1), Ok(vec![pages(2, 3)]));
        assert_eq!(unmapped(3, 2), Ok(vec![pages(2, 1), pages(5, 1)]));
        for (from, count) in [(5, 2), (1, 1), (6, 1)] {
            assert!(unmapped(from, count).is_err(), "{from}");
        }
        let ordinary =
            trace(vec![segment(0, PAGE, vec![])], vec![event(Action::SegmentMap, 0, PAGE)]);
        assert!(start(&ordinary).is_err());
        let events = vec![event(Action::SegmentMap, 0, PAGE)];
        let unknown = DeviceTrace { events, ..DeviceTrace::default() };
        assert_eq!(start(&unknown), Ok(Start::default()), "the segments at the end are unknown");
    }

    #[test]
    fn mapped_pages_join_segments_of_their_stream_and_kind() {
        let mapped = |end: Vec<Segment>| {
            let walked = start(&trace(end, vec![event(Action::SegmentUnmap, 4 * PAGE, 2 * PAGE)]));
            walked.map(|start| start.segments)
        };
        assert_eq!(mapped(vec![]), Ok(vec![pages(4, 2)]));
        assert_eq!(mapped(vec![pages(3, 1)]), Ok(vec![pages(3, 3)]));
        assert_eq!(mapped(vec![pages(6, 1)]), Ok(vec![pages(4, 3)]));
        assert_eq!(mapped(vec![pages(3, 1), pages(6, 1)]), Ok(vec![pages(3, 4)]));
        assert_eq!(
            mapped(vec![pages(2, 1), pages(7, 1)]),
            Ok(vec![pages(2, 1), pages(4, 2), pages(7, 1)])
        );
        for other in [
            |pages: Segment| Segment { stream: 7, ..pages },
            |pages: Segment| Segment { kind: SegmentKind::Large, ..pages },
            |pages: Segment| Segment { expandable: false, ..pages },
        ] {
            let [below, above] = [other(pages(3, 1)), other(pages(6, 1))];
            let apart = vec![below.clone(), pages(4, 2), above.clone()];
            assert_eq!(mapped(vec![below, above]), Ok(apart));
        }
        for live in [pages(3, 2), pages(4, 2)] {
            assert!(mapped(vec![live]).is_err());
        }
    }

    #[test]
    fn only_unknown_lengths_in_large_segments_are_found() {
        let asked = 5 << 20;
        let next = asked + 4096;
        let length = |end: Segment| {
            let events = vec![
                event(Action::Alloc, next, 3 << 20),
                event(Action::FreeCompleted, next, 3 << 20),
                event(Action::FreeCompleted, 0, asked),
            ];
            let trace = trace(vec![end], events);
            let start = start(&trace).expect("it is consistent");
            with_lengths(&start, &trace, |_, _, size| size == next)[0].blocks[0].size
        };
        let large = || segment(0, 20 << 20, vec![]);
        assert_eq!(length(large()), next);
        assert_eq!(length(Segment { kind: SegmentKind::Small, ..large() }), asked);
        assert_eq!(length(Segment { expandable: true, ..large() }), asked);
        assert_eq!(length(segment(0, next, vec![])), asked, "the next block is in another segment");
    }

    #[test]
    fn blocks_outside_known_segments_are_loose() {
        let events = vec![
            event(Action::FreeCompleted, 4 << 20, 7),
            event(Action::FreeCompleted, (2 << 20) - 512, 512),
            event(Action::FreeCompleted, 2 << 20, 5),
        ];
        let start =
            start(&trace(vec![segment(0, 2 << 20, vec![])], events)).expect("it is consistent");
        assert_eq!(start.segments[0].blocks.len(), 1);
        let loose: Vec<_> = start.loose.iter().map(|block| (block.address, block.size)).collect();
        assert_eq!(loose, [(2 << 20, 5), (4 << 20, 7)]);
    }

    #[test]
    fn freed_segment_has_pool_of_its_size() {
        for (size, kind) in [(2 << 20, SegmentKind::Small), (20 << 20, SegmentKind::Large)] {
            let freed = Event { stream: 3, ..event(Action::SegmentFree, 9 << 20, size) };
            let walked = start(&trace(vec![], vec![freed])).expect("it is consistent");
            assert_eq!((walked.segments[0].kind, walked.segments[0].stream), (kind, 3));
        }
    }
}
