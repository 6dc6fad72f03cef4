//! The lease files that the caller inherited.
//!
//! The kernel reports the target of a descriptor, and its name. Any user can create a file of such
//! a name, so two more conditions apply. The lock that keeps the lease belongs to the open file
//! description, and `/proc/self/fdinfo` shows that this descriptor has that description: it was
//! inherited, or passed on by a process that has it. The owner of the file is returned too, because
//! only files of its own user keep a lease.

use crate::roots::Roots;
use gpu_core::LeaseId;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, Timestamps, UTIME_NOW, openat, stat, statat,
    utimensat,
};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name prefixes of the two files of a lease. The first is inherited.
const KEPT: &str = "kept-";
const LEASE: &str = "lease-";

/// How many descriptors are checked; a program has some dozens.
const MAX: usize = 1 << 16;

/// Returns the leases that an open file of the caller keeps, each with the owner of the file.
pub(crate) fn leases(proc: &Path) -> Vec<(LeaseId, u32)> {
    let found: BTreeSet<_> = kept_files(proc).map(|kept| (kept.id, kept.stat.st_uid)).collect();
    found.into_iter().collect()
}

/// Renews the files of inherited leases, so that cleaners of old files keep them: the inherited
/// file itself, and the lease next to it. A lease without a name is not published again, because
/// only its holder knows its content.
pub fn renew_inherited(roots: &Roots) {
    for kept in kept_files(&roots.proc) {
        // A failure is retried an hour later; the age of old files is counted in days.
        let _ = kept.renew();
    }
}

/// An open file that keeps a lease.
struct Kept {
    /// The caller's link to its descriptor.
    link: PathBuf,
    /// The path at which it was opened, or its current path.
    path: PathBuf,
    id: LeaseId,
    stat: Stat,
}

fn kept_files(proc: &Path) -> impl Iterator<Item = Kept> {
    let entries = std::fs::read_dir(proc.join("self/fd")).into_iter().flatten();
    entries.take(MAX).flatten().filter_map(move |entry| {
        let info = proc.join("self/fdinfo").join(entry.file_name());
        Kept::of(entry.path()).filter(|_| is_locked_by(&info))
    })
}

impl Kept {
    /// Returns the file behind a link to a descriptor, if it keeps a lease.
    fn of(link: PathBuf) -> Option<Self> {
        let path = std::fs::read_link(&link).ok()?;
        let name = std::str::from_utf8(path.file_name()?.as_bytes()).ok()?;
        // A deleted file keeps its lease as long as it is locked.
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        let id = LeaseId::parse(name.strip_prefix(KEPT)?)?;
        let stat = stat(&link).ok()?;
        let is_plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_plain.then_some(Kept { link, path, id, stat })
    }

    fn renew(&self) -> rustix::io::Result<()> {
        let now = || Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now(), last_modification: now() };
        utimensat(CWD, &self.link, &times, AtFlags::empty())?;
        let Some(parent) = self.path.parent() else { return Ok(()) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = openat(CWD, parent, flags, Mode::empty())?;
        let at = statat(&dir, format!("{KEPT}{}", self.id), AtFlags::SYMLINK_NOFOLLOW)?;
        // Another directory may have this path by now.
        if (at.st_dev, at.st_ino) != (self.stat.st_dev, self.stat.st_ino) {
            return Err(Errno::STALE);
        }
        utimensat(&dir, format!("{LEASE}{}", self.id), &times, AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// Returns whether an open file of the caller has a write lock, from a line of its `fdinfo` such as
/// `lock: 1: OFDLCK ADVISORY WRITE -1 00:1b:5 0 EOF`.
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
    use rustix::fs::fstat;
    use tempfile::TempDir;

    /// A file of this name, open for writing.
    fn open(dir: &TempDir, name: &str) -> rustix::fd::OwnedFd {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(CWD, dir.path().join(name), flags, Mode::RUSR | Mode::WUSR).unwrap()
    }

    fn lock(file: &rustix::fd::OwnedFd) {
        assert!(try_lock(file, Lock::Write).unwrap());
    }

    fn found() -> Vec<String> {
        leases(Path::new("/proc")).into_iter().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn only_locked_open_file_description_keeps_lease() {
        let dir = tempfile::tempdir().unwrap();
        let own = open(&dir, "kept-mine");
        let others = ["kept-unlocked", "lease-other", "kept-No.Id"].map(|name| open(&dir, name));
        assert!(found().iter().all(|id| id != "mine"));
        for file in [&own, &others[1], &others[2]] {
            lock(file);
        }
        let user = fstat(&own).unwrap().st_uid;
        let all = leases(Path::new("/proc"));
        assert!(all.contains(&(LeaseId::parse("mine").unwrap(), user)), "{all:?}");
        assert!(
            !found().contains(&"unlocked".to_owned()) && !found().contains(&"other".to_owned())
        );
        // Another open file of the same name has no lock.
        drop(own);
        let again = open(&dir, "kept-mine");
        assert!(!found().contains(&"mine".to_owned()));
        drop(again);
    }

    fn age(dir: &TempDir, name: &str) -> i64 {
        stat(dir.path().join(name)).unwrap().st_mtime
    }

    #[test]
    fn renewal_touches_both_files_of_a_lease_only() {
        let dir = tempfile::tempdir().unwrap();
        let kept = open(&dir, "kept-aged");
        lock(&kept);
        let names = ["kept-aged", "lease-aged", "lease-other"];
        let _files = ["lease-aged", "lease-other"].map(|name| open(&dir, name));
        let make_old = || {
            let old = Timespec { tv_sec: 1000, tv_nsec: 0 };
            let times = Timestamps { last_access: old, last_modification: old };
            for name in names {
                utimensat(CWD, dir.path().join(name), &times, AtFlags::empty()).unwrap();
            }
        };
        make_old();
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        renew_inherited(&roots);
        assert_eq!(names.map(|name| age(&dir, name) > 1000), [true, true, false]);
        // A file of that name in the directory is not the inherited one.
        make_old();
        std::fs::remove_file(dir.path().join("kept-aged")).unwrap();
        let _another = open(&dir, "kept-aged");
        renew_inherited(&roots);
        assert_eq!(age(&dir, "lease-aged"), 1000);
    }
}
