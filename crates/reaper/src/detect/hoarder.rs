//! Processes that keep memory and do not compute.

use super::context::DetectContext;
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{Bytes, DeviceId, DeviceState, Pid, Snapshot};
use std::collections::BTreeMap;
use std::time::Duration;

/// Below this, a process blocks no other: a twentieth of the device, at least 1 GiB.
fn is_much(memory: Bytes, total: Bytes) -> bool {
    memory >= Bytes::from_mib(1024) && memory.0 >= total.0 / 20
}

/// Snapshots that span less than this are no better than one.
const MIN_OBSERVATION: Duration = Duration::from_secs(5);

pub(crate) fn detect(case: &DetectContext<'_>) -> Vec<Finding> {
    let mut idle: BTreeMap<Pid, Vec<(&DeviceState, Bytes)>> = BTreeMap::new();
    for device in &case.now.devices {
        for process in case.listed_on(device) {
            let (Ok(memory), Ok(total)) = (process.memory, device.memory_total()) else { continue };
            let here = !case.is_gone(process.pid)
                && is_much(memory, total)
                && case.role(process.pid, device) == Role::MemoryUser;
            if here && case.looks.iter().all(|look| is_idle(look, device.id(), process.pid)) {
                idle.entry(process.pid).or_default().push((device, memory));
            }
        }
    }
    idle.into_iter().map(|(pid, held)| finding(case, pid, &held)).collect()
}

/// Returns whether a snapshot has a process on a device that did not compute there.
fn is_idle(look: &Snapshot, device: &DeviceId, pid: Pid) -> bool {
    let Some(device) = look.device(device) else { return false };
    let mut listed = device.processes.iter().flatten();
    let Some(process) = listed.find(|process| process.pid == pid) else { return false };
    match (process.utilization, device.sample.as_ref().map(|sample| sample.utilization)) {
        (Ok(own), _) => own.get() == 0,
        (Err(_), Ok(Ok(whole))) => whole.get() == 0,
        _ => false,
    }
}

fn finding(case: &DetectContext<'_>, pid: Pid, held: &[(&DeviceState, Bytes)]) -> Finding {
    let span =
        case.looks.first().map_or(Duration::ZERO, |first| case.now.taken_at.since(first.taken_at));
    let sampled = held.iter().all(|(device, _)| {
        case.listed(device, pid).is_some_and(|process| process.utilization.is_ok())
    });
    let (confidence, seen) = if span >= MIN_OBSERVATION {
        (
            Confidence::Likely,
            format!("idle in {} samples over {} s", case.looks.len(), span.as_secs()),
        )
    } else if sampled {
        (Confidence::Likely, "no compute in NVML's sample window".to_owned())
    } else {
        (Confidence::Possible, "0 % utilization in a single sample".to_owned())
    };
    let devices: Vec<DeviceId> = held.iter().map(|(device, _)| device.id().clone()).collect();
    let memory: Bytes = held.iter().map(|(_, memory)| *memory).sum();
    let busy: Vec<u32> = case
        .now
        .devices
        .iter()
        .filter(|device| case.listed(device, pid).is_some())
        .filter(|device| !devices.iter().any(|idle| idle.same_device(device.id())))
        .map(|device| device.id().index)
        .collect();
    let mut evidence = vec![match held {
        [(_, memory)] => format!("holds {memory}"),
        _ => format!("holds {memory} on {} GPUs", held.len()),
    }];
    evidence.push(seen);
    let mut advice = Vec::new();
    if !busy.is_empty() {
        let list = busy.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        evidence.push(format!(
            "computes on GPU {list} only; TensorFlow allocates nearly all memory of every \
                visible GPU"
        ));
        advice.push(Advice::LimitVisibleDevices(busy));
        advice.push(Advice::LetMemoryGrow);
    }
    if confidence == Confidence::Possible {
        advice.push(Advice::LookLonger);
    }
    advice.push(Advice::ReapProcess(pid));
    Finding {
        kind: FindingKind::Hoarder,
        confidence,
        devices,
        memory: Some(memory),
        suspects: vec![Suspect { process: case.key(pid), confidence, evidence }],
        evidence: Vec::new(),
        advice,
    }
}
