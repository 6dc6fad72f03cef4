//! A device that exists only as numbers, for replays.

mod addresses;
mod mapped;
mod refusals;

use crate::blocks::BlockId;
use addresses::Addresses;
use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result,
};
use mapped::Mapped;
use refusals::Refusals;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The unit of a `cudaMalloc` of at least 1 MiB, and the page size.
const PAGE: u64 = 2 << 20;
/// The unit of smaller allocations.
const UNIT: u64 = 512;

/// The memory of a device that exists only as numbers. Each region takes the smallest address gap
/// that suffices and, among equal gaps, the lowest.
///
/// A driver maps scattered pages at adjacent addresses, so a region is granted whenever enough
/// bytes are free, contiguous or not. A region of at least 1 MiB takes whole pages of 2 MiB, so
/// many regions can take more than the sum of their sizes. Regions below 1 MiB count with their own
/// size, because a driver packs them into pages.
#[derive(Debug)]
pub struct ModelMemory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: u64,
    used: u64,
    peak: u64,
    refusals: Refusals,
    given_back: u64,
    /// Regions and address ranges, by start address.
    taken: BTreeMap<u64, Taken>,
    addresses: Addresses,
}

#[derive(Debug)]
struct Taken {
    size: u64,
    block: BlockId,
    /// The mapped parts of an address range.
    mapped: Option<Mapped>,
}

impl ModelMemory {
    /// Creates a device with `total` bytes, all free.
    pub fn new(total: Bytes) -> Self {
        ModelMemory { state: Mutex::new(State { total: total.0, ..State::default() }) }
    }

    /// Creates a device that never refuses.
    pub fn endless() -> Self {
        ModelMemory::new(Bytes(1 << 56))
    }

    /// Returns the memory of the device.
    pub fn total(&self) -> Bytes {
        Bytes(self.lock().total)
    }

    /// Returns the memory in use.
    pub fn used(&self) -> Bytes {
        Bytes(self.lock().used)
    }

    /// Returns the maximum memory in use.
    pub fn peak(&self) -> Bytes {
        Bytes(self.lock().peak)
    }

    /// Returns the smallest total with which the device would have granted more, at the first point
    /// of difference; `None` if no request was refused.
    ///
    /// A policy that observes only grants and refusals behaves the same on every device with at
    /// least [`peak`](ModelMemory::peak) bytes but less than this.
    pub fn least_refused(&self) -> Option<Bytes> {
        self.lock().refusals.least().map(Bytes)
    }

    /// Marks the start of a request of the program, for [`raise`](ModelMemory::raise).
    pub fn begin_request(&self) {
        self.lock().refusals.begin_request();
    }

    /// Raises the total to [`least_refused`](ModelMemory::least_refused) after a request of the
    /// program failed, if a device of that total would have brought the policy to the same state
    /// before this request, or before the part of it that the device would grant. The policy must
    /// observe only grants and refusals, and have no retired memory. Returns whether it raised the
    /// total, so that the caller can repeat this request instead of all requests from the start.
    pub fn raise(&self) -> bool {
        let state = &mut *self.lock();
        let raised = state.refusals.raise();
        state.total = raised.unwrap_or(state.total);
        raised.is_some()
    }

    /// Returns the bytes freed so far.
    pub fn given_back(&self) -> Bytes {
        Bytes(self.lock().given_back)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the memory that a driver takes for a `cudaMalloc` of `size` bytes; `None` on overflow.
pub(crate) fn driver_rounded(size: u64) -> Option<u64> {
    let size = size.checked_next_multiple_of(UNIT)?;
    if size < PAGE / 2 { Some(size) } else { size.checked_next_multiple_of(PAGE) }
}

impl State {
    fn take(&mut self, bytes: u64, what: impl Fn() -> String) -> Result<()> {
        match self.used.checked_add(bytes).filter(|used| *used <= self.total) {
            Some(used) => {
                self.used = used;
                self.peak = self.peak.max(used);
                Ok(())
            }
            None => {
                self.refusals.add(self.used.saturating_add(bytes));
                Err(Error::new(DeviceFault::OutOfMemory, what()))
            }
        }
    }

    fn range(&mut self, part: Region) -> Option<&mut Mapped> {
        let (start, taken) = self.taken.range_mut(..=part.address).next_back()?;
        let inside = part.address.checked_add(part.size.0)? <= start + taken.size;
        taken.mapped.as_mut().filter(|_| inside)
    }
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn whole_pages(part: Region) -> bool {
    part.size.0 > 0 && part.size.0.is_multiple_of(PAGE) && part.address.is_multiple_of(PAGE)
}

impl DeviceMemory for ModelMemory {
    fn info(&self) -> Result<MemoryInfo> {
        let State { total, used, .. } = *self.lock();
        let reserved = Err(Absent::NotSupported);
        Ok(MemoryInfo { total: Ok(Bytes(total)), used: Ok(Bytes(used)), reserved })
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes", size.0);
        let none = || Error::new(DeviceFault::OutOfMemory, what());
        if size.0 == 0 {
            return Err(invalid(what()));
        }
        let charged = driver_rounded(size.0).ok_or_else(none)?;
        let mut state = self.lock();
        state.take(charged, what)?;
        let Some((block, address)) = state.addresses.take(charged) else {
            state.used -= charged;
            return Err(none());
        };
        state.refusals.note_change(address, size.0);
        state.taken.insert(address, Taken { size: size.0, block, mapped: None });
        Ok(Region { address, size })
    }

    fn release(&self, region: Region) -> Result<()> {
        let state = &mut *self.lock();
        match state.taken.entry(region.address) {
            Entry::Occupied(its)
                if its.get().mapped.is_none() && its.get().size == region.size.0 =>
            {
                let charged = state.addresses.vacate(its.remove().block);
                state.refusals.note_change(region.address, region.size.0);
                state.used -= charged;
                state.given_back += charged;
                Ok(())
            }
            _ => Err(invalid(format!("release the region at {:#x}", region.address))),
        }
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        let what = || format!("reserve {} bytes of addresses", size.0);
        if size.0 == 0 || !size.0.is_multiple_of(PAGE) {
            return Err(invalid(what()));
        }
        let mut state = self.lock();
        let (block, address) = state
            .addresses
            .take(size.0)
            .ok_or_else(|| Error::new(DeviceFault::OutOfMemory, what()))?;
        let mapped = Some(Mapped::default());
        state.taken.insert(address, Taken { size: size.0, block, mapped });
        Ok(Region { address, size })
    }

    fn map(&self, part: Region) -> Result<()> {
        let what = || format!("map {} bytes at {:#x}", part.size.0, part.address);
        let mut state = self.lock();
        let (start, end) = (part.address, part.address.saturating_add(part.size.0));
        let range = state.range(part).filter(|_| whole_pages(part));
        if range.is_none_or(|mapped| !mapped.is_vacant(start, end)) {
            return Err(invalid(what()));
        }
        state.take(part.size.0, what)?;
        state.refusals.note_change(start, part.size.0);
        if let Some(mapped) = state.range(part) {
            mapped.add(start, end);
        }
        Ok(())
    }

    fn unmap(&self, part: Region) -> Result<()> {
        let mut state = self.lock();
        let range = state.range(part).filter(|_| whole_pages(part));
        if !range.is_some_and(|mapped| mapped.remove(part.address, part.address + part.size.0)) {
            return Err(invalid(format!("unmap {} bytes at {:#x}", part.size.0, part.address)));
        }
        state.used -= part.size.0;
        state.given_back += part.size.0;
        state.refusals.note_change(part.address, part.size.0);
        Ok(())
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        let state = &mut *self.lock();
        match state.taken.entry(range.address) {
            Entry::Occupied(its)
                if its.get().mapped.is_some() && its.get().size == range.size.0 =>
            {
                let taken = its.remove();
                let mapped = taken.mapped.map_or(0, |mapped| mapped.bytes());
                state.used -= mapped;
                state.refusals.note_change(range.address, range.size.0);
                state.addresses.vacate(taken.block);
                Ok(())
            }
            _ => Err(invalid(format!("release the addresses at {:#x}", range.address))),
        }
    }

    fn page(&self) -> Result<Bytes> {
        Ok(Bytes(PAGE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_take_whole_pages_and_reuse_addresses() {
        let memory = ModelMemory::new(Bytes::from_mib(10));
        let small = memory.reserve(Bytes(100)).expect("10 MiB are free");
        assert_eq!(memory.used(), Bytes(512));
        memory.release(small).expect("it was reserved");
        let a = memory.reserve(Bytes::from_mib(3)).expect("10 MiB are free");
        let b = memory.reserve(Bytes::from_mib(4)).expect("6 MiB are free");
        assert_eq!((memory.used(), b.address - a.address), (Bytes::from_mib(8), 4 << 20));
        assert_eq!(memory.least_refused(), None);
        let error = memory.reserve(Bytes::from_mib(3)).expect_err("2 MiB are free");
        assert_eq!(memory.least_refused(), Some(Bytes::from_mib(12)));
        assert_eq!(error.kind(), DeviceFault::OutOfMemory.into());
        memory.release(a).expect("it was reserved");
        assert!(memory.release(a).is_err());
        assert_eq!(memory.reserve(Bytes::from_mib(2)).map(|c| c.address).ok(), Some(a.address));
        memory.release(b).expect("it was reserved");
        assert_eq!((memory.used(), memory.peak()), (Bytes::from_mib(2), Bytes::from_mib(8)));
    }

    #[test]
    fn smallest_sufficient_gap_is_filled() {
        let memory = ModelMemory::new(Bytes::from_mib(64));
        let take = |mib| memory.reserve(Bytes::from_mib(mib)).expect("64 MiB are free");
        let [six, _, four, _, other, _] = [6, 2, 4, 2, 4, 2].map(take);
        for region in [six, four, other] {
            memory.release(region).expect("it was reserved");
        }
        assert_eq!(take(2).address, four.address, "of the two smallest the lower one");
        assert_eq!(take(4).address, other.address);
        assert_eq!(take(2).address, four.address + (2 << 20), "the remainder");
        assert_eq!(take(6).address, six.address);
    }

    #[test]
    fn reserve_succeeds_with_scattered_free_pages() {
        let memory = ModelMemory::new(Bytes::from_mib(6));
        let taken: Vec<_> =
            (0..3).map(|_| memory.reserve(Bytes::from_mib(2)).expect("6 MiB are free")).collect();
        memory.release(taken[0]).expect("it was reserved");
        memory.release(taken[2]).expect("it was reserved");
        assert!(memory.reserve(Bytes::from_mib(4)).is_ok());
    }

    #[test]
    fn pages_map_once_and_only_within_reserved_range() {
        let memory = ModelMemory::new(Bytes::from_mib(6));
        let range = memory.reserve_addresses(Bytes::from_mib(64)).expect("addresses are free");
        let part = |page: u64, pages: u64| Region {
            address: range.address + page * PAGE,
            size: Bytes(pages * PAGE),
        };
        assert_eq!(memory.used(), Bytes(0));
        memory.map(part(1, 2)).expect("6 MiB are free");
        assert!(memory.map(part(2, 1)).is_err(), "it has memory");
        assert!(memory.map(part(31, 2)).is_err(), "it ends behind the range");
        assert_eq!(memory.used(), Bytes::from_mib(4));
        let error = memory.map(part(3, 2)).expect_err("2 MiB are free");
        assert_eq!(error.kind(), DeviceFault::OutOfMemory.into());
        assert!(memory.unmap(part(0, 2)).is_err(), "page 0 has no memory");
        memory.unmap(part(1, 1)).expect("page 1 has memory");
        assert!(memory.release(range).is_err(), "it is no region");
        memory.release_addresses(range).expect("it was reserved");
        assert_eq!(memory.used(), Bytes(0));
    }
}
