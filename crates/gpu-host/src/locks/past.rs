//! Leases that have ended, by the files that they left: when a device was last used, and what is
//! to be cleared away.

use super::names::{KEPT, LEASE, NEW, PAST, QUEUE, TRY, WAIT, of_place};
use super::ofd;
use super::reading::{Fifo, is_kept, read};
use super::user_folder::UserFolder;
use crate::timer::wall_seconds;
use gpu_core::{DeviceUuid, EntryKind, LeaseId, QueuePlace, Timestamp};
use rustix::fs::{AtFlags, OFlags, Stat};
use std::collections::{BTreeMap, HashSet};

/// So many of a user's are kept as a hint.
const HINTS: usize = 16;
/// So many of all users' are read for one.
const READ: usize = 256;
/// A file that was never given its name is somebody's who was ended while writing it.
const UNFINISHED_SECONDS: i64 = 60;

/// Takes an ended lease, in this file, out of those that everybody reads; its name is free then.
///
/// Where the name is another file's by now, as that of a lease that was published again is, there
/// is nothing to do.
pub(super) fn keep(user: &UserFolder, name: &str, id: &LeaseId, file: &Stat) {
    let folder = &user.folder;
    if !folder.is_at(name, file).unwrap_or(false) {
        return;
    }
    let past = format!("{PAST}{id}");
    if rustix::fs::renameat(&folder.fd, name, &folder.fd, &past).is_err() {
        // There is one hint less; where it is gone already there is nothing to do.
        let _ = rustix::fs::unlinkat(&folder.fd, name, AtFlags::empty());
    }
}

/// Clears away what ended leases of the caller left. Places in the queue are passed over, however
/// many there are: who finds a dead one removes it ([`clear_place`]).
///
/// Nothing rests on it, and what is alive is locked: it does what it can and reports nothing.
pub(super) fn clear(user: &UserFolder) {
    let folder = &user.folder;
    let is_dead = |name: &str| {
        let file = folder.open_file(name, OFlags::RDONLY).ok();
        file.and_then(|file| ofd::is_write_locked(&file).ok()) == Some(false)
    };
    let mut past = Vec::new();
    let names = user.names("").unwrap_or_default();
    clear_fifos(user, &names);
    for name in names {
        if name.starts_with(QUEUE) || name.starts_with(WAIT) {
            continue;
        }
        let stat = rustix::fs::statat(&folder.fd, &name, AtFlags::SYMLINK_NOFOLLOW);
        let Ok(stat) = stat else { continue };
        // A place in the queue that is still written has a modification time that is no time of day.
        let age = wall_seconds().saturating_sub(stat.st_ctime);
        if name.starts_with(PAST) {
            past.push((name, stat));
        } else if name.starts_with(KEPT) || name.starts_with(TRY) {
            if is_dead(&name) {
                folder.remove(&name, &stat);
            }
        } else if name.starts_with(NEW) {
            if age > UNFINISHED_SECONDS && is_dead(&name) {
                folder.remove(&name, &stat);
            }
        } else if let Some(id) = name.strip_prefix(LEASE)
            && let Some(id) = LeaseId::parse(id).filter(|_| is_dead(&name))
            && matches!(is_kept(user, id.as_str()), Ok(false))
        {
            keep(user, &name, &id, &stat);
        }
    }
    past.sort_by_key(|(_, stat)| std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec)));
    for (name, stat) in past.iter().skip(HINTS) {
        folder.remove(name, stat);
    }
}

/// Removes what a dead claim of the caller left of its place in the queue.
pub(super) fn clear_place(user: &UserFolder, place: &QueuePlace) {
    let folder = &user.folder;
    let has_ended = match Fifo::open(user, place) {
        Ok(Some(fifo)) => matches!(fifo.has_writer(), Ok(false)),
        Ok(None) => true,
        Err(_) => false,
    };
    // An id is never used again, so what is dead stays dead.
    if has_ended {
        for name in [format!("{QUEUE}{}", of_place(place)), format!("{WAIT}{}", place.id)] {
            let _ = rustix::fs::unlinkat(&folder.fd, name, AtFlags::empty());
        }
    }
}

/// Removes the FIFOs of claims that were killed before they had a place, or after.
fn clear_fifos(user: &UserFolder, names: &[String]) {
    let place = |name: &String| super::names::place(user.owner, name.strip_prefix(QUEUE)?);
    let queued: HashSet<LeaseId> = names.iter().filter_map(place).map(|place| place.id).collect();
    for id in names.iter().filter_map(|name| LeaseId::parse(name.strip_prefix(WAIT)?)) {
        if !queued.contains(&id) {
            // One that is just being published has a writer.
            clear_place(user, &QueuePlace { ticket: 0, id, owner: user.owner, class: 0 });
        }
    }
}

/// Notes when each device was last leased, by the files that are left of a user's leases.
pub(super) fn last_leased(user: &UserFolder, last: &mut BTreeMap<DeviceUuid, Timestamp>) {
    for kind in [PAST, LEASE] {
        for id in user.names(kind).unwrap_or_default().into_iter().take(READ) {
            let name = format!("{kind}{id}");
            let Ok(file) = user.folder.open_file(&name, OFlags::RDONLY) else { continue };
            let Ok(stat) = rustix::fs::fstat(&file) else { continue };
            if !user.is_own(&stat) {
                continue;
            }
            let read = read(&file, &stat, EntryKind::Lease, &id);
            let Ok(Some(entry)) = read else { continue };
            let millis = stat.st_mtime.saturating_mul(1000);
            let at = Timestamp(u64::try_from(millis).unwrap_or(0));
            for device in entry.devices {
                let known = last.entry(device).or_insert(at);
                *known = at.max(*known);
            }
        }
    }
}
