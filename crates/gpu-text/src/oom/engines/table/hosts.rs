//! Hosts: the kernel, systemd, Slurm, Kubernetes, Ray, and NVIDIA's kernel module.

use super::super::super::event::Framework::{
    Host, Kernel, Kubelet, NvidiaDriver, PyTorch, Ray, Slurm, SystemdOomd,
};
use super::super::Shape;
use super::{before, fails};
use crate::oom::short::Short;

/// The memory of a killed process. Its address space is meaningless, because CUDA reserves far more
/// than it uses.
const KILLED: &[&str] = &["anon-rss:{anonymous_memory}", "shmem-rss:{shared_memory}"];

/// The memory of a Ray node.
const NODE: &[&str] = &[
    "Memory on the node {_} where the task {_} was running was {used} / {total} ({share_in_use})",
    "Memory on the node {_}) was {used} / {total} ({share_in_use})",
];

pub(super) const ROWS: &[Shape] = &[
    before(Kernel, "memory: usage {used}, limit {limit}, failcnt"),
    fails(
        Kernel,
        Short::HostLimit,
        "oom-kill:constraint=CONSTRAINT_MEMCG…task={part},pid={process_id},",
    ),
    fails(Kernel, Short::Host, "oom-kill:constraint=CONSTRAINT_…task={part},pid={process_id},"),
    fails(
        Kernel,
        Short::HostLimit,
        "Memory cgroup out of memory: Killed process {process_id} ({part})",
    )
    .more(KILLED),
    fails(
        Kernel,
        Short::HostLimit,
        "Memory cgroup out of memory: Kill process {process_id} ({part})",
    ),
    fails(Kernel, Short::Host, "Out of memory: Killed process {process_id} ({part})").more(KILLED),
    fails(Kernel, Short::Host, "Out of memory: Kill process {process_id} ({part})"),
    fails(
        SystemdOomd,
        Short::Host,
        "Marked {part} for killing due to memory used ({used}) / total ({total})",
    ),
    fails(SystemdOomd, Short::HostLimit, "Marked {part} for killing due to memory pressure for")
        .more(&["being {share_in_use} >"]),
    fails(Slurm, Short::HostLimit, "Detected {killed} oom-kill event{_}in step {part}"),
    fails(Slurm, Short::HostLimit, "Detected {killed} oom_kill event{_}in {part}"),
    fails(Slurm, Short::HostLimit, "Detected {killed} oom-kill event{_}in {part}"),
    fails(Slurm, Short::HostLimit, "task {_}: Out Of Memory"),
    fails(Slurm, Short::HostLimit, "Exceeded job memory limit"),
    fails(Kubelet, Short::Host, "The node was low on resource: memory").more(&[
        "available: {free}",
        "Container {part} was using {used}, request is {host_request}",
    ]),
    // Reports that no process was killed.
    before(Kubelet, "OOMKilled\": false"),
    before(Kubelet, "OOMKilled\":false"),
    before(Kubelet, "OOMKilled=false"),
    before(Kubelet, "OOMKilled: false"),
    // From `docker inspect` and `docker compose`.
    fails(Kernel, Short::HostLimit, "OOMKilled\": true"),
    fails(Kernel, Short::HostLimit, "OOMKilled\":true"),
    fails(Kernel, Short::HostLimit, "OOMKilled=true"),
    fails(Kernel, Short::HostLimit, "OOMKilled: true"),
    fails(Kernel, Short::HostLimit, "exited with code 137 (OOMKilled)"),
    fails(Kubelet, Short::HostLimit, "OOMKilled"),
    fails(Ray, Short::Host, "killed due to the node running low on memory").more(NODE),
    // Any process may have sent this SIGKILL.
    fails(Kernel, Short::Killed, "Exit Code: 137"),
    fails(Kernel, Short::Killed, "exited with code 137"),
    fails(
        PyTorch,
        Short::Killed,
        "DataLoader worker (pid {process_id}) is killed by signal: Killed",
    ),
    fails(PyTorch, Short::Killed, "Signal 9 (SIGKILL) received by PID {process_id}"),
    fails(PyTorch, Short::HostLimit, "might be caused by insufficient shared memory (shm)"),
    fails(Host, Short::Host, "Unable to allocate {asked} for an array with shape"),
    fails(Host, Short::Host, "Unable to allocate array with shape"),
    fails(Host, Short::Host, "memory allocation of {asked} failed"),
    fails(Host, Short::Host, "throwing an instance of 'std::bad_alloc'"),
    fails(Host, Short::Host, "Cannot allocate memory (os error 12)"),
    fails(Host, Short::Host, "Errno 12] Cannot allocate memory"),
    fails(Host, Short::Host, "The paging file is too small for this operation to complete"),
    fails(NvidiaDriver, Short::Host, "Check failed: Out of memory [NV_ERR_NO_MEMORY]"),
];
