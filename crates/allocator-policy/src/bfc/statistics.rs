//! TensorFlow's statistics.

use super::Bfc;
use gpu_core::{Bytes, DeviceMemory};

/// TensorFlow's statistics of an allocator, with its names (`AllocatorStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Statistics {
    /// The number of chunks allocated since startup.
    pub num_allocs: u64,
    /// The total size of the chunks in use, including rounding.
    pub bytes_in_use: Bytes,
    /// The maximum of `bytes_in_use`.
    pub peak_bytes_in_use: Bytes,
    /// The longest allocated chunk.
    pub largest_alloc_size: Bytes,
    /// The limit.
    pub bytes_limit: Bytes,
    /// Memory that others set aside on the allocator's behalf; always 0 here.
    pub bytes_reserved: Bytes,
    /// Device memory held.
    pub pool_bytes: Bytes,
    /// The maximum of `pool_bytes` since startup. [`reset_peaks`](crate::Policy::reset_peaks) does
    /// not reset it, and neither does TensorFlow's `ClearStats`.
    pub peak_pool_bytes: Bytes,
    /// The longest free chunk.
    pub largest_free_block_bytes: Bytes,
    /// The fraction of the free memory outside its longest chunk, from 0 to 1.
    pub fragmentation: f64,
}

/// The counters that change at each step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) handed_out: u64,
    pub(super) returned: u64,
    pub(super) in_use: u64,
    pub(super) requested: u64,
    pub(super) peak_in_use: u64,
    pub(super) largest: u64,
    pub(super) pool: u64,
    pub(super) peak_pool: u64,
    /// The maximum memory held since the last reset.
    pub(super) recent_peak_pool: u64,
    pub(super) retries: u64,
    pub(super) out_of_memory: u64,
    pub(super) device_allocations: u64,
    pub(super) device_frees: u64,
    /// Allocations before the last reset.
    pub(super) before: u64,
}

impl Counts {
    #[inline]
    pub(super) fn hand_out(&mut self, size: u64, requested: u64) {
        self.handed_out += 1;
        self.in_use += size;
        self.requested += requested;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.largest = self.largest.max(size);
    }

    #[inline]
    pub(super) fn take_back(&mut self, size: u64, requested: u64) {
        self.returned += 1;
        self.in_use -= size;
        self.requested -= requested;
    }

    pub(super) fn take_of_device(&mut self, size: u64) {
        self.device_allocations += 1;
        self.pool += size;
        self.peak_pool = self.peak_pool.max(self.pool);
        self.recent_peak_pool = self.recent_peak_pool.max(self.pool);
    }

    pub(super) fn give_to_device(&mut self, size: u64) {
        self.device_frees += 1;
        self.pool -= size;
    }

    pub(super) fn reset_peaks(&mut self) {
        self.before = self.handed_out;
        self.peak_in_use = self.in_use;
        self.recent_peak_pool = self.pool;
        self.largest = 0;
    }
}

impl<M: DeviceMemory> Bfc<M> {
    /// Returns TensorFlow's statistics.
    pub fn statistics(&self) -> Statistics {
        let counts = &self.counts;
        let (free, largest) = (counts.pool - counts.in_use, self.largest_free());
        let scattered = free.saturating_sub(largest) as f64;
        Statistics {
            num_allocs: counts.handed_out - counts.before,
            bytes_in_use: Bytes(counts.in_use),
            peak_bytes_in_use: Bytes(counts.peak_in_use),
            largest_alloc_size: Bytes(counts.largest),
            bytes_limit: Bytes(self.limit),
            bytes_reserved: Bytes(0),
            pool_bytes: Bytes(counts.pool),
            peak_pool_bytes: Bytes(counts.peak_pool),
            largest_free_block_bytes: Bytes(largest),
            fragmentation: if free == 0 { 0.0 } else { scattered / free as f64 },
        }
    }
}
