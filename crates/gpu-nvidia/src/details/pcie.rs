//! The PCI Express link.

use super::fields;
use crate::call::reading;
use crate::device::Device;
use crate::session::Opened;
use crate::value::{bytes, number, part};
use gpu_core::{Absent, Bytes, Pcie, PcieThroughput, Reading, Result};
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES, NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
};

impl Opened<'_> {
    pub(super) fn pcie(self, device: Device<'_>) -> Result<Pcie> {
        let pci = self.pci(device)?;
        let bar1 = device.value("nvmlDeviceGetBAR1MemoryInfo", "for its BAR1 memory", |d| {
            d.bar1_memory_info()
        })?;
        let generation = device.value(
            "nvmlDeviceGetCurrPcieLinkGeneration",
            "for its PCIe link generation",
            |device| device.current_pcie_link_gen(),
        )?;
        let generation_max = device.value(
            "nvmlDeviceGetMaxPcieLinkGeneration",
            "for its maximum PCIe link generation",
            |device| device.max_pcie_link_gen(),
        )?;
        let own_generation_max = reading(device.own_pcie_generation())?;
        let width = device.value(
            "nvmlDeviceGetCurrPcieLinkWidth",
            "for its PCIe link width",
            |device| device.current_pcie_link_width(),
        )?;
        let width_max = device.value(
            "nvmlDeviceGetMaxPcieLinkWidth",
            "for its maximum PCIe link width",
            |device| device.max_pcie_link_width(),
        )?;
        let replays = device.value(
            "nvmlDeviceGetPcieReplayCounter",
            "for its PCIe replay counter",
            |device| device.pcie_replay_counter(),
        )?;
        let class = reading(device.pci_class())?;
        let counters = [NVML_FI_DEV_PCIE_COUNT_TX_BYTES, NVML_FI_DEV_PCIE_COUNT_RX_BYTES];
        let [sent, received] = fields::values(device, counters)?;
        Ok(Pcie {
            generation: generation.and_then(number),
            generation_max: generation_max.and_then(number),
            device_generation_max: own_generation_max.and_then(number),
            width: width.and_then(number),
            width_max: width_max.and_then(number),
            replays: replays.and_then(number),
            device_id: pci.and_then(|pci| nonzero_pci_id(pci.pciDeviceId)),
            subsystem_id: pci.and_then(|pci| nonzero_pci_id(pci.pciSubSystemId)),
            base_class: class.and_then(|pci| number(pci.baseClass)),
            sub_class: class.and_then(|pci| number(pci.subClass)),
            bar1_total: part(&bar1, |memory| bytes(memory.total)),
            bar1_used: part(&bar1, |memory| bytes(memory.used)),
            sent: sent.and_then(number).map(Bytes),
            received: received.and_then(number).map(Bytes),
        })
    }
}

/// Returns the ID; an ID of 0 is absent, because the driver does not fill in every field.
fn nonzero_pci_id(value: u32) -> Reading<u32> {
    if value == 0 { Err(Absent::NotSupported) } else { number(value) }
}

/// Returns the throughput, which the driver measures for 20 ms in each direction.
pub(super) fn throughput(device: Device<'_>) -> Result<PcieThroughput> {
    let measured = |which| -> Result<Reading<u32>> {
        let purpose = "for its PCIe throughput";
        let traffic = device
            .query("nvmlDeviceGetPcieThroughput", purpose, |device| device.pcie_throughput(which));
        Ok(reading(traffic)?.and_then(number))
    };
    Ok(PcieThroughput {
        sent: measured(PcieUtilCounter::Send)?,
        received: measured(PcieUtilCounter::Receive)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfilled_pci_id_is_absent() {
        assert_eq!(nonzero_pci_id(0x20b0_10de), Ok(0x20b0_10de));
        for value in [0, u32::MAX] {
            assert_eq!(nonzero_pci_id(value), Err(Absent::NotSupported));
        }
    }
}
