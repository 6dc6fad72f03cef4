//! Faults through the C interface: each error code of NVML, a hang in each used function, a lost
//! device, and a list that grows between two calls. A fault affects only the scope of its code, no
//! absent value becomes a value, and no caller waits longer than the deadline.

use crate::fixture::Fixture;
use gpu_core::*;
use gpu_sim::{CallEffect, CallFault};
use gpuws_tests::is_deep;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const MACHINE: &str = "labbox";
/// The device whose list grows.
const GROWING: u32 = 1;
const PATIENT: Duration = Duration::from_secs(30);

/// The functions of NVML that a full snapshot of this machine calls.
fn functions() -> BTreeSet<String> {
    let fixture = Fixture::of(MACHINE, Duration::ZERO);
    let nvml = fixture.nvml(PATIENT);
    let inventory = nvml.inventory(Groups::all());
    assert!(inventory.driver.is_ok() && inventory.devices.len() == 4, "{inventory:?}");
    drop(nvml);
    let called: BTreeSet<String> = fixture.calls().into_keys().collect();
    assert!(called.len() > 30, "{called:?}");
    called
}

fn inventory_with(fault: CallFault, deadline: Duration) -> Inventory {
    Fixture::with(MACHINE, Duration::ZERO, vec![fault]).nvml(deadline).inventory(Groups::all())
}

fn fault(function: &str, gpu: Option<u32>, effect: CallEffect) -> CallFault {
    CallFault { function: function.to_owned(), gpu, from: 1, times: None, effect }
}

/// Returns the device for a fault in this function; on this machine, only the first device supports
/// accounting.
fn victim(function: &str) -> u32 {
    if function.contains("Accounting") { 0 } else { 2 }
}

fn is_of_a_device(function: &str) -> bool {
    function.starts_with("nvmlDevice") && !function.starts_with("nvmlDeviceGetCount")
}

/// Asserts that `now` adds nothing to `before`: each leaf is unchanged, or absent with its reason,
/// or a fault.
fn assert_no_new_claims(before: &Value, now: &Value, path: &str, what: &str) {
    if before == now || now.get("absent").is_some() || now.get("Err").is_some() {
        return;
    }
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            for (key, value) in now {
                let path = format!("{path}.{key}");
                let old = before.get(key).unwrap_or(&Value::Null);
                assert_no_new_claims(old, value, &path, what);
            }
        }
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => {
            for (i, (before, now)) in before.iter().zip(now).enumerate() {
                assert_no_new_claims(before, now, &format!("{path}[{i}]"), what);
            }
        }
        _ => panic!("{what}: {path} was {before} and is {now}"),
    }
}

fn all_but(inventory: &Inventory, gpu: u32) -> Vec<&DeviceState> {
    inventory.devices.iter().filter(|state| state.id().index != gpu).collect()
}

/// The error codes of NVML by scope: a value, a device, the machine, the call itself.
const CODES: [&[u32]; 4] =
    [&[3, 4, 6, 13, 25, 999], &[8, 11, 15, 16], &[9, 17, 18], &[7, 1, 2, 4242]];

/// Each function fails with one code of each scope, or with all codes in deep tests.
#[test]
fn error_code_affects_only_its_reach() {
    let cases: Vec<(String, u32)> = (functions().into_iter().enumerate())
        .flat_map(|(number, function)| {
            let of_kind = move |codes: &&'static [u32]| {
                if is_deep() { codes.to_vec() } else { vec![codes[number % codes.len()]] }
            };
            let codes = CODES.iter().flat_map(of_kind);
            codes.map(|code| (function.clone(), code)).collect::<Vec<_>>()
        })
        .collect();
    // Each snapshot waits for a child process.
    std::thread::scope(|scope| {
        for share in cases.chunks(cases.len().div_ceil(4)) {
            scope.spawn(|| check_codes(share));
        }
    });
}

fn check_codes(cases: &[(String, u32)]) {
    let whole = Fixture::of(MACHINE, Duration::ZERO).nvml(PATIENT).inventory(Groups::all());
    let healthy = serde_json::to_value(&whole).unwrap();
    for &(ref function, code) in cases {
        let gpu = is_of_a_device(function).then(|| victim(function));
        let inventory = inventory_with(fault(function, gpu, CallEffect::Returns(code)), PATIENT);
        let what = format!("{function} returns {code}");
        let reported = serde_json::to_value(&inventory).unwrap();
        let Some(gpu) = gpu else {
            // The code does not concern a device: the driver has a fault, or one of its values is
            // absent.
            assert_no_new_claims(&healthy["driver"], &reported["driver"], "driver", &what);
            continue;
        };
        assert_eq!(inventory.driver, whole.driver, "{what}");
        assert_eq!(inventory.devices.len(), whole.devices.len(), "{what}");
        assert_eq!(all_but(&inventory, gpu), all_but(&whole, gpu), "{what}: others are spoiled");
        let (before, now) = (&healthy["devices"][gpu as usize], &reported["devices"][gpu as usize]);
        match function.as_str() {
            // The process has no accounting data (any more).
            "nvmlDeviceGetAccountingPids" | "nvmlDeviceGetAccountingStats" if code == 6 => {}
            // Only this function reports which links exist.
            "nvmlDeviceGetNvLinkState" => {
                let links = now["details"]["Ok"]["nvlinks"].as_array();
                let unreported = |link: &Value| link["active"].get("absent").is_some();
                assert!(links.into_iter().flatten().all(unreported), "{what}: {now}");
            }
            _ => assert_no_new_claims(before, now, "GPU", &what),
        }
        if CODES[1].contains(&code) {
            let state = &inventory.devices[gpu as usize];
            assert!(is_at_fault(state), "{what}: the device is spoiled");
        }
    }
}

/// Returns whether a result of a device is a fault of the device, or its details are missing.
fn is_at_fault(state: &DeviceState) -> bool {
    let faults = [
        kind(&state.sample),
        kind(&state.processes),
        kind(&state.partitions),
        kind(&state.details),
    ];
    let of_device = |kind: &ErrorKind| matches!(kind, ErrorKind::Device(_));
    faults.iter().flatten().any(of_device) || state.info.name.is_err()
}

#[test]
fn failure_on_every_device_is_a_machine_failure() {
    for (function, code, kind) in [
        ("nvmlDeviceGetUUID", 9, MachineFault::DriverNotLoaded),
        ("nvmlDeviceGetHandleByIndex_v2", 18, MachineFault::VersionMismatch),
        ("nvmlDeviceGetName", 17, MachineFault::Blocked),
    ] {
        let inventory = inventory_with(fault(function, None, CallEffect::Returns(code)), PATIENT);
        let failed = inventory.driver.expect_err(function);
        assert_eq!(failed.kind, ErrorKind::Machine(kind), "{function}: {failed}");
        assert!(inventory.devices.is_empty(), "{function}");
    }
    let hangs = fault("nvmlDeviceGetName", Some(0), CallEffect::Hangs);
    let inventory = inventory_with(hangs, Duration::from_millis(400));
    assert_eq!(inventory.driver.unwrap_err().kind, ErrorKind::TimedOut);
}

/// Returns a group of details of a machine's first device, where one function returns a code.
fn details_with(machine: &str, function: &str, code: u32, group: Group) -> DeviceDetails {
    let faults = vec![fault(function, Some(0), CallEffect::Returns(code))];
    let fixture = Fixture::with(machine, Duration::ZERO, faults);
    let nvml = fixture.nvml(PATIENT);
    nvml.details(&DeviceId::from_index(0), [group].into_iter().collect()).unwrap()
}

#[test]
fn older_function_replaces_only_a_missing_one() {
    let fan = |code| {
        let details = details_with("gtx1080ti-x8", "nvmlDeviceGetFanSpeed", code, Group::Thermal);
        details.thermal.unwrap().fan_speed
    };
    assert!(fan(13).is_ok(), "the newer function");
    assert_eq!(fan(3), Err(Absent::NotSupported));
    let links = |code| {
        let details = details_with("dgx1-v100", "nvmlDeviceGetNvLinkState", code, Group::NvLinks);
        details.nvlinks.unwrap()
    };
    assert_eq!((links(13), links(3)), (vec![], vec![]), "no link is known");
    assert!(links(999).iter().all(|link| link.active == Err(Absent::Failed)));
    assert!(!links(999).is_empty());
}

#[test]
fn forgotten_process_is_left_out_of_accounting() {
    let accounted = |code| {
        let function = "nvmlDeviceGetAccountingStats";
        let details = details_with(MACHINE, function, code, Group::Accounting);
        details.accounting.unwrap().processes.unwrap()
    };
    assert_eq!(accounted(6), []);
    let kept = accounted(4);
    assert!(!kept.is_empty());
    assert!(
        kept.iter()
            .all(|process| { process.pid.is_ok() && process.running == Err(Absent::NotPermitted) })
    );
}

#[test]
fn device_without_events_does_not_hide_those_of_others() {
    let events = |gpu, code| {
        let function = "nvmlDeviceGetSupportedEventTypes";
        let faults = vec![fault(function, gpu, CallEffect::Returns(code))];
        let fixture = Fixture::with(MACHINE, Duration::ZERO, faults);
        fixture.nvml(PATIENT).events(Duration::ZERO).map_err(|error| error.kind())
    };
    assert_eq!(events(Some(0), 3), Ok(vec![]));
    assert_eq!(events(Some(0), 15), Ok(vec![]), "a lost device");
    assert_eq!(events(None, 3), Err(ErrorKind::Unsupported));
    assert_eq!(events(Some(0), 9), Err(MachineFault::DriverNotLoaded.into()));
}

#[test]
fn failed_initialisation_names_its_cause() {
    for (code, kind) in [
        (9, MachineFault::DriverNotLoaded),
        (4, MachineFault::NotPermitted),
        (17, MachineFault::Blocked),
        (18, MachineFault::VersionMismatch),
        (999, MachineFault::Unknown(999)),
        (4242, MachineFault::Unknown(4242)),
    ] {
        let inventory =
            inventory_with(fault("nvmlInit_v2", None, CallEffect::Returns(code)), PATIENT);
        let failed = inventory.driver.expect_err("the driver does not respond");
        assert_eq!(failed.kind, ErrorKind::Machine(kind), "{code}: {failed}");
        assert!(inventory.devices.is_empty(), "{code}");
    }
}

#[test]
fn hang_in_any_function_times_out_and_is_named() {
    let functions: Vec<String> = functions().into_iter().collect();
    // Each thread waits for the deadline without using CPU.
    std::thread::scope(|scope| {
        for share in functions.chunks(functions.len().div_ceil(16)) {
            scope.spawn(move || share.iter().for_each(|function| hangs(function)));
        }
    });
}

fn hangs(function: &str) {
    if function == "nvmlShutdown" {
        return; // It follows the result; the next test covers it.
    }
    let gpu = is_of_a_device(function).then(|| victim(function));
    let attempts = [1, 5, 25].into_iter().map(|deadline| {
        let faults = vec![fault(function, gpu, CallEffect::Hangs)];
        let fixture = Fixture::with(MACHINE, Duration::ZERO, faults);
        let nvml = fixture.nvml(Duration::from_secs(deadline));
        let inventory = nvml.inventory(Groups::all());
        let json = serde_json::to_string(&inventory).unwrap();
        (fixture, nvml, inventory, json)
    });
    // On a busy machine, the first deadline may pass before the call.
    let named = attempts.into_iter().find(|(_, _, _, json)| json.contains(function));
    let (_fixture, nvml, inventory, json) =
        named.unwrap_or_else(|| panic!("the call that hung is not named: {function}"));
    assert!(json.contains("timed-out"), "{function}: {json}");
    let healthy = |state: &&DeviceState| state.sample.is_ok() && state.details.is_ok();
    let before = inventory.devices.iter().take_while(healthy).count();
    match (&inventory.driver, gpu) {
        // The call hung before the first device was reported, so the whole snapshot is lost.
        (Err(failed), None | Some(0)) => assert_eq!(failed.kind, ErrorKind::TimedOut, "{function}"),
        (Err(failed), Some(_)) => panic!("{function} spoils the whole machine: {failed}"),
        (Ok(_), Some(gpu)) => assert_eq!(before, gpu as usize, "{function}: {json}"),
        (Ok(_), None) => panic!("{function} has hung and all is well: {json}"),
    }
    let again = nvml.inventory(Groups::NONE);
    let failed = again.driver.expect_err("a second child would hang too");
    assert_eq!(failed.kind, ErrorKind::TimedOut, "{function}");
}

#[test]
fn hanging_shutdown_does_not_affect_answer() {
    let fault = fault("nvmlShutdown", None, CallEffect::Hangs);
    let inventory = inventory_with(fault, Duration::from_millis(400));
    assert!(inventory.driver.is_ok() && inventory.devices.iter().all(|state| state.sample.is_ok()));
}

#[test]
fn device_lost_between_calls_affects_only_itself() {
    let whole = Fixture::of(MACHINE, Duration::ZERO).nvml(PATIENT).inventory(Groups::all());
    for function in functions().iter().filter(|function| is_of_a_device(function)) {
        let gpu = victim(function);
        let inventory =
            inventory_with(fault(function, Some(gpu), CallEffect::LosesGpu(gpu)), PATIENT);
        let what = format!("lost at {function}");
        assert_eq!(inventory.devices.len(), 4, "{what}");
        assert_eq!(all_but(&inventory, gpu), all_but(&whole, gpu), "{what}");
        let lost = &inventory.devices[gpu as usize];
        assert!(is_at_fault(lost), "{what}: {lost:?}");
    }
}

fn kind<T>(answer: &Result<T, Fault>) -> Option<ErrorKind> {
    answer.as_ref().err().map(|fault| fault.kind)
}

#[test]
fn process_list_growing_between_calls_is_read_completely() {
    for function in functions().iter().filter(|function| function.contains("Processes")) {
        let whole = Fixture::of(MACHINE, Duration::ZERO).nvml(PATIENT).inventory(Groups::NONE);
        let before = whole.devices[GROWING as usize].processes.as_ref().unwrap().len();
        let grown = CallFault {
            times: Some(1),
            ..fault(function, Some(GROWING), CallEffect::AddsProcess(GROWING))
        };
        let inventory = inventory_with(grown, PATIENT);
        let after = inventory.devices[GROWING as usize].processes.as_ref().unwrap().len();
        assert!(after == before + 1 || after == before, "{function}: {before} and then {after}");
        // A list that grows at each call never becomes stable: the reader retries and gives up.
        let growing = fault(function, Some(GROWING), CallEffect::AddsProcess(GROWING));
        let inventory = inventory_with(growing, PATIENT);
        let processes = &inventory.devices[GROWING as usize].processes;
        let stands = processes.as_ref().is_ok_and(|processes| processes.len() >= before);
        assert!(stands || kind(processes) == Some(ErrorKind::Again), "{function}: {processes:?}");
    }
}
