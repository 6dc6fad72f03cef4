//! The executables of real processes, and their terminals.

use crate::child::Sleeper;
use crate::{host, skip};
use gpu_core::{Absent, Executable, Pid, ProcessTable};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

fn program(pid: Pid) -> Executable {
    *host().process(pid).unwrap().executable.unwrap()
}

#[test]
fn executable_identifies_running_file() {
    let own = program(Pid(std::process::id()));
    let path = std::env::current_exe().unwrap();
    assert_eq!(Path::new(&own.path), path);
    let file = std::fs::metadata(path).unwrap();
    assert_eq!((own.owner, own.writable_by_others), (file.uid(), file.mode() & 0o022 != 0));
    assert_eq!(own.seen_by_caller, Err(Absent::NotRecorded), "it has no name of a service");
    let sleeper = Sleeper::shell(":", &[]);
    assert_ne!(program(sleeper.pid()).file, own.file);
}

#[test]
fn executable_identity_survives_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("Xorg");
    copy_program("/bin/sleep".as_ref(), &path);
    let sleeper = Sleeper::spawn(Command::new(&path).arg("1000"));
    sleeper.wait_for_name("Xorg");
    let before = program(sleeper.pid());
    assert_eq!(before.seen_by_caller, Ok(false), "it is in no directory of the system");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(program(sleeper.pid()), before);
    std::fs::copy("/bin/true", &path).unwrap();
    assert_eq!(program(sleeper.pid()), before, "another file is at its place now");
}

#[test]
fn kernel_thread_has_no_executable() {
    let Ok(thread) = host().process(Pid(2)) else { return };
    if thread.kernel_thread {
        assert_eq!(thread.executable, Err(Absent::NotFound));
    }
}

/// Takes the name of a display server while it runs Python.
const CALLED_XORG: &str = "
import os, time
with open('/proc/self/comm', 'w') as comm:
    comm.write('Xorg')
os.write(1, b'ready')
time.sleep(600)
";

#[test]
fn system_executable_is_visible_unless_mount_namespace_differs() {
    const TEST: &str = "system_executable_is_visible_unless_mount_namespace_differs";
    if !Path::new("/usr/bin/python3").exists() {
        return skip(TEST, "there is no /usr/bin/python3");
    }
    for (namespace, seen) in [(None, true), (Some("--mount"), true), (Some("--user"), false)] {
        let mut command = Command::new("unshare");
        if let Some(option) = namespace {
            let works = Command::new("unshare").args([option, "true"]).status();
            if !works.is_ok_and(|status| status.success()) {
                skip(TEST, &format!("unshare {option} is not possible here"));
                continue;
            }
            command.arg(option);
        } else {
            command = Command::new("env");
        }
        let sleeper = Sleeper::ready(command.args(["/usr/bin/python3", "-c", CALLED_XORG]));
        let reported = program(sleeper.pid());
        assert_eq!(reported.seen_by_caller, Ok(seen), "{namespace:?}: {reported:?}");
        assert_ne!(reported.name(), "Xorg", "the name is the process's choice, the file is not");
        assert!(reported.is_roots());
    }
}

#[test]
fn terminal_is_derived_from_session() {
    const TEST: &str = "terminal_is_derived_from_session";
    if !Path::new("/usr/bin/script").exists() {
        return skip(TEST, "there is no script(1)");
    }
    let mut command = Command::new("script");
    let script =
        Sleeper::ready(command.args(["-qc", "printf ready; exec sleep 1000", "/dev/null"]));
    let list = host().processes().unwrap().processes;
    let inside = list.iter().find(|process| process.parent == Ok(script.pid())).unwrap();
    assert_eq!((inside.has_terminal, inside.session), (Ok(true), Ok(inside.key.pid)));
    // It outlives its terminal if SIGHUP is ignored, as under nohup.
    let killed = host().open(inside.key.pid).unwrap();
    killed.signal(gpu_core::Signal::Kill, &gpu_core::ActToken::user_confirmed()).unwrap();
    let mut command = Command::new("setsid");
    let outside = Sleeper::spawn(command.args(["sleep", "1000"]));
    outside.wait_for_name("sleep");
    assert_eq!(host().process(outside.pid()).unwrap().has_terminal, Ok(false));
}

/// Copies a program in a child process: a copy that this process has open for writing cannot be
/// started while any test's child, just forked, has inherited the descriptor (`ETXTBSY`).
pub(crate) fn copy_program(from: &std::path::Path, to: &std::path::Path) {
    let copied = Command::new("cp").arg("-p").arg(from).arg(to).status().expect("cp can be run");
    assert!(copied.success());
}
