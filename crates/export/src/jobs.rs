//! The jobs on each GPU: leases, and the Slurm jobs of its processes.

use crate::leases::names_of;
use gpu_core::{DeviceUuid, LeaseEntry, LeaseId, Pid, ProcessInfo, Share, Snapshot};
use gpu_steward::LeaseUser;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The most jobs of a GPU: dcgm-exporter repeats each of its series for each of them. Slurm jobs come
/// first, and then the largest leases.
const MOST_JOBS: usize = 16;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Job {
    /// Its number in Slurm, or the ID of its lease.
    pub(crate) id: String,
    /// Its user, if known.
    pub(crate) uid: Option<u32>,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The index of the GPU.
    pub(crate) gpu: u32,
    /// The MIG GPU instance.
    pub(crate) gpu_instance: Option<u32>,
}

/// The files of a directory for dcgm-exporter's `--hpc-job-mapping-dir`, by name: `0` for a GPU,
/// `0.3` for a MIG GPU instance; a job in each line. A GPU without a job has an empty file, because
/// dcgm-exporter fails a collection if a file disappears while it reads the directory.
pub type JobFiles = BTreeMap<String, String>;

/// The jobs of a look.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobsOf {
    jobs: BTreeMap<Place, BTreeSet<Job>>,
    /// The IDs of the jobs beyond [`MOST_JOBS`], by the index of their GPU.
    left_out: BTreeMap<u32, BTreeSet<String>>,
    processes: BTreeMap<(u32, Pid), String>,
}

impl JobsOf {
    pub(crate) fn look(
        snapshot: &Snapshot,
        used: &BTreeMap<(&LeaseId, u32), Vec<LeaseUser>>,
        top: &[LeaseEntry],
    ) -> Self {
        let mut found = JobsOf::default();
        found.add_slurm_jobs(snapshot);
        found.add_leases(snapshot, top);
        found.add_users(snapshot, used);
        found
    }

    /// Adds the jobs of processes that the driver lists, by their cgroups. One that a user has named
    /// does not count.
    fn add_slurm_jobs(&mut self, snapshot: &Snapshot) {
        for device in &snapshot.devices {
            for process in device.processes.iter().flatten() {
                let Ok(info) = snapshot.process(process.pid) else { continue };
                let Some(id) = slurm_job(info) else { continue };
                let gpu = device.id().index;
                let place = Place { gpu, gpu_instance: process.gpu_instance };
                self.add(place, Job { id: id.to_owned(), uid: info.uid.ok() });
                self.processes.insert((gpu, process.pid), id.to_owned());
            }
        }
    }

    /// Adds the leases, the largest first, so that many small ones hide none of them. One that was
    /// taken within a Slurm job is that job.
    fn add_leases(&mut self, snapshot: &Snapshot, top: &[LeaseEntry]) {
        let mut largest: Vec<&LeaseEntry> = top.iter().collect();
        largest.sort_by_key(|lease| match lease.claim.share {
            Share::Whole => Reverse(u64::MAX),
            Share::Memory(bytes) => Reverse(bytes.0),
        });
        for lease in largest {
            let root = snapshot.process(lease.root.pid).ok();
            let root = root.filter(|info| info.key.definitely_same(&lease.root));
            let id = root.and_then(slurm_job).unwrap_or(lease.id.as_str());
            let job = Job { id: id.to_owned(), uid: Some(lease.owner) };
            for device in &snapshot.devices {
                let gpu = device.id().index;
                let uuid = device.id().uuid.as_ref();
                if uuid.is_ok_and(|uuid| lease.devices.contains(uuid)) {
                    self.add(Place { gpu, gpu_instance: None }, job.clone());
                }
                for part in device.mig.iter().flatten() {
                    let uuid = part.uuid.as_ref();
                    if uuid.is_ok_and(|uuid| lease.devices.contains(uuid)) {
                        self.add(Place { gpu, gpu_instance: part.gpu_instance }, job.clone());
                    }
                }
            }
        }
    }

    /// Adds the processes that use devices under leases.
    fn add_users(&mut self, snapshot: &Snapshot, used: &BTreeMap<(&LeaseId, u32), Vec<LeaseUser>>) {
        let mut devices: BTreeMap<&DeviceUuid, u32> = BTreeMap::new();
        for device in snapshot.devices.iter().rev() {
            devices.extend(names_of(device).map(|name| (name, device.id().index)));
        }
        for ((id, _), users) in used {
            for user in users {
                let Some(gpu) = devices.get(&user.device) else { continue };
                let key = (*gpu, user.pid);
                self.processes.entry(key).or_insert_with(|| id.to_string());
            }
        }
    }

    fn add(&mut self, place: Place, job: Job) {
        let jobs = self.jobs.entry(place).or_default();
        if jobs.iter().any(|known| known.id == job.id) {
            return;
        }
        match jobs.len() < MOST_JOBS {
            true => drop(jobs.insert(job)),
            false => drop(self.left_out.entry(place.gpu).or_default().insert(job.id)),
        }
    }

    /// Returns how many jobs on a GPU are not among those that are kept.
    pub(crate) fn left_out(&self, gpu: u32) -> u64 {
        self.left_out.get(&gpu).map_or(0, |ids| ids.len() as u64)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (Place, &Job)> {
        self.jobs.iter().flat_map(|(place, jobs)| jobs.iter().map(|job| (*place, job)))
    }

    /// Returns the job of a process on a GPU.
    pub(crate) fn of(&self, gpu: u32, pid: Pid) -> Option<&str> {
        self.processes.get(&(gpu, pid)).map(String::as_str)
    }

    /// Returns a file for each GPU and each MIG GPU instance. A job on a whole GPU is on all of its
    /// instances.
    pub(crate) fn files(&self, snapshot: &Snapshot) -> JobFiles {
        let lines = |places: &[Place]| {
            let jobs = places.iter().filter_map(|place| self.jobs.get(place)).flatten();
            let ids: BTreeSet<&str> = jobs.map(|job| &*job.id).collect();
            ids.into_iter().map(|id| format!("{id}\n")).collect::<String>()
        };
        let mut files = JobFiles::new();
        for device in &snapshot.devices {
            let gpu = device.id().index;
            let whole = Place { gpu, gpu_instance: None };
            files.insert(gpu.to_string(), lines(&[whole]));
            for id in device.mig.iter().flatten().filter_map(|part| part.gpu_instance) {
                let part = Place { gpu, gpu_instance: Some(id) };
                files.insert(format!("{gpu}.{id}"), lines(&[whole, part]));
            }
        }
        files
    }
}

/// Returns the Slurm job of a process. Its number is the name of a file's line and of a label.
fn slurm_job(info: &ProcessInfo) -> Option<&str> {
    let job = info.slurm_job()?;
    let is_number = !job.id.is_empty() && job.id.bytes().all(|b| b.is_ascii_digit());
    (is_number && job.id.len() <= 20).then_some(&*job.id)
}
