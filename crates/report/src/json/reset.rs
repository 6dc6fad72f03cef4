//! `gpuws reset --json`.

use super::{Device, Failure, Head, Process};
use crate::wording::reset as wording;
use gpu_core::DeviceState;
use gpu_reaper::Role;
use gpu_reaper::reset::{Check, Outcome};
use serde::Serialize;

/// Who is in the way of a reset, and what became of it.
#[derive(Serialize)]
pub struct Reset {
    #[serde(flatten)]
    head: Head,
    gpu: Device,
    /// The devices that are reset with it; null where not all of them are told.
    linked_gpus_by_index: Option<Vec<u32>>,
    blockers: Vec<Blocker>,
    /// Why there may be more of them.
    unknown: Option<String>,
    /// Nobody is in the way.
    possible: bool,
    /// Null where the driver was not asked.
    done: Option<bool>,
    /// What the driver answered.
    error: Option<Failure>,
    memory_before_bytes: Option<u64>,
    memory_after_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Blocker {
    #[serde(flatten)]
    process: Process,
    on_gpus_by_index: Vec<u32>,
    files: Vec<String>,
    role: Role,
    /// The command that gets it out of the way.
    next: String,
}

impl Reset {
    /// Returns what was found out and what became of it; `sim` is the option that names a
    /// simulated machine in the next commands.
    pub fn of(check: &Check<'_>, outcome: Option<&Outcome>, sim: &str) -> Self {
        let answer = outcome.map(|outcome| &outcome.answer);
        let after = outcome.and_then(|outcome| outcome.after.as_ref());
        let used = |device: &DeviceState| device.memory_used().ok().map(|bytes| bytes.0);
        let blocker = |blocker: &gpu_reaper::reset::Blocker| Blocker {
            process: Process::of(check.now, blocker.pid),
            on_gpus_by_index: blocker.devices.clone(),
            files: blocker.files.iter().map(|held| held.path.to_string()).collect(),
            role: blocker.role,
            next: wording::way(&blocker.way, sim).0,
        };
        Reset {
            head: Head::of(check.now),
            gpu: Device::of(check.device.id()),
            linked_gpus_by_index: check.linked.whole.then(|| check.linked.peers.clone()),
            blockers: check.blockers.users.iter().map(blocker).collect(),
            unknown: check.blockers.unknown.map(wording::why),
            possible: check.blockers.is_clear(),
            done: answer.map(Result::is_ok),
            error: answer.and_then(|answer| answer.as_ref().err()).map(Failure::of),
            memory_before_bytes: used(check.device),
            memory_after_bytes: after.and_then(used),
        }
    }
}
