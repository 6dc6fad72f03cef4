//! The segments held when the snapshot was taken.

use super::super::check;
use super::super::error::TraceError;
use super::super::pickle::{Pickle, Ref};
use super::super::stacks::BLOCK_STACK;
use super::super::{RecordedBlock, Segment, SegmentKind, StackId};
use super::Reader;
use super::entry::Spot;
use gpu_allocator_policy::BlockState;

/// A segment as listed in the snapshot.
struct FoundSegment {
    device: u32,
    segment: Segment,
    /// The stacks that requested its blocks, by address.
    stacks: Vec<(u64, StackId)>,
}

impl Reader<'_, '_> {
    /// Reads the segments of all devices.
    pub(super) fn segments(&mut self, list: Ref) -> Result<(), TraceError> {
        for (index, &entry) in self.entries.list(list, Spot::Segments)?.iter().enumerate() {
            let FoundSegment { device, segment, stacks } = self.segment(entry, index)?;
            let (budget, spot) = (self.budget, Spot::Segment(index));
            let trace = self.device(device, spot)?;
            budget
                .take(stacks.len() * BLOCK_STACK)
                .and_then(|()| budget.push(trace.segments.get_or_insert_default(), segment))
                .map_err(|full| spot.full(full))?;
            trace.block_stacks.extend(stacks);
        }
        for trace in self.devices.values_mut() {
            let segments = trace.segments.get_or_insert_default();
            check::order(segments).map_err(|(one, other)| {
                let device = trace.device;
                Spot::Segments.wrong(format!(
                    "the segments at {one:#x} and {other:#x} of device {device} overlap"
                ))
            })?;
        }
        Ok(())
    }

    /// Reads a segment.
    fn segment(&mut self, entry: Ref, index: usize) -> Result<FoundSegment, TraceError> {
        let spot = Spot::Segment(index);
        let (mut device, mut segment) = (0, Segment::default());
        let (mut address, mut size, mut blocks) = (None, None, None);
        for (key, value) in self.entries.dict(entry, spot)? {
            match &*self.entries.key(key) {
                b"device" => device = self.entries.device(value, spot, "device")?,
                b"address" => address = Some(self.entries.number(value, spot, "address")?),
                b"total_size" => size = Some(self.entries.size(value, spot, "total_size")?),
                b"stream" => segment.stream = self.entries.number(value, spot, "stream")?,
                b"segment_type" => segment.kind = kind(self.entries.pickle, value, spot)?,
                b"segment_pool_id" => segment.pool = self.pool(value, spot)?,
                b"is_expandable" => {
                    segment.expandable = self.entries.number(value, spot, "is_expandable")? != 0;
                }
                b"blocks" => blocks = Some(value),
                _ => {}
            }
        }
        segment.address = address.ok_or_else(|| spot.without("address"))?;
        segment.size = size.ok_or_else(|| spot.without("total_size"))?;
        if segment.size == 0 {
            return Err(spot.wrong("a segment of zero bytes"));
        }
        let blocks = blocks.ok_or_else(|| spot.without("blocks"))?;
        let blocks = self.entries.list(blocks, spot)?;
        self.room(&mut segment.blocks, blocks.len(), spot)?;
        let (mut next, mut stacks) = (segment.address, Vec::new());
        for (block, &entry) in blocks.iter().enumerate() {
            let (block, stack) = self.block(entry, Spot::Block(index, block), next)?;
            stacks.extend(stack.map(|stack| (block.address, stack)));
            next = block.address.saturating_add(block.size);
            segment.blocks.push(block);
        }
        check::blocks_of(&segment).map_err(|inconsistent| {
            let spot = inconsistent.block.map_or(spot, |block| Spot::Block(index, block));
            spot.wrong(inconsistent.what)
        })?;
        Ok(FoundSegment { device, segment, stacks })
    }

    /// Reads a block, and the stack that requested it. Before 2.1, blocks had no address but were
    /// contiguous. Their stack, and before 2.0 their requested size, is in the newest entry of
    /// their history, which comes first.
    fn block(
        &mut self,
        entry: Ref,
        spot: Spot,
        next: u64,
    ) -> Result<(RecordedBlock, Option<StackId>), TraceError> {
        let (mut address, mut size, mut requested) = (next, None, None);
        let (mut state, mut frames, mut real_size) = (None, None, None);
        for (key, value) in self.entries.dict(entry, spot)? {
            match &*self.entries.key(key) {
                b"address" => address = self.entries.number(value, spot, "address")?,
                b"size" => size = Some(self.entries.size(value, spot, "size")?),
                b"requested_size" => {
                    requested = Some(self.entries.size(value, spot, "requested_size")?);
                }
                b"state" => state = Some(value),
                b"frames" => frames = Some(value),
                b"history" => {
                    let Some(&newest) = self.entries.list(value, spot)?.first() else { continue };
                    for (key, value) in self.entries.dict(newest, spot)? {
                        match &*self.entries.key(key) {
                            b"real_size" => {
                                real_size = Some(self.entries.size(value, spot, "real_size")?);
                            }
                            b"frames" => frames = Some(value),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let size = size.ok_or_else(|| spot.without("size"))?;
        let state = state.ok_or_else(|| spot.without("state"))?;
        let pickle = self.entries.pickle;
        let state = match &*pickle.word(state).unwrap_or_default() {
            b"active_allocated" => BlockState::Active,
            b"active_pending_free" | b"active_awaiting_free" => BlockState::AwaitingFree,
            b"inactive" => BlockState::Free,
            _ => return Err(spot.wrong(format!("the state {} is unknown", pickle.shown(state)))),
        };
        let stack = match frames {
            Some(frames) => self.frames.stack(&self.entries, frames, spot)?,
            None => None,
        };
        // A free block keeps the requested size and the stack of its last allocation.
        let requested = requested.or(real_size).filter(|_| state != BlockState::Free);
        let stack = stack.filter(|_| state != BlockState::Free);
        Ok((RecordedBlock { address, size, requested, state }, stack))
    }

    fn pool(&self, value: Ref, spot: Spot) -> Result<(u64, u64), TraceError> {
        match self.entries.pickle.items(value) {
            Some(&[first, second]) => {
                let number = |at| self.entries.number(at, spot, "segment_pool_id");
                Ok((number(first)?, number(second)?))
            }
            _ => Err(spot.wrong("'segment_pool_id' is not a pair of numbers")),
        }
    }
}

fn kind(pickle: &Pickle<'_>, value: Ref, spot: Spot) -> Result<SegmentKind, TraceError> {
    match pickle.word(value).as_deref() {
        Some(b"small") => Ok(SegmentKind::Small),
        Some(b"large") => Ok(SegmentKind::Large),
        _ => {
            let what = format!("the segment_type {} is unknown", pickle.shown(value));
            Err(spot.wrong(what))
        }
    }
}
