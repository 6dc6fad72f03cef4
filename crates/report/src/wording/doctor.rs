//! The words of `gpuws doctor`.

use super::count;
use crate::text::Line;
use gpu_core::{DeviceState, Origin, Snapshot};
use gpu_reaper::Diagnosis;

/// Returns the last line of a diagnosis: `1 finding. 0 processes could not be read.`
pub fn summary(snapshot: &Snapshot, diagnosis: &Diagnosis) -> Line {
    let answered = |device: &DeviceState| device.sample.is_ok() && device.processes.is_ok();
    let all_seen = snapshot.holders.is_ok()
        && snapshot.origin != Origin::Pasted
        && snapshot.devices.iter().all(answered);
    let line = match (diagnosis.findings.len(), diagnosis.left_out) {
        (0, 0) if all_seen => Line::new().plain("0 findings: no problems found"),
        (n, 0) => Line::new().accent(count(n, "finding", "findings")),
        (n, left_out) => Line::new()
            .accent(count(n, "finding", "findings"))
            .plain(format!(", {left_out} left out")),
    };
    match (&snapshot.holders, &snapshot.origin) {
        (Err(_), _) => line.plain(". The holders of the device files are unknown."),
        // The permissions of the user who ran the pasted commands are unknown.
        (Ok(_), Origin::Pasted) => line.plain("."),
        (Ok(_), _) => {
            let unread = snapshot.unreadable.total() as usize;
            line.plain(format!(". {} could not be read.", count(unread, "process", "processes")))
        }
    }
}
