//! Each detector: what it must find, and what it must not find.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

fn kinds(snapshot: &Snapshot) -> Vec<(FindingKind, Confidence)> {
    let diagnosis = diagnose(std::slice::from_ref(snapshot));
    diagnosis.findings.iter().map(|finding| (finding.kind, finding.confidence)).collect()
}

fn ghost() -> Snapshot {
    let decoder = process(100, "t2t-decoder");
    let monitor = process(67, "argusagent");
    snapshot_of(
        vec![device(0, 15_849, 16_280)],
        vec![
            context(&decoder, &[0]),
            holder(&monitor, &[("/dev/nvidia0", "F...."), ("/dev/nvidiactl", "F....")]),
        ],
        vec![decoder, monitor],
    )
}

#[test]
fn ghost_names_holder_and_clears_monitor() {
    let diagnosis = diagnose(&[ghost()]);
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:?}") };
    assert_eq!((finding.kind, finding.confidence), (FindingKind::Ghost, Confidence::High));
    assert_eq!(finding.memory, Some(Bytes::from_mib(15_849)));
    assert_eq!(finding.suspects.iter().map(|s| s.process.pid.0).collect::<Vec<_>>(), [100]);
    let [cleared] = &diagnosis.cleared[..] else { panic!("{diagnosis:?}") };
    assert_eq!((cleared.process.pid.0, cleared.role), (67, Role::Monitor));
}

#[test]
fn ghosts_of_the_same_processes_are_joined() {
    let (first, other) = (process(100, "python"), process(200, "python"));
    let ghosts = |of_third: &[ProcessInfo]| {
        let on = |info: &ProcessInfo, devices: &[u32]| context(info, devices);
        let third = of_third.iter().map(|info| on(info, &[2]));
        let devices =
            vec![device(0, 9000, 16_280), device(1, 7000, 16_280), device(2, 500, 16_280)];
        let holders = std::iter::once(on(&first, &[0, 1])).chain(third).collect();
        let mut diagnosis =
            diagnose(&[snapshot_of(devices, holders, vec![first.clone(), other.clone()])]);
        assert_eq!(diagnosis.findings.len(), 3, "{diagnosis:?}");
        diagnosis.join_ghosts();
        diagnosis.findings
    };
    for of_third in [&[other.clone()][..], &[]] {
        let findings = ghosts(of_third);
        let [both, alone] = &findings[..] else { panic!("{findings:?}") };
        let indexes = |finding: &Finding| -> Vec<u32> {
            finding.devices.iter().map(|device| device.index).collect()
        };
        assert_eq!((indexes(both), indexes(alone)), (vec![0, 1], vec![2]));
        assert_eq!(both.memory, Some(Bytes::from_mib(16_000)));
        assert_eq!((both.confidence, both.suspects.len()), (Confidence::High, 1));
        assert_eq!(both.advice, [Advice::ReapDevice(0)]);
        let evidence = Evidence::texts(&both.evidence);
        assert!(evidence[0].starts_with("GPU 0: ") && evidence[1].starts_with("GPU 1: "));
        assert!(!alone.evidence[0].text.starts_with("GPU"));
    }
}

#[test]
fn small_unlisted_memory_is_driver_overhead() {
    assert_eq!(kinds(&snapshot_of(vec![device(0, 25, 16_280)], vec![], vec![])), []);
    let worker = process(4631, "python");
    let at_work = busy(listing(device(0, 2259, 11_439), 4631, 2248), 97);
    assert_eq!(kinds(&snapshot_of(vec![at_work], vec![context(&worker, &[0])], vec![worker])), []);
}

#[test]
fn process_with_only_open_device_is_uncertain_suspect() {
    // It computes on GPU 1, which lists it, and has GPU 0 open as every CUDA program has.
    let neighbour = process(7, "python");
    let both = holder(
        &neighbour,
        &[("/dev/nvidia0", "F...."), ("/dev/nvidia1", "F...m"), ("/dev/nvidia-uvm", "F...m")],
    );
    let culprit = process(8, "python");
    let devices =
        vec![device(0, 9000, 16_280), busy(listing(device(1, 9000, 16_280), 7, 8990), 50)];
    let alone = snapshot_of(devices.clone(), vec![both.clone()], vec![neighbour.clone()]);
    assert_eq!(
        kinds(&alone),
        [(FindingKind::DriverLeak, Confidence::Likely)],
        "no process maps GPU 0"
    );
    let together =
        snapshot_of(devices, vec![both, context(&culprit, &[0])], vec![neighbour, culprit]);
    let diagnosis = diagnose(&[together]);
    let suspects: Vec<u32> =
        diagnosis.findings[0].suspects.iter().map(|suspect| suspect.process.pid.0).collect();
    assert_eq!(suspects, [8]);
}

#[test]
fn unprivileged_viewer_does_not_accuse() {
    let mut unseen = ghost();
    unseen.holders = Ok(vec![]);
    unseen.unreadable.count(Absent::NotPermitted);
    assert_eq!(kinds(&unseen), [(FindingKind::NotPermitted, Confidence::Likely)]);
    unseen.holders = Err(Error::new(Absent::NotRecorded, "see holders").fault());
    assert_eq!(kinds(&unseen), [(FindingKind::Ghost, Confidence::Possible)]);
    let mut inside = ghost();
    inside.sees_host_pids = Ok(false);
    assert_eq!(kinds(&inside), [(FindingKind::ForeignNamespace, Confidence::Likely)]);
}

#[test]
fn unknown_memory_yields_no_finding() {
    let mut unknown = ghost();
    unknown.devices[0].sample.as_mut().unwrap().memory.used = Err(Absent::NotSupported);
    assert_eq!(kinds(&unknown), []);
    let mut hidden = ghost();
    hidden.devices[0] = listing(hidden.devices[0].clone(), 100, 0);
    hidden.devices[0].processes.as_mut().unwrap()[0].memory = Err(Absent::NotSupported);
    assert_eq!(kinds(&hidden), [], "a listed process with unknown memory may hold all of it");
}

#[test]
fn leak_has_no_suspect_and_reset_lists_blockers() {
    let monitor = process(67, "dcgm-like");
    let held = holder(&monitor, &[("/dev/nvidia0", "F....")]);
    let leak = snapshot_of(vec![device(0, 9000, 16_280)], vec![held], vec![monitor]);
    assert_eq!(
        kinds(&leak),
        [
            (FindingKind::DriverLeak, Confidence::Likely),
            (FindingKind::BlockedReset, Confidence::High)
        ]
    );
    for finding in diagnose(&[leak]).findings {
        assert_eq!(finding.advice.first(), Some(&Advice::StopService(Pid(67))), "{finding:?}");
    }
    let mut sick = device(0, 0, 16_280);
    sick.sample = Err(Error::new(DeviceFault::ResetRequired, "sample GPU 0").fault());
    let sick = snapshot_of(vec![sick], vec![], vec![]);
    assert_eq!(kinds(&sick), [(FindingKind::DeviceFault, Confidence::High)]);
}

#[test]
fn hanging_call_is_a_fault_of_its_device_only() {
    let silent = |index| {
        let fault = Fault { kind: ErrorKind::TimedOut, text: "get an answer: x hangs".into() };
        DeviceState::unanswered(device(index, 0, 16_280).info, Groups::NONE, &fault)
    };
    let reported = |devices: Vec<DeviceState>| {
        let diagnosis = diagnose(&[snapshot_of(devices, vec![], vec![])]);
        let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:?}") };
        finding.clone()
    };
    let finding = reported(vec![device(0, 0, 16_280), silent(1), silent(2)]);
    assert_eq!((finding.kind, finding.confidence), (FindingKind::DeviceFault, Confidence::Likely));
    assert_eq!(finding.devices.iter().map(|id| id.index).collect::<Vec<_>>(), [1]);
    let evidence = ["failed to get an answer: x hangs", "GPU 2 was not queried"];
    assert_eq!(Evidence::texts(&finding.evidence), evidence);
    assert_eq!(finding.suspects, []);
    assert_eq!(finding.advice, [Advice::AllowMoreTime, Advice::WaitOrReboot]);

    let more = reported((0..3).map(silent).collect());
    assert_eq!(more.evidence[1].text, "GPUs 1, 2 were not queried");
    assert_eq!(
        reported(vec![device(0, 0, 16_280), silent(1)]).evidence.len(),
        1,
        "none is behind it"
    );
}

#[test]
fn refused_process_list_is_a_finding() {
    let refused = |index, kind: ErrorKind| {
        let fault = Error::new(kind, format!("list the processes of GPU {index}")).fault();
        DeviceState { processes: Err(fault), ..device(index, 0, 16_280) }
    };
    let findings = |kind: ErrorKind| {
        let devices = vec![refused(0, kind), device(1, 0, 16_280), refused(2, kind)];
        diagnose(&[snapshot_of(devices, vec![], vec![])]).findings
    };
    let unloaded = findings(MachineFault::DriverNotLoaded.into());
    let [finding] = &unloaded[..] else { panic!("{unloaded:?}") };
    assert_eq!((finding.kind, finding.confidence), (FindingKind::DeviceFault, Confidence::Likely));
    let devices: Vec<u32> = finding.devices.iter().map(|id| id.index).collect();
    assert_eq!(devices, [0, 2], "both were asked, and each has refused");
    assert_eq!(Evidence::texts(&finding.evidence), ["failed to list the processes of GPU 0"]);
    assert_eq!(finding.advice, [Advice::LoadDriver]);
    for (fault, advice) in [
        (MachineFault::VersionMismatch, Advice::LoadDriver),
        (MachineFault::Blocked, Advice::LookOnHost),
        (MachineFault::Unknown(4242), Advice::ReadKernelLog),
    ] {
        assert_eq!(findings(fault.into())[0].advice, [advice], "{fault:?}");
    }

    let lost = findings(DeviceFault::Lost.into());
    let of: Vec<(Confidence, u32)> =
        lost.iter().map(|finding| (finding.confidence, finding.devices[0].index)).collect();
    assert_eq!(of, [(Confidence::High, 0), (Confidence::High, 2)]);
    assert_eq!(findings(Absent::NotPermitted.into()), [], "that is no fault of a device");
}

#[test]
fn foreign_pids_account_for_memory_without_naming_processes() {
    let worker = process(7, "python");
    let mut inside = snapshot_of(
        vec![listing(device(0, 9000, 16_280), 7, 8990), device(1, 9000, 16_280)],
        vec![context(&worker, &[0])],
        vec![worker.clone()],
    );
    inside.sees_host_pids = Ok(false);
    let usage = Usage::of(&inside);
    let [first, second] = [0, 1].map(|at| inside.devices[at].id());
    let [user] = usage.on(first) else { panic!("{usage:?}") };
    assert_eq!((user.listed, user.memory.ok()), (Err(Absent::NotSupported), None));
    let foreign: Vec<Pid> = usage.foreign(first).iter().map(|process| process.pid).collect();
    assert_eq!((foreign, usage.account(first)), (vec![Pid(7)], Some(Bytes(0))));
    assert_eq!(usage.account(second), Some(Bytes::from_mib(9000)), "no list has it");
    inside.holders = Ok(Vec::new());
    assert!(!Usage::of(&inside).is_free(inside.devices[0].id()));
    inside.sees_host_pids = Ok(true);
    assert!(Usage::of(&inside).foreign(inside.devices[0].id()).is_empty());
}

#[test]
fn listed_state_is_unknown_if_list_was_not_read() {
    let worker = process(7, "python");
    let listed_by = |processes| {
        let device = DeviceState { processes, ..device(0, 9000, 16_280) };
        let snapshot =
            snapshot_of(vec![device], vec![context(&worker, &[0])], vec![worker.clone()]);
        let usage = Usage::of(&snapshot);
        let [user] = usage.on(snapshot.devices[0].id()) else { panic!("{usage:?}") };
        (user.listed, user.memory)
    };
    let none = (Ok(false), Err(Absent::NotRecorded));
    assert_eq!(listed_by(Ok(vec![])), none);
    let on_list = listing(device(0, 9000, 16_280), 7, 8990).processes;
    assert_eq!(listed_by(on_list), (Ok(true), Ok(Bytes::from_mib(8990))));
    for (kind, absent) in [
        (ErrorKind::TimedOut, Absent::NoAnswer),
        (Absent::NotPermitted.into(), Absent::NotPermitted),
        (DeviceFault::Lost.into(), Absent::DeviceLost),
    ] {
        let fault = Fault { kind, text: "list".into() };
        assert_eq!(listed_by(Err(fault)), (Err(absent), Err(absent)));
    }
}

#[test]
fn single_snapshot_yields_only_possible_hoarder() {
    let python = process(45_479, "python");
    let mut devices = vec![busy(listing(device(0, 10_803, 11_178), 45_479, 10_791), 97)];
    devices.extend((1..8).map(|i| listing(device(i, 10_631, 11_178), 45_479, 10_619)));
    let held = context(&python, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let mut one = snapshot_of(devices, vec![held], vec![python]);
    let diagnosis = diagnose(std::slice::from_ref(&one));
    let [finding] = &diagnosis.findings[..] else { panic!("{diagnosis:?}") };
    assert_eq!((finding.kind, finding.confidence), (FindingKind::Hoarder, Confidence::Possible));
    assert_eq!(finding.devices.len(), 7, "it works on GPU 0");
    assert!(finding.advice.contains(&Advice::LimitVisibleDevices(vec![0])));
    let mut later = one.clone();
    for (seconds, confidence) in [(599, Confidence::Possible), (600, Confidence::Likely)] {
        later.taken_at = Timestamp(one.taken_at.0 + seconds * 1000);
        let findings = diagnose(&[one.clone(), one.clone(), later.clone()]).findings;
        assert_eq!(findings[0].confidence, confidence, "{seconds} s");
    }
    for device in &mut one.devices {
        *device = busy(device.clone(), 30);
    }
    assert_eq!(diagnose(&[one, later]).findings, [], "it computed in the first look");
}

/// A worker of Python's multiprocessing whose launcher, process 20, is gone.
fn orphan() -> ProcessInfo {
    let code = "from multiprocessing.spawn import spawn_main; spawn_main()";
    ProcessInfo {
        parent: Ok(Pid(1)),
        group: Ok(Pid(20)),
        session: Ok(Pid(20)),
        command_line: Ok(["python", "-c", code].map(String::from).into()),
        ..process(30, "python")
    }
}

#[test]
fn orphan_using_cpu_time_may_still_compute() {
    let seen = |cpu_ms: u64, taken_at: Timestamp| {
        let cpu_time = Ok(std::time::Duration::from_millis(cpu_ms));
        let worker = ProcessInfo { cpu_time, ..orphan() };
        let device = listing(device(0, 5000, 16_280), 30, 4990);
        let mut snapshot = snapshot_of(vec![device], vec![context(&worker, &[0])], vec![worker]);
        snapshot.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
        Snapshot { taken_at, ..snapshot }
    };
    for (later_ms, expected) in [(1000, Confidence::Likely), (1010, Confidence::Possible)] {
        let snapshots = [seen(1000, Timestamp(1_000_000)), seen(later_ms, Timestamp(1_001_000))];
        let findings = diagnose(&snapshots).findings;
        let of: Vec<_> = findings.iter().map(|found| (found.kind, found.confidence)).collect();
        assert_eq!(of, [(FindingKind::Orphan, expected)], "{later_ms} ms");
    }
}

#[test]
fn orphan_lost_parent_and_group() {
    let worker = orphan();
    let device = listing(device(0, 5000, 16_280), 30, 4990);
    let with = |worker: &ProcessInfo, device: &DeviceState, launcher: bool, held: Holder| {
        let mut snapshot = snapshot_of(vec![device.clone()], vec![held], vec![worker.clone()]);
        let launcher = if launcher { Ok(process(20, "launcher")) } else { Err(Absent::NotFound) };
        snapshot.processes.insert(Pid(20), Process::from(launcher));
        let orphan = |(kind, _): &(FindingKind, Confidence)| *kind == FindingKind::Orphan;
        kinds(&snapshot).into_iter().find(orphan).map(|(_, confidence)| confidence)
    };
    let held = context(&worker, &[0]);
    assert_eq!(with(&worker, &device, false, held.clone()), Some(Confidence::Likely));
    assert_eq!(with(&worker, &busy(device.clone(), 90), false, held.clone()), None, "it computes");
    assert_eq!(with(&worker, &device, true, held.clone()), None, "its launcher lives");
    // A daemon that forked twice looks the same, except for its program.
    let daemon = ProcessInfo { command_line: Ok(["serve".to_owned()].into()), ..worker.clone() };
    assert_eq!(with(&daemon, &device, false, held.clone()), Some(Confidence::Possible));
    let nohup = ProcessInfo { ignores_hangup: Ok(true), ..daemon.clone() };
    assert_eq!(with(&nohup, &device, false, held.clone()), None, "it shall live without a parent");
    let service = ProcessInfo { cgroup: Ok("/system.slice/serve.service".into()), ..daemon };
    assert_eq!(with(&service, &device, false, held.clone()), None, "systemd manages it");
    for wanted in [
        ProcessInfo { ignores_hangup: Ok(true), ..worker.clone() },
        ProcessInfo { tracer: Ok(Pid(77)), ..worker.clone() },
        ProcessInfo { started_at: Ok(Timestamp(1_000_000)), ..worker.clone() },
    ] {
        assert_eq!(with(&wanted, &device, false, held.clone()), None, "{wanted:?}");
    }
    // A process that only received open files has no memory.
    let mut unlisted = device.clone();
    unlisted.processes = Ok(vec![]);
    let handed = holder(&worker, &[("/dev/nvidia0", "F...."), ("/dev/nvidia-uvm", "F....")]);
    assert_eq!(with(&worker, &unlisted, false, handed), None, "it is a sign of the ghost");
    // setsid: PPID 1, but it leads its own group.
    let own_group = ProcessInfo { group: Ok(Pid(30)), ..worker };
    assert_eq!(with(&own_group, &device, false, held), None);
}

#[test]
fn disguised_process_is_a_ghost_not_a_leak() {
    let mut disguised = process(66, "nvidia-cuda-mps");
    disguised.uid = Ok(1001);
    let snapshot = snapshot_of(
        vec![device(0, 9000, 16_280)],
        vec![context(&disguised, &[0])],
        vec![disguised.clone()],
    );
    assert_eq!(kinds(&snapshot), [(FindingKind::Ghost, Confidence::Possible)]);
}

#[test]
fn zombie_and_uninterruptible_holders_are_distinguished() {
    let mut zombie = process(9, "train");
    zombie.state = Ok(ProcessState::Zombie);
    zombie.live_threads = Ok(3);
    let devices = vec![listing(device(0, 500, 16_280), 9, 490)];
    let with = |info: &ProcessInfo| {
        kinds(&snapshot_of(devices.clone(), vec![context(info, &[0])], vec![info.clone()]))
    };
    assert_eq!(with(&zombie), [(FindingKind::ZombieHolder, Confidence::High)]);
    zombie.live_threads = Ok(0);
    assert_eq!(with(&zombie), [(FindingKind::ZombieHolder, Confidence::Likely)]);
    zombie.state = Ok(ProcessState::Uninterruptible);
    assert_eq!(with(&zombie), [(FindingKind::StuckHolder, Confidence::Possible)]);
}

#[test]
fn listed_but_gone_process_blames_its_children() {
    let child = process(51, "python");
    let devices = vec![listing(device(0, 5000, 16_280), 50, 4990)];
    let mut gone = snapshot_of(devices, vec![], vec![]);
    gone.processes.insert(Pid(50), Process::from(Err(Absent::NotFound)));
    assert_eq!(kinds(&gone), [(FindingKind::ListedButGone, Confidence::Likely)]);
    gone.holders = Ok(vec![context(&child, &[0])]);
    gone.processes.insert(Pid(51), Process::from(Ok(child)));
    let diagnosis = diagnose(&[gone]);
    assert_eq!(diagnosis.findings[0].confidence, Confidence::High);
    assert_eq!(diagnosis.findings[0].suspects[0].process.pid, Pid(51));
}

#[test]
fn listed_but_gone_processes_are_named_in_evidence() {
    let evidence = |pids: &[u32]| {
        let idle = device(0, 2_000 * pids.len() as u64, 16_280);
        let listed = pids.iter().fold(idle, |device, pid| listing(device, *pid, 2_000));
        let mut gone = snapshot_of(vec![listed], vec![], vec![]);
        for pid in pids {
            gone.processes.insert(Pid(*pid), Process::from(Err(Absent::NotFound)));
        }
        diagnose(&[gone]).findings[0].evidence[0].text.clone()
    };
    assert_eq!(evidence(&[50]), "NVML lists 50, which does not exist here");
    assert_eq!(evidence(&[50, 51]), "NVML lists 50, 51, which do not exist here");
}

#[test]
fn inherited_memory_follows_ghost_rules() {
    let with = |device: DeviceState, state: ProcessState| {
        let child = ProcessInfo { state: Ok(state), ..process(51, "python") };
        let mut gone = snapshot_of(vec![device], vec![context(&child, &[0])], vec![child]);
        gone.processes.insert(Pid(50), Process::from(Err(Absent::NotFound)));
        let kind = |(kind, _): &(FindingKind, Confidence)| *kind == FindingKind::ListedButGone;
        kinds(&gone).into_iter().find(kind).map(|(_, confidence)| confidence)
    };
    let plain = listing(device(0, 5000, 16_280), 50, 4990);
    let mut split = plain.clone();
    split.info.partitioned = Ok(true);
    assert_eq!(with(plain.clone(), ProcessState::Sleeping), Some(Confidence::High));
    assert_eq!(with(split, ProcessState::Sleeping), Some(Confidence::Likely));
    assert_eq!(with(plain, ProcessState::Uninterruptible), Some(Confidence::Likely));
}

#[test]
fn host_pid_is_not_a_process_in_this_namespace() {
    // NVML's 23 is a process on the host; our 23 is a monitor.
    let monitor = process(23, "argusagent");
    let held = holder(&monitor, &[("/dev/nvidia0", "F....")]);
    let device = busy(listing(device(0, 40_970, 81_920), 23, 40_960), 77);
    let mut inside = snapshot_of(vec![device], vec![held], vec![monitor]);
    inside.sees_host_pids = Ok(false);
    let diagnosis = diagnose(std::slice::from_ref(&inside));
    assert_eq!(diagnosis.cleared[0].role, Role::Monitor);
    let usage = Usage::of(&inside);
    assert_eq!(usage.on(inside.devices[0].id()), []);
    assert!(!usage.is_free(inside.devices[0].id()), "somebody has 40 GiB of it");
}

#[test]
fn unknown_memory_is_not_free() {
    let mut unknown = device(0, 0, 16_280);
    assert!(Usage::of(&snapshot_of(vec![unknown.clone()], vec![], vec![])).is_free(unknown.id()));
    unknown.sample.as_mut().unwrap().memory.used = Err(Absent::NotSupported);
    assert!(!Usage::of(&snapshot_of(vec![unknown.clone()], vec![], vec![])).is_free(unknown.id()));
}

#[test]
fn failing_readings_are_a_device_fault() {
    let mut failing = device(0, 25, 16_280);
    failing.sample.as_mut().unwrap().temperature = Err(Absent::Failed);
    let snapshot = snapshot_of(vec![failing], vec![], vec![]);
    assert_eq!(kinds(&snapshot), [(FindingKind::DeviceFault, Confidence::Likely)]);
    assert_eq!(
        diagnose(&[snapshot]).findings[0].evidence[0].text,
        "its temperature cannot be read"
    );
}

#[test]
fn detection_scales_to_many_holders_and_devices() {
    // Linear work: with a search per holder this would take hours.
    let devices: Vec<DeviceState> = (0..64).map(|index| device(index, 15_000, 16_280)).collect();
    let processes: Vec<ProcessInfo> = (100..20_100).map(|pid| process(pid, "python")).collect();
    let holders = processes.iter().map(|info| context(info, &[info.key.pid.0 % 64])).collect();
    let diagnosis = diagnose(&[snapshot_of(devices, holders, processes)]);
    assert_eq!(diagnosis.findings.len(), 64);
    assert_eq!(diagnosis.findings.iter().map(|f| f.suspects.len()).sum::<usize>(), 20_000);
}

#[test]
fn displays_and_daemons_are_cleared() {
    let mut x = process(700, "Xorg");
    x.uid = Ok(0);
    let mut daemon = process(800, "nvidia-persiste");
    daemon.uid = Ok(0);
    let snapshot = snapshot_of(
        vec![device(0, 300, 16_280)],
        vec![context(&x, &[0]), context(&daemon, &[0])],
        vec![x, daemon],
    );
    let diagnosis = diagnose(&[snapshot]);
    let roles: Vec<Role> = diagnosis.cleared.iter().map(|cleared| cleared.role).collect();
    assert_eq!(roles, [Role::Display, Role::Daemon]);
}

#[test]
fn no_snapshot_yields_no_finding() {
    assert_eq!(diagnose(&[]), Diagnosis::default());
}
