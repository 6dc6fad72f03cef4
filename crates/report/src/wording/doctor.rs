//! The words of `gpuws doctor`.

use super::{count, grouped};
use crate::text::Line;
use gpu_core::{DeviceState, Origin, Snapshot};
use gpu_reaper::Diagnosis;

/// Returns the last line of a diagnosis: `2 findings, 1 only possible. 0 processes could not be
/// read.`
pub fn summary(snapshot: &Snapshot, diagnosis: &Diagnosis) -> Line {
    let answered = |device: &DeviceState| device.sample.is_ok() && device.processes.is_ok();
    let all_seen = snapshot.holders.is_ok()
        && snapshot.origin != Origin::Pasted
        && snapshot.devices.iter().all(answered);
    let hidden = u64::from(snapshot.unreadable.total());
    let (found, possible) = (diagnosis.findings.len(), diagnosis.possible_count());
    if found == 0 && diagnosis.left_out == 0 && all_seen {
        let are = if hidden == 1 { "process is" } else { "processes are" };
        let remedy = if snapshot.is_root == Ok(true) { "" } else { " (try sudo)" };
        return Line::new().plain(match hidden {
            0 => "No problems found.".to_owned(),
            hidden => {
                let hidden = grouped(hidden);
                format!("No problems found in what you may read; {hidden} {are} hidden{remedy}.")
            }
        });
    }
    let line = Line::new().accent(count(found, "finding", "findings"));
    let line = match possible {
        0 => line,
        _ if possible == found => line.plain(", only possible"),
        _ => line.plain(format!(", {possible} only possible")),
    };
    let line = match diagnosis.left_out {
        0 => line,
        left_out => line.plain(format!(", {left_out} left out")),
    };
    match (&snapshot.holders, &snapshot.origin) {
        (Err(_), _) => line.plain(". The holders of the device files are unknown."),
        // The permissions of the user who ran the pasted commands are unknown.
        (Ok(_), Origin::Pasted) => line.plain("."),
        (Ok(_), _) => {
            let word = if hidden == 1 { "process" } else { "processes" };
            line.plain(format!(". {} {word} could not be read.", grouped(hidden)))
        }
    }
}
