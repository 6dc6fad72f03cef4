//! `gpuws reset --json`.

use super::{Device, Failure, Head, Process};
use crate::wording::reset as wording;
use gpu_core::DeviceState;
use gpu_reaper::Role;
use gpu_reaper::reset::{Check, Outcome};
use serde::Serialize;

/// What blocks the reset of a GPU, and the result of the reset.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reset {
    /// The source of the data.
    #[serde(flatten)]
    pub head: Head,
    /// The GPU.
    pub gpu: Device,
    /// Indexes of the GPUs that are reset together with it. Null if not all of them are known.
    pub linked_gpus_by_index: Option<Vec<u32>>,
    /// Processes that block the reset.
    pub blockers: Vec<Blocker>,
    /// Why there may be more blockers, as a sentence fragment. Null if the list is complete.
    pub unknown: Option<String>,
    /// Whether nothing blocks the reset.
    pub possible: bool,
    /// Whether the driver reset the GPU. Null if no reset was requested.
    pub done: Option<bool>,
    /// Why the reset failed. Null if it did not.
    pub error: Option<Failure>,
    /// Memory in use before the reset, in bytes. Null if unknown.
    pub memory_before_bytes: Option<u64>,
    /// Memory in use after the reset, in bytes. Null if unknown, or without a reset.
    pub memory_after_bytes: Option<u64>,
}

/// A process that blocks the reset.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blocker {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// Indexes of the GPUs that it uses.
    pub on_gpus_by_index: Vec<u32>,
    /// Paths of the device files that it has.
    pub files: Vec<String>,
    /// Role of the process.
    pub role: Role,
    /// Highest percentage of the sample period during which it computed on one of the GPUs. Null if
    /// the driver did not report it.
    pub utilization_percent: Option<u8>,
    /// Command that leads to the release of the GPU.
    pub next: String,
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
            utilization_percent: blocker.utilization.ok().map(gpu_core::Percent::get),
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
