//! `--query-gpu=… --format=csv` and `--query-compute-apps=… --format=csv`.
//!
//! The columns come from the header line, `memory.used [MiB]`, or from the caller if the output has
//! none. nvidia-smi does not quote: a comma in a name produces an extra cell, which is merged into
//! the free-text column.

#[cfg(test)]
mod tests;

use crate::document::{Document, ErrorCode, Gpu, Kind, Process, Value};
use crate::failure;
use crate::field;
use crate::health;
use crate::monitor::{self, MAX_CELLS};
use crate::text::Text;
use crate::work_meter;
use gpu_core::{DeviceDetails, Reading};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The most columns, and the maximum length of their names.
const MAX_COLUMNS: usize = 1024;
const MAX_NAME: usize = 128;

/// Names without a dot that are fields of a query.
const BARE_FIELDS: &[&str] = &[
    "timestamp",
    "index",
    "name",
    "uuid",
    "serial",
    "count",
    "pid",
    "pstate",
    "hostname",
    "driver_version",
    "kmd_version",
    "vbios_version",
    "compute_cap",
    "compute_mode",
    "persistence_mode",
    "display_mode",
    "display_active",
    "display_attached",
    "addressing_mode",
    "gpu_recovery_action",
    "gpu_name",
    "gpu_uuid",
    "gpu_bus_id",
    "gpu_serial",
    "gpu_utilization",
    "mem_utilization",
    "max_memory_usage",
    "process_name",
    "used_memory",
    "used_gpu_memory",
    "edpp_multiplier",
];

/// The columns of text, which may look like a number or like a missing value.
const TEXTS: &[&str] = &["process_name", "name", "gpu_name", "serial", "gpu_serial"];

/// The prefixes of names with a dot.
const FIELD_GROUPS: &[&str] = &[
    "accounting.",
    "bbx.",
    "c2c.",
    "clocks",
    "dramencryption.",
    "driver_model.",
    "ecc.",
    "encoder.",
    "enforced.",
    "fabric.",
    "fan.",
    "gom.",
    "gsp.",
    "inforom.",
    "memory.",
    "mig.",
    "module.",
    "pci.",
    "pcie.",
    "platform.",
    "power",
    "protected_memory.",
    "remapped_rows.",
    "reset_status.",
    "retired_pages.",
    "temperature.",
    "utilization.",
    "vgpu_",
];

/// The columns that show the health of a device, with the matching section and key of `-q`.
const HEALTH: [(&str, &[&str], &str); 23] = [
    ("compute_mode", &[], "compute_mode"),
    ("mig.mode.pending", &["mig_mode"], "pending"),
    ("ecc.mode.current", &["ecc_mode"], "current"),
    ("ecc.mode.pending", &["ecc_mode"], "pending"),
    ("ecc.errors.uncorrected.volatile.total", &["volatile", "double_bit"], "total"),
    ("remapped_rows.pending", &["remapped_rows"], "pending"),
    ("remapped_rows.failure", &["remapped_rows"], "remapping_failure_occurred"),
    ("remapped_rows.histogram.none", &["row_remapper_histogram"], "none"),
    ("retired_pages.pending", &["retired_pages"], "pending_retirement"),
    ("gpu_recovery_action", &[], "gpu_recovery_action"),
    ("reset_status.reset_required", &["gpu_reset_status"], "reset_required"),
    (
        "reset_status.drain_and_reset_recommended",
        &["gpu_reset_status"],
        "drain_and_reset_recommended",
    ),
    ("fabric.state", &["fabric"], "state"),
    ("fabric.status", &["fabric"], "status"),
    ("fabric.health.summary", &["fabric"], "summary"),
    ("clocks_event_reasons.hw_slowdown", &["clocks_event_reasons"], "hw_slowdown"),
    ("clocks_event_reasons.hw_thermal_slowdown", &["clocks_event_reasons"], "hw_thermal_slowdown"),
    (
        "clocks_event_reasons.hw_power_brake_slowdown",
        &["clocks_event_reasons"],
        "hw_power_brake_slowdown",
    ),
    ("clocks_event_reasons.sw_thermal_slowdown", &["clocks_event_reasons"], "sw_thermal_slowdown"),
    ("clocks_throttle_reasons.hw_slowdown", &["clocks_event_reasons"], "hw_slowdown"),
    (
        "clocks_throttle_reasons.hw_thermal_slowdown",
        &["clocks_event_reasons"],
        "hw_thermal_slowdown",
    ),
    (
        "clocks_throttle_reasons.hw_power_brake_slowdown",
        &["clocks_event_reasons"],
        "hw_power_brake_slowdown",
    ),
    (
        "clocks_throttle_reasons.sw_thermal_slowdown",
        &["clocks_event_reasons"],
        "sw_thermal_slowdown",
    ),
];

/// Parses the output; `reported` has the fields if the text has no header.
pub(crate) fn parse(text: &Text, kind: Kind, reported: Option<&[String]>) -> Document {
    let mut document = Document::new(kind);
    document.columns = reported
        .unwrap_or_default()
        .iter()
        .take(MAX_COLUMNS)
        .map(|name| field_name(name).to_owned())
        .collect();
    if kind == Kind::QueryApps {
        document.processes = Some(Vec::new());
    }
    let mut columns_by_name = ColumnIndexes::of(&document.columns);
    let open_line = text.open_line();
    let mut cells_kept = 0;
    for (number, line) in text.lines() {
        let kept = document.gpus.len() + document.processes.as_ref().map_or(0, Vec::len);
        let is_full = kept >= Document::MAX_ROWS;
        if is_full && document.unread.len() >= Document::MAX_UNREAD {
            break;
        }
        let line = field::without_remark(line).trim();
        if line.is_empty() {
            continue;
        }
        if let Some(columns) = header(line) {
            columns_by_name = ColumnIndexes::of(&columns);
            document.columns = columns;
            continue;
        }
        let separator = separator(line, document.columns.len());
        let mut cells: Vec<&str> = line.split(separator).take(MAX_COLUMNS).collect();
        let is_alone = cells.len() == 1;
        if open_line == Some(number) && (2..document.columns.len()).contains(&cells.len()) {
            // A cell cut in the middle of a number would show a wrong number.
            cells.pop();
        }
        if is_alone && document.columns.len() != 1 {
            if !failure::note(&mut document, line) {
                document.note_unread(number, line, "not a row of the fields above");
            }
            continue;
        }
        if is_full {
            document.note_unread(number, line, "row limit exceeded");
            continue;
        }
        let Some(row) = Row::new(&columns_by_name, &cells, separator) else {
            if !failure::note(&mut document, line) {
                document.note_unread(number, line, "more cells than columns");
            }
            continue;
        };
        if is_alone && failure::codes(line).iter().any(|code| *code != ErrorCode::Other) {
            failure::note(&mut document, line);
            continue;
        }
        // If rows disagree, the last one is the latest.
        let driver = row.text(&["kmd_version"]).or_else(|| row.text(&["driver_version"]));
        document.driver_version = driver.or(document.driver_version.take());
        match &mut document.processes {
            Some(processes) => processes.push(row.process()),
            None => document.gpus.push(row.gpu()),
        }
        cells_kept += columns_by_name.count;
        if cells_kept <= MAX_CELLS {
            document.rows.push(row.values(&document.columns));
        } else {
            document.note_unread(number, line, "row limit exceeded: its cells are not in `rows`");
        }
    }
    document
}

/// Returns the kind of query with the header `line`.
pub(crate) fn kind_of_header(line: &str) -> Option<Kind> {
    header(line.trim()).map(|names| kind_of_fields(&names))
}

/// Returns the kind of query with these fields.
pub(crate) fn kind_of_fields(names: &[String]) -> Kind {
    const OF_PROCESSES: [&str; 5] =
        ["pid", "process_name", "used_memory", "used_gpu_memory", "max_memory_usage"];
    let of_process = names.iter().any(|name| OF_PROCESSES.contains(&field_name(name)));
    if of_process { Kind::QueryApps } else { Kind::QueryGpu }
}

/// Removes the unit from a field's name: `memory.used [MiB]`.
fn field_name(name: &str) -> &str {
    name.split('[').next().unwrap_or(name).trim()
}

/// Parses a header line: only names, one of them a known field.
fn header(line: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut known = false;
    for name in line.split(',') {
        let name = field_name(name);
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.len() <= MAX_NAME
            && name.chars().all(letters);
        if !is_name || names.len() == MAX_COLUMNS {
            return None;
        }
        known |= is_field(name);
        names.push(name.to_owned());
    }
    known.then_some(names)
}

/// Returns the separator of cells: nvidia-smi's comma and blank, which leaves bare commas to the
/// names, or a bare comma if that produces too few cells.
fn separator(line: &str, columns: usize) -> &'static str {
    if line.matches(", ").count() + 1 >= columns { ", " } else { "," }
}

fn is_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    BARE_FIELDS.contains(&name.as_str())
        || FIELD_GROUPS.iter().any(|group| {
            name.strip_prefix(group).is_some_and(|rest| {
                group.ends_with(['.', '_']) && !rest.is_empty()
                    || rest.starts_with(['.', '_']) && rest.len() > 1
            })
        })
}

/// Column indexes by lowercase name; if two columns share a name, the first one counts.
struct ColumnIndexes {
    by_name: BTreeMap<String, usize>,
    count: usize,
}

impl ColumnIndexes {
    fn of(columns: &[String]) -> Self {
        work_meter::add(columns.len());
        let mut by_name = BTreeMap::new();
        for (at, name) in columns.iter().enumerate() {
            by_name.entry(name.to_ascii_lowercase()).or_insert(at);
        }
        ColumnIndexes { by_name, count: columns.len() }
    }

    fn find(&self, name: &str) -> Option<usize> {
        work_meter::add(1);
        self.by_name.get(name).copied()
    }
}

/// A row: its cells by column name.
struct Row<'a> {
    columns: &'a ColumnIndexes,
    cells: Vec<Cow<'a, str>>,
}

impl<'a> Row<'a> {
    /// Assigns cells to columns; extra cells are commas in the free text. `None` if no column has
    /// free text.
    fn new(columns: &'a ColumnIndexes, cells: &[&'a str], separator: &str) -> Option<Self> {
        let surplus = cells.len().saturating_sub(columns.count);
        let free = if surplus == 0 {
            columns.count
        } else {
            let free_text = ["process_name", "name", "gpu_name"];
            free_text.iter().find_map(|text| columns.find(text))?
        };
        let under = |at: usize| -> Option<Cow<'a, str>> {
            if at == free {
                let parts = cells.get(at..=at + surplus)?;
                return Some(Cow::Owned(parts.join(separator)));
            }
            let cell = cells.get(if at < free { at } else { at + surplus })?;
            Some(Cow::Borrowed(cell))
        };
        Some(Row { columns, cells: (0..columns.count).map_while(under).collect() })
    }

    /// Returns the cell of the first of `names` that is a column of this row.
    fn cell(&self, names: &[&str]) -> &str {
        names
            .iter()
            .find_map(|name| self.cells.get(self.columns.find(name)?))
            .map_or("", |cell| cell.trim())
    }

    /// Returns the cells by the names of their columns. Those that no field of a GPU or a process
    /// has, such as the time, are kept here.
    fn values(&self, columns: &[String]) -> BTreeMap<String, Value> {
        let is_text = |name: &String| TEXTS.contains(&name.to_ascii_lowercase().as_str());
        let value = |(name, cell): (&String, &Cow<'_, str>)| {
            (name.clone(), monitor::value(cell, is_text(name)))
        };
        columns.iter().zip(&self.cells).rev().map(value).collect()
    }

    fn text(&self, names: &[&str]) -> Option<String> {
        field::text(self.cell(names))
    }

    fn read<T>(&self, names: &[&str], read: fn(&str) -> Reading<T>) -> Reading<T> {
        read(self.cell(names))
    }

    fn gpu(&self) -> Gpu {
        Gpu {
            index: self.read(&["index"], field::number).ok(),
            name: self.text(&["name", "gpu_name"]),
            bus_id: self.text(&["pci.bus_id", "gpu_bus_id"]),
            uuid: self.text(&["uuid", "gpu_uuid"]),
            minor: None,
            memory_used_mib: self.read(&["memory.used"], field::mib),
            memory_total_mib: self.read(&["memory.total"], field::mib),
            memory_reserved_mib: self.read(&["memory.reserved"], field::mib),
            utilization_percent: self.read(&["utilization.gpu"], field::percent),
            temperature_c: self.read(&["temperature.gpu"], field::celsius),
            power_draw_w: self
                .read(&["power.draw", "power.draw.average", "power.draw.instant"], field::watts),
            power_limit_w: self.read(&["power.limit", "enforced.power.limit"], field::watts),
            persistence: self.read(&["persistence_mode"], field::switch),
            display_active: self.read(&["display_active"], field::switch),
            mig_enabled: self.read(&["mig.mode.current", "mig.mode"], field::switch),
            partition: None,
            tensorflow: None,
            shares_host: false,
            details: self.health(),
        }
    }

    /// Returns the values that show the health of a device, in the form of `-q`.
    fn health(&self) -> DeviceDetails {
        let mut details = DeviceDetails::default();
        for (name, path, key) in HEALTH {
            let path: Vec<String> = path.iter().map(|section| (*section).to_owned()).collect();
            match self.cell(&[name]) {
                "" => {}
                value => health::leaf(&mut details, &path, key, value),
            }
        }
        details
    }

    fn process(&self) -> Process {
        // A placeholder such as `[Not Found]` is kept as the name: it says more than a missing
        // name.
        let name = self.cell(&["process_name", "name"]);
        Process {
            gpu_uuid: self.text(&["gpu_uuid", "uuid"]),
            gpu_bus_id: self.text(&["gpu_bus_id", "pci.bus_id"]),
            pid: self.read(&["pid"], field::number).ok(),
            name: (!name.is_empty()).then(|| name.to_owned()),
            memory_mib: self.read(&["used_gpu_memory", "used_memory"], field::mib),
            ..Process::default()
        }
    }
}
