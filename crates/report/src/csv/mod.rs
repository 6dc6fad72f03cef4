//! CSV rows in the format of nvidia-smi's `--query-gpu` and its other queries.
//!
//! The field names, the order of fields in a row, the header line and the bracketed placeholders
//! for absent values are nvidia-smi's. A comma in a value is not quoted, because nvidia-smi does
//! not quote it either.

mod field;
mod gpu;
mod lists;
mod missing;

pub use missing::missing_rows;

use crate::local_time;
use field::{Field, Item, Row};
use gpu_core::{
    Absent, DeviceProcess, DeviceProcessKind, DeviceState, Group, Groups, Inventory, Pid,
    ProcessInfo, Reading, Timestamp,
};
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
                _ => return Err("expected csv[,noheader][,nounits]".to_owned()),
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
    /// A process in the accounting of a device, for `--query-accounted-apps`.
    AccountedApp,
    /// A retired page of a device, for `--query-retired-pages`.
    RetiredPage,
    /// The remapped rows of a device, for `--query-remapped-rows`.
    RemappedRows,
    /// A pair of clocks that can be set, for `--query-supported-clocks`.
    SupportedClocks,
}

impl Subject {
    /// Every subject.
    pub const ALL: [Subject; 6] = [
        Subject::Gpu,
        Subject::ComputeApp,
        Subject::AccountedApp,
        Subject::RetiredPage,
        Subject::RemappedRows,
        Subject::SupportedClocks,
    ];

    /// Returns nvidia-smi's option for the fields and the one that lists them, both without dashes,
    /// and a description of the first one.
    pub fn options(self) -> [&'static str; 3] {
        match self {
            Subject::Gpu => ["query-gpu", "help-query-gpu", "Fields per GPU"],
            Subject::ComputeApp => {
                ["query-compute-apps", "help-query-compute-apps", "Fields per compute process"]
            }
            Subject::AccountedApp => [
                "query-accounted-apps",
                "help-query-accounted-apps",
                "Fields per process in the driver's accounting",
            ],
            Subject::RetiredPage => {
                ["query-retired-pages", "help-query-retired-pages", "Fields per retired page"]
            }
            Subject::RemappedRows => [
                "query-remapped-rows",
                "help-query-remapped-rows",
                "Fields per GPU, about remapped rows of its memory",
            ],
            Subject::SupportedClocks => [
                "query-supported-clocks",
                "help-query-supported-clocks",
                "Fields per pair of clocks that can be set",
            ],
        }
    }

    fn fields(self) -> impl Iterator<Item = &'static Field> {
        let fields: &[&[Field]] = match self {
            Subject::Gpu => gpu::FIELDS,
            Subject::ComputeApp => &[lists::DEVICE, lists::COMPUTE],
            Subject::AccountedApp => &[lists::DEVICE, lists::ACCOUNTED],
            Subject::RetiredPage => &[lists::DEVICE, lists::PAGES],
            Subject::RemappedRows => &[lists::DEVICE, gpu::REMAPPED_ROWS],
            Subject::SupportedClocks => &[lists::DEVICE, lists::CLOCKS],
        };
        fields.iter().copied().flatten()
    }

    /// Returns the names of each field, and its description.
    pub fn help(self) -> impl Iterator<Item = (Vec<&'static str>, &'static str)> {
        self.fields().map(|field| (field.names().collect(), field.about))
    }

    /// Returns the list of the fields in the form of nvidia-smi, which scripts parse: the names of a
    /// field in quotes at the start of a line, then its description.
    pub fn help_text(self) -> String {
        let [query, ..] = self.options();
        let title = format!("List of valid properties to query for the switch \"--{query}\":\n");
        let entry =
            |(names, about): (Vec<&str>, _)| format!("\n\"{}\"\n{about}\n", names.join("\" or \""));
        self.help().map(entry).fold(title, |text, entry| text + &entry)
    }

    /// Returns the group of details that determines the rows; `None` if every query reads it.
    fn group(self) -> Option<Group> {
        match self {
            Subject::Gpu | Subject::ComputeApp | Subject::RemappedRows => None,
            Subject::AccountedApp => Some(Group::Accounting),
            Subject::RetiredPage => Some(Group::MemoryHealth),
            Subject::SupportedClocks => Some(Group::SupportedClocks),
        }
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
        self.fields.iter().filter_map(|field| field.group).chain(self.subject.group()).collect()
    }

    /// Returns the header line.
    pub fn head(&self) -> String {
        let names = self.fields.iter().map(|field| match field.unit {
            Some(unit) => format!("{} [{unit}]", field.name),
            None => field.name.to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the rows: one for each device, or for each item of its list.
    pub fn rows(&self, seen: &Seen<'_>, style: Style) -> Vec<String> {
        let time = local_time::as_nvidia_smi(seen.at, seen.zone);
        let mut rows = Vec::new();
        for device in seen.devices {
            let row = Row { machine: seen.machine, device, time: &time, item: Item::Device };
            let is_wanted =
                |one: &&DeviceProcess| self.subject == Subject::ComputeApp && computes(one);
            let processes = device.processes.iter().flatten().filter(is_wanted);
            let processes: Vec<_> =
                processes.map(|process| (process, (seen.process)(process.pid))).collect();
            let items = match self.subject {
                Subject::Gpu | Subject::RemappedRows => vec![Item::Device],
                Subject::ComputeApp => {
                    processes.iter().map(|(process, info)| Item::Process(process, info)).collect()
                }
                Subject::AccountedApp => {
                    let accounting = device.details.iter().flat_map(|all| &all.accounting);
                    let processes = accounting.flat_map(|one| one.processes.iter().flatten());
                    processes.map(Item::Accounted).collect()
                }
                Subject::RetiredPage => pages(&row),
                Subject::SupportedClocks => clocks(&row),
            };
            rows.extend(items.into_iter().map(|item| self.line(&Row { item, ..row }, style)));
        }
        rows
    }

    fn line(&self, row: &Row<'_>, style: Style) -> String {
        let cells = self.fields.iter().map(|field| match ((field.get)(row), field.unit) {
            (Ok(value), Some(unit)) if !style.nounits => format!("{value} {unit}"),
            (Ok(value), _) => value,
            (Err(absent), _) => match row.brackets(absent) {
                "[N/A]" if (field.is_bare)(row.release()) => "N/A".to_owned(),
                words => words.to_owned(),
            },
        });
        cells.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the retired pages of a device. If it does not report them, each cause has a row, as in
/// nvidia-smi.
fn pages<'a>(row: &Row<'a>) -> Vec<Item<'a>> {
    let cause = |double_bit| if double_bit { "Double Bit ECC" } else { "Single Bit ECC" };
    let health = |row: &Row<'a>| row.details()?.memory_health.as_ref().ok_or(Absent::NotRecorded);
    match health(row).and_then(|health| health.retired_pages.as_ref().map_err(|absent| *absent)) {
        Ok(pages) => {
            pages.iter().map(|page| Item::Page(Ok(*page), cause(page.double_bit))).collect()
        }
        Err(absent) => [false, true].map(|double| Item::Page(Err(absent), cause(double))).into(),
    }
}

/// Returns the supported clocks of a device. If it does not report them, it has one row.
fn clocks<'a>(row: &Row<'a>) -> Vec<Item<'a>> {
    let group = |row: &Row<'a>| row.details()?.supported_clocks.as_ref().ok_or(Absent::NotRecorded);
    match group(row).and_then(|clocks| clocks.combinations.as_ref().map_err(|absent| *absent)) {
        Ok(choices) => choices
            .iter()
            .flat_map(|choice| choice.graphics_mhz.iter().map(|clock| (choice.memory_mhz, *clock)))
            .map(|clocks| Item::Clocks(Ok(clocks)))
            .collect(),
        Err(absent) => vec![Item::Clocks(Err(absent))],
    }
}

/// Returns whether NVML lists a process as a compute process.
fn computes(process: &DeviceProcess) -> bool {
    process.kind != DeviceProcessKind::Graphics
}
