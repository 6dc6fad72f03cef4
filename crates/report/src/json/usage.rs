//! `gpuws report --json`.

use super::Version;
use super::names::Origin;
use crate::usage::Usage;
use gpu_accounting::{Amounts, GpuAccount, Owner, Work};
use gpu_core::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// Accounts of the GPUs of a machine over time. The rows of each list add up to the total, apart
/// from the peak and the energy that is not attributed.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// Version of this object's format.
    pub schema: Version,
    /// Where the data comes from.
    pub origin: Origin,
    /// Name of the simulated machine. Null for any other origin.
    pub machine: Option<String>,
    /// Hostname of the machine. Null if unknown.
    pub hostname: Option<String>,
    /// Names of the other machines whose samples are counted too.
    pub other_machines: Vec<String>,
    /// Earliest time of a sample, in UTC, as RFC 3339. Null without any.
    pub first_sample_at: Option<String>,
    /// Latest time of a sample, in UTC, as RFC 3339. Null without any.
    pub last_sample_at: Option<String>,
    /// Number of samples.
    pub sample_count: usize,
    /// Time between the samples without the gaps, in milliseconds.
    pub watched_ms: u64,
    /// Number of intervals that were too long to be watched.
    pub gap_count: usize,
    /// Duration of all gaps, in milliseconds.
    pub gap_ms: u64,
    /// The longest gaps, in order of time.
    pub gaps: Vec<Gap>,
    /// How often the clock was set back between two samples.
    pub clock_set_back_count: usize,
    /// What could not be read, as sentence fragments.
    pub damage: Vec<String>,
    /// Totals of the machine.
    pub total: Booked,
    /// Energy that no user's compute accounts for, in millijoules.
    pub unattributed_energy_mj: u64,
    /// The users.
    pub users: Vec<User>,
    /// Jobs, containers, pods, services and commands.
    pub jobs: Vec<Job>,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// The days of the local time zone.
    pub days: Vec<OneDay>,
}

/// An interval that was not watched.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gap {
    /// Time of the sample before it, in UTC, as RFC 3339.
    pub from: String,
    /// Time of the sample after it, in UTC, as RFC 3339.
    pub to: String,
}

/// The counted usage.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Booked {
    /// GPU time with memory on a GPU, in milliseconds. Users who share a GPU each hold it in
    /// proportion to their memory.
    pub held_ms: u64,
    /// GPU time in which kernels ran, in milliseconds.
    pub used_ms: u64,
    /// Part of the held time without compute, in milliseconds.
    pub idle_ms: u64,
    /// The most memory at once, in bytes.
    pub peak_memory_bytes: u64,
    /// Energy, in millijoules: for a user or a job in proportion to the time used.
    pub energy_mj: u64,
}

/// A user.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct User {
    /// Name of the user. Null if unknown, and for unlisted memory.
    pub user: Option<String>,
    /// User ID, if the user has no known name. Null otherwise.
    pub uid: Option<u32>,
    /// Whether this is the memory that no process listed by the driver accounts for.
    pub unlisted: bool,
    /// The counted usage.
    #[serde(flatten)]
    pub booked: Booked,
}

/// A job, or the runs of a command.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Job {
    /// Kind of the job.
    pub kind: JobKind,
    /// Its number, ID, unit or command. Null if unknown.
    pub name: Option<String>,
    /// Name of the user. Null if unknown.
    pub user: Option<String>,
    /// User ID, if the user has no known name. Null otherwise.
    pub uid: Option<u32>,
    /// The counted usage.
    #[serde(flatten)]
    pub booked: Booked,
}

/// Kind of a job.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// A Slurm job.
    SlurmJob,
    /// A Kubernetes pod.
    Pod,
    /// A container.
    Container,
    /// A service of systemd.
    Service,
    /// All runs of a command.
    Command,
    /// Jobs beyond the first ten thousand.
    Others,
    /// The process is unknown.
    Unknown,
    /// Memory that no process listed by the driver accounts for.
    Unlisted,
}

/// A GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// NVML index of the GPU.
    pub index: u32,
    /// UUID of the GPU. Null if unknown.
    pub uuid: Option<String>,
    /// Product name. Null if unknown.
    pub name: Option<String>,
    /// Watched time in which its processes were known, in milliseconds.
    pub observed_ms: u64,
    /// Held time in which no utilization was known, in milliseconds: use in it is not counted.
    pub unmeasured_ms: u64,
    /// Part of its energy that no user's compute accounts for, in millijoules.
    pub unattributed_energy_mj: u64,
    /// What was booked; its whole energy.
    #[serde(flatten)]
    pub booked: Booked,
}

/// A day.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OneDay {
    /// Date in the local time zone: 2026-11-24.
    pub day: String,
    /// What was booked; the whole energy.
    #[serde(flatten)]
    pub booked: Booked,
}

impl Report {
    /// Returns the object of a report.
    pub fn of(usage: &Usage<'_>) -> Self {
        let accounts = usage.accounts;
        let time = |at: Timestamp| at.to_string();
        let gaps = accounts.gaps();
        let user = |(owner, amounts): (&Owner, _)| {
            let (user, uid) = named(owner);
            let unlisted = *owner == Owner::Unlisted;
            User { user, uid, unlisted, booked: booked(amounts) }
        };
        let job = |(owner, work, amounts): (&Owner, &Work, _)| {
            let (user, uid) = named(owner);
            let (kind, name) = kind(owner, work);
            Job { kind, name, user, uid, booked: booked(amounts) }
        };
        let gpu = |gpu: &GpuAccount| Gpu {
            index: gpu.id.index,
            uuid: gpu.id.uuid.as_ref().ok().map(ToString::to_string),
            name: gpu.name.clone(),
            observed_ms: millis(gpu.observed),
            unmeasured_ms: millis(gpu.unmeasured),
            unattributed_energy_mj: millijoules(gpu.unattributed),
            booked: booked(&gpu.amounts),
        };
        let machine = match &usage.origin {
            gpu_core::Origin::Simulated(name) => Some(name.clone()),
            _ => None,
        };
        let longest = gaps.longest.iter();
        Report {
            schema: Version,
            origin: (&usage.origin).into(),
            machine,
            hostname: usage.hostname.clone(),
            other_machines: usage.other_machines.clone(),
            first_sample_at: accounts.span().map(|(first, _)| time(first)),
            last_sample_at: accounts.span().map(|(_, last)| time(last)),
            sample_count: accounts.snapshot_count(),
            watched_ms: millis(accounts.watched()),
            gap_count: gaps.count,
            gap_ms: millis(gaps.time),
            gaps: longest.map(|gap| Gap { from: time(gap.from), to: time(gap.to) }).collect(),
            clock_set_back_count: gaps.set_back,
            damage: usage.damage.clone(),
            total: booked(accounts.total()),
            unattributed_energy_mj: millijoules(accounts.unattributed()),
            users: accounts.users().map(user).collect(),
            jobs: accounts.jobs().map(job).collect(),
            gpus: accounts.gpus().iter().map(gpu).collect(),
            days: accounts
                .days()
                .map(|(day, amounts)| OneDay { day: day.to_string(), booked: booked(amounts) })
                .collect(),
        }
    }
}

fn named(owner: &Owner) -> (Option<String>, Option<u32>) {
    match owner {
        Owner::User(name) => (Some(name.clone()), None),
        Owner::Uid(uid) => (None, Some(*uid)),
        Owner::Unknown | Owner::Unlisted => (None, None),
    }
}

fn kind(owner: &Owner, work: &Work) -> (JobKind, Option<String>) {
    let (kind, name) = match work {
        _ if *owner == Owner::Unlisted => return (JobKind::Unlisted, None),
        Work::SlurmJob(name) => (JobKind::SlurmJob, name),
        Work::Pod(name) => (JobKind::Pod, name),
        Work::Container(name) => (JobKind::Container, name),
        Work::Service(name) => (JobKind::Service, name),
        Work::Command(name) => (JobKind::Command, name),
        Work::Others => return (JobKind::Others, None),
        Work::Unknown => return (JobKind::Unknown, None),
    };
    (kind, Some(name.clone()))
}

fn booked(amounts: &Amounts) -> Booked {
    Booked {
        held_ms: millis(amounts.held),
        used_ms: millis(amounts.used),
        idle_ms: millis(amounts.idle),
        peak_memory_bytes: amounts.peak.0,
        energy_mj: millijoules(amounts.energy),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn millijoules(energy: gpu_accounting::Energy) -> u64 {
    u64::try_from(energy.0 / 1_000).unwrap_or(u64::MAX)
}
