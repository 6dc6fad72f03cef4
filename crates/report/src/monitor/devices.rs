//! `dmon`: a row for each device.

use super::{Release, Rows, Sample, cell, letters};
use crate::readings::{details, sample, text};
use gpu_core::{Absent, DeviceState, Group, Groups, Reading};

/// A column: the letter of its group, its name and unit, the group of details that contains its
/// value, and its value.
struct Column(char, &'static str, &'static str, Option<Group>, Value);

type Value = fn(&DeviceState, Release) -> Reading<String>;

/// Makes a column for a value in a group of details.
macro_rules! detail {
    ($letter:literal, $name:literal, $unit:literal,
     $group:ident: $field:ident . $value:ident $(, $convert:expr)?) => {
        Column($letter, $name, $unit, Some(Group::$group), |device, _| {
            let group = details(device)?.$field.as_ref().ok_or(Absent::NotRecorded)?;
            text(group.$value.clone()$(.map($convert))?)
        })
    };
}

/// Makes a column for memory in a group of details.
macro_rules! memory {
    ($name:literal, $group:ident: $field:ident . $value:ident) => {
        Column('m', $name, "MB", Some(Group::$group), |device, release| {
            let group = details(device)?.$field.as_ref().ok_or(Absent::NotRecorded)?;
            text(group.$value.map(|bytes| release.mib(bytes)))
        })
    };
}

const COLUMNS: [Column; 21] = [
    Column('p', "pwr", "W", None, |device, _| {
        text(sample(device)?.power_draw.map(|power| power.0.saturating_add(500) / 1000))
    }),
    Column('p', "gtemp", "C", None, |device, _| {
        text(sample(device)?.temperature.map(|celsius| celsius.0))
    }),
    detail!('p', "mtemp", "C", Thermal: thermal.memory, |celsius| celsius.0),
    Column('u', "sm", "%", None, |device, _| {
        text(sample(device)?.utilization.map(|share| share.get()))
    }),
    detail!('u', "mem", "%", Activity: activity.memory, |share| share.get()),
    detail!('u', "enc", "%", Activity: activity.encoder, |share| share.get()),
    detail!('u', "dec", "%", Activity: activity.decoder, |share| share.get()),
    detail!('u', "jpg", "%", Engines: engines.jpeg, |share| share.get()),
    detail!('u', "ofa", "%", Engines: engines.ofa, |share| share.get()),
    detail!('c', "mclk", "MHz", Clocks: clocks.memory),
    detail!('c', "pclk", "MHz", Clocks: clocks.sm),
    // The time of reduced clocks is not read.
    Column('v', "pviol", "%", None, |_, _| Err(Absent::NotRecorded)),
    Column('v', "tviol", "bool", None, |_, _| Err(Absent::NotRecorded)),
    Column('m', "fb", "MB", None, |device, release| {
        text(sample(device)?.memory.used.map(|bytes| release.mib(bytes)))
    }),
    memory!("bar1", Pcie: pcie.bar1_used),
    memory!("ccpm", ProtectedMemory: protected_memory.used),
    detail!('e', "sbecc", "errs", MemoryHealth: memory_health.corrected),
    detail!('e', "dbecc", "errs", MemoryHealth: memory_health.uncorrected),
    detail!('e', "pci", "errs", Pcie: pcie.replays),
    detail!('t', "rxpci", "MB/s", PcieThroughput: pcie_throughput.received, |kib| kib / 1024),
    detail!('t', "txpci", "MB/s", PcieThroughput: pcie_throughput.sent, |kib| kib / 1024),
];

/// The columns of `nvidia-smi dmon`.
#[derive(Clone)]
pub struct Dmon {
    columns: Vec<&'static Column>,
}

impl std::fmt::Debug for Dmon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| column.1)).finish()
    }
}

impl Dmon {
    /// Parses the option `-s`: the letters of groups of columns, in the order of the letters. `p`
    /// is power and temperature, `u` utilization, `c` clocks, `v` violations (not read), `m`
    /// memory, `e` errors, `t` PCIe throughput.
    ///
    /// # Errors
    /// The first unknown letter.
    pub fn parse(select: &str) -> Result<Self, String> {
        let letters = letters(select, "pucvmet")?;
        let of = |letter| COLUMNS.iter().filter(move |column| column.0 == letter);
        Ok(Dmon { columns: letters.into_iter().flat_map(of).collect() })
    }
}

impl Rows for Dmon {
    fn groups(&self) -> Groups {
        self.columns.iter().filter_map(|column| column.3).collect()
    }

    fn head(&self) -> [String; 2] {
        let line = |first: &str, of: fn(&Column) -> &'static str| {
            let cells: String = self.columns.iter().map(|column| cell_of(of(column))).collect();
            format!("{first}{cells} ")
        };
        [line("# gpu", |column| column.1), line("# Idx", |column| column.2)]
    }

    fn rows(&self, sample: &Sample<'_>) -> Vec<String> {
        let row = |device: &DeviceState| {
            let cells = self
                .columns
                .iter()
                .map(|column| cell_of(&cell((column.4)(device, sample.release))));
            format!("{:>5}{} ", device.id().index, cells.collect::<String>())
        };
        sample.devices.iter().map(row).collect()
    }
}

fn cell_of(text: &str) -> String {
    format!("{text:>7}")
}
