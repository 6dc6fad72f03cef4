//! The words of `gpuws doctor`.

use super::{count, devices, grouped, numbered};
use crate::text::Line;
use gpu_core::ErrorKind::NotRequested;
use gpu_core::{Absent, DeviceState, MemoryKind, Origin, Snapshot};
use gpu_reaper::{Diagnosis, Finding, OldMessages, Sign};

/// Names the subject of a finding: its GPUs, or an NVSwitch.
pub fn subject(snapshot: &Snapshot, finding: &Finding) -> String {
    let of_switch =
        |finding: &Finding| finding.evidence.iter().any(|e| e.sign == Sign::SwitchError);
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
            "{}: the reported memory use exceeds the installed memory: the driver or a library in \
             between (such as HAMi-core) miscounts, so memory is not diagnosed",
            numbered(&impossible)
        )
    });
    old.into_iter().chain(impossible).chain(unmeasured(snapshot)).collect()
}

/// Returns why memory without a listed process is not known to be in use or free, for the devices
/// where it cannot be measured, by reason.
pub(super) fn unmeasured(snapshot: &Snapshot) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<u32>)> = Vec::new();
    for device in &snapshot.devices {
        let Some(reason) = why_unmeasured(device) else { continue };
        let index = device.id().index;
        match by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, indexes)) => indexes.push(index),
            None => by_reason.push((reason, vec![index])),
        }
    }
    let text = |(reason, indexes): (&str, Vec<u32>)| {
        let gpus = numbered(&indexes);
        format!("{gpus}: memory of unlisted processes was not measured, so it is unknown: {reason}")
    };
    by_reason.into_iter().map(text).collect()
}

/// Returns why the memory of unlisted processes cannot be measured on a device that answers; `None`
/// if it was measured, or if a fault explains that it was not.
pub(super) fn why_unmeasured(device: &DeviceState) -> Option<&'static str> {
    if device.sample.is_err() || device.memory_unlisted().is_some() {
        return None;
    }
    Some(match device.memory_source().kind {
        MemoryKind::Host => "the GPU uses the host's memory, and the driver reports no figure",
        MemoryKind::CarveOut => {
            "the GPU uses the host's memory, and the driver's figures cover only a small part"
        }
        MemoryKind::NumaNode(_) => {
            "the driver's figure includes page cache and programs of the host, and the meminfo of \
             the GPU's NUMA node was not read"
        }
        MemoryKind::VirtualGpu => {
            "a virtual GPU shows memory of the host's driver and of its own as used"
        }
        MemoryKind::Wddm => "Windows shares the GPU, and reports no memory per process",
        MemoryKind::Dedicated if device.processes.is_ok() && device.memory_listed().is_none() => {
            "the driver does not report the memory of each process"
        }
        // The notes say so elsewhere.
        MemoryKind::Dedicated => return None,
    })
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
            0 if !unmeasured(snapshot).is_empty() => {
                "No problems found in what was measured.".to_owned()
            }
            0 => "No problems found.".to_owned(),
            hidden => {
                let hidden = grouped(hidden);
                format!("No problems found in what you can read; {hidden} {are} hidden{remedy}.")
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
