//! CSV rows in the format of nvidia-smi's `--query-gpu` and `--query-compute-apps`.
//!
//! The field names, the order of fields in a row, the header line and the bracketed placeholders
//! for absent values are nvidia-smi's. A comma in a value is not quoted, because nvidia-smi does
//! not quote it either.

mod apps;
mod field;
mod gpu;
mod missing;

pub use missing::missing_rows;

use crate::local_time;
use field::{Field, Row};
use gpu_core::{DeviceProcess, DeviceProcessKind, DeviceState, Groups, Inventory, ProcessInfo};
use gpu_core::{Pid, Reading, Timestamp};
use jiff::tz::TimeZone;

/// The options after `csv` in `--format=csv,noheader,nounits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether the header line is omitted.
    pub noheader: bool,
    /// Whether the units of values are omitted. The header line keeps them.
    pub nounits: bool,
}

impl Style {
    /// Parses `csv` with `noheader` and `nounits` as options, in any order.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut style = Style::default();
        let mut is_csv = false;
        for word in text.split(',') {
            match word.trim() {
                "csv" => is_csv = true,
                "noheader" => style.noheader = true,
                "nounits" => style.nounits = true,
                _ => return Err("there is csv[,noheader][,nounits]".to_owned()),
            }
        }
        is_csv.then_some(style).ok_or_else(|| "csv is mandatory".to_owned())
    }
}

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A device, for `--query-gpu`.
    Gpu,
    /// A compute process on a device, for `--query-compute-apps`.
    ComputeApp,
}

impl Subject {
    fn fields(self) -> impl Iterator<Item = &'static Field> {
        let fields = match self {
            Subject::Gpu => gpu::FIELDS,
            Subject::ComputeApp => &[apps::FIELDS],
        };
        fields.iter().copied().flatten()
    }

    /// Returns the names and the description of each field.
    pub fn help(self) -> impl Iterator<Item = (String, &'static str)> {
        self.fields().map(|field| (field.names().collect::<Vec<_>>().join(" or "), field.about))
    }
}

/// The requested fields of a device or a process.
#[derive(Clone, Debug)]
pub struct Query {
    subject: Subject,
    fields: Vec<&'static Field>,
}

/// The data that a query formats.
pub struct Seen<'a> {
    /// The driver and all devices of the machine.
    pub machine: &'a Inventory,
    /// The devices to print.
    pub devices: &'a [DeviceState],
    /// The time zone for printed times.
    pub zone: &'a TimeZone,
    /// The time of the query.
    pub at: Timestamp,
    /// The lookup of a process by PID.
    pub process: &'a dyn Fn(Pid) -> Reading<ProcessInfo>,
}

impl Query {
    /// Parses field names separated by commas. Empty names are ignored.
    ///
    /// # Errors
    /// The first unknown name, or an empty string if there is no name.
    pub fn parse(subject: Subject, names: &str) -> Result<Self, String> {
        let find = |name: &str| {
            let known = subject.fields().find(|field| field.names().any(|n| n == name));
            known.ok_or_else(|| name.to_owned())
        };
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        let fields: Vec<_> = names.map(find).collect::<Result<_, _>>()?;
        match fields.is_empty() {
            true => Err(String::new()),
            false => Ok(Query { subject, fields }),
        }
    }

    /// Returns the groups of details that the fields need.
    pub fn groups(&self) -> Groups {
        self.fields.iter().filter_map(|field| field.group).collect()
    }

    /// Returns the header line.
    pub fn head(&self) -> String {
        let names = self.fields.iter().map(|field| match field.unit {
            Some(unit) => format!("{} [{unit}]", field.name),
            None => field.name.to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns one row for each device or process.
    pub fn rows(&self, seen: &Seen<'_>, style: Style) -> Vec<String> {
        let time = local_time::as_nvidia_smi(seen.at, seen.zone);
        let mut rows = Vec::new();
        for device in seen.devices {
            let row = Row { machine: seen.machine, device, time: &time, process: None };
            match self.subject {
                Subject::Gpu => rows.push(self.line(&row, style)),
                Subject::ComputeApp => {
                    for process in device.processes.iter().flatten().filter(|one| computes(one)) {
                        let info = (seen.process)(process.pid);
                        let row = Row { process: Some((process, &info)), ..row };
                        rows.push(self.line(&row, style));
                    }
                }
            }
        }
        rows
    }

    fn line(&self, row: &Row<'_>, style: Style) -> String {
        let cells = self.fields.iter().map(|field| match ((field.get)(row), field.unit) {
            (Ok(value), Some(unit)) if !style.nounits => format!("{value} {unit}"),
            (Ok(value), _) => value,
            (Err(absent), _) => match row.brackets(absent) {
                "[N/A]" if field.is_bare => "N/A".to_owned(),
                words => words.to_owned(),
            },
        });
        cells.collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether NVML lists a process as a compute process.
fn computes(process: &DeviceProcess) -> bool {
    process.kind != DeviceProcessKind::Graphics
}
