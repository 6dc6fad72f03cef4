//! Holders that are half dead: zombies whose threads live, and uninterruptible waits.

use super::case::{Case, listed};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use crate::role::Role;
use gpu_core::{Bytes, DeviceState, Pid, ProcessInfo, ProcessState};
use std::collections::BTreeMap;

pub(crate) fn detect(case: &Case<'_>) -> Vec<Finding> {
    users_of_memory(case)
        .into_iter()
        .filter_map(|(pid, devices)| finding(case, case.info(pid)?, &devices))
        .collect()
}

/// Every process that a device lists or that uses memory of one, with those devices.
pub(super) fn users_of_memory<'a>(case: &Case<'a>) -> BTreeMap<Pid, Vec<&'a DeviceState>> {
    let mut users: BTreeMap<Pid, Vec<&DeviceState>> = BTreeMap::new();
    for device in &case.now.devices {
        let listed = case.listed_on(device).map(|process| process.pid);
        let holding = case.holders_of(device).map(|holder| holder.process.pid);
        let mut pids: Vec<Pid> = listed.chain(holding).collect();
        pids.sort();
        pids.dedup();
        for pid in pids {
            if case.role(pid, device) == Role::MemoryUser {
                users.entry(pid).or_default().push(device);
            }
        }
    }
    users
}

/// The memory that NVML lists for a process on these devices; `None` when it lists none of it.
pub(super) fn listed_memory(pid: Pid, devices: &[&DeviceState]) -> Option<Bytes> {
    let memory: Vec<Bytes> =
        devices.iter().filter_map(|device| listed(device, pid)?.memory.ok()).collect();
    (!memory.is_empty()).then(|| memory.into_iter().sum())
}

fn finding(case: &Case<'_>, info: &ProcessInfo, devices: &[&DeviceState]) -> Option<Finding> {
    let pid = info.key.pid;
    let through_thread = case.holder(pid).and_then(|holder| holder.through_thread);
    let index = devices.first()?.id().index;
    let (kind, confidence, evidence, advice) = match info.state.ok()? {
        ProcessState::Zombie
            if info.live_threads.is_ok_and(|live| live > 0) || through_thread.is_some() =>
        {
            let certain = devices.iter().any(|device| case.surely_uses(pid, device));
            (
                FindingKind::ZombieHolder,
                if certain { Confidence::High } else { Confidence::Likely },
                "its first thread is a zombie, other threads live and hold the device; tools that read only the first thread's files see nothing",
                if certain { Advice::ReapDevice(index) } else { Advice::ReapProcess(pid) },
            )
        }
        ProcessState::Zombie => (
            FindingKind::ZombieHolder,
            Confidence::Likely,
            "it has ended and its parent has not waited for it",
            Advice::EndParent(info.parent.ok()?),
        ),
        ProcessState::Uninterruptible => (
            FindingKind::StuckHolder,
            Confidence::Likely,
            "it is in an uninterruptible wait (state D): not even SIGKILL ends it before the wait ends",
            Advice::WaitOrReboot,
        ),
        _ => return None,
    };
    Some(Finding {
        kind,
        confidence,
        devices: devices.iter().map(|device| device.id().clone()).collect(),
        memory: listed_memory(pid, devices),
        suspects: vec![Suspect {
            process: info.key,
            confidence,
            evidence: vec![evidence.to_owned()],
        }],
        evidence: Vec::new(),
        advice: vec![advice],
    })
}
