//! Hands safe-gpu's locks over to the processes that wait for them, so that no leased device looks
//! unused to anyone but the job.
//!
//! safe-gpu takes any device on which it sees no compute process, and the kernel serves the waiters
//! of a lock in order of arrival. If the locks have to be released before the job uses all of its
//! devices, a placeholder (a process with a CUDA context) is therefore started on each of the
//! others, and a snapshot must list it there first. A placeholder ends when the job appears on its
//! device. When the job leaves a device again, between two programs of a script, the locks are
//! taken again, as soon as no safe-gpu has them, and handed over in the same way. Nothing here
//! blocks: each step is taken at a snapshot of the run.

use crate::environment::placeholder_environment;
use crate::event::{Event, HandOff, Watch};
use crate::grant::Grant;
use crate::memory::{Others, Tally};
use crate::ports::Ports;
use gpu_core::visible::Visibility;
use gpu_core::{
    Companion, ComputeMode, DeviceId, Error, ErrorKind, Group, Host, Launch, Launcher, Pid,
    ProcessKey, Result, SafeGpuGuard, Snapshot, current_ancestry,
};
use std::time::Duration;

/// How long a placeholder may take to appear on its device. A driver without persistence mode takes
/// some seconds for each device.
const PATIENCE: Duration = Duration::from_secs(30);

/// For this long after the release of the locks, the job may appear on its devices at any moment.
const RECENT: Duration = Duration::from_secs(60);

/// For this long, memory of a killed placeholder may be attributed to no process.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// A killed placeholder has ended after this time, unless the driver blocks it.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// The parameters of a hand-over.
#[derive(Clone, Copy)]
pub(crate) struct HandoffTerms<'a> {
    /// The process whose descendants are the job.
    pub(crate) root: ProcessKey,
    /// How long outsiders are held back for a job that has not appeared.
    pub(crate) timeout: Duration,
    /// The placeholder program.
    pub(crate) placeholder: Option<&'a Launch>,
}

/// The locks of safe-gpu during a run, and the placeholders.
pub(crate) struct Handoff<'a> {
    terms: HandoffTerms<'a>,
    ports: &'a Ports<'a>,
    launcher: &'a dyn Launcher,
    /// Since when the locks are held for a job that has not appeared on all devices.
    start: Duration,
    held_back: Option<Box<dyn SafeGpuGuard>>,
    /// Whether the locks are taken again. Within another lease, that lease's run holds them.
    retakes: bool,
    devices: Vec<Device>,
    cover: Cover,
    /// Placeholders that were killed and have not ended yet.
    leaving: Vec<Box<dyn Companion>>,
    /// Until this time, memory without a listed process may have been a placeholder's.
    settles: Option<Duration>,
    /// When the locks were released.
    released: Option<Duration>,
    /// Since when the job has waited for a lock that cannot be released to it alone.
    contended: Option<Duration>,
}

/// A leased device.
struct Device {
    id: DeviceId,
    /// safe-gpu chooses only among NVIDIA's devices.
    is_nvidia: bool,
    placeholder: Option<Box<dyn Companion>>,
    /// Since the locks were last released, the job or a placeholder was on it.
    was_in_use: bool,
    /// The job was on it at the last snapshot.
    is_used: bool,
}

impl Device {
    /// Returns whether the job or its placeholder has left the device.
    fn is_left(&self) -> bool {
        self.was_in_use && !self.is_used && self.placeholder.is_none()
    }
}

/// The state of the placeholders.
enum Cover {
    /// Not needed so far.
    Unasked,
    /// Not all have appeared yet; the last one was started at this time.
    Opening(Duration),
    /// All have appeared on their devices.
    Open,
    /// There are none, or not on every device.
    Failed,
}

/// The processes that wait for the locks.
struct Queues {
    /// For each lock: whether processes of the job wait for it, and which others do.
    locks: Vec<(bool, Vec<Pid>)>,
}

impl Queues {
    fn has_job(&self) -> bool {
        self.locks.iter().any(|(job, _)| *job)
    }

    fn has_outsiders(&self) -> bool {
        self.locks.iter().any(|(_, outsiders)| !outsiders.is_empty())
    }
}

impl<'a> Handoff<'a> {
    /// Starts with the locks held, if they could be taken.
    pub(crate) fn new(
        terms: HandoffTerms<'a>,
        ports: &'a Ports<'a>,
        launcher: &'a dyn Launcher,
        grant: &mut Grant,
    ) -> Self {
        let is_other = |id: &DeviceId| {
            let device = grant.context.snapshot.device(id);
            device.is_some_and(|device| device.info.visibility != Visibility::default())
        };
        let device = |id: &DeviceId| Device {
            id: id.clone(),
            is_nvidia: !is_other(id),
            placeholder: None,
            was_in_use: false,
            is_used: false,
        };
        Handoff {
            terms,
            ports,
            launcher,
            start: ports.clock.monotonic(),
            retakes: grant.held_back.is_some(),
            held_back: grant.held_back.take().and_then(Result::ok),
            devices: grant.devices.iter().map(device).collect(),
            cover: Cover::Unasked,
            leaving: Vec::new(),
            settles: None,
            released: None,
            contended: None,
        }
    }

    /// Returns whether the next snapshot should be taken soon: a process waits for it, or the job
    /// is about to use a device with a placeholder.
    pub(crate) fn is_urgent(&self) -> bool {
        let covers = self.devices.iter().any(|device| device.placeholder.is_some());
        let now = self.ports.clock.monotonic();
        let is_recent = self.released.is_none_or(|at| now.saturating_sub(at) < RECENT);
        let is_left = self.held_back.is_none() && self.devices.iter().any(Device::is_left);
        self.contended.is_some() || is_left || (covers && is_recent)
    }

    /// Returns whether the next step has no effect: the locks are held, and no process waits for
    /// them.
    pub(crate) fn is_idle(&self) -> bool {
        let held = self.held_back.as_ref();
        held.is_some_and(|held| held.waiting().is_ok_and(|pids| pids.is_empty()))
            && matches!(self.cover, Cover::Unasked)
            && self.leaving.is_empty()
    }

    /// Returns whether there is anything to hand over: not within another lease.
    pub(crate) fn concerns_safe_gpu(&self) -> bool {
        self.retakes
    }

    /// Returns the processes that descend from the run's root and do not belong to the job.
    pub(crate) fn others(&self) -> Others {
        let placeholders = self.devices.iter().filter_map(|device| device.placeholder.as_ref());
        let pids: Vec<Pid> =
            placeholders.chain(&self.leaving).map(|placeholder| placeholder.pid()).collect();
        let now = self.ports.clock.monotonic();
        let settling = self.settles.is_some_and(|until| now < until);
        Others { blurs_unlisted: settling || !pids.is_empty(), pids }
    }

    /// Takes the next step, based on a snapshot. `tallies` are those of the devices, in order.
    pub(crate) fn step(&mut self, snapshot: &Snapshot, tallies: &[Tally], watch: &mut Watch<'_>) {
        let others = self.others();
        let root = self.terms.root;
        let used: Vec<bool> =
            tallies.iter().map(|tally| tally.shows(snapshot, &root, &others)).collect();
        let now = self.ports.clock.monotonic();
        self.dismiss(&used);
        self.reap(now);
        if self.held_back.is_none() {
            self.miss(watch);
            if !self.retake(&used, now) {
                return;
            }
        }
        if used.iter().all(|used| *used) {
            return self.release(HandOff::Seen, watch);
        }
        let queues = self.queues();
        let job_waits = queues.as_ref().is_ok_and(Queues::has_job);
        // If the waiting processes are unknown, assume that some wait.
        let is_over = now.saturating_sub(self.start) >= self.terms.timeout
            && queues.as_ref().map_or(true, Queues::has_outsiders);
        if !job_waits {
            self.contended = None;
        }
        if !job_waits && !is_over {
            return self.uncover();
        }
        self.cover(snapshot, tallies, &used, now, watch);
        match self.cover {
            Cover::Unasked | Cover::Opening(_) => {}
            Cover::Open if job_waits => self.release(HandOff::Wanted, watch),
            Cover::Open => self.release(HandOff::Covered, watch),
            Cover::Failed if !job_waits => self.release(HandOff::TimedOut, watch),
            Cover::Failed => {
                if let Ok(queues) = queues {
                    self.release_to_the_job(&queues, now, watch);
                }
            }
        }
    }

    /// Ends all placeholders and waits briefly, because the processes left of the run are
    /// determined next. A placeholder that the driver blocks is left to the job's tree.
    pub(crate) fn end(&mut self) {
        self.held_back = None;
        let all = vec![true; self.devices.len()];
        self.dismiss(&all);
        let start = self.ports.clock.monotonic();
        loop {
            let now = self.ports.clock.monotonic();
            self.reap(now);
            if self.leaving.is_empty() || now.saturating_sub(start) >= KILL_TIMEOUT {
                break;
            }
            self.ports.clock.sleep(PAUSE);
        }
        self.leaving.clear();
    }

    fn release(&mut self, why: HandOff, watch: &mut Watch<'_>) {
        self.held_back = None;
        self.contended = None;
        self.released = Some(self.ports.clock.monotonic());
        for device in &mut self.devices {
            // After a timeout, outsiders are not held back again before the job appears, unless a
            // placeholder ends before it.
            device.was_in_use = device.placeholder.is_some();
        }
        // The program continues, whatever the observer returns.
        let _ = watch(Event::HandedOff(why));
    }

    /// Takes the locks again if the job has left a device, and returns whether they are held. If a
    /// safe-gpu has them now, it may take that device.
    fn retake(&mut self, used: &[bool], now: Duration) -> bool {
        for (device, used) in self.devices.iter_mut().zip(used) {
            device.is_used = *used;
            device.was_in_use |= *used || device.placeholder.is_some();
        }
        if !self.retakes || !self.devices.iter().any(Device::is_left) {
            return false;
        }
        let Ok(held) = self.ports.locks.hold_back_safe_gpu(Duration::ZERO) else { return false };
        self.held_back = Some(held);
        self.start = now;
        self.released = None;
        self.cover = Cover::Unasked;
        true
    }

    /// Releases the locks for which only the job waits. If others wait too, the job may be behind
    /// them: such a lock is held for as long as a job may take from its start to appear.
    fn release_to_the_job(&mut self, queues: &Queues, now: Duration, watch: &mut Watch<'_>) {
        let Some(held_back) = &mut self.held_back else { return };
        let mut contenders: Option<&[Pid]> = None;
        for (index, (job, outsiders)) in queues.locks.iter().enumerate() {
            let is_refused = *job && outsiders.is_empty() && held_back.release(index).is_err();
            if is_refused || (*job && !outsiders.is_empty()) {
                contenders = Some(outsiders);
            }
        }
        let Some(contenders) = contenders else {
            self.contended = None;
            return;
        };
        let since = *self.contended.get_or_insert_with(|| {
            let _ = watch(Event::Contended(contenders));
            now
        });
        if now.saturating_sub(since) >= self.terms.timeout {
            self.release(HandOff::TimedOut, watch);
        }
    }

    fn queues(&self) -> Result<Queues> {
        let queues = self.held_back.as_ref().map_or(Ok(Vec::new()), |held| held.queues())?;
        let root = &self.terms.root;
        let split = |pids: Vec<Pid>| {
            let (job, outsiders): (Vec<Pid>, Vec<Pid>) =
                pids.into_iter().partition(|pid| descends(self.ports.host, *pid, root));
            (!job.is_empty(), outsiders)
        };
        Ok(Queues { locks: queues.into_iter().map(split).collect() })
    }

    /// Ensures that a placeholder has appeared on each device that the job does not use.
    fn cover(
        &mut self,
        snapshot: &Snapshot,
        tallies: &[Tally],
        used: &[bool],
        now: Duration,
        watch: &mut Watch<'_>,
    ) {
        if matches!(self.cover, Cover::Failed) {
            return;
        }
        let covered =
            self.open(snapshot, used, now).and_then(|()| self.opened(snapshot, tallies, now));
        self.cover = covered.unwrap_or_else(|error| {
            let all = vec![true; self.devices.len()];
            self.dismiss(&all);
            let _ = watch(Event::NotCovered(&error));
            Cover::Failed
        });
    }

    /// Kills placeholders that are no longer needed. Later waiters get new ones, with a new time
    /// limit.
    fn uncover(&mut self) {
        if matches!(self.cover, Cover::Opening(_) | Cover::Open) {
            self.dismiss(&vec![true; self.devices.len()]);
            self.cover = Cover::Unasked;
        }
    }

    /// Starts the missing placeholders.
    fn open(&mut self, snapshot: &Snapshot, used: &[bool], now: Duration) -> Result<()> {
        let refused = |what: &str| Error::new(ErrorKind::Unsupported, what);
        let uncovered = |(device, used): &(&Device, &bool)| {
            device.is_nvidia && !**used && device.placeholder.is_none()
        };
        let missing: Vec<DeviceId> = self
            .devices
            .iter()
            .zip(used)
            .filter(uncovered)
            .map(|(device, _)| device.id.clone())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let template = self.terms.placeholder;
        let template =
            template.ok_or_else(|| refused("start a placeholder: no program is configured"))?;
        if snapshot.sees_host_pids == Ok(false) {
            return Err(refused(
                "find a placeholder among the driver's processes: they are in another PID namespace",
            ));
        }
        missing.iter().try_for_each(|id| self.admits_two(id))?;
        for device in self.devices.iter_mut().filter(|device| missing.contains(&device.id)) {
            let uuid = device.id.uuid.as_ref();
            let uuid = uuid.map_err(|absent| Error::new(*absent, format!("name {}", device.id)))?;
            let mut launch = template.clone();
            launch.set.extend(placeholder_environment(uuid));
            device.placeholder = Some(self.launcher.accompany(&launch)?);
            self.cover = Cover::Opening(now);
        }
        Ok(())
    }

    /// Returns whether every placeholder has appeared on its device.
    ///
    /// # Errors
    /// If one has ended, or has not appeared in time.
    fn opened(&mut self, snapshot: &Snapshot, tallies: &[Tally], now: Duration) -> Result<Cover> {
        let since = match self.cover {
            Cover::Opening(since) => since,
            _ => now,
        };
        for (device, tally) in self.devices.iter_mut().zip(tallies) {
            let Some(placeholder) = &mut device.placeholder else { continue };
            let what = || format!("keep a placeholder on {}", device.id);
            if let Some(why) = placeholder.ended()? {
                return Err(Error::new(ErrorKind::Io, what()).with_source(ended(why)));
            }
            if tally.lists(snapshot, placeholder.pid()) {
                continue;
            }
            if now.saturating_sub(since) >= PATIENCE {
                let why = "the driver does not list it";
                return Err(Error::new(ErrorKind::TimedOut, what()).with_source(why));
            }
            return Ok(Cover::Opening(since));
        }
        Ok(Cover::Open)
    }

    /// Reports placeholders that another process has ended.
    fn miss(&mut self, watch: &mut Watch<'_>) {
        for device in &mut self.devices {
            let Some(Ok(Some(why))) = device.placeholder.as_mut().map(|one| one.ended()) else {
                continue;
            };
            device.placeholder = None;
            let what = format!("keep a placeholder on {}", device.id);
            let error = Error::new(ErrorKind::Io, what).with_source(ended(why));
            let _ = watch(Event::NotCovered(&error));
        }
    }

    /// Checks that a placeholder does not exclude others from a device.
    fn admits_two(&self, device: &DeviceId) -> Result<()> {
        let refused = |why: &str| {
            Err(Error::new(
                ErrorKind::Unsupported,
                format!("keep a placeholder on {device}: {why}"),
            ))
        };
        if device.uuid.as_ref().is_ok_and(|uuid| uuid.is_partition()) {
            return refused("safe-gpu does not support MIG devices");
        }
        let details = self.ports.backend.details(device, [Group::Modes].into_iter().collect())?;
        match details.modes.map(|modes| modes.compute_mode) {
            Some(Ok(ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread)) => {
                refused("its compute mode is Exclusive Process, reserved for the job")
            }
            _ => Ok(()),
        }
    }

    /// Kills the placeholders of the devices that the job uses.
    fn dismiss(&mut self, used: &[bool]) {
        for (device, _) in self.devices.iter_mut().zip(used).filter(|(_, used)| **used) {
            if let Some(mut placeholder) = device.placeholder.take() {
                placeholder.kill();
                self.leaving.push(placeholder);
            }
        }
    }

    /// Removes the placeholders that have ended.
    fn reap(&mut self, now: Duration) {
        let before = self.leaving.len();
        self.leaving.retain_mut(|placeholder| !matches!(placeholder.ended(), Ok(Some(_))));
        if self.leaving.len() < before {
            self.settles = Some(now + SETTLE_TIME);
        }
    }
}

/// Describes why a placeholder ended, from its output.
fn ended(said: String) -> String {
    if said.is_empty() { "it ended".to_owned() } else { said }
}

/// Returns whether a process is `root` or currently descends from it.
fn descends(host: &dyn Host, pid: Pid, root: &ProcessKey) -> bool {
    current_ancestry(host, host.process(pid).ok()).any(|info| info.key.definitely_same(root))
}
