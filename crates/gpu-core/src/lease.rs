//! Claims on devices, and leases: granted claims.

use crate::clock::Timestamp;
use crate::id::{DeviceUuid, ProcessKey};
use crate::merged::MergedLeases;
use crate::units::Bytes;
use std::fmt;
use std::sync::Arc;

/// How much of each device a claim requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Share {
    /// The device, exclusively.
    #[default]
    Whole,
    /// This much of its memory; other shares may use the rest.
    #[cfg_attr(feature = "serde", serde(rename = "memory_bytes"))]
    Memory(Bytes),
}

/// The content of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    /// The number of devices; at least one.
    pub count: u32,
    /// How much of each.
    pub share: Share,
    /// Only these; any device if empty.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub among: Vec<DeviceUuid>,
    /// None of these.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub except: Vec<DeviceUuid>,
    /// All of these.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub required: Vec<DeviceUuid>,
    /// The memory that must be free on each device at the time of the grant.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    #[cfg_attr(feature = "serde", serde(rename = "free_memory_bytes"))]
    pub free_memory: Option<Bytes>,
    /// The lowest acceptable compute capability, major and minor.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub compute_capability: Option<(u32, u32)>,
    /// Only devices of this vendor, as [`Visibility::vendor`](crate::visible::Visibility::vendor)
    /// names it. `None`: the vendor of the first device that the claim can have.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub vendor: Option<String>,
    /// Accept a device that a process outside the scheme uses.
    #[cfg_attr(feature = "serde", serde(default))]
    pub accept_used: bool,
    /// The minor numbers of the devices that the claimant sees, ascending; empty if unknown. In a
    /// container these may be a part of the machine's.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub visible_minors: Vec<u32>,
}

impl Claim {
    /// Returns a claim on any `count` whole devices.
    pub fn whole(count: u32) -> Self {
        Claim { count, ..Claim::default() }
    }

    /// Returns whether two claimants see different devices, so that neither can take what the other
    /// needs.
    pub fn is_elsewhere(&self, other: &Claim) -> bool {
        let (own, others) = (&self.visible_minors, &other.visible_minors);
        !own.is_empty() && !others.is_empty() && !own.iter().any(|minor| others.contains(minor))
    }

    /// Returns the memory that it asks for of each device; `None` for whole devices.
    pub fn memory(&self) -> Option<Bytes> {
        match self.share {
            Share::Whole => None,
            Share::Memory(bytes) => Some(bytes),
        }
    }
}

/// Identifies a lease or a place in the queue: it is the name of its file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct LeaseId(String);

impl LeaseId {
    /// Returns the ID in `text`: 1 to 40 of `a`–`z`, `0`–`9` and `-`; `None` for any other text,
    /// which another user could have written.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid = (1..=40).contains(&text.len()) && text.bytes().all(plain);
        valid.then(|| LeaseId(text.to_owned()))
    }

    /// Returns whether the ID has the form that gpuws uses: 12 hexadecimal digits.
    pub fn is_random(&self) -> bool {
        self.0.len() == 12 && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for LeaseId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        LeaseId::parse(&text).ok_or("not a lease ID")
    }
}

impl From<LeaseId> for String {
    fn from(id: LeaseId) -> Self {
        id.0
    }
}

/// A lease that contains another lease. Any user can copy an ID, so the owner is part of the
/// identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OuterLease {
    /// Its ID.
    pub id: LeaseId,
    /// Its owner.
    pub owner: u32,
}

/// A lease, or a waiting claim.
///
/// All fields except [`owner`](LeaseEntry::owner) were written by its maker, who may be any user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseEntry {
    /// Its ID.
    pub id: LeaseId,
    /// Its position in the order of arrival; lower is earlier.
    pub ticket: u64,
    /// The user who owns its file: the only authority on its owner.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub owner: u32,
    /// The process for whose tree the lease was taken, itself included.
    pub root: ProcessKey,
    /// The lease that contains this one, then that lease's outer lease, and so on: this lease
    /// counts within the nearest live one.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub within: Vec<OuterLease>,
    /// The request.
    pub claim: Claim,
    /// The granted devices; none while it waits.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub devices: Vec<DeviceUuid>,
    /// The whole devices of the requested MIG devices, as recorded before the grant; empty if any
    /// of them was unknown.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub parts_of: Vec<DeviceUuid>,
    /// Further devices, if this lease stands for several leases that a reader merges. Never in a
    /// file.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub merged: Option<Arc<MergedLeases>>,
    /// A description of its purpose.
    pub command: String,
    /// Its creation time.
    #[cfg_attr(feature = "serde", serde(rename = "since_unix_ms"))]
    pub since: Timestamp,
}

impl LeaseEntry {
    /// Returns whether the lease has a device.
    pub fn has(&self, device: &DeviceUuid) -> bool {
        self.devices.contains(device)
            || self.merged.as_ref().is_some_and(|merged| merged.contains(device))
    }

    /// Returns whether the lease has a partition of this device, or the whole device of this
    /// partition, where these have no UUIDs.
    pub fn has_whole_or_part_of(&self, device: &DeviceUuid) -> bool {
        let is_part = |key: &DeviceUuid| key.whole().as_ref() == Some(device);
        device.whole().is_some_and(|whole| self.has(&whole)) || self.devices.iter().any(is_part)
    }

    /// Returns the lease with only those of its devices that are among these, and with the number
    /// of leases that it stands for: without the millions of names that a merged lease may have.
    pub fn naming<'d>(&self, devices: impl IntoIterator<Item = &'d DeviceUuid>) -> LeaseEntry {
        let Some(merged) = &self.merged else { return self.clone() };
        let found = devices.into_iter().filter(|device| self.has(device)).cloned();
        let known = Some(Arc::new(MergedLeases::of_count(merged.count)));
        LeaseEntry { devices: found.collect(), merged: known, ..self.clone() }
    }

    /// Returns how many leases this lease stands for.
    pub fn count(&self) -> usize {
        self.merged.as_ref().map_or(1, |merged| merged.count as usize)
    }

    /// Returns what an entry that this one contains records ([`within`](LeaseEntry::within)).
    pub fn nested(&self) -> Vec<OuterLease> {
        let own = OuterLease { id: self.id.clone(), owner: self.owner };
        [&[own][..], &self.within].concat()
    }

    /// Returns whether this one came before another.
    pub fn is_before(&self, other: &LeaseEntry) -> bool {
        (self.ticket, &self.id, self.owner) < (other.ticket, &other.id, other.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_id_is_plain_file_name() {
        for text in ["1-a3f", "0", &"a".repeat(40)] {
            assert_eq!(LeaseId::parse(text).map(|id| id.to_string()).as_deref(), Some(text));
        }
        for text in ["", ".", "..", "a/b", "A", "é", "a b", &"a".repeat(41)] {
            assert_eq!(LeaseId::parse(text), None, "{text}");
        }
    }
}
