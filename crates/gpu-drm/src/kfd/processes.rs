//! The processes that use KFD.
//!
//! `sdma_GPUID` is never read: the kernel then reads the memory of the process, and waits for it.

use super::{KFD, MAX_NODES, bounded, number, numbers};
use crate::Tree;
use gpu_core::{Absent, Bytes, Pid, Reading, plausible};

/// The most processes. Each has a PASID, a number of 16 bits.
const MAX_PROCESSES: usize = 65_536;
/// The most queues of a process: `KFD_MAX_NUM_OF_QUEUES_PER_PROCESS`.
const MAX_QUEUES: usize = 1_024;

/// A process that has opened `/dev/kfd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KfdProcess {
    /// Its PID in the first PID namespace, also for a reader in another.
    pub pid: Pid,
    /// The GPUs that it can use. A GPU that its cgroup closes is not among them.
    pub gpus: Reading<Vec<KfdUse>>,
    /// Its queues. A process without a queue computes nothing.
    pub queues: Reading<Vec<KfdQueue>>,
}

/// What a process uses of a GPU, or of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KfdUse {
    /// The [`gpu_id`](crate::KfdNode::gpu_id).
    pub gpu_id: u32,
    /// Memory that KFD allocated there; graphics memory is not included.
    pub memory: Reading<Bytes>,
    /// The time for which its queues were evicted, in milliseconds.
    pub evicted_ms: Reading<u64>,
}

/// A queue of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KfdQueue {
    /// The [`gpu_id`](crate::KfdNode::gpu_id).
    pub gpu_id: Reading<u32>,
    /// The number of `enum kfd_queue_type`: 0 computes, 1 copies (SDMA). Numbers above 2 differ
    /// between kernels.
    pub kind: Reading<u32>,
}

impl KfdProcess {
    /// Returns its memory on a GPU; 0 if it cannot use that GPU.
    pub fn memory(&self, gpu_id: u32) -> Reading<Bytes> {
        let gpus = self.gpus.as_ref().map_err(|reason| *reason)?;
        gpus.iter().find(|gpu| gpu.gpu_id == gpu_id).map_or(Ok(Bytes(0)), |gpu| gpu.memory)
    }

    /// Returns whether it certainly uses nothing: its entry remains from a moment in which it opened
    /// `/dev/kfd`, and only blocks a change of partitions or of the driver.
    pub fn is_unused(&self) -> bool {
        let is_empty = |gpu: &KfdUse| gpu.memory == Ok(Bytes(0));
        self.gpus.as_ref().is_ok_and(|gpus| gpus.iter().all(is_empty))
            && self.queues.as_ref().is_ok_and(Vec::is_empty)
    }
}

/// Returns the processes, by PID. An entry may outlive its process while the driver waits for a
/// reset.
///
/// # Errors
/// `NotSupported` without KFD; `Implausible` for more than 65,536 processes.
pub fn processes(tree: &dyn Tree) -> Reading<Vec<KfdProcess>> {
    let pids = numbers(tree, &format!("{KFD}/proc"), MAX_PROCESSES)?.into_iter().map(Pid);
    let process = |pid: Pid| {
        let dir = format!("{KFD}/proc/{pid}");
        let gpus = match tree.names(&dir) {
            // It has ended since.
            Err(Absent::NotSupported) => return None,
            names => names.and_then(|names| uses(tree, &dir, &names)),
        };
        let queue = |id: u32| KfdQueue {
            gpu_id: tree.number(&format!("{dir}/queues/{id}/gpuid")),
            kind: tree.number(&format!("{dir}/queues/{id}/type")),
        };
        let queues = numbers(tree, &format!("{dir}/queues"), MAX_QUEUES);
        Some(KfdProcess {
            pid,
            gpus,
            queues: queues.map(|ids| ids.into_iter().map(queue).collect()),
        })
    };
    Ok(pids.filter(|pid| plausible::is_pid(*pid)).filter_map(process).collect())
}

fn uses(tree: &dyn Tree, dir: &str, names: &[String]) -> Reading<Vec<KfdUse>> {
    let gpu_id = |name: &String| number(name.strip_prefix("vram_")?);
    let of = |gpu_id| KfdUse {
        gpu_id,
        memory: tree.number(&format!("{dir}/vram_{gpu_id}")).map(Bytes).and_then(plausible::memory),
        evicted_ms: tree.number(&format!("{dir}/stats_{gpu_id}/evicted_ms")),
    };
    let ids = bounded(names.iter().filter_map(gpu_id), MAX_NODES)?;
    Ok(ids.into_iter().map(of).collect())
}
