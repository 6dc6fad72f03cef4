//! `gpuws reap --json`.

use super::{Device, Head, Process};
use gpu_core::Snapshot;
use gpu_reaper::{Action, Doubt, Freed, Membership, Newcomer, Plan, Refused, Report};
use serde::Serialize;

/// The plan, and what came of it.
#[derive(Serialize)]
pub struct Reap<'a> {
    #[serde(flatten)]
    head: Head,
    targets: Vec<Target<'a>>,
    refused: &'a [Refused],
    left_out: &'a [Refused],
    expected: Vec<Expected>,
    grace_ms: u64,
    /// Null for a dry run.
    report: Option<Outcome<'a>>,
}

#[derive(Serialize)]
struct Target<'a> {
    #[serde(flatten)]
    process: Process,
    membership: &'a Membership,
    on_account_of_pid: u32,
    why: &'a str,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Expected {
    #[serde(flatten)]
    gpu: Device,
    /// At most this much; null where others share it.
    memory_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    actions: &'a [Action],
    memory: Vec<Memory>,
    /// Null where that could not be seen.
    newcomers: Option<&'a [Newcomer]>,
    /// Why everything was stopped before its end.
    stopped: Option<String>,
    /// Everybody is gone, all memory was seen free, and nobody took it again.
    complete: bool,
}

#[derive(Serialize)]
struct Memory {
    #[serde(flatten)]
    gpu: Device,
    before_bytes: Option<u64>,
    after_bytes: Option<u64>,
    freed_bytes: Option<u64>,
    /// What other listed processes gave back meanwhile, which `freed_bytes` has not.
    by_others_bytes: Option<u64>,
    /// Why `freed_bytes` may be what others gave back.
    doubt: Option<Doubt>,
    expected_bytes: Option<u64>,
    seen_after_ms: u64,
    came_back: bool,
}

impl<'a> Reap<'a> {
    /// Returns what is told of a plan, and of its execution where there was one.
    pub fn of(snapshot: &Snapshot, plan: &'a Plan, report: Option<&'a Report>) -> Self {
        let target = |target: &'a gpu_reaper::Target| Target {
            process: Process::of(snapshot, target.key.pid),
            membership: &target.membership,
            on_account_of_pid: target.on_account_of.0,
            why: &target.why,
            warnings: &target.warnings,
        };
        let expected = |expected: &gpu_reaper::Expected| Expected {
            gpu: Device::of(&expected.device),
            memory_bytes: expected.memory.map(|bytes| bytes.0),
        };
        Reap {
            head: Head::of(snapshot),
            targets: plan.targets.iter().map(target).collect(),
            refused: &plan.refused,
            left_out: &plan.left_out,
            expected: plan.expected.iter().map(expected).collect(),
            grace_ms: millis(plan.grace),
            report: report.map(|report| Outcome {
                actions: &report.actions,
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
