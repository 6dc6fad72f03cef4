//! The columns of `gpuws status --columns`: a table of the devices and one of their users.
//!
//! A column of a device reads more values only if it is requested ([`Columns::groups`]).

mod device;
mod process;
mod table;

use crate::text::Align;
use gpu_core::{DeviceState, Group, Groups, Pid, Reading, Snapshot};
use gpu_reaper::User;

/// A column, with the function that returns the text of a cell.
struct Column<F> {
    /// The name in the option.
    name: &'static str,
    /// The title and the alignment.
    title: (&'static str, Align),
    /// The group of details that contains the value; `None` if every snapshot reads the value.
    group: Option<Group>,
    cell: F,
}

type DeviceColumn = Column<fn(&DeviceState) -> Reading<String>>;
type UserColumn = Column<fn(&UserRow<'_>) -> Reading<String>>;

/// A user of a device.
struct UserRow<'a> {
    snapshot: &'a Snapshot,
    /// The previous snapshot.
    before: Option<&'a Snapshot>,
    user: &'a User,
    device: &'a DeviceState,
}

/// Columns of processes that have different names in `gpuws status --columns` and `gpuws top`: the
/// name in each. Both commands accept both.
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
        if columns.devices.is_empty() && columns.users.is_empty() {
            Err(format!("no column is named; {}", Columns::names()))
        } else {
            Ok(columns)
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
}

/// Returns the CPU time that a process used since an earlier snapshot, and the time since then, both
/// in milliseconds, if it is the same process in both.
fn cpu_times(earlier: &Snapshot, now: &Snapshot, pid: Pid) -> Option<(u128, u128)> {
    let (then, info) = (earlier.process(pid).ok()?, now.process(pid).ok()?);
    let used = info.cpu_time.ok()?.checked_sub(then.cpu_time.ok()?)?;
    let is_same = then.key.definitely_same(&info.key);
    is_same.then(|| (used.as_millis(), now.taken_at.since(earlier.taken_at).as_millis()))
}
