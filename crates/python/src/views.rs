//! Views: the JSON of `gpuws status`, `doctor` and `leases`.

use crate::failure::Result;
use crate::interruptible;
use crate::machine::Machine;
use gpu_core::{
    DeviceFiles, DeviceState, FileRole, Groups, HolderSearch, Observation, Pid, ProcessDetail,
    ProcessTable, Snapshot,
};
use gpu_host::{LinuxHost, Roots, user_label};
use gpu_machine::roots;
use gpu_nvidia_driver::drivers;
use gpu_reaper::Past;
use gpu_report::View;
use gpu_report::json;
use gpu_sim::Session;
use gpu_steward::listing;
use pyo3::prelude::*;
use serde::Serialize;
use std::time::Duration;

/// Returns an object as the program prints it.
pub(crate) fn text(object: &impl Serialize) -> Result<String> {
    Ok(gpu_report::write::one_line(object)?)
}

/// Returns the object of `gpuws status --json`.
#[pyfunction]
pub(crate) fn status(py: Python<'_>, machine: Machine, details: bool) -> PyResult<String> {
    interruptible::run(py, Duration::ZERO, move |_| {
        let groups =
            if details { Groups::all() } else { gpu_reaper::defect_groups().and(Groups::NONE) };
        let holders = HolderSearch::wanted(details);
        let processes = ProcessDetail::Whole;
        let observation = Observation { groups, holders, processes, driver_messages: false };
        let source = machine.open_for_query(groups, true)?;
        let leased = source.leases();
        let mut whole = source.detailed_snapshot(observation);
        let mut diagnosis = gpu_reaper::diagnose_outlines(&mut whole, &*source.host);
        leased.excuse(&whole, &mut diagnosis);
        let view = View::of(&whole, &whole, &diagnosis, leased, &user_label);
        text(&View { seen: gpu_machine::seen(&whole.devices), ..view }.json(details))
    })
}

/// Returns the object of `gpuws doctor --json`, from this many snapshots.
#[pyfunction]
pub(crate) fn doctor(
    py: Python<'_>,
    machine: Machine,
    samples: u16,
    every_s: f64,
) -> PyResult<String> {
    let every = Duration::try_from_secs_f64(every_s).unwrap_or(Duration::from_secs(5));
    interruptible::run(py, Duration::ZERO, move |_| {
        let observation = gpu_reaper::full_observation();
        let source = machine.open_for_query(observation.groups, samples == 1)?;
        let snapshots: Vec<Snapshot> =
            source.snapshots(observation, samples.max(1), every).collect();
        let Some(now) = snapshots.last() else { return Ok("{}".to_owned()) };
        let mut past = Past::new();
        snapshots.iter().for_each(|snapshot| past.add(snapshot));
        let mut diagnosis = gpu_reaper::diagnose_after(&past, now);
        source.leases().excuse(now, &mut diagnosis);
        diagnosis.join_ghosts();
        let devices: Vec<&DeviceState> = now.devices.iter().collect();
        text(&json::Doctor::of(now, &devices, &diagnosis, &machine.sim_option()))
    })
}

/// Returns the object of `gpuws leases --json`.
#[pyfunction]
pub(crate) fn leases(py: Python<'_>, machine: Machine) -> PyResult<String> {
    interruptible::run(py, Duration::ZERO, move |_| {
        let source = machine.open()?;
        let locks = source.lease_store(None)?;
        let ports = source.claim_ports(&locks);
        text(&json::Leases::of(&listing(&ports)?, &user_label))
    })
}

/// Returns the device files that this process has open as a program with a CUDA context has.
#[pyfunction]
pub(crate) fn own_gpu_files(py: Python<'_>) -> PyResult<Vec<String>> {
    let query = || -> Result<Vec<String>> {
        // Do not query the members of the session: this process may be its caller without being a
        // member.
        let dev = gpu_sim::live::named().map(|session| session.join(Session::DEVICE_FILES));
        let roots = match dev {
            Some(dev) => Roots { dev, ..roots() },
            None => roots(),
        };
        let host = LinuxHost::with_drivers(roots, drivers());
        let files = host.device_files()?;
        let held = host.open(Pid(std::process::id()))?.held(&files)?;
        let of_context = held.into_iter().filter(|file| file.role == FileRole::Memory);
        Ok(of_context.map(|file| file.path.to_string()).collect())
    };
    Ok(py.detach(query)?)
}
