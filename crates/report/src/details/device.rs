//! Entries for the identity and the configuration of a device.

use super::{Entry, enabled, group, group_of, known, value, yes};
use crate::release::Release;
use crate::wording;
use gpu_core::{
    Absent, DeviceState, GspFirmware, Inforom, Modes, OperationModes, Partition, Product,
    ResetStatus, VirtualGpus,
};

/// Returns the entries from `Product Name` on.
pub(super) fn entries(device: &DeviceState, release: Release) -> Vec<Entry> {
    let info = &device.info;
    let product = group_of(device, |details| details.product.as_ref(), Product::absent);
    let modes = group_of(device, |details| details.modes.as_ref(), Modes::absent);
    let inforom = group_of(device, |details| details.inforom.as_ref(), Inforom::absent);
    let operation =
        group_of(device, |details| details.operation_modes.as_ref(), OperationModes::absent);
    let firmware = group_of(device, |details| details.gsp_firmware.as_ref(), GspFirmware::absent);
    let guests = group_of(device, |details| details.virtual_gpus.as_ref(), VirtualGpus::absent);
    let reset = group_of(device, |details| details.reset_status.as_ref(), ResetStatus::absent);
    let mut partitions = device.partitions.iter().flatten().peekable();
    let has_partitions = partitions.peek().is_some() && !partitions.any(Partition::is_mig);
    let can = |number| if number != 0 { "Supported" } else { "Not Supported" };
    let buffer = match &device.details {
        Ok(details) => details.accounting.as_ref().ok_or(Absent::NotRecorded),
        Err(fault) => Err(fault.kind.absent()),
    };
    let capability = product.compute_capability;
    let display_mode = match release.deprecates_display_mode() {
        true => Err(Absent::Deprecated),
        false => enabled(modes.display_attached),
    };
    vec![
        value("Product Name", info.name.clone()),
        value("Product Brand", product.brand),
        value("Product Architecture", product.architecture),
        value("Compute Capability", capability.map(|(major, minor)| format!("{major}.{minor}"))),
        value("CUDA Cores", product.cores),
        value("Display Mode", display_mode),
        value("Display Attached", yes(modes.display_attached)),
        value("Display Active", enabled(info.display_active)),
        value("Persistence Mode", enabled(info.persistence)),
        value("Addressing Mode", modes.addressing.map(wording::addressing_mode)),
        group(
            if has_partitions { "Partition Mode" } else { "MIG Mode" },
            [
                value("Current", enabled(info.partitioned)),
                value("Pending", enabled(modes.mig_pending)),
            ],
        ),
        value("Accounting Mode", enabled(modes.accounting)),
        value("Accounting Mode Buffer Size", buffer.and_then(|accounting| accounting.buffer_size)),
        value("Serial Number", product.serial),
        known("Index", info.id.index),
        value("GPU UUID", info.id.uuid.clone()),
        value("Minor Number", info.id.minor()),
        value("VBIOS Version", product.vbios),
        value("Board Part Number", product.part_number),
        group(
            "Inforom Version",
            [
                value("Image Version", inforom.image),
                value("OEM Object", inforom.oem),
                value("ECC Object", inforom.ecc),
                value("Power Management Object", inforom.power),
            ],
        ),
        group(
            "GPU Operation Mode",
            [
                value("Current", operation.current.map(wording::operation_mode)),
                value("Pending", operation.pending.map(wording::operation_mode)),
            ],
        ),
        group(
            "GSP Firmware Mode",
            [
                value("Current", enabled(firmware.enabled)),
                value("Default", enabled(firmware.enabled_by_default)),
            ],
        ),
        group(
            "vGPU Capability",
            [
                value("Heterogeneous Multi-vGPU", guests.heterogeneous.map(can)),
                value("Fractional Multi-vGPU", guests.fractional.map(can)),
                value("Time-Slice Profiles", guests.timeslice_profiles.map(can)),
                value("Time-Slice Sizes", guests.timeslice_sizes.map(can)),
            ],
        ),
        group(
            "GPU Reset Status",
            [
                value("Reset Required", yes(reset.required)),
                value("Drain and Reset Recommended", yes(reset.drain_recommended)),
                value("Recovery Action", reset.recovery.map(|action| action.name())),
            ],
        ),
        value("Memory Bus Width", super::unit(product.memory_bus_width, "bit")),
        value("NUMA Node", product.numa_node),
    ]
}
