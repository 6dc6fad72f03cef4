//! Holders whose parent and whose job are gone.

use super::context::{DetectContext, MIN_AGE, MIN_IDLE};
use crate::evidence::{Evidence, Sign};
use crate::finding::{Advice, Confidence, Finding, FindingKind, Suspect};
use gpu_core::{Pid, ProcessInfo, ProcessState};

pub(crate) fn detect(case: &DetectContext<'_>) -> Vec<Finding> {
    case.infos().filter_map(|info| finding(case, info)).collect()
}

/// A process is an orphan when its parent is gone *and* the leader of its process group is.
///
/// The first alone is harmless: a program started with setsid or as a service has PID 1 as its
/// parent and leads its own group. A worker whose launcher died is in the launcher's group. So is a
/// job that a script started in the background, with nohup or without: if it works, it is wanted.
fn finding(case: &DetectContext<'_>, info: &ProcessInfo) -> Option<Finding> {
    let pid = info.key.pid;
    let parent = info.parent.ok()?;
    let group = info.group.ok()?;
    let leader_gone = group != pid && case.is_gone(group);
    let is_managed = info.workload.is_some() || info.service().is_some();
    if !adopts(case, parent) || !leader_gone || is_managed {
        return None;
    }
    let devices = case.used_by(pid);
    devices.first()?;
    let works = case.computes(pid, &devices) || case.past.uses_cpu(info.key);
    // A process started with nohup is meant to continue without its parent. Under a debugger or in
    // a system call, idleness is no evidence.
    let is_wanted = works
        || info.ignores_hangup == Ok(true)
        || info.tracer.is_ok()
        || info.state == Ok(ProcessState::Uninterruptible)
        || case.is_younger(pid, MIN_AGE);
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
    let uses_memory = devices.iter().any(|device| case.surely_uses(pid, device));
    let session_gone = info.session.is_ok_and(|session| session != pid && case.is_gone(session));
    let seen = case.idle_on(&devices, pid);
    let used_cpu = case.past.without_cpu_time(info.key) < seen.span;
    let is_worker = uses_memory && session_gone && is_worker(info) && !used_cpu;
    let is_long = seen.was_watched_for(MIN_IDLE);
    evidence.push(match is_long {
        true => seen.idle(),
        false => Evidence::new(Sign::NoComputeObserved, "no compute observed"),
    });
    evidence.extend(case.never_computed(&devices, pid));
    evidence.push(match is_worker {
        true => Evidence::new(
            Sign::MultiprocessingWorker,
            "a Python multiprocessing worker, which normally exits with its parent",
        ),
        false => Evidence::new(Sign::MayBeDaemon, "a daemon would look the same"),
    });
    let (confidence, advice) = match (is_worker, is_long) {
        (true, true) => (Confidence::High, vec![Advice::ReapProcess(pid)]),
        (true, false) | (false, true) => (Confidence::Likely, vec![Advice::ReapProcess(pid)]),
        (false, false) => (Confidence::Possible, vec![Advice::WatchIdle, Advice::ReapProcess(pid)]),
    };
    let suspect = Suspect { process: info.key, confidence, evidence };
    Some(case.about(suspect, &devices, FindingKind::Orphan, advice))
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
fn adopts(case: &DetectContext<'_>, parent: Pid) -> bool {
    parent == Pid(1) || case.info(parent).is_some_and(|info| info.name == "systemd")
}
