//! The plain data as JSON: written data is read back, and invalid data is rejected.

use crate::fixture::*;
use gpu_core::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::time::Duration;

#[track_caller]
fn assert_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value, "{text}");
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Recorded<T: Serialize + DeserializeOwned>(#[serde(with = "gpu_core::reading")] Reading<T>);

#[test]
fn reading_is_value_or_reason_of_its_absence() {
    assert_eq!(serde_json::to_string(&Recorded(Ok(7))).unwrap(), "7");
    let absent = serde_json::to_string(&Recorded::<u32>(Err(Absent::NotSupported))).unwrap();
    assert_eq!(absent, r#"{"absent":"not-supported"}"#);
    assert_round_trip(&Recorded(Ok(7_u32)));
    assert_round_trip(&Recorded::<u32>(Err(Absent::DeviceLost)));
    assert_round_trip(&Recorded(Ok(vec!["failed".to_owned()])));
    for wrong in [r#""seven""#, r#"{"absent":"lost"}"#, r#"{"absent":"failed","more":1}"#] {
        assert!(serde_json::from_str::<Recorded<u32>>(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn checked_text_is_checked_when_read() {
    assert_round_trip(&Access::from_letters("F.c.m").unwrap());
    assert_round_trip(&device_id(0).bus.unwrap());
    assert_round_trip(&LeaseId::parse("1-a3f").unwrap());
    assert_round_trip(&Percent::new(100).unwrap());
    assert!(serde_json::from_str::<Access>(r#""Fx""#).is_err());
    assert!(serde_json::from_str::<PciBusId>(r#""04:20.0""#).is_err());
    assert!(serde_json::from_str::<LeaseId>(r#""../a""#).is_err());
    assert!(serde_json::from_str::<Percent>("101").is_err());
}

#[test]
fn entry_round_trips_without_its_owner() {
    let share = Claim {
        count: 2,
        share: Share::Memory(Bytes(9)),
        among: vec![uuid("GPU-0")],
        except: vec![uuid("GPU-1")],
        required: vec![uuid("GPU-2")],
        free_memory: Some(Bytes(5)),
        compute_capability: Some((8, 0)),
        vendor: None,
        accept_used: true,
        visible_minors: vec![0, 3],
    };
    let outer = OuterLease { id: LeaseId::parse("outer").unwrap(), owner: 7 };
    let full = LeaseEntry {
        claim: share,
        within: vec![outer],
        devices: vec![uuid("GPU-2")],
        parts_of: vec![uuid("GPU-3")],
        ..entry("a", 3)
    };
    for entry in [full, entry("b", 4)] {
        let text = serde_json::to_string(&entry).unwrap();
        let read: LeaseEntry = serde_json::from_str(&text).unwrap();
        assert_eq!(read, LeaseEntry { owner: 0, ..entry }, "{text}");
    }
}

#[test]
fn snapshot_round_trips() {
    let workload = Workload { kind: WorkloadKind::Pod, id: "7".into(), cgroup: "/pod7".into() };
    let executable = Executable {
        path: "/usr/bin/python3".into(),
        file: FileId::Inode { dev: 1, ino: 2 },
        owner: 0,
        writable_by_others: false,
        seen_by_caller: Ok(true),
    };
    let known = ProcessInfo {
        command_line: Ok(vec!["python".to_owned()].into()),
        executable: Ok(Box::new(executable)),
        cpu_time: Ok(Duration::from_millis(1234)),
        resident: Ok(Bytes(77)),
        has_terminal: Ok(true),
        workload: Some(Box::new(workload)),
        ..process(100, 1)
    };
    let mut snapshot = Snapshot::empty(Origin::Simulated("scene".into()), Timestamp(9));
    let held = [("/dev/nvidia0", Access::OPEN | Access::MAPPED)];
    snapshot.holders = Ok(vec![holder(known.key, &held)]);
    snapshot.unreadable.add(Absent::NotPermitted, 3);
    snapshot.processes.insert(Pid(100), Process::from(Ok(known)));
    snapshot.processes.insert(Pid(101), Process::from(Err(Absent::NotFound)));
    snapshot.unasked = vec![info(5)];
    snapshot.driver = Ok(Driver { version: Ok("550.1".into()), cuda: Err(Absent::TooOld) });
    let details = DeviceDetails { product: Some(Product::default()), ..DeviceDetails::default() };
    let lost = Error::new(DeviceFault::Lost, "sample GPU 1").fault();
    snapshot.devices = vec![
        DeviceState { details: Ok(details), partitions: Ok(vec![mig(1, 0)]), ..state(0) },
        DeviceState { processes: Ok(vec![listed(100, 50, Some(7))]), ..state(1) },
        DeviceState::unanswered(info(2), Groups::all(), &lost),
    ];
    assert_round_trip(&snapshot);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.contains(r#""cpu_time_ms":1234"#), "{text}");
    assert_eq!(text.matches(r#""details":"#).count(), 2, "no details without a request");
    assert!(!text.contains("driver_messages"), "none without a request");
    snapshot.driver_messages = Err(Error::new(Absent::NotPermitted, "read the log").fault());
    assert_round_trip(&snapshot);
    let code = DriverErrorCode { list: "fallen-off-bus".into(), number: None };
    let off_bus = DriverMessage { code, ..driver_message() };
    snapshot.driver_messages = Ok(vec![driver_message(), off_bus]);
    assert_round_trip(&snapshot);
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.contains(r#"{"at_unix_ms":5,"bus":"00000000:04:00.0","#), "{text}");
    assert!(
        text.contains(r#""kind":{"kind":"xid","xid":43},"pid":100,"process":"train""#),
        "{text}"
    );
    assert!(text.contains(r#""kind":{"kind":"fallen-off-bus"},"pid""#), "{text}");
    assert!(text.contains(r#""text":"Ch 00000008"}]"#), "the error is not recorded: {text}");
    let list = "x".repeat(1_000_000).into();
    let long =
        DriverMessage { code: DriverErrorCode { list, number: Some(7) }, ..driver_message() };
    snapshot.driver_messages = Ok(vec![long]);
    snapshot.explain(&[]);
    let named = &snapshot.driver_messages.as_ref().unwrap()[0].error.name;
    assert_eq!(*named, "x".repeat(DriverErrorCode::MAX_NAME));
}

#[test]
fn process_of_earlier_recording_lacks_later_fields() {
    let mut json = serde_json::to_value(process(100, 1)).unwrap();
    let fields = json.as_object_mut().unwrap();
    for later in ["has_terminal", "executable", "resident_bytes"] {
        assert!(fields.remove(later).is_some(), "{later}");
    }
    let read: ProcessInfo = serde_json::from_value(json).unwrap();
    assert_eq!(read, process(100, 1));
}
