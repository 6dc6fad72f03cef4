//! Holders whose parent and whose job are gone.

use super::context::DetectContext;
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{Pid, ProcessInfo};

pub(crate) fn detect(case: &DetectContext<'_>) -> Vec<Finding> {
    case.infos().filter_map(|info| finding(case, info)).collect()
}

/// A process is an orphan when its parent is gone *and* the leader of its process group is.
///
/// The first alone is harmless: a program started with nohup or as a service has PID 1 as its
/// parent and leads its own group. A worker whose launcher died is in the launcher's group.
fn finding(case: &DetectContext<'_>, info: &ProcessInfo) -> Option<Finding> {
    let pid = info.key.pid;
    let parent = info.parent.ok()?;
    let group = info.group.ok()?;
    let leader_gone = group != pid && case.is_gone(group);
    if !adopts(case, parent) || !leader_gone || info.workload.is_some() {
        return None;
    }
    let devices = case.used_by(pid);
    let first = devices.first()?;
    let mut evidence = vec![format!(
        "its parent exited (re-parented to {parent}), and so did its process group leader {group}"
    )];
    let computes = devices.iter().any(|device| {
        let process = case.listed(device, pid).and_then(|process| process.utilization.ok());
        let device = device.sample.as_ref().ok().and_then(|sample| sample.utilization.ok());
        process.or(device).is_none_or(|utilization| utilization.get() > 0)
    });
    let works = case.cpu_time_advance(info.key).is_some_and(|(used, _)| !used.is_zero());
    // A daemon that forked twice, or a background program whose shell has ended, looks the same
    // from outside. A worker of Python's multiprocessing surely cannot continue without its parent:
    // it gets its work through the parent's pipe.
    let uses_memory = devices.iter().any(|device| case.surely_uses(pid, device));
    let session_gone = info.session.is_ok_and(|session| session != pid && case.is_gone(session));
    let confidence = if computes || works {
        evidence.push("it may still be computing".into());
        Confidence::Likely
    } else if uses_memory && session_gone && is_worker(info) {
        evidence.push(
            "a Python multiprocessing worker, which normally exits with its parent; no \
            compute observed"
                .into(),
        );
        Confidence::High
    } else {
        evidence.push("no compute observed; a daemon would look the same".into());
        Confidence::Likely
    };
    let advice = match confidence {
        Confidence::High => Advice::ReapDevice(first.id().index),
        _ => Advice::ReapProcess(pid),
    };
    let suspect = Suspect { process: info.key, confidence, evidence };
    Some(case.about(suspect, &devices, FindingKind::Orphan, advice))
}

/// Returns whether a process was started by Python's multiprocessing as a worker: by the code that
/// `multiprocessing.spawn` and `multiprocessing.forkserver` pass to the interpreter.
fn is_worker(info: &ProcessInfo) -> bool {
    info.command_line.as_ref().is_ok_and(|line| {
        let by_code = line.windows(2).any(|pair| {
            pair[0] == "-c"
                && (pair[1].starts_with("from multiprocessing.spawn import spawn_main")
                    || pair[1].starts_with("from multiprocessing.forkserver import main"))
        });
        by_code || line.iter().any(|word| word == "--multiprocessing-fork")
    })
}

/// Returns whether `parent` adopts processes whose parent died: init, or the service manager of a
/// user.
fn adopts(case: &DetectContext<'_>, parent: Pid) -> bool {
    parent == Pid(1) || case.info(parent).is_some_and(|info| info.name == "systemd")
}
