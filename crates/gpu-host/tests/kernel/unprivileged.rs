//! The same tests without privileges, and cases that need fewer of them or a namespace. These run
//! this program again, through setpriv or unshare.

use crate::child::{Sleeper, eventually};
use crate::{host, skip};
use gpu_core::{
    Absent, ActToken, DeviceFile, DeviceFiles, ErrorKind, Pid, ProcessFault, ProcessTable, Signal,
};
use gpu_host::resolve;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The variable that passes a process of root and a file that it holds to the tests that run again.
const FOREIGN: &str = "GPU_HOST_TEST_FOREIGN_PID";
const FOREIGN_FILE: &str = "GPU_HOST_TEST_FOREIGN_FILE";

const NOT_PERMITTED: ErrorKind = ErrorKind::Process(ProcessFault::NotPermitted);

/// This program where every user can run it, and a process of root that holds a file.
struct Unprivileged {
    dir: tempfile::TempDir,
    foreign: Sleeper,
}

impl Unprivileged {
    /// Returns `None`, and prints so, if root does not run this test; prints no message in the second
    /// run.
    fn new(test: &str) -> Option<Self> {
        if std::env::var_os(FOREIGN).is_some() {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skip(test, "needs root");
            return None;
        }
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        let dir = tempfile::Builder::new().permissions(open_to_all).tempdir().unwrap();
        crate::programs::copy_program(&std::env::current_exe().unwrap(), &dir.path().join("tests"));
        let file = dir.path().join("nvidia0");
        std::fs::write(&file, "stand-in").unwrap();
        let foreign = Sleeper::shell("exec 3< \"$1\"", &[&file]);
        Some(Unprivileged { dir, foreign })
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("tests")
    }

    /// Runs `command`; `None`, and prints so, if that is not possible here.
    fn run(&self, test: &str, command: &mut Command) -> Option<Output> {
        command.current_dir("/").env("TMPDIR", "/tmp");
        command.env(FOREIGN, self.foreign.pid().to_string());
        command.env(FOREIGN_FILE, self.dir.path().join("nvidia0"));
        match command.output() {
            Err(error) => {
                skip(test, &format!("{:?} cannot be run: {error}", command.get_program()));
                None
            }
            // The program itself prints something, whatever the outcome.
            Ok(output) if output.stdout.is_empty() => {
                skip(test, String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Ok(output) => {
                for line in String::from_utf8_lossy(&output.stderr).lines() {
                    skip(test, line.strip_prefix("skipped: ").unwrap_or(line));
                }
                Some(output)
            }
        }
    }

    /// Runs the one ignored test `name` through `command`, which ends before the program's name.
    fn only(&self, test: &str, name: &str, command: &mut Command) {
        let name = format!("unprivileged::{name}");
        command.arg(self.program()).args(["--ignored", "--exact", &name]);
        let Some(output) = self.run(test, command) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}

/// Returns the process and the file from the outer test.
fn foreign() -> (Pid, [DeviceFile; 1]) {
    let named = |variable| std::env::var(variable).expect("this test is run by another one");
    (Pid(named(FOREIGN).parse().unwrap()), [resolve(named(FOREIGN_FILE)).unwrap()])
}

fn as_nobody() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg("--bounding-set=-all");
    command
}

#[test]
fn all_tests_pass_as_nobody() {
    const TEST: &str = "all_tests_pass_as_nobody";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = as_nobody();
    command.arg(again.program());
    let Some(output) = again.run(TEST, &mut command) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn foreign_processes_as_nobody() {
    const TEST: &str = "foreign_processes_as_nobody";
    let Some(again) = Unprivileged::new(TEST) else { return };
    again.only(TEST, "foreign_processes_are_counted_as_unreadable", &mut as_nobody());
}

#[test]
#[ignore = "run by another test"]
fn foreign_processes_are_counted_as_unreadable() {
    let (pid, files) = foreign();
    let scan = host().holders(&files).unwrap();
    assert_eq!(scan.holders, []);

    // Kernel threads have no files: they do not count as unreadable.
    let closed = scan.unreadable.0.get(&Absent::NotPermitted).copied().unwrap_or(0);
    let list = host().processes().unwrap();
    let strangers = list.processes.iter().filter(|process| {
        !process.kernel_thread && process.uid != Ok(65534) && process.live_threads != Ok(0)
    });
    let strangers = u32::try_from(strangers.count()).unwrap();
    assert!((1..=strangers + 20).contains(&closed), "{closed} closed, {strangers} strangers");

    let handle = host().open(pid).unwrap();
    assert_eq!(handle.info().unwrap().uid, Ok(0), "its user is visible");
    assert_eq!(handle.held(&files).unwrap_err().kind(), NOT_PERMITTED);
    let error = handle.signal(Signal::Term, &ActToken::user_confirmed()).unwrap_err();
    assert_eq!(error.kind(), NOT_PERMITTED);
    assert_eq!(error.to_string(), format!("send SIGTERM to process {pid}"));
    assert!(!handle.has_exited().unwrap());
}

#[test]
fn foreign_processes_under_hidepid() {
    const TEST: &str = "foreign_processes_under_hidepid";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount -t proc -o hidepid=2 proc /proc && exec \"$@\"").arg("sh");
    command.arg(as_nobody().get_program()).args(as_nobody().get_args());
    again.only(TEST, "hidden_processes_are_reported_as_unreadable", &mut command);
}

#[test]
#[ignore = "run by another test"]
fn hidden_processes_are_reported_as_unreadable() {
    let (pid, files) = foreign();
    // A process of this user that is just starting may be unreadable for a moment too.
    let known = |hidden: &gpu_core::Unreadable| hidden.0.keys().eq([&Absent::NotPermitted]);
    assert!(known(&host().holders(&files).unwrap().unreadable));
    let list = host().processes().unwrap();
    assert!(known(&list.unreadable));
    // The owner of a process that ends between two reads of it is unknown.
    let shown = |process: &gpu_core::ProcessInfo| process.uid.is_err() || process.uid == Ok(65534);
    assert!(list.processes.iter().all(shown), "{:?}", list.processes);
    assert!(list.processes.iter().any(|process| process.key.pid == Pid(std::process::id())));
    let gone = ErrorKind::Process(ProcessFault::Gone);
    assert_eq!(host().process(pid).unwrap_err().kind(), gone);
    // Its parent belongs to root, and is not visible.
    let line: Vec<_> = host().own_ancestry().unwrap().iter().map(|key| key.pid).collect();
    assert_eq!(line, [Pid(std::process::id())]);
    assert!(gpu_host::hides_processes("/proc".as_ref()));
}

/// A set-user-ID program is between a shell and this program, as with su(1).
#[test]
fn ancestry_behind_hidden_parent() {
    const TEST: &str = "ancestry_behind_hidden_parent";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let between = again.dir.path().join("timeout");
    if !std::path::Path::new("/usr/bin/timeout").exists() {
        return skip(TEST, "no timeout(1)");
    }
    crate::programs::copy_program("/usr/bin/timeout".as_ref(), &between);
    let set_user_id = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&between, set_user_id).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c"]);
    command.arg("mount -t proc -o hidepid=2 proc /proc && exec \"$@\"").arg("sh");
    command.arg(as_nobody().get_program());
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]);
    command.arg(format!(
        "{} 100 setpriv --reuid=65534 --regid=65534 --keep-groups \"$@\"; exit $?",
        between.display()
    ));
    command.arg("sh");
    again.only(TEST, "ancestor_behind_hidden_parent_is_found", &mut command);
}

#[test]
#[ignore = "run by another test"]
fn ancestor_behind_hidden_parent_is_found() {
    const TEST: &str = "ancestor_behind_hidden_parent_is_found";
    let between = Pid(std::os::unix::process::parent_id());
    if host().process(between).is_ok() {
        return skip(TEST, "the set-user-ID bit has no effect here");
    }
    if !std::path::Path::new("/proc/thread-self/children").exists() {
        return skip(TEST, "the kernel keeps no lists of children");
    }
    let line: Vec<_> = host().own_ancestry().unwrap().iter().map(|key| key.pid).collect();
    let [own, beyond] = line[..] else { panic!("{line:?}") };
    assert!(own == Pid(std::process::id()) && beyond != between, "{line:?}");
    assert_eq!(host().process(beyond).unwrap().name, "sh");
}

#[test]
fn root_without_ptrace_capability() {
    const TEST: &str = "root_without_ptrace_capability";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", "--bounding-set=-sys_ptrace"]);
    again.only(TEST, "unreadable_descriptor_links_are_counted", &mut command);
}

/// Root may list the descriptors of every process, but without `CAP_SYS_PTRACE` not follow those of
/// a process that has it, as in a container.
#[test]
#[ignore = "run by another test"]
fn unreadable_descriptor_links_are_counted() {
    let (pid, files) = foreign();
    let scan = host().holders(&files).unwrap();
    assert_eq!(scan.holders, []);
    assert!(scan.unreadable.0.get(&Absent::NotPermitted).is_some_and(|closed| *closed >= 1));
    let error = host().open(pid).unwrap().held(&files).unwrap_err();
    assert_eq!(error.kind(), NOT_PERMITTED);
}

#[test]
fn pid_namespace_with_outer_proc() {
    const TEST: &str = "pid_namespace_with_outer_proc";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]);
    again.only(TEST, "foreign_namespace_pids_cannot_be_opened", &mut command);
}

#[test]
#[ignore = "run by another test"]
fn foreign_namespace_pids_cannot_be_opened() {
    let (pid, files) = foreign();
    assert!(host().process(pid).is_ok());
    assert_eq!(host().holders(&files).unwrap().holders.len(), 1, "what is shown can be looked at");
    for pid in [pid, Pid(1), Pid(std::process::id())] {
        let error = host().open(pid).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn pid_namespace_with_own_proc() {
    const TEST: &str = "pid_namespace_with_own_proc";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]);
    again.only(TEST, "own_namespace_processes_are_listed", &mut command);
}

#[test]
#[ignore = "run by another test"]
fn own_namespace_processes_are_listed() {
    assert_eq!(host().sees_host_pids(), Ok(false));
    let sleeper = Sleeper::shell(":", &[]);
    let pids: Vec<_> = host().processes().unwrap().processes.iter().map(|p| p.key.pid).collect();
    assert_eq!(pids, [Pid(std::process::id()), sleeper.pid()]);
    let handle = host().open(sleeper.pid()).unwrap();
    assert_eq!(handle.info().unwrap().namespace_pids, Ok(vec![sleeper.pid()]));
    handle.signal(Signal::Term, &ActToken::user_confirmed()).unwrap();
    eventually(|| handle.has_exited().unwrap());
}

#[test]
fn bpf_in_pid_namespace() {
    const TEST: &str = "bpf_in_pid_namespace";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]);
    again.only(TEST, "own_namespace_holders_are_the_same_with_and_without_bpf", &mut command);
}

#[test]
#[ignore = "run by another test"]
fn own_namespace_holders_are_the_same_with_and_without_bpf() {
    crate::bpf::compare();
}

/// Runs a program under a seccomp filter.
const FILTER: &str = include_str!("../deny.c");

#[test]
fn filtered_process_tries_no_unusual_call() {
    const TEST: &str = "filtered_process_tries_no_unusual_call";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let Some(program) = crate::child::compile(again.dir.path(), FILTER) else {
        return skip(TEST, "there is no C compiler");
    };
    let test = "own_namespace_holders_are_the_same_with_and_without_bpf";
    let ended = [nix::libc::SYS_bpf, nix::libc::SYS_kcmp].map(|call| format!("{call}:-1"));
    again.only(TEST, test, Command::new(program).args(ended).arg("--"));
}

#[test]
fn holders_without_statx() {
    const TEST: &str = "holders_without_statx";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let Some(program) = crate::child::compile(again.dir.path(), FILTER) else {
        return skip(TEST, "there is no C compiler");
    };
    for errno in [nix::libc::ENOSYS, nix::libc::EPERM] {
        let mut command = Command::new(&program);
        command.arg(format!("{}:{errno}", nix::libc::SYS_statx)).arg("--");
        again.only(TEST, "foreign_holder_is_found", &mut command);
    }
}

#[test]
#[ignore = "run by another test"]
fn foreign_holder_is_found() {
    let (pid, files) = foreign();
    let holders = host().holders(&files).unwrap().holders;
    assert_eq!(holders.iter().map(|holder| holder.process.pid).collect::<Vec<_>>(), [pid]);
    assert_eq!(host().open(pid).unwrap().held(&files).unwrap().len(), 1);
    assert!(host().device_files().is_ok());
}

#[test]
fn pid_namespace_with_chosen_pids() {
    const TEST: &str = "pid_namespace_with_chosen_pids";
    let Some(again) = Unprivileged::new(TEST) else { return };
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]);
    again.only(TEST, "handle_of_reused_pid_reaches_neither_process", &mut command);
}

/// Linux lets a process with the checkpoint capability choose the next PID.
#[test]
#[ignore = "run by another test"]
fn handle_of_reused_pid_reaches_neither_process() {
    let mut first = Sleeper::shell(":", &[]);
    let pid = first.pid();
    let handle = host().open(pid).unwrap();
    handle.signal(Signal::Kill, &ActToken::user_confirmed()).unwrap();
    first.reap();

    let last = (pid.0 - 1).to_string();
    if let Err(error) = std::fs::write("/proc/sys/kernel/ns_last_pid", last) {
        return skip("handle_of_reused_pid_reaches_neither_process", &error.to_string());
    }
    let second = Sleeper::shell(":", &[]);
    assert_eq!(second.pid(), pid, "the number is used again");

    let gone = ErrorKind::Process(ProcessFault::Gone);
    assert!(handle.has_exited().unwrap());
    assert_eq!(handle.info().unwrap_err().kind(), gone);
    let files = [resolve("/dev/null").unwrap()];
    assert_eq!(handle.held(&files).unwrap_err().kind(), gone);
    for signal in [Signal::Term, Signal::Kill] {
        let error = handle.signal(signal, &ActToken::user_confirmed()).unwrap_err();
        assert_eq!(error.kind(), gone);
    }
    let successor = host().open(pid).unwrap();
    assert!(!successor.has_exited().unwrap(), "no signal reached it");
}

#[test]
fn namespaced_process_has_two_pids() {
    const TEST: &str = "namespaced_process_has_two_pids";
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "needs root");
    }
    let mut command = Command::new("unshare");
    let outer = Sleeper::spawn(command.args(["--pid", "--kill-child", "sleep", "1000"]));
    let inner = || {
        let list = host().processes().unwrap();
        list.processes.into_iter().find(|p| p.parent == Ok(outer.pid()) && p.name == "sleep")
    };
    eventually(|| inner().is_some());
    let inner = inner().unwrap();
    assert_eq!(inner.namespace_pids, Ok(vec![inner.key.pid, Pid(1)]));
}
