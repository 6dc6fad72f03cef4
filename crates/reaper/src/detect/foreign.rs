//! A separate PID namespace, as in a container.

use super::context::DetectContext;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::DeviceState;

/// The driver knows only the host's PIDs. Inside a container they name no process, or an unrelated
/// one, and nvidia-smi lists none at all; so the other accounts of memory do not apply here.
pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    if context.now.sees_host_pids != Ok(false) {
        return Vec::new();
    }
    context.now.devices.iter().filter_map(|device| detect_on(context, device)).collect()
}

fn detect_on(context: &DetectContext<'_>, device: &DeviceState) -> Option<Finding> {
    let listed = device.processes.as_ref().map_or(0, Vec::len);
    let is_own = device.memory_source().kind.shows_leaks();
    let memory = device.memory_used().ok().zip(device.memory_total().ok()).filter(|_| is_own);
    let much = memory.filter(|(used, _)| device.driver_reserve().is_some_and(|own| *used > own));
    if listed == 0 && much.is_none() {
        return None;
    }
    let mut evidence = vec![Evidence::new(
        Sign::SeparatePidNamespace,
        "this is a separate PID namespace; NVML reports host PIDs",
    )];
    if listed > 0 {
        let them = if listed == 1 { "one process" } else { "processes" };
        let text = format!("NVML lists {them} by host PIDs, which are invalid here");
        evidence.push(Evidence::new(Sign::HostPidsListed, text));
    }
    evidence.extend(much.map(|(used, total)| {
        let used = used.to_string();
        let text = format!("{} of {total} used", used.trim_end_matches(" MiB"));
        Evidence::new(Sign::MemoryUsed, text)
    }));
    let suspects = context
        .holders_of(device)
        .filter(|holder| holder.may_use_memory_of(device.id()))
        .map(|holder| Suspect {
            process: holder.process,
            confidence: Confidence::Possible,
            evidence: vec![Evidence::new(
                Sign::UsesDevice,
                "uses the device from inside this namespace",
            )],
        })
        .collect();
    Some(Finding {
        kind: FindingKind::ForeignNamespace,
        confidence: Confidence::Likely,
        devices: vec![device.id().clone()],
        memory: much.map(|(used, _)| used),
        suspects,
        evidence,
        advice: vec![Advice::LookOnHost],
    })
}
