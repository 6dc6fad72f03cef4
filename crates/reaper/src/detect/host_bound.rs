//! Processes that keep a CPU busy while their devices compute little: the devices wait for the host.

use super::context::DetectContext;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::past::{LOW, Lasting, span};
use crate::role::Role;
use gpu_core::{DeviceState, Percent, Pid};
use std::collections::BTreeSet;

/// The share of one CPU, in percent, from which on a thread that prepares data or launches kernels
/// hardly ever waits.
const BUSY_CPU: u128 = 90;

/// Fewer snapshots may all have hit a moment between two kernels.
const SAMPLES: usize = 3;

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    let devices = context.now.devices.iter();
    let pids: BTreeSet<Pid> =
        devices.flat_map(|device| context.listed_on(device)).map(|process| process.pid).collect();
    pids.into_iter().filter_map(|pid| finding(context, pid)).collect()
}

/// A server that polls for requests looks the same, so the confidence is only `Possible`. Services,
/// and processes never seen computing, are not reported.
fn finding(context: &DetectContext<'_>, pid: Pid) -> Option<Finding> {
    let info = context.info(pid).filter(|info| info.service().is_none())?;
    let devices = context.now.devices.iter();
    let devices: Vec<&DeviceState> =
        devices.filter(|device| context.listed(device, pid).is_some()).collect();
    let pasts: Option<Vec<_>> =
        devices.iter().map(|device| context.past_use(device, pid)).collect();
    let pasts = pasts.filter(|pasts| pasts.iter().any(|past| past.has_computed))?;
    let low = pasts.iter().map(|past| context.past.lasting(Some(past.low))).reduce(Lasting::and)?;
    let (used, watched) = context.past.recent_cpu_time(info.key)?;
    let cpu = (used.as_millis() * 100).checked_div(watched.as_millis())?;
    let is_bound = low.samples >= SAMPLES
        && low.is_long()
        && cpu >= BUSY_CPU
        && context.is_settled(pid)
        && devices.iter().all(|device| context.role(pid, device) == Role::MemoryUser);
    if !is_bound {
        return None;
    }
    let share = devices.iter().filter_map(|device| share(context, device, pid)).max()?;
    let text = format!(
        "{cpu} % CPU over {}; {share} GPU utilization, at most {LOW} % in {} samples over {}",
        span(watched),
        low.samples,
        span(low.span)
    );
    let confidence = Confidence::Possible;
    let evidence = vec![Evidence::new(Sign::HostBusy, text)];
    let suspect = Suspect { process: info.key, confidence, evidence };
    let finding =
        context.about(suspect, &devices, FindingKind::HostBound, vec![Advice::FeedDevices]);
    Some(Finding { memory: None, ..finding })
}

/// Returns the utilization of a device by a process; if it is unknown, that of all its processes.
fn share(context: &DetectContext<'_>, device: &DeviceState, pid: Pid) -> Option<Percent> {
    let own = context.listed(device, pid)?.utilization;
    own.ok().or(device.sample.as_ref().ok()?.utilization.ok())
}
