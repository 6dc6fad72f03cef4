//! The names that the tools give to the values of a device and of a process.
//!
//! The spelling of a name changes between versions in case, brackets and signs, so a name is
//! compared by its words: `Temperature (Sensor edge) (c)` is `temperature sensor edge c`.

/// A value of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    Name,
    Bus,
    Uuid,
    MemoryTotal,
    MemoryUsed,
    /// Used and total, `283/262128 MB`.
    Memory,
    Busy,
    Temperature,
    Power,
    Limit,
    /// Draw and limit, `135/1000 W`, or the draw alone.
    PowerAndLimit,
    Compute,
    MemoryMode,
    Id,
    /// `NPS1, SPX, 0` or `SPX/NPS1`.
    Partition,
    /// `APU`, or a card.
    Type,
    Driver,
}

/// The names of the index of a device.
pub(super) const INDEXES: [&str; 6] =
    ["gpu", "device", "gpu id", "gpu index", "device id", "deviceid"];

/// The names of the values of a device, with the end that makes a number without a unit a quantity. Of several names of
/// one value, an earlier one is preferred.
///
/// Sources: the outputs of rocm-smi 2019 to 6.x, amd-smi 24 to 27, xpu-smi 1 to 2.1 and amdgpu_top
/// 0.11.
const DEVICE: [(&str, Field, &str); 85] = [
    ("card series", Field::Name, ""),
    ("asic market name", Field::Name, ""),
    ("market name", Field::Name, ""),
    ("device name", Field::Name, ""),
    ("info devicename", Field::Name, ""),
    ("gpu name", Field::Name, ""),
    ("name", Field::Name, ""),
    ("board product name", Field::Name, ""),
    ("pci bus", Field::Bus, ""),
    ("bus bdf", Field::Bus, ""),
    ("bdf", Field::Bus, ""),
    ("gpu bdf", Field::Bus, ""),
    ("pci bdf address", Field::Bus, ""),
    ("devicepath pci", Field::Bus, ""),
    ("bus id", Field::Bus, ""),
    ("bus", Field::Bus, ""),
    ("unique id", Field::Uuid, ""),
    ("uuid", Field::Uuid, ""),
    ("soc uuid", Field::Uuid, ""),
    ("gpu uuid", Field::Uuid, ""),
    ("vram total memory b", Field::MemoryTotal, " B"),
    ("vram total", Field::MemoryTotal, ""),
    ("vram size", Field::MemoryTotal, " B"),
    ("total vram", Field::MemoryTotal, ""),
    ("memory physical size", Field::MemoryTotal, ""),
    ("memory physical size byte", Field::MemoryTotal, " B"),
    ("gtt total", Field::MemoryTotal, ""),
    ("vram total used memory b", Field::MemoryUsed, " B"),
    ("vram used", Field::MemoryUsed, ""),
    ("used vram", Field::MemoryUsed, ""),
    ("vram usage size", Field::MemoryUsed, " B"),
    ("total vram usage", Field::MemoryUsed, ""),
    ("gpu memory used mib", Field::MemoryUsed, " MiB"),
    ("gtt used", Field::MemoryUsed, ""),
    ("mem usage", Field::Memory, ""),
    ("memory usage", Field::Memory, ""),
    ("vram usage", Field::Memory, ""),
    ("gtt usage", Field::Memory, ""),
    ("gpu use %", Field::Busy, ""),
    ("usage gfx activity", Field::Busy, ""),
    ("gfx activity", Field::Busy, ""),
    ("gpu activity gfx", Field::Busy, ""),
    ("average gfx activity %", Field::Busy, ""),
    ("gpu utilization %", Field::Busy, ""),
    ("xpum stats gpu utilization", Field::Busy, ""),
    ("gfx uti", Field::Busy, ""),
    ("gfx util", Field::Busy, ""),
    ("gpu util", Field::Busy, ""),
    ("gfx %", Field::Busy, ""),
    ("gpu %", Field::Busy, ""),
    ("gfx", Field::Busy, ""),
    ("temperature sensor edge c", Field::Temperature, ""),
    ("temperature edge c", Field::Temperature, ""),
    ("temperature edge", Field::Temperature, ""),
    ("edge temperature", Field::Temperature, ""),
    ("temperature sensor junction c", Field::Temperature, ""),
    ("temperature hotspot c", Field::Temperature, ""),
    ("temperature hotspot", Field::Temperature, ""),
    ("hotspot temperature", Field::Temperature, ""),
    ("junction temperature", Field::Temperature, ""),
    ("gpu core temperature c", Field::Temperature, ""),
    ("gpu core temperature celsius degree", Field::Temperature, ""),
    ("xpum stats gpu core temperature", Field::Temperature, ""),
    ("gpu t", Field::Temperature, ""),
    ("gpu temp", Field::Temperature, ""),
    ("temp", Field::Temperature, ""),
    ("temp dieedge", Field::Temperature, ""),
    ("temp edge", Field::Temperature, ""),
    ("temp junction", Field::Temperature, ""),
    ("partitions", Field::Partition, ""),
    ("partition mode", Field::Partition, ""),
    ("compute partition", Field::Compute, ""),
    ("accelerator partition", Field::Compute, ""),
    ("accelerator type", Field::Compute, ""),
    ("current compute partition", Field::Compute, ""),
    ("memory partition", Field::MemoryMode, ""),
    ("current memory partition", Field::MemoryMode, ""),
    ("memory", Field::MemoryMode, ""),
    ("partition id", Field::Id, ""),
    ("xcp", Field::Id, ""),
    ("gpu type", Field::Type, ""),
    ("driver version", Field::Driver, ""),
    ("amdgpu version", Field::Driver, ""),
    ("driver", Field::Driver, ""),
    ("system driver version", Field::Driver, ""),
];

/// The names of the power of a device and of its limit. A limit is also the highest power that a
/// text prints, if it prints no other.
const POWER: [(&str, Field); 23] = [
    ("average graphics package power w", Field::Power),
    ("current socket graphics package power w", Field::Power),
    ("average socket power w", Field::Power),
    ("power socket power", Field::Power),
    ("socket power", Field::Power),
    ("average power", Field::Power),
    ("input power", Field::Power),
    ("gfx power", Field::Power),
    ("power usage", Field::PowerAndLimit),
    ("pwr usage cap", Field::PowerAndLimit),
    ("gpu power w", Field::Power),
    ("xpum stats power", Field::Power),
    ("power gpu", Field::Power),
    ("avgpwr", Field::Power),
    ("power", Field::Power),
    ("limit socket power", Field::Limit),
    ("socket power limit", Field::Limit),
    ("current power limit", Field::Limit),
    ("max graphics package power w", Field::Limit),
    ("pwrcap", Field::Limit),
    ("power cap", Field::Limit),
    ("max power limit", Field::Limit),
    ("limit max power", Field::Limit),
];

/// A value of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfProcess {
    Pid,
    Name,
    Memory,
}

/// The names of the values of a process, as for a device. xpu-smi counts thousands of bytes.
const PROCESS: [(&str, OfProcess, &str); 12] = [
    ("pid", OfProcess::Pid, ""),
    ("process id", OfProcess::Pid, ""),
    ("process name", OfProcess::Name, ""),
    ("name", OfProcess::Name, ""),
    ("command", OfProcess::Name, ""),
    ("vram mem", OfProcess::Memory, ""),
    ("vram used", OfProcess::Memory, " B"),
    ("vram", OfProcess::Memory, ""),
    ("mem size", OfProcess::Memory, "000 B"),
    ("mem usage", OfProcess::Memory, ""),
    ("memory usage", OfProcess::Memory, ""),
    ("mem", OfProcess::Memory, "000 B"),
];

/// The maximum length of a name.
const MAX_NAME: usize = 80;

/// Returns the words of a name in lower case, with one blank between them; empty for a text that is
/// too long to be a name. A percent sign is a word.
pub(super) fn words(name: &str) -> String {
    let mut words = String::new();
    if name.len() > MAX_NAME {
        return words;
    }
    let mut ends = false;
    for c in name.chars() {
        ends |= c == '%';
        if c.is_ascii_alphanumeric() || c == '%' {
            if ends && !words.is_empty() {
                words.push(' ');
            }
            words.push(c.to_ascii_lowercase());
            ends = c == '%';
        } else {
            ends = true;
        }
    }
    words
}

/// A name in a table: its value, its place in the order of preference and the end of a number.
pub(super) type Known<T> = (T, usize, &'static str);

/// Returns the value of a device with this name, of [`words`], in a section, if any.
///
/// A name of one word means something else in each section, so it has a value only outside of all.
pub(super) fn of_device(section: Option<&str>, name: &str) -> Option<Known<Field>> {
    let find = |name: &str| {
        let power = POWER.iter().map(|(known, field)| (*known, *field, ""));
        let mut all = DEVICE.iter().copied().chain(power).enumerate();
        all.find(|(_, (known, ..))| *known == name).map(|(at, (_, field, unit))| (field, at, unit))
    };
    match section {
        None => find(name),
        Some(section) => find(&format!("{section} {name}"))
            .or_else(|| name.contains(' ').then(|| find(name)).flatten()),
    }
}

/// Returns the value of a process with this name, of [`words`].
pub(super) fn of_process(name: &str) -> Option<Known<OfProcess>> {
    let at = PROCESS.iter().position(|(known, ..)| *known == name)?;
    PROCESS.get(at).map(|(_, value, unit)| (*value, at, *unit))
}
