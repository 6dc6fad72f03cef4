//! The current state of the machine. The log may be from another one.

use crate::args::Global;
use crate::failure::Failure;
use crate::source;
use gpu_core::{Groups, Snapshot};
use gpu_memory_advice::explain::Now;
use gpu_reaper::{Finding, FindingKind};
use gpu_report::memory_now;
use std::time::Duration;

/// The maximum deadline of the driver, because this query is optional.
const MAX_DEADLINE: Duration = Duration::from_secs(3);

/// Queries the machine; `None` if no driver answers in time.
///
/// # Errors
/// When a machine that the user named cannot be opened.
pub(in crate::commands::mem) fn query(global: &Global) -> Result<Option<Snapshot>, Failure> {
    let is_named = global.sim.is_some() || global.nvml.is_some();
    let limited = Global {
        sim: global.sim.clone(),
        nvml: global.nvml.clone(),
        deadline: global.deadline.min(MAX_DEADLINE),
        ..Global::default()
    };
    let source = match source::open_for_query(&limited, Groups::NONE, true) {
        Ok(source) => source,
        Err(failure) if is_named => return Err(failure),
        Err(_) => return Ok(None),
    };
    let snapshot = source.snapshot();
    Ok((snapshot.driver.is_ok() && !snapshot.devices.is_empty()).then_some(snapshot))
}

/// Returns the memory state of a snapshot.
pub(super) fn now(snapshot: &Snapshot) -> Now {
    let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(snapshot));
    let is_ghost =
        |finding: &&Finding| matches!(finding.kind, FindingKind::Ghost | FindingKind::DriverLeak);
    let ghost = |index: u32| {
        let of_device =
            |finding: &&Finding| matches!(&finding.devices[..], [id] if id.index == index);
        diagnosis.findings.iter().filter(is_ghost).find(of_device)?.memory
    };
    memory_now(snapshot, ghost)
}
