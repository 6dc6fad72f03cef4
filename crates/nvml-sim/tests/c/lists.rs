use crate::fixture::{Stage, fault, session};
use gpu_sim::{CallEffect, CallFault, Session};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationSample_t,
};
use std::ptr::null_mut;

impl Stage {
    /// Queries the compute processes of a device with version 3, with this capacity.
    fn compute(&self, device: nvmlDevice_t, room: u32) -> (u32, u32, Vec<nvmlProcessInfo_t>) {
        let empty =
            nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut infos = vec![empty; room as usize];
        let mut count = room;
        let buffer = if room == 0 { null_mut() } else { infos.as_mut_ptr() };
        // SAFETY: the buffer has room for `count` items.
        let code = unsafe {
            self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &mut count, buffer)
        };
        infos.truncate(if code == 0 { count as usize } else { 0 });
        (code, count, infos)
    }

    fn samples(&self, device: nvmlDevice_t, since: u64, room: u32) -> (u32, u32, Vec<(u32, u32)>) {
        let empty = nvmlProcessUtilizationSample_t {
            pid: 0,
            timeStamp: 0,
            smUtil: 0,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        let mut samples = vec![empty; room as usize];
        let mut count = room;
        let buffer = if room == 0 { null_mut() } else { samples.as_mut_ptr() };
        // SAFETY: the buffer has room for `count` items.
        let code =
            unsafe { self.nvml.nvmlDeviceGetProcessUtilization(device, buffer, &mut count, since) };
        samples.truncate(if code == 0 { count as usize } else { 0 });
        let reported = samples.iter().map(|sample| (sample.pid, sample.smUtil)).collect();
        (code, count, reported)
    }
}

#[test]
fn process_list_is_counted_and_fetched() {
    let stage = Stage::begun(session("labbox"));
    let (busy, idle) = (stage.device(0), stage.device(1));
    let (code, count, _) = stage.compute(busy, 0);
    assert_eq!((code, count), (7, 1));
    let (code, count, _) = stage.compute(idle, 0);
    assert_eq!((code, count), (0, 0));
    for room in [1, 5] {
        let (code, count, infos) = stage.compute(busy, room);
        assert_eq!((code, count), (0, 1));
        let info = infos[0];
        assert_eq!((info.pid, info.usedGpuMemory), (21044, 72704 << 20));
        assert_eq!((info.gpuInstanceId, info.computeInstanceId), (u32::MAX, u32::MAX));
    }
}

#[test]
fn process_list_can_grow_between_two_calls() {
    let adds = CallFault {
        from: 2,
        times: Some(1),
        ..fault("nvmlDeviceGetComputeRunningProcesses_v3", CallEffect::AddsProcess(0))
    };
    let stage = Stage::begun(Session { faults: vec![adds], ..session("labbox") });
    let device = stage.device(0);
    assert_eq!(stage.compute(device, 0).1, 1);
    let (code, count, _) = stage.compute(device, 1);
    assert_eq!((code, count), (7, 2));
    let (code, _, infos) = stage.compute(device, 2);
    assert_eq!((code, infos.len()), (0, 2));
}

#[test]
fn v1_process_list_matches_in_sixteen_bytes() {
    assert_eq!(size_of::<nvmlProcessInfo_v1_t>(), 16);
    let stage = Stage::begun(session("labbox"));
    let mut infos = [nvmlProcessInfo_v1_t { pid: 0, usedGpuMemory: 0 }; 4];
    let mut count = 4;
    // SAFETY: the buffer has room for four.
    let code = unsafe {
        stage.nvml.nvmlDeviceGetComputeRunningProcesses(
            stage.device(2),
            &mut count,
            infos.as_mut_ptr(),
        )
    };
    assert_eq!((code, count), (0, 1));
    assert_eq!((infos[0].pid, infos[0].usedGpuMemory), (18250, 24576 << 20));
    assert_eq!((infos[1].pid, infos[1].usedGpuMemory), (0, 0), "untouched");
}

#[test]
fn null_count_is_invalid_argument() {
    let stage = Stage::begun(session("labbox"));
    let (device, mut count) = (stage.device(0), 3);
    // SAFETY: this tests null.
    unsafe {
        let nvml = stage.nvml;
        let compute = |count: *mut u32| {
            nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, count, null_mut())
        };
        assert_eq!(compute(null_mut()), 2);
        assert_eq!(compute(&mut count), 2, "the buffer is null");
        let samples =
            |count: *mut u32| nvml.nvmlDeviceGetProcessUtilization(device, null_mut(), count, 0);
        assert_eq!(samples(null_mut()), 2);
    }
}

#[test]
fn only_busy_processes_have_utilization_samples() {
    let stage = Stage::begun(session("labbox"));
    let (busy, idle, free) = (stage.device(0), stage.device(2), stage.device(1));
    assert_eq!(stage.samples(busy, 0, 0), (7, 1, vec![]));
    assert_eq!(stage.samples(busy, 0, 8), (0, 1, vec![(21044, 98)]));
    assert_eq!(stage.samples(busy, u64::MAX, 8).0, 6, "nothing since then");
    assert_eq!(stage.samples(idle, 0, 8).0, 6);
    assert_eq!(stage.samples(free, 0, 8).0, 6);
}
