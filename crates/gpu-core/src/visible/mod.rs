//! `CUDA_VISIBLE_DEVICES`: the devices that a program sees.
//!
//! The grammar is that of the CUDA driver, as documented in its programming guide and observed by
//! PyTorch, which parses the variable itself: unset means all devices, empty means none, the first
//! entry that names no device ends the list, a duplicate device empties it, entries are either
//! numbers or names, and only one MIG device is visible. Where the grammar is ambiguous, the
//! interpretation with fewer devices is used, because a given list is only ever narrowed.

mod entry;
mod list;
mod named;

pub use entry::Visible;
pub use list::{Numbering, Resolved, VisibleList};
pub use named::Named;

use crate::error::{Error, ErrorKind, Result};
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;

/// The variable that lists the visible devices.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variable that sets CUDA's device order.
pub const ORDER: &str = "CUDA_DEVICE_ORDER";

/// Its value for the order of PCI addresses, which is NVML's.
pub const PCI_ORDER: &str = "PCI_BUS_ID";

/// The form in which devices are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// By UUID, which is independent of the order.
    #[default]
    Uuid,
    /// By index, for programs that accept no other form; needs [`ORDER`] to be [`PCI_ORDER`].
    Index,
}

/// Returns the value of [`VISIBLE`] with which a program sees these devices, in this order.
///
/// # Errors
/// `Invalid` if no value names them: a MIG device together with another device, a MIG device by
/// index, or by index a device that the machine does not have.
pub fn write(devices: &[DeviceUuid], form: Form, machine: &[DeviceState]) -> Result<String> {
    let cannot = |why: String| {
        Err(Error::new(ErrorKind::Invalid, format!("write {VISIBLE}")).with_source(why))
    };
    if let Some(mig) = devices.iter().find(|uuid| uuid.is_mig()).filter(|_| devices.len() > 1) {
        return cannot(format!("a program that sees {mig} sees no other device"));
    }
    // A program can name a device without a UUID only by its index.
    let form = if devices.iter().any(DeviceUuid::is_address) { Form::Index } else { form };
    let mut entries = Vec::with_capacity(devices.len());
    for uuid in devices {
        entries.push(match form {
            Form::Uuid => uuid.to_string(),
            Form::Index if uuid.is_mig() => return cannot(format!("{uuid} has no index")),
            Form::Index => {
                let known = machine.iter().find(|device| device.id().has_key(uuid));
                match known {
                    Some(device) => device.id().index.to_string(),
                    None => return cannot(format!("no such device: {uuid}")),
                }
            }
        });
    }
    Ok(entries.join(","))
}

/// Returns the devices of a claim that are also in a given list: the whole list if the claim names
/// none. `None` if no device is left, which is not the same as any device.
pub fn narrow(among: &[DeviceUuid], given: &[DeviceUuid]) -> Option<Vec<DeviceUuid>> {
    let asked = |uuid: &&DeviceUuid| among.is_empty() || among.contains(uuid);
    let left: Vec<DeviceUuid> = given.iter().filter(asked).cloned().collect();
    (!left.is_empty()).then_some(left)
}

#[cfg(test)]
mod tests;
