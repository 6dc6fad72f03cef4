//! System calls that fail under a seccomp filter: no device is granted twice, no holder counts as
//! gone, and each hint fits the error.

use crate::live::{GPUWS, out, reported, script};
use crate::program::skipped;
use nix::libc::{
    EACCES, EINTR, EMFILE, ENOSYS, EPERM, F_OFD_GETLK, SYS_clone3, SYS_faccessat, SYS_faccessat2,
    SYS_fcntl, SYS_fstatfs, SYS_newfstatat, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_statx,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A program that makes system calls of another program fail.
const DENY: &str = include_str!("../../../gpu-host/tests/deny.c");

/// The program, compiled; `None` if there is no C compiler.
fn deny() -> Option<TempDir> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("deny.c"), DENY).unwrap();
    let mut cc = Command::new("cc");
    let made = cc.args(["-o", "deny", "deny.c"]).current_dir(dir.path()).status();
    if made.is_ok_and(|status| status.success()) {
        return Some(dir);
    }
    skipped("faults: there is no C compiler");
    None
}

/// Runs a script with the function `deny RULES COMMAND`, which runs a command under a filter.
fn under_filter(text: &str) -> Option<Output> {
    let dir = deny()?;
    let deny = dir.path().join("deny");
    let begin = format!("deny() {{ r=$1; shift; {} $r -- \"$@\"; }}\n", deny.display());
    Some(script("twelve-gpus", &(begin + text)))
}

#[test]
fn unanswered_lock_query_grants_no_device() {
    for errno in [EACCES, EPERM, EINTR] {
        let rule = format!("{SYS_fcntl}:{errno}:1:{F_OFD_GETLK}");
        let Some(output) = under_filter(&format!(
            "\"$0\" run --gpu 7 -- sh -c 'touch runs; exec sleep 60' & front=$!\n\
             until_so test -e runs\n\
             deny {rule} \"$0\" leases; echo $?\n\
             deny {rule} \"$0\" claim -n 1; echo $?\n\
             deny {rule} \"$0\" run --gpu 7 --no-wait -- echo granted; echo $?\n\
             kill $front; wait $front"
        )) else {
            return;
        };
        let text = out(&output);
        let codes: Vec<&str> = text.lines().filter(|line| line.len() < 4).collect();
        assert!(codes.len() == 3 && !codes.contains(&"0"), "{errno}: {output:?}");
        assert!(!text.contains("granted") && !text.contains("no leases"), "{errno}: {output:?}");
        let said = reported(&output).matches("query its lock (F_OFD_GETLK)").count();
        assert_eq!(said, 3, "{errno}: {output:?}");
    }
}

/// A job that leaves a process behind. The process has the device, and the driver does not list it.
const LEAVES: &str = "sh -c 'sh -c \"exec sleep 60\" < $GPUWS_SIM_SESSION/dev/nvidia7 & \
                      echo $! > pid; sleep 0.2'";

#[test]
fn holder_is_ended_where_statx_is_blocked() {
    for errno in [ENOSYS, EPERM] {
        let Some(output) = under_filter(&format!(
            "deny {SYS_statx}:{errno} \"$0\" run --gpu 7 -- {LEAVES}; echo $?\n\
             kill -0 $(cat pid) 2> /dev/null && echo lives; kill $(cat pid) 2> /dev/null\n\
             \"$0\" run --gpu 7 --timeout 20s -- echo free"
        )) else {
            return;
        };
        assert_eq!(out(&output), "0\nfree\n", "{errno}: {output:?}");
        assert!(reported(&output).contains("1 process left behind was ended"), "{output:?}");
    }
}

#[test]
fn unidentifiable_holder_keeps_the_lease() {
    // fstatat of a path with only AT_NO_AUTOMOUNT, as gpuws calls it. In the last case, the holder
    // is known and cannot be signalled.
    let identity = |errno| format!("{SYS_statx}:{errno} {SYS_newfstatat}:{errno}:3:2048");
    let signal = format!("{SYS_statx}:{EPERM} {SYS_pidfd_send_signal}:{EPERM}");
    for rules in [identity(EPERM), identity(ENOSYS), signal] {
        let Some(output) = under_filter(&format!(
            "deny '{rules}' \"$0\" run --gpu 7 -- {LEAVES}; echo $?\n\
             \"$0\" run --gpu 7 --no-wait -- echo granted; echo $?\n\
             kill $(cat pid); \"$0\" run --gpu 7 --timeout 20s -- echo free"
        )) else {
            return;
        };
        assert_eq!(out(&output), "0\n75\nfree\n", "{rules}: {output:?}");
    }
}

#[test]
fn hints_fit_the_error() {
    let both = |errno| format!("{SYS_faccessat}:{errno} {SYS_faccessat2}:{errno}");
    for (rules, code, names) in [
        (format!("{SYS_clone3}:{EPERM}"), "125", "clone3"),
        (format!("{SYS_pidfd_open}:{EPERM}"), "125", "pidfd_open is not available"),
        (format!("{SYS_fstatfs}:{EPERM}"), "125", "(fstatfs)"),
        (both(EINTR), "125", "faccessat2: Interrupted system call"),
        (both(EMFILE), "125", "faccessat2: Too many open files"),
        (both(EPERM), "125", "faccessat2: Operation not permitted"),
    ] {
        let run = format!("deny '{rules}' \"$0\" run --gpu 7 --no-wait -- sleep 0; echo $?");
        let Some(output) = under_filter(&run) else { return };
        assert_eq!(out(&output), format!("{code}\n"), "{rules}: {output:?}");
        let said = reported(&output);
        assert!(said.contains(names), "{rules}: {said}");
        for hint in ["sudo", "chmod", "PID namespace"] {
            assert!(!said.contains(hint), "{rules}: {said}");
        }
    }
}

#[test]
fn hint_for_command_names_its_fault() {
    let output = script(
        "twelve-gpus",
        "chmod 755 .; mkdir closed; touch plain group; chmod 0 closed; chmod 0750 group\n\
         me() { setpriv --reuid=61001 --regid=61001 --clear-groups \"$@\"; }\n\
         me true 2> /dev/null || { echo skipped; exit; }\n\
         cd /; PATH=$OLDPWD/closed:$PATH; export PATH\n\
         for program in nosuchcmd /tmp $OLDPWD/closed/x $OLDPWD/plain $OLDPWD/group /dev/null; do\n\
           me \"$0\" run -- $program; echo $?\n\
         done",
    );
    let text = out(&output);
    if text == "skipped\n" {
        return;
    }
    assert_eq!(text, "127\n126\n126\n126\n126\n126\n", "{output:?}");
    let said = reported(&output);
    let hints: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("hint: ")).collect();
    for (hint, part) in hints.iter().zip([
        "PATH has a directory that you may not search",
        "pass the path of a program",
        "check the permissions of the directories above",
        "not executable; try: chmod +x",
        "mode 0750 does not let you execute it",
        "pass the path of a program",
    ]) {
        assert!(hint.contains(part), "{hint}: {part}");
    }
    assert_eq!(hints.len(), 6, "{said}");
}

/// Runs the program as another user, outside any session; `None` if this user cannot.
fn as_another_user(change: impl FnOnce(&mut Command)) -> Option<Output> {
    if !rustix::process::geteuid().is_root() {
        skipped("faults: another user needs root");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=61001", "--regid=61001", "--clear-groups", GPUWS]).current_dir("/");
    for name in ["GPUWS_SIM_SESSION", "LD_LIBRARY_PATH", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    change(&mut command);
    let output = command.output().unwrap();
    let said = reported(&output);
    if said.contains("setpriv:") {
        skipped(&format!("faults: {}", said.trim()));
        return None;
    }
    Some(output)
}

#[test]
fn machine_in_a_closed_directory_is_not_missing() {
    let closed =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o000)).tempdir().unwrap();
    let machine = closed.path().join("box");
    let status = |command: &mut Command| {
        command.arg("--sim").arg(&machine).arg("status");
    };
    let Some(output) = as_another_user(status) else { return };
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(4), ""), "{output:?}");
    let said = reported(&output);
    assert!(said.contains("Permission denied") && !said.contains("has this name"), "{said}");
}

/// A service account has a home directory that does not exist.
#[test]
fn run_needs_no_home_directory() {
    let leases = tempfile::Builder::new().permissions(Permissions::from_mode(0o1777)).tempdir();
    let leases = leases.unwrap();
    let run = |command: &mut Command| {
        command.args(["run", "--claims"]).arg(leases.path());
        command.args(["--no-wait", "-n", "1", "--", "true"]).env("HOME", "/nonexistent");
    };
    let Some(output) = as_another_user(run) else { return };
    let said = reported(&output);
    // Without a driver, the run fails after that.
    let warning = "warning: this run has no audit log: failed to create the directory \
                   '/nonexistent'";
    assert!(said.contains(warning), "{said}");
    assert!(said.contains("set XDG_STATE_HOME to a directory that you own"), "{said}");
    assert!(!said.contains("gpuws: failed to create the directory"), "{said}");
}

/// A job that reuses the numbers of descriptors, as scripts do for locks.
const REUSES: &str = "\
ls -l /proc/$$/fd > fds; echo $$ > pid
for n in {3..31} 99 {100..123} 199 200 201 222 250 254 255 256 300 999; do
  eval \"exec $n> lock\"; flock -n $n
done
exec {own}> lock; flock -n $own
touch begun; exec sleep 60
";

#[test]
fn script_reusing_descriptors_keeps_the_lease() {
    let output = script(
        "twelve-gpus",
        &format!(
            "cat > job << 'END'\n{REUSES}END\n\
             \"$0\" run --gpu 7 --on-death keep -- bash job & front=$!\n\
             until_so test -e begun\n\
             grep kept- fds | grep -o '[0-9]* ->' | cut -d ' ' -f 1\n\
             kill -KILL $(cat /proc/$front/task/$front/children); wait $front\n\
             \"$0\" run --gpu 7 --no-wait -- echo granted; echo $?\n\
             kill $(cat pid); \"$0\" run --gpu 7 --timeout 20s -- echo free"
        ),
    );
    let text = out(&output);
    let mut lines = text.lines();
    let number: u32 = lines.next().and_then(|line| line.parse().ok()).expect("the job inherits it");
    assert!(number > 100 && ![200, 255].contains(&number), "{number}");
    assert_eq!(lines.collect::<Vec<_>>(), ["75", "free"], "{output:?}");
}
