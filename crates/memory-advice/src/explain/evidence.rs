//! What a message shows, and what a machine shows now.

use super::account::Account;
use gpu_core::{Bytes, Pid, amount};

/// Whose message it is, as far as advice depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSource {
    /// PyTorch up to 1.3, or of 1.4 to 1.9: its allocator takes no settings.
    TorchWithoutSettings,
    /// PyTorch 1.10 to 2.0: takes `max_split_size_mb`.
    TorchWithSplit,
    /// PyTorch 2.1 and later: takes `expandable_segments`.
    TorchExpandable,
    /// PyTorch on Apple's Metal.
    TorchMetal,
    /// PyTorch or XLA, about the memory of the host.
    Host,
    /// PyTorch of a version that the message does not tell, or on another backend.
    Torch,
    /// TensorFlow's allocator.
    TensorFlow,
    /// XLA's allocator outside of TensorFlow, or its runtime.
    Xla,
    /// CuPy.
    CuPy,
    /// RAPIDS Memory Manager.
    Rmm,
    /// llama.cpp.
    LlamaCpp,
    /// vLLM's check at its start.
    Vllm,
    /// Any other program that uses CUDA.
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

/// The figures of a message; `None` where it does not tell.
#[derive(Clone, Debug)]
pub struct OomFigures {
    /// Whose message it is.
    pub speaker: MessageSource,
    /// `cuda`, `hip`, `xpu`, `vulkan`, `nvenc`, …, where it is told.
    pub backend: Option<String>,
    /// What was asked for.
    pub asked: Option<Bytes>,
    /// All memory of the device.
    pub total: Option<Bytes>,
    /// Free memory of the device.
    pub free: Option<Bytes>,
    /// What the program uses of its allocator.
    pub in_use: Option<Bytes>,
    /// What the allocator holds and the program does not use.
    pub unused: Option<Bytes>,
    /// What of `in_use` is in private pools, which serve nobody else.
    pub private_pools: Option<Bytes>,
    /// What the process holds of the device in all, as the driver says.
    pub process: Option<Bytes>,
    /// What others hold, where the message has one figure for all.
    pub outside: Option<Bytes>,
    /// Other processes on the device.
    pub others: Vec<Other>,
    /// The most that the allocator may hold.
    pub limit: Option<Bytes>,
    /// The largest free block that the allocator holds.
    pub largest_free: Option<Bytes>,
    /// The first and the last size of a ladder, and how many were tried.
    pub ladder: Option<(Bytes, Bytes, usize)>,
    /// What the compiler could not do with less than.
    pub needs_at_least: Option<Bytes>,
    /// The program says itself that it went on without.
    pub went_on: bool,
    /// What its limit leaves, where the message tells this and not the limit.
    pub left: Option<Bytes>,
    /// What all of it would come to with the request, where the message has one figure for it.
    pub needs: Option<Bytes>,
    /// The variable with the settings of its allocator, where the message names it.
    pub variable: Option<&'static str>,
    /// How far a printed figure may be from the real one.
    pub slack: Bytes,
    /// How far what is free and what is held unused, less what was asked for, may be from it.
    pub room_slack: Bytes,
}

impl OomFigures {
    /// Returns whether the device may be NVIDIA's; of others, nothing but the message tells anything.
    pub fn may_be_nvidia(&self) -> bool {
        const OTHERS: [&str; 8] = ["hip", "xpu", "mps", "npu", "mlu", "musa", "hpu", "tpu"];
        self.backend.as_deref().is_none_or(|backend| !OTHERS.contains(&backend))
    }

    /// Returns a message of which nothing is known but its speaker.
    pub fn by(speaker: MessageSource) -> Self {
        OomFigures {
            speaker,
            backend: None,
            asked: None,
            total: None,
            free: None,
            in_use: None,
            unused: None,
            private_pools: None,
            process: None,
            outside: None,
            others: Vec::new(),
            limit: None,
            largest_free: None,
            ladder: None,
            needs_at_least: None,
            went_on: false,
            left: None,
            needs: None,
            variable: None,
            slack: Bytes(0),
            room_slack: Bytes(0),
        }
    }

    /// Returns whether `more` is more than `less`, whatever was rounded away of them.
    pub(super) fn surely_more(&self, more: Bytes, less: Bytes) -> bool {
        // A sum of a few printed figures is off by at most so many halves of a last digit.
        more > less + Bytes(self.slack.0.saturating_mul(3))
    }
}

/// Another process that a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its number, in the driver's namespace.
    pub pid: Pid,
    /// What it holds; `None` where the figure is absurd.
    pub memory: Option<Bytes>,
}

/// What a machine shows now.
#[derive(Clone, Debug, Default)]
pub struct Now {
    /// Its devices.
    pub devices: Vec<Device>,
    /// Who holds memory of them.
    pub residents: Vec<Resident>,
}

/// A device as it is now.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// All its memory.
    pub total: Bytes,
    /// Its free memory.
    pub free: Bytes,
    /// Memory that no process accounts for, as a look at the whole machine found.
    pub ghost: Option<Bytes>,
}

/// A process that holds memory now.
#[derive(Clone, Debug)]
pub struct Resident {
    /// Its number.
    pub pid: Pid,
    /// What it is, in words.
    pub name: String,
    /// The device.
    pub device: u32,
    /// What it holds there.
    pub memory: Option<Bytes>,
}

impl Now {
    /// Tells what of the machine bears on a message.
    pub(super) fn told(&self, shown: &OomFigures, account: &Account) -> Vec<String> {
        let mut told = Vec::new();
        for other in &shown.others {
            let is_here = |resident: &&Resident| resident.pid == other.pid;
            match self.residents.iter().find(is_here) {
                Some(Resident { name, device, memory, .. }) => {
                    let holds = memory.map_or("memory".to_owned(), amount);
                    told.push(format!(
                        "process {} is {name} and holds {holds} on GPU {device}",
                        other.pid
                    ));
                }
                None => told.push(format!("process {} holds nothing here now", other.pid)),
            }
        }
        for device in &self.devices {
            if let Some(ghost) = device.ghost {
                told.push(format!(
                    "GPU {}: {} not attributed to any listed process",
                    device.index,
                    amount(ghost)
                ));
            }
        }
        if let (Some(need), false) = (account.needed, self.devices.is_empty()) {
            let fits = |device: &&Device| device.free >= need;
            let roomy: Vec<String> = self
                .devices
                .iter()
                .filter(fits)
                .map(|device| format!("GPU {} ({})", device.index, amount(device.free)))
                .take(8)
                .collect();
            told.push(if roomy.is_empty() {
                format!("no GPU here has the required {} free", amount(need))
            } else {
                format!("GPUs with the required {} free: {}", amount(need), roomy.join(", "))
            });
        }
        told
    }
}
