//! The data of real processes.

use crate::child::Sleeper;
use crate::host;
use gpu_core::{
    Absent, Clock, DeviceFiles, Pid, ProcessDetail, ProcessFault, ProcessInfo, ProcessState,
    ProcessTable,
};
use gpu_host::SystemClock;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn own_pid() -> Pid {
    Pid(std::process::id())
}

#[test]
fn own_process_is_described() {
    let own = host().process(own_pid()).unwrap();
    assert_eq!(own.key.pid, own_pid());
    assert_eq!(own.uid, Ok(rustix::process::geteuid().as_raw()));
    if own.uid == Ok(0) {
        assert_eq!(own.user.as_deref(), Ok("root"));
    }
    assert_eq!(own.parent, Ok(Pid(std::os::unix::process::parent_id())));
    assert!(own.live_threads.unwrap() >= 2, "the test harness has threads");
    assert!(matches!(own.state, Ok(ProcessState::Running | ProcessState::Sleeping)));
    assert_eq!(own.namespace_pids.unwrap().first(), Some(&own_pid()));
    let arguments: Vec<_> = std::env::args().collect();
    assert_eq!(own.command_line.unwrap()[..], arguments);
    assert!(own.cgroup.unwrap().starts_with('/'));
    assert!(!own.kernel_thread);
    let age = SystemClock::new().wall().since(own.started_at.unwrap());
    assert!(age < Duration::from_secs(24 * 3600), "{age:?}");
}

#[test]
fn all_processes_are_listed_once() {
    let sleeper = Sleeper::shell(":", &[]);
    let list = host().processes().unwrap();
    let pids: Vec<_> = list.processes.iter().map(|process| process.key.pid).collect();
    assert!(pids.is_sorted_by(|a, b| a < b), "in order, each once");
    assert!(pids.contains(&own_pid()));
    let child = list.processes.iter().find(|process| process.key.pid == sleeper.pid()).unwrap();
    assert_eq!(child.parent, Ok(own_pid()));
    assert_eq!(child.command_line, Ok(["sleep", "1000"].map(str::to_owned).into()));
    if host().sees_host_pids() == Ok(true)
        && let Some(kthreadd) = list.processes.iter().find(|process| process.key.pid == Pid(2))
    {
        assert!(kthreadd.kernel_thread);
        assert_eq!(kthreadd.command_line, Err(Absent::NotFound));
    }
}

#[test]
fn own_ancestry_reaches_init() {
    let line = host().own_ancestry().unwrap();
    let pids: Vec<_> = line.iter().map(|key| key.pid).collect();
    assert_eq!(pids[..2], [own_pid(), Pid(std::os::unix::process::parent_id())]);
    assert!(line.iter().all(|key| key.start.is_some()));
    let first = host().process(*pids.last().unwrap()).unwrap();
    assert_eq!(first.parent, Ok(Pid(0)));
}

#[test]
fn hostile_process_names_are_returned_verbatim() {
    let sleep = Command::new("sh").args(["-c", "command -v sleep"]).output().unwrap().stdout;
    let dir = tempfile::tempdir().unwrap();
    for (name, reported) in [
        (&b"a) R 1 (\n\x1b[2J"[..], "a) R 1 (\n\x1b[2J"),
        (b"\xff\xfe) Z 0 0", "\u{fffd}\u{fffd}) Z 0 0"),
        (b"(((", "((("),
        (b"Uid:\t0\nUid:\t0", "Uid:\t0\nUid:\t0"),
    ] {
        let path = dir.path().join(OsStr::from_bytes(name));
        crate::programs::copy_program(String::from_utf8_lossy(&sleep).trim().as_ref(), &path);
        let mut command = Command::new(&path);
        let sleeper = Sleeper::spawn(command.arg("1000").arg0("zz"));
        crate::child::eventually(|| host().process(sleeper.pid()).unwrap().name == reported);
        let process = host().process(sleeper.pid()).unwrap();
        assert_eq!(process.parent, Ok(own_pid()), "{reported:?}");
        assert_eq!(process.uid, Ok(rustix::process::geteuid().as_raw()), "{reported:?}");
    }
}

#[test]
fn command_lines_are_bounded_and_keep_empty_arguments() {
    let mut command = Command::new("sh");
    command.args(["-c", "read line", "", "\n\x1b", &"x".repeat(100_000), "end"]);
    let sleeper = Sleeper::spawn(command.stdin(std::process::Stdio::piped()));
    let read = || host().process(sleeper.pid()).unwrap().command_line;
    // It is missing for a moment during the execve.
    crate::child::eventually(|| read().is_ok());
    let line = read().unwrap();
    assert_eq!(line[..5], ["sh", "-c", "read line", "", "\n\x1b"]);
    assert_eq!(line.len(), 6);
    assert_eq!(line.iter().map(|argument| argument.len() + 1).sum::<usize>(), 4096 + 1);
}

/// Sets its dumpable flag to 0, which makes root the owner of its files in /proc, and prints
/// `ready`.
const NOT_DUMPABLE: &str = r#"
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) return 1;
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#;

fn outline(pid: Pid) -> gpu_core::Result<ProcessInfo> {
    host().processes_of(&[pid], ProcessDetail::Outline).remove(0)
}

/// Asserts that outlines agree with the whole process.
fn assert_outlined(pid: Pid) {
    let whole = host().process(pid).unwrap();
    assert!(whole.cgroup.is_ok(), "{whole:?}");
    for detail in [ProcessDetail::Outline, ProcessDetail::WithJob] {
        let read = host().processes_of(&[pid], detail).remove(0).unwrap();
        // A process that has just started goes on between the two.
        let now = ProcessInfo { state: read.state, resident: read.resident, ..whole.clone() };
        let now = ProcessInfo { cpu_time: read.cpu_time, ..now };
        assert_eq!(read, now.in_detail(detail));
        assert_eq!(read.cgroup.is_ok(), detail == ProcessDetail::WithJob);
        assert_eq!(read.executable, Err(Absent::NotRecorded));
    }
}

#[test]
fn outline_agrees_with_whole_process() {
    let sleeper = Sleeper::shell(":", &[]);
    assert_outlined(sleeper.pid());
    assert_eq!(outline(Pid(1)).unwrap().uid, Ok(0));
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = crate::child::compile(dir.path(), NOT_DUMPABLE) else {
        return crate::skip("outline_agrees_with_whole_process", "there is no C compiler");
    };
    let mut command = Command::new(program);
    if rustix::process::geteuid().is_root() {
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        command.uid(65_534);
    }
    let sleeper = Sleeper::ready(&mut command);
    assert_outlined(sleeper.pid());
    assert_ne!(outline(sleeper.pid()).unwrap().uid, Ok(u32::MAX));
}

#[test]
fn outline_of_a_thread_does_not_exist() {
    let (send, receive) = std::sync::mpsc::channel();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid()).unwrap();
        wait.recv().unwrap_err();
    });
    let thread_id = Pid(receive.recv().unwrap().as_raw_nonzero().get().unsigned_abs());
    assert_ne!(thread_id, own_pid());
    assert_eq!(outline(thread_id).unwrap_err().kind(), ProcessFault::Gone.into());
    assert_eq!(host().process(thread_id).unwrap_err().kind(), ProcessFault::Gone.into());
    drop(end);
    thread.join().unwrap();
}

#[test]
fn process_called_like_a_service_has_no_outline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nvidia-persiste");
    crate::programs::copy_program("/bin/sleep".as_ref(), &path);
    let sleeper = Sleeper::spawn(Command::new(&path).arg("1000"));
    sleeper.wait_for_name("nvidia-persiste");
    let read = outline(sleeper.pid()).unwrap();
    assert_eq!(read.executable.unwrap().path, path.to_str().unwrap());
}

#[test]
fn hostname_is_read() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(host().hostname().as_deref(), Ok(name.trim()));
}

#[test]
fn device_files_are_listed() {
    let files = host().device_files().unwrap();
    assert!(files.iter().all(|file| file.id.is_ok() && file.path.starts_with("/dev/")));
}

#[test]
fn known_process_is_read_again_and_whole_if_it_is_another() {
    let sleeper = Sleeper::shell(":", &[]);
    let whole = host().process(sleeper.pid()).unwrap();
    let again = |known: &ProcessInfo| {
        host().processes_again(vec![Arc::new(known.clone())], ProcessDetail::Outline).remove(0)
    };
    // Data that is kept: here a user other than that of the process.
    let known = ProcessInfo { user: Ok("before".to_owned()), ..whole.clone() };
    let known = ProcessInfo { cpu_time: Err(Absent::NotRecorded), ..known };
    let read = again(&known).unwrap();
    assert_eq!((read.user.as_deref(), &read.cpu_time), (Ok("before"), &whole.cpu_time));
    assert_eq!(read.command_line, whole.command_line);
    // Another process with the same PID, and one that has executed another program.
    let mut other = known.clone();
    other.key.start = other.key.start.map(|start| gpu_core::StartTime(start.0 - 1));
    let renamed = ProcessInfo { name: "python".to_owned(), ..known.clone() };
    for known in [other, renamed] {
        let read = again(&known).unwrap();
        assert_eq!((read.key, &read.name, &read.user), (whole.key, &whole.name, &whole.user));
    }
    drop(sleeper);
    let error = again(&known).unwrap_err();
    assert_eq!(error.kind(), ProcessFault::Gone.into());
}
