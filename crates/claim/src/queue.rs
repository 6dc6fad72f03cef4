//! The queue as one claim sees it.
//!
//! Among one user's claims with the same request, only the first can be next. Each of the others
//! sleeps until the one before it has left: a grant wakes one of them, however many there are.

use crate::admission::AtPlace;
use crate::ledger::{Ledger, is_same};
use crate::request::Ahead;
use gpu_core::{Claim, LeaseEntry, LeaseStore, QueuePlace, Result, Waiter};
use std::collections::HashSet;

/// The places in the queue before a claim's own.
pub(crate) struct Queue<'a> {
    locks: &'a dyn LeaseStore,
    own: Option<QueuePlace>,
    earlier: Vec<QueuePlace>,
    /// The places of claims that no longer live.
    dead: HashSet<QueuePlace>,
    nearest: Option<LeaseEntry>,
    stalled: Vec<LeaseEntry>,
}

impl<'a> Queue<'a> {
    /// Lists the places before an entry's own; all places if it has none.
    pub(crate) fn read(locks: &'a dyn LeaseStore, entry: &LeaseEntry) -> Result<Self> {
        let mut earlier = locks.queue()?;
        let own = earlier.iter().find(|place| place.is_of(entry)).cloned();
        let end = (entry.ticket, &entry.id, entry.owner);
        earlier.retain(|place| (place.ticket, &place.id, place.owner) < end);
        Ok(Queue { locks, own, earlier, dead: HashSet::new(), nearest: None, stalled: Vec::new() })
    }

    /// Returns the places before the claim's own, the earliest first.
    pub(crate) fn earlier(&self) -> Vec<QueuePlace> {
        self.earlier.clone()
    }

    /// Returns how many earlier places of the same user have the same request, according to their
    /// names.
    pub(crate) fn rank(&self) -> u32 {
        let Some(own) = &self.own else { return 0 };
        let same = |place: &&QueuePlace| (place.owner, place.class) == (own.owner, own.class);
        u32::try_from(self.earlier.iter().filter(same).count()).unwrap_or(u32::MAX)
    }

    /// Returns the nearest earlier place of the same user with the same request that is not
    /// stalled.
    pub(crate) fn before(&mut self, entry: &LeaseEntry) -> Result<Option<QueuePlace>> {
        let Some(own) = self.own.clone() else { return Ok(None) };
        let same = |place: &&QueuePlace| (place.owner, place.class) == (own.owner, own.class);
        let places: Vec<QueuePlace> = self.earlier.iter().rev().filter(same).cloned().collect();
        for place in places {
            if let Some(other) = self.waiter(&place)?
                && (&other.claim, &other.within) == (&entry.claim, &entry.within)
            {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Returns the claim at a place; `None` if it is dead or stalled.
    fn waiter(&mut self, place: &QueuePlace) -> Result<Option<LeaseEntry>> {
        match self.locks.waiter(place)? {
            None => {
                self.dead.insert(place.clone());
                Ok(None)
            }
            Some(Waiter { entry, is_stalled: true }) => {
                if !self.stalled.iter().any(|known| is_same(known, &entry)) {
                    self.stalled.push(entry);
                }
                Ok(None)
            }
            Some(Waiter { entry, is_stalled: false }) => {
                let is_nearer = |known: &LeaseEntry| known.is_before(&entry);
                if self.nearest.as_ref().is_none_or(is_nearer) {
                    self.nearest = Some(entry.clone());
                }
                Ok(Some(entry))
            }
        }
    }

    /// Returns what a place holds, as seen by a claim on the devices of a lease, or of the machine.
    pub(crate) fn rival(
        &mut self,
        place: &QueuePlace,
        leases: &Ledger,
        claim: &Claim,
        within: Option<&LeaseEntry>,
    ) -> Result<AtPlace> {
        // A claim that has its devices already, and is about to leave the queue, no longer
        // competes.
        if leases.leases.iter().any(|lease| place.is_of(lease)) {
            return Ok(AtPlace::Empty);
        }
        let Some(entry) = self.waiter(place)? else { return Ok(AtPlace::Empty) };
        let is_rival = match (leases.parent_of(&entry), within) {
            (None, None) => !claim.is_elsewhere(&entry.claim),
            (Some(parent), Some(within)) => is_same(parent, within),
            _ => false,
        };
        Ok(if is_rival { AtPlace::Rival(Box::new(entry)) } else { AtPlace::Elsewhere })
    }

    /// Returns the claims ahead, as far as they were read.
    pub(crate) fn ahead(&self) -> Ahead {
        let is_passed = |place: &QueuePlace| {
            self.dead.contains(place) || self.stalled.iter().any(|entry| place.is_of(entry))
        };
        Ahead {
            count: self.earlier.iter().filter(|place| !is_passed(place)).count(),
            nearest: self.nearest.clone(),
            stalled: self.stalled.clone(),
        }
    }
}
