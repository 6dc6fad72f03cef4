//! The list, and the devices of a machine that it names.

use super::named::Found;
use super::{Named, ORDER, PCI_ORDER, Resolved, VISIBLE, Visible};
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::DeviceState;

/// The longest list that is parsed; the rest is ignored.
const MAX_ENTRIES: usize = 1024;

/// The order in which CUDA enumerates devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// By PCI address, as NVML does.
    ByAddress,
    /// By speed, the fastest first: CUDA's default.
    FastestFirst,
}

impl Numbering {
    /// Returns the meaning of the value of [`ORDER`].
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            Some(PCI_ORDER) => Numbering::ByAddress,
            _ => Numbering::FastestFirst,
        }
    }
}

/// The devices that a program sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisibleList {
    /// All: the variable is not set.
    All,
    /// These devices, in this order; entries may name no device.
    These(Vec<Visible>),
}

impl VisibleList {
    /// Parses the value of [`VISIBLE`]; `None` is an unset variable.
    pub fn parse(value: Option<&str>) -> Self {
        let Some(value) = value else { return VisibleList::All };
        let mut entries: Vec<Visible> = Vec::new();
        for entry in value.split(',').take(MAX_ENTRIES).map_while(Visible::parse) {
            if entries.first().is_some_and(|first| !entry.is_compatible_with(first)) {
                break;
            }
            if entries.contains(&entry) {
                return VisibleList::These(Vec::new());
            }
            entries.push(entry);
        }
        VisibleList::These(entries)
    }

    /// Returns the devices of a machine that the list names. A device without a UUID is left out,
    /// because it has no permanent identifier.
    ///
    /// # Errors
    /// `Invalid` for indexes in the fastest-first order if the devices have different names: the
    /// indexes are then ambiguous.
    pub fn resolve(&self, machine: &[DeviceState], numbering: Numbering) -> Result<Resolved> {
        let entries = match self {
            VisibleList::All => {
                let devices = machine.iter().filter_map(Named::whole).collect();
                return Ok(Resolved { devices, ended_at: None });
            }
            VisibleList::These(entries) => entries,
        };
        let by_number = matches!(entries.first(), Some(Visible::Index(_)));
        if by_number && numbering == Numbering::FastestFirst && !are_alike(machine) {
            return Err(Error::new(ErrorKind::Invalid, format!("resolve {VISIBLE}")).with_source(
                format!(
                    "the GPUs differ and CUDA orders them fastest first unless \
                        {ORDER}={PCI_ORDER} is set"
                ),
            ));
        }
        let mut resolved = Resolved::default();
        for entry in entries {
            match Named::find(entry, machine) {
                Found::Nameless => {}
                Found::Nothing => {
                    resolved.ended_at = Some(entry.to_string());
                    break;
                }
                Found::Device(found) if resolved.devices.contains(&found) => {
                    return Ok(Resolved::default());
                }
                Found::Device(found) => resolved.devices.push(found),
            }
        }
        if matches!(entries.first(), Some(Visible::Mig(_) | Visible::MigPart { .. })) {
            resolved.devices.truncate(1);
        }
        Ok(resolved)
    }
}

/// Returns whether all devices are known to have the same name, and so the same speed.
fn are_alike(machine: &[DeviceState]) -> bool {
    let mut names = machine.iter().map(|device| device.info.name.as_ref());
    machine.len() < 2
        || names.next().is_some_and(|first| first.is_ok() && names.all(|n| n == first))
}
