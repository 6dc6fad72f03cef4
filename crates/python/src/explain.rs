//! Explanations of out-of-memory messages.

use crate::interruptible;
use crate::look::text;
use crate::machine::Machine;
use gpu_core::{Groups, Snapshot};
use gpu_memory_advice::explain::{Device, Diagnosis, Now, Resident, explain as diagnose};
use gpu_report::{json, wording};
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
        let now = snapshot.as_ref().map(state);
        let diagnoses: Vec<Diagnosis> = report
            .events
            .iter()
            .map(|event| diagnose(&gpu_memory_advice::text::shown(event), now.as_ref()))
            .collect();
        text(&json::Explained::of(&report, &diagnoses, snapshot.as_ref()))
    })
}

/// Returns the memory of a machine and its holders.
fn state(snapshot: &Snapshot) -> Now {
    let devices = snapshot.devices.iter().filter_map(|device| {
        let (total, used) = (device.memory_total().ok()?, device.memory_used().ok()?);
        let index = device.id().index;
        Some(Device { index, total, free: total.saturating_sub(used), ghost: None })
    });
    let residents = snapshot.devices.iter().flat_map(|device| {
        device.processes.iter().flatten().map(move |process| Resident {
            pid: process.pid,
            name: wording::command(snapshot.process(process.pid), None).chars().take(60).collect(),
            owner: wording::user(snapshot.process(process.pid)).into_owned(),
            device: device.id().index,
            memory: process.memory.ok(),
        })
    });
    Now { devices: devices.collect(), residents: residents.collect() }
}
