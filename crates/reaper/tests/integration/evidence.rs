//! The boundaries of the detectors, and the wording of their evidence.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

fn only(snapshot: Snapshot) -> Finding {
    let diagnosis = diagnose(&[snapshot]);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:?}") };
    finding.clone()
}

fn kinds(snapshot: Snapshot) -> Vec<FindingKind> {
    diagnose(&[snapshot]).findings.iter().map(|finding| finding.kind).collect()
}

/// 64 MiB and 0.5 % of 16,000 MiB.
const RESERVE: u64 = 64 + 80;

#[test]
fn memory_beyond_driver_overhead_is_unexplained() {
    let with = |mib| kinds(snapshot_of(vec![device(0, mib, 16_000)], vec![], vec![]));
    assert_eq!(with(RESERVE), []);
    assert_eq!(with(RESERVE + 1), [FindingKind::DriverLeak]);
    let drawing = |mib, display, kind| {
        let mut device = listing(device(0, mib, 16_000), 700, 0);
        device.processes.as_mut().unwrap()[0].kind = kind;
        device.info.display_active = display;
        let info = ProcessInfo { uid: Ok(0), ..process(700, "Xorg") };
        kinds(snapshot_of(vec![device], vec![], vec![info])).contains(&FindingKind::DriverLeak)
    };
    let compute = DeviceProcessKind::Compute;
    assert!(drawing(RESERVE + 1, Ok(false), compute));
    for (display, kind) in [
        (Ok(true), compute),
        (Ok(false), DeviceProcessKind::Graphics),
        (Ok(false), DeviceProcessKind::ComputeAndGraphics),
    ] {
        assert!(!drawing(RESERVE + 512, display, kind), "{kind:?}: frame buffers");
        assert!(drawing(RESERVE + 513, display, kind), "{kind:?}");
    }
}

#[test]
fn evidence_of_ghost_describes_how_device_is_held() {
    for (letters, how) in [
        ("F...m", "open for writing and mapped"),
        ("f...m", "mapped"),
        ("F....", "open for writing"),
        ("f....", "open"),
    ] {
        let mut info = process(100, "python");
        info.state = Ok(ProcessState::Stopped);
        info.namespace_pids = Ok(vec![Pid(100), Pid(7)]);
        let files = [("/dev/nvidia0", letters), ("/dev/nvidia-uvm", "f....")];
        let mut held = holder(&info, &files);
        held.through_thread = Some(Pid(103));
        let found = only(snapshot_of(vec![device(0, 9000, 16_000)], vec![held], vec![info]));
        let evidence = [
            format!("nvidia0 nvidia-uvm {how}"),
            "its main thread exited; thread 103 is alive and holds them: tools that read only the main thread's files miss it".to_owned(),
            "PID 7 in its own PID namespace".to_owned(),
            "stopped".to_owned(),
        ];
        assert_eq!(Evidence::texts(&found.suspects[0].evidence), evidence);
        assert_eq!(
            found.evidence[0].text,
            "9,000 of 16,000 MiB used; NVML lists no process; driver overhead explains at most \
             144 MiB of the rest"
        );
    }
}

fn instance() -> Partition {
    Partition {
        index: 0,
        uuid: Ok(DeviceUuid("MIG-0".into())),
        profile: Err(Absent::NotRecorded),
        gpu_instance: Some(1),
        compute_instance: Some(0),
        memory: DeviceSample::absent(Absent::NotSupported).memory,
    }
}

#[test]
fn advice_for_ghost_follows_its_certainty() {
    let ghost = |state, mig, unreadable| {
        let info = ProcessInfo { state: Ok(state), ..process(100, "python") };
        let mut device = device(0, 9000, 16_000);
        device.info.partitioned = Ok(mig);
        device.partitions = Ok(if mig { vec![instance()] } else { vec![] });
        let mut now = snapshot_of(vec![device], vec![context(&info, &[0])], vec![info]);
        now.unreadable.add(Absent::NotPermitted, unreadable);
        let diagnosis = diagnose(&[now]);
        let found = &diagnosis.findings[0];
        assert_eq!(found.kind, FindingKind::Ghost);
        (
            found.confidence,
            found.advice[0].clone(),
            found.evidence.get(1).map(|more| more.text.clone()),
        )
    };
    let sleeping = ProcessState::Sleeping;
    let (high, likely) = (Confidence::High, Confidence::Likely);
    assert_eq!(ghost(sleeping, false, 0), (high, Advice::ReapDevice(0), None));
    let unread = "2 processes could not be inspected; some of it may be theirs".to_owned();
    assert_eq!(ghost(sleeping, false, 2), (high, Advice::ReapDevice(0), Some(unread)));
    let mig = "MIG is enabled, so process lists may be incomplete".to_owned();
    assert_eq!(ghost(sleeping, true, 0), (likely, Advice::ReapProcess(Pid(100)), Some(mig)));
    let stuck = ghost(ProcessState::Uninterruptible, false, 0);
    assert_eq!(stuck, (likely, Advice::WaitOrReboot, None));
}

#[test]
fn advice_without_holders_depends_on_origin() {
    for (origin, advice) in [
        (Origin::Pasted, Advice::PasteHolders),
        (Origin::Live, Advice::LookAsRoot),
        (Origin::Simulated("scene".into()), Advice::LookAsRoot),
    ] {
        let mut now = snapshot_of(vec![device(0, 9000, 16_000)], vec![], vec![]);
        now.origin = origin;
        now.holders = Err(Error::new(Absent::NotRecorded, "see holders").fault());
        assert_eq!(only(now).advice, [advice]);
    }
}

#[test]
fn separate_namespace_is_found_by_list_or_memory() {
    let inside = |device: DeviceState| {
        let mut now = snapshot_of(vec![device], vec![], vec![]);
        now.sees_host_pids = Ok(false);
        let found = diagnose(&[now]).findings.pop()?;
        Some(found.evidence[1..].iter().map(|more| more.text.clone()).collect::<Vec<_>>())
    };
    assert_eq!(inside(device(0, 25, 16_000)), None);
    let listed = "NVML lists one process by host PIDs, which are invalid here".to_owned();
    assert_eq!(inside(listing(device(0, 25, 16_000), 7, 20)), Some(vec![listed]));
    let used = "9,000 of 16,000 MiB used".to_owned();
    assert_eq!(inside(device(0, 9000, 16_000)), Some(vec![used.clone()]));
    let two = listing(listing(device(0, 9000, 16_000), 7, 20), 8, 20);
    let listed = "NVML lists processes by host PIDs, which are invalid here".to_owned();
    assert_eq!(inside(two), Some(vec![listed, used]));
}

#[test]
fn advice_for_listed_but_gone_process_depends_on_what_was_seen() {
    for (unreadable, advice) in [(0, Advice::ResetDevice(0)), (1, Advice::LookAsRoot)] {
        let mut gone =
            snapshot_of(vec![listing(device(0, 5000, 16_280), 60, 4990)], vec![], vec![]);
        gone.processes.insert(Pid(60), Process::from(Err(Absent::NotFound)));
        gone.unreadable.add(Absent::NotPermitted, unreadable);
        let found = only(gone);
        assert_eq!((found.kind, found.advice), (FindingKind::ListedButGone, vec![advice]));
    }
}

#[test]
fn advice_for_sick_device_depends_on_fault() {
    for (fault, advice) in [
        (DeviceFault::ResetRequired, Advice::ResetDevice(0)),
        (DeviceFault::Lost, Advice::ReadKernelLog),
    ] {
        let mut sick = device(0, 0, 16_280);
        sick.sample = Err(Error::new(fault, "sample GPU 0").fault());
        assert_eq!(only(snapshot_of(vec![sick], vec![], vec![])).advice, [advice]);
    }
}

#[test]
fn hoarder_has_a_gibibyte_and_a_twentieth_of_device() {
    let found = |mib, total| {
        let info = process(100, "python");
        let device = listing(device(0, mib, total), 100, mib);
        kinds(snapshot_of(vec![device], vec![context(&info, &[0])], vec![info]))
    };
    assert_eq!(found(1023, 16_000), []);
    assert_eq!(found(1024, 16_000), [FindingKind::Hoarder]);
    assert_eq!(found(3999, 80_000), []);
    assert_eq!(found(4000, 80_000), [FindingKind::Hoarder]);
}

/// Returns the confidence in an orphan after changes to a certain one.
fn orphan(change: fn(&mut ProcessInfo, &mut Snapshot)) -> Option<Confidence> {
    let mut worker = process(30, "python");
    (worker.parent, worker.group, worker.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
    let line = ["python", "--multiprocessing-fork"];
    worker.command_line = Ok(line.map(String::from).into());
    let device = listing(device(0, 5000, 16_280), 30, 4990);
    let mut now = snapshot_of(vec![device], vec![context(&worker, &[0])], vec![]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    change(&mut worker, &mut now);
    now.processes.insert(Pid(30), Process::from(Ok(worker)));
    let diagnosis = diagnose(&[now]);
    let mut findings = diagnosis.findings.iter();
    findings.find(|found| found.kind == FindingKind::Orphan).map(|found| found.confidence)
}

#[test]
fn orphan_is_worker_without_any_family() {
    fn says(worker: &mut ProcessInfo, line: &[&str]) {
        worker.command_line = Ok(line.iter().map(|word| word.to_string()).collect());
    }
    let (likely, possible) = (Some(Confidence::Likely), Some(Confidence::Possible));
    assert_eq!(orphan(|_, _| {}), likely);
    let code = |worker: &mut ProcessInfo, _: &mut Snapshot| {
        says(worker, &["python", "-c", "from multiprocessing.forkserver import main; x"]);
    };
    assert_eq!(orphan(code), likely);
    let argument = |worker: &mut ProcessInfo, _: &mut Snapshot| {
        says(worker, &["echo", "from multiprocessing.spawn import spawn_main; x"]);
    };
    assert_eq!(orphan(argument), possible, "it is not the code");
    let other = |worker: &mut ProcessInfo, _: &mut Snapshot| {
        says(worker, &["python", "-c", "print('from multiprocessing.spawn')"]);
    };
    assert_eq!(orphan(other), possible);
    assert_eq!(orphan(|worker, _| worker.session = Ok(Pid(30))), possible, "it leads a session");
    assert_eq!(orphan(|worker, _| worker.session = Ok(Pid(2))), possible, "its session lives");
    let adopted = |worker: &mut ProcessInfo, now: &mut Snapshot| {
        worker.parent = Ok(Pid(900));
        now.processes.insert(Pid(900), Process::from(Ok(process(900, "systemd"))));
    };
    assert_eq!(orphan(adopted), likely, "a user's service manager adopts, too");
    assert_eq!(orphan(|worker, _| worker.parent = Ok(Pid(2))), None, "bash adopts none");
}

#[test]
fn forgeable_services_leave_device_free_up_to_two_gibibytes() {
    let is_free = |change: fn(&mut ProcessInfo), mib| {
        let mut info = ProcessInfo { uid: Ok(0), ..process(700, "Xorg") };
        change(&mut info);
        let held = holder(&info, &[("/dev/nvidia-modeset", "F....")]);
        let device = listing(device(0, mib, 16_000), 700, mib);
        let now = snapshot_of(vec![device], vec![held], vec![info]);
        Usage::of(&now).is_free(now.devices[0].id())
    };
    assert!(is_free(|_| {}, 9_000), "root's own");
    let forged: [fn(&mut ProcessInfo); 3] = [
        |info| info.uid = Ok(1000),
        |info| info.namespace_pids = Ok(vec![Pid(700), Pid(9)]),
        |info| info.executable = Err(Absent::NotPermitted),
    ];
    for change in forged {
        assert!(is_free(change, 2048));
        assert!(!is_free(change, 2049));
    }
    assert!(is_free(|info| info.namespace_pids = Ok(vec![Pid(700)]), 9_000), "the outer namespace");
}

#[test]
fn doubts_are_described_in_words() {
    for (doubt, words) in [
        (Doubt::NotListed, "the driver does not report per-process memory"),
        (Doubt::LetGo(Pid(7)), "process 7, which is not listed, released the device too"),
        (Doubt::Unseen, "a process that could not be inspected exited too"),
    ] {
        assert_eq!(doubt.to_string(), words);
    }
}

/// A process with 2,000 MiB of a busy device, and its own utilization.
fn hoarder(own: Reading<u64>) -> Option<Finding> {
    let info = process(100, "python");
    let mut device = busy(listing(device(0, 2010, 16_000), 100, 2000), 90);
    let share = own.map(|share| Percent::new(share).unwrap());
    device.processes.as_mut().unwrap()[0].utilization = share;
    diagnose(&[snapshot_of(vec![device], vec![context(&info, &[0])], vec![info])]).findings.pop()
}

#[test]
fn hoarder_is_judged_by_its_own_utilization() {
    let found = hoarder(Ok(0)).unwrap();
    assert_eq!((found.kind, found.confidence), (FindingKind::Hoarder, Confidence::Possible));
    assert_eq!(found.memory, Some(Bytes::from_mib(2000)));
    let evidence = ["holds 2,000 MiB", "no compute in NVML's sample window"];
    assert_eq!(Evidence::texts(&found.suspects[0].evidence), evidence);
    assert_eq!(found.advice, [Advice::WatchIdle, Advice::ReapProcess(Pid(100))]);
    assert!(hoarder(Ok(1)).is_none());
    assert!(hoarder(Err(Absent::NotSupported)).is_none(), "the device computes for somebody");
}

#[test]
fn hoarder_in_single_sample_needs_more_snapshots() {
    let info = process(100, "python");
    let device = |index| listing(device(index, 2010, 16_000), 100, 2000);
    let now = snapshot_of(vec![device(0), device(1)], vec![context(&info, &[0, 1])], vec![info]);
    let after = |millis| Snapshot { taken_at: Timestamp(now.taken_at.0 + millis), ..now.clone() };
    let found = only(now.clone());
    let evidence = ["holds 4,000 MiB on 2 GPUs", "0 % utilization in a single sample"];
    assert_eq!(Evidence::texts(&found.suspects[0].evidence), evidence);
    assert_eq!(found.advice, [Advice::WatchIdle, Advice::ReapProcess(Pid(100))]);
    let soon = diagnose(&[0, 1_000, 2_000].map(after)).findings.remove(0);
    let text = "0 % utilization in 3 samples over 2 s";
    assert_eq!((&*soon.suspects[0].evidence[1].text, soon.confidence), (text, found.confidence));
    let longer = diagnose(&[0, 300_000, 600_000].map(after)).findings.remove(0);
    assert_eq!(longer.suspects[0].evidence[1].text, "idle in 3 samples over 10 min");
    assert_eq!(longer.confidence, Confidence::Likely);
    assert_eq!(longer.advice, [Advice::ReapProcess(Pid(100))]);
}

#[test]
fn advice_and_memory_of_orphan_follow_its_confidence() {
    let found = |idle: bool| {
        let mut worker = process(30, "python");
        (worker.parent, worker.group, worker.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
        worker.command_line = Ok(["--multiprocessing-fork".to_owned()].into());
        let device = listing(device(0, 5000, 16_280), 30, 4990);
        let device = busy(device, if idle { 0 } else { 90 });
        let mut now = snapshot_of(vec![device], vec![context(&worker, &[0])], vec![worker]);
        now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
        let findings = diagnose(&[now]).findings;
        findings.into_iter().find(|found| found.kind == FindingKind::Orphan)
    };
    let idle = found(true).unwrap();
    assert_eq!(idle.advice, [Advice::ReapProcess(Pid(30))]);
    assert_eq!(idle.memory, Some(Bytes::from_mib(4990)));
    assert_eq!(found(false), None, "it computes");
}

#[test]
fn memory_of_service_may_belong_to_its_clients() {
    let with = |name: &str| {
        let info = ProcessInfo { uid: Ok(0), ..process(66, name) };
        let found = only(snapshot_of(
            vec![device(0, 9000, 16_000)],
            vec![context(&info, &[0])],
            vec![info],
        ));
        (found.confidence, found.evidence[1].text.clone(), found.advice)
    };
    let possible = Confidence::Possible;
    let clients = "held by 66 nvidia-cuda-mps: clients of the MPS server may use it".to_owned();
    assert_eq!(with("nvidia-cuda-mps"), (possible, clients, vec![]));
    let mapped = "mapped by 66 Xorg, by its name a display server or daemon, which is never \
                  signalled";
    let stop = vec![Advice::StopService(Pid(66))];
    assert_eq!(with("Xorg"), (possible, mapped.to_owned(), stop));
}

#[test]
fn display_server_of_user_is_known_by_what_it_draws() {
    let role = |kind: DeviceProcessKind, path: &str| {
        let info = process(700, "Xorg");
        let mut device = listing(device(0, 50, 16_000), 700, 20);
        device.processes.as_mut().unwrap()[0].kind = kind;
        let now = snapshot_of(vec![device], vec![holder(&info, &[(path, "F....")])], vec![info]);
        Usage::of(&now).on(now.devices[0].id())[0].role
    };
    let (compute, graphics) = (DeviceProcessKind::Compute, DeviceProcessKind::Graphics);
    assert_eq!(role(graphics, "/dev/nvidia0"), Role::Display);
    assert_eq!(role(compute, "/dev/nvidia-modeset"), Role::Display);
    assert_eq!(role(compute, "/dev/dri/renderD128"), Role::Display);
    assert_eq!(role(compute, "/dev/nvidia0"), Role::MemoryUser);
}

#[test]
fn refusals_are_described_in_words() {
    for (refusal, words) in [
        (Refusal::Init, "it is PID 1"),
        (Refusal::KernelThread, "it is a kernel thread"),
        (Refusal::OwnAncestry, "it is gpuws itself or one of its ancestors"),
        (Refusal::Role(Role::Monitor), "it is a monitor: it uses no device memory"),
        (Refusal::Role(Role::Display), "it is a display server"),
        (Refusal::Role(Role::Daemon), "it is a system daemon for the GPU"),
        (Refusal::NotSeen, "no such process is visible"),
        (Refusal::NotTheSame, "it is not the chosen process (PID reused)"),
        (
            Refusal::ScopeHolds(Pid(7), Box::new(Refusal::LoginSession)),
            "the scope would end 7 too, and it is part of a login session",
        ),
    ] {
        assert_eq!(refusal.to_string(), words);
    }
}

#[test]
fn advice_for_half_dead_process_depends_on_its_threads() {
    let advice = |state, threads: Reading<u32>, through: Option<u32>| {
        let mut info = process(9, "train");
        (info.state, info.live_threads) = (Ok(state), threads);
        let mut held = context(&info, &[0]);
        held.through_thread = through.map(Pid);
        let device = listing(device(0, 500, 16_280), 9, 490);
        let found = only(snapshot_of(vec![device], vec![held], vec![info]));
        (found.confidence, found.advice[0].clone(), found.memory)
    };
    let zombie = ProcessState::Zombie;
    let (high, likely) = (Confidence::High, Confidence::Likely);
    let memory = Some(Bytes::from_mib(490));
    let (reap, end_parent) = (Advice::ReapDevice(0), Advice::EndParent(Pid(2)));
    assert_eq!(advice(zombie, Ok(1), None), (high, reap.clone(), memory));
    assert_eq!(advice(zombie, Err(Absent::NotPermitted), Some(11)), (high, reap, memory));
    assert_eq!(advice(zombie, Ok(0), None), (likely, end_parent, memory));
    let stuck = advice(ProcessState::Uninterruptible, Ok(1), None);
    assert_eq!(stuck, (Confidence::Possible, Advice::WatchIdle, memory), "it may read a file");
}

/// Each instance has 16,000 MiB; its used memory, and a listed process with its instance and memory.
fn in_instances(
    whole: u64,
    instances: &[(u32, u64)],
    listed: &[(Option<u32>, u64)],
) -> (Option<u32>, Vec<Option<Bytes>>, Option<String>) {
    let mut device = device(0, whole, 40_960);
    device.info.partitioned = Ok(true);
    let part = |(index, (gpu_instance, used)): (usize, &(u32, u64))| {
        let (used, total) = (Ok(Bytes::from_mib(*used)), Ok(Bytes::from_mib(16_000)));
        let memory = MemoryInfo { total, used, reserved: Err(Absent::NotSupported) };
        let (index, gpu_instance) = (index as u32, Some(*gpu_instance));
        Partition { index, gpu_instance, memory, profile: Ok("3g.20gb".into()), ..instance() }
    };
    device.partitions = Ok(instances.iter().enumerate().map(part).collect());
    for (number, (gpu_instance, mib)) in (7..).zip(listed) {
        device = listing(device, number, *mib);
        let process = device.processes.as_mut().unwrap().last_mut().unwrap();
        process.gpu_instance = *gpu_instance;
    }
    let id = device.id().clone();
    let snapshot = snapshot_of(vec![device], vec![], vec![]);
    let usage = Usage::of(&snapshot);
    let accounts = instances.iter().map(|(gi, _)| usage.account_of_instance(&id, *gi)).collect();
    let findings = diagnose(&[snapshot]).findings;
    let mut evidence = findings.iter().flat_map(|finding| &finding.evidence);
    let within = evidence.find(|one| one.sign == Sign::MemoryInMigInstance);
    let within = within.map(|one| one.text.clone());
    (usage.unexplained_in(&id), accounts, within)
}

#[test]
fn ghost_is_tied_to_the_one_mig_instance_with_its_memory() {
    let mib = |mib| Some(Bytes::from_mib(mib));
    let tied = in_instances(14_100, &[(1, 9_020), (5, 5_030)], &[(Some(1), 9_000)]);
    let within = "within MIG 1 (3g.20gb, GPU instance 5): 5,030 of 16,000 MiB used there, none by \
                  listed processes";
    assert_eq!(tied, (Some(5), vec![mib(0), mib(5_030)], Some(within.to_owned())));
    let beside = in_instances(14_100, &[(1, 14_020)], &[(Some(1), 9_000)]);
    let within = "within MIG 0 (3g.20gb, GPU instance 1): 14,020 of 16,000 MiB used there, 9,000 \
                  MiB by listed processes";
    assert_eq!(beside, (Some(1), vec![mib(5_020)], Some(within.to_owned())));
    // The two compute instances of a GPU instance share one memory.
    let shared = in_instances(9_020, &[(1, 9_000), (1, 9_000)], &[]);
    let within = "within GPU instance 1: 9,000 of 16,000 MiB used there, none by listed processes";
    assert_eq!((shared.0, shared.2), (Some(1), Some(within.to_owned())));

    for (whole, instances, listed, accounts) in [
        // In both, in none, more than the instance has, and in an unknown instance.
        (9_000, [(1, 4_000), (5, 5_000)], &[][..], vec![mib(4_000), mib(5_000)]),
        (9_000, [(1, 20), (5, 20)], &[], vec![mib(0), mib(0)]),
        (9_000, [(1, 5_000), (5, 20)], &[], vec![mib(5_000), mib(0)]),
        (14_000, [(1, 9_020), (5, 5_000)], &[(None, 9_000)], vec![None, None]),
        (14_000, [(1, 9_020), (5, 5_000)], &[(Some(7), 9_000)], vec![None, None]),
    ] {
        let found = in_instances(whole, &instances, listed);
        assert_eq!(found, (None, accounts, None), "{whole} {instances:?} {listed:?}");
    }
}

/// Eight devices with four processes each. Init has adopted each process, or its parent is unknown:
/// a job that a script started in the background. `change` modifies the recorded process.
fn computing(change: impl Fn(&mut ProcessInfo, &mut DeviceProcess)) -> Snapshot {
    let (mut devices, mut holders, mut processes) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..8 {
        let mut device = busy(device(index, 32_010, 81_920), 97);
        for slot in 0..4 {
            let pid = 3000 + index * 10 + slot;
            let mut info = process(pid, "python");
            info.group = Ok(Pid(20));
            info.parent = if slot == 3 { Err(Absent::NotPermitted) } else { Ok(Pid(1)) };
            device = listing(device, pid, 8_000);
            let listed = device.processes.as_mut().unwrap().last_mut().unwrap();
            listed.utilization = Ok(Percent::new(24).unwrap());
            change(&mut info, listed);
            holders.push(context(&info, &[index]));
            processes.push(info);
        }
        devices.push(device);
    }
    let mut now = snapshot_of(devices, holders, processes);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    now
}

#[test]
fn computing_process_is_not_a_finding() {
    let kinds = |change: fn(&mut ProcessInfo, &mut DeviceProcess)| {
        found(&[computing(change)]).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(|_, _| {}), []);
    assert_eq!(kinds(|info, _| info.state = Ok(ProcessState::Uninterruptible)), [], "it reads");
    assert_eq!(kinds(|info, _| info.started_at = Err(Absent::NotRecorded)), [], "age unknown");
    let whole: fn(&mut ProcessInfo, &mut DeviceProcess) =
        |_, listed| listed.utilization = Err(Absent::NotSupported);
    assert_eq!(kinds(whole), [], "only the device shows that a process computes");
    // The same when idle: each is an idle orphan, except those of an unknown parent.
    let mut idle = computing(|_, listed| listed.utilization = Ok(Percent::new(0).unwrap()));
    for device in &mut idle.devices {
        *device = busy(device.clone(), 0);
    }
    let at_rest = found(&[idle]);
    let orphans = at_rest.iter().filter(|(kind, _)| *kind == FindingKind::Orphan);
    assert_eq!((orphans.count(), at_rest.len()), (24, 32), "{at_rest:?}");
}

#[test]
fn process_of_unknown_age_is_only_evidence() {
    let stuck = |started_at| {
        let mut info = process(30, "python");
        (info.state, info.started_at) = (Ok(ProcessState::Uninterruptible), started_at);
        let device = listing(device(0, 5000, 16_280), 30, 4990);
        found(&[snapshot_of(vec![device], vec![context(&info, &[0])], vec![info])])
    };
    assert_eq!(stuck(Ok(Timestamp(0))), [(FindingKind::StuckHolder, Confidence::Possible)]);
    assert_eq!(stuck(Ok(Timestamp(100_001))), [], "it was started less than 15 minutes ago");
    assert_eq!(stuck(Err(Absent::NotRecorded)), []);
    // It still explains memory that no listed process accounts for.
    let mut info = process(30, "python");
    (info.state, info.started_at) = (Ok(ProcessState::Uninterruptible), Err(Absent::NotRecorded));
    let ghost = snapshot_of(vec![device(0, 5000, 16_280)], vec![context(&info, &[0])], vec![info]);
    let findings = diagnose(&[ghost]).findings;
    assert_eq!(findings[0].kind, FindingKind::Ghost);
    let signs: Vec<Sign> = findings[0].suspects[0].evidence.iter().map(|one| one.sign).collect();
    assert!(signs.contains(&Sign::UninterruptibleSleep), "{signs:?}");
}

#[test]
fn excuse_spares_processes_that_may_just_have_started() {
    let idle = || {
        let info = process(30, "python");
        let device = listing(device(0, 5000, 16_280), 30, 4990);
        diagnose(&[snapshot_of(vec![device], vec![context(&info, &[0])], vec![info])])
    };
    let excused = |confidence, of: Pid| {
        let mut diagnosis = idle();
        diagnosis.findings[0].confidence = confidence;
        diagnosis.excuse(|device, pid| device.index == 0 && pid == of);
        diagnosis.findings.is_empty()
    };
    assert_eq!(idle().possible_count(), 1);
    assert!(excused(Confidence::Possible, Pid(30)) && excused(Confidence::Likely, Pid(30)));
    assert!(!excused(Confidence::Possible, Pid(31)), "another process");
    assert!(!excused(Confidence::High, Pid(30)), "hours have proved it");
    let mut ghost = diagnose(&[{
        let info = process(30, "python");
        snapshot_of(vec![device(0, 5000, 16_280)], vec![context(&info, &[0])], vec![info])
    }]);
    ghost.excuse(|_, _| true);
    assert_eq!(ghost.findings.len(), 1, "a lease explains no unlisted memory");
}
