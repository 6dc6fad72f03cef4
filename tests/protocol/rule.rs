//! What a claim decides by what it has read: the seam to the decisions of the program.

use crate::folder::{Id, ROOT, Text, Uid};

/// Memory of each device, GiB.
pub(crate) const TOTAL: u8 = 16;
/// A bit for each device.
pub(crate) const DEVICES: u8 = 0b11;

/// An entry as a reading has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) owner: Uid,
    pub(crate) id: Id,
    pub(crate) kind: Kind,
    pub(crate) text: Text,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    Waiter,
    Try,
    Lease,
}

impl Seen {
    fn is_before(&self, other: &Seen) -> bool {
        (self.text.ticket, self.id, self.owner) < (other.text.ticket, other.id, other.owner)
    }

    fn is_within(&self, outer: &Seen) -> bool {
        self.text.within == Some(outer.id)
            && outer.kind == Kind::Lease
            && (self.owner == outer.owner || self.owner == ROOT)
            && self.text.devices & !outer.text.devices == 0
    }
}

/// What a claim does after it has read everybody's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Confirm,
    Withdraw,
    /// It conflicts with later tries only: those withdraw.
    Again,
    /// The lease that it is taken out of has ended.
    Refused,
}

/// Returns whether there is room on each of these devices.
pub(crate) fn fits(devices: u8, memory: u8, beside: &[&Seen]) -> bool {
    (0..8).filter(|device| devices & (1 << device) != 0).all(|device| {
        let on = beside.iter().filter(|other| other.text.devices & (1 << device) != 0);
        on.map(|other| u16::from(other.text.memory)).sum::<u16>() + u16::from(memory)
            <= u16::from(TOTAL)
    })
}

/// Returns the entries that compete with one; `None` when the lease that it is taken out of is not
/// among those that were seen.
pub(crate) fn pool<'a>(mine: &Seen, seen: &'a [Seen]) -> Option<Vec<&'a Seen>> {
    let parent_of = |entry: &Seen| seen.iter().position(|outer| entry.is_within(outer));
    let mine_in = parent_of(mine);
    if mine.text.within.is_some() && mine_in.is_none() {
        return None;
    }
    Some(seen.iter().filter(|other| parent_of(other) == mine_in).collect())
}

/// Judges a try.
pub(crate) fn judge(mine: &Seen, seen: &[Seen], higher_wins: bool) -> Verdict {
    let Some(mut pool) = pool(mine, seen) else { return Verdict::Refused };
    let fits = |beside: &[&Seen]| fits(mine.text.devices, mine.text.memory, beside);
    let all = fits(&pool);
    let yields = |other: &Seen| other.kind == Kind::Try && mine.is_before(other) != higher_wins;
    pool.retain(|other| !yields(other));
    match (all, fits(&pool)) {
        (true, _) => Verdict::Confirm,
        (false, true) => Verdict::Again,
        (false, false) => Verdict::Withdraw,
    }
}

/// Returns the first devices on which there is room for a claim.
pub(crate) fn choose(count: u8, memory: u8, among: u8, beside: &[&Seen]) -> Option<u8> {
    let free = (0..8).map(|device| 1u8 << device).filter(|device| {
        among & device != 0 && fits(*device, memory, beside)
    });
    let chosen: Vec<u8> = free.take(usize::from(count)).collect();
    (chosen.len() == usize::from(count)).then(|| chosen.iter().sum())
}

/// Returns the devices that a claim may try to take: what those that came before it leave.
pub(crate) fn decide(mine: &Seen, count: u8, seen: &[Seen]) -> Option<u8> {
    let pool = pool(mine, seen)?;
    let outer = seen.iter().find(|outer| mine.is_within(outer));
    let among = outer.map_or(DEVICES, |outer| outer.text.devices);
    let (waiters, mut taken): (Vec<&Seen>, Vec<&Seen>) =
        pool.into_iter().partition(|other| other.kind == Kind::Waiter);
    let granted: Vec<Seen> = {
        let mut granted: Vec<Seen> = Vec::new();
        for waiter in waiters.into_iter().filter(|other| other.is_before(mine)) {
            let beside: Vec<&Seen> = taken.iter().copied().chain(&granted).collect();
            // The text of a waiter says in its devices how many it wants.
            let chosen = choose(waiter.text.devices, waiter.text.memory, DEVICES, &beside);
            let (devices, memory) = match chosen {
                Some(devices) => (devices, waiter.text.memory),
                None => (DEVICES, TOTAL),
            };
            granted.push(Seen { text: Text { devices, memory, ..waiter.text }, ..*waiter });
        }
        granted
    };
    taken.extend(&granted);
    choose(count, mine.text.memory, among, &taken)
}
