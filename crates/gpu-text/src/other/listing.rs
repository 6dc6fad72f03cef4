//! The devices and processes of a text that is being read.

use super::keys::{self, Field, OfProcess, words};
use crate::document::{Document, Gpu, Kind, PartitionMode, Process, Tool, keep};
use crate::field;
use crate::work_meter;
use gpu_core::{Absent, Reading};
use std::collections::BTreeMap;

/// The number of fields with a preference.
const FIELDS: usize = Field::Driver as usize + 1;

/// A device in a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Index(u32),
    /// Its address, or without one its position.
    Bus(String),
    /// The only device of a tool that shows one.
    Only,
}

/// The document that is being filled.
pub(super) struct Listing {
    document: Document,
    /// For each device, the place of the name that each of its values came from.
    places: Vec<[usize; FIELDS]>,
    positions: BTreeMap<Key, usize>,
    /// The current device.
    pub(super) at: Option<usize>,
    process: Option<Draft>,
    /// Whether a row was dropped because there were too many.
    pub(super) is_full: bool,
}

/// A process, and the place of the name that its memory came from.
struct Draft {
    process: Process,
    place: usize,
}

impl Listing {
    pub(super) fn new() -> Self {
        Listing {
            document: Document::new(Kind::Other),
            places: Vec::new(),
            positions: BTreeMap::new(),
            at: None,
            process: None,
            is_full: false,
        }
    }

    /// Sets the tool, unless an earlier line showed it.
    pub(super) fn tool(&mut self, tool: Tool) {
        self.document.tool.get_or_insert(tool);
    }

    pub(super) fn unread(&mut self, line: usize, text: &str, why: &'static str) {
        self.document.note_unread(line, text, why);
    }

    pub(super) fn finish(mut self) -> Document {
        self.end_process();
        self.document
    }

    /// Makes a device the current one; later values are its own.
    pub(super) fn device(&mut self, key: Key) {
        self.end_process();
        if let Some(at) = self.positions.get(&key) {
            self.at = Some(*at);
            return;
        }
        let index = if let Key::Index(index) = key { Some(index) } else { None };
        if keep(&mut self.document.gpus, Gpu { index, ..Gpu::default() }) {
            let at = self.places.len();
            self.places.push([usize::MAX; FIELDS]);
            self.positions.insert(key, at);
            self.at = Some(at);
        } else {
            (self.is_full, self.at) = (true, None);
        }
    }

    /// Notes that the current device sleeps and was not read.
    pub(super) fn asleep(&mut self) {
        if let Some(gpu) = self.gpu() {
            gpu.memory_used_mib = Err(Absent::Asleep);
            gpu.memory_total_mib = Err(Absent::Asleep);
            gpu.utilization_percent = Err(Absent::Asleep);
            gpu.temperature_c = Err(Absent::Asleep);
            gpu.power_draw_w = Err(Absent::Asleep);
        }
    }

    fn gpu(&mut self) -> Option<&mut Gpu> {
        self.document.gpus.get_mut(self.at?)
    }

    /// Reads a row of a table: the name of each column, of [`words`], and its cell. Returns false
    /// if it is a row of neither a device nor a process.
    pub(super) fn row(&mut self, row: &[(&str, &str)]) -> bool {
        let is_index =
            |(name, cell): &&(&str, &str)| keys::INDEXES.contains(name) && index(cell).is_some();
        if let Some(pid) = row.iter().position(|(name, _)| is_pid(name)) {
            let (_, cell) = row[pid];
            if field::number(cell).is_err() {
                return false;
            }
            // Behind the PID, rocm-smi prints the number of GPUs, also under the name GPU.
            let device = row
                .iter()
                .enumerate()
                .find(|(at, cell)| is_index(cell) && (*at < pid || cell.0.starts_with("device")));
            let index = device.and_then(|(_, (_, cell))| index(cell));
            self.start_process();
            self.draft().process.gpu_index = index;
            row.iter().for_each(|(name, cell)| self.of_process(name, cell));
            self.end_process();
            return true;
        }
        let Some(index) = row.iter().find(is_index).and_then(|(_, cell)| index(cell)) else {
            return false;
        };
        self.device(Key::Index(index));
        for (name, cell) in row {
            self.of_device(None, name, cell);
        }
        true
    }

    /// Reads a value within the section `section`, both named by the text.
    pub(super) fn value(&mut self, section: Option<&str>, name: &str, value: &str) {
        let section = section.map(words);
        self.of_device(section.as_deref(), &words(name), value);
    }

    fn of_device(&mut self, section: Option<&str>, name: &str, value: &str) {
        let Some((field, place, unit)) = keys::of_device(section, name) else { return };
        let value = value.trim();
        if field == Field::Driver {
            let version = self.document.driver_version.take();
            self.document.driver_version = version.or_else(|| field::identifier(value));
            return;
        }
        let Some(at) = self.at else { return };
        let Some((gpu, places)) = self.document.gpus.get_mut(at).zip(self.places.get_mut(at))
        else {
            return;
        };
        // A GTT is memory of the host.
        gpu.shares_host |= name.starts_with("gtt ")
            || field == Field::Name && is_integrated(value)
            || field == Field::Type && value == "APU";
        let before = places[field as usize];
        // The modes of a partition may have a name each.
        if (place <= before || field == Field::Partition)
            && take(gpu, field, value, unit, before == usize::MAX)
        {
            places[field as usize] = place;
        }
    }

    /// Forgets the processes of an earlier sample.
    pub(super) fn forget_processes(&mut self) {
        self.end_process();
        self.document.processes = None;
    }

    /// Notes that the text lists processes: of the current device, or of all devices.
    pub(super) fn lists_processes(&mut self) {
        self.document.processes.get_or_insert_default();
    }

    /// Notes that the text lists the processes of the current device, which may have none.
    pub(super) fn lists_own_processes(&mut self) {
        self.lists_processes();
        if let Some(index) = self.gpu().and_then(|gpu| gpu.index) {
            self.document.listing.get_or_insert_default().insert(index);
        }
    }

    /// Starts a process on the current device, if any.
    pub(super) fn start_process(&mut self) {
        self.end_process();
        self.lists_processes();
        self.draft();
    }

    /// Starts a process on the current device.
    pub(super) fn start_own_process(&mut self) {
        self.start_process();
        let Some(gpu) = self.gpu() else { return };
        let (index, bus) = (gpu.index, gpu.bus_id.clone().filter(|_| gpu.index.is_none()));
        work_meter::add(bus.as_ref().map_or(0, String::len));
        let draft = self.draft();
        (draft.process.gpu_index, draft.process.gpu_bus_id) = (index, bus);
    }

    fn draft(&mut self) -> &mut Draft {
        let new = || Draft { process: Process::default(), place: usize::MAX };
        self.process.get_or_insert_with(new)
    }

    /// Reads a value of the current process, named by the text.
    pub(super) fn process_value(&mut self, name: &str, value: &str) {
        self.of_process(&words(name), value);
    }

    fn of_process(&mut self, name: &str, value: &str) {
        let Some((what, place, unit)) = keys::of_process(name) else { return };
        let draft = self.draft();
        match what {
            OfProcess::Pid => draft.process.pid = field::number(value).ok(),
            OfProcess::Name => draft.process.name = field::text(value),
            OfProcess::Memory if place <= draft.place => {
                let memory = mib(value, unit);
                if memory.is_ok() || draft.place == usize::MAX {
                    (draft.process.memory_mib, draft.place) = (memory, place);
                }
            }
            OfProcess::Memory => {}
        }
    }

    /// Returns whether the current process has a PID, so that another name belongs to the next one.
    pub(super) fn has_pid(&self) -> bool {
        self.process.as_ref().is_some_and(|draft| draft.process.pid.is_some())
    }

    /// Ends the current process; without a PID, it was none.
    pub(super) fn end_process(&mut self) {
        let Some(Draft { process, .. }) = self.process.take() else { return };
        if process.pid.is_some() {
            let processes = self.document.processes.get_or_insert_default();
            self.is_full |= !keep(processes, process);
        }
    }
}

/// Returns whether a column holds process IDs; `name` is of [`words`].
pub(super) fn is_pid(name: &str) -> bool {
    matches!(keys::of_process(name), Some((OfProcess::Pid, ..)))
}

/// Parses the index of a device: `0` or `card0`.
pub(super) fn index(cell: &str) -> Option<u32> {
    let cell = cell.trim();
    cell.strip_prefix("card").unwrap_or(cell).parse().ok()
}

/// Takes a value of a device; a missing one only if `is_first`. Returns whether it was taken.
fn take(gpu: &mut Gpu, field: Field, value: &str, unit: &str, is_first: bool) -> bool {
    let mode = |gpu: &mut Gpu, set: fn(&mut PartitionMode, &str)| {
        let is_some = field::absent(value).is_none();
        if is_some {
            set(gpu.partition.get_or_insert_default(), value);
        }
        is_some
    };
    match field {
        Field::Name => text(&mut gpu.name, field::text(value).filter(|name| !is_number(name))),
        Field::Bus => {
            text(&mut gpu.bus_id, field::identifier(value).filter(|bus| bus.contains(':')))
        }
        Field::Uuid => text(&mut gpu.uuid, uuid(value)),
        Field::MemoryTotal => reading(&mut gpu.memory_total_mib, mib(value, unit), is_first),
        Field::MemoryUsed => reading(&mut gpu.memory_used_mib, mib(value, unit), is_first),
        Field::Memory => {
            let (used, total) = pair(value);
            let total = mib(&total, unit);
            reading(&mut gpu.memory_total_mib, total, is_first)
                | reading(&mut gpu.memory_used_mib, mib(&used, unit), is_first)
        }
        Field::Busy => reading(&mut gpu.utilization_percent, percent(value), is_first),
        Field::Temperature => {
            reading(&mut gpu.temperature_c, field::celsius(present(value)), is_first)
        }
        Field::Power => reading(&mut gpu.power_draw_w, watts(value), is_first),
        Field::Limit => reading(&mut gpu.power_limit_w, watts(value), is_first),
        Field::PowerAndLimit => {
            let (draw, limit) = pair(value);
            if !limit.is_empty() {
                reading(&mut gpu.power_limit_w, watts(&limit), is_first);
            }
            reading(&mut gpu.power_draw_w, watts(&draw), is_first)
        }
        Field::Id => mode(gpu, |mode, value| mode.id = value.parse().ok().or(mode.id)),
        Field::Partition => mode(gpu, |mode, value| {
            for word in value.split([',', '/']).map(str::trim) {
                if let Ok(id) = word.parse() {
                    mode.id = Some(id);
                } else if word.starts_with("NPS") {
                    mode.memory = field::identifier(word);
                } else if word.ends_with("PX") {
                    mode.compute = field::identifier(word);
                }
            }
        }),
        Field::Type | Field::Driver => false,
    }
}

fn text(slot: &mut Option<String>, text: Option<String>) -> bool {
    let taken = text.is_some();
    *slot = text.or(slot.take());
    taken
}

fn reading<T>(slot: &mut Reading<T>, value: Reading<T>, is_first: bool) -> bool {
    let taken = value.is_ok();
    if taken || is_first {
        *slot = value;
    }
    taken
}

/// Returns a value without the remark behind a missing one, `N/A (Secondary die)`, or behind that
/// of the whole device, `15; Tile 0: 7`.
fn present(value: &str) -> &str {
    let value = value.split(';').next().unwrap_or(value).trim();
    match value {
        _ if value.starts_with("N/A") || value == "Unsupported" => "N/A",
        // Each part of a device has its own value.
        _ if value.starts_with("Tile ") => "",
        _ => value,
    }
}

/// Parses memory; `unit` ends a number without a unit.
fn mib(value: &str, unit: &str) -> Reading<u64> {
    let value = present(value);
    if value.ends_with(|c: char| c.is_ascii_digit()) && !unit.is_empty() {
        field::mib(&format!("{value}{unit}"))
    } else {
        field::mib(value)
    }
}

fn percent(value: &str) -> Reading<u64> {
    field::percent(present(value))
}

fn watts(value: &str) -> Reading<f64> {
    field::watts(present(value))
}

/// Splits `25/385728 MB` and `41W / 190W`; the unit of the second part is also that of the first.
/// The second part is empty if there is none.
fn pair(value: &str) -> (String, String) {
    if field::absent(value).is_some() {
        return (value.to_owned(), value.to_owned());
    }
    let Some((first, second)) = value.rsplit_once('/') else {
        return (value.to_owned(), String::new());
    };
    let (first, second) = (first.trim(), second.trim());
    let unit = second.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let has_unit = first.ends_with(|c: char| c.is_ascii_alphabetic());
    let first = if has_unit { first.to_owned() } else { format!("{first} {unit}") };
    (first, second.to_owned())
}

/// Returns the UUID as programs print it: `GPU-` and the unique ID, which rocm-smi prints as a
/// hexadecimal number. `None` for anything else, such as `<redacted>`.
fn uuid(value: &str) -> Option<String> {
    let value = field::identifier(value)?;
    if let Some(digits) = value.strip_prefix("0x") {
        return Some(format!("GPU-{digits}"));
    }
    value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-').then_some(value)
}

/// Returns whether a name is that of a device within a processor of AMD: `Radeon Graphics`, `Radeon
/// 680M`, `Radeon 8060S`, `MI300A`.
fn is_integrated(name: &str) -> bool {
    let is_model = |word: &str| {
        let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match word.trim_end_matches(']').strip_prefix(digits) {
            Some("M") => is_number && digits.len() == 3,
            Some("S") => is_number && digits.len() == 4 && digits.starts_with("80"),
            _ => false,
        }
    };
    name.contains("Radeon Graphics")
        || name.contains("MI300A")
        || name.contains("Radeon") && name.split(' ').any(is_model)
}

/// Returns whether a name is the number of a chip, which older versions print in place of it.
fn is_number(name: &str) -> bool {
    name.starts_with("0x")
}
