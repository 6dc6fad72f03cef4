//! The devices of this machine, as the installed nvidia-smi tells them.
//!
//! One run of `nvidia-smi -q -x` answers a whole look; gpu-text reads it. It is run by its full
//! path from where drivers install it, never through `PATH`, since this program may be root.

use crate::terminal::progress;
use gpu_core::{
    Absent, ActToken, Clock, DeviceDetails, DeviceEvent, DeviceId, DeviceInfo, DeviceProcess,
    DeviceSample, DeviceState, Driver, Error, ErrorKind, Fault, GpuBackend, Groups, MachineFault,
    MigInstance, Origin, Result, Topology,
};
use gpu_text::{Hint, Kind};
use std::io::Read;
use std::path::{Path, PathBuf};
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

/// How long one that has printed everything is given to close its files.
const LAST_MOMENTS: Duration = Duration::from_secs(2);

/// After this, whoever waits is told for what.
const PATIENCE: Duration = Duration::from_secs(1);

/// More than any machine prints: 16 devices take about 400 KiB.
const MOST_OUTPUT: u64 = 16 << 20;

/// Reads devices by running nvidia-smi.
pub(crate) struct NvidiaSmi {
    program: Option<PathBuf>,
    deadline: Duration,
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
        let program = PLACES.iter().map(PathBuf::from).find(|place| place.is_file());
        NvidiaSmi { program, deadline: DEADLINE, clock, look: Mutex::default() }
    }

    fn run(&self) -> Result<Look> {
        let Some(program) = &self.program else {
            let what = match Path::new("/proc/driver/nvidia/version").exists() {
                true => "find nvidia-smi, though the kernel module is loaded",
                false => "find an NVIDIA driver",
            };
            let places = format!("there is no nvidia-smi at {}", PLACES.join(", "));
            return Err(Error::new(MachineFault::NoLibrary, what).with_source(places));
        };
        let output = output_of(Command::new(program).args(["-q", "-x"]), self.deadline)?;
        let document = gpu_text::parse(&output, &Hint::default()).map_err(|_| unknown(&output))?;
        let is_xml = document.kind == Kind::Xml;
        let snapshot = gpu_text::snapshot(&[document], self.clock.wall());
        match snapshot.driver {
            Err(Fault { kind: ErrorKind::Machine(fault), text }) => Err(Error::new(fault, text)),
            Ok(driver) if is_xml && !snapshot.devices.is_empty() => Ok(Look {
                driver: Some(driver),
                infos: Some(snapshot.devices.iter().map(|state| state.info.clone()).collect()),
                samples: snapshot.devices.clone(),
                processes: snapshot.devices.clone(),
                migs: snapshot.devices,
            }),
            Ok(_) if is_xml => Err(Error::new(MachineFault::NoDevices, "find a GPU")),
            _ => Err(unknown(&output)),
        }
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
fn output_of(command: &mut Command, deadline: Duration) -> Result<Vec<u8>> {
    let start = "run nvidia-smi";
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error| Error::new(ErrorKind::Io, start).with_source(error);
    let mut child = command.spawn().map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut output = Vec::new();
            let read = stdout.take(MOST_OUTPUT).read_to_end(&mut output);
            // Nobody listens any more when the deadline has passed.
            let _ = sender.send(read.map(|_| output));
        });
    }
    let answer = receiver.recv_timeout(PATIENCE.min(deadline)).or_else(|_| {
        progress("waiting for the driver; without persistence mode it takes seconds for each GPU");
        receiver.recv_timeout(deadline.saturating_sub(PATIENCE))
    });
    // One that printed too much, or nothing in time, is ended. What counts of the others is what
    // they printed: nvidia-smi ends with an error when one device has a fault.
    if !matches!(&answer, Ok(Ok(output)) if (output.len() as u64) < MOST_OUTPUT) {
        let _ = child.kill();
    }
    // It has the device files open until its very end, and the walk over holders comes next. But a
    // child that the driver keeps in state D ends when the driver lets it go, not before: whoever
    // waited for that would hang as well.
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait()));
    let _ = ended.recv_timeout(LAST_MOMENTS);
    match answer {
        Ok(Ok(output)) if output.len() as u64 >= MOST_OUTPUT => Err(unknown(&output)),
        Ok(output) => output.map_err(failed),
        Err(_) => {
            let what = format!("get an answer from nvidia-smi within {} s", deadline.as_secs());
            Err(Error::new(ErrorKind::TimedOut, what))
        }
    }
}

/// NVML's code for what it has no other code for (`NVML_ERROR_UNKNOWN`).
const UNKNOWN: u32 = 999;

/// A failure that nvidia-smi tells in words that are not known, with its first words.
fn unknown(output: &[u8]) -> Error {
    let text = String::from_utf8_lossy(output);
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing");
    let said: String = first.trim().chars().take(200).collect();
    Error::new(MachineFault::Unknown(UNKNOWN), "read what nvidia-smi printed")
        .with_source(format!("it says: {said}"))
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
        let state = self.answer(|look| take(&mut look.migs, device), &what)?;
        state.mig.map_err(|fault| Error::new(fault.kind, fault.text))
    }

    fn details(&self, device: &DeviceId, _: Groups) -> Result<DeviceDetails> {
        Err(Error::new(ErrorKind::Unsupported, format!("ask for details of {device}")))
    }

    fn events(&self, _: Duration) -> Result<Vec<DeviceEvent>> {
        Err(Error::new(ErrorKind::Unsupported, "wait for events"))
    }

    fn topology(&self) -> Result<Topology> {
        Err(Error::new(ErrorKind::Unsupported, "read the topology"))
    }

    fn reset(&self, device: &DeviceId, _: &ActToken) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, format!("reset {device}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_core::{Bytes, MockClock, Pid, Timestamp};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const XML: &str = r#"<?xml version="1.0" ?>
<nvidia_smi_log>
  <driver_version>535.261.03</driver_version><cuda_version>12.2</cuda_version>
  <gpu id="00000000:04:00.0">
    <product_name>NVIDIA L4</product_name><uuid>GPU-1</uuid><minor_number>0</minor_number>
    <fb_memory_usage><total>1000 MiB</total><reserved>1 MiB</reserved><used>USED MiB</used></fb_memory_usage>
    <processes><process_info><pid>7</pid><type>C</type><process_name>a</process_name>
      <used_memory>10 MiB</used_memory></process_info></processes>
  </gpu>
</nvidia_smi_log>"#;

    /// An nvidia-smi that is a shell script, and the folder that it may use.
    fn scripted(script: &str, deadline: Duration) -> (NvidiaSmi, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nvidia-smi");
        fs::write(&program, format!("#!/bin/sh\ncd {}\n{script}\n", folder.path().display()))
            .unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.path().join("xml"), XML).unwrap();
        let mut clock = MockClock::new();
        clock.expect_wall().return_const(Timestamp(0));
        let clock = Arc::new(clock);
        (NvidiaSmi { program: Some(program), deadline, clock, look: Mutex::default() }, folder)
    }

    /// Counts its runs, and says a MiB more is used each time.
    const COUNTING: &str = r#"echo run >>runs; n=$(wc -l <runs); sed "s/USED/$((100 + n))/" xml"#;

    fn runs(folder: &tempfile::TempDir) -> usize {
        fs::read_to_string(folder.path().join("runs")).unwrap().lines().count()
    }

    #[test]
    fn one_run_answers_a_look_and_the_same_question_again_a_new_one() {
        let (smi, folder) = scripted(COUNTING, DEADLINE);
        let used = |device| smi.sample(device).unwrap().memory.used;
        assert_eq!(smi.driver().unwrap().version.unwrap(), "535.261.03");
        let device = smi.devices().unwrap().remove(0).id;
        assert_eq!(used(&device), Ok(Bytes::from_mib(101)));
        assert_eq!(smi.processes(&device).unwrap()[0].pid, Pid(7));
        assert_eq!(smi.mig_instances(&device).unwrap(), []);
        assert_eq!(runs(&folder), 1);
        assert_eq!(used(&device), Ok(Bytes::from_mib(102)));
        assert_eq!(used(&device), Ok(Bytes::from_mib(103)));
        smi.driver().unwrap();
        assert_eq!(runs(&folder), 4);
    }

    #[test]
    fn a_failure_of_the_whole_tool_is_told_by_its_kind() {
        for (said, fault) in [
            (
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make \
                 sure that the latest NVIDIA driver is installed and running.",
                MachineFault::DriverNotLoaded,
            ),
            (
                "Failed to initialize NVML: Driver/library version mismatch",
                MachineFault::VersionMismatch,
            ),
            ("No devices were found", MachineFault::NoDevices),
            ("something new", MachineFault::Unknown(UNKNOWN)),
            ("", MachineFault::Unknown(UNKNOWN)),
        ] {
            let (smi, _folder) = scripted(&format!("echo \"{said}\"; exit 9"), DEADLINE);
            assert_eq!(smi.driver().unwrap_err().kind(), fault.into(), "{said}");
        }
    }

    #[test]
    fn one_that_hangs_or_never_ends_is_left_at_the_deadline() {
        let (smi, _folder) = scripted("exec sleep 600", Duration::from_millis(200));
        assert_eq!(smi.driver().unwrap_err().kind(), ErrorKind::TimedOut);
        let (smi, _folder) = scripted("exec yes", DEADLINE);
        assert_eq!(smi.driver().unwrap_err().kind(), MachineFault::Unknown(UNKNOWN).into());
        let (smi, _folder) = scripted("exec cat /no/such/file", DEADLINE);
        assert_eq!(smi.driver().unwrap_err().kind(), MachineFault::Unknown(UNKNOWN).into());
    }

    #[test]
    fn it_has_ended_before_anybody_looks_at_holders() {
        // Its output ends at once, it itself a little later.
        let (smi, folder) = scripted("cat xml; exec >&-; sleep 0.3; echo done >done", DEADLINE);
        smi.driver().unwrap();
        assert!(folder.path().join("done").exists());
    }

    #[test]
    fn without_one_there_is_no_driver() {
        let smi = NvidiaSmi { program: None, ..scripted("", DEADLINE).0 };
        assert_eq!(smi.driver().unwrap_err().kind(), MachineFault::NoLibrary.into());
    }
}
