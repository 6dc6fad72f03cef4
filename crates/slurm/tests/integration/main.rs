//! Cleans a node with fake processes, a fake driver and a fake Slurm.

mod world;

use gpu_core::{ActToken, Pid, Signal};
use gpu_nvidia_driver::drivers;
use gpu_reaper::{Event, Guard, Ports};
use gpu_slurm::{
    Change, Cleaned, Cleaner, Drained, HeldDevice, Job, Phase, change, devices, drain, health,
    reason,
};
use std::ops::ControlFlow;
use std::time::Duration;
use world::{FakeProcess, FakeSlurm, World, device, journal_lines, process};

fn job() -> Job {
    Job { id: "7".to_owned(), uid: 1000, sluid: None, positions: vec![0] }
}

/// Cleans the devices of job 7, and returns the result and the reasons that were reported
/// meanwhile.
fn clean(world: &World, slurm: &FakeSlurm, phase: Phase) -> (Cleaned, Vec<Option<String>>) {
    let (done, notified) = try_clean(world, slurm, phase);
    (done.unwrap(), notified)
}

fn try_clean(
    world: &World,
    slurm: &FakeSlurm,
    phase: Phase,
) -> (gpu_core::Result<Cleaned>, Vec<Option<String>>) {
    try_clean_watching(world, slurm, phase, &mut |_| ())
}

fn try_clean_watching(
    world: &World,
    slurm: &FakeSlurm,
    phase: Phase,
    watch: &mut dyn FnMut(Event<'_>),
) -> (gpu_core::Result<Cleaned>, Vec<Option<String>>) {
    let (host, backend, clock) = (world.host(), world.backend(), world.clock());
    let journal = world.journal();
    let ports = Ports { host: &host, backend: &backend, clock: &clock, journal: &*journal };
    let guard = Guard::new(&host, Vec::new()).unwrap();
    let devices = devices("Gres Name=gpu Count=1 Index=0 File=/dev/nvidia0", &drivers());
    let grace = Duration::from_secs(5);
    let cleaner = Cleaner { ports, slurm, guard: &guard, node: "n1", devices: &devices, grace };
    let mut notified = Vec::new();
    let mut notify = |reason: Option<String>| notified.push(reason);
    let token = ActToken::user_confirmed();
    let done = cleaner.clean(&job(), phase, &token, &mut notify, &mut |event| {
        watch(event);
        ControlFlow::Continue(())
    });
    (done, notified)
}

fn reason_of(cleaned: &Cleaned) -> Option<String> {
    reason(&cleaned.held)
}

#[test]
fn marked_process_is_ended_and_the_controller_is_not_asked() {
    let marked = FakeProcess { mark: Some("7"), ..device(4711, 1000) };
    let worker = FakeProcess { mark: Some("7"), ..process(4712, 1000) };
    let other_job = FakeProcess { mark: Some("8"), ..process(4713, 1000) };
    let other_user = FakeProcess { mark: Some("7"), ..process(4714, 1001) };
    let world = World::new(vec![marked, worker, other_job, other_user]);
    let slurm = FakeSlurm::default();
    let (cleaned, notified) = clean(&world, &slurm, Phase::After);
    assert_eq!(world.signalled(), [(4711, Signal::Term), (4712, Signal::Term)]);
    assert_eq!(reason_of(&cleaned), None);
    assert_eq!(notified[1].as_deref(), Some("gpuws: GPU 0 held by 4711"));
    assert!(slurm.asked().iter().all(|asked| asked == "listpids"), "{:?}", slurm.asked());
    let lines = journal_lines(&world);
    assert!(lines[0].contains(r#""membership":{"job":{"id":"7","uid":1000}}"#), "{lines:?}");
}

#[test]
fn setuid_program_belongs_to_the_job_of_its_starter() {
    let setuid = |pid, started_by| FakeProcess {
        started_by: Some(started_by),
        mark: Some("7"),
        name: "Xorg",
        program: "/usr/bin/ping",
        ..device(pid, 0)
    };
    let world = World::new(vec![setuid(4711, 1000), setuid(4712, 1001)]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!(world.signalled(), [(4711, Signal::Term)]);
    assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4712"));

    let becomes_root = Some(std::sync::Arc::default());
    let world = World::new(vec![FakeProcess { becomes_root, ..setuid(4711, 1000) }]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!(world.signalled(), [], "it is the user's no more");
    assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
}

#[test]
fn unmarked_process_is_ended_if_no_other_job_has_the_device() {
    let world = World::new(vec![device(4711, 5000)]);
    let slurm = FakeSlurm {
        jobs: vec![("7", "gpu:1(IDX:0)"), ("8", "gpu:1(IDX:1)")],
        ..FakeSlurm::default()
    };
    let (cleaned, _) = clean(&world, &slurm, Phase::After);
    assert_eq!(world.signalled(), [(4711, Signal::Term)]);
    assert_eq!(reason_of(&cleaned), None);
    assert!(journal_lines(&world)[0].contains(r#""membership":{"holds":[0]}"#));
}

#[test]
fn process_is_spared_for_other_job_or_silent_slurm() {
    for slurm in [
        FakeSlurm { jobs: vec![("8", "shard:1(IDX:0)")], ..FakeSlurm::default() },
        FakeSlurm { jobs: vec![("8", "shard:1(1/4,0/4)")], ..FakeSlurm::default() },
        FakeSlurm { jobs: vec![("8", "gpu:1")], ..FakeSlurm::default() },
        FakeSlurm { is_away: true, ..FakeSlurm::default() },
        FakeSlurm { tracked: "4711 8 batch 0 0", ..FakeSlurm::default() },
    ] {
        let is_unknown = slurm.is_away || slurm.jobs == [("8", "gpu:1")];
        let world = World::new(vec![device(4711, 1000)]);
        let (cleaned, _) = clean(&world, &slurm, Phase::After);
        assert_eq!(world.signalled(), [], "{slurm:?}");
        assert_eq!(reason_of(&cleaned), None, "{slurm:?}");
        assert_eq!(cleaned.unknown.is_some(), is_unknown, "{slurm:?}");
    }
}

#[test]
fn user_cgroup_named_after_another_job_does_not_protect() {
    const OWN: &str = "/user.slice/user-1000.slice/user@1000.service/x_slurmstepd.scope/job_999999";
    let forged = FakeProcess { job: Some(("999999", OWN)), ..device(4711, 1000) };
    let marked = FakeProcess { mark: Some("7"), pid: 4712, ..forged.clone() };
    let world = World::new(vec![forged, marked]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!(world.signalled(), [(4712, Signal::Term), (4711, Signal::Term)]);
    assert_eq!(reason_of(&cleaned), None);
}

#[test]
fn process_tracked_for_the_ended_job_is_left_over() {
    let tracked = device(4711, 1000);
    let worker = process(4712, 1000);
    let other_user = device(4713, 1001);
    let without_device = process(4714, 1001);
    let world = World::new(vec![tracked, worker, other_user, without_device]);
    let slurm = FakeSlurm {
        tracked: "4711 7 0 - -\n4712 7 0 - -\n4713 7 0 - -\n4714 7 0 - -",
        is_away: true,
        ..FakeSlurm::default()
    };
    let (cleaned, notified) = clean(&world, &slurm, Phase::After);
    let signalled: Vec<u32> = world.signalled().iter().map(|(pid, _)| *pid).collect();
    assert_eq!(signalled, [4711, 4712, 4713]);
    assert_eq!(notified[1].as_deref(), Some("gpuws: GPU 0 held by 4711, 4713"));
    assert_eq!(reason_of(&cleaned), None);
}

#[test]
fn leftover_is_reported_and_ended_before_controller_query() {
    let marked = FakeProcess { mark: Some("7"), ..device(4711, 1000) };
    let world = World::new(vec![marked, device(4712, 5000)]);
    let slurm = FakeSlurm { signals: Some(world.signals.clone()), ..FakeSlurm::default() };
    let (cleaned, notified) = clean(&world, &slurm, Phase::After);
    // Each gets the grace period to end by itself.
    assert_eq!(world.signalled(), [(4711, Signal::Term), (4712, Signal::Term)]);
    let held = |pid: u32| Some(format!("gpuws: GPU 0 held by {pid}"));
    // This is the reason during the scan: a scan that does not end frees no device.
    let unchecked = Some("gpuws: GPU 0 not checked in time".to_owned());
    let mut changes = notified;
    changes.dedup();
    let expected = [unchecked.clone(), held(4711), None, unchecked, held(4712), None];
    assert_eq!(changes, expected);
    assert_eq!(reason_of(&cleaned), None);
    let asked = slurm.asked();
    let first = asked.iter().find(|asked| !asked.ends_with("listpids")).unwrap();
    assert_eq!(first, "after 1 signals: -h -w n1 -o %A %i", "{asked:?}");
}

#[test]
fn leftovers_of_either_kind_have_their_time() {
    let stuck = |pid, uid| FakeProcess { is_immune: true, ..device(pid, uid) };
    let marked = FakeProcess { mark: Some("7"), ..stuck(4711, 1000) };
    let world = World::new(vec![marked, stuck(4712, 5000)]);
    let mut waits = Vec::new();
    let (done, _) = try_clean_watching(&world, &FakeSlurm::default(), Phase::After, &mut |event| {
        if let Event::StillThere(target, waited) = event {
            waits.push((target.key.pid.0, waited.as_secs()));
        }
    });
    assert_eq!(done.unwrap().held[0].pids, [Pid(4711), Pid(4712)]);
    assert_eq!(waits, [(4711, 5), (4711, 5), (4712, 5), (4712, 5)], "after each signal");
}

#[test]
fn process_that_slurm_has_started_meanwhile_is_spared() {
    let world = World::new(vec![device(4711, 5000)]);
    let slurm = FakeSlurm { tracked_later: Some("4711 8 0 - -"), ..FakeSlurm::default() };
    let (cleaned, _) = clean(&world, &slurm, Phase::After);
    assert_eq!((world.signalled(), reason_of(&cleaned)), (vec![], None));
}

#[test]
fn failed_scan_does_not_drain() {
    let world = World { is_unreadable: true, ..World::new(vec![device(4711, 1000)]) };
    let (done, notified) = try_clean(&world, &FakeSlurm::default(), Phase::Before);
    assert!(done.is_err());
    assert_eq!(notified, [Some("gpuws: GPU 0 not checked in time".to_owned()), None]);
}

#[test]
fn unkillable_holder_does_not_hide_another() {
    let stuck = FakeProcess { mark: Some("7"), is_immune: true, ..device(4711, 1000) };
    let world = World::new(vec![stuck, device(4712, 5000)]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    let expected = [(4711, Signal::Term), (4711, Signal::Kill), (4712, Signal::Term)];
    assert_eq!(world.signalled(), expected);
    assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
}

#[test]
fn unsignallable_process_does_not_hide_another() {
    let daemon = FakeProcess { name: "nvidia-persistenced", mark: Some("7"), ..device(4711, 1000) };
    let world = World::new(vec![daemon, device(4712, 5000)]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!(world.signalled(), [(4712, Signal::Term)]);
    assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
}

#[test]
fn tracked_process_of_another_job_of_the_same_user_is_spared() {
    let forged = FakeProcess { mark: Some("7"), ..device(4711, 1000) };
    let world = World::new(vec![forged]);
    let slurm = FakeSlurm { tracked: "4711 8 0 - -", ..FakeSlurm::default() };
    let (cleaned, _) = clean(&world, &slurm, Phase::After);
    assert_eq!((world.signalled(), reason_of(&cleaned)), (vec![], None));
}

#[test]
fn unkillable_process_is_named() {
    let stuck = FakeProcess { mark: Some("7"), is_immune: true, ..device(4711, 1000) };
    let world = World::new(vec![stuck]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!(world.signalled(), [(4711, Signal::Term), (4711, Signal::Kill)], "in one round");
    assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
}

#[test]
fn without_audit_log_holder_is_named_and_not_signalled() {
    let marked = FakeProcess { mark: Some("7"), ..device(4711, 1000) };
    let world = World { has_journal: false, ..World::new(vec![marked]) };
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!(world.signalled(), []);
    assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
}

#[test]
fn process_blocking_its_environment_is_ended_for_its_device() {
    let blocking = FakeProcess { blocks: true, mark: Some("8"), ..device(4711, 1000) };
    let world = World::new(vec![blocking]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!((world.signalled(), reason_of(&cleaned)), (vec![(4711, Signal::Term)], None));
}

#[test]
fn monitor_and_slurm_itself_keep_the_device() {
    let monitor = FakeProcess { uses_uvm: false, ..device(4711, 0) };
    let program = "/usr/sbin/slurmstepd";
    let step = FakeProcess { name: "slurmstepd", program, ..device(4712, 0) };
    let world = World::new(vec![monitor, step]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
    assert_eq!((world.signalled(), reason_of(&cleaned)), (vec![], None));
}

/// Any user can pass the descriptors of a device to the system's message bus, which keeps them.
#[test]
fn daemon_holding_the_device_is_named_never_signalled() {
    for (uid, cgroup) in [
        (0, "/system.slice/dbus.service"),
        (101, "/system.slice/dbus.service"),
        (101, "/"),
        (1000, "/system.slice/vllm.service"),
    ] {
        for phase in [Phase::Before, Phase::After] {
            let daemon = FakeProcess { cgroup, ..device(4711, uid) };
            let world = World::new(vec![daemon]);
            let (cleaned, _) = clean(&world, &FakeSlurm::default(), phase);
            assert_eq!(world.signalled(), [], "{uid} {cgroup}");
            assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
        }
    }
    for (uid, cgroup) in [
        (1000, "/system.slice/slurmd.service"),
        (1000, "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service"),
    ] {
        let world = World::new(vec![FakeProcess { cgroup, ..device(4711, uid) }]);
        clean(&world, &FakeSlurm::default(), Phase::After);
        assert_eq!(world.signalled(), [(4711, Signal::Term)], "{cgroup}");
    }
}

#[test]
fn login_session_holding_device_is_named_never_signalled() {
    for mark in [None, Some("7")] {
        let world = World::new(vec![FakeProcess { is_login: true, mark, ..device(4711, 1000) }]);
        let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::After);
        assert_eq!(world.signalled(), [], "{mark:?}");
        assert_eq!(reason_of(&cleaned).as_deref(), Some("gpuws: GPU 0 held by 4711"));
    }
}

#[test]
fn before_a_job_leftovers_of_earlier_ones_are_ended() {
    let earlier = FakeProcess { mark: Some("6"), ..device(4711, 1000) };
    let own = FakeProcess { mark: Some("7"), ..device(4712, 1000) };
    let world = World::new(vec![earlier, own]);
    let (cleaned, _) = clean(&world, &FakeSlurm::default(), Phase::Before);
    assert_eq!((world.signalled(), reason_of(&cleaned)), (vec![(4711, Signal::Term)], None));
}

#[test]
fn unfreed_memory_is_named() {
    for (comes_back, expected) in
        [(true, None), (false, Some("gpuws: GPU 3 9000 MiB held by no process"))]
    {
        let marked = FakeProcess { mark: Some("7"), ..device(4711, 1000) };
        let world = World { driver: Some(comes_back), ..World::new(vec![marked]) };
        let (cleaned, notified) = clean(&world, &FakeSlurm::default(), Phase::After);
        assert_eq!(world.signalled(), [(4711, Signal::Term)]);
        assert_eq!(reason_of(&cleaned).as_deref(), expected);
        assert_eq!(notified[1].as_deref(), Some("gpuws: GPU 3 9000 MiB held by 4711"));
    }
}

#[test]
fn health_check_names_holders_of_devices_without_a_job() {
    let world = World::new(vec![device(4711, 1000)]);
    let (host, backend, clock) = (world.host(), world.backend(), world.clock());
    let journal = world.journal();
    let ports = Ports { host: &host, backend: &backend, clock: &clock, journal: &*journal };
    let devices = devices("Gres Name=gpu Count=1 Index=0 File=/dev/nvidia0", &drivers());
    let mut notified = Vec::new();
    let mut check = |slurm: &FakeSlurm| {
        health(ports, slurm, "n1", &devices, &mut |reason| notified.push(reason))
            .map(|found| found.held)
    };
    let expected = HeldDevice { index: 0, used: None, pids: vec![Pid(4711)] };
    assert_eq!(check(&FakeSlurm::default()).unwrap(), [expected]);
    let given = FakeSlurm { jobs: vec![("8", "gpu:1(IDX:0)")], ..FakeSlurm::default() };
    assert_eq!(check(&given).unwrap(), []);
    assert!(check(&FakeSlurm { is_away: true, ..FakeSlurm::default() }).is_err());
    // If the first scan does not end, or the second; the query to the controller does not count as
    // a scan.
    let unchecked = || Some("gpuws: GPU 0 not checked in time".to_owned());
    let scan = [unchecked(), None];
    assert_eq!(notified, [&scan[..]; 5].concat(), "two looks twice, and one without an answer");
    assert_eq!(world.signalled(), []);
}

#[test]
fn drain_for_lost_memory_stays_until_the_memory_is_back() {
    const LOST: &str =
        "State=IDLE+DRAIN Reason=gpuws: GPU 3 9000 MiB held by no process [root@2026]";
    const HELD: &str = "State=IDLE+DRAIN Reason=gpuws: GPU 3 9000 MiB held by 4711 [root@2026]";
    let without_driver = Change::Drain("gpuws: GPU 3 held by no process".to_owned());
    for (driver, node, expected) in [
        (Some(false), LOST, Change::None),
        (Some(true), LOST, Change::Resume),
        (None, LOST, without_driver),
        (Some(false), HELD, Change::Resume),
    ] {
        let world = World { driver, ..World::new(Vec::new()) };
        let (host, backend, clock) = (world.host(), world.backend(), world.clock());
        let journal = world.journal();
        let ports = Ports { host: &host, backend: &backend, clock: &clock, journal: &*journal };
        let devices = devices("Gres Name=gpu Count=1 Index=0 File=/dev/nvidia0", &drivers());
        let slurm = FakeSlurm { node, ..FakeSlurm::default() };
        let health = health(ports, &slurm, "n1", &devices, &mut |_| ()).unwrap();
        assert_eq!(change(&health), expected, "{driver:?} {node}");
    }
}

#[test]
fn state_set_by_another_program_stays() {
    let node = |node: &'static str| FakeSlurm { node, ..FakeSlurm::default() };
    for (state, why) in [
        ("State=IDLE+DRAIN Reason=RMA [root@2026]", "RMA"),
        ("State=IDLE+FAIL Reason=ECC [root@2026]", "ECC"),
        ("State=DOWN Reason=RMA [root@2026]", "RMA"),
        ("State=IDLE Reason=ask Carol [root@2026]", "ask Carol"),
        ("State=IDLE+FAIL", "IDLE+FAIL"),
        ("State=DOWN*+DRAIN Reason=gpuws: GPU 1 held by 2 [root@2026]", "DOWN+DRAIN"),
    ] {
        let others = node(state);
        let kept = drain(&others, "n1", "gpuws: GPU 0 held by 1").unwrap();
        assert_eq!(kept, Drained::For(why.to_owned()), "{state}");
        assert!(!others.asked().iter().any(|asked| asked.starts_with("update")), "{state}");
    }
    for state in ["State=IDLE", "State=IDLE+DRAIN Reason=gpuws: GPU 1 held by 2 [root@2026]"] {
        let slurm = node(state);
        assert_eq!(drain(&slurm, "n1", "gpuws: GPU 0 held by 1").unwrap(), Drained::Done);
        let last = slurm.asked().pop().unwrap();
        assert_eq!(last, "update NodeName=n1 State=DRAIN Reason=gpuws: GPU 0 held by 1");
    }
    // The memory of GPU 3 is still lost when the holder of GPU 0 has ended.
    let lost = node("State=IDLE+DRAIN Reason=gpuws: GPU 3 9 MiB held by no process [root@2026]");
    assert_eq!(drain(&lost, "n1", "gpuws: GPU 0 held by 1").unwrap(), Drained::Done);
    let last = lost.asked().pop().unwrap();
    assert!(last.ends_with("Reason=gpuws: GPU 3 9 MiB held by no process; GPU 0 held by 1"));
}
