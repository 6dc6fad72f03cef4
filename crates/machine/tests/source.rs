//! The machine that the options select, through its ports.

use gpu_core::{
    Absent, ActToken, Claim, DeviceId, DeviceUuid, EntryKind, ErrorKind, Groups, Launch,
    LeaseEntry, LeaseStore, Observation, Origin, Pid, ProcessInfo, ProcessKey, StartTime,
    Timestamp,
};
use gpu_machine::{Options, Source, is_placeholder, placeholder};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const MACHINE: &str = "p100-ghost";

fn simulated() -> Source {
    Source::open(&Options::simulated(MACHINE)).unwrap()
}

fn error(options: &Options<'_>) -> gpu_machine::MachineError {
    match Source::open(options) {
        Err(error) => error,
        Ok(_) => panic!("{options:?} was opened"),
    }
}

#[test]
fn named_machine_is_simulated_behind_every_port() {
    let source = simulated();
    let origin = Origin::Simulated(MACHINE.into());
    assert_eq!((source.backend.origin(), source.host.origin()), (origin.clone(), origin));
    assert!(source.is_simulated() && source.can_end_processes);
    assert_eq!(source.session(), None);
    assert!(!source.snapshot().devices.is_empty());
    let all = Observation { groups: Groups::all(), ..Observation::default() };
    let details = source.detailed_snapshot(all).devices.remove(0).details.unwrap();
    assert!(details.product.is_some());
    source.journal().unwrap().append("line").unwrap();
    source.leak();
}

#[test]
fn simulated_machine_has_no_leases_but_can_be_claimed() {
    let source = simulated();
    assert!(source.existing_lease_store().is_none());
    assert!(source.leases().fault().is_none());
    let locks = source.lease_store(None).unwrap();
    assert_eq!(locks.entries(EntryKind::Lease).unwrap(), []);
    let root = Source::bare().host.process(Pid(std::process::id())).unwrap().key;
    let entry = LeaseEntry {
        id: locks.new_id().unwrap(),
        ticket: locks.ticket().unwrap(),
        owner: locks.owner(),
        root,
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid("GPU-0".to_owned())],
        parts_of: Vec::new(),
        merged: None,
        command: "train".to_owned(),
        since: Timestamp(0),
    };
    let _held = locks.publish(EntryKind::Lease, &entry).unwrap();
    let leases = |source: &Source| source.lease_store(None).unwrap().entries(EntryKind::Lease);
    assert_eq!(leases(&source).unwrap().len(), 1);
    assert_eq!(leases(&simulated()).unwrap(), [], "each has its own");
}

#[test]
fn snapshots_are_separated_by_their_pause() {
    let source = simulated();
    let times = |snapshots: &mut dyn Iterator<Item = gpu_core::Snapshot>| {
        let snapshots: Vec<_> = snapshots.collect();
        let first = snapshots[0].taken_at;
        snapshots
            .iter()
            .map(|snapshot| snapshot.taken_at.since(first).as_millis())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        times(&mut source.snapshots(gpu_core::Observation::default(), 3, Duration::from_secs(2))),
        [0, 2000, 4000]
    );
    assert_eq!(times(&mut source.two_snapshots().into_iter()), [0, 500]);
}

#[test]
fn machine_without_devices_gives_one_snapshot() {
    let bare = Source::bare();
    assert!(!bare.is_simulated());
    assert_eq!(bare.snapshots(gpu_core::Observation::default(), 3, Duration::ZERO).count(), 1);
    assert!(bare.host.process(Pid(std::process::id())).is_ok(), "its processes are real");
    let device = DeviceId::from_index(0);
    let kinds = [
        bare.backend.driver().err(),
        bare.backend.devices().err(),
        bare.backend.sample(&device).err(),
        bare.backend.processes(&device).err(),
        bare.backend.partitions(&device).err(),
        bare.backend.details(&device, Groups::NONE).err(),
        bare.backend.topology().err(),
        bare.backend.events(Duration::ZERO).err(),
        bare.backend.reset(&device, &ActToken::user_confirmed()).err(),
    ];
    for error in kinds {
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
    }
}

#[test]
fn file_of_a_machine_is_found_by_its_path() {
    let source = simulated();
    let found = source.file(Path::new("/dev/nvidia0")).unwrap();
    assert_eq!(&*found.path, "/dev/nvidia0");
    let missing = source.file(Path::new("/dev/nvidia99")).unwrap_err();
    let hint = missing.hint().unwrap().to_owned();
    assert!(hint.starts_with("choose from ") && hint.contains("/dev/nvidia0"), "{hint}");
    assert_eq!(missing.into_error().kind(), Absent::NotFound.into());
    assert_eq!(&*Source::bare().file(Path::new("/dev/null")).unwrap().path, "/dev/null");
}

#[test]
fn unknown_machine_and_library_are_refused() {
    let unknown = error(&Options::simulated("no-such-machine"));
    assert_eq!(unknown.cause(), gpu_machine::Cause::Failed);
    assert!(unknown.to_string().contains("no-such-machine"), "{unknown}");
    let library = Path::new("/nowhere/libnvidia-ml.so.1");
    let missing = error(&Options { nvml: Some(library), ..Options::this_machine() });
    assert_eq!(missing.to_string(), "find the NVML '/nowhere/libnvidia-ml.so.1'");
    assert!(std::error::Error::source(&missing).is_some());
}

#[test]
fn lease_directory_replaceable_by_others_is_refused() {
    let source = simulated();
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    let claims = shared.join("claims");
    std::fs::create_dir(&claims).unwrap();
    let Err(refused) = source.lease_store(Some(&claims)) else { panic!("others can replace it") };
    let hint = "a user who can replace the lease directory can cause double grants";
    assert_eq!(refused.hint(), Some(hint));
    let own = dir.path().join("own");
    std::fs::create_dir(&own).unwrap();
    assert!(source.lease_store(Some(&own)).is_ok());
    assert!(
        source.lease_store(Some(&own.join("none"))).is_ok(),
        "its first use tells what is wrong"
    );
}

#[test]
fn placeholder_is_the_program_itself_or_the_session_actor() {
    let supervisor = ProcessKey { pid: Pid(7), start: Some(StartTime(9)) };
    let Launch { program, arguments, .. } = placeholder(supervisor, None);
    assert_eq!(program, "/proc/self/exe");
    assert_eq!(arguments[1..], ["7", "9"]);
    let session = placeholder(supervisor, Some(Path::new("/run/s")));
    assert!(session.program.to_str().unwrap().starts_with("/run/s/"));
    assert_eq!(session.arguments[0], "--use");
    let name = arguments[0].to_str().unwrap();
    assert_eq!(session.arguments[3], name, "both have the same name");

    let child = |name: &str, parent| ProcessInfo {
        parent: Ok(Pid(parent)),
        ..ProcessInfo::from_name(Pid(8), name)
    };
    assert!(is_placeholder(&child(name, 7), Pid(7)));
    assert!(!is_placeholder(&child(name, 6), Pid(7)));
    assert!(!is_placeholder(&child("python", 7), Pid(7)));
}

#[test]
fn time_left_is_never_negative() {
    let source = simulated();
    let due = Duration::from_millis(2750);
    for (slept, seconds, nanoseconds) in [(0, 2, 750_000_000), (1500, 1, 250_000_000), (9000, 0, 0)]
    {
        source.clock.sleep(Duration::from_millis(slept));
        let left = gpu_machine::time_until(due, &*source.clock);
        assert_eq!((left.tv_sec, left.tv_nsec), (seconds, nanoseconds), "after {slept} ms");
    }
}

#[test]
fn process_is_opened_only_by_its_start_time() {
    let own = Source::bare().host.process(Pid(std::process::id())).unwrap().key;
    let is_open = |key| gpu_machine::open_process(key).unwrap().is_some();
    assert!(is_open(own));
    let start = own.start.map(|start| StartTime(start.0 + 1));
    assert!(!is_open(ProcessKey { start, ..own }), "another process with its number");
    assert!(!is_open(ProcessKey { pid: Pid(0), ..own }));
    assert!(!is_open(ProcessKey { pid: Pid(u32::MAX), ..own }));
}
