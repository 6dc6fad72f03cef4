//! What a diagnosis says.

use crate::role::Role;
use gpu_core::{Bytes, DeviceId, ProcessKey};
use serde::Serialize;

/// Everything that the looks tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What is wrong, by device, then by kind.
    pub findings: Vec<Finding>,
    /// Holders that were looked at and are not to blame, with the reason.
    pub cleared: Vec<Cleared>,
}

/// What kind of trouble a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// Memory used that no listed process accounts for, and somebody who holds the device.
    Ghost,
    /// The same, and nobody holds the device: the driver lost track of it.
    DriverLeak,
    /// The same, and some processes could not be looked into.
    NotPermitted,
    /// NVML's process numbers belong to a PID namespace that cannot be seen from here.
    ForeignNamespace,
    /// NVML lists a process that does not exist.
    ListedButGone,
    /// A holder whose first thread ended while others live on.
    ZombieHolder,
    /// A holder in an uninterruptible wait: no signal ends it.
    StuckHolder,
    /// A holder whose parent and process-group leader are gone.
    Orphan,
    /// A process that keeps memory and does not compute.
    Hoarder,
    /// A device that answers with an error.
    DeviceFault,
    /// A device that needs a reset, and who stands in the way.
    BlockedReset,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// One look cannot tell more.
    Possible,
    /// The evidence points there and something else could explain it.
    Likely,
    /// What was seen of the process leaves no other reading.
    High,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of trouble it is.
    pub kind: FindingKind,
    /// How sure it is.
    pub confidence: Confidence,
    /// The devices concerned.
    pub devices: Vec<DeviceId>,
    /// Memory in question on those devices together; `None` where it is not a matter of memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<Bytes>,
    /// The processes behind it, most suspect first.
    pub suspects: Vec<Suspect>,
    /// What was seen, a sentence fragment each.
    pub evidence: Vec<String>,
    /// What to do, best first.
    pub advice: Vec<Advice>,
}

/// A process behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// The process.
    pub process: ProcessKey,
    /// How sure it is that this process is behind it.
    pub confidence: Confidence,
    /// What was seen of it.
    pub evidence: Vec<String>,
}

/// A holder that is not to blame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cleared {
    /// The process.
    pub process: ProcessKey,
    /// The devices that it holds.
    pub devices: Vec<DeviceId>,
    /// What it is.
    pub role: Role,
    /// Why it is cleared.
    pub why: String,
}

/// What to do about a finding; the program on top words it as a command to type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// End the processes that hold the device without right.
    ReapDevice(u32),
    /// Look closely at one process, then end it by its number.
    ReapProcess(gpu_core::Pid),
    /// Look again with the rights to see every process.
    LookAsRoot,
    /// Paste who holds the device files as well.
    PasteHolders,
    /// Look again from the host, outside of the container.
    LookOnHost,
    /// Take several looks, to tell idle from pausing.
    LookLonger,
    /// Make the program see only the device that it works on.
    LimitVisibleDevices(Vec<u32>),
    /// Make the framework take memory as it needs it.
    LetMemoryGrow,
    /// Reset the device once nobody holds it.
    ResetDevice(u32),
    /// Give the driver more time to answer: without persistence mode it is slow.
    AllowMoreTime,
    /// Read what the driver wrote into the kernel's log.
    ReadKernelLog,
    /// Load the module of the driver, which went away while it was asked.
    LoadDriver,
    /// Wait for input, output or the driver to finish; where it never does, only a reboot helps.
    WaitOrReboot,
    /// Stop the service that a monitor or daemon belongs to.
    StopService(gpu_core::Pid),
    /// Ask the parent to wait for its child, or end the parent.
    EndParent(gpu_core::Pid),
}
