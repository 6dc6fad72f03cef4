//! Evidence: what a detector observed, as a code and in words.

use gpu_core::{DeviceFault, ErrorKind, Fault};
use serde::Serialize;
use std::fmt;

/// One observation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What kind of observation it is.
    pub sign: Sign,
    /// The observation, as a sentence fragment.
    pub text: String,
}

impl Evidence {
    pub(crate) fn new(sign: Sign, text: impl Into<String>) -> Self {
        Evidence { sign, text: text.into() }
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

/// Defines the kinds of observations with their names.
macro_rules! signs {
    ($( $(#[$meta:meta])* $variant:ident = $name:literal, )*) => {
        /// The kind of an observation: of a device, of a process on it, or of the driver.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub enum Sign {
            $( $(#[$meta])* #[serde(rename = $name)] $variant, )*
        }

        impl Sign {
            /// Every kind, in order.
            pub const ALL: &'static [Sign] = &[$( Sign::$variant, )*];

            /// Returns its name, as serialised.
            pub fn name(self) -> &'static str {
                match self {
                    $( Sign::$variant => $name, )*
                }
            }
        }
    };
}

signs! {
    /// Listed processes and the driver's overhead do not account for the used memory.
    UnexplainedMemory = "unexplained-memory",
    /// One MIG instance has all of the unexplained memory.
    MemoryInMigInstance = "memory-in-mig-instance",
    /// More memory is used than the driver's overhead, and NVML's PIDs are invalid here.
    MemoryUsed = "memory-used",
    /// The holders of the device files are unknown.
    HoldersUnknown = "holders-unknown",
    /// Some processes could not be inspected.
    UninspectedProcesses = "uninspected-processes",
    /// All processes were inspected, and none uses memory of the device.
    NoMemoryUser = "no-memory-user",
    /// MIG is enabled, so the process lists may be incomplete.
    MigEnabled = "mig-enabled",
    /// A process of MPS holds the device.
    HeldByMps = "held-by-mps",
    /// A process with the name of a display server or daemon has the device mapped.
    MappedByDisplayOrDaemon = "mapped-by-display-or-daemon",
    /// NVML lists a PID that does not exist here.
    PidNotFound = "pid-not-found",
    /// This is a separate PID namespace, and NVML reports host PIDs.
    SeparatePidNamespace = "separate-pid-namespace",
    /// NVML lists processes by host PIDs.
    HostPidsListed = "host-pids-listed",

    /// The process has the device mapped.
    DeviceFileMapped = "device-file-mapped",
    /// The process has the device open.
    DeviceFileOpen = "device-file-open",
    /// The process uses the device, and NVML's PIDs are invalid here.
    UsesDevice = "uses-device",
    /// The process was started less than 30 seconds ago.
    StartedJustNow = "started-just-now",
    /// The main thread of the process exited, and other threads hold the device.
    MainThreadExited = "main-thread-exited",
    /// The process is in a PID namespace of its own.
    OwnPidNamespace = "own-pid-namespace",
    /// The process is in a container.
    Container = "container",
    /// The process is in a Kubernetes pod.
    Pod = "pod",
    /// The process is in a Slurm job.
    SlurmJob = "slurm-job",
    /// A signal or a debugger stopped the process.
    Stopped = "stopped",
    /// The process holds much memory.
    HoldsMemory = "holds-memory",
    /// The process did not compute in several samples.
    Idle = "idle",
    /// The process was not seen computing, over too short a time to call it idle.
    NoComputeObserved = "no-compute-observed",
    /// The process computes on other devices only.
    ComputesOnOtherDevice = "computes-on-other-device",
    /// The process computes.
    Computes = "computes",
    /// The parent and the process group leader of the process exited.
    ParentExited = "parent-exited",
    /// The process is a worker of Python's multiprocessing.
    MultiprocessingWorker = "multiprocessing-worker",
    /// The process may be a daemon: a daemon would look the same.
    MayBeDaemon = "may-be-daemon",
    /// The process exited, and its parent has not reaped it.
    Zombie = "zombie",
    /// The process is in uninterruptible sleep (state D).
    UninterruptibleSleep = "uninterruptible-sleep",

    /// The driver did not answer in time.
    NoAnswer = "no-answer",
    /// The driver could not be used.
    DriverUnavailable = "driver-unavailable",
    /// The device has fallen off the bus.
    DeviceLost = "device-lost",
    /// The device returned another error.
    DeviceError = "device-error",
    /// Some devices were not queried, because the driver did not answer before.
    NotQueried = "not-queried",
    /// Some values of the device cannot be read.
    UnreadableValues = "unreadable-values",
    /// The driver has written an error into the kernel log (Xid).
    Xid = "xid",
    /// The device requires a reset.
    ResetRequired = "reset-required",
    /// The driver recommends a reset of the device once it is idle.
    ResetRecommended = "reset-recommended",
    /// Processes have the device open, which prevents a reset.
    ResetBlocked = "reset-blocked",
    /// The compute mode is Prohibited.
    ComputeProhibited = "compute-prohibited",
    /// MIG is enabled, and there is no instance.
    NoMigInstance = "no-mig-instance",
    /// MIG will be enabled or disabled by the next reset.
    MigModePending = "mig-mode-pending",
    /// ECC will be enabled or disabled by the next reset.
    EccModePending = "ecc-mode-pending",
    /// ECC could not correct memory errors since the driver was loaded.
    UncorrectedEccErrors = "uncorrected-ecc-errors",
    /// A row of the memory could not be remapped.
    RowRemappingFailed = "row-remapping-failed",
    /// A row or page of the memory is replaced at the next reset.
    MemoryRepairPending = "memory-repair-pending",

    /// The device has fewer active NVLinks than others of its product.
    FewerNvLinks = "fewer-nvlinks",
    /// All NVLinks of the device are inactive.
    NvLinksInactive = "nvlinks-inactive",
    /// The device is not registered with its NVLink fabric yet.
    FabricNotRegistered = "fabric-not-registered",
    /// The registration of the device with its NVLink fabric failed.
    FabricRegistrationFailed = "fabric-registration-failed",
    /// At work, the PCI Express link has fewer lanes or a lower generation than possible.
    SlowPcieLink = "slow-pcie-link",
    /// Heat or a lack of power reduces the clocks.
    ClocksReduced = "clocks-reduced",
    /// The temperature is at the slowdown threshold or above.
    AtSlowdownTemperature = "at-slowdown-temperature",
    /// The temperature is below the slowdown threshold.
    BelowSlowdownTemperature = "below-slowdown-temperature",
    /// The device is busy, and no process uses it.
    BusyWithoutProcess = "busy-without-process",
    /// Persistence mode is off.
    PersistenceModeOff = "persistence-mode-off",
    /// Several samples in a row show the same.
    SameInSeveralSamples = "same-in-several-samples",
}
