//! Real processes that change on SIGTERM: into a monitor, or to another name or program.

use super::{Bench, ghost, skip, targets};
use gpu_core::*;
use gpu_reaper::*;
use std::process::Command;

/// Holds the devices like a CUDA program and, on SIGTERM, changes as its argument specifies.
const HOLDER: &str = r#"
import mmap, os, signal, sys, time
gpu = os.open('dev/nvidia0', os.O_RDWR)
uvm = os.open('dev/nvidia-uvm', os.O_RDWR)
mapped = mmap.mmap(gpu, 4096)
def become(*_):
    if sys.argv[1] == 'monitor':
        mapped.close()
        os.close(uvm)
    elif sys.argv[1] == 'named':
        with open('/proc/self/comm', 'w') as comm:
            comm.write(sys.argv[2])
    elif sys.argv[1] == 'exec':
        os.set_inheritable(gpu, True)
        os.set_inheritable(uvm, True)
        os.execv(sys.argv[2], [sys.argv[2], '600'])
    elif sys.argv[1] == 'hidden':
        import ctypes
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
signal.signal(signal.SIGTERM, become)
os.write(1, b'ready')
while True:
    time.sleep(600)
"#;

/// Returns a Python that every user can run; prints a message and returns `None` if there is none.
pub(crate) fn python(test: &str) -> Option<Command> {
    let path = "/usr/bin/python3";
    if !std::path::Path::new(path).exists() {
        skip(test, &format!("there is no {path}"));
        return None;
    }
    Some(Command::new(path))
}

/// Plans to end a process that changes on SIGTERM, and executes the plan.
fn ended(test: &str, becoming: &[&str]) -> Option<(Bench, Pid, Report)> {
    let mut bench = Bench::new();
    let daemon = bench.dir.path().join("nvidia-persistenced");
    super::copy_program("/bin/sleep".as_ref(), &daemon);
    let pid = bench.ready(python(test)?.args(["-c", HOLDER]).args(becoming));
    let (plan, guard) = bench.plan(&ghost(1));
    assert_eq!(targets(&plan), [pid]);
    let (report, _) = bench.execute(&plan, &guard);
    Some((bench, pid, report))
}

#[test]
fn process_becoming_monitor_is_spared() {
    const TEST: &str = "process_becoming_monitor_is_spared";
    let Some((bench, pid, report)) = ended(TEST, &["monitor"]) else { return };
    assert_eq!(report.actions[0].signals, [Signal::Term], "{report:?}");
    assert_eq!(report.actions[0].outcome, Outcome::RoleForbids { role: Role::Monitor });
    assert!(bench.lives(pid) && !report.is_complete());
}

#[test]
fn process_executing_daemon_is_spared() {
    const TEST: &str = "process_executing_daemon_is_spared";
    let Some((bench, pid, report)) = ended(TEST, &["exec", "./nvidia-persistenced"]) else {
        return;
    };
    assert_eq!(report.actions[0].signals, [Signal::Term], "{report:?}");
    assert_eq!(report.actions[0].outcome, Outcome::AnotherProgram);
    assert!(bench.lives(pid) && !report.is_complete());
}

#[test]
fn process_only_renaming_itself_is_killed() {
    const TEST: &str = "process_only_renaming_itself_is_killed";
    // Each call waits for a grace period.
    std::thread::scope(|scope| {
        for name in ["Xorg", "nvidia-persiste", "nvidia-cuda-mps"] {
            scope.spawn(move || {
                let Some((bench, pid, report)) = ended(TEST, &["named", name]) else { return };
                let signals = &report.actions[0].signals;
                assert_eq!(*signals, [Signal::Term, Signal::Kill], "{name}: {report:?}");
                assert!(!bench.lives(pid) && report.is_complete(), "{name}: {report:?}");
            });
        }
    });
}

/// Runs an ignored test of this program as an unprivileged user.
fn as_nobody(test: &str, name: &str) {
    if !super::other_users::is_root(test) {
        return;
    }
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(open_to_all).tempdir().unwrap();
    let program = dir.path().join("tests");
    super::copy_program(&std::env::current_exe().unwrap(), &program);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg("--bounding-set=-all").arg(&program).args(["--ignored", "--exact", name]);
    match command.current_dir("/").env("TMPDIR", "/tmp").output() {
        Err(error) => skip(test, &format!("setpriv cannot be run: {error}")),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
    }
}

#[test]
fn process_hidden_from_its_user_still_exists() {
    const TEST: &str = "process_hidden_from_its_user_still_exists";
    as_nobody(TEST, "kernel::recheck::hidden_process_is_not_signalled_again");
}

/// A process can hide its files from an unprivileged reaper on SIGTERM.
#[test]
#[ignore = "run by another test"]
fn hidden_process_is_not_signalled_again() {
    const TEST: &str = "hidden_process_is_not_signalled_again";
    let Some((bench, pid, report)) = ended(TEST, &["hidden"]) else { return };
    assert_eq!(report.actions[0].signals, [Signal::Term], "{report:?}");
    let Outcome::Failed { why } = &report.actions[0].outcome else { panic!("{report:?}") };
    assert_eq!(why.kind, ProcessFault::NotPermitted.into());
    assert!(bench.lives(pid) && !report.is_complete(), "{report:?}");
}
