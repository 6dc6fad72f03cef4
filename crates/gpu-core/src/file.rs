//! Device files, their roles and the devices they belong to.

use crate::absent::Reading;
use crate::holder::HeldFile;
use crate::id::{DeviceId, PciBusId};
use std::sync::Arc;

/// The identity of an open file.
///
/// A container runtime can create its own node for a device: the same device, another inode. So a
/// device is identified by its number, and every other file by file system and inode.
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

/// The role of a device file, the same for all vendors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FileRole {
    /// Programs compute through it: the file of one device, or one for all devices of a driver.
    Compute,
    /// Every client of the driver opens it.
    Control,
    /// Memory that a driver shares between its devices and programs.
    Memory,
    /// Debuggers and profilers.
    Tools,
    /// Display servers.
    Display,
    /// Permission for a part or a function of a device.
    Capability,
    /// Graphics, and with some drivers computation.
    Render,
    /// Any other file given by the caller.
    Other,
}

/// Identifies the device that a file belongs to, as far as the file shows it.
///
/// [`DeviceId::owns`](crate::DeviceId::owns) compares it with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum DeviceKey {
    /// The PCI address, which sysfs shows for the files of most drivers.
    Pci(PciBusId),
    /// The file itself: its driver reports the number of the file as
    /// [`DeviceId::node`](crate::DeviceId::node).
    Node(FileId),
    /// The index, in pasted text that has neither.
    Index(u32),
}

/// A device file, or any file given by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "crate::recorded::File"))]
pub struct DeviceFile {
    /// Its path, shared with every [`HeldFile`] that names it.
    pub path: Arc<str>,
    /// Its role.
    pub role: FileRole,
    /// The device it belongs to; `None` for a file of the whole driver, and for any other file.
    pub device: Option<DeviceKey>,
    /// Its identity; absent if only text of another tool names the file.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub id: Reading<FileId>,
}

/// Returns the number at the end of the name of a device file, such as 0 of `/dev/nvidia0` and 128
/// of `/dev/dri/renderD128`; 0 without one.
pub fn file_number(path: &str) -> u32 {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    path[name.len()..].parse().unwrap_or_default()
}

/// What the device files of one vendor's driver mean.
pub trait DriverFiles: Send + Sync {
    /// Returns the name of the kernel driver, as sysfs shows it for the devices that it drives.
    fn kernel_driver(&self) -> &'static str;

    /// Returns the directories below `/dev` that have files of the driver, apart from `dri`.
    fn directories(&self) -> &'static [&'static str];

    /// Returns the names of the files that programs open in addition to that of a device, in the
    /// same directory.
    fn shared(&self) -> &'static [&'static str];

    /// Returns the role of a file and the device it belongs to; `None` if it is not a file of this
    /// driver. A file that only text names has no identity.
    fn describe(&self, path: &str, id: Reading<FileId>) -> Option<(FileRole, Option<DeviceKey>)>;

    /// Sets [`HeldFile::memory`] of each file of this driver, from all files of one process and, for
    /// drivers that report memory there, the beginning of `/proc/PID/fdinfo` of a descriptor.
    fn find_memory_use(&self, held: &mut [HeldFile], fdinfo: &dyn Fn(u32) -> Option<String>);
}

impl DeviceFile {
    /// Returns a file as Linux itself describes it: a graphics node (`/dev/dri`), or any file.
    pub fn any(path: Arc<str>, id: Reading<FileId>) -> Self {
        let is_node = path.rsplit_once("/dri/").is_some_and(|(_, name)| {
            !name.contains('/') && (name.starts_with("render") || name.starts_with("card"))
        });
        let role = if is_node { FileRole::Render } else { FileRole::Other };
        DeviceFile { path, role, device: None, id }
    }

    /// Returns whether programs compute on this device through the file.
    pub fn opens(&self, device: &DeviceId) -> bool {
        self.role == FileRole::Compute && self.device.is_some_and(|key| device.owns(key))
    }

    /// Returns the file in the role that it has for this driver, if it is one of its files.
    #[must_use]
    pub fn described_by(self, driver: &dyn DriverFiles) -> Self {
        match driver.describe(&self.path, self.id) {
            Some((role, device)) => DeviceFile { role, device, ..self },
            None => self,
        }
    }
}
