//! Device files and the processes that have them open or mapped.

use crate::absent::{Absent, Reading};
use crate::id::{Pid, ProcessKey};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;

/// What makes two open files the same file.
///
/// A container runtime can make its own node for a device: the same device, another inode. So a
/// device is known by its number, every other file by file system and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FileId {
    /// A character device, by `st_rdev`.
    Device {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// Any other file, by `st_dev` and `st_ino`.
    Inode {
        /// File system, as the kernel encodes it.
        dev: u64,
        /// Inode.
        ino: u64,
    },
}

/// What a device file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceFileKind {
    /// `/dev/nvidiaN`: one device, by minor number.
    Gpu(u32),
    /// `/dev/nvidiactl`: every client of the driver opens it.
    Control,
    /// `/dev/nvidia-uvm`: opened by a CUDA context.
    Uvm,
    /// `/dev/nvidia-uvm-tools`: debuggers and profilers.
    UvmTools,
    /// `/dev/nvidia-modeset`: display servers.
    Modeset,
    /// `/dev/nvidia-caps/*`: MIG and monitoring rights.
    Capability,
    /// `/dev/dri/*`: graphics.
    Render,
    /// Any other file that somebody asked about.
    Other,
}

impl DeviceFileKind {
    /// Returns the kind that a path such as `/dev/nvidia0` stands for, by its name alone.
    pub fn of_path(path: &str) -> Self {
        if path.contains("/nvidia-caps/") {
            return DeviceFileKind::Capability;
        }
        match path.rsplit('/').next().unwrap_or(path) {
            name if path.contains("/dri/")
                && (name.starts_with("render") || name.starts_with("card")) =>
            {
                DeviceFileKind::Render
            }
            "nvidiactl" => DeviceFileKind::Control,
            "nvidia-uvm" => DeviceFileKind::Uvm,
            "nvidia-uvm-tools" => DeviceFileKind::UvmTools,
            "nvidia-modeset" => DeviceFileKind::Modeset,
            name => name
                .strip_prefix("nvidia")
                .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|digits| digits.parse().ok())
                .map_or(DeviceFileKind::Other, DeviceFileKind::Gpu),
        }
    }
}

impl DeviceFileKind {
    /// Returns the kind that a character device's numbers stand for, whatever it is called;
    /// `None` for one whose major number the driver does not fix (Linux `devices.txt`: 195).
    pub fn of_device(major: u32, minor: u32) -> Option<Self> {
        match (major, minor) {
            (195, 255) => Some(DeviceFileKind::Control),
            (195, 254) => Some(DeviceFileKind::Modeset),
            (195, minor) => Some(DeviceFileKind::Gpu(minor)),
            _ => None,
        }
    }
}

/// A file that stands for a device, or any file somebody asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceFile {
    /// Its path, shared with every [`HeldFile`] that names it.
    pub path: Arc<str>,
    /// What it is for.
    pub kind: DeviceFileKind,
    /// What it is compared by; absent where only text of another tool names the file.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub id: Reading<FileId>,
}

/// The ways in which a process has a file, as psmisc's `fuser` letters them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct Access(u8);

impl Access {
    /// `f`: open.
    pub const OPEN: Access = Access(1);
    /// `F`: open for writing (implies [`Access::OPEN`]).
    pub const OPEN_FOR_WRITING: Access = Access(1 | 2);
    /// `r`: root directory.
    pub const ROOT: Access = Access(4);
    /// `c`: current directory.
    pub const CURRENT_DIRECTORY: Access = Access(8);
    /// `e`: executable being run.
    pub const EXECUTABLE: Access = Access(16);
    /// `m`: mapped.
    pub const MAPPED: Access = Access(32);

    /// Tells whether all of `other` is in it.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Tells whether nothing is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Reads fuser's ACCESS column: letters of `fFrcem`, dots between.
    pub fn from_letters(letters: &str) -> Option<Self> {
        letters.chars().try_fold(Access::default(), |access, letter| {
            Some(
                access
                    | match letter {
                        '.' => Access::default(),
                        'f' => Access::OPEN,
                        'F' => Access::OPEN_FOR_WRITING,
                        'r' => Access::ROOT,
                        'c' => Access::CURRENT_DIRECTORY,
                        'e' => Access::EXECUTABLE,
                        'm' => Access::MAPPED,
                        _ => return None,
                    },
            )
        })
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Access(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Access {
    /// Writes fuser's five columns, `F...m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |flag, letter| if self.contains(flag) { letter } else { '.' };
        let open = letter(Access::OPEN, 'f');
        let open = if self.contains(Access::OPEN_FOR_WRITING) { 'F' } else { open };
        write!(
            f,
            "{open}{}{}{}{}",
            letter(Access::ROOT, 'r'),
            letter(Access::CURRENT_DIRECTORY, 'c'),
            letter(Access::EXECUTABLE, 'e'),
            letter(Access::MAPPED, 'm'),
        )
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Access> for String {
    fn from(access: Access) -> String {
        access.to_string()
    }
}

impl TryFrom<String> for Access {
    type Error = String;
    fn try_from(letters: String) -> Result<Self, String> {
        Access::from_letters(&letters).ok_or_else(|| "no fuser access letters".to_owned())
    }
}

/// One file that a process has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldFile {
    /// The path of the [`DeviceFile`] asked about (not the path the process used).
    pub path: Arc<str>,
    /// What the file is for.
    pub kind: DeviceFileKind,
    /// In which ways.
    pub access: Access,
    /// The open descriptors, lowest first, at most 64 of them.
    pub descriptors: Vec<u32>,
}

/// A process that has at least one of the files asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The process.
    pub process: ProcessKey,
    /// What it has, a row per file.
    pub held: Vec<HeldFile>,
    /// The live thread through which the files were found, when the process's own tables were
    /// empty: its first thread is a zombie.
    pub through_thread: Option<Pid>,
}

impl Holder {
    /// Tells whether it has a file of this kind.
    pub fn has(&self, kind: DeviceFileKind) -> bool {
        self.held.iter().any(|held| held.kind == kind)
    }

    /// Tells whether it has the device with this minor number mapped.
    pub fn has_mapped(&self, minor: u32) -> bool {
        let gpu = DeviceFileKind::Gpu(minor);
        self.held.iter().any(|held| held.kind == gpu && held.access.contains(Access::MAPPED))
    }

    /// Tells whether it shows signs of a CUDA context on the device with this minor number: uvm
    /// open, or the device mapped. A monitor has neither.
    ///
    /// Only the mapping is strong evidence for *this* device: a CUDA program opens every device
    /// that it sees, and computes on some.
    pub fn uses_memory_of(&self, minor: u32) -> bool {
        self.has(DeviceFileKind::Gpu(minor))
            && (self.has(DeviceFileKind::Uvm) || self.has_mapped(minor))
    }
}

/// How many processes could not be looked into, by reason.
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

/// What one walk over all processes found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HolderScan {
    /// The holders, by process number.
    pub holders: Vec<Holder>,
    /// The processes whose files could not be seen.
    pub unreadable: Unreadable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_go_both_ways() {
        for letters in ["F...m", "f....", ".rce.", "....m", "....."] {
            assert_eq!(Access::from_letters(letters).unwrap().to_string(), letters);
        }
        assert_eq!(Access::from_letters("Fx"), None);
    }

    #[test]
    fn paths_tell_what_a_file_is_for() {
        use DeviceFileKind::*;
        for (path, kind) in [
            ("/dev/nvidia0", Gpu(0)),
            ("/dev/nvidia17", Gpu(17)),
            ("/dev/nvidiactl", Control),
            ("/dev/nvidia-uvm", Uvm),
            ("/dev/nvidia-uvm-tools", UvmTools),
            ("/dev/nvidia-caps/nvidia-cap1", Capability),
            ("/dev/dri/renderD128", Render),
            ("/dev/nvidia", Other),
            ("/dev/null", Other),
        ] {
            assert_eq!(DeviceFileKind::of_path(path), kind, "{path}");
        }
    }

    #[test]
    fn counts_stop_at_the_largest() {
        let mut unreadable = Unreadable::default();
        unreadable.add(Absent::NotPermitted, u32::MAX);
        unreadable.count(Absent::NotPermitted);
        unreadable.count(Absent::NotFound);
        assert_eq!(unreadable.total(), u32::MAX);
    }

    #[test]
    fn a_monitor_uses_no_memory() {
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
