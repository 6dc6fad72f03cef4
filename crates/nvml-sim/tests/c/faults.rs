use crate::fixture::{Stage, fault, session};
use gpu_sim::{CallEffect, CallFault, Session};
use std::time::Duration;

fn with(machine: &str, faults: Vec<CallFault>) -> Session {
    Session { faults, ..session(machine) }
}

/// Every NVML code except success and `UNINITIALIZED`.
fn codes() -> impl Iterator<Item = u32> {
    (2..=30).chain([999])
}

#[test]
fn function_fault_returns_any_code() {
    for code in codes() {
        let returns = fault("nvmlDeviceGetTemperature", CallEffect::Returns(code));
        let stage = Stage::begun(with("labbox", vec![returns]));
        assert_eq!(stage.temperature(stage.device(0)), (code, 0));
    }
}

#[test]
fn init_fault_returns_any_code() {
    for code in codes() {
        let returns = fault("nvmlInit_v2", CallEffect::Returns(code));
        let stage = Stage::with(with("labbox", vec![CallFault { times: Some(1), ..returns }]));
        assert_eq!(stage.init(), code);
        assert_eq!(stage.shut_down(), 1);
        assert_eq!(stage.init(), 0, "only the first time");
    }
}

#[test]
fn fault_applies_to_one_device_and_call_range() {
    let second = CallFault {
        gpu: Some(2),
        from: 2,
        times: Some(1),
        ..fault("nvmlDeviceGetTemperature", CallEffect::Returns(999))
    };
    let stage = Stage::begun(with("labbox", vec![second]));
    let (one, two) = (stage.device(1), stage.device(2));
    let codes = [one, two, one, two, two].map(|device| stage.temperature(device).0);
    assert_eq!(codes, [0, 0, 0, 999, 0]);
}

#[test]
fn star_fault_applies_to_every_function() {
    let all = CallFault { from: 2, times: Some(2), ..fault("*", CallEffect::Returns(3)) };
    let stage = Stage::begun(with("labbox", vec![all]));
    let mut count = 7;
    // SAFETY: the value outlives the call.
    assert_eq!(unsafe { stage.nvml.nvmlDeviceGetCount_v2(&mut count) }, 3);
    assert_eq!(count, 7, "nothing is written");
    assert_eq!(stage.shut_down(), 3);
    assert_eq!(stage.shut_down(), 0);
}

#[test]
fn device_can_be_lost_between_two_calls() {
    let loses = CallFault { from: 2, ..fault("nvmlDeviceGetTemperature", CallEffect::LosesGpu(1)) };
    let stage = Stage::begun(with("labbox", vec![loses]));
    let (zero, one) = (stage.device(0), stage.device(1));
    assert_eq!(stage.temperature(one), (0, 31));
    assert_eq!(stage.temperature(one), (15, 0));
    assert_eq!(stage.temperature(zero), (0, 54));
    let mut power = 0;
    // SAFETY: the value outlives the call.
    assert_eq!(unsafe { stage.nvml.nvmlDeviceGetPowerUsage(one, &mut power) }, 15);
    assert_eq!(stage.device(1), one, "it can still be found");
    let mut minor = 0;
    // SAFETY: as above.
    assert_eq!(unsafe { stage.nvml.nvmlDeviceGetMinorNumber(one, &mut minor) }, 0);
    assert_eq!(minor, 1);
}

#[test]
fn delayed_call_is_late_but_answers() {
    let late = Duration::from_millis(50);
    let delay = fault("nvmlDeviceGetTemperature", CallEffect::DelayMs(40));
    let session = Session { latency_us: 10_000, ..with("labbox", vec![delay]) };
    let stage = Stage::begun(session);
    let device = stage.device(0);
    let before = since_boot();
    assert_eq!(stage.temperature(device), (0, 54));
    assert!(since_boot() - before >= late);
}

fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[test]
fn hanging_call_does_not_block_others() {
    let hangs = CallFault { gpu: Some(3), ..fault("nvmlDeviceGetTemperature", CallEffect::Hangs) };
    let stage = Stage::begun(with("labbox", vec![hangs]));
    let stuck = stage.device(3) as usize;
    let nvml = stage.nvml;
    let (entered, enters) = std::sync::mpsc::channel();
    // This thread ends only with the process.
    let hanging = std::thread::spawn(move || {
        entered.send(()).unwrap();
        let mut degrees = 0;
        // SAFETY: the value outlives the call.
        unsafe { nvml.nvmlDeviceGetTemperature(stuck as _, 0, &mut degrees) }
    });
    enters.recv().unwrap();
    for index in [0, 1, 2].repeat(50) {
        assert_eq!(stage.temperature(stage.device(index)).0, 0);
    }
    assert!(!hanging.is_finished());
}
