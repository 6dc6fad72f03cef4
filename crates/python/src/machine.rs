//! The machine that a call is about.

use crate::failure::Result;
use gpu_core::Groups;
use gpu_machine::{Options, Source};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// Which machine to open, and with which program.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Machine {
    /// The program gpuws.
    pub(crate) program: PathBuf,
    /// The simulated machine; `None` for this one, or the session's.
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

    /// Opens it.
    pub(crate) fn open(&self) -> Result<Source> {
        Ok(Source::open(&self.options())?)
    }

    /// Opens it for a query of these groups next.
    pub(crate) fn open_for_query(&self, groups: Groups, once: bool) -> Result<Source> {
        Ok(Source::open_for_query(&self.options(), groups, once)?)
    }

    /// Returns the option that selects it, for a suggested command.
    pub(crate) fn sim_option(&self) -> String {
        let quoted = |path: &PathBuf| {
            let path = path.to_string_lossy();
            format!("--sim {} ", gpu_report::wording::shell_word(&path))
        };
        self.sim.as_ref().map_or(String::new(), quoted)
    }
}
