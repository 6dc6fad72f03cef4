//! Runs the program and records how it ended.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns whether to run the deep tests, which take minutes.
pub(crate) fn is_deep() -> bool {
    std::env::var_os("GPUWS_DEEP").is_some()
}

/// Prints why a test checks nothing here, bypassing the harness's capture.
pub(crate) fn skipped(why: &str) {
    // Without standard error, the message is lost.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// What a run of the program printed, and its exit code.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code().expect("gpuws ends by itself"),
        stdout: String::from_utf8(output.stdout).expect("gpuws prints UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("gpuws prints UTF-8"),
    }
}

pub(crate) fn gpuws(dir: &Path, words: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    ended(command.args(words).current_dir(dir).stdin(Stdio::null()).output().expect("gpuws runs"))
}

pub(crate) fn with_input(words: &[&str], input: &[u8]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpuws runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It may have exited before it read everything.
            let _ = stdin.write_all(input);
        });
        ended(child.wait_with_output().expect("gpuws ends"))
    })
}

/// A directory with a modified copy of a shipped machine.
pub(crate) fn machine(change: impl Fn(String) -> String) -> tempfile::TempDir {
    machine_from("p100-ghost", change)
}

pub(crate) fn machine_from(name: &str, change: impl Fn(String) -> String) -> tempfile::TempDir {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim-fixtures/machines");
    let shipped = machines.join(name);
    let dir = tempfile::tempdir().expect("temporary directory");
    let to = dir.path().join("box");
    fs::create_dir(&to).expect("temporary directory");
    for entry in fs::read_dir(shipped).expect("the machine is shipped") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
    let file = to.join("machine.toml");
    let text = fs::read_to_string(&file).expect("a machine has its file");
    fs::write(&file, change(text)).expect("written");
    dir
}

/// The names of the files in a directory, in order.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("temporary directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
