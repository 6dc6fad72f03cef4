//! The columns of `gpuws status --columns`: a table of the devices and one of their users.
//!
//! A column of a device reads more values only if it is requested ([`Columns::groups`]).

mod device;
mod process;

use crate::rows::View;
use crate::text::{Align, Line, Table, packed};
use gpu_core::{Absent, DeviceState, Group, Groups, Pid, Reading, Snapshot};
use gpu_reaper::User;

/// A column, with the function that returns the text of a cell.
struct Column<F> {
    /// The name in the option.
    name: &'static str,
    /// The title and the alignment.
    title: (&'static str, Align),
    /// The group of details that contains the value; `None` if every look reads the value.
    group: Option<Group>,
    cell: F,
}

type DeviceColumn = Column<fn(&DeviceState) -> Reading<String>>;
type UserColumn = Column<fn(&UserRow<'_>) -> Reading<String>>;

/// A user of a device.
struct UserRow<'a> {
    snapshot: &'a Snapshot,
    /// The previous look.
    before: Option<&'a Snapshot>,
    user: &'a User,
}

/// Columns of processes that `gpuws status --columns` and `gpuws top` name differently: the name in
/// each. Both accept both.
pub const ALIASES: [(&str, &str); 3] =
    [("gpu-memory", "gpu-mem"), ("gpu-util", "sm"), ("host-memory", "host")];

/// The selected columns.
#[derive(Clone)]
pub struct Columns {
    devices: Vec<&'static DeviceColumn>,
    users: Vec<&'static UserColumn>,
}

impl std::fmt::Debug for Columns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let devices = self.devices.iter().map(|column| column.name);
        f.debug_list().entries(devices.chain(self.users.iter().map(|column| column.name))).finish()
    }
}

impl Columns {
    /// Parses names separated by commas. Columns of devices and of processes may be mixed.
    ///
    /// # Errors
    /// The first unknown name, with all names; an error without columns.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut columns = Columns { devices: Vec::new(), users: Vec::new() };
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let alias = ALIASES.iter().find(|(_, in_top)| *in_top == name);
            let name = alias.map_or(name, |(name, _)| *name);
            let device = device::COLUMNS.iter().find(|column| column.name == name);
            let user = process::COLUMNS.iter().find(|column| column.name == name);
            columns.devices.extend(device);
            columns.users.extend(user);
            if device.is_none() && user.is_none() {
                return Err(format!("there is no column '{name}'; {}", Columns::names()));
            }
        }
        match columns.devices.is_empty() && columns.users.is_empty() {
            true => Err(format!("no column is named; {}", Columns::names())),
            false => Ok(columns),
        }
    }

    /// Formats the names of all columns: `of GPUs: name, …; of processes: user, …`.
    pub fn names() -> String {
        let devices: Vec<&str> = device::COLUMNS.iter().map(|column| column.name).collect();
        let users: Vec<&str> = process::COLUMNS.iter().map(|column| column.name).collect();
        format!("of GPUs: {}; of processes: {}", devices.join(", "), users.join(", "))
    }

    /// Returns the groups of details that the columns need.
    pub fn groups(&self) -> Groups {
        self.devices.iter().filter_map(|column| column.group).collect()
    }

    /// Returns the tables, in blocks that fit `room` columns of a terminal, and the columns without
    /// any value with the reason. A table without columns is left out.
    pub(crate) fn lines(&self, view: &View<'_>, room: usize) -> Vec<Line> {
        let snapshot = view.snapshot;
        let mut lines = Vec::new();
        if !self.devices.is_empty() {
            let keys = vec![("GPU", Align::Right)];
            let mut block = Block::new(keys, &self.devices, view.has_titles);
            for device in &snapshot.devices {
                let cells = self.devices.iter().map(|column| (column.cell)(device));
                block.rows.push((vec![device.id().index.to_string()], cells.collect()));
            }
            lines.extend(block.lines(room));
        }
        if !self.users.is_empty() {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            let keys = vec![("GPU", Align::Right), ("PID", Align::Right)];
            let mut block = Block::new(keys, &self.users, view.has_titles);
            for device in &snapshot.devices {
                for user in view.shown_on(device) {
                    let keys = vec![device.id().index.to_string(), user.pid.to_string()];
                    let row = UserRow { snapshot, before: view.before, user };
                    let cells = self.users.iter().map(|column| (column.cell)(&row));
                    block.rows.push((keys, cells.collect()));
                }
            }
            lines.extend(block.lines(room));
        }
        lines
    }
}

/// A table under construction.
struct Block {
    /// The titles of the columns that identify a row.
    keys: Vec<(&'static str, Align)>,
    titles: Vec<(&'static str, Align)>,
    names: Vec<&'static str>,
    rows: Vec<(Vec<String>, Vec<Reading<String>>)>,
    has_titles: bool,
}

impl Block {
    fn new<F>(
        keys: Vec<(&'static str, Align)>,
        columns: &[&'static Column<F>],
        has_titles: bool,
    ) -> Self {
        Block {
            has_titles,
            keys,
            titles: columns.iter().map(|column| column.title).collect(),
            names: columns.iter().map(|column| column.name).collect(),
            rows: Vec::new(),
        }
    }

    /// Returns the lines. Columns that do not fit follow in another block with the same keys.
    fn lines(self, room: usize) -> Vec<Line> {
        if self.rows.is_empty() {
            return vec![Line::new().dim("no processes")];
        }
        let widths: Vec<usize> = (0..self.titles.len()).map(|at| self.width(at)).collect();
        let mut lines: Vec<Line> = Vec::new();
        let mut from = 0;
        while from < self.titles.len() {
            let mut used = self.keys.len() * 10;
            let fits = |width: &&usize| {
                used += 2 + **width;
                used <= room
            };
            let to = from + widths[from..].iter().take_while(fits).count().max(1);
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            lines.extend(self.block(from, to).lines(room));
            from = to;
        }
        lines.extend(self.unreported(room));
        lines
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|(_, cells)| cell(&cells[column]).width());
        cells.chain([self.titles[column].0.len()]).max().unwrap_or(0)
    }

    fn block(&self, from: usize, to: usize) -> Table {
        let titles = self.keys.iter().chain(&self.titles[from..to]).copied();
        let mut table = Table::new(&titles.collect::<Vec<_>>());
        for (keys, cells) in &self.rows {
            let keys = keys.iter().map(|key| Line::new().plain(key));
            table.row(keys.chain(cells[from..to].iter().map(cell)));
        }
        if self.has_titles { table } else { table.without_header() }
    }

    /// Formats `not reported: fan (not supported), encoder (driver too old)`.
    fn unreported(&self, room: usize) -> Vec<Line> {
        let mut pieces = Vec::new();
        for (at, name) in self.names.iter().enumerate() {
            let reasons = self.rows.iter().map(|(_, cells)| cells[at].as_ref().err());
            // A value that does not exist for a process, such as its job, is not missing.
            let reasons: Option<Vec<&Absent>> = reasons.collect();
            let reason = reasons.and_then(|reasons| {
                reasons.into_iter().copied().find(|reason| *reason != Absent::NotFound)
            });
            pieces.extend(reason.map(|reason| format!("{name} ({reason})")));
        }
        let count = pieces.len();
        let pieces = pieces
            .into_iter()
            .enumerate()
            .map(|(at, piece)| Line::new().dim(piece).dim(if at + 1 < count { "," } else { "" }));
        match count {
            0 => Vec::new(),
            _ => packed(Line::new().dim("not reported: "), pieces, " ", 14, room),
        }
    }
}

fn cell(reading: &Reading<String>) -> Line {
    match reading {
        Ok(text) => Line::new().plain(text),
        Err(_) => Line::new().dim("–"),
    }
}

/// Returns the CPU time and the time of a look at a process, if it is the same in both looks.
fn cpu_times(look: &Snapshot, now: &Snapshot, pid: Pid) -> Option<(u128, u128)> {
    let (then, info) = (look.process(pid).ok()?, now.process(pid).ok()?);
    let used = info.cpu_time.ok()?.checked_sub(then.cpu_time.ok()?)?;
    let is_same = then.key.definitely_same(&info.key);
    is_same.then(|| (used.as_millis(), now.taken_at.since(look.taken_at).as_millis()))
}
