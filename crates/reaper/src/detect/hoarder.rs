//! Processes that keep memory and do not compute.

use super::context::{DetectContext, Lasting, MIN_AGE, MIN_IDLE};
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{Bytes, DeviceId, DeviceState, Pid, ProcessInfo, ProcessState, Snapshot};
use std::collections::BTreeMap;
use std::time::Duration;

/// Below this, a process blocks no other: a twentieth of the device, at least 1 GiB.
fn is_much(memory: Bytes, total: Bytes) -> bool {
    memory >= Bytes::from_mib(1024) && memory.0 >= total.0 / 20
}

/// A notebook waits for the next cell, and its user thinks.
const MIN_IDLE_NOTEBOOK: Duration = Duration::from_secs(60 * 60);

pub(crate) fn detect(case: &DetectContext<'_>) -> Vec<Finding> {
    let mut idle: BTreeMap<Pid, Vec<(&DeviceState, Bytes)>> = BTreeMap::new();
    for device in &case.now.devices {
        for process in case.listed_on(device) {
            let (Ok(memory), Ok(total)) = (process.memory, device.memory_total()) else { continue };
            let pid = process.pid;
            let here = !case.is_gone(pid)
                && is_much(memory, total)
                && case.role(pid, device) == Role::MemoryUser
                && !case.is_younger(pid, MIN_AGE);
            if here && case.looks.iter().all(|look| is_idle(look, device.id(), pid)) {
                idle.entry(pid).or_default().push((device, memory));
            }
        }
    }
    idle.into_iter().filter_map(|(pid, held)| finding(case, pid, &held)).collect()
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

fn finding(case: &DetectContext<'_>, pid: Pid, held: &[(&DeviceState, Bytes)]) -> Option<Finding> {
    let info = case.info(pid);
    let devices: Vec<DeviceId> = held.iter().map(|(device, _)| device.id().clone()).collect();
    let busy: Vec<u32> = case
        .now
        .devices
        .iter()
        .filter(|device| case.listed(device, pid).is_some())
        .filter(|device| !devices.iter().any(|idle| idle.same_device(device.id())))
        .map(|device| device.id().index)
        .collect();
    // It prepares data, or writes what it has computed.
    let works = |info: &ProcessInfo| {
        let is_reading = info.state == Ok(ProcessState::Uninterruptible);
        busy.is_empty() && (is_reading || case.uses_cpu(info.key))
    };
    let seen = case.lasting_look(|look| devices.iter().all(|device| is_idle(look, device, pid)));
    if info.is_some_and(|info| works(info) || may_wait(info, seen)) {
        return None;
    }
    let memory: Bytes = held.iter().map(|(_, memory)| *memory).sum();
    let holds = match held {
        [(_, memory)] => format!("holds {memory}"),
        _ => format!("holds {memory} on {} GPUs", held.len()),
    };
    let mut evidence =
        vec![Evidence::new(Sign::HoldsMemory, holds), idle_time(case, pid, held, seen)];
    if info.is_some_and(|info| info.state == Ok(ProcessState::Stopped)) {
        evidence.push(Evidence::new(Sign::Stopped, "stopped"));
    }
    let confidence = match seen.was_watched_for(MIN_IDLE) {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    let mut advice = Vec::new();
    if busy.is_empty() {
        if confidence == Confidence::Possible {
            advice.push(Advice::WatchIdle);
        }
        advice.push(case.to_end(pid));
    } else {
        let list = busy.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let text = format!(
            "computes on GPU {list} only; TensorFlow allocates nearly all memory of every \
                visible GPU"
        );
        evidence.push(Evidence::new(Sign::ComputesOnOtherDevice, text));
        advice.push(Advice::LimitVisibleDevices(busy));
        advice.push(Advice::LetMemoryGrow);
    }
    Some(Finding {
        kind: FindingKind::Hoarder,
        confidence,
        devices,
        memory: Some(memory),
        suspects: vec![Suspect { process: case.key(pid), confidence, evidence }],
        evidence: Vec::new(),
        advice,
    })
}

fn idle_time(
    case: &DetectContext<'_>,
    pid: Pid,
    held: &[(&DeviceState, Bytes)],
    seen: Lasting,
) -> Evidence {
    let sampled = held.iter().all(|(device, _)| {
        case.listed(device, pid).is_some_and(|process| process.utilization.is_ok())
    });
    match (seen.is_long(), sampled) {
        (true, _) => seen.idle(),
        (false, true) => {
            Evidence::new(Sign::NoComputeObserved, "no compute in NVML's sample window")
        }
        (false, false) => {
            Evidence::new(Sign::NoComputeObserved, "0 % utilization in a single sample")
        }
    }
}

/// Returns whether a process may rightly wait: a service for requests, a traced process for its
/// debugger, a notebook for its user.
fn may_wait(info: &ProcessInfo, idle: Lasting) -> bool {
    let mut words = info.command_line.iter().flat_map(|line| line.iter());
    let mut is_notebook = || words.any(|word| word.contains("ipykernel"));
    info.service().is_some()
        || info.tracer.is_ok()
        || !idle.was_watched_for(MIN_IDLE_NOTEBOOK) && is_notebook()
}
