//! A simulated machine for this process and its children.

use crate::interruptible;
use gpu_core::Error;
use gpu_host::LinuxHost;
use gpu_machine::roots;
use gpu_sim::live::{Dir, LiveError, PlaceholderProcesses};
use gpu_sim::{Machine, Session};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A simulated machine that is visible to this process and its children.
#[pyclass(frozen, module = "gpuws._gpuws")]
pub(crate) struct Simulated {
    /// The environment variables that select it.
    #[pyo3(get)]
    environment: Vec<(String, String)>,
    /// Its directory.
    #[pyo3(get)]
    path: PathBuf,
    /// Dropping these ends the processes, then removes the directory.
    parts: Mutex<Option<(PlaceholderProcesses, Dir)>>,
    pid: u32,
}

impl Drop for Simulated {
    fn drop(&mut self) {
        // A forked copy must not remove the directory of its parent.
        if self.pid != std::process::id() {
            std::mem::forget(self.parts.get_mut().map(Option::take));
        }
    }
}

#[pymethods]
impl Simulated {
    /// Ends its processes and removes its directory; later calls do nothing.
    fn close(&self, py: Python<'_>) {
        if self.pid != std::process::id() {
            return;
        }
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(parts));
    }
}

/// Starts a simulated machine, with real processes in place of its simulated ones. `library` is the
/// simulated NVML.
#[pyfunction]
pub(crate) fn simulate(py: Python<'_>, machine: PathBuf, library: PathBuf) -> PyResult<Simulated> {
    interruptible::run(py, Duration::from_secs(5), move |_| {
        let (dir, placeholders) = started(&machine, &library).map_err(Error::from)?;
        let plain = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let environment = dir.environment().map(|(name, value)| (name.to_owned(), plain(value)));
        let path = dir.path().to_owned();
        Ok(Simulated {
            environment: environment.into(),
            path,
            parts: Mutex::new(Some((placeholders, dir))),
            pid: std::process::id(),
        })
    })
}

fn started(
    machine: &Path,
    library: &Path,
) -> std::result::Result<(Dir, PlaceholderProcesses), LiveError> {
    let known = Machine::named(machine)?;
    let dir = Dir::make(Some(library))?;
    let host = LinuxHost::new(roots());
    let placeholders = PlaceholderProcesses::start(&known, &dir, &host)?;
    let session = Session {
        live: true,
        placeholders: placeholders.placeholders.clone(),
        ..Session::begun(machine)
    };
    session.write(dir.path())?;
    Ok((dir, placeholders))
}
