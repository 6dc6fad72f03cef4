//! The lines of a device, its MIG instances and its users, fitted to the terminal.

use crate::failure::brief;
use crate::queue_status::owner;
use crate::terminal::{Line, Tone, bar, packed, wrapped};
use crate::wording;
use gpu_core::{
    Access, DeviceFileKind, DeviceState, Entry, HeldFile, MemoryInfo, MigInstance, Snapshot,
    Timestamp,
};
use gpu_reaper::{FindingKind, User};

/// Where the columns are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Columns of a device's name.
    name: usize,
    /// There is room for bars, and for the power and its limit.
    is_wide: bool,
    /// Columns of all.
    columns: usize,
}

/// The columns of everything on a device's line but its name, on a wide terminal, where a device
/// that is free is said to be, and on a narrow one.
const WIDE: usize = 60;
const WIDE_FREE: usize = 61;
const NARROW: usize = 31;

/// The least columns that a line on a narrow terminal takes, and those of a finding behind it.
const LEAST: usize = 40;
const FINDING: usize = 12;
/// The columns of a process, with its number, at the least and at the most.
const PROCESS: usize = 15;
const WHOLE_PROCESS: usize = 34;

/// The columns of a usual terminal.
const USUAL: usize = 80;

/// What a user's line is set in by.
const INDENT: &str = "    ";

impl Layout {
    /// Fits the lines to so many columns; `any_free`: one of the devices is free.
    pub(super) fn of(columns: usize, snapshot: &Snapshot, any_free: bool) -> Self {
        let is_wide = columns >= USUAL;
        let names = snapshot.devices.iter().map(|device| Line::new().plain(name(device)).width());
        let longest = names.max().unwrap_or(0);
        let wide = if any_free { WIDE_FREE } else { WIDE };
        let room = columns.saturating_sub(if is_wide { wide } else { NARROW });
        // In a pipe, which has any width, lines are as long as on a usual terminal.
        Layout { name: longest.min(room).clamp(4, USUAL - wide), is_wide, columns }
    }

    /// Returns the columns of a process, with its number.
    fn process(&self) -> usize {
        if self.is_wide {
            return WHOLE_PROCESS;
        }
        let spare = self.columns.saturating_sub(LEAST + FINDING);
        (PROCESS + spare).min(WHOLE_PROCESS)
    }

    /// ` 0  A100-SXM4-80GB  54°C 312/400 W  98 %  ██████████▊░  71.2/ 80.0 GiB`.
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
        let line = self.memory(line, &sample.memory);
        match is_free {
            true => packed(Line::new(), [line, Line::new().dim("free")], " ", 4, self.columns),
            false => vec![line],
        }
    }

    /// `    MIG 0  GI 2 CI 0 …`, its memory under that of its device.
    pub(super) fn instance(&self, instance: &MigInstance) -> Line {
        let number = |id: Option<u32>| id.map_or("?".to_owned(), |id| id.to_string());
        let (gi, ci) = (number(instance.gpu_instance), number(instance.compute_instance));
        let line = Line::new().plain(format!("{INDENT}MIG {}  GI {gi} CI {ci}", instance.index));
        let column = 4 + self.name + if self.is_wide { 23 } else { 13 };
        self.memory(line.padded_to(column), &instance.memory)
    }

    fn memory(&self, line: Line, memory: &MemoryInfo) -> Line {
        match (memory.used, memory.total) {
            (Ok(used), Ok(total)) if self.is_wide => line.plain(format!(
                " {} {:>5.1}/{:>5.1} GiB",
                bar(used.0, total.0),
                used.gib(),
                total.gib()
            )),
            (Ok(used), Ok(total)) => {
                line.plain(format!("{:>5.1}/{:.1} GiB", used.gib(), total.gib()))
            }
            (Ok(used), Err(_)) => line.plain(format!(" {:>5.1} GiB used", used.gib())),
            (Err(absent), _) => {
                let long = format!(" memory {absent}");
                let fits = line.width() + long.len() <= self.columns;
                line.dim(if fits { long } else { format!(" {absent}") })
            }
        }
    }

    /// `    alice      21044 python train.py      71.0 GiB   98 %  3 h  hoarder`.
    pub(super) fn user(
        &self,
        snapshot: &Snapshot,
        user: &User,
        finding: Option<FindingKind>,
    ) -> Vec<Line> {
        let process = snapshot.process(user.pid);
        let name = wording::command(process, user.name.as_deref());
        let what = format_args!("{} {name}", user.pid);
        let line = Line::new().plain(INDENT).fitted(wording::user(process), 10).padded_to(15);
        let memory = user.memory.ok().map(|bytes| format!("{:.1} GiB", bytes.gib()));
        let room = self.process();
        let mut line = cell(line.fitted(what, room).padded_to(self.amount()), memory, 10);
        let finding = finding.map(wording::short).filter(|word| !word.is_empty());
        let finding = finding.map(|word| Line::new().accent(word));
        if !self.is_wide {
            return packed(Line::new(), [line].into_iter().chain(finding), "  ", 15, self.columns);
        }
        if let Ok(utilization) = user.utilization {
            line = line.plain(format_args!("{:>6}", utilization.to_string()));
        }
        if let Some(at) = process.ok().and_then(|info| info.started_at.ok()) {
            line = line.padded_to(68).dim(wording::age(snapshot.taken_at.since(at)));
        }
        vec![match finding {
            Some(finding) => line.plain("  ").line(finding),
            None => line,
        }]
    }

    /// Returns the column where an amount of memory begins that somebody uses.
    fn amount(&self) -> usize {
        if self.is_wide { 50 } else { 15 + self.process() }
    }

    /// `    nobody listed       15.4 GiB   ← unexplained`.
    pub(super) fn unexplained(&self, gib: f64) -> Vec<Line> {
        let line = Line::new().plain(INDENT).accent("no listed process");
        let line = line.padded_to(self.amount()).plain(format!("{gib:>6.1} GiB"));
        let mark = Line::new().accent("← unexplained");
        match self.is_wide {
            true => vec![line.padded_to(67).line(mark)],
            false => packed(Line::new(), [line, mark], "   ", 4, self.columns),
        }
    }

    /// Says under a user whom NVML does not list, or may not list, by which files it was found, of
    /// those that the device is used through.
    pub(super) fn unlisted(
        &self,
        snapshot: &Snapshot,
        device: &DeviceState,
        user: &User,
    ) -> Vec<Line> {
        let text = found_by(snapshot, device, user);
        let lines =
            text.map(|text| wrapped(Line::new().padded_to(15), Tone::Dim, &text, self.columns));
        lines.unwrap_or_default()
    }
}

/// So many claims on one device are shown.
const CLAIMS: usize = 4;

/// `    claimed by bob · 12 min · 6.0 GiB · python train.py`, a line for each of the first claims on
/// a device.
pub(super) fn claims(leases: &[&Entry], now: Timestamp) -> Vec<Line> {
    let line = |lease: &&Entry| {
        let age = wording::age(now.since(lease.since));
        let share = lease.claim.memory();
        let share = share.map_or(String::new(), |bytes| format!(" · {:.1} GiB", bytes.gib()));
        let line = Line::new().plain(INDENT).plain("claimed by ").fitted(owner(lease), 20);
        let line = line.dim(format_args!(" · {age}{share}"));
        if lease.command.is_empty() {
            return line;
        }
        let line = line.dim(" · ");
        let room = USUAL.saturating_sub(line.width());
        line.fitted(&lease.command, room)
    };
    let mut lines: Vec<Line> = leases.iter().take(CLAIMS).map(line).collect();
    let more = leases.len().saturating_sub(CLAIMS);
    if more > 0 {
        let text = wording::count(more, "more claim", "more claims");
        let line = Line::new().plain(INDENT).dim(format_args!("and {text}: "));
        lines.push(line.plain("gpuws leases"));
    }
    lines
}

/// `not listed; nvidia0 nvidiactl nvidia-uvm mapped`; `None` for a user whom NVML lists.
fn found_by(snapshot: &Snapshot, device: &DeviceState, user: &User) -> Option<String> {
    let list = match user.listed {
        Ok(true) => return None,
        Ok(false) => "not listed; ",
        Err(_) => "",
    };
    let holder = snapshot.holders().iter().find(|holder| holder.process.pid == user.pid)?;
    let gpu = snapshot.minor_of(device).map(DeviceFileKind::Gpu);
    let used = |held: &&HeldFile| {
        [DeviceFileKind::Control, DeviceFileKind::Uvm].contains(&held.kind)
            || Some(held.kind) == gpu
    };
    let (mapped, open): (Vec<&HeldFile>, Vec<_>) =
        holder.held.iter().filter(used).partition(|held| held.access.contains(Access::MAPPED));
    let names = |files: &[&HeldFile], how: &str| {
        let names = files.iter().map(|held| held.path.rsplit('/').next().unwrap_or_default());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| format!("{} {how}", names.join(" ")))
    };
    let ways: Vec<String> =
        [names(&mapped, "mapped"), names(&open, "open")].into_iter().flatten().collect();
    Some(format!("{list}{}", ways.join(", ")))
}

fn name(device: &DeviceState) -> &str {
    device.info.name.as_deref().map_or("?", wording::product)
}

/// Adds a cell to a line, set right.
fn cell(line: Line, text: Option<String>, width: usize) -> Line {
    match text {
        Some(text) => line.plain(format_args!("{text:>width$}")),
        None => line.dim(format_args!("{:>width$}", "–")),
    }
}
