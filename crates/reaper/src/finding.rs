//! The result of a diagnosis.

use crate::role::Role;
use gpu_core::{Bytes, DeviceId, ProcessKey};
use serde::Serialize;

/// Everything concluded from the snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The problems, by kind, then by the first device.
    pub findings: Vec<Finding>,
    /// Holders that were checked and cleared, with the reason.
    pub cleared: Vec<Cleared>,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Memory is used that no listed process accounts for, and a process holds the device.
    Ghost,
    /// The same, and no process holds the device: the driver lost track of it.
    DriverLeak,
    /// The same, and some processes could not be read.
    NotPermitted,
    /// NVML's PIDs belong to a PID namespace that is not visible from here.
    ForeignNamespace,
    /// NVML lists a process that does not exist.
    ListedButGone,
    /// A holder whose first thread ended while others live on.
    ZombieHolder,
    /// A holder in uninterruptible sleep: no signal ends it.
    StuckHolder,
    /// A holder whose parent and process-group leader are gone.
    Orphan,
    /// A process that keeps memory and does not compute.
    Hoarder,
    /// A device that returns an error.
    DeviceFault,
    /// A device that needs a reset, and the processes that block it.
    BlockedReset,
}

impl FindingKind {
    /// Returns why a suspect of such a finding may be ended without a request by PID, as a noun for
    /// the plan; `None` if only such a request may end it.
    pub(crate) fn reap_reason(self) -> Option<&'static str> {
        match self {
            FindingKind::Ghost => Some("ghost"),
            FindingKind::Orphan => Some("orphan"),
            FindingKind::ZombieHolder => Some("zombie with live threads"),
            FindingKind::ListedButGone => Some("child of a listed process that exited"),
            FindingKind::DriverLeak
            | FindingKind::NotPermitted
            | FindingKind::ForeignNamespace
            | FindingKind::StuckHolder
            | FindingKind::Hoarder
            | FindingKind::DeviceFault
            | FindingKind::BlockedReset => None,
        }
    }
}

/// The confidence of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// One snapshot cannot show more.
    Possible,
    /// The evidence points there, but another cause is possible.
    Likely,
    /// The observations of the process have no other explanation.
    High,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// Its confidence.
    pub confidence: Confidence,
    /// The affected devices.
    pub devices: Vec<DeviceId>,
    /// Memory concerned on those devices together; `None` if it is not about memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<Bytes>,
    /// The processes behind it, most suspect first.
    pub suspects: Vec<Suspect>,
    /// The evidence, a sentence fragment each.
    pub evidence: Vec<String>,
    /// The remedies, best first.
    pub advice: Vec<Advice>,
}

/// A process behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// The process.
    pub process: ProcessKey,
    /// The confidence that this process is behind it.
    pub confidence: Confidence,
    /// The observations of it.
    pub evidence: Vec<String>,
}

/// A cleared holder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cleared {
    /// The process.
    pub process: ProcessKey,
    /// The devices that it holds.
    pub devices: Vec<DeviceId>,
    /// Its role.
    pub role: Role,
    /// Why it is cleared.
    pub why: String,
}

/// The remedy for a finding; the program turns it into a command to type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// End the processes that hold the device without use.
    ReapDevice(u32),
    /// Inspect one process, then end it by PID.
    ReapProcess(gpu_core::Pid),
    /// Repeat with the rights to see every process.
    LookAsRoot,
    /// Paste the holders of the device files as well.
    PasteHolders,
    /// Repeat on the host, outside the container.
    LookOnHost,
    /// Take several snapshots, to tell an idle process from a pausing one.
    LookLonger,
    /// Restrict the program to the device that it computes on.
    LimitVisibleDevices(Vec<u32>),
    /// Make the framework allocate memory on demand.
    LetMemoryGrow,
    /// Reset the device once no process holds it.
    ResetDevice(u32),
    /// Give the driver more time to answer: without persistence mode it is slow.
    AllowMoreTime,
    /// Read the driver's messages in the kernel log.
    ReadKernelLog,
    /// Load the driver's module, which was unloaded during the query.
    LoadDriver,
    /// Wait for I/O or the driver to finish; if it never does, only a reboot helps.
    WaitOrReboot,
    /// Stop the service that a monitor or daemon belongs to.
    StopService(gpu_core::Pid),
    /// Ask the parent to reap its child, or end the parent.
    EndParent(gpu_core::Pid),
}
