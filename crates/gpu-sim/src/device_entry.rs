//! A `[[gpu]]` of `machine.toml`.

use crate::file::{GpuEntry, GpuFault, MigEntry, Unsupported};
use crate::machine::Device;
use crate::seed::fnv1a;
use crate::toml_source::TomlSource;
use gpu_core::{
    Absent, Bytes, Celsius, DeviceDetails, DeviceFault, DeviceId, DeviceInfo, DeviceUuid, Fault,
    MemoryInfo, MemoryKind, Milliwatts, Partition, PciBusId, Reading, Result,
};
use gpu_nvidia_driver::node;
use toml::Spanned;

/// The highest index in a range of devices that are described together.
const LAST: u32 = 63;

/// Returns an entry for each device, including those described together.
///
/// # Errors
/// `Invalid` when they share an identifier that must be unique, or the range is too long.
pub(crate) fn one_by_one(source: TomlSource<'_>, entries: Vec<GpuEntry>) -> Result<Vec<GpuEntry>> {
    let mut each = Vec::new();
    for entry in entries {
        let (first, span) = (*entry.index.get_ref(), entry.index.span());
        let Some(last) = entry.through else {
            each.push(entry);
            continue;
        };
        if entry.uuid.is_some() || entry.minor.is_some() || entry.bus.is_some() {
            let what = "an entry for several GPUs must not set 'uuid', 'minor' or 'bus'";
            return Err(source.error(Some(span), what));
        }
        if !(first..=LAST).contains(&last) {
            let what = format!("'through' must be an index from {first} to {LAST}");
            return Err(source.error(Some(span), &what));
        }
        each.extend((first..=last).map(|index| {
            let index = Spanned::new(span.clone(), index);
            GpuEntry { index, ..entry.clone() }
        }));
    }
    Ok(each)
}

/// Adds the device that `entry` describes, or applies the entry to a recorded one.
pub(crate) fn overlay(
    devices: &mut Vec<Device>,
    source: TomlSource<'_>,
    entry: &GpuEntry,
) -> Result<()> {
    let index = *entry.index.get_ref();
    let position = devices.iter().position(|device| device.info.id.index == index);
    let position = position.unwrap_or_else(|| {
        devices.push(made(index));
        devices.len() - 1
    });
    let Some(device) = devices.get_mut(position) else { return Ok(()) };
    let info = &mut device.info;
    set(&mut info.id.uuid, entry.uuid.clone().map(DeviceUuid));
    set(&mut info.id.node, entry.minor.map(node));
    if let Some(bus) = &entry.bus {
        let parsed = bus.get_ref().parse::<PciBusId>();
        let parsed = parsed.map_err(|error| source.error(Some(bus.span()), &error.to_string()));
        info.id.bus = Ok(parsed?);
    }
    set(&mut info.name, entry.name.clone());
    set(&mut info.persistence, entry.persistence);
    set(&mut info.display_active, entry.display_active);
    set(&mut info.partitioned, entry.mig_enabled);
    set(&mut device.total, entry.memory_total_mib.map(Bytes::from_mib));
    set(&mut device.reserved, entry.memory_reserved_mib.map(Bytes::from_mib));
    if let Some(mib) = entry.driver_reserve_mib {
        device.reserve = Bytes::from_mib(mib);
    }
    if let Some(mib) = entry.memory_leaked_mib {
        device.leaked = Bytes::from_mib(mib);
    }
    set(&mut device.idle_load, entry.idle_utilization_percent);
    if device.idle_load.is_ok_and(|load| load > 100) {
        return Err(
            source.error(Some(entry.index.span()), "a utilisation must be at most 100 percent")
        );
    }
    set(&mut device.temperature, entry.temperature_c.map(Celsius));
    set(&mut device.power_draw, entry.power_draw_mw.map(Milliwatts));
    set(&mut device.power_limit, entry.power_limit_mw.map(Milliwatts));
    if let Some(fault) = entry.fault {
        device.fault = Some(fault_of(index, fault));
    }
    device.mig.extend(entry.mig.iter().map(mig_instance));
    for field in &entry.unsupported {
        withhold(device, *field);
    }
    Ok(())
}

/// Sets a reading if a value is given.
pub(crate) fn set<T>(reading: &mut Reading<T>, value: Option<T>) {
    if let Some(value) = value {
        *reading = Ok(value);
    }
}

/// Returns the failure of a query to a device with this fault.
pub(crate) fn fault_of(index: u32, fault: GpuFault) -> Fault {
    let (kind, why) = match fault {
        GpuFault::Lost => (DeviceFault::Lost, "it is lost"),
        GpuFault::ResetRequired => (DeviceFault::ResetRequired, "it requires a reset"),
    };
    Fault { kind: kind.into(), text: format!("query GPU {index}: {why}") }
}

fn mig_instance(entry: &MigEntry) -> Partition {
    Partition {
        index: entry.index,
        uuid: entry.uuid.clone().map(DeviceUuid).ok_or(Absent::NotRecorded),
        profile: entry.profile.clone().ok_or(Absent::NotRecorded),
        gpu_instance: Some(entry.gpu_instance),
        compute_instance: entry.compute_instance,
        memory: MemoryInfo {
            total: Ok(Bytes::from_mib(entry.memory_total_mib)),
            used: Ok(Bytes::from_mib(entry.driver_reserve_mib)),
            reserved: Err(Absent::NotSupported),
        },
    }
}

fn withhold(device: &mut Device, field: Unsupported) {
    use Absent::NotSupported;
    match field {
        Unsupported::Uuid => device.info.id.uuid = Err(NotSupported),
        Unsupported::Minor => device.info.id.node = Err(NotSupported),
        Unsupported::Bus => device.info.id.bus = Err(NotSupported),
        Unsupported::Memory => {
            device.total = Err(NotSupported);
            device.used_untold = Some(NotSupported);
        }
        Unsupported::Processes => {
            let text = format!("list the processes of GPU {}", device.info.id.index);
            device.list_fault = Some(Fault { kind: NotSupported.into(), text });
        }
        Unsupported::Utilization => device.idle_load = Err(NotSupported),
        Unsupported::Temperature => device.temperature = Err(NotSupported),
        Unsupported::PowerDraw => device.power_draw = Err(NotSupported),
        Unsupported::PowerLimit => device.power_limit = Err(NotSupported),
        Unsupported::Persistence => device.info.persistence = Err(NotSupported),
        Unsupported::DisplayActive => device.info.display_active = Err(NotSupported),
        Unsupported::MigEnabled => device.info.partitioned = Err(NotSupported),
    }
}

/// Returns a device without any description: cool, idle, and of unknown size.
pub(crate) fn made(index: u32) -> Device {
    let mut info = DeviceInfo::unknown(DeviceId::from_index(index));
    info.persistence = Ok(false);
    info.display_active = Ok(false);
    info.partitioned = Err(Absent::NotSupported);
    info.id.bus = Ok(PciBusId {
        domain: 0,
        bus: (index as u8).wrapping_mul(16).wrapping_add(4),
        device: 0,
        function: 0,
    });
    Device {
        info,
        kind: MemoryKind::default(),
        total: Err(Absent::NotRecorded),
        reserve: Bytes(0),
        reserved: Err(Absent::NotSupported),
        leaked: Bytes(0),
        used_untold: None,
        idle_load: Ok(0),
        temperature: Ok(Celsius(32)),
        power_draw: Ok(Milliwatts(40_000)),
        power_limit: Ok(Milliwatts(250_000)),
        details: DeviceDetails::default(),
        busy: DeviceDetails::default(),
        mig: Vec::new(),
        fault: None,
        list_fault: None,
    }
}

/// Gives a device the identifiers that its driver would know and that no table prints: a minor
/// number, and a UUID made from the names of machine and device, so that it is always the same.
pub(crate) fn complete(device: &mut Device, machine: &str) {
    let id = &mut device.info.id;
    if id.node == Err(Absent::NotRecorded) {
        id.node = Ok(node(id.index));
    }
    let seed = format!("{machine}/{}", id.index);
    if id.uuid == Err(Absent::NotRecorded) {
        id.uuid = Ok(uuid("GPU", &seed));
    }
    for mig in &mut device.mig {
        if mig.uuid == Err(Absent::NotRecorded) {
            mig.uuid = Ok(uuid("MIG", &format!("{seed}/{}", mig.index)));
        }
    }
}

fn uuid(kind: &str, seed: &str) -> DeviceUuid {
    let half = |salt: &str| fnv1a(format!("{salt}/{seed}").as_bytes());
    let (a, b) = (half("uuid"), half("more"));
    DeviceUuid(format!(
        "{kind}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff,
    ))
}
