//! The PCI Express link.

use crate::call::reading;
use crate::device::Device;
use crate::session::Opened;
use crate::value::{bytes, number};
use gpu_core::{Absent, Pcie, PcieThroughput, Reading, Result};

/// Directions (`nvmlPcieUtilCounter_t`).
const SENT: u32 = 0;
const RECEIVED: u32 = 1;

impl Opened<'_> {
    pub(super) fn pcie(self, device: Device<'_>) -> Result<Pcie> {
        let functions = &self.caller.functions;
        let told = |function| -> Result<Reading<u32>> {
            Ok(reading(device.get(function))?.and_then(number))
        };
        let pci = self.pci(device)?;
        let bar1 = reading(device.get(&functions.nvmlDeviceGetBAR1MemoryInfo))?;
        Ok(Pcie {
            generation: told(&functions.nvmlDeviceGetCurrPcieLinkGeneration)?,
            generation_max: told(&functions.nvmlDeviceGetMaxPcieLinkGeneration)?,
            device_generation_max: told(&functions.nvmlDeviceGetGpuMaxPcieLinkGeneration)?,
            width: told(&functions.nvmlDeviceGetCurrPcieLinkWidth)?,
            width_max: told(&functions.nvmlDeviceGetMaxPcieLinkWidth)?,
            replays: told(&functions.nvmlDeviceGetPcieReplayCounter)?,
            device_id: pci.and_then(|pci| nonzero_pci_id(pci.pciDeviceId)),
            subsystem_id: pci.and_then(|pci| nonzero_pci_id(pci.pciSubSystemId)),
            bar1_total: bar1.and_then(|memory| bytes(memory.bar1Total)),
            bar1_used: bar1.and_then(|memory| bytes(memory.bar1Used)),
        })
    }
}

/// Nobody has the number 0: it is left out of a struct that has room for it.
fn nonzero_pci_id(value: u32) -> Reading<u32> {
    if value == 0 { Err(Absent::NotSupported) } else { number(value) }
}

/// Returns the traffic; the driver measures it for 20 ms in each direction.
pub(super) fn throughput(device: Device<'_>) -> Result<PcieThroughput> {
    let function = &device.caller.functions.nvmlDeviceGetPcieThroughput;
    let measured = |which| -> Result<Reading<u32>> {
        Ok(reading(device.pick(function, which))?.and_then(number))
    };
    Ok(PcieThroughput { sent: measured(SENT)?, received: measured(RECEIVED)? })
}
