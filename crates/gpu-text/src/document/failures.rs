//! Failures of whole tools and of devices, as a text reports them.

use serde::Serialize;

/// The failure of a whole tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// nvidia-smi could not communicate with the driver.
    DriverNotRunning,
    /// The versions of the library and the kernel module differ.
    NvmlMismatch,
    /// The CUDA library that a program loaded is incompatible with the driver.
    CudaMismatch,
    /// No devices were found.
    NoDevices,
    /// A device's handle could not be obtained.
    DeviceHandle,
    /// A reset was refused.
    ResetRefused,
    /// `libnvidia-ml.so.1` was not found.
    NoLibrary,
    /// The operating system blocks the device.
    Blocked,
    /// The caller lacks the permission.
    NotPermitted,
    /// A change of the MIG mode is pending.
    MigPending,
    /// All NVLinks of a device are inactive.
    NvlinksInactive,
    /// NVML or CUDA failed to initialise with an unknown error, usually because a container lost
    /// access to its devices.
    LostAccess,
    /// The container runtime cannot give a container its GPUs.
    ContainerRuntime,
    /// The driver could not allocate system memory (not device memory).
    DriverOutOfMemory,
    /// The driver could not initialise a device.
    InitFailed,
    /// The driver's kernel module could not be loaded.
    ModuleNotLoaded,
    /// The kernel reports a hung task.
    TaskHung,
    /// The driver requires a reboot.
    RebootRequired,
    /// A process was killed for lack of system memory: by the kernel, a cgroup limit, Slurm,
    /// Kubernetes or Ray.
    HostMemory,
    /// The memory of an exited process was not released in time.
    MemoryNotReturned,
    /// CUDA may not create a context on a device: its compute mode is exclusive and it is in use,
    /// or the mode is prohibited.
    DeviceBusy,
    /// CUDA finds no device.
    NoCudaDevice,
    /// A program requested a device that does not exist or that is hidden from it.
    NoSuchDevice,
    /// The driver is older than the CUDA version of the program requires.
    DriverTooOld,
    /// A program was not built for the architecture of the device.
    NoKernelImage,
    /// A kernel of a program made an invalid memory access or failed an assertion.
    MemoryAccess,
    /// A kernel ran too long on a device with a display.
    LaunchTimeout,
    /// A program hit an uncorrected memory error of a device.
    EccError,
    /// A device behind NVLink switches is not registered with its fabric.
    FabricNotReady,
    /// A process uses CUDA after being forked from a process that had initialised CUDA.
    ForkedProcess,
    /// MPS is not reachable.
    MpsUnavailable,
    /// NCCL failed without giving a cause.
    NcclError,
    /// CUDA failed with an unknown error.
    CudaUnknown,
    /// The kernel driver of an AMD or Intel GPU reports that the GPU hung or was reset.
    GpuHung,
    /// Kubernetes has no GPU for a pod.
    NoFreeGpu,
    /// `nvidia-smi` was not found.
    NoTool,
    /// nvidia-smi rejected an option or a field as unknown.
    BadQuery,
    /// Any other failure text.
    Other,
}

/// A failure of a whole tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedFailure {
    /// What failed.
    pub code: ErrorCode,
    /// The line of the text that reports it, without control characters.
    pub line: String,
}

/// A failure of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure {
    /// What failed.
    pub code: ErrorCode,
    /// The device as the text names it.
    pub device: NamedDevice,
    /// The index that the text has next to the PCI address, as in `GPU3: 0000:82:00.0`.
    pub index: Option<u32>,
    /// Whether MIG will be enabled, if that is pending.
    pub enables_mig: bool,
}

/// A device as a failure text names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedDevice {
    /// By its PCI address.
    Bus(gpu_core::PciBusId),
    /// By its index.
    Index(u32),
}
