//! What `gpuws status -q --json` tells of a device beyond the plain view.

pub mod device;
pub mod link;
pub mod memory;
pub mod state;

use device::{GspFirmware, Inforom, Modes, OperationModes, Product, ResetStatus, VirtualGpus};
use gpu_core::{Absent, DeviceDetails, DeviceState};
use link::{Fabric, NvLink, Pcie, PcieThroughput};
use memory::{Accounting, Health, MemoryErrors, ProtectedMemory};
use serde::Serialize;
use state::{Activity, ApplicationClocks, Clocks, Engines, Power, PowerReadings, Thermal};
use std::collections::BTreeMap;

/// Details of a GPU, by group.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Details {
    /// What the GPU is. Null if the driver did not report it.
    pub product: Option<Product>,
    /// Configuration of the GPU. Null if the driver did not report it.
    pub modes: Option<Modes>,
    /// Versions of the contents of the inforom. Null if the driver did not report it.
    pub inforom: Option<Inforom>,
    /// Firmware of the GPU system processor (GSP). Null if the driver did not report it.
    pub gsp_firmware: Option<GspFirmware>,
    /// Which kinds of virtual GPUs can coexist. Null if the driver did not report it.
    pub virtual_gpus: Option<VirtualGpus>,
    /// Whether the GPU needs a reset. Null if the driver did not report it.
    pub reset_status: Option<ResetStatus>,
    /// GPU operation mode. Null if the driver did not report it.
    pub operation_modes: Option<OperationModes>,
    /// How busy the GPU is, and what reduces its clocks. Null if the driver did not report it.
    pub activity: Option<Activity>,
    /// Utilisation of the image engines. Null if the driver did not report it.
    pub engines: Option<Engines>,
    /// Clocks. Null if the driver did not report it.
    pub clocks: Option<Clocks>,
    /// Application clocks. Null if the driver did not report it.
    pub application_clocks: Option<ApplicationClocks>,
    /// Power limits and energy. Null if the driver did not report it.
    pub power: Option<Power>,
    /// Readings of the power draw. Null if the driver did not report it.
    pub power_readings: Option<PowerReadings>,
    /// Fan and temperatures. Null if the driver did not report it.
    pub thermal: Option<Thermal>,
    /// PCI Express link. Null if the driver did not report it.
    pub pcie: Option<Pcie>,
    /// Traffic on the PCI Express link. Null if the driver did not report it.
    pub pcie_throughput: Option<PcieThroughput>,
    /// Protected memory (confidential computing). Null if the driver did not report it.
    pub protected_memory: Option<ProtectedMemory>,
    /// Errors of the memory and repairs. Null if the driver did not report it.
    pub memory_health: Option<Health>,
    /// Errors of the memories, by location. Null if the driver did not report it.
    pub memory_errors: Option<MemoryErrors>,
    /// NVLinks. Null if the driver did not report it.
    pub nvlinks: Option<Vec<NvLink>>,
    /// NVLink fabric. Null if the driver did not report it.
    pub fabric: Option<Fabric>,
    /// Accounting data of processes. Null if the driver did not report it.
    pub accounting: Option<Accounting>,
    /// Why values are null, by group and field name, such as "clocks.sm_mhz". The name "details" means
    /// that no group could be queried.
    pub absent: Noted,
}

/// Values that are not there, with their reasons.
type Noted = BTreeMap<&'static str, Absent>;

/// Makes a view of a group; a value that is not there is noted with its reason.
macro_rules! view {
    ($absent:ident, $prefix:literal, $view:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $view {
            $(
                $field: $crate::json::known(
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
