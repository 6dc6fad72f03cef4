//! `--query-gpu=… --format=csv` and `--query-compute-apps=… --format=csv`.
//!
//! The columns come from the header line, `memory.used [MiB]`, or from the caller if the output has
//! none. nvidia-smi does not quote: a comma in a name produces an extra cell, which is merged into
//! the free-text column.

use crate::document::{Document, ErrorCode, Gpu, Kind, Process};
use crate::failure;
use crate::field;
use crate::health;
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
    for (number, line) in text.lines() {
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
                document.note_unread(number, line, "no row of the fields above");
            }
            continue;
        }
        let kept = document.gpus.len() + document.processes.as_ref().map_or(0, Vec::len);
        if kept >= Document::MAX_ROWS {
            document.note_unread(number, line, "more rows than are kept");
            continue;
        }
        let Some(row) = Row::new(&columns_by_name, &cells, separator) else {
            if !failure::note(&mut document, line) {
                document.note_unread(number, line, "more cells than fields");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use gpu_core::Absent;
    use proptest::prelude::*;

    fn of(kind: Kind, text: &str) -> Document {
        parse(&clean(text.as_bytes()), kind, None)
    }

    #[test]
    fn health_columns_match_log() {
        let document = of(
            Kind::QueryGpu,
            "index, remapped_rows.pending, remapped_rows.failure, gpu_recovery_action, \
             ecc.errors.uncorrected.volatile.total, clocks_event_reasons.hw_thermal_slowdown, \
             fabric.state, compute_mode\n\
             0, Yes, No, Node Reboot, 3, Active, In Progress, Prohibited\n\
             1, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n",
        );
        let details = &document.gpus[0].details;
        let health = details.memory_health.as_ref().unwrap();
        assert_eq!((health.remapped_pending, health.remapped_failure), (Ok(true), Ok(false)));
        assert_eq!(health.uncorrected, Ok(3));
        let recovery = details.reset_status.as_ref().unwrap().recovery;
        assert_eq!(recovery, Ok(gpu_core::RecoveryAction::Reboot));
        let fabric = details.fabric.as_ref().unwrap();
        assert_eq!(fabric.state, Ok(gpu_core::FabricState::InProgress));
        let modes = details.modes.as_ref().unwrap();
        assert_eq!(modes.compute_mode, Ok(gpu_core::ComputeMode::Prohibited));
        assert!(details.activity.as_ref().unwrap().throttle.is_ok());
        let none = &document.gpus[1].details;
        assert_eq!(none.memory_health.as_ref().unwrap().uncorrected, Err(Absent::NotSupported));
    }

    #[test]
    fn columns_may_be_in_any_order_with_units() {
        let document = of(
            Kind::QueryGpu,
            "memory.used [MiB], name, index, power.draw [W], driver_version\n\
             11 MiB, Test K80, 3, [N/A], 470.1\n",
        );
        let gpu = &document.gpus[0];
        assert_eq!((gpu.index, gpu.memory_used_mib), (Some(3), Ok(11)));
        assert_eq!(gpu.power_draw_w, Err(Absent::NotSupported));
        assert_eq!(gpu.power_limit_w, Err(Absent::NotRecorded));
        assert_eq!(document.driver_version.as_deref(), Some("470.1"));
        assert_eq!(document.processes, None);
    }

    #[test]
    fn given_fields_replace_header_and_errors_are_kept() {
        let fields = ["index", "memory.used", "utilization.gpu [%]"].map(str::to_owned);
        let text = "0, 11, 7   # the first\n\
                    Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n\
                    [Unknown Error], [Unknown Error], [Unknown Error]\n2, 12\n3, 1";
        let document = parse(&clean(text.as_bytes()), Kind::QueryGpu, Some(&fields));
        let used: Vec<_> = document.gpus.iter().map(|gpu| gpu.memory_used_mib).collect();
        assert_eq!(used, [Ok(11), Err(Absent::Failed), Ok(12), Err(Absent::NotRecorded)]);
        assert_eq!(document.gpus[0].utilization_percent, Ok(7));
        assert_eq!(document.gpus[2].utilization_percent, Err(Absent::NotRecorded));
        assert_eq!((document.errors.len(), document.unread.len()), (1, 0));
    }

    #[test]
    fn comma_in_name_is_kept() {
        let document = of(
            Kind::QueryApps,
            "gpu_name, pid, process_name, used_gpu_memory [MiB]\n\
             Test K80, 7, /opt/a, b,c, 5 MiB\nTest K80, 8, [Not Found], [N/A]\n",
        );
        let processes = document.processes.unwrap();
        assert_eq!(processes[0].name.as_deref(), Some("/opt/a, b,c"));
        assert_eq!((processes[0].pid, processes[0].memory_mib), (Some(7), Ok(5)));
        assert_eq!(processes[1].name.as_deref(), Some("[Not Found]"));
        assert_eq!(processes[1].memory_mib, Err(Absent::NotSupported));
    }

    #[test]
    fn surplus_cells_without_free_text_are_unread() {
        let document = of(Kind::QueryGpu, "index, memory.used [MiB]\n0, 1 MiB, 2\n");
        assert_eq!((document.gpus.len(), document.unread.len()), (0, 1));
    }

    #[test]
    fn single_field_query_is_parsed() {
        let document = of(Kind::QueryGpu, "name\nTest K80\nNo devices were found\n");
        assert_eq!(document.gpus[0].name.as_deref(), Some("Test K80"));
        assert_eq!((document.gpus.len(), document.errors.len()), (1, 1));
    }

    #[test]
    fn headers_are_distinguished_from_rows_and_prose() {
        for (line, kind) in [
            ("index, name", Some(Kind::QueryGpu)),
            ("pid,used_memory", Some(Kind::QueryApps)),
            ("gpu_uuid, pid, process_name, used_gpu_memory [MiB]", Some(Kind::QueryApps)),
            ("utilization.gpu [%]", Some(Kind::QueryGpu)),
            ("clocks.current.sm [MHz], clocks_event_reasons.active", Some(Kind::QueryGpu)),
            ("0, Test K80", None),
            ("powerful, clocks", None),
            ("index.html", None),
            ("", None),
        ] {
            assert_eq!(kind_of_header(line), kind, "{line}");
        }
    }

    #[test]
    fn known_fields_are_recognised() {
        for (name, is) in [
            ("timestamp", true),
            ("Index", true),
            ("memory.used", true),
            ("clocks_event_reasons.active", true),
            ("clocks.sm", true),
            ("power.draw", true),
            ("vgpu_device_capability", true),
            ("memory.", false),
            ("vgpu_", false),
            ("power.", false),
            ("power", false),
            ("clocksm", false),
            ("memories.used", false),
            ("", false),
        ] {
            assert_eq!(is_field(name), is, "{name}");
        }
        for (line, is) in [
            ("index, my-column", true),
            ("index, 1st", false),
            ("index, a b", false),
            ("other, names", false),
        ] {
            assert_eq!(header(line).is_some(), is, "{line}");
        }
        let long = |length: usize| header(&format!("index, {}", "a".repeat(length)));
        assert!(long(MAX_NAME).is_some() && long(MAX_NAME + 1).is_none());
        let many = |count: usize| header(&vec!["index"; count].join(","));
        assert!(many(MAX_COLUMNS).is_some() && many(MAX_COLUMNS + 1).is_none());
        for name in
            ["pid", "process_name", "used_memory", "used_gpu_memory [MiB]", "max_memory_usage"]
        {
            assert_eq!(kind_of_fields(&["index".to_owned(), name.to_owned()]), Kind::QueryApps);
        }
    }

    #[test]
    fn alternative_names_of_columns_are_read() {
        let gpu = |columns: &str, cells: &str| {
            let mut document = of(Kind::QueryGpu, &format!("{columns}\n{cells}\n"));
            assert_eq!(document.gpus.len(), 1, "{columns}");
            document.gpus.remove(0)
        };
        let first = gpu(
            "gpu_name, gpu_uuid, gpu_bus_id, power.draw.average, enforced.power.limit, mig.mode, \
             memory.total, memory.reserved, persistence_mode, display_active, temperature.gpu",
            "K80, GPU-a, 0:1:0.0, 5 W, 9 W, Enabled, 8 MiB, 1 MiB, Enabled, Disabled, 40",
        );
        assert_eq!((first.name.as_deref(), first.uuid.as_deref()), (Some("K80"), Some("GPU-a")));
        assert_eq!(first.bus_id.as_deref(), Some("0:1:0.0"));
        assert_eq!((first.power_draw_w, first.power_limit_w), (Ok(5.0), Ok(9.0)));
        assert_eq!((first.memory_total_mib, first.memory_reserved_mib), (Ok(8), Ok(1)));
        assert_eq!((first.mig_enabled, first.persistence), (Ok(true), Ok(true)));
        assert_eq!((first.display_active, first.temperature_c), (Ok(false), Ok(40)));
        let second = gpu(
            "pci.bus_id, uuid, power.draw.instant, power.limit, mig.mode.current, index, INDEX",
            "0:2:0.0, GPU-b, 6 W, 10 W, Disabled, 3, 4",
        );
        assert_eq!(
            (second.bus_id.as_deref(), second.uuid.as_deref()),
            (Some("0:2:0.0"), Some("GPU-b"))
        );
        assert_eq!((second.power_draw_w, second.power_limit_w), (Ok(6.0), Ok(10.0)));
        assert_eq!((second.mig_enabled, second.index), (Ok(false), Some(3)));
        for columns in [
            "gpu_uuid, pid, name, used_memory, gpu_bus_id",
            "uuid, pid, process_name, used_gpu_memory, pci.bus_id",
        ] {
            let document =
                of(Kind::QueryApps, &format!("{columns}\nGPU-a, 7, x, 5 MiB, 0:1:0.0\n"));
            let process = &document.processes.unwrap()[0];
            assert_eq!((process.gpu_uuid.as_deref(), process.pid), (Some("GPU-a"), Some(7)));
            assert_eq!((process.name.as_deref(), process.memory_mib), (Some("x"), Ok(5)));
            assert_eq!(process.gpu_bus_id.as_deref(), Some("0:1:0.0"));
        }
    }

    #[test]
    fn driver_version_is_latest_of_kernel_module() {
        let text = "index, driver_version, kmd_version\n0, 1.1, 2.1\n1, 1.2, 2.2\n2, 1.3, [N/A]\n";
        assert_eq!(of(Kind::QueryGpu, text).driver_version.as_deref(), Some("1.3"));
        let text = "index, driver_version, kmd_version\n0, 1.1, 2.1\n1, [N/A], [N/A]\n";
        assert_eq!(of(Kind::QueryGpu, text).driver_version.as_deref(), Some("2.1"));
    }

    #[test]
    fn last_cell_of_open_line_is_dropped_if_cells_are_missing() {
        let used = |text: &str| {
            let document = of(Kind::QueryGpu, &format!("index, memory.used, memory.total\n{text}"));
            document.gpus.last().map(|gpu| (gpu.index, gpu.memory_used_mib.ok()))
        };
        assert_eq!(used("0, 16"), Some((Some(0), None)));
        assert_eq!(used("0, 16\n"), Some((Some(0), Some(16))));
        assert_eq!(used("0, 16, 3"), Some((Some(0), Some(16))));
        assert_eq!(used("1, 2, 3\n0, 16"), Some((Some(0), None)));
        assert_eq!(used("0,16,3\n"), Some((Some(0), Some(16))), "without blanks");
        assert_eq!(used("0"), None, "one cell of three");
    }

    const PIECES: &[&str] = &["0", "7", ",", ", ", "[N/A]", " ", "x", "MiB", "\n"];

    proptest! {
        #[test]
        fn every_line_is_row_header_or_unread(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..120)) {
            let rows = pieces.concat();
            let text = clean(format!("index, name, memory.used [MiB]\n{rows}").as_bytes());
            let document = parse(&text, Kind::QueryGpu, None);
            let filled = text.lines().skip(1).filter(|(_, line)| !line.trim().is_empty()).count();
            prop_assert_eq!(document.gpus.len() + document.unread.len(), filled);
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..500),
            fields in prop::collection::vec("[a-z._]{0,8}", 0..4),
        ) {
            let text = clean(&bytes);
            parse(&text, Kind::QueryGpu, Some(&fields));
            parse(&text, Kind::QueryApps, None);
        }
    }
}
