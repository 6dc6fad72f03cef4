//! Devices that return errors or do not answer, and processes that block a reset.

use super::context::{DetectContext, paths};
use crate::condition::Unexplained;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{
    Absent, DeviceFault, DeviceSample, DeviceState, ErrorKind, Fault, MachineFault, Reach,
};

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = silent(context).into_iter().collect();
    for device in &context.now.devices {
        let fault = faulty(device);
        findings.extend(fault.clone());
        let wants_reset =
            fault.is_some_and(|f| f.advice.contains(&Advice::ResetDevice(device.id().index)));
        if wants_reset || leaks(context, device) {
            findings.extend(blocked(context, device));
        }
    }
    findings
}

/// Reports the devices at which the driver did not answer. A device with the same fault as an
/// earlier one was not queried, and is not reported.
fn silent(context: &DetectContext<'_>) -> Option<Finding> {
    let mut asked: Vec<(&DeviceState, &Fault)> = Vec::new();
    let mut behind = Vec::new();
    for device in &context.now.devices {
        let Some(fault) = silence(device) else { continue };
        if asked.iter().any(|(_, known)| *known == fault) {
            behind.push(device.id().index.to_string());
        } else {
            asked.push((device, fault));
        }
    }
    let (_, first) = asked.first()?;
    let behind = match &behind[..] {
        [] => None,
        [one] => Some(format!("GPU {one} was not queried")),
        many => Some(format!("GPUs {} were not queried", many.join(", "))),
    };
    let mut evidence = vec![Evidence::of_failure(first)];
    evidence.extend(behind.map(|text| Evidence::new(Sign::NotQueried, text)));
    Some(Finding {
        kind: FindingKind::DeviceFault,
        confidence: Confidence::Likely,
        devices: asked.iter().map(|(device, _)| device.id().clone()).collect(),
        memory: None,
        suspects: Vec::new(),
        evidence,
        advice: match first.kind {
            // A slow driver looks the same as a hung one.
            ErrorKind::TimedOut => vec![Advice::AllowMoreTime, Advice::WaitOrReboot],
            ErrorKind::Machine(MachineFault::Blocked) => vec![Advice::LookOnHost],
            ErrorKind::Machine(MachineFault::DriverNotLoaded | MachineFault::VersionMismatch) => {
                vec![Advice::LoadDriver]
            }
            _ => vec![Advice::ReadKernelLog],
        },
    })
}

/// Returns why a device did not answer if the fault is the driver's and not its own: a call that
/// hung, or a failure of the whole machine.
pub fn silence(device: &DeviceState) -> Option<&Fault> {
    let faults = [device.sample.as_ref().err(), device.processes.as_ref().err()];
    faults
        .into_iter()
        .flatten()
        .find(|fault| fault.kind == ErrorKind::TimedOut || fault.kind.reach() == Reach::Machine)
}

fn faulty(device: &DeviceState) -> Option<Finding> {
    let faults = [device.sample.as_ref().err(), device.processes.as_ref().err()];
    let own = faults.into_iter().flatten().find_map(|fault| match fault.kind {
        ErrorKind::Device(which) => Some((which, fault)),
        _ => None,
    });
    let (confidence, evidence, advice) = match (own, &device.sample) {
        (Some((which, fault)), _) => {
            let advice = match which {
                DeviceFault::ResetRequired => Advice::ResetDevice(device.id().index),
                _ => Advice::ReadKernelLog,
            };
            (Confidence::High, Evidence::of_failure(fault), advice)
        }
        (None, Err(_)) => return None,
        (None, Ok(sample)) => {
            let failing = failing(device, sample);
            if failing.is_empty() {
                return None;
            }
            let what = format!("its {} cannot be read", failing.join(", "));
            (Confidence::Likely, Evidence::new(Sign::UnreadableValues, what), Advice::ReadKernelLog)
        }
    };
    let kind = FindingKind::DeviceFault;
    Some(Finding::about_device(device, kind, confidence, vec![evidence], vec![advice]))
}

/// Returns the values for which a device returns an error (`ERR!`), which often precedes its loss.
fn failing(device: &DeviceState, sample: &DeviceSample) -> Vec<&'static str> {
    let thermal = device.details.as_ref().ok().and_then(|details| details.thermal.as_ref());
    [
        ("memory", sample.memory.used.err()),
        ("utilisation", sample.utilization.err()),
        ("temperature", sample.temperature.err()),
        ("power draw", sample.power_draw.err()),
        ("power limit", sample.power_limit.err()),
        ("fan speed", thermal.and_then(|thermal| thermal.fan_speed.err())),
        ("MIG mode", device.info.partitioned.err()),
    ]
    .into_iter()
    .filter_map(|(name, absent)| (absent == Some(Absent::Failed)).then_some(name))
    .collect()
}

/// Returns whether the device has memory that no process uses and that only a reset frees.
fn leaks(context: &DetectContext<'_>, device: &DeviceState) -> bool {
    Unexplained::of(device).is_some_and(|account| account.is_ghost())
        && device.memory_source().kind.shows_leaks()
        // Processes that have such a device open may have the memory.
        && !device.lists_clients()
        && context.now.sees_host_pids != Ok(false)
        && context.now.holders.is_ok()
        && context.unread().is_none()
        && context.now.knows_files_of(device)
        && !context.holders_of(device).any(|holder| holder.may_use_memory_of(device.id()))
}

/// A reset requires that no process has the device open, monitors included.
fn blocked(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    let suspects: Vec<Suspect> = context
        .holders_of(device)
        .map(|holder| Suspect {
            process: holder.process,
            confidence: Confidence::High,
            evidence: vec![Evidence::new(
                Sign::DeviceFileOpen,
                format!("has {} open", paths(holder)),
            )],
        })
        .collect();
    if suspects.is_empty() {
        return None;
    }
    let mut advice: Vec<Advice> = suspects
        .iter()
        .map(|suspect| {
            if context.role(suspect.process.pid, device).may_be_signalled() {
                context.to_end(suspect.process.pid)
            } else {
                Advice::StopService(suspect.process.pid)
            }
        })
        .collect();
    advice.push(Advice::ResetDevice(device.id().index));
    let text = "a reset is refused while any process has the device open";
    Some(Finding {
        kind: FindingKind::BlockedReset,
        confidence: Confidence::High,
        devices: vec![device.id().clone()],
        memory: None,
        evidence: vec![Evidence::new(Sign::ResetBlocked, text)],
        suspects,
        advice,
    })
}
