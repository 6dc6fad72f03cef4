//! The input and output of a choice.

use gpu_core::{
    Absent, Bytes, Celsius, DeviceId, DeviceUuid, Fault, LeaseId, Link, Pid, Reading, Timestamp,
};
use serde::Serialize;

/// A device as one claim finds it now.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Its identifiers; a device without a [key](DeviceId::lease_key) cannot be claimed.
    pub id: DeviceId,
    /// The maximum memory that jobs can have: all except what driver and firmware reserve.
    pub capacity: Reading<Bytes>,
    /// The memory that is free now.
    pub free: Reading<Bytes>,
    /// The memory that one more share may take: the capacity less granted shares and the use by
    /// other processes.
    pub room: Reading<Bytes>,
    /// The compute capability, major and minor.
    pub compute_capability: Reading<(u32, u32)>,
    /// Whether other programs of the host can take its memory, so that no share is certain.
    pub shared_with_host: bool,
    /// Whether it drives a display.
    pub display: bool,
    /// Temperature of the chip.
    pub temperature: Reading<Celsius>,
    /// When it was last leased; `None` if unknown.
    pub last_leased: Option<Timestamp>,
    /// Why it cannot be granted now, regardless of the claim's other requests.
    pub bar: Option<Bar>,
}

/// Why a device cannot be granted now.
///
/// The caller that makes the offers knows the claim: a reason that blocks a whole claim need not
/// block a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bar {
    /// A lease has the device, or a share of it if the claim is for the whole device.
    Leased {
        /// The lease.
        lease: LeaseId,
        /// Its user.
        owner: u32,
    },
    /// An earlier claim is waiting for the device.
    Reserved {
        /// The waiting claim, by its position in the queue.
        waiter: LeaseId,
        /// Its user.
        owner: u32,
    },
    /// A process without a lease uses the device.
    Outsider {
        /// The process.
        pid: Pid,
        /// Whether the PID is one of the host's, which is invalid in the container where gpuws
        /// runs.
        is_host_pid: bool,
        /// Its name, as chosen by the process; empty if unknown.
        name: String,
    },
    /// This much memory is in use without a process that accounts for it.
    #[serde(rename = "unexplained_bytes")]
    Unexplained(Bytes),
    /// The device does not answer correctly.
    Faulty(Fault),
    /// The device reports a defect, such as uncorrected memory errors, or a setting that excludes
    /// jobs.
    Unfit(String),
    /// The users of the device are unknown.
    UsersUnknown(Absent),
    /// The device has no key, or shares its key with another device.
    NameUnknown,
    /// The device is divided: a program that is given it sees one of its partitions and no other
    /// device, or the claim also names partitions of it.
    #[serde(rename = "mig-mode")]
    Partitioned,
    /// The device is a partition and the claim is for several devices: a program that sees this
    /// partition sees no other device.
    #[serde(rename = "mig-alone")]
    PartitionAlone,
    /// Other programs of the host can take the memory of a granted share.
    NotEnforced,
}

impl Offer {
    /// Returns whether it is a partition, which has no links and has the index of its whole device.
    pub(crate) fn is_partition(&self) -> bool {
        self.id.uuid.as_ref().is_ok_and(DeviceUuid::is_partition)
    }
}

impl Bar {
    /// Returns whether the reason is permanent.
    pub fn is_lasting(&self) -> bool {
        match self {
            Bar::Leased { .. }
            | Bar::Reserved { .. }
            | Bar::Outsider { .. }
            | Bar::Unexplained(_) => false,
            Bar::Faulty(_)
            | Bar::Unfit(_)
            | Bar::UsersUnknown(_)
            | Bar::NameUnknown
            | Bar::Partitioned
            | Bar::PartitionAlone
            | Bar::NotEnforced => true,
        }
    }
}

/// Why a device was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passed {
    /// The device cannot be granted to any claim.
    Barred(Bar),
    /// The claim is for other devices.
    NotAmong,
    /// The claim excludes it.
    Excluded,
    /// The device has less memory than requested, even when idle.
    LacksMemory {
        /// Its capacity.
        #[serde(rename = "has_bytes")]
        has: Bytes,
        /// What the claim requests.
        #[serde(rename = "needs_bytes")]
        needs: Bytes,
    },
    /// The device has less free memory than requested.
    LacksRoom {
        /// The free memory.
        #[serde(rename = "has_bytes")]
        has: Bytes,
        /// What the claim requests.
        #[serde(rename = "needs_bytes")]
        needs: Bytes,
    },
    /// Its memory, or its free memory, is unknown, and the claim depends on it.
    MemoryUnknown(Absent),
    /// Its compute capability is lower than requested.
    LowCapability {
        /// Its own.
        has: (u32, u32),
        /// What the claim requests.
        needs: (u32, u32),
    },
    /// Its compute capability is unknown, and the claim depends on it.
    CapabilityUnknown(Absent),
    /// The device drives a display, and enough others do not.
    DrivesDisplay,
    /// The device was eligible, but another set was better.
    OtherSetBetter,
}

impl Passed {
    /// Returns whether the reason is permanent.
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

/// The devices to grant, by their positions in the list of offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The devices, ascending.
    pub devices: Vec<usize>,
    /// How well they are connected: the sum of the scores of their pairs.
    pub score: u32,
    /// The same sum over all sets of the best division of the free devices that contains this set.
    pub total: u32,
    /// No division has a higher total. If false, the search stopped before it had seen or ruled out
    /// all divisions.
    pub exact: bool,
    /// The reason for this set.
    pub why: Why,
    /// Every other device, with the reason for its rejection; ascending.
    pub passed: Vec<(usize, Passed)>,
}

/// Why the chosen set won: the first rule by which some set is worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// There was no other set.
    OnlyOne,
    /// It is better connected, or leaves better connected sets to later claims.
    Linked {
        /// The weakest link between its devices; `None` for a single device.
        weakest: Option<Link>,
        /// The worst connected set that was also possible; above [`MAX_EXACT`](crate::MAX_EXACT)
        /// devices, a badly connected one.
        instead: Vec<usize>,
        /// The weakest link in that set; `None` for a single device.
        instead_weakest: Option<Link>,
    },
    /// It leaves larger devices, or more contiguous room, to others.
    Fits,
    /// It leaves aligned blocks of 2, 4 or 8 devices whole.
    KeepsBlocks,
    /// It is cooler.
    Coolest,
    /// Its devices were leased less recently.
    LeastRecent,
    /// All are alike, and it has the lowest numbers.
    First,
}

/// Why there is no choice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Temporary: waiting may help.
    #[error("{} of {could} suitable devices are free now", free.len())]
    NotNow {
        /// The eligible devices: too few, or without a required one.
        free: Vec<usize>,
        /// How many devices would be eligible if all leases ended.
        could: u32,
        /// Every other device, with the reason why it is not free.
        passed: Vec<(usize, Passed)>,
    },
    /// Permanent for this machine in its present state.
    #[error("only {could} devices are suitable")]
    Never {
        /// How many devices would be eligible if all leases ended.
        could: u32,
        /// The ineligible devices, with the reason.
        passed: Vec<(usize, Passed)>,
    },
    /// A required device does not exist.
    #[error("there is no device {0}")]
    Missing(DeviceUuid),
    /// The claim is for no device, or requires more devices than it requests.
    #[error("the claim requests no device, or requires more devices than it requests")]
    Contradictory,
}
