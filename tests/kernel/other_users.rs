//! Real processes of other users, with chosen names and terminals.

use super::recheck::python;
use super::{Bench, ghost, skip, targets};
use gpu_core::*;
use gpu_reaper::*;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// An unused UID.
const STRANGER: u32 = 54_321;

/// Returns whether this test can act as another user; prints a message if it cannot.
pub(crate) fn is_root(test: &str) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own_uid(&own) == 0);
    if !root {
        skip(test, "needs root");
    }
    root
}

fn own_uid(metadata: &std::fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::uid(metadata)
}

/// Opens and maps the device like a CUDA program, under a chosen name.
const NAMED: &str = r#"
import mmap, os, sys, time
gpu = os.open('dev/nvidia0', os.O_RDWR)
uvm = os.open('dev/nvidia-uvm', os.O_RDWR)
mapped = mmap.mmap(gpu, 4096)
with open('/proc/self/comm', 'w') as comm:
    comm.write(sys.argv[1])
os.write(1, b'ready')
time.sleep(600)
"#;

/// Returns a plan to end one process by PID.
fn planned(bench: &Bench, pid: Pid) -> Plan {
    bench.plan(&Request { pids: vec![pid], ..ghost(5) }).0
}

#[track_caller]
fn assert_is_a_user(bench: &mut Bench, pid: Pid, name: &str) {
    bench.listed = vec![(pid, Bytes::from_mib(15_000))];
    let snapshot = bench.snapshot();
    assert_eq!(snapshot.process(pid).unwrap().name, name, "as shown by the kernel");
    assert!(!Usage::of(&snapshot).is_free(snapshot.devices[0].id()), "{name} uses the device");
    let plan = planned(bench, pid);
    assert_eq!((targets(&plan), plan.refused), (vec![pid], vec![]), "{name} can be ended");
}

#[test]
fn user_process_named_like_a_daemon_uses_the_device() {
    const TEST: &str = "user_process_named_like_a_daemon_uses_the_device";
    if !is_root(TEST) {
        return;
    }
    for name in ["nvidia-cuda-mps", "nvidia-persiste", "Xorg"] {
        let mut bench = Bench::new();
        let Some(mut python) = python(TEST) else { return };
        let pid = bench.ready(python.args(["-c", NAMED, name]).uid(STRANGER).gid(STRANGER));
        assert_is_a_user(&mut bench, pid, name);
    }
}

#[test]
fn user_program_called_like_a_daemon_uses_the_device() {
    const TEST: &str = "user_program_called_like_a_daemon_uses_the_device";
    if !is_root(TEST) {
        return;
    }
    let mut bench = Bench::new();
    let Some(mut python) = python(TEST) else { return };
    // The user's own program with the right name.
    let program = bench.dir.path().join("nvidia-cuda-mps-server");
    super::copy_program(python.get_program().as_ref(), &program);
    std::os::unix::fs::chown(&program, Some(STRANGER), Some(STRANGER)).unwrap();
    python = Command::new(&program);
    // The interpreter finds its library next to the installed one.
    python.env("PYTHONHOME", "/usr");
    let name = "nvidia-cuda-mps";
    let pid = bench.ready(python.args(["-c", NAMED, name]).uid(STRANGER).gid(STRANGER));
    assert_is_a_user(&mut bench, pid, name);
}

#[test]
fn user_option_spares_other_users_of_the_group() {
    const TEST: &str = "user_option_spares_other_users_of_the_group";
    if !is_root(TEST) || !Path::new("/usr/bin/setpriv").exists() {
        return skip(TEST, "needs root and setpriv");
    }
    let mut bench = Bench::new();
    let as_stranger = format!("setpriv --reuid={STRANGER} --regid={STRANGER} --clear-groups");
    let pid = bench.context(&format!("{as_stranger} sleep 602 & "));
    let find = |everyone: &[ProcessInfo]| {
        let theirs = |p: &&ProcessInfo| p.group == Ok(pid) && p.uid == Ok(STRANGER);
        everyone.iter().find(theirs).map(|process| process.key.pid)
    };
    let mut everyone = bench.everyone();
    let mut tries = 0;
    while find(&everyone).is_none() && tries < 500 {
        gpu_host::SystemClock::new().sleep(std::time::Duration::from_millis(10));
        (everyone, tries) = (bench.everyone(), tries + 1);
    }
    let stranger = find(&everyone).expect("the other user's process is in the group");
    let scope = Scope::Group(&everyone);
    let all = bench.plan(&Request { scope, ..ghost(5) }).0;
    assert_eq!(targets(&all), [pid, stranger]);
    let users = vec!["0".to_owned()];
    let (plan, guard) = bench.plan(&Request { scope, users, ..ghost(5) });
    assert_eq!(targets(&plan), [pid]);
    assert_eq!(plan.left_out[0].pid, stranger);
    let (report, audit) = bench.execute(&plan, &guard);
    assert!(report.is_complete(), "skipped processes are not newcomers: {report:?}");
    assert!(bench.lives(stranger) && !audit.contains(&format!("\"pid\":{stranger},")), "{audit}");
    Command::new("kill").arg(stranger.to_string()).status().unwrap();
}

#[test]
fn container_scope_spares_a_shell_at_a_terminal() {
    const TEST: &str = "container_scope_spares_a_shell_at_a_terminal";
    if !Path::new("/usr/bin/script").exists() {
        return skip(TEST, "there is no script(1)");
    }
    let mut bench = Bench::new();
    let holder = bench.context("");
    // script(1) starts a shell as the leader of a session on its own terminal.
    let mut terminal = Command::new("script");
    let shell = "printf ready; exec sleep 603";
    bench.ready(terminal.args(["-q", "-c", shell, "/dev/null"]));
    let everyone = bench.everyone();
    let script = Pid(bench.children.last().unwrap().id());
    let shell = everyone.iter().find(|p| p.parent == Ok(script)).expect("script started a shell");
    assert_eq!((shell.session, shell.has_terminal), (Ok(shell.key.pid), Ok(true)));
    // The test cannot create a Slurm job, so it simulates that both processes are in one.
    const JOB: &str = "/system.slice/slurmstepd.scope/job_7";
    let adopt = |mut info: ProcessInfo| {
        if [holder, shell.key.pid].contains(&info.key.pid) {
            let (kind, cgroup) = (WorkloadKind::SlurmJob, JOB.to_owned());
            info.cgroup = Ok(JOB.to_owned());
            info.workload = Some(Box::new(Workload { kind, id: "7".into(), cgroup }));
        }
        info
    };
    let adopted: Vec<ProcessInfo> = everyone.iter().cloned().map(adopt).collect();
    let mut snapshots = [bench.snapshot()];
    let info = snapshots[0].processes.get_mut(&holder).unwrap().info_mut().unwrap();
    *info = adopt(info.clone());
    let guard = Guard::new(&bench.host, Vec::new()).unwrap();
    let scope = Scope::Container(&adopted);
    let request = Request { scope, pids: vec![holder], ..ghost(5) };
    let plan = plan(&snapshots, &diagnose(&snapshots), &guard, &request);
    assert_eq!(targets(&plan), []);
    let why = Refusal::ScopeHolds(shell.key.pid, Box::new(Refusal::LoginSession));
    assert_eq!(plan.refused[0].why, why);
    // If SIGHUP is ignored, the shell outlives its terminal.
    Command::new("kill").arg(shell.key.pid.to_string()).status().unwrap();
}
