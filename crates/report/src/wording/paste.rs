//! The meaning of failures in a pasted text, and the commands to run on that machine.
//!
//! A text shows an effect more often than its cause. If it does not give the cause, the meaning
//! says so, and the first step finds the cause.

use super::reap::Paragraph;
use super::short_names;
use super::{FUSER, KERNEL_LOG};
use crate::fault::{brief, remedy};
use crate::text::{Line, flowed};
use gpu_core::{ErrorKind, MachineFault, Snapshot};
use gpu_text::{Document, ErrorCode, ReportedFailure};
use std::collections::BTreeMap;

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

/// Counts the operations on each device in the logs of placements: `placed: 6 operations: 2 on
/// CPU:0, 4 on GPU:0`, wrapped to `width`; without lines if there is no such log.
pub fn placed(documents: &[Document], width: usize) -> Vec<Line> {
    let mut on: BTreeMap<&str, usize> = BTreeMap::new();
    for placement in documents.iter().flat_map(|document| &document.placements) {
        *on.entry(&placement.device).or_default() += 1;
    }
    if on.is_empty() {
        return Vec::new();
    }
    let names = short_names(on.keys().copied());
    let each = names.iter().zip(on.values()).map(|(device, count)| format!("{count} on {device}"));
    let all = super::count(on.values().sum(), "operation", "operations");
    let text = format!("{all}: {}", each.collect::<Vec<_>>().join(", "));
    flowed(Line::new().dim("placed: "), &text, width)
}

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
            &[(KERNEL_LOG, "shows which one, and since when")],
        ),
        ErrorCode::ResetRefused => (
            "a reset was refused because a process, perhaps a monitor, has the device open",
            &[(FUSER, "names it")],
        ),
        ErrorCode::MigPending => (
            "a MIG mode change is pending: it takes effect after a reset",
            &[(FUSER, "names the processes that prevent it")],
        ),
        ErrorCode::NvlinksInactive => (
            "all NVLinks of a GPU are inactive",
            &[("nvidia-smi nvlink --status", "shows the state of each")],
        ),
        ErrorCode::Blocked => (
            "the operating system blocks the GPU. Under WSL 2, the Windows driver and WSL do not \
             match, a Linux driver was installed inside WSL, or the Windows host gives its \
             virtual machines no GPU; elsewhere, a container or job lacks access to the devices. \
             The text does not say which",
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
            "NVML starts and then fails with an unknown error. Most often a container has lost \
             access to its devices: systemd reloaded its units (daemon-reload) and rewrote the \
             device rules of the cgroup. The text alone does not prove it",
            &[
                ("nvidia-smi -L", "on the host: if it works there, the container is the cause"),
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
            "the container runtime cannot give the container its GPUs through NVIDIA Container \
             Toolkit; the message names the step that fails",
            &[
                ("nvidia-smi -L", "on the host: the driver has to work there, and list the GPUs"),
                ("nvidia-container-cli -k -d /dev/stderr info", "prints why the toolkit fails"),
                (
                    "sudo nvidia-ctk runtime configure --runtime=docker",
                    "if Docker does not know the runtime or driver; then restart Docker",
                ),
                (
                    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                    "if CDI devices are unresolvable",
                ),
            ],
        ),
        ErrorCode::DriverOutOfMemory => (
            "the driver could not allocate system memory, which GPUs without their own memory \
             (GB10, Jetson) share with all programs. The text names no program as the cause, and \
             GPU memory did not run out",
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
            "a process was killed because system memory ran out, in its job, container or cgroup \
             or on the whole machine. GPU memory did not run out",
            &[
                (
                    "sudo dmesg | grep -i -e oom -e 'killed process'",
                    "names the process, its cgroup and its memory",
                ),
                (
                    "sacct -j JOB -o JobID,State,ReqMem,MaxRSS",
                    "for a Slurm job: request more with --mem, or use fewer data loader workers",
                ),
                ("kubectl describe pod POD", "for a pod: raise resources.limits.memory"),
            ],
        ),
        ErrorCode::MemoryNotReturned => (
            "the memory of a process was not released in time: it is still running, or \
             another process took the memory",
            &[
                (FUSER, "names the processes that have the GPU open"),
                ("gpuws doctor", "shows what holds the memory"),
            ],
        ),
        ErrorCode::DeviceBusy => (
            "CUDA may not create a context: the GPU is in compute mode Exclusive_Process and in \
             use, \
             or Prohibited, or it is faulty. The text does not say which",
            &[
                (
                    "nvidia-smi --query-gpu=index,compute_mode --format=csv",
                    "shows the mode (E. Process in the table); sudo nvidia-smi -c DEFAULT resets \
                     it",
                ),
                (FUSER, "names the process that uses it"),
            ],
        ),
        ErrorCode::NoCudaDevice => (
            "CUDA finds no GPU: none is visible to the program, or the driver cannot open it. The \
             text does not say which",
            &[(
                "nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"; ls -l /dev/nvidia*",
                "in the same shell, job or container: if a GPU is listed, the variable hides it; \
                 without device files, the container or job has none",
            )],
        ),
        ErrorCode::NoSuchDevice => (
            "a program requests a GPU number that does not exist: the machine has fewer GPUs, or \
             CUDA_VISIBLE_DEVICES renumbers the visible ones from 0",
            &[("nvidia-smi -L; echo \"$CUDA_VISIBLE_DEVICES\"", "shows the available GPUs")],
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
            "a kernel of the program made an invalid memory access or failed an assertion: most \
             often an index out of range, not a lack of memory. The process must be restarted",
            &[
                ("CUDA_LAUNCH_BLOCKING=1 PROGRAM", "reports the call that fails"),
                ("compute-sanitizer PROGRAM", "names the kernel and the address"),
                (KERNEL_LOG, "Xids 13 and 31 belong to it; others suggest a GPU fault"),
            ],
        ),
        ErrorCode::LaunchTimeout => (
            "a kernel ran too long on a GPU with a display and was terminated",
            &[("nvidia-smi", "shows the display (Disp.A): use another GPU, or no display")],
        ),
        ErrorCode::EccError => (
            "a program hit a GPU memory error that ECC could not correct: its results are \
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
                (
                    "systemctl status nvidia-fabricmanager",
                    "must be running, in the driver's version",
                ),
                ("nvidia-smi -q | grep -A 3 Fabric", "State must become Completed"),
            ],
        ),
        ErrorCode::ForkedProcess => (
            "a process uses CUDA after being forked from one that used it: not a GPU fault",
            &[(
                "torch.multiprocessing.set_start_method('spawn')",
                "in the program; or start workers before the first use of CUDA",
            )],
        ),
        ErrorCode::MpsUnavailable => (
            "the program is an MPS client, but the MPS server does not respond",
            &[
                (
                    "ps -C nvidia-cuda-mps-control,nvidia-cuda-mps-server -o pid,user,args",
                    "shows \
                 whether it runs, and for which user",
                ),
                ("echo \"$CUDA_MPS_PIPE_DIRECTORY\"", "must be the server's"),
            ],
        ),
        ErrorCode::NcclError => (
            "NCCL failed, and the text does not say why: memory, the network, or another process \
             that exited first",
            &[(
                "NCCL_DEBUG=WARN PROGRAM",
                "prints the reason; read the log of the rank that failed first",
            )],
        ),
        ErrorCode::CudaUnknown => (
            "CUDA failed with an unknown error, not for lack of memory: the driver or the GPU \
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
             the firmware, or a driver without support for the GPU",
            &[
                ("sudo dmesg | grep -i -e NVRM -e nvidia", "the lines before it say why"),
                ("lspci -nnk -d 10de:", "shows whether the bus lists it, and its driver"),
            ],
        ),
        ErrorCode::CudaMismatch => (
            "the CUDA library that a program loads (libcuda) is incompatible with the driver \
             (CUDA error \
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
            "the kernel driver of an AMD or Intel GPU reports that the GPU hung, or resets it. \
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
                    "compares the node's capacity with the allocatable and allocated GPUs",
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
                    "shows why: a missing Secure Boot signature, a module for another kernel, or \
                     nouveau, which has the GPU",
                ),
                ("dkms status", "shows the kernels that the module was built for"),
            ],
        ),
        ErrorCode::TaskHung => (
            "the kernel reports a task that has hung for minutes. The text alone does not say \
             whether the GPU is the cause",
            &[
                (
                    "sudo cat /proc/PID/stack",
                    "shows where this task waits: in nvidia functions, only a reboot helps",
                ),
                (KERNEL_LOG, "an Xid before it names the reason"),
            ],
        ),
        ErrorCode::RebootRequired => (
            "the driver's memory manager (UVM) hit a fatal error: CUDA works again only after a \
             reboot",
            &[("sudo reboot", "once the work on that machine has ended")],
        ),
        ErrorCode::NoTool => (
            "nvidia-smi was not found: no driver is installed, or a container has no GPU. The text \
             does not say which",
            &[(
                "ls /dev/nvidia*; cat /proc/driver/nvidia/version",
                "with both, the driver is loaded and only its tools are missing; in a container, \
                 request the GPU (--gpus all)",
            )],
        ),
        ErrorCode::BadQuery => (
            "nvidia-smi rejected an option or a field: the GPUs were not queried",
            &[("nvidia-smi --help-query-gpu", "lists the fields of that version")],
        ),
        ErrorCode::Other => (
            "a program reports an error without its cause; also paste the output of:",
            &[(ALL_OUTPUT, "shows the state of the GPUs, their holders and the driver's errors")],
        ),
    };
    Some(PastedFailure { meaning, steps })
}

/// Describes the failures of a pasted text, each once, with the line that reports it and the
/// commands to run there; and the fault of the driver, if it adds information.
pub fn failures(snapshot: &Snapshot, reported: &[ReportedFailure]) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let quoted =
        |line: &str| Paragraph { head: Line::new().dim("  line     "), text: line.to_owned() };
    let step = |paragraphs: &mut Vec<Paragraph>, at: usize, command: &str, what: &str| {
        let head = Line::new().dim(if at == 0 { "  there    " } else { "  or       " });
        let head = head.accent(command);
        paragraphs.push(match what {
            "" => head.into(),
            what => Paragraph { head: head.plain("   "), text: what.to_owned() },
        });
    };
    for (at, ReportedFailure { code, line }) in reported.iter().enumerate() {
        let is_first = reported[..at].iter().all(|earlier| earlier.code != *code);
        let Some(failure) = pasted_failure(*code).filter(|_| is_first) else { continue };
        let head = Line::new().accent("FAILURE  ");
        paragraphs.push(Paragraph { head, text: failure.meaning.to_owned() });
        paragraphs.push(quoted(line));
        for (at, (command, what)) in failure.steps.iter().enumerate() {
            step(&mut paragraphs, at, command, what);
        }
    }
    let blocked = ErrorKind::Machine(MachineFault::Blocked);
    if let (Err(fault), true) = (&snapshot.driver, snapshot.devices.is_empty())
        && matches!(fault.kind, ErrorKind::Machine(_))
        && fault.kind != blocked
    {
        let head = Line::new().accent("no GPU could be queried there: ");
        paragraphs.push(Paragraph { head, text: brief(fault) });
        let of_driver = reported.iter().rfind(|failure| pasted_failure(failure.code).is_none());
        paragraphs.extend(of_driver.map(|failure| quoted(&failure.line)));
        if let Some(remedy) = remedy(fault.kind) {
            let head = Line::new().dim("  there    ");
            paragraphs.push(Paragraph { head, text: remedy.to_owned() });
        }
    }
    paragraphs
}
