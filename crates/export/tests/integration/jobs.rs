//! The jobs on a GPU, and the processes that hold it.

use crate::observations::{device, fault, files, key, lease, machine, metrics, process, share};
use gpu_claim::Ledger;
use gpu_core::{
    Absent, Access, Bytes, DeviceFile, FileRole, HeldFile, Holder, LeaseEntry, MemoryUse,
    ProcessInfo, Snapshot, Workload, WorkloadKind,
};
use gpu_export::Metric;

const IDS: [&str; 3] = ["0000000000a1", "0000000000a2", "0000000000a3"];

fn in_slurm(job: &str, pid: u32, uid: u32) -> ProcessInfo {
    let cgroup = "/system.slice/x_slurmstepd.scope".to_owned();
    let workload = Workload { kind: WorkloadKind::SlurmJob, id: job.to_owned(), cgroup };
    ProcessInfo { workload: Some(Box::new(workload)), ..process(pid, uid) }
}

/// Returns the jobs in the file of the GPU.
fn jobs(snapshot: &Snapshot, leases: Vec<LeaseEntry>) -> Vec<String> {
    let files = files(snapshot, &Ledger::new(leases, Vec::new())).unwrap();
    files["0"].lines().map(str::to_owned).collect()
}

#[test]
fn slurm_job_is_one_job_of_the_user_of_its_first_process() {
    let devices = vec![device(0, &[(7, 1), (8, 1), (9, 1)]), device(1, &[(8, 1)])];
    let processes = vec![in_slurm("12", 7, 1000), in_slurm("12", 8, 0), in_slurm("13", 9, 0)];
    let snapshot = machine(devices, processes);
    let metrics = metrics(&snapshot, &Ledger::default());
    let value = |gpu, job, user| {
        metrics.value(Metric::GpuJob, &[("gpu", gpu), ("hpc_job", job), ("user", user)])
    };
    assert_eq!(value("0", "12", "user1000"), Some(1.0));
    assert_eq!(value("0", "12", "user0"), None, "a step daemon is not another job");
    assert_eq!(value("0", "13", "user0"), Some(1.0));
    assert_eq!(value("1", "12", "user0"), Some(1.0), "each GPU has its own jobs");
}

#[test]
fn number_of_a_slurm_job_has_only_digits_and_at_most_twenty() {
    let longest = "9".repeat(20);
    for (job, counts) in
        [("7", true), (&longest, true), (&"9".repeat(21), false), ("7a", false), ("", false)]
    {
        let snapshot = machine(vec![device(0, &[(7, 1)])], vec![in_slurm(job, 7, 1000)]);
        assert_eq!(jobs(&snapshot, Vec::new()).len(), usize::from(counts), "{job:?}");
    }
}

#[test]
fn leases_of_a_user_count_while_they_can_have_been_granted_together() {
    let at = |id: usize, lease: LeaseEntry| LeaseEntry { ticket: id as u64, ..lease };
    let gib = |id: usize, gib| at(id, share(IDS[id], 1000, gib));
    let whole = |id: usize| at(id, lease(IDS[id], 1000, 7, &["GPU-0"]));
    let snapshot = machine(vec![device(0, &[])], Vec::new());
    for (leases, granted) in [
        (vec![gib(0, 10), gib(1, 6)], 2),
        (vec![gib(0, 10), gib(1, 7)], 1),
        (vec![gib(0, 16), gib(1, 0), gib(2, 1)], 2),
        (vec![gib(0, 17)], 0),
        (vec![whole(0), whole(1)], 1),
        (vec![whole(0), gib(1, 1)], 1),
        (vec![gib(0, 1), whole(1), gib(2, 1)], 2),
    ] {
        let ids: Vec<String> = leases.iter().map(|lease| lease.id.to_string()).collect();
        let jobs = jobs(&snapshot, leases);
        assert_eq!(jobs.len(), granted, "{jobs:?} of {ids:?}");
        assert!(granted == 0 || jobs[0] == ids[0], "the earlier lease stays: {jobs:?}");
    }
}

#[test]
fn shares_of_a_device_of_unknown_memory_all_count() {
    let mut unknown = device(0, &[]);
    unknown.sample.as_mut().unwrap().memory.total = Err(Absent::NotSupported);
    let snapshot = machine(vec![unknown], Vec::new());
    let leases = vec![share(IDS[0], 1000, 10), share(IDS[1], 1000, 90)];
    assert_eq!(jobs(&snapshot, leases), IDS[..2]);
    let leases = vec![share(IDS[0], 1000, 10), lease(IDS[1], 1000, 7, &["GPU-0"])];
    assert_eq!(jobs(&snapshot, leases), IDS[..1], "a whole device is not shared");
}

#[test]
fn job_of_a_lease_is_that_of_its_root_if_it_is_of_its_owner() {
    let snapshot = |uid| machine(vec![device(0, &[])], vec![in_slurm("12", 7, uid)]);
    assert_eq!(jobs(&snapshot(1000), vec![lease(IDS[0], 1000, 7, &["GPU-0"])]), ["12"]);
    assert_eq!(jobs(&snapshot(1001), vec![lease(IDS[0], 1000, 7, &["GPU-0"])]), IDS[..1]);
    let mut reused = lease(IDS[0], 1000, 7, &["GPU-0"]);
    reused.root.start = Some(gpu_core::StartTime(2));
    assert_eq!(jobs(&snapshot(1000), vec![reused]), IDS[..1]);
    let named = lease("training", 1000, 9, &["GPU-0"]);
    assert!(jobs(&snapshot(1000), vec![named]).is_empty(), "not an ID of gpuws");
}

fn held(pid: u32, snapshot: &Snapshot, memory: MemoryUse) -> Holder {
    let file = DeviceFile {
        path: "/dev/nvidia0".into(),
        role: FileRole::Compute,
        device: snapshot.devices[0].id().keys().next(),
        id: snapshot.devices[0].id().node,
    };
    let held = HeldFile { memory, ..HeldFile::of(&file, Access::default(), Vec::new()) };
    Holder { process: key(pid), held: vec![held], through_thread: None }
}

#[test]
fn holders_are_counted_once_by_what_is_known_of_their_memory() {
    let processes = || (7..12).map(|pid| process(pid, 1000)).collect();
    let mut snapshot = machine(vec![device(0, &[(7, 1), (8, 1)])], processes());
    snapshot.holders = Ok(vec![
        held(8, &snapshot, MemoryUse::Possible),
        held(9, &snapshot, MemoryUse::Possible),
        held(10, &snapshot, MemoryUse::Certain(Some(Bytes(1)))),
        held(11, &snapshot, MemoryUse::None),
    ]);
    let counts = |snapshot: &Snapshot| {
        let metrics = metrics(snapshot, &Ledger::default());
        ["listed", "unlisted", "none"]
            .map(|memory| metrics.value(Metric::GpuHolders, &[("gpu", "0"), ("memory", memory)]))
    };
    assert_eq!(counts(&snapshot), [Some(2.0), Some(2.0), Some(1.0)]);
    // In another PID namespace, the PIDs of the list mean other processes here.
    snapshot.sees_host_pids = Ok(false);
    snapshot.holders =
        Ok(vec![held(8, &snapshot, MemoryUse::None), held(9, &snapshot, MemoryUse::Possible)]);
    assert_eq!(counts(&snapshot), [Some(2.0), None, Some(1.0)]);
    snapshot.devices[0].processes = Err(fault(Absent::NotPermitted));
    assert_eq!(counts(&snapshot), [None; 3]);
    snapshot.devices[0].processes = Ok(Vec::new());
    snapshot.holders = Err(fault(Absent::NotPermitted));
    assert_eq!(counts(&snapshot), [None; 3]);
    snapshot.holders = Ok(Vec::new());
    assert_eq!(counts(&snapshot), [Some(0.0); 3]);
    snapshot.devices[0].info.id.node = Err(Absent::NotFound);
    assert_eq!(counts(&snapshot), [None; 3], "its files are not known");
}
