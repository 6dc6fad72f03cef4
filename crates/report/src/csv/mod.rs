//! Rows of comma-separated values as nvidia-smi prints them for `--query-gpu` and
//! `--query-compute-apps`.
//!
//! The names of the fields, their order in a row, the head and the words in brackets for what is
//! absent are nvidia-smi's. A comma inside of a value is not quoted, as it is not there.

mod apps;
mod field;
mod gpu;

use crate::local_time;
use field::{Field, Row};
use gpu_core::{DeviceProcess, DeviceProcessKind, DeviceState, Groups, Inventory, ProcessInfo};
use gpu_core::{Pid, Reading, Timestamp};
use jiff::tz::TimeZone;

/// How the rows are written: what stands behind `csv` in `--format=csv,noheader,nounits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Without the line that names the fields.
    pub noheader: bool,
    /// Without the units of the values. The head keeps them.
    pub nounits: bool,
}

impl Style {
    /// Reads `csv`, `csv,noheader`, `csv,nounits` or both, in any order.
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

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A device: `--query-gpu`.
    Gpu,
    /// A process that computes on a device: `--query-compute-apps`.
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

    /// Returns a line for each field: its names, and what it is.
    pub fn help(self) -> impl Iterator<Item = (String, &'static str)> {
        self.fields().map(|field| (field.names().collect::<Vec<_>>().join(" or "), field.about))
    }
}

/// The fields that are asked for, of a device or of a process.
#[derive(Clone, Debug)]
pub struct Query {
    subject: Subject,
    fields: Vec<&'static Field>,
}

/// What a query looked at.
pub struct Seen<'a> {
    /// The machine's driver and all its devices.
    pub machine: &'a Inventory,
    /// Those that are shown.
    pub devices: &'a [DeviceState],
    /// The time zone that times are written in.
    pub zone: &'a TimeZone,
    /// When.
    pub at: Timestamp,
    /// Looks up a process.
    pub process: &'a dyn Fn(Pid) -> Reading<ProcessInfo>,
}

impl Query {
    /// Reads the names of fields, separated by commas; one that is empty is passed over.
    ///
    /// # Errors
    /// The first name that is none; an empty one where there are only empty ones.
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

    /// Returns the groups of details that the fields are made of.
    pub fn groups(&self) -> Groups {
        self.fields.iter().filter_map(|field| field.group).collect()
    }

    /// Returns the line that names the fields.
    pub fn head(&self) -> String {
        let names = self.fields.iter().map(|field| match field.unit {
            Some(unit) => format!("{} [{unit}]", field.name),
            None => field.name.to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns a line for each device or process.
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

/// Returns whether a process is in NVML's list of those that compute.
fn computes(process: &DeviceProcess) -> bool {
    process.kind != DeviceProcessKind::Graphics
}
