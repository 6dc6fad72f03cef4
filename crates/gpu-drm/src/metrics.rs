//! The tables of amdgpu: `gpu_metrics` and `xcp_metrics`.
//!
//! The layouts are those of the structures in the kernel's `kgd_pp_interface.h`. A version does not
//! extend the one before it, so a table is read only if its format, content and size are known.
//! sysfs and hwmon are the better source of what they have too. A value whose unit differs between
//! chips or firmwares is absent here, unless its size shows the unit.

use gpu_core::{Absent, Celsius, Milliwatts, Percent, Reading, plausible};

/// A table. A field is `NotSupported` if its version does not have it, or the chip does not fill it
/// (all bits are 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Format and content revision, such as 1 and 3.
    pub version: (u8, u8),
    /// Temperature at the edge of the chip.
    pub edge: Reading<Celsius>,
    /// The highest temperature on the chip.
    pub hotspot: Reading<Celsius>,
    /// Temperature of the memory.
    pub memory: Reading<Celsius>,
    /// Temperature of the GPU in an APU.
    pub graphics: Reading<Celsius>,
    /// Temperature of the rest of an APU except its cores.
    pub soc: Reading<Celsius>,
    /// Use of the compute and graphics engine; absent for APUs except those with version 2.4.
    pub graphics_busy: Reading<Percent>,
    /// Use of the memory controller.
    pub memory_busy: Reading<Percent>,
    /// Use of the video engine.
    pub video_busy: Reading<Percent>,
    /// Power of the socket: of an APU, with its cores.
    pub power: Reading<Milliwatts>,
    /// Energy since the driver was loaded, in microjoules; absent below version 1.4, where the unit
    /// differs between chips.
    pub energy: Reading<u64>,
    /// When the driver made the table, in nanoseconds since boot.
    pub stamp: Reading<u64>,
    /// Current clock of the compute and graphics engine in MHz; the highest if there are several.
    pub graphics_clock: Reading<u32>,
    /// Lanes of the PCIe link.
    pub link_width: Reading<u32>,
    /// Speed of the PCIe link, in 0.1 GT/s.
    pub link_speed: Reading<u32>,
    /// Speed of the fan, in revolutions per minute.
    pub fan: Reading<u32>,
    /// Why the clocks are limited, as bits that are the same for all chips (`SMU_THROTTLER_*`).
    pub throttle: Reading<u64>,
    /// The same as bits of this kind of chip. Not 0 means limited.
    pub chip_throttle: Reading<u32>,
    /// Use of each partition: the mean over its engines. A table of one partition has one entry.
    pub partitions: Vec<Reading<Percent>>,
}

/// What a field is. The unit is that of [`Metrics`], unless it is given.
#[derive(Clone, Copy)]
enum What {
    Edge,
    Hotspot,
    Memory,
    /// In 0.01 °C, as `Soc`.
    Graphics,
    Soc,
    GfxBusy,
    MemBusy,
    VideoBusy,
    /// In 0.01 %, as `VideoCenti`.
    GfxCenti,
    VideoCenti,
    Watts,
    Milli,
    /// In W or mW, which depends on the chip.
    Power,
    /// In 2^-16 J.
    Energy,
    Stamp,
    Clock,
    /// The clocks of 8 engines.
    Clocks,
    Width,
    Speed,
    Fan,
    Throttle,
    Chip,
    /// Use of the 8 engines of the only partition.
    Engines,
}
use What::*;

/// The fields of related tables, and the bytes of a value of each.
type Columns = (&'static [What], &'static [usize]);

/// A table: format and content, size, fields, and the offset of each field; 0 if it has no such
/// field.
type Layout = ((u8, u8), usize, Columns, &'static [usize]);

const V1: Columns = (
    &[
        Edge, Hotspot, Memory, GfxBusy, MemBusy, VideoBusy, Watts, Stamp, Clock, Chip, Fan, Width,
        Speed, Width, Speed, Throttle,
    ],
    &[2, 2, 2, 2, 2, 2, 2, 8, 2, 4, 2, 1, 1, 2, 2, 8],
);
const V1_4: Columns = (
    &[Hotspot, Memory, Watts, GfxBusy, MemBusy, Energy, Stamp, Clocks, Width, Speed, Chip],
    &[2, 2, 2, 2, 2, 8, 8, 2, 2, 2, 4],
);
const V2: Columns = (
    &[Graphics, Soc, GfxCenti, VideoCenti, Power, Milli, Milli, Stamp, Clock, Chip, Throttle],
    &[2, 2, 2, 2, 2, 2, 4, 8, 2, 4, 8],
);
const PARTITION: Columns = (&[Clocks, Engines], &[2, 4]);

const LAYOUTS: [Layout; 17] = [
    ((1, 0), 80, V1, &[16, 18, 20, 28, 30, 32, 34, 8, 54, 68, 72, 74, 75, 0, 0, 0]),
    ((1, 1), 96, V1, &[4, 6, 8, 16, 18, 20, 22, 32, 54, 68, 72, 0, 0, 74, 76, 0]),
    ((1, 2), 104, V1, &[4, 6, 8, 16, 18, 20, 22, 32, 54, 68, 72, 0, 0, 74, 76, 0]),
    ((1, 3), 120, V1, &[4, 6, 8, 16, 18, 20, 22, 32, 54, 68, 72, 0, 0, 74, 76, 112]),
    ((1, 4), 288, V1_4, &[4, 6, 10, 12, 14, 24, 32, 240, 48, 50, 40]),
    ((1, 5), 360, V1_4, &[4, 6, 10, 12, 14, 88, 96, 312, 112, 114, 104]),
    // Version 1.6 as it first was.
    ((1, 6), 384, V1_4, &[4, 6, 10, 12, 14, 88, 96, 336, 136, 138, 0]),
    ((1, 6), 1_664, V1_4, &[4, 6, 10, 12, 14, 16, 24, 264, 60, 62, 0]),
    ((1, 7), 2_208, V1_4, &[4, 6, 10, 12, 14, 24, 32, 296, 68, 70, 0]),
    ((1, 8), 3_872, V1_4, &[4, 6, 10, 12, 14, 24, 32, 296, 68, 70, 0]),
    ((2, 0), 120, V2, &[16, 18, 0, 0, 44, 0, 0, 8, 80, 0, 0]),
    ((2, 1), 120, V2, &[4, 6, 0, 0, 40, 0, 0, 32, 76, 108, 0]),
    ((2, 2), 128, V2, &[4, 6, 0, 0, 40, 0, 0, 32, 76, 108, 120]),
    ((2, 3), 152, V2, &[4, 6, 0, 0, 40, 0, 0, 32, 76, 108, 120]),
    ((2, 4), 168, V2, &[4, 6, 28, 30, 0, 40, 0, 32, 76, 108, 120]),
    ((3, 0), 264, V2, &[4, 6, 0, 0, 0, 0, 112, 104, 0, 0, 0]),
    // `amdgpu_partition_metrics_v1_0`.
    ((1, 0), 488, PARTITION, &[4, 48]),
];

/// The partitions of a table, by its size: the offset of their number and of the first one, and the
/// bytes of each. A partition starts with the use of its engines in percent.
const PARTITIONS: [(usize, usize, usize, usize); 3] =
    [(1_664, 306, 312, 168), (2_208, 338, 344, 232), (3_872, 338, 344, 440)];

/// The most partitions of a chip, and the most engines (XCC) of a partition.
const MAX: usize = 8;

/// The fields of version 1.9, and of partitions in version 1.1: the number of the attribute, and of
/// its unit (`amdgpu_metrics_attr_id`, `amdgpu_metrics_attr_unit`).
const ATTRIBUTES: [(u64, u64, What); 11] = [
    (0, 2, Hotspot),
    (1, 2, Memory),
    (3, 3, Watts),
    (4, 10, GfxBusy),
    (5, 10, MemBusy),
    (7, 0, Energy),
    (8, 4, Stamp),
    (16, 0, Width),
    (17, 7, Speed),
    (33, 1, Clock),
    (40, 10, Engines),
];

impl Metrics {
    /// Reads a table from the start of a file; what follows it is ignored.
    ///
    /// # Errors
    /// `Implausible` if there is no table or it is cut short, `NotSupported` if its version is
    /// unknown.
    pub fn parse(file: &[u8]) -> Reading<Metrics> {
        let size = number(file, 0, 2).and_then(|size| usize::try_from(size).ok());
        let table = size.and_then(|size| file.get(..size)).ok_or(Absent::Implausible)?;
        let [_, _, format, content, ..] = *table else {
            return Err(Absent::Implausible);
        };
        let mut metrics = Metrics::absent((format, content));
        let known = |layout: &&Layout| layout.0 == metrics.version && layout.1 == table.len();
        if let Some((_, _, columns, offsets)) = LAYOUTS.iter().find(known) {
            for ((what, bytes), offset) in columns.0.iter().zip(columns.1).zip(*offsets) {
                let count = if let Clocks | Engines = what { MAX } else { 1 };
                if *offset > 0 {
                    metrics.set(*what, numbers(table, *offset, *bytes, count));
                }
            }
            metrics.partitions.extend(partitions(table));
            return Ok(metrics);
        }
        match metrics.version {
            // The encoding had 32 bits in a draft.
            (1, 9 | 1) => metrics
                .walk(table, 8)
                .or_else(|| Metrics::absent((format, content)).walk(table, 4))
                .ok_or(Absent::Implausible),
            _ => Err(Absent::NotSupported),
        }
    }

    /// Reads attributes: their number, and for each an encoding and its values, up to the exact end.
    fn walk(mut self, table: &[u8], encoding_bytes: usize) -> Option<Metrics> {
        let count = number(table, 4, 4)?;
        let mut at = 8;
        for _ in 0..count {
            let encoding = number(table, at, encoding_bytes)?;
            at += encoding_bytes;
            let bytes = match (encoding >> 20) & 0xf {
                0 | 1 => 1,
                2 | 3 => 2,
                4 | 5 => 4,
                6 | 7 => 8,
                _ => return None,
            };
            let values = usize::try_from(encoding & 0x3ff).ok()?;
            let end = at.checked_add(values.checked_mul(bytes)?)?;
            table.get(at..end)?;
            let (id, unit) = ((encoding >> 10) & 0x3ff, encoding >> 24);
            let known = ATTRIBUTES.iter().find(|known| (known.0, known.1) == (id, unit));
            if let Some((_, _, what)) = known {
                self.set(*what, numbers(table, at, bytes, values));
            }
            at = end;
        }
        (at == table.len()).then_some(self)
    }

    /// Sets a field from its values, without those that are absent.
    fn set(&mut self, what: What, values: impl Iterator<Item = u64> + Clone) {
        let Some(value) = values.clone().max() else {
            return;
        };
        let celsius = |value: u64| plausible::celsius(i64::try_from(value).unwrap_or(i64::MAX));
        let small = |value: u64| u32::try_from(value).map_err(|_| Absent::Implausible);
        let watts = |watts: u64| plausible::milliwatts(watts.saturating_mul(1_000));
        match what {
            Edge => self.edge = celsius(value),
            Hotspot => self.hotspot = celsius(value),
            // A board without this sensor (RX 5500 XT) has 0.
            Memory if value == 0 => {}
            Memory => self.memory = celsius(value),
            Graphics => self.graphics = celsius(value / 100),
            Soc => self.soc = celsius(value / 100),
            GfxBusy => self.graphics_busy = plausible::percent(value),
            MemBusy => self.memory_busy = plausible::percent(value),
            VideoBusy => self.video_busy = plausible::percent(value),
            GfxCenti => self.graphics_busy = plausible::percent(value / 100),
            VideoCenti => self.video_busy = plausible::percent(value / 100),
            Watts => self.power = watts(value),
            Milli => self.power = plausible::milliwatts(value),
            // A socket that runs this program draws at least 1 W, and no APU draws 256 W.
            Power => {
                self.power = match value {
                    1..256 => watts(value),
                    1_000.. => plausible::milliwatts(value),
                    _ => Err(Absent::Implausible),
                }
            }
            Energy => {
                let microjoules = (u128::from(value) * 1_000_000) >> 16;
                self.energy = u64::try_from(microjoules).map_err(|_| Absent::Implausible);
            }
            Stamp => self.stamp = Ok(value),
            Clock | Clocks => self.graphics_clock = small(value).and_then(plausible::megahertz),
            Width => self.link_width = small(value),
            Speed => self.link_speed = small(value),
            Fan => self.fan = small(value),
            Throttle => self.throttle = Ok(value),
            Chip => self.chip_throttle = small(value),
            Engines => self.partitions = vec![mean(values)],
        }
    }

    fn absent(version: (u8, u8)) -> Self {
        let none = Absent::NotSupported;
        Metrics {
            version,
            edge: Err(none),
            hotspot: Err(none),
            memory: Err(none),
            graphics: Err(none),
            soc: Err(none),
            graphics_busy: Err(none),
            memory_busy: Err(none),
            video_busy: Err(none),
            power: Err(none),
            energy: Err(none),
            stamp: Err(none),
            graphics_clock: Err(none),
            link_width: Err(none),
            link_speed: Err(none),
            fan: Err(none),
            throttle: Err(none),
            chip_throttle: Err(none),
            partitions: Vec::new(),
        }
    }
}

/// Returns the little-endian number of 1, 2, 4 or 8 bytes at an offset.
fn number(table: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let bytes = table.get(offset..offset.checked_add(bytes)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

/// Returns the numbers from an offset on, without those that are all ones: the chip does not have
/// them.
fn numbers(
    table: &[u8],
    offset: usize,
    bytes: usize,
    count: usize,
) -> impl Iterator<Item = u64> + Clone {
    let all_ones = u64::MAX >> (64 - 8 * bytes);
    let numbers = (0..count).map_while(move |index| number(table, offset + index * bytes, bytes));
    numbers.filter(move |number| *number != all_ones)
}

fn mean(shares: impl Iterator<Item = u64>) -> Reading<Percent> {
    let (sum, count) =
        shares.fold((0_u64, 0), |(sum, count), share| (sum.saturating_add(share), count + 1));
    sum.checked_div(count).ok_or(Absent::NotSupported).and_then(plausible::percent)
}

/// Returns the use of each partition in a table of a whole chip.
fn partitions(table: &[u8]) -> impl Iterator<Item = Reading<Percent>> {
    let place = PARTITIONS.iter().find(|place| place.0 == table.len());
    place.into_iter().flat_map(move |(_, count, first, bytes)| {
        let count = numbers(table, *count, 2, 1).next().unwrap_or(0);
        let places = (*first..).step_by(*bytes).zip(0..count).take(MAX);
        places.map(move |(place, _)| mean(numbers(table, place, 4, MAX)))
    })
}
