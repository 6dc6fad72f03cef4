//! The processes that have device files open or mapped.

use crate::absent::{Absent, Reading};
use crate::access::Access;
use crate::file::DeviceFileKind;
use crate::id::{Pid, ProcessKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One file that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldFile {
    /// The path of the [`DeviceFile`](crate::DeviceFile) searched for (not the path that the
    /// process used).
    pub path: Arc<str>,
    /// The purpose of the file.
    pub kind: DeviceFileKind,
    /// The kinds of access.
    pub access: Access,
    /// The open descriptors, lowest first, at most 64 of them.
    pub descriptors: Vec<u32>,
}

/// A process that has at least one of the files searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The process.
    pub process: ProcessKey,
    /// Its files, one entry per file.
    pub held: Vec<HeldFile>,
    /// The live thread through which the files were found, if the process's own tables were empty:
    /// its first thread is a zombie.
    pub through_thread: Option<Pid>,
}

impl Holder {
    /// Returns whether it has a file of this kind.
    pub fn has(&self, kind: DeviceFileKind) -> bool {
        self.held.iter().any(|held| held.kind == kind)
    }

    /// Returns whether it has mapped the device with this minor number.
    pub fn has_mapped(&self, minor: u32) -> bool {
        let gpu = DeviceFileKind::Gpu(minor);
        self.held.iter().any(|held| held.kind == gpu && held.access.contains(Access::MAPPED))
    }

    /// Returns whether it shows signs of a CUDA context on the device with this minor number: uvm
    /// open, or the device mapped. A monitor has neither.
    ///
    /// Only the mapping is strong evidence for *this* device: a CUDA program opens every device
    /// that it sees, and computes on some.
    pub fn uses_memory_of(&self, minor: u32) -> bool {
        self.has(DeviceFileKind::Gpu(minor))
            && (self.has(DeviceFileKind::Uvm) || self.has_mapped(minor))
    }
}

/// The number of unreadable processes, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
pub struct Unreadable(pub BTreeMap<Absent, u32>);

impl Unreadable {
    /// Counts one more process.
    pub fn count(&mut self, reason: Absent) {
        self.add(reason, 1);
    }

    /// Counts `more` processes.
    pub fn add(&mut self, reason: Absent, more: u32) {
        let count = self.0.entry(reason).or_default();
        *count = count.saturating_add(more);
    }

    /// Returns the number of processes, for any reason.
    pub fn total(&self) -> u32 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// A process of which a search for holders could not read everything.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UnreadProcess {
    /// The process.
    pub pid: Pid,
    /// Its short name, chosen by the process.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub name: Reading<String>,
    /// The name of its user.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub user: Reading<String>,
    /// Why it could not be read.
    pub reason: Absent,
    /// Its open files were read, and only its mappings or links were not.
    pub open_files_read: bool,
}

/// The result of one walk over all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HolderScan {
    /// The holders, by PID.
    pub holders: Vec<Holder>,
    /// The processes whose files were not visible.
    pub unreadable: Unreadable,
    /// The first of these by PID, at most [`HolderScan::NAMED`].
    pub unread: Vec<UnreadProcess>,
}

impl HolderScan {
    /// How many unreadable processes a search names. For an ordinary user nearly all processes of
    /// a host are unreadable.
    pub const NAMED: usize = 32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_count_saturates() {
        let mut unreadable = Unreadable::default();
        unreadable.add(Absent::NotPermitted, u32::MAX);
        unreadable.count(Absent::NotPermitted);
        unreadable.count(Absent::NotFound);
        assert_eq!(unreadable.total(), u32::MAX);
    }

    #[test]
    fn monitor_is_not_a_memory_user() {
        let held = |path: &str, letters: &str| HeldFile {
            path: path.into(),
            kind: DeviceFileKind::of_path(path),
            access: Access::from_letters(letters).unwrap(),
            descriptors: vec![],
        };
        let process = ProcessKey { pid: Pid(1), start: None };
        let monitor = Holder {
            process,
            held: vec![held("/dev/nvidia0", "F...."), held("/dev/nvidiactl", "F....")],
            through_thread: None,
        };
        let mut user = monitor.clone();
        user.held.push(held("/dev/nvidia-uvm", "F...m"));
        assert!(!monitor.uses_memory_of(0));
        assert!(user.uses_memory_of(0));
        assert!(!user.uses_memory_of(1), "the device itself must be held");
    }
}
