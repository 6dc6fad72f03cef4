//! Prefers unused devices over used ones, if a claim accepts both.

use crate::claim_context::ClaimContext;
use crate::offers::{ClaimSurroundings, offers};
use gpu_core::{Claim, DeviceUuid};
use gpu_placement::{Bar, Choice, Offer, Passed, Refusal};

/// Chooses for a claim, and returns the devices to choose from.
///
/// A claim that accepts used devices gets as many unused ones as there are; the topology and all
/// later rules come second. Within a lease there is no such distinction, because the ownership of
/// its devices was settled when the lease was made.
pub(crate) fn choose(
    context: &ClaimContext,
    claim: &Claim,
    surroundings: ClaimSurroundings<'_>,
) -> (Vec<Offer>, Result<Choice, Refusal>) {
    let all = offers(context, claim, surroundings);
    let topology = context.topology.as_ref();
    let plain = |claim: &Claim, offers: &[Offer]| gpu_placement::choose(claim, offers, topology);
    let used =
        if claim.accept_used { used(context, claim, surroundings, &all) } else { Vec::new() };
    if used.iter().all(Option::is_none) {
        let chosen = plain(claim, &all);
        return (all, chosen);
    }
    let is_required =
        |offer: &Offer| offer.id.lease_key().is_ok_and(|key| claim.required.contains(&key));
    let mut unused = all.clone();
    for (offer, bar) in unused.iter_mut().zip(&used) {
        if !is_required(offer) {
            offer.bar = offer.bar.take().or_else(|| bar.clone());
        }
    }
    let chosen = match plain(claim, &unused) {
        // The choice contains all free devices, and some used ones.
        Err(Refusal::NotNow { passed, .. } | Refusal::Never { passed, .. }) => {
            let mut wider = claim.clone();
            wider.required.extend(others(&all, &passed).filter(|u| !claim.required.contains(u)));
            plain(&wider, &all).or_else(|_| plain(claim, &all))
        }
        chosen => chosen,
    };
    let chosen = chosen.map(|mut choice| {
        for (index, why) in &mut choice.passed {
            if let (Passed::OtherSetBetter, Some(Some(bar))) = (&why, used.get(*index)) {
                *why = Passed::Barred(bar.clone());
            }
        }
        choice
    });
    (all, chosen)
}

/// Returns for each device why it would be excluded if the claim did not accept use by others.
fn used(
    context: &ClaimContext,
    claim: &Claim,
    surroundings: ClaimSurroundings<'_>,
    all: &[Offer],
) -> Vec<Option<Bar>> {
    let strict = Claim { accept_used: false, ..claim.clone() };
    let strict = offers(context, &strict, surroundings).into_iter();
    strict.zip(all).map(|(strict, offer)| strict.bar.filter(|_| offer.bar.is_none())).collect()
}

/// Returns the devices that were not rejected.
fn others<'a>(
    offers: &'a [Offer],
    passed: &'a [(usize, Passed)],
) -> impl Iterator<Item = DeviceUuid> + 'a {
    let is_left = |index: &usize| !passed.iter().any(|(other, _)| other == index);
    let left = offers.iter().enumerate().filter(move |(index, _)| is_left(index));
    left.filter_map(|(_, offer)| Some(offer.id.lease_key().ok()?.into_owned()))
}
