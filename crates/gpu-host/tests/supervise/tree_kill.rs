//! Killing a whole tree from its top.

use crate::Test;
use crate::fixture::{Fixture, all_end, below, eventually, how, number, send};
use rustix::process::Signal;

pub(crate) const TESTS: &[Test] = &[
    ("whole_tree_is_killed_but_not_own_processes", whole_tree_is_killed_but_not_own_processes),
    ("endlessly_forking_process_is_killed", endlessly_forking_process_is_killed),
    ("new_processes_are_stopped_and_resumed", new_processes_are_stopped_and_resumed),
    ("endlessly_forking_process_is_stopped", endlessly_forking_process_is_stopped),
];

/// Returns the reports about killed processes, sorted by name.
fn killed_tree(fixture: &Fixture) -> Vec<String> {
    let report = fixture.report().into_iter();
    let mut names: Vec<_> =
        report.filter_map(|line| Some(line.strip_prefix("felled ")?.to_owned())).collect();
    names.sort();
    names
}

fn whole_tree_is_killed_but_not_own_processes() {
    let fixture = Fixture::new();
    // In its group and in separate sessions, with and without a parent, and one that is stopped.
    let script = "trap '' TERM; up='echo up >> up; exec sleep 1000'\n\
        sh -c \"$up\" & setsid sh -c \"$up\" & (setsid sh -c \"$up\" &)\n\
        sh -c \"$up\" & last=$!\n\
        until [ -e up ] && [ $(wc -l < up) = 4 ]; do sleep 0.02; done\n\
        kill -STOP $last; echo ready > ready; read line";
    let mut front = fixture.front("fell,own", &["sh", "-c", script]);
    let mut front = front.stdin(std::process::Stdio::piped()).spawn().unwrap();
    fixture.said("ready");
    send(number(front.id()), Signal::TERM);
    // The job's own end is reported, although it was killed with the others.
    assert_eq!(how(&mut front), 137);
    assert!(killed_tree(&fixture).len() >= 5, "{:?}", fixture.report());
    for line in ["none left", "ended Signal(9)", "spared Some(0)", "own [Some(7), Some(8)]"] {
        assert_eq!(fixture.count(line), 1, "{line}: {:?}", fixture.report());
    }
    assert!(
        !fixture.report().iter().any(|line| line.starts_with("left ")),
        "{:?}",
        fixture.report()
    );
    all_end();
}

/// Forks, ends the parent, and leaves group and session; finally reports so.
const CHAIN: &str = "import os, sys, time
end, pause = time.monotonic() + 60, float(sys.argv[1])
open('ready', 'w').write('ready\\n')
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(pause)
open('ended', 'w').close()
";

fn endlessly_forking_process_is_killed() {
    for pause in ["0.003", "0"] {
        let fixture = Fixture::new();
        let script = "python3 -c \"$1\" $2 & read line";
        let mut front = fixture.front("fell", &["sh", "-c", script, "sh", CHAIN, pause]);
        let mut front = front.stdin(std::process::Stdio::piped()).spawn().unwrap();
        fixture.said("ready");
        send(number(front.id()), Signal::TERM);
        assert_eq!(how(&mut front), 137, "{pause}");
        let killed_tree = killed_tree(&fixture);
        assert!(killed_tree.iter().any(|name| name == "sh"), "{killed_tree:?}");
        assert!(
            killed_tree.iter().any(|name| name.starts_with("python3")),
            "{pause}: {killed_tree:?}"
        );
        assert_eq!(fixture.count("none left"), 1);
        assert!(!fixture.dir().join("ended").exists(), "{pause}: it was not ended");
    }
}

fn new_processes_are_stopped_and_resumed() {
    let fixture = Fixture::new();
    // Below the shell, and in separate sessions with and without a parent.
    let script = "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &)\n\
        echo ready > ready; read line";
    let mut front = fixture.front("arrest", &["sh", "-c", script]);
    let mut front = front.stdin(std::process::Stdio::piped()).spawn().unwrap();
    fixture.said("ready");
    // Each has executed sleep by now, and is no longer a shell about to exec.
    eventually("three of them", || {
        below(front.id()).iter().filter(|seen| seen.name == "sleep").count() == 3
    });
    send(number(front.id()), Signal::TERM);
    fixture.expect("resumed 3");
    assert_eq!(fixture.count("at rest"), 1);
    assert_eq!(fixture.count("arrested sleep"), 3, "{:?}", fixture.report());
    drop(front.stdin.take());
    assert_eq!(how(&mut front), 1, "the shell was not stopped");
    all_end();
}

fn endlessly_forking_process_is_stopped() {
    for pause in ["0.2", "0.003", "0"] {
        let fixture = Fixture::new();
        let script = "python3 -c \"$1\" $2 & read line";
        let mut front = fixture.front("arrest", &["sh", "-c", script, "sh", CHAIN, pause]);
        let mut front = front.stdin(std::process::Stdio::piped()).spawn().unwrap();
        fixture.said("ready");
        send(number(front.id()), Signal::TERM);
        fixture.expect("resumed 0");
        assert_eq!(fixture.count("at rest"), 1, "{pause}");
        drop(front.stdin.take());
        assert_eq!(how(&mut front), 1);
        let left = fixture.report().into_iter().filter(|line| line.starts_with("left "));
        assert_eq!(left.collect::<Vec<_>>(), [""; 0], "{pause}: all of it was stopped");
    }
}
