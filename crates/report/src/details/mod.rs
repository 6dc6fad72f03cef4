//! All data about a device as text, in the groups and under the names of `nvidia-smi -q`. Unlike
//! `nvidia-smi -q`, this also lists the processes that only hold the device file.

mod device;
mod link;
mod state;
mod users;

use crate::release::Release;
use gpu_core::{Absent, DeviceState, Reading, Snapshot};
use jiff::tz::TimeZone;

/// A named value, or a named group of entries.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Value,
}

/// The value of an entry.
#[derive(Clone, Debug)]
pub enum Value {
    /// A value with its unit.
    Known(String),
    /// An absent value, with the reason.
    Absent(Absent),
    /// A group of entries; it has no value of its own.
    Group(Vec<Entry>),
}

/// Returns an entry for a reading.
pub(super) fn value(name: impl Into<String>, reading: Reading<impl ToString>) -> Entry {
    let value = match reading {
        Ok(value) => Value::Known(value.to_string()),
        Err(absent) => Value::Absent(absent),
    };
    Entry { name: name.into(), value }
}

/// Returns an entry for a value that is always known.
pub(super) fn known(name: impl Into<String>, value: impl ToString) -> Entry {
    Entry { name: name.into(), value: Value::Known(value.to_string()) }
}

/// Returns an entry for a group.
pub(super) fn group(name: impl Into<String>, entries: impl Into<Vec<Entry>>) -> Entry {
    Entry { name: name.into(), value: Value::Group(entries.into()) }
}

/// Returns the entries of the machine, which has `attached` devices; the snapshot may have fewer.
pub fn head(snapshot: &Snapshot, attached: usize, zone: &TimeZone) -> Vec<Entry> {
    let driver = |pick: fn(&gpu_core::Driver) -> &Reading<String>| {
        let driver = snapshot.driver.as_ref().map_err(|fault| fault.kind.absent());
        driver.and_then(|driver| pick(driver).clone())
    };
    vec![
        value("Host Name", snapshot.hostname.clone()),
        known("Timestamp", crate::local_time::as_nvidia_smi(snapshot.taken_at, zone)),
        value("Driver Version", driver(|driver| &driver.version)),
        value("CUDA Version", driver(|driver| &driver.cuda)),
        known("Attached GPUs", attached),
    ]
}

/// Returns all entries of a device.
pub fn entries(snapshot: &Snapshot, device: &DeviceState) -> Vec<Entry> {
    let mut entries = device::entries(device, Release::of(&snapshot.driver));
    entries.extend(link::entries(device));
    entries.extend(state::entries(device));
    entries.extend(users::entries(snapshot, device));
    entries
}

/// Formats `Enabled` or `Disabled`.
pub(super) fn enabled(reading: Reading<bool>) -> Reading<&'static str> {
    reading.map(|on| if on { "Enabled" } else { "Disabled" })
}

/// Formats `Yes` or `No`.
pub(super) fn yes(reading: Reading<bool>) -> Reading<&'static str> {
    reading.map(|is| if is { "Yes" } else { "No" })
}

/// Formats a number with its unit.
pub(super) fn unit(reading: Reading<impl ToString>, unit: &str) -> Reading<String> {
    reading.map(|number| format!("{} {unit}", number.to_string()))
}

/// Formats watts with two decimals.
pub(super) fn watts(reading: Reading<gpu_core::Milliwatts>) -> Reading<String> {
    reading.map(|power| format!("{:.2} W", power.0 as f64 / 1000.0))
}

/// Formats whole mebibytes, rounded down whatever the release of nvidia-smi.
pub(super) fn mib(reading: Reading<gpu_core::Bytes>) -> Reading<String> {
    reading.map(|bytes| format!("{} MiB", bytes.mib()))
}

/// Returns a group of details. If the group is absent, all its values are absent for the same
/// reason.
pub(super) fn group_of<T: Clone>(
    device: &gpu_core::DeviceState,
    pick: fn(&gpu_core::DeviceDetails) -> Option<&T>,
    absent: fn(Absent) -> T,
) -> T {
    match &device.details {
        Ok(details) => pick(details).cloned().unwrap_or_else(|| absent(Absent::NotRecorded)),
        Err(fault) => absent(fault.kind.absent()),
    }
}
