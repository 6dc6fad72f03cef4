//! Device files and their purposes.

use crate::absent::Reading;
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

/// The purpose of a device file.
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
    /// `/dev/nvidia-caps/*`: MIG and monitoring capabilities.
    Capability,
    /// `/dev/dri/*`: graphics.
    Render,
    /// Any other file given by the caller.
    Other,
}

impl DeviceFileKind {
    /// Returns the kind of a path such as `/dev/nvidia0`, by its name alone.
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

    /// Returns the kind of a character device by its numbers, whatever its name; `None` if the
    /// driver does not fix its major number (Linux `devices.txt`: 195).
    pub fn of_device(major: u32, minor: u32) -> Option<Self> {
        match (major, minor) {
            (195, 255) => Some(DeviceFileKind::Control),
            (195, 254) => Some(DeviceFileKind::Modeset),
            (195, minor) => Some(DeviceFileKind::Gpu(minor)),
            _ => None,
        }
    }
}

/// A device file, or any file given by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceFile {
    /// Its path, shared with every [`HeldFile`](crate::HeldFile) that names it.
    pub path: Arc<str>,
    /// Its purpose.
    pub kind: DeviceFileKind,
    /// Its identity; absent if only text of another tool names the file.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub id: Reading<FileId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_file_kind_follows_from_path() {
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
}
