//! What there is to choose from, what was chosen, and why.

use gpu_core::{
    Absent, Bytes, Celsius, DeviceId, DeviceUuid, Fault, LeaseId, Link, Pid, Reading, Timestamp,
};
use serde::Serialize;

/// A device as one claim finds it now.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Its names; one without a UUID cannot be claimed.
    pub id: DeviceId,
    /// Memory that jobs can have at most: all but what driver and firmware keep.
    pub capacity: Reading<Bytes>,
    /// Memory that nobody uses at this moment.
    pub free: Reading<Bytes>,
    /// Memory that one more share may take: the capacity less the shares that were granted and
    /// what others use.
    pub room: Reading<Bytes>,
    /// The compute capability, major and minor.
    pub compute_capability: Reading<(u32, u32)>,
    /// It drives a display.
    pub display: bool,
    /// Temperature of the chip.
    pub temperature: Reading<Celsius>,
    /// When a lease on it was last made; `None` where none is known.
    pub last_leased: Option<Timestamp>,
    /// Why it cannot be had now, whatever else the claim asks.
    pub bar: Option<Bar>,
}

/// Why a device cannot be had now.
///
/// Whoever makes the offers knows the claim: what bars a whole claim need not bar a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bar {
    /// A lease has it, or a share of it where all of it is asked for.
    Leased {
        /// The lease.
        lease: LeaseId,
        /// Its user.
        owner: u32,
    },
    /// Somebody who came earlier waits for it.
    Reserved {
        /// The earlier one's place in the queue.
        waiter: LeaseId,
        /// Its user.
        owner: u32,
    },
    /// A process without a lease uses it.
    Outsider {
        /// The process.
        pid: Pid,
        /// Its name, as it gave it to itself.
        name: String,
    },
    /// So much of its memory is used, and nobody accounts for it.
    #[serde(rename = "unexplained_bytes")]
    Unexplained(Bytes),
    /// It does not work as it should.
    Faulty(Fault),
    /// Who uses it is not known.
    UsersUnknown(Absent),
    /// It has no UUID, or one that another device has too.
    NameUnknown,
    /// It is divided by MIG: a program that is shown it sees one of its instances and no other
    /// device.
    MigMode,
    /// It is a MIG device and the claim is for several: a program that sees one sees no other
    /// device (NVIDIA's guide to MIG, on CUDA device enumeration).
    MigAlone,
}

impl Offer {
    /// Returns whether it is a MIG device: it has no links, and its index is that of its whole.
    pub(crate) fn is_mig(&self) -> bool {
        self.id.uuid.as_ref().is_ok_and(DeviceUuid::is_mig)
    }
}

impl Bar {
    /// Returns whether waiting does not help.
    pub fn is_lasting(&self) -> bool {
        match self {
            Bar::Leased { .. }
            | Bar::Reserved { .. }
            | Bar::Outsider { .. }
            | Bar::Unexplained(_) => false,
            Bar::Faulty(_)
            | Bar::UsersUnknown(_)
            | Bar::NameUnknown
            | Bar::MigMode
            | Bar::MigAlone => true,
        }
    }
}

/// Why a device was passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passed {
    /// It cannot be had, whatever is asked.
    Barred(Bar),
    /// The claim is for other devices.
    NotAmong,
    /// The claim is for any but this one.
    Excluded,
    /// It has less memory than is asked for, even when nobody uses it.
    LacksMemory {
        /// Its capacity.
        #[serde(rename = "has_bytes")]
        has: Bytes,
        /// What is asked for.
        #[serde(rename = "needs_bytes")]
        needs: Bytes,
    },
    /// It has less memory left now than is asked for.
    LacksRoom {
        /// What it has left.
        #[serde(rename = "has_bytes")]
        has: Bytes,
        /// What is asked for.
        #[serde(rename = "needs_bytes")]
        needs: Bytes,
    },
    /// How much memory it has, or has left, is not known, and the claim depends on it.
    MemoryUnknown(Absent),
    /// Its compute capability is lower than asked for.
    LowCapability {
        /// Its own.
        has: (u32, u32),
        /// What is asked for.
        needs: (u32, u32),
    },
    /// Its compute capability is not known, and the claim depends on it.
    CapabilityUnknown(Absent),
    /// It drives a display, and there were enough that do not.
    DrivesDisplay,
    /// It could have been had, and another set was better.
    OtherSetBetter,
}

impl Passed {
    /// Returns whether waiting does not help.
    pub fn is_lasting(&self) -> bool {
        match self {
            Passed::Barred(bar) => bar.is_lasting(),
            Passed::LacksRoom { .. } | Passed::DrivesDisplay | Passed::OtherSetBetter => false,
            Passed::NotAmong
            | Passed::Excluded
            | Passed::LacksMemory { .. }
            | Passed::MemoryUnknown(_)
            | Passed::LowCapability { .. }
            | Passed::CapabilityUnknown(_) => true,
        }
    }
}

/// The devices to grant.
///
/// Devices are named by their place in the list of offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The devices, ascending.
    pub devices: Vec<usize>,
    /// How well they are connected: the sum of the scores of their pairs.
    pub score: u32,
    /// The same sum over all sets of the best division of the free devices that this one is in.
    pub total: u32,
    /// Surely no division has a higher total. Otherwise there were so many that the search ended
    /// before it had seen or ruled out all of them.
    pub exact: bool,
    /// What told this set from the others.
    pub why: Why,
    /// Every other device, with the reason that it is not among them; ascending.
    pub passed: Vec<(usize, Passed)>,
}

/// What told the chosen set from the others: the first rule by which some set is worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// There was no other.
    OnlyOne,
    /// It is better connected, or leaves better connected sets to those who come next.
    Linked {
        /// The weakest link between its devices; `None` for a single device.
        weakest: Option<Link>,
        /// The worst connected set that could have been had instead; above
        /// [`MAX_EXACT`](crate::MAX_EXACT) devices, a bad one.
        instead: Vec<usize>,
        /// The weakest link in that one; `None` for a single device.
        instead_weakest: Option<Link>,
    },
    /// It leaves larger devices, or more room in one piece, to others.
    Fits,
    /// It leaves aligned blocks of 2, 4 or 8 devices whole.
    KeepsBlocks,
    /// It is cooler.
    Coolest,
    /// Its devices were not leased for longer.
    LeastRecent,
    /// All are alike, and it has the lowest numbers.
    First,
}

/// Why there is no choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not now; waiting may help.
    NotNow {
        /// Those which the claim could have now: too few, or without one that it requires.
        free: Vec<usize>,
        /// How many it could have if all others gave theirs back.
        could: u32,
        /// Every other device, with the reason that it is not free.
        passed: Vec<(usize, Passed)>,
    },
    /// Never on this machine, as long as it is as it is.
    Never {
        /// How many it could have if all others gave theirs back.
        could: u32,
        /// The devices that it cannot have, with the reason.
        passed: Vec<(usize, Passed)>,
    },
    /// A device that it requires is not there.
    Missing(DeviceUuid),
    /// It asks for no device, or requires more than it asks for.
    Contradictory,
}
