//! A real process that registers itself on the devices of a session.

use crate::arguments::{Config, Which};
use crate::device_file::{map, open};
use crate::starter;
use gpu_core::visible::cuda::{Numbering, VISIBLE, VisibleList};
use gpu_core::{DeviceState, DeviceUuid, GpuBackend, Groups};
use gpu_sim::{ExternalProcess, Session, Use};
use nvml_sim::start_of;
use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Error messages complete 'failed to …'.
type Reported<T> = Result<T, String>;

/// How often to check that the session still exists, in seconds.
const PAUSE: i64 = 1;

/// Registers the process, waits, and unregisters it; returns the exit code of its command, if any.
///
/// # Errors
/// Why it could not register or start its command.
pub(crate) fn run(config: Config) -> Reported<ExitCode> {
    let dir = dir()?;
    let session = Session::read(&dir).map_err(text)?;
    if !session.is_live() {
        let why = "the session is not live; run inside gpuws sim MACHINE --live";
        return Err(format!("join session '{}': {why}", dir.display()));
    }
    let devices = session.open().map_err(text)?.inventory(Groups::NONE).devices;
    let uses = uses(&config, &devices)?;
    let _held = hold(&uses, &devices, &dir)?;
    if let Some(name) = config.name {
        let name = CString::new(name).map_err(|error| format!("set the process name: {error}"))?;
        rustix::thread::set_name(&name)
            .map_err(|errno| format!("set the process name: {errno}"))?;
    }
    sweep(&dir)?;
    let pid = std::process::id();
    let start_ticks = start_of(pid).ok_or("read its start time")?;
    let external = ExternalProcess { pid, start_ticks, uses };
    external.enter(&dir).map_err(text)?;
    let stayed = match config.command.split_first() {
        Some((program, arguments)) => run_command(program, arguments),
        None => {
            let kept =
                starter::detach(&dir).map_err(|error| format!("detach from the parent: {error}"));
            kept.and_then(|()| stay(&dir, config.seconds)).map(|()| ExitCode::SUCCESS)
        }
    };
    external.leave(&dir).map_err(text)?;
    stayed
}

fn text(error: gpu_core::Error) -> String {
    error.fault().text
}

/// Returns the session's directory, from the environment.
fn dir() -> Reported<PathBuf> {
    let named = std::env::var_os(Session::VARIABLE).map(PathBuf::from);
    named
        .filter(|dir| dir.is_absolute())
        .ok_or_else(|| "find the session: run inside gpuws sim MACHINE --live".to_owned())
}

/// Returns the use of each device.
fn uses(config: &Config, devices: &[DeviceState]) -> Reported<Vec<Use>> {
    let shown = visible(devices)?;
    let mut uses: Vec<Use> = Vec::new();
    for (which, mib) in &config.uses {
        let named = match which {
            Which::Index(index) => vec![(*index, None)],
            Which::Visible => shown.clone(),
        };
        for (gpu, mig) in named {
            if !devices.iter().any(|device| device.id().index == gpu) {
                return Err(format!("use GPU {gpu}: the machine has no such device"));
            }
            if uses.iter().any(|known| known.gpu == gpu) {
                return Err(format!("use GPU {gpu}: it is listed twice"));
            }
            uses.push(Use { gpu, mig, mib: *mib, utilization_percent: config.load });
        }
    }
    if uses.is_empty() {
        Err(format!("use a device: {VISIBLE} makes no GPU visible"))
    } else {
        Ok(uses)
    }
}

/// Returns the indexes of the devices visible to a CUDA program, in PCI order, with the instance
/// number for a MIG device.
fn visible(devices: &[DeviceState]) -> Reported<Vec<(u32, Option<u32>)>> {
    let value = std::env::var_os(VISIBLE);
    let list =
        VisibleList::parse(value.map(|value| value.to_string_lossy().into_owned()).as_deref());
    let resolved = list.resolve(devices, Numbering::ByAddress).map_err(text)?;
    let mig = |uuid: &DeviceUuid| {
        let mut all = devices.iter().flat_map(|device| device.partitions.iter().flatten());
        all.find(|mig| mig.uuid.as_ref() == Ok(uuid)).map(|mig| mig.index)
    };
    Ok(resolved.devices.iter().map(|named| (named.index, mig(&named.uuid))).collect())
}

/// Opens and maps the device files that a CUDA program holds.
fn hold(uses: &[Use], devices: &[DeviceState], dir: &Path) -> Reported<Vec<File>> {
    let used = devices.iter().filter(|device| uses.iter().any(|one| one.gpu == device.id().index));
    let mut names = vec!["nvidiactl".to_owned(), "nvidia-uvm".to_owned()];
    for device in used {
        let minor = device.id().minor().unwrap_or(device.id().index);
        names.push(format!("nvidia{minor}"));
    }
    let held = names.iter().map(|name| {
        let path = dir.join(Session::DEVICE_FILES).join(name);
        let file = open(&path).and_then(|file| map(&file).map(|()| file));
        file.map_err(|error| format!("open '{}': {error}", path.display()))
    });
    held.collect()
}

/// Removes the files of processes that have ended, for example by SIGKILL.
fn sweep(dir: &Path) -> Reported<()> {
    for external in ExternalProcess::named(dir).map_err(text)? {
        if start_of(external.pid) != Some(external.start_ticks) {
            external.leave(dir).map_err(text)?;
        }
    }
    Ok(())
}

/// Runs a command and returns the exit code that a shell would report for it.
fn run_command(program: &OsString, arguments: &[OsString]) -> Reported<ExitCode> {
    let status = Command::new(program).args(arguments).status();
    let status =
        status.map_err(|error| format!("run '{}': {error}", Path::new(program).display()))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)))
}

/// Waits this many seconds, or until the session ends.
fn stay(dir: &Path, seconds: Option<u32>) -> Reported<()> {
    let mut left = seconds;
    while left != Some(0) && !starter::is_over(dir) {
        match poll(&mut [], Some(&Timespec { tv_sec: PAUSE, tv_nsec: 0 })) {
            Ok(_) => left = left.map(|left| left - 1),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("wait: {errno}")),
        }
    }
    Ok(())
}
