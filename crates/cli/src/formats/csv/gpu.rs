//! The columns of `--query-gpu`.

use super::field::{Field, Row, detail, enabled, mib, plain, watts, yes};
use crate::words;
use gpu_core::{Absent, ComputeMode, Group, OperationMode, PciBusId, Reading, ThrottleReasons};

/// Makes a column of one reason for low clocks.
macro_rules! reason {
    ($name:literal, $bit:literal, $about:literal) => {
        Field::new(concat!("clocks_event_reasons.", $name), $about, |row| active(row, $bit))
            .or(&[concat!("clocks_throttle_reasons.", $name)])
            .from(Group::Activity)
    };
}

/// Makes a column of a share of time.
macro_rules! percent {
    ($name:literal, $about:literal, $group:ident: $field:ident . $value:ident) => {
        detail!($name, $about, $group: $field.$value, |share| plain(&share.get())).unit("%")
    };
}

/// Makes a column of a clock.
macro_rules! clock {
    ($name:literal, $about:literal, $value:ident $(, $other:literal)?) => {
        detail!($name, $about, Clocks: clocks.$value, plain).unit("MHz").or(&[$($other)?])
    };
}

/// Every column that can be answered, by the names of nvidia-smi 535, in the order of its help.
pub(super) const FIELDS: &[Field] = &[
    Field::new("timestamp", "when it was looked, in local time", |row| Ok(row.time.to_owned())),
    Field::new("driver_version", "version of the driver", |row| {
        row.machine.driver.as_ref().map_err(|fault| fault.kind.absent())?.version.clone()
    }),
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
        "accounting.mode", "whether use is recorded over a process's life",
        Modes: modes.accounting, enabled
    ),
    detail!(
        "accounting.buffer_size", "how many processes are kept in that record",
        Accounting: accounting.buffer_size, plain
    ),
    detail!("vbios_version", "version of the video BIOS", Product: product.vbios, plain),
    detail!("inforom.img", "version of the image in the infoROM", Inforom: inforom.image, plain)
        .or(&["inforom.image"]),
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
    detail!(
        "fan.speed", "speed that the fan is meant to have",
        Thermal: thermal.fan_speed, plain
    )
    .unit("%"),
    detail!(
        "pstate", "performance state: P0 is the fastest",
        Activity: activity.performance_state, |state| format!("P{state}")
    ),
    detail!(
        "clocks_event_reasons.active", "reasons for low clocks, as NVML's bits",
        Activity: activity.throttle, |reasons| format!("0x{:016X}", reasons.0)
    )
    .or(&["clocks_throttle_reasons.active"]),
    reason!("gpu_idle", 0x001, "clocks are low since nothing runs"),
    reason!("applications_clocks_setting", 0x002, "clocks are low as they were set to"),
    reason!("sw_power_cap", 0x004, "clocks are low for the power limit"),
    reason!("hw_slowdown", 0x008, "clocks are halved by the hardware"),
    reason!("hw_thermal_slowdown", 0x040, "… since it is too hot"),
    reason!("hw_power_brake_slowdown", 0x080, "… since the power supply asks for it"),
    reason!("sw_thermal_slowdown", 0x020, "clocks are low since it is warm"),
    reason!("sync_boost", 0x010, "clocks are low for those of a group"),
    Field::new("memory.total", "device memory", |row| mib_of(row.sample()?.memory.total))
        .unit("MiB"),
    Field::new("memory.reserved", "device memory held back by driver and firmware", |row| {
        mib_of(row.sample()?.memory.reserved)
    })
    .unit("MiB"),
    Field::new("memory.used", "device memory in use", |row| mib_of(row.sample()?.memory.used))
        .unit("MiB"),
    Field::new("memory.free", "device memory that is free", free).unit("MiB"),
    detail!("compute_mode", "who may make a CUDA context", Modes: modes.compute_mode, compute_mode),
    detail!(
        "compute_cap", "CUDA compute capability",
        Product: product.compute_capability, |(major, minor)| format!("{major}.{minor}")
    ),
    Field::new("utilization.gpu", "share of time in which a kernel ran", |row| {
        row.sample()?.utilization.map(|share| plain(&share.get()))
    })
    .unit("%"),
    percent!(
        "utilization.memory", "share of time in which memory was read or written",
        Activity: activity.memory
    ),
    percent!(
        "utilization.encoder", "share of time in which the encoder worked",
        Activity: activity.encoder
    ),
    percent!(
        "utilization.decoder", "share of time in which the decoder worked",
        Activity: activity.decoder
    ),
    percent!(
        "utilization.jpeg", "share of time in which the JPEG decoder worked",
        Engines: engines.jpeg
    ),
    percent!(
        "utilization.ofa", "share of time in which the optical flow accelerator worked",
        Engines: engines.ofa
    ),
    detail!(
        "encoder.stats.sessionCount", "encoder sessions",
        Activity: activity.encoder_sessions, plain
    ),
    detail!(
        "encoder.stats.averageFps", "frames per second of the encoder",
        Activity: activity.encoder_fps, plain
    ),
    detail!(
        "encoder.stats.averageLatency", "latency of the encoder in microseconds",
        Activity: activity.encoder_latency, plain
    ),
    detail!("ecc.mode.current", "whether memory errors are corrected", Modes: modes.ecc, enabled),
    detail!("ecc.mode.pending", "… from the next reset on", Modes: modes.ecc_pending, enabled),
    detail!(
        "ecc.errors.corrected.volatile.total", "corrected errors since the driver was loaded",
        MemoryHealth: memory_health.corrected, plain
    ),
    detail!(
        "ecc.errors.corrected.aggregate.total", "corrected errors in the device's life",
        MemoryHealth: memory_health.corrected_lifetime, plain
    ),
    detail!(
        "ecc.errors.uncorrected.volatile.total", "uncorrected errors since the driver was loaded",
        MemoryHealth: memory_health.uncorrected, plain
    ),
    detail!(
        "ecc.errors.uncorrected.aggregate.total", "uncorrected errors in the device's life",
        MemoryHealth: memory_health.uncorrected_lifetime, plain
    ),
    detail!(
        "retired_pages.single_bit_ecc.count", "pages retired after single-bit errors",
        MemoryHealth: memory_health.retired_single_bit, plain
    )
    .or(&["retired_pages.sbe"]),
    detail!(
        "retired_pages.double_bit.count", "pages retired after a double-bit error",
        MemoryHealth: memory_health.retired_double_bit, plain
    )
    .or(&["retired_pages.dbe"]),
    detail!(
        "retired_pages.pending", "whether a page waits for a reset to be retired",
        MemoryHealth: memory_health.retired_pending, yes
    ),
    detail!(
        "remapped_rows.correctable", "rows remapped after corrected errors",
        MemoryHealth: memory_health.remapped_corrected, plain
    ),
    detail!(
        "remapped_rows.uncorrectable", "rows remapped after uncorrected errors",
        MemoryHealth: memory_health.remapped_uncorrected, plain
    ),
    detail!(
        "remapped_rows.pending", "whether a row waits for a reset to be remapped",
        MemoryHealth: memory_health.remapped_pending, yes
    ),
    detail!(
        "remapped_rows.failure", "whether a row could not be remapped",
        MemoryHealth: memory_health.remapped_failure, yes
    ),
    Field::new("temperature.gpu", "temperature of the chip in degrees Celsius", |row| {
        row.sample()?.temperature.map(|at| plain(&at.0))
    }),
    detail!(
        "temperature.memory", "temperature of the memory in degrees Celsius",
        Thermal: thermal.memory, |at| plain(&at.0)
    )
    .bare(),
    detail!(
        "power.management", "whether the device keeps to a power limit",
        PowerReadings: power_readings.managed, enabled
    ),
    Field::new("power.draw", "power drawn", |row| {
        row.sample()?.power_draw.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.draw.average", "power drawn over the last second",
        PowerReadings: power_readings.average, watts
    )
    .unit("W"),
    detail!(
        "power.draw.instant", "power drawn at this moment",
        PowerReadings: power_readings.instant, watts
    )
    .unit("W"),
    detail!("power.limit", "power limit that was asked for", Power: power.limit, watts).unit("W"),
    Field::new("enforced.power.limit", "power limit in force", |row| {
        row.sample()?.power_limit.as_ref().map(watts).map_err(|absent| *absent)
    })
    .unit("W"),
    detail!(
        "power.default_limit", "power limit after a reset",
        Power: power.default_limit, watts
    )
    .unit("W"),
    detail!("power.min_limit", "lowest power limit", Power: power.limit_min, watts).unit("W"),
    detail!("power.max_limit", "highest power limit", Power: power.limit_max, watts).unit("W"),
    clock!("clocks.current.graphics", "graphics clock", graphics, "clocks.gr"),
    clock!("clocks.current.sm", "clock of the multiprocessors", sm, "clocks.sm"),
    clock!("clocks.current.memory", "memory clock", memory, "clocks.mem"),
    clock!("clocks.current.video", "clock of the video engines", video, "clocks.video"),
    clock!("clocks.max.graphics", "highest graphics clock", graphics_max, "clocks.max.gr"),
    clock!("clocks.max.sm", "highest clock of the multiprocessors", sm_max),
    clock!("clocks.max.memory", "highest memory clock", memory_max, "clocks.max.mem"),
    Field::new("mig.mode.current", "whether the device is split by MIG", |row| {
        row.device.info.mig_enabled.map(|split| enabled(&split))
    }),
    detail!("mig.mode.pending", "… from the next reset on", Modes: modes.mig_pending, enabled),
];

pub(super) fn name(row: &Row<'_>) -> Reading<String> {
    row.device.info.name.clone()
}

pub(super) fn serial(row: &Row<'_>) -> Reading<String> {
    row.details()?.product.as_ref().ok_or(Absent::NotRecorded)?.serial.clone()
}

pub(super) fn uuid(row: &Row<'_>) -> Reading<String> {
    row.device.id().uuid.as_ref().map(plain).map_err(|absent| *absent)
}

pub(super) fn bus_id(row: &Row<'_>) -> Reading<String> {
    bus(row).map(|bus| bus.to_string())
}

fn bus(row: &Row<'_>) -> Reading<PciBusId> {
    row.device.id().bus
}

/// Both numbers in one, without zeros in front beyond the fourth digit, as nvidia-smi writes it.
fn hex(number: &u32) -> String {
    format!("0x{number:04X}")
}

fn mib_of(bytes: Reading<gpu_core::Bytes>) -> Reading<String> {
    bytes.as_ref().map(mib).map_err(|absent| *absent)
}

/// What is neither used nor, where that is told apart, held back.
fn free(row: &Row<'_>) -> Reading<String> {
    let memory = &row.sample()?.memory;
    let reserved = memory.reserved.unwrap_or_default();
    Ok(mib(&memory.total?.saturating_sub(memory.used?).saturating_sub(reserved)))
}

fn active(row: &Row<'_>, bit: u64) -> Reading<String> {
    let activity = row.details()?.activity.as_ref().ok_or(Absent::NotRecorded)?;
    let ThrottleReasons(reasons) = activity.throttle?;
    Ok(if reasons & bit != 0 { "Active" } else { "Not Active" }.to_owned())
}

fn compute_mode(mode: &ComputeMode) -> String {
    match mode {
        ComputeMode::Default => "Default",
        ComputeMode::ExclusiveThread => "Exclusive_Thread",
        ComputeMode::Prohibited => "Prohibited",
        ComputeMode::ExclusiveProcess => "Exclusive_Process",
    }
    .to_owned()
}

fn operation_mode(mode: &OperationMode) -> String {
    words::operation_mode(*mode).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{
        DeviceDetails, DeviceId, DeviceInfo, DeviceSample, DeviceState, Groups, Inventory,
    };

    fn device(details: DeviceDetails) -> DeviceState {
        DeviceState {
            info: DeviceInfo::unknown(DeviceId::from_index(0)),
            sample: Ok(DeviceSample::absent(Absent::NotSupported)),
            processes: Ok(vec![]),
            mig: Ok(vec![]),
            details: Ok(details),
        }
    }

    /// Groups with every value absent as not supported: what is read from another group than the
    /// column names would be 'not recorded'.
    fn all_groups() -> DeviceDetails {
        DeviceDetails {
            product: Some(Default::default()),
            modes: Some(Default::default()),
            inforom: Some(Default::default()),
            operation_modes: Some(Default::default()),
            activity: Some(Default::default()),
            engines: Some(Default::default()),
            clocks: Some(Default::default()),
            power: Some(Default::default()),
            power_readings: Some(Default::default()),
            thermal: Some(Default::default()),
            pcie: Some(Default::default()),
            pcie_throughput: Some(Default::default()),
            memory_health: Some(Default::default()),
            nvlinks: Some(vec![]),
            accounting: Some(Default::default()),
        }
    }

    #[test]
    fn each_column_asks_for_the_group_that_it_reads() {
        let machine = Inventory {
            driver: Ok(gpu_core::Driver {
                version: Err(Absent::NotRecorded),
                cuda: Ok("12".into()),
            }),
            devices: vec![],
        };
        for field in FIELDS {
            let groups: Groups = field.group.into_iter().collect();
            let device = device(all_groups().only(groups));
            let row = Row { machine: &machine, device: &device, time: "now", process: None };
            let value = (field.get)(&row);
            if field.group.is_some() {
                assert_eq!(value, Err(Absent::NotSupported), "{}", field.name);
            }
        }
    }

    #[test]
    fn no_name_stands_for_two_columns() {
        let mut names: Vec<&str> = FIELDS.iter().flat_map(Field::names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
