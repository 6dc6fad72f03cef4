//! The condition that makes a process a target.

use gpu_core::{Pid, ProcessInfo, ProcessKey, file_number};
use serde::{Serialize, Serializer};
use std::sync::Arc;

/// How many processes end together with one.
///
/// A scope wider than a process carries every process of the machine: without that list it would be
/// as narrow as one process, and members that protect a scope would be missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope<'a> {
    /// The process alone.
    #[default]
    Process,
    /// Its process group, among all these processes.
    Group(&'a [ProcessInfo]),
    /// Its container, pod or Slurm job, among all these processes; never a login session.
    Container(&'a [ProcessInfo]),
}

impl<'a> Scope<'a> {
    /// Returns every process of the machine, if the scope is wider than a process.
    pub(super) fn everyone(self) -> &'a [ProcessInfo] {
        match self {
            Scope::Process => &[],
            Scope::Group(everyone) | Scope::Container(everyone) => everyone,
        }
    }
}

/// The condition that makes a process a valid target, checked again before each signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Membership {
    /// It has one of these device files open, by path. The audit log has their numbers.
    #[serde(serialize_with = "numbers")]
    Holds(Vec<Arc<str>>),
    /// It is in this process group.
    Group(Pid),
    /// It is in this cgroup or below.
    Cgroup(String),
    /// It descends from this process.
    Descends(ProcessKey),
    /// It is left over from this job of a scheduler: the user of the job may signal it, and its
    /// environment or the scheduler names the job.
    Job(JobMark),
}

fn numbers<S: Serializer>(paths: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| file_number(path)))
}

// The caller knows it from the scheduler, or has read the environment of the opened process. A
// process keeps that until it executes a program, which is checked, so it is not read again: it is
// in the memory of the process, which could block the reader.
/// The job of a scheduler that a process is left over from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobMark {
    /// Number of the job.
    pub id: String,
    /// User ID of the job's user.
    pub uid: u32,
}

impl JobMark {
    /// Returns whether a process can belong to the job by its cgroup: it is in that of no other
    /// job.
    fn admits(&self, process: &ProcessInfo) -> bool {
        process.slurm_job().is_none_or(|job| job.id == self.id)
    }
}

impl Membership {
    /// Returns the user of the processes, if they are those of a job.
    pub(crate) fn user(&self) -> Option<u32> {
        match self {
            Membership::Job(mark) => Some(mark.uid),
            Membership::Holds(_)
            | Membership::Group(_)
            | Membership::Cgroup(_)
            | Membership::Descends(_) => None,
        }
    }

    /// Returns the device files that make it a target, by path; none in a wider scope.
    pub(crate) fn files(&self) -> &[Arc<str>] {
        match self {
            Membership::Holds(files) => files,
            Membership::Group(_)
            | Membership::Cgroup(_)
            | Membership::Descends(_)
            | Membership::Job(_) => &[],
        }
    }

    /// Returns the cgroup of a container, pod or job to be ended.
    pub(crate) fn cgroup(&self) -> Option<&str> {
        match self {
            Membership::Cgroup(cgroup) => Some(cgroup),
            Membership::Holds(_)
            | Membership::Group(_)
            | Membership::Descends(_)
            | Membership::Job(_) => None,
        }
    }

    /// Returns whether a process is in a scope by its group or cgroup. Its files and its user are
    /// checked on the opened process, and its descent through its ancestors.
    pub(crate) fn covers(&self, process: &ProcessInfo) -> bool {
        match self {
            Membership::Holds(_) | Membership::Descends(_) => true,
            Membership::Group(group) => process.group == Ok(*group),
            Membership::Job(mark) => mark.admits(process),
            Membership::Cgroup(cgroup) => process.cgroup.as_ref().is_ok_and(|path| {
                path.strip_prefix(cgroup.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
        }
    }
}
