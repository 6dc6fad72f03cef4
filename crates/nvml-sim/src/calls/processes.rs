//! The processes on a device.

use crate::clock;
use crate::code::{Answer, Code};
use crate::entry::exports;
use crate::layout::{ProcessInfo1, ProcessInfo2, ProcessUtilizationSample};
use crate::pointer::Out;
use crate::view::Subject;
use gpu_core::{DeviceProcess, DeviceProcessKind};
use std::ffi::{c_uint, c_ulonglong};

/// The marker for a missing amount.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;
/// The marker for no MIG instance.
const NO_INSTANCE: c_uint = c_uint::MAX;

/// The three lists of a device.
#[derive(Clone, Copy)]
enum List {
    Compute,
    Graphics,
    Mps,
}

impl List {
    /// Returns whether a list contains a process; a process with both kinds of context is in two
    /// lists.
    fn has(self, process: &DeviceProcess) -> bool {
        use DeviceProcessKind::{Compute, ComputeAndGraphics, Graphics, Mps, Unknown};
        match self {
            List::Compute => matches!(process.kind, Compute | ComputeAndGraphics | Unknown),
            List::Graphics => matches!(process.kind, Graphics | ComputeAndGraphics),
            List::Mps => process.kind == Mps,
        }
    }
}

impl From<&DeviceProcess> for ProcessInfo1 {
    fn from(process: &DeviceProcess) -> Self {
        ProcessInfo1 {
            pid: process.pid.0,
            used_gpu_memory: process.memory.map_or(NOT_AVAILABLE, |memory| memory.0),
        }
    }
}

impl From<&DeviceProcess> for ProcessInfo2 {
    fn from(process: &DeviceProcess) -> Self {
        ProcessInfo2 {
            pid: process.pid.0,
            used_gpu_memory: process.memory.map_or(NOT_AVAILABLE, |memory| memory.0),
            gpu_instance_id: process.gpu_instance.unwrap_or(NO_INSTANCE),
            compute_instance_id: process.compute_instance.unwrap_or(NO_INSTANCE),
        }
    }
}

fn list<T: Copy + for<'p> From<&'p DeviceProcess>>(
    subject: Subject<'_>,
    list: List,
    count: Out<c_uint>,
    infos: Out<T>,
) -> Answer {
    let processes = subject.processes()?.filter(|process| list.has(process));
    infos.put_list(count, &processes.map(T::from).collect::<Vec<T>>())
}

/// Returns a sample of each process that was busy after `since` (microseconds since 1970).
///
/// # Errors
/// `NOT_FOUND` if no process was busy; the machine's reason if it reports no samples.
fn samples(subject: Subject<'_>, since: c_ulonglong) -> Answer<Vec<ProcessUtilizationSample>> {
    let now = clock::wall_micros();
    let mut samples: Vec<ProcessUtilizationSample> = Vec::new();
    let mut idle = None;
    let mut unreported = None;
    for process in subject.processes()? {
        match process.utilization {
            // A process in several instances, or with both kinds of context, is sampled once.
            Ok(_) if samples.iter().any(|sample| sample.pid == process.pid.0) => {}
            Ok(share) if share.get() > 0 && now > since => samples.push(ProcessUtilizationSample {
                pid: process.pid.0,
                time_stamp: now,
                sm_util: share.get().into(),
                mem_util: 0,
                enc_util: 0,
                dec_util: 0,
            }),
            Ok(_) => idle = Some(Code::NOT_FOUND),
            Err(absent) => unreported = Some(absent.into()),
        }
    }
    if samples.is_empty() {
        Err(idle.or(unreported).unwrap_or(Code::NOT_FOUND))
    } else {
        Ok(samples)
    }
}

exports! {
    device [nvmlDeviceGetComputeRunningProcesses](count: Out<c_uint>, infos: Out<ProcessInfo1>)
        |subject| { list(subject, List::Compute, count, infos) }

    device [nvmlDeviceGetComputeRunningProcesses_v2, nvmlDeviceGetComputeRunningProcesses_v3](
        count: Out<c_uint>, infos: Out<ProcessInfo2>,
    ) |subject| { list(subject, List::Compute, count, infos) }

    device [nvmlDeviceGetGraphicsRunningProcesses](count: Out<c_uint>, infos: Out<ProcessInfo1>)
        |subject| { list(subject, List::Graphics, count, infos) }

    device [nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlDeviceGetGraphicsRunningProcesses_v3](
        count: Out<c_uint>, infos: Out<ProcessInfo2>,
    ) |subject| { list(subject, List::Graphics, count, infos) }

    device [nvmlDeviceGetMPSComputeRunningProcesses](count: Out<c_uint>, infos: Out<ProcessInfo1>)
        |subject| { list(subject, List::Mps, count, infos) }

    device [
        nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDeviceGetMPSComputeRunningProcesses_v3,
    ](count: Out<c_uint>, infos: Out<ProcessInfo2>) |subject| {
        list(subject, List::Mps, count, infos)
    }

    gpu [nvmlDeviceGetProcessUtilization](
        found: Out<ProcessUtilizationSample>, count: Out<c_uint>, since: c_ulonglong,
    ) |gpu| {
        found.put_list(count, &samples(gpu, since)?)
    }
}
