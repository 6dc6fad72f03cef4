//! The processes that are to be ended, and those that must not be.

use crate::json::Process;
use crate::json::names::Role;
use gpu_core::Snapshot;
use serde::Serialize;

/// A process to end.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Target<'a> {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// What must still be true of the process before each signal.
    pub membership: Membership<'a>,
    /// ID of the process whose group, container or job it belongs to; otherwise its own ID.
    pub on_account_of_pid: u32,
    /// Why it is to be ended, as a sentence fragment.
    pub why: &'a str,
    /// What to know before confirming, one sentence fragment each.
    pub warnings: &'a [String],
}

/// What makes a process a target, checked again before each signal.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Membership<'a> {
    /// The process has one of these device files (/dev/nvidiaN), by minor number.
    Holds(Vec<u32>),
    /// The process is in this process group.
    Group(u32),
    /// The process is in this cgroup or below it.
    Cgroup(&'a str),
    /// The process descends from this one.
    Descends(ProcessKey),
    /// The process is left over from this job of a scheduler.
    Job(JobMark<'a>),
}

/// The job of a scheduler that a process is left over from.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobMark<'a> {
    /// Number of the job.
    pub id: &'a str,
    /// User ID of the job's user.
    pub uid: u32,
}

/// A process, also if its PID is reused later.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessKey {
    /// Process ID.
    pub pid: u32,
    /// Start time, in clock ticks since boot (field 22 of /proc/PID/stat). Null if unknown.
    pub start_ticks: Option<u64>,
}

/// A process that is not ended.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused<'a> {
    /// Process ID.
    pub pid: u32,
    /// Short name (comm) of the process. Null if unknown.
    pub name: Option<&'a str>,
    /// Why it is not ended.
    pub why: Refusal,
}

/// Why a process is not ended.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// It is PID 1.
    Init,
    /// It is a kernel thread.
    KernelThread,
    /// It is gpuws itself or one of its ancestors.
    OwnAncestry,
    /// It is a display server, monitor or daemon.
    Role(Role),
    /// The user protects it.
    Protected,
    /// Its start time is unknown, so another process could reuse its PID unnoticed.
    UnknownIdentity,
    /// The PID belonged to another process when the user chose it.
    NotTheSame,
    /// It holds no GPU, or none of the requested ones.
    HoldsNothing,
    /// It belongs to none of the requested users.
    OtherUser,
    /// It does not exist or could not be read.
    NotSeen,
    /// It leads a session, as a login shell does.
    LeadsSession,
    /// It is part of a login session.
    LoginSession,
    /// Its parent is not visible and may be a login service.
    ParentNotSeen,
    /// The other processes of its group or container are unknown.
    ScopeNotSeen,
    /// It belongs to no container, pod or job.
    NoContainer,
    /// Its group or container contains a process that must not be ended: the ID of that process and
    /// the reason.
    ScopeHolds(u32, Box<Refusal>),
}

impl<'a> Target<'a> {
    pub(super) fn of(snapshot: &Snapshot, known: &'a gpu_reaper::Target) -> Self {
        Target {
            process: Process::of(snapshot, known.key.pid),
            membership: Membership::of(&known.membership),
            on_account_of_pid: known.on_account_of.0,
            why: &known.why,
            warnings: &known.warnings,
        }
    }
}

impl<'a> Membership<'a> {
    fn of(known: &'a gpu_reaper::Membership) -> Self {
        match known {
            gpu_reaper::Membership::Holds(files) => {
                Membership::Holds(files.iter().map(|path| gpu_core::file_number(path)).collect())
            }
            gpu_reaper::Membership::Group(group) => Membership::Group(group.0),
            gpu_reaper::Membership::Cgroup(cgroup) => Membership::Cgroup(cgroup),
            gpu_reaper::Membership::Descends(key) => Membership::Descends(ProcessKey {
                pid: key.pid.0,
                start_ticks: key.start.map(|start| start.0),
            }),
            gpu_reaper::Membership::Job(mark) => {
                Membership::Job(JobMark { id: &mark.id, uid: mark.uid })
            }
        }
    }
}

impl<'a> Refused<'a> {
    pub(super) fn of(known: &'a gpu_reaper::Refused) -> Self {
        Refused { pid: known.pid.0, name: known.name.as_deref(), why: Refusal::of(&known.why) }
    }
}

impl Refusal {
    fn of(known: &gpu_reaper::Refusal) -> Self {
        use gpu_reaper::Refusal as Known;
        match known {
            Known::Init => Refusal::Init,
            Known::KernelThread => Refusal::KernelThread,
            Known::OwnAncestry => Refusal::OwnAncestry,
            Known::Role(role) => Refusal::Role((*role).into()),
            Known::Protected => Refusal::Protected,
            Known::UnknownIdentity => Refusal::UnknownIdentity,
            Known::NotTheSame => Refusal::NotTheSame,
            Known::HoldsNothing | Known::HoldsOthers => Refusal::HoldsNothing,
            Known::OtherUser => Refusal::OtherUser,
            Known::NotSeen => Refusal::NotSeen,
            Known::LeadsSession => Refusal::LeadsSession,
            Known::LoginSession => Refusal::LoginSession,
            Known::ParentNotSeen => Refusal::ParentNotSeen,
            Known::ScopeNotSeen => Refusal::ScopeNotSeen,
            Known::NoContainer => Refusal::NoContainer,
            Known::ScopeHolds(pid, why) => Refusal::ScopeHolds(pid.0, Box::new(Refusal::of(why))),
        }
    }
}
