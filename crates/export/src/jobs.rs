//! The jobs on each GPU: leases, and the Slurm jobs of its processes.

use crate::labels::names_of;
use gpu_core::{Bytes, DeviceUuid, LeaseEntry, LeaseId, Pid, ProcessInfo, Snapshot};
use gpu_steward::LeaseUser;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The most jobs of a GPU: dcgm-exporter repeats each of its series for each of them. Slurm jobs come
/// first, then the leases in use, then the earliest.
const MOST_JOBS: usize = 16;
/// The most leases of one user on a GPU.
const MOST_LEASES_PER_USER: usize = 8;

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Job {
    /// Its number in Slurm, or the ID of its lease.
    pub(crate) id: String,
    /// Its user, if known.
    pub(crate) uid: Option<u32>,
}

/// The device of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobLocation {
    /// The index of the GPU.
    pub(crate) gpu: u32,
    /// The MIG GPU instance.
    pub(crate) gpu_instance: Option<u32>,
}

/// The files of a directory for dcgm-exporter's `--hpc-job-mapping-dir`, by name: `0` for a GPU,
/// `0.3` for a MIG GPU instance; a job in each line. A GPU without a job has an empty file, because
/// dcgm-exporter fails a collection if a file disappears while it reads the directory.
pub type JobFiles = BTreeMap<String, String>;

/// The jobs of a snapshot.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobsOf {
    jobs: BTreeMap<JobLocation, BTreeSet<Job>>,
    /// The IDs of the jobs beyond [`MOST_JOBS`], by the index of their GPU.
    left_out: BTreeMap<u32, BTreeSet<String>>,
    processes: BTreeMap<(u32, Pid), String>,
}

impl JobsOf {
    pub(crate) fn find(
        snapshot: &Snapshot,
        used: &BTreeMap<(&LeaseId, u32), Vec<LeaseUser>>,
        top: &[LeaseEntry],
        in_use: &BTreeSet<(&LeaseId, u32, &DeviceUuid)>,
    ) -> Self {
        let mut found = JobsOf::default();
        found.add_slurm_jobs(snapshot);
        found.add_leases(snapshot, top, in_use);
        found.add_users(snapshot, used);
        found
    }

    /// Adds the jobs of processes that the driver lists, by their cgroups. A cgroup that a user has
    /// named does not count.
    fn add_slurm_jobs(&mut self, snapshot: &Snapshot) {
        for device in &snapshot.devices {
            for process in device.processes.iter().flatten() {
                let Ok(info) = snapshot.process(process.pid) else { continue };
                let Some(id) = slurm_job(info) else { continue };
                let gpu = device.id().index;
                let location = JobLocation { gpu, gpu_instance: process.gpu_instance };
                if !self.has(location, id) {
                    self.add(location, Job { id: id.to_owned(), uid: info.uid.ok() });
                }
                self.processes.insert((gpu, process.pid), id.to_owned());
            }
        }
    }

    /// Adds the leases. A user can write any lease, with any ID and ticket. So only IDs in the form
    /// of gpuws count, which are never numbers of Slurm jobs. Leases under which a process uses the
    /// device come first, then the earliest. A lease that conflicts with one of these, or with an
    /// earlier one of its user, was not granted. Of two conflicting leases of different users,
    /// neither in use, either may be forged, so both stay. A lease that was taken within a Slurm
    /// job counts as that job.
    fn add_leases(
        &mut self,
        snapshot: &Snapshot,
        top: &[LeaseEntry],
        in_use: &BTreeSet<(&LeaseId, u32, &DeviceUuid)>,
    ) {
        let locations = snapshot.devices.iter().flat_map(|device| {
            let gpu = device.id().index;
            let whole = JobLocation { gpu, gpu_instance: None };
            let whole = (whole, device.id().lease_key().ok(), device.memory_total().ok());
            let parts = device.partitions.iter().flatten().map(move |part| {
                let location = JobLocation { gpu, gpu_instance: part.gpu_instance };
                (location, part.uuid.as_ref().ok().map(Cow::Borrowed), part.memory.total.ok())
            });
            std::iter::once(whole).chain(parts)
        });
        for (location, uuid, memory) in locations {
            let Some(uuid) = uuid.as_deref() else { continue };
            let has = |lease: &&LeaseEntry| lease.devices.contains(uuid) && lease.id.is_random();
            let mut leases: Vec<&LeaseEntry> = top.iter().filter(has).collect();
            let is_used = |lease: &LeaseEntry| in_use.contains(&(&lease.id, lease.owner, uuid));
            leases.sort_by_key(|lease| (!is_used(lease), lease.ticket, &lease.id, lease.owner));
            let mut of_used = Granted { room: memory, is_shared: None };
            let mut of_owner: BTreeMap<u32, Granted> = BTreeMap::new();
            let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
            for lease in leases {
                let granted = if is_used(lease) {
                    &mut of_used
                } else {
                    of_owner.entry(lease.owner).or_insert(of_used)
                };
                if !granted.add(lease) {
                    continue;
                }
                let root = snapshot.process(lease.root.pid).ok().filter(|info| {
                    info.key.definitely_same(&lease.root) && info.uid == Ok(lease.owner)
                });
                let id = root.and_then(slurm_job).unwrap_or(lease.id.as_str());
                let job = Job { id: id.to_owned(), uid: Some(lease.owner) };
                let count = counts.entry(lease.owner).or_default();
                *count += 1;
                if *count <= MOST_LEASES_PER_USER {
                    self.add(location, job)
                } else {
                    self.leave_out(location, job)
                }
            }
        }
    }

    /// Adds the processes that use devices under leases.
    fn add_users(&mut self, snapshot: &Snapshot, used: &BTreeMap<(&LeaseId, u32), Vec<LeaseUser>>) {
        let mut devices: BTreeMap<Cow<'_, DeviceUuid>, u32> = BTreeMap::new();
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

    fn has(&self, location: JobLocation, id: &str) -> bool {
        self.jobs.get(&location).into_iter().flatten().any(|job| job.id == id)
    }

    fn add(&mut self, location: JobLocation, job: Job) {
        let jobs = self.jobs.entry(location).or_default();
        if jobs.len() < MOST_JOBS || jobs.contains(&job) {
            jobs.insert(job);
        } else {
            self.leave_out(location, job);
        }
    }

    fn leave_out(&mut self, location: JobLocation, job: Job) {
        self.left_out.entry(location.gpu).or_default().insert(job.id);
    }

    /// Returns how many jobs on a GPU exceed the limit and were left out.
    pub(crate) fn left_out(&self, gpu: u32) -> u64 {
        self.left_out.get(&gpu).map_or(0, |ids| ids.len() as u64)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (JobLocation, &Job)> {
        self.jobs.iter().flat_map(|(location, jobs)| jobs.iter().map(|job| (*location, job)))
    }

    /// Returns the job of a process on a GPU.
    pub(crate) fn of(&self, gpu: u32, pid: Pid) -> Option<&str> {
        self.processes.get(&(gpu, pid)).map(String::as_str)
    }

    /// Returns a file for each GPU and each MIG GPU instance. A job on a whole GPU is on all of its
    /// instances.
    pub(crate) fn files(&self, snapshot: &Snapshot) -> JobFiles {
        let lines = |locations: &[JobLocation]| {
            let jobs = locations.iter().filter_map(|location| self.jobs.get(location)).flatten();
            let ids: BTreeSet<&str> = jobs.map(|job| &*job.id).collect();
            ids.into_iter().map(|id| format!("{id}\n")).collect::<String>()
        };
        let mut files = JobFiles::new();
        for device in &snapshot.devices {
            let gpu = device.id().index;
            let whole = JobLocation { gpu, gpu_instance: None };
            files.insert(gpu.to_string(), lines(&[whole]));
            for id in device.partitions.iter().flatten().filter_map(|part| part.gpu_instance) {
                let part = JobLocation { gpu, gpu_instance: Some(id) };
                files.insert(format!("{gpu}.{id}"), lines(&[whole, part]));
            }
        }
        files
    }
}

/// The part of a device that its leases leave.
#[derive(Clone, Copy)]
struct Granted {
    /// The memory, if known.
    room: Option<Bytes>,
    /// Whether they have shares; `None` if there is no lease.
    is_shared: Option<bool>,
}

impl Granted {
    /// Adds a lease; returns false if gpuws cannot have granted it along with the others.
    fn add(&mut self, lease: &LeaseEntry) -> bool {
        let share = lease.claim.memory();
        let room = match (self.is_shared, share, self.room) {
            (None, None, room) => room,
            (None | Some(true), Some(share), Some(room)) if share <= room => {
                Some(room.saturating_sub(share))
            }
            (None | Some(true), Some(_), None) => None,
            _ => return false,
        };
        (self.room, self.is_shared) = (room, Some(share.is_some()));
        true
    }
}

/// Returns the Slurm job of a process. Its number is the name of a file's line and of a label.
fn slurm_job(info: &ProcessInfo) -> Option<&str> {
    let job = info.slurm_job()?;
    let is_number = !job.id.is_empty() && job.id.bytes().all(|b| b.is_ascii_digit());
    (is_number && job.id.len() <= 20).then_some(&*job.id)
}
