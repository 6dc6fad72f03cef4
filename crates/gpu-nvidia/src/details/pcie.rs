//! The PCI Express link.

use crate::call::reading;
use crate::device::Device;
use crate::session::Opened;
use gpu_core::{Absent, Bytes, Pcie, PcieThroughput, Reading, Result};

/// Directions (`nvmlPcieUtilCounter_t`).
const SENT: u32 = 0;
const RECEIVED: u32 = 1;

impl Opened<'_> {
    pub(super) fn pcie(self, device: Device<'_>) -> Result<Pcie> {
        let functions = &self.caller.functions;
        let number = |function| reading(device.get(function));
        let pci = self.pci(device)?;
        let bar1 = reading(device.get(&functions.nvmlDeviceGetBAR1MemoryInfo))?;
        Ok(Pcie {
            generation: number(&functions.nvmlDeviceGetCurrPcieLinkGeneration)?,
            generation_max: number(&functions.nvmlDeviceGetMaxPcieLinkGeneration)?,
            width: number(&functions.nvmlDeviceGetCurrPcieLinkWidth)?,
            width_max: number(&functions.nvmlDeviceGetMaxPcieLinkWidth)?,
            replays: number(&functions.nvmlDeviceGetPcieReplayCounter)?,
            device_id: pci.and_then(|pci| number_of_maker(pci.pciDeviceId)),
            subsystem_id: pci.and_then(|pci| number_of_maker(pci.pciSubSystemId)),
            bar1_total: bar1.map(|memory| Bytes(memory.bar1Total)),
            bar1_used: bar1.map(|memory| Bytes(memory.bar1Used)),
        })
    }
}

/// Nobody has the number 0: it is left out of a struct that has room for it.
fn number_of_maker(number: u32) -> Reading<u32> {
    if number == 0 { Err(Absent::NotSupported) } else { Ok(number) }
}

/// Returns the traffic; the driver measures it for 20 ms in each direction.
pub(super) fn throughput(device: Device<'_>) -> Result<PcieThroughput> {
    let measured =
        |which| reading(device.pick(&device.caller.functions.nvmlDeviceGetPcieThroughput, which));
    Ok(PcieThroughput { sent: measured(SENT)?, received: measured(RECEIVED)? })
}
