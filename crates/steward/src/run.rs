//! Claims devices, runs a program on them, and verifies that nothing is left.

use crate::event::Event;
use crate::grant::{self, Grant};
use crate::handoff::{Handoff, HandoffTerms};
use crate::job_monitor::JobMonitor;
use crate::lease_keeper::LeaseKeeper;
use crate::leftovers::{Cleaned, KILL, Reach, Tree};
use crate::memory::Tally;
use crate::memory_limit::variables;
use crate::order::{Leaves, OnDeath, RunOrder};
use crate::outcome::{DeviceUse, NotRun, RunReport};
use crate::ports::Ports;
use gpu_claim::Waiting;
use gpu_core::{ActToken, Error, Groups, Job, JobExit, Launcher, Reading, Share, observe_users};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Duration;

/// The time limit for memory to be freed. Drivers usually take half a second; tearing down a
/// context with much mapped memory may take several seconds.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Claims devices, runs a program on them and waits for its end. Then ends the processes that the
/// program left behind on the devices, and verifies that their memory is freed.
///
/// After the time limit, or when the caller is gone, this ends everything that the program started,
/// whether or not it holds a device.
///
/// The lease is released at the end. If processes could not be ended, it is kept until they are
/// gone; see [`Event::Keeping`].
///
/// # Errors
/// [`NotRun`].
pub fn run(
    order: &RunOrder,
    ports: &Ports<'_>,
    launcher: &dyn Launcher,
    token: &ActToken,
    watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<RunReport, NotRun> {
    carry_out(order, Leaves::Others, ports, launcher, token, watch)
}

/// Like [`run`], but leaves no process: however the program ends, everything that it started is
/// ended after it, and a termination signal to the caller ends all of it.
///
/// # Errors
/// [`NotRun`].
pub fn isolate(
    order: &RunOrder,
    ports: &Ports<'_>,
    launcher: &dyn Launcher,
    token: &ActToken,
    watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<RunReport, NotRun> {
    carry_out(order, Leaves::Nothing, ports, launcher, token, watch)
}

fn carry_out(
    order: &RunOrder,
    leaves: Leaves,
    ports: &Ports<'_>,
    launcher: &dyn Launcher,
    token: &ActToken,
    watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<RunReport, NotRun> {
    let mut waiting = |waiting: &Waiting<'_>| watch(Event::Waiting(waiting));
    let mut grant = grant::take(&order.request, ports, &mut waiting).map_err(NotRun::NotGranted)?;
    let granted = ports.clock.monotonic();
    if watch(Event::Granted(&grant)).is_break() {
        return Err(NotRun::Stopped);
    }
    let advice = order.bounding.as_ref().and_then(|bounding| bounding.advice(&grant));
    if advice.as_ref().is_some_and(|advice| watch(Event::Bounded(advice)).is_break()) {
        return Err(NotRun::Stopped);
    }
    let bounds = advice.iter().flat_map(variables).collect();
    let mut job = start(order, &grant, bounds, launcher).map_err(NotRun::NotStarted)?;
    let started = ports.clock.monotonic();
    let mut tallies = tallies(&grant);
    let terms = HandoffTerms {
        root: order.request.root,
        timeout: order.handoff,
        placeholder: order.placeholder.as_ref(),
    };
    let handoff = Handoff::new(terms, ports, launcher, &mut grant);
    let mut monitor = JobMonitor::new(order, leaves, ports, &mut grant, &mut tallies, handoff);
    let followed = monitor.follow(&mut *job, watch);
    let JobMonitor { limit_hit, abandoned, overstayed, .. } = monitor;

    let is_over = limit_hit || (abandoned && order.on_death == OnDeath::End);
    let reach = if leaves == Leaves::Nothing || is_over || followed.is_err() {
        Reach::Tree
    } else {
        Reach::Holders
    };
    let grace = if overstayed { Duration::ZERO } else { order.grace };
    let Ports { backend, host, clock, journal, .. } = *ports;
    let devices = grant.devices.clone();
    let ports_of_tree = gpu_reaper::Ports { backend, host, clock, journal };
    let tree = Tree { ports: ports_of_tree, root: order.request.root, devices: &devices, token };
    let cleaned = tree.end(&mut *job, reach, grace, &mut |event| watch(Event::CleaningUp(event)));
    let Cleaned { actions, still_there, remaining, unlisted, stopped, unwritten, remains, ending } =
        cleaned;
    let keeping = LeaseKeeper { tree: &tree, reach, locks: ports.locks };
    let ending = match followed {
        // If it still exists, it has not ended; SIGKILL was the last signal.
        Ok(ended) => ended.or(ending).unwrap_or(JobExit::Signal(KILL)),
        Err(error) => {
            if remains {
                job.detach();
                let stays = watch(Event::Keeping(Err(&error))).is_continue();
                if !(stays && keeping.outlast(&remaining, &mut *job, &mut grant, watch)) {
                    grant.held.leave();
                }
            }
            return Err(NotRun::Lost(error, actions));
        }
    };
    let elapsed = ports.clock.monotonic().saturating_sub(started);
    // A process that still exists does not free its memory.
    let patience = if remains { PAUSE } else { PATIENCE };
    let memory_back = memory_back(&tallies, ports, order, patience, watch);
    let held_for = ports.clock.monotonic().saturating_sub(granted);
    let devices = devices.iter().zip(&tallies).map(|(device, tally)| DeviceUse {
        device: device.clone(),
        peak: tally.peak,
        held_for,
    });
    let devices = devices.collect();
    let report = RunReport {
        lease: grant.entry.id.clone(),
        ending,
        limit_hit,
        abandoned,
        devices,
        elapsed,
        left_behind: actions,
        still_there,
        remaining,
        unlisted,
        lease_stays: remains,
        memory_back,
        stopped,
        unwritten,
    };
    if remains {
        job.detach();
        let stays = watch(Event::Keeping(Ok(&report))).is_continue();
        if !(stays && keeping.outlast(&report.remaining, &mut *job, &mut grant, watch)) {
            grant.held.leave();
        }
    }
    Ok(report)
}

/// Starts the program, which also keeps the lease alive: the lease exists as long as any process of
/// the tree, even if this program is killed.
fn start(
    order: &RunOrder,
    grant: &Grant,
    bounds: Vec<(OsString, OsString)>,
    launcher: &dyn Launcher,
) -> Result<Box<dyn Job>, Error> {
    let mut launch = order.launch.clone();
    launch.set.extend(bounds);
    launch.set.extend(grant.environment(order.visible, &order.inherited)?);
    grant.held.inherit(true)?;
    let job = launcher.launch(&launch);
    // The kernel has no reason to refuse this. If it did, another process that inherits the
    // descriptor would keep the lease only while it lives, and the run releases it explicitly.
    let _ = grant.held.inherit(false);
    job
}

pub(crate) fn tallies(grant: &Grant) -> Vec<Tally> {
    let lease = &grant.entry;
    let whole = lease.claim.share == Share::Whole && grant.parent.is_none();
    lease.devices.iter().map(|uuid| Tally::begin(&grant.context, uuid, whole)).collect()
}

/// Waits until the memory of all devices is freed, `patience` is over, or the observer ends the
/// wait.
fn memory_back(
    tallies: &[Tally],
    ports: &Ports<'_>,
    order: &RunOrder,
    patience: Duration,
    watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Reading<bool> {
    let start = ports.clock.monotonic();
    loop {
        let snapshot = observe_users(ports.backend, ports.host, ports.clock, Groups::NONE);
        let back = tallies.iter().map(|tally| tally.is_back(&snapshot, &order.request.root));
        // One device whose memory is not freed decides, even if another is unknown.
        let back: Vec<Reading<bool>> = back.collect();
        let absent = back.iter().find_map(|back| back.err());
        let all = match (back.contains(&Ok(false)), absent) {
            (true, _) => Ok(false),
            (false, Some(absent)) => return Err(absent),
            (false, None) => Ok(true),
        };
        let waited = ports.clock.monotonic().saturating_sub(start);
        if all == Ok(true)
            || waited >= patience
            || watch(Event::WaitingForMemory(waited)).is_break()
        {
            return all;
        }
        ports.clock.sleep(PAUSE);
    }
}
