//! Honest claims, step by step: each step is atomic in the kernel.

use crate::dir::{Dir, Dirs, File, Id, Inode, Name, STRANGER, Text, Uid};
use crate::rule::{DEVICES, Kind, Seen, TOTAL, Verdict, decide, judge};

/// A claim's request and owner. The index of a claim is its ID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) owner: Uid,
    pub(crate) ticket: u8,
    pub(crate) count: u8,
    /// The requested memory of each device, in GiB.
    pub(crate) memory: u8,
    /// The claim of the job that makes this claim.
    pub(crate) within: Option<Id>,
}

/// The location of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One directory per user.
    PerUser,
    /// One directory for all users, as in the first version.
    Flat,
}

/// The rules of honest claims; any deviation from [`RULES`] is a mutant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) layout: Layout,
    /// The number of consecutive readings that must permit a lease.
    pub(crate) readings: u8,
    pub(crate) leases_first: bool,
    /// Whether one listing of a directory finds the names of both tries and leases.
    pub(crate) one_listing: bool,
    pub(crate) later_wins: bool,
    pub(crate) never_withdraws: bool,
    /// Whether world-writable files count.
    pub(crate) accepts_writable: bool,
    /// Whether files with a second name do not count.
    pub(crate) honours_links: bool,
    pub(crate) ignores_kept: bool,
    /// Whether a try and a lease with the same ID are one entry, regardless of their owners.
    pub(crate) joins_by_id: bool,
    /// Whether a claim leaves the queue before the lease has its name.
    pub(crate) leaves_queue_early: bool,
    /// Whether only the creator of the user's directory makes it readable for others.
    pub(crate) trusts_directory: bool,
    /// Whether a claim keeps what it has found about tries after their directory has changed.
    pub(crate) keeps_tries: bool,
    /// Whether a claim keeps a listing after the directory has changed.
    pub(crate) keeps_listings: bool,
}

pub(crate) const RULES: Rules = Rules {
    layout: Layout::PerUser,
    readings: 2,
    leases_first: false,
    one_listing: false,
    later_wins: false,
    never_withdraws: false,
    accepts_writable: false,
    honours_links: false,
    ignores_kept: false,
    joins_by_id: false,
    leaves_queue_early: false,
    trusts_directory: false,
    keeps_tries: false,
    keeps_listings: false,
};

/// A reading in progress. Each directory is listed again for each kind of entry: a name that exists
/// throughout is listed, and a name that appears or disappears during the listing may be. Then each
/// file is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reading {
    pub(crate) round: u8,
    pub(crate) begun: bool,
    backwards: bool,
    kind: u8,
    dir: u8,
    /// The number of claims in this directory that the listing has passed.
    listed: u8,
    /// The directory that it is listing or opening files in, unless the directory has changed
    /// since.
    unchanged: Option<Dir>,
    names: Vec<Name>,
    /// The lease opened last, if it is unlocked: `kept-ID` must be checked.
    unlocked: Option<Seen>,
    later: Vec<(Dir, Name)>,
    pub(crate) seen: Vec<Seen>,
    /// The entries that existed when it began and have not ended since; it must see them.
    pub(crate) must: u8,
    /// The waiting entries among them.
    pub(crate) must_wait: u8,
}

impl Reading {
    pub(crate) fn new(round: u8) -> Self {
        Reading {
            round,
            begun: false,
            backwards: false,
            kind: 0,
            dir: 0,
            listed: 0,
            unchanged: None,
            names: Vec::new(),
            unlocked: None,
            later: Vec::new(),
            seen: Vec::new(),
            must: 0,
            must_wait: 0,
        }
    }
}

/// The results of earlier readings that a claim remembers. It may use any of them or query the
/// kernel again.
///
/// A file is remembered by its name alone: in the worst case, the next file with this name has the
/// same inode. A lease name is used only once, so what was found about a lease remains valid as far
/// as it is used at all; a dead lease stays dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    listings: Vec<(Dir, u8, Vec<Name>)>,
    files: Vec<(Dir, Name, Option<Seen>)>,
}

impl Memory {
    fn names(&self, dir: Dir, kind: u8) -> Option<&Vec<Name>> {
        let mut found = self.listings.iter().filter(|(at, of, _)| (*at, *of) == (dir, kind));
        found.next().map(|(_, _, names)| names)
    }

    fn file(&self, dir: Dir, name: Name) -> Option<Option<Seen>> {
        let mut found = self.files.iter().filter(|(at, of, _)| (*at, *of) == (dir, name));
        found.next().map(|(_, _, found)| *found)
    }

    fn keep_listing(&mut self, dir: Dir, kind: u8, names: &[Name]) {
        self.listings.retain(|(at, of, _)| (*at, *of) != (dir, kind));
        self.listings.push((dir, kind, names.to_vec()));
        self.listings.sort_unstable();
    }

    fn keep_file(&mut self, dir: Dir, name: Name, found: Option<Seen>) {
        self.files.retain(|(at, of, _)| (*at, *of) != (dir, name));
        self.files.push((dir, name, found));
        self.files.sort_unstable();
    }

    /// Forgets what is no longer valid because a directory has changed.
    pub(crate) fn forget(&mut self, dir: Dir, rules: &Rules) {
        let is_kept = |name: &Name| rules.keeps_tries || matches!(name, Name::Lease(_));
        self.files.retain(|(at, name, _)| *at != dir || is_kept(name));
        self.listings.retain(|(at, ..)| *at != dir || rules.keeps_listings);
    }
}

/// The state of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Deciding(Reading),
    Decided,
    Confirming(Reading),
    Allowed,
    Leaving,
    Leased {
        job: bool,
    },
    /// The supervisor was killed, but the job is alive.
    Orphaned,
    Over,
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claimant {
    pub(crate) phase: Phase,
    pub(crate) devices: u8,
    pub(crate) attempts: u8,
    pub(crate) timeouts: u8,
    /// Whether it has a place in the queue.
    pub(crate) queued: bool,
    /// Whether it is stalled, so that others pass it.
    pub(crate) stalled: bool,
    /// Whether it has created its user's directory.
    pub(crate) made: bool,
    pub(crate) memory: Memory,
}

impl Claimant {
    pub(crate) fn new(attempts: u8) -> Self {
        Claimant {
            phase: Phase::Idle,
            devices: 0,
            attempts,
            timeouts: 0,
            queued: false,
            stalled: false,
            made: false,
            memory: Memory::default(),
        }
    }

    /// Handles a changed directory.
    pub(crate) fn notice(&mut self, dir: Dir, rules: &Rules) {
        self.memory.forget(dir, rules);
        let reading = self.reading_mut().filter(|reading| reading.unchanged == Some(dir));
        if let Some(reading) = reading {
            reading.unchanged = None;
        }
    }

    /// Returns whether others must see its try or lease.
    pub(crate) fn is_published(&self) -> bool {
        matches!(
            self.phase,
            Phase::Confirming(_)
                | Phase::Allowed
                | Phase::Leaving
                | Phase::Leased { .. }
                | Phase::Orphaned
        )
    }

    pub(crate) fn is_confirmed(&self) -> bool {
        matches!(self.phase, Phase::Leased { .. } | Phase::Orphaned)
    }

    pub(crate) fn reading_mut(&mut self) -> Option<&mut Reading> {
        match &mut self.phase {
            Phase::Deciding(reading) | Phase::Confirming(reading) => Some(reading),
            _ => None,
        }
    }
}

/// The inodes of a claim's entry, of the entry inherited by its job, and of its place in the queue.
pub(crate) fn entry_of(claimant: usize) -> Inode {
    (claimant * 3) as Inode
}
pub(crate) fn kept_of(claimant: usize) -> Inode {
    (claimant * 3 + 1) as Inode
}
pub(crate) fn place_of(claimant: usize) -> Inode {
    (claimant * 3 + 2) as Inode
}

/// The processes of a claim.
pub(crate) fn supervisor(claimant: usize) -> u16 {
    1 << claimant
}
pub(crate) fn job(claimant: usize) -> u16 {
    1 << (claimant + 8)
}

/// Performs readings, one step at a time.
pub(crate) struct Reader<'a> {
    pub(crate) setups: &'a [Setup],
    pub(crate) rules: &'a Rules,
    /// Whether the stranger's moves are steps, so that every directory must be read.
    pub(crate) strangers_files: bool,
    /// Whether it reads the queue before the tries.
    pub(crate) queue: bool,
    /// Whether it remembers earlier readings.
    pub(crate) remembers: bool,
    pub(crate) me: usize,
}

impl Reader<'_> {
    /// Returns the directory and the kind of the next step of a reading; `None` at the end.
    fn position(&self, reading: &Reading, deciding: bool) -> Option<(Dir, Kind)> {
        let mut listing = self.listing();
        if reading.backwards {
            listing.reverse();
        }
        let kind = *self.kinds(deciding).get(usize::from(reading.kind))?;
        Some((*listing.get(usize::from(reading.dir))?, kind))
    }

    /// Takes the next step of a reading from memory; true if the reading is complete, `None` if the
    /// step is not remembered.
    pub(crate) fn recall(
        &self,
        reading: &mut Reading,
        deciding: bool,
        backwards: bool,
        memory: &Memory,
    ) -> Option<bool> {
        if !reading.begun {
            (reading.begun, reading.backwards) = (true, backwards);
        }
        let (dir, _) = self.position(reading, deciding)?;
        if reading.listed == 0 {
            reading.names.clone_from(memory.names(dir, reading.kind)?);
            (reading.listed, reading.unchanged) = (self.listings(dir), Some(dir));
        } else if reading.listed == self.listings(dir) && reading.unlocked.is_none() {
            let found = memory.file(dir, *reading.names.first()?)?;
            reading.names.remove(0);
            found.into_iter().for_each(|entry| self.add(reading, entry));
        } else {
            return None;
        }
        Some(self.is_complete(reading, deciding))
    }

    /// Continues with the next directory or kind after the last file of the current one; true at
    /// the end.
    fn is_complete(&self, reading: &mut Reading, deciding: bool) -> bool {
        let Some((dir, _)) = self.position(reading, deciding) else { return true };
        if reading.listed < self.listings(dir)
            || !reading.names.is_empty()
            || reading.unlocked.is_some()
        {
            return false;
        }
        (reading.dir, reading.listed, reading.unchanged) = (reading.dir + 1, 0, None);
        if usize::from(reading.dir) == self.listing().len() {
            (reading.dir, reading.kind) = (0, reading.kind + 1);
        }
        usize::from(reading.kind) == self.kinds(deciding).len()
    }

    pub(crate) fn listing(&self) -> Vec<Dir> {
        if self.rules.layout == Layout::Flat {
            return vec![Dir::Shared];
        }
        let mut owners: Vec<Uid> = self.setups.iter().map(|setup| setup.owner).collect();
        if self.strangers_files {
            owners.push(STRANGER);
        }
        owners.sort_unstable();
        owners.dedup();
        owners.into_iter().map(Dir::Of).filter(|dir| self.listings(*dir) > 0).collect()
    }

    /// The other claims that may have names in a directory.
    fn others(&self, dir: Dir) -> Vec<Id> {
        let here = |id: &usize| {
            *id != self.me
                && match dir {
                    Dir::Of(owner) => self.setups[*id].owner == owner,
                    Dir::Shared => true,
                    Dir::Elsewhere => false,
                }
        };
        (0..self.setups.len()).filter(here).map(|id| id as Id).collect()
    }

    fn listings(&self, dir: Dir) -> u8 {
        (self.others(dir).len() as u8).max(u8::from(self.strangers_files))
    }

    fn kinds(&self, deciding: bool) -> &'static [Kind] {
        match (deciding && self.queue, self.rules.leases_first) {
            (true, false) => &[Kind::Waiter, Kind::Try, Kind::Lease],
            (true, true) => &[Kind::Lease, Kind::Try, Kind::Waiter],
            (false, false) => &[Kind::Try, Kind::Lease],
            (false, true) => &[Kind::Lease, Kind::Try],
        }
    }

    /// Takes the next step of a reading; true if the reading is complete. `Err` describes an entry
    /// accepted as that of another user.
    pub(crate) fn step(
        &self,
        dirs: &Dirs,
        reading: &mut Reading,
        deciding: bool,
        backwards: bool,
        memory: &mut Memory,
        mut words: Option<&mut String>,
    ) -> Result<bool, String> {
        if !reading.begun {
            (reading.begun, reading.backwards) = (true, backwards);
        }
        let Some((dir, kind)) = self.position(reading, deciding) else { return Ok(true) };
        let mut description = String::new();
        let mut found = None;
        if reading.listed < self.listings(dir) {
            if reading.listed == 0 {
                reading.unchanged = self.remembers.then_some(dir);
            }
            let names = self.list(dirs, reading, dir, kind);
            if words.is_some() {
                description =
                    format!("lists {kind:?} in {dir:?} ({}): {names:?}", reading.listed + 1);
            }
            reading.names.extend(names);
            reading.listed += 1;
            let is_known = self.remembers && reading.unchanged.is_some();
            if is_known && reading.listed == self.listings(dir) {
                memory.keep_listing(dir, reading.kind, &reading.names);
            }
        } else if let Some(lease) = reading.unlocked.take() {
            let kept = dirs.at(dir, Name::Kept(lease.id)).filter(|kept| {
                dirs.is_locked(*kept)
                    && dirs.file(*kept).is_some_and(|file| file.owner == lease.owner)
            });
            if words.is_some() {
                description = format!("asks who holds kept-{}: {}", lease.id, kept.is_some());
            }
            found = Some((Name::Lease(lease.id), kept.map(|_| lease)));
        } else {
            let name = reading.names.remove(0);
            let opened = self.open(dirs, dir, name, kind).inspect_err(|_| {
                if let Some(words) = &mut words {
                    words.push_str(&format!("opens {name:?} in {dir:?}"));
                }
            })?;
            if words.is_some() {
                description = format!("opens {name:?} in {dir:?}: {opened:?}");
            }
            match opened {
                Some((entry, false)) if kind == Kind::Lease && !self.rules.ignores_kept => {
                    reading.unlocked = Some(entry);
                }
                opened => {
                    let alive = opened.filter(|(_, is_locked)| *is_locked);
                    found = Some((name, alive.map(|(entry, _)| entry)));
                }
            }
        }
        if let Some((name, entry)) = found {
            entry.into_iter().for_each(|entry| self.add(reading, entry));
            let is_try = matches!(name, Name::Try(_));
            if self.remembers && (reading.unchanged.is_some() || !is_try || self.rules.keeps_tries)
            {
                memory.keep_file(dir, name, entry);
            }
        }
        if let Some(words) = words {
            words.push_str(&description);
        }
        Ok(self.is_complete(reading, deciding))
    }

    /// Lists the names of one claim and, together with those of the first claim, the stranger's
    /// names.
    fn list(&self, dirs: &Dirs, reading: &mut Reading, dir: Dir, kind: Kind) -> Vec<Name> {
        let others = self.others(dir);
        let listed = usize::from(reading.listed);
        let now = |id: &Id| match others.get(listed) {
            Some(expected) if expected == id => true,
            _ => listed == 0 && !others.contains(id) && usize::from(*id) != self.me,
        };
        let of_kind = |name: &Name| match (kind, name) {
            (Kind::Waiter, Name::Queue(id))
            | (Kind::Try, Name::Try(id))
            | (Kind::Lease, Name::Lease(id)) => now(id),
            _ => false,
        };
        let here = |wanted: &dyn Fn(&Name) -> bool| -> Vec<Name> {
            if !dirs.may_read(self.setups[self.me].owner, dir) {
                return Vec::new();
            }
            let names = dirs.names().iter().filter(|(at, name, _)| *at == dir && wanted(name));
            names.map(|(_, name, _)| *name).collect()
        };
        if !self.rules.one_listing {
            return here(&of_kind);
        }
        if kind == Kind::Try {
            let leases = here(&|name| matches!(name, Name::Lease(id) if now(id)));
            reading.later.extend(leases.into_iter().map(|name| (dir, name)));
            return here(&of_kind);
        }
        let (names, later) =
            reading.later.drain(..).partition(|(at, name)| *at == dir && of_kind(name));
        reading.later = later;
        let names: Vec<(Dir, Name)> = names;
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Opens a file; returns its entry if the file counts as one, and whether it is locked.
    fn open(
        &self,
        dirs: &Dirs,
        dir: Dir,
        name: Name,
        kind: Kind,
    ) -> Result<Option<(Seen, bool)>, String> {
        let Some(inode) = dirs.at(dir, name) else { return Ok(None) };
        let Some(file) = dirs.file(inode) else { return Ok(None) };
        let (Name::Queue(id) | Name::Try(id) | Name::Lease(id)) = name else { return Ok(None) };
        let owns = match dir {
            Dir::Of(owner) => file.owner == owner,
            Dir::Shared | Dir::Elsewhere => true,
        };
        let refused = !owns
            || file.all_write && !self.rules.accepts_writable
            || dirs.links(inode) != 1 && self.rules.honours_links;
        let Some(text) = file.text.filter(|text| text.id == id && !refused) else {
            return Ok(None);
        };
        let locked = dirs.is_locked(inode);
        if locked && file.author != file.owner {
            return Err(format!(
                "{name:?} in {dir:?} counts as user {}'s, and user {} wrote it",
                file.owner, file.author
            ));
        }
        Ok(Some((Seen { owner: file.owner, id, kind, text }, locked)))
    }

    /// If an entry was seen as several kinds, the last one counts: a lease.
    fn add(&self, reading: &mut Reading, entry: Seen) {
        let same = |other: &Seen| {
            other.id == entry.id && (other.owner == entry.owner || self.rules.joins_by_id)
        };
        reading.seen.retain(|other| !same(other));
        let index = reading.seen.partition_point(|other| *other < entry);
        reading.seen.insert(index, entry);
    }

    /// Returns the reader's own entry.
    pub(crate) fn mine(&self, devices: u8) -> Seen {
        let setup = &self.setups[self.me];
        Seen { owner: setup.owner, id: self.me as Id, kind: Kind::Try, text: self.text(devices) }
    }

    pub(crate) fn text(&self, devices: u8) -> Text {
        let setup = &self.setups[self.me];
        let (ticket, memory) = (setup.ticket, setup.memory);
        let within = setup.within.map(|outer| (outer, self.setups[usize::from(outer)].owner));
        Text { id: self.me as Id, ticket, devices, memory, within }
    }

    /// Returns the directory in which it publishes.
    pub(crate) fn home(&self) -> Dir {
        match self.rules.layout {
            Layout::PerUser => Dir::Of(self.setups[self.me].owner),
            Layout::Flat => Dir::Shared,
        }
    }

    /// Returns a new file of its own that it has write-locked.
    pub(crate) fn file(&self, text: Option<Text>) -> File {
        let owner = self.setups[self.me].owner;
        File { owner, all_write: false, text, author: owner, locked: supervisor(self.me) }
    }

    pub(crate) fn judge(&self, devices: u8, seen: &[Seen]) -> Verdict {
        match judge(&self.mine(devices), seen, self.rules.later_wins) {
            Verdict::Withdraw if self.rules.never_withdraws => Verdict::Again,
            verdict => verdict,
        }
    }

    pub(crate) fn decide(&self, seen: &[Seen]) -> Option<u8> {
        decide(&Seen { kind: Kind::Waiter, ..self.mine(self.setups[self.me].count) }, seen)
    }

    /// Returns every set of devices that it could request, regardless of its reading.
    pub(crate) fn any(&self, outer: Option<u8>) -> Vec<u8> {
        let among = outer.unwrap_or(DEVICES);
        let count = u32::from(self.setups[self.me].count);
        (1..=DEVICES).filter(|set| set & !among == 0 && set.count_ones() == count).collect()
    }
}

/// The stranger's directory may contain anything at any time: a reading finds nothing there, or an
/// entry that precedes or follows all others and takes all of every device.
pub(crate) fn strangers_entries(strangers: bool, id: Id) -> Vec<Option<Seen>> {
    let seen = |kind, ticket| {
        let text = Text { id, ticket, devices: DEVICES, memory: TOTAL, within: None };
        Some(Seen { owner: STRANGER, id, kind, text })
    };
    if strangers { vec![None, seen(Kind::Lease, 0), seen(Kind::Try, u8::MAX)] } else { vec![None] }
}
