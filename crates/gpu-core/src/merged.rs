//! The devices of many leases in little memory.

use crate::id::DeviceUuid;
use crate::lease_key::{ADDRESS, PARTITION, whole};
use std::borrow::Cow;

/// Leases that a reader merges: they count as one lease on the whole of all devices that they name.
///
/// It keeps no names, because other users can write any number of them. It keeps a 32-bit number
/// for each name, so with a million names it mistakes one of 4,000 other devices for one of its
/// own. A user who writes that many names could also have named that device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedLeases {
    /// The number of merged leases.
    pub count: u32,
    /// A number for each name, ascending after [`tidy`](Self::tidy). The last bit marks the
    /// UUID of a partition.
    names: Vec<u32>,
    /// There are more names than can be kept, so every device counts.
    is_full: bool,
}

impl MergedLeases {
    /// The owner of the merged leases of several users. No user has this number ((uid_t)-1,
    /// chown(2)).
    pub const SEVERAL_USERS: u32 = u32::MAX;

    /// Returns leases without names.
    pub fn of_count(count: u32) -> Self {
        MergedLeases { count, ..MergedLeases::default() }
    }

    /// Adds a name. Once `room` is used up, every device counts, and the room of the names so far
    /// is free again.
    pub fn add(&mut self, name: &str, room: &mut usize) {
        let key = if name.starts_with(ADDRESS) {
            Cow::Owned(DeviceUuid::named(name).0)
        } else {
            Cow::Borrowed(name)
        };
        // A lease on a partition excludes leases on the whole device.
        if let Some(whole) = whole(&key) {
            self.add_key(whole, room);
        }
        self.add_key(&key, room);
    }

    fn add_key(&mut self, name: &str, room: &mut usize) {
        match room.checked_sub(1) {
            _ if self.is_full => {}
            Some(left) => {
                *room = left;
                self.names.push(number(name));
            }
            None => {
                *room = self.names.len();
                self.add_every_device();
            }
        }
    }

    /// Adds every device.
    pub fn add_every_device(&mut self) {
        self.is_full = true;
        self.names = Vec::new();
    }

    /// Adds the names of other merged leases.
    pub fn add_all(&mut self, other: &MergedLeases) {
        self.is_full |= other.is_full;
        self.names.extend(&other.names);
        self.tidy();
    }

    /// Sorts the names and removes duplicates. Call it before the first query.
    pub fn tidy(&mut self) {
        self.names.sort_unstable();
        self.names.dedup();
    }

    /// Returns whether one of the leases names a device.
    pub fn contains(&self, device: &DeviceUuid) -> bool {
        self.is_full || self.names.binary_search(&number(&device.0)).is_ok()
    }

    /// Returns the number of different names.
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of different UUIDs of partitions. Such a name does not show which device
    /// it is a part of.
    pub fn partition_names(&self) -> usize {
        self.names.iter().filter(|name| *name & 1 == 1).count()
    }
}

/// Returns the number of a name. It need not be strong: a user who makes two names collide also
/// leases the other device, which any user may do anyway.
fn number(name: &str) -> u32 {
    let mut hash = name.len() as u64;
    let mut mix = |word: u64| {
        hash = (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    };
    let (words, rest) = name.as_bytes().as_chunks();
    words.iter().for_each(|word| mix(u64::from_le_bytes(*word)));
    mix(rest.iter().fold(1, |all, byte| all << 8 | u64::from(*byte)));
    let high = (hash >> 32) as u32;
    high & !1 | u32::from(name.starts_with(PARTITION))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(names: &[String], mut room: usize) -> MergedLeases {
        let mut merged = MergedLeases { count: 1, ..MergedLeases::default() };
        names.iter().for_each(|name| merged.add(name, &mut room));
        merged.tidy();
        merged
    }

    fn has(merged: &MergedLeases, name: &str) -> bool {
        merged.contains(&DeviceUuid(name.to_owned()))
    }

    #[test]
    fn every_added_name_is_found_and_no_other() {
        let names: Vec<String> = (0..40_000).map(|number| format!("GPU-{number:036}")).collect();
        let merged = merged(&names, usize::MAX);
        assert!(names.iter().all(|name| has(&merged, name)));
        assert!(merged.names() > 39_990, "few collide: {}", merged.names());
        let others = (40_000..80_000).filter(|number| has(&merged, &format!("GPU-{number:036}")));
        assert!(others.count() < 10);
        assert!(!has(&merged, "") && !has(&merged, "GPU-"));
    }

    #[test]
    fn partition_and_its_whole_are_found_in_any_spelling() {
        let names = ["pci:0000:0A:1F.1/2", "GPU-a/0"].map(str::to_owned);
        let merged = merged(&names, usize::MAX);
        assert_eq!((merged.names(), merged.partition_names()), (4, 0));
        for (name, is_found) in [
            ("pci:0000:0a:1f.1", true),
            ("pci:0000:0a:1f.1/2", true),
            ("pci:0000:0a:1f.1/1", false),
            ("pci:0000:0a:1f.0", false),
            ("GPU-a", true),
            ("GPU-a/0", true),
            ("GPU-a/1", false),
        ] {
            assert_eq!(has(&merged, name), is_found, "{name}");
        }
    }

    #[test]
    fn names_beyond_room_stand_for_every_device() {
        let names = ["GPU-a", "GPU-b", "MIG-c"].map(str::to_owned);
        let exact = merged(&names, 3);
        assert!(has(&exact, "GPU-b") && !has(&exact, "GPU-d"));
        assert_eq!((exact.names(), exact.partition_names()), (3, 1));
        let full = merged(&names, 2);
        assert!(has(&full, "GPU-d"), "which names were left out is not known");
        let (mut leases, mut room) = (MergedLeases::default(), 2);
        ["GPU-a", "GPU-b", "GPU-c", "GPU-d"].iter().for_each(|name| leases.add(name, &mut room));
        assert_eq!((leases.names(), room), (0, 2), "others have the room");
        let mut both = exact.clone();
        both.add_all(&full);
        assert!(has(&both, "GPU-d"));
        both = exact.clone();
        both.add_all(&exact);
        assert_eq!(both.names(), 3);
    }
}
