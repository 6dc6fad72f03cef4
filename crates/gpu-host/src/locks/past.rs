//! Leases that have ended, by the files that they left: when a device was last used, and what is
//! to be cleared away.

use super::entry::{KEPT, NEW, PAST, beginning, is_kept, read};
use super::folder::Folder;
use super::ofd;
use crate::timer::wall_seconds;
use gpu_core::{DeviceUuid, EntryKind, LeaseId, Timestamp};
use rustix::fs::{AtFlags, OFlags, Stat};
use std::collections::BTreeMap;

/// So many of a user's are kept as a hint.
const HINTS: usize = 16;
/// So many of all users' are read for one.
const READ: usize = 256;
/// A file that was never given its name is somebody's who was ended while writing it.
const UNFINISHED_SECONDS: i64 = 60;
/// Root clears what others left behind so long ago.
const ABANDONED_SECONDS: i64 = 24 * 3600;

/// Takes an ended lease, in this file, out of those that everybody reads; its name is free then.
///
/// Where the name is another file's by now, as that of a lease that was published again is, there
/// is nothing to do.
pub(super) fn keep(folder: &Folder, name: &str, id: &LeaseId, file: &Stat) {
    if !folder.is_at(name, file).unwrap_or(false) {
        return;
    }
    let past = format!("{}{PAST}{id}", folder.prefix);
    if rustix::fs::renameat(&folder.fd, name, &folder.fd, &past).is_err() {
        // There is one hint less; where it is gone already there is nothing to do.
        let _ = rustix::fs::unlinkat(&folder.fd, name, AtFlags::empty());
    }
}

/// Clears away what the caller's ended entries left, and root what anybody's did.
///
/// Nothing rests on it, and what is alive is locked: it does what it can and reports nothing.
pub(super) fn clear(folder: &Folder) {
    let caller = rustix::process::geteuid().as_raw();
    let now = wall_seconds();
    let age = |stat: &Stat| now.saturating_sub(stat.st_mtime);
    let is_dead = |name: &str| {
        let file = folder.open_file(name, OFlags::RDONLY).ok();
        file.and_then(|file| ofd::is_write_locked(file).ok()) == Some(false)
    };
    let mut past = Vec::new();
    for rest in folder.names("").unwrap_or_default() {
        let name = format!("{}{rest}", folder.prefix);
        let stat = rustix::fs::statat(&folder.fd, &name, AtFlags::SYMLINK_NOFOLLOW);
        let Ok(stat) = stat else { continue };
        if stat.st_uid != caller && (caller != 0 || age(&stat) <= ABANDONED_SECONDS) {
            continue;
        }
        if rest.starts_with(PAST) {
            past.push((name, stat));
        } else if rest.starts_with(beginning(EntryKind::Waiter)) {
            if is_dead(&name) {
                folder.remove(&name, &stat);
            }
        } else if rest.starts_with(NEW) {
            if age(&stat) > UNFINISHED_SECONDS && is_dead(&name) {
                folder.remove(&name, &stat);
            }
        } else if rest.starts_with(KEPT) {
            if is_dead(&name) {
                folder.remove(&name, &stat);
            }
        } else if let Some(id) = rest.strip_prefix(beginning(EntryKind::Lease))
            && let Some(id) = LeaseId::parse(id).filter(|_| is_dead(&name))
            && matches!(is_kept(folder, id.as_str(), &stat), Ok(false))
        {
            keep(folder, &name, &id, &stat);
        }
    }
    past.sort_by_key(|(_, stat)| std::cmp::Reverse((stat.st_mtime, stat.st_mtime_nsec)));
    for (name, stat) in past.iter().skip(HINTS) {
        folder.remove(name, stat);
    }
}

/// Returns when each device was last leased, by the files that are left.
pub(super) fn last_leased(folders: &[Folder]) -> BTreeMap<DeviceUuid, Timestamp> {
    let mut last = BTreeMap::new();
    for folder in folders {
        for kind in [PAST, beginning(EntryKind::Lease)] {
            for id in folder.names(kind).unwrap_or_default().into_iter().take(READ) {
                let name = format!("{}{kind}{id}", folder.prefix);
                let Ok(file) = folder.open_file(&name, OFlags::RDONLY) else { continue };
                let Ok(stat) = rustix::fs::fstat(&file) else { continue };
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
    last
}
