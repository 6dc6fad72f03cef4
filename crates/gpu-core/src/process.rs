//! A process.

use crate::absent::{Absent, Reading};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::executable::Executable;
use crate::id::{Pid, ProcessKey};
use crate::service::{ServiceUnit, SystemService, is_user_manager, service_of};
use crate::units::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// State of a process, from /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ProcessState {
    /// Running or runnable.
    Running,
    /// In interruptible sleep, or an idle kernel thread.
    Sleeping,
    /// In uninterruptible sleep: no signal ends it yet.
    Uninterruptible,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Ended and not yet reaped by its parent; other threads may be alive.
    Zombie,
    /// Any other state.
    Other,
}

/// Kind of workload that a process belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum WorkloadKind {
    /// A container outside Kubernetes.
    Container,
    /// A Kubernetes pod.
    Pod,
    /// A Slurm job.
    SlurmJob,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadKind::Container => "container",
            WorkloadKind::Pod => "pod",
            WorkloadKind::SlurmJob => "Slurm job",
        })
    }
}

/// Container, pod or job of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Workload {
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// Container ID, pod UID or job number.
    pub id: String,
    /// Path of the cgroup that contains exactly this workload.
    pub cgroup: String,
}

impl Workload {
    /// Returns whether a user may have chosen its name: users create cgroups of any name below
    /// their own service manager (`user@UID.service`), so that name is no evidence.
    pub fn is_named_by_user(&self) -> bool {
        self.cgroup.split('/').any(is_user_manager)
    }
}

/// Kubernetes pod of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Pod"))]
pub struct PodName {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Name of the container. Null if unknown.
    pub container: Option<String>,
    /// The evidence for the name.
    pub evidence: PodEvidence,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)?;
        match &self.container {
            Some(container) => write!(f, " ({container})"),
            None => Ok(()),
        }
    }
}

/// The evidence for the name of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PodEvidence {
    /// The kubelet has a pod with the UID that the cgroup has.
    Uid,
    /// The devices of the process are assigned to this pod alone.
    Devices,
}

/// How much of a process is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessDetail {
    /// Everything.
    #[default]
    Whole,
    /// What a list of processes shows. All else may be `NotRecorded`: the executable, the cgroup
    /// and workload, the PIDs of other namespaces, whether it is traced or ignores SIGHUP. A
    /// process with the name of a [`SystemService`](crate::SystemService) is read whole, because
    /// its executable decides whether it is one.
    Outline,
    /// An outline with the cgroup and the workload: what the process works for.
    WithJob,
}

/// A process, as `/proc` shows it at one moment.
///
/// `name` and `command_line` are chosen by the process: hostile text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessInfo {
    /// PID and start time.
    pub key: ProcessKey,
    /// The short name (`comm`), at most 15 bytes on Linux.
    pub name: String,
    /// The command line, one item per argument; at most 4 KiB of it.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub command_line: Reading<Arc<[String]>>,
    /// Effective user ID.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub uid: Reading<u32>,
    /// Name of that user.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub user: Reading<String>,
    /// The parent.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub parent: Reading<Pid>,
    /// Process group.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub group: Reading<Pid>,
    /// Session.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub session: Reading<Pid>,
    /// It has a controlling terminal.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub has_terminal: Reading<bool>,
    /// Its executable; `NotFound` for a kernel thread and for a process whose first thread has
    /// ended.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub executable: Reading<Box<Executable>>,
    /// It ignores SIGHUP, as a program that was started with nohup and its children do.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub ignores_hangup: Reading<bool>,
    /// The process that traces it, such as a debugger; `NotFound` if there is none.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", default = "not_recorded"))]
    pub tracer: Reading<Pid>,
    /// State of the first thread.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub state: Reading<ProcessState>,
    /// The number of live threads, including the first one unless it is a zombie.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub live_threads: Reading<u32>,
    /// Its start time, on the wall clock.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "started_at_unix_ms"))]
    pub started_at: Reading<Timestamp>,
    /// CPU time used so far, user and system.
    #[cfg_attr(feature = "serde", serde(with = "millis", rename = "cpu_time_ms"))]
    pub cpu_time: Reading<Duration>,
    /// Host memory in use now (resident set size, shared pages included).
    #[cfg_attr(feature = "serde", serde(with = "crate::reading", rename = "resident_bytes"))]
    #[cfg_attr(feature = "serde", serde(default = "not_recorded"))]
    pub resident: Reading<Bytes>,
    /// Its PIDs from the caller's namespace inward (`NSpid`): more than one means that it lives in
    /// a separate PID namespace.
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub namespace_pids: Reading<Vec<Pid>>,
    /// The cgroup path (version 2, or the `memory`, `pids` or first hierarchy of version 1).
    #[cfg_attr(feature = "serde", serde(with = "crate::reading"))]
    pub cgroup: Reading<String>,
    /// The container, pod or job named by that path.
    pub workload: Option<Box<Workload>>,
    /// The name of the pod in that path; `None` if there is no pod or its name is unknown.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub pod: Option<Box<PodName>>,
    /// It is a kernel thread.
    pub kernel_thread: bool,
}

/// Wraps the processes so that snapshots can share them.
pub(crate) fn shared(answers: Vec<Result<ProcessInfo>>) -> Vec<Result<Arc<ProcessInfo>>> {
    answers.into_iter().map(|answer| answer.map(Arc::new)).collect()
}

impl ProcessInfo {
    /// Returns what may be known of the process if it is read in this detail.
    #[must_use]
    pub fn in_detail(self, detail: ProcessDetail) -> Self {
        let not_recorded = Absent::NotRecorded;
        let is_whole = detail == ProcessDetail::Whole || SystemService::named(&self.name).is_some();
        let mut seen = self;
        if !is_whole {
            seen.executable = Err(not_recorded);
            seen.ignores_hangup = Err(not_recorded);
            seen.tracer = Err(not_recorded);
            seen.namespace_pids = Err(not_recorded);
        }
        if !is_whole && detail == ProcessDetail::Outline {
            seen.cgroup = Err(not_recorded);
            seen.workload = None;
            seen.pod = None;
        }
        seen
    }

    /// Returns whether it belongs to a user, given by name or UID.
    pub fn is_of(&self, user: &str) -> bool {
        self.user.as_ref().is_ok_and(|name| name == user)
            || self.uid.is_ok_and(|uid| user.parse() == Ok(uid))
    }

    /// Returns the systemd service that the process belongs to.
    pub fn service(&self) -> Option<ServiceUnit<'_>> {
        service_of(self.cgroup.as_deref().ok()?)
    }

    /// Returns the Slurm job whose cgroup the process is in, unless a user may have chosen the name
    /// of that cgroup.
    pub fn slurm_job(&self) -> Option<&Workload> {
        let is_job = |workload: &&Workload| {
            workload.kind == WorkloadKind::SlurmJob && !workload.is_named_by_user()
        };
        self.workload.as_deref().filter(is_job)
    }

    /// Returns a process known only by PID and name, as from text of another tool.
    pub fn from_name(pid: Pid, name: impl Into<String>) -> Self {
        use Absent::NotRecorded;
        ProcessInfo {
            key: ProcessKey { pid, start: None },
            name: name.into(),
            command_line: Err(NotRecorded),
            uid: Err(NotRecorded),
            user: Err(NotRecorded),
            parent: Err(NotRecorded),
            group: Err(NotRecorded),
            session: Err(NotRecorded),
            has_terminal: Err(NotRecorded),
            executable: Err(NotRecorded),
            ignores_hangup: Err(NotRecorded),
            tracer: Err(NotRecorded),
            state: Err(NotRecorded),
            live_threads: Err(NotRecorded),
            started_at: Err(NotRecorded),
            cpu_time: Err(NotRecorded),
            resident: Err(NotRecorded),
            namespace_pids: Err(NotRecorded),
            cgroup: Err(NotRecorded),
            workload: None,
            pod: None,
            kernel_thread: false,
        }
    }
}

/// The value of a field in a recording that predates the field.
#[cfg(feature = "serde")]
fn not_recorded<T>() -> Reading<T> {
    Err(Absent::NotRecorded)
}

/// Writes a duration as whole milliseconds.
#[cfg(feature = "serde")]
mod millis {
    use crate::absent::{Reading, reading};
    use serde::{Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(
        time: &Reading<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let millis = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        reading::serialize(&millis, serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Reading<Duration>, D::Error> {
        Ok(reading::deserialize::<u64, D>(deserializer)?.map(Duration::from_millis))
    }
}
