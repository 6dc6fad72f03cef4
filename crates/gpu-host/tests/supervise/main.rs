//! Frontend, supervisor and job against the running kernel, with and without a terminal.
//!
//! Signals, the terminal and orphans concern a whole process. So this program has its own main
//! function: started with a role it plays that role (see [`roles`]), started with [`ONE`] it runs
//! one test, and otherwise it runs each test in a process of its own. That process is the subreaper
//! of all processes that the test starts: any that is left is a failure, and is ended by PID.

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
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// A test: its name, and itself.
type Test = (&'static str, fn());

/// The option that is followed by the name of a test.
const ONE: &str = "--one";

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
    let tests = [first.concat(), then.concat()].concat();
    let mut words = std::env::args().skip(1);
    match words.next() {
        Some(option) if option == ONE => run_one(&tests, &words.next().unwrap_or_default()),
        filter => run(&tests, &filter.filter(|word| !word.starts_with('-')).unwrap_or_default()),
    }
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

/// Runs the tests whose name contains `filter`, with the output of the usual harness.
fn run(tests: &[Test], filter: &str) -> ExitCode {
    let names: Vec<&str> = tests.iter().map(|(name, _)| *name).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| name.contains(filter)).collect();
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|threads| threads.parse().ok());
    let threads = threads.unwrap_or_else(|| available_parallelism().map_or(1, usize::from));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let program = std::env::current_exe().expect("this program has a file");
    let work = || {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let output = Command::new(&program).args([ONE, name]).output().expect("it starts");
            let well = output.status.success();
            let said = [output.stdout, output.stderr].concat();
            if well {
                say(&format!("test {name} ... ok\n"));
            } else {
                say(&format!("test {name} ... FAILED\n{}", String::from_utf8_lossy(&said)));
            }
            if !well {
                failed.lock().expect("no thread panics").push(*name);
            }
        }
    };
    scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().expect("no thread panics");
    let passed = names.len() - failed.len();
    let failures = failed.len();
    say(&format!("\ntest result: {passed} passed; {failures} failed: {}\n", failed.join(" ")));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one test, and fails if it leaves a process behind.
fn run_one(tests: &[Test], name: &str) -> ExitCode {
    let test = tests.iter().find(|(other, _)| *other == name).expect("it is a test").1;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("it is Linux");
    let well = catch_unwind(test).is_ok();
    let left = fixture::end_all();
    if !left.is_empty() {
        say(&format!("left behind: {}\n", left.join(", ")));
    }
    if well && left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(text: &str) {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).expect("standard output is open");
}
