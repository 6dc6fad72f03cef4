//! The devices and rows that follow from a snapshot.

use crate::fixture::{Made, made};
use gpu_core::{
    Absent, Bytes, Celsius, Claim, DeviceId, DeviceProcessKind, DeviceUuid, ErrorKind, Fault,
    LeaseEntry, LeaseId, MemoryInfo, Milliwatts, Partition, Percent, Pid, Process, ProcessKey,
    Snapshot, StartTime, Timestamp, Workload, WorkloadKind,
};
use gpu_reaper::{Confidence, Diagnosis, Evidence, Finding, FindingKind, Sign, Suspect};
use gpu_report::ProcessFilter;
use gpu_steward::DeviceLeases;
use gpu_top::Frame;
use gpu_top::rows::{Device, Row, Subject, measured};

const GIB: u64 = 1 << 30;

fn key(pid: u32) -> ProcessKey {
    ProcessKey { pid: Pid(pid), start: Some(StartTime(1)) }
}

fn snapshot(gpus: u32, processes: &[Made]) -> Snapshot {
    let mut snapshot = made(gpus, processes, 60_000).snapshot;
    snapshot.holders = Ok(Vec::new());
    for device in &mut snapshot.devices {
        device.info.id.uuid = Ok(DeviceUuid(format!("GPU-{}", device.info.id.index)));
    }
    snapshot
}

fn derived(snapshot: Snapshot, findings: Vec<Finding>, leases: Vec<LeaseEntry>) -> Frame {
    let diagnosis = Diagnosis { findings, ..Diagnosis::default() };
    let leased = DeviceLeases::recorded(Ok(leases));
    let filter = ProcessFilter::default();
    Frame::of(snapshot, diagnosis, &leased, |_| true, &filter, &|uid| format!("user{uid}"))
}

fn lease(owner: u32, root: u32, device: &str) -> LeaseEntry {
    LeaseEntry {
        id: LeaseId::parse(&format!("0000000000{root:02x}")).unwrap(),
        ticket: u64::from(root),
        owner,
        root: key(root),
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid(device.to_owned())],
        parts_of: Vec::new(),
        merged: None,
        command: "python".to_owned(),
        since: Timestamp(0),
    }
}

fn finding(kind: FindingKind, confidence: Confidence, gpu: u32, pids: &[u32]) -> Finding {
    let suspect = |pid: &u32| Suspect { process: key(*pid), confidence, evidence: Vec::new() };
    Finding {
        kind,
        confidence,
        devices: vec![DeviceId::from_index(gpu)],
        memory: None,
        suspects: pids.iter().map(suspect).collect(),
        evidence: Vec::new(),
        advice: Vec::new(),
    }
}

fn alter(snapshot: &mut Snapshot, pid: u32, change: impl FnOnce(&mut gpu_core::ProcessInfo)) {
    let mut info = snapshot.process(Pid(pid)).unwrap().clone();
    change(&mut info);
    snapshot.processes.insert(Pid(pid), Process::from(Ok(info)));
}

#[test]
fn device_has_the_values_of_its_sample() {
    let mut snapshot = snapshot(2, &[Made::new(1, 7, "bob", 20 << 10, "job")]);
    let device = &mut snapshot.devices[1];
    device.info.name = Ok("NVIDIA A100\u{1b}".to_owned());
    let sample = device.sample.as_mut().unwrap();
    sample.power_draw = Ok(Milliwatts(150_000));
    sample.power_limit = Ok(Milliwatts(400_000));
    sample.temperature = Ok(Celsius(-3));
    let graphs = measured(&snapshot, |id| id.index == 1);
    let frame = derived(snapshot, Vec::new(), Vec::new());
    let expected = Device {
        index: 1,
        utilization: Some(50),
        memory_used: Some(Bytes(20 * GIB)),
        memory_total: Some(Bytes(80 * GIB)),
        power: Some(150_000),
        power_limit: Some(400_000),
        ..Device::default()
    };
    assert_eq!(graphs, std::slice::from_ref(&expected));
    let name = "A100\\x1b".to_owned();
    let whole = Device { name, temperature: Some(-3), ..expected };
    assert_eq!(frame.devices[1], whole, "it is in use");
    assert_eq!(
        (whole.label(), whole.memory_percent(), whole.power_percent()),
        ("1".to_owned(), Some(25), Some(37))
    );
    assert!(frame.devices[0].is_free && frame.summary() == "2 GPUs, 1 free", "{}", frame.summary());
}

#[test]
fn shares_are_at_most_all_and_unknown_without_a_whole() {
    let of = |used: Option<u64>, total: Option<u64>| {
        let (memory_used, memory_total) = (used.map(Bytes), total.map(Bytes));
        let device = Device {
            memory_used,
            memory_total,
            power: used,
            power_limit: total,
            ..Device::default()
        };
        assert_eq!(device.memory_percent(), device.power_percent());
        device.memory_percent()
    };
    assert_eq!(of(Some(1), Some(3)), Some(33));
    assert_eq!(of(Some(9), Some(3)), Some(100));
    assert_eq!(of(Some(u64::MAX), Some(u64::MAX)), Some(100));
    for (used, total) in [(Some(1), Some(0)), (None, Some(3)), (Some(1), None)] {
        assert_eq!(of(used, total), None);
    }
}

#[test]
fn parts_follow_their_device_with_their_own_memory() {
    let mut snapshot = snapshot(1, &[Made::new(0, 7, "bob", 2 << 10, "job")]);
    let part = |index: u32, used: u64| Partition {
        index,
        uuid: Ok(DeviceUuid(format!("MIG-{index}"))),
        profile: Ok("1g.10gb".to_owned()),
        gpu_instance: Some(index + 3),
        compute_instance: Some(0),
        memory: MemoryInfo {
            total: Ok(Bytes(10 * GIB)),
            used: Ok(Bytes(used)),
            reserved: Ok(Bytes(0)),
        },
    };
    snapshot.devices[0].info.partitioned = Ok(true);
    snapshot.devices[0].partitions = Ok(vec![part(0, 2 * GIB), part(1, 0), part(2, 0)]);
    let processes = snapshot.devices[0].processes.as_mut().unwrap();
    (processes[0].gpu_instance, processes[0].compute_instance) = (Some(3), Some(0));
    let frame = derived(snapshot, Vec::new(), vec![lease(1000, 9, "MIG-2")]);
    let labels: Vec<String> = frame.devices.iter().map(Device::label).collect();
    assert_eq!(labels, ["0", "0:0", "0:1", "0:2"]);
    let [_, used, free, leased] = &frame.devices[..] else { panic!("four devices") };
    assert_eq!(
        (&*used.name, used.memory_percent(), used.utilization),
        ("MIG 1g.10gb", Some(20), None)
    );
    assert_eq!([used, free, leased].map(|part| part.is_free), [false, true, false]);
    assert_eq!(
        (&used.leased_by[..], &leased.leased_by[..]),
        (&[][..], &["user1000".to_owned()][..])
    );
    assert_eq!(frame.rows[0].device_label(), "0:0");
    assert_eq!(frame.summary(), "1 GPU, 0 free, 1 MIG device free");
}

#[test]
fn leases_mark_the_device_and_the_descendants_of_their_root() {
    let below = |parent, made: Made| Made { parent, ..made };
    let processes = [
        below(5, Made::new(0, 6, "alice", 10, "worker")),
        below(1, Made::new(0, 5, "alice", 10, "launcher")),
        below(1, Made::new(0, 7, "bob", 10, "other")),
        below(5, Made::new(1, 6, "alice", 10, "worker")),
    ];
    let leases = vec![lease(1000, 5, "GPU-0"), lease(1000, 8, "GPU-0"), lease(1001, 9, "GPU-0")];
    let frame = derived(snapshot(2, &processes), Vec::new(), leases);
    assert_eq!(frame.devices[0].leased_by, ["user1000", "user1001"], "each once");
    assert!(!frame.devices[0].is_free && frame.devices[1].leased_by.is_empty());
    let leased: Vec<(Option<u32>, u32, bool)> =
        frame.rows.iter().map(|row| (row.key.gpu, row.pid().unwrap().0, row.is_leased)).collect();
    let expected = [(0, 5, true), (0, 6, true), (0, 7, false), (1, 6, false)];
    assert_eq!(leased, expected.map(|(gpu, pid, is_leased)| (Some(gpu), pid, is_leased)));
}

#[test]
fn row_has_what_the_driver_and_the_process_report() {
    let mut snapshot = snapshot(1, &[Made { cpu: 1500, ..Made::new(0, 7, "bob", 3, "job -x") }]);
    alter(&mut snapshot, 7, |info| {
        info.resident = Ok(Bytes(GIB));
        let (id, cgroup) = ("4711".to_owned(), String::new());
        info.workload = Some(Box::new(Workload { kind: WorkloadKind::SlurmJob, id, cgroup }));
    });
    let listed = snapshot.devices[0].processes.as_mut().unwrap();
    for (pid, kind) in [
        (8, DeviceProcessKind::Graphics),
        (9, DeviceProcessKind::ComputeAndGraphics),
        (10, DeviceProcessKind::Mps),
        (11, DeviceProcessKind::Unknown),
    ] {
        let mut process = listed[0].clone();
        (process.pid, process.kind, process.memory) = (Pid(pid), kind, Err(Absent::NotSupported));
        process.utilization = Err(Absent::NotSupported);
        process.name = Ok(format!("/usr/bin/p{pid}"));
        listed.push(process);
        // The last one could not be read.
        if pid < 11 {
            snapshot.processes.insert(Pid(pid), Process::from(Err(Absent::NotFound)));
        }
    }
    let gone = vec![finding(FindingKind::ListedButGone, Confidence::High, 0, &[])];
    let frame = derived(snapshot, gone, Vec::new());
    let [known, others @ ..] = &frame.rows[..] else { panic!("rows") };
    let expected = Row {
        key: known.key,
        mig: None,
        user: "bob".to_owned(),
        memory: Some(Bytes(3 << 20)),
        sm: Some(7),
        cpu_time: Some(std::time::Duration::from_millis(1500)),
        cpu: None,
        host: Some(Bytes(GIB)),
        age: Some(std::time::Duration::from_secs(60)),
        kind: "C",
        finding: None,
        is_leased: false,
        job: "Slurm 4711".to_owned(),
        command: "job -x".to_owned(),
    };
    assert_eq!(*known, expected);
    let kinds: Vec<_> = others.iter().map(|row| (row.pid().map(|pid| pid.0), row.kind)).collect();
    assert_eq!(kinds, [(Some(8), "G"), (Some(9), "C+G"), (Some(10), "M+C"), (Some(11), "-")]);
    for row in others {
        assert_eq!((&*row.user, row.memory, row.sm, row.host), ("?", None, None, None));
        let is_gone = row.pid() != Some(Pid(11));
        assert_eq!(row.finding, is_gone.then_some(FindingKind::ListedButGone), "{row:?}");
    }
}

#[test]
fn foreign_pid_is_not_taken_for_a_process_here() {
    let mut snapshot = snapshot(1, &[Made::new(0, 7, "bob", 3, "job")]);
    snapshot.sees_host_pids = Ok(false);
    let likely = finding(FindingKind::ForeignNamespace, Confidence::Likely, 0, &[]);
    let frame = derived(snapshot.clone(), vec![likely], Vec::new());
    let row = &frame.rows[0];
    assert_eq!((row.key.subject, row.pid(), &*row.user), (Subject::Foreign(Pid(7)), None, "?"));
    assert_eq!((row.memory, row.sm, row.kind), (Some(Bytes(3 << 20)), Some(7), "C"));
    assert_eq!(row.command, "listed as host PID 7, not visible here");
    assert_eq!(row.note(), "foreign");
    let possible = finding(FindingKind::ForeignNamespace, Confidence::Possible, 0, &[]);
    assert_eq!(derived(snapshot, vec![possible], Vec::new()).rows[0].note(), "");
}

#[test]
fn unlisted_memory_names_its_suspects() {
    let processes: Vec<Made> = (10..15)
        .map(|pid| Made::new(9, pid, if pid < 12 { "eve" } else { "bob" }, 0, "held"))
        .collect();
    let machine = || {
        let mut snapshot = snapshot(1, &processes);
        snapshot.devices[0].sample.as_mut().unwrap().memory.used = Ok(Bytes(5 * GIB));
        snapshot
    };
    let row = |findings| derived(machine(), findings, Vec::new()).rows.pop().unwrap();
    let unknown = row(Vec::new());
    assert_eq!(unknown.key.subject, Subject::Unlisted);
    assert_eq!((&*unknown.command, &*unknown.user), ("not listed, holder unknown", "?"));
    assert_eq!((unknown.note(), unknown.pid()), ("unlisted", None));
    assert!(unknown.memory.is_some_and(|memory| memory.0 > 4 * GIB), "{:?}", unknown.memory);
    let three = row(vec![finding(FindingKind::Ghost, Confidence::High, 0, &[10, 11, 12])]);
    assert_eq!(three.command, "not listed: 10 held, 11 held, 12 held");
    assert_eq!((&*three.user, three.note()), ("eve,bob", "ghost"));
    let all =
        row(vec![finding(FindingKind::Ghost, Confidence::Possible, 0, &[10, 11, 12, 13, 99])]);
    assert_eq!(all.command, "not listed: 10 held, 11 held, 12 held, 2 more");
    assert_eq!((&*all.user, all.note()), ("eve,bob,?", "unlisted"));
    let other = row(vec![finding(FindingKind::Hoarder, Confidence::High, 0, &[10])]);
    assert_eq!(other.command, "not listed, holder unknown", "it is about a listed process");
}

#[test]
fn words_about_a_device_name_each_finding_and_defect_once() {
    let mut snapshot = snapshot(2, &[Made::new(0, 7, "bob", 3, "job")]);
    snapshot.devices[0].info.partitioned = Ok(true);
    let words = |snapshot: &Snapshot, findings: Vec<Finding>| {
        let frame = derived(snapshot.clone(), findings, Vec::new());
        frame.devices[0].findings.clone()
    };
    let defect = "MIG enabled without an instance: CUDA sees no device";
    assert_eq!(words(&snapshot, Vec::new()), [defect]);
    let high = |kind, pids: &[u32]| finding(kind, Confidence::High, 0, pids);
    let mut resting = high(FindingKind::NoMigInstance, &[]);
    let evidence =
        |text: &str| Evidence { sign: Sign::UnexplainedMemory, text: text.to_owned(), code: None };
    resting.evidence = vec![evidence("something else"), evidence(defect)];
    let found = words(
        &snapshot,
        vec![resting, high(FindingKind::Hoarder, &[7]), high(FindingKind::Hoarder, &[8])],
    );
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with(&format!(": {defect}")), "{found:?}");
    let possible = finding(FindingKind::Hoarder, Confidence::Possible, 0, &[7]);
    let elsewhere = finding(FindingKind::Hoarder, Confidence::High, 1, &[7]);
    assert_eq!(words(&snapshot, vec![possible, elsewhere]), [defect]);
    snapshot.devices[0].info.partitioned = Ok(false);
    snapshot.devices[0].sample =
        Err(Fault { kind: ErrorKind::Field(Absent::Failed), text: "read \u{1b}it".to_owned() });
    assert_eq!(words(&snapshot, Vec::new()), ["failed to read \\x1bit"]);
    snapshot.devices[0].sample =
        Err(Fault { kind: ErrorKind::TimedOut, text: "query it".to_owned() });
    assert_eq!(words(&snapshot, Vec::new()).len(), 1);
}

#[test]
fn finding_marks_the_row_of_its_suspect_on_its_device() {
    let processes = [
        Made::new(0, 7, "bob", 3, "job"),
        Made::new(0, 8, "bob", 3, "job"),
        Made::new(1, 7, "bob", 3, "job"),
    ];
    let high = finding(FindingKind::Hoarder, Confidence::High, 0, &[7]);
    let frame = derived(snapshot(2, &processes), vec![high], Vec::new());
    let found: Vec<_> = frame.rows.iter().map(|row| row.finding).collect();
    assert_eq!(found, [Some(FindingKind::Hoarder), None, None]);
    let possible = finding(FindingKind::Hoarder, Confidence::Possible, 0, &[7]);
    let frame = derived(snapshot(2, &processes), vec![possible], Vec::new());
    assert!(frame.rows.iter().all(|row| row.finding.is_none()));
    // A process that exists is not gone.
    let gone = finding(FindingKind::ListedButGone, Confidence::High, 0, &[]);
    let frame = derived(snapshot(2, &processes), vec![gone], Vec::new());
    assert!(frame.rows.iter().all(|row| row.finding.is_none()));
}

#[test]
fn unknown_sample_gives_an_unknown_device() {
    let mut snapshot = snapshot(1, &[]);
    snapshot.devices[0].info.name = Err(Absent::NotSupported);
    if let Ok(sample) = &mut snapshot.devices[0].sample {
        sample.utilization = Percent::new(200).ok_or(Absent::Failed);
        sample.memory.total = Err(Absent::NotSupported);
    }
    let device = derived(snapshot, Vec::new(), Vec::new()).devices.remove(0);
    assert_eq!((&*device.name, device.utilization, device.memory_percent()), ("?", None, None));
}
