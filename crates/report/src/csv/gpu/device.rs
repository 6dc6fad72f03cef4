//! Columns for the identity, the connection and the configuration of the device.

use super::{bus, bus_id, name, serial, uuid};
use crate::csv::field::{Field, Row, detail, enabled, plain, yes};
use crate::wording;
use gpu_core::{Absent, AddressingMode, Group, OperationMode, Reading};

/// Makes a column for a vGPU capability.
macro_rules! virtual_gpus {
    ($name:literal, $about:literal, $value:ident) => {
        detail!($name, $about, VirtualGpus: virtual_gpus.$value, plain)
    };
}

/// The columns from `timestamp` on.
pub(super) const FIELDS: &[Field] = &[
    Field::new("timestamp", "timestamp of the query, local time", |row| Ok(row.time.to_owned())),
    Field::new("driver_version", "version of the driver", driver_version),
    Field::new("kmd_version", "version of the driver, its name since 595", driver_version),
    virtual_gpus!(
        "vgpu_driver_capability.heterogenous_multivGPU",
        "heterogeneous multi-vGPU support",
        heterogeneous
    ),
    Field::new("count", "number of GPUs in the system", |row| {
        Ok(plain(&row.machine.devices.len()))
    }),
    Field::new("name", "name of the product", name).or(&["gpu_name"]),
    Field::new("serial", "serial number of the board", serial)
        .or(&["gpu_serial"])
        .from(Group::Product),
    Field::new("uuid", "UUID of the device", uuid).or(&["gpu_uuid"]),
    Field::new("pci.bus_id", "PCI address", bus_id).or(&["gpu_bus_id"]),
    Field::new("pci.domain", "PCI domain, in hex", |row| {
        bus(row).map(|bus| format!("0x{:04X}", bus.domain))
    }),
    Field::new("pci.bus", "PCI bus, in hex", |row| {
        bus(row).map(|bus| format!("0x{:02X}", bus.bus))
    }),
    Field::new("pci.device", "PCI device, in hex", |row| {
        bus(row).map(|bus| format!("0x{:02X}", bus.device))
    }),
    detail!(
        "pci.baseClass", "PCI base class, in hex",
        Pcie: pcie.base_class, |class| format!("0x{class:X}")
    ),
    detail!(
        "pci.subClass", "PCI subclass, in hex",
        Pcie: pcie.sub_class, |class| format!("0x{class:X}")
    ),
    detail!("pci.device_id", "PCI vendor and device ID, in hex", Pcie: pcie.device_id, hex),
    detail!(
        "pci.sub_device_id", "PCI subsystem ID, in hex",
        Pcie: pcie.subsystem_id, hex
    ),
    virtual_gpus!(
        "vgpu_device_capability.fractional_multiVgpu",
        "fractional multi-vGPU support",
        fractional
    ),
    virtual_gpus!(
        "vgpu_device_capability.heterogeneous_timeSlice_profile",
        "vGPU time-slicing with mixed profile types",
        timeslice_profiles
    ),
    virtual_gpus!(
        "vgpu_device_capability.heterogeneous_timeSlice_sizes",
        "vGPU time-slicing with mixed profile sizes",
        timeslice_sizes
    ),
    virtual_gpus!(
        "vgpu_device_capability.homogeneous_placements",
        "vGPU placements of one profile type",
        homogeneous_placements
    ),
    virtual_gpus!(
        "vgpu_device_capability.mig_timeSlicing",
        "vGPU time-slicing in MIG instances",
        mig_timeslicing
    ),
    virtual_gpus!(
        "vgpu_device_capability.mig_timeSlicing_mode",
        "whether vGPU time-slicing in MIG instances is on",
        mig_timeslicing_enabled
    ),
    detail!(
        "pcie.link.gen.current", "current PCIe link generation",
        Pcie: pcie.generation, plain
    ),
    detail!(
        "pcie.link.gen.gpucurrent", "current PCIe link generation",
        Pcie: pcie.generation, plain
    ),
    detail!(
        "pcie.link.gen.max", "maximum PCIe link generation of GPU and slot",
        Pcie: pcie.generation_max, plain
    ),
    detail!(
        "pcie.link.gen.gpumax", "maximum PCIe link generation of the GPU",
        Pcie: pcie.device_generation_max, plain
    ),
    Field::unreported(
        "pcie.link.gen.hostmax",
        "maximum PCIe link generation of the slot; not available through public NVML",
    ),
    detail!("pcie.link.width.current", "current PCIe link width", Pcie: pcie.width, plain),
    detail!("pcie.link.width.max", "maximum PCIe link width", Pcie: pcie.width_max, plain),
    Field::new("index", "index of the device, by PCI address", |row| {
        Ok(plain(&row.device.id().index))
    }),
    Field::new(
        "display_mode",
        "whether a display is connected; deprecated since driver 575",
        |row| match row.release().deprecates_display_mode() {
            true => Err(Absent::Deprecated),
            false => display_attached(row).map(|attached| enabled(&attached)),
        },
    )
    .from(Group::Modes),
    Field::new("display_attached", "the same, Yes or No", |row| {
        display_attached(row).map(|attached| yes(&attached))
    })
    .from(Group::Modes),
    Field::new("display_active", "whether a display is initialised", |row| {
        row.device.info.display_active.map(|active| enabled(&active))
    }),
    Field::new("persistence_mode", "persistence mode", |row| {
        row.device.info.persistence.map(|persistence| enabled(&persistence))
    }),
    detail!(
        "addressing_mode", "addressing mode (HMM, ATS or none)",
        Modes: modes.addressing, addressing_mode
    ),
    detail!(
        "accounting.mode", "accounting mode",
        Modes: modes.accounting, enabled
    ),
    detail!(
        "accounting.buffer_size", "accounting buffer size (processes)",
        Accounting: accounting.buffer_size, plain
    ),
    Field::unreported("driver_model.current", "driver model (Windows only)"),
    Field::unreported("driver_model.pending", "pending value, after the next restart"),
    detail!("vbios_version", "version of the video BIOS", Product: product.vbios, plain),
    detail!("inforom.img", "version of the image in the infoROM", Inforom: inforom.image, plain)
        .or(&["inforom.image"]),
    detail!(
        "inforom.oem", "infoROM OEM object version",
        Inforom: inforom.oem, plain
    ),
    detail!(
        "inforom.ecc", "infoROM ECC object version",
        Inforom: inforom.ecc, plain
    ),
    detail!(
        "inforom.pwr", "infoROM power management object version",
        Inforom: inforom.power, plain
    )
    .or(&["inforom.power"]),
    detail!(
        "inforom.checksum_validation", "whether the checksums of the infoROM are right",
        Inforom: inforom.valid, |valid| if *valid { "valid" } else { "invalid" }.to_owned()
    ),
    detail!(
        "reset_status.reset_required", "whether a GPU reset is required",
        ResetStatus: reset_status.required, yes
    ),
    detail!(
        "reset_status.drain_and_reset_recommended",
        "whether drain and reset is recommended",
        ResetStatus: reset_status.drain_recommended, yes
    ),
    detail!(
        "gpu_recovery_action", "recovery action that the driver requests",
        ResetStatus: reset_status.recovery, |action| action.name().to_owned()
    ),
    detail!(
        "gom.current", "GPU operation mode",
        OperationModes: operation_modes.current, operation_mode
    )
    .or(&["gpu_operation_mode.current"]),
    detail!(
        "gom.pending", "pending value, after the next reset",
        OperationModes: operation_modes.pending, operation_mode
    )
    .or(&["gpu_operation_mode.pending"]),
];

fn driver_version(row: &Row<'_>) -> Reading<String> {
    row.machine.driver.as_ref().map_err(|fault| fault.kind.absent())?.version.clone()
}

fn display_attached(row: &Row<'_>) -> Reading<bool> {
    row.details()?.modes.as_ref().ok_or(Absent::NotRecorded)?.display_attached
}

fn addressing_mode(mode: &AddressingMode) -> String {
    wording::addressing_mode(*mode).to_owned()
}

fn operation_mode(mode: &OperationMode) -> String {
    wording::operation_mode(*mode).to_owned()
}

/// Formats a combined PCI ID in hexadecimal, zero-padded to four digits only, as nvidia-smi does.
fn hex(number: &u32) -> String {
    format!("0x{number:04X}")
}
