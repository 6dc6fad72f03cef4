//! Ended leases, from their leftover files: when a device was last used, and what to clean up.

use super::names::{KEPT, LEASE, NEW, PAST, PLACE, TRY, WAIT, of_place};
use super::ofd;
use super::read::{Answers, Fifo, is_kept, text};
use super::record_format::{Outline, SMALL};
use super::user_dir::UserDir;
use crate::timer::wall_seconds;
use gpu_core::{DeviceUuid, LeaseId, QueuePlace, Timestamp};
use rustix::fs::{AtFlags, OFlags, Stat};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How many are kept per user, as a hint.
const HINTS: usize = 16;
/// The number of files to read of each user, and of all users together.
const READ: usize = 2 * HINTS;
const READ_OF_ALL: usize = 2048;
/// The number of names to list of each user.
const LISTED: usize = 1 << 14;
/// The maximum number of devices to keep.
const DEVICES: usize = 4096;
/// A file that was never renamed belongs to a process that was killed while writing it.
const UNFINISHED_FILE_MAX_AGE_S: i64 = 60;

/// Removes an ended lease, in this file, from those that all users read; its name is then free.
///
/// If the name refers to another file by now, for example because a lease was published again, it
/// does nothing.
pub(super) fn keep(user: &UserDir, name: &str, id: &LeaseId, file: &Stat) {
    let dir = &user.dir;
    if !dir.is_at(name, file).unwrap_or(false) {
        return;
    }
    let past = format!("{PAST}{id}");
    if rustix::fs::renameat(&dir.fd, name, &dir.fd, &past).is_err() {
        // One hint is lost; if it is gone already, nothing is left to do.
        let _ = rustix::fs::unlinkat(&dir.fd, name, AtFlags::empty());
    }
}

/// Cleans up after ended leases of the caller.
///
/// No decision depends on it, and live entries are locked: it does what it can and reports nothing.
pub(super) fn clear(user: &UserDir) {
    let dir = &user.dir;
    let mut past = Vec::new();
    let mut names = Vec::new();
    let _ = user.list(|name, _| names.extend(name.to_str().map(str::to_owned)));
    for name in names {
        let stat = rustix::fs::statat(&dir.fd, &name, AtFlags::SYMLINK_NOFOLLOW);
        let Ok(stat) = stat else { continue };
        if name.starts_with(PAST) {
            past.push((name, stat));
        } else if name.starts_with(KEPT) || name.starts_with(TRY) {
            if is_unlocked(user, &name) {
                dir.remove(&name, &stat);
            }
        } else if name.starts_with(NEW) {
            clear_unfinished(user, &name, &stat);
        } else if let Some(id) = name.strip_prefix(LEASE)
            && let Some(id) = LeaseId::parse(id).filter(|_| is_unlocked(user, &name))
            && matches!(is_kept(user, id.as_str(), &mut Answers::new()), Ok(false))
        {
            keep(user, &name, &id, &stat);
        }
    }
    past.sort_by_key(|(_, stat)| std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec)));
    for (name, stat) in past.iter().skip(HINTS) {
        dir.remove(name, stat);
    }
}

fn is_unlocked(user: &UserDir, name: &str) -> bool {
    let file = user.dir.open_file(name, OFlags::RDONLY).ok();
    file.and_then(|file| ofd::is_write_locked(&file).ok()) == Some(false)
}

/// Removes a file that was never renamed. Its modification time may not be a wall clock time: that
/// of a place in the queue is a renewal.
fn clear_unfinished(user: &UserDir, name: &str, stat: &Stat) {
    let age = wall_seconds().saturating_sub(stat.st_ctime);
    if age > UNFINISHED_FILE_MAX_AGE_S && is_unlocked(user, name) {
        user.dir.remove(name, stat);
    }
}

/// Removes the files of a dead claim of the caller in the queue.
pub(super) fn clear_place(queue: &UserDir, place: &QueuePlace) {
    let dir = &queue.dir;
    let has_ended = match Fifo::open(queue, place) {
        Ok(Some(fifo)) => matches!(fifo.has_writer(), Ok(false)),
        Ok(None) => true,
        Err(_) => false,
    };
    // An ID is never reused, so a dead entry stays dead.
    if has_ended {
        for name in [format!("{PLACE}{}", of_place(place)), format!("{WAIT}{}", place.id)] {
            let _ = rustix::fs::unlinkat(&dir.fd, name, AtFlags::empty());
        }
    }
}

/// Cleans up after claims of the caller that were killed while they entered or left the queue:
/// FIFOs without a place, and files that were never renamed. Places are left to the processes that
/// find them dead ([`clear_place`]).
pub(super) fn clear_queue(queue: &UserDir, names: &[String], places: &[QueuePlace]) {
    let queued: HashSet<&LeaseId> = places.iter().map(|place| &place.id).collect();
    for name in names {
        if let Some(id) = name.strip_prefix(WAIT).and_then(LeaseId::parse) {
            if !queued.contains(&id) {
                // One that is being published has a writer.
                clear_place(queue, &QueuePlace { ticket: 0, id, owner: queue.owner, class: 0 });
            }
        } else if name.starts_with(NEW)
            && let Ok(stat) = rustix::fs::statat(&queue.dir.fd, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            clear_unfinished(queue, name, &stat);
        }
    }
}

/// When each device was last leased, from the remaining files of all users' leases.
#[derive(Default)]
pub(super) struct LastLeased {
    pub(super) devices: BTreeMap<DeviceUuid, Timestamp>,
    read: usize,
    /// By owner, the numbers of names that were listed and of files that were read.
    users: HashMap<u32, (usize, usize)>,
}

impl LastLeased {
    /// Adds the leases in a directory of a user, as far as there is room.
    pub(super) fn add(&mut self, user: &UserDir) {
        let (listed, read) = self.users.entry(user.owner).or_default();
        let left = READ.saturating_sub(*read).min(READ_OF_ALL.saturating_sub(self.read));
        if left == 0 || *listed >= LISTED {
            return;
        }
        let mut names = Vec::new();
        let _ = user.dir.list(LISTED - *listed, |name, _| {
            *listed += 1;
            let name = name.to_str().unwrap_or_default();
            if name.starts_with(PAST) || name.starts_with(LEASE) {
                names.push(name.to_owned());
            }
            names.len() < left
        });
        *read += names.len();
        self.read += names.len();
        let mut content = Vec::new();
        for name in names {
            // An unreadable file only costs a hint.
            let _ = self.add_file(user, &name, &mut content);
        }
    }

    fn add_file(
        &mut self,
        user: &UserDir,
        name: &str,
        content: &mut Vec<u8>,
    ) -> rustix::io::Result<()> {
        let id = [PAST, LEASE].iter().find_map(|kind| name.strip_prefix(kind)).unwrap_or_default();
        let file = user.dir.open_file(name, OFlags::RDONLY)?;
        let stat = rustix::fs::fstat(&file)?;
        if !user.is_own(&stat) || !text(&file, &stat, SMALL.bytes, content)? {
            return Ok(());
        }
        let Some(outline) = Outline::of(id, content, SMALL) else { return Ok(()) };
        let millis = stat.st_mtime.saturating_mul(1000);
        let at = Timestamp(u64::try_from(millis).unwrap_or(0));
        for device in outline.devices() {
            let device = DeviceUuid::named(device);
            if self.devices.len() < DEVICES || self.devices.contains_key(&device) {
                let known = self.devices.entry(device).or_insert(at);
                *known = at.max(*known);
            }
        }
        Ok(())
    }
}
