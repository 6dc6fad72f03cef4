//! What the device is and how it is set up.

use super::{Noted, view};
use gpu_core::{AddressingMode, ComputeMode, OperationMode, RecoveryAction};
use serde::Serialize;

/// What the GPU is.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Product {
    /// Product line, such as Tesla or GeForce. Null if unknown.
    pub brand: Option<String>,
    /// Architecture, such as Ampere. Null if unknown.
    pub architecture: Option<String>,
    /// Serial number of the board. Null if unknown.
    pub serial: Option<String>,
    /// Part number of the board. Null if unknown.
    pub part_number: Option<String>,
    /// Version of the video BIOS. Null if unknown.
    pub vbios: Option<String>,
    /// CUDA compute capability, such as 8.0. Null if unknown.
    pub compute_capability: Option<String>,
    /// Number of CUDA cores. Null if unknown.
    pub core_count: Option<u32>,
    /// Width of the memory bus, in bits. Null if unknown.
    pub memory_bus_width_bits: Option<u32>,
    /// Nearest NUMA node of the host. Null if unknown.
    pub numa_node_id: Option<u32>,
}

impl Product {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Product) -> Self {
        let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        view!(
            noted,
            "product",
            Product {
                brand: group.brand,
                architecture: group.architecture,
                serial: group.serial,
                part_number: group.part_number,
                vbios: group.vbios,
                compute_capability: group.compute_capability.map(version),
                core_count: group.cores,
                memory_bus_width_bits: group.memory_bus_width,
                numa_node_id: group.numa_node,
            }
        )
    }
}

/// Configuration of the GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Modes {
    /// Which processes may create a CUDA context. Null if unknown.
    pub compute_mode: Option<ComputeMode>,
    /// Whether a display can be connected. Null if unknown.
    pub display_attached: Option<bool>,
    /// Whether ECC is enabled now. Null if unknown.
    pub ecc: Option<bool>,
    /// Whether ECC will be enabled after the next reset. Null if unknown.
    pub ecc_pending: Option<bool>,
    /// Whether MIG mode will be enabled after the next reset. Null if unknown.
    pub mig_pending: Option<bool>,
    /// Whether the driver keeps accounting data of processes. Null if unknown.
    pub accounting: Option<bool>,
    /// How the GPU accesses memory that programs allocated on the host. Null if unknown.
    pub addressing: Option<AddressingMode>,
}

impl Modes {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Modes) -> Self {
        view!(
            noted,
            "modes",
            Modes {
                compute_mode: group.compute_mode,
                display_attached: group.display_attached,
                ecc: group.ecc,
                ecc_pending: group.ecc_pending,
                mig_pending: group.mig_pending,
                accounting: group.accounting,
                addressing: group.addressing,
            }
        )
    }
}

/// Versions of the contents of the inforom.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Inforom {
    /// Version of the image. Null if unknown.
    pub image: Option<String>,
    /// Version of the OEM object. Null if unknown.
    pub oem: Option<String>,
    /// Version of the ECC object. Null if unknown.
    pub ecc: Option<String>,
    /// Version of the power management object. Null if unknown.
    pub power: Option<String>,
}

impl Inforom {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::Inforom) -> Self {
        view!(
            noted,
            "inforom",
            Inforom { image: group.image, oem: group.oem, ecc: group.ecc, power: group.power }
        )
    }
}

/// Firmware of the GPU system processor (GSP).
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GspFirmware {
    /// Whether the firmware is in use. Null if unknown.
    pub enabled: Option<bool>,
    /// Whether the firmware is in use by default. Null if unknown.
    pub enabled_by_default: Option<bool>,
}

impl GspFirmware {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::GspFirmware) -> Self {
        view!(
            noted,
            "gsp_firmware",
            GspFirmware { enabled: group.enabled, enabled_by_default: group.enabled_by_default }
        )
    }
}

/// Which kinds of virtual GPUs can coexist.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VirtualGpus {
    /// Whether the driver supports different profiles side by side. Null if unknown.
    pub heterogeneous: Option<bool>,
    /// Whether one guest can have fractions of this GPU beside other GPUs. Null if unknown.
    pub fractional: Option<bool>,
    /// Whether time-sliced profiles of different types can coexist. Null if unknown.
    pub timeslice_profiles: Option<bool>,
    /// Whether time-sliced profiles of different sizes can coexist. Null if unknown.
    pub timeslice_sizes: Option<bool>,
}

impl VirtualGpus {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::VirtualGpus) -> Self {
        let can = |number| number != 0;
        view!(
            noted,
            "virtual_gpus",
            VirtualGpus {
                heterogeneous: group.heterogeneous.map(can),
                fractional: group.fractional.map(can),
                timeslice_profiles: group.timeslice_profiles.map(can),
                timeslice_sizes: group.timeslice_sizes.map(can),
            }
        )
    }
}

/// Whether the GPU needs a reset.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResetStatus {
    /// Whether the GPU works only after a reset. Null if unknown.
    pub required: Option<bool>,
    /// Whether the GPU should be drained and reset when convenient. Null if unknown.
    pub drain_recommended: Option<bool>,
    /// What the driver asks for to make the GPU work again. Null if unknown.
    pub recovery: Option<RecoveryAction>,
}

impl ResetStatus {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::ResetStatus) -> Self {
        view!(
            noted,
            "reset_status",
            ResetStatus {
                required: group.required,
                drain_recommended: group.drain_recommended,
                recovery: group.recovery,
            }
        )
    }
}

/// GPU operation mode.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OperationModes {
    /// Mode until the next reset. Null if unknown.
    pub current: Option<OperationMode>,
    /// Mode after the next reset. Null if unknown.
    pub pending: Option<OperationMode>,
}

impl OperationModes {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::OperationModes) -> Self {
        view!(
            noted,
            "operation_modes",
            OperationModes { current: group.current, pending: group.pending }
        )
    }
}
