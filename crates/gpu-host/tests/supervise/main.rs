//! Frontend, supervisor and job against the running kernel, with and without a terminal.
//!
//! Signals, the terminal and orphans concern a whole process. So this program has its own main
//! function: started with a role it plays that role (see [`roles`]), and started without one it
//! runs the tests one by one, each in separate processes. It is the subreaper of all of them: a
//! process that a test leaves behind is a failure, and is ended by PID.

mod companions;
mod exit_codes;
mod fixture;
mod frontends;
mod interrupted;
mod limits;
mod pty;
mod roles;
mod signals;
mod terminal;
mod tree_kill;
mod trees;

use std::io::{Write, stdout};
use std::panic::catch_unwind;
use std::process::ExitCode;

/// A test: its name, and itself.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if let Some(role) = words.next().and_then(|word| word.into_string().ok())
        && let Some(code) = roles::play(&role, words)
    {
        return code;
    }
    take_usual_signals();
    let first =
        [limits::TESTS, exit_codes::TESTS, signals::TESTS, interrupted::TESTS, frontends::TESTS];
    let then = [trees::TESTS, companions::TESTS, tree_kill::TESTS, terminal::TESTS];
    run(&[first.concat(), then.concat()].concat())
}

/// Resets signals that the caller ignores (nohup, a shell's background) to their default in the
/// programs below: execve resets a caught signal.
fn take_usual_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    let caught = std::sync::Arc::<std::sync::atomic::AtomicBool>::default;
    for signal in [1_i32, 2, 3, 10, 12, 15].into_iter().filter(|n| ignored & 1 << (n - 1) != 0) {
        signal_hook::flag::register(signal, caught()).unwrap();
    }
}

/// Runs the tests whose name contains the first argument, with the output of the usual harness.
fn run(tests: &[Test]) -> ExitCode {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("it is Linux");
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&filter)) {
        say(&format!("test {name} ... "));
        let well = catch_unwind(test).is_ok();
        let left = fixture::end_all();
        if !left.is_empty() {
            say(&format!("left behind: {}: ", left.join(", ")));
        }
        if well && left.is_empty() {
            passed += 1;
            say("ok\n");
        } else {
            failed.push(*name);
            say("FAILED\n");
        }
    }
    let failures = failed.len();
    say(&format!("\ntest result: {passed} passed; {failures} failed: {}\n", failed.join(" ")));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(text: &str) {
    let mut out = stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).expect("standard output is open");
}
