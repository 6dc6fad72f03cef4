//! The result of a diagnosis.

use crate::evidence::Evidence;
use crate::role::Role;
use gpu_core::{
    Bytes, DeviceId, DeviceState, PciBusId, Pid, PodEvidence, PodName, ProcessInfo, ProcessKey,
    Reach, ServiceUnit, Snapshot, Workload, WorkloadKind,
};
use serde::Serialize;
use std::collections::BTreeSet;
use std::str::FromStr;

/// Everything concluded from the snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The problems, by kind, then by the first device.
    pub findings: Vec<Finding>,
    /// Holders that were checked and cleared, with the reason.
    pub cleared: Vec<Cleared>,
    /// How many findings the caller left out ([`Diagnosis::retain`]).
    pub left_out: usize,
}

/// Defines the kinds of findings with their names.
macro_rules! kinds {
    ($( $(#[$doc:meta])* $kind:ident = $name:literal, )*) => {
        /// Kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum FindingKind {
            $( $(#[$doc])* #[serde(rename = $name)] $kind, )*
        }

        impl FindingKind {
            /// Every kind, in order.
            pub const ALL: [FindingKind; [$($name),*].len()] = [$(FindingKind::$kind),*];

            /// Returns its name, as serialised.
            pub fn name(self) -> &'static str {
                match self {
                    $( FindingKind::$kind => $name, )*
                }
            }
        }
    };
}

kinds! {
    /// The device returns an error, or requires a reset.
    DeviceFault = "device-fault",
    /// Memory of the device has uncorrected errors, or a part of it is to be replaced.
    MemoryErrors = "memory-errors",
    /// The device has fewer active NVLinks than its equals, or no place in its NVLink fabric.
    NvLinkDown = "nvlink-down",
    /// The driver has written an error into the kernel log (Xid).
    DriverError = "driver-error",
    /// The device is in MIG mode and has no instance.
    NoMigInstance = "no-mig-instance",
    /// No program may create a CUDA context on the device.
    ComputeProhibited = "compute-prohibited",
    /// Memory is in use that no listed process accounts for, and a process holds the device.
    Ghost = "ghost",
    /// Memory is in use that no listed process accounts for, and no process holds the device.
    DriverLeak = "driver-leak",
    /// Memory is in use that no listed process accounts for, and some processes could not be
    /// inspected.
    NotPermitted = "not-permitted",
    /// The driver's PIDs belong to a PID namespace that is not visible from here.
    ForeignNamespace = "foreign-namespace",
    /// The driver lists a process that does not exist.
    ListedButGone = "listed-but-gone",
    /// The main thread of a holder has ended while other threads are alive.
    ZombieHolder = "zombie-holder",
    /// A holder is in uninterruptible sleep: no signal ends it.
    StuckHolder = "stuck-holder",
    /// The parent and the process group leader of a holder are gone.
    Orphan = "orphan",
    /// A process keeps memory and does not compute.
    Hoarder = "hoarder",
    /// The memory of a process has grown for hours without falling.
    MemoryGrowth = "memory-growth",
    /// A process keeps the CPU busy, and its devices compute little.
    HostBound = "host-bound",
    /// The device is busy, but no process uses it.
    BusyWithoutProcess = "busy-without-process",
    /// Heat or a lack of power reduces the clocks of the device.
    Throttled = "throttled",
    /// At work, the PCI Express link has fewer lanes or a lower generation than possible.
    SlowPcie = "slow-pcie",
    /// A change of mode takes effect at the next reset.
    PendingReset = "pending-reset",
    /// The device requires a reset, and processes block it.
    BlockedReset = "blocked-reset",
}

impl FindingKind {
    /// Returns why a suspect of such a finding may be ended without a request by PID, as a noun for
    /// the plan; `None` if only such a request may end it.
    pub fn reap_reason(self) -> Option<&'static str> {
        match self {
            FindingKind::Ghost => Some("ghost"),
            FindingKind::ZombieHolder => Some("zombie with live threads"),
            FindingKind::ListedButGone => Some("child of a listed process that exited"),
            FindingKind::DriverLeak
            | FindingKind::NotPermitted
            | FindingKind::ForeignNamespace
            | FindingKind::StuckHolder
            | FindingKind::Orphan
            | FindingKind::Hoarder
            | FindingKind::MemoryGrowth
            | FindingKind::HostBound
            | FindingKind::DeviceFault
            | FindingKind::MemoryErrors
            | FindingKind::NvLinkDown
            | FindingKind::DriverError
            | FindingKind::NoMigInstance
            | FindingKind::ComputeProhibited
            | FindingKind::BusyWithoutProcess
            | FindingKind::Throttled
            | FindingKind::SlowPcie
            | FindingKind::PendingReset
            | FindingKind::BlockedReset => None,
        }
    }
}

/// How certain a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// A single sample cannot show more.
    Possible,
    /// The evidence suggests it; another cause is possible.
    Likely,
    /// The evidence has no other explanation.
    High,
}

impl FromStr for Confidence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "possible" => Ok(Confidence::Possible),
            "likely" => Ok(Confidence::Likely),
            "high" => Ok(Confidence::High),
            _ => Err("expected possible, likely or high".to_owned()),
        }
    }
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
    /// The evidence.
    pub evidence: Vec<Evidence>,
    /// The remedies, best first.
    pub advice: Vec<Advice>,
}

impl Finding {
    /// Returns the finding for a device itself, without a process behind it.
    pub(crate) fn about_device(
        device: &DeviceState,
        kind: FindingKind,
        confidence: Confidence,
        evidence: Vec<Evidence>,
        advice: Vec<Advice>,
    ) -> Self {
        let devices = vec![device.id().clone()];
        Finding { kind, confidence, devices, memory: None, suspects: Vec::new(), evidence, advice }
    }
}

impl Finding {
    /// Returns whether the finding is at least likely.
    pub fn is_confident(&self) -> bool {
        self.confidence > Confidence::Possible
    }

    /// Returns whether both are ghosts of the same processes.
    fn is_same_ghost(&self, other: &Finding) -> bool {
        let is_ghost = |finding: &Finding| finding.kind == FindingKind::Ghost;
        let processes = |finding: &Finding| {
            let suspects = finding.suspects.iter();
            suspects.map(|suspect| suspect.process).collect::<BTreeSet<_>>()
        };
        let suspected = processes(self);
        is_ghost(self) && is_ghost(other) && !suspected.is_empty() && suspected == processes(other)
    }

    /// Adds the devices of another finding about the same processes.
    fn join(&mut self, mut other: Finding) {
        if self.devices.len() == 1 {
            self.name_device_in_evidence();
        }
        other.name_device_in_evidence();
        self.evidence.append(&mut other.evidence);
        self.devices.append(&mut other.devices);
        self.memory = self.memory.zip(other.memory).map(|(own, more)| own + more);
        self.confidence = self.confidence.max(other.confidence);
        for suspect in &mut self.suspects {
            let there = other.suspects.iter().find(|there| there.process == suspect.process);
            suspect.confidence =
                there.map_or(suspect.confidence, |there| there.confidence.max(suspect.confidence));
        }
    }

    fn name_device_in_evidence(&mut self) {
        let Some(device) = self.devices.first() else { return };
        for evidence in &mut self.evidence {
            evidence.text.insert_str(0, &format!("GPU {}: ", device.index));
        }
    }
}

/// A known finding that is not to be reported: its kind, on one device or on all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its kind.
    pub kind: FindingKind,
    /// The index of the device; `None` for every device.
    pub device: Option<u32>,
}

impl FromStr for Ignored {
    type Err = String;

    /// Parses `KIND` or `KIND:GPU`, such as `hoarder` or `nvlink-down:3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, device) = match text.split_once(':') {
            Some((name, index)) => {
                let index = index.parse().map_err(|_| format!("'{index}' is not a GPU index"))?;
                (name, Some(index))
            }
            None => (text, None),
        };
        let kind = FindingKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| {
            let names = FindingKind::ALL.map(FindingKind::name).join(", ");
            format!("'{name}' is not a kind of finding; expected {names}")
        })?;
        Ok(Ignored { kind, device })
    }
}

impl Diagnosis {
    /// Returns the process to which the memory that no listed process accounts for belongs, with
    /// high confidence: the only suspect of a ghost on this device alone.
    pub fn only_ghost(&self, device: &DeviceId) -> Option<Pid> {
        let is_it = |finding: &&Finding| {
            finding.kind == FindingKind::Ghost
                && finding.confidence == Confidence::High
                && finding.devices == std::slice::from_ref(device)
        };
        match &self.findings.iter().find(is_it)?.suspects[..] {
            [only] => Some(only.process.pid),
            _ => None,
        }
    }

    /// Returns the findings that are at least likely.
    pub fn confident(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_confident())
    }

    /// Returns how many findings are only possible: a healthy machine has such findings too, so a
    /// view counts them without names.
    pub fn possible_count(&self) -> usize {
        self.findings.iter().filter(|finding| !finding.is_confident()).count()
    }

    /// Removes the findings that call a process idle, orphaned or stuck if `is_excused` for one of
    /// their devices. Findings proved over hours (confidence high) stay: otherwise a new lease
    /// every few minutes would hide a process forever.
    pub fn excuse(&mut self, is_excused: impl Fn(&DeviceId, Pid) -> bool) {
        self.findings.retain(|finding| {
            let is_about_rest = matches!(
                finding.kind,
                FindingKind::StuckHolder | FindingKind::Orphan | FindingKind::Hoarder
            );
            let mut suspects = finding.suspects.iter().map(|suspect| suspect.process.pid);
            let mut excused =
                || suspects.any(|pid| finding.devices.iter().any(|device| is_excused(device, pid)));
            !is_about_rest || finding.confidence == Confidence::High || !excused()
        });
    }

    /// Keeps the findings with at least this confidence that are not ignored. A finding on several
    /// devices is ignored if it is on each of them.
    pub fn retain(&mut self, least: Confidence, ignored: &[Ignored]) {
        let is_ignored = |kind, index: Option<u32>| {
            let covers = |ignored: &Ignored| ignored.device.is_none() || ignored.device == index;
            ignored.iter().any(|ignored| ignored.kind == kind && covers(ignored))
        };
        let found = self.findings.len();
        self.findings.retain(|finding| {
            let mut indexes = finding.devices.iter().map(|id| Some(id.index));
            let known = if finding.devices.is_empty() {
                is_ignored(finding.kind, None)
            } else {
                indexes.all(|index| is_ignored(finding.kind, index))
            };
            finding.confidence >= least && !known
        });
        self.left_out += found - self.findings.len();
    }

    /// Joins the ghosts of several devices that have the same suspects: a process that uses memory
    /// of all of them is one problem. The advice for the first device also frees the others.
    pub fn join_ghosts(&mut self) {
        let mut joined: Vec<Finding> = Vec::new();
        for finding in std::mem::take(&mut self.findings) {
            match joined.iter_mut().find(|known| known.is_same_ghost(&finding)) {
                Some(known) => known.join(finding),
                None => joined.push(finding),
            }
        }
        self.findings = joined;
    }

    /// Returns whether a finding explains why the process list of a device could not be read: a
    /// fault of this device, or the same fault on another one.
    pub fn explains_list_of(&self, snapshot: &Snapshot, device: &DeviceState) -> bool {
        let Err(fault) = &device.processes else { return true };
        let reaches_all = matches!(fault.kind.reach(), Reach::Device | Reach::Machine);
        let faults = self.findings.iter().filter(|f| f.kind == FindingKind::DeviceFault);
        faults.flat_map(|finding| &finding.devices).any(|id| {
            if id.same_device(device.id()) {
                reaches_all
            } else {
                snapshot.device(id).is_some_and(|d| d.processes.as_ref().err() == Some(fault))
            }
        })
    }
}

/// A process behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// The process.
    pub process: ProcessKey,
    /// The confidence that this process is behind it.
    pub confidence: Confidence,
    /// The observations about it.
    pub evidence: Vec<Evidence>,
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
    /// End the processes that hold the device without using it.
    ReapDevice(u32),
    /// Inspect one process, then end it by PID.
    ReapProcess(Pid),
    /// Repeat with the privileges to see every process.
    LookAsRoot,
    /// Paste the holders of the device files as well.
    PasteHolders,
    /// Repeat on the host, outside the container.
    LookOnHost,
    /// Take several snapshots within seconds, to distinguish a lasting state from a momentary one.
    LookLonger,
    /// Take snapshots for minutes, to distinguish an idle process from a pausing one.
    WatchIdle,
    /// Restrict the program to the device that it computes on.
    LimitVisibleDevices(Vec<u32>),
    /// Make the framework allocate memory on demand.
    LetMemoryGrow,
    /// Run one process per device, on this many devices, if the job is to use all of them.
    UseDevices(usize),
    /// Prepare data in other processes, or before the devices need it.
    FeedDevices,
    /// Reset the device once no process holds it.
    ResetDevice(u32),
    /// Give the driver more time to answer: without persistence mode it is slow.
    AllowMoreTime,
    /// Read the driver's messages in the kernel log.
    ReadKernelLog,
    /// Read in the kernel log which process had an error of its program.
    ReadProgramError,
    /// As [`ReadKernelLog`](Advice::ReadKernelLog), for the drivers of AMD and Intel.
    ReadDrmLog,
    /// Load the driver's module, which was unloaded during the query.
    LoadDriver,
    /// Wait for I/O or the driver to finish; if it never does, only a reboot helps.
    WaitOrReboot,
    /// Reboot the machine.
    Reboot,
    /// End the work that uses the device together with others.
    EndPeerWork(u32),
    /// Read which recovery action the driver requests.
    ReadRecoveryAction(u32),
    /// Stop the service that a monitor or daemon belongs to.
    StopService(Pid),
    /// Ask the parent to reap its child, or end the parent.
    EndParent(Pid),
    /// Stop a systemd unit of the system or of a user.
    StopUnit {
        /// Its name.
        unit: String,
        /// The user whose service manager runs it; `None` for the system's.
        user: Option<String>,
    },
    /// Ask the owner of the process that computes on the device of this index.
    AskOwner(u32),
    /// Cancel a Slurm job.
    CancelJob(String),
    /// Stop a container by its ID.
    StopContainer {
        /// Podman runs it, not Docker or containerd.
        podman: bool,
        /// The ID.
        id: String,
    },
    /// Delete the Kubernetes pod with this UID.
    DeletePod(String),
    /// Delete the Kubernetes pod with this name.
    DeleteNamedPod {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// Set the compute mode of a device back to Default.
    AllowCompute(u32),
    /// Create a MIG instance on a device, or disable MIG.
    CreateMigInstance(u32),
    /// Have a device examined, and replaced.
    ReplaceDevice(u32),
    /// Check fans, airflow and the temperature of the room.
    CheckCooling(u32),
    /// Check the power supply and its cables.
    CheckPower(u32),
    /// Check the seat of the card, and the riser.
    CheckSlot(u32),
    /// The same for the device at this address, without a tool of its vendor.
    CheckPciLink(PciBusId),
    /// Read the sensors of the machine, and check cooling and power.
    ReadSensors,
    /// Check the NVLinks of a device.
    CheckNvLinks(u32),
    /// Check the fabric manager.
    CheckFabricManager,
    /// Reset all GPUs and NVSwitches of the machine together.
    ResetFabric,
    /// Read the counts of NVLink errors.
    ReadLinkErrors,
    /// Restart the service of the IMEX domain.
    RestartImex,
    /// Keep the driver initialised.
    EnablePersistence,
}

impl Advice {
    /// Returns how to end a process without surprise for its owner: a job or a container through
    /// its runtime, a service through systemd, any other process by its PID.
    pub(crate) fn to_end(now: &Snapshot, pid: Pid) -> Advice {
        now.process(pid).map_or(Advice::ReapProcess(pid), Advice::to_end_process)
    }

    /// Returns how to end this process, in the same way.
    pub(crate) fn to_end_process(info: &ProcessInfo) -> Advice {
        let pid = info.key.pid;
        if let Some(workload) = info.workload.as_deref() {
            let Workload { kind, id, cgroup } = workload;
            let is_container_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let id = id.clone();
            return match kind {
                _ if workload.is_named_by_user() => Advice::ReapProcess(pid),
                WorkloadKind::SlurmJob => Advice::CancelJob(id),
                WorkloadKind::Pod => match info.pod.as_deref() {
                    Some(PodName { namespace, name, evidence: PodEvidence::Uid, .. }) => {
                        Advice::DeleteNamedPod { namespace: namespace.clone(), name: name.clone() }
                    }
                    _ => Advice::DeletePod(id),
                },
                WorkloadKind::Container if is_container_id && cgroup.contains("libpod-") => {
                    Advice::StopContainer { podman: true, id }
                }
                WorkloadKind::Container if is_container_id && cgroup.contains("docker") => {
                    Advice::StopContainer { podman: false, id }
                }
                WorkloadKind::Container => Advice::ReapProcess(pid),
            };
        }
        match (info.service(), &info.user) {
            (Some(ServiceUnit { name, by_user: false }), _) => {
                Advice::StopUnit { unit: name.to_owned(), user: None }
            }
            (Some(ServiceUnit { name, by_user: true }), Ok(user)) => {
                Advice::StopUnit { unit: name.to_owned(), user: Some(user.clone()) }
            }
            _ => Advice::ReapProcess(pid),
        }
    }
}
