//! The properties, checked on the actions of claims rather than on the content of files.

use crate::claimant::Reading;
use crate::dir::Id;
use crate::machine::{Machine, State};
use crate::rule::{DEVICES, Kind, Seen, TOTAL, Verdict, choose, fits};

/// Confirmed leases with a living supervisor or job do not conflict. Leases taken out of a living
/// lease stay within it and do not conflict there.
pub(crate) fn double_grant(machine: &Machine, state: &State) -> Option<String> {
    let lives = |claimant: usize| state.claimants[claimant].is_confirmed();
    let outer = |claimant: usize| {
        let outer = machine.setups[claimant].within.map(usize::from);
        outer.filter(|outer| lives(*outer))
    };
    let all = || (0..machine.setups.len()).filter(|claimant| lives(*claimant));
    for within in std::iter::once(None).chain(all().map(Some)) {
        let room = within.map_or(TOTAL, |outer| machine.setups[outer].memory);
        for device in [0b01, 0b10] {
            let on = || {
                all().filter(|claimant| {
                    outer(*claimant) == within && state.claimants[*claimant].devices & device != 0
                })
            };
            let sum: u32 = on().map(|claimant| u32::from(machine.setups[claimant].memory)).sum();
            if sum > u32::from(room) {
                let who: Vec<usize> = on().collect();
                return Some(format!("device {device:02b} is granted to {who:?} at once"));
            }
        }
    }
    None
}

/// Returns the claims that others must currently see, except one.
pub(crate) fn published(state: &State, me: usize) -> u8 {
    let others = state.claimants.iter().enumerate().filter(|(id, _)| *id != me);
    others.filter(|(_, claimant)| claimant.is_published()).map(|(id, _)| 1 << id).sum()
}

/// Returns the waiting claims ahead of one.
pub(crate) fn waiting(machine: &Machine, state: &State, me: usize) -> u8 {
    let ticket = machine.setups[me].ticket;
    let waits = |id: usize| {
        let claimant = &state.claimants[id];
        claimant.queued && !claimant.stalled && machine.setups[id].ticket < ticket
    };
    (0..machine.setups.len()).filter(|id| waits(*id)).map(|id| 1 << id).sum()
}

/// Records that an entry has ended: readings in progress need no longer see it.
pub(crate) fn no_longer_published(state: &mut State, who: usize) {
    for reading in state.claimants.iter_mut().filter_map(|claimant| claimant.reading_mut()) {
        reading.must &= !(1 << who);
    }
}

/// Records that a claim no longer waits or does not renew its place.
pub(crate) fn no_longer_waits(state: &mut State, who: usize) {
    for reading in state.claimants.iter_mut().filter_map(|claimant| claimant.reading_mut()) {
        reading.must_wait &= !(1 << who);
    }
}

/// A reading sees every entry that existed when it began and still does.
pub(crate) fn missed(
    machine: &Machine,
    state: &State,
    me: usize,
    reading: &Reading,
) -> Option<String> {
    let sees = |id: usize| {
        reading.seen.iter().any(|seen| {
            usize::from(seen.id) == id
                && seen.owner == machine.setups[id].owner
                && seen.kind != Kind::Waiter
                && seen.text.devices == state.claimants[id].devices
        })
    };
    let mut must = (0..machine.setups.len()).filter(|id| reading.must & (1 << id) != 0);
    must.find(|id| !sees(*id)).map(|id| format!("{me} misses the entry of {id}"))
}

/// A claim takes no device that a claim ahead of it could use and would then lack.
pub(crate) fn passed(
    machine: &Machine,
    me: usize,
    devices: u8,
    seen: &[Seen],
    reading: &Reading,
) -> Option<String> {
    let has =
        |id: usize| seen.iter().any(|seen| usize::from(seen.id) == id && seen.kind != Kind::Waiter);
    let mine = mine(machine, me, devices);
    let others = seen.iter().filter(|seen| seen.kind != Kind::Waiter).chain([&mine]);
    let others: Vec<Seen> = others.copied().collect();
    let mut before = (0..machine.setups.len())
        .filter(|id| reading.must_wait & (1 << id) != 0 && !has(*id))
        .filter(|id| {
            let setup = &machine.setups[*id];
            choose(setup.count, setup.memory, DEVICES, &others).is_none()
        });
    before.next().map(|id| format!("{me} passes {id}, which came before it"))
}

/// The first of several conflicting tries never withdraws because of the others.
pub(crate) fn starved(
    machine: &Machine,
    me: usize,
    devices: u8,
    seen: &[Seen],
    verdict: Verdict,
) -> Option<String> {
    let ticket = machine.setups[me].ticket;
    let first = |other: &&Seen| other.kind == Kind::Lease || other.text.ticket < ticket;
    let before: Vec<Seen> = seen.iter().filter(first).copied().collect();
    let room = fits(devices, machine.setups[me].memory, &before);
    (verdict == Verdict::Withdraw && room)
        .then(|| format!("{me} withdraws, and only later tries are in its way"))
}

fn mine(machine: &Machine, me: usize, devices: u8) -> Seen {
    let setup = &machine.setups[me];
    let text = crate::dir::Text {
        id: me as Id,
        ticket: setup.ticket,
        devices,
        memory: setup.memory,
        within: setup.within.map(|outer| (outer, machine.setups[usize::from(outer)].owner)),
    };
    Seen { owner: setup.owner, id: me as Id, kind: Kind::Try, text }
}
