//! The live entries of all users, read in bounded memory and time, whatever the users write.
//!
//! No user's entry can hide an entry of another user: each limit applies to one user, and entries
//! beyond the limits on memory count as a lease on the whole of the devices that they name
//! ([`MergedLeases`]).

use super::names::{MERGED, file_prefix};
use super::read::{Answers, living_file, text};
use super::record_format::{LARGE, Outline, SMALL};
use super::user_dir::UserDir;
use crate::fault;
use crate::timer::{now, wall};
use crate::trusted_dir::overflow_user;
use gpu_core::{
    Claim, EntryKind, LeaseEntry, LeaseId, MergedLeases, Pid, ProcessKey, Result, Timestamp,
};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How many files of one user and kind a reader opens, the first ones by name. The rest contains no
/// lease of gpuws, which grants no user more than 256.
const OPENED_PER_USER: usize = 2048;

/// How many of these files each read checks again. It checks all files of the caller.
const FIRST_PER_USER: usize = 256;

/// A reader checks the other files, and merged entries, again after this time, or after ten times
/// as long as the check took. Until then, entries that were alive count as alive, so nothing is
/// granted twice. A reader checks a new file at once.
const RECENT: Duration = Duration::from_secs(1);

/// The memory for unmerged entries, in bytes: one user may have half of what is left, ...
const TOLD: usize = 1 << 20;
/// ... each user has this in any case, ...
const TOLD_AT_LEAST: usize = 16 << 10;
/// ... all users together this, ...
const TOLD_OF_ALL: usize = 3 << 19;
/// ... and the caller this besides.
const TOLD_OF_CALLER: usize = 1 << 20;

/// The most names of devices of merged entries. One page of memory has 64 of the longest entries.
const MERGED_NAMES: usize = 5 << 18;

/// The most users with a merged lease each; the leases of further ones are one.
const MERGED_USERS: usize = 64;

/// The most names of listings that are kept.
const LISTED: usize = 1 << 16;

/// A change of a directory is certainly later than its time of change if that is older than this:
/// the kernel's clock for it ticks at least every 10 ms.
const TICK_NS: i128 = 50_000_000;

/// The same where times have whole seconds: ext2, ext3, and ext4 with inodes of 128 bytes.
const COARSE_TICK_NS: i128 = 2_100_000_000;

/// Entries that were read before: only their owner can change one.
#[derive(Default)]
pub(super) struct Known {
    told: HashMap<PathBuf, (EntryKind, FileStamp, LeaseEntry, usize)>,
    merged: HashMap<EntryKind, Merged>,
    listings: Listings,
    text: Vec<u8>,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    file: FileId,
    modified: (i64, i64),
}

/// A file system and an inode.
type FileId = (u64, u64);

// The widths of these differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

impl FileStamp {
    #[allow(clippy::unnecessary_cast)]
    fn of(stat: &Stat) -> Self {
        let modified = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
        FileStamp { file: file_id(stat), modified }
    }
}

/// What a read has found so far.
struct Round {
    kind: EntryKind,
    caller: u32,
    told: HashMap<PathBuf, (EntryKind, FileStamp, LeaseEntry, usize)>,
    /// How much memory they take, except those of the caller.
    weight: usize,
    users: HashMap<u32, Used>,
    /// Stands for every user that this user namespace does not map: one of them must not use up the
    /// limits of the others.
    overflow: u32,
    answers: Answers,
}

#[derive(Clone, Copy, Default)]
struct Used {
    opened: usize,
    weight: usize,
}

impl Round {
    /// Returns whether memory is left to keep an entry of this size unmerged, and counts it if so.
    fn tells(&mut self, owner: u32, weight: usize) -> bool {
        let left = (TOLD.saturating_sub(self.weight) / 2).max(TOLD_AT_LEAST);
        let used = self.users.entry(owner).or_default();
        let is_own = owner == self.caller;
        let room = if is_own { TOLD_OF_CALLER } else { left };
        let fits = used.weight + weight <= room && (is_own || self.weight + weight <= TOLD_OF_ALL);
        if fits {
            used.weight += weight;
            self.weight += if is_own { 0 } else { weight };
        }
        fits
    }
}

impl Known {
    /// Returns whether the caller's directory has so many entries, dead ones included, that readers
    /// may merge them.
    ///
    /// # Errors
    /// `Io` if it cannot be listed.
    pub(super) fn is_crowded(&mut self, own: &UserDir) -> Result<bool> {
        let kinds = [EntryKind::Attempt, EntryKind::Lease];
        let mut counts = kinds.map(|kind| Ok(self.listings.of(own, kind)?.1.len())).into_iter();
        counts.try_fold(false, |crowded, count: Result<usize>| {
            Ok(crowded || count? >= FIRST_PER_USER / 2)
        })
    }

    /// Returns the live attempts or leases in the directories that `each` visits.
    ///
    /// Each directory is listed, and its entries are opened, before the call returns: an attempt
    /// that is confirmed while attempts are read is there when leases are read after that.
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
        let mut merged = self.merged.remove(&kind).filter(|merged| begun < merged.until);
        let is_new = merged.is_none();
        let merged = merged.get_or_insert_default();
        let mut round = Round {
            kind,
            caller: rustix::process::geteuid().as_raw(),
            told: HashMap::new(),
            weight: 0,
            users: HashMap::new(),
            overflow: overflow_user(),
            answers: Answers::new(),
        };
        each(&mut |user| self.visit(user, &mut round, merged))?;
        self.listings.sweep();
        if is_new {
            let asked = now();
            merged.until = asked + RECENT.max(asked.saturating_sub(begun) * 10);
        }
        let mut entries: Vec<_> =
            round.told.values().map(|(_, _, entry, _)| entry.clone()).collect();
        entries.extend(merged.entries(kind));
        self.told.retain(|_, (known, ..)| *known != kind);
        self.told.extend(round.told);
        self.merged.insert(kind, std::mem::take(merged));
        Ok(entries)
    }

    fn visit(&mut self, user: &UserDir, round: &mut Round, merged: &mut Merged) -> Result<()> {
        let opened = round.users.get(&user.owner).map_or(0, |used| used.opened);
        if opened >= OPENED_PER_USER && user.owner != round.overflow {
            return Ok(());
        }
        let prefix = file_prefix(round.kind);
        let (dir, listed) = self.listings.of(user, round.kind)?;
        for (id, inode) in listed.iter() {
            let used = round.users.entry(user.owner).or_default();
            if used.opened >= OPENED_PER_USER && user.owner != round.overflow {
                break;
            }
            used.opened += 1;
            let is_first = used.opened <= FIRST_PER_USER || user.owner == round.caller;
            let key = merged.hasher.hash_one((dir, inode, id));
            if merged.asked.contains(&key) {
                continue;
            }
            let name = format!("{prefix}{id}");
            let Some((file, stat)) = living_file(user, &name, id, &mut round.answers)? else {
                if !is_first {
                    merged.asked.insert(key);
                }
                continue;
            };
            let path = is_first.then(|| user.dir.path.join(&name));
            let stamp = FileStamp::of(&stat);
            let known = path.as_ref().and_then(|path| self.told.remove_entry(path));
            if let Some((path, known)) = known.filter(|(_, known)| known.1 == stamp)
                && round.tells(user.owner, known.3)
            {
                round.told.insert(path, known);
                continue;
            }
            let limits = if is_first { LARGE } else { SMALL };
            let failed = |errno| fault::file(format!("read lease '{id}'"), errno);
            let is_read = text(&file, &stat, limits.bytes, &mut self.text).map_err(failed)?;
            let outline = is_read.then(|| Outline::of(id, &self.text, limits)).flatten();
            let Some(outline) = outline else {
                if !is_first {
                    merged.asked.insert(key);
                }
                continue;
            };
            if let Some(path) = path
                && let weight = weight(&self.text)
                && round.tells(user.owner, weight)
                && let Some(entry) = outline.entry(user.owner, &self.text)
            {
                round.told.insert(path, (round.kind, stamp, entry, weight));
                continue;
            }
            merged.asked.insert(key);
            merged.add(user.owner, &stat, &outline);
        }
        Ok(())
    }
}

/// Returns how much memory the entry in a text takes at most: each member of a list is a string.
fn weight(text: &[u8]) -> usize {
    let commas = text.iter().filter(|byte| **byte == b',').count();
    512 + text.len() + 48 * commas
}

/// The merged live entries.
struct Merged {
    /// The time until which the merged entries are valid.
    until: Duration,
    hasher: RandomState,
    /// The files that were checked, by directory, inode and name.
    asked: HashSet<u64>,
    /// By owner, with the earliest ticket and the earliest change of a file, in seconds since 1970.
    users: BTreeMap<u32, (Arc<MergedLeases>, u64, i64)>,
    /// The number of further names that can be kept.
    room: usize,
    changed: bool,
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
        let is_apart = self.users.len() < MERGED_USERS || self.users.contains_key(&owner);
        let owner = if is_apart { owner } else { MergedLeases::SEVERAL_USERS };
        let none = || (Arc::default(), u64::MAX, i64::MAX);
        let (merged, ticket, since) = self.users.entry(owner).or_insert_with(none);
        *ticket = outline.ticket().min(*ticket);
        *since = changed(stat).0.min(*since);
        let merged = Arc::make_mut(merged);
        merged.count = merged.count.saturating_add(1);
        for name in outline.devices() {
            merged.add(name, &mut self.room);
        }
        self.changed = true;
    }

    /// Returns one lease on the whole of all devices for each user.
    fn entries(&mut self, kind: EntryKind) -> Vec<LeaseEntry> {
        if std::mem::take(&mut self.changed) {
            self.users.values_mut().for_each(|(merged, ..)| Arc::make_mut(merged).tidy());
        }
        let kind = if kind == EntryKind::Attempt { "attempts-of-" } else { "of-" };
        let one = |(owner, (merged, ticket, since)): (&u32, &(Arc<MergedLeases>, u64, i64))| {
            Some(LeaseEntry {
                id: LeaseId::parse(&format!("{MERGED}{kind}{owner}"))?,
                ticket: *ticket,
                owner: *owner,
                root: ProcessKey { pid: Pid(0), start: None },
                within: Vec::new(),
                claim: Claim::whole(u32::try_from(merged.names()).unwrap_or(u32::MAX)),
                devices: Vec::new(),
                parts_of: Vec::new(),
                merged: Some(Arc::clone(merged)),
                command: format!("{} more leases of this user", merged.count),
                since: Timestamp(u64::try_from(since.saturating_mul(1000)).unwrap_or(0)),
            })
        };
        self.users.iter().filter_map(one).collect()
    }
}

/// The rest of a name after its kind, and its inode number.
type Listed = Arc<[(String, u64)]>;

/// The names in each directory, as long as it does not change.
#[derive(Default)]
struct Listings {
    known: HashMap<FileId, Listing>,
    names: usize,
}

struct Listing {
    /// Whether a read has used it since the last sweep.
    is_used: bool,
    changed: (i64, i64),
    attempts: Listed,
    leases: Listed,
}

impl Listings {
    /// Forgets the directories that no read has visited since the last call, for example because
    /// they were removed.
    fn sweep(&mut self) {
        self.known.retain(|_, listing| std::mem::take(&mut listing.is_used));
        self.names = self.known.values().map(Listing::len).sum();
    }

    /// Returns the names of a kind, sorted; none if the owner has removed the directory.
    fn of(&mut self, user: &UserDir, kind: EntryKind) -> Result<(FileId, Listed)> {
        let failed =
            |errno| fault::file(format!("list leases in '{}'", user.dir.path.display()), errno);
        let began = wall();
        let stat = rustix::fs::fstat(&user.dir.fd).map_err(failed)?;
        let (id, changed) = (file_id(&stat), changed(&stat));
        let known = self.known.remove(&id).filter(|known| known.changed == changed);
        self.names -= known.as_ref().map_or(0, Listing::len);
        let listing = match known {
            Some(known) => known,
            None => match Listing::read(user, changed) {
                Err(Errno::NOENT) => Listing::none(changed),
                listing => listing.map_err(failed)?,
            },
        };
        let names = match kind {
            EntryKind::Attempt => Arc::clone(&listing.attempts),
            _ => Arc::clone(&listing.leases),
        };
        let ns = |(seconds, ns): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        let tick = if changed.1 == 0 { COARSE_TICK_NS } else { TICK_NS };
        if ns(began) - ns(changed) > tick && self.names + listing.len() <= LISTED {
            self.names += listing.len();
            self.known.insert(id, Listing { is_used: true, ..listing });
        }
        Ok((id, names))
    }
}

#[allow(clippy::unnecessary_cast)]
fn changed(stat: &Stat) -> (i64, i64) {
    (stat.st_ctime as i64, stat.st_ctime_nsec as i64)
}

impl Listing {
    fn none(changed: (i64, i64)) -> Self {
        Listing { is_used: false, changed, attempts: Arc::new([]), leases: Arc::new([]) }
    }

    fn read(user: &UserDir, changed: (i64, i64)) -> rustix::io::Result<Self> {
        let kinds = [EntryKind::Attempt, EntryKind::Lease].map(file_prefix);
        let mut found = [Vec::new(), Vec::new()];
        user.list(|name, inode| {
            for (kind, found) in kinds.iter().zip(&mut found) {
                if let Some(id) = user.dir.rest_of(name, kind).and_then(LeaseId::parse) {
                    found.push((String::from(id), inode));
                    // Never more than twice those that are opened.
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
        Ok(Listing { is_used: false, changed, attempts, leases })
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
