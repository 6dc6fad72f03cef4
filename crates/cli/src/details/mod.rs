//! Everything that is known of a device, as text, in the groups and under the names that people
//! know from `nvidia-smi -q`; last who uses it and who merely holds it, which that does not tell.

mod device;
mod link;
mod state;
mod users;

use crate::failure::{Failure, brief, remedy};
use crate::terminal::{Line, Screen};
use gpu_core::{Absent, Origin, Reading, Snapshot};

/// The column of the colon behind a name.
const COLON: usize = 38;

/// A name with a value, or with a group of further names.
pub(super) struct Entry {
    name: String,
    value: Value,
}

enum Value {
    Known(String),
    Absent(Absent),
    Group(Vec<Entry>),
}

/// Returns a value under its name.
pub(super) fn value(name: impl Into<String>, reading: Reading<impl ToString>) -> Entry {
    let value = match reading {
        Ok(value) => Value::Known(value.to_string()),
        Err(absent) => Value::Absent(absent),
    };
    Entry { name: name.into(), value }
}

/// Returns a value that is surely there.
pub(super) fn known(name: impl Into<String>, value: impl ToString) -> Entry {
    Entry { name: name.into(), value: Value::Known(value.to_string()) }
}

/// Returns a group of entries.
pub(super) fn group(name: impl Into<String>, entries: impl Into<Vec<Entry>>) -> Entry {
    Entry { name: name.into(), value: Value::Group(entries.into()) }
}

/// Prints the head of the machine and each device of a snapshot.
///
/// # Errors
/// When the output cannot take it.
pub(crate) fn show(screen: &mut Screen, snapshot: &Snapshot) -> Result<(), Failure> {
    if snapshot.origin != Origin::Live {
        screen.print(&Line::new().accent(snapshot.origin.to_string()))?;
    }
    let driver = |pick: fn(&gpu_core::Driver) -> &Reading<String>| {
        let driver = snapshot.driver.as_ref().map_err(|fault| fault.kind.absent());
        driver.and_then(|driver| pick(driver).clone())
    };
    let head = [
        value("Host Name", snapshot.hostname.clone()),
        known("Timestamp", crate::local_time::as_nvidia_smi(snapshot.taken_at)),
        value("Driver Version", driver(|driver| &driver.version)),
        value("CUDA Version", driver(|driver| &driver.cuda)),
    ];
    head.into_iter().try_for_each(|entry| print(screen, &entry, 0))?;
    if let Err(fault) = &snapshot.driver {
        screen.print(&Line::new().accent(format!("cannot query any GPU: {}", brief(fault))))?;
        if let Some(remedy) = remedy(fault.kind) {
            screen.print(&Line::new().dim("remedy: ").plain(remedy))?;
        }
    }
    for device in &snapshot.devices {
        screen.print(&Line::new())?;
        let name = match device.id().bus {
            Ok(bus) => format!("GPU {bus}"),
            Err(_) => format!("GPU {}", device.id().index),
        };
        screen.print(&Line::new().accent(name))?;
        if let Err(fault) = &device.sample {
            screen.print(&Line::new().plain("    ").accent(brief(fault)))?;
        }
        let mut entries = device::entries(device);
        entries.extend(link::entries(device));
        entries.extend(state::entries(device));
        entries.extend(users::entries(snapshot, device));
        entries.iter().try_for_each(|entry| print(screen, entry, 1))?;
    }
    Ok(())
}

fn print(screen: &mut Screen, entry: &Entry, depth: usize) -> Result<(), Failure> {
    let head = Line::new().plain("    ".repeat(depth)).plain(&entry.name);
    let colon = |head: Line| head.padded_to(COLON).plain(": ");
    match &entry.value {
        Value::Known(text) => screen.print(&colon(head).plain(text)),
        Value::Absent(absent) => screen.print(&colon(head).dim(format!("N/A ({absent})"))),
        Value::Group(entries) if entries.is_empty() => screen.print(&colon(head).plain("None")),
        Value::Group(entries) => {
            screen.print(&head)?;
            entries.iter().try_for_each(|entry| print(screen, entry, depth + 1))
        }
    }
}

/// `Enabled` or `Disabled`.
pub(super) fn enabled(reading: Reading<bool>) -> Reading<&'static str> {
    reading.map(|on| if on { "Enabled" } else { "Disabled" })
}

/// `Yes` or `No`.
pub(super) fn yes(reading: Reading<bool>) -> Reading<&'static str> {
    reading.map(|is| if is { "Yes" } else { "No" })
}

/// A number with its unit.
pub(super) fn unit(reading: Reading<impl ToString>, unit: &str) -> Reading<String> {
    reading.map(|number| format!("{} {unit}", number.to_string()))
}

/// Watts with two digits behind the point.
pub(super) fn watts(reading: Reading<gpu_core::Milliwatts>) -> Reading<String> {
    reading.map(|power| format!("{:.2} W", power.0 as f64 / 1000.0))
}

/// Whole mebibytes.
pub(super) fn mib(reading: Reading<gpu_core::Bytes>) -> Reading<String> {
    reading.map(|bytes| format!("{} MiB", bytes.mib()))
}

/// Returns a group of details, or one whose values are absent as the whole is.
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
