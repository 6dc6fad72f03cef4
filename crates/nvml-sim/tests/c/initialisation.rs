use crate::fixture::{Stage, calls, marker, open, session};
use gpu_core::{ErrorKind, GpuBackend, MachineFault};
use gpu_sim::{Session, Simulation};
use std::fs;
use std::ptr::null_mut;

#[test]
fn library_is_initialised_until_last_shutdown() {
    let stage = Stage::of("labbox");
    let count = || {
        let mut count = 0;
        // SAFETY: the value outlives the call.
        (unsafe { stage.nvml.nvmlDeviceGetCount_v2(&mut count) }, count)
    };
    assert_eq!(count(), (1, 0));
    assert_eq!(stage.shut_down(), 1);
    assert_eq!([stage.init(), stage.init()], [0, 0]);
    assert_eq!(stage.shut_down(), 0);
    assert_eq!(count(), (0, 4));
    assert_eq!(stage.shut_down(), 0);
    assert_eq!(count(), (1, 0));
    assert_eq!(stage.shut_down(), 1);
}

#[test]
fn calls_fail_before_init() {
    let stage = Stage::of("labbox");
    assert_eq!(stage.init(), 0);
    let device = stage.device(0);
    assert_eq!(stage.shut_down(), 0);
    assert_eq!(stage.temperature(device), (1, 0));
    assert_eq!(stage.temperature(null_mut()), (1, 0));
}

#[test]
fn session_is_reread_after_last_shutdown() {
    let stage = Stage::of("labbox");
    assert_eq!(stage.init(), 0);
    let first = stage.device(3);
    assert_eq!(stage.temperature(first), (0, 32));
    assert_eq!(stage.shut_down(), 0);
    session("p100-ghost").write(stage.dir.path()).unwrap();
    assert_eq!(stage.init(), 0);
    assert_eq!(stage.temperature(first).0, 2, "the new machine has one GPU");
    assert_eq!(open(None), 5, "not while it is in use");
}

#[test]
fn session_of_readme_is_served() {
    let readme = include_str!("../../README.md");
    let text = readme.lines().find(|line| line.starts_with("{\"machine\"")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(Session::FILE), text).unwrap();
    let stage = Stage::at(dir);
    assert_eq!(stage.init(), 0);
    assert_eq!(stage.temperature(stage.device(3)), (0, 32));
}

#[test]
fn unreadable_session_fails_init() {
    for text in ["", "{", "{\"machine\": \"labbox\"}", "{\"machine\": \"lapbox\", \"began_ns\": 0}"]
    {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("session.json"), text).unwrap();
        let stage = Stage::at(dir);
        assert_eq!(stage.init(), 9, "{text}");
        assert_eq!(marker(c"gpuwsSimulatedMachine"), None);
        assert_eq!(stage.shut_down(), 1);
    }
}

#[test]
fn failing_driver_returns_its_code() {
    let mut failing = 0;
    for machine in gpu_sim::machines() {
        let Err(error) = Simulation::embedded(machine.name).unwrap().driver() else { continue };
        let code = match error.kind() {
            ErrorKind::Machine(MachineFault::NoLibrary) => 12,
            ErrorKind::Machine(MachineFault::DriverNotLoaded) => 9,
            ErrorKind::Machine(MachineFault::VersionMismatch) => 18,
            ErrorKind::Machine(MachineFault::Blocked) => 17,
            ErrorKind::Machine(MachineFault::NotPermitted) => 4,
            other => panic!("{}: {other:?}", machine.name),
        };
        let stage = Stage::of(machine.name);
        assert_eq!(stage.init(), code, "{}", machine.name);
        assert_eq!(stage.shut_down(), 1, "{}", machine.name);
        failing += 1;
    }
    assert!(failing >= 2, "no-driver and driver-mismatch at least");
}

#[test]
fn markers_answer_without_init() {
    let stage = Stage::of("p100-ghost");
    let dir = stage.dir.path().to_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(marker(c"gpuwsSimulatedMachine").as_deref(), Some("p100-ghost"));
        assert_eq!(marker(c"gpuwsSimulatedSession").as_deref(), Some(&*dir));
        assert_eq!(stage.init(), 0);
    }
}

#[test]
fn calls_are_counted_by_name() {
    let stage = Stage::of("labbox");
    assert_eq!(calls(None), 0);
    assert_eq!(stage.init(), 0);
    let device = stage.device(0);
    stage.temperature(device);
    stage.temperature(null_mut());
    assert_eq!(calls(Some(c"nvmlInit_v2")), 1);
    assert_eq!(calls(Some(c"nvmlDeviceGetTemperature")), 2);
    assert_eq!(calls(Some(c"nvmlDeviceGetName")), 0);
    assert_eq!(calls(None), 4);
}

#[test]
fn every_code_has_its_own_error_string() {
    let stage = Stage::of("labbox");
    let text = |code| {
        // SAFETY: the function returns a static text for every number.
        let text = unsafe { std::ffi::CStr::from_ptr(stage.nvml.nvmlErrorString(code)) };
        text.to_str().unwrap().to_owned()
    };
    let mut texts: Vec<String> = (0..=30).chain([999]).map(text).collect();
    assert_eq!(text(12_345), text(999));
    assert_eq!(texts[15], "GPU is lost");
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 32);
}
