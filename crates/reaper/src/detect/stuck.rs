//! Half-dead holders: zombies with live threads, and uninterruptible sleep.

use super::context::DetectContext;
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{ProcessInfo, ProcessState};
use std::time::Duration;

/// The kernel reports a task as hung after this time in this state (`hung_task_timeout_secs`).
const HUNG: Duration = Duration::from_secs(120);

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    context.infos().filter_map(|info| finding(context, info)).collect()
}

fn finding(context: &DetectContext<'_>, info: &ProcessInfo) -> Option<Finding> {
    let pid = info.key.pid;
    let state = info.state.ok()?;
    let devices = match state {
        ProcessState::Zombie | ProcessState::Uninterruptible => context.used_by(pid),
        _ => return None,
    };
    let first = devices.first()?;
    let has_threads = || {
        info.live_threads.is_ok_and(|live| live > 0)
            || context.holder(pid).is_some_and(|holder| holder.through_thread.is_some())
    };
    let about = |kind, confidence, evidence, advice| {
        let suspect = Suspect { process: info.key, confidence, evidence: vec![evidence] };
        Some(context.about(suspect, &devices, kind, vec![advice]))
    };
    match state {
        ProcessState::Zombie if has_threads() => {
            let index = first.id().index;
            let (confidence, advice) = if devices.iter().any(|d| context.surely_uses(pid, d)) {
                (Confidence::High, Advice::ReapDevice(index))
            } else {
                (Confidence::Likely, Advice::ReapProcess(pid))
            };
            let text = "its main thread is a zombie but other threads hold the device; tools \
                that read only the main thread's files miss it";
            let evidence = Evidence::new(Sign::MainThreadExited, text);
            about(FindingKind::ZombieHolder, confidence, evidence, advice)
        }
        ProcessState::Zombie => {
            let text = "it exited but its parent has not reaped it";
            let evidence = Evidence::new(Sign::Zombie, text);
            let advice = Advice::EndParent(info.parent.ok()?);
            about(FindingKind::ZombieHolder, Confidence::Likely, evidence, advice)
        }
        _ => {
            // A process that writes a checkpoint to a file server is in this state for a while.
            let lasts = context.past.uninterruptible(info.key).span >= HUNG
                && context.past.without_cpu_time(info.key) >= HUNG
                && !matches!(context.to_end(pid), Advice::AskOwner(_));
            let text = "it is in uninterruptible sleep (state D): even SIGKILL takes effect only \
                when the wait ends";
            let evidence = Evidence::new(Sign::UninterruptibleSleep, text);
            let (confidence, advice) = if lasts {
                (Confidence::Likely, Advice::WaitOrReboot)
            } else {
                (Confidence::Possible, Advice::WatchIdle)
            };
            about(FindingKind::StuckHolder, confidence, evidence, advice)
        }
    }
}
