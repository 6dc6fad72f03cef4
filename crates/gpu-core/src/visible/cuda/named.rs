//! The device that an entry names.

use super::{Named, Visible};
use crate::device::Partition;
use crate::snapshot::DeviceState;

/// The meaning of an entry.
pub(super) enum Found {
    Device(Named),
    /// A device without an identifier for claims.
    Nameless,
    Nothing,
}

impl Named {
    pub(in crate::visible) fn whole(device: &DeviceState) -> Option<Self> {
        let id = device.id();
        Some(Named { uuid: id.lease_key().ok()?.into_owned(), index: id.index })
    }

    /// Finds a MIG device. Returns the driver's name, whichever name was given.
    fn mig(machine: &[DeviceState], is_it: impl Fn(&DeviceState, &Partition) -> bool) -> Found {
        match mig_devices(machine).find(|(device, mig)| is_it(device, mig)) {
            Some((device, mig)) => match mig.uuid.clone() {
                Ok(uuid) => Found::Device(Named { uuid, index: device.id().index }),
                Err(_) => Found::Nameless,
            },
            None => Found::Nothing,
        }
    }

    pub(super) fn find(entry: &Visible, machine: &[DeviceState]) -> Found {
        match entry {
            Visible::Index(index) => {
                let device = machine.iter().find(|device| device.id().index == *index);
                match device.map(Named::whole) {
                    Some(Some(named)) => Found::Device(named),
                    Some(None) => Found::Nameless,
                    None => Found::Nothing,
                }
            }
            Visible::Gpu(begin) => {
                let fits = |named: &Named| named.uuid.0.starts_with(begin);
                let mut fitting = machine.iter().filter_map(Named::whole).filter(fits);
                match (fitting.next(), fitting.next()) {
                    (Some(named), None) => Found::Device(named),
                    _ => Found::Nothing,
                }
            }
            Visible::Mig(name) => {
                Named::mig(machine, |_, mig| mig.uuid.as_ref().is_ok_and(|uuid| uuid.0 == *name))
            }
            Visible::MigPart { gpu, gpu_instance, compute_instance } => {
                Named::mig(machine, |device, mig| {
                    device.id().uuid.as_ref().is_ok_and(|uuid| uuid.0 == *gpu)
                        && mig.gpu_instance == Some(*gpu_instance)
                        && mig.compute_instance.unwrap_or(0) == *compute_instance
                })
            }
        }
    }
}

/// Returns the MIG devices of a machine, each with its whole device.
fn mig_devices(machine: &[DeviceState]) -> impl Iterator<Item = (&DeviceState, &Partition)> {
    machine
        .iter()
        .flat_map(|device| device.partitions.iter().flatten().map(move |mig| (device, mig)))
}
