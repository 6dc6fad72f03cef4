//! The statistics of PyTorch's `torch.cuda.memory_stats`.

use super::counters::{Metric, PoolTotals, Totals};
use super::{Caching, Events};
use gpu_core::{Bytes, DeviceMemory};
use std::collections::BTreeMap;

/// The values of one statistic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stat {
    /// The current value.
    pub current: u64,
    /// The maximum.
    pub peak: u64,
    /// The cumulative increase.
    pub allocated: u64,
    /// The cumulative decrease.
    pub freed: u64,
}

/// A statistic for each kind of pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Pools {
    /// The sum.
    pub all: Stat,
    /// Requests of more than 1 MiB.
    pub large_pool: Stat,
    /// Requests of at most 1 MiB.
    pub small_pool: Stat,
}

/// PyTorch's statistics of its allocator, with its names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Statistics {
    /// Blocks in use by the program.
    pub allocation: Pools,
    /// Regions from `cudaMalloc`; expandable segments do not count.
    pub segment: Pools,
    /// Blocks that are in use by the program or may still be in use by work on the device.
    pub active: Pools,
    /// Free blocks that are part of a region; those of expandable segments do not count.
    pub inactive_split: Pools,
    /// Bytes of the blocks in use by the program.
    pub allocated_bytes: Pools,
    /// Bytes held on the device.
    pub reserved_bytes: Pools,
    /// Bytes of active blocks.
    pub active_bytes: Pools,
    /// Bytes of the free blocks that are part of a region.
    pub inactive_split_bytes: Pools,
    /// Requested bytes of active blocks.
    pub requested_bytes: Pools,
    /// Blocks of at least `max_split_size` in use by the program.
    pub oversize_allocations: Stat,
    /// Regions of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// How many times the cache was emptied because the device refused.
    pub num_alloc_retries: u64,
    /// The number of out-of-memory errors.
    pub num_ooms: u64,
    /// How many times the allocator waited for all streams.
    pub num_sync_all_streams: u64,
    /// The number of device allocations.
    pub num_device_alloc: u64,
    /// The number of device frees.
    pub num_device_free: u64,
    /// The minimum size of blocks that are not split; -1 if not set.
    pub max_split_size: i64,
}

impl Statistics {
    /// Returns the statistics that exist for each kind of pool, under PyTorch's names.
    pub(super) fn by_pool(&self) -> [(&'static str, &Pools); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    /// Returns all values by PyTorch's keys, such as `allocated_bytes.all.peak`.
    pub fn flat(&self) -> BTreeMap<String, i64> {
        let mut flat = BTreeMap::new();
        let mut put = |prefix: String, stat: &Stat| {
            let Stat { current, peak, allocated, freed } = *stat;
            let numbers =
                [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
            flat.extend(numbers.map(|(name, value)| (format!("{prefix}.{name}"), value as i64)));
        };
        for (name, pools) in self.by_pool() {
            let Pools { all, large_pool, small_pool } = pools;
            for (pool, stat) in
                [("all", all), ("large_pool", large_pool), ("small_pool", small_pool)]
            {
                put(format!("{name}.{pool}"), stat);
            }
        }
        put("oversize_allocations".to_owned(), &self.oversize_allocations);
        put("oversize_segments".to_owned(), &self.oversize_segments);
        let counts = [
            ("num_alloc_retries", self.num_alloc_retries as i64),
            ("num_ooms", self.num_ooms as i64),
            ("num_sync_all_streams", self.num_sync_all_streams as i64),
            ("num_device_alloc", self.num_device_alloc as i64),
            ("num_device_free", self.num_device_free as i64),
            ("max_split_size", self.max_split_size),
        ];
        flat.extend(counts.map(|(name, value)| (name.to_owned(), value)));
        flat
    }
}

impl From<Totals> for Stat {
    fn from(totals: Totals) -> Self {
        let Totals { current, peak, added, freed } = totals;
        Stat { current, peak, allocated: added, freed }
    }
}

impl From<PoolTotals> for Pools {
    fn from(totals: PoolTotals) -> Self {
        let PoolTotals { all, large, small } = totals;
        Pools { all: all.into(), large_pool: large.into(), small_pool: small.into() }
    }
}

impl<M: DeviceMemory, E: Events> Caching<M, E> {
    /// Returns all statistics.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        let of = |metric| Pools::from(counters.pool_totals(metric));
        Statistics {
            allocation: of(Metric::Allocation),
            segment: of(Metric::Segment),
            active: counters.active(Metric::Allocation).into(),
            inactive_split: of(Metric::InactiveSplit),
            allocated_bytes: of(Metric::AllocatedBytes),
            reserved_bytes: of(Metric::ReservedBytes),
            active_bytes: counters.active(Metric::AllocatedBytes).into(),
            inactive_split_bytes: of(Metric::InactiveSplitBytes),
            requested_bytes: of(Metric::RequestedBytes),
            oversize_allocations: counters.oversize_allocations.into(),
            oversize_segments: counters.oversize_segments.into(),
            num_alloc_retries: counters.retries,
            num_ooms: counters.out_of_memory,
            num_sync_all_streams: counters.synchronizations,
            num_device_alloc: counters.device_allocations,
            num_device_free: counters.device_frees,
            max_split_size: self.settings().max_split_size().map_or(-1, |size| size.0 as i64),
        }
    }

    /// Returns all values by PyTorch's keys, like `torch.cuda.memory_stats`.
    pub fn memory_stats(&self) -> BTreeMap<String, i64> {
        self.statistics().flat()
    }

    /// Returns the memory in use by the program, like `torch.cuda.memory_allocated`.
    pub fn memory_allocated(&self) -> Bytes {
        Bytes(self.counters.now(Metric::AllocatedBytes))
    }

    /// Returns its maximum, like `torch.cuda.max_memory_allocated`.
    pub fn max_memory_allocated(&self) -> Bytes {
        Bytes(self.counters.peak(Metric::AllocatedBytes))
    }

    /// Returns the device memory held, like `torch.cuda.memory_reserved`.
    pub fn memory_reserved(&self) -> Bytes {
        Bytes(self.counters.now(Metric::ReservedBytes))
    }

    /// Returns its maximum, like `torch.cuda.max_memory_reserved`.
    pub fn max_memory_reserved(&self) -> Bytes {
        Bytes(self.counters.peak(Metric::ReservedBytes))
    }

    /// Resets the cumulative values and the event counts, like
    /// `torch.cuda.reset_accumulated_memory_stats`.
    pub fn reset_accumulated(&mut self) {
        self.counters.reset_accumulated();
    }
}
