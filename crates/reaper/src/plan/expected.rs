//! The memory that should be freed.

use super::{Membership, Target};
use crate::detect::DetectContext;
use crate::finding::{Diagnosis, FindingKind, Suspect};
use gpu_core::{Bytes, DeviceId, DeviceState, Pid};
use serde::Serialize;

/// The memory that a plan should free on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// The device.
    pub device: DeviceId,
    /// At most this much; `None` if others share the unexplained memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<Bytes>,
    /// How much of it is unexplained: a part of that may be the driver's own.
    #[serde(rename = "unexplained_bytes")]
    pub unexplained: Bytes,
    /// The targets that hold the device.
    #[serde(rename = "target_pids")]
    pub targets: Vec<Pid>,
}

/// Returns the memory of the targets: their listed memory, and all unexplained memory if every
/// suspect is a target.
pub(super) fn expected(
    context: &DetectContext<'_>,
    diagnosis: &Diagnosis,
    targets: &[Target],
) -> Vec<Expected> {
    let devices = context.now.devices.iter();
    devices.filter_map(|device| expected_on(device, context, diagnosis, targets)).collect()
}

fn expected_on(
    device: &DeviceState,
    context: &DetectContext<'_>,
    diagnosis: &Diagnosis,
    targets: &[Target],
) -> Option<Expected> {
    let is_concerned = |target: &&Target| match &target.membership {
        Membership::Holds(files) => context.holder(target.key.pid).is_some_and(|holder| {
            let own = holder.held.iter().filter(|held| held.opens(device.id()));
            own.map(|held| &held.path).any(|path| files.contains(path))
        }),
        Membership::Group(_)
        | Membership::Cgroup(_)
        | Membership::Descends(_)
        | Membership::Job(_) => {
            let pid = target.key.pid;
            context.listed(device, pid).is_some()
                || context.holders_of(device).any(|holder| holder.process.pid == pid)
        }
    };
    let concerned: Vec<Pid> =
        targets.iter().filter(is_concerned).map(|target| target.key.pid).collect();
    let findings = || {
        let concerns = |id: &DeviceId| id.same_device(device.id());
        diagnosis.findings.iter().filter(move |finding| finding.devices.iter().any(concerns))
    };
    // A CUDA program opens every device that it sees; memory is freed on those it uses.
    let is_suspected = |pid: Pid| {
        findings().flat_map(|finding| &finding.suspects).any(|suspect| suspect.process.pid == pid)
    };
    if !concerned.iter().any(|pid| context.surely_uses(*pid, device) || is_suspected(*pid)) {
        return None;
    }
    let on_list = targets.iter().filter_map(|target| context.listed(device, target.key.pid));
    let on_list: Option<Bytes> = on_list.map(|process| process.memory.ok()).sum();
    let is_target =
        |suspect: &Suspect| targets.iter().any(|target| target.key.pid == suspect.process.pid);
    let (memory, unexplained) = match findings().find(|f| f.kind == FindingKind::Ghost) {
        // An unreadable process may share the unexplained memory.
        Some(ghost)
            if ghost.suspects.iter().all(is_target) && context.now.unreadable.total() == 0 =>
        {
            let unexplained = ghost.memory.unwrap_or_default();
            (on_list.map(|listed| listed + unexplained), unexplained)
        }
        Some(ghost) if ghost.suspects.iter().any(is_target) => (None, Bytes(0)),
        _ => (on_list.filter(|memory| memory.0 > 0), Bytes(0)),
    };
    Some(Expected { device: device.id().clone(), memory, unexplained, targets: concerned })
}
