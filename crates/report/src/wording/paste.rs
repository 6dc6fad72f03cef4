//! The meaning of failures in a pasted text, and the commands to run on that machine.
//!
//! A text shows an effect more often than its cause. If it does not give the cause, the meaning
//! says so, and the first step finds the cause.

use super::reap::Paragraph;
use super::{FUSER, KERNEL_LOG};
use crate::fault::{brief, remedy};
use crate::text::Line;
use gpu_core::{ErrorKind, MachineFault, Snapshot};
use gpu_text::ErrorCode;

/// The meaning of a failure, and the commands to run, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PastedFailure {
    /// The meaning, as a sentence fragment.
    pub meaning: &'static str,
    /// The commands, each with its effect or the reason to run it; at least one.
    pub steps: &'static [(&'static str, &'static str)],
}

/// The commands that report most about the GPUs of a machine.
const ALL_OUTPUT: &str =
    "(nvidia-smi; sudo fuser -v /dev/nvidia*; sudo dmesg | grep -i -e NVRM -e Xid) 2>&1";

/// Returns the meaning of a failure in a pasted text, and the commands to run; `None` for a failure
/// of the whole driver, which is reported as a fault.
pub(crate) fn pasted_failure(code: ErrorCode) -> Option<PastedFailure> {
    let (meaning, steps): (&'static str, &'static [(&'static str, &'static str)]) = match code {
        ErrorCode::DriverNotRunning
        | ErrorCode::NvmlMismatch
        | ErrorCode::NoDevices
        | ErrorCode::NoLibrary
        | ErrorCode::NotPermitted => return None,
        ErrorCode::DeviceHandle => (
            "the driver cannot reach a GPU: it has fallen off the bus or requires a reset",
            &[(KERNEL_LOG, "shows which, and since when")],
        ),
        ErrorCode::ResetRefused => (
            "a reset was refused because a process, perhaps a monitor, has the device open",
            &[(FUSER, "names it")],
        ),
        ErrorCode::MigPending => (
            "a change of the MIG mode is pending: it takes effect after a reset",
            &[(FUSER, "names the processes that prevent it")],
        ),
        ErrorCode::NvlinksInactive => (
            "all NVLinks of a GPU are inactive",
            &[("nvidia-smi nvlink --status", "shows the state of each")],
        ),
        ErrorCode::Blocked => (
            "the operating system blocks the GPU. Under WSL 2, the Windows driver or WSL itself is \
             too old for the other, a Linux driver was installed inside WSL, or the Windows host \
             gives its virtual machines no GPU; elsewhere, a container or job may not open the \
             devices. The text does not say which",
            &[
                ("uname -r", "names microsoft under WSL"),
                (
                    "wsl.exe --update",
                    "under WSL, in Windows, with NVIDIA's current driver for Windows; then wsl.exe \
                     --shutdown",
                ),
                ("ls -l /dev/nvidia*", "elsewhere: the container or job must have these devices"),
            ],
        ),
        ErrorCode::LostAccess => (
            "NVML starts and then fails with an unknown error. Most often a container has lost the \
             right to open its devices: systemd reloaded its units (daemon-reload) and wrote the \
             device rules of the cgroup anew. The text alone does not prove it",
            &[
                ("nvidia-smi -L", "on the host: if it works there, it is the container"),
                ("docker restart CONTAINER", "gives it the devices again, until the next reload"),
                (
                    "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
                    "on the host, so that a reload keeps the devices; or request them by CDI \
                     (--device nvidia.com/gpu=all), name each with --device, or set Docker's \
                     native.cgroupdriver=cgroupfs",
                ),
            ],
        ),
        ErrorCode::ContainerRuntime => (
            "the container runtime cannot give the container its GPUs, which NVIDIA Container \
             Toolkit does for it; the message says at which step this fails",
            &[
                ("nvidia-smi -L", "on the host: the driver has to work there, and list the GPUs"),
                ("nvidia-container-cli -k -d /dev/stderr info", "prints why the toolkit fails"),
                (
                    "sudo nvidia-ctk runtime configure --runtime=docker",
                    "if Docker knows no such runtime or driver; then restart Docker",
                ),
                (
                    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                    "if CDI devices are unresolvable",
                ),
            ],
        ),
        ErrorCode::DriverOutOfMemory => (
            "the driver got no memory from the kernel: system memory ran out, which GPUs without \
             memory of their own (GB10, Jetson) share with all programs. No program is named as the \
             cause, and no memory of a card is missing",
            &[
                ("free -h", "compare 'available' with what the job needs; leave 16 GiB on a GB10"),
                ("ps -eo pid,user,rss,args --sort=-rss | head", "names the largest processes"),
                (
                    "sync; echo 1 | sudo tee /proc/sys/vm/drop_caches",
                    "frees the page cache, which CUDA counts as used on such a GPU",
                ),
            ],
        ),
        ErrorCode::HostMemory => (
            "a process was ended because system memory ran out: that of its job, container or \
             cgroup, or of the whole machine. Memory of a GPU is not what was missing",
            &[
                (
                    "sudo dmesg | grep -i -e oom -e 'killed process'",
                    "names the process, its cgroup and its memory",
                ),
                (
                    "sacct -j JOB -o JobID,State,ReqMem,MaxRSS",
                    "of a Slurm job: request more with --mem; fewer workers that load data take less",
                ),
                ("kubectl describe pod POD", "of a pod: raise resources.limits.memory"),
            ],
        ),
        ErrorCode::MemoryNotReturned => (
            "memory of a process that ended was not given back in time: it has not ended, or \
             another process took the memory",
            &[
                (FUSER, "names who has the GPU open"),
                ("gpuws doctor", "says what holds the memory"),
            ],
        ),
        ErrorCode::DeviceBusy => (
            "CUDA may create no context: the GPU is in compute mode Exclusive_Process and in use, \
             or Prohibited, or it is faulty. The text does not say which",
            &[
                (
                    "nvidia-smi --query-gpu=index,compute_mode --format=csv",
                    "shows the mode (E. Process in the table); sudo nvidia-smi -c DEFAULT ends it",
                ),
                (FUSER, "names the process that uses it"),
            ],
        ),
        ErrorCode::NoCudaDevice => (
            "CUDA finds no GPU: none is visible to the program, or the driver cannot open it. The \
             text does not say which",
            &[(
                "nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"; ls -l /dev/nvidia*",
                "in the same shell, job or container: a GPU that is listed was hidden by the \
                 variable; without device files the container or job got none",
            )],
        ),
        ErrorCode::NoSuchDevice => (
            "a program asks for a GPU by a number that it does not have: the machine has fewer, or \
             CUDA_VISIBLE_DEVICES numbers those that are left from 0",
            &[("nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"", "shows what there is")],
        ),
        ErrorCode::DriverTooOld => (
            "the driver is older than the program's CUDA version requires",
            &[(
                "nvidia-smi",
                "shows the newest CUDA version of the driver: update the driver, or use a build \
                 for that version",
            )],
        ),
        ErrorCode::NoKernelImage => (
            "the program was not built for the architecture of the GPU",
            &[(
                "nvidia-smi --query-gpu=name,compute_cap --format=csv",
                "use a build for this compute capability; torch.cuda.get_arch_list() shows those \
                 of PyTorch",
            )],
        ),
        ErrorCode::MemoryAccess => (
            "a kernel of the program accessed memory that is not its own, or failed an assertion: \
             most often an index out of range, and no lack of memory. The process has to end",
            &[
                ("CUDA_LAUNCH_BLOCKING=1 PROGRAM", "reports the call that fails"),
                ("compute-sanitizer PROGRAM", "names the kernel and the address"),
                (KERNEL_LOG, "Xids 13 and 31 belong to it; others accuse the GPU"),
            ],
        ),
        ErrorCode::LaunchTimeout => (
            "a kernel ran too long on a GPU with a display, and was ended",
            &[("nvidia-smi", "shows the display (Disp.A): compute on another GPU, or without one")],
        ),
        ErrorCode::EccError => (
            "a program met a memory error of the GPU that ECC could not correct: its results are \
             invalid",
            &[
                (
                    "nvidia-smi -q -d ECC,ROW_REMAPPER",
                    "shows the counts, and whether a repair is \
                 pending: reset the GPU then",
                ),
                (KERNEL_LOG, "Xids 48, 63, 64, 94 and 95 belong to it"),
            ],
        ),
        ErrorCode::FabricNotReady => (
            "the GPU is not registered with its NVLink fabric yet (CUDA error 802)",
            &[
                ("systemctl status nvidia-fabricmanager", "must run, in the version of the driver"),
                ("nvidia-smi -q | grep -A 3 Fabric", "State has to become Completed"),
            ],
        ),
        ErrorCode::ForkedProcess => (
            "a process uses CUDA that was forked from one that used it: no fault of the GPU",
            &[(
                "torch.multiprocessing.set_start_method('spawn')",
                "in the program; or start workers before the first use of CUDA",
            )],
        ),
        ErrorCode::MpsUnavailable => (
            "the program is a client of MPS, and the MPS server does not answer",
            &[
                (
                    "ps -C nvidia-cuda-mps-control,nvidia-cuda-mps-server -o pid,user,args",
                    "shows \
                 whether it runs, and for which user",
                ),
                ("echo \"$CUDA_MPS_PIPE_DIRECTORY\"", "must be that of the server"),
            ],
        ),
        ErrorCode::NcclError => (
            "NCCL failed, and the text does not say why: memory, the network, or another process \
             that ended first",
            &[(
                "NCCL_DEBUG=WARN PROGRAM",
                "prints the reason; read the log of the rank that failed first",
            )],
        ),
        ErrorCode::CudaUnknown => (
            "CUDA failed with an unknown error, which is no lack of memory: the driver or the GPU \
             failed. The text does not say why",
            &[
                (KERNEL_LOG, "an Xid names the reason"),
                (
                    "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
                    "after a suspend, once no program uses CUDA; in a container, restart it",
                ),
                (
                    "echo \"$CUDA_VISIBLE_DEVICES\"",
                    "in the program's shell: a program must not change it once it uses CUDA",
                ),
            ],
        ),
        ErrorCode::InitFailed => (
            "the driver could not initialise a GPU. The text does not say why: power, the slot, \
             the firmware, or a driver that does not know the GPU",
            &[
                ("sudo dmesg | grep -i -e NVRM -e nvidia", "the lines before it say why"),
                ("lspci -nnk -d 10de:", "shows whether the bus lists it, and which driver has it"),
            ],
        ),
        ErrorCode::CudaMismatch => (
            "the CUDA library that a program loads (libcuda) does not fit the driver (CUDA error \
             803 or 804): an upgrade without a reboot, or a container or LD_LIBRARY_PATH with its \
             own libcuda, such as cuda-compat, which supports data-centre GPUs only. The text does \
             not say which",
            &[
                (
                    "nvidia-smi",
                    "if it reports a mismatch, reboot or reload the kernel module; if it works, \
                     the program loads another libcuda",
                ),
                ("ldconfig -p | grep libcuda", "shows which; remove cuda-compat from that path"),
            ],
        ),
        ErrorCode::GpuHung => (
            "the kernel's driver of an AMD or Intel GPU reports that the GPU hung, or resets it. \
             The text does not say whether the program or the GPU is to blame",
            &[(
                "sudo dmesg | grep -e amdgpu -e i915 -e 'xe '",
                "names the process and the engine, and shows whether the reset succeeded",
            )],
        ),
        ErrorCode::NoFreeGpu => (
            "Kubernetes has no GPU for the pod: other pods have them, or the device plugin offers \
             fewer because one is unhealthy. The text does not say which",
            &[
                (
                    "kubectl describe node NODE | grep -e Allocatable -A 9 -e nvidia.com/gpu",
                    "compares what the node has, offers and has given out",
                ),
                (
                    "kubectl get pods -A -o wide --field-selector status.phase=Running",
                    "names the pods on the node",
                ),
            ],
        ),
        ErrorCode::ModuleNotLoaded => (
            "the driver's kernel module could not be loaded",
            &[
                (
                    "sudo dmesg | tail -40",
                    "says why: a signature that Secure Boot lacks, another kernel's module, or \
                     nouveau, which has the GPU",
                ),
                ("dkms status", "shows the kernels that the module was built for"),
            ],
        ),
        ErrorCode::TaskHung => (
            "the kernel reports a task that has not run for minutes. The text alone does not say \
             whether the GPU is the reason",
            &[
                (
                    "sudo cat /proc/PID/stack",
                    "shows what this task waits in: with functions of nvidia, only a reboot helps",
                ),
                (KERNEL_LOG, "an Xid before it names the reason"),
            ],
        ),
        ErrorCode::RebootRequired => (
            "the driver's memory manager (UVM) met a fatal error: CUDA works again only after a \
             reboot",
            &[("sudo reboot", "once the work on that machine has ended")],
        ),
        ErrorCode::NoTool => (
            "there is no nvidia-smi: no driver is installed, or a container got no GPU. The text \
             does not say which",
            &[(
                "ls /dev/nvidia*; cat /proc/driver/nvidia/version",
                "with both, the driver is loaded and only its tools are missing; in a container, \
                 request the GPU (--gpus all)",
            )],
        ),
        ErrorCode::BadQuery => (
            "nvidia-smi does not know an option or a field: the GPUs were not queried",
            &[("nvidia-smi --help-query-gpu", "lists the fields of that version")],
        ),
        ErrorCode::Other => (
            "a program reports an error, and the text does not say its cause; paste what says more:",
            &[(ALL_OUTPUT, "shows the state of the GPUs, their holders and the driver's errors")],
        ),
    };
    Some(PastedFailure { meaning, steps })
}

/// Describes the failures of a pasted text, each once, with the commands to run there; and the
/// fault of the driver, if it adds information.
pub fn failures(snapshot: &Snapshot, codes: &[ErrorCode]) -> Vec<Paragraph> {
    let mut told = Vec::new();
    let step = |told: &mut Vec<Paragraph>, at: usize, command: &str, what: &str| {
        let head = Line::new().dim(if at == 0 { "  there    " } else { "  or       " });
        let head = head.accent(command);
        told.push(match what {
            "" => head.into(),
            what => Paragraph { head: head.plain("   "), text: what.to_owned() },
        });
    };
    for (at, code) in codes.iter().enumerate() {
        let Some(failure) = pasted_failure(*code).filter(|_| !codes[..at].contains(code)) else {
            continue;
        };
        let head = Line::new().accent("FAILURE  ");
        told.push(Paragraph { head, text: failure.meaning.to_owned() });
        for (at, (command, what)) in failure.steps.iter().enumerate() {
            step(&mut told, at, command, what);
        }
    }
    let blocked = ErrorKind::Machine(MachineFault::Blocked);
    if let (Err(fault), true) = (&snapshot.driver, snapshot.devices.is_empty())
        && matches!(fault.kind, ErrorKind::Machine(_))
        && fault.kind != blocked
    {
        let head = Line::new().accent("no GPU could be queried there: ");
        told.push(Paragraph { head, text: brief(fault) });
        if let Some(remedy) = remedy(fault.kind) {
            let head = Line::new().dim("  there    ");
            told.push(Paragraph { head, text: remedy.to_owned() });
        }
    }
    told
}
