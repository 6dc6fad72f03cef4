//! Helper programs of the supervisor next to its job.

use crate::Test;
use crate::fixture::{all_processes, below, eventually};
use crate::roles::roots;
use gpu_core::{Launch, Launcher};
use gpu_host::supervise::{Companions, LinuxLauncher};
use std::process::Command;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    (
        "companion_is_not_a_job_member_and_leaves_no_zombie",
        companion_is_not_a_job_member_and_leaves_no_zombie,
    ),
    ("companion_without_job_reports_output_and_is_killed", without_job),
];

fn without_job() {
    let shell = |script: &str| Launch {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        ..Launch::default()
    };
    assert!(Companions.launch(&shell("true")).is_err());
    let mut short = Companions.accompany(&shell("echo why; exit 3")).unwrap();
    let mut said = None;
    eventually("it has ended", || {
        said = short.ended().unwrap();
        said.is_some()
    });
    assert_eq!(said.as_deref(), Some("why\n"));
    let mut long = Companions.accompany(&shell("exec sleep 1003")).unwrap();
    let pid = long.pid().0;
    assert_eq!(long.ended().unwrap(), None);
    drop(long);
    let lives = || all_processes().iter().any(|seen| seen.pid == pid && seen.state != 'Z');
    eventually("it is killed", || !lives());
}

fn companion_is_not_a_job_member_and_leaves_no_zombie() {
    let program = std::env::current_exe().unwrap();
    let status = Command::new(program).arg("companions").status().unwrap();
    assert!(status.success(), "{status}");
}

/// Supervises a job with helpers.
pub(crate) fn act() -> i32 {
    let launcher = LinuxLauncher::new(&roots(), None).expect("it can supervise");
    let shell = |script: &str| Launch {
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), script.into()],
        ..Launch::default()
    };
    let mut job = launcher.launch(&shell("exec sleep 1000")).expect("it can be started");
    let mut poll = || assert_eq!(job.next(Duration::from_millis(20)).expect("it lives"), None);
    let mut short = launcher.accompany(&shell("echo why; exit 3")).expect("it can be started");
    let mut long = launcher.accompany(&shell("exec sleep 1001")).expect("it can be started");
    let dropped = launcher.accompany(&shell("exec sleep 1002")).expect("it can be started");
    let (long_pid, dropped_pid) = (long.pid().0, dropped.pid().0);
    // The job's own reaping leaves it alone.
    let mut said = None;
    while said.is_none() {
        poll();
        said = short.ended().expect("it can be watched");
    }
    assert_eq!(said.as_deref(), Some("why\n"));
    // This program, with empty input.
    let again = Launch {
        program: "/proc/self/exe".into(),
        arguments: vec!["helper".into()],
        ..Launch::default()
    };
    let mut again = launcher.accompany(&again).expect("it can be started");
    while again.ended().expect("it can be watched").is_none() {
        poll();
    }
    assert_eq!(long.ended().expect("it can be watched"), None);
    drop(dropped);
    eventually("one that was dropped is waited for", || {
        poll();
        below(std::process::id()).iter().all(|seen| seen.pid != dropped_pid)
    });
    let members = job.members().expect("members can be read");
    assert_eq!(members.len(), 1, "{members:?}");
    assert!(members.iter().all(|member| member.key.pid.0 != long_pid), "{members:?}");
    long.kill();
    while long.ended().expect("it can be watched").is_none() {
        assert_eq!(job.next(Duration::from_millis(20)).expect("it lives"), None);
    }
    drop((short, long, again));
    job.pass(9).expect("it lives");
    while job.next(Duration::from_secs(60)).expect("it is watched").is_none() {}
    assert_eq!(job.members().expect("members can be read"), []);
    0
}
