//! The devices of this machine, as the installed nvidia-smi tells them.
//!
//! One run of `nvidia-smi -q -x` answers a whole look; gpu-text reads it. It is run by its full
//! path from where drivers install it, never through `PATH`, since this program may be root.

use crate::terminal::progress;
use gpu_core::{
    Absent, ActToken, Clock, DeviceId, DeviceInfo, DeviceProcess, DeviceSample, DeviceState,
    Driver, Error, ErrorKind, GpuBackend, MachineFault, MigInstance, Origin, Result, Topology,
};
use gpu_text::{ErrorCode, Hint, Kind};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Where drivers install nvidia-smi: distributions, NVIDIA's installer, WSL, NixOS, containers.
const PLACES: &[&str] = &[
    "/usr/bin/nvidia-smi",
    "/usr/local/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/run/current-system/sw/bin/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    "/opt/bin/nvidia-smi",
];

/// A driver without persistence mode takes one to three seconds for each device.
const DEADLINE: Duration = Duration::from_secs(30);

/// After this, whoever waits is told for what.
const PATIENCE: Duration = Duration::from_secs(1);

/// More than any machine prints: 16 devices take about 400 KiB.
const MOST_OUTPUT: u64 = 16 << 20;

/// Reads devices by running nvidia-smi.
pub(crate) struct NvidiaSmi {
    program: Option<&'static Path>,
    clock: Arc<dyn Clock>,
    /// What the last run told and was not asked for yet. `driver` begins a new look, and each
    /// answer is given once, so that the same question put again gets a new look too.
    look: Mutex<Look>,
}

#[derive(Default)]
struct Look {
    driver: Option<Driver>,
    infos: Option<Vec<DeviceInfo>>,
    samples: Vec<DeviceState>,
    processes: Vec<DeviceState>,
    migs: Vec<DeviceState>,
}

impl NvidiaSmi {
    /// Returns the nvidia-smi that is installed; without one every answer says that there is no
    /// driver.
    pub(crate) fn installed(clock: Arc<dyn Clock>) -> Self {
        let program = PLACES.iter().map(Path::new).find(|place| place.is_file());
        NvidiaSmi { program, clock, look: Mutex::default() }
    }

    fn run(&self) -> Result<Look> {
        let program = self.program.ok_or_else(|| {
            let fault = if Path::new("/proc/driver/nvidia/version").exists() {
                Error::new(
                    MachineFault::NoLibrary,
                    "find nvidia-smi, though the kernel module is loaded",
                )
            } else {
                Error::new(MachineFault::NoLibrary, "find an NVIDIA driver")
            };
            fault.with_source(format!("there is no nvidia-smi at {}", PLACES.join(", ")))
        })?;
        let output = output_of(Command::new(program).args(["-q", "-x"]))?;
        let document = gpu_text::parse(&output, &Hint::default());
        let document = document.map_err(|error| {
            Error::new(MachineFault::Unknown(0), "read what nvidia-smi printed").with_source(error)
        })?;
        if document.kind != Kind::Xml {
            return Err(failure(&document.errors, &output));
        }
        let snapshot = gpu_text::snapshot(&[document], self.clock.wall());
        if snapshot.devices.is_empty() {
            return Err(Error::new(MachineFault::NoDevices, "find a GPU"));
        }
        Ok(Look {
            driver: snapshot.driver.ok(),
            infos: Some(snapshot.devices.iter().map(|state| state.info.clone()).collect()),
            samples: snapshot.devices.clone(),
            processes: snapshot.devices.clone(),
            migs: snapshot.devices,
        })
    }

    /// Gives the answer that `take` finds in the last look, else in a new one.
    fn answer<T>(&self, take: impl Fn(&mut Look) -> Option<T>, what: &str) -> Result<T> {
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = take(&mut look) {
            return Ok(answer);
        }
        *look = self.run()?;
        take(&mut look).ok_or_else(|| Error::new(Absent::NotFound, what))
    }
}

/// Takes the state of one device out of what a look has left.
fn take(states: &mut Vec<DeviceState>, device: &DeviceId) -> Option<DeviceState> {
    let at = states.iter().position(|state| state.id().same_device(device))?;
    Some(states.swap_remove(at))
}

/// Runs a program to its end or to the deadline, and returns what it printed.
fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let start = "run nvidia-smi";
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child =
        command.spawn().map_err(|error| Error::new(ErrorKind::Io, start).with_source(error))?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut output = Vec::new();
            let read = stdout.take(MOST_OUTPUT).read_to_end(&mut output);
            // Nobody listens any more when the deadline has passed.
            let _ = sender.send(read.map(|_| output));
        });
    }
    let first = receiver.recv_timeout(PATIENCE);
    let answer = first.or_else(|_| {
        progress("waiting for the driver; without persistence mode it takes seconds for each GPU");
        receiver.recv_timeout(DEADLINE.saturating_sub(PATIENCE))
    });
    let Ok(output) = answer else {
        // A child that the driver keeps in state D does not end before the driver lets it go;
        // waiting for it would hang this program as well.
        let _ = child.kill();
        let _ = child.try_wait();
        return Err(Error::new(
            ErrorKind::TimedOut,
            format!("get an answer from nvidia-smi within {} s", DEADLINE.as_secs()),
        ));
    };
    // What counts is what it printed: nvidia-smi ends with an error when one device has a fault.
    let _ = child.wait();
    output.map_err(|error| Error::new(ErrorKind::Io, start).with_source(error))
}

/// Returns which failure of the whole machine nvidia-smi printed.
fn failure(codes: &[ErrorCode], output: &[u8]) -> Error {
    let fault = match codes.first() {
        Some(ErrorCode::DriverNotRunning) => MachineFault::DriverNotLoaded,
        Some(ErrorCode::NvmlMismatch) => MachineFault::VersionMismatch,
        Some(ErrorCode::NoDevices) => MachineFault::NoDevices,
        _ => MachineFault::Unknown(0),
    };
    let text = String::from_utf8_lossy(output);
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
    let said: String = first.trim().chars().take(200).collect();
    Error::new(fault, "look at the GPUs").with_source(format!("nvidia-smi says: {said}"))
}

impl GpuBackend for NvidiaSmi {
    fn origin(&self) -> Origin {
        Origin::Live
    }

    fn driver(&self) -> Result<Driver> {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Look::default();
        self.answer(|look| look.driver.take(), "read the driver version")
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.answer(|look| look.infos.take(), "list the devices")
    }

    fn sample(&self, device: &DeviceId) -> Result<DeviceSample> {
        let what = format!("sample {device}");
        let state = self.answer(|look| take(&mut look.samples, device), &what)?;
        state.sample.map_err(|fault| Error::new(fault.kind, fault.text))
    }

    fn processes(&self, device: &DeviceId) -> Result<Vec<DeviceProcess>> {
        let what = format!("list the processes of {device}");
        let state = self.answer(|look| take(&mut look.processes, device), &what)?;
        state.processes.map_err(|fault| Error::new(fault.kind, fault.text))
    }

    fn mig_instances(&self, device: &DeviceId) -> Result<Vec<MigInstance>> {
        let what = format!("list the MIG instances of {device}");
        self.answer(|look| take(&mut look.migs, device), &what).map(|state| state.mig)
    }

    fn topology(&self) -> Result<Topology> {
        Err(Error::new(ErrorKind::Unsupported, "read the topology"))
    }

    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {device}")))
    }
}
