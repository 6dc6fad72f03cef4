//! Memory of processes that grows without end.

use super::context::{DetectContext, is_much};
use crate::evidence::{Evidence, Sign};
use crate::finding::{Confidence, Finding, FindingKind, Suspect};
use crate::past::{Rise, span};
use crate::role::Role;
use gpu_core::{Bytes, DeviceProcess, DeviceState};
use std::time::Duration;

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    let on =
        |device| context.listed_on(device).filter_map(move |one| finding(context, device, one));
    context.now.devices.iter().flat_map(on).collect()
}

/// Only hours show a leak: a job loads its data and caches, and its allocator grows in steps and
/// stops. Memory that rises for six hours may still reach a limit, so the confidence is never high.
fn finding(
    context: &DetectContext<'_>,
    device: &DeviceState,
    process: &DeviceProcess,
) -> Option<Finding> {
    let rise = context.past_use(device, process.pid)?.memory.rise()?;
    if !is_grave(&rise, device) || context.role(process.pid, device) != Role::MemoryUser {
        return None;
    }
    let confidence = if rise.is_long { Confidence::Likely } else { Confidence::Possible };
    let evidence = vec![evidence(&rise, device)];
    let suspect = Suspect { process: context.key(process.pid), confidence, evidence };
    let advice = vec![context.to_end(process.pid)];
    Some(context.about(suspect, &[device], FindingKind::MemoryGrowth, advice))
}

/// Returns the evidence that the unlisted memory of a device grows.
pub(super) fn of_unlisted(context: &DetectContext<'_>, device: &DeviceState) -> Option<Evidence> {
    let rise = context.past.device(device.id())?.unlisted.rise()?;
    is_grave(&rise, device).then(|| evidence(&rise, device))
}

fn is_grave(rise: &Rise, device: &DeviceState) -> bool {
    device.memory_total().is_ok_and(|total| is_much(rise.recent.0, total))
}

/// Formats `grew from 1,000 to 6,100 MiB over 8 h; at this rate the device is full in 5 h`.
fn evidence(rise: &Rise, device: &DeviceState) -> Evidence {
    let from = rise.from.to_string();
    let mut text = format!(
        "grew from {} to {} over {} without falling",
        from.trim_end_matches(" MiB"),
        rise.to,
        span(rise.span)
    );
    if let Ok(Bytes(free)) = device.memory_free() {
        let (grown, time) = rise.recent;
        let seconds = u128::from(free) * u128::from(time.as_secs()) / u128::from(grown.0.max(1));
        let left = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
        text.push_str(&format!("; at this rate the device is full in {}", span(left)));
    }
    Evidence::new(Sign::MemoryGrows, text)
}
