//! The words of `gpuws doctor`.

use super::{count, devices, numbered};
use crate::text::Line;
use gpu_core::ErrorKind::NotRequested;
use gpu_core::{Absent, DeviceState, Origin, Snapshot};
use gpu_reaper::{Diagnosis, Finding, OldMessages, Sign};

/// Names what a finding is about: its GPUs, or an NVSwitch.
pub fn subject(snapshot: &Snapshot, finding: &Finding) -> String {
    let of_switch = |finding: &Finding| finding.evidence.iter().any(|e| e.sign == Sign::SXid);
    match finding.devices.is_empty() && of_switch(finding) {
        true => "an NVSwitch".to_owned(),
        false => devices(snapshot, &finding.devices),
    }
}

/// Returns what a diagnosis leaves out or cannot judge, as sentences, besides the kernel log that it
/// lacks.
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
