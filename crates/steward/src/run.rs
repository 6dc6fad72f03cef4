//! Claims devices, runs a program on them, and sees to it that nothing is left.

use crate::environment::environment;
use crate::grant::{self, Grant, NotGranted};
use crate::handoff::Handoff;
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

/// How long memory is waited for. Drivers give it back within about half a second; a context torn
/// down with much mapped memory may take several.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// What becomes of a job when nobody waits for it any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeath {
    /// It ends, with everything that it started.
    #[default]
    End,
    /// It goes on, with its lease.
    Keep,
}

/// A program to run on claimed devices.
#[derive(Clone, Debug)]
pub struct RunOrder {
    /// The devices. Its root is the calling process, which the program's tree cannot leave.
    pub request: Request,
    /// The program; the variables that name the devices come on top.
    pub launch: Launch,
    /// How the devices are named to it.
    pub visible: Form,
    /// What is known of the program, where it is to be made to keep its share.
    pub bounding: Option<MemoryLimit>,
    /// How long it may run.
    pub time_limit: Option<Duration>,
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
    /// What becomes of it when nobody waits for it any more.
    pub on_death: OnDeath,
    /// How long a safe-gpu that waits is held back for a program that does not show on its devices.
    pub handoff: Duration,
    /// A program that uses the device which `CUDA_VISIBLE_DEVICES` names until it is killed: it
    /// stands for the job on a device that looks unused when safe-gpu is to be let go. Without one,
    /// safe-gpu may take such a device.
    pub placeholder: Option<Launch>,
}

/// What happens during a run, for whoever watches.
///
/// [`ControlFlow::Break`] gives a wait up, and stops the end of what was left behind; a program
/// that runs goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// Devices are waited for.
    Waiting(&'a Waiting<'a>),
    /// They were granted; the program starts next.
    Granted(&'a Grant),
    /// This is what makes the program keep its share; its variables are set.
    Bounded(&'a Advice),
    /// safe-gpu is not held back any more.
    HandedOff(HandOff),
    /// No placeholder can be kept on each device that the program does not use yet.
    NotCovered(&'a Error),
    /// The program waits for a lock of safe-gpu and so do these processes, some of which may come
    /// before it; safe-gpu is held back until they do not wait any more, or the time is over.
    Contended(&'a [Pid]),
    /// Others may not see the lease any more; it is tried again from minute to minute.
    Unseen(&'a Error),
    /// This signal could not be passed on to the program, which goes on.
    NotPassed(i32, &'a Error),
    /// The time limit is over: the program was asked to end.
    LimitReached,
    /// Nobody waits for the program any more.
    Abandoned,
    /// What it left behind is ended.
    CleaningUp(gpu_reaper::Event<'a>),
    /// Its memory is waited for.
    WaitingForMemory(Duration),
    /// The run is over, as far as it can be: the report, or why the program was lost. Processes of
    /// it could not be ended, and the lease is kept until they are gone. That may take for ever, and
    /// whoever waits for the run is not to wait for it. By [`ControlFlow::Break`] the lease is left
    /// to those who inherited it instead.
    Keeping(Result<&'a RunReport, &'a Error>),
}

/// Why safe-gpu is not held back any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOff {
    /// The program shows on each of its devices, where safe-gpu sees it too.
    Seen,
    /// The program itself waits for safe-gpu's lock. Placeholders keep its devices in use for
    /// everybody else until it shows there.
    Wanted,
    /// The time is over and somebody waits. Placeholders keep its devices in use until it shows.
    Covered,
    /// The time is over, somebody waits, and there are no placeholders. Until the program shows, a
    /// safe-gpu may take its devices for free.
    TimedOut,
}

/// Why nothing was run. No device is kept in any of these cases, but by who is [`Lost`](Self::Lost)
/// and lives.
#[derive(Debug)]
pub enum NotRun {
    /// No device was granted.
    NotGranted(NotGranted),
    /// The one who watched asked to stop before the program was started.
    Stopped,
    /// The program could not be started: by its kind `Process(Gone)` there is none,
    /// `Process(NotPermitted)` it may not be run, anything else is a failure of this program.
    NotStarted(Error),
    /// The program was started and could not be followed; its tree was ended, as the actions say.
    Lost(Error, Vec<Action>),
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The lease that it had.
    pub lease: LeaseId,
    /// How the program ended.
    pub ending: JobExit,
    /// It was ended because its time was over.
    pub limit_hit: bool,
    /// Nobody waited for it any more.
    pub abandoned: bool,
    /// Its devices, and what it used of them.
    pub devices: Vec<DeviceUse>,
    /// The time from its start to its end.
    pub elapsed: Duration,
    /// Those of its tree that were ended after it, or could not be.
    pub left_behind: Vec<Action>,
    /// Those of its tree that are still there.
    pub still_there: Vec<ProcessInfo>,
    /// Those of them who were to be ended and could not be, or of whom it cannot be seen whether
    /// they hold a device, as far as they are known.
    pub remaining: Vec<ProcessInfo>,
    /// Those who are still there, whose descriptors may not be read, and whom the driver lists on
    /// none of the devices. The lease does not stay for them.
    pub unlisted: Vec<ProcessInfo>,
    /// The lease stays for them.
    pub lease_stays: bool,
    /// Its memory was seen to be free again, on all of its devices.
    pub memory_back: Reading<bool>,
    /// Why what it left behind was not ended, or not all of it.
    pub stopped: Option<Fault>,
    /// Why the audit log has not all of that.
    pub unwritten: Option<Fault>,
}

/// What a job used of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceUse {
    /// The device.
    pub device: DeviceId,
    /// The most memory that was seen, by a look each second; absent where none could see it.
    pub peak: Reading<Bytes>,
    /// How long it was leased.
    pub held_for: Duration,
}

impl RunReport {
    /// Returns the time that all devices together were leased.
    pub fn device_time(&self) -> Duration {
        self.devices.iter().map(|used| used.held_for).sum()
    }
}

/// Claims devices, runs a program on them and waits for its end; then ends what the program left
/// behind on the devices, and sees that their memory is back.
///
/// After the time limit, or when nobody waits for it any more, everything that the program started
/// is ended, whether it holds a device or not.
///
/// The lease is let go of at the end, but not while somebody lives who was to be ended and could
/// not be: then it is kept until they are gone; see [`Event::Keeping`].
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

/// Does what [`run`] does, and leaves nothing: however the program ends, everything that it started
/// is ended after it, and a signal that asks the caller to end ends all of it.
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

/// What may be left of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Those who hold no device.
    Others,
    /// Nobody.
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
    let handoff = Handoff::new(order, ports, launcher, &mut grant);
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
        // One that is still there has not ended; SIGKILL was the last word to it.
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
    // Nobody gives it back who is still there.
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

/// Starts the program, which keeps the lease alive too: for as long as one of its processes lives,
/// the lease does, even when this program is killed.
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
    // The kernel has no reason to refuse this; and what else might keep the lease alive does so no
    // longer than it lives, while the lease is let go of in so many words.
    let _ = grant.held.inherit(false);
    job
}

fn tallies(grant: &Grant) -> Vec<Tally> {
    let lease = &grant.entry;
    let whole = lease.claim.share == Share::Whole && grant.parent.is_none();
    lease.devices.iter().map(|uuid| Tally::begin(&grant.scene, uuid, whole)).collect()
}

/// Looks until the memory of all devices is back, or patience ends.
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
        // One device that is not back settles it; that another could not say comes second.
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
