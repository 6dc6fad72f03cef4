//! The backends of this machine. No other module of the workspace names a concrete one, apart from
//! those of sessions.

use crate::MachineError;
use crate::session_devices::SessionDevices;
use crate::several::Several;
use gpu_core::{
    DeviceInfo, DriverView, Error, ErrorKind, GpuBackend, Groups, KernelDriver, Origin,
};
use gpu_drm::{Drm, Root, Tree};
use gpu_host::{LinuxHost, Roots};
use gpu_nvidia::{Helper, NvmlChild, Waiting};
use gpu_sim::live;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The hidden command name of the child process that queries NVML.
const HELPER: &str = "nvml-helper";

/// How to query the devices.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// In any way.
    Any,
    /// For these groups, at once; `once`: no other query follows.
    Query { groups: Groups, once: bool },
    /// Repeatedly: the library stays initialised unless the kernel may suspend an unused GPU.
    Watch { keep_open: bool },
}

/// Returns the known drivers, in the order of their backends.
pub(crate) fn drivers() -> Arc<[Arc<dyn KernelDriver>]> {
    static DRIVERS: LazyLock<Arc<[Arc<dyn KernelDriver>]>> = LazyLock::new(|| {
        let others =
            own_files().map(|root| gpu_drm::drivers(&(root as Arc<dyn Tree>))).unwrap_or_default();
        gpu_nvidia_driver::drivers().iter().cloned().chain(others).collect()
    });
    DRIVERS.clone()
}

/// Returns the files of this machine.
fn own_files() -> Option<Arc<Root>> {
    Some(Arc::new(Root::open(Path::new("/")).ok()?))
}

/// Returns the GPUs of AMD and Intel of this machine; `None` if there are none.
fn drm(deadline: Duration) -> Option<Drm> {
    let drm = Drm::live(own_files()?).with_deadline(deadline);
    // A failure is reported like a device.
    drm.devices().map_or(true, |devices| !devices.is_empty()).then_some(drm)
}

/// Returns the file systems that show the processes and devices of this machine.
pub fn roots() -> Roots {
    Roots { proc: "/proc".into(), dev: "/dev".into(), sys: "/sys".into() }
}

/// Returns whether the kernel has suspended all of NVIDIA's devices.
fn nvidia_sleeps() -> bool {
    let host = LinuxHost::with_drivers(roots(), gpu_nvidia_driver::drivers());
    host.sleeping_devices().is_some()
}

/// Returns whether the kernel may suspend one of NVIDIA's devices while it is not in use.
pub(crate) fn nvidia_may_sleep() -> bool {
    gpu_host::may_sleep(&roots().sys, &gpu_nvidia_driver::drivers())
}

/// Returns NVIDIA's devices as its kernel module lists them.
fn nvidia_devices() -> gpu_core::Result<Vec<DeviceInfo>> {
    LinuxHost::with_drivers(roots(), gpu_nvidia_driver::drivers()).driver_devices()
}

/// Queries NVML for the parent process if this process was started for that.
pub(crate) fn serve_if_requested() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|word| word == *HELPER) {
        let library = arguments.next().map(PathBuf::from);
        gpu_nvidia::serve(library.as_deref());
    }
}

/// The devices of this machine, before it is known whether they belong to a session.
pub(crate) struct Opened {
    nvml: Option<NvmlChild>,
    drm: Option<Drm>,
    /// NVIDIA's devices are left alone while they sleep.
    spares_sleepers: bool,
}

/// Opens the backends of this machine: NVML only where it can have devices, because starting its
/// child process takes most of the time of a short query.
///
/// `library` is the NVML library to use instead of the installed one, and `program` the program to
/// start for its queries, if this one does not call [`serve_if_requested`].
///
/// # Errors
/// When the library does not exist.
pub(crate) fn open(
    library: Option<&Path>,
    program: Option<&Path>,
    deadline: Duration,
    progress: fn(&str),
    purpose: Use,
) -> Result<Opened, MachineError> {
    if let Some(library) = library {
        std::fs::metadata(library).map_err(|error| {
            let what = format!("find the NVML '{}'", library.display());
            Error::new(ErrorKind::Invalid, what).with_source(error)
        })?;
    }
    let is_session = live::named().is_some();
    let drm = if is_session { None } else { drm(deadline) };
    let is_asked_for = library.is_some() || is_session || drm.is_none();
    if !is_asked_for && nvidia_devices().is_ok_and(|devices| devices.is_empty()) {
        return Ok(Opened { nvml: None, drm, spares_sleepers: false });
    }
    let own = program.map_or_else(std::env::current_exe, |program| Ok(program.to_owned()));
    let own = own.map_err(|error| MachineError::io("find this program", error))?;
    let helper = Helper {
        arguments: vec![OsString::from(HELPER)],
        library: library.map(Path::to_owned),
        forks: program.is_none(),
        ..Helper::new(own)
    };
    let progress = Box::new(move |waiting: &Waiting| progress(&described(waiting)));
    let nvml = NvmlChild::new(helper, deadline, progress);
    let spares_sleepers = matches!(purpose, Use::Watch { .. });
    let nvml = match purpose {
        Use::Watch { keep_open: true } => nvml.keep_open(),
        Use::Any | Use::Watch { keep_open: false } => nvml,
        Use::Query { groups, once } => {
            let nvml = if once { nvml.for_one_query() } else { nvml };
            nvml.request_snapshot(groups);
            nvml
        }
    };
    Ok(Opened { nvml: Some(nvml), drm, spares_sleepers })
}

impl Opened {
    /// Returns the directory of the session that the library reports.
    pub(crate) fn session(&self) -> Option<PathBuf> {
        Some(self.nvml.as_ref()?.simulated()?.session)
    }

    /// Returns the devices of this machine.
    pub(crate) fn of_this_machine(self) -> Box<dyn GpuBackend> {
        let nvml = self.nvml.map(|nvml| Box::new(nvml) as Box<dyn GpuBackend>);
        let all = nvml.into_iter().chain(self.drm.map(|drm| Box::new(drm) as _));
        let sleeps = if self.spares_sleepers { nvidia_sleeps } else { || false };
        Several::with_list(all.collect(), || nvidia_devices().unwrap_or_default(), sleeps)
    }

    /// Returns the devices of the session in a directory.
    ///
    /// # Errors
    /// When the library is not that of the session.
    pub(crate) fn of_session(
        self,
        dir: &Path,
        origin: Origin,
    ) -> Result<Box<dyn GpuBackend>, MachineError> {
        let missing = || Error::new(ErrorKind::Unsupported, "find the NVML of the session");
        let nvml = self.nvml.ok_or_else(missing)?;
        Ok(Box::new(SessionDevices::new(nvml, dir, origin)?))
    }
}

/// Describes a driver call that takes long.
fn described(waiting: &Waiting) -> String {
    let call = waiting.call.as_ref().map_or(String::new(), |call| format!(" ({call})"));
    let (elapsed, deadline) = (waiting.elapsed.as_secs(), waiting.deadline.as_secs_f64());
    format!("waiting for the driver for {elapsed} s{call}; deadline {deadline} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_driver_call_is_named_with_its_deadline() {
        let waiting = |call: Option<&str>| Waiting {
            call: call.map(Into::into),
            elapsed: Duration::from_millis(5900),
            deadline: Duration::from_millis(7500),
        };
        assert_eq!(described(&waiting(None)), "waiting for the driver for 5 s; deadline 7.5 s");
        assert_eq!(
            described(&waiting(Some("nvmlInit"))),
            "waiting for the driver for 5 s (nvmlInit); deadline 7.5 s"
        );
    }
}
