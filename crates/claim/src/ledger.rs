//! The leases and the queue, and which of their entries matter to a claim.

use gpu_core::{
    Claim, DeviceUuid, EntryKind, LeaseEntry, LeaseId, LeaseStore, MergedLeases, OuterLease, Pid,
    ProcessKey, Result, Share, Timestamp, Waiter,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The most waiting claims of one user that are served in turn.
pub(crate) const MAX_WAITERS_PER_USER: usize = 64;
/// The most queue places of one user that are opened at a time, including those of dead and stalled
/// claims.
pub(crate) const MAX_PLACES_READ_PER_USER: usize = 1024;
/// The most leases of one user that are kept apart.
pub(crate) const MAX_LEASES_PER_USER: usize = 256;

/// The leases of a machine, from one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leases {
    pub(crate) confirmed: Vec<LeaseEntry>,
    /// The attempts among the leases.
    pub(crate) attempts: Vec<LeaseEntry>,
}

impl Leases {
    /// Reads leases and attempts, attempts first: an attempt that is confirmed in between is seen
    /// twice, never missed, and counts as confirmed.
    pub(crate) fn read(locks: &dyn LeaseStore) -> Result<Self> {
        let mut attempts = locks.entries(EntryKind::Attempt)?;
        let confirmed = locks.entries(EntryKind::Lease)?;
        let leases: HashSet<(&LeaseId, u32)> =
            confirmed.iter().map(|lease| (&lease.id, lease.owner)).collect();
        attempts.retain(|attempt| !leases.contains(&(&attempt.id, attempt.owner)));
        Ok(Leases { confirmed, attempts })
    }
}

/// All leases and waiting claims, from one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The leases.
    pub leases: Vec<LeaseEntry>,
    /// The waiting claims, the earliest first.
    pub waiters: Vec<LeaseEntry>,
    /// The stalled claims, which others pass; the earliest first.
    pub stalled: Vec<LeaseEntry>,
}

impl Ledger {
    /// Reads the live entries. Attempts count as leases.
    ///
    /// Waiting claims are read first: a claim that becomes a lease in between is seen twice, never
    /// missed, and counts as a lease.
    ///
    /// # Errors
    /// Those of [`LeaseStore::entries`], [`LeaseStore::queue`] and [`LeaseStore::waiter`].
    pub fn read(locks: &dyn LeaseStore) -> Result<Self> {
        let (mut waiters, mut stalled) = (Vec::new(), Vec::new());
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        for place in locks.queue()? {
            let (read, kept) = counts.entry(place.owner).or_default();
            if *read >= MAX_PLACES_READ_PER_USER || *kept >= MAX_WAITERS_PER_USER {
                continue;
            }
            *read += 1;
            let waiter = locks.waiter(&place)?;
            *kept += usize::from(waiter.is_some());
            match waiter {
                Some(Waiter { entry, is_stalled: false }) => waiters.push(entry),
                Some(Waiter { entry, is_stalled: true }) => stalled.push(entry),
                None => {}
            }
        }
        let Leases { confirmed, attempts } = Leases::read(locks)?;
        let leases = [confirmed, attempts].concat();
        let Ledger { waiters: stalled, .. } = Ledger::new(leases.clone(), stalled);
        Ok(Ledger { stalled, ..Ledger::new(leases, waiters) })
    }

    /// Returns the leases, and the other waiting claims.
    ///
    /// The load that one user can add is bounded: of each user, the 64 earliest waiting claims and
    /// the 256 earliest leases count. Devices of later leases are not forgotten: these leases count
    /// as one lease on the whole of all their devices.
    pub fn new(mut leases: Vec<LeaseEntry>, mut waiters: Vec<LeaseEntry>) -> Self {
        let had: BTreeSet<(&LeaseId, u32)> =
            leases.iter().map(|lease| (&lease.id, lease.owner)).collect();
        waiters.retain(|waiter| !had.contains(&(&waiter.id, waiter.owner)));
        drop(had);
        drop(split_off_late(&mut waiters, MAX_WAITERS_PER_USER));
        let late = split_off_late(&mut leases, MAX_LEASES_PER_USER);
        leases.extend(late.iter().filter_map(|(owner, late)| as_one(*owner, late)));
        Ledger { leases, waiters, stalled: Vec::new() }
    }

    /// Returns the lease that an entry counts within: the nearest live one in its chain of outer
    /// leases. When that one ends, the next outer one is the nearest, so its devices do not become
    /// free.
    ///
    /// Any user can write that an entry is inside another's lease. That counts only if the lease's
    /// owner or root wrote it, and only for devices of that lease. Any other entry stands alone,
    /// and so does an entry without a live outer lease. Another user's copy of the lease, with the
    /// same ID, does not count as the outer lease.
    pub fn parent_of(&self, entry: &LeaseEntry) -> Option<&LeaseEntry> {
        if entry.within.is_empty() {
            return None;
        }
        nearest_outer(entry, &self.by_name())
    }

    /// Returns the leases by ID and owner. An ID may repeat, in directories of the same user.
    fn by_name(&self) -> ByName<'_> {
        let mut by_name = ByName::new();
        for lease in &self.leases {
            by_name.entry((&lease.id, lease.owner)).or_default().push(lease);
        }
        by_name
    }

    /// Returns the entries that compete for the devices of one lease, or of the machine.
    pub fn pool(&self, within: Option<&LeaseEntry>) -> Ledger {
        let by_name = self.by_name();
        let belongs = |entry: &&LeaseEntry| match (nearest_outer(entry, &by_name), within) {
            (None, None) => true,
            (Some(parent), Some(within)) => is_same(parent, within),
            // Some of the leases that count as one may have been taken out of any lease of that
            // user, or of any user if they are root's.
            (None, Some(within)) => {
                let owners = [within.owner, 0, MergedLeases::SEVERAL_USERS];
                entry.merged.is_some() && owners.contains(&entry.owner)
            }
            (Some(_), None) => false,
        };
        Ledger {
            leases: self.leases.iter().filter(belongs).cloned().collect(),
            waiters: self.waiters.iter().filter(belongs).cloned().collect(),
            stalled: self.stalled.iter().filter(belongs).cloned().collect(),
        }
    }

    /// Returns the waiting claims that came before an entry.
    pub fn ahead_of(&self, entry: &LeaseEntry) -> impl Iterator<Item = &LeaseEntry> {
        self.waiters.iter().filter(|other| {
            let is_rival = !entry.claim.is_elsewhere(&other.claim);
            !is_same(other, entry) && other.is_before(entry) && is_rival
        })
    }
}

type ByName<'l> = HashMap<(&'l LeaseId, u32), Vec<&'l LeaseEntry>>;

/// Returns the lease of [`Ledger::parent_of`]. The maker of an entry may write any list of outer leases
/// and devices: each lease is compared once, in time in proportion to its devices.
fn nearest_outer<'l>(entry: &LeaseEntry, by_name: &ByName<'l>) -> Option<&'l LeaseEntry> {
    let mut compared: HashSet<&OuterLease> = HashSet::new();
    let mut outer = entry.within.iter().filter(|within| compared.insert(*within));
    let is_outer = |lease: &&&LeaseEntry| {
        !is_same(lease, entry)
            && (entry.owner == lease.owner || entry.owner == 0)
            && entry.merged.is_none()
            && has_all(lease, &entry.devices)
    };
    outer
        .find_map(|within| by_name.get(&(&within.id, within.owner))?.iter().find(is_outer).copied())
}

fn has_all(lease: &LeaseEntry, devices: &[DeviceUuid]) -> bool {
    let named: HashSet<&DeviceUuid> = lease.devices.iter().collect();
    let is_merged = |device| lease.merged.as_ref().is_some_and(|merged| merged.contains(device));
    devices.iter().all(|device| named.contains(device) || is_merged(device))
}

/// Sorts the entries, the earliest first, and removes those of each owner beyond `most`.
fn split_off_late(entries: &mut Vec<LeaseEntry>, most: usize) -> BTreeMap<u32, Vec<LeaseEntry>> {
    entries.sort_by(|a, b| (a.ticket, &a.id, a.owner).cmp(&(b.ticket, &b.id, b.owner)));
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    let is_late = |entry: &mut LeaseEntry| {
        let count = counts.entry(entry.owner).or_default();
        *count += 1;
        *count > most
    };
    let mut late: BTreeMap<u32, Vec<LeaseEntry>> = BTreeMap::new();
    for entry in entries.extract_if(.., is_late) {
        late.entry(entry.owner).or_default().push(entry);
    }
    late
}

/// Merges these leases into one on the whole of all their devices.
fn as_one(owner: u32, leases: &[LeaseEntry]) -> Option<LeaseEntry> {
    let devices: BTreeSet<&DeviceUuid> = leases.iter().flat_map(|lease| &lease.devices).collect();
    let count: usize = leases.iter().map(LeaseEntry::count).sum();
    let mut merged = MergedLeases::default();
    merged.count = u32::try_from(count).unwrap_or(u32::MAX);
    leases.iter().filter_map(|lease| lease.merged.as_deref()).for_each(|more| merged.add_all(more));
    Some(LeaseEntry {
        id: LeaseId::parse(&format!("more-of-{owner}"))?,
        ticket: leases.first()?.ticket,
        owner,
        root: ProcessKey { pid: Pid(0), start: None },
        within: Vec::new(),
        claim: Claim::whole(u32::try_from(devices.len()).unwrap_or(u32::MAX)),
        devices: devices.into_iter().cloned().collect(),
        parts_of: Vec::new(),
        merged: Some(Arc::new(merged)),
        command: format!("{count} more leases of this user"),
        since: leases.iter().map(|lease| lease.since).min().unwrap_or(Timestamp(0)),
    })
}

/// Returns whether both are the same entry. The ID alone is not enough: the other entry could be
/// another user's copy.
pub(crate) fn is_same(a: &LeaseEntry, b: &LeaseEntry) -> bool {
    a.id == b.id && a.owner == b.owner
}

/// Returns an entry as if it had these devices.
pub(crate) fn granted(entry: &LeaseEntry, devices: Vec<gpu_core::DeviceUuid>) -> LeaseEntry {
    LeaseEntry { devices, ..entry.clone() }
}

/// Returns an entry as if it had these devices exclusively.
pub(crate) fn reserved(entry: &LeaseEntry, devices: Vec<gpu_core::DeviceUuid>) -> LeaseEntry {
    let mut reserved = granted(entry, devices);
    reserved.claim.share = Share::Whole;
    reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, owner: u32, devices: &[&str]) -> LeaseEntry {
        LeaseEntry {
            id: LeaseId::parse(&format!("n-{number}")).unwrap(),
            ticket: number,
            owner,
            root: ProcessKey { pid: Pid(7), start: None },
            within: Vec::new(),
            claim: Claim::whole(1),
            devices: devices.iter().map(|name| DeviceUuid((*name).to_owned())).collect(),
            parts_of: Vec::new(),
            merged: None,
            command: String::new(),
            since: Timestamp(number),
        }
    }

    #[test]
    fn flood_of_waiters_keeps_earliest_and_other_users() {
        let flood = (0..2000).rev().map(|number| entry(number, 7, &[]));
        let others = [entry(5000, 8, &[]), entry(1, 8, &[])];
        let ledger = Ledger::new(Vec::new(), flood.chain(others).collect());
        let tickets = |owner| {
            let waiters = ledger.waiters.iter().filter(move |waiter| waiter.owner == owner);
            waiters.map(|waiter| waiter.ticket).collect::<Vec<_>>()
        };
        assert_eq!(tickets(7), (0..64).collect::<Vec<_>>());
        assert_eq!(tickets(8), [1, 5000]);
        assert!(ledger.waiters.is_sorted_by_key(|waiter| waiter.ticket));
    }

    #[test]
    fn flood_of_leases_keeps_every_device() {
        let mut leases: Vec<_> = (0..1000).map(|number| entry(number, 7, &["a"])).collect();
        leases.push(LeaseEntry { within: entry(3, 7, &[]).nested(), ..entry(1001, 7, &["b"]) });
        leases.push(entry(1002, 8, &["c"]));
        let ledger = Ledger::new(leases, Vec::new());
        assert_eq!(ledger.leases.len(), 256 + 1 + 1);
        let more = ledger.leases.iter().find(|lease| lease.id.as_str() == "more-of-7").unwrap();
        assert_eq!((more.owner, more.claim.clone()), (7, Claim::whole(2)));
        assert_eq!(more.devices, entry(0, 7, &["a", "b"]).devices);
        assert_eq!(more.command, "745 more leases of this user");
        let within = |lease: LeaseEntry| ledger.pool(Some(&lease)).leases.contains(more);
        assert!(ledger.pool(None).leases.contains(more));
        assert!(within(entry(3, 7, &["a"])), "it may be one of those that were taken out of this");
        assert!(!within(entry(1002, 8, &["c"])));
    }

    #[test]
    fn nested_lease_of_root_survives_flood() {
        let outer = entry(2000, 8, &["a", "b"]);
        let mut leases: Vec<_> = (0..256).map(|number| entry(number, 0, &["c"])).collect();
        leases.extend([
            LeaseEntry { within: outer.nested(), ..entry(1000, 0, &["a"]) },
            outer.clone(),
        ]);
        let pool = Ledger::new(leases, Vec::new()).pool(Some(&outer));
        let [more] = &pool.leases[..] else { panic!("{pool:?}") };
        assert_eq!((more.owner, &more.devices), (0, &entry(0, 0, &["a"]).devices));
    }

    #[test]
    fn nearest_live_outer_lease_counts_however_long_the_list_is() {
        let outer = entry(1, 7, &["a", "b"]);
        let small = entry(2, 7, &["a"]);
        let within = |leases: &[&LeaseEntry], devices: &[&str]| {
            let ended = OuterLease { id: LeaseId::parse("ended").unwrap(), owner: 7 };
            let live = leases.iter().flat_map(|lease| vec![lease.nested()[0].clone(); 20]);
            LeaseEntry { within: [ended].into_iter().chain(live).collect(), ..entry(9, 7, devices) }
        };
        let ledger = Ledger::new(vec![outer.clone(), small.clone()], Vec::new());
        let parent = |entry: &LeaseEntry| {
            let parent = ledger.parent_of(entry).cloned();
            let all =
                Ledger::new([&ledger.leases[..], std::slice::from_ref(entry)].concat(), Vec::new());
            assert!(all.pool(parent.as_ref()).leases.contains(entry));
            parent
        };
        assert_eq!(parent(&within(&[&small, &outer], &["a"])), Some(small.clone()));
        assert_eq!(parent(&within(&[&small, &outer], &["a", "b"])), Some(outer.clone()));
        assert_eq!(parent(&within(&[&small, &outer], &["a", "c"])), None);
        assert_eq!(parent(&within(&[], &["a"])), None);
    }

    #[test]
    fn lease_is_not_within_itself() {
        let lease = entry(1, 7, &["a"]);
        let circular = LeaseEntry { within: lease.nested(), ..lease };
        let ledger = Ledger::new(vec![circular.clone()], Vec::new());
        assert_eq!(ledger.parent_of(&circular), None);
        assert_eq!(ledger.pool(None).leases, [circular]);
    }

    /// IDs are public, and root may take devices out of any lease.
    #[test]
    fn copied_lease_id_does_not_detach_nested_lease_of_root() {
        let outer = entry(2000, 8, &["a", "b"]);
        let roots = LeaseEntry { within: outer.nested(), ..entry(1000, 0, &["a"]) };
        let copy = LeaseEntry { ticket: 0, owner: 7, ..outer.clone() };
        for leases in [[copy.clone(), outer.clone()], [outer.clone(), copy.clone()]] {
            let ledger = Ledger::new([&leases[..], std::slice::from_ref(&roots)].concat(), vec![]);
            assert_eq!(ledger.parent_of(&roots), Some(&outer));
            assert_eq!(ledger.pool(Some(&outer)).leases, std::slice::from_ref(&roots));
            assert_eq!(ledger.pool(Some(&copy)).leases, []);
        }
    }

    #[test]
    fn claim_with_devices_is_no_longer_waiting() {
        let (has, waits) = (entry(1, 7, &["a"]), entry(1, 8, &[]));
        let ledger = Ledger::new(
            vec![has.clone()],
            vec![LeaseEntry { devices: vec![], ..has }, waits.clone()],
        );
        assert_eq!(ledger.waiters, [waits]);
    }
}
