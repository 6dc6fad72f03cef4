//! Job control: the job has the terminal as long as it runs.

use crate::Test;
use crate::fixture::{
    Fixture, Seen, a_while, all_end, all_processes, below, eventually, number, send,
};
use crate::pty::{CTRL_C, CTRL_Z, Shell};
use rustix::process::Signal;
use std::fs;

pub(crate) const TESTS: &[Test] = &[
    ("ctrl_c_reaches_only_job_once", ctrl_c_reaches_only_job_once),
    ("ctrl_c_ends_job_front_and_script", ctrl_c_ends_job_front_and_script),
    ("ctrl_c_in_queue_is_reported_once", ctrl_c_in_queue_is_reported_once),
    ("ctrl_z_stops_all_and_fg_resumes", ctrl_z_stops_all_and_fg_resumes),
    ("ctrl_z_works_with_exhausted_fd_limit", ctrl_z_works_with_exhausted_fd_limit),
    ("ctrl_z_and_bg_continue_in_background", ctrl_z_and_bg_continue_in_background),
    ("stopped_background_job_is_foregrounded", stopped_background_job_is_foregrounded),
    ("running_background_job_is_foregrounded", running_background_job_is_foregrounded),
    ("ctrl_z_is_ignored_in_orphaned_group", ctrl_z_is_ignored_in_orphaned_group),
    ("shell_can_be_the_job", shell_can_be_the_job),
    ("nested_frontend_can_be_the_job", nested_frontend_can_be_the_job),
    ("stdin_may_be_file_or_pipe", stdin_may_be_file_or_pipe),
    ("pager_keeps_terminal_while_job_runs", pager_keeps_terminal_while_job_runs),
    ("terminal_settings_are_restored", terminal_settings_are_restored),
    ("killed_frontend_returns_terminal_to_shell", killed_frontend_returns_terminal_to_shell),
    ("terminal_hangup_ends_job", terminal_hangup_ends_job),
    ("terminal_hangup_ends_stopped_job", terminal_hangup_ends_stopped_job),
    ("frontend_killed_while_stopped_is_noticed", frontend_killed_while_stopped_is_noticed),
];

/// Reads a line from the terminal and prints it, after a start signal.
const READS: &str = "$S front plain sh -c 'echo $$ > ready; : < go; read line; \
    echo read:$line:; exit 5'";

/// Enters a command, and waits until its job has the terminal.
fn enter(fixture: &Fixture, shell: &Shell, command: &str) {
    shell.enter(command);
    shell.in_front(number(fixture.said("ready").parse().unwrap()));
}

fn ctrl_c_reaches_only_job_once() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    let script = "n=0; trap 'n=$((n+1)); echo int:$n:' INT; echo $$ > ready\n\
        while [ $n -lt 2 ]; do sleep 0.02; done; sleep 0.3; exit $((n+5))\n";
    fs::write(fixture.dir().join("job"), script).unwrap();
    enter(&fixture, &shell, "$S front plain sh job");
    shell.press(CTRL_C);
    shell.expect("int:1:");
    a_while();
    shell.press(CTRL_C);
    shell.expect("int:2:");
    assert_eq!(shell.last_code(), 7, "a third would be counted");
    assert_eq!(fixture.count("asked 2"), 0);
    shell.leave();
}

fn ctrl_c_ends_job_front_and_script() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    shell.enter("$S front plain sh -c 'echo job-$((1+1)); exec sleep 1000'");
    shell.expect("job-2");
    shell.press(CTRL_C);
    assert_eq!(shell.last_code(), 130);
    assert_eq!(fixture.count("ended Signal(2)"), 1);

    let script =
        "$S front plain sh -c 'echo job-$((2+2)); exec sleep 1000'\necho went on > wrong\n";
    fs::write(fixture.dir().join("script"), script).unwrap();
    shell.enter("bash script");
    shell.expect("job-4");
    shell.press(CTRL_C);
    assert_eq!(shell.last_code(), 130);
    assert!(!fixture.dir().join("wrong").exists(), "the script has gone on");
    shell.leave();
}

fn ctrl_c_in_queue_is_reported_once() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    shell.enter("$S front queue true");
    fixture.expect("queues");
    shell.press(CTRL_C);
    assert_eq!(shell.last_code(), 130);
    assert_eq!(fixture.count("asked 2"), 1, "{:?}", fixture.report());
    shell.leave();
}

/// Waits until all frontends and jobs are stopped, or none is. A supervisor never is.
fn all_are_stopped(fixture: &Fixture, stopped: bool) {
    let supervisor = fixture.supervisor().as_raw_nonzero().get().unsigned_abs();
    let supervises = |seen: &Seen| {
        let words = fs::read(format!("/proc/{}/cmdline", seen.pid)).unwrap_or_default();
        words.starts_with(b"supervisor\0")
    };
    let same = || {
        let all = all_processes();
        let front = all.iter().find(|seen| seen.pid == supervisor).map(|own| own.parent);
        let front = all.into_iter().find(|seen| Some(seen.pid) == front);
        below(supervisor)
            .iter()
            .chain(&front)
            .all(|seen| (seen.state == 'T') == (stopped && !supervises(seen)))
    };
    eventually(if stopped { "all are stopped" } else { "all go on" }, same);
}

/// Waits until the supervisor has handled every signal: it sleeps, and none is pending.
fn supervisor_is_idle(fixture: &Fixture) {
    let path = format!("/proc/{}/status", fixture.supervisor().as_raw_nonzero());
    eventually("the supervisor is idle", || {
        let status = fs::read_to_string(&path).expect("the supervisor lives");
        let none = |pending: &str| status.contains(&format!("{pending}:\t0000000000000000"));
        status.contains("State:\tS") && none("SigPnd") && none("ShdPnd")
    });
}

fn ctrl_z_stops_all_and_fg_resumes() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    enter(&fixture, &shell, READS);
    for _ in 0..3 {
        shell.press(CTRL_Z);
        shell.expect("Stopped");
        all_are_stopped(&fixture, true);
        shell.enter("echo prompt-$((1+1))");
        shell.expect("prompt-2");
        shell.enter("fg");
        all_are_stopped(&fixture, false);
    }
    fixture.go();
    shell.enter("hello");
    shell.expect("read:hello:");
    assert_eq!(shell.last_code(), 5);
    shell.leave();
}

fn ctrl_z_works_with_exhausted_fd_limit() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    enter(&fixture, &shell, &READS.replace("plain", "scarce"));
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    shell.enter("fg");
    fixture.go();
    shell.enter("hello");
    shell.expect("read:hello:");
    assert_eq!(shell.last_code(), 5);
    shell.leave();
}

fn ctrl_z_and_bg_continue_in_background() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    // No dash: a dash that waits for a child of vfork(2) does not stop before that child runs.
    let script = "trap 'echo term >> terms' TERM\necho $$ > ready\n\
        while [ ! -e done ]; do sleep 0.02; done; exit 4\n";
    fs::write(fixture.dir().join("job"), script).unwrap();
    enter(&fixture, &shell, "$S front plain bash job");
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    shell.enter("bg");
    shell.enter("echo prompt-$((1+1))");
    shell.expect("prompt-2");
    shell.enter("kill %1");
    fixture.said("terms");
    a_while();
    assert_eq!(fixture.said("terms"), "term", "the shell signalled the whole group");
    fs::write(fixture.dir().join("done"), "").unwrap();
    shell.enter("wait %1");
    assert_eq!(shell.last_code(), 4);
    shell.leave();
}

fn stopped_background_job_is_foregrounded() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    // It stops at its first read.
    shell.enter(&format!("{READS} &"));
    fixture.said("ready");
    fixture.go();
    all_are_stopped(&fixture, true);
    shell.enter("echo prompt-$((1+1))");
    shell.expect("prompt-2");
    shell.enter("fg");
    all_are_stopped(&fixture, false);
    shell.enter("hello");
    shell.expect("read:hello:");
    assert_eq!(shell.last_code(), 5);
    shell.leave();
}

fn running_background_job_is_foregrounded() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    let script = "echo $$ > ready; : < go; read line; echo read:$line:; exit 6\n";
    fs::write(fixture.dir().join("job"), script).unwrap();
    shell.enter("$S front plain sh job &");
    let job = number(fixture.said("ready").parse().unwrap());
    shell.enter("fg");
    shell.in_front(job);
    fixture.go();
    shell.enter("hello");
    shell.expect("read:hello:");
    assert_eq!(shell.last_code(), 6);
    shell.leave();
}

fn ctrl_z_is_ignored_in_orphaned_group() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    // The frontend replaces the session's first process, so that no shell watches it.
    enter(&fixture, &shell, &format!("exec {READS}"));
    shell.press(CTRL_Z);
    a_while();
    fixture.go();
    shell.enter("hello");
    shell.expect("read:hello:");
    fixture.expect("ended Code(5)");
    shell.hang_up();
    all_end();
}

fn shell_can_be_the_job() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    shell.enter("$S front plain bash --norc --noprofile --noediting -i");
    shell.enter("echo inner-$((1+1)):$$:");
    shell.expect("inner-2:");
    let inner = shell.expect(":");
    shell.enter("sleep 1000");
    let sleeps = || below(inner.parse().unwrap()).iter().any(|seen| seen.name == "sleep");
    eventually("it sleeps", sleeps);
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    shell.enter("fg");
    a_while();
    shell.press(CTRL_C);
    eventually("it was ended", || !sleeps());
    shell.enter("suspend -f");
    shell.expect("Stopped");
    shell.enter("echo outer-$((1+1)):$$:");
    shell.expect("outer-2:");
    assert_ne!(shell.expect(":"), inner);
    shell.enter("fg");
    a_while();
    shell.enter("echo again-$((1+1)):$$:");
    shell.expect("again-2:");
    assert_eq!(shell.expect(":"), inner);
    shell.enter("exit 9");
    assert_eq!(shell.last_code(), 9);
    shell.leave();
}

fn nested_frontend_can_be_the_job() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    shell
        .enter("$S front plain $S front plain sh -c 'echo $$ > ready; read line; exec sleep 1000'");
    let job = number(fixture.said("ready").parse().unwrap());
    shell.in_front(job);
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    all_are_stopped(&fixture, true);
    shell.enter("fg");
    shell.in_front(job);
    all_are_stopped(&fixture, false);
    shell.press(CTRL_C);
    assert_eq!(shell.last_code(), 130);
    shell.leave();
}

fn stdin_may_be_file_or_pipe() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    fs::write(fixture.dir().join("input"), "from-a-file\n").unwrap();
    let job = "cat; echo job-$((1+1)); read line < /dev/tty; echo read:$line:\n";
    fs::write(fixture.dir().join("job"), job).unwrap();
    for command in ["$S front plain sh job < input", "cat input | $S front plain sh job | cat"] {
        shell.enter(command);
        shell.expect("from-a-file");
        shell.expect("job-2");
        shell.enter("hello");
        shell.expect("read:hello:");
        assert_eq!(shell.last_code(), 0);
    }
    shell.leave();
}

/// Like `less`: it reads keys from the terminal, and Ctrl-C is not for it.
const PAGER: &str = "trap '' INT\nread line; echo first:$line:\n\
    while read key < /dev/tty; do echo key:$key:; [ $key != q ] || exit 3; done\n";

fn pager_keeps_terminal_while_job_runs() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    fs::write(fixture.dir().join("pager"), PAGER).unwrap();
    shell.enter("$S front plain bash -c 'echo line; echo $$ > ready; exec sleep 1000' | sh pager");
    shell.expect("first:line:");
    fixture.said("ready");
    shell.enter("a");
    shell.expect("key:a:");
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    all_are_stopped(&fixture, true);
    // The supervisor's own signal to the group may still be in flight, and no user types that fast.
    a_while();
    supervisor_is_idle(&fixture);
    shell.enter("fg");
    all_are_stopped(&fixture, false);
    shell.enter("b");
    shell.expect("key:b:");
    assert_eq!(fixture.count("empty"), 0, "the job runs all the time");
    shell.press(CTRL_C);
    fixture.expect("ended Signal(2)");
    fixture.expect("empty");
    // Also once the job has ended.
    shell.enter("q");
    shell.expect("key:q:");
    assert_eq!(shell.last_code(), 3);
    assert_eq!(fixture.count("asked 2"), 1, "{:?}", fixture.report());
    shell.leave();
}

fn terminal_settings_are_restored() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    // A script, because an interactive shell would set the terminal itself.
    let script = "stty -a | grep -q ' echo ' && echo before-$((1+1))\n\
        $S front plain sh -c 'stty -echo -icanon; kill -9 $$'\n\
        stty -a | grep -q ' echo ' && stty -a | grep -q ' icanon' && echo after-$((1+1))\n";
    fs::write(fixture.dir().join("script"), script).unwrap();
    shell.enter("sh script");
    shell.expect("before-2");
    shell.expect("after-2");
    assert_eq!(shell.last_code(), 0);
    shell.leave();
}

fn killed_frontend_returns_terminal_to_shell() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    shell.enter("$S front keep sh -c 'echo $PPID > ready; sleep 0.5; exit 3' & echo $! > front");
    let front = number(fixture.said("front").parse().unwrap());
    fixture.said("ready");
    shell.enter("fg");
    a_while();
    send(front, Signal::KILL);
    shell.expect("Killed");
    // The job's end must not take the terminal from the shell.
    fixture.expect("empty");
    shell.enter("echo prompt-$((1+1))");
    shell.expect("prompt-2");
    shell.leave();
    all_end();
}

fn terminal_hangup_ends_job() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    shell.enter("$S front plain sh -c 'echo job-$((1+1)); exec sleep 1000'");
    shell.expect("job-2");
    shell.hang_up();
    fixture.expect("empty");
    all_end();
    assert_eq!(fixture.count("ended Signal(1)"), 1, "{:?}", fixture.report());
}

fn terminal_hangup_ends_stopped_job() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    enter(&fixture, &shell, READS);
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    all_are_stopped(&fixture, true);
    shell.hang_up();
    fixture.expect("empty");
    all_end();
}

fn frontend_killed_while_stopped_is_noticed() {
    let fixture = Fixture::new();
    let mut shell = Shell::new(&fixture);
    enter(&fixture, &shell, READS);
    shell.press(CTRL_Z);
    shell.expect("Stopped");
    all_are_stopped(&fixture, true);
    let front = all_processes().into_iter().find(|seen| number(seen.pid) == fixture.supervisor());
    send(number(front.unwrap().parent), Signal::KILL);
    fixture.expect("empty");
    assert_eq!(fixture.count("abandoned"), 1);
    shell.leave();
    all_end();
}
