//! The key of a device: its name in leases and claims.
//!
//! Every program on a machine must give a device the same key, or two of them lease it at once. So
//! the key is the UUID of a device that has one, even if the UUID cannot be read at this moment: then
//! the device has no key and cannot be leased. Only a device whose vendor gives it no UUID is named by
//! its PCI address.
//!
//! | device | key |
//! |---|---|
//! | with a UUID | the UUID |
//! | without | `pci:0000:04:00.0`: the address as Linux writes it, in lower case |
//! | partition without a UUID | the key of the whole device and `/N` |

use crate::absent::Absent;
use crate::id::{DeviceId, DeviceUuid, PciBusId};
use std::borrow::Cow;
use std::fmt::Write;

/// How the key of a device without a UUID begins.
pub(crate) const ADDRESS: &str = "pci:";

/// How the UUID of a partition begins: only MIG devices have one.
pub(crate) const PARTITION: &str = "MIG-";

/// Why a device has no key, so that it cannot be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLeaseKey {
    /// It may have a UUID, which cannot be read.
    #[error("{0}")]
    UuidUnknown(Absent),
    /// It has no UUID, and its PCI address is unknown.
    #[error("it has no UUID, and its PCI address is unknown: {0}")]
    NoAddress(Absent),
}

impl DeviceId {
    /// Returns the key of the device.
    ///
    /// # Errors
    /// If it has neither a UUID nor a known PCI address, or if its UUID could not be read. A backend
    /// reports a UUID as [`Absent::NotSupported`] only if the device has none.
    pub fn lease_key(&self) -> Result<Cow<'_, DeviceUuid>, NoLeaseKey> {
        match (&self.uuid, self.bus) {
            (Ok(uuid), _) => Ok(Cow::Borrowed(uuid)),
            (Err(Absent::NotSupported), Ok(bus)) => Ok(Cow::Owned(DeviceUuid::of_address(bus))),
            (Err(Absent::NotSupported), Err(absent)) => Err(NoLeaseKey::NoAddress(absent)),
            (Err(absent), _) => Err(NoLeaseKey::UuidUnknown(*absent)),
        }
    }

    /// Returns whether this is the key of the device.
    pub fn has_key(&self, key: &DeviceUuid) -> bool {
        self.lease_key().is_ok_and(|own| *own == *key)
    }
}

impl DeviceUuid {
    /// Returns the key of a device without a UUID.
    fn of_address(bus: PciBusId) -> Self {
        let PciBusId { domain, bus, device, function } = bus;
        DeviceUuid(format!("{ADDRESS}{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }

    /// Returns the key that a lease or claim of any program names: another spelling of a PCI
    /// address becomes that of [`lease_key`](DeviceId::lease_key). Text that is not a key stays as
    /// it is, and matches no device.
    pub fn named(text: &str) -> Self {
        let canonical = || {
            let (address, part) = match text.strip_prefix(ADDRESS)?.split_once('/') {
                Some((address, part)) => (address, Some(number(part)?)),
                None => (&text[ADDRESS.len()..], None),
            };
            let mut key = DeviceUuid::of_address(address.parse().ok()?);
            if let Some(part) = part {
                // Writing to a string cannot fail.
                let _ = write!(key.0, "/{part}");
            }
            Some(key)
        };
        canonical().unwrap_or_else(|| DeviceUuid(text.to_owned()))
    }

    /// Returns whether this is the key of a device without a UUID, so that it has a meaning only in
    /// leases.
    pub fn is_address(&self) -> bool {
        self.0.starts_with(ADDRESS)
    }

    /// Returns whether this is the key of a partition: a MIG device, or a partition without a UUID.
    pub fn is_partition(&self) -> bool {
        self.0.starts_with(PARTITION) || whole(&self.0).is_some()
    }

    /// Returns the key of the whole device, if this is that of a partition without a UUID.
    pub fn whole(&self) -> Option<DeviceUuid> {
        whole(&self.0).map(|whole| DeviceUuid(whole.to_owned()))
    }
}

/// Returns the key of the whole device, if this is that of a partition without a UUID.
pub(crate) fn whole(key: &str) -> Option<&str> {
    // MIG devices of old drivers have names with slashes, and have UUIDs.
    let (whole, part) = key.rsplit_once('/').filter(|_| !key.starts_with(PARTITION))?;
    number(part).map(|_| whole)
}

/// Returns a number without leading zeros, so that each partition has one key.
fn number(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain && (text == "0" || !text.starts_with('0')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Claim, LeaseEntry, LeaseId, Pid, ProcessKey, Timestamp};

    fn id(uuid: Result<&str, Absent>, bus: Result<&str, Absent>) -> DeviceId {
        DeviceId {
            uuid: uuid.map(|uuid| DeviceUuid(uuid.to_owned())),
            bus: bus.map(|bus| bus.parse().unwrap()),
            ..DeviceId::from_index(3)
        }
    }

    #[test]
    fn key_is_uuid_or_else_pci_address() {
        const NONE: Absent = Absent::NotSupported;
        let bus = Ok("0000:0A:1F.1");
        let cases = [
            (id(Ok("GPU-a"), bus), Ok("GPU-a")),
            (id(Ok("GPU-a"), Err(NONE)), Ok("GPU-a")),
            (id(Err(NONE), bus), Ok("pci:0000:0a:1f.1")),
            (id(Err(NONE), Ok("10000:e1:00.0")), Ok("pci:10000:e1:00.0")),
            (id(Err(NONE), Err(Absent::Failed)), Err(NoLeaseKey::NoAddress(Absent::Failed))),
            // With the UUID readable, it would have another key.
            (id(Err(Absent::Failed), bus), Err(NoLeaseKey::UuidUnknown(Absent::Failed))),
            (id(Err(Absent::NotRecorded), bus), Err(NoLeaseKey::UuidUnknown(Absent::NotRecorded))),
        ];
        for (id, key) in cases {
            assert_eq!(id.lease_key().as_deref().map(|key| &*key.0), key.as_ref().copied());
        }
        let error = NoLeaseKey::NoAddress(Absent::Failed).to_string();
        assert!(error.starts_with("it has no UUID, and its PCI address is unknown"), "{error}");
    }

    #[test]
    fn every_spelling_of_a_key_is_read() {
        for (text, key) in [
            ("pci:0000:0A:1F.1", "pci:0000:0a:1f.1"),
            ("pci:00000000:0a:1f.1", "pci:0000:0a:1f.1"),
            ("pci:10000:E1:00.0/12", "pci:10000:e1:00.0/12"),
            ("pci:04:00.0/0", "pci:0000:04:00.0/0"),
            ("GPU-A", "GPU-A"),
            ("MIG-GPU-a/1/0", "MIG-GPU-a/1/0"),
            // No device has these keys.
            ("PCI:0000:0A:1F.1", "PCI:0000:0A:1F.1"),
            ("pci:", "pci:"),
            ("pci:0000:0A:20.1", "pci:0000:0A:20.1"),
            ("pci:0000:0A:1F.1/", "pci:0000:0A:1F.1/"),
            ("pci:0000:0A:1F.1/01", "pci:0000:0A:1F.1/01"),
            ("pci:0000:0A:1F.1/+1", "pci:0000:0A:1F.1/+1"),
            ("pci:0000:0A:1F.1/1/2", "pci:0000:0A:1F.1/1/2"),
        ] {
            assert_eq!(DeviceUuid::named(text).0, key);
        }
    }

    #[test]
    fn partition_names_its_whole() {
        for (key, whole) in [
            ("pci:0000:04:00.0/2", Some("pci:0000:04:00.0")),
            ("UUID-a/0", Some("UUID-a")),
            ("pci:0000:04:00.0", None),
            ("GPU-a", None),
            ("MIG-GPU-a/1/0", None),
            ("MIG-41a7", None),
            ("pci:0000:04:00.0/02", None),
        ] {
            let named = DeviceUuid(key.to_owned());
            assert_eq!(named.whole().as_ref().map(|whole| &*whole.0), whole, "{key}");
            let is_partition = whole.is_some() || key.starts_with("MIG-");
            assert_eq!(named.is_partition(), is_partition, "{key}");
        }
    }

    #[test]
    fn whole_and_partition_exclude_each_other() {
        let lease = |key: &str| LeaseEntry {
            id: LeaseId::parse("a").unwrap(),
            ticket: 0,
            owner: 0,
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim: Claim::whole(1),
            devices: vec![DeviceUuid(key.to_owned())],
            parts_of: Vec::new(),
            merged: None,
            command: String::new(),
            since: Timestamp(0),
        };
        let (whole, part, other) = ("pci:0000:04:00.0", "pci:0000:04:00.0/1", "pci:0000:04:00.0/2");
        for (held, asked, overlaps) in [
            (whole, part, true),
            (part, whole, true),
            (part, other, false),
            // The lease has this same device: the shares decide.
            (part, part, false),
            (whole, whole, false),
            ("GPU-a", part, false),
        ] {
            let asked = DeviceUuid(asked.to_owned());
            assert_eq!(lease(held).has_whole_or_part_of(&asked), overlaps, "{held}, {asked}");
        }
    }
}
