//! An observer of a lease directory that shares no code with its users: it reads names and text
//! from the directory, and locks from the kernel's list.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A lease with a write-locked file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    name: String,
    inode: u64,
    devices: Vec<String>,
    memory: Option<u64>,
}

pub(crate) struct Observer {
    dir: PathBuf,
    machine: BTreeMap<String, u64>,
}

impl Observer {
    pub(crate) fn new(dir: &Path, machine: BTreeMap<String, u64>) -> Self {
        Observer { dir: dir.to_owned(), machine }
    }

    /// Returns the leases that were alive throughout the scan: locked before and after it, with the
    /// same name and file.
    pub(crate) fn scan(&self) -> Vec<Seen> {
        let before = self.locked();
        let mut seen: Vec<Seen> = self.files().filter(|s| before.contains(&s.inode)).collect();
        let after = self.locked();
        seen.retain(|lease| {
            let still = fs::symlink_metadata(self.dir.join(&lease.name));
            after.contains(&lease.inode) && still.is_ok_and(|file| file.ino() == lease.inode)
        });
        seen
    }

    /// Returns the number of locked files of any kind.
    pub(crate) fn living(&self) -> usize {
        let locked = self.locked();
        let files = fs::read_dir(&self.dir).expect("the directory can be read");
        let inodes = files.flatten().filter_map(|file| file.metadata().ok()).map(|file| file.ino());
        inodes.filter(|inode| locked.contains(inode)).count()
    }

    /// Returns the conflicts between leases that are alive at the same time.
    pub(crate) fn conflicts(&self, leases: &[Seen]) -> Vec<String> {
        let mut conflicts = Vec::new();
        for (device, total) in &self.machine {
            let on: Vec<&Seen> =
                leases.iter().filter(|lease| lease.devices.contains(device)).collect();
            let whole = on.iter().filter(|lease| lease.memory.is_none()).count();
            let sum: u64 = on.iter().filter_map(|lease| lease.memory).sum();
            if whole > 1 || whole == 1 && on.len() > 1 || sum > *total {
                let names: Vec<&str> = on.iter().map(|lease| lease.name.as_str()).collect();
                conflicts.push(format!("{device} is leased to {}", names.join(" and ")));
            }
        }
        conflicts
    }

    fn files(&self) -> impl Iterator<Item = Seen> {
        let files = fs::read_dir(&self.dir).expect("the directory can be read").flatten();
        files.filter_map(|file| {
            let name = file.file_name().into_string().ok().filter(|n| n.starts_with("lease-"))?;
            let inode = fs::symlink_metadata(file.path()).ok()?.ino();
            let text: Value = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
            let devices = text["devices"].as_array()?.iter();
            let devices = devices.filter_map(|uuid| uuid.as_str().map(str::to_owned)).collect();
            let memory = text["claim"]["share"]["memory_bytes"].as_u64();
            Some(Seen { name, inode, devices, memory })
        })
    }

    /// Returns the write-locked inodes on the directory's file system.
    fn locked(&self) -> BTreeSet<u64> {
        let device = fs::metadata(&self.dir).expect("the directory exists").dev();
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
        let of_dir = format!("{major:02x}:{minor:02x}:");
        let list = fs::read_to_string("/proc/locks").expect("the list of locks can be read");
        let locked = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let held = fields.get(1) == Some(&"OFDLCK") && fields.get(3) == Some(&"WRITE");
            held.then(|| fields.get(5)?.strip_prefix(&of_dir)?.parse().ok())?
        };
        list.lines().filter_map(locked).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leases_on_one_device_conflict() {
        let machine = BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 100)]);
        let observer = Observer::new(Path::new("/"), machine);
        let lease = |name: &str, memory, devices: &[&str]| Seen {
            name: name.to_owned(),
            inode: 0,
            devices: devices.iter().map(|&device| device.to_owned()).collect(),
            memory,
        };
        let conflicts = |leases: &[Seen]| observer.conflicts(leases).len();
        assert_eq!(conflicts(&[lease("1", None, &["a"]), lease("2", None, &["b"])]), 0);
        assert_eq!(conflicts(&[lease("1", None, &["a", "b"]), lease("2", None, &["b"])]), 1);
        assert_eq!(conflicts(&[lease("1", Some(60), &["a"]), lease("2", Some(40), &["a"])]), 0);
        assert_eq!(conflicts(&[lease("1", Some(60), &["a"]), lease("2", Some(41), &["a"])]), 1);
        assert_eq!(conflicts(&[lease("1", Some(60), &["a"]), lease("2", None, &["a"])]), 1);
    }
}
