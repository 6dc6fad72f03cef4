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
    let about = |kind, confidence, evidence: &str, advice| {
        let suspect =
            Suspect { process: info.key, confidence, evidence: vec![evidence.to_owned()] };
        Some(case.about(suspect, &devices, kind, advice))
    };
    match state {
        ProcessState::Zombie if has_threads() => {
            let index = first.id().index;
            let (confidence, advice) = match devices.iter().any(|d| case.surely_uses(pid, d)) {
                true => (Confidence::High, Advice::ReapDevice(index)),
                false => (Confidence::Likely, Advice::ReapProcess(pid)),
            };
            let evidence = "its first thread is a zombie, other threads live and hold the device; tools that read only the first thread's files see nothing";
            about(FindingKind::ZombieHolder, confidence, evidence, advice)
        }
        ProcessState::Zombie => {
            let evidence = "it has ended and its parent has not waited for it";
            let advice = Advice::EndParent(info.parent.ok()?);
            about(FindingKind::ZombieHolder, Confidence::Likely, evidence, advice)
        }
        _ => {
            let evidence = "it is in an uninterruptible wait (state D): not even SIGKILL ends it before the wait ends";
            about(FindingKind::StuckHolder, Confidence::Likely, evidence, Advice::WaitOrReboot)
        }
    }
}
