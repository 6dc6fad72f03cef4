//! The memory of one device: `DeviceMemory`.

use crate::devices::failure;
use crate::faults::Call;
use crate::import::cuda_files;
use crate::machine::{Device, Holding};
use crate::process_entry::held_file;
use crate::simulation::Simulation;
use crate::state::State;
use gpu_core::{Bytes, DeviceFault, DeviceMemory, Error, ErrorKind, MemoryInfo, Region, Result};

/// The sizes and addresses of regions are multiples of this many bytes.
const ALIGNMENT: u64 = 256;

/// The memory of one simulated device, taken and given back by the viewer's own process.
///
/// Stricter than a driver: an address is never given twice, so that whoever uses a region after
/// its release is found out.
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
    let device = answering(state, index)?;
    let free = state.memory_free(index);
    let minor = device.info.id.minor;
    let region = Some(())
        .and_then(|()| size.0.checked_next_multiple_of(ALIGNMENT))
        .filter(|size| *size <= free.0)
        .and_then(|size| {
            let region = Region { address: state.next_address, size: Bytes(size) };
            state.next_address = state.next_address.checked_add(size)?;
            Some(region)
        })
        .ok_or_else(|| Error::new(DeviceFault::OutOfMemory, what()))?;
    state.regions.insert((index, region.address), region);
    state.acted = true;
    let files = cuda_files(minor.into_iter());
    state.change_viewer(|process| {
        match process.holdings.iter_mut().find(|holding| holding.device == index) {
            Some(holding) => holding.memory += region.size,
            None => process.holdings.push(Holding::new(index, region.size)),
        }
        for file in files.iter().filter_map(|(path, letters)| held_file(path, letters)) {
            if !process.files.iter().any(|own| own.path == file.path) {
                process.files.push(file);
            }
        }
    });
    Ok(region)
}

fn release(state: &mut State, index: u32, region: Region) -> Result<()> {
    let key = (index, region.address);
    if state.regions.get(&key) != Some(&region) {
        let what = format!("release {:#x} on GPU {index}: no such region", region.address);
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    answering(state, index)?;
    state.regions.remove(&key);
    state.change_viewer(|process| {
        for holding in process.holdings.iter_mut().filter(|holding| holding.device == index) {
            holding.memory = holding.memory.saturating_sub(region.size);
        }
        process.holdings.retain(|holding| holding.memory > Bytes(0));
        if process.holdings.is_empty() {
            process.files.clear();
        }
    });
    Ok(())
}
