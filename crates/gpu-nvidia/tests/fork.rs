//! The child as a fork of the program. This requires a program with a single thread, so it does not
//! use the test harness; it exits with 0 if all checks pass.

mod isolation;

use gpu_core::{ErrorKind, Fault, GpuBackend, Groups};
use gpu_nvidia::{Helper, NvmlChild};
use isolation::{endless_library, has_nothing_else, inheritable, with_named_call};
use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

fn backend(library: &Path, deadline: Duration) -> NvmlChild {
    let mut helper = Helper::new("/nowhere/helper");
    helper.forks = true;
    helper.library = Some(library.to_owned());
    NvmlChild::new(helper, deadline, Box::new(|_| {}))
}

fn fault(backend: &NvmlChild) -> Fault {
    backend.inventory(Groups::NONE).driver.unwrap_err()
}

fn children() -> Vec<u32> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let text = fs::read_to_string(path).unwrap();
    text.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn main() {
    let long = Duration::from_secs(60);
    let nowhere = Path::new("/nowhere/libnvidia-ml.so.1");
    forked_child_answers(&backend(nowhere, long));
    assert!(children().is_empty(), "it was reaped");
    hanging_forked_child_is_ended();
    multithreaded_program_is_never_forked(&backend(nowhere, long));
}

/// The helper program does not exist, so only a fork can answer.
fn forked_child_answers(backend: &NvmlChild) {
    let lease = inheritable();
    assert_eq!(fault(backend).kind, ErrorKind::Invalid);
    assert_eq!(fault(backend).kind, ErrorKind::Invalid);
    let [child] = children()[..] else { panic!("one child: {:?}", children()) };
    has_nothing_else(child);
    drop(lease);
}

fn hanging_forked_child_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let library = endless_library(dir.path());
    let hangs = || fault(&backend(&library, Duration::from_millis(300)));
    let text = "get an answer from the driver within 0.3 s: loading the library did not \
                return";
    assert_eq!(with_named_call(hangs).text, text);
    assert!(children().is_empty());
}

fn multithreaded_program_is_never_forked(backend: &NvmlChild) {
    let (end, wait) = channel::<()>();
    let other = std::thread::spawn(move || wait.recv());
    let fault = fault(backend);
    assert!(fault.text.starts_with("start the NVML helper '/nowhere/helper': "), "{}", fault.text);
    drop(end);
    assert!(other.join().unwrap().is_err());
}
