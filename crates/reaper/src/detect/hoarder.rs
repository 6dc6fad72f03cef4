//! Processes that keep memory and do not compute.

use super::context::{DetectContext, MIN_IDLE, is_much};
use super::ray;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::past::{Lasting, span};
use crate::role::Role;
use gpu_core::{Bytes, DeviceId, DeviceProcess, DeviceState, Pid, ProcessInfo, ProcessState};
use std::collections::BTreeMap;
use std::time::Duration;

/// A notebook waits for the next cell while its user thinks.
const MIN_IDLE_NOTEBOOK: Duration = Duration::from_secs(60 * 60);

/// A working day, or a night: after this time without GPU and CPU, the result is no longer
/// expected, and the pauses of jobs (checkpoints, evaluations, downloads, other nodes) are over.
const LONG_IDLE: Duration = Duration::from_secs(8 * 3_600);

/// The user of a notebook has been away for a night and has not used it during the day either.
const LONG_IDLE_NOTEBOOK: Duration = Duration::from_secs(24 * 3_600);

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    let mut idle: BTreeMap<Pid, Vec<(&DeviceState, Bytes)>> = BTreeMap::new();
    for device in &context.now.devices {
        for process in context.listed_on(device) {
            let (Ok(memory), Ok(total)) = (process.memory, device.memory_total()) else { continue };
            let pid = process.pid;
            let here = !context.is_gone(pid)
                && is_much(memory, total)
                && context.role(pid, device) == Role::MemoryUser
                && context.is_settled(pid);
            if here && is_idle(device, process) && !pauses(context, device, pid) {
                idle.entry(pid).or_default().push((device, memory));
            }
        }
    }
    idle.into_iter().filter_map(|(pid, held)| finding(context, pid, &held)).collect()
}

/// Returns whether a process certainly does not compute on a device.
fn is_idle(device: &DeviceState, process: &DeviceProcess) -> bool {
    match (process.utilization, device.sample.as_ref().map(|sample| sample.utilization)) {
        (Ok(own), _) => own.get() == 0,
        (Err(_), Ok(Ok(whole))) => whole.get() == 0,
        _ => false,
    }
}

/// Returns whether a process was seen computing a while ago, and may do so again.
fn pauses(context: &DetectContext<'_>, device: &DeviceState, pid: Pid) -> bool {
    let past = context.past_use(device, pid).filter(|past| past.has_computed);
    past.is_some_and(|past| !context.past.lasting(Some(past.idle)).was_watched_for(MIN_IDLE))
}

fn finding(
    context: &DetectContext<'_>,
    pid: Pid,
    held: &[(&DeviceState, Bytes)],
) -> Option<Finding> {
    let info = context.info(pid);
    let devices: Vec<DeviceId> = held.iter().map(|(device, _)| device.id().clone()).collect();
    let busy: Vec<u32> = context
        .now
        .devices
        .iter()
        .filter(|device| context.listed(device, pid).is_some())
        .filter(|device| !devices.iter().any(|idle| idle.same_device(device.id())))
        .map(|device| device.id().index)
        .collect();
    // It prepares data, or writes what it has computed.
    let works = |info: &ProcessInfo| {
        let is_reading = info.state == Ok(ProcessState::Uninterruptible);
        busy.is_empty() && (is_reading || context.past.uses_cpu(info.key))
    };
    let idle_on: Vec<&DeviceState> = held.iter().map(|(device, _)| *device).collect();
    let seen = context.idle_on(&idle_on, pid);
    // CPU use in the meantime was work too.
    let waits = info.and_then(|info| context.past.waits(info.key));
    let quiet = waits.map_or(seen, |waits| seen.and(waits));
    if info.is_some_and(|info| works(info) || may_wait(info, quiet)) {
        return None;
    }
    let memory: Bytes = held.iter().map(|(_, memory)| *memory).sum();
    let holds = match held {
        [(_, memory)] => format!("holds {memory}"),
        _ => format!("holds {memory} on {} GPUs", held.len()),
    };
    let mut evidence =
        vec![Evidence::new(Sign::HoldsMemory, holds), idle_time(context, pid, held, seen)];
    evidence.extend(context.never_computed(&idle_on, pid));
    evidence.extend(ray::worker(context, pid));
    if info.is_some_and(|info| info.state == Ok(ProcessState::Stopped)) {
        evidence.push(Evidence::new(Sign::Stopped, "stopped"));
    }
    let is_waiting = busy.is_empty() && waits.is_some();
    let is_abandoned = is_waiting && info.is_some_and(|info| is_abandoned(info, quiet));
    let confidence = if !quiet.was_watched_for(MIN_IDLE) {
        Confidence::Possible
    } else if is_abandoned {
        Confidence::High
    } else {
        Confidence::Likely
    };
    let mut advice = Vec::new();
    if busy.is_empty() {
        if confidence == Confidence::Possible {
            advice.push(Advice::WatchIdle);
        }
        advice.push(context.to_end(pid));
    } else {
        let list = busy.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let text = format!(
            "computes on GPU {list} only; TensorFlow allocates nearly all memory of every \
                visible GPU"
        );
        evidence.push(Evidence::new(Sign::ComputesOnOtherDevice, text));
        let all = busy.len() + held.len();
        advice.push(Advice::LimitVisibleDevices(busy));
        advice.push(Advice::LetMemoryGrow);
        advice.push(Advice::UseDevices(all));
    }
    Some(Finding {
        kind: FindingKind::Hoarder,
        confidence,
        devices,
        memory: Some(memory),
        suspects: vec![Suspect { process: context.key(pid), confidence, evidence }],
        evidence: Vec::new(),
        advice,
    })
}

fn idle_time(
    context: &DetectContext<'_>,
    pid: Pid,
    held: &[(&DeviceState, Bytes)],
    seen: Lasting,
) -> Evidence {
    let sampled = held.iter().all(|(device, _)| {
        context.listed(device, pid).is_some_and(|process| process.utilization.is_ok())
    });
    match (seen.is_long(), sampled) {
        (true, _) => seen.idle(),
        (false, true) => {
            Evidence::new(Sign::NoComputeObserved, "no compute in NVML's sample window")
        }
        (false, false) => {
            let samples = match seen.samples {
                0 | 1 => "a single sample".to_owned(),
                samples => format!("{samples} samples over {}", span(seen.span)),
            };
            Evidence::new(Sign::NoComputeObserved, format!("0 % utilization in {samples}"))
        }
    }
}

/// Returns whether a process may have a reason to wait: a service for requests, a traced process
/// for its debugger, a notebook for its user.
fn may_wait(info: &ProcessInfo, idle: Lasting) -> bool {
    info.service().is_some()
        || info.tracer.is_ok()
        || !idle.was_watched_for(MIN_IDLE_NOTEBOOK) && is_notebook(info)
}

/// Returns whether a process was idle for so long that it must be abandoned. If each snapshot
/// covers one second and they are two minutes apart, eight hours of them miss a program that
/// computes one second in fifty with a probability of 1 %.
fn is_abandoned(info: &ProcessInfo, idle: Lasting) -> bool {
    let least = if is_notebook(info) { LONG_IDLE_NOTEBOOK } else { LONG_IDLE };
    idle.was_watched_closely_for(least)
}

fn is_notebook(info: &ProcessInfo) -> bool {
    let mut words = info.command_line.iter().flat_map(|line| line.iter());
    words.any(|word| word.contains("ipykernel"))
}
