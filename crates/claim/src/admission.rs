//! The order of claims: first come, first served, among claims that share devices.

use crate::ledger::{
    Ledger, MAX_PLACES_READ_PER_USER, MAX_WAITERS_PER_USER, granted, is_same, reserved,
};
use crate::request::Chosen;
use gpu_core::{Claim, DeviceUuid, LeaseEntry, QueuePlace, Result};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// The decision about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Take these devices.
    Take(Vec<DeviceUuid>),
    /// Wait.
    Wait,
    /// Give up.
    Never,
}

/// A claim may pass an earlier one that cannot be served yet if it came at most this long after it.
/// Claims that arrive together therefore fill the devices, and a wide claim waits for finitely many
/// others: those of its first minute.
const BACKFILL: Duration = Duration::from_secs(60);

/// Returns the decision about a claim, given its competitors ([`Ledger::pool`]).
///
/// This simulates serving every earlier claim first. A claim that can be served now gets the
/// devices that it would choose. For a claim that cannot, every device that it could use is set
/// aside, except for claims that came within a minute after it. This claim gets what remains. It
/// therefore never waits for a claim that came more than a minute later, however many devices it
/// needs. Of the claims that came within the minute, it waits only for those that could be served
/// before it. `choose` may be called for devices that are both leased and set aside.
pub fn turn(
    entry: &LeaseEntry,
    pool: &Ledger,
    choose: &dyn Fn(&Claim, &[LeaseEntry]) -> Chosen,
) -> Turn {
    let waiters: Vec<&LeaseEntry> = pool.ahead_of(entry).collect();
    let place = |(class, waiter): (u64, &&LeaseEntry)| QueuePlace {
        ticket: waiter.ticket,
        id: waiter.id.clone(),
        owner: waiter.owner,
        // A different class for each claim, so that every claim is decided anew.
        class,
    };
    let places: Vec<QueuePlace> = (0..).zip(&waiters).map(place).collect();
    let mut read = |place: &QueuePlace| {
        let waiter = waiters.iter().find(|waiter| place.is_of(waiter));
        Ok(waiter.map_or(AtPlace::Empty, |waiter| AtPlace::Rival(Box::new((*waiter).clone()))))
    };
    match judge(entry, &pool.leases, &places, &mut read, &|_| false, choose) {
        Ok(judgement) => judgement.turn,
        // `read` never fails here.
        Err(_) => Turn::Wait,
    }
}

pub(crate) struct Judgement {
    pub(crate) turn: Turn,
    /// The earlier claims that could be served now; none if this one lacks devices even without
    /// them.
    pub(crate) servable: Vec<QueuePlace>,
}

/// The content of a place in the queue.
pub(crate) enum AtPlace {
    /// A claim on the same devices.
    Rival(Box<LeaseEntry>),
    /// A claim within another lease, or on another machine's devices.
    Elsewhere,
    /// No claim, or a stalled one.
    Empty,
}

/// Like [`turn`], for earlier places in order; `read` returns the claim at a place. Places that
/// `passed` accepts are skipped. Among a user's places of one class, none is read after one that
/// cannot be served or that competes for other devices, because they have the same request.
///
/// # Errors
/// The errors of `read`.
pub(crate) fn judge(
    entry: &LeaseEntry,
    leases: &[LeaseEntry],
    places: &[QueuePlace],
    read: &mut dyn FnMut(&QueuePlace) -> Result<AtPlace>,
    passed: &dyn Fn(&QueuePlace) -> bool,
    choose: &dyn Fn(&Claim, &[LeaseEntry]) -> Chosen,
) -> Result<Judgement> {
    let mut served = Served {
        taken: leases.iter().filter(|lease| !is_same(lease, entry)).cloned().collect(),
        set_aside: Vec::new(),
    };
    let mut servable = Vec::new();
    let mut own = choose(&entry.claim, &served.taken);
    // A claim that lacks devices even without the earlier claims does not depend on them.
    if matches!(own, Chosen::Devices(_)) && !places.is_empty() {
        let mut settled: HashSet<(u32, u64)> = HashSet::new();
        let mut counts: HashMap<u32, (usize, usize)> = HashMap::new();
        for place in places.iter().filter(|place| !passed(place)) {
            let class = (place.owner, place.class);
            let (reads, rivals) = counts.entry(place.owner).or_default();
            if settled.contains(&class)
                || *rivals >= MAX_WAITERS_PER_USER
                || *reads >= MAX_PLACES_READ_PER_USER
            {
                continue;
            }
            *reads += 1;
            let earlier = match read(place)? {
                AtPlace::Rival(earlier) => earlier,
                AtPlace::Elsewhere => {
                    settled.insert(class);
                    continue;
                }
                AtPlace::Empty => continue,
            };
            *rivals += 1;
            match choose(&earlier.claim, &served.seen_by(&earlier)) {
                Chosen::Devices(devices) => {
                    servable.push(place.clone());
                    served.taken.push(granted(&earlier, devices));
                }
                Chosen::NotNow { could } => {
                    served.set_aside.push(reserved(&earlier, could));
                    settled.insert(class);
                }
                Chosen::Never => {
                    settled.insert(class);
                }
            }
        }
        own = choose(&entry.claim, &served.seen_by(entry));
    }
    let turn = match own {
        Chosen::Devices(devices) => Turn::Take(devices),
        Chosen::NotNow { .. } => Turn::Wait,
        Chosen::Never => Turn::Never,
    };
    Ok(Judgement { turn, servable })
}

/// The state after the earlier claims are served.
struct Served {
    /// The leases, and the claims that can be served, with the devices that they would get.
    taken: Vec<LeaseEntry>,
    /// The claims that cannot be served, with every device that they could use.
    set_aside: Vec<LeaseEntry>,
}

impl Served {
    /// Returns the entries that compete with a claim.
    fn seen_by(&self, claim: &LeaseEntry) -> Vec<LeaseEntry> {
        let backfill = u64::try_from(BACKFILL.as_nanos()).unwrap_or(u64::MAX);
        let bars = |waiter: &&LeaseEntry| claim.ticket > waiter.ticket.saturating_add(backfill);
        self.taken.iter().chain(self.set_aside.iter().filter(bars)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, LeaseId, Pid, ProcessKey, Share, Timestamp};
    use proptest::prelude::*;

    const TOTAL: u64 = 8;
    /// Two claims close together, and a third more than a minute later.
    const SPACING: u64 = 31_000_000_000;

    fn device(number: u8) -> DeviceUuid {
        DeviceUuid(format!("GPU-{number}"))
    }

    fn entry(number: usize, claim: Claim, devices: Vec<DeviceUuid>) -> LeaseEntry {
        LeaseEntry {
            id: LeaseId::parse(&number.to_string()).unwrap(),
            ticket: number as u64 * SPACING,
            owner: 0,
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim,
            devices,
            parts_of: Vec::new(),
            merged: None,
            command: String::new(),
            since: Timestamp(0),
        }
    }

    fn fits(device: &DeviceUuid, claim: &Claim, others: &[LeaseEntry]) -> bool {
        let mut room = TOTAL;
        for lease in others.iter().filter(|lease| lease.devices.contains(device)) {
            match (claim.share, lease.claim.share) {
                (Share::Memory(_), Share::Memory(memory)) => room = room.saturating_sub(memory.0),
                _ => return false,
            }
        }
        matches!(claim.share, Share::Memory(memory) if memory.0 <= room)
            || claim.share == Share::Whole
    }

    /// Chooses the first eligible devices for a claim.
    fn choose(claim: &Claim, others: &[LeaseEntry]) -> Chosen {
        let fits = |device: &&DeviceUuid| fits(device, claim, others);
        let count = claim.count as usize;
        let free: Vec<_> = claim.among.iter().filter(fits).take(count).cloned().collect();
        if claim.among.len() < count {
            Chosen::Never
        } else if free.len() == count {
            Chosen::Devices(free)
        } else {
            Chosen::NotNow { could: claim.among.clone() }
        }
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        let share = prop_oneof![
            Just(Share::Whole),
            (1..=TOTAL).prop_map(|memory| Share::Memory(Bytes(memory)))
        ];
        let among = proptest::sample::subsequence(vec![0u8, 1, 2, 3, 4], 1..=5);
        (1u32..4, share, among).prop_map(|(count, share, among)| Claim {
            share,
            among: among.into_iter().map(device).collect(),
            ..Claim::whole(count)
        })
    }

    proptest! {
        /// Every claim is served eventually, as long as one can be served, in any order of arrival.
        /// A claim that came within a minute may go first.
        #[test]
        fn later_claim_never_takes_devices_earlier_claim_needs(
            claims in proptest::collection::vec(any_claim(), 1..8),
            order in proptest::collection::vec(0usize..8, 1..40),
        ) {
            let waiters = claims.into_iter().enumerate();
            let mut pool = Ledger {
                leases: Vec::new(),
                waiters: waiters.map(|(number, claim)| entry(number, claim, Vec::new())).collect(),
                ..Ledger::default()
            };
            for who in order {
                let Some(asking) = pool.waiters.get(who).cloned() else { continue };
                let earlier: Vec<LeaseEntry> = pool.ahead_of(&asking).cloned().collect();
                match turn(&asking, &pool, &choose) {
                    Turn::Take(devices) => {
                        for device in &devices {
                            prop_assert!(fits(device, &asking.claim, &pool.leases));
                        }
                        let granted = LeaseEntry { devices, ..asking.clone() };
                        let mut after = pool.leases.clone();
                        after.push(granted.clone());
                        let minute = BACKFILL.as_nanos() as u64;
                        let far = |earlier: &&LeaseEntry| asking.ticket - earlier.ticket > minute;
                        for earlier in earlier.iter().filter(far) {
                            let Chosen::NotNow { could } = choose(&earlier.claim, &after) else {
                                continue;
                            };
                            let took = could.iter().any(|one| granted.devices.contains(one));
                            prop_assert!(!took, "{} took what {} lacks", granted.id, earlier.id);
                        }
                        pool.leases = after;
                        pool.waiters.retain(|waiter| waiter.id != asking.id);
                    }
                    Turn::Wait => {
                        // The first claim never waits for another's place.
                        let served = matches!(choose(&asking.claim, &pool.leases), Chosen::Devices(_));
                        prop_assert!(!served || !earlier.is_empty());
                    }
                    Turn::Never => prop_assert!(asking.claim.among.len() < asking.claim.count as usize),
                }
            }
        }

        /// Skipping unread places of one class changes nothing.
        #[test]
        fn grouping_by_class_does_not_change_turn(
            kinds in proptest::collection::vec(any_claim(), 1..4),
            waiting in proptest::collection::vec(0usize..4, 1..12),
            leased in proptest::collection::vec(0u8..5, 0..4),
        ) {
            let claim = |kind: &usize| kinds[kind % kinds.len()].clone();
            let waiters: Vec<LeaseEntry> = waiting
                .iter()
                .enumerate()
                .map(|(number, kind)| entry(number, claim(kind), Vec::new()))
                .collect();
            let lease = |number: &u8| {
                entry(100 + usize::from(*number), Claim::whole(1), vec![device(*number)])
            };
            let leases: Vec<LeaseEntry> = leased.iter().map(lease).collect();
            let pool = Ledger::new(leases, waiters);
            let class = |entry: &LeaseEntry| {
                kinds.iter().position(|kind| *kind == entry.claim).unwrap_or(0) as u64
            };
            for entry in &pool.waiters {
                let places: Vec<QueuePlace> = pool
                    .ahead_of(entry)
                    .map(|other| QueuePlace {
                        ticket: other.ticket,
                        id: other.id.clone(),
                        owner: other.owner,
                        class: class(other),
                    })
                    .collect();
                let mut read = |place: &QueuePlace| {
                    let waiter = pool.waiters.iter().find(|waiter| place.is_of(waiter));
                    Ok(waiter.map_or(AtPlace::Empty, |waiter| AtPlace::Rival(Box::new(waiter.clone()))))
                };
                let judged =
                    judge(entry, &pool.leases, &places, &mut read, &|_| false, &choose).unwrap();
                prop_assert_eq!(judged.turn, turn(entry, &pool, &choose));
            }
        }
    }

    #[test]
    fn wide_claim_is_not_starved_by_shares() {
        let share = |memory| Claim {
            share: Share::Memory(Bytes(memory)),
            among: vec![device(0), device(1)],
            ..Claim::whole(1)
        };
        let wide = Claim { among: vec![device(0), device(1)], ..Claim::whole(2) };
        let pool = Ledger {
            leases: vec![entry(0, share(2), vec![device(0)])],
            waiters: vec![entry(1, wide, Vec::new()), entry(3, share(2), Vec::new())],
            ..Ledger::default()
        };
        let turn = |number: usize| turn(&pool.waiters[number], &pool, &choose);
        assert_eq!((turn(0), turn(1)), (Turn::Wait, Turn::Wait), "there is room beside the first");
        let other = Claim { among: vec![device(2)], ..Claim::whole(1) };
        assert_eq!(
            super::turn(&entry(4, other, Vec::new()), &pool, &choose),
            Turn::Take(vec![device(2)]),
            "what the wide one cannot use is free for others"
        );
        let soon = entry(2, share(2), Vec::new());
        assert_eq!(super::turn(&soon, &pool, &choose), Turn::Take(vec![device(0)]));
    }

    /// Judges a claim behind these places, and returns how many places of each owner it read.
    fn reads_by_owner(places: &[QueuePlace], at: impl Fn(&QueuePlace) -> AtPlace) -> [usize; 2] {
        reads_with_leases(&[], places, at)
    }

    fn reads_with_leases(
        leases: &[LeaseEntry],
        places: &[QueuePlace],
        at: impl Fn(&QueuePlace) -> AtPlace,
    ) -> [usize; 2] {
        let asking = entry(9, Claim { among: vec![device(0)], ..Claim::whole(1) }, Vec::new());
        let mut reads = [0, 0];
        let mut read = |place: &QueuePlace| {
            reads[usize::from(place.owner == 8)] += 1;
            Ok(at(place))
        };
        judge(&asking, leases, places, &mut read, &|_| false, &choose).unwrap();
        reads
    }

    fn places(number: u64, owner: u32) -> impl Iterator<Item = QueuePlace> {
        let id = move |number| LeaseId::parse(&format!("{owner}-{number}")).unwrap();
        (0..number).map(move |class| QueuePlace { ticket: 1, id: id(class), owner, class })
    }

    #[test]
    fn claim_lacking_devices_reads_no_queue_place() {
        let places: Vec<QueuePlace> = places(5, 7).collect();
        let lease = entry(0, Claim::whole(1), vec![device(0)]);
        assert_eq!(reads_with_leases(&[lease], &places, |_| AtPlace::Empty), [0, 0]);
        assert_eq!(reads_by_owner(&places, |_| AtPlace::Empty), [5, 0]);
    }

    #[test]
    fn at_most_64_claims_of_one_user_are_read() {
        let places: Vec<QueuePlace> = places(100, 7).chain(places(1, 8)).collect();
        let elsewhere = Claim { among: vec![device(1)], ..Claim::whole(1) };
        let rival = |place: &QueuePlace| {
            let entry = entry(0, elsewhere.clone(), Vec::new());
            AtPlace::Rival(Box::new(LeaseEntry { owner: place.owner, ..entry }))
        };
        assert_eq!(reads_by_owner(&places, rival), [64, 1]);
    }

    #[test]
    fn at_most_1024_dead_places_of_one_user_are_read() {
        let places: Vec<QueuePlace> = places(2000, 7).chain(places(1, 8)).collect();
        assert_eq!(reads_by_owner(&places, |_| AtPlace::Empty), [1024, 1]);
    }

    #[test]
    fn equal_claims_are_not_read_after_a_waiting_one() {
        let same = |place| QueuePlace { class: 0, ..place };
        let places: Vec<QueuePlace> = places(5, 7).map(same).chain(places(1, 8)).collect();
        let two = Claim { among: vec![device(0)], ..Claim::whole(2) };
        let rival = |_: &QueuePlace| AtPlace::Rival(Box::new(entry(0, two.clone(), Vec::new())));
        assert_eq!(reads_by_owner(&places, rival), [1, 1]);
        assert_eq!(reads_by_owner(&places, |_| AtPlace::Elsewhere), [1, 1]);
    }
}
