//! The memory that a process holds on a device in addition to its tensors.

use super::{Engine, Run};
use gpu_core::Bytes;

/// A measured amount of memory that tensors do not account for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// The consumer of the memory, and where it was observed.
    pub what: &'static str,
    /// The smallest reported amount, in MiB.
    pub least_mib: u64,
    /// The largest reported amount, in MiB.
    pub most_mib: u64,
    /// The source of the report.
    pub source: &'static str,
}

/// Reported sizes of CUDA contexts and library workspaces.
///
/// The size of a context depends on the driver, the number of multiprocessors and the loaded
/// kernels, so the ranges are wide. Since CUDA 11.7, kernels are loaded when first used.
pub const OVERHEADS: &[Overhead] = &[
    Overhead {
        what: "CUDA context with PyTorch, kernels loaded at once (before CUDA 11.7)",
        least_mib: 880,
        most_mib: 1490,
        source: "pytorch#49877, pytorch#28394",
    },
    Overhead {
        what: "CUDA context with PyTorch, kernels loaded on use",
        least_mib: 256,
        most_mib: 620,
        source: "pytorch#107667, InvokeAI#9413, unsloth-zoo#1053, LMCache#4019; measured on an H200",
    },
    Overhead {
        what: "constant in Ollama, per device",
        least_mib: 377,
        most_mib: 457,
        source: "ollama#10765, ollama#3241",
    },
    Overhead {
        what: "llama.cpp's unaccounted memory on Blackwell",
        least_mib: 753,
        most_mib: 2183,
        source: "logs of common_memory_breakdown_print",
    },
    Overhead {
        what: "cuBLAS workspace per handle and stream, 32 MiB on Hopper",
        least_mib: 8,
        most_mib: 32,
        source: "CUDABlas.cpp of PyTorch",
    },
    Overhead {
        what: "cuBLASLt workspace, 32 MiB on Hopper and later",
        least_mib: 1,
        most_mib: 32,
        source: "pytorch PR#120925",
    },
];

/// Returns the memory that a process holds on each device in addition to tensors and buffers: the
/// run's own figure, or the engine's default.
///
/// The default for llama.cpp is the constant in Ollama, which uses the same library. The default
/// for PyTorch is a context with kernels loaded on use (426 MiB, unsloth-zoo#1053) plus the
/// workspaces of cuBLAS and cuBLASLt.
pub fn overhead(run: &Run) -> Bytes {
    run.overhead.unwrap_or(match run.engine {
        Engine::LlamaCpp => Bytes::from_mib(457),
        Engine::Vllm | Engine::Transformers => Bytes::from_mib(426 + 8 + 1),
    })
}
