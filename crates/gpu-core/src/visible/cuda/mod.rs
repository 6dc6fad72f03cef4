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
pub use list::{Numbering, VisibleList};

use super::{Form, Grammar, Named, Resolved, Visibility};
use crate::error::{Error, ErrorKind, Result};
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;

/// The variable that lists the visible devices.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The variable that sets CUDA's device order.
pub const ORDER: &str = "CUDA_DEVICE_ORDER";

/// Its value for the order of PCI addresses, which is NVML's.
pub const PCI_ORDER: &str = "PCI_BUS_ID";

/// How CUDA programs see devices. One partition excludes all other devices: NVIDIA's guide to MIG,
/// on CUDA device enumeration.
pub const CUDA: Visibility = Visibility {
    vendor: "nvidia",
    variable: VISIBLE,
    order: Some((ORDER, PCI_ORDER)),
    isolates_partitions: true,
};

/// CUDA's variable. It also applies to devices from a source that states none, such as pasted text.
impl Default for Visibility {
    fn default() -> Self {
        CUDA
    }
}

/// The grammar of [`VISIBLE`].
#[derive(Clone, Copy, Debug)]
pub struct Cuda;

impl Grammar for Cuda {
    fn visibility(&self) -> Visibility {
        CUDA
    }

    fn resolve(
        &self,
        value: &str,
        order: Option<&str>,
        devices: &[DeviceState],
    ) -> Result<Resolved> {
        VisibleList::parse(Some(value)).resolve(devices, Numbering::parse(order))
    }

    /// Refuses a MIG device together with another device, a MIG device by index, and by index a
    /// device that the machine does not have.
    fn write(&self, keys: &[DeviceUuid], form: Form, devices: &[DeviceState]) -> Result<String> {
        let cannot = |why: String| {
            Err(Error::new(ErrorKind::Invalid, format!("write {VISIBLE}")).with_source(why))
        };
        if let Some(mig) = keys.iter().find(|key| key.is_partition()).filter(|_| keys.len() > 1) {
            return cannot(format!("a program that sees {mig} sees no other device"));
        }
        // A program can name a device without a UUID only by its index.
        let form = if keys.iter().any(DeviceUuid::is_address) { Form::Index } else { form };
        let mut entries = Vec::with_capacity(keys.len());
        for key in keys {
            entries.push(match form {
                Form::Uuid => key.to_string(),
                Form::Index if key.is_partition() => return cannot(format!("{key} has no index")),
                Form::Index => match devices.iter().find(|device| device.id().has_key(key)) {
                    Some(device) => device.id().index.to_string(),
                    None => return cannot(format!("no such device: {key}")),
                },
            });
        }
        Ok(entries.join(","))
    }
}

#[cfg(test)]
mod tests;
