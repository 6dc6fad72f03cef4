//! What a child has of the program that asks it: their conversation, and nothing else.

use gpu_core::Fault;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a file that every program which is started from here inherits.
pub(crate) fn inheritable() -> File {
    let file = tempfile::tempfile().unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    file
}

/// Holds that a child has its conversation, its name and its program open and nothing more, stands
/// in the root and is in a process group of its own.
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
    let [(0, input), (1, output), (2, errors), (3, name), (4, program)] = &open[..] else {
        panic!("it has more or less than its conversation: {open:?}");
    };
    assert!(input.starts_with("socket:") && output.starts_with("pipe:"), "{open:?}");
    assert_eq!(errors, "/dev/null");
    assert_eq!(*name, format!("/proc/{pid}/comm"), "its own name");
    let own = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(Path::new(program), own, "its own program");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(2).unwrap();
    assert_eq!(group, pid.to_string(), "a process group of its own");
}

/// Makes a FIFO that nobody writes to: a library whose loading never ends.
pub(crate) fn endless_library(dir: &Path) -> PathBuf {
    let path = dir.join("libnvidia-ml.so.1");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    path
}

/// Returns the first fault that says what hangs. A child has 100 ms for its last words, which a
/// busy machine does not always give it.
pub(crate) fn with_last_words(fault: impl Fn() -> Fault) -> Fault {
    let faults = (0..20).map(|_| fault());
    let mut named = faults.filter(|fault| fault.text.ends_with(" did not return"));
    named.next().expect("one of twenty children says what hangs")
}
