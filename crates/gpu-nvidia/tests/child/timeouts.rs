//! Children that do not respond in time.

use super::fixture::*;
use gpu_core::{ActToken, DeviceId, ErrorKind, GpuBackend, Groups, Inventory, Origin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn silent_child_times_out_without_restart() {
    let hangs = format!("{GREETING}; exec sleep 1000");
    let child = Child::script(&hangs);
    let backend = child.backend(SHORT);
    let fault = failed(backend.inventory(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::TimedOut);
    assert_eq!(fault.text, "get an answer from the driver within 0.3 s");
    assert_eq!(failed(backend.inventory(Groups::NONE)), fault);
    assert_eq!(backend.driver().unwrap_err().fault(), fault);
    assert_eq!(child.starts().len(), 1);
    assert!(!is_there(child.starts()[0]), "it was killed and reaped");
}

#[test]
fn recovered_driver_is_queried_after_ten_deadlines() {
    let first =
        format!("[ -e \"$1/again\" ] || {{ touch \"$1/again\"; {GREETING}; exec sleep 1000; }}");
    let script =
        format!("{first}; {GREETING}; read -r ask; cat \"$1/answer\"; echo '\"done\"'; cat");
    let child = Child::script(&script).with("answer", &[begun(1), part(0)]);
    let backend = child.backend(SHORT);
    assert_eq!(failed(backend.inventory(Groups::NONE)).kind, ErrorKind::TimedOut);
    assert_eq!(failed(backend.inventory(Groups::NONE)).kind, ErrorKind::TimedOut);
    assert_eq!(child.starts().len(), 1);
    pause(10 * SHORT);
    let inventory = backend.inventory(Groups::NONE);
    assert_eq!(inventory, Inventory { driver: Ok(driver()), devices: vec![device(0)] });
    assert_eq!(child.starts().len(), 2);
}

#[test]
fn buffered_parts_are_received_at_deadline() {
    let end = r#"cat "$1/answer"; echo '{"where":"nvmlDeviceGetName of GPU 1"}'; cat"#;
    let child = Child::script(&format!("{GREETING}; read -r ask; read -r end <&2; {end}"));
    let child = child.with("answer", &[begun(2), part(0)]);
    let inventory = child.backend(SHORT).inventory(Groups::NONE);
    assert_eq!(inventory.devices[0], device(0));
    let fault = inventory.devices[1].sample.as_ref().unwrap_err();
    assert!(fault.text.ends_with("nvmlDeviceGetName of GPU 1 did not return"), "{}", fault.text);
}

#[test]
fn hanging_call_is_named() {
    let call = r#"echo '{"where":"nvmlDeviceGetMemoryInfo_v2 of GPU 2"}'"#;
    let script =
        format!("{GREETING}; read -r ask; cat \"$1/answer\"; read -r end <&2; {call}; cat");
    let child = Child::script(&script).with("answer", &[begun(4), part(0), part(1)]);
    let inventory = child.backend(SHORT).inventory(Groups::all());
    assert_eq!(inventory.driver, Ok(driver()));
    assert_eq!(inventory.devices[..2], [device(0), device(1)], "earlier parts are kept");
    assert_eq!(inventory.devices.len(), 4);
    for (index, hung) in (2..).zip(&inventory.devices[2..]) {
        assert_eq!(hung.info, info(index));
        for fault in [
            hung.sample.as_ref().unwrap_err(),
            hung.processes.as_ref().unwrap_err(),
            hung.partitions.as_ref().unwrap_err(),
            hung.details.as_ref().unwrap_err(),
        ] {
            assert_eq!(fault.kind, ErrorKind::TimedOut);
            assert_eq!(
                fault.text,
                "get an answer from the driver within 0.3 s: \
                 nvmlDeviceGetMemoryInfo_v2 of GPU 2 did not return"
            );
        }
    }
}

#[test]
fn complete_answer_before_hang_is_kept() {
    let script = format!("{GREETING}; read -r ask; cat \"$1/answer\"; exec sleep 1000");
    let child = Child::script(&script).with("answer", &[begun(1), part(0)]);
    let backend = child.backend(SHORT);
    let inventory = backend.inventory(Groups::NONE);
    assert_eq!(inventory, Inventory { driver: Ok(driver()), devices: vec![device(0)] });
    assert_eq!(failed(backend.inventory(Groups::NONE)).kind, ErrorKind::TimedOut);
}

#[test]
fn child_chattering_past_deadline_times_out() {
    let script = format!("{GREETING}; while :; do echo '{{\"where\":\"x\"}}'; sleep 0.01; done");
    let child = Child::script(&script);
    let fault = failed(child.backend(SHORT).inventory(Groups::NONE));
    assert_eq!(fault.kind, ErrorKind::TimedOut);
    assert!(fault.text.ends_with(": x did not return"), "{}", fault.text);
}

#[test]
fn unresponsive_child_is_killed() {
    let script = format!("trap '' TERM INT HUP; {GREETING}; exec 0<&-; while :; do sleep 1; done");
    let child = Child::script(&script);
    let backend = child.backend(SHORT);
    assert_eq!(backend.origin(), Origin::Live);
    drop(backend);
    assert!(!is_there(child.starts()[0]));
}

#[test]
fn simulated_or_hanging_device_is_not_reset() {
    let token = ActToken::user_confirmed();
    let mut device = DeviceId::from_index(0);
    device.bus = Ok("04:00.0".parse().unwrap());
    let simulated = r#"{"machine":"labbox","session":"/run/s"}"#;
    let greeting = format!(r#"echo '{{"greeting":{{"protocol":6,"simulated":{simulated}}}}}'"#);
    let child = Child::script(&format!("{greeting}; read -r request; echo '\"done\"'; cat"));
    let error = child.backend(LONG).reset(&device, &token).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.fault().text, "reset GPU 0: the machine is simulated");
    let child = Child::script(&format!("{GREETING}; exec sleep 1000"));
    let error = child.backend(SHORT).reset(&device, &token).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
fn progress_reports_current_call() {
    let call = r#"echo '{"where":"nvmlInit_v2"}'"#;
    let script = format!("{GREETING}; read -r ask; while read -r order <&2; do {call}; done");
    let child = Child::script(&script);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let deadline = Duration::from_millis(1500);
    let reported = Arc::clone(&seen);
    let backend = child.backend_that_waits(deadline, move |waiting| {
        reported.lock().unwrap().push(waiting.clone())
    });
    let fault = failed(backend.inventory(Groups::NONE));
    assert!(fault.text.ends_with("nvmlInit_v2 did not return"), "{}", fault.text);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].call.as_deref(), Some("nvmlInit_v2"));
    assert_eq!(seen[0].deadline, deadline);
    assert!(seen[0].elapsed >= Duration::from_secs(1));
}
