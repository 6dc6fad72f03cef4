//! Opened processes: reads and signals refer to the same process.

use crate::child::{Sleeper, eventually};
use crate::programs::copy_program;
use crate::{host, skip};
use gpu_core::{ActToken, ErrorKind, Pid, ProcessFault, ProcessState, ProcessTable, Signal};
use gpu_host::{LinuxHost, Roots, resolve};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

const GONE: ErrorKind = ErrorKind::Process(ProcessFault::Gone);

fn token() -> ActToken {
    ActToken::user_confirmed()
}

#[test]
fn cooperative_process_ends_on_sigterm() {
    let mut sleeper = Sleeper::shell(":", &[]);
    let handle = host().open(sleeper.pid()).unwrap();
    assert!(!handle.has_exited().unwrap());
    assert_eq!(handle.info().unwrap().key, host().process(sleeper.pid()).unwrap().key);
    handle.signal(Signal::Term, &token()).unwrap();
    eventually(|| handle.has_exited().unwrap());

    // A zombie keeps its PID, although it has ended.
    assert_eq!(host().process(sleeper.pid()).unwrap().state, Ok(ProcessState::Zombie));
    assert_eq!(handle.info().unwrap_err().kind(), GONE);
    assert_eq!(host().open(sleeper.pid()).err().unwrap().kind(), GONE);

    sleeper.reap();
    for kind in [
        handle.info().unwrap_err().kind(),
        handle.held(&[resolve("/dev/full").unwrap()]).unwrap_err().kind(),
        handle.signal(Signal::Kill, &token()).unwrap_err().kind(),
        host().process(sleeper.pid()).unwrap_err().kind(),
        host().open(sleeper.pid()).err().unwrap().kind(),
    ] {
        assert_eq!(kind, GONE);
    }
    assert!(handle.has_exited().unwrap());
}

#[test]
fn process_ignoring_sigterm_ends_on_sigkill() {
    let sleeper = Sleeper::shell("trap '' TERM", &[]);
    let handle = host().open(sleeper.pid()).unwrap();
    handle.signal(Signal::Term, &token()).unwrap();
    let cpu_before = handle.info().unwrap().cpu_time.unwrap();
    assert!(!handle.has_exited().unwrap());
    assert!(handle.info().unwrap().cpu_time.unwrap() >= cpu_before);
    handle.signal(Signal::Kill, &token()).unwrap();
    eventually(|| handle.has_exited().unwrap());
}

/// A file of the user nobody with the setuid bit runs as nobody.
#[test]
fn setuid_program_keeps_real_uid_of_its_starter() {
    const NOBODY: u32 = 65534;
    let own = rustix::process::getuid().as_raw();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sleep");
    copy_program("/bin/sleep".as_ref(), &program);
    if own == 0 && chown(&program, Some(NOBODY), None).is_ok() {
        set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
    }
    let sleeper = Sleeper::spawn(Command::new(&program).arg("1000"));
    sleeper.wait_for_name("sleep");
    let handle = host().open(sleeper.pid()).unwrap();
    let state = || handle.info().unwrap().state;
    eventually(|| state() == Ok(ProcessState::Sleeping));
    let uids = handle.uids().unwrap();
    assert_eq!(uids.real, own);
    assert_eq!((Ok(uids.effective), uids.saved), (handle.info().unwrap().uid, uids.effective));
    assert!(uids.may_be_signalled_by(own));
    if uids.effective == own {
        skip("setuid_program", "not root, or setuid has no effect here");
    } else {
        assert_eq!(uids.effective, NOBODY);
    }
    handle.signal(Signal::Kill, &token()).unwrap();
    eventually(|| handle.has_exited().unwrap());
    assert_eq!(handle.uids().unwrap_err().kind(), GONE);
}

#[test]
fn environment_belongs_to_opened_process() {
    let mut child = Command::new("sleep");
    child.arg("60").env_clear().env("NAME", "a=b").env("EMPTY", "");
    let mut child = child.spawn().unwrap();
    let handle = host().open(Pid(child.id())).unwrap();
    let expected = |variables: &[(String, String)]| {
        let mut known: Vec<_> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        known.sort_unstable();
        known == [("EMPTY", ""), ("NAME", "a=b")]
    };
    // Until it has executed the program it has the environment of this test.
    eventually(|| handle.environment().is_ok_and(|read| expected(&read.variables)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(handle.environment().unwrap_err().kind(), GONE);
}

#[test]
fn stopped_process_ends_on_sigkill() {
    let sleeper = Sleeper::shell(":", &[]);
    let handle = host().open(sleeper.pid()).unwrap();
    let number = i32::try_from(sleeper.pid().0).unwrap();
    let number = rustix::process::Pid::from_raw(number).unwrap();
    rustix::process::kill_process(number, rustix::process::Signal::STOP).unwrap();
    eventually(|| handle.info().unwrap().state == Ok(ProcessState::Stopped));
    handle.signal(Signal::Term, &token()).unwrap();
    assert!(!handle.has_exited().unwrap(), "the signal waits until it goes on");
    handle.signal(Signal::Kill, &token()).unwrap();
    eventually(|| handle.has_exited().unwrap());
}

#[test]
fn process_after_closing_device_holds_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, let_go) = (dir.path().join("nvidia0"), dir.path().join("let-go"));
    std::fs::write(&path, "stand-in").unwrap();
    let script = "exec 3< \"$1\"; echo ready; until [ -e \"$2\" ]; do sleep 0.01; done; \
                  exec 3<&-; exec sleep 1000";
    let mut command = Command::new("sh");
    let sleeper = Sleeper::ready(command.arg("-c").arg(script).arg("sh").args([&path, &let_go]));
    let handle = host().open(sleeper.pid()).unwrap();
    let files = [resolve(&path).unwrap()];
    let held = handle.held(&files).unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!(held[0].descriptors, [3]);
    std::fs::write(&let_go, "").unwrap();
    eventually(|| handle.held(&files).unwrap().is_empty());
    assert!(!handle.has_exited().unwrap());
}

#[test]
fn unused_pids_are_reported_gone() {
    for pid in [0, 4_194_305, i32::MAX.unsigned_abs(), u32::MAX] {
        assert_eq!(host().open(Pid(pid)).err().unwrap().kind(), GONE, "{pid}");
        assert_eq!(host().process(Pid(pid)).unwrap_err().kind(), GONE, "{pid}");
    }
}

#[test]
fn fake_proc_root_cannot_open_processes() {
    let sleeper = Sleeper::shell(":", &[]);
    let dir = tempfile::tempdir().unwrap();
    for entry in [format!("{}", sleeper.pid()), "self".to_owned()] {
        std::os::unix::fs::symlink(format!("/proc/{entry}"), dir.path().join(entry)).unwrap();
    }
    let roots = |proc: &Path| Roots { proc: proc.into(), dev: "/dev".into(), sys: "/sys".into() };
    let made_up = LinuxHost::new(roots(dir.path()));
    assert_eq!(made_up.process(sleeper.pid()).unwrap().name, "sleep", "it can be looked at");
    let error = made_up.open(sleeper.pid()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    // The same /proc under another name counts as the same.
    let same = LinuxHost::new(roots(Path::new("/proc/self/root/proc")));
    assert!(same.open(sleeper.pid()).is_ok());
}
