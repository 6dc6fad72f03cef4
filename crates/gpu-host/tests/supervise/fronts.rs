//! The end of the front, and of the supervisor.

use crate::Test;
use crate::cast::{Scene, all_end, how, number, send};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = &[
    ("a_front_that_is_killed_is_missed_and_the_tree_ended", missed_and_the_tree_ended),
    ("a_front_that_is_killed_is_missed_and_the_job_kept", missed_and_the_job_kept),
    ("a_front_that_is_killed_in_the_queue_is_missed", missed_in_the_queue),
    ("a_front_that_was_gone_before_is_missed", gone_before),
    ("a_supervisor_that_is_killed_is_told_by_the_front", killed_supervisor),
];

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
    let mut front = scene.shell("plain", "echo $$ > ready; exec sleep 1000");
    let job = number(scene.said("ready").parse().unwrap());
    send(scene.supervisor(), Signal::KILL);
    assert_eq!(how(&mut front), 137);
    // Nobody is left who would end it: that is a matter of its lease, which it still holds.
    send(job, Signal::KILL);
    all_end();
}
