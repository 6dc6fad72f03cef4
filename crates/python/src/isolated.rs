//! A job in isolation, supervised by the program gpuws.

use crate::failure::{Failure, Result};
use crate::interruptible::{self, Stop};
use crate::machine::Machine;
use crate::request::Wanted;
use crate::views::text as text_of;
use gpu_core::Launch;
use gpu_host::supervise::Reexec;
use gpu_machine::roots;
use gpu_steward::{Isolated, IsolatedError, IsolatedReport, IsolatedUse};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;

/// The interval at which a wait checks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The time to end a job after Ctrl-C, in addition to its grace period.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// The maximum length of a result.
const RESULT_LIMIT: usize = 4 << 30;

/// How a job ended.
struct Ended {
    outcome: &'static str,
    text: String,
    value: Vec<u8>,
    report: Option<String>,
}

/// A report in the form that Python receives.
#[derive(Serialize)]
struct Report<'a> {
    exit_code: i32,
    limit_hit: bool,
    elapsed_ms: u64,
    gpus: Vec<Used>,
    ended_pids: Vec<u32>,
    left_pids: Vec<u32>,
    memory_back: Option<bool>,
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct Used {
    index: u32,
    peak_memory_bytes: Option<u64>,
}

impl<'a> From<&'a IsolatedReport> for Report<'a> {
    fn from(report: &'a IsolatedReport) -> Self {
        let used = |used: &IsolatedUse| Used {
            index: used.index,
            peak_memory_bytes: used.peak.ok().map(|bytes| bytes.0),
        };
        Report {
            exit_code: report.code,
            limit_hit: report.limit_hit,
            elapsed_ms: report.elapsed_ms,
            gpus: report.devices.iter().map(used).collect(),
            ended_pids: report.ended_pids.iter().map(|pid| pid.0).collect(),
            left_pids: report.left_pids.iter().map(|pid| pid.0).collect(),
            memory_back: report.memory_back.ok(),
            error: report.stopped.as_ref().map(|fault| &*fault.text),
        }
    }
}

impl Ended {
    fn of(outcome: &'static str, text: String, report: Option<&IsolatedReport>) -> Result<Self> {
        let report = report.map(Report::from).map(|report| text_of(&report)).transpose()?;
        Ok(Ended { outcome, text, value: Vec::new(), report })
    }
}

/// How to run a job.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Terms {
    /// The program and its arguments.
    command: Vec<OsString>,
    set: Vec<(OsString, OsString)>,
    time_limit_s: Option<f64>,
    grace_s: f64,
}

/// Runs a command on claimed devices in a process tree of its own, and returns when nothing of it is
/// left: the outcome, its text, the result that the command wrote, and the report as JSON.
#[pyfunction]
#[allow(clippy::type_complexity, reason = "it is a tuple for Python")]
pub(crate) fn run_isolated<'py>(
    py: Python<'py>,
    machine: Machine,
    wanted: Wanted,
    terms: Terms,
    input: Vec<u8>,
) -> PyResult<(&'static str, String, Bound<'py, PyBytes>, Option<String>)> {
    let grace = Duration::try_from_secs_f64(terms.grace_s).unwrap_or(Duration::from_secs(10));
    let Ended { outcome, text, value, report } =
        interruptible::run(py, grace.saturating_add(CLEAN_UP), move |stop| {
            run(&machine, &wanted, terms, grace, input, stop)
        })?;
    Ok((outcome, text, PyBytes::new(py, &value), report))
}

fn run(
    machine: &Machine,
    wanted: &Wanted,
    terms: Terms,
    grace: Duration,
    input: Vec<u8>,
    stop: &Stop,
) -> Result<Ended> {
    let source = machine.open()?;
    let (claim, _) = wanted.claim(&source, &[])?;
    let mut command = terms.command.into_iter();
    let program = command.next().ok_or_else(|| Failure::invalid("run an empty command"))?;
    let launch =
        Launch { program, arguments: command.collect(), set: terms.set, ..Launch::default() };
    let mut job = Isolated::program(launch)
        .command(wanted.command())
        .claim(claim)
        .wait(wanted.wait())
        .visible(wanted.form())
        .grace(grace)
        .input(input);
    if let Some(limit) = terms.time_limit_s {
        let limit = Duration::try_from_secs_f64(limit);
        job = job.time_limit(limit.map_err(|error| Failure::invalid(error.to_string()))?);
    }
    let isolation = job.start(&Reexec::new(roots(), machine.program.clone(), RESULT_LIMIT))?;
    while !isolation.is_over_within(SIGNAL_INTERVAL)? {
        if stop.is_requested() {
            // This ends the job and all its descendants, and waits for them.
            drop(isolation);
            return Err(Failure::new("interrupted", "run an isolated job: interrupted"));
        }
    }
    match isolation.wait() {
        Ok(done) => {
            Ok(Ended { value: done.value, ..Ended::of("done", String::new(), Some(&done.report))? })
        }
        Err(error) => {
            let text = error.to_string();
            match error {
                IsolatedError::NotGranted(_) => Err(Failure::new("not-available", text)
                    .with_hint("see holders and waiting claims with: gpuws leases")),
                IsolatedError::NeverGranted(_) => Err(Failure::new("never-available", text)),
                IsolatedError::NotStarted(fault) => Err(Failure::from(&fault)),
                IsolatedError::TimedOut(report) => Ended::of("timed-out", text, Some(&report)),
                IsolatedError::Failed(_, report) | IsolatedError::Panicked(_, report) => {
                    Ended::of("job-failed", text, Some(&report))
                }
                IsolatedError::TooLong(report) => Ended::of("too-long", text, Some(&report)),
                IsolatedError::Lost(error) => Ended::of("lost", error.fault().text, None),
            }
        }
    }
}
