//! The decisions of a claim, based on its reading. The order of claims and their conflicts come
//! from gpu-claim itself; the judgement of a try is implemented here again, in a simpler form.

use crate::dir::{Id, Text, Uid};
use gpu_claim::{Chosen, Ledger, Turn, turn};
use gpu_core::{
    Bytes, Claim, DeviceUuid, LeaseEntry, LeaseId, OuterLease, Pid, ProcessKey, Share, Timestamp,
};
use std::cell::RefCell;
use std::collections::HashMap;

/// The memory of each device, in GiB.
pub(crate) const TOTAL: u8 = 16;
/// A bit per device.
pub(crate) const DEVICES: u8 = 0b11;

/// The distance between the model's tickets: no ticket is early enough to backfill devices reserved
/// for an earlier claim.
const TICKET_NS: u64 = 3600 * 1_000_000_000;

/// An entry as seen by a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) owner: Uid,
    pub(crate) id: Id,
    pub(crate) kind: Kind,
    /// In the text of a waiting claim, `devices` is the number of devices.
    pub(crate) text: Text,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Waiter,
    Try,
    Lease,
}

impl Seen {
    pub(crate) fn is_before(&self, other: &Seen) -> bool {
        (self.text.ticket, self.id, self.owner) < (other.text.ticket, other.id, other.owner)
    }

    fn entry(&self) -> LeaseEntry {
        let id = |id: Id| LeaseId::parse(&format!("n-{id}")).expect("plain letters");
        let (count, devices) = match self.kind {
            Kind::Waiter => (u32::from(self.text.devices), Vec::new()),
            _ => (self.text.devices.count_ones(), names(self.text.devices)),
        };
        let share = match self.text.memory {
            TOTAL => Share::Whole,
            part => Share::Memory(Bytes(u64::from(part))),
        };
        LeaseEntry {
            id: id(self.id),
            ticket: u64::from(self.text.ticket) * TICKET_NS,
            owner: u32::from(self.owner),
            root: ProcessKey { pid: Pid(1), start: None },
            within: self
                .text
                .within
                .map(|(outer, owner)| OuterLease { id: id(outer), owner: u32::from(owner) })
                .into_iter()
                .collect(),
            claim: Claim { share, ..Claim::whole(count) },
            devices,
            parts_of: Vec::new(),
            merged: None,
            command: String::new(),
            since: Timestamp(0),
        }
    }
}

/// The decision of a claim after it has read all entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is enough room with all others present.
    Confirm,
    /// A lease, or an earlier try, conflicts.
    Withdraw,
    /// Only later tries conflict, and those withdraw.
    Again,
    /// The lease that it is taken out of has ended.
    Refused,
}

/// Returns whether each of these devices has room.
pub(crate) fn fits(devices: u8, memory: u8, others: &[Seen]) -> bool {
    bits(devices).all(|device| {
        let on = others.iter().filter(|other| other.text.devices & device != 0);
        let taken: u16 = on.map(|other| u16::from(other.text.memory)).sum();
        taken + u16::from(memory) <= u16::from(TOTAL)
    })
}

/// Returns the first devices with room for a claim.
pub(crate) fn choose(count: u8, memory: u8, among: u8, others: &[Seen]) -> Option<u8> {
    let free = bits(among).filter(|device| fits(*device, memory, others));
    let chosen: Vec<u8> = free.take(usize::from(count)).collect();
    (chosen.len() == usize::from(count)).then(|| chosen.iter().sum())
}

/// Judges a try.
pub(crate) fn judge(mine: &Seen, seen: &[Seen], later_wins: bool) -> Verdict {
    let Some(mut pool) = pool(mine, seen) else { return Verdict::Refused };
    let fits = |others: &[Seen]| fits(mine.text.devices, mine.text.memory, others);
    let fits_with_all = fits(&pool);
    let yields = |other: &Seen| other.kind == Kind::Try && mine.is_before(other) != later_wins;
    pool.retain(|other| !yields(other));
    match (fits_with_all, fits(&pool)) {
        (true, _) => Verdict::Confirm,
        (false, true) => Verdict::Again,
        (false, false) => Verdict::Withdraw,
    }
}

type Read = (Seen, Vec<Seen>);

thread_local! {
    /// Millions of states have only a few distinct readings.
    static POOLS: RefCell<HashMap<Read, Option<Vec<Seen>>>> = RefCell::default();
    static TURNS: RefCell<HashMap<Read, Option<u8>>> = RefCell::default();
}

/// Returns the tries and leases that compete with a try; `None` if the lease that it is taken out
/// of was not seen.
fn pool(mine: &Seen, seen: &[Seen]) -> Option<Vec<Seen>> {
    let find = || {
        let leases = seen.iter().filter(|other| other.kind != Kind::Waiter);
        let ledger = Ledger::new(leases.map(Seen::entry).collect(), Vec::new());
        let own = mine.entry();
        let parent = ledger.parent_of(&own).cloned();
        if parent.is_none() && mine.text.within.is_some() {
            return None;
        }
        let pool = ledger.pool(parent.as_ref()).leases;
        let in_pool = |other: &&Seen| {
            let entry = other.entry();
            other.kind != Kind::Waiter
                && pool.iter().any(|one| (&one.id, one.owner) == (&entry.id, entry.owner))
        };
        Some(seen.iter().filter(in_pool).copied().collect())
    };
    POOLS.with_borrow_mut(|known| known.entry((*mine, seen.to_vec())).or_insert_with(find).clone())
}

/// Returns the devices that a claim may try to take; `mine` is its queue entry.
pub(crate) fn decide(mine: &Seen, seen: &[Seen]) -> Option<u8> {
    let find = || {
        let of_kind = |waits: bool| {
            let seen = seen.iter().filter(move |other| (other.kind == Kind::Waiter) == waits);
            seen.map(Seen::entry).collect()
        };
        let ledger = Ledger::new(of_kind(false), of_kind(true));
        let own = mine.entry();
        let parent = ledger.parent_of(&own).cloned();
        if parent.is_none() && mine.text.within.is_some() {
            return None;
        }
        let among = parent.as_ref().map_or(DEVICES, |parent| set(&parent.devices));
        match turn(&own, &ledger.pool(parent.as_ref()), &|claim, others| {
            chosen(claim, among, others)
        }) {
            Turn::Take(devices) => Some(set(&devices)),
            Turn::Wait | Turn::Never => None,
        }
    };
    TURNS.with_borrow_mut(|known| *known.entry((*mine, seen.to_vec())).or_insert_with(find))
}

/// Chooses like [`choose`], with the types of gpu-claim.
pub(crate) fn chosen(claim: &Claim, among: u8, others: &[LeaseEntry]) -> Chosen {
    let among = if claim.among.is_empty() { among } else { among & set(&claim.among) };
    let memory = |share: Share| match share {
        Share::Whole => TOTAL,
        Share::Memory(bytes) => u8::try_from(bytes.0).expect("a share of a device"),
    };
    let seen = |entry: &LeaseEntry| {
        let (devices, memory) = (set(&entry.devices), memory(entry.claim.share));
        let text = Text { id: 0, ticket: 0, devices, memory, within: None };
        Seen { owner: 0, id: 0, kind: Kind::Lease, text }
    };
    let others: Vec<Seen> = others.iter().map(seen).collect();
    let count = u8::try_from(claim.count).expect("few devices");
    match choose(count, memory(claim.share), among, &others) {
        Some(devices) => Chosen::Devices(names(devices)),
        None => Chosen::NotNow { could: names(among) },
    }
}

fn bits(devices: u8) -> impl Iterator<Item = u8> {
    (0..8).map(|number| 1 << number).filter(move |device| devices & device != 0)
}

fn names(devices: u8) -> Vec<DeviceUuid> {
    bits(devices).map(|device| DeviceUuid(format!("GPU-{device}"))).collect()
}

fn set(devices: &[DeviceUuid]) -> u8 {
    let bit = |device: &DeviceUuid| device.0["GPU-".len()..].parse::<u8>().expect("one of ours");
    devices.iter().map(bit).sum()
}
