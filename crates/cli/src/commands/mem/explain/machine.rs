//! The machine as it is now, beside a log that may be of another.

use crate::args::Global;
use crate::failure::Failure;
use crate::source;
use crate::wording;
use gpu_core::{Groups, Snapshot};
use gpu_memory_advice::explain::{Device, Now, Resident};
use gpu_reaper::{Finding, FindingKind};
use std::time::Duration;

/// A look is an extra: nobody waits long for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at the machine; `None` where no driver answers soon.
///
/// # Errors
/// When a simulated machine was named that cannot be opened.
pub(in crate::commands::mem) fn look(global: &Global) -> Result<Option<Snapshot>, Failure> {
    let is_named = global.sim.is_some() || global.nvml.is_some();
    let patient = Global {
        sim: global.sim.clone(),
        nvml: global.nvml.clone(),
        deadline: global.deadline.min(PATIENCE),
        ..Global::default()
    };
    let source = match source::open_to_look(&patient, Groups::NONE, true) {
        Ok(source) => source,
        Err(failure) if is_named => return Err(failure.into()),
        Err(_) => return Ok(None),
    };
    let snapshot = source.look();
    Ok((snapshot.driver.is_ok() && !snapshot.devices.is_empty()).then_some(snapshot))
}

/// Returns what of a look bears on memory.
pub(super) fn now(snapshot: &Snapshot) -> Now {
    let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(snapshot));
    let is_ghost =
        |finding: &&Finding| matches!(finding.kind, FindingKind::Ghost | FindingKind::DriverLeak);
    let ghost = |index: u32| {
        let of_device =
            |finding: &&Finding| matches!(&finding.devices[..], [id] if id.index == index);
        diagnosis.findings.iter().filter(is_ghost).find(of_device)?.memory
    };
    let devices = snapshot.devices.iter().filter_map(|device| {
        let index = device.id().index;
        let (total, used) = (device.memory_total().ok()?, device.memory_used().ok()?);
        Some(Device { index, total, free: total.saturating_sub(used), ghost: ghost(index) })
    });
    let residents = snapshot.devices.iter().flat_map(|device| {
        let listed = device.processes.iter().flatten();
        listed.map(move |process| Resident {
            pid: process.pid,
            name: wording::command(snapshot.process(process.pid), None).chars().take(60).collect(),
            device: device.id().index,
            memory: process.memory.ok(),
        })
    });
    Now { devices: devices.collect(), residents: residents.collect() }
}
