//! The words of `gpuws doctor`.

use super::{count, devices, grouped, numbered};
use crate::text::Line;
use gpu_core::ErrorKind::NotRequested;
use gpu_core::{Absent, DeviceState, Origin, Snapshot};
use gpu_reaper::{Diagnosis, Finding, OldMessages, Sign};

/// Names the subject of a finding: its GPUs, or an NVSwitch.
pub fn subject(snapshot: &Snapshot, finding: &Finding) -> String {
    let of_switch = |finding: &Finding| finding.evidence.iter().any(|e| e.sign == Sign::SXid);
    match finding.devices.is_empty() && of_switch(finding) {
        true => "an NVSwitch".to_owned(),
        false => devices(snapshot, &finding.devices),
    }
}

/// Returns what a diagnosis leaves out or cannot judge, as sentences, apart from a missing kernel
/// log.
pub fn left_out(snapshot: &Snapshot) -> Vec<String> {
    let old = gpu_reaper::old_messages(snapshot).map(|OldMessages { count: number, since }| {
        let messages = count(number, "message", "messages");
        let verb = if number == 1 { "is" } else { "are" };
        let since = since.to_string();
        let since = since.get(..16).map_or(since.clone(), |since| since.replace('T', " "));
        let than = match snapshot.origin {
            Origin::Pasted => "more than three days before the last time in the text",
            _ => "more than three days ago",
        };
        format!(
            "{messages} of the kernel log {verb} left out, from before {since} UTC: {than}, the \
             GPU may have been reset since"
        )
    });
    let is_impossible = |device: &&DeviceState| {
        let memory = device.sample.as_ref().map(|sample| sample.memory);
        memory.is_ok_and(|memory| memory.used == Err(Absent::Implausible))
    };
    let impossible: Vec<u32> =
        snapshot.devices.iter().filter(is_impossible).map(|device| device.id().index).collect();
    let impossible = (!impossible.is_empty()).then(|| {
        format!(
            "{}: the figure of the used memory is impossible, as it exceeds what is installed: \
             the driver or a library between (such as HAMi-core) miscounts, and memory is not judged",
            numbered(&impossible)
        )
    });
    old.into_iter().chain(impossible).collect()
}

/// Returns the notes below a diagnosis: what it leaves out, and why the kernel log is missing.
pub fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = left_out(snapshot);
    if let Err(fault) = &snapshot.driver_messages
        && fault.kind != NotRequested
    {
        notes.push(format!("failed to {fault}; errors that only the driver logs are not covered"));
    }
    notes
}

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
