//! A CUDA driver that stands in for NVIDIA's, and tests that run on it in a process of their own:
//! the dynamic loader reads `LD_LIBRARY_PATH` before a process starts, and cudarc loads one driver
//! for the whole process.

use gpu_core::DeviceUuid;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the process that has the stand-in.
const INSIDE: &str = "STAND_IN_INSIDE";

/// Returns the UUID of the stand-in's device with this number.
pub(crate) fn device(number: u8) -> DeviceUuid {
    DeviceUuid(format!("GPU-00010203-0405-0607-0809-0a0b0c0d0e{:02X}", 15 + number))
}

/// What a process with the stand-in is given.
#[derive(Clone, Copy, Default)]
pub(crate) struct StandIn<'a> {
    /// Definitions that the compiler gets, as in `OLD`.
    pub(crate) defines: &'a [&'a str],
    /// The call that fails, as in `cuMemMap 2 700`.
    pub(crate) fails: Option<&'a str>,
    /// There is no driver.
    pub(crate) is_missing: bool,
}

/// Runs `body` in a process that has the stand-in, which is this test in this program again.
/// `test` is the name of the test.
pub(crate) fn on(stand_in: StandIn<'_>, test: &str, body: impl FnOnce()) {
    on_each(&[stand_in], test, body);
}

/// Runs `body` on each of these, in a process of its own.
pub(crate) fn on_each(stand_ins: &[StandIn<'_>], test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    for stand_in in stand_ins {
        start(stand_in, test);
    }
}

/// Returns a stand-in for each of these calls that fails, and nothing else with it.
#[allow(dead_code, reason = "not every program of tests that has this module asks")]
pub(crate) fn failing<const N: usize>(calls: [&str; N]) -> [StandIn<'_>; N] {
    calls.map(|call| StandIn { fails: Some(call), ..StandIn::default() })
}

/// Returns the code with which a call fails in this process.
#[allow(dead_code, reason = "not every program of tests that has this module asks")]
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
    child.env(INSIDE, "1").env("LD_LIBRARY_PATH", dir.path());
    child.env("STAND_IN_LOG", dir.path().join("log"));
    match stand_in.fails {
        Some(call) => child.env("STAND_IN_FAIL", call),
        None => child.env_remove("STAND_IN_FAIL"),
    };
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{test} on {:?} {:?}: {said}{failed}", stand_in.defines, stand_in.fails);
}

/// Returns what the stand-in has written down in this process.
#[allow(dead_code, reason = "not every program of tests that has this module asks")]
pub(crate) fn log() -> Vec<String> {
    let path = PathBuf::from(std::env::var_os("STAND_IN_LOG").unwrap());
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Builds the driver in a directory, with the compiler that links Rust programs, under the name
/// that cudarc looks for first.
fn build(dir: &Path, defines: &[&str]) {
    let source = dir.join("libcuda.c");
    std::fs::write(&source, include_str!("libcuda.c")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c99", "-Wall", "-Werror", "-shared", "-fPIC"]);
    compiler.args(defines.iter().map(|name| format!("-D{name}")));
    let ended = compiler.arg("-o").arg(dir.join("libcuda.so")).arg(source).status().unwrap();
    assert!(ended.success(), "{compiler:?}");
}
