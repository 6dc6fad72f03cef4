//! Claims devices, runs a program on them, and verifies that nothing is left.

use crate::environment::environment;
use crate::grant::{self, Grant, NotGranted};
use crate::handoff::{Handoff, HandoffTerms};
use crate::job_monitor::{JobMonitor, KILL};
use crate::lease_keeper::LeaseKeeper;
use crate::leftovers::{Cleaned, Reach, Tree};
use crate::memory::Tally;
use crate::memory_limit::{MemoryLimit, variables};
use crate::ports::{Ports, Request};
use gpu_claim::Waiting;
use gpu_core::visible::Form;
use gpu_core::{
    ActToken, Bytes, DeviceId, Error, Fault, Groups, Job, JobExit, Launch, Launcher, LeaseId, Pid,
    ProcessInfo, Reading, Share, observe_users,
};
use gpu_memory_advice::environment::Advice;
use gpu_reaper::Action;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Duration;

/// The time limit for memory to be freed. Drivers usually take half a second; tearing down a
/// context with much mapped memory may take several seconds.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// What happens to a job when its caller is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeath {
    /// It ends, with everything that it started.
    #[default]
    End,
    /// It keeps running, with its lease.
    Keep,
}

/// A program to run on claimed devices.
#[derive(Clone, Debug)]
pub struct RunOrder {
    /// The devices. The root is the calling process, which the program's tree cannot leave.
    pub request: Request,
    /// The program; the variables that name the devices are added.
    pub launch: Launch,
    /// How the devices are named in its environment.
    pub visible: Form,
    /// The data for the program's memory limit, if it must be kept within its share.
    pub bounding: Option<MemoryLimit>,
    /// Its time limit.
    pub time_limit: Option<Duration>,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// What happens to it when its caller is gone.
    pub on_death: OnDeath,
    /// How long safe-gpu's locks are held for a program that has not appeared on its devices.
    pub handoff: Duration,
    /// A program that uses the device in `CUDA_VISIBLE_DEVICES` until it is killed. It stands for
    /// the job on a device that looks unused when safe-gpu's locks are released. Without it,
    /// safe-gpu may take such a device.
    pub placeholder: Option<Launch>,
}

/// Events of a run, for the observer.
///
/// [`ControlFlow::Break`] ends a wait, and stops the clean-up; it does not stop a running program.
#[derive(Debug)]
pub enum Event<'a> {
    /// The claim waits for devices.
    Waiting(&'a Waiting<'a>),
    /// Devices were granted; the program starts next.
    Granted(&'a Grant),
    /// The settings that keep the program within its share. Its environment variables are set.
    Bounded(&'a Advice),
    /// safe-gpu's locks were released.
    HandedOff(HandOff),
    /// Placeholders cannot be kept on all devices that the program does not use yet.
    NotCovered(&'a Error),
    /// The program and these other processes wait for a lock of safe-gpu, and some of the others
    /// may come first. The locks are held until the others no longer wait, or until the time limit.
    Contended(&'a [Pid]),
    /// The lease may be invisible to others; publishing is retried every minute.
    Unseen(&'a Error),
    /// This signal could not be forwarded to the program, which continues.
    NotPassed(i32, &'a Error),
    /// The time limit was reached, and the program is being ended.
    LimitReached,
    /// The caller is gone.
    Abandoned,
    /// The processes that it left behind are being ended.
    CleaningUp(gpu_reaper::Event<'a>),
    /// The run waits for its memory to be freed.
    WaitingForMemory(Duration),
    /// The run is over, except for processes that could not be ended: the report, or why the
    /// program was lost. The lease is kept until these processes are gone. That may take forever,
    /// and the caller should not wait for it. With [`ControlFlow::Break`] the lease is left to the
    /// processes that inherited it instead.
    Keeping(Result<&'a RunReport, &'a Error>),
}

/// Why safe-gpu's locks were released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// The program has appeared on all of its devices, visibly for safe-gpu.
    Seen,
    /// The program itself waits for safe-gpu's lock. Placeholders keep its devices in use until it
    /// appears there.
    Wanted,
    /// The time limit was reached and another process waits. Placeholders keep the devices in use
    /// until the program appears.
    Covered,
    /// The time limit was reached, another process waits, and there are no placeholders. Until the
    /// program appears, safe-gpu may take its devices as unused.
    TimedOut,
}

/// Why nothing was run. No device stays leased, except for living processes of a
/// [`Lost`](Self::Lost) program.
#[derive(Debug)]
pub enum NotRun {
    /// No device was granted.
    NotGranted(NotGranted),
    /// The observer stopped the run before the program was started.
    Stopped,
    /// The program could not be started. The kind `Process(Gone)` means that it does not exist, and
    /// `Process(NotPermitted)` that it may not be executed; any other kind is an error of this
    /// program.
    NotStarted(Error),
    /// The program was started and could not be monitored; its tree was ended, as the actions show.
    Lost(Error, Vec<Action>),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Its lease.
    pub lease: LeaseId,
    /// How the program ended.
    pub ending: JobExit,
    /// Whether it was ended at its time limit.
    pub limit_hit: bool,
    /// Whether its caller was gone.
    pub abandoned: bool,
    /// Its devices, and their use.
    pub devices: Vec<DeviceUse>,
    /// The time from its start to its end.
    pub elapsed: Duration,
    /// The processes of its tree that were ended after it, or could not be.
    pub left_behind: Vec<Action>,
    /// The processes of its tree that still exist.
    pub still_there: Vec<ProcessInfo>,
    /// The processes of `still_there` that could not be ended, or of which it is unknown whether
    /// they hold a device. The list may be incomplete.
    pub remaining: Vec<ProcessInfo>,
    /// The processes that still exist, have unreadable descriptors, and are listed by the driver on
    /// none of the devices. The lease is not kept for them.
    pub unlisted: Vec<ProcessInfo>,
    /// Whether the lease is kept for remaining processes.
    pub lease_stays: bool,
    /// Whether its memory was verified as freed on all of its devices.
    pub memory_back: Reading<bool>,
    /// Why the clean-up is incomplete.
    pub stopped: Option<Fault>,
    /// Why the audit log is incomplete.
    pub unwritten: Option<Fault>,
}

/// The use of a device by a job.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceUse {
    /// The device.
    pub device: DeviceId,
    /// The peak of its memory, sampled each second; absent if it could not be read.
    pub peak: Reading<Bytes>,
    /// How long it was leased.
    pub held_for: Duration,
}

impl RunReport {
    /// Returns the total lease time of all devices.
    pub fn device_time(&self) -> Duration {
        self.devices.iter().map(|used| used.held_for).sum()
    }
}

/// Claims devices, runs a program on them and waits for its end. Then ends the processes that the
/// program left behind on the devices, and verifies that their memory is freed.
///
/// After the time limit, or when the caller is gone, this ends everything that the program started,
/// whether it holds a device or not.
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

/// The processes that may remain of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Processes that hold no device.
    Others,
    /// No process.
    Nothing,
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
    let mut course = JobMonitor::new(order, leaves, ports, &mut grant, &mut tallies, handoff);
    let followed = course.follow(&mut *job, watch);
    let JobMonitor { limit_hit, abandoned, overstayed, .. } = course;

    let is_over = limit_hit || (abandoned && order.on_death == OnDeath::End);
    let reach = match leaves == Leaves::Nothing || is_over || followed.is_err() {
        true => Reach::Tree,
        false => Reach::Holders,
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
    let machine = &grant.scene.snapshot.devices;
    let mut launch = order.launch.clone();
    launch.set.extend(bounds);
    launch.set.extend(environment(&grant.entry, order.visible, machine)?);
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
    lease.devices.iter().map(|uuid| Tally::begin(&grant.scene, uuid, whole)).collect()
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
        let look = observe_users(ports.backend, ports.host, ports.clock, Groups::NONE);
        let back = tallies.iter().map(|tally| tally.is_back(&look, &order.request.root));
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
