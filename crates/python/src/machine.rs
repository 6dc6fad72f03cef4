//! The machine that a call uses.

use crate::failure::Result;
use gpu_core::Groups;
use gpu_machine::{Options, Source};
use gpu_sim::live;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The machine of the last claim. Its NVML child process is reused by the next claim, because
/// starting it takes most of a claim's time.
static LAST: Mutex<Option<(Key, Arc<Source>)>> = Mutex::new(None);

/// The key of a machine. A forked process must not use its parent's child process.
#[derive(PartialEq)]
struct Key {
    pid: u32,
    machine: Machine,
    session: Option<PathBuf>,
}

/// Which machine to open, and with which program.
#[derive(Clone, Debug, PartialEq, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Machine {
    /// The program gpuws.
    pub(crate) program: PathBuf,
    /// The simulated machine; `None` for this machine or that of the session.
    pub(crate) sim: Option<PathBuf>,
    /// The time to wait for the driver, in seconds.
    pub(crate) deadline_s: f64,
}

impl Machine {
    fn options(&self) -> Options<'_> {
        let own = Options::this_machine();
        Options {
            sim: self.sim.as_deref(),
            program: Some(&self.program),
            deadline: Duration::try_from_secs_f64(self.deadline_s).unwrap_or(own.deadline),
            ..own
        }
    }

    /// Forgets the machine of the last claim, so that a driver that did not answer is queried
    /// again.
    pub(crate) fn forget() {
        if let Ok(mut last) = LAST.try_lock() {
            last.take_if(|(key, _)| key.pid == std::process::id());
        }
    }

    /// Opens the machine.
    pub(crate) fn open(&self) -> Result<Source> {
        Ok(Source::open(&self.options())?)
    }

    /// Returns the machine of the last claim if it is this one, or opens it.
    pub(crate) fn shared(&self) -> Result<Arc<Source>> {
        let session = live::named();
        let key = Key { pid: std::process::id(), machine: self.clone(), session };
        // Do not wait for another thread that is claiming, or was claiming when this process was
        // forked.
        let Ok(mut last) = LAST.try_lock() else { return self.open().map(Arc::new) };
        if let Some((known, source)) = last.as_ref()
            && *known == key
        {
            return Ok(Arc::clone(source));
        }
        let source = Arc::new(self.open()?);
        match last.replace((key, Arc::clone(&source))) {
            // This process must not end its parent's child.
            Some((old, source)) if old.pid != std::process::id() => std::mem::forget(source),
            _ => {}
        }
        Ok(source)
    }

    /// Opens the machine for a query of these groups.
    pub(crate) fn open_for_query(&self, groups: Groups, once: bool) -> Result<Source> {
        Ok(Source::open_for_query(&self.options(), groups, once)?)
    }

    /// Returns the option that selects it, for a suggested command.
    pub(crate) fn sim_option(&self) -> String {
        let option = |path| format!("--sim {} ", gpu_report::wording::path_word(path));
        self.sim.as_deref().map_or(String::new(), option)
    }
}
