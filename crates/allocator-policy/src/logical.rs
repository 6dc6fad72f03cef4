//! Divides one device into several, each with its own limit.

use crate::totals;
use gpu_core::{
    Absent, Bytes, DeviceFault, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a device's memory, as TensorFlow's `LogicalDeviceConfiguration` creates it. It behaves
/// like a device, and refuses requests beyond its limit.
///
/// Only memory taken through it counts towards the limit. A CUDA context and the memory of other
/// processes do not, so the device may refuse before the limit is reached. Each part of a device is
/// counted separately.
#[derive(Debug)]
pub struct Logical<M: DeviceMemory> {
    memory: Arc<M>,
    limit: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    /// Regions by start address.
    regions: BTreeMap<u64, u64>,
    /// Address ranges by start address, with the size of their mapped memory.
    ranges: BTreeMap<u64, (u64, u64)>,
}

impl<M: DeviceMemory> Logical<M> {
    /// Splits a device into parts with these limits.
    ///
    /// # Errors
    /// `Invalid` if the sum of the limits exceeds the total memory that the device reports, and
    /// those of [`DeviceMemory::info`].
    pub fn split(memory: M, limits: &[Bytes]) -> Result<Vec<Self>> {
        let sum: Bytes = limits.iter().copied().sum();
        if let Ok(total) = memory.info()?.total
            && sum > total
        {
            let what = format!("split a device of {} bytes", total.0);
            let why = format!("the limits add up to {} bytes", sum.0);
            return Err(Error::new(ErrorKind::Invalid, what).with_source(why));
        }
        let memory = Arc::new(memory);
        let part = |limit: &Bytes| Logical {
            memory: Arc::clone(&memory),
            limit: limit.0,
            taken: Mutex::default(),
        };
        Ok(limits.iter().map(part).collect())
    }

    /// Returns the limit of this part.
    pub fn limit(&self) -> Bytes {
        Bytes(self.limit)
    }

    /// Returns the memory taken from this part.
    pub fn taken(&self) -> Bytes {
        Bytes(self.lock().bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a request beyond the limit.
    fn admit(&self, taken: &Taken, size: Bytes, what: impl Fn() -> String) -> Result<()> {
        if size.0 <= self.limit.saturating_sub(taken.bytes) {
            return Ok(());
        }
        let why =
            format!("{} of {} bytes of this logical device are in use", taken.bytes, self.limit);
        Err(Error::new(DeviceFault::OutOfMemory, what()).with_source(why))
    }
}

impl Taken {
    /// Returns the address range that contains a mapped part.
    fn range(&mut self, part: Region) -> Option<&mut (u64, u64)> {
        let (start, range) = self.ranges.range_mut(..=part.address).next_back()?;
        let end = part.address.checked_add(part.size.0)?;
        (end <= start + range.0).then_some(range)
    }
}

fn foreign(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what).with_source("it belongs to another logical device")
}

impl<M: DeviceMemory> DeviceMemory for Logical<M> {
    /// The total is the limit of the part, and all memory that is not free counts as used. The free
    /// memory may be less than the rest of the limit if the device has less.
    fn info(&self) -> Result<MemoryInfo> {
        let left = self.limit.saturating_sub(self.lock().bytes);
        let device = totals::left(self.memory.info()?);
        let left = device.map_or(left, |device| left.min(device.0));
        let used = Ok(Bytes(self.limit - left));
        Ok(MemoryInfo { total: Ok(self.limit()), used, reserved: Err(Absent::NotSupported) })
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        let mut taken = self.lock();
        let what = || format!("reserve {} bytes", size.0);
        self.admit(&taken, size, what)?;
        let region = self.memory.reserve(size)?;
        // A device may return more than requested.
        if let Err(refusal) = self.admit(&taken, region.size, what) {
            self.memory.release(region)?;
            return Err(refusal);
        }
        taken.bytes += region.size.0;
        taken.regions.insert(region.address, region.size.0);
        Ok(region)
    }

    fn release(&self, region: Region) -> Result<()> {
        let mut taken = self.lock();
        if taken.regions.get(&region.address) != Some(&region.size.0) {
            return Err(foreign(format!("release the region at {:#x}", region.address)));
        }
        self.memory.release(region)?;
        taken.regions.remove(&region.address);
        taken.bytes -= region.size.0;
        Ok(())
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        let mut taken = self.lock();
        let range = self.memory.reserve_addresses(size)?;
        taken.ranges.insert(range.address, (range.size.0, 0));
        Ok(range)
    }

    fn map(&self, part: Region) -> Result<()> {
        let mut taken = self.lock();
        let what = || format!("map {} bytes at {:#x}", part.size.0, part.address);
        if taken.range(part).is_none() {
            return Err(foreign(what()));
        }
        self.admit(&taken, part.size, what)?;
        self.memory.map(part)?;
        taken.bytes += part.size.0;
        if let Some((_, mapped)) = taken.range(part) {
            *mapped += part.size.0;
        }
        Ok(())
    }

    fn unmap(&self, part: Region) -> Result<()> {
        let mut taken = self.lock();
        if taken.range(part).is_none() {
            let what = format!("unmap {} bytes at {:#x}", part.size.0, part.address);
            return Err(foreign(what));
        }
        self.memory.unmap(part)?;
        taken.bytes -= part.size.0;
        if let Some((_, mapped)) = taken.range(part) {
            *mapped -= part.size.0;
        }
        Ok(())
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        let mut taken = self.lock();
        let Some(&(size, mapped)) = taken.ranges.get(&range.address) else {
            return Err(foreign(format!("release the addresses at {:#x}", range.address)));
        };
        if size != range.size.0 {
            return Err(foreign(format!("release the addresses at {:#x}", range.address)));
        }
        self.memory.release_addresses(range)?;
        taken.ranges.remove(&range.address);
        taken.bytes -= mapped;
        Ok(())
    }

    fn page(&self) -> Result<Bytes> {
        self.memory.page()
    }
}
