//! Holders whose parent and whose job are gone.

use super::context::{DetectContext, MIN_AGE, MIN_IDLE};
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{Pid, ProcessInfo, ProcessState};

pub(crate) fn detect(context: &DetectContext<'_>) -> Vec<Finding> {
    context.infos().filter_map(|info| finding(context, info)).collect()
}

/// A process is an orphan when its parent is gone *and* the leader of its process group is.
///
/// The first alone is harmless: a program started with setsid or as a service has PID 1 as its
/// parent and leads its own group. A worker whose launcher died is in the launcher's group. So is a
/// job that a script started in the background, with nohup or without: if it works, it is wanted.
fn finding(context: &DetectContext<'_>, info: &ProcessInfo) -> Option<Finding> {
    let pid = info.key.pid;
    let parent = info.parent.ok()?;
    let group = info.group.ok()?;
    let leader_gone = group != pid && context.is_gone(group);
    let is_managed = info.workload.is_some() || info.service().is_some();
    if !adopts(context, parent) || !leader_gone || is_managed {
        return None;
    }
    let devices = context.used_by(pid);
    devices.first()?;
    let works = context.computes(pid, &devices) || context.past.uses_cpu(info.key);
    // A process started with nohup is meant to continue without its parent. Under a debugger or in
    // a system call, idleness is no evidence.
    let is_wanted = works
        || info.ignores_hangup == Ok(true)
        || info.tracer.is_ok()
        || info.state == Ok(ProcessState::Uninterruptible)
        || context.is_younger(pid, MIN_AGE);
    if is_wanted {
        return None;
    }
    let text = format!(
        "its parent exited (re-parented to {parent}), and so did its process group leader {group}"
    );
    let mut evidence = vec![Evidence::new(Sign::ParentExited, text)];
    // A daemon that forked twice, or a background program whose shell has ended, looks the same
    // from outside. A worker of Python's multiprocessing usually gets its work from its parent; a
    // worker with its own task may continue without it.
    let uses_memory = devices.iter().any(|device| context.surely_uses(pid, device));
    let session_gone = info.session.is_ok_and(|session| session != pid && context.is_gone(session));
    let seen = context.idle_on(&devices, pid);
    let used_cpu = context.past.without_cpu_time(info.key) < seen.span;
    let is_worker = uses_memory && session_gone && is_worker(info) && !used_cpu;
    let is_long = seen.was_watched_for(MIN_IDLE);
    evidence.push(if is_long {
        seen.idle()
    } else {
        Evidence::new(Sign::NoComputeObserved, "no compute observed")
    });
    evidence.extend(context.never_computed(&devices, pid));
    evidence.push(if is_worker {
        Evidence::new(
            Sign::MultiprocessingWorker,
            "a Python multiprocessing worker, which normally exits with its parent",
        )
    } else {
        Evidence::new(Sign::MayBeDaemon, "a daemon would look the same")
    });
    let (confidence, advice) = match (is_worker, is_long) {
        (true, true) => (Confidence::High, vec![Advice::ReapProcess(pid)]),
        (true, false) | (false, true) => (Confidence::Likely, vec![Advice::ReapProcess(pid)]),
        (false, false) => (Confidence::Possible, vec![Advice::WatchIdle, Advice::ReapProcess(pid)]),
    };
    let suspect = Suspect { process: info.key, confidence, evidence };
    Some(context.about(suspect, &devices, FindingKind::Orphan, advice))
}

/// Returns whether Python's multiprocessing started a process as a worker: by the code that
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

/// Returns whether `parent` adopts orphaned processes: init, or the service manager of a user.
fn adopts(context: &DetectContext<'_>, parent: Pid) -> bool {
    parent == Pid(1) || context.info(parent).is_some_and(|info| info.name == "systemd")
}
