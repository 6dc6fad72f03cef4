//! Signals on their way to the job.

use crate::Test;
use crate::fixture::{Fixture, a_while, end_of, eventually, how, number, send};
use rustix::process::{Signal, kill_process_group};
use std::os::unix::process::CommandExt;

pub(crate) const TESTS: &[Test] = &[
    ("signal_to_frontend_reaches_job_once", signal_to_frontend_reaches_job_once),
    ("signal_to_group_reaches_job_once", signal_to_group_reaches_job_once),
    ("sigusr1_to_group_reaches_job_once", sigusr1_to_group_reaches_job_once),
    ("signal_to_supervisor_reaches_job_once", signal_to_supervisor_reaches_job_once),
    ("signal_in_queue_is_reported", signal_in_queue_is_reported),
    ("job_may_ignore_signal", job_may_ignore_signal),
    ("ignored_signals_are_inherited", ignored_signals_are_inherited),
    ("stopped_job_is_resumed", stopped_job_is_resumed),
];

/// Counts a signal until a request to end, then reports the count.
const COUNTS: &str = "exec 2> /dev/null; n=0; trap 'n=$((n+1)); echo $n > counted' $SIGNAL; \
    trap 'echo $n > total; exit 6' USR2; echo ready > ready; while :; do sleep 0.02; done";

fn counts(signal: &str) -> String {
    COUNTS.replace("$SIGNAL", signal)
}

/// Waits until the job has counted one, waits for an echo, and ends it.
fn once(fixture: &Fixture, front: &mut std::process::Child) {
    fixture.said("counted");
    a_while();
    send(number(front.id()), Signal::USR2);
    assert_eq!(how(front), 6);
    assert_eq!(fixture.said("total"), "1");
}

fn signal_to_frontend_reaches_job_once() {
    for (name, signal) in
        [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP), ("USR1", Signal::USR1)]
    {
        let fixture = Fixture::new();
        let mut front = fixture.shell("plain", &counts(name));
        fixture.said("ready");
        send(number(front.id()), signal);
        once(&fixture, &mut front);
    }
}

fn signal_to_group_reaches_job_once() {
    assert_eq!(to_the_group("TERM", Signal::TERM).count("asked 15"), 1);
}

fn sigusr1_to_group_reaches_job_once() {
    to_the_group("USR1", Signal::USR1);
}

fn to_the_group(name: &str, signal: Signal) -> Fixture {
    let fixture = Fixture::new();
    let mut command = fixture.front("plain", &["sh", "-c", &counts(name)]);
    let mut front = command.process_group(0).spawn().unwrap();
    fixture.said("ready");
    kill_process_group(number(front.id()), signal).unwrap();
    once(&fixture, &mut front);
    fixture
}

fn signal_to_supervisor_reaches_job_once() {
    let fixture = Fixture::new();
    let mut front = fixture.shell("plain", &counts("TERM"));
    fixture.said("ready");
    send(fixture.supervisor(), Signal::TERM);
    once(&fixture, &mut front);
}

fn signal_in_queue_is_reported() {
    for (signal, number_of_it) in [(Signal::TERM, 15), (Signal::QUIT, 3), (Signal::HUP, 1)] {
        let fixture = Fixture::new();
        let mut command = fixture.front("queue", &["true"]);
        let mut front = command.process_group(0).spawn().unwrap();
        fixture.expect("queues");
        kill_process_group(number(front.id()), signal).unwrap();
        // The end of another process writes no core file.
        let end = if number_of_it == 3 { 128 + 3 } else { -number_of_it };
        assert_eq!(how(&mut front), end);
        assert_eq!(fixture.count(&format!("asked {number_of_it}")), 1, "{:?}", fixture.report());
    }
}

fn job_may_ignore_signal() {
    let fixture = Fixture::new();
    let script = "trap '' TERM; echo $$ > ready; while :; do sleep 0.02; done";
    let mut front = fixture.shell("plain", script);
    let job = number(fixture.said("ready").parse().unwrap());
    send(number(front.id()), Signal::TERM);
    fixture.expect("asked 15");
    a_while();
    assert!(front.try_wait().unwrap().is_none(), "it goes on");
    send(job, Signal::KILL);
    assert_eq!(end_of(&mut front).code(), Some(137));
}

fn ignored_signals_are_inherited() {
    let fixture = Fixture::new();
    let program = std::env::current_exe().unwrap();
    let script = "trap '' HUP; exec \"$0\" front plain sh -c 'echo $$ > ready; read line; exit 3'";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(program).current_dir(fixture.dir());
    command.env(crate::roles::REPORT, fixture.report_file()).stdin(std::process::Stdio::piped());
    let mut front = command.spawn().unwrap();
    let job = number(fixture.said("ready").parse().unwrap());
    for pid in [number(front.id()), fixture.supervisor(), job] {
        send(pid, Signal::HUP);
    }
    a_while();
    assert_eq!(fixture.count("asked 1"), 0);
    drop(front.stdin.take());
    assert_eq!(how(&mut front), 3);
}

fn stopped_job_is_resumed() {
    let fixture = Fixture::new();
    let mut front = fixture.shell("plain", &counts("TERM"));
    fixture.said("ready");
    let job = number(crate::fixture::below(pid_of(&fixture)).first().unwrap().pid);
    let state = || crate::fixture::all_processes().into_iter().find(|seen| number(seen.pid) == job);
    send(job, Signal::STOP);
    eventually("it is stopped", || state().unwrap().state == 'T');
    a_while();
    assert_eq!(state().unwrap().state, 'T', "the user stopped it, so it stays stopped");
    send(job, Signal::CONT);
    eventually("it goes on", || state().unwrap().state != 'T');
    send(number(front.id()), Signal::TERM);
    once(&fixture, &mut front);
}

fn pid_of(fixture: &Fixture) -> u32 {
    fixture.supervisor().as_raw_nonzero().get().unsigned_abs()
}
