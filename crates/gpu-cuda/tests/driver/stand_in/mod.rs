//! A stand-in for NVIDIA's CUDA driver, and tests that run on it in separate processes: the dynamic
//! loader reads `LD_LIBRARY_PATH` before a process starts, and cudarc loads one driver per process.

use gpu_core::DeviceUuid;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the process that runs on the stand-in.
const INSIDE: &str = "STAND_IN_INSIDE";

/// Returns the UUID of the device with this number.
pub(crate) fn device(number: u8) -> DeviceUuid {
    DeviceUuid(format!("GPU-00010203-0405-0607-0809-0a0b0c0d0e{:02X}", 15 + number))
}

/// The configuration of a process with the stand-in.
#[derive(Clone, Copy, Default)]
pub(crate) struct StandIn<'a> {
    /// Definitions for the compiler, such as `OLD`.
    pub(crate) defines: &'a [&'a str],
    /// The failing call, such as `cuMemMap 2 700`.
    pub(crate) fails: Option<&'a str>,
    /// Whether the driver is missing.
    pub(crate) is_missing: bool,
}

/// Runs `body` in a process with the stand-in, which runs this test program again. `test` is the
/// name of the test.
pub(crate) fn on(stand_in: StandIn<'_>, test: &str, body: impl FnOnce()) {
    on_each(&[stand_in], test, body);
}

/// Runs `body` on each stand-in, in a separate process.
pub(crate) fn on_each(stand_ins: &[StandIn<'_>], test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    for stand_in in stand_ins {
        start(stand_in, test);
    }
}

/// Returns a stand-in for each of these failing calls.
#[allow(dead_code, reason = "not every test program with this module uses it")]
pub(crate) fn failing<const N: usize>(calls: [&str; N]) -> [StandIn<'_>; N] {
    calls.map(|call| StandIn { fails: Some(call), ..StandIn::default() })
}

/// Returns the error code of the failing call in this process.
#[allow(dead_code, reason = "not every test program with this module uses it")]
pub(crate) fn failing_code() -> u32 {
    let call = std::env::var("STAND_IN_FAIL").unwrap();
    call.rsplit(' ').next().unwrap().parse().unwrap()
}

fn start(stand_in: &StandIn<'_>, test: &str) {
    let dir = tempfile::tempdir().unwrap();
    if !stand_in.is_missing {
        build(dir.path(), stand_in.defines);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    // NVRTC may be in this process's path.
    let mut library_path = dir.path().as_os_str().to_owned();
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
        library_path.push(":");
        library_path.push(inherited);
    }
    child.env(INSIDE, "1").env("LD_LIBRARY_PATH", library_path);
    child.env("STAND_IN_LOG", dir.path().join("log"));
    match stand_in.fails {
        Some(call) => child.env("STAND_IN_FAIL", call),
        None => child.env_remove("STAND_IN_FAIL"),
    };
    let output = child.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if let Some(skipped) = stdout.lines().find(|line| line.contains("skipped: ")) {
        note(skipped);
    }
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{test} on {:?} {:?}: {stdout}{stderr}", stand_in.defines, stand_in.fails);
}

#[expect(clippy::print_stdout, reason = "a skipped test prints a note")]
fn note(text: &str) {
    println!("{text}");
}

/// Returns the log that the stand-in wrote in this process.
#[allow(dead_code, reason = "not every test program with this module uses it")]
pub(crate) fn log() -> Vec<String> {
    let path = PathBuf::from(std::env::var_os("STAND_IN_LOG").unwrap());
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Builds the driver in a directory, under the name that cudarc tries first, with the compiler that
/// links Rust programs.
fn build(dir: &Path, defines: &[&str]) {
    let source = dir.join("libcuda.c");
    std::fs::write(&source, include_str!("libcuda.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Wall", "-Werror", "-shared", "-fPIC"]);
    compiler.args(defines.iter().map(|name| format!("-D{name}")));
    let ended = compiler.arg("-o").arg(dir.join("libcuda.so")).arg(source).status().unwrap();
    assert!(ended.success(), "{compiler:?}");
}
