//! Resource use of processes over their lifetime.

use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::AccountingStats;
use crate::pointer::Out;
use crate::view::Subject;
use gpu_core::AccountedProcess;
use std::ffi::{c_uint, c_ulonglong};

/// The marker for a missing value.
const NOT_AVAILABLE_32: c_uint = c_uint::MAX;
const NOT_AVAILABLE_64: c_ulonglong = c_ulonglong::MAX;

fn processes<'a>(gpu: Subject<'a>) -> Answer<&'a [AccountedProcess]> {
    Ok(gpu.accounting()?.processes.as_ref().map_err(|absent| *absent)?)
}

exports! {
    gpu [nvmlDeviceGetAccountingMode](mode: Out<c_uint>) |gpu| {
        mode.put(gpu.modes()?.accounting?.into())
    }

    gpu [nvmlDeviceGetAccountingBufferSize](size: Out<c_uint>) |gpu| {
        size.put(gpu.accounting()?.buffer_size?)
    }

    gpu [nvmlDeviceGetAccountingPids](count: Out<c_uint>, pids: Out<c_uint>) |gpu| {
        let reported = processes(gpu)?.iter().filter_map(|process| process.pid.ok());
        pids.put_list(count, &reported.map(|pid| pid.0).collect::<Vec<c_uint>>())
    }

    gpu [nvmlDeviceGetAccountingStats](pid: c_uint, stats: Out<AccountingStats>) |gpu| {
        let mut reported = processes(gpu)?.iter();
        let found = reported.find(|process| process.pid.is_ok_and(|own| own.0 == pid));
        let process = found.ok_or(Code::NOT_FOUND)?;
        stats.put(AccountingStats {
            gpu_utilization: process.utilization.map_or(NOT_AVAILABLE_32, |share| share.get().into()),
            memory_utilization: process
                .memory_utilization
                .map_or(NOT_AVAILABLE_32, |share| share.get().into()),
            max_memory_usage: process.memory_max.map_or(NOT_AVAILABLE_64, |memory| memory.0),
            // The driver returns zero while the process runs.
            time: process.time.unwrap_or(0),
            start_time: 0,
            is_running: process.running.unwrap_or(false).into(),
            reserved: [0; 5],
        })
    }
}
