//! The figures of a message.

use super::answer::{Cause, Remedy};
use gpu_core::{Bytes, Pid};

/// The program that printed a message, as far as the advice depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageSource {
    /// PyTorch up to 1.3, or 1.4 to 1.9: its allocator has no settings.
    TorchWithoutSettings,
    /// PyTorch 1.10 to 2.0: supports `max_split_size_mb`.
    TorchWithSplit,
    /// PyTorch 2.1 and later: supports `expandable_segments`.
    TorchExpandable,
    /// PyTorch on Apple's Metal.
    TorchMetal,
    /// PyTorch or XLA, about host memory.
    Host,
    /// PyTorch of an unknown version, or on another backend.
    Torch,
    /// TensorFlow's allocator.
    TensorFlow,
    /// XLA's allocator outside TensorFlow, or its runtime.
    Xla,
    /// CuPy.
    CuPy,
    /// RAPIDS Memory Manager.
    Rmm,
    /// llama.cpp.
    LlamaCpp,
    /// vLLM's check at startup.
    Vllm,
    /// Any other program that uses CUDA.
    #[default]
    Other,
}

impl MessageSource {
    /// Returns whether it is PyTorch about a device's memory.
    pub const fn is_torch(self) -> bool {
        matches!(
            self,
            MessageSource::TorchWithoutSettings
                | MessageSource::TorchWithSplit
                | MessageSource::TorchExpandable
                | MessageSource::Torch
        )
    }
}

/// The figures of a message; `None` if it does not contain them.
#[derive(Clone, Debug, Default)]
pub struct OomFigures {
    /// The program that printed it.
    pub speaker: MessageSource,
    /// The backend, such as `cuda`, `hip`, `xpu`, `vulkan` or `nvenc`, if known.
    pub backend: Option<String>,
    /// The requested size.
    pub asked: Option<Bytes>,
    /// Total memory of the device.
    pub total: Option<Bytes>,
    /// Free memory of the device.
    pub free: Option<Bytes>,
    /// The allocator's memory in use by the program.
    pub in_use: Option<Bytes>,
    /// The allocator's cached memory.
    pub unused: Option<Bytes>,
    /// The part of `in_use` in private pools, which serve no other requests.
    pub private_pools: Option<Bytes>,
    /// The total memory of the process on the device, as the driver reports it.
    pub process: Option<Bytes>,
    /// The memory of other processes, if the message has one figure for all.
    pub outside: Option<Bytes>,
    /// Other processes on the device.
    pub others: Vec<Other>,
    /// The limit of the allocator.
    pub limit: Option<Bytes>,
    /// The largest free block of the allocator.
    pub largest_free: Option<Bytes>,
    /// The first and last size of a series of ever smaller requests, and the number of attempts.
    pub ladder: Option<(Bytes, Bytes, usize)>,
    /// The minimum memory that the compiler could achieve.
    pub needs_at_least: Option<Bytes>,
    /// Whether the program reports that it continued without the memory.
    pub went_on: bool,
    /// The remaining memory below the limit, if the message has this figure but not the limit.
    pub left: Option<Bytes>,
    /// The total need including the request, if the message has a single figure for it.
    pub needs: Option<Bytes>,
    /// The variable with the settings of its allocator, if the message names it.
    pub variable: Option<&'static str>,
    /// The maximum rounding error of a printed figure.
    pub slack: Bytes,
    /// The maximum rounding error of free + cached − asked.
    pub room_slack: Bytes,
    /// The maximum rounding error of asked − free.
    pub lacking_slack: Bytes,
    /// The cause, if the program states it in its own words.
    pub stated: Option<Stated>,
    /// Remedies in the terms of the engine, best first.
    pub own_remedies: Vec<Remedy>,
    /// Figures that no memory can have, one sentence each; they appear in no other field.
    pub impossible: Vec<String>,
}

/// A cause that a program states in its own words.
#[derive(Clone, Debug)]
pub struct Stated {
    /// The cause.
    pub cause: Cause,
    /// The cause in one line.
    pub verdict: String,
    /// The explanation, with the figures.
    pub reason: String,
}

impl OomFigures {
    /// Returns whether the device may be NVIDIA's. Other devices are described only by the message.
    pub fn may_be_nvidia(&self) -> bool {
        const OTHERS: [&str; 8] = ["hip", "xpu", "mps", "npu", "mlu", "musa", "hpu", "tpu"];
        self.backend.as_deref().is_none_or(|backend| !OTHERS.contains(&backend))
    }

    /// Returns a message without any figures.
    pub fn by(speaker: MessageSource) -> Self {
        OomFigures { speaker, ..OomFigures::default() }
    }

    /// Returns whether `more` exceeds `less`, beyond rounding errors.
    pub(super) fn surely_more(&self, more: Bytes, less: Bytes) -> bool {
        // A sum of a few printed figures is off by at most this many rounding errors.
        more > less + Bytes(self.slack.0.saturating_mul(3))
    }
}

/// Another process that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its PID, in the driver's namespace.
    pub pid: Pid,
    /// Its memory; `None` if the figure is implausible.
    pub memory: Option<Bytes>,
}
