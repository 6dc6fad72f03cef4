//! The processes that have device files open or mapped.

use crate::absent::{Absent, Reading};
use crate::access::Access;
use crate::device::DeviceProcessKind;
use crate::file::{DeviceFile, FileRole};
use crate::id::{DeviceId, DeviceKey, Pid, ProcessKey};
use crate::units::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The evidence that a process uses memory of a device, the stronger the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MemoryUse {
    /// No evidence.
    #[default]
    None,
    /// Its files permit it, on this and perhaps on other devices.
    Possible,
    /// It uses memory of this very device, this much if the kernel reports it.
    Certain(Option<Bytes>),
}

/// What a process uses through one opening of a device file, if the kernel counts it (`fdinfo` of
/// DRM drivers). Copies of the descriptor, in this or in another process, are the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Client {
    /// Its number, unique on the device; absent with old drivers, where each descriptor counts as
    /// a client of its own.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub id: Reading<u64>,
    /// Memory of the device. Each client that shares a buffer has all of it.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "memory_bytes"))]
    pub memory: Reading<Bytes>,
    /// How it uses the device.
    pub kind: DeviceProcessKind,
}

/// One file that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HeldFile {
    /// The path of the [`DeviceFile`] searched for (not the path that the process used).
    pub path: Arc<str>,
    /// The role of the file.
    pub role: FileRole,
    /// The device that it belongs to.
    pub device: Option<DeviceKey>,
    /// The evidence that the process uses memory of that device.
    pub memory: MemoryUse,
    /// The kinds of access.
    pub access: Access,
    /// The open descriptors, lowest first, at most 64 of them.
    pub descriptors: Vec<u32>,
    /// Its clients of the device, if the kernel counts them.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub clients: Vec<Client>,
}

impl HeldFile {
    /// Returns `file` as a process has it, without evidence of memory use: that depends on all
    /// files of the process ([`KernelDriver::find_memory_use`](crate::KernelDriver::find_memory_use)).
    pub fn of(file: &DeviceFile, access: Access, descriptors: Vec<u32>) -> Self {
        HeldFile {
            path: file.path.clone(),
            role: file.role,
            device: file.device,
            memory: MemoryUse::None,
            access,
            descriptors,
            clients: Vec::new(),
        }
    }

    /// Returns whether a program computes on this device through the file.
    pub fn opens(&self, device: &DeviceId) -> bool {
        self.role == FileRole::Compute && self.device.is_some_and(|key| device.owns(key))
    }
}

/// A process that has at least one of the files searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "crate::recorded::Holder"))]
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
    /// Returns whether it has a file in this role.
    pub fn has(&self, role: FileRole) -> bool {
        self.held.iter().any(|held| held.role == role)
    }

    /// Returns whether it has a file through which programs compute on this device.
    pub fn has_device(&self, device: &DeviceId) -> bool {
        self.held.iter().any(|held| held.opens(device))
    }

    /// Returns the strongest evidence that it uses memory of any device.
    pub fn any_memory_use(&self) -> MemoryUse {
        self.held.iter().map(|held| held.memory).max().unwrap_or_default()
    }

    /// Returns the evidence that it uses memory of this device.
    pub fn memory_use(&self, device: &DeviceId) -> MemoryUse {
        let files = self.held.iter().filter(|held| held.opens(device));
        files.map(|held| held.memory).max().unwrap_or_default()
    }

    /// Returns whether its files prove that it uses memory of this device.
    pub fn surely_uses_memory_of(&self, device: &DeviceId) -> bool {
        matches!(self.memory_use(device), MemoryUse::Certain(_))
    }

    /// Returns whether it uses memory of this device or may do so. A monitor does not.
    pub fn may_use_memory_of(&self, device: &DeviceId) -> bool {
        self.memory_use(device) != MemoryUse::None
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

/// A process that a search for holders could not read completely.
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
    /// Its open files were read; only its mappings or links were not.
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
    /// The maximum number of unreadable processes that a search names. For an ordinary user nearly
    /// all processes of a host are unreadable.
    pub const NAMED: usize = 32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FileId;

    #[test]
    fn unreadable_count_saturates() {
        let mut unreadable = Unreadable::default();
        unreadable.add(Absent::NotPermitted, u32::MAX);
        unreadable.count(Absent::NotPermitted);
        unreadable.count(Absent::NotFound);
        assert_eq!(unreadable.total(), u32::MAX);
    }

    #[test]
    fn evidence_counts_for_the_device_of_the_file() {
        let device = |minor| DeviceId {
            node: Ok(FileId::Device { major: 195, minor }),
            ..DeviceId::from_index(minor)
        };
        let file = |minor, role, memory| HeldFile {
            path: format!("/dev/{minor}").into(),
            role,
            device: Some(DeviceKey::Node(FileId::Device { major: 195, minor })),
            memory,
            access: Access::OPEN,
            descriptors: vec![],
            clients: Vec::new(),
        };
        let held = vec![
            file(0, FileRole::Compute, MemoryUse::Possible),
            file(0, FileRole::Compute, MemoryUse::Certain(None)),
            file(1, FileRole::Compute, MemoryUse::None),
            file(2, FileRole::Render, MemoryUse::Certain(None)),
        ];
        let process = ProcessKey { pid: Pid(1), start: None };
        let holder = Holder { process, held, through_thread: None };
        assert_eq!(holder.memory_use(&device(0)), MemoryUse::Certain(None));
        assert!(holder.has_device(&device(1)) && !holder.may_use_memory_of(&device(1)));
        assert!(!holder.has_device(&device(2)), "programs only draw through it");
        assert!(!holder.may_use_memory_of(&device(3)), "the device itself must be held");
    }
}
