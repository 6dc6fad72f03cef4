//! Why it is not known who uses a device.

use super::Linked;
use gpu_core::{DeviceFileKind, DeviceState, Snapshot};

/// Why it is not known who uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The minor number is not told, so that the device's file is not known.
    DeviceFile,
    /// The device's file is not there, so that nobody was looked for who has it.
    NoFile,
    /// With which devices it is reset is not told.
    Links,
    /// The processes could not be walked over.
    Holders,
    /// Some processes could not be looked into.
    Unread(u32),
    /// Processes outside of this PID namespace are not seen.
    OtherNamespaces,
}

impl Unknown {
    /// Returns the first reason why somebody may use the devices who is not seen.
    pub(super) fn first(
        snapshot: &Snapshot,
        devices: &[&DeviceState],
        linked: &Linked,
    ) -> Option<Unknown> {
        if snapshot.holders.is_err() {
            return Some(Unknown::Holders);
        }
        if devices.iter().any(|device| snapshot.minor_of(device).is_none()) {
            return Some(Unknown::DeviceFile);
        }
        let is_there = |minor| snapshot.files.iter().any(|f| f.kind == DeviceFileKind::Gpu(minor));
        if !devices.iter().filter_map(|device| snapshot.minor_of(device)).all(is_there) {
            return Some(Unknown::NoFile);
        }
        if !linked.whole {
            return Some(Unknown::Links);
        }
        if snapshot.unreadable.total() > 0 {
            return Some(Unknown::Unread(snapshot.unreadable.total()));
        }
        (snapshot.sees_host_pids != Ok(true)).then_some(Unknown::OtherNamespaces)
    }
}
