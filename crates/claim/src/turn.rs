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
