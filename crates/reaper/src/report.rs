//! The result of an execution.

use crate::plan::Target;
use crate::role::Role;
use gpu_core::{Bytes, DeviceId, Fault, Pid, ProcessState, Reading, Signal};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The result of [`execute`](crate::execute).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// One entry per target.
    pub actions: Vec<Action>,
    /// One entry per device that a target held.
    pub memory: Vec<Freed>,
    /// Unplanned processes that exist afterwards, or why they could not be seen.
    #[serde(with = "gpu_core::reading")]
    pub newcomers: Reading<Vec<Newcomer>>,
    /// Why the execution was stopped early, if it was: no audit log, no signal.
    pub stopped: Option<Fault>,
    /// Why the audit log lacks actions on the caller's own processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<Fault>,
}

impl Report {
    /// Returns the report of a plan that was not started.
    pub(crate) fn stopped(stopped: Option<Fault>) -> Self {
        let newcomers = Ok(Vec::new());
        Report { actions: Vec::new(), memory: Vec::new(), newcomers, stopped, unwritten: None }
    }

    /// Returns the report of an empty plan.
    pub fn nothing() -> Self {
        Report::stopped(None)
    }

    /// Returns whether every target is gone, all expected memory was measured as free, and no
    /// process took it again.
    pub fn is_complete(&self) -> bool {
        self.stopped.is_none()
            && self.newcomers.as_ref().is_ok_and(Vec::is_empty)
            && self.actions.iter().all(|action| action.outcome.is_gone())
            && self.memory.iter().all(|freed| freed.came_back)
    }
}

/// The actions on one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// The signals that were sent, in order.
    pub signals: Vec<Signal>,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Action {
    pub(crate) fn new(target: &Target) -> Self {
        Action {
            pid: target.key.pid,
            name: target.process.name.clone(),
            signals: Vec::new(),
            outcome: Outcome::NotReached,
        }
    }
}

/// The outcome of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// The execution stopped before its turn.
    NotReached,
    /// It had ended before any signal.
    AlreadyGone,
    /// It ended after the last signal.
    Ended {
        /// Time from that signal until its end was observed, in milliseconds.
        after_ms: u64,
    },
    /// It released the device, or left the scope, and got no more signals.
    LetGo,
    /// Its PID belongs to another process now, or it changed its user; it got no signal.
    NotTheSame,
    /// It executes another program than when the plan was made, and got no more signals.
    AnotherProgram,
    /// It has become a monitor, a display server or a daemon, and got no more signals.
    RoleForbids {
        /// Its role.
        role: Role,
    },
    /// It has become part of a login session, and got no more signals.
    LoginSession,
    /// It is protected, and got no signal.
    Protected,
    /// The scope that it belongs to was spared, so it was too.
    Spared,
    /// It was signalled, and the execution stopped before its end was observed.
    Unsettled,
    /// It is still running after SIGKILL.
    Survived {
        /// Its state, if readable; uninterruptible means that no signal ends it yet.
        #[serde(with = "gpu_core::reading")]
        state: Reading<ProcessState>,
    },
    /// It could not be checked or signalled, and got no more signals.
    Failed {
        /// The reason.
        why: Fault,
    },
}

impl Outcome {
    /// Returns its name in the audit log and in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::NotReached => "not-reached",
            Outcome::AlreadyGone => "already-gone",
            Outcome::Ended { .. } => "ended",
            Outcome::LetGo => "let-go",
            Outcome::NotTheSame => "not-the-same",
            Outcome::AnotherProgram => "another-program",
            Outcome::RoleForbids { .. } => "role-forbids",
            Outcome::LoginSession => "login-session",
            Outcome::Protected => "protected",
            Outcome::Spared => "spared",
            Outcome::Unsettled => "unsettled",
            Outcome::Survived { .. } => "survived",
            Outcome::Failed { .. } => "failed",
        }
    }

    /// Returns whether the process is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Outcome::AlreadyGone | Outcome::Ended { .. })
    }
}

/// An unplanned process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Newcomer {
    /// Process ID.
    pub pid: Pid,
    /// Short name (comm) of the process. Null if unknown.
    pub name: Option<String>,
    /// What the process did.
    pub why: Why,
}

/// What an unplanned process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "NewcomerReason"))]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// It uses a device whose memory was freed.
    TookTheDevice,
    /// It was started in, or moved to, a process group or container that was ended as a whole.
    JoinedTheScope,
}

/// The memory of one device, before and after, both measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Freed {
    /// The device.
    pub device: DeviceId,
    /// Used memory just before the first signal.
    #[serde(rename = "before_bytes", with = "gpu_core::reading")]
    pub before: Reading<Bytes>,
    /// Used memory at the last sample.
    #[serde(rename = "after_bytes", with = "gpu_core::reading")]
    pub after: Reading<Bytes>,
    /// `before − after`, minus the memory that other listed processes freed meanwhile; `None` if
    /// one of the two was not measured, zero if no memory was freed.
    #[serde(rename = "freed_bytes")]
    pub freed: Option<Bytes>,
    /// The memory that other listed processes freed meanwhile; `None` if zero or unknown.
    #[serde(rename = "by_others_bytes")]
    pub by_others: Option<Bytes>,
    /// Why `freed` may come from other processes; `None` if it certainly comes from the targets.
    pub doubt: Option<Doubt>,
    /// The maximum that was expected; `None` if unknown.
    #[serde(rename = "expected_bytes")]
    pub expected: Option<Bytes>,
    /// Time from the end of the last target until `after` was measured.
    #[serde(rename = "seen_after_ms", serialize_with = "crate::plan::millis")]
    pub seen_after: Duration,
    /// All targets of the device ended, and they freed everything expected, except for the driver's
    /// overhead; if the expected amount was unknown, more than that overhead.
    pub came_back: bool,
}

/// Why other processes may have freed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// The driver does not report the memory of each process.
    NotListed,
    /// The process with this ID, which the driver does not list, released the GPU meanwhile.
    LetGo(Pid),
    /// A process that could not be inspected ended meanwhile.
    Unseen,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::NotListed => f.write_str("the driver does not report per-process memory"),
            Doubt::LetGo(pid) => {
                write!(f, "process {pid}, which is not listed, released the device too")
            }
            Doubt::Unseen => f.write_str("a process that could not be inspected exited too"),
        }
    }
}
