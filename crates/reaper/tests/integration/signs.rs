//! Processes: durations, the merging of findings, and how to end a process.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

/// A process of this age in seconds that holds 8 GiB of an idle device.
fn holding(age: Option<u64>, change: impl Fn(&mut ProcessInfo)) -> Snapshot {
    let mut info = process(100, "python");
    info.started_at = match age {
        Some(age) => Ok(Timestamp(1_000_000_000 - age * 1000)),
        None => Err(Absent::NotRecorded),
    };
    change(&mut info);
    let device = listing(device(0, 8202, 16_280), 100, 8192);
    let now = snapshot_of(vec![device], vec![context(&info, &[0])], vec![info]);
    Snapshot { taken_at: Timestamp(1_000_000_000), ..now }
}

fn later(snapshot: &Snapshot, seconds: u64, cpu: u64) -> Snapshot {
    let mut later = snapshot.clone();
    later.taken_at.0 += seconds * 1000;
    if let Some(info) = later.processes.get_mut(&Pid(100)).and_then(Process::info_mut) {
        info.cpu_time = Ok(std::time::Duration::from_secs(1 + cpu));
    }
    later
}

/// Returns a snapshot, another at half the time, and the last one after these seconds.
fn watch(snapshot: &Snapshot, seconds: u64, cpu: u64) -> [Snapshot; 3] {
    [snapshot.clone(), later(snapshot, seconds / 2, cpu / 2), later(snapshot, seconds, cpu)]
}

#[test]
fn process_is_a_hoarder_only_over_time() {
    let hoards = |confidence| vec![(FindingKind::Hoarder, confidence)];
    assert_eq!(found(&[holding(Some(899), |_| {})]), [], "it may still load");
    assert_eq!(found(&[holding(Some(900), |_| {})]), hoards(Confidence::Possible));
    let unknown = holding(None, |_| {});
    assert_eq!(found(std::slice::from_ref(&unknown)), [], "an unknown age accuses no process");
    assert_eq!(found(&watch(&unknown, 899, 0)), [], "it may have been started just before");
    assert_eq!(found(&watch(&unknown, 900, 0)), hoards(Confidence::Likely), "it was watched");
    let old = holding(Some(90_000), |_| {});
    let watched = |seconds, cpu| found(&watch(&old, seconds, cpu));
    assert_eq!(watched(599, 0), hoards(Confidence::Possible));
    assert_eq!(watched(600, 0), hoards(Confidence::Likely));
    assert_eq!(watched(600, 12), hoards(Confidence::Likely), "it polls");
    assert_eq!(watched(600, 13), [], "it prepares data");
    let twice = [old.clone(), later(&old, 86_400, 0)];
    assert_eq!(found(&twice), hoards(Confidence::Possible), "two samples may hit two pauses");
    let reading = holding(Some(90_000), |info| info.state = Ok(ProcessState::Uninterruptible));
    let kinds: Vec<_> = found(&[reading]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [FindingKind::StuckHolder], "it reads or writes a file");
}

#[test]
fn process_with_a_reason_to_wait_is_not_a_hoarder() {
    let after = |seconds, change: fn(&mut ProcessInfo)| {
        let old = holding(Some(90_000), change);
        found(&watch(&old, seconds, 0))
    };
    let hoards = vec![(FindingKind::Hoarder, Confidence::Likely)];
    let day = 86_400;
    assert_eq!(after(day, |info| info.cgroup = Ok("/system.slice/vllm.service".into())), []);
    assert_eq!(after(day, |info| info.cgroup = Ok("/system.slice/ssh.service".into())), hoards);
    assert_eq!(
        after(day, |info| (info.state, info.tracer) = (Ok(ProcessState::Stopped), Ok(Pid(77)))),
        []
    );
    let notebook = |info: &mut ProcessInfo| {
        let line = ["python", "-m", "ipykernel_launcher", "-f", "k.json"];
        info.command_line = Ok(line.map(String::from).into());
    };
    assert_eq!(after(3_599, notebook), []);
    assert_eq!(after(3_600, notebook), hoards);
    let stopped = holding(Some(90_000), |info| info.state = Ok(ProcessState::Stopped));
    let evidence = diagnose(&[stopped]).findings.remove(0).suspects.remove(0).evidence;
    assert_eq!(evidence.last().unwrap().text, "stopped");
}

#[test]
fn service_is_stopped_by_its_manager() {
    let unlisted = |cgroup: &str| {
        let mut info = process(100, "python");
        info.cgroup = Ok(cgroup.to_owned());
        let device = listing(device(1, 900, 16_280), 100, 890);
        let devices = vec![super::fixture::device(0, 9000, 16_280), device];
        // Listed on another device, so that it is a likely but not a certain ghost.
        let found = diagnose(&[snapshot_of(devices, vec![context(&info, &[0, 1])], vec![info])]);
        found.findings[0].advice[0].clone()
    };
    let unit = |unit: &str, user: Option<&str>| Advice::StopUnit {
        unit: unit.to_owned(),
        user: user.map(str::to_owned),
    };
    assert_eq!(unlisted("/system.slice/vllm.service"), unit("vllm.service", None));
    assert_eq!(
        unlisted("/user.slice/user-9.slice/user@9.service/app.slice/ollama.service"),
        unit("ollama.service", Some("user"))
    );
    assert_eq!(unlisted("/user.slice/user-9.slice/session-3.scope"), Advice::ReapProcess(Pid(100)));
}

#[test]
fn process_is_ended_by_its_runtime() {
    let advice = |kind, id: &str, cgroup: &str| {
        let old = holding(Some(90_000), |info| {
            let (id, cgroup) = (id.to_owned(), cgroup.to_owned());
            info.workload = Some(Box::new(Workload { kind, id, cgroup }));
        });
        diagnose(&watch(&old, 600, 0)).findings[0].advice[0].clone()
    };
    let hex = "4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01db0b339c4c01";
    let (job, container) = (WorkloadKind::SlurmJob, WorkloadKind::Container);
    let stop = |podman| Advice::StopContainer { podman, id: hex.into() };
    let reap = Advice::ReapProcess(Pid(100));
    assert_eq!(advice(job, "4711", "/slurm/uid_1/job_4711"), Advice::CancelJob("4711".into()));
    assert_eq!(advice(container, hex, "/system.slice/docker-4c.scope"), stop(false));
    assert_eq!(advice(container, hex, "/machine.slice/libpod-4c.scope"), stop(true));
    let pod = advice(WorkloadKind::Pod, "uid", "/kubepods/poduid");
    assert_eq!(pod, Advice::DeletePod("uid".into()));
    for (evidence, expected) in [
        (
            gpu_core::PodEvidence::Uid,
            Advice::DeleteNamedPod { namespace: "lab".into(), name: "train-0".into() },
        ),
        // The name may be that of another pod.
        (gpu_core::PodEvidence::Devices, Advice::DeletePod("uid".into())),
    ] {
        let old = holding(Some(90_000), |info| {
            let (kind, cgroup) = (WorkloadKind::Pod, "/kubepods/poduid".to_owned());
            info.workload = Some(Box::new(Workload { kind, id: "uid".to_owned(), cgroup }));
            let (namespace, name) = ("lab".to_owned(), "train-0".to_owned());
            info.pod =
                Some(Box::new(gpu_core::PodName { namespace, name, container: None, evidence }));
        });
        assert_eq!(diagnose(&watch(&old, 600, 0)).findings[0].advice[0], expected);
    }
    // Another runtime, and names that a user can choose.
    assert_eq!(advice(container, hex, "/system.slice/cri-4c.scope"), reap);
    assert_eq!(advice(container, "--all", "/libpod-x/lxc/--all"), reap);
    let below = "/user.slice/user-1.slice/user@1.service/";
    assert_eq!(advice(job, "4711", &format!("{below}slurm/uid_2/job_4711")), reap);
    assert_eq!(advice(container, hex, &format!("{below}libpod-4c.scope")), reap);
}

#[test]
fn computing_process_is_not_offered_for_the_kill() {
    let info = process(100, "python");
    let mut busy = listing(device(0, 900, 16_280), 100, 890);
    busy.processes.as_mut().unwrap()[0].utilization = Ok(Percent::new(50).unwrap());
    let devices = vec![busy, device(1, 9000, 16_280)];
    let finding = diagnose(&[snapshot_of(devices, vec![context(&info, &[0, 1])], vec![info])])
        .findings
        .remove(0);
    assert_eq!((finding.kind, finding.confidence), (FindingKind::Ghost, Confidence::Likely));
    assert_eq!(finding.advice, [Advice::AskOwner(0)]);
}

#[test]
fn just_started_program_is_not_a_certain_ghost() {
    let at = |age: u64| {
        let mut info = process(100, "python");
        info.started_at = Ok(Timestamp(1_000_000 - age * 1000));
        found(&[snapshot_of(vec![device(0, 9000, 16_280)], vec![context(&info, &[0])], vec![info])])
    };
    assert_eq!(at(29), [(FindingKind::Ghost, Confidence::Possible)]);
    assert_eq!(at(30), [(FindingKind::Ghost, Confidence::High)]);
}

#[test]
fn process_is_stuck_if_it_stays_so() {
    let stuck = |seconds, cpu| {
        let one = holding(Some(90_000), |info| info.state = Ok(ProcessState::Uninterruptible));
        found(&[one.clone(), later(&one, seconds, cpu)])
    };
    let of = |confidence| vec![(FindingKind::StuckHolder, confidence)];
    assert_eq!(stuck(119, 0), of(Confidence::Possible));
    assert_eq!(stuck(120, 0), of(Confidence::Likely));
    assert_eq!(stuck(120, 1), of(Confidence::Possible), "it makes progress");
}

#[test]
fn one_process_is_one_finding_with_its_signs() {
    let mut worker = process(30, "python");
    (worker.parent, worker.group, worker.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
    worker.command_line = Ok(["--multiprocessing-fork".to_owned()].into());
    let mut now =
        snapshot_of(vec![device(0, 9000, 16_280)], vec![context(&worker, &[0])], vec![worker]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    let findings = diagnose(&[now]).findings;
    let [ghost] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((ghost.kind, ghost.confidence), (FindingKind::Ghost, Confidence::High));
    let signs = Evidence::texts(&ghost.suspects[0].evidence).join("; ");
    assert!(signs.contains("mapped") && signs.contains("its parent exited"), "{signs}");
    assert_eq!(ghost.advice, [Advice::ReapDevice(0)]);
}

#[test]
fn sign_never_makes_a_ghost_more_certain() {
    let zombie = |mig: bool| {
        let mut info = process(9, "train");
        (info.state, info.live_threads) = (Ok(ProcessState::Zombie), Ok(3));
        let mut device = device(0, 9000, 16_280);
        if mig {
            let fault = Fault { kind: ErrorKind::TimedOut, text: "list".into() };
            (device.info.partitioned, device.partitions) = (Ok(true), Err(fault));
        }
        found(&[snapshot_of(vec![device], vec![context(&info, &[0])], vec![info])])
    };
    assert_eq!(zombie(false), [(FindingKind::Ghost, Confidence::High)]);
    assert_eq!(
        zombie(true),
        [(FindingKind::Ghost, Confidence::Likely), (FindingKind::ZombieHolder, Confidence::High)]
    );
}

#[test]
fn idle_memory_next_to_another_finding_is_reported() {
    // Unlisted memory on GPU 0, and much idle memory on GPU 1.
    let mut info = process(100, "python");
    info.started_at = Ok(Timestamp(0));
    let devices = vec![device(0, 2004, 16_280), listing(device(1, 8202, 16_280), 100, 8192)];
    let mut now = snapshot_of(devices, vec![context(&info, &[0, 1])], vec![info]);
    now.taken_at = Timestamp(90_000_000);
    let kinds: Vec<_> = found(&[now]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [FindingKind::Ghost, FindingKind::Hoarder]);
}

#[test]
fn sign_on_another_device_remains_a_finding() {
    let mut worker = process(30, "python");
    (worker.parent, worker.group, worker.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
    worker.command_line = Ok(["--multiprocessing-fork".to_owned()].into());
    // A ghost on GPU 0, listed on GPU 1.
    let devices = vec![device(0, 9000, 16_280), listing(device(1, 900, 16_280), 30, 890)];
    let mut now = snapshot_of(devices, vec![context(&worker, &[0, 1])], vec![worker]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    let kinds: Vec<_> = found(&[now]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [FindingKind::Ghost, FindingKind::Orphan]);
}

#[test]
fn unverified_services_together_leave_device_free_up_to_a_bound() {
    let free = |services: &[Option<u64>]| {
        let mut now = snapshot_of(vec![device(0, 4, 16_280)], vec![], vec![]);
        for (pid, mib) in (66..).zip(services) {
            let mps = ProcessInfo { uid: Ok(0), ..process(pid, "nvidia-cuda-mps") };
            now.processes.insert(Pid(pid), Process::from(Ok(mps)));
            now.devices[0] = listing(now.devices[0].clone(), pid, mib.unwrap_or(0));
            let listed = now.devices[0].processes.as_mut().unwrap().last_mut().unwrap();
            listed.memory = mib.map(Bytes::from_mib).ok_or(Absent::NotSupported);
            now.devices[0].sample.as_mut().unwrap().memory.used =
                Ok(Bytes::from_mib(services.iter().flatten().sum::<u64>() + 4));
        }
        let usage = Usage::of(&now);
        let users = usage.on(now.devices[0].id());
        assert_eq!(users.len(), services.len());
        users.iter().all(|user| !user.occupies)
    };
    assert!(free(&[]));
    assert!(free(&[Some(2048)]));
    assert!(!free(&[Some(2049)]));
    assert!(free(&[Some(1024), Some(1024)]));
    assert!(!free(&[Some(2040), Some(2040)]), "a job split in two");
    assert!(!free(&[None]), "its memory is unknown");
}

#[test]
fn worker_without_its_parent_is_certain_after_ten_idle_minutes() {
    let orphaned = holding(Some(90_000), |info| {
        (info.parent, info.group, info.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
        info.command_line = Ok(["--multiprocessing-fork".to_owned()].into());
    });
    let mut one = orphaned;
    one.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    let watched = |seconds| found(&watch(&one, seconds, 0));
    assert_eq!(watched(599), [(FindingKind::Orphan, Confidence::Likely)]);
    assert_eq!(watched(600), [(FindingKind::Orphan, Confidence::High)]);
}

/// Returns a process with the title of a worker, and its parent.
fn ray_worker(title: &str, change: impl Fn(&mut ProcessInfo, &mut ProcessInfo)) -> Vec<String> {
    let mut worker = process(100, title);
    let mut raylet = process(7, "raylet");
    let program = "/venv/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet";
    raylet.command_line = Ok([program.to_owned()].into());
    (worker.parent, worker.group, worker.uid) = (Ok(Pid(7)), Ok(Pid(100)), Ok(1001));
    raylet.uid = Ok(1001);
    change(&mut worker, &mut raylet);
    let texts = |snapshot: Snapshot| {
        let found = diagnose(&[snapshot]).findings;
        let signs = found.iter().flat_map(|finding| &finding.suspects);
        let signs = signs.flat_map(|suspect| suspect.evidence.clone());
        signs.filter(|one| one.sign == Sign::RayWorker).map(|one| one.text).collect::<Vec<_>>()
    };
    let infos = || vec![worker.clone(), raylet.clone()];
    let listed = listing(device(0, 8202, 16_280), 100, 8192);
    let hoarder = texts(snapshot_of(vec![listed], vec![context(&worker, &[0])], infos()));
    let ghost =
        texts(snapshot_of(vec![device(0, 8202, 16_280)], vec![context(&worker, &[0])], infos()));
    assert_eq!(hoarder, ghost, "as a hoarder and as a ghost");
    hoarder
}

#[test]
fn idle_worker_of_ray_is_named_with_its_raylet() {
    let found = ray_worker("ray::IDLE", |_, _| {});
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("(raylet 7)") && found[0].contains("max_calls=1"), "{found:?}");
    assert_eq!(ray_worker("ray::train", |_, _| {}), ["a Ray worker (raylet 7)"]);
}

#[test]
fn title_alone_is_not_a_ray_worker() {
    let none = Vec::<String>::new();
    assert_eq!(ray_worker("python", |_, _| {}), none);
    let other_owner = |_: &mut ProcessInfo, raylet: &mut ProcessInfo| raylet.uid = Ok(1002);
    assert_eq!(ray_worker("ray::IDLE", other_owner), none);
    let unknown = |worker: &mut ProcessInfo, raylet: &mut ProcessInfo| {
        worker.uid = Err(Absent::NotPermitted);
        raylet.uid = Err(Absent::NotPermitted);
    };
    assert_eq!(ray_worker("ray::IDLE", unknown), none);
    let other_parent = |_: &mut ProcessInfo, raylet: &mut ProcessInfo| raylet.name = "bash".into();
    assert_eq!(ray_worker("ray::IDLE", other_parent), none);
    let other_program = |_: &mut ProcessInfo, raylet: &mut ProcessInfo| {
        raylet.command_line = Ok(["/tmp/raylet".to_owned()].into());
    };
    assert_eq!(ray_worker("ray::IDLE", other_program), none);
}
