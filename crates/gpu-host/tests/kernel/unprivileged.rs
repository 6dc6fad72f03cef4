//! The same tests without privileges, and what only shows without.

use crate::child::Sleeper;
use crate::{host, skip};
use gpu_core::{Absent, ActToken, ErrorKind, Host, Pid, ProcessFault, Signal};
use gpu_host::resolve;
use std::path::Path;
use std::process::Command;

/// Names a process of root and a file that it holds, to the tests run as nobody.
const FOREIGN: &str = "GPU_HOST_TEST_FOREIGN_PID";
const FOREIGN_FILE: &str = "GPU_HOST_TEST_FOREIGN_FILE";

#[test]
fn everything_again_as_nobody() {
    const TEST: &str = "everything_again_as_nobody";
    if !rustix::process::geteuid().is_root() {
        return skip(TEST, "not root");
    }
    // The program must be where nobody can run it.
    let folder = tempfile::Builder::new().permissions(open_to_all()).tempdir().unwrap();
    let program = folder.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let file = folder.path().join("nvidia0");
    std::fs::write(&file, "stand-in").unwrap();
    let foreign = Sleeper::shell("exec 3< \"$1\"", &[&file]);

    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg("--bounding-set=-all").arg(&program).current_dir("/");
    command.env("TMPDIR", "/tmp").env(FOREIGN, foreign.pid().to_string()).env(FOREIGN_FILE, &file);
    let output = match command.output() {
        Err(error) => return skip(TEST, &format!("setpriv cannot be run: {error}")),
        Ok(output) => output,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        skip("as nobody", line.strip_prefix("skipped: ").unwrap_or(line));
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("test unprivileged::strangers_are_counted_and_left_alone ... ok"));
}

fn open_to_all() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

#[test]
fn strangers_are_counted_and_left_alone() {
    let (Ok(pid), Ok(file)) = (std::env::var(FOREIGN), std::env::var(FOREIGN_FILE)) else {
        return skip("strangers_are_counted_and_left_alone", "run by 'everything again as nobody'");
    };
    let pid = Pid(pid.parse().unwrap());
    let files = [resolve(Path::new(&file)).unwrap()];
    let scan = host().holders(&files).unwrap();
    assert!(scan.holders.iter().all(|holder| holder.process.pid != pid));

    // Threads of the kernel have no files: they are not among those that could not be seen.
    let closed = scan.unreadable.0.get(&Absent::NotPermitted).copied().unwrap_or(0);
    let list = host().processes().unwrap();
    let strangers = list.processes.iter().filter(|process| {
        !process.kernel_thread && process.uid != Ok(65534) && process.live_threads != Ok(0)
    });
    let strangers = u32::try_from(strangers.count()).unwrap();
    assert!((1..=strangers + 20).contains(&closed), "{closed} closed, {strangers} strangers");

    let not_permitted = ErrorKind::Process(ProcessFault::NotPermitted);
    let handle = host().open(pid).unwrap();
    assert_eq!(handle.look().unwrap().uid, Ok(0), "who it is may be known");
    assert_eq!(handle.held(&files).unwrap_err().kind(), not_permitted);
    let error = handle.signal(Signal::Term, &ActToken::the_user_asked()).unwrap_err();
    assert_eq!(error.kind(), not_permitted);
    assert_eq!(error.to_string(), format!("send SIGTERM to process {pid}"));
    assert!(!handle.has_exited().unwrap());
}
