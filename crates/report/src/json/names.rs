//! The words of JSON for what the libraries tell apart.
//!
//! Each enum here stands for one of another crate, which may then rename its own. The conversions
//! are exhaustive, so a new variant there does not compile before it has a word and, by its doc
//! comment, a meaning here.

use serde::Serialize;

/// Defines the words for the variants of an enum of another crate.
macro_rules! names {
    ($(
        $(#[$meta:meta])*
        $name:ident of $known:ty { $( $(#[$of_variant:meta])* $variant:ident, )* }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $( $(#[$of_variant])* $variant, )*
        }

        impl From<$known> for $name {
            fn from(known: $known) -> Self {
                type Known = $known;
                match known {
                    $( Known::$variant => $name::$variant, )*
                }
            }
        }
    )* };
}
pub(super) use names;

names! {
    /// Why a value is null.
    Absent of gpu_core::Absent {
        /// The device, the driver or the kernel does not support it.
        NotSupported,
        /// The caller lacks the permission to read it.
        NotPermitted,
        /// The object does not exist or is gone.
        NotFound,
        /// The installed driver is too old to report it.
        TooOld,
        /// The installed driver no longer reports it.
        Deprecated,
        /// The device returned an error instead of a value.
        Failed,
        /// The driver did not answer in time.
        NoAnswer,
        /// The device sleeps and was not queried.
        Asleep,
        /// The device is lost or requires a reset.
        DeviceLost,
        /// The recording or the pasted text does not contain it.
        NotRecorded,
        /// The reported value is impossible.
        Implausible,
    }

    /// State of a process, from /proc/PID/stat.
    ProcessState of gpu_core::ProcessState {
        /// Running or runnable.
        Running,
        /// In interruptible sleep, or an idle kernel thread.
        Sleeping,
        /// In uninterruptible sleep: no signal ends it yet.
        Uninterruptible,
        /// Stopped by a signal or a debugger.
        Stopped,
        /// Ended and not yet reaped by its parent; other threads may be alive.
        Zombie,
        /// Any other state.
        Other,
    }

    /// Kind of workload that a process belongs to.
    WorkloadKind of gpu_core::WorkloadKind {
        /// A container outside Kubernetes.
        Container,
        /// A Kubernetes pod.
        Pod,
        /// A Slurm job.
        SlurmJob,
    }

    /// How the name of a pod is known.
    PodEvidence of gpu_core::PodEvidence {
        /// The kubelet has a pod with the UID that the cgroup has.
        Uid,
        /// The devices of the process are assigned to this pod alone.
        Devices,
    }

    /// Whether a device can access the memory of another, as nvidia-smi topo -p2p reports it.
    PeerAccess of gpu_core::PeerAccess {
        /// Both are the same device (X).
        Itself,
        /// It can (OK).
        Ok,
        /// The chipset does not support it (CNS).
        ChipsetNotSupported,
        /// The device does not support it (GNS).
        DeviceNotSupported,
        /// The path between the devices does not support it (TNS).
        TopologyNotSupported,
        /// A registry key disables it (DR).
        Disabled,
        /// Not supported (NS).
        NotSupported,
        /// The driver reported anything else (U).
        Unknown,
    }

    /// Which processes may create a CUDA context on a device.
    ComputeMode of gpu_core::ComputeMode {
        /// Any process.
        Default,
        /// One thread of one process.
        ExclusiveThread,
        /// No process.
        Prohibited,
        /// One process.
        ExclusiveProcess,
    }

    /// How a device accesses memory that programs allocated on the host.
    AddressingMode of gpu_core::AddressingMode {
        /// Not at all: only memory that was allocated for the device.
        None,
        /// Heterogeneous memory management: by a mirror of the page tables of the host.
        Hmm,
        /// Address translation services: by the page tables of the host.
        Ats,
    }

    /// What the driver asks for to make a GPU work again.
    RecoveryAction of gpu_core::RecoveryAction {
        /// Nothing: the GPU works.
        None,
        /// A reset of the GPU.
        Reset,
        /// A reboot of the machine.
        Reboot,
        /// The end of its peer-to-peer work with other GPUs.
        DrainPeers,
        /// A reset once no work runs on the GPU.
        DrainAndReset,
        /// The recovery of the IMEX domain, in which GPUs of several machines share memory.
        RecoverImex,
        /// Another one, which this version does not know.
        Other,
    }

    /// GPU operation mode.
    OperationMode of gpu_core::OperationMode {
        /// All features are on.
        AllOn,
        /// Compute only: graphics are off.
        Compute,
        /// Graphics without high double-precision performance.
        LowDoublePrecision,
    }

    /// State of a device's registration with its NVLink fabric.
    FabricState of gpu_core::FabricState {
        /// The device is part of no fabric.
        None,
        /// Not started.
        NotStarted,
        /// In progress.
        InProgress,
        /// Completed, successfully or not.
        Completed,
    }

    /// A signal sent to a process.
    Signal of gpu_core::Signal {
        /// Asks the process to end.
        #[serde(rename = "SIGTERM")]
        Term,
        /// Ends the process.
        #[serde(rename = "SIGKILL")]
        Kill,
    }

    /// Role of a process on a device, from its files, its user and its executable.
    Role of gpu_reaper::Role {
        /// Uses device memory.
        MemoryUser,
        /// Has the device open and uses none of its memory.
        Monitor,
        /// A display server or compositor.
        Display,
        /// A daemon of the driver: persistence, MPS, DCGM, fabric manager.
        Daemon,
    }

    /// Kind of a finding.
    FindingKind of gpu_reaper::FindingKind {
        /// Memory is in use that no listed process accounts for, and a process holds the device.
        Ghost,
        /// Memory is in use that no listed process accounts for, and no process holds the device.
        DriverLeak,
        /// Memory is in use that no listed process accounts for, and some processes could not be
        /// inspected.
        NotPermitted,
        /// The driver's PIDs belong to a PID namespace that is not visible from here.
        ForeignNamespace,
        /// The driver lists a process that does not exist.
        ListedButGone,
        /// The main thread of a holder has ended while other threads are alive.
        ZombieHolder,
        /// A holder is in uninterruptible sleep: no signal ends it.
        StuckHolder,
        /// The parent and the process group leader of a holder are gone.
        Orphan,
        /// A process keeps memory and does not compute.
        Hoarder,
        /// The memory of a process has grown for hours without falling.
        MemoryGrowth,
        /// The device returns an error, or requires a reset.
        DeviceFault,
        /// Memory of the device has uncorrected errors, or a part of it is to be replaced.
        MemoryErrors,
        /// The device has fewer active NVLinks than its equals, or no place in its NVLink fabric.
        #[serde(rename = "nvlink-down")]
        NvLinkDown,
        /// The driver has written an error into the kernel log (Xid).
        DriverError,
        /// The device is in MIG mode and has no instance.
        NoMigInstance,
        /// No program may create a CUDA context on the device.
        ComputeProhibited,
        /// The device is busy, and no process uses it.
        BusyWithoutProcess,
        /// Heat or a lack of power reduces the clocks of the device.
        Throttled,
        /// At work, the PCI Express link has fewer lanes or a lower generation than possible.
        SlowPcie,
        /// A change of mode takes effect at the next reset.
        PendingReset,
        /// The device requires a reset, and processes block it.
        BlockedReset,
    }

    /// How certain a finding is.
    Confidence of gpu_reaper::Confidence {
        /// One sample cannot show more.
        Possible,
        /// The evidence suggests it; another cause is possible.
        Likely,
        /// The evidence has no other explanation.
        High,
    }

    /// What an unplanned process did.
    NewcomerReason of gpu_reaper::Why {
        /// It uses a device whose memory was freed.
        TookTheDevice,
        /// It was started in, or moved to, a process group or container that was ended as a whole.
        JoinedTheScope,
    }

    /// A framework whose allocator can be limited.
    Framework of gpu_memory_advice::environment::Framework {
        /// PyTorch.
        Torch,
        /// TensorFlow.
        #[serde(rename = "tensorflow")]
        TensorFlow,
        /// JAX, and other users of XLA through its Python client.
        Jax,
    }

    /// What enforces a limit.
    Keeper of gpu_memory_advice::environment::Keeper {
        /// The MPS server, independently of the program.
        Server,
        /// The allocator of the framework, for memory that it allocates.
        Allocator,
        /// Nothing: the program allocates memory only as needed.
        Nobody,
    }

    /// Why an allocation failed.
    Cause of gpu_memory_advice::explain::Cause {
        /// The request alone exceeds the memory of the device.
        LargerThanDevice,
        /// The memory in use and the request together exceed the memory of the device.
        TooBig,
        /// The program itself fills the device.
        Full,
        /// Enough memory was free, but not contiguous.
        Fragmented,
        /// Other processes hold the missing memory.
        OtherProcesses,
        /// Many processes hold the missing memory, each with little more than a CUDA context.
        ManyContexts,
        /// A process that the message does not name holds the missing memory.
        Unnamed,
        /// The allocator reached its limit.
        Limit,
        /// One buffer is larger than the device or its driver allows.
        BufferLimit,
        /// Nothing ran short: other programs changed the free memory while the engine measured it.
        Disturbed,
        /// Nothing ran short: the figure in the message is impossible.
        ImpossibleFigure,
        /// The memory was in use before the program started.
        TakenBefore,
        /// Host memory ran out.
        HostMemory,
        /// The program continued without the memory.
        NoFailure,
        /// Enough memory was free when the message was printed.
        FreeEnough,
        /// The message has too few figures to tell.
        NotTold,
    }

    /// Kind of a remedy.
    RemedyKind of gpu_memory_advice::explain::RemedyKind {
        /// An environment variable of the program.
        Environment,
        /// A command to run.
        Command,
        /// A command-line option of the program.
        Option,
        /// A line of code in the program.
        Code,
        /// A change of the workload.
        Work,
    }

    /// Source of an out-of-memory message.
    MessageSource of gpu_text::oom::Framework {
        /// PyTorch.
        #[serde(rename = "pytorch")]
        PyTorch,
        /// TensorFlow or its allocator.
        #[serde(rename = "tensorflow")]
        TensorFlow,
        /// The allocator of XLA outside TensorFlow.
        Xla,
        /// The runtime of XLA, as JAX shows it.
        #[serde(rename = "jax/xla")]
        Jax,
        /// CuPy.
        #[serde(rename = "cupy")]
        CuPy,
        /// RAPIDS Memory Manager.
        Rmm,
        /// llama.cpp and programs based on ggml.
        #[serde(rename = "llama.cpp")]
        LlamaCpp,
        /// vLLM.
        Vllm,
        /// PaddlePaddle.
        Paddle,
        /// ONNX Runtime.
        #[serde(rename = "onnxruntime")]
        OnnxRuntime,
        /// TensorRT.
        #[serde(rename = "tensorrt")]
        TensorRt,
        /// CUDA.jl.
        #[serde(rename = "cuda.jl")]
        CudaJl,
        /// SGLang.
        #[serde(rename = "sglang")]
        SgLang,
        /// TensorRT-LLM.
        #[serde(rename = "tensorrt-llm")]
        TensorRtLlm,
        /// Triton Inference Server.
        Triton,
        /// Text Generation Inference.
        Tgi,
        /// LMDeploy and its TurboMind.
        #[serde(rename = "lmdeploy")]
        LmDeploy,
        /// ollama.
        Ollama,
        /// ExLlama.
        #[serde(rename = "exllama")]
        ExLlama,
        /// DeepSpeed.
        #[serde(rename = "deepspeed")]
        DeepSpeed,
        /// Hugging Face Accelerate.
        Accelerate,
        /// bitsandbytes.
        #[serde(rename = "bitsandbytes")]
        BitsAndBytes,
        /// Unsloth.
        Unsloth,
        /// ComfyUI.
        #[serde(rename = "comfyui")]
        ComfyUi,
        /// HAMi, which limits the memory of containers.
        Hami,
        /// NCCL.
        Nccl,
        /// The runtime of Ascend's NPUs.
        Ascend,
        /// The kernel's out-of-memory killer.
        Kernel,
        /// systemd-oomd.
        SystemdOomd,
        /// Slurm.
        Slurm,
        /// Ray's memory monitor.
        Ray,
        /// The kubelet or a container runtime.
        Kubelet,
        /// NVIDIA's kernel module.
        NvidiaDriver,
        /// The runtime of the GPU or one of its libraries; the program is unknown.
        Cuda,
        /// A program that asked for host memory: NumPy, or an unknown one.
        Host,
    }
}

#[cfg(feature = "memory-trace")]
names! {
    /// Format of a memory recording.
    RecordingFormat of gpu_memory_trace::trace::Format {
        /// JSON Lines of this project.
        Own,
        /// PyTorch's torch.cuda.memory._dump_snapshot.
        TorchSnapshot,
        /// Log of the RAPIDS Memory Manager.
        RmmLog,
        /// Allocator dump in a log of TensorFlow or XLA.
        BfcDump,
    }
}

/// Where the data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// This machine.
    Live,
    /// A simulated machine, or a recording that is replayed as one.
    Simulated,
    /// Pasted output of other tools.
    Pasted,
    /// A history.
    Recorded,
}

impl From<&gpu_core::Origin> for Origin {
    fn from(known: &gpu_core::Origin) -> Self {
        match known {
            gpu_core::Origin::Live => Origin::Live,
            gpu_core::Origin::Simulated(_) => Origin::Simulated,
            gpu_core::Origin::Pasted => Origin::Pasted,
            gpu_core::Origin::Recorded(_) => Origin::Recorded,
        }
    }
}

/// Outcome of the search of all processes for holders of the device files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum HolderSearch {
    /// All processes were searched.
    Done,
    /// Listed processes account for the memory of every GPU, so nothing was searched. The option
    /// --holders searches anyway.
    NotNeeded,
    /// The search failed.
    Failed,
}

impl From<&gpu_core::Snapshot> for HolderSearch {
    fn from(snapshot: &gpu_core::Snapshot) -> Self {
        match &snapshot.holders {
            Ok(_) => HolderSearch::Done,
            Err(fault) if fault.kind == gpu_core::ErrorKind::NotRequested => {
                HolderSearch::NotNeeded
            }
            Err(_) => HolderSearch::Failed,
        }
    }
}

/// Kind of a file: for the file of a GPU an object with its minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// The file of one GPU (/dev/nvidiaN), with its minor number.
    Gpu(u32),
    /// Control file of the driver (/dev/nvidiactl).
    Control,
    /// Unified memory (/dev/nvidia-uvm), opened by CUDA contexts.
    Uvm,
    /// Tools for unified memory (/dev/nvidia-uvm-tools), such as debuggers and profilers.
    UvmTools,
    /// Mode setting (/dev/nvidia-modeset), opened by display servers.
    Modeset,
    /// Capabilities for MIG and monitoring (/dev/nvidia-caps).
    Capability,
    /// Graphics (/dev/dri).
    Render,
    /// Any other file.
    Other,
}

impl FileKind {
    pub(super) fn of(file: &gpu_core::DeviceFile) -> Self {
        use gpu_core::{DeviceKey, FileId, FileRole};
        match (file.role, file.device) {
            (FileRole::Compute, Some(DeviceKey::Node(FileId::Device { minor, .. }))) => {
                FileKind::Gpu(minor)
            }
            (FileRole::Compute, Some(_)) => FileKind::Gpu(file_number(&file.path)),
            (FileRole::Control, _) => FileKind::Control,
            (FileRole::Memory, _) => FileKind::Uvm,
            (FileRole::Tools, _) => FileKind::UvmTools,
            (FileRole::Display, _) => FileKind::Modeset,
            (FileRole::Capability, _) => FileKind::Capability,
            (FileRole::Render, _) => FileKind::Render,
            (FileRole::Compute | FileRole::Other, _) => FileKind::Other,
        }
    }
}

/// Returns the number at the end of the name of a device file; 0 without one.
pub(super) fn file_number(path: &str) -> u32 {
    let name = path.trim_end_matches(|c: char| c.is_ascii_digit());
    path[name.len()..].parse().unwrap_or_default()
}
