//! Selects the devices that are eligible for a claim, and gives the reason for rejecting the
//! others.

use crate::offer::{Bar, Offer, Passed, Refusal};
use crate::scores::{MAX, Set};
use gpu_core::{Claim, DeviceUuid, Share};
use std::collections::BTreeSet;

/// The devices that are eligible for a claim now, at least as many as it requests.
pub(crate) struct Pool {
    /// Their positions in the list of offers, ascending.
    pub(crate) positions: Vec<usize>,
    /// The required devices as positions in the pool.
    pub(crate) required: Set,
    /// The requested number.
    pub(crate) size: usize,
    /// The other devices, with the reason.
    pub(crate) passed: Vec<(usize, Passed)>,
}

impl Pool {
    /// Selects the devices that are eligible for a claim now.
    ///
    /// # Errors
    /// When there are too few, or a required one is not eligible.
    pub(crate) fn of(claim: &Claim, offers: &[Offer]) -> Result<Self, Refusal> {
        let required: BTreeSet<&DeviceUuid> = claim.required.iter().collect();
        let size = usize::try_from(claim.count).unwrap_or(usize::MAX);
        if size == 0 || required.len() > size {
            return Err(Refusal::Contradictory);
        }
        let (mut free, mut passed) = (Vec::new(), Vec::new());
        for (position, offer) in offers.iter().enumerate() {
            match reason(claim, offers, offer) {
                None => free.push(position),
                Some(reason) => passed.push((position, reason)),
            }
        }
        let mut must = Vec::with_capacity(required.len());
        for uuid in required {
            let is_it = |offer: &Offer| offer.id.has_key(uuid);
            let position = offers.iter().position(is_it);
            must.push(position.ok_or_else(|| Refusal::Missing(uuid.clone()))?);
        }
        let lasting = |(_, reason): &&(usize, Passed)| reason.is_lasting();
        let never: BTreeSet<usize> =
            passed.iter().filter(lasting).map(|(position, _)| *position).collect();
        let could = (offers.len() - never.len()).min(MAX);
        if could < size || must.iter().any(|position| never.contains(position)) {
            let could = could as u32;
            return Err(Refusal::Never { could, passed });
        }
        if free.len() < size || must.iter().any(|position| !free.contains(position)) {
            return Err(Refusal::NotNow { free, could: could as u32, passed });
        }
        let mut pool = Pool { positions: free, required: 0, size, passed };
        pool.spare_displays(offers, &must);
        pool.drop_beyond(MAX, &must);
        pool.passed.sort_by_key(|(position, _)| *position);
        let is_required = |(_, position): &(usize, &usize)| must.contains(position);
        let required = pool.positions.iter().enumerate().filter(is_required);
        pool.required = required.fold(0, |set, (bit, _)| set | 1 << bit);
        Ok(pool)
    }

    /// Rejects devices that drive a display if there are enough others.
    fn spare_displays(&mut self, offers: &[Offer], must: &[usize]) {
        let is_spared = |position: &usize| offers[*position].display && !must.contains(position);
        let spared = self.positions.iter().filter(|position| is_spared(position)).count();
        if self.positions.len() - spared >= self.size {
            let displays = self.positions.extract_if(.., |position| is_spared(position));
            self.passed.extend(displays.map(|position| (position, Passed::DrivesDisplay)));
        }
    }

    /// Rejects devices beyond the limit; required ones come first.
    fn drop_beyond(&mut self, most: usize, must: &[usize]) {
        let mut beyond = self.positions.len().saturating_sub(most);
        while beyond > 0 {
            let Some(last) = self.positions.iter().rposition(|position| !must.contains(position))
            else {
                return;
            };
            self.passed.push((self.positions.remove(last), Passed::OtherSetBetter));
            beyond -= 1;
        }
    }
}

/// Returns why a device is not eligible for a claim now; permanent reasons come before temporary
/// ones.
fn reason(claim: &Claim, offers: &[Offer], offer: &Offer) -> Option<Passed> {
    let named = |uuid: &DeviceUuid| offer.id.has_key(uuid);
    let key = offer.id.lease_key();
    let same = offers.iter().filter(|other| other.id.lease_key() == key).count();
    if key.is_err() || same > 1 {
        // A lost device has a worse problem.
        let fault = offer.bar.clone().filter(|bar| matches!(bar, Bar::Faulty(_)));
        return Some(Passed::Barred(fault.unwrap_or(Bar::NameUnknown)));
    }
    if claim.except.iter().any(named) {
        return Some(Passed::Excluded);
    }
    if !claim.among.is_empty() && !claim.among.iter().any(named) {
        return Some(Passed::NotAmong);
    }
    let barred = |lasting| {
        let bar = offer.bar.as_ref().filter(|bar| bar.is_lasting() == lasting);
        bar.cloned().map(Passed::Barred)
    };
    barred(true)
        .or_else(|| too_old(claim, offer))
        .or_else(|| too_small(claim, offer))
        .or_else(|| barred(false))
        .or_else(|| too_full(claim, offer))
}

fn too_old(claim: &Claim, offer: &Offer) -> Option<Passed> {
    let needs = claim.compute_capability?;
    match offer.compute_capability {
        Ok(has) if has >= needs => None,
        Ok(has) => Some(Passed::LowCapability { has, needs }),
        Err(absent) => Some(Passed::CapabilityUnknown(absent)),
    }
}

fn too_small(claim: &Claim, offer: &Offer) -> Option<Passed> {
    let share = match claim.share {
        Share::Whole => None,
        Share::Memory(share) => Some(share),
    };
    let needs = share.max(claim.free_memory)?;
    match offer.capacity {
        Ok(has) if has >= needs => None,
        Ok(has) => Some(Passed::LacksMemory { has, needs }),
        Err(absent) => Some(Passed::MemoryUnknown(absent)),
    }
}

fn too_full(claim: &Claim, offer: &Offer) -> Option<Passed> {
    let share = match claim.share {
        Share::Whole => None,
        Share::Memory(needs) => Some((offer.room, needs)),
    };
    let free = claim.free_memory.map(|needs| (offer.free, needs));
    let lacks = |(has, needs)| match has {
        Ok(has) if has >= needs => None,
        Ok(has) => Some(Passed::LacksRoom { has, needs }),
        Err(absent) => Some(Passed::MemoryUnknown(absent)),
    };
    share.and_then(lacks).or_else(|| free.and_then(lacks))
}
