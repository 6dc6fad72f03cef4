//! The memory of one device, as `DeviceMemory`.

use crate::address_range::AddressRange;
use crate::devices::failure;
use crate::faults::Call;
use crate::machine::{Device, Holding};
use crate::process_entry::context_files;
use crate::simulation::Simulation;
use crate::state::State;
use gpu_core::{
    Bytes, DeviceFault, DeviceId, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The sizes and addresses of regions are multiples of this many bytes.
const ALIGNMENT: u64 = 256;
/// The page size of virtual memory, as on every NVIDIA device so far.
const PAGE: u64 = 2 << 20;

/// The memory of one simulated device, allocated and freed by the viewer's own process.
///
/// It is stricter than a driver: addresses are never reused, so any use of a region or a range
/// after its release is detected. Only the pages within a range can be mapped and unmapped
/// repeatedly.
#[derive(Clone, Debug)]
pub struct SimulatedMemory {
    simulation: Simulation,
    device: u32,
}

impl SimulatedMemory {
    pub(crate) fn new(simulation: Simulation, device: u32) -> Self {
        SimulatedMemory { simulation, device }
    }
}

impl Simulation {
    /// Returns the memory of one device.
    ///
    /// # Errors
    /// `Machine` if no driver responds; `Invalid` for a device that this machine does not have.
    pub fn device_memory(&self, device: &DeviceId) -> Result<SimulatedMemory> {
        let index = self.lock().named_device(device)?.info.id.index;
        Ok(SimulatedMemory::new(self.clone(), index))
    }
}

impl DeviceMemory for SimulatedMemory {
    fn info(&self) -> Result<MemoryInfo> {
        self.simulation
            .call(Call::MemoryInfo, |state| Ok(state.memory_info(answering(state, self.device)?)))
    }

    fn reserve(&self, size: Bytes) -> Result<Region> {
        self.simulation.call(Call::Reserve, |state| reserve(state, self.device, size))
    }

    fn release(&self, region: Region) -> Result<()> {
        self.simulation.call(Call::Release, |state| release(state, self.device, region))
    }

    fn reserve_addresses(&self, size: Bytes) -> Result<Region> {
        self.simulation
            .call(Call::ReserveAddresses, |state| reserve_addresses(state, self.device, size))
    }

    fn map(&self, part: Region) -> Result<()> {
        self.simulation.call(Call::Map, |state| map(state, self.device, part))
    }

    fn unmap(&self, part: Region) -> Result<()> {
        self.simulation.call(Call::Unmap, |state| unmap(state, self.device, part))
    }

    fn release_addresses(&self, range: Region) -> Result<()> {
        self.simulation
            .call(Call::ReleaseAddresses, |state| release_addresses(state, self.device, range))
    }

    fn page(&self) -> Result<Bytes> {
        self.simulation.call(Call::Page, |state| answering(state, self.device).map(|_| Bytes(PAGE)))
    }
}

fn answering(state: &State, index: u32) -> Result<&Device> {
    let gone = || Error::new(ErrorKind::Invalid, format!("find GPU {index}"));
    let device = state.device(index).ok_or_else(gone)?;
    device.fault.as_ref().map_or(Ok(device), |fault| Err(failure(fault)))
}

fn reserve(state: &mut State, index: u32, size: Bytes) -> Result<Region> {
    let what = || format!("reserve {} bytes on GPU {index}", size.0);
    if size == Bytes(0) {
        return Err(Error::new(ErrorKind::Invalid, what()));
    }
    answering(state, index)?;
    let free = state.memory_free(index);
    let size = size.0.checked_next_multiple_of(ALIGNMENT).filter(|size| *size <= free.0);
    let end = size.and_then(|size| Some((size, state.next_address.checked_add(size)?)));
    let (size, end) = end.ok_or_else(|| Error::new(DeviceFault::OutOfMemory, what()))?;
    let region = Region { address: state.next_address, size: Bytes(size) };
    state.next_address = end;
    state.regions.insert((index, region.address), region);
    allocate(state, index, region.size);
    Ok(region)
}

/// Allocates this much more of a device to the viewer's process, with the device files that this
/// requires.
fn allocate(state: &mut State, index: u32, size: Bytes) {
    state.acted = true;
    let minor = state.device(index).and_then(|device| device.info.id.minor().ok());
    let files = context_files(minor.into_iter(), false);
    state.change(state.machine.viewer.pid, |process| {
        match process.holdings.iter_mut().find(|holding| holding.device == index) {
            Some(holding) => holding.memory += size,
            None => process.holdings.push(Holding::new(index, size)),
        }
        for file in files {
            if !process.files.iter().any(|own| own.path == file.path) {
                Arc::make_mut(&mut process.files).push(file);
            }
        }
    });
}

/// Frees this much of a device from the viewer's process; frees its device files with the last
/// allocation.
fn deallocate(state: &mut State, index: u32, size: Bytes) {
    state.change(state.machine.viewer.pid, |process| {
        for holding in process.holdings.iter_mut().filter(|holding| holding.device == index) {
            holding.memory = holding.memory.saturating_sub(size);
        }
        process.holdings.retain(|holding| holding.memory > Bytes(0));
        if process.holdings.is_empty() {
            process.files = Arc::default();
        }
    });
}

fn release(state: &mut State, index: u32, region: Region) -> Result<()> {
    let key = (index, region.address);
    if state.regions.get(&key) != Some(&region) {
        let what = format!("release {:#x} on GPU {index}: no such region", region.address);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    answering(state, index)?;
    state.regions.remove(&key);
    deallocate(state, index, region.size);
    Ok(())
}

fn reserve_addresses(state: &mut State, index: u32, size: Bytes) -> Result<Region> {
    let what = || format!("reserve {} bytes of addresses on GPU {index}", size.0);
    if size == Bytes(0) || !size.0.is_multiple_of(PAGE) {
        return Err(Error::new(ErrorKind::Invalid, what()));
    }
    answering(state, index)?;
    let address = state.next_address.checked_next_multiple_of(PAGE);
    let found = address.and_then(|address| Some((address, address.checked_add(size.0)?)));
    let (address, end) = found.ok_or_else(|| Error::new(DeviceFault::OutOfMemory, what()))?;
    state.next_address = end;
    state.ranges.insert((index, address), AddressRange { size, mapped: BTreeSet::new() });
    Ok(Region { address, size })
}

fn map(state: &mut State, index: u32, part: Region) -> Result<()> {
    let what = || format!("map {} bytes at {:#x} on GPU {index}", part.size.0, part.address);
    let free = state.memory_free(index);
    let range = range_of(state, index, part);
    if range.is_none_or(|range| pages(part).any(|page| range.mapped.contains(&page))) {
        return Err(Error::new(ErrorKind::Invalid, what()));
    }
    answering(state, index)?;
    if part.size > free {
        return Err(Error::new(DeviceFault::OutOfMemory, what()));
    }
    if let Some(range) = range_of(state, index, part) {
        range.mapped.extend(pages(part));
    }
    allocate(state, index, part.size);
    Ok(())
}

fn unmap(state: &mut State, index: u32, part: Region) -> Result<()> {
    let range = range_of(state, index, part);
    if range.is_none_or(|range| pages(part).any(|page| !range.mapped.contains(&page))) {
        let what = format!("unmap {} bytes at {:#x} on GPU {index}", part.size.0, part.address);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    answering(state, index)?;
    if let Some(range) = range_of(state, index, part) {
        range.mapped.retain(|page| !(part.address..part.address + part.size.0).contains(page));
    }
    deallocate(state, index, part.size);
    Ok(())
}

fn release_addresses(state: &mut State, index: u32, range: Region) -> Result<()> {
    let key = (index, range.address);
    if state.ranges.get(&key).map(|own| own.size) != Some(range.size) {
        let what = format!("release the addresses at {:#x} on GPU {index}", range.address);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    answering(state, index)?;
    let mapped = state.ranges.remove(&key).map_or(0, |own| own.mapped.len());
    deallocate(state, index, Bytes(mapped as u64 * PAGE));
    Ok(())
}

/// Returns the range of a part, if the part consists of whole pages.
fn range_of(state: &mut State, index: u32, part: Region) -> Option<&mut AddressRange> {
    let whole = |number: u64| number.is_multiple_of(PAGE);
    if part.size == Bytes(0) || !whole(part.size.0) || !whole(part.address) {
        return None;
    }
    let before = (index, 0)..=(index, part.address);
    let ((_, start), range) = state.ranges.range_mut(before).next_back()?;
    let end = part.address.checked_add(part.size.0)?;
    (end <= start + range.size.0).then_some(range)
}

/// Returns the pages of a part, by their start.
fn pages(part: Region) -> impl Iterator<Item = u64> {
    (0..part.size.0 / PAGE).map(move |number| part.address + number * PAGE)
}
