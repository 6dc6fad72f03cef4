//! What was done and what came of it.

use crate::plan::Target;
use crate::role::Role;
use gpu_core::{Bytes, DeviceId, Fault, Pid, ProcessState, Reading, Signal};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What [`execute`](crate::execute) did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// An entry per target.
    pub actions: Vec<Action>,
    /// An entry per device that a target held.
    pub memory: Vec<Freed>,
    /// Who is there after all and was in no plan, or why that could not be seen.
    #[serde(with = "gpu_core::reading")]
    pub newcomers: Reading<Vec<Newcomer>>,
    /// Why everything was stopped before its end, where it was: no audit log, no signal.
    pub stopped: Option<Fault>,
    /// Why the audit log has not all that was done to the caller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<Fault>,
}

impl Report {
    /// Returns the report of a plan of which nothing was done.
    pub(crate) fn stopped(stopped: Option<Fault>) -> Self {
        let newcomers = Ok(Vec::new());
        Report { actions: Vec::new(), memory: Vec::new(), newcomers, stopped, unwritten: None }
    }

    /// Returns the report of an empty plan.
    pub fn nothing() -> Self {
        Report::stopped(None)
    }

    /// Returns whether every target is gone, all memory that was expected was seen free, and nobody
    /// took it again.
    pub fn is_complete(&self) -> bool {
        self.stopped.is_none()
            && self.newcomers.as_ref().is_ok_and(Vec::is_empty)
            && self.actions.iter().all(|action| action.outcome.is_gone())
            && self.memory.iter().all(|freed| freed.came_back)
    }
}

/// What was done to one target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// The signals that were sent, in order.
    pub signals: Vec<Signal>,
    /// What became of it.
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

/// What became of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// Everything was stopped before its turn.
    NotReached,
    /// It had ended before anything was sent.
    AlreadyGone,
    /// It ended after the last signal.
    Ended {
        /// Time from that signal until it was seen gone, in milliseconds.
        after_ms: u64,
    },
    /// It let go of the device, or left the scope, and was sent nothing more.
    LetGo,
    /// Its number belongs to another process now, or it changed its user; nothing was sent.
    NotTheSame,
    /// It executes another program than when the plan was made, and was sent nothing more.
    AnotherProgram,
    /// It is a monitor, a display server or a daemon by now, and was sent nothing more.
    RoleForbids {
        /// What it is there for.
        role: Role,
    },
    /// It is part of a login session by now, and was sent nothing more.
    LoginSession,
    /// It is protected, and was sent nothing.
    Protected,
    /// What it was in the scope of was spared, so it was too.
    Spared,
    /// It was signalled, and everything was stopped before it was seen to end.
    Unsettled,
    /// It lives on after SIGKILL.
    Survived {
        /// Its state, where it could be read; uninterruptible means that nothing ends it yet.
        #[serde(with = "gpu_core::reading")]
        state: Reading<ProcessState>,
    },
    /// It could not be checked or signalled; nothing more was sent.
    Failed {
        /// Why.
        why: Fault,
    },
}

impl Outcome {
    /// Returns the name under which it stands in the audit log and in JSON.
    pub(crate) fn name(&self) -> &'static str {
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

/// A process that is there after an act and was in no plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Newcomer {
    /// The process.
    pub pid: Pid,
    /// Its name, where it could be read.
    pub name: Option<String>,
    /// What it did.
    pub why: Why,
}

/// What a process did that was in no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// It uses a device since its memory came back: a supervisor started again what was ended, or
    /// somebody else was waiting for it.
    TookTheDevice,
    /// It was born into a scope that was to be ended whole, or moved there.
    JoinedTheScope,
}

/// The memory of one device, before and after, both as seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Freed {
    /// The device.
    pub device: DeviceId,
    /// Used right before the first signal.
    #[serde(rename = "before_bytes", with = "gpu_core::reading")]
    pub before: Reading<Bytes>,
    /// Used at the last look.
    #[serde(rename = "after_bytes", with = "gpu_core::reading")]
    pub after: Reading<Bytes>,
    /// `before − after`, less what other listed processes gave back meanwhile; `None` where one of
    /// the two was not seen, zero where nothing came back.
    #[serde(rename = "freed_bytes")]
    pub freed: Option<Bytes>,
    /// What other listed processes gave back meanwhile; `None` where that is nothing or not known.
    #[serde(rename = "by_others_bytes")]
    pub by_others: Option<Bytes>,
    /// Why `freed` may be what others gave back; `None` where the targets surely did.
    pub doubt: Option<Doubt>,
    /// What was expected at most; `None` where that was not known.
    #[serde(rename = "expected_bytes")]
    pub expected: Option<Bytes>,
    /// Time from the end of the last target until `after` was seen.
    #[serde(rename = "seen_after_ms", serialize_with = "crate::plan::millis")]
    pub seen_after: Duration,
    /// All targets of the device ended, and they gave back all that was expected, the driver's own
    /// share aside; where it was not known how much that is, more than that share.
    pub came_back: bool,
}

/// Why memory that came back may be that of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// The driver does not tell what other processes have.
    NotListed,
    /// This process, which no list accounts for, let go of the device meanwhile.
    LetGo(Pid),
    /// A process that could not be looked into ended meanwhile.
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
