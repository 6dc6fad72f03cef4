//! Health of devices, time, and the merging of findings.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

type Found = Vec<(FindingKind, Confidence)>;

fn found(looks: &[Snapshot]) -> Found {
    diagnose(looks).findings.iter().map(|found| (found.kind, found.confidence)).collect()
}

fn with_details(index: u32, change: impl Fn(&mut DeviceState, &mut DeviceDetails)) -> DeviceState {
    let mut device = device(index, 4, 16_280);
    let mut details = DeviceDetails::default();
    change(&mut device, &mut details);
    device.details = Ok(details);
    device
}

/// Snapshots of one device without processes, this many seconds apart.
fn over(seconds: &[u64], device: &DeviceState) -> Vec<Snapshot> {
    let at = |seconds: &u64| Snapshot {
        taken_at: Timestamp(1_000_000 + seconds * 1000),
        ..look(vec![device.clone()], vec![], vec![])
    };
    seconds.iter().map(at).collect()
}

fn alone(device: DeviceState) -> Found {
    found(&over(&[0], &device))
}

#[test]
fn defects_are_certain_and_named_by_kind() {
    use Confidence::High;
    let memory = |change: fn(&mut MemoryHealth)| {
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        change(&mut health);
        alone(with_details(0, |_, details| details.memory_health = Some(health.clone())))
    };
    assert_eq!(memory(|_| {}), []);
    assert_eq!(memory(|health| health.uncorrected = Ok(0)), []);
    assert_eq!(memory(|health| health.uncorrected = Ok(1)), [(FindingKind::MemoryErrors, High)]);
    // Corrected errors, and errors before the driver was loaded, are normal.
    assert_eq!(
        memory(|health| (health.corrected, health.uncorrected_lifetime) = (Ok(90), Ok(3))),
        []
    );
    for change in [
        (|health| health.remapped_failure = Ok(true)) as fn(&mut MemoryHealth),
        |health| health.remapped_pending = Ok(true),
        |health| health.retired_pending = Ok(true),
    ] {
        assert_eq!(memory(change), [(FindingKind::MemoryErrors, High)]);
    }
    let modes = |change: fn(&mut DeviceState, &mut Modes)| {
        alone(with_details(0, |device, details| {
            let mut modes = Modes::absent(Absent::NotSupported);
            change(device, &mut modes);
            details.modes = Some(modes);
        }))
    };
    assert_eq!(modes(|_, modes| modes.compute_mode = Ok(ComputeMode::ExclusiveProcess)), []);
    assert_eq!(
        modes(|_, modes| modes.compute_mode = Ok(ComputeMode::Prohibited)),
        [(FindingKind::ComputeProhibited, High)]
    );
    assert_eq!(
        modes(|_, modes| (modes.ecc, modes.ecc_pending) = (Ok(true), Ok(false))),
        [(FindingKind::PendingReset, High)]
    );
    assert_eq!(
        modes(|device, modes| {
            (device.info.mig_enabled, modes.mig_pending) = (Ok(false), Ok(true));
        }),
        [(FindingKind::PendingReset, High)]
    );
    assert_eq!(
        modes(|device, _| device.info.mig_enabled = Ok(true)),
        [(FindingKind::NoMigInstance, High)]
    );
    let unknown_parts = modes(|device, _| {
        device.info.mig_enabled = Ok(true);
        device.mig = Err(Fault { kind: ErrorKind::TimedOut, text: "list".into() });
    });
    assert_eq!(unknown_parts, [], "there may be some");
}

#[test]
fn reset_that_is_required_is_reported_once() {
    let reset = |required, drain| {
        with_details(0, |_, details| {
            details.reset_status =
                Some(ResetStatus { required: Ok(required), drain_recommended: Ok(drain) });
        })
    };
    assert_eq!(alone(reset(true, false)), [(FindingKind::DeviceFault, Confidence::High)]);
    assert_eq!(alone(reset(false, true)), [(FindingKind::PendingReset, Confidence::High)]);
    assert_eq!(alone(reset(false, false)), []);
    let mut refused = reset(true, false);
    let kind = DeviceFault::ResetRequired.into();
    refused.sample = Err(Fault { kind, text: "sample it".into() });
    assert_eq!(alone(refused), [(FindingKind::DeviceFault, Confidence::High)]);
}

#[test]
fn throttling_is_certain_if_it_lasts_and_the_temperature_agrees() {
    let device = |reasons, temperature| {
        with_details(0, |device, details| {
            device.sample.as_mut().unwrap().temperature = Ok(Celsius(temperature));
            let mut activity = Activity::absent(Absent::NotSupported);
            activity.throttle = Ok(ThrottleReasons(reasons));
            details.activity = Some(activity);
            let mut thermal = Thermal::absent(Absent::NotSupported);
            thermal.slowdown = Ok(Celsius(90));
            details.thermal = Some(thermal);
        })
    };
    let throttled = |confidence| vec![(FindingKind::Throttled, confidence)];
    let (possible, likely, high) = (Confidence::Possible, Confidence::Likely, Confidence::High);
    for (reasons, temperature, seconds, expected) in [
        // Idle, power cap, sync boost, display and application clocks.
        (0x001 | 0x002 | 0x004 | 0x010 | 0x100, 95, &[0, 5][..], vec![]),
        (0x040, 70, &[0], throttled(possible)),
        (0x040, 90, &[0], throttled(likely)),
        (0x040, 70, &[0, 5], throttled(likely)),
        (0x020, 90, &[0, 5], throttled(high)),
        (0x080, 95, &[0], throttled(possible)),
        (0x008, 70, &[0, 4], throttled(possible)),
        (0x008, 70, &[0, 2, 5], throttled(likely)),
    ] {
        let looks = over(seconds, &device(reasons, temperature));
        assert_eq!(found(&looks), expected, "{reasons:#x} {temperature} {seconds:?}");
    }
    let mut looks = over(&[0, 5, 6], &device(0x008, 70));
    looks[1].devices = vec![device(0, 70)];
    assert_eq!(found(&looks), throttled(possible), "it was interrupted");
}

#[test]
fn slow_pcie_link_is_judged_only_at_work() {
    let device = |utilization, state, (generation, width)| {
        with_details(0, |device, details| {
            device.sample.as_mut().unwrap().utilization = Ok(Percent::new(utilization).unwrap());
            device.processes.as_mut().unwrap().push(DeviceProcess {
                memory: Ok(Bytes::from_mib(4)),
                ..listing(super::fixture::device(0, 0, 1), 7, 4).processes.unwrap().remove(0)
            });
            let mut activity = Activity::absent(Absent::NotSupported);
            activity.performance_state = Ok(state);
            details.activity = Some(activity);
            let mut pcie = Pcie::absent(Absent::NotSupported);
            (pcie.generation, pcie.generation_max) = (Ok(generation), Ok(4));
            (pcie.width, pcie.width_max) = (Ok(width), Ok(16));
            details.pcie = Some(pcie);
        })
    };
    let slow = |confidence| vec![(FindingKind::SlowPcie, confidence)];
    for (utilization, state, link, seconds, expected) in [
        (90, 0, (4, 16), &[0, 5][..], vec![]),
        (0, 8, (1, 16), &[0, 5], vec![]),
        (0, 0, (4, 4), &[0, 5], vec![]),
        (90, 8, (1, 16), &[0, 5], vec![]),
        (90, 0, (4, 4), &[0], slow(Confidence::Possible)),
        (90, 2, (4, 4), &[0, 5], slow(Confidence::Likely)),
        (1, 0, (3, 16), &[0, 5], slow(Confidence::Likely)),
    ] {
        let looks = over(seconds, &device(utilization, state, link));
        let looks: Vec<Snapshot> = looks
            .into_iter()
            .map(|mut look| {
                look.processes.insert(Pid(7), Process::from(Ok(process(7, "train"))));
                look
            })
            .collect();
        assert_eq!(found(&looks), expected, "{utilization} {state} {link:?} {seconds:?}");
    }
}

#[test]
fn nvlinks_are_compared_among_equals() {
    let with_links = |index, active: usize, total: usize| {
        with_details(index, |_, details| {
            let link = |nth| {
                let mut link = NvLink::absent(Absent::NotSupported);
                link.active = Ok(nth < active);
                link
            };
            details.nvlinks = Some((0..total).map(link).collect());
        })
    };
    let of = |counts: &[usize]| {
        let devices = (0..).zip(counts).map(|(index, count)| with_links(index, *count, 12));
        found(&[look(devices.collect(), vec![], vec![])])
    };
    let down = |confidence| vec![(FindingKind::NvLinkDown, confidence)];
    assert_eq!(of(&[12, 12, 12, 12]), []);
    assert_eq!(of(&[0, 0, 0, 0]), [], "no bridges");
    assert_eq!(of(&[12, 12, 11, 12]), down(Confidence::Likely));
    assert_eq!(of(&[12, 12, 0]), down(Confidence::Possible), "two of three have a bridge");
    assert_eq!(of(&[12, 12, 12, 0]), down(Confidence::Likely), "the only one without");
    assert_eq!(of(&[12, 6]), down(Confidence::Possible), "which of the two is right?");
    let mut divided = with_links(2, 0, 12);
    (divided.info.mig_enabled, divided.mig) =
        (Ok(true), Err(Fault { kind: ErrorKind::TimedOut, text: "list".into() }));
    let devices = vec![with_links(0, 12, 12), with_links(1, 12, 12), divided];
    assert_eq!(found(&[look(devices, vec![], vec![])]), [], "MIG turns links off");
}

#[test]
fn fabric_that_is_not_ready_keeps_cuda_from_starting() {
    let of = |state, status| {
        alone(with_details(0, |_, details| {
            details.fabric = Some(Fabric { state: Ok(state), status });
        }))
    };
    let none = Err(Absent::NotSupported);
    let down = |confidence| vec![(FindingKind::NvLinkDown, confidence)];
    assert_eq!(of(FabricState::None, none), []);
    assert_eq!(of(FabricState::Completed, Ok(0)), []);
    assert_eq!(of(FabricState::Completed, Ok(999)), down(Confidence::High));
    assert_eq!(of(FabricState::InProgress, none), down(Confidence::Likely));
    assert_eq!(of(FabricState::NotStarted, none), down(Confidence::Likely));
}

#[test]
fn busy_device_without_process_is_reported_if_it_stays_busy() {
    let device = |share, persistence| {
        let mut device = busy(device(0, 4, 16_280), share);
        device.info.persistence = persistence;
        device
    };
    let lone = |confidence| vec![(FindingKind::BusyWithoutProcess, confidence)];
    assert_eq!(found(&over(&[0, 5], &device(94, Ok(true)))), []);
    assert_eq!(found(&over(&[0], &device(100, Ok(true)))), lone(Confidence::Possible));
    assert_eq!(found(&over(&[0, 5], &device(95, Ok(true)))), lone(Confidence::Likely));
    // Each query initialises the device anew.
    assert_eq!(found(&over(&[0, 5], &device(100, Ok(false)))), lone(Confidence::Possible));
    let user = process(7, "python");
    let used = look(vec![device(100, Ok(true))], vec![context(&user, &[0])], vec![user]);
    assert_eq!(found(&[used]), [], "a process uses it");
    let outside =
        Snapshot { sees_host_pids: Ok(false), ..over(&[0], &device(100, Ok(true))).remove(0) };
    assert_eq!(found(&[outside]), [], "a container sees no other process");
}

/// A process of this age in seconds that holds 8 GiB of an idle device.
fn holding(age: Option<u64>, change: impl Fn(&mut ProcessInfo)) -> Snapshot {
    let mut info = process(100, "python");
    info.started_at = match age {
        Some(age) => Ok(Timestamp(1_000_000_000 - age * 1000)),
        None => Err(Absent::NotRecorded),
    };
    change(&mut info);
    let device = listing(device(0, 8202, 16_280), 100, 8192);
    let now = look(vec![device], vec![context(&info, &[0])], vec![info]);
    Snapshot { taken_at: Timestamp(1_000_000_000), ..now }
}

fn later(look: &Snapshot, seconds: u64, cpu: u64) -> Snapshot {
    let mut later = look.clone();
    later.taken_at.0 += seconds * 1000;
    if let Some(Process(Ok(info))) = later.processes.get_mut(&Pid(100)) {
        info.cpu_time = Ok(std::time::Duration::from_secs(1 + cpu));
    }
    later
}

#[test]
fn process_is_a_hoarder_by_time_and_not_by_one_look() {
    let hoards = |confidence| vec![(FindingKind::Hoarder, confidence)];
    assert_eq!(found(&[holding(Some(899), |_| {})]), [], "it may still load");
    assert_eq!(found(&[holding(Some(900), |_| {})]), hoards(Confidence::Possible));
    assert_eq!(found(&[holding(None, |_| {})]), hoards(Confidence::Possible), "age unknown");
    let old = holding(Some(90_000), |_| {});
    let watched = |seconds, cpu| found(&[old.clone(), later(&old, seconds, cpu)]);
    assert_eq!(watched(599, 0), hoards(Confidence::Possible));
    assert_eq!(watched(600, 0), hoards(Confidence::Likely));
    assert_eq!(watched(600, 12), hoards(Confidence::Likely), "it polls");
    assert_eq!(watched(600, 13), [], "it prepares data");
    let reading = holding(Some(90_000), |info| info.state = Ok(ProcessState::Uninterruptible));
    let kinds: Vec<_> = found(&[reading]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [FindingKind::StuckHolder], "it reads or writes a file");
}

#[test]
fn process_with_a_reason_to_wait_is_no_hoarder() {
    let after = |seconds, change: fn(&mut ProcessInfo)| {
        let old = holding(Some(90_000), change);
        found(&[old.clone(), later(&old, seconds, 0)])
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
    assert_eq!(evidence.last().unwrap(), "stopped");
}

#[test]
fn service_is_stopped_by_its_manager() {
    let unlisted = |cgroup: &str| {
        let mut info = process(100, "python");
        info.cgroup = Ok(cgroup.to_owned());
        let device = listing(device(1, 900, 16_280), 100, 890);
        let devices = vec![super::fixture::device(0, 9000, 16_280), device];
        // Listed on another device, so that it is a likely ghost and no certain one.
        let found = diagnose(&[look(devices, vec![context(&info, &[0, 1])], vec![info])]);
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
        diagnose(&[old.clone(), later(&old, 600, 0)]).findings[0].advice[0].clone()
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
    // Another runtime, and names that a user can choose.
    assert_eq!(advice(container, hex, "/system.slice/cri-4c.scope"), reap);
    assert_eq!(advice(container, "--all", "/libpod-x/lxc/--all"), reap);
    let below = "/user.slice/user-1.slice/user@1.service/";
    assert_eq!(advice(job, "4711", &format!("{below}slurm/uid_2/job_4711")), reap);
    assert_eq!(advice(container, hex, &format!("{below}libpod-4c.scope")), reap);
}

#[test]
fn process_that_computes_is_not_offered_for_the_kill() {
    let info = process(100, "python");
    let mut busy = listing(device(0, 900, 16_280), 100, 890);
    busy.processes.as_mut().unwrap()[0].utilization = Ok(Percent::new(50).unwrap());
    let devices = vec![busy, device(1, 9000, 16_280)];
    let finding =
        diagnose(&[look(devices, vec![context(&info, &[0, 1])], vec![info])]).findings.remove(0);
    assert_eq!((finding.kind, finding.confidence), (FindingKind::Ghost, Confidence::Likely));
    assert_eq!(finding.advice, [Advice::AskOwner(0)]);
}

#[test]
fn program_that_just_started_is_no_certain_ghost() {
    let at = |age: u64| {
        let mut info = process(100, "python");
        info.started_at = Ok(Timestamp(1_000_000 - age * 1000));
        found(&[look(vec![device(0, 9000, 16_280)], vec![context(&info, &[0])], vec![info])])
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
    let mut now = look(vec![device(0, 9000, 16_280)], vec![context(&worker, &[0])], vec![worker]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    let findings = diagnose(&[now]).findings;
    let [ghost] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((ghost.kind, ghost.confidence), (FindingKind::Ghost, Confidence::High));
    let signs = ghost.suspects[0].evidence.join("; ");
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
            (device.info.mig_enabled, device.mig) = (Ok(true), Err(fault));
        }
        found(&[look(vec![device], vec![context(&info, &[0])], vec![info])])
    };
    assert_eq!(zombie(false), [(FindingKind::Ghost, Confidence::High)]);
    assert_eq!(
        zombie(true),
        [(FindingKind::Ghost, Confidence::Likely), (FindingKind::ZombieHolder, Confidence::High)]
    );
}

#[test]
fn idle_memory_beside_another_finding_is_still_reported() {
    // Unlisted memory on GPU 0, and much idle memory on GPU 1.
    let mut info = process(100, "python");
    info.started_at = Ok(Timestamp(0));
    let devices = vec![device(0, 2004, 16_280), listing(device(1, 8202, 16_280), 100, 8192)];
    let mut now = look(devices, vec![context(&info, &[0, 1])], vec![info]);
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
    let mut now = look(devices, vec![context(&worker, &[0, 1])], vec![worker]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    let kinds: Vec<_> = found(&[now]).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [FindingKind::Ghost, FindingKind::Orphan]);
}

#[test]
fn unread_processes_are_named_and_root_is_not_told_to_be_root() {
    let unread = |pid, open_files_read| UnreadProcess {
        pid: Pid(pid),
        name: Ok("sshd".into()),
        user: Ok("root".into()),
        reason: Absent::NotPermitted,
        open_files_read,
    };
    let of = |unread: Vec<UnreadProcess>, is_root| {
        let mut now = look(vec![device(0, 9000, 16_280)], vec![], vec![]);
        now.unreadable.add(Absent::NotPermitted, unread.len() as u32);
        (now.unread, now.is_root) = (unread, Ok(is_root));
        let finding = diagnose(&[now]).findings.remove(0);
        (finding.kind, finding.evidence.last().cloned().unwrap(), finding.advice)
    };
    let one = "1 process could not be inspected: 9 sshd (root)".to_owned();
    assert_eq!(
        of(vec![unread(9, false)], false),
        (FindingKind::NotPermitted, one.clone(), vec![Advice::LookAsRoot])
    );
    assert_eq!(of(vec![unread(9, false)], true), (FindingKind::NotPermitted, one, vec![]));
    let many = (1..6).map(|pid| unread(pid, false)).collect();
    let text = "5 processes could not be inspected: 1 sshd (root), 2 sshd (root), \
                3 sshd (root) and others";
    assert_eq!(of(many, false).1, text);
    let (kind, _, advice) = of(vec![unread(9, true)], true);
    assert_eq!(kind, FindingKind::DriverLeak, "its open files were read");
    assert_eq!(advice, [Advice::ResetDevice(0)]);
}

#[test]
fn fault_comes_before_its_consequences() {
    let user = process(7, "python");
    let mut broken = with_details(1, |_, details| {
        details.reset_status =
            Some(ResetStatus { required: Ok(true), drain_recommended: Ok(false) });
    });
    broken.sample.as_mut().unwrap().memory.used = Ok(Bytes::from_mib(9000));
    let devices = vec![device(0, 9000, 16_280), broken];
    let kinds: Vec<_> = found(&[look(devices, vec![context(&user, &[0])], vec![user])])
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, [FindingKind::DeviceFault, FindingKind::Ghost, FindingKind::DriverLeak]);
}

#[test]
fn defective_device_is_not_free() {
    let free = |change: fn(&mut MemoryHealth)| {
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        change(&mut health);
        let device = with_details(0, |_, details| details.memory_health = Some(health.clone()));
        let now = look(vec![device], vec![], vec![]);
        Usage::of(&now).is_free(now.devices[0].id())
    };
    assert!(free(|_| {}));
    assert!(free(|health| health.remapped_pending = Ok(true)), "it works until the reset");
    assert!(!free(|health| health.remapped_failure = Ok(true)));
    assert!(!free(|health| health.uncorrected = Ok(2)));
}

#[test]
fn defects_are_described_and_ordered_by_their_effect() {
    let device = with_details(0, |device, details| {
        let mut modes = Modes::absent(Absent::NotSupported);
        modes.compute_mode = Ok(ComputeMode::Prohibited);
        (modes.ecc, modes.ecc_pending) = (Ok(false), Ok(true));
        (device.info.mig_enabled, modes.mig_pending) = (Ok(true), Ok(false));
        details.modes = Some(modes);
        let mut health = MemoryHealth::absent(Absent::NotSupported);
        (health.uncorrected, health.remapped_failure) = (Ok(2), Ok(true));
        health.remapped_pending = Ok(true);
        details.memory_health = Some(health);
        details.reset_status =
            Some(ResetStatus { required: Ok(true), drain_recommended: Ok(true) });
    });
    let words: Vec<String> = defects(&device).iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "MIG enabled without an instance: CUDA sees no device",
            "requires a reset",
            "compute mode Prohibited: CUDA cannot use it",
            "a memory row could not be remapped",
            "2 uncorrected memory errors",
            "the driver recommends a reset when idle",
            "MIG will be disabled after a reset",
            "ECC will be enabled after a reset",
            "a memory repair takes effect at the next reset",
        ]
    );
    assert_eq!(Defect::Uncorrected(1).to_string(), "1 uncorrected memory error");
    assert_eq!(unfit(&device), Some(Defect::NoMigInstance));
}

#[test]
fn kinds_have_their_serialised_names() {
    for kind in FindingKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(kind.name().parse(), Ok(Ignored { kind, device: None }));
    }
    assert!(FindingKind::ALL.is_sorted());
    let on = |text: &str| text.parse::<Ignored>();
    let kind = FindingKind::NvLinkDown;
    assert_eq!(on("nvlink-down:3"), Ok(Ignored { kind, device: Some(3) }));
    assert_eq!(on("ghost:x"), Err("'x' is not a GPU index".to_owned()));
    assert!(on("gohst").unwrap_err().starts_with("'gohst' is not a kind of finding; expected "));
    for (text, level) in [
        ("possible", Ok(Confidence::Possible)),
        ("likely", Ok(Confidence::Likely)),
        ("high", Ok(Confidence::High)),
        ("sure", Err("expected possible, likely or high".to_owned())),
    ] {
        assert_eq!(text.parse(), level);
    }
}

#[test]
fn known_and_doubtful_findings_are_left_out() {
    let kept = |least, ignored: &[&str]| {
        let ignored: Vec<Ignored> = ignored.iter().map(|text| text.parse().unwrap()).collect();
        let info = process(100, "python");
        let devices = [0, 1].map(|index| listing(device(index, 8202, 16_280), 100, 8192));
        let mut diagnosis =
            diagnose(&[look(devices.into(), vec![context(&info, &[0, 1])], vec![info])]);
        diagnosis.retain(least, &ignored);
        assert_eq!(diagnosis.findings.len() + diagnosis.left_out, 1);
        diagnosis.findings.len()
    };
    assert_eq!(kept(Confidence::Possible, &[]), 1, "a hoarder of GPUs 0 and 1");
    assert_eq!(kept(Confidence::Likely, &[]), 0);
    assert_eq!(kept(Confidence::Possible, &["ghost"]), 1);
    assert_eq!(kept(Confidence::Possible, &["hoarder"]), 0);
    assert_eq!(kept(Confidence::Possible, &["hoarder:0"]), 1, "it is on GPU 1 too");
    assert_eq!(kept(Confidence::Possible, &["hoarder:0", "hoarder:1"]), 0);
}

#[test]
fn unverified_services_keep_a_device_free_up_to_a_bound_together() {
    let free = |services: &[Option<u64>]| {
        let mut now = look(vec![device(0, 4, 16_280)], vec![], vec![]);
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
    let watched = |seconds| found(&[one.clone(), later(&one, seconds, 0)]);
    assert_eq!(watched(599), [(FindingKind::Orphan, Confidence::Likely)]);
    assert_eq!(watched(600), [(FindingKind::Orphan, Confidence::High)]);
}
