//! Tests in a separate process: the environment, standard error, and output at exit.

use crate::fixture::{library_path, session};
use gpu_sim::Session;
use nvml_wrapper_sys::bindings::NvmlLib;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the test `child_process_entry` of this program with a session from the environment.
fn run(dir: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "children::child_process_entry", "--ignored", "--nocapture"]);
    command.env(Session::VARIABLE, dir).output().unwrap()
}

/// Initialises the library like a program that does not know about simulations.
#[test]
#[ignore = "run by the others"]
fn child_process_entry() {
    // SAFETY: the functions are called as the public header declares them.
    unsafe {
        let nvml = NvmlLib::new(library_path()).unwrap();
        let mut count = 0;
        let codes = [nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(&mut count)];
        fs::write(
            Path::new(&std::env::var_os(Session::VARIABLE).unwrap()).join("result"),
            format!("{codes:?} {count}"),
        )
        .unwrap();
        nvml.nvmlShutdown();
    }
}

#[test]
fn each_process_appends_one_count_line_on_exit() {
    let dir = tempfile::tempdir().unwrap();
    Session { counts_calls: true, ..session("labbox") }.write(dir.path()).unwrap();
    for lines in 1..=2 {
        assert!(run(dir.path()).status.success());
        assert_eq!(fs::read_to_string(dir.path().join("result")).unwrap(), "[0, 0] 4");
        let written = fs::read_to_string(dir.path().join(Session::CALLS)).unwrap();
        assert_eq!(written.lines().count(), lines);
        let calls = r#""calls":{"nvmlDeviceGetCount_v2":1,"nvmlInit_v2":1,"nvmlShutdown":1}}"#;
        assert!(written.lines().all(|line| line.ends_with(calls)), "{written}");
    }
}

#[test]
fn unreadable_session_is_reported_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(Session::FILE), "{\"machine\": \"a\\u001b[2J\"}").unwrap();
    let output = run(dir.path());
    assert_eq!(fs::read_to_string(dir.path().join("result")).unwrap(), "[9, 1] 0");
    let lines = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = lines.lines().filter(|line| line.contains("simulated")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("session.json"), "{lines:?}");
    assert!(!lines[0].contains('\x1b'), "{lines:?}");
}
