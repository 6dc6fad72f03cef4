//! A claim in the form that Python passes it.

use crate::failure::{Failure, Result};
use gpu_core::visible::Form;
use gpu_core::{Bytes, Claim, Groups, Inventory, ProcessKey, Selector, Share};
use gpu_machine::Source;
use gpu_steward::{NamedDevices, NarrowError, Request, Wait, narrowed};
use pyo3::prelude::*;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::time::Duration;

/// The interval at which a waiting claim checks for Ctrl-C.
const PACE: Duration = Duration::from_millis(100);

/// The arguments of a claim.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Wanted {
    n: u32,
    mem_bytes: Option<u64>,
    gpu: Vec<String>,
    exclude: Vec<String>,
    required: Vec<String>,
    mig: bool,
    capability: Option<(u32, u32)>,
    vendor: Option<String>,
    topology: bool,
    min_free_bytes: Option<u64>,
    /// `None` to wait forever, 0 not to wait.
    wait_s: Option<f64>,
    accept_used: bool,
    by_index: bool,
    command: String,
}

impl Wanted {
    /// Returns how the environment names devices.
    pub(crate) fn form(&self) -> Form {
        if self.by_index { Form::Index } else { Form::Uuid }
    }

    /// Returns the command that others see in the lease.
    pub(crate) fn command(&self) -> String {
        self.command.chars().take(256).collect()
    }

    /// Returns how long to wait.
    pub(crate) fn wait(&self) -> Wait {
        match self.wait_s {
            None => Wait::Forever,
            Some(seconds) if seconds <= 0.0 => Wait::No,
            Some(seconds) => Duration::try_from_secs_f64(seconds).map_or(Wait::Forever, Wait::For),
        }
    }

    /// Returns the claim on a machine, within the limits of the environment, and the variable that
    /// sets them. `outer` replaces variables of the environment.
    ///
    /// # Errors
    /// If a named device does not exist, no device is left, or a required topology is unknown.
    pub(crate) fn claim(
        &self,
        source: &Source,
        outer: &[(String, Option<OsString>)],
    ) -> Result<(Claim, Option<&'static str>)> {
        let claim = Claim {
            share: self.mem_bytes.map_or(Share::Whole, |bytes| Share::Memory(Bytes(bytes))),
            free_memory: self.min_free_bytes.map(Bytes),
            compute_capability: self.capability,
            vendor: self.vendor.clone(),
            accept_used: self.accept_used,
            ..Claim::whole(self.n)
        };
        let inventory = OnceCell::new();
        let machine = || -> &Inventory {
            inventory.get_or_init(|| {
                gpu_core::take_inventory(&*source.backend, &*source.host, Groups::NONE)
            })
        };
        let (among, except) = (selectors(&self.gpu)?, selectors(&self.exclude)?);
        let required = selectors(&self.required)?;
        let named = NamedDevices {
            among: &among,
            except: &except,
            required: &required,
            partitions: self.mig,
        };
        let variable = |name: &str| match outer.iter().find(|(known, _)| known == name) {
            Some((_, value)) => value.clone(),
            None => std::env::var_os(name),
        };
        let (claim, given) =
            narrowed(claim, &named, &machine, &variable, &|| source.slurm_positions()).map_err(
                |error| match error {
                    NarrowError::NoDriver(fault) => Failure::from(&fault),
                    NarrowError::NothingLeft(_) => {
                        Failure::new("never-available", error.to_string())
                    }
                    error => Failure::invalid(error.to_string()),
                },
            )?;
        if self.topology {
            source.backend.topology()?;
        }
        Ok((claim, given.by.filter(|_| given.given.is_some())))
    }

    /// Returns the request of a claim for this process.
    pub(crate) fn request(&self, claim: Claim, root: ProcessKey) -> Request {
        Request {
            needs_topology: self.topology || claim.count > 1,
            claim,
            wait: self.wait(),
            pace: PACE,
            command: self.command(),
            root,
        }
    }
}

fn selectors(names: &[String]) -> Result<Vec<Selector>> {
    let refused = |name: &str, why: String| Failure::invalid(format!("find GPU '{name}': {why}"));
    names.iter().map(|name| name.parse().map_err(|why| refused(name, why))).collect()
}

/// Returns an amount of memory such as `6GiB`, in bytes.
#[pyfunction]
pub(crate) fn parse_bytes(text: &str) -> PyResult<u64> {
    let parsed: std::result::Result<Bytes, String> = text.parse();
    let refused = |why| Failure::invalid(format!("read '{text}' as an amount of memory: {why}"));
    Ok(parsed.map(|bytes| bytes.0).map_err(refused)?)
}
