//! Details of a device, in groups of separate queries.
//!
//! Values without an NVML function stay `NotSupported`. Only the requested groups are queried,
//! because some queries are slow.

mod accounting;
mod activity;
mod fabric;
mod fields;
mod memory_health;
mod modes;
mod nvlink;
mod pcie;
mod power;
mod product;
mod virtualization;

pub(crate) use nvlink::{Remote, remotes};

use crate::device::Device;
use crate::session::Opened;
use gpu_core::{DeviceDetails, Group, Groups, Result};

impl Opened<'_> {
    /// Returns the requested groups.
    ///
    /// # Errors
    /// `Device` or `Machine` when a query returns such a code.
    pub(crate) fn details(self, device: Device<'_>, groups: Groups) -> Result<DeviceDetails> {
        let mut details = DeviceDetails::default();
        for group in Group::ALL.into_iter().filter(|group| groups.has(*group)) {
            match group {
                Group::Product => details.product = Some(product::product(self, device)?),
                Group::Modes => details.modes = Some(self.modes(device)?),
                Group::Inforom => details.inforom = Some(product::inforom(device)?),
                Group::GspFirmware => details.gsp_firmware = Some(product::gsp_firmware(device)?),
                Group::VirtualGpus => {
                    details.virtual_gpus = Some(virtualization::virtual_gpus(self, device)?)
                }
                Group::ResetStatus => {
                    details.reset_status = Some(memory_health::reset_status(device)?);
                }
                Group::OperationModes => {
                    details.operation_modes = Some(modes::operation_modes(device)?);
                }
                Group::Activity => details.activity = Some(activity::activity(device)?),
                Group::Engines => details.engines = Some(activity::engines(device)?),
                Group::Clocks => details.clocks = Some(activity::clocks(device)?),
                Group::ApplicationClocks => {
                    details.application_clocks = Some(activity::application_clocks(device)?);
                }
                Group::Power => details.power = Some(power::power(device)?),
                Group::PowerReadings => details.power_readings = Some(power::readings(device)?),
                Group::Thermal => details.thermal = Some(power::thermal(device)?),
                Group::Pcie => details.pcie = Some(self.pcie(device)?),
                Group::PcieThroughput => details.pcie_throughput = Some(pcie::throughput(device)?),
                Group::RareModes => details.rare_modes = Some(modes::rare_modes(device)?),
                Group::ThrottleTimes => {
                    details.throttle_times = Some(activity::throttle_times(device)?);
                }
                Group::SupportedClocks => {
                    details.supported_clocks = Some(activity::supported_clocks(device)?);
                }
                Group::ModulePower => details.module_power = Some(power::module(device)?),
                Group::SramErrors => {
                    details.sram_errors = Some(memory_health::sram_errors(device)?);
                }
                Group::Platform => details.platform = Some(fabric::platform(device)?),
                Group::ProtectedMemory => {
                    details.protected_memory = Some(virtualization::protected_memory(device)?);
                }
                Group::MemoryErrors => {
                    details.memory_errors = Some(memory_health::memory_errors(device)?.into());
                }
                Group::Fabric => details.fabric = Some(fabric::fabric(device)?),
                Group::MemoryHealth => {
                    details.memory_health = Some(memory_health::memory_health(device)?);
                }
                Group::NvLinks => details.nvlinks = Some(nvlink::nvlinks(device)?),
                Group::Accounting => details.accounting = Some(accounting::accounting(device)?),
            }
        }
        Ok(details)
    }
}
