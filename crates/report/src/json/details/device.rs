//! What the device is and how it is set up.

use super::{Noted, view};
use gpu_core::{AddressingMode, ComputeMode, OperationMode};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Product {
    brand: Option<String>,
    architecture: Option<String>,
    serial: Option<String>,
    part_number: Option<String>,
    vbios: Option<String>,
    compute_capability: Option<String>,
    core_count: Option<u32>,
    memory_bus_width_bits: Option<u32>,
    numa_node_id: Option<u32>,
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

#[derive(Serialize)]
pub(super) struct Modes {
    compute_mode: Option<ComputeMode>,
    display_attached: Option<bool>,
    ecc: Option<bool>,
    ecc_pending: Option<bool>,
    mig_pending: Option<bool>,
    accounting: Option<bool>,
    addressing: Option<AddressingMode>,
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

#[derive(Serialize)]
pub(super) struct Inforom {
    image: Option<String>,
    oem: Option<String>,
    ecc: Option<String>,
    power: Option<String>,
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

#[derive(Serialize)]
pub(super) struct GspFirmware {
    enabled: Option<bool>,
    enabled_by_default: Option<bool>,
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

#[derive(Serialize)]
pub(super) struct VirtualGpus {
    heterogeneous: Option<bool>,
    fractional: Option<bool>,
    timeslice_profiles: Option<bool>,
    timeslice_sizes: Option<bool>,
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

#[derive(Serialize)]
pub(super) struct ResetStatus {
    required: Option<bool>,
    drain_recommended: Option<bool>,
}

impl ResetStatus {
    pub(super) fn of(noted: &mut Noted, group: gpu_core::ResetStatus) -> Self {
        view!(
            noted,
            "reset_status",
            ResetStatus { required: group.required, drain_recommended: group.drain_recommended }
        )
    }
}

#[derive(Serialize)]
pub(super) struct OperationModes {
    current: Option<OperationMode>,
    pending: Option<OperationMode>,
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
