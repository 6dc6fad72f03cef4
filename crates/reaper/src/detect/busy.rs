//! Devices that are busy although no process uses them.

use super::context::DetectContext;
use crate::condition::{Unexplained, is_busy_alone, low_power};
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind};
use crate::role::Role;
use gpu_core::{DeviceState, Percent};

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    context.now.devices.iter().filter_map(|device| detect_on(context, device)).collect()
}

/// The sample window may contain the end of a job, so a single sample shows little. Without
/// persistence mode the driver initialises the device for each query, and counts that as work.
fn detect_on(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    // A container does not show the processes outside.
    let share = share(device).filter(|_| context.now.sees_host_pids != Ok(false))?;
    // It may be busy with a process whose clients the caller may not see.
    if device.lists_clients() && context.unread().is_some() {
        return None;
    }
    let is_used = Unexplained::of(device).is_none_or(|account| account.is_ghost())
        || context
            .holders_of(device)
            .any(|holder| context.role(holder.process.pid, device) == Role::MemoryUser);
    if is_used {
        return None;
    }
    let lasting = context.lasting(device, |past| Some(past.busy_alone));
    let mut evidence = vec![Evidence::new(
        Sign::BusyWithoutProcess,
        format!("{share} busy, but no process uses it"),
    )];
    evidence.extend(low_power(device));
    evidence.extend(lasting.describe());
    let persistent = device.info.persistence != Ok(false);
    if !persistent {
        let why = "persistence mode is off: the driver's own initialisation counts as work";
        evidence.push(Evidence::new(Sign::PersistenceModeOff, why));
    }
    let index = device.id().index;
    let (confidence, advice) = match (persistent, lasting.is_long()) {
        (false, _) => (Confidence::Possible, vec![Advice::EnablePersistence]),
        (true, true) => (Confidence::Likely, vec![Advice::ResetDevice(index)]),
        (true, false) => (Confidence::Possible, vec![Advice::LookLonger]),
    };
    let kind = FindingKind::BusyWithoutProcess;
    Some(Finding::about_device(device, kind, confidence, evidence, advice))
}

/// Returns the utilization of a device that is busy although the driver lists no process on it.
/// Without persistence mode, the query itself may be the reason, and the result is `None`.
pub fn busy_alone(device: &DeviceState) -> Option<Percent> {
    share(device).filter(|_| device.info.persistence != Ok(false))
}

fn share(device: &DeviceState) -> Option<Percent> {
    let share = device.sample.as_ref().ok()?.utilization.ok()?;
    is_busy_alone(device)?.then_some(share)
}
