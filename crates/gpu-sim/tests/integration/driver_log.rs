//! The driver's messages in the kernel log of a machine.

use gpu_core::{
    Absent, Clock, DriverErrorCode, DriverMessage, DriverView, ErrorKind, Observation, Pid,
    Snapshot, Timestamp, observe_in_detail,
};
use gpu_sim::{Anonymizer, Machine, Recording, RecordingWriter, Seed, Simulation};
use std::time::Duration;

const HEAD: &str = "description = 'made: a test'\nclock = 2025-03-03T10:00:00Z\n\
                    booted = 2025-03-03T09:00:00Z\n[[gpu]]\nindex = 0\nbus = '0000:3b:00.0'\n";

fn machine(text: &str) -> Result<Machine, String> {
    let dir = tempfile::tempdir().unwrap();
    let machine = dir.path().join("x");
    std::fs::create_dir(&machine).unwrap();
    std::fs::write(machine.join("machine.toml"), format!("{HEAD}{text}")).unwrap();
    Machine::from_dir(&machine).map_err(|error| error.fault().text)
}

fn started(text: &str) -> Simulation {
    Simulation::start(machine(text).unwrap(), Seed(0))
}

fn take_snapshot(simulation: &Simulation) -> Snapshot {
    let observation = Observation { driver_messages: true, ..Observation::default() };
    observe_in_detail(simulation, simulation, simulation, observation)
}

/// Returns the messages described by these fields.
fn messages(fields: &str) -> Vec<DriverMessage> {
    take_snapshot(&started(&format!("[[driver_message]]\n{fields}"))).driver_messages.unwrap()
}

#[test]
fn message_has_described_values() {
    let all = messages(
        "gpu = 0\nxid = 43\nseconds_ago = 90\npid = 7\nprocess = 'train'\ngpu_instance = 5\n\
         compute_instance = 0\ntext = 'Ch 00000008'",
    );
    let [message] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!(message.at.to_string(), "2025-03-03T09:58:30.000Z");
    assert_eq!(message.bus.to_string(), "00000000:3B:00.0");
    assert_eq!(message.code.to_string(), "xid-43");
    assert_eq!((message.pid, message.process.as_deref()), (Some(Pid(7)), Some("train")));
    assert_eq!((message.gpu_instance, message.compute_instance), (Some(5), Some(0)));
    assert_eq!(message.text, "Ch 00000008");
}

#[test]
fn defaults_are_clock_and_text_of_driver() {
    let of = |fields: &str| {
        let message = messages(fields).remove(0);
        (message.at.to_string(), message.code.to_string(), message.text)
    };
    let off_bus = "GPU has fallen off the bus.".to_owned();
    let now = "2025-03-03T10:00:00.000Z".to_owned();
    let lost = "fallen-off-bus".to_owned();
    assert_eq!(of("gpu = 0\nfallen_off_bus = true"), (now.clone(), lost, off_bus.clone()));
    let xid = |number: u32| format!("xid-{number}");
    assert_eq!(of("bus = '0000:3b:00.0'\nxid = 79"), (now, xid(79), off_bus));
    let then = "2025-03-03T09:30:00.000Z".to_owned();
    let at = "bus = '0004:5e:00.0'\nxid = 13\nat = 2025-03-03T09:30:00Z";
    assert_eq!(of(at), (then, xid(13), String::new()));
}

#[test]
fn contradictions_are_refused() {
    let early = "gpu = 0\nxid = 1\nat = 2025-03-03T08:00:00Z";
    for (fields, why) in [
        ("xid = 1", "requires exactly one of 'gpu' and 'bus'"),
        ("gpu = 0\nbus = '0000:3b:00.0'\nxid = 1", "requires exactly one of 'gpu' and 'bus'"),
        ("gpu = 3\nxid = 1", "names GPU 3, which is not in this machine"),
        (
            "bus = '3b'\nxid = 1",
            "has an invalid bus ID: '3b' is not a PCI bus ID, e.g. 00000000:04:00.0",
        ),
        ("gpu = 0", "requires exactly one of 'xid' and 'fallen_off_bus = true'"),
        (
            "gpu = 0\nxid = 1\nfallen_off_bus = true",
            "requires exactly one of 'xid' and 'fallen_off_bus = true'",
        ),
        (
            "gpu = 0\nxid = 1\nat = 2025-03-03T09:30:00Z\nseconds_ago = 1",
            "requires exactly one of 'at' and 'seconds_ago'",
        ),
        (early, "is earlier than the boot of the machine or later than its clock"),
        (
            "gpu = 0\nxid = 1\nseconds_ago = 3601",
            "is earlier than the boot of the machine or later than its clock",
        ),
        (
            "gpu = 0\nxid = 1\nat = 2025-03-03T10:00:01Z",
            "is earlier than the boot of the machine or later than its clock",
        ),
        ("gpu = 0\nfallen_off_bus = true\npid = 7", "without an Xid must not name a process"),
        ("gpu = 0\nxid = 1\nprocess = 'a'", "requires 'pid' if 'process' is set"),
        (
            "gpu = 0\nfallen_off_bus = true\ntext = 'fine'",
            "is not a message that the driver writes",
        ),
    ] {
        let error = machine(&format!("[[driver_message]]\n{fields}")).unwrap_err();
        assert!(error.ends_with(&format!("a driver message {why}")), "{fields}: {error}");
    }
}

#[test]
fn only_privileged_viewer_reads_messages() {
    let message = "[[driver_message]]\ngpu = 0\nxid = 79\n";
    let error = started(&format!("{message}[viewer]\nuid = 1000\n")).driver_messages().unwrap_err();
    assert_eq!(error.kind(), Absent::NotPermitted.into());
    assert!(error.fault().text.contains("CAP_SYSLOG"), "{}", error.fault());
    assert_eq!(started(message).driver_messages().unwrap().len(), 1);
}

#[test]
fn messages_are_in_order_and_reported_errors_are_added() {
    let simulation = started(
        "[[driver_message]]\ngpu = 0\nxid = 31\n[[driver_message]]\ngpu = 0\nxid = 13\n\
         seconds_ago = 60\n[[event]]\nat_ms = 5000\nreports = { gpu = 0, xid = 79 }\n",
    );
    let codes = || -> Vec<DriverErrorCode> {
        simulation.driver_messages().unwrap().into_iter().map(|message| message.code).collect()
    };
    let xid = |number| DriverErrorCode { list: "xid".into(), number: Some(number) };
    assert_eq!(codes(), [xid(13), xid(31)]);
    simulation.sleep(Duration::from_secs(6));
    assert_eq!(codes(), [xid(13), xid(31), xid(79)]);
    let last = simulation.driver_messages().unwrap().remove(2);
    assert_eq!(
        (last.at, &*last.text),
        (Timestamp(1_740_996_005_000), "GPU has fallen off the bus.")
    );
}

#[test]
fn recording_keeps_messages_or_their_absence() {
    let simulation =
        started("[[driver_message]]\ngpu = 0\nxid = 43\npid = 7\nprocess = 'secret'\n");
    let replay = |snapshot: &Snapshot| {
        let mut writer = RecordingWriter::new(Vec::new(), false, Err(Absent::NotRecorded)).unwrap();
        writer.add(Duration::ZERO, snapshot).unwrap();
        let recording = Recording::read(writer.into_inner().as_slice()).unwrap();
        Simulation::start(Machine::from_recording("replayed", recording), Seed(0))
    };
    let seen = take_snapshot(&simulation);
    assert_eq!(replay(&seen).driver_messages().unwrap(), seen.driver_messages.clone().unwrap());
    let without = gpu_core::observe(&simulation, &simulation, &simulation);
    assert_eq!(without.driver_messages.as_ref().unwrap_err().kind, ErrorKind::NotRequested);
    let absent = replay(&without).driver_messages().unwrap_err();
    assert_eq!(absent.kind(), Absent::NotRecorded.into());
    let anonymous = Anonymizer::default().anonymize(&seen).driver_messages.unwrap();
    assert_eq!((anonymous[0].pid, anonymous[0].process.as_deref()), (Some(Pid(7)), None));
}
