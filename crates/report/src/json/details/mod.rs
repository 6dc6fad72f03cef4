//! What `gpuws status -q --json` tells of a device beyond the plain view.

mod device;
mod link;
mod memory;
mod state;

use device::{GspFirmware, Inforom, Modes, OperationModes, Product, ResetStatus, VirtualGpus};
use gpu_core::{Absent, DeviceDetails, DeviceState};
use link::{Fabric, NvLink, Pcie, PcieThroughput};
use memory::{Accounting, Health, MemoryErrors, ProtectedMemory};
use serde::Serialize;
use state::{Activity, ApplicationClocks, Clocks, Engines, Power, PowerReadings, Thermal};
use std::collections::BTreeMap;

/// All groups of details. A value that is null has its reason under `absent`, by group and name;
/// a whole group that could not be asked for, by the group's name.
#[derive(Serialize)]
pub(super) struct Details {
    product: Option<Product>,
    modes: Option<Modes>,
    inforom: Option<Inforom>,
    gsp_firmware: Option<GspFirmware>,
    virtual_gpus: Option<VirtualGpus>,
    reset_status: Option<ResetStatus>,
    operation_modes: Option<OperationModes>,
    activity: Option<Activity>,
    engines: Option<Engines>,
    clocks: Option<Clocks>,
    application_clocks: Option<ApplicationClocks>,
    power: Option<Power>,
    power_readings: Option<PowerReadings>,
    thermal: Option<Thermal>,
    pcie: Option<Pcie>,
    pcie_throughput: Option<PcieThroughput>,
    protected_memory: Option<ProtectedMemory>,
    memory_health: Option<Health>,
    memory_errors: Option<MemoryErrors>,
    nvlinks: Option<Vec<NvLink>>,
    fabric: Option<Fabric>,
    accounting: Option<Accounting>,
    absent: Noted,
}

/// Values that are not there, with their reasons.
type Noted = BTreeMap<&'static str, Absent>;

/// Makes a view of a group; a value that is not there is noted with its reason.
macro_rules! view {
    ($absent:ident, $prefix:literal, $view:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $view {
            $(
                $field: $crate::json::status::known(
                    $absent, concat!($prefix, ".", stringify!($field)), $value,
                ),
            )*
        }
    };
}
use view;

impl Details {
    /// Returns the details of a device; `None` where none were asked for.
    pub(super) fn of(device: &DeviceState) -> Option<Self> {
        let mut absent = Noted::new();
        let details = match &device.details {
            Ok(details) if details.is_empty() => return None,
            Ok(details) => details.clone(),
            Err(fault) => {
                absent.insert("details", fault.kind.absent());
                DeviceDetails::default()
            }
        };
        let noted = &mut absent;
        Some(Details {
            product: details.product.map(|group| Product::of(noted, group)),
            modes: details.modes.map(|group| Modes::of(noted, group)),
            inforom: details.inforom.map(|group| Inforom::of(noted, group)),
            gsp_firmware: details.gsp_firmware.map(|group| GspFirmware::of(noted, group)),
            virtual_gpus: details.virtual_gpus.map(|group| VirtualGpus::of(noted, group)),
            reset_status: details.reset_status.map(|group| ResetStatus::of(noted, group)),
            operation_modes: details.operation_modes.map(|group| OperationModes::of(noted, group)),
            activity: details.activity.map(|group| Activity::of(noted, group)),
            engines: details.engines.map(|group| Engines::of(noted, group)),
            clocks: details.clocks.map(|group| Clocks::of(noted, group)),
            application_clocks: details
                .application_clocks
                .map(|group| ApplicationClocks::of(noted, group)),
            power: details.power.map(|group| Power::of(noted, group)),
            power_readings: details.power_readings.map(|group| PowerReadings::of(noted, group)),
            thermal: details.thermal.map(|group| Thermal::of(noted, group)),
            pcie: details.pcie.map(|group| Pcie::of(noted, group)),
            pcie_throughput: details.pcie_throughput.map(|group| PcieThroughput::of(noted, group)),
            protected_memory: details
                .protected_memory
                .map(|group| ProtectedMemory::of(noted, group)),
            memory_health: details.memory_health.map(|group| Health::of(noted, group)),
            memory_errors: details.memory_errors.map(|group| MemoryErrors::of(noted, *group)),
            nvlinks: details
                .nvlinks
                .map(|links| links.iter().enumerate().map(NvLink::of).collect()),
            fabric: details.fabric.map(|group| Fabric::of(noted, group)),
            accounting: details.accounting.map(|group| Accounting::of(noted, group)),
            absent,
        })
    }
}
