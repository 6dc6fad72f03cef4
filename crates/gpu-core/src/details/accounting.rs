//! Resource use of processes over their lifetime.

use super::readings::{Readings, groups};
use crate::absent::{Absent, Reading};
use crate::id::Pid;
use crate::units::{Bytes, Percent};

groups! {
    /// Resource use of a process over its lifetime.
    AccountedProcess {
        /// Process ID on the host, which another process may have reused.
        pid: Pid,
        /// Whether the process is still running.
        running: bool,
        /// Peak memory use, in bytes.
        memory_max as "memory_max_bytes": Bytes,
        /// Percentage of the lifetime in which its kernels were running.
        utilization as "utilization_percent": Percent,
        /// Percentage of the lifetime in which its kernels read or wrote memory.
        memory_utilization as "memory_utilization_percent": Percent,
        /// Lifetime of the CUDA context, in milliseconds.
        time as "time_ms": u64,
    }
}

/// Processes in the driver's accounting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Accounting {
    /// The capacity of the buffer; the oldest entry is overwritten.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub buffer_size: Reading<u32>,
    /// The entries, by PID; none if accounting is off.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub processes: Reading<Vec<AccountedProcess>>,
}

impl Default for Accounting {
    fn default() -> Self {
        Accounting { buffer_size: Err(Absent::NotSupported), processes: Err(Absent::NotSupported) }
    }
}

impl Readings for Accounting {
    fn overlay(&mut self, reported: &Self) {
        self.buffer_size.overlay(&reported.buffer_size);
        self.processes.overlay(&reported.processes);
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        self.buffer_size.restate(from, to);
        self.processes.restate(from, to);
        self.processes.iter_mut().for_each(|kept| kept.restate(from, to));
    }
}
