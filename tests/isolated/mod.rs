//! Isolation on the real kernel: however a job ends, its result or error is returned, no process of
//! its tree remains, and its lease is released.

use gpu_core::{Claim, Clock, DeviceUuid, EntryKind, LeaseEntry, LeaseStore, Pid, ProcessKey};
use gpu_host::{FileLeaseStore, LeaseLocation, Roots, SafeGpuFiles, SystemClock};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The time after which a step counts as hanging.
const HANGS: Duration = Duration::from_secs(120);

/// A directory with a one-device machine.
struct TestDir(TempDir);

impl TestDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = "description = \"made: one device\"\nclock = 2026-11-21T01:00:00Z\n\
                    [[gpu]]\nindex = 0\nuuid = \"GPU-0\"\nname = \"NVIDIA A100-SXM4-80GB\"\n\
                    memory_total_mib = 81920\n";
        fs::create_dir(dir.path().join("machine")).unwrap();
        fs::write(dir.path().join("machine/machine.toml"), text).unwrap();
        fs::create_dir(dir.path().join("leases")).unwrap();
        TestDir(dir)
    }

    fn caller(&self, what: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isolated-caller"));
        command.arg(what).arg(self.0.path()).env("ISOLATED_DIR", self.0.path());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs a scenario; returns the program's output.
    fn tries(&self, what: &str) -> String {
        let output = self.caller(what).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The process that a job left behind, if it recorded one. Dropping this ends the process, for
    /// failed tests.
    fn left(&self) -> Option<Left> {
        let noted = fs::read_to_string(self.0.path().join("child")).ok()?;
        Some(Left(noted.trim().to_owned()))
    }

    fn locks(&self) -> FileLeaseStore {
        let roots = Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() };
        let location = LeaseLocation::dir(self.0.path().join("leases"));
        FileLeaseStore::new(location, SafeGpuFiles::below(self.0.path()), roots)
    }

    fn leases(&self) -> usize {
        self.locks().entries(EntryKind::Lease).unwrap().len()
    }
}

struct Left(String);

impl Left {
    /// Returns whether it is alive; a zombie is not.
    fn lives(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let is = |name: &str| stat.contains(name) && !stat.contains(&format!("{name} Z"));
        // The kernel truncates a name to fifteen characters; the process records its PID before it
        // executes `sleep`.
        is("(sleep)") || is("(sh)") || is("(isolated-caller)")
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if self.lives() {
            let _ = Command::new("kill").args(["-9", &self.0]).status();
        }
    }
}

#[test]
fn result_is_returned_complete() {
    for (what, output) in [
        ("double", "value '600000', clean true"),
        ("visible", "value 'GPU-0', clean true"),
        ("program", "value '42', clean true"),
    ] {
        let test_dir = TestDir::new();
        assert_eq!(test_dir.tries(what), output);
        assert_eq!(test_dir.leases(), 0, "{what}");
    }
}

#[test]
fn job_is_cleaned_up_on_return_error_panic_timeout_and_drop() {
    for (what, output) in [
        ("leave", "value '', clean true"),
        ("leave-copy", "value '', clean true"),
        ("fail", "failed 'no luck' 1, clean true"),
        ("panic", "panicked 'out of luck', clean true"),
        ("hang", "timed out, clean true"),
        ("drop", "dropped"),
    ] {
        let test_dir = TestDir::new();
        let reported = test_dir.tries(what);
        let left = test_dir.left().expect("the job left a child");
        assert_eq!(reported, output);
        assert!(!left.lives(), "{what}");
        assert_eq!(test_dir.leases(), 0, "{what}");
    }
}

#[test]
fn oversized_result_is_reported_without_blocking() {
    assert_eq!(TestDir::new().tries("too-long"), "too long, clean true");
}

#[test]
fn failed_start_leaves_no_lease() {
    let test_dir = TestDir::new();
    let output = test_dir.tries("no-program");
    assert!(output.starts_with("failed to start an isolated job: "), "{output}");
    assert!(test_dir.tries("nothing").starts_with("failed 'no such entry point' 1"));
    assert_eq!(test_dir.leases(), 0);
}

#[test]
fn isolation_can_be_dropped_while_queued() {
    let test_dir = TestDir::new();
    let locks = test_dir.locks();
    let lease = LeaseEntry {
        id: locks.new_id().unwrap(),
        ticket: locks.ticket().unwrap(),
        owner: locks.owner(),
        root: ProcessKey { pid: Pid(1), start: None },
        within: Vec::new(),
        claim: Claim::whole(1),
        devices: vec![DeviceUuid("GPU-0".into())],
        parts_of: Vec::new(),
        merged: None,
        command: "somebody else's".into(),
        since: SystemClock::new().wall(),
    };
    let _held = locks.publish(EntryKind::Lease, &lease).unwrap();
    assert_eq!(test_dir.tries("queued"), "dropped");
    assert_eq!(locks.entries(EntryKind::Waiter).unwrap(), []);
    assert!(test_dir.left().is_none(), "the job did not run");
}

#[test]
fn job_is_cleaned_up_after_killed_caller() {
    let test_dir = TestDir::new();
    let mut caller = test_dir.caller("killed").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(caller.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let left = test_dir.left().expect("the job left a child");
    assert!(left.lives() && test_dir.leases() == 1);
    caller.kill().unwrap();
    caller.wait().unwrap();
    let clock = SystemClock::new();
    let start = clock.monotonic();
    while left.lives() || test_dir.leases() > 0 {
        assert!(clock.monotonic() - start < HANGS, "the process still exists");
        clock.sleep(Duration::from_millis(20));
    }
}

/// Returns the first child of a process, once it has one.
fn child(pid: u32) -> u32 {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let first = children.unwrap_or_default().split(' ').next().and_then(|n| n.parse().ok());
        if let Some(first) = first {
            return first;
        }
        assert!(clock.monotonic() - start < HANGS, "{pid} has no child");
        clock.sleep(Duration::from_millis(10));
    }
}

#[test]
fn job_is_cleaned_up_after_killed_supervisor_or_guard() {
    for who in ["supervisor", "guard"] {
        let test_dir = TestDir::new();
        let caller = test_dir.caller("hang-long").stdout(Stdio::piped()).spawn().unwrap();
        let guard = child(caller.id());
        let supervisor = child(guard);
        let clock = SystemClock::new();
        let start = clock.monotonic();
        let noted = test_dir.0.path().join("child");
        while !fs::read_to_string(&noted).is_ok_and(|text| text.ends_with('\n')) {
            assert!(clock.monotonic() - start < HANGS, "the job did not start");
            clock.sleep(Duration::from_millis(20));
        }
        let left = test_dir.left().expect("the job left a child");
        assert_eq!(test_dir.leases(), 1, "{who}");
        let pid = if who == "guard" { guard } else { supervisor };
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        let output = caller.wait_with_output().unwrap();
        assert!(!left.lives(), "{who}");
        assert_eq!(test_dir.leases(), 0, "{who}");
        let output = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.trim(), "failed to supervise an isolated job", "{who}");
    }
}
