//! A simulated machine that several processes look at, each by itself.
//!
//! Nothing is shared but a folder: it says which machine, with which seed, since when, and what
//! goes wrong. A simulation is a function of these and of the time, so that every process that
//! opens the folder sees the same machine at the same moment.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What a session's folder says. The file in it is [`Session::FILE`]; the folder's path is what
/// the variable [`Session::VARIABLE`] of the environment holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The machine: a name, a folder, or a file of `gpuws record`.
    pub machine: PathBuf,
    /// The seed.
    #[serde(default)]
    pub seed: u64,
    /// When it began, by the kernel's clock since boot (`CLOCK_BOOTTIME`), which all processes
    /// share.
    pub began_ns: u64,
    /// The machine stands still at this time since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_at_ms: Option<u64>,
    /// How long each NVML function takes, on top of its work.
    #[serde(default)]
    pub latency_us: u64,
    /// What goes wrong at calls of NVML functions.
    #[serde(default)]
    pub faults: Vec<CallFault>,
    /// The real processes that stand for simulated ones.
    #[serde(default)]
    pub placeholders: Vec<Placeholder>,
    /// Each process appends what it called to [`Session::CALLS`] in the folder when it ends.
    #[serde(default)]
    pub counts_calls: bool,
}

/// Something that goes wrong at calls of one NVML function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFault {
    /// The function, such as `nvmlDeviceGetMemoryInfo_v2`; `*` for each of them.
    pub function: String,
    /// Only for this device, by index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// At which call of that function by one process it begins, counted from 1.
    #[serde(default = "first")]
    pub from: u64,
    /// At how many calls; at every further one where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// What happens.
    pub effect: CallEffect,
}

fn first() -> u64 {
    1
}

/// What happens at a call of an NVML function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallEffect {
    /// It returns this code and does nothing.
    Returns(u32),
    /// It is late.
    DelayMs(u64),
    /// It never returns.
    Hangs,
    /// The device falls off the bus, for this process, just before the call.
    LosesGpu(u32),
    /// One more process appears on the device, for this process, just before the call.
    AddsProcess(u32),
}

/// A real process that stands for a simulated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    /// The simulated process, by its number on the simulated host.
    pub simulated: u32,
    /// The real one.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Session {
    /// The file in the folder.
    pub const FILE: &'static str = "session.json";
    /// The file in the folder that calls are counted in: a line of JSON per process.
    pub const CALLS: &'static str = "calls.jsonl";
    /// The variable of the environment that names the folder.
    pub const VARIABLE: &'static str = "GPUWS_SIM_SESSION";

    /// Returns how long the session has lasted, by the clock since boot.
    pub fn elapsed(&self, now_ns: u64) -> Duration {
        match self.frozen_at_ms {
            Some(millis) => Duration::from_millis(millis),
            None => Duration::from_nanos(now_ns.saturating_sub(self.began_ns)),
        }
    }
}
