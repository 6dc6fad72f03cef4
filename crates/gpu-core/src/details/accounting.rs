//! What processes used over their life.

use super::readings::{Readings, groups};
use crate::absent::{Absent, Reading};
use crate::id::Pid;
use crate::units::{Bytes, Percent};

groups! {
    /// What a process used over its life, kept by the driver after its end.
    AccountedProcess {
        /// Its number on the host, which another one may have got since.
        pid: Pid,
        /// It still runs.
        running: bool,
        /// Highest use of memory.
        memory_max as "memory_max_bytes": Bytes,
        /// Share of its life in which its kernels ran.
        utilization as "utilization_percent": Percent,
        /// How long its context lived.
        time as "time_ms": u64,
    }
}

/// Processes that the driver keeps account of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Accounting {
    /// How many it can keep; the oldest is overwritten.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub buffer_size: Reading<u32>,
    /// Those that it has, by number; none where accounting is off.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub processes: Reading<Vec<AccountedProcess>>,
}

impl Default for Accounting {
    fn default() -> Self {
        Accounting { buffer_size: Err(Absent::NotSupported), processes: Err(Absent::NotSupported) }
    }
}

impl Readings for Accounting {
    fn overlay(&mut self, told: &Self) {
        self.buffer_size.overlay(&told.buffer_size);
        self.processes.overlay(&told.processes);
    }

    fn restate(&mut self, from: Absent, to: Absent) {
        self.buffer_size.restate(from, to);
        self.processes.restate(from, to);
        self.processes.iter_mut().for_each(|kept| kept.restate(from, to));
    }
}
