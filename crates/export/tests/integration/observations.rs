//! The values that a snapshot has, and those that it lacks.

use gpu_claim::Ledger;
use gpu_core::{
    Absent, Bytes, Celsius, Claim, DeviceDetails, DeviceId, DeviceInfo, DeviceProcess,
    DeviceProcessKind, DeviceSample, DeviceState, DeviceUuid, Driver, DriverError, DriverErrorCode,
    DriverMessage, ErrorKind, Fault, FileId, LeaseEntry, LeaseId, MemoryInfo, MergedLeases, Origin,
    OuterLease, Partition, PciBusId, Percent, Pid, Process, ProcessInfo, ProcessKey, Share,
    Snapshot, StartTime, Timestamp, Workload, WorkloadKind,
};
use gpu_export::{Metric, Metrics, Observation, Shown, Waits};
use gpu_reaper::{Confidence, Diagnosis, Finding, FindingKind};
use std::collections::BTreeMap;
use std::time::Duration;

const ALL: Shown = Shown { figures: true, processes: Some(Bytes(1)), waits: true };
const GIB: u64 = 1 << 30;

pub(crate) fn uuid(name: &str) -> DeviceUuid {
    DeviceUuid(name.to_owned())
}

pub(crate) fn device(index: u32, processes: &[(u32, u64)]) -> DeviceState {
    let mut sample = DeviceSample::absent(Absent::NotSupported);
    sample.memory.total = Ok(Bytes(16 * GIB));
    sample.memory.used = Ok(processes.iter().map(|(_, gib)| Bytes(gib * GIB)).sum());
    let id = DeviceId {
        uuid: Ok(uuid(&format!("GPU-{index}"))),
        node: Ok(FileId::Device { major: 195, minor: index }),
        ..DeviceId::from_index(index)
    };
    let process = |(pid, gib): &(u32, u64)| DeviceProcess {
        pid: Pid(*pid),
        kind: DeviceProcessKind::Compute,
        memory: Ok(Bytes(gib * GIB)),
        utilization: Err(Absent::NotSupported),
        name: Err(Absent::NotSupported),
        gpu_instance: None,
        compute_instance: None,
    };
    DeviceState {
        info: DeviceInfo::unknown(id),
        sample: Ok(sample),
        processes: Ok(processes.iter().map(process).collect()),
        partitions: Ok(Vec::new()),
        details: Ok(DeviceDetails::default()),
    }
}

pub(crate) fn key(pid: u32) -> ProcessKey {
    ProcessKey { pid: Pid(pid), start: Some(StartTime(1)) }
}

pub(crate) fn process(pid: u32, uid: u32) -> ProcessInfo {
    ProcessInfo { key: key(pid), uid: Ok(uid), ..ProcessInfo::from_name(Pid(pid), "python") }
}

/// A machine with these devices and processes, each with its user.
pub(crate) fn machine(devices: Vec<DeviceState>, processes: Vec<ProcessInfo>) -> Snapshot {
    let driver = Driver { version: Ok("580.1".to_owned()), cuda: Err(Absent::NotSupported) };
    let processes = processes.into_iter().map(|info| (info.key.pid, Process::from(Ok(info))));
    Snapshot {
        driver: Ok(driver),
        devices,
        holders: Ok(Vec::new()),
        processes: processes.collect(),
        sees_host_pids: Ok(true),
        ..Snapshot::empty(Origin::Live, Timestamp(100_000))
    }
}

pub(crate) fn lease(id: &str, owner: u32, root: u32, devices: &[&str]) -> LeaseEntry {
    LeaseEntry {
        id: LeaseId::parse(id).unwrap(),
        ticket: 1,
        owner,
        root: key(root),
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: devices.iter().map(|name| uuid(name)).collect(),
        parts_of: Vec::new(),
        merged: None,
        command: "python".to_owned(),
        since: Timestamp(90_000),
    }
}

fn observation<'a>(
    snapshot: &'a Snapshot,
    diagnosis: &'a Diagnosis,
    ledger: &'a Ledger,
) -> Observation<'a> {
    Observation {
        snapshot,
        diagnosis,
        ledger: Ok(ledger),
        reaps: None,
        waits: None,
        took: Duration::from_millis(20),
        user: &|uid| format!("user{uid}"),
    }
}

pub(crate) fn metrics(snapshot: &Snapshot, ledger: &Ledger) -> Metrics {
    observation(snapshot, &Diagnosis::default(), ledger).metrics(ALL)
}

pub(crate) fn files(snapshot: &Snapshot, ledger: &Ledger) -> Option<BTreeMap<String, String>> {
    observation(snapshot, &Diagnosis::default(), ledger).job_files()
}

pub(crate) fn fault(absent: Absent) -> Fault {
    Fault { kind: ErrorKind::Field(absent), text: "query it".to_owned() }
}

#[test]
fn absent_value_is_an_absent_series_and_zero_is_zero() {
    let mut known = device(0, &[]);
    if let Ok(sample) = &mut known.sample {
        sample.temperature = Ok(Celsius(0));
        sample.utilization = Percent::new(0).ok_or(Absent::Failed);
    }
    let snapshot = machine(vec![known, device(1, &[])], Vec::new());
    let metrics = metrics(&snapshot, &Ledger::default());
    assert_eq!(metrics.value(Metric::GpuTemperature, &[("gpu", "0")]), Some(0.0));
    assert_eq!(metrics.value(Metric::GpuUtilization, &[("gpu", "0")]), Some(0.0));
    assert_eq!(metrics.value(Metric::GpuMemoryUsed, &[("gpu", "1")]), Some(0.0));
    for metric in [Metric::GpuTemperature, Metric::GpuUtilization] {
        assert_eq!(metrics.count(metric), 1, "{metric:?}");
    }
    for metric in [Metric::GpuPower, Metric::GpuEnergy, Metric::UserMemory, Metric::QueueOldest] {
        assert_eq!(metrics.count(metric), 0, "{metric:?}");
    }
    let few = Shown { figures: false, processes: None, waits: false };
    let metrics = observation(&snapshot, &Diagnosis::default(), &Ledger::default()).metrics(few);
    assert_eq!(metrics.count(Metric::GpuMemoryUsed), 0);
    assert_eq!(metrics.count(Metric::GpuUnexplained), 2);
}

/// Leases beyond the limits of a reader are one entry, of a user or of several.
#[test]
fn findings_are_counted_by_kind_and_by_device_and_confidence() {
    let snapshot = machine(vec![device(0, &[]), device(1, &[])], Vec::new());
    let finding = |confidence, gpu: usize| Finding {
        kind: FindingKind::Ghost,
        confidence,
        devices: vec![snapshot.devices[gpu].id().clone()],
        memory: Some(Bytes(GIB)),
        suspects: Vec::new(),
        evidence: Vec::new(),
        advice: Vec::new(),
    };
    let (possible, likely, high) = (Confidence::Possible, Confidence::Likely, Confidence::High);
    let findings =
        vec![finding(likely, 0), finding(likely, 0), finding(possible, 0), finding(high, 1)];
    let diagnosis = Diagnosis { findings, ..Diagnosis::default() };
    let metrics = observation(&snapshot, &diagnosis, &Ledger::default()).metrics(ALL);
    let ghost = [("kind", "ghost")];
    assert_eq!(metrics.value(Metric::Findings, &ghost), Some(3.0), "without the possible one");
    assert_eq!(metrics.value(Metric::FindingMemory, &ghost), Some(3.0 * GIB as f64));
    for (gpu, confidence, count) in [
        ("0", "likely", Some(2.0)),
        ("0", "possible", Some(1.0)),
        ("0", "high", None),
        ("1", "high", Some(1.0)),
    ] {
        let labels = [("gpu", gpu), ("kind", "ghost"), ("confidence", confidence)];
        assert_eq!(metrics.value(Metric::GpuFinding, &labels), count, "{labels:?}");
    }
}

#[test]
fn device_has_its_health_its_last_errors_and_its_utilization() {
    let mut ill = device(0, &[]);
    let bus = PciBusId { domain: 0, bus: 0x41, device: 0, function: 0 };
    ill.info.id.bus = Ok(bus);
    ill.info.partitioned = Ok(true);
    ill.sample.as_mut().unwrap().utilization = Percent::new(40).ok_or(Absent::Failed);
    let mut snapshot = machine(vec![ill, device(1, &[])], Vec::new());
    let message = |at, bus, list: &'static str, number| {
        let code = DriverErrorCode { list: list.into(), number: Some(number) };
        let error = DriverError { code: code.clone(), ..DriverError::default() };
        DriverMessage {
            at,
            elapsed: None,
            is_local: false,
            bus,
            code,
            pid: None,
            process: None,
            gpu_instance: None,
            compute_instance: None,
            text: String::new(),
            error,
        }
    };
    let other = PciBusId { bus: 0x42, ..bus };
    snapshot.driver_messages = Ok(vec![
        message(Timestamp(50_000), bus, "xid", 31),
        message(Timestamp(70_000), bus, "xid", 31),
        message(DriverMessage::UNDATED, bus, "xid", 13),
        message(Timestamp(80_000), bus, "xid", 79),
        message(Timestamp(85_000), bus, "sxid", 20_001),
        message(Timestamp(90_000), other, "xid", 48),
    ]);
    let metrics = metrics(&snapshot, &Ledger::default());
    for (gpu, fit) in [("0", 0.0), ("1", 1.0)] {
        assert_eq!(metrics.value(Metric::GpuFit, &[("gpu", gpu)]), Some(fit), "{gpu}");
    }
    let no_instance = [("gpu", "0"), ("defect", "no_mig_instance")];
    assert_eq!(metrics.value(Metric::GpuDefect, &no_instance), Some(1.0));
    let xid = |code| metrics.value(Metric::GpuXid, &[("gpu", "0"), ("xid", code)]);
    assert_eq!((xid("31"), xid("79")), (Some(70.0), Some(80.0)));
    assert_eq!(
        metrics.count(Metric::GpuXid),
        2,
        "neither undated, of a switch, nor of another device"
    );
    assert_eq!(metrics.value(Metric::GpuUtilization, &[("gpu", "0")]), Some(0.4));
}

#[test]
fn merged_leases_count_fully_by_user_and_once_by_device() {
    let snapshot = machine(vec![device(0, &[]), device(1, &[])], Vec::new());
    let mut merged = MergedLeases::of_count(40);
    merged.add("GPU-0", &mut 1);
    let merged = LeaseEntry {
        merged: Some(std::sync::Arc::new(merged)),
        ..lease("more-of-1000", 1000, 0, &[])
    };
    let ledger = Ledger::new(vec![lease("a", 1000, 7, &["GPU-0"]), merged], Vec::new());
    let metrics = metrics(&snapshot, &ledger);
    assert_eq!(metrics.value(Metric::Leases, &[("user", "user1000")]), Some(41.0));
    assert_eq!(metrics.value(Metric::GpuLeases, &[("gpu", "0")]), Some(2.0));
    assert_eq!(metrics.value(Metric::GpuLeases, &[("gpu", "1")]), Some(0.0));
}

#[test]
fn hanging_device_reports_driver_down_and_keeps_known_values() {
    let mut silent = device(1, &[]);
    silent.sample = Err(fault(Absent::NoAnswer));
    silent.processes = Err(fault(Absent::NoAnswer));
    let snapshot = machine(vec![device(0, &[(7, 2)]), silent], vec![process(7, 1000)]);
    let ledger = Ledger::new(vec![lease("a", 1000, 7, &["GPU-0"])], Vec::new());
    let metrics = metrics(&snapshot, &ledger);
    assert_eq!(metrics.value(Metric::Up, &[]), Some(0.0));
    assert_eq!(metrics.value(Metric::GpuUp, &[("gpu", "0")]), Some(1.0));
    assert_eq!(metrics.value(Metric::GpuUp, &[("gpu", "1")]), Some(0.0));
    assert_eq!(metrics.value(Metric::GpuMemoryUsed, &[("gpu", "0")]), Some((2 * GIB) as f64));
    assert_eq!(metrics.value(Metric::GpuUnexplained, &[("gpu", "1")]), None);
    assert_eq!(metrics.value(Metric::GpuFree, &[("gpu", "1")]), None);
    assert_eq!(metrics.value(Metric::Leases, &[("user", "user1000")]), Some(1.0));
    // The sum of a user would lack the device that is unknown.
    assert_eq!(metrics.count(Metric::UserMemory), 0);
}

#[test]
fn sleeping_machine_is_up_without_device_values() {
    let mut asleep = device(0, &[]);
    asleep.sample = Err(fault(Absent::Asleep));
    asleep.processes = Err(fault(Absent::Asleep));
    let mut snapshot = machine(vec![asleep], Vec::new());
    snapshot.driver = Err(fault(Absent::Asleep));
    let metrics = metrics(&snapshot, &Ledger::default());
    assert_eq!(metrics.value(Metric::Up, &[]), Some(1.0));
    assert_eq!(metrics.value(Metric::GpuAsleep, &[]), Some(1.0));
    for metric in [Metric::GpuUp, Metric::GpuFree, Metric::GpuFit, Metric::GpuMemoryUsed] {
        assert_eq!(metrics.count(metric), 0, "{metric:?}");
    }
    assert_eq!(files(&snapshot, &Ledger::default()), None, "the files stay");
}

#[test]
fn process_in_two_parts_of_a_device_is_one_series() {
    let snapshot = machine(vec![device(0, &[(7, 2), (7, 3), (8, 1)])], vec![process(7, 1000)]);
    let metrics = metrics(&snapshot, &Ledger::default());
    assert_eq!(metrics.count(Metric::ProcessMemory), 2);
    let value = |pid| metrics.value(Metric::ProcessMemory, &[("pid", pid)]);
    assert_eq!(value("7"), Some((5 * GIB) as f64));
    let unknown = [("pid", "8"), ("user", "(unknown)")];
    assert_eq!(metrics.value(Metric::ProcessMemory, &unknown), Some(GIB as f64));
    assert_eq!(metrics.value(Metric::UserProcesses, &[("user", "user1000")]), Some(1.0));
    let large = Shown { processes: Some(Bytes(4 * GIB)), ..ALL };
    let metrics = observation(&snapshot, &Diagnosis::default(), &Ledger::default()).metrics(large);
    assert_eq!(metrics.count(Metric::ProcessMemory), 1);
}

#[test]
fn largest_of_many_processes_are_exported() {
    let processes: Vec<(u32, u64)> = (1..=5000).map(|pid| (pid, u64::from(pid))).collect();
    let snapshot = machine(vec![device(0, &processes)], Vec::new());
    let metrics = metrics(&snapshot, &Ledger::default());
    assert_eq!(metrics.count(Metric::ProcessMemory), 4096);
    let has = |pid: &str| metrics.value(Metric::ProcessMemory, &[("pid", pid)]).is_some();
    assert_eq!((has("904"), has("905"), has("5000")), (false, true, true));
}

#[test]
fn a_thousand_users_are_a_hundred_and_the_others() {
    let processes: Vec<(u32, u64)> = (1..=1000).map(|pid| (pid, u64::from(pid))).collect();
    let infos = (1..=1000).map(|pid| process(pid, pid)).collect();
    let snapshot = machine(vec![device(0, &processes)], infos);
    let metrics = metrics(&snapshot, &Ledger::default());
    assert_eq!(metrics.count(Metric::UserMemory), 101);
    let value = |user| metrics.value(Metric::UserMemory, &[("user", user)]);
    assert_eq!(value("user1000"), Some((1000 * GIB) as f64));
    assert_eq!(value("user900"), None);
    assert_eq!(value("(others)"), Some(((1..=900).sum::<u64>() * GIB) as f64));
}

#[test]
fn thousand_lease_owners_become_a_hundred_and_others() {
    let snapshot = machine(vec![device(0, &[]), device(1, &[])], Vec::new());
    // A different user each; those with large numbers have three leases on the second device.
    let leases = (1..=1000).flat_map(|owner| {
        let first = (owner <= 900).then(|| lease(&format!("a{owner}"), owner, 7, &["GPU-0"]));
        let more = if owner > 900 { 0..3 } else { 0..0 };
        let more = more.map(move |n| lease(&format!("b{owner}-{n}"), owner, 7, &["GPU-1"]));
        first.into_iter().chain(more)
    });
    let metrics = metrics(&snapshot, &Ledger::new(leases.collect(), Vec::new()));
    assert_eq!(metrics.count(Metric::GpuLeasesUnused), 1 + 100);
    let value = |gpu, user| metrics.value(Metric::GpuLeasesUnused, &[("gpu", gpu), ("user", user)]);
    assert_eq!(value("0", "(others)"), Some(900.0));
    assert_eq!(value("1", "user901"), Some(3.0));
    assert_eq!(value("1", "(others)"), None);
}

/// Returns an ID in the form that gpuws uses.
fn id(number: u32) -> String {
    format!("{number:012x}")
}

pub(crate) fn share(id: &str, owner: u32, gib: u64) -> LeaseEntry {
    LeaseEntry {
        claim: Claim { share: Share::Memory(Bytes(gib * GIB)), ..Claim::whole(1) },
        ..lease(id, owner, 7, &["GPU-0"])
    }
}

#[test]
fn many_leases_of_one_user_do_not_hide_those_of_others() {
    let flood = (10..40).map(|n| share(&id(n), 1000, 0));
    let leases = flood.chain([share(&id(0xf0), 1001, 4), share(&id(0xf1), 1002, 4)]);
    let snapshot = machine(vec![device(0, &[])], Vec::new());
    let ledger = Ledger::new(leases.collect(), Vec::new());
    let files = files(&snapshot, &ledger).unwrap();
    assert_eq!(files["0"].lines().count(), 8 + 2, "eight of the flood: {files:?}");
    assert!(files["0"].ends_with(&format!("{}\n{}\n", id(0xf0), id(0xf1))), "{files:?}");
    let metrics = metrics(&snapshot, &ledger);
    assert_eq!(metrics.count(Metric::GpuJob), 10);
    assert_eq!(metrics.value(Metric::GpuJobsLeftOut, &[("gpu", "0")]), Some(22.0), "of 32");
}

#[test]
fn forged_leases_hide_no_job_of_another_user() {
    let bob = LeaseEntry { ticket: 50, ..lease(&id(0xb0b), 1001, 7, &["GPU-0"]) };
    let in_use = machine(vec![device(0, &[(7, 1)])], vec![process(7, 1001)]);
    let idle = machine(vec![device(0, &[])], vec![process(7, 1001), process(9, 1000)]);
    let of_bob = format!("{}\n", id(0xb0b));
    let forge =
        |name: String, ticket: u64| LeaseEntry { ticket, ..lease(&name, 1000, 9, &["GPU-0"]) };
    let numbers = |ticket| (0..20).map(|n| forge(format!("{}", 4711 + n), ticket)).collect();
    let plausible = |ticket| (0..20).map(|n| forge(id(n), ticket)).collect();
    let floods: [(&str, Vec<LeaseEntry>, &_, usize); 6] = [
        ("numbers of Slurm jobs", numbers(60), &idle, 1),
        ("the same, earlier", numbers(1), &idle, 1),
        // No process shows which of the two users forged a lease, so one lease of each stays.
        ("later leases", plausible(60), &idle, 2),
        ("earlier leases", plausible(1), &idle, 2),
        ("earlier leases on a device in use", plausible(1), &in_use, 1),
        ("the same ID", vec![forge(id(0xb0b), 1)], &in_use, 1),
    ];
    for (what, flood, snapshot, count) in floods {
        // As many users as a GPU has jobs leave no room for another one.
        let owners = if what == "earlier leases" { &[1000][..] } else { &[1000, 4000] };
        for &owner in owners {
            // Or each lease has its own user.
            let of = |(n, lease): (u32, &LeaseEntry)| LeaseEntry {
                owner: if owner == 1000 { 1000 } else { owner + n },
                ..lease.clone()
            };
            let mut leases: Vec<LeaseEntry> = (0..).zip(&flood).map(of).collect();
            leases.push(bob.clone());
            let ledger = Ledger::new(leases, Vec::new());
            let count = if count > 1 && owner == 4000 { 16 } else { count };
            let file = &files(snapshot, &ledger).unwrap()["0"];
            assert!(file.ends_with(&of_bob) && file.lines().count() == count, "{what}: {file}");
            let metrics = metrics(snapshot, &ledger);
            assert_eq!(metrics.count(Metric::GpuJob), count, "{what}");
            let labels = [("hpc_job", &*id(0xb0b)), ("user", "user1001")];
            assert_eq!(metrics.value(Metric::GpuJob, &labels), Some(1.0), "{what}");
        }
    }
}

#[test]
fn lease_is_no_slurm_job_of_another_user() {
    let workload = Workload {
        kind: WorkloadKind::SlurmJob,
        id: "4711".to_owned(),
        cgroup: "/system.slice/x_slurmstepd.scope".to_owned(),
    };
    let of_bob = ProcessInfo { workload: Some(Box::new(workload)), ..process(7, 1001) };
    let snapshot = machine(vec![device(0, &[]), device(1, &[])], vec![of_bob]);
    let forged = lease(&id(1), 1000, 7, &["GPU-0"]);
    let own = lease(&id(2), 1001, 7, &["GPU-1"]);
    let files = files(&snapshot, &Ledger::new(vec![forged, own], Vec::new())).unwrap();
    assert_eq!(files, [("0", "000000000001\n"), ("1", "4711\n")].map(owned).into());
}

#[test]
fn lease_is_used_by_its_descendants_also_within_another_lease() {
    let child = ProcessInfo { parent: Ok(Pid(7)), ..process(8, 1000) };
    let stranger = process(9, 1001);
    let outer = lease("0000000000a1", 1000, 7, &["GPU-0", "GPU-1"]);
    let inner = LeaseEntry {
        within: vec![OuterLease { id: outer.id.clone(), owner: 1000 }],
        ..lease("0000000000a2", 1000, 8, &["GPU-1"])
    };
    // A lease of a user without a process on the device, next to a stranger's process.
    let idle = lease("0000000000a3", 1002, 30, &["GPU-2"]);
    let snapshot = machine(
        vec![device(0, &[]), device(1, &[(8, 1)]), device(2, &[(9, 1)])],
        vec![process(7, 1000), child, stranger],
    );
    let ledger = Ledger::new(vec![outer, inner, idle], Vec::new());
    let metrics = metrics(&snapshot, &ledger);
    assert_eq!(metrics.value(Metric::Leases, &[("user", "user1000")]), Some(1.0));
    let unused = |gpu| metrics.value(Metric::GpuLeasesUnused, &[("gpu", gpu)]);
    assert_eq!((unused("0"), unused("1"), unused("2")), (Some(1.0), None, Some(1.0)));
    assert_eq!(metrics.value(Metric::GpuLeasedMemory, &[("gpu", "1")]), Some((16 * GIB) as f64));
    let files = files(&snapshot, &ledger).unwrap();
    assert_eq!(
        files,
        [("0", "0000000000a1\n"), ("1", "0000000000a1\n"), ("2", "0000000000a3\n")]
            .map(owned)
            .into()
    );
    let job = [("pid", "8"), ("hpc_job", "0000000000a2")];
    assert_eq!(metrics.value(Metric::ProcessMemory, &job), Some(GIB as f64));
    assert_eq!(
        metrics.value(Metric::ProcessMemory, &[("pid", "9"), ("hpc_job", "0000000000a3")]),
        None
    );
}

fn owned((name, lines): (&str, &str)) -> (String, String) {
    (name.to_owned(), lines.to_owned())
}

#[test]
fn slurm_job_has_its_number_and_includes_inner_lease() {
    let work = |id: &str, below: &str| {
        let (kind, cgroup) = (WorkloadKind::SlurmJob, format!("{below}/x_slurmstepd.scope"));
        Some(Box::new(Workload { kind, id: id.to_owned(), cgroup }))
    };
    let in_job = ProcessInfo { workload: work("4711", "/system.slice"), ..process(7, 1000) };
    let forged = ProcessInfo { workload: work("1\nx", "/system.slice"), ..process(9, 1001) };
    // Users name cgroups below their own service manager.
    let own = work("8", "/user.slice/user-1001.slice/user@1001.service");
    let own = ProcessInfo { workload: own, ..process(10, 1001) };
    let devices = vec![device(0, &[(7, 1), (9, 1), (10, 1)]), device(1, &[])];
    let snapshot = machine(devices, vec![in_job, forged, own]);
    let ledger = Ledger::new(vec![lease("0000000000a4", 1000, 7, &["GPU-0", "GPU-1"])], Vec::new());
    let files = files(&snapshot, &ledger).unwrap();
    assert_eq!(files, [("0", "4711\n"), ("1", "4711\n")].map(owned).into());
    let metrics = metrics(&snapshot, &ledger);
    assert_eq!(metrics.count(Metric::GpuJob), 2);
    let labels = [("gpu", "0"), ("hpc_job", "4711"), ("user", "user1000")];
    assert_eq!(metrics.value(Metric::GpuJob, &labels), Some(1.0));
}

#[test]
fn mig_instances_have_files_of_their_own() {
    let mut whole = device(0, &[]);
    let part = |index: u32, id: u32| Partition {
        index,
        uuid: Ok(uuid(&format!("MIG-{id}"))),
        profile: Err(Absent::NotRecorded),
        gpu_instance: Some(id),
        compute_instance: Some(0),
        memory: MemoryInfo {
            total: Ok(Bytes(4 * GIB)),
            used: Ok(Bytes(0)),
            reserved: Err(Absent::NotSupported),
        },
    };
    whole.partitions = Ok(vec![part(0, 3), part(1, 5)]);
    let snapshot = machine(vec![whole, device(1, &[])], Vec::new());
    let share = LeaseEntry {
        claim: Claim { share: Share::Memory(Bytes(GIB)), ..Claim::whole(1) },
        ..lease("0000000000a6", 1000, 8, &["GPU-1"])
    };
    let ledger = Ledger::new(vec![lease("0000000000a5", 1000, 7, &["MIG-5"]), share], Vec::new());
    let files = files(&snapshot, &ledger).unwrap();
    let expected = [("0", ""), ("0.3", ""), ("0.5", "0000000000a5\n"), ("1", "0000000000a6\n")];
    assert_eq!(files, expected.map(owned).into());
    let metrics = metrics(&snapshot, &ledger);
    let leased = |gpu| metrics.value(Metric::GpuLeasedMemory, &[("gpu", gpu)]);
    assert_eq!((leased("0"), leased("1")), (Some((4 * GIB) as f64), Some(GIB as f64)));
    let instance = [("gpu", "0"), ("gpu_instance", "5"), ("hpc_job", "0000000000a5")];
    assert_eq!(metrics.value(Metric::GpuJob, &instance), Some(1.0));
}

#[test]
fn queue_shows_waiting_users_and_oldest_wait() {
    let waiting = |id: &str, owner: u32, since: u64| LeaseEntry {
        since: Timestamp(since),
        claim: Claim::whole(2),
        ..lease(id, owner, 7, &[])
    };
    let waiters =
        vec![waiting("a", 1000, 40_000), waiting("b", 1000, 60_000), waiting("c", 9, 50_000)];
    let snapshot = machine(vec![device(0, &[])], Vec::new());
    let metrics = metrics(&snapshot, &Ledger::new(Vec::new(), waiters));
    assert_eq!(metrics.value(Metric::QueueClaims, &[("state", "waiting")]), Some(3.0));
    assert_eq!(metrics.value(Metric::QueueClaims, &[("state", "stalled")]), Some(0.0));
    assert_eq!(metrics.value(Metric::QueueGpus, &[]), Some(6.0));
    assert_eq!(metrics.value(Metric::QueueOldest, &[]), Some(40.0));
    assert_eq!(metrics.value(Metric::UserQueuedClaims, &[("user", "user1000")]), Some(2.0));
    // No claim waits since the future.
    let future = waiting("d", 1000, snapshot.taken_at.0 + 60_000);
    let oldest = self::metrics(&snapshot, &Ledger::new(Vec::new(), vec![future]));
    let now = snapshot.taken_at.0 as f64 / 1000.0;
    assert_eq!(oldest.value(Metric::QueueOldest, &[]), Some(now));
    // Leases that cannot be read are not zero.
    let mut blind = observation(&snapshot, &Diagnosis::default(), &Ledger::default()).metrics(ALL);
    assert_eq!(blind.count(Metric::QueueClaims), 2);
    let none = Ledger::default();
    let diagnosis = Diagnosis::default();
    let unknown = Observation {
        ledger: Err(fault(Absent::NotPermitted)),
        ..observation(&snapshot, &diagnosis, &none)
    };
    blind = unknown.metrics(ALL);
    assert_eq!(blind.count(Metric::QueueClaims) + blind.count(Metric::GpuFree), 0);
    assert_eq!(blind.value(Metric::Readable, &[("part", "leases")]), Some(0.0));
    assert_eq!(unknown.job_files(), None);
}

#[test]
fn wait_of_a_lease_is_from_its_ticket_to_its_grant() {
    let mut waits = Waits::new();
    let granted = |id: &str, ticket_s: u64, since_s: u64| LeaseEntry {
        ticket: ticket_s * 1_000_000_000,
        since: Timestamp(since_s * 1000),
        ..lease(id, 1000, 7, &["GPU-0"])
    };
    let at = |seconds: u64| (seconds * 1_000_000_000, Timestamp(1_000_000 + seconds * 1000));
    let add = |waits: &mut Waits, leases: Vec<LeaseEntry>, seconds| {
        waits.add(&Ledger::new(leases, Vec::new()), at(seconds));
    };
    // Older leases are not counted: a restart would count them again.
    add(&mut waits, vec![granted("old", 1, 1_050)], 100);
    // Requested at 110 s after boot, granted at 1,130 s on the wall clock, which is 130 s after
    // boot.
    let new = granted("new", 110, 1_130);
    add(&mut waits, vec![granted("old", 1, 1_050), new.clone()], 160);
    add(&mut waits, vec![new], 220);
    // Whatever its owner writes into a lease, it has not waited longer than since boot.
    add(&mut waits, vec![granted("forged", 0, 0), granted("early", 0, 9_999_999)], 230);
    let snapshot = machine(Vec::new(), Vec::new());
    let (ledger, diagnosis) = (Ledger::default(), Diagnosis::default());
    let metrics =
        Observation { waits: Some(&waits), ..observation(&snapshot, &diagnosis, &ledger) }
            .metrics(ALL);
    assert_eq!(metrics.value(Metric::ClaimWait, &[]), Some(20.0 + 230.0));
    let without = |shown: Shown, known| {
        let base = observation(&snapshot, &diagnosis, &ledger);
        Observation { waits: Some(&waits), ledger: known, ..base }
            .metrics(shown)
            .value(Metric::ClaimWait, &[])
    };
    assert_eq!(without(Shown { waits: false, ..ALL }, Ok(&ledger)), None);
    assert_eq!(without(ALL, Err(fault(Absent::NotPermitted))), None);
}
