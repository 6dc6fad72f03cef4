//! The devices that a program sees, by the variables of the vendors' libraries.
//!
//! A backend states by which variable programs see its devices
//! ([`DeviceInfo::visibility`](crate::DeviceInfo::visibility)), and a [`Grammar`] reads and writes
//! that variable; [`GRAMMARS`] lists all of them. A given list is only ever narrowed.

pub mod cuda;
#[cfg(test)]
mod fixture;
pub mod intel;
mod number;
mod parts;
pub mod rocm;
mod seen;
mod visibility;

use crate::error::Result;
use crate::id::DeviceUuid;
use crate::snapshot::DeviceState;
pub use seen::{Seen, SeenList};
use std::borrow::Cow;
pub use visibility::{UNLISTED, Visibility};

/// All grammars.
pub const GRAMMARS: &[&dyn Grammar] = &[&cuda::Cuda, &rocm::Rocm, &intel::LevelZero];

/// Reads and writes the variable that lists the devices for the programs of one vendor.
///
/// `devices` are the vendor's devices, as [`devices_of`] returns them.
pub trait Grammar: Sync {
    /// Returns the variable.
    fn visibility(&self) -> Visibility;

    /// Returns the devices that a value, which may be empty, names; `order` is the value of the
    /// variable for the order. Where the grammar is ambiguous, the result has fewer devices. A device without a [key](crate::DeviceId::lease_key) is left out.
    ///
    /// # Errors
    /// `Invalid` if it is ambiguous which devices the value names.
    fn resolve(
        &self,
        value: &str,
        order: Option<&str>,
        devices: &[DeviceState],
    ) -> Result<Resolved>;

    /// Returns the value with which a program sees the devices with these keys, in this order, and
    /// no others; without keys, none at all.
    ///
    /// # Errors
    /// `Invalid` if no value names them.
    fn write(&self, keys: &[DeviceUuid], form: Form, devices: &[DeviceState]) -> Result<String>;

    /// Returns whether one of its lists is set, for any machine.
    fn is_set(&self, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        variable(self.visibility().variable).is_some()
    }

    /// Returns the lists of this vendor that are set, in the order in which programs apply them:
    /// each names devices among those of the list before it, so the last has those that programs
    /// see. Returns none for a machine with devices of other vendors only. `variable` returns the
    /// value of a variable, if it is set.
    fn lists(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
        machine: &[DeviceState],
    ) -> Vec<GivenList> {
        let Visibility { variable: name, order, .. } = self.visibility();
        let devices = devices_of(self.visibility(), machine);
        let is_of_others = devices.is_empty() && !machine.is_empty();
        let Some(value) = variable(name).filter(|_| !is_of_others) else { return Vec::new() };
        let order = order.and_then(|(name, _)| variable(name));
        let resolved = self.resolve(&value, order.as_deref(), &devices);
        vec![GivenList { variable: name, value, resolved }]
    }

    /// Returns all variables, with their values, with which a program sees the devices with these
    /// keys, in this order, and no others of this vendor. The last argument returns the value that a
    /// variable has now, if it is set: some need another value only then. The list may be empty if
    /// the machine has no device of this vendor.
    ///
    /// # Errors
    /// As [`write`](Grammar::write).
    fn variables(
        &self,
        keys: &[DeviceUuid],
        form: Form,
        devices: &[DeviceState],
        _inherited: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<(&'static str, String)>> {
        let Visibility { variable, order, .. } = self.visibility();
        let list = [(variable, self.write(keys, form, devices)?)];
        let order = order.map(|(name, value)| (name, value.to_owned()));
        Ok(list.into_iter().chain(order).collect())
    }
}

/// A list that a variable gives.
#[derive(Debug)]
pub struct GivenList {
    /// The variable.
    pub variable: &'static str,
    /// Its value, verbatim.
    pub value: String,
    /// The devices, as in [`Grammar::resolve`].
    pub resolved: Result<Resolved>,
}

/// The form in which devices are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// By UUID, which is independent of the order.
    #[default]
    Uuid,
    /// By index, for programs that accept no other form; needs the order of PCI addresses
    /// ([`Visibility::order`]).
    Index,
}

/// A device, or a partition, with the identifier that a list can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The [key](crate::DeviceId::lease_key).
    pub uuid: DeviceUuid,
    /// The index of the whole device among those of its vendor.
    pub index: u32,
}

/// The devices that a list names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The devices, in the order of the list.
    pub devices: Vec<Named>,
    /// The entry that names no device here and so ended the list.
    pub ended_at: Option<String>,
}

impl Resolved {
    /// Returns the keys of the devices.
    pub fn uuids(&self) -> Vec<DeviceUuid> {
        self.devices.iter().map(|named| named.uuid.clone()).collect()
    }
}

/// Returns the devices that programs see by this variable, with the indexes that these programs
/// count: those of the machine count the devices of every vendor.
pub fn devices_of(visibility: Visibility, machine: &[DeviceState]) -> Cow<'_, [DeviceState]> {
    let is_own = |device: &&DeviceState| device.info.visibility == visibility;
    if machine.iter().all(|device| is_own(&device)) {
        return Cow::Borrowed(machine);
    }
    let others: Vec<u32> =
        machine.iter().filter(|device| !is_own(device)).map(|device| device.id().index).collect();
    let mut own: Vec<DeviceState> = machine.iter().filter(is_own).cloned().collect();
    for device in &mut own {
        let id = &mut device.info.id;
        id.index -= others.iter().map(|other| u32::from(*other < id.index)).sum::<u32>();
    }
    Cow::Owned(own)
}

/// Returns the devices of a claim that are also in a given list: the whole list if the claim names
/// none. `None` if no device is left, which is not the same as any device.
pub fn narrow(among: &[DeviceUuid], given: &[DeviceUuid]) -> Option<Vec<DeviceUuid>> {
    let asked = |uuid: &&DeviceUuid| among.is_empty() || among.contains(uuid);
    let left: Vec<DeviceUuid> = given.iter().filter(asked).cloned().collect();
    (!left.is_empty()).then_some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_list_is_narrowed_never_widened() {
        let [a, b, c] = ["a", "b", "c"].map(|name| DeviceUuid(name.into()));
        let given = [a.clone(), b.clone()];
        assert_eq!(narrow(&[], &given), Some(given.to_vec()));
        assert_eq!(narrow(&[c.clone(), b.clone()], &given), Some(vec![b]));
        assert_eq!(narrow(&[c], &given), None);
        assert_eq!(narrow(&[a], &[]), None);
        assert_eq!(narrow(&[], &[]), None);
    }
}
