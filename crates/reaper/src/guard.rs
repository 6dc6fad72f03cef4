//! Protection of processes.

use crate::role::Role;
use gpu_core::{Host, Pid, ProcessInfo, ProcessKey, Result, kernel_name};
use serde::Serialize;
use std::fmt;

/// A process that the user protects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protect {
    /// By PID.
    Pid(Pid),
    /// By name, as the kernel shows it.
    Name(String),
    /// Every process of a user, by name or UID.
    User(String),
}

/// Protects the processes that must never be signalled: PID 1, kernel threads, the caller and its
/// ancestors, display servers, monitors and daemons, and those that the user names.
#[derive(Clone, Debug)]
pub struct Guard {
    own_ancestry: Vec<ProcessKey>,
    protect: Vec<Protect>,
}

/// Why a process is not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// The driver lists it on a GPU, but it has no device file open.
    OnlyListed,
    // JSON does not distinguish it from the former.
    /// It holds devices, but not the requested ones.
    #[serde(rename = "holds-nothing")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    HoldsOthers,
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
    ScopeHolds(Pid, Box<Refusal>),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Init => "it is PID 1",
            Refusal::KernelThread => "it is a kernel thread",
            Refusal::OwnAncestry => "it is gpuws itself or one of its ancestors",
            Refusal::Role(Role::Monitor) => "it is a monitor: it uses no device memory",
            Refusal::Role(Role::Display) => "it is a display server",
            Refusal::Role(_) => "it is a system daemon for the GPU",
            Refusal::Protected => "it is on the protect list",
            Refusal::UnknownIdentity => "its start time is unknown",
            Refusal::NotTheSame => "it is not the chosen process (PID reused)",
            Refusal::HoldsNothing => "it holds no GPU",
            Refusal::OnlyListed => {
                "the driver lists it, but no open device file confirms that it uses a GPU; if it is \
                 the right one, end it with kill"
            }
            Refusal::HoldsOthers => "it holds none of the requested GPUs",
            Refusal::OtherUser => "it belongs to none of the requested users",
            Refusal::NotSeen => "no such process is visible",
            Refusal::LeadsSession => "it is a login session leader",
            Refusal::LoginSession => "it is part of a login session",
            Refusal::ParentNotSeen => "its parent is not visible, so it may be a login shell",
            Refusal::ScopeNotSeen => "the members of its scope are unknown",
            Refusal::NoContainer => "it belongs to no container, pod or job",
            Refusal::ScopeHolds(pid, why) => {
                return write!(f, "the scope would end {pid} too, and {why}");
            }
        })
    }
}

impl Guard {
    /// Returns the guard for the calling process.
    ///
    /// # Errors
    /// When its own ancestry cannot be read: no signal may then be sent.
    pub fn new(host: &dyn Host, protect: Vec<Protect>) -> Result<Self> {
        Ok(Guard { own_ancestry: host.own_ancestry()?, protect })
    }

    /// Returns why `process` must not be signalled, whatever it holds; `None` when it may be.
    pub fn forbids(&self, process: &ProcessInfo) -> Option<Refusal> {
        let pid = process.key.pid;
        if pid.0 <= 1 {
            return Some(Refusal::Init);
        }
        if process.kernel_thread {
            return Some(Refusal::KernelThread);
        }
        if self.own_ancestry.iter().any(|own| own.pid == pid) {
            return Some(Refusal::OwnAncestry);
        }
        if self.protect.iter().any(|protect| protect.covers(process)) {
            return Some(Refusal::Protected);
        }
        if process.key.start.is_none() {
            return Some(Refusal::UnknownIdentity);
        }
        None
    }
}

impl Protect {
    /// Returns whether this protects a process.
    pub fn covers(&self, process: &ProcessInfo) -> bool {
        match self {
            Protect::Pid(pid) => process.key.pid == *pid,
            Protect::Name(name) => kernel_name(&process.name) == kernel_name(name),
            Protect::User(user) => process.is_of(user),
        }
    }
}
