//! The files of leases that the caller was given by whoever started it.
//!
//! What a descriptor leads to, the kernel tells, and its name with it. Anybody can make a file of
//! such a name, so two things more must hold. The lock that keeps the lease belongs to the open file,
//! and `/proc/self/fdinfo` tells that this descriptor is of that very open file: it was inherited,
//! or handed over by somebody who has it. And the owner of the file is told, since a lease is kept
//! by files of its own user alone.

use gpu_core::LeaseId;
use rustix::fs::{FileType, stat};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the name of such a file begins with.
const BEGINNING: &str = "kept-";

/// How many descriptors are looked at; a program has some dozens.
const MOST: usize = 1 << 16;

/// Returns the leases that an open file of the caller's keeps, each with the owner of the file.
pub(crate) fn leases(proc: &Path) -> Vec<(LeaseId, u32)> {
    let Ok(entries) = std::fs::read_dir(proc.join("self/fd")) else { return Vec::new() };
    let kept = entries.take(MOST).flatten().filter_map(|entry| {
        let info = proc.join("self/fdinfo").join(entry.file_name());
        kept(&entry.path()).filter(|_| is_locked_by(&info))
    });
    kept.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the lease that the file behind a link to a descriptor keeps.
fn kept(link: &Path) -> Option<(LeaseId, u32)> {
    let target = std::fs::read_link(link).ok()?;
    let name = std::str::from_utf8(target.file_name()?.as_bytes()).ok()?;
    // One that was cleared away keeps its lease, as long as it is locked.
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let id = LeaseId::parse(name.strip_prefix(BEGINNING)?)?;
    let file = stat(link).ok()?;
    let is_plain = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
    is_plain.then_some((id, file.st_uid))
}

/// Tells whether an open file of the caller's has a lock for writing, from a line of its `fdinfo`
/// such as `lock: 1: OFDLCK ADVISORY WRITE -1 00:1b:5 0 EOF`.
fn is_locked_by(info: &Path) -> bool {
    let text = std::fs::read_to_string(info).unwrap_or_default();
    let mut locks = text.lines().filter_map(|line| line.strip_prefix("lock:"));
    locks.any(|lock| {
        let mut words = lock.split_ascii_whitespace().skip(1);
        words.next() == Some("OFDLCK") && words.nth(1) == Some("WRITE")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::ofd::{Lock, try_lock};
    use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
    use tempfile::TempDir;

    /// A file of this name, open for writing.
    fn open(folder: &TempDir, name: &str) -> rustix::fd::OwnedFd {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(CWD, folder.path().join(name), flags, Mode::RUSR | Mode::WUSR).unwrap()
    }

    fn lock(file: &rustix::fd::OwnedFd) {
        assert!(try_lock(file, Lock::Write).unwrap());
    }

    fn found() -> Vec<String> {
        leases(Path::new("/proc")).into_iter().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn only_the_very_open_file_that_is_locked_keeps_a_lease() {
        let folder = tempfile::tempdir().unwrap();
        let own = open(&folder, "kept-mine");
        let beside = open(&folder, "kept-beside");
        let others = ["kept-unlocked", "lease-other", "kept-No.Id"].map(|name| open(&folder, name));
        assert!(found().iter().all(|id| id != "mine" && id != "beside"));
        for file in [&own, &beside, &others[1], &others[2]] {
            lock(file);
        }
        let user = fstat(&own).unwrap().st_uid;
        let all = leases(Path::new("/proc"));
        assert!(all.contains(&(LeaseId::parse("mine").unwrap(), user)), "{all:?}");
        assert!(found().contains(&"beside".to_owned()));
        assert!(
            !found().contains(&"unlocked".to_owned()) && !found().contains(&"other".to_owned())
        );
        // Another open file of the same name has no lock.
        drop(own);
        let again = open(&folder, "kept-mine");
        assert!(!found().contains(&"mine".to_owned()));
        drop(again);
    }
}
