//! TensorFlow's 21 bins, as a view of the chunks.

use super::{Bfc, UNIT};
use crate::policy::BlockState;
use gpu_core::{Bytes, DeviceMemory};

/// The number of bins.
pub(super) const BINS: usize = 21;

/// The chunks of one bin: sizes from that of the bin up to twice as much; the last bin has no upper
/// bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Bin {
    /// The size of its shortest chunks.
    #[cfg_attr(feature = "serde", serde(rename = "size_bytes"))]
    pub size: Bytes,
    /// Its number of chunks, free or not.
    pub chunks: u64,
    /// The number of chunks in use.
    pub chunks_in_use: u64,
    /// The total size of its chunks.
    #[cfg_attr(feature = "serde", serde(rename = "total_bytes"))]
    pub total: Bytes,
    /// The total size of the chunks in use.
    #[cfg_attr(feature = "serde", serde(rename = "in_use_bytes"))]
    pub in_use: Bytes,
    /// The total requested size of the chunks in use.
    #[cfg_attr(feature = "serde", serde(rename = "requested_bytes"))]
    pub requested: Bytes,
}

/// Returns the index of the bin for a size.
pub(super) fn bin_of(size: u64) -> usize {
    ((size.max(UNIT) / UNIT).ilog2() as usize).min(BINS - 1)
}

/// Returns the size of the shortest chunks of a bin.
pub(super) fn size_of(bin: usize) -> u64 {
    UNIT << bin
}

impl<M: DeviceMemory> Bfc<M> {
    /// Returns TensorFlow's bins, shortest first.
    pub fn bins(&self) -> [Bin; BINS] {
        let mut bins: [Bin; BINS] =
            std::array::from_fn(|bin| Bin { size: Bytes(size_of(bin)), ..Bin::default() });
        let chunks = self.regions.iter().flat_map(|held| self.chunks(held.first));
        for chunk in chunks.map(|id| self.blocks[id]) {
            let bin = &mut bins[bin_of(chunk.size)];
            bin.chunks += 1;
            bin.total += Bytes(chunk.size);
            if chunk.state == BlockState::Active {
                bin.chunks_in_use += 1;
                bin.in_use += Bytes(chunk.size);
                bin.requested += Bytes(chunk.requested);
            }
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_contiguous() {
        for bin in 0..BINS {
            let size = size_of(bin);
            assert_eq!((bin_of(size), bin_of(size + 255), bin_of(2 * size - 1)), (bin, bin, bin));
            assert_eq!(bin_of(2 * size), (bin + 1).min(BINS - 1));
        }
        assert_eq!((bin_of(0), bin_of(1), bin_of(u64::MAX)), (0, 0, BINS - 1));
    }
}
