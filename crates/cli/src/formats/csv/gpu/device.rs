//! What the device is, where it is connected, and how it is set up.

use super::{bus, bus_id, name, serial, uuid};
use crate::formats::csv::field::{Field, detail, enabled, plain, yes};
use crate::words;
use gpu_core::{AddressingMode, Group, OperationMode};

/// Makes a column of what virtual GPUs can be.
macro_rules! virtual_gpus {
    ($name:literal, $about:literal, $value:ident) => {
        detail!($name, $about, VirtualGpus: virtual_gpus.$value, plain)
    };
}

/// The columns from the time on.
pub(super) const FIELDS: &[Field] = &[
    Field::new("timestamp", "when it was looked, in local time", |row| Ok(row.time.to_owned())),
    Field::new("driver_version", "version of the driver", |row| {
        row.machine.driver.as_ref().map_err(|fault| fault.kind.absent())?.version.clone()
    }),
    virtual_gpus!(
        "vgpu_driver_capability.heterogenous_multivGPU",
        "whether several profiles of virtual GPUs can be beside each other",
        heterogeneous
    ),
    Field::new("count", "number of devices of the machine", |row| {
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
    detail!("pci.device_id", "vendor and device number, in hex", Pcie: pcie.device_id, hex),
    detail!(
        "pci.sub_device_id", "vendor and number of the board, in hex",
        Pcie: pcie.subsystem_id, hex
    ),
    virtual_gpus!(
        "vgpu_device_capability.fractional_multiVgpu",
        "whether a guest may have parts of several devices",
        fractional
    ),
    virtual_gpus!(
        "vgpu_device_capability.heterogeneous_timeSlice_profile",
        "whether profiles of different types may take turns",
        timeslice_profiles
    ),
    virtual_gpus!(
        "vgpu_device_capability.heterogeneous_timeSlice_sizes",
        "whether profiles of different sizes may take turns",
        timeslice_sizes
    ),
    detail!(
        "pcie.link.gen.current", "generation of the PCIe link in use",
        Pcie: pcie.generation, plain
    ),
    detail!(
        "pcie.link.gen.gpucurrent", "generation of the PCIe link in use",
        Pcie: pcie.generation, plain
    ),
    detail!(
        "pcie.link.gen.max", "highest generation of device and slot",
        Pcie: pcie.generation_max, plain
    ),
    detail!(
        "pcie.link.gen.gpumax", "highest PCIe generation of the device",
        Pcie: pcie.device_generation_max, plain
    ),
    Field::untold(
        "pcie.link.gen.hostmax",
        "highest PCIe generation of the slot, which NVML tells nobody else",
    ),
    detail!("pcie.link.width.current", "PCIe lanes in use", Pcie: pcie.width, plain),
    detail!("pcie.link.width.max", "highest number of PCIe lanes", Pcie: pcie.width_max, plain),
    Field::new("index", "index of the device, by PCI address", |row| {
        Ok(plain(&row.device.id().index))
    }),
    detail!(
        "display_mode", "whether a display is connected",
        Modes: modes.display_attached, enabled
    ),
    Field::new("display_active", "whether a display is initialised", |row| {
        row.device.info.display_active.map(|active| enabled(&active))
    }),
    Field::new("persistence_mode", "whether the driver stays initialised without users", |row| {
        row.device.info.persistence.map(|persistence| enabled(&persistence))
    }),
    detail!(
        "addressing_mode", "how the device reaches memory allocated on the host",
        Modes: modes.addressing, addressing_mode
    ),
    detail!(
        "accounting.mode", "whether use is recorded over a process's life",
        Modes: modes.accounting, enabled
    ),
    detail!(
        "accounting.buffer_size", "how many processes are kept in that record",
        Accounting: accounting.buffer_size, plain
    ),
    Field::untold("driver_model.current", "a choice that only Windows has"),
    Field::untold("driver_model.pending", "… from the next start on"),
    detail!("vbios_version", "version of the video BIOS", Product: product.vbios, plain),
    detail!("inforom.img", "version of the image in the infoROM", Inforom: inforom.image, plain)
        .or(&["inforom.image"]),
    detail!(
        "inforom.oem", "version of the seller's settings in the infoROM",
        Inforom: inforom.oem, plain
    ),
    detail!(
        "inforom.ecc", "version of the record of memory errors in the infoROM",
        Inforom: inforom.ecc, plain
    ),
    detail!(
        "inforom.pwr", "version of the settings of power in the infoROM",
        Inforom: inforom.power, plain
    )
    .or(&["inforom.power"]),
    detail!(
        "reset_status.reset_required", "whether the device works only after a reset",
        ResetStatus: reset_status.required, yes
    ),
    detail!(
        "reset_status.drain_and_reset_recommended",
        "whether the device is to be emptied and reset",
        ResetStatus: reset_status.drain_recommended, yes
    ),
    detail!(
        "gom.current", "what the device is set up to be good at",
        OperationModes: operation_modes.current, operation_mode
    )
    .or(&["gpu_operation_mode.current"]),
    detail!(
        "gom.pending", "… from the next reset on",
        OperationModes: operation_modes.pending, operation_mode
    )
    .or(&["gpu_operation_mode.pending"]),
];

fn addressing_mode(mode: &AddressingMode) -> String {
    words::addressing_mode(*mode).to_owned()
}

fn operation_mode(mode: &OperationMode) -> String {
    words::operation_mode(*mode).to_owned()
}

/// Both numbers in one, without zeros in front beyond the fourth digit, as nvidia-smi writes it.
fn hex(number: &u32) -> String {
    format!("0x{number:04X}")
}
