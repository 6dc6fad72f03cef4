//! Reasons why the users of a device are unknown.

use super::Linked;
use gpu_core::{DeviceState, Snapshot};

/// Why the users of a device are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It is unknown which file is that of the device.
    DeviceFile,
    /// The device file does not exist, so its holders were not searched.
    NoFile,
    /// The devices that are reset with it are unknown.
    Links,
    /// The scan for holders failed.
    Holders,
    /// This many processes could not be read.
    Unread(u32),
    /// Processes outside this PID namespace are not visible.
    OtherNamespaces,
}

impl Unknown {
    /// Returns the first reason why the devices may have users that are not visible.
    pub(super) fn first(
        snapshot: &Snapshot,
        devices: &[&DeviceState],
        linked: &Linked,
    ) -> Option<Unknown> {
        if snapshot.holders.is_err() {
            return Some(Unknown::Holders);
        }
        if !devices.iter().all(|device| snapshot.knows_files_of(device)) {
            return Some(Unknown::DeviceFile);
        }
        let has_file =
            |device: &&DeviceState| snapshot.files.iter().any(|file| file.opens(device.id()));
        if !devices.iter().all(has_file) {
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
