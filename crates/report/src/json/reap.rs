//! `gpuws reap --json`.

mod action;
mod target;

pub use action::{Action, Outcome};
pub use target::{Membership, Target};

use super::{Device, Head};
use gpu_core::Snapshot;
use gpu_reaper::{Doubt, Freed, Newcomer, Plan, Refused, Report};
use serde::Serialize;

/// The plan to free memory, and its result.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reap<'a> {
    /// The source of the data.
    #[serde(flatten)]
    pub head: Head,
    /// The plan and its result.
    #[serde(flatten)]
    pub planned: Planned<'a>,
}

/// A plan, and its result.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Planned<'a> {
    /// Processes to end, in order.
    pub targets: Vec<Target<'a>>,
    /// Processes that must not be ended, with the reason.
    pub refused: &'a [Refused],
    /// Processes that the choice of GPUs or users excludes, with the reason.
    pub left_out: &'a [Refused],
    /// Memory that should be freed, by GPU.
    pub expected: Vec<Expected>,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// Result of the plan. Null for a dry run.
    pub report: Option<Execution<'a>>,
}

/// Memory that should be freed on a GPU.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Expected {
    /// The GPU.
    #[serde(flatten)]
    pub gpu: Device,
    /// Upper bound of the freed memory, in bytes. Null if other processes share the memory.
    pub memory_bytes: Option<u64>,
}

/// Result of a plan.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Execution<'a> {
    /// What was done to each target.
    pub actions: Vec<Action<'a>>,
    /// Memory before and after, by GPU.
    pub memory: Vec<Memory>,
    /// Unplanned processes that use a freed GPU or joined an ended group or container. Null if
    /// unknown.
    pub newcomers: Option<&'a [Newcomer]>,
    /// Why the plan was stopped before its end, as a sentence fragment. Null if it was not.
    pub stopped: Option<String>,
    /// Whether all targets are gone, all expected memory was seen free, and no process took it
    /// again.
    pub complete: bool,
}

/// Memory of a GPU before and after, both measured.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Memory {
    /// The GPU.
    #[serde(flatten)]
    pub gpu: Device,
    /// Memory in use before the first signal, in bytes. Null if unknown.
    pub before_bytes: Option<u64>,
    /// Memory in use at the last sample, in bytes. Null if unknown.
    pub after_bytes: Option<u64>,
    /// Freed memory, in bytes, without by_others_bytes. Null if it could not be measured.
    pub freed_bytes: Option<u64>,
    /// Memory that other listed processes freed meanwhile, in bytes. Null if none or unknown.
    pub by_others_bytes: Option<u64>,
    /// Why other processes may have freed the memory. Null if the targets certainly did.
    pub doubt: Option<Doubt>,
    /// Upper bound of the memory expected to be freed, in bytes. Null if unknown.
    pub expected_bytes: Option<u64>,
    /// Time from the end of the last target to the last sample, in milliseconds.
    pub seen_after_ms: u64,
    /// Whether all expected memory was freed.
    pub came_back: bool,
}

impl<'a> Reap<'a> {
    /// Returns the object for a plan and, if it was executed, its result.
    pub fn of(snapshot: &Snapshot, plan: &'a Plan, report: Option<&'a Report>) -> Self {
        Reap { head: Head::of(snapshot), planned: Planned::of(snapshot, plan, report) }
    }
}

impl<'a> Planned<'a> {
    pub(super) fn of(snapshot: &Snapshot, plan: &'a Plan, report: Option<&'a Report>) -> Self {
        let expected = |expected: &gpu_reaper::Expected| Expected {
            gpu: Device::of(&expected.device),
            memory_bytes: expected.memory.map(|bytes| bytes.0),
        };
        Planned {
            targets: plan.targets.iter().map(|target| Target::of(snapshot, target)).collect(),
            refused: &plan.refused,
            left_out: &plan.left_out,
            expected: plan.expected.iter().map(expected).collect(),
            grace_ms: millis(plan.grace),
            report: report.map(|report| Execution {
                actions: report.actions.iter().map(Action::of).collect(),
                memory: report.memory.iter().map(Memory::of).collect(),
                newcomers: report.newcomers.as_deref().ok(),
                stopped: report.stopped.as_ref().map(|fault| format!("failed to {fault}")),
                complete: report.is_complete() && plan.refused.is_empty(),
            }),
        }
    }
}

impl Memory {
    fn of(freed: &Freed) -> Self {
        Memory {
            gpu: Device::of(&freed.device),
            before_bytes: freed.before.ok().map(|bytes| bytes.0),
            after_bytes: freed.after.ok().map(|bytes| bytes.0),
            freed_bytes: freed.freed.map(|bytes| bytes.0),
            by_others_bytes: freed.by_others.map(|bytes| bytes.0),
            doubt: freed.doubt,
            expected_bytes: freed.expected.map(|bytes| bytes.0),
            seen_after_ms: millis(freed.seen_after),
            came_back: freed.came_back,
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
