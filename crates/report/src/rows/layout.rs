//! The lines for a device and its MIG instances, fitted to a width.

use crate::fault::brief;
use crate::text::{Line, Tone, bar, packed, wrapped};
use crate::wording;
use gpu_core::{DeviceState, MemoryInfo, Partition, Snapshot};

/// The layout of the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The width of the device name column.
    name: usize,
    /// The width of a process with its PID.
    pub(super) process: usize,
    /// There is room for bars and for the power limit.
    pub(super) is_wide: bool,
    /// The total width.
    pub(super) columns: usize,
    /// The indentation of a user's line.
    pub(super) indent: usize,
    /// The width of the used part of memory: more than 5 if some is shown in MiB.
    used: usize,
}

/// The width of a device line without the name: on a wide terminal, on a wide terminal with a
/// `free` label, and on a narrow one.
const WIDE: usize = 60;
const WIDE_FREE: usize = 61;
const NARROW: usize = 31;

/// The minimum width of a line on a narrow terminal, and that of the finding after it.
const LEAST: usize = 40;
const FINDING: usize = 12;
/// The width of a process with its PID: the minimum, and that on a standard terminal.
const PROCESS: usize = 15;
const WHOLE_PROCESS: usize = 32;

/// The width of a standard terminal.
pub(super) const USUAL: usize = 80;

/// The indentation of a line below a device.
pub(super) const INDENT: &str = "    ";

/// Returns a line for each defect of a device.
pub(super) fn defects(device: &DeviceState) -> impl Iterator<Item = Line> {
    let defects = gpu_reaper::defects(device).into_iter().map(|defect| defect.to_string());
    defects.chain(wording::busy_alone(device)).map(|text| Line::new().plain(INDENT).accent(text))
}

/// The usual width of the used part of memory.
const USED: usize = 5;

/// Returns the width of the widest used part of memory.
fn used_width(snapshot: &Snapshot) -> usize {
    let parts = |device: &DeviceState| {
        let whole = device.memory_shown().ok().map(|(used, _)| used);
        let parts = device.partitions.iter().flatten().filter_map(|part| part.memory.used.ok());
        whole.into_iter().chain(parts).collect::<Vec<_>>()
    };
    let used = snapshot.devices.iter().flat_map(parts);
    let texts = used.map(|used| wording::memory(used).trim_end_matches(" GiB").len());
    texts.max().unwrap_or(0).max(USED)
}

/// Returns the most columns of a value on lines of this width: without a width, nothing is cut.
pub(super) fn most(value: usize, columns: usize) -> usize {
    if columns == usize::MAX { usize::MAX } else { value }
}

fn longest_process(snapshot: &Snapshot) -> usize {
    let listed = snapshot.devices.iter().flat_map(|device| device.processes.iter().flatten());
    let widths = listed.map(|process| {
        let name = wording::command(snapshot.process(process.pid), process.name.as_deref().ok());
        Line::new().plain(format_args!("{} {name}", process.pid)).width()
    });
    widths.max().unwrap_or(0)
}

impl Layout {
    /// Fits the lines to this many columns; `any_free`: at least one device is free.
    pub(super) fn of(columns: usize, snapshot: &Snapshot, any_free: bool) -> Self {
        let is_wide = columns >= USUAL;
        let used = used_width(snapshot);
        let names = snapshot.devices.iter().map(|device| Line::new().plain(name(device)).width());
        let longest = names.max().unwrap_or(0);
        let fixed = match (is_wide, any_free) {
            (true, true) => WIDE_FREE,
            (true, false) => WIDE,
            (false, _) => NARROW,
        };
        let room = columns.saturating_sub(fixed + used - USED);
        let name = longest.min(room).max(4);
        let process = match columns {
            usize::MAX => WHOLE_PROCESS,
            USUAL.. => {
                longest_process(snapshot).clamp(WHOLE_PROCESS, WHOLE_PROCESS + columns - USUAL)
            }
            _ => (PROCESS + columns.saturating_sub(LEAST + FINDING)).min(WHOLE_PROCESS),
        };
        Layout { name, process, is_wide, columns, indent: INDENT.len(), used }
    }

    /// Returns the maximum columns of a value: the available width on a terminal, and no limit in a
    /// pipe.
    pub(super) fn most(&self, columns: usize) -> usize {
        most(columns, self.columns)
    }

    /// Formats ` 0  A100-SXM4-80GB  54°C 312/400 W  98 %  ██████████▊░  71.2/ 80.0 GiB`.
    pub(super) fn device(&self, device: &DeviceState, is_free: bool) -> Vec<Line> {
        let line = Line::new().plain(format!("{:>2}  ", device.id().index));
        let line = line.fitted(name(device), self.name).padded_to(4 + self.name);
        let sample = match &device.sample {
            Ok(sample) => sample,
            Err(fault) => {
                return wrapped(line.plain("  "), Tone::Accent, &brief(fault), self.columns);
            }
        };
        let line = cell(line, sample.temperature.ok().map(|t| t.to_string()), 6);
        let power = match (sample.power_draw, sample.power_limit) {
            (Ok(draw), Ok(limit)) => {
                Some(format!("{}/{limit}", draw.to_string().trim_end_matches(" W")))
            }
            (Ok(draw), Err(_)) => Some(draw.to_string()),
            (Err(_), _) => None,
        };
        let line = if self.is_wide { cell(line, power, 10) } else { line };
        let line = cell(line, sample.utilization.ok().map(|u| u.to_string()), 6).plain(" ");
        let total = device.memory_total();
        let line = match (device.memory_shown(), total) {
            (Ok((used, true)), Ok(total)) => {
                line.plain(format!(" ≥{}", wording::used_of(used, total, (0, 0)))).dim(" shared")
            }
            (used, total) => self.memory(
                line,
                &MemoryInfo { used: used.map(|(used, _)| used), total, ..sample.memory },
            ),
        };
        match is_free {
            true => packed(Line::new(), [line, Line::new().dim("free")], " ", 4, self.columns),
            false => vec![line],
        }
    }

    /// Formats `    MIG 0  1g.5gb GI 2 CI 0 …` or, of another vendor, `    partition 0 …`, with its
    /// memory below that of its device.
    pub(super) fn instance(&self, instance: &Partition, is_free: bool) -> Line {
        let number = |id: Option<u32>| id.map_or("?".to_owned(), |id| id.to_string());
        let (gi, ci) = (number(instance.gpu_instance), number(instance.compute_instance));
        let word = if instance.is_mig() { "MIG" } else { "partition" };
        let line = Line::new().plain(format_args!("{INDENT}{word} {}", instance.index));
        let line = match &instance.profile {
            _ if !instance.is_mig() => line,
            Ok(profile) if self.is_wide => line.plain(format_args!("  {profile} GI {gi} CI {ci}")),
            Ok(profile) => line.plain(format_args!("  {profile}")),
            Err(_) => line.plain(format_args!("  GI {gi} CI {ci}")),
        };
        let column = 4 + self.name + if self.is_wide { 23 } else { 13 };
        let line = self.memory(line.padded_to(column), &instance.memory);
        if is_free { line.plain(" ").dim("free") } else { line }
    }

    /// Returns the layout with the users indented below a MIG device.
    pub(super) fn nested(&self) -> Self {
        Layout { indent: INDENT.len() + 2, ..*self }
    }

    fn memory(&self, line: Line, memory: &MemoryInfo) -> Line {
        match (memory.used, memory.total) {
            (Ok(used), Ok(total)) if self.is_wide => line.plain(format!(
                " {} {}",
                bar(used.0, total.0),
                wording::used_of(used, total, (self.used, USED))
            )),
            (Ok(used), Ok(total)) => line.plain(wording::used_of(used, total, (self.used, 0))),
            (Ok(used), Err(_)) => line.plain(format!(" {:>9} used", wording::memory(used))),
            (Err(absent), _) => {
                let long = format!(" memory {absent}");
                let fits = line.width() + long.len() <= self.columns;
                line.dim(if fits { long } else { format!(" {absent}") })
            }
        }
    }
}

fn name(device: &DeviceState) -> &str {
    device.info.name.as_deref().map_or("?", wording::product)
}

/// Appends a right-aligned cell; its text follows at least one space.
pub(super) fn cell(line: Line, text: Option<String>, width: usize) -> Line {
    match text {
        Some(text) if text.chars().count() >= width => line.plain(format_args!(" {text}")),
        Some(text) => line.plain(format_args!("{text:>width$}")),
        None => line.dim(format_args!("{:>width$}", "–")),
    }
}
