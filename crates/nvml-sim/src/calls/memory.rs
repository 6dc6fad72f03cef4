//! Device memory.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{Bar1Memory, Memory1, Memory2};
use crate::pointer::{Out, Versioned};
use crate::view::Subject;
use gpu_core::{Absent, Bytes};
use std::ffi::c_ulonglong;

/// Marks a missing field in a struct with other fields present (`NVML_VALUE_NOT_AVAILABLE`).
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

/// Returns total and used memory.
fn total_and_used(subject: Subject<'_>) -> Answer<(Bytes, Bytes)> {
    let memory = subject.memory()?;
    Ok((memory.total?, memory.used?))
}

exports! {
    device [nvmlDeviceGetMemoryInfo](memory: Out<Memory1>) |subject| {
        let (total, used) = total_and_used(subject)?;
        // The first version has no field for reserved memory, which counts as used.
        let used = used + subject.memory()?.reserved.unwrap_or_default();
        let free = total.saturating_sub(used);
        memory.put(Memory1 { total: total.0, free: free.0, used: used.0 })
    }

    device [nvmlDeviceGetMemoryInfo_v2](memory: Out<Memory2>) |subject| {
        memory.check_version()?;
        let (total, used) = total_and_used(subject)?;
        let reserved = match subject.memory()?.reserved {
            Ok(reserved) => Some(reserved),
            Err(Absent::TooOld) => return Err(Code::FUNCTION_NOT_FOUND),
            // The reserved memory then counts as used. The function still succeeds, because callers
            // that found it do not fall back to the first version.
            Err(_) => None,
        };
        let free = total.saturating_sub(used + reserved.unwrap_or_default());
        memory.put(Memory2 {
            version: Memory2::VERSION,
            total: total.0,
            reserved: reserved.map_or(NOT_AVAILABLE, |reserved| reserved.0),
            free: free.0,
            used: used.0,
        })
    }

    gpu [nvmlDeviceGetBAR1MemoryInfo](memory: Out<Bar1Memory>) |gpu| {
        let (total, used) = (gpu.pcie()?.bar1_total?, gpu.pcie()?.bar1_used?);
        let free = total.saturating_sub(used);
        memory.put(Bar1Memory { total: total.0, free: free.0, used: used.0 })
    }

    gpu [nvmlDeviceGetConfComputeProtectedMemoryUsage](memory: Out<Memory1>) |gpu| {
        let reported = gpu.protected_memory()?;
        let (total, used) = (reported.total?, reported.used?);
        let free = total.saturating_sub(used);
        memory.put(Memory1 { total: total.0, free: free.0, used: used.0 })
    }
}
