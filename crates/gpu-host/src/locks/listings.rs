//! The names in the directories of users, and whether a time of change identifies a version.

use super::OPENED_PER_USER;
use super::names::file_prefix;
use super::user_dir::UserDir;
use crate::fault;
use crate::timer::wall;
use gpu_core::{EntryKind, LeaseId, Result};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;

/// The maximum number of names of listings to keep.
const LISTED: usize = 1 << 16;

/// If a time of change (`ctime`, which no user can set) is at least this old, a later change
/// certainly sets another one: the kernel's clock for it ticks at least every 10 ms.
const TICK_NS: i128 = 50_000_000;

/// The same for file systems that store whole seconds: ext2, ext3, and ext4 with inodes of 128
/// bytes.
const COARSE_TICK_NS: i128 = 2_100_000_000;

/// A file system and an inode.
pub(super) type FileId = (u64, u64);

/// A time in seconds and nanoseconds since 1970.
pub(super) type FileTime = (i64, i64);

// The widths of these differ between architectures.
#[allow(clippy::unnecessary_cast)]
pub(super) fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[allow(clippy::unnecessary_cast)]
pub(super) fn changed(stat: &Stat) -> FileTime {
    (stat.st_ctime as i64, stat.st_ctime_nsec as i64)
}

/// Returns whether every change after `now` sets another time than `changed`.
pub(super) fn is_settled(changed: FileTime, now: FileTime) -> bool {
    let ns = |(seconds, ns): FileTime| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let tick = if changed.1 == 0 { COARSE_TICK_NS } else { TICK_NS };
    ns(now) - ns(changed) > tick
}

/// The rest of each name after its kind, and its inode number, sorted.
pub(super) type Names = Arc<[(String, u64)]>;

/// The names of a kind in a directory.
pub(super) struct Listed {
    pub(super) dir: FileId,
    /// The time of the last change of the directory; `None` if a later change may set the same
    /// time.
    pub(super) version: Option<FileTime>,
    pub(super) names: Names,
    /// The number of all names in the directory.
    pub(super) count: usize,
}

/// The names in each directory, as long as it does not change.
#[derive(Default)]
pub(super) struct Listings {
    known: HashMap<FileId, Listing>,
    names: usize,
}

struct Listing {
    /// Whether a read has used it since the last sweep.
    is_used: bool,
    changed: FileTime,
    attempts: Names,
    leases: Names,
    count: usize,
}

impl Listings {
    /// Forgets the directories that no read has visited since the last call, for example because
    /// they were removed.
    pub(super) fn sweep(&mut self) {
        self.known.retain(|_, listing| std::mem::take(&mut listing.is_used));
        self.names = self.known.values().map(Listing::len).sum();
    }

    /// Returns the names of a kind; none if the owner has removed the directory.
    ///
    /// # Errors
    /// `Io` if the caller or the machine cannot list it.
    pub(super) fn of(&mut self, user: &UserDir, kind: EntryKind) -> Result<Listed> {
        let now = wall();
        let stat = rustix::fs::fstat(&user.dir.fd).map_err(|errno| failed(user, errno))?;
        self.of_version(user, kind, (file_id(&stat), changed(&stat)), now)
    }

    /// As [`of`](Self::of), for a directory with this time of change at `now` or later.
    fn of_version(
        &mut self,
        user: &UserDir,
        kind: EntryKind,
        (dir, changed): (FileId, FileTime),
        now: FileTime,
    ) -> Result<Listed> {
        let known = self.known.remove(&dir).filter(|known| known.changed == changed);
        self.names -= known.as_ref().map_or(0, Listing::len);
        let listing = match known {
            Some(known) => known,
            None => match Listing::read(user, changed) {
                Err(Errno::NOENT) => Listing::none(changed),
                listing => listing.map_err(|errno| failed(user, errno))?,
            },
        };
        let names = match kind {
            EntryKind::Attempt => Arc::clone(&listing.attempts),
            _ => Arc::clone(&listing.leases),
        };
        let version = is_settled(changed, now).then_some(changed);
        let count = listing.count;
        if version.is_some() && self.names + listing.len() <= LISTED {
            self.names += listing.len();
            self.known.insert(dir, Listing { is_used: true, ..listing });
        }
        Ok(Listed { dir, version, names, count })
    }
}

fn failed(user: &UserDir, errno: Errno) -> gpu_core::Error {
    fault::file(format!("list leases in '{}'", user.dir.path.display()), errno)
}

impl Listing {
    fn none(changed: FileTime) -> Self {
        Listing { is_used: false, changed, attempts: Arc::new([]), leases: Arc::new([]), count: 0 }
    }

    fn read(user: &UserDir, changed: FileTime) -> rustix::io::Result<Self> {
        let kinds = [EntryKind::Attempt, EntryKind::Lease].map(file_prefix);
        let (mut found, mut count) = ([Vec::new(), Vec::new()], 0);
        user.list(|name, inode| {
            count += 1;
            for (kind, found) in kinds.iter().zip(&mut found) {
                if let Some(id) = user.dir.rest_of(name, kind).and_then(LeaseId::parse) {
                    found.push((String::from(id), inode));
                    // At most twice the number that is opened.
                    if found.len() == 2 * OPENED_PER_USER {
                        keep_first(found);
                    }
                }
            }
        })?;
        let [attempts, leases] = found.map(|mut names| {
            keep_first(&mut names);
            names.sort_unstable();
            Arc::from(names)
        });
        Ok(Listing { is_used: false, changed, attempts, leases, count })
    }

    fn len(&self) -> usize {
        self.attempts.len() + self.leases.len()
    }
}

fn keep_first(names: &mut Vec<(String, u64)>) {
    if names.len() > OPENED_PER_USER {
        names.select_nth_unstable(OPENED_PER_USER);
        names.truncate(OPENED_PER_USER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::dir::Dir;
    use rustix::fs::{Mode, OFlags};
    use std::fs::{self, File};
    use std::path::Path;

    fn user(path: &Path) -> UserDir {
        let fd = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
        let dir = Dir { fd, path: path.to_owned(), prefix: "" };
        UserDir { dir, owner: 1000, name: "u1000".to_owned() }
    }

    /// Returns how many leases a reader with a cached listing of a directory finds, after another
    /// lease has appeared in it without changing its time of change.
    fn found_after_another_lease(changed: FileTime, first: FileTime, second: FileTime) -> usize {
        let dir = tempfile::tempdir().unwrap();
        let user = user(dir.path());
        let mut listings = Listings::default();
        let mut list = |now| {
            let version = ((1, 2), changed);
            listings.of_version(&user, EntryKind::Lease, version, now).unwrap().names.len()
        };
        File::create(dir.path().join("lease-a")).unwrap();
        assert_eq!(list(first), 1);
        File::create(dir.path().join("lease-b")).unwrap();
        list(second)
    }

    #[test]
    fn listing_is_kept_only_if_later_changes_leave_another_time() {
        let ms = |ms: i64| (100 + ms / 1000, ms % 1000 * 1_000_000);
        // Whole seconds: a change in the same second, or just after it.
        for first in [0, 900, 1900, 2100] {
            let found = found_after_another_lease((100, 0), ms(first), ms(first));
            assert_eq!(found, 2, "{first} ms after a change");
        }
        for first in [0, 10, 50] {
            let found = found_after_another_lease((100, 1), ms(first), ms(first));
            assert_eq!(found, 2, "{first} ms after a change");
        }
        // After that, the time would differ.
        assert_eq!(found_after_another_lease((100, 0), ms(2101), ms(2102)), 1);
        assert_eq!(found_after_another_lease((100, 1), ms(51), ms(52)), 1);
        // The clock was set back since.
        assert_eq!(found_after_another_lease((200, 1), ms(0), ms(0)), 2);
    }

    #[test]
    fn listings_of_removed_directories_are_forgotten() {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let users: Vec<UserDir> = dirs.iter().map(|dir| user(dir.path())).collect();
        for dir in &dirs {
            fs::write(dir.path().join("try-a"), "").unwrap();
            fs::write(dir.path().join("lease-a"), "").unwrap();
        }
        let mut listings = Listings::default();
        let mut visit = |users: &[UserDir]| {
            for (number, user) in (0..).zip(users) {
                let version = ((1, number), (100, 1));
                listings.of_version(user, EntryKind::Attempt, version, (200, 0)).unwrap();
            }
            listings.sweep();
            (listings.known.len(), listings.names)
        };
        assert_eq!(visit(&users), (3, 6));
        assert_eq!(visit(&users[..1]), (1, 2));
        assert_eq!(visit(&[]), (0, 0));
    }
}
