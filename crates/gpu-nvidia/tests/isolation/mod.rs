//! A child inherits only the descriptors of the protocol.

use gpu_core::Fault;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Opens a file that every started program inherits.
pub(crate) fn inheritable() -> File {
    let file = tempfile::tempfile().unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    file
}

/// Asserts that a child has only its protocol, its `comm` file and its program open, and that it
/// runs in `/` and in its own process group.
pub(crate) fn has_nothing_else(pid: u32) {
    let mut open: Vec<(u32, String)> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let number = path.file_name().unwrap().to_string_lossy().parse().unwrap();
            (number, fs::read_link(path).unwrap().to_string_lossy().into_owned())
        })
        .collect();
    open.sort_unstable();
    let [(0, requests), (1, replies), (2, errors), (3, orders), (4, name), (5, program)] =
        &open[..]
    else {
        panic!("unexpected descriptors: {open:?}");
    };
    assert!(requests.starts_with("socket:"), "{open:?}");
    assert!(replies.starts_with("pipe:") && orders.starts_with("pipe:"), "{open:?}");
    assert_eq!(errors, "/dev/null");
    assert_eq!(*name, format!("/proc/{pid}/comm"), "its own name");
    let own = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(Path::new(program), own, "its own program");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(2).unwrap();
    assert_eq!(group, pid.to_string(), "a process group of its own");
}

/// Creates a FIFO without a writer: a library that never finishes loading.
pub(crate) fn endless_library(dir: &Path) -> PathBuf {
    let path = dir.join("libnvidia-ml.so.1");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

/// Returns the first fault that names the hanging call. A child has 100 ms to report it, which is
/// not always enough on a busy machine.
pub(crate) fn with_named_call(fault: impl Fn() -> Fault) -> Fault {
    let faults = (0..20).map(|_| fault());
    let mut named = faults.filter(|fault| fault.text.ends_with(" did not return"));
    named.next().expect("no child of twenty named its call")
}
