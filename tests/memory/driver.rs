//! CUDA drivers: a substitute for NVIDIA's, and this machine's.

use gpu_core::{Bytes, DeviceFault, DeviceMemory, DeviceUuid, ErrorKind, GpuBackend, Region};
use gpu_nvidia::{CudaMemory, Nvml};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A substitute, built by the compiler that links Rust programs.
pub(crate) struct Driver {
    _folder: TempDir,
    path: PathBuf,
}

impl Driver {
    pub(crate) fn built(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcuda.so.1");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("memory/libcuda.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-Wall", "-Werror", "-shared", "-fPIC"]).args(options);
        let ended = compiler.arg("-o").arg(&path).arg(source).status().unwrap();
        assert!(ended.success(), "{compiler:?}");
        Driver { _folder: folder, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn device() -> DeviceUuid {
        DeviceUuid("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f".into())
    }

    fn open(&self) -> CudaMemory {
        CudaMemory::open(Some(&self.path), &Driver::device()).unwrap()
    }
}

/// Opens the memory of this machine's first GPU, or prints why there is none.
pub(crate) fn real_gpu(test: &str) -> Option<CudaMemory> {
    let opened = Nvml::open(None).and_then(|nvml| {
        let devices = if nvml.simulated().is_some() { Vec::new() } else { nvml.devices()? };
        devices
            .into_iter()
            .find_map(|device| device.id.uuid.ok())
            .map_or(Ok(None), |uuid| CudaMemory::open(None, &uuid).map(Some))
    });
    let why = match opened {
        Ok(Some(memory)) => return Some(memory),
        Ok(None) => "this machine has no GPU".to_owned(),
        Err(error) => error.fault().to_string(),
    };
    writeln!(std::io::stderr(), "skipped: {test}: {why}").expect("stderr can be written");
    None
}

#[test]
fn invisible_device_is_rejected() {
    let driver = Driver::built(&[]);
    let other = DeviceUuid("GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f".into());
    let error = CudaMemory::open(Some(driver.path()), &other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = CudaMemory::open(Some(Path::new("/no/such/libcuda.so.1")), &other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// The substitute aborts the process if its context is destroyed while anything is allocated.
#[test]
fn drop_releases_remaining_memory() {
    let driver = Driver::built(&[]);
    let memory = driver.open();
    memory.reserve(Bytes(1000)).unwrap();
    let range = memory.reserve_addresses(Bytes(8 << 20)).unwrap();
    memory.map(Region { size: Bytes(4 << 20), ..range }).unwrap();
    memory.unmap(Region { size: Bytes(2 << 20), ..range }).unwrap();
    drop(memory);
    let again = driver.open();
    assert_eq!(again.info().unwrap().used, Ok(Bytes(0)));
}

/// Each function fails in turn, in a separate process: the fault is read from the environment.
#[test]
fn failed_driver_call_has_no_effect_and_is_reported() {
    if let Ok(wish) = std::env::var("STAND_IN_FAIL") {
        return fail_as_wished(&wish);
    }
    for wish in [
        "cuMemAlloc_v2 1 700",
        "cuMemAlloc_v2 1 2",
        "cuMemFree_v2 1 700",
        "cuMemGetInfo_v2 2 700",
        "cuMemAddressReserve 1 2",
        "cuMemCreate 2 2",
        "cuMemCreate 1 801",
        "cuMemRelease 1 700",
        "cuMemRelease 3 2",
        "cuMemMap 2 700",
        "cuMemMap 1 1",
        "cuMemSetAccess 1 700",
        "cuMemUnmap 1 700",
        "cuMemAddressFree 1 700",
    ] {
        let name = "driver::failed_driver_call_has_no_effect_and_is_reported";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", name]).env("STAND_IN_FAIL", wish);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{wish}: {}", String::from_utf8_lossy(&output.stdout));
        let run = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(run, "the test was not run for {wish}");
    }
}

fn fail_as_wished(wish: &str) {
    let driver = Driver::built(&[]);
    let memory = driver.open();
    let used = |memory: &CudaMemory| memory.info().map(|info| info.used.unwrap());
    assert_eq!(used(&memory).unwrap(), Bytes(0));
    let mut failures = Vec::new();
    let region = again(&mut failures, || memory.reserve(Bytes(1 << 20)));
    again(&mut failures, || used(&memory));
    let range = again(&mut failures, || memory.reserve_addresses(Bytes(8 << 20)));
    let part = Region { size: Bytes(6 << 20), ..range };
    let before = used(&memory).unwrap();
    again(&mut failures, || {
        memory.map(part).inspect_err(|_| assert_eq!(used(&memory).unwrap(), before))
    });
    again(&mut failures, || memory.unmap(Region { size: Bytes(2 << 20), ..part }));
    again(&mut failures, || memory.release_addresses(range));
    again(&mut failures, || memory.release(region));
    assert_eq!(used(&memory).unwrap(), Bytes(0));

    let code: u32 = wish.rsplit(' ').next().unwrap().parse().unwrap();
    let kind = match code {
        1 => ErrorKind::Invalid,
        2 => DeviceFault::OutOfMemory.into(),
        801 => ErrorKind::Unsupported,
        code => DeviceFault::Unknown(code).into(),
    };
    let [failure] = &failures[..] else { panic!("{wish}: {failures:?}") };
    assert_eq!(failure.kind(), kind, "{wish}");
    assert!(failure.fault().text.ends_with(&format!("CUDA error {code}")), "{wish}");
}

/// Repeats an operation until it succeeds, which it must the second time.
fn again<T>(failures: &mut Vec<gpu_core::Error>, work: impl Fn() -> gpu_core::Result<T>) -> T {
    work().unwrap_or_else(|error| {
        failures.push(error);
        work().unwrap()
    })
}
