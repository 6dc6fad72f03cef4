//! One look at the processes that may concern a job.
//!
//! It reads what the kernel knows of all processes, and the environment of few: that is in their own
//! memory, and a process can make its reader wait. Such a read has a limit, and a process that
//! exceeds it has no mark.

use crate::evidence::Suspect;
use crate::job::Job;
use crate::question::{Question, Slurm};
use crate::tracked::tracked;
use gpu_core::{Bytes, DeviceInfo, Environment, Holder, Pid, ProcessHandle, ProcessKey, Result};
use gpu_reaper::{Ports, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// How long the environment of a process may take, and how many may take longer.
const ENVIRONMENT: Duration = Duration::from_millis(500);
const SLOW: usize = 8;

/// The variable that names the job of a process.
const JOB_ID: &str = "SLURM_JOB_ID";

/// What the driver says of the devices; nothing if it does not answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driver {
    devices: Vec<DeviceInfo>,
}

impl Driver {
    pub(crate) fn ask(ports: Ports<'_>) -> Self {
        Driver { devices: ports.backend.devices().unwrap_or_default() }
    }

    pub(crate) fn device(&self, minor: u32) -> Option<&DeviceInfo> {
        self.devices.iter().find(|device| device.id.minor == Ok(minor))
    }

    /// Returns the index of the device with this minor number; without a driver the number itself.
    pub(crate) fn index(&self, minor: u32) -> u32 {
        self.device(minor).map_or(minor, |device| device.id.index)
    }

    /// Returns the minor number of the device with this index.
    pub(crate) fn minor(&self, index: u32) -> Option<u32> {
        self.devices.iter().find(|device| device.id.index == index)?.id.minor.ok()
    }

    /// Returns the memory of a device in use, and all of it.
    pub(crate) fn memory(&self, ports: Ports<'_>, minor: u32) -> Option<(Bytes, Bytes)> {
        let memory = ports.backend.sample(&self.device(minor)?.id).ok()?.memory;
        Some((memory.used.ok()?, memory.total.unwrap_or_default()))
    }

    /// Returns the memory of each process that the driver lists on a device.
    pub(crate) fn listed(&self, ports: Ports<'_>, minor: u32) -> BTreeMap<Pid, Option<Bytes>> {
        let device = self.device(minor).filter(|_| ports.host.sees_host_pids() != Ok(false));
        let listed = device.and_then(|device| ports.backend.processes(&device.id).ok());
        listed.into_iter().flatten().map(|process| (process.pid, process.memory.ok())).collect()
    }
}

/// Returns the processes that hold these devices, and if a job is given those that may belong to it.
///
/// # Errors
/// When the processes or the holders cannot be read.
pub(crate) fn suspects(
    ports: Ports<'_>,
    slurm: &dyn Slurm,
    driver: &Driver,
    minors: &BTreeSet<u32>,
    job: Option<&Job>,
) -> Result<Vec<Suspect>> {
    let files = ports.host.device_files()?;
    let scan = ports.host.holders(&files)?;
    let holders: BTreeMap<ProcessKey, &Holder> =
        scan.holders.iter().map(|holder| (holder.process, holder)).collect();
    let listed: BTreeMap<u32, _> =
        minors.iter().map(|minor| (*minor, driver.listed(ports, *minor))).collect();
    // Without a job, only the holders matter.
    let pids = match job {
        Some(_) => ports.host.pids()?,
        None => scan.holders.iter().map(|holder| holder.process.pid).collect(),
    };
    let mut environments = Environments::default();
    let mut found = Vec::new();
    for pid in pids {
        // A process that has ended, or is not visible, is no suspect.
        let Ok(handle) = ports.host.open(pid) else { continue };
        let Ok(process) = handle.look() else { continue };
        let holder = holders.get(&process.key).copied();
        let held: BTreeSet<u32> = holder.map(|holder| held(holder, minors)).unwrap_or_default();
        let is_listed = |minor: &u32| listed[minor].contains_key(&pid);
        let uses = |minor: &u32| {
            let role = Role::of(Some(&process), holder, None, Some(*minor));
            role == Role::MemoryUser || (role == Role::Monitor && is_listed(minor))
        };
        let uses_memory = held.iter().any(uses);
        let has_user = job.is_some_and(|job| process.uid == Ok(job.uid));
        // Of few processes only: this reads one more file.
        let uids = (has_user || !held.is_empty()).then(|| handle.uids().ok()).flatten();
        let is_users = job.zip(uids).is_some_and(|(job, uids)| uids.may_be_signalled_by(job.uid));
        if held.is_empty() && !is_users && process.slurm_job().is_none() || process.kernel_thread {
            continue;
        }
        let mark = match is_users {
            true => environments.job_of(handle),
            false => None,
        };
        found.push(Suspect { process, uids, minors: held, uses_memory, mark, tracked_by: None });
    }
    if !found.is_empty() {
        // If no step answers, the cgroups and the environments still tell the jobs apart.
        let by_slurm = slurm.ask(Question::Processes).map(|text| tracked(&text));
        let by_slurm = by_slurm.unwrap_or_default();
        for suspect in &mut found {
            suspect.tracked_by = by_slurm.get(&suspect.process.key.pid).cloned();
        }
    }
    Ok(found)
}

fn held(holder: &Holder, minors: &BTreeSet<u32>) -> BTreeSet<u32> {
    let has = |minor: &&u32| holder.has(gpu_core::DeviceFileKind::Gpu(**minor));
    minors.iter().filter(has).copied().collect()
}

/// Reads environments, as long as that does not take long.
#[derive(Default)]
struct Environments {
    slow: usize,
    reader: Option<Reader>,
}

/// A thread that reads environments.
struct Reader {
    processes: Sender<Box<dyn ProcessHandle>>,
    environments: Receiver<Result<Environment>>,
}

impl Reader {
    /// Starts the thread; `None` if the kernel refuses. A read that never returns ends with this
    /// program.
    fn start() -> Option<Self> {
        let (processes, asked) = mpsc::channel::<Box<dyn ProcessHandle>>();
        let (read, environments) = mpsc::channel();
        let work =
            move || asked.iter().try_for_each(|process| read.send(process.environment())).ok();
        std::thread::Builder::new().spawn(work).ok()?;
        Some(Reader { processes, environments })
    }
}

impl Environments {
    fn job_of(&mut self, handle: Box<dyn ProcessHandle>) -> Option<String> {
        if self.slow >= SLOW {
            return None;
        }
        let reader = self.reader.take().or_else(Reader::start)?;
        reader.processes.send(handle).ok()?;
        match reader.environments.recv_timeout(ENVIRONMENT) {
            Ok(environment) => {
                self.reader = Some(reader);
                variable(environment, JOB_ID)
            }
            // It still reads; the next process gets another thread.
            Err(_) => {
                self.slow += 1;
                None
            }
        }
    }
}

fn variable(environment: Result<Environment>, name: &str) -> Option<String> {
    let variables = environment.ok()?.variables;
    variables.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}
