//! Explanations of out-of-memory messages.

use crate::interruptible;
use crate::machine::Machine;
use crate::views::text;
use gpu_core::Groups;
use gpu_memory_advice::explain::{Diagnosis, explain as diagnose};
use gpu_report::{json, memory_now};
use gpu_text::oom;
use pyo3::prelude::*;
use std::time::Duration;

/// Returns the object of `gpuws mem explain --json` for a message, and the state of the machine if
/// its driver answers.
#[pyfunction]
pub(crate) fn explain(
    py: Python<'_>,
    machine: Machine,
    message: Vec<u8>,
    live: bool,
) -> PyResult<String> {
    interruptible::run(py, Duration::ZERO, move |_| {
        let report = oom::read(&message);
        // The explanation is useful even without the machine.
        let snapshot = (live && !report.events.is_empty())
            .then(|| machine.open_for_query(Groups::NONE, true).ok())
            .flatten()
            .map(|source| source.snapshot())
            .filter(|now| now.driver.is_ok() && !now.devices.is_empty());
        let now = snapshot.as_ref().map(|snapshot| memory_now(snapshot, |_| None));
        let diagnoses: Vec<Diagnosis> = report
            .events
            .iter()
            .map(|event| diagnose(&gpu_memory_advice::text::shown(event), now.as_ref()))
            .collect();
        text(&json::Explained::of(&report, &diagnoses, snapshot.as_ref()))
    })
}
