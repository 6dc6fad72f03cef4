//! Processes that NVML lists and that do not exist here.

use super::context::DetectContext;
use super::unexplained::suspects;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{Bytes, DeviceState};

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    context.now.devices.iter().filter_map(|device| detect_on(context, device)).collect()
}

fn detect_on(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    let gone: Vec<_> =
        context.listed_on(device).filter(|process| context.is_gone(process.pid)).collect();
    if gone.is_empty() {
        return None;
    }
    let pids = gone.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", ");
    let verb = if gone.len() == 1 { "does" } else { "do" };
    let memory: Option<Bytes> = gone.iter().map(|process| process.memory.ok()).sum();
    let suspects = successors(context, device);
    let best = suspects.iter().map(|suspect| suspect.confidence).max();
    let advice = match (best, suspects.first()) {
        (Some(Confidence::High), _) => Some(Advice::ReapDevice(device.id().index)),
        (_, Some(suspect)) => Some(context.to_end(suspect.process.pid)),
        (_, None) if context.unread().is_some() => context.advise_root(),
        (_, None) => Some(Advice::ResetDevice(device.id().index)),
    };
    let text = format!("NVML lists {pids}, which {verb} not exist here");
    Some(Finding {
        kind: FindingKind::ListedButGone,
        confidence: best.unwrap_or(Confidence::Likely),
        devices: vec![device.id().clone()],
        memory,
        suspects,
        evidence: vec![Evidence::new(Sign::PidNotFound, text)],
        advice: advice.into_iter().collect(),
    })
}

/// Returns the processes that may have inherited the memory: they certainly have some, and no list
/// accounts for it.
fn successors(context: &DetectContext<'_>, device: &DeviceState) -> Vec<Suspect> {
    let mut successors = suspects(context, device);
    successors.retain(|successor| {
        context
            .holder(successor.process.pid)
            .is_some_and(|holder| holder.surely_uses_memory_of(device.id()))
    });
    successors
}
