//! The targets of a plan, its refusals, and the memory that it expects.

mod scopes;

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

fn guard(own: &[u32], protect: Vec<Protect>) -> Guard {
    let own: Vec<ProcessKey> =
        own.iter().map(|pid| ProcessKey { pid: Pid(*pid), start: Some(StartTime(1)) }).collect();
    let mut host = MockHost::new();
    host.expect_own_ancestry().returning(move || Ok(own.clone()));
    Guard::new(&host, protect).unwrap()
}

fn ghost() -> (Snapshot, Vec<ProcessInfo>) {
    let decoder = process(100, "t2t-decoder");
    let listed = process(101, "python");
    let monitor = process(67, "argusagent");
    let shell = process(2, "bash");
    let everyone = vec![decoder.clone(), listed.clone(), monitor.clone(), shell];
    let devices =
        vec![device(0, 15_849, 16_280), busy(listing(device(1, 5000, 16_280), 101, 4990), 9)];
    let holders = vec![
        context(&decoder, &[0]),
        context(&listed, &[1]),
        holder(&monitor, &[("/dev/nvidia0", "F....")]),
    ];
    (snapshot_of(devices, holders, everyone.clone()), everyone)
}

fn planned(snapshots: &[Snapshot], guard: &Guard, request: &Request<'_>) -> Plan {
    plan(snapshots, &diagnose(snapshots), guard, request)
}

fn targets(plan: &Plan) -> Vec<u32> {
    plan.targets.iter().map(|target| target.key.pid.0).collect()
}

#[test]
fn only_high_confidence_suspects_are_default_targets() {
    let (snapshot, _) = ghost();
    let plan = planned(&[snapshot], &guard(&[], vec![]), &Request::default());
    assert_eq!(targets(&plan), [100]);
    assert_eq!(plan.refused, []);
    assert_eq!(plan.expected.len(), 1);
    assert_eq!(plan.expected[0].memory, Some(Bytes::from_mib(15_849)));
}

#[test]
fn suspect_must_appear_in_every_snapshot() {
    let (now, _) = ghost();
    let mut before = now.clone();
    before.devices[0] = device(0, 25, 16_280);
    let plan = planned(&[before, now], &guard(&[], vec![]), &Request::default());
    assert_eq!(targets(&plan), [] as [u32; 0]);
}

#[test]
fn device_and_user_filters_only_narrow() {
    let (snapshot, _) = ghost();
    let guard = guard(&[], vec![]);
    let narrowed =
        |request: Request<'_>| targets(&planned(std::slice::from_ref(&snapshot), &guard, &request));
    let on = |index: usize| vec![snapshot.devices[index].id().clone()];
    assert_eq!(narrowed(Request { devices: on(0), ..Request::default() }), [100]);
    assert_eq!(narrowed(Request { devices: on(1), ..Request::default() }), [] as [u32; 0]);
    assert_eq!(narrowed(Request { users: vec!["user".into()], ..Request::default() }), [100]);
    assert_eq!(narrowed(Request { users: vec!["1000".into()], ..Request::default() }), [100]);
    assert_eq!(
        narrowed(Request { users: vec!["other".into()], ..Request::default() }),
        [] as [u32; 0]
    );
}

#[test]
fn pid_reaches_listed_but_not_protected_process() {
    let (snapshot, _) = ghost();
    let refusal = |guard: &Guard, pid: u32| {
        let request = Request { pids: vec![Pid(pid)], ..Request::default() };
        let plan = planned(std::slice::from_ref(&snapshot), guard, &request);
        plan.refused.first().map(|refused| refused.why.clone()).ok_or(targets(&plan))
    };
    let open = guard(&[], vec![]);
    assert_eq!(refusal(&open, 101), Err(vec![101]));
    assert_eq!(refusal(&open, 67), Ok(Refusal::Role(Role::Monitor)));
    assert_eq!(refusal(&open, 1), Ok(Refusal::Init));
    assert_eq!(refusal(&open, 4711), Ok(Refusal::NotSeen));
    assert_eq!(refusal(&guard(&[101], vec![]), 101), Ok(Refusal::OwnAncestry));
    for protect in [
        Protect::Pid(Pid(101)),
        Protect::Name("python".into()),
        Protect::User("user".into()),
        Protect::User("1000".into()),
    ] {
        assert_eq!(refusal(&guard(&[], vec![protect]), 101), Ok(Refusal::Protected));
    }
}

#[test]
fn process_without_start_time_is_not_a_target() {
    let (mut snapshot, _) = ghost();
    let mut info = process(100, "t2t-decoder");
    info.key.start = None;
    snapshot.holders = Ok(vec![context(&info, &[0])]);
    snapshot.processes.insert(Pid(100), Process::from(Ok(info)));
    let request = Request { pids: vec![Pid(100)], ..Request::default() };
    let plan = planned(&[snapshot], &guard(&[], vec![]), &request);
    assert_eq!(plan.refused[0].why, Refusal::UnknownIdentity);
}

#[test]
fn plan_warns_if_target_is_computing() {
    let (before, _) = ghost();
    let mut now = before.clone();
    now.taken_at = Timestamp(before.taken_at.0 + 500);
    let mut busy = process(100, "t2t-decoder");
    busy.cpu_time = Ok(std::time::Duration::from_millis(1400));
    now.processes.insert(Pid(100), Process::from(Ok(busy)));
    let plan = planned(&[before, now], &guard(&[], vec![]), &Request::default());
    assert!(plan.targets[0].warnings[0].contains("400 ms CPU time in the last 500 ms"), "{plan:?}");
}

#[test]
fn shared_unexplained_memory_is_not_expected_back() {
    let (mut snapshot, _) = ghost();
    let other = process(105, "python");
    let mut holders = snapshot.holders().to_vec();
    holders.push(context(&other, &[0]));
    snapshot.holders = Ok(holders);
    snapshot.processes.insert(Pid(105), Process::from(Ok(other)));
    let request = Request { pids: vec![Pid(100)], ..Request::default() };
    let plan = planned(&[snapshot], &guard(&[], vec![]), &request);
    assert_eq!(plan.expected[0].memory, None);
}

#[test]
fn guard_requires_own_ancestry() {
    let mut host = MockHost::new();
    host.expect_own_ancestry()
        .returning(|| Err(Error::new(ProcessFault::NotPermitted, "read own line")));
    assert!(Guard::new(&host, vec![]).is_err());
}

#[test]
fn protection_matches_truncated_name() {
    let (mut snapshot, _) = ghost();
    let info = process(100, "averylongserver");
    snapshot.holders = Ok(vec![context(&info, &[0])]);
    snapshot.processes.insert(Pid(100), Process::from(Ok(info)));
    let protect = vec![Protect::Name("averylongservername".into())];
    let plan = planned(&[snapshot], &guard(&[], protect), &Request::default());
    assert_eq!(plan.refused[0].why, Refusal::Protected);
}

#[test]
fn display_is_refused_even_by_pid() {
    let mut x = process(700, "Xorg");
    x.uid = Ok(0);
    let snapshot = snapshot_of(vec![device(0, 9000, 16_280)], vec![context(&x, &[0])], vec![x]);
    let request = Request { pids: vec![Pid(700)], ..Request::default() };
    let plan = planned(&[snapshot], &guard(&[], vec![]), &request);
    assert_eq!(plan.refused[0].why, Refusal::Role(Role::Display));
}

#[test]
fn pid_reused_since_the_choice_is_refused() {
    let (snapshot, everyone) = ghost();
    let known = everyone[0].key;
    let chosen = |start: Option<u64>| {
        let seen = vec![ProcessKey { start: start.map(StartTime), ..known }];
        let request = Request { pids: vec![known.pid], seen, ..Request::default() };
        let plan = planned(std::slice::from_ref(&snapshot), &guard(&[], vec![]), &request);
        let refused = plan.refused.iter().map(|refused| refused.why.clone()).collect::<Vec<_>>();
        (targets(&plan), refused)
    };
    let StartTime(start) = known.start.unwrap();
    assert_eq!(chosen(Some(start)), (vec![100], vec![]));
    assert_eq!(chosen(Some(start + 1)), (vec![], vec![Refusal::NotTheSame]));
    assert_eq!(chosen(None), (vec![], vec![Refusal::UnknownIdentity]));
}

#[test]
fn unreadable_processes_make_expected_memory_unknown() {
    let (mut snapshot, _) = ghost();
    snapshot.unreadable.count(Absent::NotPermitted);
    let plan = planned(&[snapshot], &guard(&[], vec![]), &Request::default());
    assert_eq!(targets(&plan), [100]);
    assert_eq!(plan.expected[0].memory, None);
}

#[test]
fn monitor_with_host_pid_is_still_a_monitor() {
    let monitor = process(67, "argusagent");
    let held = holder(&monitor, &[("/dev/nvidia0", "F....")]);
    let device = listing(device(0, 5000, 16_280), 67, 4990);
    let mut inside = snapshot_of(vec![device], vec![held], vec![monitor]);
    inside.sees_host_pids = Ok(false);
    let request = Request { pids: vec![Pid(67)], ..Request::default() };
    let plan = planned(&[inside], &guard(&[], vec![]), &request);
    assert_eq!(plan.refused[0].why, Refusal::Role(Role::Monitor));
}

#[test]
fn merely_opened_device_is_not_expected_to_free_memory() {
    let worker = process(101, "python");
    let held = holder(
        &worker,
        &[("/dev/nvidia0", "F...m"), ("/dev/nvidia1", "F...."), ("/dev/nvidia-uvm", "F....")],
    );
    let devices = vec![busy(listing(device(0, 5000, 16_280), 101, 4990), 9), device(1, 25, 16_280)];
    let snapshot = snapshot_of(devices, vec![held], vec![worker]);
    let request = Request { pids: vec![Pid(101)], ..Request::default() };
    let plan = planned(&[snapshot], &guard(&[], vec![]), &request);
    assert_eq!(
        plan.targets[0].membership,
        Membership::Holds(vec!["/dev/nvidia0".into(), "/dev/nvidia1".into()])
    );
    let expected: Vec<u32> = plan.expected.iter().map(|expected| expected.device.index).collect();
    assert_eq!(expected, [0]);
}

#[test]
fn orphan_is_a_target_only_by_its_pid() {
    let mut worker = process(30, "python");
    (worker.parent, worker.group, worker.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
    worker.command_line = Ok(["--multiprocessing-fork".to_owned()].into());
    let device = listing(device(0, 5000, 16_280), 30, 4990);
    let mut now = snapshot_of(vec![device], vec![context(&worker, &[0])], vec![worker]);
    now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
    // It may continue without its parent.
    let plan = planned(&[now.clone()], &guard(&[], vec![]), &Request::default());
    assert!(targets(&plan).is_empty());
    let request = Request { pids: vec![Pid(30)], ..Request::default() };
    let plan = planned(&[now], &guard(&[], vec![]), &request);
    assert_eq!(targets(&plan), [30]);
    assert_eq!(plan.expected[0].memory, Some(Bytes::from_mib(4990)));
}

#[test]
fn selected_suspects_are_confirmed_by_every_snapshot() {
    let (now, everyone) = ghost();
    let mut before = now.clone();
    before.devices[0] = device(0, 25, 16_280);
    let key = everyone[0].key;
    let chosen = |snapshots: &[Snapshot], kind, key| {
        let request = Request { suspects: vec![(kind, key)], ..Request::default() };
        targets(&planned(snapshots, &guard(&[], vec![]), &request))
    };
    let ghost = FindingKind::Ghost;
    assert_eq!(chosen(&[now.clone(), now.clone()], ghost, key), [100]);
    assert_eq!(chosen(&[before, now.clone()], ghost, key), [0_u32; 0]);
    assert_eq!(
        chosen(std::slice::from_ref(&now), FindingKind::Hoarder, key),
        [0_u32; 0],
        "another kind"
    );
    let reused = ProcessKey { start: Some(StartTime(9_999)), ..key };
    assert_eq!(chosen(std::slice::from_ref(&now), ghost, reused), [0_u32; 0], "another process");
    let listed = everyone[1].key;
    assert_eq!(chosen(std::slice::from_ref(&now), ghost, listed), [0_u32; 0], "no suspect");
    // A protected process is spared, however it was selected.
    let request = Request { suspects: vec![(ghost, key)], ..Request::default() };
    let plan = planned(&[now], &guard(&[], vec![Protect::Pid(Pid(100))]), &request);
    assert_eq!((targets(&plan), plan.refused.len()), (vec![], 1));
}

#[test]
fn selected_orphan_is_a_target_unless_named_like_a_daemon() {
    for (name, expected) in [("python", &[30][..]), ("nvidia-cuda-mps", &[])] {
        let mut worker = process(30, name);
        (worker.parent, worker.group, worker.session) = (Ok(Pid(1)), Ok(Pid(20)), Ok(Pid(20)));
        worker.command_line = Ok(["--multiprocessing-fork".to_owned()].into());
        let key = worker.key;
        let device = listing(device(0, 5000, 16_280), 30, 4990);
        let mut now = snapshot_of(vec![device], vec![context(&worker, &[0])], vec![worker]);
        now.processes.insert(Pid(20), Process::from(Err(Absent::NotFound)));
        let request = Request { suspects: vec![(FindingKind::Orphan, key)], ..Request::default() };
        let plan = planned(&[now.clone(), now], &guard(&[], vec![]), &request);
        assert_eq!(targets(&plan), expected, "{name}");
    }
}

#[test]
fn ghost_of_other_process_does_not_change_expected_memory() {
    let (mut now, _) = ghost();
    now.devices[0] = listing(device(0, 15_000, 16_280), 101, 4990);
    let listed = process(101, "python");
    let decoder = process(100, "t2t-decoder");
    now.holders = Ok(vec![context(&listed, &[0]), context(&decoder, &[0])]);
    let request = Request { pids: vec![Pid(101)], ..Request::default() };
    let plan = planned(&[now], &guard(&[], vec![]), &request);
    assert_eq!(targets(&plan), [101]);
    let expected = &plan.expected[0];
    assert_eq!(expected.memory, Some(Bytes::from_mib(4990)));
    assert_eq!(expected.unexplained, Bytes(0));
}

#[test]
fn zombie_with_live_threads_is_a_default_target() {
    let mut zombie = process(9, "train");
    (zombie.state, zombie.live_threads) = (Ok(ProcessState::Zombie), Ok(3));
    let devices = vec![listing(device(0, 500, 16_280), 9, 490)];
    let now = snapshot_of(devices, vec![context(&zombie, &[0])], vec![zombie]);
    let plan = planned(&[now], &guard(&[], vec![]), &Request::default());
    assert_eq!(targets(&plan), [9]);
    assert_eq!(plan.targets[0].why, "zombie with live threads");
}

#[test]
fn target_without_known_memory_may_free_any_amount() {
    // Process 105 maps the device too, so that no part of its memory is certainly that of 100.
    let (mut now, _) = ghost();
    now.devices[0] = listing(device(0, 15_849, 16_280), 101, 30);
    let (first, second) = (process(100, "t2t-decoder"), process(105, "python"));
    let listed = process(101, "python");
    now.holders = Ok(vec![context(&first, &[0]), context(&second, &[0]), context(&listed, &[0])]);
    now.processes.insert(Pid(105), Process::from(Ok(second)));
    let request = Request { pids: vec![Pid(100), Pid(101)], ..Request::default() };
    let plan = planned(&[now], &guard(&[], vec![]), &request);
    assert_eq!((plan.expected[0].memory, plan.expected[0].unexplained), (None, Bytes(0)));

    // A listed process without memory cannot free any.
    let idle = process(101, "python");
    let device = listing(device(0, 25, 16_280), 101, 0);
    let now = snapshot_of(vec![device], vec![context(&idle, &[0])], vec![idle]);
    let request = Request { pids: vec![Pid(101)], ..Request::default() };
    let plan = planned(&[now], &guard(&[], vec![]), &request);
    assert_eq!(plan.expected[0].memory, None);
}

#[test]
fn successor_of_ended_listed_process_is_a_default_target() {
    let successor = process(51, "python");
    let devices = vec![listing(device(0, 5000, 16_280), 50, 4990)];
    let mut now = snapshot_of(devices, vec![context(&successor, &[0])], vec![successor]);
    now.processes.insert(Pid(50), Process::from(Err(Absent::NotFound)));
    let plan = planned(&[now], &guard(&[], vec![]), &Request::default());
    assert_eq!(targets(&plan), [51]);
    assert_eq!(plan.targets[0].why, "child of a listed process that exited");
}

#[test]
fn suspect_with_only_open_device_is_expected_to_free_memory() {
    let info = process(100, "python");
    let held = holder(&info, &[("/dev/nvidia0", "F...."), ("/dev/nvidia-uvm", "F....")]);
    let now = snapshot_of(vec![device(0, 9000, 16_280)], vec![held], vec![info]);
    let request = Request { pids: vec![Pid(100)], ..Request::default() };
    let plan = planned(&[now], &guard(&[], vec![]), &request);
    assert_eq!(targets(&plan), [100]);
    assert_eq!(plan.expected[0].memory, Some(Bytes::from_mib(9000)));
}

#[test]
fn every_requested_process_is_a_target() {
    let (snapshot, _) = ghost();
    let request = Request { pids: vec![Pid(100), Pid(101)], ..Request::default() };
    assert_eq!(targets(&planned(&[snapshot], &guard(&[], vec![]), &request)), [100, 101]);
}

#[test]
fn plan_warns_if_no_signal_ends_target() {
    let warnings = |state| {
        let (mut snapshot, _) = ghost();
        let info = ProcessInfo { state: Ok(state), ..process(100, "t2t-decoder") };
        snapshot.processes.insert(Pid(100), Process::from(Ok(info)));
        let request = Request { pids: vec![Pid(100)], ..Request::default() };
        planned(&[snapshot], &guard(&[], vec![]), &request).targets.remove(0).warnings
    };
    assert_eq!(warnings(ProcessState::Sleeping), [""; 0]);
    let why = "it is in state D: no signal ends it before the wait ends";
    assert_eq!(warnings(ProcessState::Uninterruptible), [why]);
}
