//! Process accounting.

use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::value::{bytes, number, percent};
use gpu_core::{Absent, AccountedProcess, Accounting, Pid, Reading, Result};
use nvml_wrapper::struct_wrappers::device::AccountingStats;

pub(super) fn accounting(device: Device<'_>) -> Result<Accounting> {
    let mode =
        device.value("nvmlDeviceGetAccountingMode", "for its accounting mode", |device| {
            device.is_accounting_enabled()
        })?;
    let purpose = "for its accounting buffer size";
    let buffer_size = device.value("nvmlDeviceGetAccountingBufferSize", purpose, |device| {
        device.accounting_buffer_size()
    })?;
    Ok(Accounting {
        buffer_size,
        processes: match mode {
            Ok(true) => processes(device)?,
            Ok(false) => Ok(Vec::new()),
            Err(reason) => Err(reason),
        },
    })
}

fn processes(device: Device<'_>) -> Result<Reading<Vec<AccountedProcess>>> {
    let listed = match device.accounting_pids() {
        Err(failure) if failure.is(Code::NOT_FOUND) => Vec::new(),
        answer => match reading(answer)? {
            Ok(listed) => listed,
            Err(reason) => return Ok(Err(reason)),
        },
    };
    let mut processes = Vec::new();
    for pid in listed {
        let purpose = "for its accounting statistics";
        let stats = device.query("nvmlDeviceGetAccountingStats", purpose, |device| {
            device.accounting_stats_for(pid)
        });
        match stats {
            // The driver has overwritten its entry.
            Err(failure) if failure.is(Code::NOT_FOUND) => {}
            answer => processes.push(match reading(answer)? {
                Ok(stats) => process(pid, &stats),
                Err(reason) => {
                    AccountedProcess { pid: Ok(Pid(pid)), ..AccountedProcess::absent(reason) }
                }
            }),
        }
    }
    processes.sort_by_key(|process| process.pid);
    Ok(Ok(processes))
}

/// Converts the statistics of a process. The driver reports time 0 for a running process.
fn process(pid: u32, stats: &AccountingStats) -> AccountedProcess {
    let (running, unreported) = (stats.is_running, Err(Absent::NotSupported));
    AccountedProcess {
        pid: Ok(Pid(pid)),
        running: Ok(running),
        memory_max: stats.max_memory_usage.map_or(unreported, bytes),
        utilization: stats.gpu_utilization.map_or(Err(Absent::NotSupported), percent),
        memory_utilization: stats.memory_utilization.map_or(Err(Absent::NotSupported), percent),
        time: match stats.time {
            0 if running => Err(Absent::NotSupported),
            millis => number(millis),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, Percent};

    fn ended() -> AccountingStats {
        AccountingStats {
            gpu_utilization: Some(12),
            is_running: false,
            max_memory_usage: Some(0),
            memory_utilization: None,
            start_time: 0,
            time: 0,
        }
    }

    #[test]
    fn unreported_values_are_absent_not_zero() {
        let unreported = AccountingStats {
            gpu_utilization: None,
            max_memory_usage: None,
            is_running: true,
            ..ended()
        };
        let unreported = process(7, &unreported);
        assert_eq!(unreported.memory_max, Err(Absent::NotSupported));
        assert_eq!(unreported.utilization, Err(Absent::NotSupported));
        assert_eq!(unreported.time, Err(Absent::NotSupported));
        let running = process(7, &AccountingStats { is_running: true, time: 30, ..ended() });
        assert_eq!((running.pid, running.running, running.time), (Ok(Pid(7)), Ok(true), Ok(30)));
        let ended = process(7, &ended());
        assert_eq!(ended.running, Ok(false));
        assert_eq!(ended.time, Ok(0));
        assert_eq!(ended.memory_max, Ok(Bytes(0)));
        assert_eq!(ended.utilization, Ok(Percent::new(12).unwrap()));
    }
}
