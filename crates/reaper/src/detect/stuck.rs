//! Holders that are half dead: zombies whose threads live, and uninterruptible waits.

use super::case::Case;
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{ProcessInfo, ProcessState};

pub(crate) fn detect(case: &Case<'_>) -> Vec<Finding> {
    case.infos().filter_map(|info| finding(case, info)).collect()
}

fn finding(case: &Case<'_>, info: &ProcessInfo) -> Option<Finding> {
    let pid = info.key.pid;
    let state = info.state.ok()?;
    let devices = match state {
        ProcessState::Zombie | ProcessState::Uninterruptible => case.used_by(pid),
        _ => return None,
    };
    let first = devices.first()?;
    let has_threads = || {
        info.live_threads.is_ok_and(|live| live > 0)
            || case.holder(pid).is_some_and(|holder| holder.through_thread.is_some())
    };
    let (kind, confidence, evidence, advice) = match state {
        ProcessState::Zombie if has_threads() => {
            let index = first.id().index;
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
        _ => (
            FindingKind::StuckHolder,
            Confidence::Likely,
            "it is in an uninterruptible wait (state D): not even SIGKILL ends it before the wait ends",
            Advice::WaitOrReboot,
        ),
    };
    Some(Finding {
        kind,
        confidence,
        devices: devices.iter().map(|device| device.id().clone()).collect(),
        memory: case.listed_memory(pid, &devices),
        suspects: vec![Suspect {
            process: info.key,
            confidence,
            evidence: vec![evidence.to_owned()],
        }],
        evidence: Vec::new(),
        advice: vec![advice],
    })
}
