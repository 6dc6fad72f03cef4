//! The end of the front, and of the supervisor.

use crate::Test;
use crate::cast::{Scene, all_end, below, how, number, send};
use rustix::process::{Signal, kill_process_group};
use std::os::unix::process::CommandExt;

pub(crate) const TESTS: &[Test] = &[
    ("a_front_that_is_killed_is_missed_and_the_tree_ended", missed_and_the_tree_ended),
    ("a_front_that_is_killed_is_missed_and_the_job_kept", missed_and_the_job_kept),
    ("a_front_that_is_killed_in_the_queue_is_missed", missed_in_the_queue),
    ("a_front_that_was_gone_before_is_missed", gone_before),
    ("what_a_killed_supervisor_leaves_is_the_fronts_to_end", killed_supervisor),
    ("what_a_killed_supervisor_leaves_is_kept", killed_supervisor_kept),
    ("what_a_supervisor_that_panics_leaves_is_the_fronts_to_end", panicked_supervisor),
    ("who_kills_the_fronts_group_has_not_killed_the_supervisor", killed_group),
    ("who_had_children_before_has_them_after", who_had_children_before_has_them_after),
    ("dismissed_front_ends_before_its_supervisor", dismissed_front_ends_before_its_supervisor),
];

fn dismissed_front_ends_before_its_supervisor() {
    let scene = Scene::new();
    let script = "trap '' TERM; echo ready > ready; while :; do sleep 1; done";
    let mut front = scene.shell("dismiss,keep", script);
    scene.said("ready");
    send(number(front.id()), Signal::TERM);
    assert_eq!(how(&mut front), 9, "it ends as it was told");
    scene.expect("dismissed true");
    scene.expect("abandoned");
    // The supervisor lives, and a front that is gone is no failure.
    send(scene.supervisor(), Signal::INT);
    scene.expect("dismissed false");
    let job = below(scene.supervisor().as_raw_nonzero().get().unsigned_abs());
    for member in job.iter().filter(|member| member.name == "sh") {
        send(number(member.pid), Signal::KILL);
    }
    scene.expect("empty");
    all_end();
}

fn missed_and_the_tree_ended() {
    let scene = Scene::new();
    let script = "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000 & echo ready > ready; wait";
    let mut front = scene.shell("plain", script);
    scene.said("ready");
    send(number(front.id()), Signal::KILL);
    assert_eq!(how(&mut front), -9);
    scene.expect("empty");
    assert_eq!(scene.count("abandoned"), 1);
    assert_eq!(scene.count("ended Signal(9)"), 1);
    all_end();
}

fn missed_and_the_job_kept() {
    let scene = Scene::new();
    let script = "echo ready > ready; : < go; exit 8";
    let mut front = scene.shell("keep", script);
    scene.said("ready");
    send(number(front.id()), Signal::KILL);
    scene.expect("abandoned");
    assert_eq!(how(&mut front), -9);
    scene.go();
    scene.expect("empty");
    assert_eq!(scene.count("ended Code(8)"), 1);
    assert_eq!(scene.count("abandoned"), 1, "it is told once");
    all_end();
}

fn missed_in_the_queue() {
    let scene = Scene::new();
    let mut front = scene.front("queue", &["true"]).spawn().unwrap();
    scene.expect("queues");
    send(number(front.id()), Signal::KILL);
    assert_eq!(how(&mut front), -9);
    scene.expect("abandoned");
    all_end();
}

fn gone_before() {
    // This process lives, but it did not start at that moment; and nobody has the other number.
    let own = std::process::id().to_string();
    for front in [&*own, "4194304"] {
        let scene = Scene::new();
        let words = ["supervisor", front, "1", "plain", "sleep", "1000"];
        let mut supervisor = scene.role(&words).spawn().unwrap();
        assert_eq!(how(&mut supervisor), 137, "{front}");
        assert_eq!(scene.report()[1..3], ["abandoned", "ended Signal(9)"], "{front}");
    }
}

fn killed_supervisor() {
    let scene = Scene::new();
    let script = "trap '' TERM HUP INT; setsid sleep 1000 & sleep 1000 & echo ready > ready; wait";
    let mut front = scene.shell("plain", script);
    scene.said("ready");
    send(scene.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    assert_eq!(scene.count("orphans 3"), 1, "{:?}", scene.report());
    all_end();
}

fn killed_supervisor_kept() {
    let scene = Scene::new();
    let mut front = scene.shell("keep", "echo $$ > ready; exec sleep 1000");
    let job = number(scene.said("ready").parse().unwrap());
    send(scene.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    send(job, Signal::KILL);
    all_end();
}

fn panicked_supervisor() {
    let scene = Scene::new();
    let script = "trap '' TERM; setsid sleep 1000 & sleep 1000 & echo ready > ready; wait";
    let mut front = scene.front("panic", &["sh", "-c", script]);
    // The panic is told there.
    let mut front = front.stderr(std::process::Stdio::null()).spawn().unwrap();
    scene.said("ready");
    send(number(front.id()), Signal::TERM);
    assert_eq!(how(&mut front), 134, "its code is no job's");
    assert_eq!(scene.count("orphans 3"), 1, "{:?}", scene.report());
    assert_eq!(scene.count("unwound"), 0, "it lets go of nothing while the job lives");
    all_end();
}

/// As a shell kills a job by its number, and timeout(1) what it has started.
fn killed_group() {
    for (mode, code) in [("plain", "ended Signal(9)"), ("keep", "ended Code(8)")] {
        let scene = Scene::new();
        let script = "setsid sleep 1000 & echo ready > ready; : < go; kill $!; exit 8";
        let mut front = scene.front(mode, &["sh", "-c", script]);
        let mut front = front.process_group(0).spawn().unwrap();
        scene.said("ready");
        kill_process_group(number(front.id()), Signal::KILL).unwrap();
        assert_eq!(how(&mut front), -9);
        scene.expect("abandoned");
        if mode == "keep" {
            scene.go();
        }
        scene.expect("empty");
        assert_eq!(scene.count(code), 1, "{:?}", scene.report());
        all_end();
    }
}

/// As a shell's `> >(tee log)` and its `exec` do.
fn who_had_children_before_has_them_after() {
    let scene = Scene::new();
    let script = "sleep 1000 & echo $! > before; exec \"$S\" front plain sh -c 'echo ready > ready; \
        exec sleep 1000'";
    let own = scene.role(&[]).get_program().to_owned();
    let mut front = std::process::Command::new("sh")
        .args(["-c", script])
        .env("S", own)
        .env(crate::stage::REPORT, scene.report_file())
        .current_dir(scene.folder())
        .spawn()
        .unwrap();
    let before = number(scene.said("before").parse().unwrap());
    scene.said("ready");
    send(scene.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    assert_eq!(scene.count("orphans 1"), 1, "{:?}", scene.report());
    send(before, Signal::KILL);
    all_end();
}
