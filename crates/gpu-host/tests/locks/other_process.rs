//! Another process, of this user or another: this program again, with one task.

use crate::{ATTEMPT, LEASE, WAITER, entry, locks};
use gpu_core::{EntryKind, LeaseGuard, LeaseStore};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const TASK: &str = "GPU_HOST_TEST_TASK";
const DIR: &str = "GPU_HOST_TEST_DIR";

/// The UID of `nobody`.
pub(crate) const NOBODY: u32 = 65534;

/// A process that performs one task and keeps its result until it is ended.
pub(crate) struct OtherProcess {
    child: Child,
    _program: TempDir,
}

impl OtherProcess {
    /// Starts one, and returns when it has performed its task; `None` if it could not.
    pub(crate) fn start(uid: Option<u32>, task: &str, dir: &Path) -> Option<Self> {
        // Every user must be able to run it.
        let open = PermissionsExt::from_mode(0o755);
        let copy = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        let program = copy.path().join("tests");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(&program);
        command.args(["--ignored", "--exact", "other_process::run_stranger_task", "--nocapture"]);
        command.env(TASK, task).env(DIR, dir).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        let child = loop {
            match command.spawn() {
                // Another test that starts a program has this copy open for writing.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                child => break child.unwrap(),
            }
        };
        let mut other = OtherProcess { child, _program: copy };
        let mut said = Vec::new();
        let mut byte = [0];
        let output = other.child.stdout.as_mut().unwrap();
        while !said.ends_with(b"done.") && !said.ends_with(b"failed.") {
            if output.read(&mut byte).unwrap() == 0 {
                return None;
            }
            said.push(byte[0]);
        }
        said.ends_with(b"done.").then_some(other)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // A process that is already gone needs no signal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "run by other tests"]
#[expect(clippy::zombie_processes, reason = "the child is to outlive it")]
fn run_stranger_task() {
    let dir = std::env::var(DIR).expect("this test is run by another one");
    let dir = Path::new(&dir);
    let task = std::env::var(TASK).unwrap();
    let words: Vec<&str> = task.split(' ').collect();
    let locks = locks(dir);
    let kept: Option<Box<dyn LeaseGuard>> = match words[..] {
        ["publish", kind, device] => {
            let (kind, devices): (EntryKind, &[&str]) =
                if kind == "lease" { (LEASE, &[device]) } else { (WAITER, &[]) };
            locks.publish(kind, &entry(&locks, devices)).ok()
        }
        ["publish-with-a-closed-umask", device] => {
            rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
            locks.publish(LEASE, &entry(&locks, &[device])).ok()
        }
        ["publish-for-a-child", device] => {
            let held = locks.publish(LEASE, &entry(&locks, &[device])).unwrap();
            held.inherit(true).unwrap();
            let child = Command::new("sleep").arg("1000").spawn().unwrap();
            held.inherit(false).unwrap();
            std::fs::write(dir.join("child"), child.id().to_string()).unwrap();
            Some(held)
        }
        ["attempt", device] => locks.publish(ATTEMPT, &entry(&locks, &[device])).ok(),
        ["spoil-all"] => {
            let failures = crate::hostile::spoil_all(dir);
            failures.is_empty().then(|| locks.publish(WAITER, &entry(&locks, &[])).unwrap())
        }
        ["see", device] => {
            let leases = locks.entries(LEASE).unwrap();
            let seen = leases.iter().any(|lease| lease.devices[0].0 == device);
            seen.then(|| locks.publish(WAITER, &entry(&locks, &[])).unwrap())
        }
        ["have-few-descriptors", other] => {
            crate::fd_limits::sweep(dir, &locks, other);
            locks.publish(WAITER, &entry(&locks, &[])).ok()
        }
        _ => panic!("'{task}' is no task"),
    };
    let mut output = std::io::stdout();
    output.write_all(if kept.is_some() { b"done." } else { b"failed." }).unwrap();
    output.flush().unwrap();
    // It ends when its starter closes its input, or ends itself.
    let _ = std::io::stdin().read(&mut [0]);
}
