//! The members of the tree, whatever they do to leave it.

use crate::Test;
use crate::fixture::{Fixture, below, eventually, how, number, send};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = &[
    ("processes_outliving_job_are_members", processes_outliving_job_are_members),
    ("process_group_outlives_its_leader", process_group_outlives_its_leader),
    ("orphans_leave_no_zombies", orphans_leave_no_zombies),
    ("copy_of_supervisor_program_is_a_member", copy_of_supervisor_program_is_a_member),
    ("own_children_keep_their_status", own_children_keep_their_status),
];

fn processes_outliving_job_are_members() {
    let fixture = Fixture::new();
    // In its group, in a separate session, two generations down, and a zombie, which is not a member.
    let script = "sleep 1001 & setsid sleep 1002 & (setsid sh -c 'sleep 1003 & exec sleep 1004' &) \
        ; sh -c 'sh -c : & exec sleep 1005' & \
        while [ $(ps -e -o args | grep -c '^sleep 100[1-5]$') -lt 5 ]; do sleep 0.02; done; exit 2";
    assert_eq!(how(&mut fixture.shell("plain", script)), 2);
    let left: Vec<_> =
        fixture.report().into_iter().filter(|line| line.starts_with("left")).collect();
    assert_eq!(left.len(), 5, "{left:?}");
    assert!(left.iter().all(|line| line.contains(" sleep ")), "{left:?}");
    // All but one are orphans.
    assert_eq!(left.iter().filter(|line| line.ends_with("true")).count(), 4, "{left:?}");
    assert_eq!(fixture.count("empty"), 1);
}

fn process_group_outlives_its_leader() {
    let fixture = Fixture::new();
    // After the job's end the supervisor forwards SIGUSR1 to the rest of the group.
    let script = "(trap 'echo message > message' USR1; echo ready > ready; while :; do sleep 0.02; done) \
        2> /dev/null & while [ ! -e ready ]; do sleep 0.02; done; kill -9 $$";
    assert_eq!(how(&mut fixture.shell("tell", script)), 137);
    assert_eq!(fixture.count("alone"), 0);
    assert!(
        fixture.report().iter().any(|line| line.starts_with("left ")),
        "{:?}",
        fixture.report()
    );
    let fixture = Fixture::new();
    assert_eq!(how(&mut fixture.shell("tell", "setsid sleep 1000 & sleep 0.1; exit 2")), 2);
    assert_eq!(fixture.count("alone"), 1, "a process outside the group gets no signal");
}

fn orphans_leave_no_zombies() {
    let fixture = Fixture::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'sleep 0.05' & sh -c 'sleep 0.03' &); \
        done; echo ready > ready; read line; exit 1";
    let mut command = fixture.front("plain", &["sh", "-c", script]);
    let mut front = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    fixture.said("ready");
    let supervisor = fixture.supervisor().as_raw_nonzero().get().unsigned_abs();
    eventually("all are waited for", || below(supervisor).len() == 1);
    drop(front.stdin.take());
    assert_eq!(how(&mut front), 1);
}

fn copy_of_supervisor_program_is_a_member() {
    let fixture = Fixture::new();
    // One leads a session, one a process group in the supervisor's own, as its helper does; a third
    // one like that would leave a zombie.
    let script = "(setsid \"$0\" copy a &); (\"$0\" copy b &); (\"$0\" copy c &); \
        while [ ! -s a ] || [ ! -s b ] || [ ! -s c ]; do sleep 0.02; done; \
        kill -9 $(cat c); echo ready > ready; read line; exit 3";
    let program = std::env::current_exe().unwrap();
    let command = ["sh", "-c", script, program.to_str().unwrap()];
    let mut front = fixture.front("plain,own", &command);
    let mut front = front.stdin(std::process::Stdio::piped()).spawn().unwrap();
    fixture.said("ready");
    let killed: u32 = fixture.said("c").parse().unwrap();
    let supervisor = fixture.supervisor().as_raw_nonzero().get().unsigned_abs();
    eventually("the killed one is waited for", || {
        below(supervisor).iter().all(|seen| seen.pid != killed)
    });
    drop(front.stdin.take());
    assert_eq!(how(&mut front), 3);
    for copy in ["a", "b"].map(|copy| fixture.said(copy)) {
        let left = |line: &&String| line.starts_with(&format!("left {copy} "));
        assert_eq!(
            fixture.report().iter().filter(left).count(),
            1,
            "{copy}: {:?}",
            fixture.report()
        );
    }
    assert_eq!((fixture.count("own [Some(7), Some(8)]"), fixture.count("empty")), (1, 1));
}

fn own_children_keep_their_status() {
    let fixture = Fixture::new();
    // Meanwhile, other processes end, so that the supervisor checks which processes have ended.
    let script = "for i in 1 2 3; do (setsid sh -c 'sleep 0.05' &); sleep 0.1; done; echo $$ > ready; \
        read line";
    let mut front = fixture.front("own", &["sh", "-c", script]);
    let mut front = front.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let job = number(fixture.said("ready").parse().unwrap());
    send(job, Signal::TERM);
    assert_eq!(how(&mut front), -15);
    assert_eq!(fixture.count("own [Some(7), Some(8)]"), 1, "{:?}", fixture.report());
}
