//! The invariants of every recording, regardless of the program that made it.

use super::error::{Location, TraceError};
use super::{DeviceTrace, Segment};

/// The largest valid size: a PiB, more than any device has.
pub(crate) const MAX_SIZE: u64 = 1 << 50;

/// The upper bound of addresses, so that no sum of an address and a size overflows.
pub(crate) const ADDRESSES: u64 = 1 << 63;

/// Checks that a device's segments are consistent.
pub(crate) fn device(trace: &DeviceTrace) -> Result<(), TraceError> {
    let location = |what: String| Location::Entry(format!("{what} of device {}", trace.device));
    for segment in trace.segments.iter().flatten() {
        let at = || location(format!("the segment at {:#x}", segment.address));
        let blocks = segment.blocks.iter();
        let mut sizes = blocks.map(|block| block.size).chain([segment.size]);
        if segment.address >= ADDRESSES || sizes.any(|size| size > MAX_SIZE) {
            return Err(TraceError::malformed(
                at(),
                "an address or size larger than any device has",
            ));
        }
        blocks_of(segment)
            .map_err(|inconsistent| TraceError::malformed(at(), inconsistent.what))?;
    }
    let mut segments = trace.segments.clone().unwrap_or_default();
    order(&mut segments).map_err(|(one, other)| {
        let at = location(format!("the segment at {one:#x}"));
        TraceError::malformed(at, format!("it overlaps the one at {other:#x}"))
    })
}

/// Checks that the blocks of a segment are contiguous from its start to its end.
pub(crate) fn blocks_of(segment: &Segment) -> Result<(), Inconsistent> {
    let mut end = segment.address;
    for (index, block) in segment.blocks.iter().enumerate() {
        let wrong = |what: String| Err(Inconsistent { block: Some(index), what });
        if block.size == 0 {
            return wrong("a block of zero bytes".to_owned());
        }
        if block.address != end {
            let address = block.address;
            return wrong(format!("a block at {address:#x}, expected at {end:#x}"));
        }
        // Neither sum overflows, because sizes are at most MAX_SIZE and addresses are below
        // ADDRESSES.
        end += block.size;
        if end > segment.address + segment.size {
            let last = segment.address + segment.size;
            return wrong(format!("a block that ends at {end:#x}, after its segment at {last:#x}"));
        }
    }
    if end != segment.address + segment.size {
        let (covered, size) = (end - segment.address, segment.size);
        let what = format!("the blocks cover {covered} bytes of a segment of {size}");
        return Err(Inconsistent { block: None, what });
    }
    Ok(())
}

/// Sorts segments by address and checks that none overlaps the next; otherwise returns the
/// addresses of two that overlap.
pub(crate) fn order(segments: &mut [Segment]) -> Result<(), (u64, u64)> {
    segments.sort_by_key(|segment| segment.address);
    let overlap = segments.windows(2).find(|pair| pair[0].address + pair[0].size > pair[1].address);
    overlap.map_or(Ok(()), |pair| Err((pair[0].address, pair[1].address)))
}

/// An inconsistency in a segment.
pub(crate) struct Inconsistent {
    /// The block; `None` for the segment itself.
    pub(crate) block: Option<usize>,
    pub(crate) what: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_allocator_policy::{BlockState, RecordedBlock};

    fn segment(address: u64, blocks: &[(u64, u64)], size: u64) -> Segment {
        let block = |&(address, size): &(u64, u64)| RecordedBlock {
            address,
            size,
            requested: None,
            state: BlockState::Free,
        };
        Segment { address, size, blocks: blocks.iter().map(block).collect(), ..Segment::default() }
    }

    #[test]
    fn requires_contiguous_blocks_and_disjoint_segments() {
        let half = MAX_SIZE / 2;
        for (segments, expected) in [
            (vec![segment(0, &[(0, 5), (5, 3)], 8), segment(8, &[(8, 1)], 1)], ""),
            (vec![segment(ADDRESSES - 1, &[(ADDRESSES - 1, MAX_SIZE)], MAX_SIZE)], ""),
            (vec![segment(ADDRESSES, &[(ADDRESSES, 1)], 1)], "larger than any device"),
            (vec![segment(0, &[(0, MAX_SIZE + 1)], 1)], "larger than any device"),
            (vec![segment(0, &[], MAX_SIZE + 1)], "larger than any device"),
            (
                vec![segment(0, &[(0, half), (half, half), (MAX_SIZE, 1)], MAX_SIZE)],
                "after its segment",
            ),
            (vec![segment(0, &[(0, 0)], 1)], "a block of zero bytes"),
            (vec![segment(0, &[(0, 2), (3, 1)], 4)], "a block at 0x3, expected at 0x2"),
            (vec![segment(0, &[(0, 2)], 3)], "the blocks cover 2 bytes of a segment of 3"),
            (
                vec![segment(8, &[(8, 1)], 1), segment(0, &[(0, 9)], 9)],
                "it overlaps the one at 0x8",
            ),
        ] {
            let trace =
                DeviceTrace { device: 3, segments: Some(segments), ..DeviceTrace::default() };
            match device(&trace) {
                Ok(()) => assert_eq!(expected, ""),
                Err(error) => {
                    assert!(!expected.is_empty() && error.to_string().contains(expected), "{error}")
                }
            }
        }
    }
}
