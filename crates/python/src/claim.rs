//! A claim for this process.

use crate::failure::{Failure, Result};
use crate::interruptible::{self, Stop};
use crate::keeper::Keeper;
use crate::machine::Machine;
use crate::request::Wanted;
use crate::views::text;
use gpu_core::ProcessKey;
use gpu_host::{FileLeaseStore, user_label};
use gpu_machine::Source;
use gpu_placement::Refusal;
use gpu_report::json;
use gpu_report::wording::claims;
use gpu_steward::{
    Grant, NotGranted, Ports, Refused, Request, Standing, Wait, Waiting, take, waits_for_own_lease,
};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time to withdraw a claim after Ctrl-C.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// Granted devices. They are released by `release`, when the object is deleted, or when the process
/// ends.
#[pyclass(frozen, module = "gpuws._gpuws")]
pub(crate) struct Lease {
    /// The object of `gpuws claim --json`.
    #[pyo3(get)]
    json: String,
    /// The environment variables that show the devices to CUDA.
    #[pyo3(get)]
    environment: Vec<(String, String)>,
    /// What a person should know about the granted devices.
    #[pyo3(get)]
    warnings: Vec<String>,
    keeper: Mutex<Option<Keeper>>,
}

#[pymethods]
impl Lease {
    /// Releases the devices; later calls do nothing.
    fn release(&self, py: Python<'_>) {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(keeper));
    }

    /// Whether the devices are held by this process. A process that was forked from it holds none.
    #[getter]
    fn is_held(&self) -> bool {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.as_ref().is_some_and(Keeper::is_own)
    }
}

/// Claims devices for this process and its descendants. `tell` is called with a line about each
/// change of a long wait. `outer` replaces variables of the environment, which an earlier claim of
/// this process has changed. Another thread can stop the wait.
#[pyfunction]
pub(crate) fn claim(
    py: Python<'_>,
    machine: Machine,
    wanted: Wanted,
    outer: Vec<(String, Option<OsString>)>,
    tell: Option<Py<PyAny>>,
    stop: Option<Py<Stop>>,
) -> PyResult<Lease> {
    let stop = stop.map_or_else(Stop::default, |stop| stop.get().clone());
    interruptible::run_until(py, &stop, WITHDRAWAL, move |stop| {
        let (source, locks, root) = opened(&machine)?;
        let (claim, limited_by) = wanted.claim(&source, &outer)?;
        let request = wanted.request(claim, root);
        let mut reported = String::new();
        let grant = {
            let ports = source.claim_ports(&locks);
            refuse_to_wait_for_itself(&request, &ports)?;
            let mut watch = |waiting: &Waiting<'_>| {
                report_once(&mut reported, &request, waiting, tell.as_ref());
                if stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            take(&request, &ports, &mut watch).map_err(|why| {
                if matches!(why, NotGranted::Silent(_) | NotGranted::Failed(_)) {
                    Machine::forget();
                }
                refused(&request, limited_by, why)
            })?
        };
        let environment = grant.environment(wanted.form(), &gpu_machine::own_variable)?;
        let plain = |text: OsString| text.to_string_lossy().into_owned();
        let environment = environment.into_iter().map(|(name, value)| (plain(name), plain(value)));
        Ok(Lease {
            json: text(&json::Claimed::of(&grant, &user_label))?,
            environment: environment.collect(),
            warnings: warnings(&grant),
            keeper: Mutex::new(Some(Keeper::start(source, locks, grant, root)?)),
        })
    })
}

fn opened(machine: &Machine) -> Result<(Arc<Source>, FileLeaseStore, ProcessKey)> {
    let source = machine.shared()?;
    if source.is_simulated() || !source.can_end_processes {
        let what = "claim GPUs of a simulated machine without real processes";
        return Err(Failure::invalid(what).with_hint("use: with gpuws.sim(\"labbox\"): …"));
    }
    let locks = source.lease_store(None)?;
    let root = source.host.own_ancestry()?.first().copied();
    let root = root.ok_or_else(|| Failure::new("process", "find this process in /proc"))?;
    Ok((source, locks, root))
}

/// Refuses a claim that would wait for a lease of this very process.
fn refuse_to_wait_for_itself(request: &Request, ports: &Ports<'_>) -> Result<()> {
    let lease = match request.wait {
        Wait::No => None,
        _ => waits_for_own_lease(request, ports).map_err(|why| refused(request, None, why))?,
    };
    lease.map_or(Ok(()), |lease| {
        let what = format!("claim GPUs that this process already has, in lease {}", lease.id);
        Err(Failure::new("not-available", what).with_hint("release that lease first"))
    })
}

/// Reports a wait, once for each change.
fn report_once(
    reported: &mut String,
    request: &Request,
    waiting: &Waiting<'_>,
    report: Option<&Py<PyAny>>,
) {
    let Some(report) = report else { return };
    let line = claims::waiting_for(&claims::asked(&request.claim), waiting, &user_label, None);
    if line != *reported {
        reported.clone_from(&line);
        // If reporting fails, keep waiting.
        let line = gpu_core::clean(&line).into_owned();
        let _ = Python::attach(|py| report.call1(py, (line,)).map(drop));
    }
}

fn warnings(grant: &Grant) -> Vec<String> {
    let accepted = grant
        .accepted
        .iter()
        .map(|(device, bar)| format!("GPU {}: {}", device.index, claims::barred(bar, &user_label)));
    let unseen =
        grant.held_back.iter().filter_map(|held| held.as_ref().err()).map(|error| {
            format!("safe-gpu users will not see the lease: failed to {}", error.fault())
        });
    accepted.chain(unseen).collect()
}

/// Converts the reason why the claim was not granted.
fn refused(request: &Request, limited_by: Option<&str>, why: NotGranted) -> Failure {
    let what = format!("claim {}", claims::asked(&request.claim));
    let reasons = |refused: &Refused| claims::reasons(refused.passed(), &user_label, limited_by);
    match why {
        NotGranted::NotNow { waited, standing, refused } => {
            let Standing { leases, .. } = *standing;
            let mut reasons = refused.as_ref().map_or(Vec::new(), reasons);
            if reasons.is_empty() && !leases.is_empty() {
                let holders: Vec<String> =
                    leases.iter().map(|lease| user_label(lease.owner)).collect();
                reasons.push(format!("leased by {}", holders.join(", ")));
            }
            let when =
                if waited { "not available within the timeout" } else { "not available now" };
            Failure::new("not-available", format!("{what}: {when}; {}", reasons.join("; ")))
                .with_hint("see holders and waiting claims with: gpuws leases")
        }
        NotGranted::Never(refused) => {
            let why = refused.as_ref().map_or_else(
                || "the enclosing lease has fewer GPUs".to_owned(),
                |refused| match &refused.refusal {
                    Refusal::Missing(uuid) => format!("no such GPU: {uuid}"),
                    Refusal::Contradictory => "with_ names more GPUs than n".to_owned(),
                    Refusal::Never { could, .. } if *could >= request.claim.count => {
                        format!(
                            "a GPU named by with_ is not available; {}",
                            reasons(refused).join("; ")
                        )
                    }
                    Refusal::Never { could, .. } => {
                        format!("only {could} can match; {}", reasons(refused).join("; "))
                    }
                    _ => reasons(refused).join("; "),
                },
            );
            Failure::new("never-available", format!("{what}: {why}"))
        }
        NotGranted::Silent(fault) => Failure::from(&fault),
        NotGranted::Failed(error) => error.into(),
        NotGranted::Foreign(_) => Failure::new("not-permitted", format!("{what}: {why}")),
        NotGranted::Stopped => Failure::new("interrupted", format!("{what}: interrupted")),
    }
}
