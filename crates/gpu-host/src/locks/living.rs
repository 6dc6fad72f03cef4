//! The live entries of all users, read in bounded memory and time, whatever the users write.
//!
//! No user's entry can hide an entry of another user: each limit applies to one user, and entries
//! beyond the limits on memory count as a lease on the whole of the devices that they name
//! ([`MergedLeases`]).

use super::OPENED_PER_USER;
use super::listings::{FileId, FileTime, Listings, changed, file_id, is_settled};
use super::names::{MERGED, file_prefix};
use super::read::{Answers, is_damaged, living_file, text};
use super::record_format::{LARGE, Outline, SMALL};
use super::user_dir::UserDir;
use crate::fault;
use crate::timer::{now, wall};
use crate::trusted_dir::overflow_user;
use gpu_core::{
    Claim, EntryKind, LeaseEntry, LeaseId, MergedLeases, Pid, ProcessKey, Result, Timestamp,
};
use rustix::fs::Stat;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How many of these files of another user a reader reads, the first live ones. It reads all of the
/// caller's files that it opens.
const LIVING_PER_USER: usize = 256;

/// How many of these files may be [large](LARGE).
const LARGE_PER_USER: usize = 4;

/// After this many names, a reader lists no further directory of a user.
const NAMES_PER_USER: usize = 1 << 14;

/// A reader checks merged entries and dead ones again after this time, or after ten times as long as
/// the check took. Until then merged ones count as alive, so nothing is granted twice. A reader
/// checks the other living ones in each read.
const RECENT: Duration = Duration::from_secs(1);

/// The memory for unmerged entries, in bytes: one user may have half of what is left, ...
const UNMERGED: usize = 1 << 19;
/// ... each user gets at least this much, ...
const UNMERGED_AT_LEAST: usize = 16 << 10;
/// ... all users together get this much, ...
const UNMERGED_OF_ALL: usize = 3 << 18;
/// ... and the caller gets this much in addition.
const UNMERGED_OF_CALLER: usize = 1 << 20;

/// The maximum number of device names in merged entries.
const MERGED_NAMES: usize = 5 << 18;

/// The maximum number of users with a merged lease each; the leases of all further users become
/// one.
const MERGED_USERS: usize = 64;

/// Entries that were read before: only their owner can change one.
#[derive(Default)]
pub(super) struct Known {
    unmerged: HashMap<PathBuf, Unmerged>,
    merged: HashMap<EntryKind, Merged>,
    listings: Listings,
    text: Vec<u8>,
}

/// Identifies a version of a file, whose time of change was settled when it was read: an inode may
/// soon be that of another attempt of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    file: FileId,
    changed: FileTime,
}

impl FileStamp {
    fn of(stat: &Stat, now: FileTime) -> Option<Self> {
        let changed = changed(stat);
        is_settled(changed, now).then(|| FileStamp { file: file_id(stat), changed })
    }
}

/// An entry that is kept unmerged, with its memory; without a stamp, it is read again.
struct Unmerged {
    kind: EntryKind,
    stamp: Option<FileStamp>,
    entry: LeaseEntry,
    weight: usize,
}

/// The results of a read so far.
struct Round {
    kind: EntryKind,
    /// When it began.
    began: FileTime,
    /// The merged entries are from an earlier read.
    is_from_memory: bool,
    caller: u32,
    unmerged: HashMap<PathBuf, Unmerged>,
    /// The memory that they take, except those of the caller.
    weight: usize,
    users: HashMap<u32, Used>,
    /// The UID that stands for every user that this user namespace does not map: one of them must
    /// not use up the limits of the others.
    overflow: u32,
    answers: Answers,
}

#[derive(Clone, Copy, Default)]
struct Used {
    listed: usize,
    opened: usize,
    living: usize,
    weight: usize,
}

impl Round {
    /// Returns how much memory is left for unmerged entries of a user; `None` if none is left.
    fn room(&self, owner: u32) -> Option<usize> {
        let used = self.users.get(&owner).map_or(0, |used| used.weight);
        if owner == self.caller {
            return UNMERGED_OF_CALLER.checked_sub(used);
        }
        let of_user = (UNMERGED.saturating_sub(self.weight) / 2).max(UNMERGED_AT_LEAST);
        Some(of_user.checked_sub(used)?.min(UNMERGED_OF_ALL.checked_sub(self.weight)?))
    }

    /// Returns whether enough memory is left to keep an entry of this size unmerged, and counts it
    /// if so.
    fn keeps(&mut self, owner: u32, weight: usize) -> bool {
        let fits = self.room(owner).is_some_and(|room| weight <= room);
        if fits {
            self.users.entry(owner).or_default().weight += weight;
            self.weight += if owner == self.caller { 0 } else { weight };
        }
        fits
    }
}

impl Known {
    /// Returns the number of entries of a kind in a directory, dead ones included; at most
    /// [`OPENED_PER_USER`].
    ///
    /// # Errors
    /// `Io` if it cannot be listed.
    pub(super) fn count(&mut self, user: &UserDir, kind: EntryKind) -> Result<usize> {
        Ok(self.listings.of(user, kind)?.names.len())
    }

    /// Returns the live attempts or leases in the directories that `each` visits.
    ///
    /// Each directory is listed, and its entries are opened, before the call returns: if an attempt
    /// is confirmed while attempts are read, a later read of leases finds it.
    ///
    /// # Errors
    /// `Io` if the caller or the machine cannot list a directory, check whether an entry is alive,
    /// or read a live one: it must not count as dead.
    pub(super) fn living(
        &mut self,
        kind: EntryKind,
        each: impl FnOnce(&mut dyn FnMut(&UserDir) -> Result<()>) -> Result<()>,
    ) -> Result<Vec<LeaseEntry>> {
        let begun = now();
        let known = self.merged.remove(&kind).filter(|merged| begun < merged.until);
        let mut round = Round {
            kind,
            began: wall(),
            is_from_memory: known.is_some(),
            caller: rustix::process::geteuid().as_raw(),
            unmerged: HashMap::new(),
            weight: 0,
            users: HashMap::new(),
            overflow: overflow_user(),
            answers: Answers::new(),
        };
        let mut merged = known.unwrap_or_default();
        each(&mut |user| self.visit(user, &mut round, &mut merged))?;
        self.listings.sweep();
        if !round.is_from_memory {
            let asked = now();
            merged.until = asked + RECENT.max(asked.saturating_sub(begun) * 10);
        } else if merged.changed && kind == EntryKind::Attempt {
            // Some may be counted twice, or have ended: their directories have changed.
            merged.until = Duration::ZERO;
        }
        let mut entries: Vec<_> =
            round.unmerged.values().map(|unmerged| unmerged.entry.clone()).collect();
        entries.extend(merged.entries(kind));
        self.unmerged.retain(|_, unmerged| unmerged.kind != kind);
        self.unmerged.extend(round.unmerged);
        self.merged.insert(kind, merged);
        Ok(entries)
    }

    fn visit(&mut self, user: &UserDir, round: &mut Round, merged: &mut Merged) -> Result<()> {
        let before = round.users.get(&user.owner).copied().unwrap_or_default();
        let is_full = before.opened >= OPENED_PER_USER || before.listed >= NAMES_PER_USER;
        if is_full && user.owner != round.overflow {
            return Ok(());
        }
        let prefix = file_prefix(round.kind);
        let listed = self.listings.of(user, round.kind)?;
        round.users.entry(user.owner).or_default().listed += listed.count;
        // A lease file gets its name once. An attempt may be withdrawn and published again under
        // its name, with the inode of the last file and other devices: the entries found in a
        // directory count only for that version of the directory.
        let version = match round.kind {
            EntryKind::Attempt => listed.version,
            _ => Some(FileTime::default()),
        };
        for (id, inode) in listed.names.iter() {
            let used = round.users.entry(user.owner).or_default();
            if used.opened >= OPENED_PER_USER && user.owner != round.overflow {
                break;
            }
            used.opened += 1;
            let is_large = used.opened <= LARGE_PER_USER || user.owner == round.caller;
            let key = version
                .map(|version| merged.hasher.hash_one((listed.dir, version, inode, id.as_str())));
            if key.is_some_and(|key| merged.asked.contains(&key)) {
                continue;
            }
            if used.living >= LIVING_PER_USER
                && ![round.caller, round.overflow].contains(&user.owner)
            {
                // A lease may have ended since it was read, and another begun in a later directory.
                if before.opened == 0 {
                    merged.asked.extend(key);
                }
                continue;
            }
            let name = format!("{prefix}{id}");
            let Some((file, stat)) = living_file(user, &name, id, &mut round.answers)? else {
                // A dead entry of another user stays dead.
                merged.asked.extend(key.filter(|_| user.owner != round.caller));
                continue;
            };
            round.users.entry(user.owner).or_default().living += 1;
            let path = user.dir.path.join(&name);
            let stamp = FileStamp::of(&stat, round.began);
            let known = self.unmerged.remove_entry(&path);
            if let Some((path, known)) = known.filter(|(_, unmerged)| unmerged.stamp.is_some())
                && known.stamp == stamp
                && round.keeps(user.owner, known.weight)
            {
                round.unmerged.insert(path, known);
                continue;
            }
            let limits = if is_large { LARGE } else { SMALL };
            let is_read = match text(&file, &stat, limits.bytes, &mut self.text) {
                // Its devices are unknown, and it is alive.
                Err(errno) if is_damaged(errno) => {
                    merged.asked.extend(key);
                    merged.add_damaged(user.owner, &stat);
                    continue;
                }
                is_read => {
                    is_read.map_err(|errno| fault::file(format!("read lease '{id}'"), errno))?
                }
            };
            let outline = is_read.then(|| Outline::of(id, &self.text, limits)).flatten();
            let Some(outline) = outline else {
                merged.asked.extend(key);
                continue;
            };
            if let Some(weight) = round.room(user.owner).and_then(|room| weight(&self.text, room))
                && round.keeps(user.owner, weight)
                && let Some(entry) = outline.entry(user.owner, &self.text)
            {
                round.unmerged.insert(path, Unmerged { kind: round.kind, stamp, entry, weight });
                continue;
            }
            merged.asked.extend(key);
            merged.add(user.owner, &stat, &outline);
        }
        Ok(())
    }
}

/// Returns how much memory the entry in a text takes at most, if each member of a list is a string;
/// `None` if that is more than the room left.
fn weight(text: &[u8], room: usize) -> Option<usize> {
    let least = 512 + text.len();
    let commas = || text.iter().filter(|byte| **byte == b',').count();
    (least <= room).then(|| least + 48 * commas()).filter(|weight| *weight <= room)
}

/// The merged live entries.
struct Merged {
    /// The time until which the merged entries are valid.
    until: Duration,
    hasher: RandomState,
    /// By directory, inode and name: the live files that were merged, dead ones, files that are not
    /// entries, and those beyond the limit.
    asked: HashSet<u64>,
    users: BTreeMap<u32, MergedUser>,
    /// The number of further names that can be kept.
    room: usize,
    /// An entry was added after the last call of [`entries`](Self::entries).
    changed: bool,
}

/// The merged entries of one user.
struct MergedUser {
    leases: Arc<MergedLeases>,
    /// How many of them count for every device, because their content cannot be read.
    damaged: u32,
    /// The earliest ticket.
    ticket: u64,
    /// The earliest change of a file, in seconds since 1970.
    since: i64,
}

impl Default for Merged {
    fn default() -> Self {
        Merged {
            until: Duration::ZERO,
            hasher: RandomState::new(),
            asked: HashSet::new(),
            users: BTreeMap::new(),
            room: MERGED_NAMES,
            changed: false,
        }
    }
}

impl Merged {
    fn add(&mut self, owner: u32, stat: &Stat, outline: &Outline<'_>) {
        let room = self.room;
        let user = self.user(owner, stat, outline.ticket());
        let leases = Arc::make_mut(&mut user.leases);
        let mut left = room;
        outline.devices().iter().for_each(|name| leases.add(name, &mut left));
        self.room = left;
    }

    /// Adds a live entry that the file system cannot read: it may be on any device.
    fn add_damaged(&mut self, owner: u32, stat: &Stat) {
        let user = self.user(owner, stat, 0);
        user.damaged = user.damaged.saturating_add(1);
        Arc::make_mut(&mut user.leases).add_every_device();
    }

    fn user(&mut self, owner: u32, stat: &Stat, ticket: u64) -> &mut MergedUser {
        self.changed = true;
        let is_apart = self.users.len() < MERGED_USERS || self.users.contains_key(&owner);
        let owner = if is_apart { owner } else { MergedLeases::SEVERAL_USERS };
        let since = changed(stat).0;
        let none = || MergedUser { leases: Arc::default(), damaged: 0, ticket, since };
        let user = self.users.entry(owner).or_insert_with(none);
        user.ticket = user.ticket.min(ticket);
        user.since = user.since.min(since);
        let leases = Arc::make_mut(&mut user.leases);
        leases.count = leases.count.saturating_add(1);
        user
    }

    /// Returns one lease on the whole of all devices for each user.
    fn entries(&mut self, kind: EntryKind) -> Vec<LeaseEntry> {
        if std::mem::take(&mut self.changed) {
            self.users.values_mut().for_each(|user| Arc::make_mut(&mut user.leases).tidy());
            let kept: usize = self.users.values().map(|user| user.leases.names()).sum();
            self.room = MERGED_NAMES.saturating_sub(kept);
        }
        let kind = if kind == EntryKind::Attempt { "attempts-of-" } else { "of-" };
        let one = |(owner, user): (&u32, &MergedUser)| {
            let names = u32::try_from(user.leases.names()).unwrap_or(u32::MAX);
            let mut command = format!("{} more leases of this user", user.leases.count);
            if user.damaged > 0 {
                command.push_str(&format!(
                    "; the files of {} cannot be read, so they count for all devices",
                    user.damaged
                ));
            }
            Some(LeaseEntry {
                id: LeaseId::parse(&format!("{MERGED}{kind}{owner}"))?,
                ticket: user.ticket,
                owner: *owner,
                root: ProcessKey { pid: Pid(0), start: None },
                within: Vec::new(),
                claim: Claim::whole(names.max(1)),
                devices: Vec::new(),
                parts_of: Vec::new(),
                merged: Some(Arc::clone(&user.leases)),
                command,
                since: Timestamp(u64::try_from(user.since.saturating_mul(1000)).unwrap_or(0)),
            })
        };
        self.users.iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_kept_only_if_later_version_has_another_stamp() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let (seconds, ns) = changed(&stat);
        assert_eq!(FileStamp::of(&stat, (seconds, ns)), None, "another may follow at once");
        let stamp = FileStamp::of(&stat, (seconds + 3, ns));
        assert_eq!(stamp, Some(FileStamp { file: file_id(&stat), changed: (seconds, ns) }));
    }
}
