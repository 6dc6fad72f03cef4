//! One snapshot of the processes that may concern a job.
//!
//! It reads what the kernel knows of all processes, and the environment of few: that is in the
//! memory of the process, which can make its reader wait. Such a read has a time limit, and a
//! process that exceeds it has no mark.

use crate::evidence::Suspect;
use crate::job::Job;
use crate::question::{Question, Slurm};
use crate::tracked::tracked;
use gpu_core::{
    Bytes, DeviceFile, DeviceInfo, Environment, HeldFile, Holder, Pid, ProcessHandle, ProcessKey,
    Result, file_number, own_memory,
};
use gpu_reaper::{Ports, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// How long reading the environment of a process may take, and how many may take longer.
const ENVIRONMENT: Duration = Duration::from_millis(500);
const SLOW: usize = 8;

/// The variable that names the job of a process.
const JOB_ID: &str = "SLURM_JOB_ID";

/// The devices that the driver reports (none if it does not answer), and the device files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Driver {
    devices: Vec<DeviceInfo>,
    files: Vec<DeviceFile>,
}

impl Driver {
    pub(crate) fn ask(ports: Ports<'_>) -> Self {
        Driver {
            devices: ports.backend.devices().unwrap_or_default(),
            files: ports.host.device_files().unwrap_or_default(),
        }
    }

    /// Returns the device that a file belongs to.
    pub(crate) fn device(&self, path: &str) -> Option<&DeviceInfo> {
        let file = self.files.iter().find(|file| &*file.path == path)?;
        self.devices.iter().find(|device| file.opens(&device.id))
    }

    /// Returns the index of the device of a file; without a driver the number in the file's name.
    pub(crate) fn index(&self, path: &str) -> u32 {
        self.device(path).map_or_else(|| file_number(path), |device| device.id.index)
    }

    /// Returns the file of the device with this index.
    pub(crate) fn file(&self, index: u32) -> Option<&Arc<str>> {
        let device = self.devices.iter().find(|device| device.id.index == index)?;
        Some(&self.files.iter().find(|file| file.opens(&device.id))?.path)
    }

    /// Returns the memory of a device in use, and its total memory.
    pub(crate) fn memory(&self, ports: Ports<'_>, path: &str) -> Option<(Bytes, Bytes)> {
        let sample = ports.backend.sample(&self.device(path)?.id).ok()?;
        let memory = own_memory(&sample, ports.host);
        Some((memory.used.ok()?, memory.total.unwrap_or_default()))
    }

    /// Returns the memory of each process that the driver lists on a device.
    pub(crate) fn listed(&self, ports: Ports<'_>, path: &str) -> BTreeMap<Pid, Option<Bytes>> {
        let device = self.device(path).filter(|_| ports.host.sees_host_pids() != Ok(false));
        let listed = device.and_then(|device| ports.backend.processes(&device.id).ok());
        listed.into_iter().flatten().map(|process| (process.pid, process.memory.ok())).collect()
    }
}

/// Returns the processes that hold these devices, and, with a job, those that may belong to it.
///
/// # Errors
/// When the processes or the holders cannot be read.
pub(crate) fn suspects(
    ports: Ports<'_>,
    slurm: &dyn Slurm,
    driver: &Driver,
    paths: &BTreeSet<Arc<str>>,
    job: Option<&Job>,
) -> Result<Vec<Suspect>> {
    let files = ports.host.device_files()?;
    let scan = ports.host.holders(&files)?;
    let holders: BTreeMap<ProcessKey, &Holder> =
        scan.holders.iter().map(|holder| (holder.process, holder)).collect();
    let listed: BTreeMap<&str, _> =
        paths.iter().map(|path| (&**path, driver.listed(ports, path))).collect();
    // Without a job, only the holders matter.
    let pids = match job {
        Some(_) => ports.host.pids()?,
        None => scan.holders.iter().map(|holder| holder.process.pid).collect(),
    };
    let mut environments = Environments::default();
    let mut found = Vec::new();
    for pid in pids {
        // A process that has ended, or is not visible, is not a suspect.
        let Ok(handle) = ports.host.open(pid) else { continue };
        let Ok(process) = handle.info() else { continue };
        let holder = holders.get(&process.key).copied();
        let held = holder.into_iter().flat_map(|holder| &holder.held);
        let held: Vec<&HeldFile> = held.filter(|file| paths.contains(&file.path)).collect();
        let uses = |file: &&HeldFile| {
            let role = Role::of(Some(&process), holder, None, file.memory);
            let is_listed = || listed[&*file.path].contains_key(&pid);
            role == Role::MemoryUser || (role == Role::Monitor && is_listed())
        };
        let uses_memory = held.iter().any(uses);
        let files: BTreeSet<Arc<str>> = held.iter().map(|file| file.path.clone()).collect();
        let has_user = job.is_some_and(|job| process.uid == Ok(job.uid));
        // Only for few processes: this reads one more file.
        let uids = (has_user || !held.is_empty()).then(|| handle.uids().ok()).flatten();
        let is_users = job.zip(uids).is_some_and(|(job, uids)| uids.may_be_signalled_by(job.uid));
        if held.is_empty() && !is_users && process.slurm_job().is_none() || process.kernel_thread {
            continue;
        }
        let mark = match is_users {
            true => environments.job_of(handle),
            false => None,
        };
        found.push(Suspect { process, uids, files, uses_memory, mark, tracked_by: None });
    }
    if !found.is_empty() {
        // If no step answers, the cgroups and the environments still distinguish the jobs.
        let by_slurm = slurm.ask(Question::Processes).map(|text| tracked(&text));
        let by_slurm = by_slurm.unwrap_or_default();
        for suspect in &mut found {
            suspect.tracked_by = by_slurm.get(&suspect.process.key.pid).cloned();
        }
    }
    Ok(found)
}

/// Reads environments, until too many reads were slow.
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
            // This thread is still reading; start another one for the next process.
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
