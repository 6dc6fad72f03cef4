//! The sizes that determine the allocator's decisions.

use super::settings::Settings;
use crate::segment::SegmentKind;
use gpu_core::{DeviceMemory, Error, ErrorKind};

/// Every size is rounded up to a multiple of this.
pub(super) const MIN_BLOCK: u64 = 512;
/// The largest request that the small pool serves.
pub(super) const SMALL: u64 = 1 << 20;
/// The segment size of the small pool.
pub(super) const SMALL_SEGMENT: u64 = 2 << 20;
/// A request of at least this size gets a segment of its own size.
const MIN_LARGE: u64 = 10 << 20;
/// The size of such a segment is rounded up to a multiple of this.
const SEGMENT_STEP: u64 = 2 << 20;
/// PyTorch refuses requests of at least this size without asking the device: 1 EiB.
pub(super) const TOO_LARGE: u64 = 1 << 60;

/// The settings as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Blocks of at least this size are not split; `u64::MAX` if not set.
    pub(super) max_split: u64,
    /// By how much a block may exceed an oversize request.
    pub(super) max_rounding: u64,
    /// Whether new memory comes from mapped pages.
    pub(super) expandable: bool,
    /// The segment size for requests of the large pool below [`MIN_LARGE`], and the page size of
    /// the large pool.
    large_segment: u64,
    /// The maximum device memory that may be held; `u64::MAX` if not set.
    pub(super) limit: u64,
    /// The held bytes above which garbage is collected, if enabled.
    pub(super) garbage: Option<u64>,
    /// By kind: the minimum request size for which a block is not split, and the minimum remainder
    /// that is split off otherwise.
    splits: [(u64, u64); 2],
    rounds_up: bool,
    divisions: [u64; 16],
}

impl Rules {
    pub(super) fn of(settings: &Settings, memory: &impl DeviceMemory) -> Result<Self, Error> {
        let of_total = match settings.per_process_memory_fraction() {
            Some(fraction) => Some((fraction * total(memory)? as f64) as u64),
            None => None,
        };
        let limit = settings.limit().map(|limit| limit.0);
        let limit = limit.into_iter().chain(of_total).min();
        let garbage = settings.garbage_collection_threshold().zip(limit);
        let divisions = *settings.roundup_power2_divisions();
        let max_split = settings.max_split_size().map_or(u64::MAX, |size| size.0);
        let always = (u64::MAX, MIN_BLOCK);
        let large = (max_split, SMALL + 1);
        Ok(Rules {
            max_split,
            splits: [always, if settings.expandable_segments() { always } else { large }],
            max_rounding: settings.max_non_split_rounding().0,
            expandable: settings.expandable_segments(),
            large_segment: settings.large_segment_size().0,
            limit: limit.unwrap_or(u64::MAX),
            garbage: garbage.map(|(threshold, limit)| (threshold * limit as f64) as u64),
            rounds_up: divisions.iter().any(|divisions| *divisions > 1),
            divisions,
        })
    }

    /// Returns the size of the block for a request below [`TOO_LARGE`].
    #[inline]
    pub(super) fn round(&self, size: u64) -> u64 {
        if self.rounds_up {
            return self.round_up(size);
        }
        // Branchless, unlike `next_multiple_of`. This cannot overflow below TOO_LARGE.
        (size.max(1) + MIN_BLOCK - 1) & !(MIN_BLOCK - 1)
    }

    /// Rounds to a division of a power of two, unless the step is below 512 bytes: with 4 divisions
    /// 5000 becomes 5120 and 1200 becomes 1536.
    #[cold]
    fn round_up(&self, size: u64) -> u64 {
        let size = size.max(MIN_BLOCK);
        let divisions = self.divisions[size.ilog2().saturating_sub(20).min(15) as usize];
        if divisions <= 1 || size <= MIN_BLOCK * divisions {
            return size.next_multiple_of(MIN_BLOCK);
        }
        size.next_multiple_of(1 << (size.ilog2() - divisions.ilog2()))
    }

    /// Returns whether to split off the remainder of a block.
    #[inline]
    pub(super) fn splits(&self, kind: SegmentKind, size: u64, rest: u64) -> bool {
        let (below, least) = self.splits[kind as usize];
        size < below && rest >= least
    }

    /// Returns the size to take from the device for a rounded request.
    pub(super) fn segment_for(&self, size: u64) -> u64 {
        if size <= SMALL {
            SMALL_SEGMENT
        } else if size < MIN_LARGE {
            self.large_segment
        } else {
            size.next_multiple_of(SEGMENT_STEP)
        }
    }

    /// Returns the page size for new expandable segments of a kind.
    pub(super) fn page_of(&self, kind: SegmentKind) -> u64 {
        match kind {
            SegmentKind::Small => SMALL_SEGMENT,
            SegmentKind::Large => self.large_segment,
        }
    }

    /// Returns whether the best block for a request may be used for it.
    #[inline]
    pub(super) fn may_serve(&self, block: u64, size: u64) -> bool {
        if size < self.max_split {
            block < self.max_split
        } else {
            block - size < self.max_rounding
        }
    }
}

/// Returns the pool for requests of a rounded size.
#[inline]
pub(super) fn kind_for(size: u64) -> SegmentKind {
    if size <= SMALL { SegmentKind::Small } else { SegmentKind::Large }
}

/// Returns the total memory of the device.
pub(super) fn total(memory: &impl DeviceMemory) -> Result<u64, Error> {
    let absent = |absent| Error::new(ErrorKind::Field(absent), "query the device memory");
    memory.info()?.total.map(|total| total.0).map_err(absent)
}
