use crate::fixture::{Stage, session};
use gpu_sim::Session;
use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlEventSet_t};
use std::fs;
use std::ptr::null_mut;
use std::time::Duration;

const XID: u64 = 8;

/// A machine whose second GPU reports XID 79 after three seconds.
const MACHINE: &str = r#"
description = "made: two GPUs, one falls off the bus"
clock = 2025-03-03T10:00:00Z
[driver]
version = "535.261.03"
cuda = "12.2"
[[gpu]]
index = 0
[[gpu]]
index = 1
[[event]]
at_ms = 3000
reports = { gpu = 1, xid = 79 }
"#;

fn nothing() -> nvmlEventData_t {
    nvmlEventData_t {
        device: null_mut(),
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    }
}

fn set(stage: &Stage, gpus: &[u32]) -> nvmlEventSet_t {
    let mut set = null_mut();
    // SAFETY: the set outlives the call.
    unsafe {
        assert_eq!(stage.nvml.nvmlEventSetCreate(&mut set), 0);
        for gpu in gpus {
            let device = stage.device(*gpu);
            assert_eq!(stage.nvml.nvmlDeviceRegisterEvents(device, XID, set), 0);
        }
    }
    set
}

fn wait(stage: &Stage, set: nvmlEventSet_t, millis: u32) -> (u32, nvmlEventData_t) {
    let mut data = nothing();
    // SAFETY: the event outlives the call.
    let code = unsafe { stage.nvml.nvmlEventSetWait_v2(set, &mut data, millis) };
    (code, data)
}

#[test]
fn event_wait_returns_device_event() {
    let machine = tempfile::tempdir().unwrap();
    fs::write(machine.path().join("machine.toml"), MACHINE).unwrap();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    // Time advances here. Even on a busy machine, the event arrives while the test waits for it.
    let began = now;
    let session = Session {
        machine: machine.path().to_owned(),
        frozen_at_ms: None,
        began_ns: began.as_nanos() as u64,
        ..session("")
    };
    let stage = Stage::begun(session);
    let (both, first) = (set(&stage, &[0, 1]), set(&stage, &[0]));
    let (code, event) = wait(&stage, both, 60_000);
    assert_eq!(code, 0);
    assert_eq!((event.eventType, event.eventData), (XID, 79));
    assert_eq!(event.device, stage.device(1));
    assert_eq!((event.gpuInstanceId, event.computeInstanceId), (u32::MAX, u32::MAX));
    assert_eq!(wait(&stage, both, 0).0, 10, "once");
    assert_eq!(wait(&stage, first, 0).0, 10, "another device's");
}

#[test]
fn invalid_event_set_is_rejected() {
    let stage = Stage::begun(session("labbox"));
    let nvml = stage.nvml;
    let one = set(&stage, &[0]);
    assert_eq!(wait(&stage, one, 20).0, 10);
    assert_eq!(wait(&stage, null_mut(), 20).0, 2);
    // SAFETY: this tests null and a freed set; neither is dereferenced.
    unsafe {
        assert_eq!(nvml.nvmlDeviceRegisterEvents(stage.device(0), XID, null_mut()), 2);
        assert_eq!(nvml.nvmlDeviceRegisterEvents(stage.device(0), 1 << 40, one), 3);
        assert_eq!(nvml.nvmlEventSetCreate(null_mut()), 2);
        assert_eq!(nvml.nvmlEventSetWait_v2(one, null_mut(), 0), 2);
        assert_eq!(nvml.nvmlEventSetFree(one), 0);
        assert_eq!(nvml.nvmlEventSetFree(one), 2);
    }
    assert_eq!(wait(&stage, one, 20).0, 2);
}
