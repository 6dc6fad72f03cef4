//! Cleans the devices of a job.

use crate::allocation::{Allocation, allocation, job_names};
use crate::evidence::{Phase, Suspect, Verdict, unclaimed, verdict};
use crate::gres::NodeDevice;
use crate::held::{HeldDevice, reason, unchecked};
use crate::job::Job;
use crate::question::{Question, Slurm};
use crate::suspects::{Driver, suspects};
use gpu_core::{ActToken, Bytes, Error, ErrorKind, Fault, Pid, ProcessKey, Result, driver_reserve};
use gpu_reaper::{
    Action, Event, Expected, Guard, Leftover, Outcome, Ports, Report, execute, plan_leftovers,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// How many rounds end the processes that appear meanwhile.
const ROUNDS: usize = 5;

/// The most jobs on a node to query the controller about.
const JOBS: usize = 512;

/// Cleans the devices of a job.
#[derive(Clone, Copy)]
pub struct Cleaner<'a> {
    /// The machine.
    pub ports: Ports<'a>,
    /// Slurm.
    pub slurm: &'a dyn Slurm,
    /// The processes that are never signalled.
    pub guard: &'a Guard,
    /// The name of this node.
    pub node: &'a str,
    /// The devices of this node.
    pub devices: &'a [NodeDevice],
    /// The time from SIGTERM to SIGKILL.
    pub grace: Duration,
}

/// The result of a clean-up.
#[derive(Clone, Debug, Default)]
pub struct Cleaned {
    /// The actions, one report for each round.
    pub reports: Vec<Report>,
    /// The devices of the job that are still held; the node must not run another job on them.
    pub held: Vec<HeldDevice>,
    /// Why it is unknown whether a process that holds a device belongs to another job.
    pub unknown: Option<Fault>,
}

/// One snapshot of the node.
#[derive(Default)]
struct Scan {
    leftovers: Vec<Leftover>,
    /// Processes that keep their devices from the next job, by device file.
    holders: BTreeMap<Arc<str>, BTreeSet<ProcessKey>>,
    /// Processes that are left over if no other job has their devices.
    unclaimed: Vec<Suspect>,
    unknown: Option<Fault>,
}

impl Cleaner<'_> {
    /// Ends what is left of a job, or of an earlier one on its devices, and proves it.
    ///
    /// Processes that are certainly left over come first: the controller, which knows the rest, may
    /// take long to answer.
    ///
    /// `notify` is called with the reason to drain the node, if there is one, before and after each
    /// scan: if this program does not finish, its caller knows the reason. A scan that does not end
    /// is such a reason, because any user can make a scan long. `watch` receives each step.
    ///
    /// # Errors
    /// When the processes or the holders cannot be read. No process is signalled then.
    pub fn clean(
        &self,
        job: &Job,
        phase: Phase,
        token: &ActToken,
        notify: &mut dyn FnMut(Option<String>),
        watch: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Cleaned> {
        let files: BTreeSet<Arc<str>> =
            job.devices(self.devices).iter().map(|device| device.path.clone()).collect();
        let mut cleaned = Cleaned::default();
        // A job without GPUs needs no clean-up here.
        if files.is_empty() {
            return Ok(cleaned);
        }
        let driver = Driver::ask(self.ports);
        let unchecked = unchecked(files.iter().map(|path| driver.index(path)));
        let or_unchecked = |held: &Option<String>| held.clone().or_else(|| Some(unchecked.clone()));
        notify(or_unchecked(&None));
        let mut scan = self.scan(job, phase, &driver, &files).inspect_err(|_| notify(None))?;
        // Processes that SIGKILL did not end, or that may not be signalled; another round would not
        // end them either.
        let mut stuck: BTreeSet<Pid> = BTreeSet::new();
        // The first processes of each kind get the grace period; those that appear meanwhile do
        // not.
        let (mut for_certain, mut for_unclaimed) = (self.grace, self.grace);
        for _ in 0..ROUNDS {
            let mut held = reason(&self.held(&driver, &scan.holders));
            notify(held.clone());
            scan.leftovers.retain(|leftover| !stuck.contains(&leftover.process.key.pid));
            let mut grace = &mut for_certain;
            if scan.leftovers.is_empty() && !scan.unclaimed.is_empty() {
                let mut before = || notify(or_unchecked(&held));
                self.ask_controller(job, &driver, &files, &mut scan, &mut before)?;
                scan.leftovers.retain(|leftover| !stuck.contains(&leftover.process.key.pid));
                held = reason(&self.held(&driver, &scan.holders));
                notify(held.clone());
                grace = &mut for_unclaimed;
            }
            if scan.leftovers.is_empty() {
                break;
            }
            let leftovers = std::mem::take(&mut scan.leftovers);
            let grace = std::mem::take(grace);
            let expected = self.expected(&driver, &leftovers, &files);
            let origin = self.ports.host.origin();
            let plan = plan_leftovers(leftovers, expected, origin, self.guard, grace);
            stuck.extend(plan.refused.iter().map(|refused| refused.pid));
            if plan.targets.is_empty() {
                continue;
            }
            notify(or_unchecked(&held));
            let report = execute(&plan, self.guard, self.ports, token, watch);
            let stopped = report.stopped.is_some();
            let survived = |action: &&Action| matches!(action.outcome, Outcome::Survived { .. });
            stuck.extend(report.actions.iter().filter(survived).map(|action| action.pid));
            cleaned.reports.push(report);
            scan = self.scan(job, phase, &driver, &files).inspect_err(|_| notify(held))?;
            if stopped {
                break;
            }
        }
        let held = reason(&self.held(&driver, &scan.holders));
        notify(held.clone());
        let mut before = || notify(or_unchecked(&held));
        self.ask_controller(job, &driver, &files, &mut scan, &mut before)?;
        cleaned.unknown = scan.unknown;
        cleaned.held = self.held(&driver, &scan.holders);
        notify(reason(&cleaned.held));
        self.add_lost_memory(&driver, job, &mut cleaned);
        Ok(cleaned)
    }

    /// Takes a snapshot without querying the controller.
    fn scan(
        &self,
        job: &Job,
        phase: Phase,
        driver: &Driver,
        files: &BTreeSet<Arc<str>>,
    ) -> Result<Scan> {
        let mut scan = Scan::default();
        for suspect in suspects(self.ports, self.slurm, driver, files, Some(job))? {
            match verdict(&suspect, job, phase) {
                Verdict::Leftover(leftover) => {
                    scan.hold(&suspect, &suspect.files);
                    scan.leftovers.push(*leftover);
                }
                Verdict::Unclaimed => scan.unclaimed.push(suspect),
                Verdict::Spared => {}
            }
        }
        Ok(scan)
    }

    /// Asks the controller which of the unclaimed processes are left over, and scans again;
    /// `before` is called in between.
    fn ask_controller(
        &self,
        job: &Job,
        driver: &Driver,
        files: &BTreeSet<Arc<str>>,
        scan: &mut Scan,
        before: &mut dyn FnMut(),
    ) -> Result<()> {
        let others = std::mem::take(&mut scan.unclaimed);
        if others.is_empty() {
            return Ok(());
        }
        let allocated = match allocated(self.slurm, self.node, Some(&job.id)) {
            Ok(allocated) => allocated,
            Err(error) => {
                scan.unknown = Some(error.fault());
                return Ok(());
            }
        };
        if allocated.is_unknown() {
            let what = "read the devices of the other jobs on this node";
            scan.unknown = Some(Error::new(ErrorKind::Invalid, what).fault());
        }
        let free = free(self.devices, files, &allocated);
        before();
        // Not earlier: a process that still exists after Slurm's answer belongs to no job that
        // started since.
        let still: BTreeSet<ProcessKey> = suspects(self.ports, self.slurm, driver, files, None)?
            .into_iter()
            .filter(|suspect| suspect.tracked_by.is_none())
            .map(|suspect| suspect.process.key)
            .collect();
        for suspect in others.iter().filter(|other| still.contains(&other.process.key)) {
            let held: BTreeSet<_> = suspect.files.intersection(&free).cloned().collect();
            if !held.is_empty() {
                scan.hold(suspect, &held);
                scan.leftovers.extend(unclaimed(suspect, held.into_iter().collect()));
            }
        }
        Ok(())
    }

    /// Returns the held devices, with their memory in use.
    fn held(
        &self,
        driver: &Driver,
        holders: &BTreeMap<Arc<str>, BTreeSet<ProcessKey>>,
    ) -> Vec<HeldDevice> {
        let held = holders.iter().map(|(path, keys)| {
            let pids: Vec<Pid> = keys.iter().map(|key| key.pid).collect();
            held_device(self.ports, driver, path, pids)
        });
        held.collect()
    }

    /// Returns the memory of the targets in the driver's lists, which must be freed.
    fn expected(
        &self,
        driver: &Driver,
        leftovers: &[Leftover],
        files: &BTreeSet<Arc<str>>,
    ) -> Vec<Expected> {
        let on = |path: &Arc<str>| {
            let device = driver.device(path)?.id.clone();
            let listed = driver.listed(self.ports, path);
            let pids = leftovers.iter().map(|leftover| leftover.process.key.pid);
            let targets: Vec<Pid> = pids.filter(|pid| listed.contains_key(pid)).collect();
            let memory: Option<Bytes> = targets.iter().map(|pid| listed[pid]).sum();
            (!targets.is_empty()).then_some(Expected {
                device,
                memory,
                unexplained: Bytes(0),
                targets,
            })
        };
        files.iter().filter_map(on).collect()
    }

    /// Adds devices whose memory was not freed although no process is seen to hold them.
    fn add_lost_memory(&self, driver: &Driver, job: &Job, cleaned: &mut Cleaned) {
        let freed = cleaned.reports.iter().flat_map(|report| &report.memory);
        let lost: BTreeSet<Arc<str>> = freed
            .filter(|freed| !freed.came_back)
            .filter(|freed| !cleaned.held.iter().any(|held| held.index == freed.device.index))
            .filter_map(|freed| driver.file(freed.device.index).cloned())
            .filter(|path| {
                let (used, total) = driver.memory(self.ports, path).unwrap_or_default();
                used > driver_reserve(total, false)
            })
            .collect();
        if lost.is_empty() {
            return;
        }
        // The memory of a device that another job has may be that job's.
        if let Ok(allocated) = allocated(self.slurm, self.node, Some(&job.id)) {
            for path in free(self.devices, &lost, &allocated) {
                cleaned.held.push(held_device(self.ports, driver, &path, Vec::new()));
            }
        }
    }
}

impl Scan {
    fn hold(&mut self, suspect: &Suspect, files: &BTreeSet<Arc<str>>) {
        for path in files.iter().filter(|_| suspect.uses_memory) {
            self.holders.entry(path.clone()).or_default().insert(suspect.process.key);
        }
    }
}

pub(crate) fn held_device(
    ports: Ports<'_>,
    driver: &Driver,
    path: &str,
    pids: Vec<Pid>,
) -> HeldDevice {
    HeldDevice {
        index: driver.index(path),
        used: driver.memory(ports, path).map(|(used, _)| used),
        pids,
    }
}

/// Returns what Slurm has given to the jobs on a node, except for one.
///
/// # Errors
/// When Slurm does not answer, or there are too many jobs.
pub(crate) fn allocated(slurm: &dyn Slurm, node: &str, except: Option<&str>) -> Result<Allocation> {
    let jobs = job_names(&slurm.ask(Question::Jobs(node))?);
    let mut all = Allocation::default();
    let others = jobs.iter().filter(|(number, _)| Some(number.as_str()) != except);
    for (count, (_, name)) in others.enumerate() {
        if count >= JOBS {
            let what = format!("query more than {JOBS} jobs on node '{node}'");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        all.add(allocation(&slurm.ask(Question::Job(name))?, node));
    }
    Ok(all)
}

/// Returns the devices that no job has. Several positions can be one device (MIG).
pub(crate) fn free(
    devices: &[NodeDevice],
    files: &BTreeSet<Arc<str>>,
    allocated: &Allocation,
) -> BTreeSet<Arc<str>> {
    let is_free = |path: &&Arc<str>| {
        let mut same = devices.iter().filter(|device| device.path == **path);
        !same.any(|device| allocated.may_have(device.position))
    };
    files.iter().filter(is_free).cloned().collect()
}
