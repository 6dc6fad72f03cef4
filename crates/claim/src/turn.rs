//! Whose turn it is: first come, first served, as far as devices are shared.

use crate::ask::Chosen;
use crate::ledger::{Ledger, granted, is_same, reserved};
use gpu_core::{Claim, DeviceUuid, Entry, LeaseId};

/// What a claim may do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Take these devices.
    Take(Vec<DeviceUuid>),
    /// Wait.
    Wait,
    /// Give up.
    Never,
}

/// Returns what a claim may do, given who competes with it ([`Ledger::pool`]).
///
/// Everyone who came earlier is served first, in thought: one that can be served now gets what it
/// would choose; for one that cannot, every device that it could use is set aside. What is left is
/// for this claim. So a claim never waits for a later one on a device that it could use, however
/// many devices it needs, and a later one passes only with devices that the earlier one cannot use
/// or does not need. `choose` may be asked about devices that are both leased and set aside.
pub fn turn(entry: &Entry, pool: &Ledger, choose: &dyn Fn(&Claim, &[Entry]) -> Chosen) -> Turn {
    judge(entry, pool, &|_| false, choose).turn
}

pub(crate) struct Judgement {
    pub(crate) turn: Turn,
    /// Who came earlier and could be served now; `None` where that was not asked.
    pub(crate) servable: Option<Vec<LeaseId>>,
}

/// As [`turn`], without those earlier ones that `passed` names.
pub(crate) fn judge(
    entry: &Entry,
    pool: &Ledger,
    passed: &dyn Fn(&LeaseId) -> bool,
    choose: &dyn Fn(&Claim, &[Entry]) -> Chosen,
) -> Judgement {
    let mut taken: Vec<Entry> =
        pool.leases.iter().filter(|lease| !is_same(lease, entry)).cloned().collect();
    let mut servable = None;
    let mut own = choose(&entry.claim, &taken);
    let mut earlier = pool.ahead_of(entry).filter(|earlier| !passed(&earlier.id)).peekable();
    // Who lacks devices even without the earlier ones needs no word from them.
    if matches!(own, Chosen::Devices(_)) && earlier.peek().is_some() {
        let servable = servable.insert(Vec::new());
        for earlier in earlier {
            match choose(&earlier.claim, &taken) {
                Chosen::Devices(devices) => {
                    servable.push(earlier.id.clone());
                    taken.push(granted(earlier, devices));
                }
                Chosen::NotNow { could } => taken.push(reserved(earlier, could)),
                Chosen::Never => {}
            }
        }
        own = choose(&entry.claim, &taken);
    }
    let turn = match own {
        Chosen::Devices(devices) => Turn::Take(devices),
        Chosen::NotNow { .. } => Turn::Wait,
        Chosen::Never => Turn::Never,
    };
    Judgement { turn, servable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, Pid, ProcessKey, Share, Timestamp};
    use proptest::prelude::*;

    const TOTAL: u64 = 8;

    fn device(number: u8) -> DeviceUuid {
        DeviceUuid(format!("GPU-{number}"))
    }

    fn entry(number: usize, claim: Claim, devices: Vec<DeviceUuid>) -> Entry {
        Entry {
            id: LeaseId::parse(&number.to_string()).unwrap(),
            ticket: number as u64,
            owner: 0,
            root: ProcessKey { pid: Pid(1), start: None },
            within: Vec::new(),
            claim,
            devices,
            parts_of: Vec::new(),
            command: String::new(),
            since: Timestamp(0),
        }
    }

    fn fits(device: &DeviceUuid, claim: &Claim, beside: &[Entry]) -> bool {
        let mut room = TOTAL;
        for lease in beside.iter().filter(|lease| lease.devices.contains(device)) {
            match (claim.share, lease.claim.share) {
                (Share::Memory(_), Share::Memory(memory)) => room = room.saturating_sub(memory.0),
                _ => return false,
            }
        }
        matches!(claim.share, Share::Memory(memory) if memory.0 <= room)
            || claim.share == Share::Whole
    }

    /// Chooses the first of the devices among which a claim is.
    fn choose(claim: &Claim, beside: &[Entry]) -> Chosen {
        let fits = |device: &&DeviceUuid| fits(device, claim, beside);
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
        /// Everybody is served in turn for as long as somebody can be, in any order of asking.
        #[test]
        fn a_later_claim_takes_nothing_that_an_earlier_one_lacks(
            claims in proptest::collection::vec(any_claim(), 1..8),
            order in proptest::collection::vec(0usize..8, 1..40),
        ) {
            let waiters = claims.into_iter().enumerate();
            let mut pool = Ledger {
                leases: Vec::new(),
                waiters: waiters.map(|(number, claim)| entry(number, claim, Vec::new())).collect(),
            };
            for who in order {
                let Some(asking) = pool.waiters.get(who).cloned() else { continue };
                let earlier: Vec<Entry> = pool.ahead_of(&asking).cloned().collect();
                match turn(&asking, &pool, &choose) {
                    Turn::Take(devices) => {
                        for device in &devices {
                            prop_assert!(fits(device, &asking.claim, &pool.leases));
                        }
                        let granted = Entry { devices, ..asking.clone() };
                        let mut after = pool.leases.clone();
                        after.push(granted.clone());
                        for earlier in &earlier {
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
                        // The first of all is never kept waiting for another's place.
                        let served = matches!(choose(&asking.claim, &pool.leases), Chosen::Devices(_));
                        prop_assert!(!served || !earlier.is_empty());
                    }
                    Turn::Never => prop_assert!(asking.claim.among.len() < asking.claim.count as usize),
                }
            }
        }
    }

    #[test]
    fn a_wide_claim_is_not_starved_by_shares() {
        let share = |memory| Claim {
            share: Share::Memory(Bytes(memory)),
            among: vec![device(0), device(1)],
            ..Claim::whole(1)
        };
        let wide = Claim { among: vec![device(0), device(1)], ..Claim::whole(2) };
        let pool = Ledger {
            leases: vec![entry(0, share(2), vec![device(0)])],
            waiters: vec![entry(1, wide, Vec::new()), entry(2, share(2), Vec::new())],
        };
        let turn = |number: usize| turn(&pool.waiters[number], &pool, &choose);
        assert_eq!((turn(0), turn(1)), (Turn::Wait, Turn::Wait), "there is room beside the first");
        let other = Claim { among: vec![device(2)], ..Claim::whole(1) };
        assert_eq!(
            super::turn(&entry(3, other, Vec::new()), &pool, &choose),
            Turn::Take(vec![device(2)]),
            "what the wide one cannot use is free for others"
        );
    }
}
