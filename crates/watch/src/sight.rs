//! What one look can say about a finding that it does not have.

use crate::identity::Identity;
use gpu_core::{DeviceState, Snapshot};
use gpu_reaper::{Finding, FindingKind};

/// Returns whether the absence of a finding from the diagnosis of a look shows that it is over. If
/// something that it rests on could not be read, it shows nothing.
pub(crate) fn shows_absence(now: &Snapshot, id: &Identity, finding: &Finding) -> bool {
    if now.driver.is_err() || now.devices.is_empty() {
        return false;
    }
    let answered = |device: &DeviceState| {
        device.sample.is_ok() && device.processes.is_ok() && device.mig.is_ok()
    };
    // A missing device may be one that the driver was too slow to report.
    let known = |id: &gpu_core::DeviceId| now.device(id).is_some_and(answered);
    let all_answered = now.devices.iter().all(answered);
    if !finding.devices.iter().all(|id| known(id) || (all_answered && now.device(id).is_none())) {
        return false;
    }
    let details = || {
        finding.devices.iter().filter_map(|id| now.device(id)).all(|device| device.details.is_ok())
    };
    let process_readable = || match id.process {
        None => true,
        Some(key) => match now.process(key.pid) {
            Ok(_) => true,
            // It is named nowhere any more, or does not exist.
            Err(gpu_core::Absent::NotRecorded | gpu_core::Absent::NotFound) => true,
            Err(_) => false,
        },
    };
    match finding.kind {
        FindingKind::Ghost
        | FindingKind::DriverLeak
        | FindingKind::NotPermitted
        | FindingKind::ForeignNamespace
        | FindingKind::ListedButGone
        | FindingKind::ZombieHolder
        | FindingKind::StuckHolder
        | FindingKind::Orphan
        | FindingKind::Hoarder
        | FindingKind::MemoryGrowth
        | FindingKind::BusyWithoutProcess
        | FindingKind::BlockedReset => now.holders.is_ok() && process_readable(),
        FindingKind::DriverError => now.driver_messages.is_ok(),
        FindingKind::DeviceFault
        | FindingKind::MemoryErrors
        | FindingKind::NvLinkDown
        | FindingKind::NoMigInstance
        | FindingKind::ComputeProhibited
        | FindingKind::Throttled
        | FindingKind::SlowPcie
        | FindingKind::PendingReset => details(),
    }
}
