//! Evidence: the observations of a detector, as a code and in words.

use gpu_core::{DeviceFault, DriverError, DriverErrorCode, ErrorKind, Fault};
use serde::Serialize;
use std::fmt;

/// One observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The kind of observation.
    pub sign: Sign,
    /// The observation, as a sentence fragment.
    pub text: String,
    /// The code of an error that the driver has logged ([`Sign::LoggedError`]).
    pub code: Option<DriverErrorCode>,
}

impl Evidence {
    pub(crate) fn new(sign: Sign, text: impl Into<String>) -> Self {
        Evidence { sign, text: text.into(), code: None }
    }

    /// Returns the evidence of an error that the driver has logged.
    pub(crate) fn of_error(error: &DriverError, text: String) -> Self {
        Evidence { sign: Sign::LoggedError, text, code: Some(error.code.clone()) }
    }

    /// Returns the evidence that a call of the driver failed.
    pub(crate) fn of_failure(fault: &Fault) -> Self {
        let sign = match fault.kind {
            ErrorKind::TimedOut => Sign::NoAnswer,
            ErrorKind::Device(DeviceFault::Lost) => Sign::DeviceLost,
            ErrorKind::Device(DeviceFault::ResetRequired) => Sign::ResetRequired,
            ErrorKind::Device(_) => Sign::DeviceError,
            _ => Sign::DriverUnavailable,
        };
        Evidence::new(sign, format!("failed to {fault}"))
    }

    /// Returns the words of several observations, in the same order.
    pub fn texts(evidence: &[Evidence]) -> Vec<&str> {
        evidence.iter().map(|one| one.text.as_str()).collect()
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Kind of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "EvidenceCode"))]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// Listed processes and the driver's overhead do not account for the used memory.
    UnexplainedMemory,
    /// The driver's figures do not show the memory of unlisted processes.
    MemoryNotMeasured,
    /// One MIG instance has all of the unexplained memory.
    MemoryInMigInstance,
    /// More memory is used than the driver's overhead, and NVML's PIDs are invalid here.
    MemoryUsed,
    /// The holders of the device files are unknown.
    HoldersUnknown,
    /// Some processes could not be inspected.
    UninspectedProcesses,
    /// All processes were inspected, and none uses memory of the device.
    NoMemoryUser,
    /// MIG is enabled, so the process lists may be incomplete.
    MigEnabled,
    /// A process of MPS holds the device.
    HeldByMps,
    /// A process with the name of a display server or daemon has the device mapped.
    MappedByDisplayOrDaemon,
    /// NVML lists a PID that does not exist here.
    PidNotFound,
    /// This is a separate PID namespace, and NVML reports host PIDs.
    SeparatePidNamespace,
    /// NVML lists processes by host PIDs.
    HostPidsListed,

    /// The process has the device mapped.
    DeviceFileMapped,
    /// The process has the device open.
    DeviceFileOpen,
    /// The process uses the device, and NVML's PIDs are invalid here.
    UsesDevice,
    /// The process was started less than 30 seconds ago.
    StartedJustNow,
    /// The main thread of the process exited, and other threads hold the device.
    MainThreadExited,
    /// The process is in a PID namespace of its own.
    OwnPidNamespace,
    /// The process is in a container.
    Container,
    /// The process is in a Kubernetes pod.
    Pod,
    /// The process is in a Slurm job.
    SlurmJob,
    /// A signal or a debugger stopped the process.
    Stopped,
    /// The process holds much memory.
    HoldsMemory,
    /// Memory has grown for hours without falling: that of the process, or what no listed
    /// process accounts for.
    MemoryGrows,
    /// The process has not computed since it was first seen, hours ago.
    NeverComputed,
    /// The process did not compute in several samples.
    Idle,
    /// The process was not seen computing, over too short a time to call it idle.
    NoComputeObserved,
    /// The process uses a whole CPU or more while its devices compute little.
    HostBusy,
    /// The process computes on other devices only.
    ComputesOnOtherDevice,
    /// The parent and the process group leader of the process exited.
    ParentExited,
    /// The process is a worker of Python's multiprocessing.
    MultiprocessingWorker,
    /// The process is a worker of Ray, whose parent is a raylet of the same owner.
    RayWorker,
    /// The process may be a daemon: a daemon would look the same.
    MayBeDaemon,
    /// The process exited, and its parent has not reaped it.
    Zombie,
    /// The process is in uninterruptible sleep (state D).
    UninterruptibleSleep,

    /// The driver did not answer in time.
    NoAnswer,
    /// The driver could not be used.
    DriverUnavailable,
    /// The device has fallen off the bus.
    DeviceLost,
    /// The device returned another error.
    DeviceError,
    /// Some devices were not queried, because the driver did not answer before.
    NotQueried,
    /// Some values of the device cannot be read.
    UnreadableValues,
    /// The driver has written an error into the kernel log (Xid).
    #[serde(rename = "xid")]
    LoggedError,
    /// An NVSwitch has written an error into the kernel log (SXid).
    #[serde(rename = "sxid")]
    SwitchError,
    /// The device requires a reset.
    ResetRequired,
    /// The device requires a reboot of the machine.
    RebootRequired,
    /// The driver requests another recovery of the device than a reset or a reboot.
    RecoveryRequired,
    /// The driver recommends a reset of the device once it is idle.
    ResetRecommended,
    /// Processes have the device open, which prevents a reset.
    ResetBlocked,
    /// The compute mode is Prohibited.
    ComputeProhibited,
    /// MIG is enabled, and there is no instance.
    NoMigInstance,
    /// MIG will be enabled or disabled by the next reset.
    MigModePending,
    /// ECC will be enabled or disabled by the next reset.
    EccModePending,
    /// ECC could not correct memory errors since the driver was loaded.
    UncorrectedEccErrors,
    /// A row of the memory could not be remapped.
    RowRemappingFailed,
    /// Uncorrected errors of the SRAM are past NVIDIA's limit for a replacement.
    SramThresholdExceeded,
    /// Banks of the memory have no spare row left.
    NoSpareRows,
    /// A row or page of the memory is replaced at the next reset.
    MemoryRepairPending,

    /// The device has fewer active NVLinks than others of its product.
    #[serde(rename = "fewer-nvlinks")]
    FewerNvLinks,
    /// All NVLinks of the device are inactive.
    #[serde(rename = "nvlinks-inactive")]
    NvLinksInactive,
    /// The device is not registered with its NVLink fabric yet.
    FabricNotRegistered,
    /// The registration of the device with its NVLink fabric failed.
    FabricRegistrationFailed,
    /// The device reports that its routes or its bandwidth in the NVLink fabric are impaired.
    FabricUnhealthy,
    /// Under load, the PCI Express link has fewer lanes or a lower generation than possible.
    SlowPcieLink,
    /// Heat or a lack of power reduces the clocks.
    ClocksReduced,
    /// The temperature is at the slowdown threshold or above.
    AtSlowdownTemperature,
    /// The temperature is below the slowdown threshold.
    BelowSlowdownTemperature,
    /// The device is busy, but no process uses it.
    BusyWithoutProcess,
    /// The device reports high utilization but draws little power.
    LowPower,
    /// Persistence mode is off.
    PersistenceModeOff,
    /// Several consecutive samples show the same.
    SameInSeveralSamples,
}
