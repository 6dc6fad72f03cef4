//! The end of the frontend, and of the supervisor.

use crate::Test;
use crate::fixture::{Fixture, all_end, below, how, number, send};
use rustix::process::{Signal, kill_process_group};
use std::os::unix::process::CommandExt;

pub(crate) const TESTS: &[Test] = &[
    ("killed_frontend_ends_tree", killed_frontend_ends_tree),
    ("killed_frontend_keeps_job", killed_frontend_keeps_job),
    ("killed_frontend_in_queue_is_noticed", killed_frontend_in_queue_is_noticed),
    ("frontend_gone_before_start_is_noticed", frontend_gone_before_start_is_noticed),
    ("frontend_ends_orphans_of_killed_supervisor", frontend_ends_orphans_of_killed_supervisor),
    ("orphans_of_killed_supervisor_are_kept", orphans_of_killed_supervisor_are_kept),
    ("frontend_ends_orphans_of_panicked_supervisor", frontend_ends_orphans_of_panicked_supervisor),
    (
        "killing_frontend_group_does_not_kill_supervisor",
        killing_frontend_group_does_not_kill_supervisor,
    ),
    ("preexisting_children_of_frontend_are_kept", preexisting_children_of_frontend_are_kept),
    ("detached_frontend_ends_before_supervisor", detached_frontend_ends_before_supervisor),
];

fn detached_frontend_ends_before_supervisor() {
    let fixture = Fixture::new();
    let script = "trap '' TERM; echo ready > ready; while :; do sleep 1; done";
    let mut front = fixture.shell("dismiss,keep", script);
    fixture.said("ready");
    send(number(front.id()), Signal::TERM);
    assert_eq!(how(&mut front), 9, "it ends with the status that was sent");
    fixture.expect("dismissed true");
    fixture.expect("abandoned");
    // The supervisor lives, and a missing frontend is not a failure.
    send(fixture.supervisor(), Signal::INT);
    fixture.expect("dismissed false");
    let job = below(fixture.supervisor().as_raw_nonzero().get().unsigned_abs());
    for member in job.iter().filter(|member| member.name == "sh") {
        send(number(member.pid), Signal::KILL);
    }
    fixture.expect("empty");
    all_end();
}

fn killed_frontend_ends_tree() {
    let fixture = Fixture::new();
    let script = "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000 & echo ready > ready; wait";
    let mut front = fixture.shell("plain", script);
    fixture.said("ready");
    send(number(front.id()), Signal::KILL);
    assert_eq!(how(&mut front), -9);
    fixture.expect("empty");
    assert_eq!(fixture.count("abandoned"), 1);
    assert_eq!(fixture.count("ended Signal(9)"), 1);
    all_end();
}

fn killed_frontend_keeps_job() {
    let fixture = Fixture::new();
    let script = "echo ready > ready; : < go; exit 8";
    let mut front = fixture.shell("keep", script);
    fixture.said("ready");
    send(number(front.id()), Signal::KILL);
    fixture.expect("abandoned");
    assert_eq!(how(&mut front), -9);
    fixture.go();
    fixture.expect("empty");
    assert_eq!(fixture.count("ended Code(8)"), 1);
    assert_eq!(fixture.count("abandoned"), 1, "it is reported once");
    all_end();
}

fn killed_frontend_in_queue_is_noticed() {
    let fixture = Fixture::new();
    let mut front = fixture.front("queue", &["true"]).spawn().unwrap();
    fixture.expect("queues");
    send(number(front.id()), Signal::KILL);
    assert_eq!(how(&mut front), -9);
    fixture.expect("abandoned");
    all_end();
}

fn frontend_gone_before_start_is_noticed() {
    // This process lives, but its start time differs; and no process has the other PID.
    let own = std::process::id().to_string();
    for front in [&*own, "4194304"] {
        let fixture = Fixture::new();
        let words = ["supervisor", front, "1", "plain", "sleep", "1000"];
        let mut supervisor = fixture.role(&words).spawn().unwrap();
        assert_eq!(how(&mut supervisor), 137, "{front}");
        assert_eq!(fixture.report()[1..3], ["abandoned", "ended Signal(9)"], "{front}");
    }
}

fn frontend_ends_orphans_of_killed_supervisor() {
    let fixture = Fixture::new();
    let script = "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000 & echo ready > ready; wait";
    let mut front = fixture.shell("plain", script);
    fixture.said("ready");
    send(fixture.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    assert_eq!(fixture.count("orphans 3"), 1, "{:?}", fixture.report());
    all_end();
}

fn orphans_of_killed_supervisor_are_kept() {
    let fixture = Fixture::new();
    let mut front = fixture.shell("keep", "echo $$ > ready; exec sleep 1000");
    let job = number(fixture.said("ready").parse().unwrap());
    send(fixture.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    send(job, Signal::KILL);
    all_end();
}

fn frontend_ends_orphans_of_panicked_supervisor() {
    let fixture = Fixture::new();
    let script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo ready > ready; wait";
    let mut front = fixture.front("panic", &["sh", "-c", script]);
    // The panic is reported there.
    let mut front = front.stderr(std::process::Stdio::null()).spawn().unwrap();
    fixture.said("ready");
    send(number(front.id()), Signal::TERM);
    assert_eq!(how(&mut front), 134, "its code is no job's");
    assert_eq!(fixture.count("orphans 3"), 1, "{:?}", fixture.report());
    assert_eq!(fixture.count("unwound"), 0, "it lets go of nothing while the job lives");
    all_end();
}

/// A shell kills a job by its number in this way, and timeout(1) kills its command.
fn killing_frontend_group_does_not_kill_supervisor() {
    for (mode, code) in [("plain", "ended Signal(9)"), ("keep", "ended Code(8)")] {
        let fixture = Fixture::new();
        let script = "setsid sleep 1000 & echo ready > ready; : < go; kill $!; exit 8";
        let mut front = fixture.front(mode, &["sh", "-c", script]);
        let mut front = front.process_group(0).spawn().unwrap();
        fixture.said("ready");
        kill_process_group(number(front.id()), Signal::KILL).unwrap();
        assert_eq!(how(&mut front), -9);
        fixture.expect("abandoned");
        if mode == "keep" {
            fixture.go();
        }
        fixture.expect("empty");
        assert_eq!(fixture.count(code), 1, "{:?}", fixture.report());
        all_end();
    }
}

/// A shell's `> >(tee log)` and its `exec` cause this.
fn preexisting_children_of_frontend_are_kept() {
    let fixture = Fixture::new();
    let script = "sleep 1000 & echo $! > before; exec \"$S\" front plain sh -c 'echo ready > ready; \
        exec sleep 1000'";
    let own = fixture.role(&[]).get_program().to_owned();
    let mut front = std::process::Command::new("sh")
        .args(["-c", script])
        .env("S", own)
        .env(crate::roles::REPORT, fixture.report_file())
        .current_dir(fixture.dir())
        .spawn()
        .unwrap();
    let before = number(fixture.said("before").parse().unwrap());
    fixture.said("ready");
    send(fixture.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    assert_eq!(fixture.count("orphans 1"), 1, "{:?}", fixture.report());
    send(before, Signal::KILL);
    all_end();
}
