//! Device files, their roles and the devices they belong to.

use crate::absent::Reading;
use crate::id::{DeviceId, DeviceKey, FileId};
use std::sync::Arc;

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

/// A device file, or any file given by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "crate::recorded::File"))]
pub struct DeviceFile {
    /// Its path, shared with every [`HeldFile`](crate::HeldFile) that names it.
    pub path: Arc<str>,
    /// Its role.
    pub role: FileRole,
    /// The device it belongs to; `None` for a file of the whole driver, and for any other file.
    pub device: Option<DeviceKey>,
    /// Its identity; absent if the file is known only from text of another tool.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub id: Reading<FileId>,
}

/// Returns the number at the end of the name of a device file, such as 0 of `/dev/nvidia0` and 128
/// of `/dev/dri/renderD128`; 0 without one.
pub fn file_number(path: &str) -> u32 {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    path[name.len()..].parse().unwrap_or_default()
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
}
