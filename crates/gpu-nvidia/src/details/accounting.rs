//! What processes used over their life.

use crate::call::reading;
use crate::code::Code;
use crate::device::Device;
use crate::process::ROOM;
use crate::value::{bytes, number, percent, switch};
use gpu_core::{Absent, AccountedProcess, Accounting, Pid, Reading, Result};
use nvml_wrapper_sys::bindings::nvmlAccountingStats_t;

pub(super) fn accounting(device: Device<'_>) -> Result<Accounting> {
    let functions = &device.caller.functions;
    let mode = reading(device.get(&functions.nvmlDeviceGetAccountingMode))?;
    Ok(Accounting {
        buffer_size: reading(device.get(&functions.nvmlDeviceGetAccountingBufferSize))?,
        processes: match mode.and_then(switch) {
            Ok(true) => processes(device)?,
            Ok(false) => Ok(Vec::new()),
            Err(reason) => Err(reason),
        },
    })
}

fn processes(device: Device<'_>) -> Result<Reading<Vec<AccountedProcess>>> {
    let functions = &device.caller.functions;
    let listed = match device.list(&functions.nvmlDeviceGetAccountingPids, ROOM) {
        Err(failure) if failure.code == Code::NOT_FOUND => Vec::new(),
        answer => match reading(answer)? {
            Ok(listed) => listed,
            Err(reason) => return Ok(Err(reason)),
        },
    };
    let mut processes = Vec::new();
    for pid in listed {
        match device.pick(&functions.nvmlDeviceGetAccountingStats, pid) {
            // It was overwritten meanwhile.
            Err(failure) if failure.code == Code::NOT_FOUND => {}
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

/// The driver says zero for the time of a process that still runs.
fn process(pid: u32, stats: &nvmlAccountingStats_t) -> AccountedProcess {
    let running = stats.isRunning != 0;
    AccountedProcess {
        pid: Ok(Pid(pid)),
        running: Ok(running),
        memory_max: bytes(stats.maxMemoryUsage),
        utilization: percent(stats.gpuUtilization),
        time: match stats.time {
            0 if running => Err(Absent::NotSupported),
            millis => number(millis),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Data;
    use gpu_core::{Bytes, Percent};

    #[test]
    fn unreported_values_are_absent_not_zero() {
        let untold = nvmlAccountingStats_t {
            gpuUtilization: u32::MAX,
            maxMemoryUsage: u64::MAX,
            isRunning: 1,
            ..Data::zeroed()
        };
        let untold = process(7, &untold);
        assert_eq!(untold.memory_max, Err(Absent::NotSupported));
        assert_eq!(untold.utilization, Err(Absent::NotSupported));
        assert_eq!(untold.time, Err(Absent::NotSupported));
        let ended = nvmlAccountingStats_t { gpuUtilization: 12, time: 0, ..Data::zeroed() };
        let ended = process(7, &ended);
        assert_eq!(ended.time, Ok(0));
        assert_eq!(ended.memory_max, Ok(Bytes(0)));
        assert_eq!(ended.utilization, Ok(Percent::new(12).unwrap()));
    }
}
