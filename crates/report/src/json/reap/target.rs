//! The processes that are to be ended, and those that must not be.

use crate::json::Process;
use gpu_core::{ProcessKey, Snapshot};
use gpu_reaper::JobMark;
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
    Job(&'a JobMark),
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
            gpu_reaper::Membership::Descends(key) => Membership::Descends(*key),
            gpu_reaper::Membership::Job(mark) => Membership::Job(mark),
        }
    }
}
