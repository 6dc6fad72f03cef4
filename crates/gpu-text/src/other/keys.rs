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
    /// Number of a partition.
    Id,
    /// Modes of a partition: `SPX`, `NPS1`, `SPX/NPS1` or `NPS1, SPX, 0`.
    Partition,
    /// `APU`, or a card.
    Type,
    Driver,
}

/// The names of the index of a device.
pub(super) const INDEXES: [&str; 6] =
    ["gpu", "device", "gpu id", "gpu index", "device id", "deviceid"];

/// A value, the end that makes a number without a unit a quantity, and the names of the value.
type Names<T> = (T, &'static str, &'static [&'static str]);

/// The values of a device. Of several names of one value, an earlier one is preferred. A limit is
/// also the highest power that a text prints, if it prints no other.
///
/// Sources: the outputs of rocm-smi 2019 to 6.x, amd-smi 24 to 27, xpu-smi 1 to 2.1 and amdgpu_top
/// 0.11.
#[rustfmt::skip]
const DEVICE: [Names<Field>; 17] = [
    (Field::Name, "", &[
        "card series", "asic market name", "market name", "device name", "info devicename",
        "gpu name", "name", "board product name"
    ]),
    (Field::Bus, "", &[
        "pci bus", "bus bdf", "bdf", "gpu bdf", "pci bdf address", "devicepath pci", "bus id", "bus"
    ]),
    (Field::Uuid, "", &["unique id", "uuid", "soc uuid", "gpu uuid"]),
    (Field::MemoryTotal, " B", &["vram total memory b", "vram size", "memory physical size byte"]),
    (Field::MemoryTotal, "", &["vram total", "total vram", "memory physical size", "gtt total"]),
    (Field::MemoryUsed, " B", &["vram total used memory b", "vram usage size"]),
    (Field::MemoryUsed, "", &[
        "vram used", "used vram", "total vram usage", "gpu memory used mib", "gtt used"
    ]),
    (Field::Memory, "", &["mem usage", "memory usage", "vram usage", "gtt usage"]),
    (Field::Busy, "", &[
        "gpu use %", "usage gfx activity", "gfx activity", "gpu activity gfx",
        "average gfx activity %", "gpu utilization %", "xpum stats gpu utilization", "gfx uti",
        "gfx util", "gpu util", "gfx %", "gpu %", "gfx"
    ]),
    (Field::Temperature, "", &[
        "temperature sensor edge c", "temperature edge c", "temperature edge", "edge temperature",
        "temperature sensor junction c", "temperature hotspot c", "temperature hotspot",
        "hotspot temperature", "junction temperature", "gpu core temperature c",
        "gpu core temperature celsius degree", "xpum stats gpu core temperature", "gpu t",
        "gpu temp", "temp", "temp dieedge", "temp edge", "temp junction"
    ]),
    (Field::Partition, "", &[
        "partitions", "partition mode", "compute partition", "accelerator partition",
        "accelerator type", "current compute partition", "memory partition",
        "current memory partition", "memory"
    ]),
    (Field::Id, "", &["partition id", "xcp"]),
    (Field::Type, "", &["gpu type"]),
    (Field::Driver, "", &["driver version"]),
    (Field::Power, "", &[
        "average graphics package power w", "current socket graphics package power w",
        "average socket power w", "power socket power", "socket power", "average socket power",
        "current socket power", "average power", "input power", "gfx power", "gpu power w",
        "xpum stats power", "power gpu", "avgpwr", "power"
    ]),
    (Field::PowerAndLimit, "", &["power usage", "pwr usage cap"]),
    (Field::Limit, "", &[
        "limit socket power", "socket power limit", "current power limit",
        "max graphics package power w", "pwrcap", "power cap", "max power limit", "limit max power"
    ]),
];

/// A value of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfProcess {
    Pid,
    Name,
    Memory,
}

/// The names of the values of a process, as for a device. xpu-smi counts thousands of bytes.
#[rustfmt::skip]
const PROCESS: [Names<OfProcess>; 6] = [
    (OfProcess::Pid, "", &["pid", "process id"]),
    (OfProcess::Name, "", &["process name", "name", "command"]),
    (OfProcess::Memory, "", &["vram mem", "vram"]),
    (OfProcess::Memory, " B", &["vram used"]),
    (OfProcess::Memory, "", &["mem usage"]),
    (OfProcess::Memory, "000 B", &["mem size", "mem"]),
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

/// What a name stands for: a value, its place in the order of preference and the end of a number.
pub(super) type Known<T> = (T, usize, &'static str);

fn find<T: Copy>(table: &[Names<T>], name: &str) -> Option<Known<T>> {
    let at = table.iter().position(|(.., names)| names.contains(&name))?;
    let (value, end, names) = table.get(at)?;
    let place = names.iter().position(|known| *known == name)?;
    Some((*value, at << 8 | place, end))
}

/// Returns the value of a device with this name, of [`words`], in a section, if any.
///
/// A name of one word means something else in each section, so it has a value only outside of all.
pub(super) fn of_device(section: Option<&str>, name: &str) -> Option<Known<Field>> {
    match section {
        None => find(&DEVICE, name),
        Some(section) => find(&DEVICE, &format!("{section} {name}"))
            .or_else(|| name.contains(' ').then(|| find(&DEVICE, name)).flatten()),
    }
}

/// Returns the value of a process with this name, of [`words`].
pub(super) fn of_process(name: &str) -> Option<Known<OfProcess>> {
    find(&PROCESS, name)
}
