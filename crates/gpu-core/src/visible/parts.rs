//! What programs count that see each partition as a device.

use super::Named;
use crate::error::{Error, ErrorKind, Result};
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;

/// A device, or a partition of a divided one.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// The whole device.
    pub device: &'a DeviceState,
    /// Its name; `None` without an identifier for claims.
    pub named: Option<Named>,
}

/// Returns what programs count, in the order of the devices.
pub(super) fn parts(devices: &[DeviceState]) -> Vec<Part<'_>> {
    let mut parts = Vec::with_capacity(devices.len());
    for device in devices {
        let index = device.id().index;
        let before = parts.len();
        parts.extend(device.partitions.iter().flatten().map(|partition| {
            let named = partition.uuid.clone().ok().map(|uuid| Named { uuid, index });
            Part { device, named }
        }));
        if parts.len() == before {
            parts.push(Part { device, named: Named::whole(device) });
        }
    }
    parts
}

/// Returns the positions of the devices with these keys; a divided device is all its partitions.
///
/// # Errors
/// `Invalid` if there is no such device, or if a part would be named twice.
pub(super) fn positions(keys: &[DeviceUuid], parts: &[Part<'_>]) -> Result<Vec<usize>> {
    let mut found: Vec<usize> = Vec::with_capacity(keys.len());
    for key in keys {
        let is_it = |part: &Part<'_>| {
            part.named.as_ref().is_some_and(|named| named.uuid == *key)
                || part.device.id().has_key(key)
        };
        let before = found.len();
        found.extend((0..parts.len()).filter(|at| is_it(&parts[*at])));
        let is_new =
            found.len() > before && found[before..].iter().all(|at| !found[..before].contains(at));
        if !is_new {
            let error = Error::new(ErrorKind::Invalid, "list the devices of a program");
            return Err(error.with_source(format!("no such device, or listed twice: {key}")));
        }
    }
    Ok(found)
}
