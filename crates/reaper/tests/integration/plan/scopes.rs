//! Scopes wider than a process.

use crate::fixture::*;
use crate::plan::{ghost, guard, planned, targets};
use gpu_core::*;
use gpu_reaper::*;

#[test]
fn group_is_targeted_completely_or_not_at_all() {
    let (snapshot, mut everyone) = ghost();
    let mut child = process(110, "worker");
    child.group = Ok(Pid(100));
    everyone.push(child);
    let request = Request { scope: Scope::Group(&everyone), ..Request::default() };
    let open = guard(&[], vec![]);
    let whole = planned(std::slice::from_ref(&snapshot), &open, &request);
    assert_eq!(targets(&whole), [100, 110]);
    let none = planned(std::slice::from_ref(&snapshot), &guard(&[110], vec![]), &request);
    assert_eq!(targets(&none), [] as [u32; 0]);
    assert!(matches!(none.refused[0].why, Refusal::ScopeHolds(Pid(110), _)));
    // A shell that leads the session is in the group: a login session is never ended.
    let mut shell = process(90, "bash");
    shell.group = Ok(Pid(100));
    shell.session = Ok(Pid(90));
    everyone.push(shell);
    let request = Request { scope: Scope::Group(&everyone), ..Request::default() };
    let session = planned(std::slice::from_ref(&snapshot), &open, &request);
    assert_eq!(targets(&session), [] as [u32; 0]);
}

#[test]
fn group_within_session_of_its_user_is_targeted() {
    let (snapshot, mut everyone) = ghost();
    let cgroup = "/user.slice/user-1000.slice/session-3.scope".to_owned();
    let child = ProcessInfo { group: Ok(Pid(100)), cgroup: Ok(cgroup), ..process(110, "worker") };
    everyone.push(child);
    let request = Request { scope: Scope::Group(&everyone), ..Request::default() };
    assert_eq!(targets(&planned(&[snapshot], &guard(&[], vec![]), &request)), [100, 110]);
}

#[test]
fn container_scope_includes_nested_cgroups() {
    let (mut snapshot, _) = ghost();
    let within = |pid: u32, cgroup: &str| {
        let mut info = process(pid, "python");
        info.cgroup = Ok(cgroup.into());
        info
    };
    let mut target = within(100, "/docker/abc");
    let (kind, cgroup) = (WorkloadKind::Container, "/docker/abc".to_owned());
    target.workload = Some(Box::new(Workload { kind, id: "abc".into(), cgroup }));
    snapshot.processes.insert(Pid(100), Process::from(Ok(target.clone())));
    let shell = process(2, "bash");
    let everyone = [target, within(102, "/docker/abc/init"), within(103, "/docker/abcd"), shell];
    let request = Request { scope: Scope::Container(&everyone), ..Request::default() };
    let open = guard(&[], vec![]);
    assert_eq!(targets(&planned(&[snapshot.clone()], &open, &request)), [100, 102]);
    // A login within the container protects it.
    let login = within(104, "/docker/abc/user.slice/session-3.scope");
    let everyone = [&everyone[..], &[login]].concat();
    let request = Request { scope: Scope::Container(&everyone), ..Request::default() };
    let spared = planned(&[snapshot.clone()], &open, &request);
    assert_eq!(targets(&spared), [0; 0], "{spared:?}");
    snapshot.processes.insert(Pid(100), Process::from(Ok(process(100, "t2t-decoder"))));
    let refused = planned(&[snapshot], &open, &request).refused;
    assert_eq!(refused[0].why, Refusal::NoContainer);
}

#[test]
fn process_in_two_scopes_is_one_target() {
    let within = |pid: u32| {
        let mut info = process(pid, "python");
        info.cgroup = Ok("/docker/abc".into());
        let (kind, cgroup) = (WorkloadKind::Container, "/docker/abc".to_owned());
        info.workload = Some(Box::new(Workload { kind, id: "abc".into(), cgroup }));
        info
    };
    let (a, b, c) = (within(100), within(101), within(102));
    let devices = vec![device(0, 9000, 16_280), device(1, 9000, 16_280)];
    let holders = vec![context(&a, &[0]), context(&b, &[1])];
    let everyone = vec![a, b, c, process(2, "bash")];
    let snapshot = snapshot_of(devices, holders, everyone.clone());
    let request = Request { scope: Scope::Container(&everyone), ..Request::default() };
    let plan = planned(&[snapshot], &guard(&[], vec![]), &request);
    assert_eq!(targets(&plan), [100, 101, 102]);
    assert_eq!(plan.expected.len(), 2, "both devices are looked at afterwards");
}

/// A process of another user in the group of process 100.
fn stranger() -> ProcessInfo {
    let mut stranger = process(111, "worker");
    (stranger.uid, stranger.user) = (Ok(1001), Ok("other".into()));
    stranger.group = Ok(Pid(100));
    stranger
}

#[test]
fn user_filter_narrows_group() {
    let (snapshot, mut everyone) = ghost();
    everyone.push(stranger());
    let open = guard(&[], vec![]);
    let scope = Scope::Group(&everyone);
    let all =
        planned(std::slice::from_ref(&snapshot), &open, &Request { scope, ..Request::default() });
    assert_eq!(targets(&all), [100, 111], "without the option the whole group is taken");
    let users = vec!["user".to_owned()];
    let plan = planned(&[snapshot], &open, &Request { scope, users, ..Request::default() });
    assert_eq!(targets(&plan), [100]);
    let left: Vec<_> = plan.left_out.iter().map(|left| (left.pid, left.why.clone())).collect();
    assert_eq!(left, [(Pid(111), Refusal::OtherUser)]);
}

#[test]
fn user_filter_excludes_members_with_unknown_user() {
    let (snapshot, mut everyone) = ghost();
    let absent = Absent::NotPermitted;
    everyone.push(ProcessInfo { uid: Err(absent), user: Err(absent), ..stranger() });
    let (scope, users) = (Scope::Group(&everyone), vec!["1000".to_owned()]);
    let request = Request { scope, users, ..Request::default() };
    let plan = planned(&[snapshot], &guard(&[], vec![]), &request);
    assert_eq!(targets(&plan), [100]);
}

#[test]
fn scope_is_refused_if_list_lacks_target() {
    let (snapshot, everyone) = ghost();
    let others: Vec<ProcessInfo> =
        everyone.into_iter().filter(|info| info.key.pid != Pid(100)).collect();
    for scope in [Scope::Group(&[]), Scope::Group(&others)] {
        let request = Request { scope, ..Request::default() };
        let plan = planned(std::slice::from_ref(&snapshot), &guard(&[], vec![]), &request);
        assert_eq!(targets(&plan), [] as [u32; 0]);
        assert_eq!(plan.refused[0].why, Refusal::ScopeNotSeen);
    }
}

#[test]
fn scope_is_refused_if_parent_of_member_is_missing() {
    let (snapshot, mut everyone) = ghost();
    let member = ProcessInfo { group: Ok(Pid(100)), ..process(110, "worker") };
    for (parent, expected) in [(1, &[100, 110][..]), (200, &[])] {
        let member = ProcessInfo { parent: Ok(Pid(parent)), ..member.clone() };
        everyone.push(member);
        let request = Request { scope: Scope::Group(&everyone), ..Request::default() };
        let plan = planned(std::slice::from_ref(&snapshot), &guard(&[], vec![]), &request);
        assert_eq!(targets(&plan), expected);
        if expected.is_empty() {
            let why = Box::new(Refusal::ParentNotSeen);
            assert_eq!(plan.refused[0].why, Refusal::ScopeHolds(Pid(110), why));
        }
        everyone.pop();
    }
}

/// Turns a process or its parent (the first argument) into a login.
type Login = fn(&mut ProcessInfo, &mut ProcessInfo);

/// Returns the plan for a Slurm job with a holder, and a shell that pam_slurm_adopt put into it.
fn job(login: impl Fn(&mut ProcessInfo, &mut ProcessInfo)) -> Plan {
    const JOB: &str = "/system.slice/slurmstepd.scope/job_7";
    let (mut snapshot, _) = ghost();
    let within = |pid: u32, name: &str, parent: u32| {
        let mut info = process(pid, name);
        info.parent = Ok(Pid(parent));
        info.cgroup = Ok(format!("{JOB}/step_0"));
        let (kind, cgroup) = (WorkloadKind::SlurmJob, JOB.to_owned());
        info.workload = Some(Box::new(Workload { kind, id: "7".into(), cgroup }));
        info
    };
    let batch = ProcessInfo { session: Ok(Pid(99)), ..within(99, "slurm_script", 2) };
    let holder = within(100, "python", 99);
    let mut parent = within(201, "slurmstepd", 1);
    let mut shell = within(202, "bash", 201);
    shell.session = Ok(Pid(202));
    login(&mut parent, &mut shell);
    snapshot.processes.insert(Pid(100), Process::from(Ok(holder.clone())));
    let everyone = [process(2, "slurmstepd"), batch, holder, parent, shell];
    let request = Request { scope: Scope::Container(&everyone), ..Request::default() };
    planned(&[snapshot], &guard(&[], vec![]), &request)
}

#[test]
fn container_scope_excludes_login_sessions() {
    let batch = job(|_, _| {});
    assert_eq!(targets(&batch), [100, 99, 201, 202], "steps of a job lead sessions too");
    let logins: [(&str, Login); 3] = [
        ("child of sshd", |parent, _| parent.name = "sshd".into()),
        ("at a terminal", |_, shell| shell.has_terminal = Ok(true)),
        ("login shell", |_, shell| shell.command_line = Ok(["-bash".to_owned()].into())),
    ];
    for (what, login) in logins {
        let plan = job(login);
        assert_eq!(targets(&plan), [] as [u32; 0], "{what}");
        let why = Refusal::ScopeHolds(Pid(202), Box::new(Refusal::LoginSession));
        assert_eq!(plan.refused[0].why, why, "{what}");
    }
}
