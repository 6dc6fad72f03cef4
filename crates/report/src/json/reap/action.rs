//! What was done to a process, and what became of it.

use crate::json::Failure;
use gpu_core::{ProcessState, Signal};
use gpu_reaper::Role;
use serde::Serialize;

/// What was done to a process.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action<'a> {
    /// Process ID.
    pub pid: u32,
    /// Short name (comm) of the process.
    pub name: &'a str,
    /// The signals that were sent, in order.
    pub signals: &'a [Signal],
    /// What became of the process.
    pub outcome: Outcome,
}

/// What became of a process.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Outcome {
    /// The plan was stopped before its turn.
    NotReached,
    /// The process had ended before any signal.
    AlreadyGone,
    /// The process ended after the last signal.
    Ended {
        /// Time from the last signal until the process was seen gone, in milliseconds.
        after_ms: u64,
    },
    /// The process released the GPU or left the group or container, and was not signalled again.
    LetGo,
    /// The PID belongs to another process now, or the process changed its user: no signal was sent.
    NotTheSame,
    /// The process executes another program than planned, and was not signalled again.
    AnotherProgram,
    /// The process became a monitor, display server or daemon, and was not signalled again.
    RoleForbids {
        /// The new role of the process.
        role: Role,
    },
    /// The process became part of a login session, and was not signalled again.
    LoginSession,
    /// The process is protected: no signal was sent.
    Protected,
    /// The group or container of the process was spared: no signal was sent.
    Spared,
    /// The process was signalled, and the plan was stopped before its end was seen.
    Unsettled,
    /// The process is still running after SIGKILL.
    Survived {
        /// State of the process. Null if unknown.
        state: Option<ProcessState>,
    },
    /// The process could not be checked or signalled.
    Failed {
        /// Why it failed.
        why: Failure,
    },
}

impl<'a> Action<'a> {
    pub(super) fn of(known: &'a gpu_reaper::Action) -> Self {
        Action {
            pid: known.pid.0,
            name: &known.name,
            signals: &known.signals,
            outcome: Outcome::of(&known.outcome),
        }
    }
}

impl Outcome {
    /// Returns the object for an outcome.
    pub fn of(known: &gpu_reaper::Outcome) -> Self {
        use gpu_reaper::Outcome as Known;
        match known {
            Known::NotReached => Outcome::NotReached,
            Known::AlreadyGone => Outcome::AlreadyGone,
            Known::Ended { after_ms } => Outcome::Ended { after_ms: *after_ms },
            Known::LetGo => Outcome::LetGo,
            Known::NotTheSame => Outcome::NotTheSame,
            Known::AnotherProgram => Outcome::AnotherProgram,
            Known::RoleForbids { role } => Outcome::RoleForbids { role: *role },
            Known::LoginSession => Outcome::LoginSession,
            Known::Protected => Outcome::Protected,
            Known::Spared => Outcome::Spared,
            Known::Unsettled => Outcome::Unsettled,
            Known::Survived { state } => Outcome::Survived { state: state.ok() },
            Known::Failed { why } => Outcome::Failed { why: Failure::of(why) },
        }
    }
}
